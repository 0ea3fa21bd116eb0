/* SPDX-License-Identifier: Apache-2.0
 *
 * A step: new rows of a batch of sequences. It begins with all pages that it can need, or not at all; what a layer's rows
 * become is the backend's (append.c where pages are in the process's memory); it ends with rows that are their sequences'.
 */
#include <string.h>

#include "base/check.h"
#include "cache/cache.h"

static size_t n_scratch(const struct kvt_pool *pool) {
    return (size_t)pool->parallel.n_threads * kvt_append_floats(pool);
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
    if (pool->ops->step_open) {
        const enum kvt_status status = pool->ops->step_open(step, err);
        if (status != KVT_OK) {
            kvt_step_destroy(step);
            return status;
        }
    }
    *out = step;
    return KVT_OK;
}

void kvt_step_destroy(struct kvt_step *step) {
    if (!step) return;
    kvt_step_abandon(step);
    struct kvt_pool *pool = step->pool;
    const struct kvt_allocator *a = &pool->allocator;
    if (pool->ops->step_close) pool->ops->step_close(step);
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

/* Sequences get the length that they now have; pages that it does not need go. */
static void release(struct kvt_step *step, bool keep_rows) {
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
}

static enum kvt_status begin(struct kvt_step *step, struct kvt_seq *const *seqs, const int *n_rows, int n_seqs,
                             struct kvt_error *err) {
    KVT_TRY(check_begin(step, seqs, n_rows, n_seqs, err));
    KVT_TRY(kvt_pool_check(step->pool, err));
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
    const enum kvt_status status = step->pool->ops->begin ? step->pool->ops->begin(step, err) : KVT_OK;
    if (status != KVT_OK) release(step, false);
    return status;
}

enum kvt_status kvt_step_begin(struct kvt_step *step, struct kvt_seq *const *seqs, const int *n_rows, int n_seqs,
                               struct kvt_error *err) {
    kvt_enter(&step->busy);
    const enum kvt_status status = begin(step, seqs, n_rows, n_seqs, err);
    kvt_exit(&step->busy);
    return status;
}

/* ---- append ------------------------------------------------------------------------------------------------------------ */

static enum kvt_status append(struct kvt_step *step, int layer, const struct kvt_append *given, struct kvt_error *err) {
    if (!step->n_seqs) return kvt_fail(err, KVT_ERR_STATE, "no step is begun");
    if (layer < 0 || layer >= step->pool->plan->n_layers)
        return kvt_fail(err, KVT_ERR_ARG, "there is no layer %d in a cache of %d", layer, step->pool->plan->n_layers);
    if (step->appended[layer]) return kvt_fail(err, KVT_ERR_STATE, "layer %d has this step's rows already", layer);
    KVT_TRY(kvt_pool_check(step->pool, err));
    KVT_TRY(kvt_queries_check(step, layer, given->queries, given->n_q_heads, err));
    KVT_TRY(step->pool->ops->append(step, layer, given, err));
    step->appended[layer] = true;
    return KVT_OK;
}

enum kvt_status kvt_step_append(struct kvt_step *step, int layer, const struct kvt_rows *k, const struct kvt_rows *v,
                                const struct kvt_rows *q, int n_q_heads, struct kvt_error *err) {
    const struct kvt_append given = {{k, v}, q, n_q_heads};
    kvt_enter(&step->busy);
    const enum kvt_status status = append(step, layer, &given, err);
    kvt_exit(&step->busy);
    return status;
}

/* ---- end --------------------------------------------------------------------------------------------------------------- */

static enum kvt_status end(struct kvt_step *step, struct kvt_error *err) {
    if (!step->n_seqs) return kvt_fail(err, KVT_ERR_STATE, "no step is begun");
    for (int l = 0; l < step->pool->plan->n_layers; l++)
        if (!step->appended[l]) return kvt_fail(err, KVT_ERR_STATE, "layer %d has no rows of this step yet", l);
    KVT_TRY(kvt_pool_check(step->pool, err));
    if (step->pool->ops->end) KVT_TRY(step->pool->ops->end(step, err));
    release(step, true);
    return KVT_OK;
}

enum kvt_status kvt_step_end(struct kvt_step *step, struct kvt_error *err) {
    kvt_enter(&step->busy);
    const enum kvt_status status = end(step, err);
    kvt_exit(&step->busy);
    return status;
}

void kvt_step_abandon(struct kvt_step *step) {
    kvt_enter(&step->busy);
    release(step, false);
    kvt_exit(&step->busy);
}
