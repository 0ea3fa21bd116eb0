/* SPDX-License-Identifier: Apache-2.0
 * The measurement: for each chunk the reference once, then each scheme, position by position against it. */
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/parallel.h"
#include "fidelity/fidelity.h"

enum {
    REF_BYTES_MAX = 128 << 20,  /* the reference's logits of a chunk are kept up to this size, else made per scheme */
    BLOCK_BYTES_MAX = 32 << 20, /* logits of the test that are held at once */
    BLOCK_ROWS_MIN = 16,
};

struct sums {
    double kl, nll, nll_ref;
    int64_t flips;
};

struct scheme {
    double *kl;       /* of each position: n_chunks * n_positions */
    double *kl_means; /* of each chunk */
    struct sums now;  /* of the chunk at work */
    struct sums all;  /* of the chunks that every scheme has done */
};

struct run {
    const struct kvt_model *model;
    const struct kvt_fidelity_options *options;
    struct kvt_arena arena;
    int n_vocab;
    int n_positions; /* of a chunk */
    int n_chunks;
    int n_block; /* positions whose logits are made at once */
    bool ref_kept;
    struct kvt_session *ref;
    float *ref_logits, *test_logits;
    int32_t *ids;             /* of the chunk at work */
    struct kvt_score *scores; /* of a block */
    struct scheme *schemes;
    uint64_t work_done, work_total; /* in positions of forward passes and of scores */
};

/* ---- progress --------------------------------------------------------------------------------------------------------- */

static enum kvt_status report(struct run *r, uint64_t done, struct kvt_error *err) {
    r->work_done += done;
    if (kvt_progress_report(r->options->progress, "fidelity", r->work_done, r->work_total)) return KVT_OK;
    return kvt_fail(err, KVT_ERR_CANCELLED, "cancelled");
}

/* A forward pass inside the whole. */
static bool report_pass(void *ctx, const char *what, uint64_t done, uint64_t total) {
    const struct run *r = ctx;
    (void)what;
    (void)total;
    return kvt_progress_report(r->options->progress, "fidelity", r->work_done + done, r->work_total);
}

/* ---- sessions and logits ---------------------------------------------------------------------------------------------- */

static enum kvt_status session_open(struct kvt_session **out, const struct run *r, const char *kv, int sink, int tail,
                                    struct kvt_error *err) {
    const struct kvt_session_options options = {
        .kv = kv,
        .sink = sink,
        .tail = tail,
        .n_ctx = r->n_positions,
        .level = r->options->level,
        .parallel = r->options->parallel,
        .allocator = r->options->allocator,
    };
    return kvt_session_create(out, r->model, &options, err);
}

static enum kvt_status forward(struct run *r, struct kvt_session *session, struct kvt_error *err) {
    const struct kvt_progress progress = {report_pass, r};
    KVT_TRY(kvt_session_eval(session, r->ids, r->n_positions, r->n_positions, &progress, err));
    return report(r, (uint64_t)r->n_positions, err);
}

static enum kvt_status reference_forward(struct run *r, struct kvt_error *err) {
    kvt_session_clear(r->ref);
    KVT_TRY(forward(r, r->ref, err));
    if (!r->ref_kept) return KVT_OK;
    for (int first = 0; first < r->n_positions; first += r->n_block) {
        const int n = KVT_MIN(r->n_block, r->n_positions - first);
        KVT_TRY(kvt_session_logits(r->ref, first, n, r->ref_logits + (size_t)first * (size_t)r->n_vocab, err));
    }
    return KVT_OK;
}

/* The reference's logits of a block, kept or made again. */
static enum kvt_status reference_block(const float **out, struct run *r, int first, int n, struct kvt_error *err) {
    if (!r->ref_kept) KVT_TRY(kvt_session_logits(r->ref, first, n, r->ref_logits, err));
    *out = r->ref_logits + (r->ref_kept ? (size_t)first * (size_t)r->n_vocab : 0);
    return KVT_OK;
}

/* ---- scores ----------------------------------------------------------------------------------------------------------- */

struct block {
    const struct run *run;
    const float *ref;
    int first;
};

static void score_job(void *arg, int i, int thread) {
    (void)thread;
    const struct block *b = arg;
    const struct run *r = b->run;
    const size_t at = (size_t)i * (size_t)r->n_vocab;
    r->scores[i] = kvt_score_position(b->ref + at, r->test_logits + at, r->n_vocab, r->ids[b->first + i + 1]);
}

