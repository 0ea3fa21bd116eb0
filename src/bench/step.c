/* SPDX-License-Identifier: Apache-2.0
 *
 * Times whole decode steps of caches: begin, append of a row, attention, end. What a step costs besides attention depends on where the
 * sequence is: every `granularity` rows a group is encoded, every 128 a page is taken. So that part is told apart by the position modulo 128, and
 * of the steps at one such position the quickest counts, which drops what the machine did meanwhile. Attention does not depend on the
 * position but for the few rows that are still in 16 bits: its median and its quickest are of all steps. A step is the sum of the
 * quickest of both, so that a busy machine does not hide the steps that encode.
 */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/attr.h"
#include "base/check.h"
#include "base/clock.h"
#include "bench/bench.h"
#include "bench/filled.h"
#include "bench/machine.h"

enum { PHASES = KVT_TILE_ROWS };

struct steps {
    struct kvt_filled cache;
    double append[PHASES]; /* microseconds of all but attention, the least at each position */
    double *attend;        /* microseconds, by step */
};

struct bench {
    const struct kvt_bench_options *o;
    struct kvt_source source;
    struct kvt_threads *threads;
    struct kvt_parallel parallel;
    struct steps *steps; /* o->kv, then f16 */
    int n;
    float *out;
};

static const char *kv_of(const struct kvt_bench_options *o, int i) { return i < o->n_kv ? o->kv[i] : "f16"; }

