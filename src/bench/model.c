/* SPDX-License-Identifier: Apache-2.0
 *
 * Times a model's decode steps with caches that its own forward passes have filled. One session for each cache, all open at once: a sample
 * of each follows the other's in a round. After a sample the session is cut back to the depth.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
#include "bench/bench.h"
#include "bench/machine.h"

struct bench {
    const struct kvt_bench_model_options *o;
    int n; /* o->caches, then f16 */
    struct kvt_session **sessions;
    int32_t *ids; /* those that fill the cache, then a sample's */
    int n_ids, n_vocab;
    float *logits;
    double *scratch;
};

static struct kvt_bench_cache cache_of(const struct kvt_bench_model_options *o, int i) {
    return i < o->n_caches ? o->caches[i] : (struct kvt_bench_cache){.name = "f16", .kv = "f16"};
}

static enum kvt_status check(const struct kvt_bench_model_options *o, struct kvt_error *err) {
    const int most = kvt_model_info(o->model).n_ctx_train;
    for (int i = 0; i < o->n_depths; i++) {
        if (i > 0 && o->depth[i] <= o->depth[i - 1])
            return kvt_fail(err, KVT_ERR_ARG, "depths ascend: %d does not come after %d", o->depth[i], o->depth[i - 1]);
        if (o->depth[i] > most - o->tokens)
            return kvt_fail(err, KVT_ERR_LIMIT, "%d tokens at depth %d go past the model's context of %d", o->tokens,
                            o->depth[i], most);
    }
    return KVT_OK;
}

static enum kvt_status open_sessions(struct bench *b, struct kvt_error *err) {
    for (int i = 0; i < b->n; i++) {
        const struct kvt_bench_cache cache = cache_of(b->o, i);
        const struct kvt_session_options options = {.kv = cache.kv,
                                                    .sink = cache.sink,
                                                    .tail = cache.tail,
                                                    .n_ctx = b->n_ids,
                                                    .n_batch = b->o->n_batch,
                                                    .n_keep = 1,
                                                    .place = b->o->place,
                                                    .level = b->o->level,
                                                    .parallel = b->o->parallel};
        KVT_TRY(kvt_session_create(&b->sessions[i], b->o->model, &options, err));
    }
    return KVT_OK;
}

static enum kvt_status fill(struct bench *b, int i, int depth, double *seconds, struct kvt_error *err) {
    struct kvt_session *s = b->sessions[i];
    const int n = kvt_session_n_rows(s);
    const double start = kvt_clock_seconds();
    if (depth > n) KVT_TRY(kvt_session_eval(s, b->ids + n, depth - n, 1, b->o->progress, err));
    *seconds = kvt_clock_seconds() - start;
    return KVT_OK;
}

/* Tokens per second from the depth on. */
static enum kvt_status sample(struct bench *b, int i, int depth, double *speed, struct kvt_error *err) {
    struct kvt_session *s = b->sessions[i];
    const double start = kvt_clock_seconds();
    for (int t = 0; t < b->o->tokens; t++) {
        KVT_TRY(kvt_session_eval(s, b->ids + depth + t, 1, 1, NULL, err));
        KVT_TRY(kvt_session_logits(s, 0, 1, b->logits, err));
    }
    *speed = b->o->tokens / (kvt_clock_seconds() - start);
    return kvt_session_trim(s, depth, NULL, err);
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const struct bench *b, const double *x, const double *over) {
    for (int r = 0; r < b->o->rounds; r++) b->scratch[r] = over ? x[r] / over[r] : x[r];
    qsort(b->scratch, (size_t)b->o->rounds, sizeof *b->scratch, compare);
    return b->scratch[b->o->rounds / 2];
}

/* A sample counts as work done, so that it can be stopped between two of them. */
static enum kvt_status take_sample(struct bench *b, int i, int depth, int n_done, double *speed,
                                   struct kvt_error *err) {
    KVT_TRY(sample(b, i, depth, speed, err));
    if (kvt_progress_report(b->o->progress, "measuring", (uint64_t)n_done + 1, (uint64_t)((b->o->rounds + 1) * b->n)))
        return KVT_OK;
    return kvt_fail(err, KVT_ERR_CANCELLED, "cancelled");
}

