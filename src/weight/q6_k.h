/* SPDX-License-Identifier: Apache-2.0
 * Q6_K: 256 codes of 6 bits less 32, in sixteen groups of 16 with a signed byte scale each over the block's f16. Each half
 * of 128 elements is four runs of 32: the low 4 bits of runs 0 and 2 are the nibbles of bytes 0-31, those of runs 1 and 3
 * the nibbles of bytes 32-63; the upper 2 bits of run k are bits 2k and 2k+1 of the half's 32 bytes of `high`. */
#ifndef WEIGHT_Q6_K_H
#define WEIGHT_Q6_K_H

#include <stdint.h>

/* In the file at any alignment: bytes only. */
struct kvt_q6_k_block {
    uint8_t low[128], high[64];
    int8_t scale[16];
    uint8_t d[2];
};
_Static_assert(sizeof(struct kvt_q6_k_block) == 210, "q6_k block layout");

#endif