static enum kvt_status take_step(const struct bench *b, struct steps *s, int at, struct kvt_error *err) {
    struct kvt_filled *c = &s->cache;
    const int phase = (int)(kvt_seq_n_rows(c->seq) % PHASES);
    double attend = 0;
    const double start = kvt_clock_seconds();
    KVT_TRY(kvt_filled_begin(c, 1, err));
    for (int l = 0; l < c->n_layers; l++) {
        KVT_TRY(kvt_filled_append(c, l, err));
        const double begin = kvt_clock_seconds();
        KVT_TRY(kvt_filled_attend(c, l, b->o->gqa[0], b->out, err));
        attend += kvt_clock_seconds() - begin;
    }
    KVT_TRY(kvt_step_end(c->step, err));
    const double all = kvt_clock_seconds() - start, us = 1e6 / c->n_layers;
    s->attend[at] = us * attend;
    s->append[phase] = fmin(s->append[phase], us * (all - attend));
    return KVT_OK;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct kvt_bench_step_row summary(struct steps *s, int n_steps) {
    struct kvt_bench_step_row row = {.granularity = kvt_plan_layer(s->cache.plan, 0)->granularity};
    for (int i = 0; i < PHASES; i++) row.append_us += s->append[i] / PHASES;
    qsort(s->attend, (size_t)n_steps, sizeof *s->attend, compare);
    qsort(s->append, PHASES, sizeof *s->append, compare);
    row.attend_us = s->attend[n_steps / 2];
    row.attend_spread = (s->attend[n_steps * 3 / 4] - s->attend[n_steps / 4]) / 2;
    row.append_worst_us = s->append[PHASES - 1];
    row.us = s->attend[0] + s->append[PHASES / 2];
    row.worst_us = s->attend[0] + row.append_worst_us;
    row.append_share = row.append_us / (s->attend[0] + row.append_us);
    return row;
}

/* As many layers that between two steps of a cache at least `rotate` bytes are read. */
static enum kvt_status count_layers(int *out, const struct bench *b, int64_t rows, uint64_t rotate,
                                    struct kvt_error *err) {
    uint64_t all = 0;
    for (int i = 0; i < b->n; i++) {
        uint64_t bytes;
        KVT_TRY(kvt_filled_layer_bytes(&bytes, &b->source, kv_of(b->o, i), rows, err));
        all += bytes;
    }
    *out = (int)KVT_MIN((rotate + all - 1) / all, KVT_FILLED_LAYERS_MAX);
    return kvt_filled_check_memory(b->o->memory_bytes, rows, *out, all, 0, err);
}

static enum kvt_status fill(struct bench *b, int64_t rows, uint64_t rotate, struct kvt_error *err) {
    struct kvt_filled_options o = {.rows = rows - 1,
                                   .max_rows = rows + (int64_t)PHASES * b->o->rounds,
                                   .n_parts = b->n,
                                   .level = b->o->level,
                                   .parallel = &b->parallel,
                                   .progress = b->o->progress};
    KVT_TRY(count_layers(&o.n_layers, b, rows, rotate, err));
    for (int i = 0; i < b->n; i++) {
        o.kv = kv_of(b->o, i);
        o.part = i;
        KVT_TRY(kvt_filled_open(&b->steps[i].cache, &b->source, &o, err));
        for (int p = 0; p < PHASES; p++) b->steps[i].append[p] = INFINITY;
    }
    return KVT_OK;
}

/* Whole rounds of all positions, as many as there is time for, at least one. */
static enum kvt_status take_rounds(int *n_rounds, const struct bench *b, struct kvt_error *err) {
    const double start = kvt_clock_seconds(), limit = b->o->seconds;
    int t = 0;
    for (*n_rounds = 0; *n_rounds < b->o->rounds; ++*n_rounds) {
        if (limit > 0 && *n_rounds > 0 && kvt_clock_seconds() - start > limit) break;
        for (int phase = 0; phase < PHASES; phase++, t++) {
            for (int i = 0; i < b->n; i++) /* each in turn is first */
                KVT_TRY(take_step(b, &b->steps[(i + t) % b->n], t, err));
            if (!kvt_progress_report(b->o->progress, "measuring", (uint64_t)t + 1, (uint64_t)(PHASES * b->o->rounds)))
                return kvt_fail(err, KVT_ERR_CANCELLED, "cancelled");
        }
    }
    return KVT_OK;
}

/* One step more, whose attention is looked at. */
static enum kvt_status measure_error(double *error, const struct bench *b, struct kvt_filled *c,
                                     struct kvt_error *err) {
    KVT_TRY(kvt_filled_begin(c, 1, err));
    for (int l = 0; l < c->n_layers; l++) KVT_TRY(kvt_filled_append(c, l, err));
    KVT_TRY(kvt_filled_attend(c, 0, b->o->gqa[0], b->out, err));
    KVT_TRY(kvt_step_end(c->step, err));
    return kvt_source_error(error, &b->source, kvt_seq_n_rows(c->seq), b->o->gqa[0], b->out, err);
}

static enum kvt_status measure(struct bench *b, int64_t rows, int n_threads, uint64_t rotate,
                               struct kvt_bench_step_result *r, struct kvt_error *err) {
    enum kvt_status status = KVT_OK;
    int n_rounds;
    KVT_TRY(kvt_threads_create(&b->threads, n_threads, NULL, err));
    b->parallel = kvt_threads_parallel(b->threads);
    KVT_TRY_OUT(fill(b, rows, rotate, err));
    KVT_TRY_OUT(take_rounds(&n_rounds, b, err));
    for (int i = 0; i < b->n; i++) {
        struct kvt_bench_step_row row = summary(&b->steps[i], PHASES * n_rounds);
        row.kv = kv_of(b->o, i);
        row.rows = rows;
        row.threads = n_threads;
        row.rounds = n_rounds;
        KVT_TRY_OUT(measure_error(&row.error, b, &b->steps[i].cache, err));
        r->row[r->n++] = row;
    }
out:
    for (int i = 0; i < b->n; i++) kvt_filled_close(&b->steps[i].cache);
    kvt_threads_destroy(b->threads);
    b->threads = NULL;
    return status;
}

enum kvt_status kvt_bench_step(struct kvt_bench_step_result *out, const struct kvt_bench_options *o,
                               struct kvt_error *err) {
    const struct kvt_allocator *a = &kvt_allocator_libc;
    struct kvt_bench_step_result r = {0};
    struct bench b = {.o = o, .n = o->n_kv + 1};
    const size_t n = (size_t)(o->n_rows * o->n_threads * b.n), n_out = (size_t)(o->kv_heads * o->gqa[0] * o->head_size);
    const uint64_t rotate = o->rotate_bytes ? o->rotate_bytes : 4 * kvt_machine_cache_bytes();
    enum kvt_level level;
    enum kvt_status status;
    kvt_machine_name(r.machine, sizeof r.machine);
    KVT_TRY(kvt_level_parse(&level, o->level ? o->level : "auto", err));
    r.level = kvt_level_name(level);
    r.n_taken = n;
    r.row = kvt_take_zero(a, n, sizeof *r.row);
    b.steps = kvt_take_zero(a, (size_t)b.n, sizeof *b.steps);
    b.out = kvt_take_zero(a, n_out, sizeof *b.out);
    bool all = r.row && b.steps && b.out;
    for (int i = 0; b.steps && i < b.n; i++)
        all = (b.steps[i].attend = kvt_take(a, (size_t)(PHASES * o->rounds), sizeof(double))) && all;
    if (!all) KVT_TRY_OUT(kvt_fail(err, KVT_ERR_NOMEM, "no memory for %zu results", n));
    KVT_TRY_OUT(kvt_source_create(&b.source, o->kv_heads, o->head_size, 1, err));
    for (int i = 0; i < o->n_rows; i++)
        for (int t = 0; t < o->n_threads; t++) KVT_TRY_OUT(measure(&b, o->rows[i], o->threads[t], rotate, &r, err));
    *out = r;
out:
    kvt_source_finish(&b.source);
    for (int i = 0; b.steps && i < b.n; i++)
        kvt_give(a, b.steps[i].attend, (size_t)(PHASES * o->rounds), sizeof(double));
    kvt_give(a, b.steps, (size_t)b.n, sizeof *b.steps);
    kvt_give(a, b.out, n_out, sizeof *b.out);
    if (status != KVT_OK) kvt_bench_step_finish(&r);
    return status;
}

void kvt_bench_step_finish(struct kvt_bench_step_result *r) {
    kvt_give(&kvt_allocator_libc, r->row, r->n_taken, sizeof *r->row);
    *r = (struct kvt_bench_step_result){0};
}
