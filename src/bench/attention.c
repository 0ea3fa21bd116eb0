/* SPDX-License-Identifier: Apache-2.0
 *
 * Times attention over caches that are filled for real. Of each scheme there are as many layers, all alike, as it takes that a layer has
 * left the last-level cache when its turn comes again. A sample of every scheme, and a read of as many bytes, follow each other in a round.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/attr.h"
#include "base/check.h"
#include "base/clock.h"
#include "bench/bench.h"
#include "bench/filled.h"
#include "bench/machine.h"

/* A parallel-for whose number of threads can be chosen for each call: the pool of memory is the same for all. */
struct gate {
    struct kvt_threads *threads[KVT_BENCH_LIST];
    struct kvt_parallel now;
};

static void run_gate(void *ctx, int n_jobs, void (*job)(void *arg, int i, int thread), void *arg) {
    const struct kvt_parallel *now = &((struct gate *)ctx)->now;
    if (now->run)
        now->run(now->ctx, n_jobs, job, arg);
    else
        for (int i = 0; i < n_jobs; i++) job(arg, i, 0);
}

/* One scheme: its cache, with a step open that has appended its last rows. */
struct cache {
    struct kvt_filled filled;
    uint64_t layer_bytes;
    double *us; /* by round */
};

struct bench {
    const struct kvt_bench_options *o;
    struct gate gate;
    struct kvt_parallel parallel;
    struct cache *caches; /* o->kv, then f16 */
    int n_caches;
    struct kvt_source source;
    float *out; /* of all query vectors */
    struct kvt_reader reader;
    double *read_us; /* [cache][round] */
    double *scratch;
};

static enum kvt_status report(const struct bench *b, const char *what, uint64_t done, uint64_t total,
                              struct kvt_error *err) {
    if (kvt_progress_report(b->o->progress, what, done, total)) return KVT_OK;
    return kvt_fail(err, KVT_ERR_CANCELLED, "cancelled");
}

static const char *kv_of(const struct bench *b, int i) { return i < b->o->n_kv ? b->o->kv[i] : "f16"; }

/* ---- caches ------------------------------------------------------------------------------------------------------------ */

/* The query rows: the last ones. */
static enum kvt_status append_last(const struct bench *b, struct kvt_filled *c, struct kvt_error *err) {
    KVT_TRY(kvt_filled_begin(c, b->o->queries, err));
    for (int l = 0; l < c->n_layers; l++) KVT_TRY(kvt_filled_append(c, l, err));
    return KVT_OK;
}

static enum kvt_status open_cache(const struct bench *b, struct kvt_filled *c, struct kvt_filled_options options,
                                  int64_t rows, struct kvt_error *err) {
    options.rows = rows - b->o->queries;
    options.max_rows = rows;
    options.level = b->o->level;
    options.parallel = &b->parallel;
    options.progress = b->o->progress;
    KVT_TRY(kvt_filled_open(c, &b->source, &options, err));
    return append_last(b, c, err);
}

/* ---- error ------------------------------------------------------------------------------------------------------------- */

