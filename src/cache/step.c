/* SPDX-License-Identifier: Apache-2.0
 *
 * A step: new rows of a batch of sequences. Rows are first written to 16-bit pages, which stay until the step ends, so that
 * each query finds the rows that are still in 16 bits for it; then the groups that are complete are encoded from there. Where
 * no query ever sees a 16-bit row (granularity 1, no tail) rows are encoded at once.
 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/half.h"
#include "base/parallel.h"
#include "cache/cache.h"

/* Floats that a thread works in: a tile's rows, and an encoder's room. */
static size_t thread_floats(const struct kvt_pool *pool) {
    return KVT_TILE_ROWS * (size_t)pool->plan->max_row + pool->plan->room;
}

static size_t n_scratch(const struct kvt_pool *pool) { return (size_t)pool->parallel.n_threads * thread_floats(pool); }

enum kvt_status kvt_step_create(struct kvt_step **out, struct kvt_pool *pool, int max_seqs, int max_rows,
                                struct kvt_error *err) {
    if (max_seqs < 1 || max_rows < max_seqs || max_rows > 1 << 24)
        return kvt_fail(err, KVT_ERR_ARG, "a step of %d sequences and %d rows: it needs 1 sequence and a row for each",
                        max_seqs, max_rows);
    const struct kvt_allocator *a = &pool->allocator;
    struct kvt_step *step = kvt_take_zero(a, 1, sizeof *step);
    if (!step) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for a step");
    *step = (struct kvt_step){.pool = pool, .max_seqs = max_seqs, .max_rows = max_rows};
    step->entries = kvt_take_zero(a, (size_t)max_seqs, sizeof *step->entries);
    step->appended = kvt_take_zero(a, (size_t)pool->plan->n_layers, sizeof *step->appended);
    step->bad = kvt_take_zero(a, (size_t)max_seqs * (size_t)pool->plan->max_heads, sizeof *step->bad);
    step->rows = kvt_take(a, n_scratch(pool), sizeof *step->rows);
    atomic_fetch_add(&pool->n_users, 1);
    if (!step->entries || !step->appended || !step->bad || !step->rows) {
        kvt_step_destroy(step);
        return kvt_fail(err, KVT_ERR_NOMEM, "no memory for a step of %d rows", max_rows);
    }
    *out = step;
    return KVT_OK;
}

void kvt_step_destroy(struct kvt_step *step) {
    if (!step) return;
    kvt_step_abandon(step);
    struct kvt_pool *pool = step->pool;
    const struct kvt_allocator *a = &pool->allocator;
    kvt_give(a, step->entries, (size_t)step->max_seqs, sizeof *step->entries);
    kvt_give(a, step->appended, (size_t)pool->plan->n_layers, sizeof *step->appended);
    kvt_give(a, step->bad, (size_t)step->max_seqs * (size_t)pool->plan->max_heads, sizeof *step->bad);
    kvt_give(a, step->rows, n_scratch(pool), sizeof *step->rows);
    kvt_give(a, step->attention, step->attention_bytes, 1);
    kvt_give(a, step, 1, sizeof *step);
    atomic_fetch_sub(&pool->n_users, 1);
}

/* ---- begin ------------------------------------------------------------------------------------------------------------- */

/* Sequence i of those that begin a step, in one layer. */
struct claim {
    struct kvt_seq *const *seqs;
    int i, layer;
};

/* How many of the sequences before this one had the page and have replaced it: the last sharer in a step needs no copy. */
static int n_replaced(const struct claim *c, enum kvt_region region, const struct kvt_page *page) {
    int n = 0;
    for (int j = 0; j < c->i && page; j++) n += c->seqs[j]->layers[c->layer].kept[region].page == page;
    return n;
}

static enum kvt_status own_range(const struct claim *c, enum kvt_region region, int64_t first, int64_t end,
                                 struct kvt_error *err) {
    struct kvt_seq *seq = c->seqs[c->i];
    for (int64_t t = first / KVT_TILE_ROWS; t * KVT_TILE_ROWS < end; t++) {
        const int n_friends = n_replaced(c, region, seq->layers[c->layer].list[region].pages[t]);
        KVT_TRY(kvt_seq_own_page(seq, c->layer, region, t, n_friends, err));
    }
    return KVT_OK;
}

