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

#include "base/attr.h"
#include "kvtile/codec.h"

/* KVT_SLICE: channels that share a second factor. KVT_TILE_VERSION: of the layout; files name it. */
enum { KVT_BLOCK_LANES = 32, KVT_SLICE = 128, KVT_TILE_VERSION = 1 };

enum kvt_tile_kind {
    KVT_TILE_PLAIN, /* numbers: f32, f16, bf16; a block is [term][lane] */
    KVT_TILE_FOLD,  /* codes; a scale (and zero) per term and group of lanes: per-channel K, per-token V */
    KVT_TILE_LANE,  /* codes; a scale (and zero) per lane and group of terms: per-token K */
    KVT_TILE_CLASS  /* codes of three widths, by channel: codec/class.h */
};

enum kvt_number { KVT_NUMBER_F32, KVT_NUMBER_F16, KVT_NUMBER_BF16 };

/* What a code stands for, before the scale. */
enum kvt_meaning {
    KVT_MEANING_INTEGER, /* code - offset */
    KVT_MEANING_TABLE,   /* table[code], at most 16 entries */
    KVT_MEANING_E4M3,    /* 8-bit floats (OCP OFP8; code 7f and ff are NaN there and decode to 0 here) */
    KVT_MEANING_E5M2
};

/* How scales are stored, and zeros: those as f16, f32 or relative to their scale. */
enum kvt_scale {
    KVT_SCALE_F16,
    KVT_SCALE_F32,
    KVT_SCALE_E8M0,
    KVT_SCALE_E4M3,
    KVT_SCALE_LOG,   /* one byte c: 2^((c - 192) / 16) */
    KVT_SCALE_SHIFT, /* zeros: one signed byte r: the scale times (largest code) * (r - 64) / 128 */
    KVT_SCALE_NONE
};

/* What a codec says of its tile; kvt_tile_init lays it out. The rest of 0 is a sensible default. */
struct kvt_format {
    enum kvt_meaning meaning;
    const float *table;
    int bits, offset;
    enum kvt_scale scale;
    bool has_zero;
    enum kvt_scale zero; /* where there is one */
    int group; /* elements that share a scale: channels if per_token, else rows. 16, 32, 64, 128, or 0: the whole row */
    bool per_token;
    bool has_factor; /* an f16 factor per element of the other axis, one for each slice of 128 channels */
    bool rotated;    /* rows are stored rotated (kvt_rotate) */
};

/* Where everything in a tile lies. A value is ((scale * meaning(code)) + zero) * factor, in f32, one rounding for each
 * operation; what a format does not have is left out. */
struct kvt_tile {
    enum kvt_tile_kind kind;
    enum kvt_number number; /* PLAIN */
    struct kvt_format format;
    enum kvt_side side;
    unsigned flip; /* stored code = code ^ flip: V codes have their top bit flipped, which centres them as signed */
    int n_terms, n_lanes; /* of the tile's matrix: d x 128 (K), 128 x d (V) */
    int term_group;       /* LANE: terms that share a scale */
    int lane_group;       /* FOLD: lanes that share a scale, 16 or a multiple of 32; otherwise 32 */
    int n_slices;         /* factors per lane; 0: none, or CLASS */
    size_t head_bytes;    /* CLASS: what comes before the scales */
    size_t scale_bytes;   /* of the scales of one lane group (FOLD) or block (LANE) */
    size_t zero_bytes;    /* of its zeros */
    size_t factor_bytes;  /* of the factors of a block, CLASS: of the tile */
    size_t block_bytes;   /* of factors and codes, or numbers, of a block of 32 lanes */
    size_t bytes;         /* of the tile, a multiple of 64 */
};

/* Where one block of lanes lies. */
struct kvt_block {
    int lane, n_lanes;                    /* first lane; lanes stored: 32 or 16 */
    size_t scales, zeros, factors, codes; /* offsets in the tile; PLAIN: codes alone. factors: f16 [slice][32 lanes] */
};

void kvt_tile_init_plain(struct kvt_tile *tile, enum kvt_side side, int d, enum kvt_number number);
void kvt_tile_init(struct kvt_tile *tile, enum kvt_side side, int d, const struct kvt_format *format);
/* K; d is a multiple of 16. format.bits is the middle width. */
void kvt_tile_init_class(struct kvt_tile *tile, int d, const struct kvt_format *format);

