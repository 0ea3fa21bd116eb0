/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/check.h"
#include "model/block.h"
#include "model/ops.h"

enum { DEFAULT_BATCH = 512 };

struct kvt_session {
    const struct kvt_model *model;
    struct kvt_allocator allocator;
    struct kvt_parallel parallel;
    int n_ctx, n_batch, n_keep_max;

    struct kvt_plan *plan;
    struct kvt_pool *pool;
    struct kvt_seq *seq;
    struct kvt_step *step;
    struct kvt_pass pass;

    float *kept; /* n_keep_max rows of width: normalised outputs of the last layer */
    int n_kept;
};

static size_t kept_len(const struct kvt_session *s) { return (size_t)s->n_keep_max * (size_t)s->model->config.width; }

/* Numbers of the options, with their defaults. */
static enum kvt_status take_sizes(struct kvt_session *s, const struct kvt_session_options *o, struct kvt_error *err) {
    const int n_ctx_train = s->model->config.n_ctx_train;
    if (o->n_ctx < 0 || o->n_batch < 0 || o->n_keep < 0)
        return kvt_fail(err, KVT_ERR_ARG, "a session's n_ctx %d, n_batch %d and n_keep %d must not be negative",
                        o->n_ctx, o->n_batch, o->n_keep);
    if (o->n_ctx > n_ctx_train && !o->beyond)
        return kvt_fail(err, KVT_ERR_RANGE, "a context of %d tokens is more than the %d that the model was trained for",
                        o->n_ctx, n_ctx_train);
    s->n_ctx = o->n_ctx ? o->n_ctx : n_ctx_train;
    s->n_batch = KVT_MIN(o->n_batch ? o->n_batch : DEFAULT_BATCH, s->n_ctx);
    s->n_keep_max = KVT_MIN(o->n_keep ? o->n_keep : s->n_ctx, s->n_ctx);
    return KVT_OK;
}

static enum kvt_status create(struct kvt_session *s, const struct kvt_session_options *o, struct kvt_error *err) {
    KVT_TRY(take_sizes(s, o, err));
    enum kvt_level level;
    KVT_TRY(kvt_level_parse(&level, o->level ? o->level : "auto", err));
    const struct kvt_shape shape = kvt_model_shape(s->model);
    const struct kvt_plan_options plan = {.struct_size = sizeof plan,
                                          .kv = o->kv,
                                          .sink = o->sink,
                                          .tail = o->tail,
                                          .start = o->start,
                                          .rolling = o->rolling};
    KVT_TRY(kvt_plan_create(&s->plan, &shape, &plan, &s->allocator, err));
    const struct kvt_pool_options pool = {
        .struct_size = sizeof pool,
        .level = o->level,
        .byte_limit = o->cache_byte_limit,
        .allocator = &s->allocator,
        .parallel = &s->parallel,
    };
    KVT_TRY(kvt_pool_create(&s->pool, s->plan, &pool, err));
    KVT_TRY(kvt_seq_create(&s->seq, s->pool, s->n_ctx, err));
    KVT_TRY(kvt_step_create(&s->step, s->pool, 1, s->n_batch, err));
    KVT_TRY(kvt_pass_init(&s->pass, s->model, s->n_batch, level, &s->parallel, s->step, &s->allocator, err));
    s->pass.tap = o->tap;
    s->kept = kvt_take(&s->allocator, kept_len(s), sizeof *s->kept);
    if (!s->kept) return kvt_fail(err, KVT_ERR_NOMEM, "no memory to keep the outputs of %d tokens", s->n_keep_max);
    return KVT_OK;
}

enum kvt_status kvt_session_create(struct kvt_session **out, const struct kvt_model *model,
                                   const struct kvt_session_options *options, struct kvt_error *err) {
    static const struct kvt_session_options defaults;
    if (!options) options = &defaults;
    const struct kvt_allocator allocator = kvt_allocator_or_default(options->allocator);
    struct kvt_session *s = kvt_take_zero(&allocator, 1, sizeof *s);
    if (!s) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for a session");
    s->model = model;
    s->allocator = allocator;
    s->parallel = options->parallel ? *options->parallel : (struct kvt_parallel){1, NULL, NULL};
    const enum kvt_status status = create(s, options, err);
    if (status != KVT_OK) {
        kvt_session_destroy(s);
        return status;
    }
    *out = s;
    return KVT_OK;
}

void kvt_session_destroy(struct kvt_session *s) {
    if (!s) return;
    if (s->kept) kvt_give(&s->allocator, s->kept, kept_len(s), sizeof *s->kept);
    kvt_pass_finish(&s->pass);
    if (s->step) kvt_step_destroy(s->step);
    if (s->seq) kvt_seq_destroy(s->seq);
    if (s->pool) kvt_pool_destroy(s->pool);
    kvt_plan_destroy(s->plan);
    kvt_give(&s->allocator, s, 1, sizeof *s);
}

