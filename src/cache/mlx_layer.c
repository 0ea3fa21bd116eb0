/* SPDX-License-Identifier: Apache-2.0
 * Which layers mlx-lm has, and what its arrays hold. */
#include <string.h>

#include "cache/mlx.h"

struct kvt_mlx_widths kvt_mlx_widths_of(const struct kvt_codec *codec, int d) {
    const size_t n = (size_t)d;
    if (codec->info.group == 0) return (struct kvt_mlx_widths){{n}, {2}};
    const size_t groups = n / (size_t)codec->info.group;
    return (struct kvt_mlx_widths){{n * (size_t)codec->info.bits / 32, groups, groups}, {4, 2, 2}};
}

bool kvt_mlx_is_plain(const struct kvt_codec *codec) {
    return strcmp(codec->info.name, "f16") == 0 || strcmp(codec->info.name, "bf16") == 0;
}

enum kvt_status kvt_mlx_check_layer(const struct kvt_plan *plan, int l, struct kvt_error *err) {
    const struct kvt_layer *layer = &plan->layers[l];
    const struct kvt_layer_plan *p = &layer->plan;
    const struct kvt_codec *codec = p->codec[KVT_SIDE_K];
    if (codec != p->codec[KVT_SIDE_V])
        return kvt_fail(err, KVT_ERR_UNSUPPORTED,
                        "layer %d has keys in %s and values in %s: mlx-lm has one scheme for both", l, codec->info.name,
                        p->codec[KVT_SIDE_V]->info.name);
    if (!kvt_mlx_is_plain(codec) && strncmp(codec->info.name, "affine", 6) != 0)
        return kvt_fail(err, KVT_ERR_UNSUPPORTED, "layer %d is %s: mlx-lm's caches are f16, bf16 or affine", l,
                        codec->info.name);
    if (!layer->direct || p->sink || p->window)
        return kvt_fail(err, KVT_ERR_UNSUPPORTED,
                        "layer %d has a sink, a tail, a start or a window: mlx-lm's caches have all rows in one form",
                        l);
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        const int d = side == KVT_SIDE_K ? p->shape.k_size : p->shape.v_size;
        if (codec->info.group && d % codec->info.group)
            return kvt_fail(err, KVT_ERR_UNSUPPORTED, "layer %d has rows of %d elements: MLX's groups are whole, of %d",
                            l, d, codec->info.group);
    }
    return KVT_OK;
}

enum kvt_status kvt_mlx_check_order(const struct kvt_plan *plan, int l, int turned, struct kvt_error *err) {
    const struct kvt_layer_plan *p = &plan->layers[l].plan;
    const int group = p->codec[KVT_SIDE_K]->info.group;
    if (turned < 0 || turned % 2 || turned > p->shape.k_size)
        return kvt_fail(err, KVT_ERR_ARG, "layer %d: RoPE cannot turn %d of %d elements in pairs", l, turned,
                        p->shape.k_size);
    if (group && turned > group)
        return kvt_fail(
            err, KVT_ERR_UNSUPPORTED,
            "layer %d: mlx-lm has the %d elements of a key that RoPE turns in another order, and groups of %d "
            "would not stay together; f16, bf16 and groups of %d or more would",
            l, turned, group, turned);
    return KVT_OK;
}

static unsigned get(const uint32_t *words, int bits, int i) {
    const int at = i * bits;
    uint64_t two = words[at / 32];
    if (at % 32 + bits > 32) two |= (uint64_t)words[at / 32 + 1] << 32;
    return (unsigned)(two >> at % 32 & ((1u << bits) - 1));
}

static void put(uint32_t *words, int bits, int i, unsigned code) {
    const int at = i * bits;
    words[at / 32] |= code << at % 32;
    if (at % 32 + bits > 32) words[at / 32 + 1] |= code >> (32 - at % 32);
}

void kvt_mlx_turn_codes(uint32_t *codes, int bits, int d, int turned, bool to_file) {
    uint32_t out[KVT_LATENT_MAX / 4] = {0};
    for (int c = 0; c < d; c++) {
        const int other = kvt_mlx_from_file(c, turned);
        if (to_file)
            put(out, bits, c, get(codes, bits, other));
        else
            put(out, bits, other, get(codes, bits, c));
    }
    memcpy(codes, out, (size_t)(d * bits / 32) * sizeof *out);
}
