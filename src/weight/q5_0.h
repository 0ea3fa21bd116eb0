/* SPDX-License-Identifier: Apache-2.0
 * Q5_0: Q4_0 with a fifth bit a code (bit i of `high` is element i's), so codes are less 16. */
#ifndef WEIGHT_Q5_0_H
#define WEIGHT_Q5_0_H

#include <stdint.h>

/* In the file at any alignment: bytes only. */
struct kvt_q5_0_block {
    uint8_t d[2], high[4], q[16];
};
_Static_assert(sizeof(struct kvt_q5_0_block) == 22, "q5_0 block layout");

#endif