/* All pages that one sequence writes to in one layer: for its new rows in 16 bits, for all groups that become complete.
 * Groups that leave the window within the step are encoded too: its first queries may see them. */
static enum kvt_status own_pages(const struct claim *c, int n_rows, struct kvt_error *err) {
    const struct kvt_seq *seq = c->seqs[c->i];
    const struct kvt_layer *layer = &seq->pool->plan->layers[c->layer];
    const int64_t before = seq->n_rows, after = before + n_rows;
    const int64_t sink = layer->plan.sink, tail = KVT_MAX(before, sink);
    if (before < sink) KVT_TRY(own_range(c, KVT_REGION_SINK, before, KVT_MIN(after, sink), err));
    if (!layer->direct && tail < after) KVT_TRY(own_range(c, KVT_REGION_TAIL, tail, after, err));
    const int64_t body = kvt_layer_encode_from(layer, before), body_end = kvt_layer_body_end(layer, after);
    return body < body_end ? own_range(c, KVT_REGION_BODY, body, body_end, err) : KVT_OK;
}

/* All pages of a step, or none. */
static enum kvt_status own_all(struct kvt_seq *const *seqs, const int *n_rows, int n_seqs, struct kvt_error *err) {
    enum kvt_status status = KVT_OK;
    for (int i = 0; i < n_seqs; i++) kvt_enter(&seqs[i]->busy);
    for (int i = 0; i < n_seqs && status == KVT_OK; i++)
        for (int l = 0; l < seqs[i]->pool->plan->n_layers && status == KVT_OK; l++)
            status = own_pages(&(struct claim){seqs, i, l}, n_rows[i], err);
    for (int i = 0; i < n_seqs; i++) {
        if (status == KVT_OK)
            kvt_seq_settle(seqs[i]);
        else
            kvt_seq_undo(seqs[i]);
        kvt_exit(&seqs[i]->busy);
    }
    return status;
}

static enum kvt_status check_begin(const struct kvt_step *step, struct kvt_seq *const *seqs, const int *n_rows,
                                   int n_seqs, struct kvt_error *err) {
    if (step->n_seqs) return kvt_fail(err, KVT_ERR_STATE, "a step is begun already: end or abandon it first");
    if (n_seqs < 1 || n_seqs > step->max_seqs)
        return kvt_fail(err, KVT_ERR_ARG, "%d sequences in a step made for 1 to %d", n_seqs, step->max_seqs);
    int64_t total = 0;
    for (int i = 0; i < n_seqs; i++) {
        const struct kvt_seq *seq = seqs[i];
        if (seq->pool != step->pool)
            return kvt_fail(err, KVT_ERR_ARG, "sequence %d of the step belongs to another pool", i);
        if (seq->step) return kvt_fail(err, KVT_ERR_STATE, "sequence %d of the step is in a step already", i);
        for (int j = 0; j < i; j++)
            if (seqs[j] == seq) return kvt_fail(err, KVT_ERR_ARG, "sequences %d and %d of the step are the same", j, i);
        if (n_rows[i] < 1) return kvt_fail(err, KVT_ERR_ARG, "sequence %d gets %d rows: at least 1", i, n_rows[i]);
        if (n_rows[i] > seq->max_rows - seq->n_rows)
            return kvt_fail(err, KVT_ERR_LIMIT, "sequence %d has %lld rows of at most %lld: %d more do not fit", i,
                            (long long)seq->n_rows, (long long)seq->max_rows, n_rows[i]);
        total += n_rows[i];
    }
    if (total > step->max_rows)
        return kvt_fail(err, KVT_ERR_ARG, "%lld rows in a step made for %d", (long long)total, step->max_rows);
    return KVT_OK;
}

