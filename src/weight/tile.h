/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside weight: the product of a panel of decoded rows with many tokens, by the contract of type.h.
 *
 * Rows and tokens are laid out alike ("packed"): the 32 lanes are cut into parts of one register's width, and part p of
 * row r is one run of stride(n_in) floats at (p * capacity + r) * stride. A tile is a few rows by a few tokens whose sums
 * stay in registers along such a run; the sums of all parts meet in the tree at the end.
 */
#ifndef WEIGHT_TILE_H
#define WEIGHT_TILE_H

#include "weight/type.h"

enum {
    KVT_TILE_ROWS = 24,   /* capacity of a panel */
    KVT_TILE_TOKENS = 24, /* capacity of a block of packed tokens */
};

/* Floats of scratch for the sums of one panel with one block. */
enum { KVT_TILE_SUMS = KVT_TILE_ROWS * KVT_TILE_TOKENS * KVT_WEIGHT_LANES };

struct kvt_weight_tile {
    enum kvt_level level; /* whose pack functions lay rows and tokens out */
    kvt_weight_round_fn *round;
    int n_parts;
    /* dst[t * ld_dst + r] for n_tokens (up to KVT_TILE_TOKENS) of a packed block and n_rows of a panel, in which rows are
     * valid (any finite numbers) up to the next multiple of 4. */
    void (*multiply)(float *dst, ptrdiff_t ld_dst, const float *panel, int n_rows, const float *tokens, int n_tokens,
                     int64_t n_in, float *sums);
};

/* The run of a row in one part: the odd number of cache lines keeps runs from competing for the same sets. */
static inline ptrdiff_t kvt_tile_stride(int n_parts, int64_t n_in) {
    return kvt_round_up(kvt_round_up(n_in, KVT_WEIGHT_LANES) / n_parts, 32) + 16;
}

/* Of the best level up to `level`; NULL where there is none. */
const struct kvt_weight_tile *kvt_weight_tile_find(enum kvt_level level);

#endif
