/* SPDX-License-Identifier: Apache-2.0
 *
 * Cutting a sequence. Where rows of the body become tail again they are decoded back to 16 bits.
 */
#include "base/check.h"
#include "cache/cache.h"

/* Rows [*first, *end) of a layer that a trim to n_rows must bring back from the body. */
static bool rows_to_widen(const struct kvt_seq *seq, int l, int64_t n_rows, int64_t *first, int64_t *end) {
    const struct kvt_layer *layer = &seq->pool->plan->layers[l];
    *first = kvt_layer_encode_from(layer, n_rows); /* from here on encoding will need 16-bit rows again */
    *end = KVT_MIN(n_rows, KVT_MIN(seq->layers[l].wide_from, kvt_layer_body_end(layer, seq->n_rows)));
    return *first < *end;
}

/* A decoded number may lie just past what can be encoded: 15 steps of a rounded scale. */
static void clamp(float *x, int n, float limit) {
    for (int i = 0; i < n; i++) x[i] = x[i] > limit ? limit : x[i] >= -limit ? x[i] : x[i] < -limit ? -limit : 0;
}

/* Copies body rows [first, end) of a layer to its tail; the pages are there. */
static void widen(struct kvt_seq *seq, int l, int64_t first, int64_t end, float *rows) {
    struct kvt_pool *pool = seq->pool;
    const struct kvt_layer *layer = &pool->plan->layers[l];
    const struct kvt_page_shape *shape = &layer->page[KVT_REGION_TAIL];
    for (int64_t at = first; at < end;) {
        const int n = kvt_seq_run(seq, l, at, end - at);
        const struct kvt_page *page = seq->layers[l].list[KVT_REGION_TAIL].pages[at / KVT_TILE_ROWS];
        for (int head = 0; head < layer->plan.shape.n_kv_heads; head++)
            for (int side = 0; side < KVT_SIDE_COUNT; side++) {
                const struct kvt_tile *tile = &shape->tile[side];
                const int d = kvt_tile_row_size(tile);
                kvt_seq_read_run(seq, l, (enum kvt_side)side, head, at, n, rows, d);
                clamp(rows, n * d, layer->limit[side]);
                void *to = kvt_page_tile(page, shape, head, (enum kvt_side)side);
                const int row = (int)(at % KVT_TILE_ROWS);
                pool->ops->encode(pool, &(struct kvt_encode_args){.codec = layer->plan.wide[side],
                                                                  .tile = tile,
                                                                  .bytes = to,
                                                                  .first = row,
                                                                  .n = n,
                                                                  .rows = rows,
                                                                  .stride = d});
            }
        at += n;
    }
}

static enum kvt_status check(const struct kvt_seq *seq, int64_t n_rows, struct kvt_error *err) {
    if (seq->step) return kvt_fail(err, KVT_ERR_STATE, "cannot trim a sequence that is in a step");
    if (n_rows < 0 || n_rows > seq->n_rows)
        return kvt_fail(err, KVT_ERR_RANGE, "cannot trim to %lld rows: the sequence has %lld", (long long)n_rows,
                        (long long)seq->n_rows);
    for (int l = 0; l < seq->pool->plan->n_layers; l++) {
        const struct kvt_layer *layer = &seq->pool->plan->layers[l];
        const int64_t had = kvt_layer_first_row(layer, seq->n_rows) / KVT_TILE_ROWS * KVT_TILE_ROWS;
        if (n_rows > layer->plan.sink && kvt_layer_first_row(layer, n_rows) < had)
            return kvt_fail(err, KVT_ERR_RANGE, "cannot trim to %lld rows: layer %d has dropped the rows before %lld",
                            (long long)n_rows, l, (long long)had);
    }
    return KVT_OK;
}

/* Pages of the tail for all rows that are to be widened. */
static enum kvt_status own_pages(struct kvt_seq *seq, int64_t n_rows, bool *exact, struct kvt_error *err) {
    int64_t first, end;
    for (int l = 0; l < seq->pool->plan->n_layers; l++)
        if (rows_to_widen(seq, l, n_rows, &first, &end)) {
            *exact = false;
            for (int64_t t = first / KVT_TILE_ROWS; t * KVT_TILE_ROWS < end; t++)
                KVT_TRY(kvt_seq_own_page(seq, l, KVT_REGION_TAIL, t, 0, err));
        }
    return KVT_OK;
}

static enum kvt_status trim(struct kvt_seq *seq, int64_t n_rows, bool *out_exact, struct kvt_error *err) {
    KVT_TRY(check(seq, n_rows, err));
    KVT_TRY(kvt_pool_check(seq->pool, err));
    struct kvt_pool *pool = seq->pool;
    const size_t n_floats = (size_t)KVT_TILE_ROWS * (size_t)pool->plan->max_row;
    bool exact = true;
    enum kvt_status status = own_pages(seq, n_rows, &exact, err);
    float *rows = exact ? NULL : kvt_take(&pool->allocator, n_floats, sizeof *rows);
    if (status == KVT_OK && !exact && !rows) status = kvt_fail(err, KVT_ERR_NOMEM, "no memory to trim a sequence");
    if (status == KVT_OK) {
        int64_t first, end;
        for (int l = 0; l < pool->plan->n_layers && !exact; l++)
            if (rows_to_widen(seq, l, n_rows, &first, &end)) widen(seq, l, first, end, rows);
        status = kvt_pool_check(pool, err);
    }
    if (status == KVT_OK) {
        int64_t first, end;
        for (int l = 0; l < pool->plan->n_layers && !exact; l++)
            if (rows_to_widen(seq, l, n_rows, &first, &end)) seq->layers[l].wide_from = first;
        seq->n_rows = n_rows;
        kvt_seq_settle(seq);
        kvt_seq_fit(seq, n_rows);
        if (out_exact) *out_exact = exact;
    } else {
        kvt_seq_undo(seq);
    }
    kvt_give(&pool->allocator, rows, n_floats, sizeof *rows);
    return status;
}

enum kvt_status kvt_seq_trim(struct kvt_seq *seq, int64_t n_rows, bool *out_exact, struct kvt_error *err) {
    kvt_enter(&seq->busy);
    const enum kvt_status status = trim(seq, n_rows, out_exact, err);
    kvt_exit(&seq->busy);
    return status;
}
