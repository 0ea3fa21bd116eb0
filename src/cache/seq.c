/* SPDX-License-Identifier: Apache-2.0
 *
 * A sequence: its table of pages, reading rows back, and cutting it.
 */
#include "base/check.h"
#include "cache/cache.h"

static size_t table_len(const struct kvt_pool *pool, int64_t n_tiles) {
    return (size_t)pool->plan->n_layers * 2 * (size_t)n_tiles;
}

enum kvt_status kvt_seq_create(struct kvt_seq **out, struct kvt_pool *pool, int64_t max_rows, struct kvt_error *err) {
    if (max_rows < 1 || max_rows > INT64_C(1) << 40)
        return kvt_fail(err, KVT_ERR_ARG, "a sequence holds 1 to 2^40 rows, not %lld", (long long)max_rows);
    const struct kvt_allocator *a = &pool->allocator;
    const int n_layers = pool->plan->n_layers;
    const int64_t n_tiles = kvt_div_up(max_rows, KVT_TILE_ROWS);
    struct kvt_seq *seq = kvt_take_zero(a, 1, sizeof *seq);
    struct kvt_seq_layer *layers = kvt_take_zero(a, (size_t)n_layers, sizeof *layers);
    void **table = kvt_take_zero(a, table_len(pool, n_tiles), sizeof *table);
    if (!seq || !layers || !table) {
        kvt_give(a, seq, 1, sizeof *seq);
        kvt_give(a, layers, (size_t)n_layers, sizeof *layers);
        kvt_give(a, table, table_len(pool, n_tiles), sizeof *table);
        return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the page table of %lld rows", (long long)max_rows);
    }
    *seq = (struct kvt_seq){.pool = pool, .max_rows = max_rows, .n_tiles = n_tiles, .layers = layers, .table = table};
    for (int l = 0; l < n_layers; l++) {
        layers[l].body = table + 2 * l * n_tiles;
        layers[l].wide = layers[l].body + n_tiles;
        layers[l].wide_from = pool->plan->layers[l].plan.sink;
    }
    atomic_fetch_add(&pool->n_users, 1);
    *out = seq;
    return KVT_OK;
}

void kvt_seq_destroy(struct kvt_seq *seq) {
    if (!seq) return;
    struct kvt_pool *pool = seq->pool;
    kvt_seq_clear(seq);
    kvt_give(&pool->allocator, seq->table, table_len(pool, seq->n_tiles), sizeof *seq->table);
    kvt_give(&pool->allocator, seq->layers, (size_t)pool->plan->n_layers, sizeof *seq->layers);
    kvt_give(&pool->allocator, seq, 1, sizeof *seq);
    atomic_fetch_sub(&pool->n_users, 1);
}

int64_t kvt_seq_n_rows(const struct kvt_seq *seq) { return seq->n_rows; }

struct kvt_usage kvt_seq_usage(const struct kvt_seq *seq, int layer) {
    return kvt_plan_usage(seq->pool->plan, layer, seq->n_rows);
}

static void give_outside(struct kvt_pool *pool, void **pages, int64_t n, size_t bytes, int64_t first, int64_t end,
                         int64_t n_sink) {
    for (int64_t i = 0; i < n; i++)
        if (pages[i] && !(i >= first && i < end) && i >= n_sink) {
            kvt_page_give(pool, pages[i], bytes);
            pages[i] = NULL;
        }
}

void kvt_seq_fit(struct kvt_seq *seq, int64_t n_rows) {
    struct kvt_pool *pool = seq->pool;
    for (int l = 0; l < pool->plan->n_layers; l++) {
        const struct kvt_layer *layer = &pool->plan->layers[l];
        const struct kvt_page_sets sets = kvt_layer_pages(layer, n_rows);
        struct kvt_seq_layer *mine = &seq->layers[l];
        give_outside(pool, mine->body, seq->n_tiles, layer->body.bytes, sets.body, sets.body_end, 0);
        give_outside(pool, mine->wide, seq->n_tiles, layer->wide.bytes, sets.tail, sets.tail_end, sets.n_sink);
        const int64_t oldest = sets.tail < sets.tail_end ? sets.tail * KVT_TILE_ROWS : n_rows;
        mine->wide_from = KVT_MAX(KVT_MAX(mine->wide_from, oldest), (int64_t)layer->plan.sink);
        mine->wide_from = KVT_MIN(mine->wide_from, KVT_MAX(n_rows, (int64_t)layer->plan.sink));
    }
}

void kvt_seq_clear(struct kvt_seq *seq) {
    KVT_ASSERT(!seq->step);
    seq->n_rows = 0;
    kvt_seq_fit(seq, 0);
}

/* ---- reading ----------------------------------------------------------------------------------------------------------- */

/* Decodes rows [first, first + n), all in one tile and one region, of one side and head. */
static void read_run(const struct kvt_seq *seq, int l, enum kvt_side side, int head, int64_t first, int n, float *rows,
                     ptrdiff_t stride) {
    struct kvt_pool *pool = seq->pool;
    const struct kvt_layer *layer = &pool->plan->layers[l];
    const int64_t end = kvt_layer_body_end(layer, seq->n_rows), tile = first / KVT_TILE_ROWS;
    const bool body = first >= layer->plan.sink && first < end;
    const struct kvt_page_shape *shape = body ? &layer->body : &layer->wide;
    const char *page = (body ? seq->layers[l].body : seq->layers[l].wide)[tile];
    KVT_ASSERT(page != NULL);
    pool->ops->decode(pool, &shape->tile[side], rows, stride, page + kvt_page_offset(shape, head, side),
                      (int)(first % KVT_TILE_ROWS), n);
}

