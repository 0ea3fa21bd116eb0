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

static size_t n_scratch(const struct kvt_pool *pool) {
    return (size_t)pool->parallel.n_threads * KVT_TILE_ROWS * (size_t)pool->plan->max_row;
}

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
    int layer;
    const struct kvt_rows *rows[KVT_SIDE_COUNT], *queries;
    int n_q_heads;
};

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

/* New rows of one sequence, head and side, in runs within a tile and a region: checked, then written where they go. */
static bool write_rows(const struct append *a, const struct kvt_step_entry *entry, enum kvt_side side, int head,
                       float *rows, struct kvt_bad_number *bad) {
    struct kvt_pool *pool = a->step->pool;
    const struct kvt_layer *layer = &pool->plan->layers[a->layer];
    const struct kvt_seq_layer *mine = &entry->seq->layers[a->layer];
    const struct kvt_tile *wide = &layer->page[KVT_REGION_TAIL].tile[side];
    const int d = kvt_tile_row_size(wide);
    for (int done = 0; done < entry->n_rows;) {
        const int64_t at = entry->n_before + done;
        const enum kvt_region region = at < layer->plan.sink ? KVT_REGION_SINK
                                       : layer->direct       ? KVT_REGION_BODY
                                                             : KVT_REGION_TAIL;
        const int first = (int)(at % KVT_TILE_ROWS), n = KVT_MIN(KVT_TILE_ROWS - first, entry->n_rows - done);
        for (int i = 0; i < n; i++) {
            float *x = rows + i * d;
            kvt_rows_load(a->rows[side], entry->first + done + i, head, d, x);
            if (!check_numbers(x, d, layer->limit[side], bad)) {
                bad->side = side;
                bad->position = at + i;
                return false;
            }
            if (region == KVT_REGION_BODY) round_to_wide(wide, x, d);
        }
        const struct kvt_page_shape *shape = &layer->page[region];
        const struct kvt_page *page = mine->list[region].pages[at / KVT_TILE_ROWS];
        const struct kvt_codec *codec = region == KVT_REGION_BODY ? layer->plan.codec[side] : layer->plan.wide[side];
        void *to = kvt_page_tile(page, shape, head, side);
        pool->ops->encode(pool, &(struct kvt_encode_args){codec, &shape->tile[side], to, first, n, rows, d, NULL});
        done += n;
    }
    return true;
}

/* Encodes the groups that this step completes, from their 16-bit rows. */
static void encode_body(const struct append *a, const struct kvt_step_entry *entry, enum kvt_side side, int head,
                        float *rows) {
    struct kvt_pool *pool = a->step->pool;
    const struct kvt_layer *layer = &pool->plan->layers[a->layer];
    const struct kvt_seq_layer *mine = &entry->seq->layers[a->layer];
    const struct kvt_page_shape *wide = &layer->page[KVT_REGION_TAIL], *body = &layer->page[KVT_REGION_BODY];
    const int d = kvt_tile_row_size(&wide->tile[side]);
    const int64_t end = kvt_entry_body_end(layer, entry);
    const bool by_queries = side == KVT_SIDE_K && layer->queries.bytes && a->queries;
    float sums[KVT_LATENT_MAX];
    for (int64_t at = kvt_layer_encode_from(layer, entry->n_before); at < end;) {
        const int64_t t = at / KVT_TILE_ROWS;
        if (by_queries) kvt_queries_sum(pool, layer, mine->list[KVT_REGION_TAIL].pages[t], head, rows, sums);
        const int first = (int)(at % KVT_TILE_ROWS), n = (int)KVT_MIN(KVT_TILE_ROWS - first, end - at);
        pool->ops->decode(pool, &wide->tile[side], rows, d,
                          kvt_page_tile(mine->list[KVT_REGION_TAIL].pages[t], wide, head, side), first, n);
        void *to = kvt_page_tile(mine->list[KVT_REGION_BODY].pages[t], body, head, side);
        pool->ops->encode(pool, &(struct kvt_encode_args){layer->plan.codec[side], &body->tile[side], to, first, n,
                                                          rows, d, by_queries ? sums : NULL});
        at += n;
    }
}

/* Job i: one sequence and KV head. */
static void append_job(void *arg, int i, int thread) {
    const struct append *a = arg;
    struct kvt_step *step = a->step;
    const struct kvt_layer *layer = &step->pool->plan->layers[a->layer];
    const int n_heads = layer->plan.shape.n_kv_heads, head = i % n_heads;
    const struct kvt_step_entry *entry = &step->entries[i / n_heads];
    float *rows = step->rows + (size_t)thread * KVT_TILE_ROWS * (size_t)step->pool->plan->max_row;
    struct kvt_bad_number *bad = &step->bad[i];
    bad->found = bad->is_query = false;
    for (int side = 0; side < KVT_SIDE_COUNT; side++)
        if (!write_rows(a, entry, (enum kvt_side)side, head, rows, bad)) return;
    if (!kvt_queries_write(step, a->layer, entry, head, a->queries, a->n_q_heads, bad)) return;
    if (layer->direct) return;
    for (int side = 0; side < KVT_SIDE_COUNT; side++) encode_body(a, entry, (enum kvt_side)side, head, rows);
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

static enum kvt_status append(struct kvt_step *step, int layer, const struct append *a, struct kvt_error *err) {
    if (!step->n_seqs) return kvt_fail(err, KVT_ERR_STATE, "no step is begun");
    if (layer < 0 || layer >= step->pool->plan->n_layers)
        return kvt_fail(err, KVT_ERR_ARG, "there is no layer %d in a cache of %d", layer, step->pool->plan->n_layers);
    if (step->appended[layer]) return kvt_fail(err, KVT_ERR_STATE, "layer %d has this step's rows already", layer);
    KVT_TRY(kvt_queries_check(step, layer, a->queries, a->n_q_heads, err));
    const struct kvt_layer *own = &step->pool->plan->layers[layer];
    const int n_heads = own->plan.shape.n_kv_heads, n_jobs = step->n_seqs * n_heads;
    kvt_parallel_run(is_worth_threads(step, own) ? &step->pool->parallel : NULL, n_jobs, append_job,
                     (void *)(uintptr_t)a);
    for (int i = 0; i < n_jobs; i++) {
        if (step->bad[i].found) return bad_number(step, layer, i % n_heads, &step->bad[i], err);
    }
    step->appended[layer] = true;
    return KVT_OK;
}

enum kvt_status kvt_step_append(struct kvt_step *step, int layer, const struct kvt_rows *k, const struct kvt_rows *v,
                                const struct kvt_rows *q, int n_q_heads, struct kvt_error *err) {
    const struct append a = {step, layer, {k, v}, q, n_q_heads};
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
