/* SPDX-License-Identifier: Apache-2.0
 *
 * Codecs: what the bytes of a tile mean.
 *
 * A row is one token's key or value vector of one KV head, after RoPE, d elements long. A tile is 128 consecutive rows of
 * one KV head, keys or values. A codec turns the rows of a tile into bytes and back. Its name says it whole ("f16",
 * "affine4g64": affine codes of 4 bits in groups of 64); "affine4" means the codec's default group.
 *
 * Encoding and decoding are exact: every level gives the bytes and floats of the scalar reference. The byte layout of
 * each codec's tile is in docs/formats.md.
 */
#ifndef KVTILE_CODEC_H
#define KVTILE_CODEC_H

#include "kvtile/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KVT_TILE_ROWS = 128 };

/* Head sizes: multiples of 8 up to 512; a latent (MLA) key row may have 576. */
enum { KVT_HEAD_STEP = 8, KVT_HEAD_MAX = 512, KVT_LATENT_MAX = 576 };

enum kvt_side { KVT_SIDE_K, KVT_SIDE_V, KVT_SIDE_COUNT };

/* What rows a codec is made for. */
enum kvt_sides { KVT_SIDES_BOTH, KVT_SIDES_K, KVT_SIDES_V };

/* A codec. Static storage: never freed, immutable, usable from any thread. */
struct kvt_codec;

/* What a codec promises. Strings are static. */
struct kvt_codec_info {
    const char *name;   /* "affine4g64" */
    const char *about;  /* one line for people */
    const char *source; /* the paper or project the scheme comes from */
    int bits;           /* width of a code; 16 or 32 for plain rows */
    int group;          /* elements that share one scale; 0 for plain rows */
    int granularity;    /* rows that must be complete before they can be encoded: 1, 32, 64 or 128 */
    bool plain;         /* rows are stored as numbers (f32, f16, bf16): nothing is quantized */
    enum kvt_sides sides;
    bool queries; /* keys are encoded better where kvt_step_append is given queries */
};

/* All codecs, in the order of their ids. kvt_codec_at(i) for i in [0, kvt_codec_count()), else NULL. */
KVT_API size_t kvt_codec_count(void);
KVT_API const struct kvt_codec *kvt_codec_at(size_t i);

/* The codec of a name, whole ("affine4g64") or with the default group ("affine4"). ARG for an unknown one: the sentence
 * gives the grammar and the nearest name. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_codec_parse(const struct kvt_codec **out, const char *name,
                                                       struct kvt_error *err);

KVT_API struct kvt_codec_info kvt_codec_info(const struct kvt_codec *codec);

/* Whether rows of d elements can be stored on this side. UNSUPPORTED with the rule that d breaks. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_codec_fits(const struct kvt_codec *codec, enum kvt_side side, int d,
                                                      struct kvt_error *err);

/* Bytes of one tile of 128 rows of d elements, scales, zeros and padding included; a multiple of 64. 0 if it does not fit. */
KVT_API size_t kvt_codec_tile_bytes(const struct kvt_codec *codec, enum kvt_side side, int d);

/* Encodes rows [first, first + n) of a tile from `rows`: row i at rows + i * stride, d floats each. `first` and `n` are
 * multiples of the granularity, first + n <= 128. Bytes of other rows of the tile stay as they are. A fresh tile must be
 * all zero. RANGE if a number is NaN, infinite, or too large for the codec's scales: the sentence names row and channel,
 * and the tile is unchanged. Two threads may not write one tile at once. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_codec_encode(const struct kvt_codec *codec, enum kvt_side side, int d,
                                                        void *tile, int first, int n, const float *rows,
                                                        ptrdiff_t stride, struct kvt_error *err);

/* Decodes rows [first, first + n), any first and n, to `rows` (row i at rows + i * stride). Any bytes decode to
 * something finite or not, but never out of bounds. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_codec_decode(const struct kvt_codec *codec, enum kvt_side side, int d,
                                                        float *rows, ptrdiff_t stride, const void *tile, int first,
                                                        int n, struct kvt_error *err);

#ifdef __cplusplus
}
#endif
#endif
