/* SPDX-License-Identifier: Apache-2.0
 *
 * What encoders share whose groups are channels of one row: walking over rows, and where a group goes.
 */
#ifndef CODEC_PER_TOKEN_H
#define CODEC_PER_TOKEN_H

#include <string.h>

#include "base/attr.h"
#include "codec/codec.h"

/* A group in its tile: n channels from `first` on of a row. */
struct kvt_group {
    const struct kvt_tile *tile;
    void *bytes;
    int row, first, n;
};

static inline int kvt_group_term(const struct kvt_group *g) { return g->tile->side == KVT_SIDE_K ? g->first : g->row; }
static inline int kvt_group_lane(const struct kvt_group *g) { return g->tile->side == KVT_SIDE_K ? g->row : g->first; }

static inline void kvt_group_put(const struct kvt_group *g, uint32_t scale, const uint8_t *codes) {
    const bool is_k = g->tile->side == KVT_SIDE_K;
    const int term = kvt_group_term(g), lane = kvt_group_lane(g);
    kvt_tile_put_scale(g->tile, g->bytes, term, lane, scale);
    kvt_tile_put_codes(g->tile, g->bytes, term, lane, is_k, !is_k, codes, g->n);
}

static inline void kvt_group_put_zero(const struct kvt_group *g, uint16_t f16) {
    kvt_tile_put_zero(g->tile, g->bytes, kvt_group_term(g), kvt_group_lane(g), f16);
}

/* Encodes the group of x. */
typedef void (*kvt_encode_group_fn)(const struct kvt_group *g, const float *x);

/* Cuts rows into the groups of the tile's format, rotated first where the tile is; a last group may be short. */
static inline void kvt_encode_groups(const struct kvt_encode_args *a, kvt_encode_group_fn encode_group) {
    const struct kvt_tile *tile = a->tile;
    const int d = kvt_tile_row_size(tile), group = tile->format.group ? tile->format.group : d;
    float rotated[KVT_LATENT_MAX];
    for (int r = 0; r < a->n; r++) {
        const float *x = a->rows + r * a->stride;
        if (tile->format.rotated) {
            memcpy(rotated, x, (size_t)d * sizeof *x);
            kvt_rotate_f16(rotated, d);
            x = rotated;
        }
        for (int c = 0; c < d; c += group)
            encode_group(&(struct kvt_group){tile, a->bytes, a->first + r, c, KVT_MIN(group, d - c)}, x + c);
    }
}

#endif
