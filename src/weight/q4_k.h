/* SPDX-License-Identifier: Apache-2.0
 * Q4_K: 256 codes of 4 bits in eight groups of 32, each with a 6-bit scale and minimum over the block's two f16. Bytes
 * 32k .. 32k+31 hold group 2k in the low nibbles and group 2k+1 in the high ones. */
#ifndef WEIGHT_Q4_K_H
#define WEIGHT_Q4_K_H

#include <stdint.h>

/* In the file at any alignment: bytes only. */
struct kvt_q4_k_block {
    uint8_t d[2], m[2], scales[12], q[128];
};
_Static_assert(sizeof(struct kvt_q4_k_block) == 144, "q4_k block layout");

#endif
