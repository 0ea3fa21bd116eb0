/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan: which codec, sink and tail each layer has, what its pages look like, and how many a length needs.
 */
#include <string.h>

#include "base/attr.h"
#include "base/check.h"
#include "cache/cache.h"
#include "cache/plan_text.h"
#include "cache/policy.h"

static void init_page(struct kvt_page_shape *page, const struct kvt_codec *const codec[KVT_SIDE_COUNT],
                      const struct kvt_layer_shape *shape) {
    kvt_codec_describe(codec[KVT_SIDE_K], KVT_SIDE_K, shape->k_size, &page->tile[KVT_SIDE_K]);
    kvt_codec_describe(codec[KVT_SIDE_V], KVT_SIDE_V, shape->v_size, &page->tile[KVT_SIDE_V]);
    page->head_bytes = page->tile[KVT_SIDE_K].bytes + page->tile[KVT_SIDE_V].bytes;
    page->bytes = KVT_PAGE_HEADER + (size_t)shape->n_kv_heads * page->head_bytes;
}

static const struct kvt_codec *wide_codec(const struct kvt_codec *codec) {
    const struct kvt_codec *f16 = NULL;
    if (codec->info.plain) return codec;
    return kvt_codec_parse(&f16, "f16", NULL) == KVT_OK ? f16 : NULL;
}

/* Room in pages of the tail for the queries of rows that wait. */
static void add_queries(struct kvt_layer *layer) {
    struct kvt_page_shape *tail = &layer->page[KVT_REGION_TAIL];
    if (kvt_codec_parse(&layer->queries_codec, "fp8e5m2", NULL) != KVT_OK) return;
    layer->queries_parts = layer->plan.codec[KVT_SIDE_K]->query_rows ? 1 : 4;
    kvt_codec_describe(layer->queries_codec, KVT_SIDE_K, layer->plan.shape.k_size / layer->queries_parts,
                       &layer->queries);
    tail->head_bytes += layer->queries.bytes;
    tail->bytes += (size_t)layer->plan.shape.n_kv_heads * layer->queries.bytes;
}

static void init_layer(struct kvt_layer *layer, const struct kvt_layer_shape *shape,
                       const struct kvt_codec *const codec[KVT_SIDE_COUNT], const struct kvt_plan_options *o) {
    struct kvt_layer_plan *plan = &layer->plan;
    plan->shape = *shape;
    plan->granularity = 1;
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        const int d = side == KVT_SIDE_K ? shape->k_size : shape->v_size;
        plan->codec[side] = codec[side];
        plan->wide[side] = wide_codec(codec[side]);
        plan->granularity = KVT_MAX(plan->granularity, codec[side]->info.granularity);
        layer->limit[side] = KVT_MIN(kvt_codec_limit(codec[side], (enum kvt_side)side, d),
                                     kvt_codec_limit(plan->wide[side], (enum kvt_side)side, d));
    }
    plan->sink = shape->window ? 0 : o->sink;
    plan->tail = o->tail;
    plan->start = o->start;
    plan->window = shape->window ? shape->window : o->rolling ? o->rolling - o->sink : 0;
    layer->direct = plan->granularity == 1 && o->tail == 0 && o->start == 0;
    init_page(&layer->page[KVT_REGION_SINK], plan->wide, shape);
    init_page(&layer->page[KVT_REGION_BODY], plan->codec, shape);
    init_page(&layer->page[KVT_REGION_TAIL], plan->wide, shape);
    if (codec[KVT_SIDE_K]->info.queries) add_queries(layer);
}

static enum kvt_status check_options(const struct kvt_shape *shape, const struct kvt_plan_options *o,
                                     struct kvt_error *err) {
    if (shape->n_layers < 1 || shape->n_layers > KVT_MAX_LAYERS)
        return kvt_fail(err, KVT_ERR_ARG, "a cache has 1 to %d layers, not %d", KVT_MAX_LAYERS, shape->n_layers);
    if (o->sink < 0 || o->sink % KVT_TILE_ROWS != 0)
        return kvt_fail(err, KVT_ERR_ARG, "a sink of %d rows: it must be a multiple of %d (0, %d, %d, ...)", o->sink,
                        KVT_TILE_ROWS, KVT_TILE_ROWS, 2 * KVT_TILE_ROWS);
    if (o->tail < 0) return kvt_fail(err, KVT_ERR_ARG, "a tail of %d rows: it cannot be negative", o->tail);
    if (o->start < 0) return kvt_fail(err, KVT_ERR_ARG, "encoding cannot start at row %lld", (long long)o->start);
    if (o->rolling && o->rolling < (int64_t)o->sink + o->tail + KVT_TILE_ROWS)
        return kvt_fail(err, KVT_ERR_ARG, "a rolling cache of %lld rows: with this sink and tail it needs %lld",
                        (long long)o->rolling, (long long)o->sink + o->tail + KVT_TILE_ROWS);
    return KVT_OK;
}

