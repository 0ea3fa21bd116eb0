/* SPDX-License-Identifier: Apache-2.0
 *
 * What a layer's new rows become where pages are in the process's memory. Rows are first written to 16-bit pages, which stay
 * until the step ends, so that each query finds the rows that are still in 16 bits for it; then the groups that are complete are
 * encoded from there. Where no query ever sees a 16-bit row (granularity 1, no tail) rows are encoded at once.
 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/half.h"
#include "base/parallel.h"
#include "cache/cache.h"

size_t kvt_append_floats(const struct kvt_pool *pool) {
    return KVT_TILE_ROWS * (size_t)pool->plan->max_row + pool->plan->room;
}

void kvt_rows_load(const struct kvt_rows *rows, int64_t row, int head, int n, float *out) {
    const ptrdiff_t at = (ptrdiff_t)row * rows->row_stride + head * rows->head_stride;
    if (rows->type == KVT_TYPE_F32) {
        memcpy(out, (const float *)rows->data + at, (size_t)n * sizeof *out);
        return;
    }
    const uint16_t *half = (const uint16_t *)rows->data + at;
    if (rows->type == KVT_TYPE_F16)
        for (int i = 0; i < n; i++) out[i] = kvt_f32_from_f16(half[i]);
    else
        for (int i = 0; i < n; i++) out[i] = kvt_f32_from_bf16(half[i]);
}

struct append {
    struct kvt_step *step;
    int layer, heads; /* of a job: 1 or all */
    const struct kvt_rows *rows[KVT_SIDE_COUNT], *queries;
    int n_q_heads;
};

/* What a job works on: some KV heads of one sequence; `rows` is room for 128 of them, `room` that of encoders. */
struct part {
    const struct kvt_step_entry *entry;
    int head, n_heads;
    float *rows, *room;
};

/* Heads of n rows each that there is room for. */
static int heads_together(const struct part *part, int n) { return KVT_MIN(part->n_heads, KVT_TILE_ROWS / n); }

/* Rows [at, at + n) of one side, in one tile and region. */
struct run {
    enum kvt_side side;
    enum kvt_region region;
    int64_t at;
    int n;
};

/* Encodes a run of m heads, which is at part->rows. */
static void encode_heads(const struct append *a, const struct part *part, const struct run *run, int head, int m,
                         const float *queries) {
    struct kvt_pool *pool = a->step->pool;
    const struct kvt_layer *layer = &pool->plan->layers[a->layer];
    const struct kvt_page_shape *shape = &layer->page[run->region];
    const struct kvt_page *page = part->entry->seq->layers[a->layer].list[run->region].pages[run->at / KVT_TILE_ROWS];
    const bool is_body = run->region == KVT_REGION_BODY;
    const int d = kvt_tile_row_size(&shape->tile[run->side]);
    pool->ops->encode(pool, &(struct kvt_encode_args){
                                .codec = is_body ? layer->plan.codec[run->side] : layer->plan.wide[run->side],
                                .tile = &shape->tile[run->side],
                                .bytes = kvt_page_tile(page, shape, head, run->side),
                                .first = (int)(run->at % KVT_TILE_ROWS),
                                .n = run->n,
                                .rows = part->rows,
                                .stride = d,
                                .queries = queries,
                                .room = queries && layer->queries_parts == 1 ? part->room : NULL,
                                .n_more = m - 1,
                                .bytes_step = shape->head_bytes,
                                .rows_step = (ptrdiff_t)run->n * d,
                            });
}

static bool check_numbers(const float *x, int n, float limit, struct kvt_bad_number *bad) {
    bool good = true;
    for (int i = 0; i < n; i++) good &= fabsf(x[i]) <= limit;
    if (good) return true;
    int i = 0;
    while (fabsf(x[i]) <= limit) i++;
    bad->found = true;
    bad->channel = i;
    bad->value = x[i];
    return false;
}

