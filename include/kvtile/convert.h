/* SPDX-License-Identifier: Apache-2.0
 *
 * Converters: the exact bytes of other programs' packed arrays, from tiles and into them. Nothing is encoded again: codes, scales
 * and zeros move as they are, so there and back gives the same bytes.
 *
 * A tile's rows are those of one KV head. What calls refuse leaves tile and arrays as they were.
 */
#ifndef KVTILE_CONVERT_H
#define KVTILE_CONVERT_H

#include <stdint.h>

#include "kvtile/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What MLX's mx.quantize gives for n rows of d elements, and mlx-lm's QuantizedKVCache holds for one head: row-major arrays.
 *
 *   codes   n rows of d * bits / 32 words
 *   scales  n rows of d / group: f16 for affine, bytes for mxfp8, mxfp4 and nvfp4
 *   biases  n rows of d / group, f16, for affine; NULL for the others
 *
 * Codecs: affine (either arithmetic) with f16 rows, mxfp8, mxfp4, nvfp4. Exports only write to the arrays, imports only read. */
struct kvt_mlx_arrays {
    uint32_t *codes;
    void *scales;
    uint16_t *biases;
};

/* Rows [first, first + n) of a tile to arrays. UNSUPPORTED for other codecs, and where d is no multiple of the codec's group: MLX has
 * no short groups. ARG for arrays that the codec lacks or does not have. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_mlx_export(const struct kvt_codec *codec, enum kvt_side side, int d,
                                                      const struct kvt_mlx_arrays *out, const void *tile, int first,
                                                      int n, struct kvt_error *err);

/* Arrays to rows [first, first + n) of a tile; other rows stay as they are. RANGE for a scale, bias or code that is infinite or
 * NaN. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_mlx_import(const struct kvt_codec *codec, enum kvt_side side, int d,
                                                      void *tile, const struct kvt_mlx_arrays *in, int first, int n,
                                                      struct kvt_error *err);

/* kvarn's record of 128 rows, as gmlx and mlx-kquant hold it (record version 1) for one head and one side, with d / 128 slices:
 *
 *   codes  slice s at word s * 512 * bits: 128 lines of 128 codes. K: a line is a channel of the slice; V: a line is a row
 *   axes   [3 * slices][128] f16; 3 s: scales of the lines of slice s, 3 s + 1: their zeros, 3 s + 2: factors of its columns
 *
 * beellama.cpp's record of a slice is its codes followed by its three axes. Rows are rotated in both. Codecs: kvarn and
 * kvarn-parity, whose bytes mean the same. */
struct kvt_kvarn_record {
    uint32_t *codes;
    uint16_t *axes;
};

/* A whole tile to a record and back. UNSUPPORTED for other codecs, and where d is no multiple of 128: the record has no other slices;
 * RANGE for an infinite number or NaN in the axes. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_kvarn_export(const struct kvt_codec *codec, enum kvt_side side, int d,
                                                        const struct kvt_kvarn_record *out, const void *tile,
                                                        struct kvt_error *err);
KVT_API KVT_MUST_CHECK enum kvt_status kvt_kvarn_import(const struct kvt_codec *codec, enum kvt_side side, int d,
                                                        void *tile, const struct kvt_kvarn_record *in,
                                                        struct kvt_error *err);

#ifdef __cplusplus
}
#endif
#endif
