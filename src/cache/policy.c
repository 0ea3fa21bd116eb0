/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy of a plan, layer by layer: what was asked for, unless the layer is held, cannot store it, or would never show
 * an encoded row.
 */
#include "cache/policy.h"

#include <stdio.h>

#include "base/attr.h"
#include "base/check.h"
#include "codec/codec.h"

static bool is_plain(const struct kvt_kv_pair *pair) {
    return pair->codec[KVT_SIDE_K]->info.plain && pair->codec[KVT_SIDE_V]->info.plain;
}

static int granularity_of(const struct kvt_kv_pair *pair) {
    return KVT_MAX(pair->codec[KVT_SIDE_K]->info.granularity, pair->codec[KVT_SIDE_V]->info.granularity);
}

/* A codec for values alone as that of keys is no matter of shapes: nobody means it. */
static enum kvt_status check_sides(const struct kvt_kv_pair *pair, const struct kvt_layer_shape *shape, int layer,
                                   struct kvt_error *err) {
    struct kvt_error why;
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        const struct kvt_codec *codec = pair->codec[side];
        const int d = side == KVT_SIDE_K ? shape->k_size : shape->v_size;
        if (kvt_codec_takes(codec, (enum kvt_side)side)) continue;
        const enum kvt_status status = kvt_codec_fits(codec, (enum kvt_side)side, d, &why);
        if (status != KVT_OK) return kvt_fail(err, status, "layer %d: %s", layer, why.text);
    }
    return KVT_OK;
}

static enum kvt_status check_rows(const struct kvt_kv_pair *pair, const struct kvt_layer_shape *shape,
                                  struct kvt_error *err) {
    KVT_TRY(kvt_codec_fits(pair->codec[KVT_SIDE_K], KVT_SIDE_K, shape->k_size, err));
    return kvt_codec_fits(pair->codec[KVT_SIDE_V], KVT_SIDE_V, shape->v_size, err);
}

/* Why the layer keeps 16 bits although it was asked to encode. */
static enum kvt_kept find_kept(char reason[KVT_REASON_MAX], const struct kvt_kv_pair *pair,
                               const struct kvt_shape *shape, int layer, const struct kvt_plan_options *o,
                               const struct kvt_error *unfit) {
    const int window = shape->layers[layer].window, most = o->tail + granularity_of(pair) - 1;
    if (o->hold_last && shape->n_layers > 2 && layer == shape->n_layers - 1) {
        snprintf(reason, KVT_REASON_MAX, "held: the last of %d layers", shape->n_layers);
        return KVT_KEPT_LAST;
    }
    if (unfit) {
        snprintf(reason, KVT_REASON_MAX, "%.*s", KVT_REASON_MAX - 1, unfit->text);
        return KVT_KEPT_SHAPE;
    }
    if (window && window <= most) {
        snprintf(reason, KVT_REASON_MAX, "its window of %d rows lies within the newest %d, which stay in 16 bits",
                 window, most);
        return KVT_KEPT_WINDOW;
    }
    return KVT_KEPT_NOT;
}

static void say_asked(char reason[KVT_REASON_MAX], const struct kvt_kv_pair *pair, const struct kvt_layer_shape *shape,
                      const struct kvt_plan_options *o) {
    const bool drops_sink = shape->window && o->sink, queries = pair->codec[KVT_SIDE_K]->info.queries;
    snprintf(reason, KVT_REASON_MAX, "as asked%s%s", drops_sink ? ", but for the sink: the layer has a window" : "",
             queries ? "; the classes of keys by queries where append gives them, else by range" : "");
}

enum kvt_status kvt_policy_decide(struct kvt_kv_pair *pair, enum kvt_kept *kept, char reason[KVT_REASON_MAX],
                                  const struct kvt_shape *shape, int layer, const struct kvt_plan_options *options,
                                  struct kvt_error *err) {
    const struct kvt_layer_shape *own = &shape->layers[layer];
    struct kvt_error why;
    if (own->n_kv_heads < 1 || own->n_kv_heads > 1024 || own->window < 0)
        return kvt_fail(err, KVT_ERR_ARG,
                        "layer %d: %d KV heads, window %d: heads must be 1 to 1024, windows not negative", layer,
                        own->n_kv_heads, own->window);
    KVT_TRY(check_sides(pair, own, layer, err));
    const enum kvt_status fits = check_rows(pair, own, &why);
    *kept = KVT_KEPT_NOT;
    if (!is_plain(pair)) *kept = find_kept(reason, pair, shape, layer, options, fits == KVT_OK ? NULL : &why);
    if (fits != KVT_OK && !(options->fallback && *kept != KVT_KEPT_NOT))
        return kvt_fail(err, fits, "layer %d: %s", layer, why.text);
    if (*kept == KVT_KEPT_NOT) {
        say_asked(reason, pair, own, options);
        return KVT_OK;
    }
    KVT_TRY(kvt_codec_parse(&pair->codec[KVT_SIDE_K], "f16", err));
    pair->codec[KVT_SIDE_V] = pair->codec[KVT_SIDE_K];
    return check_rows(pair, own, err);
}
