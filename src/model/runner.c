/* SPDX-License-Identifier: Apache-2.0 */
#include "model/runner.h"

#include <string.h>

#include "base/check.h"
#include "model/compute.h"
#include "model/place.h"

enum { DEFAULT_BATCH = 512 };

/* ---- life ------------------------------------------------------------------------------------------------------------- */

static size_t kept_len(const struct kvt_runner *r) { return (size_t)r->n_keep_max * (size_t)r->model->config.width; }

/* Numbers of the options, with their defaults. */
static enum kvt_status take_sizes(struct kvt_runner *r, const struct kvt_session_options *o, struct kvt_error *err) {
    const int n_ctx_train = r->model->config.n_ctx_train;
    if (o->n_ctx < 0 || o->n_batch < 0 || o->n_keep < 0)
        return kvt_fail(err, KVT_ERR_ARG, "a session's n_ctx %d, n_batch %d and n_keep %d must not be negative",
                        o->n_ctx, o->n_batch, o->n_keep);
    if (o->n_ctx > n_ctx_train && !o->beyond)
        return kvt_fail(err, KVT_ERR_RANGE, "a context of %d tokens is more than the %d that the model was trained for",
                        o->n_ctx, n_ctx_train);
    r->n_ctx = o->n_ctx ? o->n_ctx : n_ctx_train;
    /* A pass of one session is no longer than its context. */
    r->n_batch = o->n_batch ? o->n_batch : DEFAULT_BATCH;
    if (r->max_feeds == 1) r->n_batch = KVT_MIN(r->n_batch, r->n_ctx);
    r->n_keep_max = o->n_keep ? o->n_keep : r->n_ctx;
    if (r->max_feeds == 1) r->n_keep_max = KVT_MIN(r->n_keep_max, r->n_ctx);
    return KVT_OK;
}

static enum kvt_status create(struct kvt_runner *r, const struct kvt_session_options *o, struct kvt_error *err) {
    if (r->max_feeds < 1) return kvt_fail(err, KVT_ERR_ARG, "a runner takes 1 session or more, not %d", r->max_feeds);
    KVT_TRY(take_sizes(r, o, err));
    enum kvt_level level;
    KVT_TRY(kvt_level_parse(&level, o->level ? o->level : "auto", err));
    const struct kvt_shape shape = kvt_model_shape(r->model);
    const struct kvt_plan_options plan = {.struct_size = sizeof plan,
                                          .kv = o->kv,
                                          .sink = o->sink,
                                          .tail = o->tail,
                                          .start = o->start,
                                          .rolling = o->rolling,
                                          .hold_last = o->hold_last,
                                          .fallback = o->fallback};
    KVT_TRY(kvt_plan_create(&r->plan, &shape, &plan, &r->allocator, err));
    const struct kvt_placed *placed;
    KVT_TRY(kvt_placed_find(&placed, r->model, o->place, &r->parallel, NULL, err));
    const struct kvt_pool_options pool = {
        .struct_size = sizeof pool,
        .backend = o->place.backend,
        .device = o->place.device,
        .level = o->level,
        .byte_limit = o->cache_byte_limit,
        .allocator = &r->allocator,
        .parallel = &r->parallel,
    };
    KVT_TRY(kvt_pool_create(&r->pool, r->plan, &pool, err));
    KVT_TRY(kvt_step_create(&r->step, r->pool, r->max_feeds, r->n_batch, err));
    const struct kvt_pass_options pass = {
        .n_max = r->n_batch,
        .max_seqs = r->max_feeds,
        .level = level,
        .parallel = &r->parallel,
        .pool = r->pool,
        .step = r->step,
        .placed = placed,
        .tap = o->tap,
        .allocator = &r->allocator,
    };
    KVT_TRY(kvt_pass_init(&r->pass, r->model, &pass, err));
    r->feeds = kvt_take(&r->allocator, (size_t)r->max_feeds, sizeof *r->feeds);
    if (!r->feeds) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for passes of %d sessions", r->max_feeds);
    return r->pass.ops->take(&r->pass, &r->kept, kept_len(r), err);
}

