/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx-lm's prompt caches: what a layer is made of. A KVCache has an array of K and one of V, a QuantizedKVCache three of each: codes,
 * scales, biases. All are [1, KV heads, rows, numbers of a row].
 */
#ifndef CACHE_MLX_H
#define CACHE_MLX_H

#include "base/file.h"
#include "cache/cache.h"
#include "cache/safetensors.h"
#include "kvtile/convert.h"

#define KVT_MLX_PLAIN     "KVCache"
#define KVT_MLX_QUANTIZED "QuantizedKVCache"

enum { KVT_MLX_PARTS = 3, KVT_MLX_STEP = 256 };

struct kvt_mlx_layer {
    const struct kvt_codec *codec;
    struct kvt_layer_shape shape;
    bool is_quantized;
    int64_t n_stored; /* rows of the arrays; the cache's length is at most that */
    const struct kvt_st_array *parts[KVT_SIDE_COUNT][KVT_MLX_PARTS];
};

struct kvt_mlx_cache {
    struct kvt_allocator allocator;
    struct kvt_map map; /* empty where the bytes are the caller's */
    struct kvt_st st;
    enum kvt_mlx_layout layout;
    int64_t n_rows;
    int n_layers;
    struct kvt_mlx_layer *layers;
    char name[128]; /* for sentences */
};

/* Numbers of a row in each array of a side: 1 for plain ones, words of codes, scales and biases for affine. 0: not there. */
struct kvt_mlx_widths {
    size_t width[KVT_MLX_PARTS], bytes[KVT_MLX_PARTS]; /* of a number */
};
struct kvt_mlx_widths kvt_mlx_widths_of(const struct kvt_codec *codec, int d);

/* f16 or bf16. */
bool kvt_mlx_is_plain(const struct kvt_codec *codec);

/* Whether all rows of layer l of a plan are in its body, in one codec that MLX has. UNSUPPORTED says why not. */
KVT_MUST_CHECK enum kvt_status kvt_mlx_check_layer(const struct kvt_plan *plan, int l, struct kvt_error *err);

/* Whether K rows of layer l can be put in another order. */
KVT_MUST_CHECK enum kvt_status kvt_mlx_check_order(const struct kvt_plan *plan, int l, int turned,
                                                   struct kvt_error *err);

/* Which element of a sequence's row is element c of the file's. */
static inline int kvt_mlx_from_file(int c, int turned) {
    return c >= turned ? c : c < turned / 2 ? 2 * c : 2 * (c - turned / 2) + 1;
}

/* Puts the codes of a K row in the file's order, or back. */
void kvt_mlx_turn_codes(uint32_t *codes, int bits, int d, int turned, bool to_file);

#endif