/* Rows from `first` on that are in one tile and one region, at most n. */
static int run_len(const struct kvt_layer *layer, int64_t n_rows, int64_t first, int64_t n) {
    const int64_t end = kvt_layer_body_end(layer, n_rows), sink = layer->plan.sink;
    int64_t stop = KVT_MIN(first + n, (first / KVT_TILE_ROWS + 1) * KVT_TILE_ROWS);
    if (first < sink) stop = KVT_MIN(stop, sink);
    if (first < end && first >= sink) stop = KVT_MIN(stop, end);
    return (int)(stop - first);
}

enum kvt_status kvt_seq_read(const struct kvt_seq *seq, int layer, enum kvt_side side, int head, int64_t first,
                             int64_t n, float *rows, ptrdiff_t stride, struct kvt_error *err) {
    const struct kvt_plan *plan = seq->pool->plan;
    if (layer < 0 || layer >= plan->n_layers || head < 0 || head >= plan->layers[layer].plan.shape.n_kv_heads)
        return kvt_fail(err, KVT_ERR_ARG, "there is no layer %d with a KV head %d", layer, head);
    if (first < 0 || n < 0 || first > seq->n_rows || n > seq->n_rows - first)
        return kvt_fail(err, KVT_ERR_RANGE, "rows %lld to %lld are not in a sequence of %lld", (long long)first,
                        (long long)(first + n), (long long)seq->n_rows);
    while (n > 0) {
        const int len = run_len(&plan->layers[layer], seq->n_rows, first, n);
        read_run(seq, layer, side, head, first, len, rows, stride);
        first += len;
        n -= len;
        rows += len * stride;
    }
    return KVT_OK;
}

/* ---- trim -------------------------------------------------------------------------------------------------------------- */

/* Puts wide pages under rows [first, end) of a layer, first >= sink. */
static enum kvt_status take_wide(struct kvt_seq *seq, int l, int64_t first, int64_t end, struct kvt_error *err) {
    const struct kvt_layer *layer = &seq->pool->plan->layers[l];
    for (int64_t t = first / KVT_TILE_ROWS; t * KVT_TILE_ROWS < end; t++)
        if (!seq->layers[l].wide[t]) KVT_TRY(kvt_page_take(seq->pool, layer->wide.bytes, &seq->layers[l].wide[t], err));
    return KVT_OK;
}

/* Copies body rows [first, end) of a layer back to 16 bits; the wide pages are there. */
static void widen(struct kvt_seq *seq, int l, int64_t first, int64_t end, float *rows) {
    struct kvt_pool *pool = seq->pool;
    const struct kvt_layer *layer = &pool->plan->layers[l];
    for (int64_t at = first; at < end;) {
        const int n = run_len(layer, seq->n_rows, at, end - at);
        for (int head = 0; head < layer->plan.shape.n_kv_heads; head++)
            for (int side = 0; side < KVT_SIDE_COUNT; side++) {
                const struct kvt_tile *tile = &layer->wide.tile[side];
                char *page = seq->layers[l].wide[at / KVT_TILE_ROWS];
                const int d = kvt_tile_row_size(tile);
                read_run(seq, l, (enum kvt_side)side, head, at, n, rows, d);
                pool->ops->encode(pool, layer->plan.wide[side], tile,
                                  page + kvt_page_offset(&layer->wide, head, (enum kvt_side)side),
                                  (int)(at % KVT_TILE_ROWS), n, rows, d);
            }
        at += n;
    }
}

/* Rows [*first, *end) of a layer that a trim to n_rows must bring back from the body. */
static bool rows_to_widen(const struct kvt_seq *seq, int l, int64_t n_rows, int64_t *first, int64_t *end) {
    const struct kvt_layer *layer = &seq->pool->plan->layers[l];
    *first = kvt_layer_body_end(layer, n_rows);
    *end = KVT_MIN(n_rows, KVT_MIN(seq->layers[l].wide_from, kvt_layer_body_end(layer, seq->n_rows)));
    return *first < *end;
}

enum kvt_status kvt_seq_trim(struct kvt_seq *seq, int64_t n_rows, bool *out_exact, struct kvt_error *err) {
    KVT_ASSERT(!seq->step);
    if (n_rows < 0 || n_rows > seq->n_rows)
        return kvt_fail(err, KVT_ERR_RANGE, "cannot trim to %lld rows: the sequence has %lld", (long long)n_rows,
                        (long long)seq->n_rows);
    struct kvt_pool *pool = seq->pool;
    const size_t n_floats = (size_t)KVT_TILE_ROWS * (size_t)pool->plan->max_row;
    int64_t first, end;
    bool exact = true;
    enum kvt_status status = KVT_OK;
    for (int l = 0; l < pool->plan->n_layers && status == KVT_OK; l++)
        if (rows_to_widen(seq, l, n_rows, &first, &end)) {
            exact = false;
            status = take_wide(seq, l, first, end, err);
        }
    float *rows = exact ? NULL : kvt_take(&pool->allocator, n_floats, sizeof *rows);
    if (status == KVT_OK && !exact && !rows) status = kvt_fail(err, KVT_ERR_NOMEM, "no memory to trim a sequence");
    if (status == KVT_OK) {
        for (int l = 0; l < pool->plan->n_layers && !exact; l++)
            if (rows_to_widen(seq, l, n_rows, &first, &end)) {
                widen(seq, l, first, end, rows);
                seq->layers[l].wide_from = first;
            }
        seq->n_rows = n_rows;
        if (out_exact) *out_exact = exact;
    }
    kvt_seq_fit(seq, seq->n_rows);
    kvt_give(&pool->allocator, rows, n_floats, sizeof *rows);
    return status;
}