static enum kvt_status score_block(struct run *r, struct kvt_session *test, int scheme, int chunk, int first, int n,
                                   struct kvt_error *err) {
    struct block block = {.run = r, .first = first};
    KVT_TRY(reference_block(&block.ref, r, first, n, err));
    KVT_TRY(kvt_session_logits(test, first, n, r->test_logits, err));
    kvt_parallel_run(r->options->parallel, n, score_job, &block);

    struct scheme *s = &r->schemes[scheme];
    double *kl = s->kl + (size_t)chunk * (size_t)r->n_positions + first;
    for (int i = 0; i < n; i++) {
        const struct kvt_score *score = &r->scores[i];
        if (isnan(score->kl) || !isfinite(score->nll_ref))
            return kvt_fail(err, KVT_ERR_RANGE, "the logits of cache %s are not numbers at position %d of chunk %d",
                            r->options->kv[scheme], first + i, chunk);
        kl[i] = score->kl;
        s->now.kl += score->kl;
        s->now.nll += score->nll;
        s->now.nll_ref += score->nll_ref;
        s->now.flips += score->flip;
    }
    return report(r, (uint64_t)n, err);
}

/* Allocated bytes of a session's cache, and bits for each element of the rows it holds. */
static void measure_cache(struct kvt_fidelity_row *row, const struct kvt_session *session) {
    const struct kvt_plan *plan = kvt_session_plan(session);
    double elements = 0;
    for (int layer = 0; layer < kvt_plan_n_layers(plan); layer++) {
        const struct kvt_layer_shape *shape = &kvt_plan_layer(plan, layer)->shape;
        const struct kvt_usage usage = kvt_plan_usage(plan, layer, kvt_session_n_rows(session));
        for (int region = 0; region < KVT_REGION_COUNT; region++)
            elements += (double)usage.rows[region] * shape->n_kv_heads * (shape->k_size + shape->v_size);
    }
    row->cache_bytes = kvt_session_usage(session).total_bytes;
    row->bits_per_element = (double)row->cache_bytes * 8 / elements;
}

static enum kvt_status run_scheme(struct run *r, struct kvt_fidelity_row *row, int scheme, int chunk,
                                  struct kvt_error *err) {
    const struct kvt_fidelity_options *o = r->options;
    struct kvt_session *test = NULL;
    KVT_TRY(session_open(&test, r, o->kv[scheme], o->sink, o->tail, err));
    const double start = kvt_clock_seconds();
    enum kvt_status status;
    KVT_TRY_OUT(forward(r, test, err));
    row->seconds += kvt_clock_seconds() - start;
    measure_cache(row, test);
    for (int first = 0; first < r->n_positions; first += r->n_block)
        KVT_TRY_OUT(score_block(r, test, scheme, chunk, first, KVT_MIN(r->n_block, r->n_positions - first), err));
out:
    kvt_session_destroy(test);
    return status;
}

/* A chunk counts once all schemes have done it. */
static void chunk_done(struct run *r, int chunk) {
    for (int i = 0; i < r->options->n_kv; i++) {
        struct scheme *s = &r->schemes[i];
        s->kl_means[chunk] = s->now.kl / r->n_positions;
        s->all.nll += s->now.nll;
        s->all.nll_ref += s->now.nll_ref;
        s->all.flips += s->now.flips;
        s->now = (struct sums){0};
    }
}

static enum kvt_status run_chunk(struct run *r, struct kvt_fidelity_row *rows, int chunk, struct kvt_error *err) {
    const struct kvt_fidelity_options *o = r->options;
    memcpy(r->ids, o->ids + (size_t)chunk * (size_t)o->chunk, (size_t)o->chunk * sizeof *r->ids);
    if (o->first_id >= 0) r->ids[0] = o->first_id;
    KVT_TRY(reference_forward(r, err));
    for (int i = 0; i < o->n_kv; i++) KVT_TRY(run_scheme(r, &rows[i], i, chunk, err));
    chunk_done(r, chunk);
    return KVT_OK;
}

/* ---- before and after ------------------------------------------------------------------------------------------------- */

static enum kvt_status check_scheme(const struct kvt_model *model, const struct kvt_plan_options *options,
                                    const struct kvt_allocator *allocator, struct kvt_error *err) {
    const struct kvt_shape shape = kvt_model_shape(model);
    struct kvt_plan *plan;
    KVT_TRY(kvt_plan_create(&plan, &shape, options, allocator, err));
    kvt_plan_destroy(plan);
    return KVT_OK;
}

