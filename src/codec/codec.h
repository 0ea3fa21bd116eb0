/* SPDX-License-Identifier: Apache-2.0
 *
 * Door of codec: a codec is an encoder and the description of the tile that it fills. Decoding needs the description alone.
 *
 * Attention does the same product on both sides, y[lane] = sum over terms of x[term] * value[term][lane]:
 *   K: x = a query,          term = channel, lane = row
 *   V: x = softmax weights,  term = row,     lane = channel
 * so a tile is described in terms and lanes. Lanes are stored in blocks of 32 (the last one of 16 if no more are needed),
 * and what one block needs, scales first, lies together. The bytes are drawn in docs/formats.md.
 */
#ifndef CODEC_CODEC_H
#define CODEC_CODEC_H

#include <stdint.h>

#include "kvtile/codec.h"

enum { KVT_BLOCK_LANES = 32 };

enum kvt_tile_kind {
    KVT_TILE_PLAIN, /* numbers: f32, f16, bf16; a block is [term][lane] */
    KVT_TILE_FOLD,  /* codes; a scale and zero per term and group of lanes: per-channel K, per-token V */
    KVT_TILE_LANE   /* codes; a scale and zero per lane and group of terms: per-token K */
};

enum kvt_number { KVT_NUMBER_F32, KVT_NUMBER_F16, KVT_NUMBER_BF16 };

/* Where everything in a tile lies. A value is scale * code + zero, two roundings; scales and zeros are f16. */
struct kvt_tile {
    enum kvt_tile_kind kind;
    enum kvt_number number; /* PLAIN */
    enum kvt_side side;
    int bits;
    unsigned flip; /* stored code = code ^ flip: V codes have their top bit flipped, which centres them as signed */
    int n_terms, n_lanes; /* of the tile's matrix: d x 128 (K), 128 x d (V) */
    int term_group;       /* LANE: terms that share a scale */
    int lane_group;       /* FOLD: lanes that share a scale, a multiple of 32; otherwise 32 */
    size_t scale_bytes;   /* of the scales of one lane group (FOLD) or block (LANE); the zeros take as much again */
    size_t bytes;         /* of the tile, a multiple of 64 */
};

/* Where one block of lanes lies. */
struct kvt_block {
    int lane, n_lanes;           /* first lane; lanes stored: 32 or 16 */
    size_t scales, zeros, codes; /* offsets in the tile; PLAIN: codes alone */
    int scale_stride;            /* LANE: f16 between term groups. FOLD: 0, one f16 per term */
};

void kvt_tile_init_plain(struct kvt_tile *tile, enum kvt_side side, int d, enum kvt_number number);
/* per_token: groups of `group` channels, else of `group` rows (32, 64 or 128). */
void kvt_tile_init_codes(struct kvt_tile *tile, enum kvt_side side, int d, int bits, int group, bool per_token);

static inline int kvt_tile_n_blocks(const struct kvt_tile *tile) {
    return (tile->n_lanes + KVT_BLOCK_LANES - 1) / KVT_BLOCK_LANES;
}
static inline int kvt_tile_row_size(const struct kvt_tile *tile) {
    return tile->side == KVT_SIDE_K ? tile->n_terms : tile->n_lanes;
}
struct kvt_block kvt_tile_block(const struct kvt_tile *tile, int i);

/* Planes of a code in storage order: 8 = 4+4, 6 = 4+2, 5 = 4+1, 3 = 2+1. A quad is four consecutive terms. A plane of w bits
 * has 8 / w quads in each vector (the 32-bit words of a block's lanes). step_quads: quads of one step, in which every plane
 * fills whole vectors. */
struct kvt_planes {
    int n, width[2];
    int step_quads;
};
struct kvt_planes kvt_planes_of(int bits);
/* Terms that codes are stored for: n_terms rounded up to whole steps. */
int kvt_tile_stored_terms(const struct kvt_tile *tile);

/* The scalar meaning of the layout. Codes: n of them from (term, lane) on, each (d_term, d_lane) after the one before, in one
 * block or along the lanes. Scales and zeros (`zero` picks): that of the group of (term, lane). */
void kvt_tile_put_codes(const struct kvt_tile *tile, void *bytes, int term, int lane, int d_term, int d_lane,
                        const uint8_t *codes, int n);
unsigned kvt_tile_get_code(const struct kvt_tile *tile, const void *bytes, int term, int lane);
void kvt_tile_put_scale(const struct kvt_tile *tile, void *bytes, int term, int lane, bool zero, uint16_t f16);
uint16_t kvt_tile_get_scale(const struct kvt_tile *tile, const void *bytes, int term, int lane, bool zero);
/* A whole row of a PLAIN tile, rounded to nearest even. */
void kvt_tile_put_numbers(const struct kvt_tile *tile, void *bytes, int row, const float *x);
/* One value of any tile. */
float kvt_tile_get(const struct kvt_tile *tile, const void *bytes, int term, int lane);

struct kvt_encoder;

/* A codec: one encoder at one width and group. */
struct kvt_codec {
    struct kvt_codec_info info;
    const struct kvt_encoder *encoder;
};

/* An encoder: one file, one line in list.h. */
struct kvt_encoder {
    const char *grammar;            /* the names of its codecs, for people: "affine{2,3,4,5,6,8}g{32,64,128}" */
    const struct kvt_codec *codecs; /* of one width, the default group first */
    size_t n_codecs;
    void (*describe)(const struct kvt_codec *codec, enum kvt_side side, int d, struct kvt_tile *out);
    /* Rows are finite and at most kvt_codec_limit in magnitude; first and n obey the granularity. */
    void (*encode)(const struct kvt_codec *codec, const struct kvt_tile *tile, void *bytes, int first, int n,
                   const float *rows, ptrdiff_t stride);
};

/* The description of a codec's tile; d must fit. */
void kvt_codec_describe(const struct kvt_codec *codec, enum kvt_side side, int d, struct kvt_tile *out);
/* Rows [first, first + n) to and from a described tile, without checks. */
void kvt_tile_encode(const struct kvt_codec *codec, const struct kvt_tile *tile, void *bytes, int first, int n,
                     const float *rows, ptrdiff_t stride);
void kvt_tile_decode(const struct kvt_tile *tile, float *rows, ptrdiff_t stride, const void *bytes, int first, int n);

/* The largest magnitude that a codec's rows may have: f16's, or f32's for f32 and bf16. */
float kvt_codec_limit(const struct kvt_codec *codec);

#endif