enum kvt_status kvt_runner_create(struct kvt_runner **out, const struct kvt_model *model,
                                  const struct kvt_session_options *options, int max_feeds, struct kvt_error *err) {
    static const struct kvt_session_options defaults;
    if (!options) options = &defaults;
    const struct kvt_allocator allocator = kvt_allocator_or_default(options->allocator);
    struct kvt_runner *r = kvt_take_zero(&allocator, 1, sizeof *r);
    if (!r) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for a runner");
    r->model = model;
    r->allocator = allocator;
    r->max_feeds = max_feeds;
    r->parallel = options->parallel ? *options->parallel : (struct kvt_parallel){1, NULL, NULL};
    const enum kvt_status status = create(r, options, err);
    if (status != KVT_OK) {
        kvt_runner_destroy(r);
        return status;
    }
    *out = r;
    return KVT_OK;
}

void kvt_runner_destroy(struct kvt_runner *r) {
    if (!r) return;
    if (r->kept) r->pass.ops->give(&r->pass, r->kept, kept_len(r));
    if (r->feeds) kvt_give(&r->allocator, r->feeds, (size_t)r->max_feeds, sizeof *r->feeds);
    kvt_pass_finish(&r->pass);
    if (r->step) kvt_step_destroy(r->step);
    if (r->pool) kvt_pool_destroy(r->pool);
    kvt_plan_destroy(r->plan);
    kvt_give(&r->allocator, r, 1, sizeof *r);
}

const struct kvt_plan *kvt_runner_plan(const struct kvt_runner *r) { return r->plan; }
uint64_t kvt_runner_cache_bytes(const struct kvt_runner *r) { return kvt_pool_bytes(r->pool); }
uint64_t kvt_runner_peak_cache_bytes(const struct kvt_runner *r) { return kvt_pool_peak_bytes(r->pool); }

/* ---- evaluation ------------------------------------------------------------------------------------------------------- */

static enum kvt_status check_ids(const struct kvt_runner *r, const struct kvt_session *s, const int32_t *ids, int n,
                                 struct kvt_error *err) {
    const int n_rows = kvt_session_n_rows(s), n_vocab = r->model->config.n_vocab;
    if (n < 1) return kvt_fail(err, KVT_ERR_ARG, "there is no token to evaluate");
    if (n > r->n_ctx - n_rows)
        return kvt_fail(err, KVT_ERR_LIMIT, "%d more tokens do not fit: the context of %d tokens holds %d already", n,
                        r->n_ctx, n_rows);
    for (int i = 0; i < n; i++) {
        if (ids[i] >= 0 && ids[i] < n_vocab) continue;
        return kvt_fail(err, KVT_ERR_ARG, "token %d of the input is %d, outside the vocabulary of %d", i, ids[i],
                        n_vocab);
    }
    return KVT_OK;
}

static enum kvt_status check_feeds(const struct kvt_runner *r, const struct kvt_feed *feeds, int n_feeds,
                                   struct kvt_error *err) {
    int64_t n = 0, keep = 0;
    if (n_feeds < 1 || n_feeds > r->max_feeds)
        return kvt_fail(err, KVT_ERR_ARG, "a pass of %d sessions; this runner takes 1 to %d", n_feeds, r->max_feeds);
    if (n_feeds > 1 && (r->pass.tap.look || r->pass.tap.attend))
        return kvt_fail(err, KVT_ERR_ARG, "a runner with a tap takes one session at a time, not %d", n_feeds);
    for (int i = 0; i < n_feeds; i++) {
        const struct kvt_feed *f = &feeds[i];
        if (f->session->runner != r)
            return kvt_fail(err, KVT_ERR_ARG, "session %d of the pass belongs to another runner", i);
        KVT_TRY(check_ids(r, f->session, f->ids, f->n, err));
        if (f->keep < 0 || f->keep > f->n)
            return kvt_fail(err, KVT_ERR_ARG, "cannot keep the outputs of %d of %d tokens", f->keep, f->n);
        n += f->n;
        keep += f->keep;
    }
    if (n > r->n_batch || keep > r->n_keep_max)
        return kvt_fail(err, KVT_ERR_ARG, "a pass of %lld tokens, %lld of them kept; this runner takes %d and keeps %d",
                        (long long)n, (long long)keep, r->n_batch, r->n_keep_max);
    return KVT_OK;
}