/* Root of the sum of squares of what attention adds to the decoded rows' exact result, over what the codec adds to the rows'. */
static enum kvt_status measure_error(const struct bench *b, const char *kv, int gqa, double *out,
                                     struct kvt_error *err) {
    enum { ROWS = KVT_SOURCE_ROWS };
    const struct kvt_source *s = &b->source;
    const int d = s->head_size, row = s->kv_heads * d, last = s->n_queries - 1;
    struct kvt_filled c = {.n_layers = 0};
    double kernel = 0, codec = 0;
    float *decoded = kvt_take(&kvt_allocator_libc, (size_t)(2 * ROWS * d), sizeof *decoded);
    double *work = kvt_take(&kvt_allocator_libc, (size_t)(ROWS + 2 * d), sizeof *work);
    enum kvt_status status = KVT_OK;
    if (!decoded || !work) KVT_TRY_OUT(kvt_fail(err, KVT_ERR_NOMEM, "no memory for the oracle"));
    /* The last rows come by themselves, as in the steps that are timed; the last one's attention is looked at. */
    KVT_TRY_OUT(open_cache(b, &c, (struct kvt_filled_options){.kv = kv, .n_layers = 1}, ROWS, err));
    KVT_TRY_OUT(kvt_filled_attend(&c, 0, gqa, b->out, err));
    kvt_step_abandon(c.step);
    KVT_TRY_OUT(append_last(b, &c, err));
    KVT_TRY_OUT(kvt_step_end(c.step, err));
    for (int head = 0; head < s->kv_heads; head++) {
        const float *k = s->rows[KVT_SIDE_K] + head * d, *v = s->rows[KVT_SIDE_V] + head * d;
        float *k_decoded = decoded, *v_decoded = decoded + ROWS * d;
        KVT_TRY_OUT(kvt_seq_read(c.seq, 0, KVT_SIDE_K, head, 0, ROWS, k_decoded, d, err));
        KVT_TRY_OUT(kvt_seq_read(c.seq, 0, KVT_SIDE_V, head, 0, ROWS, v_decoded, d, err));
        for (int g = 0; g < gqa; g++) {
            const ptrdiff_t at = (ptrdiff_t)last * row * gqa + (head * gqa + g) * d;
            const float *q = s->queries + at, *got = b->out + at;
            double *of_decoded = work + ROWS, *of_rows = of_decoded + d;
            kvt_exact_attention(of_decoded, q, k_decoded, v_decoded, d, ROWS, d, work);
            kvt_exact_attention(of_rows, q, k, v, row, ROWS, d, work);
            for (int i = 0; i < d; i++) {
                kernel += pow((double)got[i] - of_decoded[i], 2);
                codec += pow(of_decoded[i] - of_rows[i], 2);
            }
        }
    }
    *out = codec > 0 ? sqrt(kernel / codec) : 0;
out:
    kvt_filled_close(&c);
    kvt_give(&kvt_allocator_libc, decoded, (size_t)(2 * ROWS * d), sizeof *decoded);
    kvt_give(&kvt_allocator_libc, work, (size_t)(ROWS + 2 * d), sizeof *work);
    return status;
}

/* ---- samples ----------------------------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The q-th part of n numbers, which are sorted. */
static double quantile(const double *x, int n, double q) { return x[(int)(q * (n - 1) + 0.5)]; }

static double median_of(const struct bench *b, const double *x, const double *over, int n) {
    for (int i = 0; i < n; i++) b->scratch[i] = over ? x[i] / over[i] : x[i];
    qsort(b->scratch, (size_t)n, sizeof *b->scratch, compare);
    return quantile(b->scratch, n, 0.5);
}

static enum kvt_status sample(struct bench *b, int gqa, int round, struct kvt_error *err) {
    for (int i = 0; i < b->n_caches; i++) {
        const int which = (i + round) % b->n_caches; /* each in turn is first */
        struct cache *c = &b->caches[which];
        double start = kvt_clock_seconds();
        KVT_TRY(kvt_filled_attend(&c->filled, round % c->filled.n_layers, gqa, b->out, err));
        c->us[round] = 1e6 * (kvt_clock_seconds() - start);
        start = kvt_clock_seconds();
        kvt_reader_read(&b->reader, &b->parallel, c->layer_bytes);
        b->read_us[which * b->o->rounds + round] = 1e6 * (kvt_clock_seconds() - start);
    }
    return KVT_OK;
}

/* As many rounds as there is time for. `done`: how many measurements of this length came before. */
static enum kvt_status take_rounds(int *n_rounds, struct bench *b, int gqa, int done, struct kvt_error *err) {
    enum { LEAST = 3 };
    const int most = b->o->rounds;
    const double start = kvt_clock_seconds(), limit = b->o->seconds;
    int n = 0;
    for (; n < most && (n < LEAST || limit <= 0 || kvt_clock_seconds() - start <= limit); n++) {
        KVT_TRY(sample(b, gqa, n, err));
        KVT_TRY(report(b, "measuring", (uint64_t)(done * most + n + 1),
                       (uint64_t)(b->o->n_gqa * b->o->n_threads * most), err));
    }
    *n_rounds = n;
    return KVT_OK;
}

