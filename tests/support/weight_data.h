/* SPDX-License-Identifier: Apache-2.0
 * Blocks of weights for tests: any codes, any finite scales. tests/compare/weights.py makes the same bytes. */
#ifndef SUPPORT_WEIGHT_DATA_H
#define SUPPORT_WEIGHT_DATA_H

#include "base/rng.h"
#include "weight/weight.h"

/* What the tests know of a type, apart from the code that they test. */
struct weight_layout {
    const char *name;
    int block_len, block_bytes;
    int half[2]; /* where the block's f16 fields are; -1: none */
};

/* NULL for a type that the tests do not know yet. */
const struct weight_layout *weight_layout_find(const char *name);

/* Blocks 0 .. n-1 of a type. The codes of the first 256 blocks are all equal to the block's number, the others are random;
 * the f16 fields are random and every fourth time extreme, always finite. Types without blocks are pure numbers: F32 and
 * BF16 below 2 in magnitude and down to the subnormals, F16 all finite ones. */
void weight_data_fill(unsigned char *dst, const struct weight_layout *layout, int n, uint64_t seed);

#endif