/* Each layer by the policy: `pairs` become what is stored. */
static enum kvt_status init_layers(struct kvt_plan *plan, const struct kvt_shape *shape, struct kvt_kv_pair *pairs,
                                   const struct kvt_plan_options *o, struct kvt_error *err) {
    for (int l = 0; l < plan->n_layers; l++) {
        const struct kvt_layer_shape *s = &shape->layers[l];
        struct kvt_layer *layer = &plan->layers[l];
        enum kvt_kept kept = KVT_KEPT_NOT;
        KVT_TRY(kvt_policy_decide(&pairs[l], &kept, layer->reason, shape, l, o, err));
        init_layer(layer, s, pairs[l].codec, o);
        layer->plan.kept = kept;
        layer->plan.reason = layer->reason;
        plan->max_heads = KVT_MAX(plan->max_heads, s->n_kv_heads);
        plan->max_row = KVT_MAX(plan->max_row, KVT_MAX(s->k_size, s->v_size));
        plan->room = KVT_MAX(plan->room, kvt_codec_room(pairs[l].codec[KVT_SIDE_K], s->k_size));
    }
    plan->kv = kvt_plan_write(pairs, plan->n_layers, &plan->allocator);
    return plan->kv ? KVT_OK : kvt_fail(err, KVT_ERR_NOMEM, "no memory for a plan of %d layers", plan->n_layers);
}

