/* SPDX-License-Identifier: Apache-2.0
 *
 * What a snapshot says of a layer, and whether that is the layer of another cache; which pages it has.
 */
#include <stdio.h>
#include <string.h>

#include "cache/snapshot.h"

struct kvt_snap_layer kvt_snap_describe(const struct kvt_layer *layer) {
    const struct kvt_layer_plan *plan = &layer->plan;
    const struct kvt_tile *body = layer->page[KVT_REGION_BODY].tile, *wide = layer->page[KVT_REGION_TAIL].tile;
    struct kvt_snap_layer s = {
        .n_kv_heads = plan->shape.n_kv_heads,
        .k_size = plan->shape.k_size,
        .v_size = plan->shape.v_size,
        .own_window = plan->shape.window,
        .sink = plan->sink,
        .tail = plan->tail,
        .start = plan->start,
        .window = plan->window,
        .granularity = plan->granularity,
        .k_basis = body[KVT_SIDE_K].format.rotated,
        .v_basis = body[KVT_SIDE_V].format.rotated,
        .k_tile = (uint32_t)body[KVT_SIDE_K].bytes,
        .v_tile = (uint32_t)body[KVT_SIDE_V].bytes,
        .wide_k_tile = (uint32_t)wide[KVT_SIDE_K].bytes,
        .wide_v_tile = (uint32_t)wide[KVT_SIDE_V].bytes,
        .queries = layer->queries.bytes ? KVT_SNAP_QUERIES_ZERO : KVT_SNAP_QUERIES_NO,
    };
    for (int side = 0; side < KVT_SIDE_COUNT; side++)
        snprintf(s.codec[side], sizeof s.codec[side], "%s", plan->codec[side]->info.name);
    return s;
}

/* Numbers of a layer that must agree, and what they count. Codecs come between the sizes and the rest: they are what most
 * likely differs. */
#define SIZES(X)                                                                                                       \
    X(n_kv_heads, "KV heads")                                                                                          \
    X(k_size, "elements in a K row")                                                                                   \
    X(v_size, "elements in a V row")

#define REST(X)                                                                                                        \
    X(own_window, "rows in its window")                                                                                \
    X(sink, "rows of sink")                                                                                            \
    X(tail, "rows of tail")                                                                                            \
    X(start, "rows before encoding starts")                                                                            \
    X(window, "rows that a query sees past the sink")                                                                  \
    X(granularity, "rows encoded at a time")                                                                           \
    X(k_basis, "rotations of K rows")                                                                                  \
    X(v_basis, "rotations of V rows")                                                                                  \
    X(k_tile, "bytes in a K tile")                                                                                     \
    X(v_tile, "bytes in a V tile")                                                                                     \
    X(wide_k_tile, "bytes in a K tile of 16-bit rows")                                                                 \
    X(wide_v_tile, "bytes in a V tile of 16-bit rows")

enum kvt_status kvt_snap_compare(const struct kvt_snap_layer *file, const struct kvt_snap_layer *mine, int l,
                                 const char *name, struct kvt_error *err) {
#define X(field, counted)                                                                                              \
    if (file->field != mine->field)                                                                                    \
        return kvt_fail(err, KVT_ERR_ARG, "%s was made with another plan: layer %d has %lld %s, this cache has %lld",  \
                        name, l, (long long)file->field, counted, (long long)mine->field);
    SIZES(X)
    for (int side = 0; side < KVT_SIDE_COUNT; side++)
        if (strncmp(file->codec[side], mine->codec[side], KVT_SNAP_NAME) != 0)
            return kvt_fail(
                err, KVT_ERR_ARG, "%s was made with another plan: layer %d has %s in %.*s, this cache has them in %s",
                name, l, side == KVT_SIDE_K ? "keys" : "values", KVT_SNAP_NAME, file->codec[side], mine->codec[side]);
    REST(X)
#undef X
    return KVT_OK;
}

bool kvt_snap_wide_from_fits(const struct kvt_layer *layer, int64_t n_rows, int64_t wide_from) {
    const struct kvt_page_sets sets = kvt_layer_pages(layer, n_rows);
    const int64_t first = sets.first[KVT_REGION_TAIL], sink = layer->plan.sink;
    if (first == sets.end[KVT_REGION_TAIL]) return wide_from == KVT_MAX(n_rows, sink);
    return wide_from >= KVT_MAX(first * KVT_TILE_ROWS, sink) && wide_from <= kvt_layer_encode_from(layer, n_rows);
}

bool kvt_snap_next(struct kvt_snap_walk *walk, const struct kvt_plan *plan, int64_t n_rows) {
    if (walk->begun) walk->tile++;
    for (; walk->layer < plan->n_layers; walk->layer++, walk->region = 0) {
        const struct kvt_page_sets sets = kvt_layer_pages(&plan->layers[walk->layer], n_rows);
        for (; walk->region < KVT_REGION_COUNT; walk->region++, walk->begun = false) {
            if (!walk->begun) walk->tile = sets.first[walk->region];
            walk->begun = true;
            if (walk->tile < sets.end[walk->region]) return true;
        }
    }
    return false;
}