static enum kvt_status check_eval(const struct kvt_session *s, const int32_t *ids, int n, int keep,
                                  struct kvt_error *err) {
    const int n_rows = kvt_session_n_rows(s), n_vocab = s->model->config.n_vocab;
    if (n < 1) return kvt_fail(err, KVT_ERR_ARG, "there is no token to evaluate");
    if (keep < 1 || keep > n || keep > s->n_keep_max)
        return kvt_fail(err, KVT_ERR_ARG, "cannot keep the outputs of %d of %d tokens; this session keeps 1 to %d",
                        keep, n, KVT_MIN(n, s->n_keep_max));
    if (n > s->n_ctx - n_rows)
        return kvt_fail(err, KVT_ERR_LIMIT, "%d more tokens do not fit: the context of %d tokens holds %d already", n,
                        s->n_ctx, n_rows);
    for (int i = 0; i < n; i++) {
        if (ids[i] >= 0 && ids[i] < n_vocab) continue;
        return kvt_fail(err, KVT_ERR_ARG, "token %d of the input is %d, outside the vocabulary of %d", i, ids[i],
                        n_vocab);
    }
    return KVT_OK;
}

static void keep_row(struct kvt_session *s, int row) {
    const struct kvt_config *c = &s->model->config;
    kvt_rms_norm(s->kept + (size_t)s->n_kept * (size_t)c->width, s->pass.x + (size_t)row * (size_t)c->width,
                 s->model->output_norm, c->width, c->norm_eps);
    s->n_kept++;
}

enum kvt_status kvt_session_eval(struct kvt_session *s, const int32_t *ids, int n, int keep,
                                 const struct kvt_progress *progress, struct kvt_error *err) {
    KVT_TRY(check_eval(s, ids, n, keep, err));
    s->n_kept = 0;
    for (int done = 0; done < n;) {
        if (!kvt_progress_report(progress, "prompt", (uint64_t)done, (uint64_t)n)) {
            s->n_kept = 0;
            return kvt_fail(err, KVT_ERR_CANCELLED, "cancelled after %d of %d tokens", done, n);
        }
        const int batch = KVT_MIN(n - done, s->n_batch);
        const int batch_keep = KVT_MAX(0, KVT_MIN(batch, done + batch - (n - keep)));
        const enum kvt_status status = kvt_pass_run(&s->pass, s->seq, ids + done, batch, batch_keep, err);
        if (status != KVT_OK) {
            s->n_kept = 0;
            return status;
        }
        for (int row = batch - batch_keep; row < batch; row++) keep_row(s, row);
        done += batch;
    }
    (void)kvt_progress_report(progress, "prompt", (uint64_t)n, (uint64_t)n);
    return KVT_OK;
}

static enum kvt_status check_kept(const struct kvt_session *s, int first, int n, struct kvt_error *err) {
    if (first >= 0 && n >= 0 && n <= s->n_kept - first) return KVT_OK;
    return kvt_fail(err, KVT_ERR_ARG, "there are no logits %d to %d: the last evaluation kept %d tokens", first,
                    first + n - 1, s->n_kept);
}

void kvt_session_logits_of(struct kvt_session *s, const float *outputs, int n, float *dst) {
    const struct kvt_weight *output = &s->model->output;
    const int64_t width = s->model->config.width;
    for (int done = 0; done < n; done += s->n_batch) {
        kvt_weight_product(dst + done * output->n_out, output->n_out, output, outputs + done * width, width,
                           KVT_MIN(n - done, s->n_batch), s->pass.level, &s->parallel, &s->pass.scratch);
    }
}

enum kvt_status kvt_session_logits(struct kvt_session *s, int first, int n, float *dst, struct kvt_error *err) {
    KVT_TRY(check_kept(s, first, n, err));
    kvt_session_logits_of(s, s->kept + (ptrdiff_t)first * s->model->config.width, n, dst);
    return KVT_OK;
}

enum kvt_status kvt_session_outputs(const struct kvt_session *s, int first, int n, float *dst, struct kvt_error *err) {
    const size_t width = (size_t)s->model->config.width;
    KVT_TRY(check_kept(s, first, n, err));
    memcpy(dst, s->kept + (size_t)first * width, (size_t)n * width * sizeof *dst);
    return KVT_OK;
}

int kvt_session_n_rows(const struct kvt_session *s) { return (int)kvt_seq_n_rows(s->seq); }

int kvt_session_n_ctx(const struct kvt_session *s) { return s->n_ctx; }

enum kvt_status kvt_session_trim(struct kvt_session *s, int n, struct kvt_error *err) {
    KVT_TRY(kvt_seq_trim(s->seq, n, NULL, err));
    s->n_kept = 0;
    return KVT_OK;
}

void kvt_session_clear(struct kvt_session *s) {
    kvt_seq_clear(s->seq);
    s->n_kept = 0;
}

const struct kvt_plan *kvt_session_plan(const struct kvt_session *s) { return s->plan; }

struct kvt_usage kvt_session_usage(const struct kvt_session *s) {
    return kvt_seq_usage(s->seq, -1);
}

uint64_t kvt_session_peak_cache_bytes(const struct kvt_session *s) { return kvt_pool_peak_bytes(s->pool); }