/* All caches at depth number `at`. */
static enum kvt_status measure(struct bench *b, int at, struct kvt_bench_model_result *r, struct kvt_error *err) {
    const int depth = b->o->depth[at], rounds = b->o->rounds;
    struct kvt_bench_model_row *rows = r->row + at * b->n;
    double *samples = r->samples + (size_t)(at * b->n * rounds), warm;
    for (int i = 0; i < b->n; i++) {
        rows[i] =
            (struct kvt_bench_model_row){.kv = cache_of(b->o, i).name, .depth = depth, .samples = samples + i * rounds};
        KVT_TRY(fill(b, i, depth, &rows[i].fill_seconds, err));
        rows[i].bytes = kvt_session_usage(b->sessions[i]).total_bytes;
    }
    for (int i = 0; i < b->n; i++) KVT_TRY(take_sample(b, i, depth, i, &warm, err));
    for (int round = 0; round < rounds; round++) {
        if (b->o->pace.wait) KVT_TRY(b->o->pace.wait(b->o->pace.ctx, err));
        for (int i = 0; i < b->n; i++) {
            const int which = (i + round) % b->n; /* each in turn is first */
            KVT_TRY(take_sample(b, which, depth, (round + 1) * b->n + i, &samples[which * rounds + round], err));
        }
    }
    for (int i = 0; i < b->n; i++) {
        rows[i].vs_f16 = median(b, rows[i].samples, rows[b->n - 1].samples);
        rows[i].median = median(b, rows[i].samples, NULL);
        rows[i].least = b->scratch[0];
        rows[i].most = b->scratch[rounds - 1];
        rows[i].depth_share = at > 0 ? 1 - rows[i].median / r->row[i].median : NAN;
    }
    r->n += b->n;
    return KVT_OK;
}

static enum kvt_status start(struct bench *b, struct kvt_error *err) {
    const struct kvt_allocator *a = &kvt_allocator_libc;
    struct kvt_rng rng = {20261130};
    b->sessions = kvt_take_zero(a, (size_t)b->n, sizeof *b->sessions);
    b->ids = kvt_take(a, (size_t)b->n_ids, sizeof *b->ids);
    b->logits = kvt_take(a, (size_t)b->n_vocab, sizeof *b->logits);
    b->scratch = kvt_take(a, (size_t)b->o->rounds, sizeof *b->scratch);
    if (!b->sessions || !b->ids || !b->logits || !b->scratch)
        return kvt_fail(err, KVT_ERR_NOMEM, "no memory for %d tokens to measure with", b->n_ids);
    for (int i = 0; i < b->n_ids; i++) b->ids[i] = (int32_t)kvt_rng_below(&rng, (uint64_t)b->n_vocab);
    return open_sessions(b, err);
}

static void finish(struct bench *b) {
    const struct kvt_allocator *a = &kvt_allocator_libc;
    for (int i = 0; b->sessions && i < b->n; i++) kvt_session_destroy(b->sessions[i]);
    kvt_give(a, b->sessions, (size_t)b->n, sizeof *b->sessions);
    kvt_give(a, b->ids, (size_t)b->n_ids, sizeof *b->ids);
    kvt_give(a, b->logits, (size_t)b->n_vocab, sizeof *b->logits);
    kvt_give(a, b->scratch, (size_t)b->o->rounds, sizeof *b->scratch);
}

enum kvt_status kvt_bench_model(struct kvt_bench_model_result *out, const struct kvt_bench_model_options *o,
                                struct kvt_error *err) {
    const struct kvt_allocator *a = &kvt_allocator_libc;
    struct kvt_bench_model_result r = {.rounds = o->rounds};
    struct bench b = {.o = o,
                      .n = o->n_caches + 1,
                      .n_ids = o->depth[o->n_depths - 1] + o->tokens,
                      .n_vocab = kvt_model_info(o->model).n_vocab};
    enum kvt_level level;
    enum kvt_status status;
    r.n_taken = o->n_depths * b.n;
    kvt_machine_name(r.machine, sizeof r.machine);
    KVT_TRY(kvt_level_parse(&level, o->level ? o->level : "auto", err));
    KVT_TRY(check(o, err));
    r.level = o->place.backend && strcmp(o->place.backend, "cpu") != 0 ? o->place.backend : kvt_level_name(level);
    r.row = kvt_take_zero(a, (size_t)r.n_taken, sizeof *r.row);
    r.samples = kvt_take_zero(a, (size_t)(r.n_taken * r.rounds), sizeof *r.samples);
    if (!r.row || !r.samples) KVT_TRY_OUT(kvt_fail(err, KVT_ERR_NOMEM, "no memory for %d results", r.n_taken));
    KVT_TRY_OUT(start(&b, err));
    for (int at = 0; at < o->n_depths; at++) KVT_TRY_OUT(measure(&b, at, &r, err));
    *out = r;
out:
    finish(&b);
    if (status != KVT_OK) kvt_bench_model_finish(&r);
    return status;
}

void kvt_bench_model_finish(struct kvt_bench_model_result *r) {
    kvt_give(&kvt_allocator_libc, r->row, (size_t)r->n_taken, sizeof *r->row);
    kvt_give(&kvt_allocator_libc, r->samples, (size_t)(r->n_taken * r->rounds), sizeof *r->samples);
    *r = (struct kvt_bench_model_result){0};
}