static enum kvt_status begin(struct kvt_step *step, struct kvt_seq *const *seqs, const int *n_rows, int n_seqs,
                             struct kvt_error *err) {
    KVT_TRY(check_begin(step, seqs, n_rows, n_seqs, err));
    KVT_TRY(own_all(seqs, n_rows, n_seqs, err));
    step->n_rows = 0;
    for (int i = 0; i < n_seqs; i++) {
        step->entries[i] = (struct kvt_step_entry){seqs[i], seqs[i]->n_rows, n_rows[i], step->n_rows};
        step->n_rows += n_rows[i];
        seqs[i]->step = step;
    }
    step->n_seqs = n_seqs;
    step->queries = KVT_QUERIES_UNKNOWN;
    memset(step->appended, 0, (size_t)step->pool->plan->n_layers * sizeof *step->appended);
    return KVT_OK;
}

enum kvt_status kvt_step_begin(struct kvt_step *step, struct kvt_seq *const *seqs, const int *n_rows, int n_seqs,
                               struct kvt_error *err) {
    kvt_enter(&step->busy);
    const enum kvt_status status = begin(step, seqs, n_rows, n_seqs, err);
    kvt_exit(&step->busy);
    return status;
}

/* ---- append ------------------------------------------------------------------------------------------------------------ */

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
    float *rows = step->rows + (size_t)thread * thread_floats(step->pool);
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

static enum kvt_status bad_number(const struct kvt_step *step, int layer, int head, const struct kvt_bad_number *bad,
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

static enum kvt_status append(struct kvt_step *step, int layer, const struct append *given, struct kvt_error *err) {
    if (!step->n_seqs) return kvt_fail(err, KVT_ERR_STATE, "no step is begun");
    if (layer < 0 || layer >= step->pool->plan->n_layers)
        return kvt_fail(err, KVT_ERR_ARG, "there is no layer %d in a cache of %d", layer, step->pool->plan->n_layers);
    if (step->appended[layer]) return kvt_fail(err, KVT_ERR_STATE, "layer %d has this step's rows already", layer);
    KVT_TRY(kvt_queries_check(step, layer, given->queries, given->n_q_heads, err));
    const struct kvt_layer *own = &step->pool->plan->layers[layer];
    const int n_heads = own->plan.shape.n_kv_heads;
    const bool in_threads = is_worth_threads(step, own);
    struct append a = *given;
    a.heads = in_threads ? 1 : n_heads;
    kvt_parallel_run(in_threads ? &step->pool->parallel : NULL, step->n_seqs * (n_heads / a.heads), append_job, &a);
    for (int i = 0; i < step->n_seqs * n_heads; i++) {
        if (step->bad[i].found) return bad_number(step, layer, i % n_heads, &step->bad[i], err);
    }
    step->appended[layer] = true;
    return KVT_OK;
}

enum kvt_status kvt_step_append(struct kvt_step *step, int layer, const struct kvt_rows *k, const struct kvt_rows *v,
                                const struct kvt_rows *q, int n_q_heads, struct kvt_error *err) {
    const struct append a = {step, layer, 1, {k, v}, q, n_q_heads};
    kvt_enter(&step->busy);
    const enum kvt_status status = append(step, layer, &a, err);
    kvt_exit(&step->busy);
    return status;
}

/* ---- end --------------------------------------------------------------------------------------------------------------- */

/* Sequences get the length that they now have; pages that it does not need go. */
static void release(struct kvt_step *step, bool keep_rows) {
    kvt_enter(&step->busy);
    for (int i = 0; i < step->n_seqs; i++) {
        const struct kvt_step_entry *entry = &step->entries[i];
        kvt_enter(&entry->seq->busy);
        entry->seq->n_rows = entry->n_before + (keep_rows ? entry->n_rows : 0);
        if (keep_rows) entry->seq->queries = step->queries;
        kvt_seq_fit(entry->seq, entry->seq->n_rows);
        entry->seq->step = NULL;
        kvt_exit(&entry->seq->busy);
    }
    step->n_seqs = 0;
    kvt_exit(&step->busy);
}

enum kvt_status kvt_step_end(struct kvt_step *step, struct kvt_error *err) {
    if (!step->n_seqs) return kvt_fail(err, KVT_ERR_STATE, "no step is begun");
    for (int l = 0; l < step->pool->plan->n_layers; l++)
        if (!step->appended[l]) return kvt_fail(err, KVT_ERR_STATE, "layer %d has no rows of this step yet", l);
    release(step, true);
    return KVT_OK;
}

void kvt_step_abandon(struct kvt_step *step) { release(step, false); }
