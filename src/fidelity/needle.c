/* SPDX-License-Identifier: Apache-2.0
 * Whether a model still answers, and how long it still says the same. A text is fed as a prompt, its questions token by token with their
 * true answers: an answer is right if each of its tokens was the most probable one, which is when greedy decoding gives it. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "fidelity/inside.h"
#include "fidelity/needle_text.h"

struct run {
    const struct kvt_model *model;
    const struct kvt_needle_options *options;
    struct kvt_needle_result *result;
    struct kvt_allocator allocator;
    struct kvt_needle_filler filler;
    int n_vocab, n_ctx;
    float *logits;
    bool *right;   /* the first cache's: [trial of all lengths][depth] */
    int32_t *said; /* its continuations: [trial of all lengths][n_agree] */
    int *n_same;   /* of the cache at work, by trial of all lengths */
    uint64_t done, total;
};

/* Of trial t of length l among all. */
static size_t index_of(const struct run *r, int l, int t) {
    return (size_t)l * (size_t)r->options->n_trials + (size_t)t;
}

static enum kvt_status report(struct run *r, struct kvt_error *err) {
    if (kvt_progress_report(r->options->progress, "needle", r->done, r->total)) return KVT_OK;
    return kvt_fail(err, KVT_ERR_CANCELLED, "cancelled");
}

static int32_t most_probable(struct run *r, struct kvt_session *session, enum kvt_status *status,
                             struct kvt_error *err) {
    int best = 0;
    *status = kvt_session_logits(session, 0, 1, r->logits, err);
    for (int i = 1; *status == KVT_OK && i < r->n_vocab; i++)
        if (r->logits[i] > r->logits[best]) best = i;
    return best;
}

/* ---- questions -------------------------------------------------------------------------------------------------------- */

static enum kvt_status ask(bool *right, struct run *r, struct kvt_session *session, const struct kvt_needle_question *q,
                           struct kvt_error *err) {
    const int n_ask = (int)q->ids.len - q->n_answer;
    enum kvt_status status;
    *right = true;
    for (int i = 0; i < (int)q->ids.len; i++) {
        KVT_TRY(kvt_session_eval(session, &q->ids.data[i], 1, 1, NULL, err));
        if (i + 1 < n_ask || i + 1 == (int)q->ids.len) continue;
        *right &= most_probable(r, session, &status, err) == q->ids.data[i + 1];
        KVT_TRY(status);
    }
    return KVT_OK;
}

static void count_answer(struct run *r, int row, int l, int t, int depth, bool right) {
    struct kvt_needle_row *out = &r->result->rows[row];
    struct kvt_needle_cell *cell = &out->cells[l * r->options->n_depths + depth];
    bool *first = &r->right[index_of(r, l, t) * (size_t)r->options->n_depths + (size_t)depth];
    if (row == 0) *first = right;
    cell->n++;
    out->all.n++;
    cell->n_right += right;
    out->all.n_right += right;
    cell->n_lost += *first && !right;
    out->all.n_lost += *first && !right;
}

/* ---- continuations ---------------------------------------------------------------------------------------------------- */

/* Goes on greedily; the first cache's words are kept, the others' compared until they differ. */
static enum kvt_status go_on(struct run *r, struct kvt_session *session, int row, size_t trial, struct kvt_error *err) {
    int32_t *said = r->said + trial * (size_t)r->options->n_agree;
    enum kvt_status status;
    for (int i = 0; i < r->options->n_agree; i++) {
        const int32_t id = most_probable(r, session, &status, err);
        KVT_TRY(status);
        if (row == 0) said[i] = id;
        if (said[i] != id) break;
        r->n_same[trial] = i + 1;
        if (i + 1 < r->options->n_agree) KVT_TRY(kvt_session_eval(session, &id, 1, 1, NULL, err));
    }
    return KVT_OK;
}

