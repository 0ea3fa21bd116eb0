/* SPDX-License-Identifier: Apache-2.0
 * Q8_0: 32 signed bytes and a scale. */
#ifndef WEIGHT_Q8_0_H
#define WEIGHT_Q8_0_H

#include <stdint.h>

/* In the file at any alignment: bytes only. */
struct kvt_q8_0_block {
    uint8_t d[2];
    int8_t q[32];
};
_Static_assert(sizeof(struct kvt_q8_0_block) == 34, "q8_0 block layout");

#endif