enum kvt_status kvt_fidelity_check(const struct kvt_model *model, const struct kvt_fidelity_options *o,
                                   struct kvt_error *err) {
    const int n_ctx = kvt_model_info(model).n_ctx_train;
    if (o->n_kv < 1) return kvt_fail(err, KVT_ERR_ARG, "no cache to measure; name at least one, such as affine4g64");
    if (o->chunk < 2)
        return kvt_fail(err, KVT_ERR_ARG, "a chunk of %d token%s scores nothing; 2 is the least", o->chunk,
                        o->chunk == 1 ? "" : "s");
    if (o->n_chunks < 0) return kvt_fail(err, KVT_ERR_ARG, "%d chunks make no sense; 0 means all", o->n_chunks);
    if (o->chunk > n_ctx)
        return kvt_fail(err, KVT_ERR_RANGE, "a chunk of %d tokens is longer than the model's context of %d", o->chunk,
                        n_ctx);
    const struct kvt_plan_options reference = {.struct_size = sizeof reference, .kv = o->reference};
    KVT_TRY(check_scheme(model, &reference, o->allocator, err));
    for (int i = 0; i < o->n_kv; i++) {
        const struct kvt_plan_options scheme = {
            .struct_size = sizeof scheme, .kv = o->kv[i], .sink = o->sink, .tail = o->tail};
        KVT_TRY(check_scheme(model, &scheme, o->allocator, err));
    }
    return KVT_OK;
}

static enum kvt_status check_text(const struct kvt_fidelity_options *o, int n_vocab, struct kvt_error *err) {
    if (o->n_ids < (size_t)o->chunk)
        return kvt_fail(err, KVT_ERR_ARG,
                        "the text has %zu tokens, less than one chunk of %d; take a longer text or a shorter chunk",
                        o->n_ids, o->chunk);
    if (o->first_id >= n_vocab)
        return kvt_fail(err, KVT_ERR_RANGE, "first id %d is outside the vocabulary (0 to %d)", o->first_id,
                        n_vocab - 1);
    for (size_t i = 0; i < o->n_ids; i++)
        if (o->ids[i] < 0 || o->ids[i] >= n_vocab)
            return kvt_fail(err, KVT_ERR_RANGE, "id %d, number %zu of the text, is outside the vocabulary (0 to %d)",
                            o->ids[i], i, n_vocab - 1);
    return KVT_OK;
}

static bool take_memory(struct run *r) {
    const struct kvt_fidelity_options *o = r->options;
    const size_t vocab = (size_t)r->n_vocab, chunks = (size_t)r->n_chunks, kv = (size_t)o->n_kv;
    const size_t n_all = chunks * (size_t)r->n_positions, n_block = (size_t)r->n_block;
    const size_t n_ref = (r->ref_kept ? (size_t)r->n_positions : n_block) * vocab;
    const size_t bytes = kvt_arena_need(n_ref, sizeof(float)) + kvt_arena_need(n_block * vocab, sizeof(float)) +
                         kvt_arena_need((size_t)o->chunk, sizeof *r->ids) + kvt_arena_need(n_block, sizeof *r->scores) +
                         kvt_arena_need(kv, sizeof *r->schemes) +
                         kv * (kvt_arena_need(n_all, sizeof(double)) + kvt_arena_need(chunks, sizeof(double)));
    if (!kvt_arena_init(&r->arena, o->allocator, bytes)) return false;
    r->ref_logits = kvt_arena_take(&r->arena, n_ref, sizeof(float));
    r->test_logits = kvt_arena_take(&r->arena, n_block * vocab, sizeof(float));
    r->ids = kvt_arena_take(&r->arena, (size_t)o->chunk, sizeof *r->ids);
    r->scores = kvt_arena_take(&r->arena, n_block, sizeof *r->scores);
    r->schemes = kvt_arena_take(&r->arena, kv, sizeof *r->schemes);
    for (size_t i = 0; i < kv; i++) {
        r->schemes[i] = (struct scheme){
            .kl = kvt_arena_take(&r->arena, n_all, sizeof(double)),
            .kl_means = kvt_arena_take(&r->arena, chunks, sizeof(double)),
        };
    }
    return true;
}

/* Sizes, memory and the reference session. */
static enum kvt_status prepare(struct run *r, struct kvt_error *err) {
    const struct kvt_fidelity_options *o = r->options;
    r->n_vocab = kvt_model_info(r->model).n_vocab;
    KVT_TRY(check_text(o, r->n_vocab, err));
    r->n_positions = o->chunk - 1;
    const size_t fit = o->n_ids / (size_t)o->chunk;
    r->n_chunks = (int)KVT_MIN(fit, o->n_chunks ? (size_t)o->n_chunks : (size_t)INT32_MAX);
    const size_t row_bytes = (size_t)r->n_vocab * sizeof(float);
    r->n_block = KVT_MIN(r->n_positions, KVT_MAX(BLOCK_ROWS_MIN, (int)(BLOCK_BYTES_MAX / row_bytes)));
    r->ref_kept = row_bytes * (size_t)r->n_positions <= REF_BYTES_MAX;
    r->work_total = (uint64_t)r->n_chunks * (uint64_t)r->n_positions * (2 * (uint64_t)o->n_kv + 1);
    if (!take_memory(r))
        return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory to score chunks of %d tokens", o->chunk);
    return session_open(&r->ref, r, o->reference, 0, 0, err);
}