static int by_size(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void summarise_agreement(struct run *r, struct kvt_agreement *out) {
    const int n = r->options->n_lengths * r->options->n_trials;
    if (r->options->n_agree == 0) return;
    qsort(r->n_same, (size_t)n, sizeof *r->n_same, by_size);
    *out = (struct kvt_agreement){.n = n, .median = (r->n_same[(n - 1) / 2] + r->n_same[n / 2]) / 2.0};
    for (int i = 0; i < n; i++) {
        out->mean += (double)r->n_same[i] / n;
        out->n_whole += r->n_same[i] == r->options->n_agree;
    }
}

/* ---- one text --------------------------------------------------------------------------------------------------------- */

static enum kvt_status run_text(struct run *r, struct kvt_session *session, int row, int l, int t,
                                const struct kvt_needle_text *text, struct kvt_error *err) {
    const int n = (int)text->ids.len;
    kvt_session_clear(session);
    KVT_TRY(kvt_session_eval(session, text->ids.data, n, 1, NULL, err));
    if (r->options->n_agree) { /* without the questions, which come after the text */
        KVT_TRY(go_on(r, session, row, index_of(r, l, t), err));
        kvt_session_clear(session);
        KVT_TRY(kvt_session_eval(session, text->ids.data, n, 1, NULL, err));
    }
    for (int i = 0; i < text->n_questions; i++) {
        bool right;
        KVT_TRY(ask(&right, r, session, &text->questions[i], err));
        count_answer(r, row, l, t, text->questions[i].depth, right);
    }
    r->done += (uint64_t)r->options->lengths[l];
    return report(r, err);
}

/* The same texts for every cache. */
static enum kvt_status run_texts(struct run *r, struct kvt_session *session, int row, struct kvt_error *err) {
    const struct kvt_needle_options *o = r->options;
    const struct kvt_text *tokenizer = kvt_model_text(r->model);
    for (int l = 0; l < o->n_lengths; l++)
        for (int t = 0; t < o->n_trials; t++) {
            struct kvt_rng rng = {o->seed * 1000003 + (uint64_t)(l * 1000 + t)};
            struct kvt_needle_text text;
            KVT_TRY(report(r, err));
            KVT_TRY(kvt_needle_make(&text, &r->filler, tokenizer, o->lengths[l], o->n_depths, &rng, o->allocator, err));
            const enum kvt_status status = run_text(r, session, row, l, t, &text, err);
            kvt_needle_text_finish(&text);
            KVT_TRY(status);
        }
    return KVT_OK;
}

static enum kvt_status run_row(struct run *r, int row, struct kvt_error *err) {
    const struct kvt_needle_options *o = r->options;
    const struct kvt_fidelity_scheme *s = &o->schemes[row];
    const struct kvt_session_options options = {.kv = s->kv,
                                                .sink = s->sink,
                                                .tail = s->tail,
                                                .n_ctx = r->n_ctx,
                                                .n_keep = 1,
                                                .place = o->place,
                                                .level = o->level,
                                                .parallel = o->parallel,
                                                .allocator = o->allocator};
    struct kvt_needle_row *out = &r->result->rows[row];
    struct kvt_session *session;
    KVT_TRY(kvt_session_create(&session, r->model, &options, err));
    const char *kv = kvt_plan_kv(kvt_session_plan(session));
    out->kv = kvt_take_string(&r->allocator, kv, strlen(kv));
    out->sink = s->sink;
    out->tail = s->tail;
    out->cache_bytes = kvt_plan_bytes(kvt_session_plan(session), o->lengths[o->n_lengths - 1]);
    memset(r->n_same, 0, (size_t)(o->n_lengths * o->n_trials) * sizeof *r->n_same);
    enum kvt_status status = out->kv ? KVT_OK : kvt_fail(err, KVT_ERR_NOMEM, "no memory for a cache's name");
    if (status == KVT_OK) status = run_texts(r, session, row, err);
    kvt_session_destroy(session);
    if (status == KVT_OK) summarise_agreement(r, &out->agreement);
    return status;
}

/* ---- all -------------------------------------------------------------------------------------------------------------- */

enum kvt_status kvt_needle_check(const struct kvt_model *model, const struct kvt_needle_options *o,
                                 struct kvt_error *err) {
    const int n_ctx = kvt_model_info(model).n_ctx_train;
    if (o->n_schemes < 1 || o->n_lengths < 1 || o->n_trials < 1)
        return kvt_fail(err, KVT_ERR_ARG, "a recall test needs a cache, a length and a trial");
    if (o->n_depths < 1 || o->n_depths > KVT_NEEDLE_FACTS_MAX)
        return kvt_fail(err, KVT_ERR_ARG, "%d facts in a text; 1 to %d can be planted", o->n_depths,
                        KVT_NEEDLE_FACTS_MAX);
    for (int i = 0; i < o->n_lengths; i++)
        if (o->lengths[i] + o->n_agree > n_ctx)
            return kvt_fail(err, KVT_ERR_RANGE, "%d tokens and %d to go on are more than the model's context of %d",
                            o->lengths[i], o->n_agree, n_ctx);
    for (int i = 0; i < o->n_schemes; i++) {
        const struct kvt_shape shape = kvt_model_shape(model);
        const struct kvt_plan_options options = {.struct_size = sizeof options,
                                                 .kv = o->schemes[i].kv,
                                                 .sink = o->schemes[i].sink,
                                                 .tail = o->schemes[i].tail};
        struct kvt_plan *plan;
        KVT_TRY(kvt_plan_create(&plan, &shape, &options, o->allocator, err));
        kvt_plan_destroy(plan);
    }
    return KVT_OK;
}

static enum kvt_status prepare(struct run *r, struct kvt_error *err) {
    const struct kvt_needle_options *o = r->options;
    struct kvt_needle_result *result = r->result;
    const size_t n_cells = (size_t)(o->n_lengths * o->n_depths), n_texts = (size_t)(o->n_lengths * o->n_trials);
    bool whole = true;
    for (int i = 0; i < o->n_lengths; i++) r->n_ctx = KVT_MAX(r->n_ctx, o->lengths[i] + o->n_agree);
    for (int i = 0; i < o->n_lengths; i++) r->total += (uint64_t)o->lengths[i] * (uint64_t)(o->n_trials * o->n_schemes);
    r->n_vocab = kvt_model_info(r->model).n_vocab;
    r->logits = kvt_take(&r->allocator, (size_t)r->n_vocab, sizeof *r->logits);
    r->right = kvt_take_zero(&r->allocator, n_texts * (size_t)o->n_depths, sizeof *r->right);
    r->said = kvt_take_zero(&r->allocator, n_texts * (size_t)KVT_MAX(o->n_agree, 1), sizeof *r->said);
    r->n_same = kvt_take_zero(&r->allocator, n_texts, sizeof *r->n_same);
    result->lengths = kvt_take(&r->allocator, (size_t)o->n_lengths, sizeof *result->lengths);
    result->rows = kvt_take_zero(&r->allocator, (size_t)o->n_schemes, sizeof *result->rows);
    whole = r->logits && r->right && r->said && r->n_same && result->lengths && result->rows;
    if (result->rows) result->n_rows = o->n_schemes;
    for (int i = 0; i < result->n_rows; i++) {
        result->rows[i].cells = kvt_take_zero(&r->allocator, n_cells, sizeof *result->rows[i].cells);
        whole &= result->rows[i].cells != NULL;
    }
    if (!whole) return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for %zu texts", n_texts);
    memcpy(result->lengths, o->lengths, (size_t)o->n_lengths * sizeof *result->lengths);
    return kvt_needle_cut(&r->filler, o->filler, o->filler_len, kvt_model_text(r->model), o->allocator, err);
}

static void finish(struct run *r) {
    const size_t n_texts = (size_t)(r->options->n_lengths * r->options->n_trials);
    kvt_give(&r->allocator, r->logits, (size_t)r->n_vocab, sizeof *r->logits);
    kvt_give(&r->allocator, r->right, n_texts * (size_t)r->options->n_depths, sizeof *r->right);
    kvt_give(&r->allocator, r->said, n_texts * (size_t)KVT_MAX(r->options->n_agree, 1), sizeof *r->said);
    kvt_give(&r->allocator, r->n_same, n_texts, sizeof *r->n_same);
    kvt_needle_filler_finish(&r->filler);
}

enum kvt_status kvt_needle_run(struct kvt_needle_result *out, const struct kvt_model *model,
                               const struct kvt_needle_options *options, struct kvt_error *err) {
    KVT_TRY(kvt_needle_check(model, options, err));
    const struct kvt_allocator a = kvt_allocator_or_default(options->allocator);
    struct kvt_needle_result result = {.n_lengths = options->n_lengths,
                                       .n_depths = options->n_depths,
                                       .n_trials = options->n_trials,
                                       .n_agree = options->n_agree,
                                       .allocator = a};
    struct run r = {.model = model, .options = options, .result = &result, .allocator = a};
    enum kvt_status status = prepare(&r, err);
    for (int row = 0; row < options->n_schemes && status == KVT_OK; row++) status = run_row(&r, row, err);
    finish(&r);
    if (status == KVT_OK)
        *out = result;
    else
        kvt_needle_finish(&result);
    return status;
}

void kvt_needle_finish(struct kvt_needle_result *result) {
    const struct kvt_allocator a = result->allocator;
    const size_t n_cells = (size_t)(result->n_lengths * result->n_depths);
    for (int i = 0; i < result->n_rows; i++) {
        struct kvt_needle_row *row = &result->rows[i];
        if (row->kv) kvt_give(&a, row->kv, strlen(row->kv) + 1, 1);
        if (row->cells) kvt_give(&a, row->cells, n_cells, sizeof *row->cells);
    }
    if (result->rows) kvt_give(&a, result->rows, (size_t)result->n_rows, sizeof *result->rows);
    if (result->lengths) kvt_give(&a, result->lengths, (size_t)result->n_lengths, sizeof *result->lengths);
    *result = (struct kvt_needle_result){.rows = NULL};
}
