/* SPDX-License-Identifier: Apache-2.0
 *
 * Door of kernel: the operations that are worth an instruction set, their contracts, and which function serves a level.
 *
 * Contracts
 *   exact  the bits of the reference, at every level
 *   near   judged against attention in double precision on the decoded tile (docs/numerics.md); the same bits for the same
 *          level, on any machine and for any number of threads
 */
#ifndef KERNEL_KERNEL_H
#define KERNEL_KERNEL_H

#include "codec/codec.h"

enum { KVT_LANES = KVT_BLOCK_LANES };

/* exact. Decodes block i of a tile to out[term][32 lanes], n_terms of the tile; lanes that are not stored become 0.
 * `bytes` is the tile, aligned to 64; out is aligned to 64. */
typedef void (*kvt_unpack_fn)(const struct kvt_tile *tile, const void *bytes, int i, float *out);

/* near. y[v][lane] += sum over terms of x[v][term] * block[term][lane] for n vectors, terms in ascending order.
 * x: vector v at x + v * ld_x. y: at y + v * ld_y, 32 floats. block as kvt_unpack_fn gives it. */
typedef void (*kvt_fold_fn)(float *y, ptrdiff_t ld_y, const float *x, ptrdiff_t ld_x, int n, const float *block,
                            int n_terms);

/* near. One step of online softmax for n vectors over a tile's rows: vector v's 128 scores are at scores + 128 * v, aligned to 64. With m the
 * larger of max[v] and the largest score, scores become exp(score - m), keep[v] exp(max[v] - m), which rescales what was mixed so far,
 * sum[v] becomes sum[v] * keep[v] + their sum, max[v] becomes m. Scores of -inf weigh 0; where all so far are -inf, max[v]
 * stays -inf. */
typedef void (*kvt_soften_fn)(float *scores, int n, float *max, float *sum, float *keep);

/* Rounding noise of weights, kept for one vector over the tiles that it walks: sums of squares, what 8-bit weights have added so far
 * and what they may have. Scale both by the square of what soften returns. */
struct kvt_noise {
    float spent, allowed;
};

/* Queries rounded once for all LANE tiles of a call: for each of n vectors, in `rows` (n rounded up to a multiple of 8), numbers of 8 and of 16
 * bits, and for each segment what they are worth. */
struct kvt_rounded {
    int n, rows, n_segments, segment; /* terms of a segment */
    ptrdiff_t ld[2];                  /* words of a vector: [0] 8 bits, [1] 16 bits */
    int32_t *words[2];
    float *unit[2], *middle[2]; /* [segment][vector]: what 1 is worth with a code; of the code's middle and offset */
    float *total, *noise;       /* sums of the query; the score error of 8 bits for a scale of 1, in nats */
    float *share;               /* rounding noise of 8 bits over the codec's */
};

/* Lays out the rounding of n vectors for a LANE tile in memory (NULL: only counts), aligned to 64. Returns its bytes. */
size_t kvt_rounded_init(struct kvt_rounded *out, const struct kvt_tile *tile, int n, char *memory);

/* One tile's share of attention for a few vectors. */
struct kvt_fused {
    const struct kvt_tile *tile;
    const void *bytes; /* the tile, aligned to 64 */
    const void *next;  /* a tile that is walked soon after this one, to be fetched ahead; or bytes */
    int n;             /* vectors */
    /* Vector v at x + v * ld_x, aligned to 64, ld_x a multiple of 16; 0 from n_terms to the next multiple of 16. */
    const float *x;
    ptrdiff_t ld_x;
    float *y; /* vector v at y + v * ld_y, aligned to 64, ld_y a multiple of 16; in whole blocks of lanes */
    ptrdiff_t ld_y;
    const struct kvt_rounded *rounded; /* of x, where kvt_fused_rounds says so */
    struct kvt_noise *noise;           /* by vector, for V */
    int n_lanes;                       /* K: the first lanes, which are wanted; of others nothing is read. 0: all */
};

/* near. K: y[v][lane] = sum over terms of x[v][term] * value[term][lane], for all lanes. V: y += that, x not negative. The tile's codes
 * are multiplied as integers and x is rounded to them: docs/numerics.md has the bound. Takes what kvt_fused_takes says. */
typedef void (*kvt_fused_fn)(const struct kvt_fused *args);

/* Rounds the vectors of one call for LANE tiles, once for all tiles. `out` is laid out by kvt_rounded_init. */
typedef void (*kvt_round_fn)(const struct kvt_tile *tile, const float *x, ptrdiff_t ld, struct kvt_rounded *out);

enum { KVT_CLASS_FUSED_MAX = 256 }; /* channels of a CLASS tile */

/* Codes that are small floats: 8-bit ones, or a table of numbers of two significant bits. Their products are of floats. */
static inline bool kvt_fused_floats(const struct kvt_tile *tile) {
    const struct kvt_format *format = &tile->format;
    if ((tile->kind != KVT_TILE_FOLD && tile->kind != KVT_TILE_LANE) || tile->n_slices || format->has_zero)
        return false;
    if (format->meaning == KVT_MEANING_E4M3 || format->meaning == KVT_MEANING_E5M2) return true;
    return format->meaning == KVT_MEANING_TABLE && format->scale >= KVT_SCALE_E8M0 && format->scale <= KVT_SCALE_E4M3;
}