KVT_INLINE int kvt_tile_n_blocks(const struct kvt_tile *tile) {
    return (tile->n_lanes + KVT_BLOCK_LANES - 1) / KVT_BLOCK_LANES;
}
KVT_INLINE int kvt_tile_row_size(const struct kvt_tile *tile) {
    return tile->side == KVT_SIDE_K ? tile->n_terms : tile->n_lanes;
}
/* Lanes that block i stores. */
KVT_INLINE int kvt_block_lanes(const struct kvt_tile *tile, int i) {
    return tile->n_lanes - i * KVT_BLOCK_LANES > KVT_BLOCK_LANES / 2 ? KVT_BLOCK_LANES : KVT_BLOCK_LANES / 2;
}
KVT_INLINE struct kvt_block kvt_tile_block(const struct kvt_tile *tile, int i) {
    const int per_group = tile->lane_group > KVT_BLOCK_LANES ? tile->lane_group / KVT_BLOCK_LANES : 1;
    const int group = per_group == 1 ? i : i / per_group;
    const size_t side_bytes = tile->scale_bytes + tile->zero_bytes;
    struct kvt_block block = {.lane = i * KVT_BLOCK_LANES, .n_lanes = kvt_block_lanes(tile, i)};
    if (tile->kind == KVT_TILE_CLASS) {
        block.scales = tile->head_bytes;
        block.zeros = block.scales + tile->scale_bytes;
        block.factors = block.zeros + tile->zero_bytes + (size_t)block.lane;
        block.codes = block.zeros + tile->zero_bytes + tile->factor_bytes + (size_t)i * tile->block_bytes;
        return block;
    }
    block.scales = (size_t)group * side_bytes + (size_t)(group * per_group) * tile->block_bytes;
    block.zeros = block.scales + tile->scale_bytes;
    block.factors = block.scales + side_bytes + (size_t)(i - group * per_group) * tile->block_bytes;
    block.codes = block.factors + tile->factor_bytes;
    return block;
}

/* Planes of a code in storage order: 8 = 4+4, 6 = 4+2, 5 = 4+1, 3 = 2+1. A quad is four consecutive terms. A plane of w bits
 * has 8 / w quads in each vector (the 32-bit words of a block's lanes). step_quads: quads of one step, in which every plane
 * fills whole vectors. */
struct kvt_planes {
    int n, width[2];
    int step_quads;
};
/* Inline, so that kernels for one width know them when they are compiled. */
KVT_INLINE struct kvt_planes kvt_planes_of(int bits) {
    switch (bits) {
    case 8: return (struct kvt_planes){2, {4, 4}, 2};
    case 6: return (struct kvt_planes){2, {4, 2}, 4};
    case 5: return (struct kvt_planes){2, {4, 1}, 8};
    case 4: return (struct kvt_planes){1, {4, 0}, 2};
    case 3: return (struct kvt_planes){2, {2, 1}, 8};
    default: return (struct kvt_planes){1, {2, 0}, 4};
    }
}
/* Terms that codes are stored for: n_terms rounded up to whole steps. */
int kvt_tile_stored_terms(const struct kvt_tile *tile);

/* The place of a scale among those of its block: LANE [term group][32 lanes]; FOLD [term], or [half block][term] where a lane
 * group is 16. The same place among the zeros. */
int kvt_tile_scale_index(const struct kvt_tile *tile, int term, int lane);
/* A stored scale as f32. */
float kvt_scale_get(enum kvt_scale scale, const void *scales, int i);
/* A stored zero as f32; scale: what belongs to it. */
float kvt_zero_get(const struct kvt_format *format, const void *zeros, int i, float scale);
/* The value of a code before its scale. */
float kvt_code_value(const struct kvt_format *format, unsigned code);

/* The scalar meaning of the layout; of CLASS tiles kvt_tile_get alone, the rest is in codec/class.h. Codes: n of them from (term, lane)
 * on, each (d_term, d_lane) after the one before. Scales and zeros: that of the group of (term, lane), `bits` as stored. */
void kvt_tile_put_codes(const struct kvt_tile *tile, void *bytes, int term, int lane, int d_term, int d_lane,
                        const uint8_t *codes, int n);
