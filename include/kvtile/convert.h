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

#include "kvtile/cache.h"

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

/* ---- mlx-lm's prompt caches -------------------------------------------------------------------------------------------- */

/* The two ways in which mlx-lm lays out a prompt cache (save_prompt_cache, a safetensors file). Neither has a version; they are told
 * apart by their metadata. */
enum kvt_mlx_layout {
    KVT_MLX_LAYOUT_OLD, /* to 0.31.3: arrays are cut to the cache's length */
    KVT_MLX_LAYOUT_NEW  /* 0.32.2: whole buffers, of a multiple of 256 rows here; rows past the length are zeros */
};

/* One of the file's own texts: mlx-lm's tools write `model` and `tokenizer_config`. */
struct kvt_mlx_entry {
    const char *key, *value;
};

/* Both calls below take `turned`: in which order the elements of a K row lie in the file. RoPE turns the first `turned` of them in pairs,
 * which mlx-lm has half of `turned` apart for most models; where a Llama model is converted to GGUF they become neighbours. With `turned` 0 the
 * order is the same, else elements 2i and 2i + 1 of a sequence are i and i + turned / 2 of the file. ARG if it is negative, odd, or more
 * than a row has; UNSUPPORTED where it would part what shares a scale: groups of fewer elements.
 *
 * Writes a sequence as a prompt cache that mlx-lm loads: a layer of f16 or bf16 is its KVCache, one of affine (b bits, groups of 32, 64 or
 * 128) its QuantizedKVCache. UNSUPPORTED names a layer that is neither, or that has a sink, a tail, a window, or two codecs, and where
 * d is no multiple of the group; STATE for an empty sequence, which has no arrays, and in a step; IO; NOMEM. The file is written under
 * a new name and renamed. `entries` may be NULL where there are none. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_mlx_cache_save(const struct kvt_seq *seq, const char *path,
                                                          enum kvt_mlx_layout layout, int turned,
                                                          const struct kvt_mlx_entry *entries, int n_entries,
                                                          struct kvt_error *err);

/* An open prompt cache. Immutable: any thread. */
struct kvt_mlx_cache;

/* Maps a file of either layout. FORMAT for one that is no prompt cache, is cut, lacks a part, or whose group size, bits or length
 * contradict its arrays; UNSUPPORTED names a layer of another class than KVCache and QuantizedKVCache, of several sequences, or of
 * f32. allocator may be NULL. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_mlx_cache_open(struct kvt_mlx_cache **out, const char *path,
                                                          const struct kvt_allocator *allocator, struct kvt_error *err);
/* The same from bytes in memory, which must outlive it. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_mlx_cache_open_memory(struct kvt_mlx_cache **out, const void *data,
                                                                 size_t bytes, const struct kvt_allocator *allocator,
                                                                 struct kvt_error *err);
KVT_API void kvt_mlx_cache_close(struct kvt_mlx_cache *cache); /* NULL is fine */

KVT_API enum kvt_mlx_layout kvt_mlx_cache_layout(const struct kvt_mlx_cache *cache);
KVT_API int kvt_mlx_cache_n_layers(const struct kvt_mlx_cache *cache);
KVT_API int64_t kvt_mlx_cache_n_rows(const struct kvt_mlx_cache *cache);
/* The value of one of its own texts, or NULL. */
KVT_API const char *kvt_mlx_cache_entry(const struct kvt_mlx_cache *cache, const char *key);
/* What a plan must have for layer l: its shape, and its codec by name ("affine4g64"). Borrowed; shape may be NULL, and the result is if
 * there is no such layer. */
KVT_API const char *kvt_mlx_cache_layer(const struct kvt_mlx_cache *cache, int l, struct kvt_layer_shape *shape);

/* A new sequence with its rows. ARG where the pool's plan has another shape or codec: the sentence names the layer; UNSUPPORTED as
 * for saving; RANGE for rows, scales or biases that are infinite, NaN or, being bf16, no f16; LIMIT, NOMEM. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_mlx_cache_load(struct kvt_seq **out, struct kvt_pool *pool,
                                                          const struct kvt_mlx_cache *cache, int64_t max_rows,
                                                          int turned, struct kvt_error *err);

#ifdef __cplusplus
}
#endif
#endif