/* The rows, with the schemes' own names. */
static enum kvt_status make_rows(struct kvt_fidelity_result *result, const struct kvt_model *model,
                                 const struct kvt_fidelity_options *o, struct kvt_error *err) {
    const struct kvt_shape shape = kvt_model_shape(model);
    result->allocator = kvt_allocator_or_default(o->allocator);
    result->rows = kvt_take_zero(&result->allocator, (size_t)o->n_kv, sizeof *result->rows);
    if (!result->rows) return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for %d rows", o->n_kv);
    result->n_rows = o->n_kv;
    for (int i = 0; i < o->n_kv; i++) {
        const struct kvt_plan_options options = {
            .struct_size = sizeof options, .kv = o->kv[i], .sink = o->sink, .tail = o->tail};
        struct kvt_plan *plan;
        KVT_TRY(kvt_plan_create(&plan, &shape, &options, o->allocator, err));
        const char *kv = kvt_plan_kv(plan);
        result->rows[i].kv = kvt_take_string(&result->allocator, kv, strlen(kv));
        kvt_plan_destroy(plan);
        if (!result->rows[i].kv) return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for a scheme's name");
    }
    return KVT_OK;
}

static void mean_by_depth(double *depth, const struct scheme *s, int n_positions, int n_chunks) {
    for (int k = 0; k < KVT_FIDELITY_DEPTHS; k++) {
        const int first = n_positions * k / KVT_FIDELITY_DEPTHS, last = n_positions * (k + 1) / KVT_FIDELITY_DEPTHS;
        double sum = 0;
        for (int c = 0; c < n_chunks; c++)
            for (int i = first; i < last; i++) sum += s->kl[(size_t)c * (size_t)n_positions + (size_t)i];
        depth[k] = last > first ? sum / ((double)(last - first) * n_chunks) : NAN;
    }
}

/* A row over the first n_chunks chunks. Sorts the scheme's values. */
static void summarise(struct kvt_fidelity_row *row, struct scheme *s, int n_positions, int n_chunks) {
    const double n = (double)n_chunks * n_positions;
    mean_by_depth(row->kl_depth, s, n_positions, n_chunks);
    row->kl = kvt_distribution_of(s->kl, (size_t)n_chunks * (size_t)n_positions);
    row->kl_stderr = kvt_standard_error(s->kl_means, (size_t)n_chunks);
    row->flips = (double)s->all.flips / n;
    row->ppl = exp(s->all.nll / n);
}

enum kvt_status kvt_fidelity_run(struct kvt_fidelity_result *out, const struct kvt_model *model,
                                 const struct kvt_fidelity_options *options, struct kvt_error *err) {
    struct run r = {.model = model, .options = options};
    struct kvt_fidelity_result result = {0};
    enum kvt_status status;
    KVT_TRY_OUT(kvt_fidelity_check(model, options, err));
    KVT_TRY_OUT(make_rows(&result, model, options, err));
    KVT_TRY_OUT(prepare(&r, err));
    while (result.n_chunks < r.n_chunks) {
        KVT_TRY_OUT(run_chunk(&r, result.rows, result.n_chunks, err));
        result.n_chunks++;
    }
out:
    if (result.n_chunks > 0 && (status == KVT_OK || status == KVT_ERR_CANCELLED)) {
        for (int i = 0; i < result.n_rows; i++)
            summarise(&result.rows[i], &r.schemes[i], r.n_positions, result.n_chunks);
        result.n_positions = (int64_t)result.n_chunks * r.n_positions;
        result.ppl_ref = exp(r.schemes[0].all.nll_ref / (double)result.n_positions);
        *out = result;
    } else {
        kvt_fidelity_finish(&result);
        if (status == KVT_ERR_CANCELLED) *out = (struct kvt_fidelity_result){0};
    }
    kvt_session_destroy(r.ref);
    kvt_arena_finish(&r.arena);
    return status;
}

void kvt_fidelity_finish(struct kvt_fidelity_result *result) {
    for (int i = 0; i < result->n_rows; i++) {
        char *kv = result->rows[i].kv;
        if (kv) kvt_give(&result->allocator, kv, strlen(kv) + 1, 1);
    }
    if (result->rows) kvt_give(&result->allocator, result->rows, (size_t)result->n_rows, sizeof *result->rows);
    *result = (struct kvt_fidelity_result){0};
}