/* Everything but the layers is checked; makes the plan of them. */
static enum kvt_status make_plan(struct kvt_plan **out, const struct kvt_shape *shape, struct kvt_kv_pair *pairs,
                                 const struct kvt_plan_options *o, const struct kvt_allocator *a,
                                 struct kvt_error *err) {
    struct kvt_plan *plan = kvt_take_zero(a, 1, sizeof *plan);
    if (!plan) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for a plan");
    *plan = (struct kvt_plan){.allocator = *a, .n_layers = shape->n_layers};
    plan->layers = kvt_take_zero(a, (size_t)shape->n_layers, sizeof *plan->layers);
    enum kvt_status status = plan->layers
                                 ? init_layers(plan, shape, pairs, o, err)
                                 : kvt_fail(err, KVT_ERR_NOMEM, "no memory for a plan of %d layers", shape->n_layers);
    if (status != KVT_OK) {
        kvt_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return KVT_OK;
}

enum kvt_status kvt_plan_create(struct kvt_plan **out, const struct kvt_shape *shape,
                                const struct kvt_plan_options *options, const struct kvt_allocator *allocator,
                                struct kvt_error *err) {
    const struct kvt_plan_options none = {.struct_size = sizeof none};
    const struct kvt_plan_options *o = options ? options : &none;
    const struct kvt_allocator a = kvt_allocator_or_default(allocator);
    KVT_TRY(check_options(shape, o, err));
    const size_t n = (size_t)shape->n_layers;
    struct kvt_kv_pair *pairs = kvt_take(&a, n, sizeof *pairs);
    if (!pairs) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for a plan of %d layers", shape->n_layers);
    enum kvt_status status = kvt_plan_parse(pairs, shape->n_layers, o->kv ? o->kv : "f16", err);
    if (status == KVT_OK) status = make_plan(out, shape, pairs, o, &a, err);
    kvt_give(&a, pairs, n, sizeof *pairs);
    return status;
}

void kvt_plan_destroy(struct kvt_plan *plan) {
    if (!plan) return;
    const struct kvt_allocator a = plan->allocator;
    if (plan->kv) kvt_give(&a, plan->kv, strlen(plan->kv) + 1, 1);
    kvt_give(&a, plan->layers, (size_t)plan->n_layers, sizeof *plan->layers);
    kvt_give(&a, plan, 1, sizeof *plan);
}

int kvt_plan_n_layers(const struct kvt_plan *plan) { return plan->n_layers; }

const struct kvt_layer_plan *kvt_plan_layer(const struct kvt_plan *plan, int layer) {
    return layer >= 0 && layer < plan->n_layers ? &plan->layers[layer].plan : NULL;
}

int kvt_plan_n_encoded(const struct kvt_plan *plan) {
    int n = 0;
    for (int l = 0; l < plan->n_layers; l++) {
        const struct kvt_layer_plan *layer = &plan->layers[l].plan;
        n += !layer->codec[KVT_SIDE_K]->info.plain || !layer->codec[KVT_SIDE_V]->info.plain;
    }
    return n;
}

const char *kvt_plan_kv(const struct kvt_plan *plan) { return plan->kv; }

/* ---- lengths ----------------------------------------------------------------------------------------------------------- */

int64_t kvt_layer_body_end(const struct kvt_layer *layer, int64_t n_rows) {
    const struct kvt_layer_plan *plan = &layer->plan;
    const int64_t rows = n_rows < plan->start ? 0 : n_rows - plan->sink - plan->tail;
    return plan->sink + (rows > 0 ? rows / plan->granularity * plan->granularity : 0);
}

int64_t kvt_plan_body_end(const struct kvt_plan *plan, int layer, int64_t n_rows) {
    return layer >= 0 && layer < plan->n_layers ? kvt_layer_body_end(&plan->layers[layer], n_rows) : 0;
}

int64_t kvt_layer_first_row(const struct kvt_layer *layer, int64_t n_rows) {
    const int64_t window = layer->plan.window, sink = layer->plan.sink;
    return window ? KVT_MAX(sink, n_rows - window) : sink;
}

int64_t kvt_layer_encode_from(const struct kvt_layer *layer, int64_t n_rows) {
    const int64_t oldest = kvt_layer_first_row(layer, n_rows) / KVT_TILE_ROWS * KVT_TILE_ROWS;
    return KVT_MAX(kvt_layer_body_end(layer, n_rows), oldest);
}

struct kvt_page_sets kvt_layer_pages(const struct kvt_layer *layer, int64_t n_rows) {
    const int64_t sink = layer->plan.sink, end = kvt_layer_body_end(layer, n_rows), t = KVT_TILE_ROWS;
    const int64_t first = kvt_layer_first_row(layer, n_rows) / t;
    struct kvt_page_sets sets = {{0}, {0}};
    sets.end[KVT_REGION_SINK] = kvt_div_up(KVT_MIN(n_rows, sink), t);
    if (end > sink && kvt_div_up(end, t) > first) {
        sets.first[KVT_REGION_BODY] = first;
        sets.end[KVT_REGION_BODY] = kvt_div_up(end, t);
    }
    if (end < n_rows) {
        sets.first[KVT_REGION_TAIL] = KVT_MAX(end / t, first);
        sets.end[KVT_REGION_TAIL] = kvt_div_up(n_rows, t);
    }
    return sets;
}

static void add_layer(struct kvt_usage *u, const struct kvt_layer *layer, int64_t n_rows) {
    const struct kvt_page_sets sets = kvt_layer_pages(layer, n_rows);
    for (int region = 0; region < KVT_REGION_COUNT; region++) {
        const struct kvt_page_shape *page = &layer->page[region];
        const uint64_t n = (uint64_t)(sets.end[region] - sets.first[region]);
        const uint64_t v = (uint64_t)layer->plan.shape.n_kv_heads * page->tile[KVT_SIDE_V].bytes;
        u->bytes[KVT_SIDE_K][region] += n * (page->bytes - v); /* the header goes with K */
        u->bytes[KVT_SIDE_V][region] += n * v;
    }
}

struct kvt_usage kvt_plan_usage(const struct kvt_plan *plan, int layer, int64_t n_rows) {
    struct kvt_usage u = {0};
    if (layer >= plan->n_layers || n_rows < 0) return u;
    const int first = layer < 0 ? 0 : layer, end = layer < 0 ? plan->n_layers : layer + 1;
    for (int l = first; l < end; l++) add_layer(&u, &plan->layers[l], n_rows);
    for (int side = 0; side < KVT_SIDE_COUNT; side++)
        for (int region = 0; region < KVT_REGION_COUNT; region++) u.total_bytes += u.bytes[side][region];
    const struct kvt_layer *shown = &plan->layers[first];
    const int64_t sink = KVT_MIN(n_rows, shown->plan.sink), body_end = kvt_layer_body_end(shown, n_rows);
    const int64_t oldest = KVT_MAX(kvt_layer_first_row(shown, n_rows), (int64_t)shown->plan.sink);
    u.rows[KVT_REGION_SINK] = sink;
    u.rows[KVT_REGION_BODY] = KVT_MAX(body_end - oldest, 0);
    u.rows[KVT_REGION_TAIL] = KVT_MAX(n_rows - KVT_MAX(body_end, oldest), 0);
    return u;
}

uint64_t kvt_plan_bytes(const struct kvt_plan *plan, int64_t n_rows) {
    return kvt_plan_usage(plan, -1, n_rows).total_bytes;
}
