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