/* What a row is once it has been in 16 bits. */
static void round_to_wide(const struct kvt_tile *wide, float *x, int n) {
    if (wide->number == KVT_NUMBER_F16)
        for (int i = 0; i < n; i++) x[i] = kvt_f32_from_f16(kvt_f16_from_f32(x[i]));
    else if (wide->number == KVT_NUMBER_BF16)
        for (int i = 0; i < n; i++) x[i] = kvt_f32_from_bf16(kvt_bf16_from_f32(x[i]));
}

/* New rows [at, at + n) of one head as floats, checked. */
static bool load_rows(const struct append *a, const struct part *part, enum kvt_side side, int64_t at, int n, int head,
                      float *x) {
    const struct kvt_layer *layer = &a->step->pool->plan->layers[a->layer];
    const struct kvt_tile *wide = &layer->page[KVT_REGION_TAIL].tile[side];
    const int d = kvt_tile_row_size(wide), heads = layer->plan.shape.n_kv_heads;
    struct kvt_bad_number *bad = &a->step->bad[(part->entry - a->step->entries) * heads + head];
    for (int i = 0; i < n; i++, x += d) {
        kvt_rows_load(a->rows[side], part->entry->first + (at - part->entry->n_before) + i, head, d, x);
        if (!check_numbers(x, d, layer->limit[side], bad)) {
            bad->side = side;
            bad->position = at + i;
            return false;
        }
        if (layer->direct && at >= layer->plan.sink) round_to_wide(wide, x, d);
    }
    return true;
}

/* New rows of one side, in runs within a tile and a region: checked, then written where they go. */
static bool write_rows(const struct append *a, const struct part *part, enum kvt_side side) {
    const struct kvt_layer *layer = &a->step->pool->plan->layers[a->layer];
    const int d = kvt_tile_row_size(&layer->page[KVT_REGION_TAIL].tile[side]);
    const int64_t end = part->entry->n_before + part->entry->n_rows;
    for (int64_t at = part->entry->n_before; at < end;) {
        const enum kvt_region region = at < layer->plan.sink ? KVT_REGION_SINK
                                       : layer->direct       ? KVT_REGION_BODY
                                                             : KVT_REGION_TAIL;
        const int n = (int)KVT_MIN(KVT_TILE_ROWS - at % KVT_TILE_ROWS, end - at), most = heads_together(part, n);
        for (int done = 0; done < part->n_heads; done += most) {
            const int head = part->head + done, m = KVT_MIN(most, part->n_heads - done);
            for (int h = 0; h < m; h++)
                if (!load_rows(a, part, side, at, n, head + h, part->rows + (ptrdiff_t)h * n * d)) return false;
            encode_heads(a, part, &(struct run){side, region, at, n}, head, m, NULL);
        }
        at += n;
    }
    return true;
}

/* Encodes the groups that this step completes, from their 16-bit rows. */
static void encode_body(const struct append *a, const struct part *part, enum kvt_side side) {
    struct kvt_pool *pool = a->step->pool;
    const struct kvt_layer *layer = &pool->plan->layers[a->layer];
    const struct kvt_page_shape *wide = &layer->page[KVT_REGION_TAIL];
    const int d = kvt_tile_row_size(&wide->tile[side]);
    const int64_t end = kvt_entry_body_end(layer, part->entry);
    const bool by_queries = side == KVT_SIDE_K && layer->queries.bytes && a->queries;
    const bool by_rows = by_queries && layer->queries_parts == 1;
    float sums[KVT_LATENT_MAX];
    for (int64_t at = kvt_layer_encode_from(layer, part->entry->n_before); at < end;) {
        const int first = (int)(at % KVT_TILE_ROWS), n = (int)KVT_MIN(KVT_TILE_ROWS - first, end - at);
        const struct kvt_page *page =
            part->entry->seq->layers[a->layer].list[KVT_REGION_TAIL].pages[at / KVT_TILE_ROWS];
        const int most = by_queries ? 1 : heads_together(part, n);
        for (int done = 0; done < part->n_heads; done += most) {
            const int head = part->head + done, m = KVT_MIN(most, part->n_heads - done);
            if (by_queries) kvt_queries_read(pool, layer, page, head, by_rows ? part->room : part->rows, sums);
            for (int h = 0; h < m; h++)
                pool->ops->decode(pool, &wide->tile[side], part->rows + (ptrdiff_t)h * n * d, d,
                                  kvt_page_tile(page, wide, head + h, side), first, n);
            encode_heads(a, part, &(struct run){side, KVT_REGION_BODY, at, n}, head, m, by_queries ? sums : NULL);
        }
        at += n;
    }
}

