/* SPDX-License-Identifier: Apache-2.0
 * Q4_0: 32 codes of 4 bits less 8, and a scale. The low nibbles are elements 0-15, the high ones 16-31. */
#ifndef WEIGHT_Q4_0_H
#define WEIGHT_Q4_0_H

#include <stdint.h>

/* In the file at any alignment: bytes only. */
struct kvt_q4_0_block {
    uint8_t d[2], q[16];
};
_Static_assert(sizeof(struct kvt_q4_0_block) == 18, "q4_0 block layout");

#endif