unsigned kvt_tile_get_code(const struct kvt_tile *tile, const void *bytes, int term, int lane);
void kvt_tile_put_scale(const struct kvt_tile *tile, void *bytes, int term, int lane, uint32_t bits);
uint32_t kvt_tile_get_scale(const struct kvt_tile *tile, const void *bytes, int term, int lane);
void kvt_tile_put_zero(const struct kvt_tile *tile, void *bytes, int term, int lane, uint32_t bits);
uint32_t kvt_tile_get_zero(const struct kvt_tile *tile, const void *bytes, int term, int lane);
void kvt_tile_put_factor(const struct kvt_tile *tile, void *bytes, int slice, int lane, uint16_t f16);
uint16_t kvt_tile_get_factor(const struct kvt_tile *tile, const void *bytes, int slice, int lane);
/* A whole row of a PLAIN tile, rounded to nearest even. */
void kvt_tile_put_numbers(const struct kvt_tile *tile, void *bytes, int row, const float *x);
/* One value of any tile, in the tile's own basis. */
float kvt_tile_get(const struct kvt_tile *tile, const void *bytes, int term, int lane);

/* Rotates a row of d elements in place: the orthonormal Walsh-Hadamard transform in natural order, without signs, over the
 * largest power of two that divides d (in blocks where that is less than d); butterflies in fp32 with ascending strides, then one
 * multiplication. It is its own inverse. */
void kvt_rotate(float *x, int d);
/* The same for a row that is to be stored: rounded to f16 once at the end. */
void kvt_rotate_f16(float *x, int d);

struct kvt_encoder;

/* A codec: one encoder at one width and group. */
struct kvt_codec {
    struct kvt_codec_info info;
    const struct kvt_encoder *encoder;
    struct kvt_format format; /* of its tiles on both sides, where the encoder has no describe */
    int row_step;             /* row sizes are multiples of it; 0: KVT_HEAD_STEP */
    bool query_rows;          /* K: the encoder uses the queries themselves, not the sums of their squares */
};

/* Rows [first, first + n) of a tile and what they are encoded from. Rows are finite and within kvt_codec_limit; first and n obey
 * the codec's granularity. Kernels take the same rows of the tiles of several heads in one call: of head h at bytes + h * bytes_step
 * and rows + h * rows_step, h from 0 to n_more. */
struct kvt_encode_args {
    const struct kvt_codec *codec;
    const struct kvt_tile *tile; /* the codec's description */
    void *bytes;
    int first, n;
    const float *rows; /* row i at rows + i * stride */
    ptrdiff_t stride;
    /* K: for each channel the sum of squares of the queries at these rows; null: not known. One head. */
    const float *queries;
    /* K, where the codec has query_rows: kvt_codec_room floats, of which the first are a row of queries at each of these rows; null: not
     * known. They are written over. */
    float *room;
    int n_more;        /* heads besides the first */
    size_t bytes_step; /* from head to head */
    ptrdiff_t rows_step;
};

/* An encoder: one file, one line in list.h. */
struct kvt_encoder {
    const char *grammar;            /* the names of its codecs, for people: "affine{2,3,4,5,6,8}g{32,64,128}" */
    const struct kvt_codec *codecs; /* of one width, the default group first */
    size_t n_codecs;
    /* Null: tiles have the codec's format. */
    void (*describe)(const struct kvt_codec *codec, enum kvt_side side, int d, struct kvt_tile *out);
    void (*encode)(const struct kvt_encode_args *args); /* of the first head */
};

static inline bool kvt_codec_takes(const struct kvt_codec *codec, enum kvt_side side) {
    return codec->info.sides == KVT_SIDES_BOTH || codec->info.sides == (side == KVT_SIDE_K ? KVT_SIDES_K : KVT_SIDES_V);
}

/* Floats that an encoder works in besides its stack, for rows of d elements. */
size_t kvt_codec_room(const struct kvt_codec *codec, int d);
/* The description of a codec's tile; d must fit. */
void kvt_codec_describe(const struct kvt_codec *codec, enum kvt_side side, int d, struct kvt_tile *out);
/* Rows [first, first + n) of a described tile, without checks, in the basis they came in: a rotated tile's rows are rotated
 * back. */
void kvt_tile_decode(const struct kvt_tile *tile, float *rows, ptrdiff_t stride, const void *bytes, int first, int n);

/* The largest magnitude that an element of a row may have: f16's, less where rotation adds up elements; f32's for f32 and bf16. */
float kvt_codec_limit(const struct kvt_codec *codec, enum kvt_side side, int d);

/* ARG, with the nearest name and the grammar of all. Who knows names that are no codec's adds theirs: more_at(i), NULL from the last one
 * on, and their grammar, ", NAME..."; or NULL and "". */
KVT_MUST_CHECK enum kvt_status kvt_codec_unknown(const char *name, const char *more, const char *(*more_at)(size_t i),
                                                 struct kvt_error *err);

#endif