/* Job i: a->heads KV heads of one sequence. */
static void append_job(void *arg, int i, int thread) {
    const struct append *a = arg;
    struct kvt_step *step = a->step;
    const struct kvt_layer *layer = &step->pool->plan->layers[a->layer];
    const int n_heads = layer->plan.shape.n_kv_heads, n_parts = n_heads / a->heads;
    float *rows = step->rows + (size_t)thread * kvt_append_floats(step->pool);
    const struct part part = {
        .entry = &step->entries[i / n_parts],
        .head = i % n_parts * a->heads,
        .n_heads = a->heads,
        .rows = rows,
        .room = rows + KVT_TILE_ROWS * (size_t)step->pool->plan->max_row,
    };
    struct kvt_bad_number *bad = &step->bad[i / n_parts * n_heads + part.head];
    for (int h = 0; h < a->heads; h++) bad[h].found = bad[h].is_query = false;
    for (int side = 0; side < KVT_SIDE_COUNT; side++)
        if (!write_rows(a, &part, (enum kvt_side)side)) return;
    for (int h = 0; h < a->heads; h++)
        if (!kvt_queries_write(step, a->layer, part.entry, part.head + h, a->queries, a->n_q_heads, &bad[h])) return;
    if (layer->direct) return;
    for (int side = 0; side < KVT_SIDE_COUNT; side++) encode_body(a, &part, (enum kvt_side)side);
}

/* Few rows are not worth waking threads for, but groups that they complete are: those are of 32 rows and more. */
static bool is_worth_threads(const struct kvt_step *step, const struct kvt_layer *layer) {
    bool encodes = false;
    for (int i = 0; i < step->n_seqs && layer->plan.granularity > 1; i++)
        encodes |=
            kvt_layer_encode_from(layer, step->entries[i].n_before) < kvt_entry_body_end(layer, &step->entries[i]);
    return encodes || step->n_rows >= 16;
}

enum kvt_status kvt_bad_number_fail(const struct kvt_step *step, int layer, int head, const struct kvt_bad_number *bad,
                                    struct kvt_error *err) {
    if (bad->is_query)
        return kvt_fail(
            err, KVT_ERR_RANGE,
            "layer %d, query head %d, position %lld, channel %d is %g: queries must be finite and within f16", layer,
            bad->head, (long long)bad->position, bad->channel, (double)bad->value);
    return kvt_fail(err, KVT_ERR_RANGE,
                    "layer %d, %s, KV head %d, position %lld, channel %d is %g: rows must be finite and at most "
                    "%g in magnitude",
                    layer, bad->side == KVT_SIDE_K ? "K" : "V", head, (long long)bad->position, bad->channel,
                    (double)bad->value, (double)step->pool->plan->layers[layer].limit[bad->side]);
}

enum kvt_status kvt_append_rows(struct kvt_step *step, int layer, const struct kvt_append *given,
                                struct kvt_error *err) {
    const struct kvt_layer *own = &step->pool->plan->layers[layer];
    const int n_heads = own->plan.shape.n_kv_heads;
    const bool in_threads = is_worth_threads(step, own);
    struct append a = {.step = step,
                       .layer = layer,
                       .heads = in_threads ? 1 : n_heads,
                       .rows = {given->rows[KVT_SIDE_K], given->rows[KVT_SIDE_V]},
                       .queries = given->queries,
                       .n_q_heads = given->n_q_heads};
    kvt_parallel_run(in_threads ? &step->pool->parallel : NULL, step->n_seqs * (n_heads / a.heads), append_job, &a);
    for (int i = 0; i < step->n_seqs * n_heads; i++) {
        if (step->bad[i].found) return kvt_bad_number_fail(step, layer, i % n_heads, &step->bad[i], err);
    }
    return KVT_OK;
}