static enum kvt_status measure(struct bench *b, int64_t rows, int gqa_index, int thread_index,
                               struct kvt_bench_result *r, struct kvt_error *err) {
    const int gqa = b->o->gqa[gqa_index];
    int rounds;
    b->gate.now = kvt_threads_parallel(b->gate.threads[thread_index]);
    for (int i = 0; i < b->n_caches; i++) { /* once for page faults and scratch */
        KVT_TRY(kvt_filled_attend(&b->caches[i].filled, 0, gqa, b->out, err));
        kvt_reader_read(&b->reader, &b->parallel, b->caches[i].layer_bytes);
    }
    KVT_TRY(take_rounds(&rounds, b, gqa, gqa_index * b->o->n_threads + thread_index, err));
    const struct cache *f16 = &b->caches[b->n_caches - 1];
    double best = 0;
    for (int i = 0; i < b->n_caches; i++) {
        const struct cache *c = &b->caches[i];
        const double *read = b->read_us + i * b->o->rounds;
        struct kvt_bench_row row = {.kv = kv_of(b, i),
                                    .rows = rows,
                                    .gqa = gqa,
                                    .threads = b->o->threads[thread_index],
                                    .rounds = rounds,
                                    .bytes = c->layer_bytes};
        row.us = median_of(b, c->us, NULL, rounds);
        row.us_spread = (quantile(b->scratch, rounds, 0.75) - quantile(b->scratch, rounds, 0.25)) / 2;
        row.read_us = median_of(b, read, NULL, rounds);
        row.read_share = median_of(b, read, c->us, rounds);
        row.vs_f16 = median_of(b, f16->us, c->us, rounds);
        const double gbps = (double)c->layer_bytes / row.read_us * 1e-3;
        best = gbps > best ? gbps : best;
        r->row[r->n++] = row;
    }
    if (best > r->read_gbps[thread_index]) r->read_gbps[thread_index] = best;
    return KVT_OK;
}

/* What a layer of each cache takes, and how many layers it has, so that between two samples of a layer at least `rotate` other bytes are read: those of all caches, and as many
 * by the reader. */
static enum kvt_status count_layers(int *out, uint64_t *most, struct bench *b, int64_t rows, uint64_t rotate,
                                    struct kvt_error *err) {
    uint64_t round = 0;
    *most = 0;
    for (int i = 0; i < b->n_caches; i++) {
        uint64_t bytes;
        KVT_TRY(kvt_filled_layer_bytes(&bytes, &b->source, kv_of(b, i), rows, err));
        b->caches[i].layer_bytes = bytes;
        *most = KVT_MAX(*most, bytes);
        round += 2 * bytes;
    }
    *out = (int)KVT_MIN(1 + (rotate + round - 1) / round, KVT_FILLED_LAYERS_MAX);
    return kvt_filled_check_memory(b->o->memory_bytes, rows, *out, round / 2, KVT_MAX(*most, rotate / 2), err);
}

/* Everything at one length. */
static enum kvt_status measure_length(struct bench *b, int64_t rows, uint64_t rotate, struct kvt_bench_result *r,
                                      struct kvt_error *err) {
    enum kvt_status status = KVT_OK;
    int n_layers;
    uint64_t most;
    KVT_TRY(count_layers(&n_layers, &most, b, rows, rotate, err));
    b->gate.now = kvt_threads_parallel(b->gate.threads[b->o->n_threads - 1]);
    for (int i = 0; i < b->n_caches; i++)
        KVT_TRY_OUT(open_cache(
            b, &b->caches[i].filled,
            (struct kvt_filled_options){.kv = kv_of(b, i), .n_layers = n_layers, .part = i, .n_parts = b->n_caches},
            rows, err));
    KVT_TRY_OUT(kvt_reader_grow(&b->reader, KVT_MAX(most, rotate / 2), err));
    for (int g = 0; g < b->o->n_gqa; g++)
        for (int t = 0; t < b->o->n_threads; t++) KVT_TRY_OUT(measure(b, rows, g, t, r, err));
out:
    for (int i = 0; i < b->n_caches; i++) kvt_filled_close(&b->caches[i].filled);
    return status;
}

/* ---- the call ---------------------------------------------------------------------------------------------------------- */

/* Of all query vectors of a step. */
static size_t vector_floats(const struct bench *b) {
    return (size_t)(b->o->kv_heads * b->o->head_size) * KVT_BENCH_GQA_MAX * (size_t)b->o->queries;
}

