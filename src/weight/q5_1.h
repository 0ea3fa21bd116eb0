/* SPDX-License-Identifier: Apache-2.0
 * Q5_1: Q4_1 with a fifth bit a code (bit i of `high` is element i's). */
#ifndef WEIGHT_Q5_1_H
#define WEIGHT_Q5_1_H

#include <stdint.h>

/* In the file at any alignment: bytes only. */
struct kvt_q5_1_block {
    uint8_t d[2], m[2], high[4], q[16];
};
_Static_assert(sizeof(struct kvt_q5_1_block) == 24, "q5_1 block layout");

#endif
