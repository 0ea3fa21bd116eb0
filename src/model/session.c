/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/check.h"
#include "model/compute.h"
#include "model/runner.h"

/* ---- life ------------------------------------------------------------------------------------------------------------- */

/* A session without a sequence. */
static enum kvt_status take(struct kvt_session **out, struct kvt_runner *r, struct kvt_error *err) {
    struct kvt_session *s = kvt_take_zero(&r->allocator, 1, sizeof *s);
    if (s) s->ids = kvt_take(&r->allocator, (size_t)r->n_ctx, sizeof *s->ids);
    if (s && s->ids) {
        s->runner = r;
        *out = s;
        return KVT_OK;
    }
    if (s) kvt_give(&r->allocator, s, 1, sizeof *s);
    return kvt_fail(err, KVT_ERR_NOMEM, "no memory for a session of %d tokens", r->n_ctx);
}

static enum kvt_status opened(struct kvt_session **out, struct kvt_session *s, enum kvt_status status) {
    if (status == KVT_OK)
        *out = s;
    else
        kvt_session_destroy(s);
    return status;
}

enum kvt_status kvt_session_open(struct kvt_session **out, struct kvt_runner *runner, struct kvt_error *err) {
    struct kvt_session *s = NULL;
    KVT_TRY(take(&s, runner, err));
    return opened(out, s, kvt_seq_create(&s->seq, runner->pool, runner->n_ctx, err));
}

enum kvt_status kvt_session_fork(struct kvt_session **out, const struct kvt_session *session, struct kvt_error *err) {
    struct kvt_session *s = NULL;
    KVT_TRY(take(&s, session->runner, err));
    memcpy(s->ids, session->ids, (size_t)kvt_session_n_rows(session) * sizeof *s->ids);
    return opened(out, s, kvt_seq_fork(&s->seq, session->seq, err));
}

enum kvt_status kvt_session_create(struct kvt_session **out, const struct kvt_model *model,
                                   const struct kvt_session_options *options, struct kvt_error *err) {
    struct kvt_runner *runner = NULL;
    KVT_TRY(kvt_runner_create(&runner, model, options, 1, err));
    struct kvt_session *s = NULL;
    const enum kvt_status status = kvt_session_open(&s, runner, err);
    if (status != KVT_OK) {
        kvt_runner_destroy(runner);
        return status;
    }
    s->owns_runner = true;
    *out = s;
    return KVT_OK;
}

void kvt_session_destroy(struct kvt_session *s) {
    if (!s) return;
    struct kvt_runner *r = s->runner;
    const bool owns_runner = s->owns_runner;
    if (s->seq) kvt_seq_destroy(s->seq);
    kvt_give(&r->allocator, s->ids, (size_t)r->n_ctx, sizeof *s->ids);
    kvt_give(&r->allocator, s, 1, sizeof *s);
    if (owns_runner) kvt_runner_destroy(r);
}

/* ---- outputs ---------------------------------------------------------------------------------------------------------- */

/* The first of n kept outputs, or NULL and a sentence. */
static const float *kept(const struct kvt_session *s, int first, int n, struct kvt_error *err) {
    const struct kvt_runner *r = s->runner;
    const int n_kept = s->eval == r->n_evals ? s->n_kept : 0;
    if (first >= 0 && n >= 0 && n <= n_kept - first)
        return r->kept + (ptrdiff_t)(s->first_kept + first) * r->model->config.width;
    (void)kvt_fail(err, KVT_ERR_ARG, "there are no logits %d to %d: the last evaluation kept %d tokens", first,
                   first + n - 1, n_kept);
    return NULL;
}

enum kvt_status kvt_session_logits_of(struct kvt_session *s, const float *outputs, int n, float *dst,
                                      struct kvt_error *err) {
    struct kvt_pass *pass = &s->runner->pass;
    return pass->ops->logits(pass, dst, outputs, false, n, err);
}

enum kvt_status kvt_session_logits(struct kvt_session *s, int first, int n, float *dst, struct kvt_error *err) {
    struct kvt_pass *pass = &s->runner->pass;
    const float *outputs = kept(s, first, n, err);
    if (!outputs) return KVT_ERR_ARG;
    return pass->ops->logits(pass, dst, outputs, true, n, err);
}

enum kvt_status kvt_session_outputs(const struct kvt_session *s, int first, int n, float *dst, struct kvt_error *err) {
    struct kvt_pass *pass = &s->runner->pass;
    const float *outputs = kept(s, first, n, err);
    if (!outputs) return KVT_ERR_ARG;
    return pass->ops->fetch(pass, dst, outputs, (size_t)n * (size_t)s->runner->model->config.width, err);
}

/* ---- timeline --------------------------------------------------------------------------------------------------------- */

int kvt_session_n_rows(const struct kvt_session *s) { return (int)kvt_seq_n_rows(s->seq); }

int kvt_session_n_ctx(const struct kvt_session *s) { return s->runner->n_ctx; }

const int32_t *kvt_session_ids(const struct kvt_session *s) { return s->ids; }

enum kvt_status kvt_session_trim(struct kvt_session *s, int n, bool *out_exact, struct kvt_error *err) {
    KVT_TRY(kvt_seq_trim(s->seq, n, out_exact, err));
    s->n_kept = 0;
    return KVT_OK;
}

void kvt_session_clear(struct kvt_session *s) {
    kvt_seq_clear(s->seq);
    s->n_kept = 0;
}

const struct kvt_plan *kvt_session_plan(const struct kvt_session *s) { return s->runner->plan; }

struct kvt_usage kvt_session_usage(const struct kvt_session *s) {
    return kvt_seq_usage(s->seq, -1);
}

uint64_t kvt_session_peak_cache_bytes(const struct kvt_session *s) { return kvt_pool_peak_bytes(s->runner->pool); }