static void finish(struct bench *b) {
    const struct kvt_allocator *a = &kvt_allocator_libc;
    for (int i = 0; b->caches && i < b->n_caches; i++)
        kvt_give(a, b->caches[i].us, (size_t)b->o->rounds, sizeof(double));
    kvt_give(a, b->caches, (size_t)b->n_caches, sizeof *b->caches);
    kvt_source_finish(&b->source);
    kvt_give(a, b->out, vector_floats(b), sizeof *b->out);
    kvt_give(a, b->read_us, (size_t)(b->n_caches * b->o->rounds), sizeof *b->read_us);
    kvt_give(a, b->scratch, (size_t)b->o->rounds, sizeof *b->scratch);
    kvt_reader_finish(&b->reader);
    for (int t = 0; t < b->o->n_threads; t++) kvt_threads_destroy(b->gate.threads[t]);
}

static enum kvt_status start(struct bench *b, struct kvt_error *err) {
    const struct kvt_allocator *a = &kvt_allocator_libc;
    int most = 1;
    for (int t = 0; t < b->o->n_threads; t++) {
        KVT_TRY(kvt_threads_create(&b->gate.threads[t], b->o->threads[t], NULL, err));
        most = KVT_MAX(most, b->o->threads[t]);
    }
    b->parallel = (struct kvt_parallel){most, run_gate, &b->gate};
    b->caches = kvt_take_zero(a, (size_t)b->n_caches, sizeof *b->caches);
    b->out = kvt_take_zero(a, vector_floats(b), sizeof *b->out);
    b->read_us = kvt_take(a, (size_t)(b->n_caches * b->o->rounds), sizeof *b->read_us);
    b->scratch = kvt_take(a, (size_t)b->o->rounds, sizeof *b->scratch);
    bool all = b->caches && b->out && b->read_us && b->scratch;
    for (int i = 0; b->caches && i < b->n_caches; i++)
        all = (b->caches[i].us = kvt_take(a, (size_t)b->o->rounds, sizeof(double))) && all;
    if (!all) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the rows to measure with");
    return kvt_source_create(&b->source, b->o->kv_heads, b->o->head_size, b->o->queries, err);
}

enum kvt_status kvt_bench_attention(struct kvt_bench_result *out, const struct kvt_bench_options *o,
                                    struct kvt_error *err) {
    struct kvt_bench_result r = {0};
    struct bench b = {.o = o, .n_caches = o->n_kv + 1};
    enum kvt_level level;
    enum kvt_status status;
    const uint64_t rotate = o->rotate_bytes ? o->rotate_bytes : 4 * kvt_machine_cache_bytes();
    const size_t n = (size_t)(o->n_rows * o->n_gqa * o->n_threads * b.n_caches);
    kvt_machine_name(r.machine, sizeof r.machine);
    KVT_TRY(kvt_level_parse(&level, o->level ? o->level : "auto", err));
    r.level = kvt_level_name(level);
    r.row = kvt_take_zero(&kvt_allocator_libc, n, sizeof *r.row);
    if (!r.row) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for %zu results", n);
    KVT_TRY_OUT(start(&b, err));
    for (int i = 0; i < o->n_rows; i++) KVT_TRY_OUT(measure_length(&b, o->rows[i], rotate, &r, err));
    for (int i = 0; i < r.n; i++) {
        struct kvt_bench_row *row = &r.row[i];
        bool known = false;
        for (int j = 0; j < i && !known; j++)
            if (r.row[j].kv == row->kv && r.row[j].gqa == row->gqa) {
                row->error_ratio = r.row[j].error_ratio;
                known = true;
            }
        b.gate.now = kvt_threads_parallel(b.gate.threads[o->n_threads - 1]);
        if (!known) KVT_TRY_OUT(measure_error(&b, row->kv, row->gqa, &row->error_ratio, err));
    }
    *out = r;
out:
    finish(&b);
    if (status != KVT_OK) kvt_give(&kvt_allocator_libc, r.row, n, sizeof *r.row);
    return status;
}

void kvt_bench_finish(struct kvt_bench_result *r) {
    kvt_give(&kvt_allocator_libc, r->row, (size_t)r->n, sizeof *r->row);
    *r = (struct kvt_bench_result){0};
}