static inline bool kvt_fused_takes(const struct kvt_tile *tile) {
    if (tile->kind == KVT_TILE_PLAIN) return true;
    if (tile->kind == KVT_TILE_CLASS) /* whole vectors of each class's bits */
        return tile->n_terms % 64 == 0 && tile->n_terms <= KVT_CLASS_FUSED_MAX;
    return kvt_fused_floats(tile) ||
           (tile->format.meaning <= KVT_MEANING_TABLE && tile->lane_group >= KVT_BLOCK_LANES &&
            !(tile->kind == KVT_TILE_LANE && tile->n_slices));
}

/* Whether kvt_fused.rounded is read. */
static inline bool kvt_fused_rounds(const struct kvt_tile *tile) {
    return tile->kind == KVT_TILE_LANE && kvt_fused_takes(tile) && !kvt_fused_floats(tile);
}

/* ---- many vectors, on matrix units -------------------------------------------------------------------------------------
 *
 * A number is the sum of limbs, bf16 numbers of which each rounds what those before it left: two hold 16 significant bits, three all of an
 * f32's. Products of limbs are exact in 32 bits and are added there; those below the wanted precision are left out. */
enum { KVT_LIMBS = 3, KVT_MANY_VECTORS = 32, KVT_MANY_TERMS = 32 };

static inline bool kvt_many_takes(const struct kvt_tile *tile) {
    return tile->kind != KVT_TILE_PLAIN || tile->number != KVT_NUMBER_F32;
}
/* Bytes of n vectors as limbs; of a block of 32 lanes. */
static inline size_t kvt_split_bytes(int n, int n_terms) {
    return (size_t)kvt_div_up(n, KVT_MANY_VECTORS) * (size_t)kvt_div_up(n_terms, KVT_MANY_TERMS) *
           (KVT_LIMBS * KVT_MANY_VECTORS * KVT_MANY_TERMS * sizeof(uint16_t));
}
static inline size_t kvt_spread_bytes(int n_terms) {
    return (size_t)kvt_div_up(n_terms, KVT_MANY_TERMS) * (2 * KVT_LANES * KVT_MANY_TERMS * sizeof(uint16_t));
}

/* near. n vectors, of which vector v is at x + v * ld, to three limbs each. `out` is aligned to 64. */
typedef void (*kvt_split_fn)(const float *x, ptrdiff_t ld, int n, int n_terms, void *out);

/* near. A block as kvt_unpack_fn gives it to two limbs; terms outside [first, end) become 0, whatever they are. */
typedef void (*kvt_spread_fn)(const float *block, int n_terms, int first, int end, void *out);

/* One step of attention for n vectors over the rows of a K and a V tile: scores, softmax, mix. */
struct kvt_many {
    const struct kvt_tile *keys, *values;
    const void *queries;      /* split */
    const char *key_blocks;   /* spread; of rows that some vector sees */
    const char *value_blocks; /* all of the tile's */
    int n;                    /* vectors */
    const int *first, *end;   /* rows that each sees */
    float softcap;            /* 0: none */
    float *max, *sum;         /* of the softmax so far */
    float *y, *other;         /* mixed values so far: y takes the tile's, other (or NULL) is rescaled with it; whole
                                       * blocks of lanes, n rounded up to KVT_MANY_VECTORS rows */
    ptrdiff_t ld_y;
};

/* near. Encoded rows meet 16 significant bits of queries and weights (codes of up to 4 bits: 8), 16-bit rows all of them. What a vector gets depends on its own
 * rows alone. */
typedef void (*kvt_many_fn)(const struct kvt_many *args);

/* exact. What kvt_encoder.encode does, for all heads. */
typedef void (*kvt_encode_fn)(const struct kvt_encode_args *args);

/* exact. What kvt_tile_decode does. */
typedef void (*kvt_decode_fn)(const struct kvt_tile *tile, float *rows, ptrdiff_t stride, const void *bytes, int first,
                              int n);

struct kvt_kernels {
    enum kvt_level level;
    kvt_unpack_fn unpack;
    kvt_fold_fn fold;
    kvt_soften_fn soften;
    kvt_decode_fn decode;
    kvt_fused_fn fused; /* NULL at level ref: unpack and fold do it */
    kvt_round_fn round;
    kvt_split_fn split; /* NULL, and the next two: unpack, fold and soften do it */
    kvt_spread_fn spread;
    kvt_many_fn many;
};

/* The kernels of a level: of the best one that is not above it and has a kernel, operation by operation. */
struct kvt_kernels kvt_kernels_select(enum kvt_level level);

/* The encoder of a codec for a level: the best kernel that is not above it, else one that calls the codec's own. */
kvt_encode_fn kvt_encode_select(const struct kvt_codec *codec, enum kvt_level level);
/* Any codec's own, head by head. */
void kvt_encode_ref(const struct kvt_encode_args *args);

/* The tables that selection and the kernel tests read: null where a level has no kernel of its own. */
extern const kvt_unpack_fn kvt_unpack_table[KVT_LEVEL_COUNT];
extern const kvt_fold_fn kvt_fold_table[KVT_LEVEL_COUNT];
extern const kvt_soften_fn kvt_soften_table[KVT_LEVEL_COUNT];
extern const kvt_decode_fn kvt_decode_table[KVT_LEVEL_COUNT];
extern const kvt_fused_fn kvt_fused_table[KVT_LEVEL_COUNT];
extern const kvt_round_fn kvt_round_table[KVT_LEVEL_COUNT];
extern const kvt_split_fn kvt_split_table[KVT_LEVEL_COUNT];
extern const kvt_spread_fn kvt_spread_table[KVT_LEVEL_COUNT];
extern const kvt_many_fn kvt_many_table[KVT_LEVEL_COUNT];
/* The kernel of one level, or null. */
kvt_encode_fn kvt_encode_kernel(const struct kvt_codec *codec, enum kvt_level level);

#endif
