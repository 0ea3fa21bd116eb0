/* SPDX-License-Identifier: Apache-2.0
 * Q4_1: 32 codes of 4 bits, a scale and a minimum. The low nibbles are elements 0-15, the high ones 16-31. */
#ifndef WEIGHT_Q4_1_H
#define WEIGHT_Q4_1_H

#include <stdint.h>

/* In the file at any alignment: bytes only. */
struct kvt_q4_1_block {
    uint8_t d[2], m[2], q[16];
};
_Static_assert(sizeof(struct kvt_q4_1_block) == 20, "q4_1 block layout");

#endif