/* The outputs of a feed that went through. */
static enum kvt_status keep_rows(struct kvt_runner *r, struct kvt_session *s, const struct kvt_pass_feed *feed,
                                 struct kvt_error *err) {
    const ptrdiff_t width = r->model->config.width;
    if (s->eval != r->n_evals) {
        s->eval = r->n_evals;
        s->first_kept = r->n_kept;
        s->n_kept = 0;
    }
    if (feed->keep == 0) return KVT_OK;
    KVT_TRY(r->pass.ops->norm(&r->pass, r->kept + r->n_kept * width,
                              r->pass.x + (feed->row + feed->n - feed->keep) * width, r->model->output_norm, feed->keep,
                              err));
    r->n_kept += feed->keep;
    s->n_kept += feed->keep;
    return KVT_OK;
}

/* One pass; feeds are checked. */
static enum kvt_status run(struct kvt_runner *r, const struct kvt_feed *feeds, int n_feeds, struct kvt_error *err) {
    for (int i = 0; i < n_feeds; i++)
        r->feeds[i] = (struct kvt_pass_feed){feeds[i].session->seq, feeds[i].ids, feeds[i].n, feeds[i].keep, 0};
    KVT_TRY(kvt_pass_run(&r->pass, r->feeds, n_feeds, err));
    for (int i = 0; i < n_feeds; i++) {
        const struct kvt_feed *f = &feeds[i];
        memcpy(f->session->ids + kvt_session_n_rows(f->session) - f->n, f->ids, (size_t)f->n * sizeof *f->ids);
        KVT_TRY(keep_rows(r, f->session, &r->feeds[i], err));
    }
    return KVT_OK;
}

static void begin_eval(struct kvt_runner *r) {
    r->n_evals++;
    r->n_kept = 0;
}

enum kvt_status kvt_runner_eval(struct kvt_runner *r, const struct kvt_feed *feeds, int n_feeds,
                                struct kvt_error *err) {
    KVT_TRY(check_feeds(r, feeds, n_feeds, err));
    begin_eval(r);
    return run(r, feeds, n_feeds, err);
}

/* Cut into passes; ids are checked. */
static enum kvt_status eval(struct kvt_session *s, const int32_t *ids, int n, int keep,
                            const struct kvt_progress *progress, struct kvt_error *err) {
    struct kvt_runner *r = s->runner;
    for (int done = 0; done < n;) {
        if (!kvt_progress_report(progress, "prompt", (uint64_t)done, (uint64_t)n))
            return kvt_fail(err, KVT_ERR_CANCELLED, "cancelled after %d of %d tokens", done, n);
        const int batch = KVT_MIN(n - done, r->n_batch);
        const struct kvt_feed feed = {s, ids + done, batch, KVT_MAX(0, KVT_MIN(batch, done + batch - (n - keep)))};
        KVT_TRY(run(r, &feed, 1, err));
        done += batch;
    }
    (void)kvt_progress_report(progress, "prompt", (uint64_t)n, (uint64_t)n);
    return KVT_OK;
}

enum kvt_status kvt_session_eval(struct kvt_session *s, const int32_t *ids, int n, int keep,
                                 const struct kvt_progress *progress, struct kvt_error *err) {
    struct kvt_runner *r = s->runner;
    KVT_TRY(check_ids(r, s, ids, n, err));
    if (keep < 1 || keep > n || keep > r->n_keep_max)
        return kvt_fail(err, KVT_ERR_ARG, "cannot keep the outputs of %d of %d tokens; this session keeps 1 to %d",
                        keep, n, KVT_MIN(n, r->n_keep_max));
    begin_eval(r);
    const enum kvt_status status = eval(s, ids, n, keep, progress, err);
    if (status != KVT_OK) s->n_kept = 0;
    return status;
}
