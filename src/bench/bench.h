/* SPDX-License-Identifier: Apache-2.0
 *
 * Door of bench: what a cache costs in time. All that is compared is measured in one process, in turn, on memory that is larger than
 * the caches of the processor, beside the time that reading the same bytes takes.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "base/buf.h"
#include "base/progress.h"
#include "kvtile/kvtile.h"
#include "model/model.h"

enum { KVT_BENCH_GQA_MAX = 16, KVT_BENCH_LIST = 8, KVT_BENCH_QUERIES_MAX = 512 };

/* Attention of one step over one layer. */
struct kvt_bench_options {
    const char *const *kv; /* caches, "K[,V]"; f16 is measured too, to compare with */
    int n_kv;
    int64_t rows[KVT_BENCH_LIST];
    int n_rows;
    int gqa[KVT_BENCH_LIST], n_gqa; /* query heads per KV head */
    int threads[KVT_BENCH_LIST], n_threads;
    int queries; /* query rows of the step, the last of `rows`: 1 is decoding, up to 8 verification, more prefill */
    int kv_heads, head_size;
    int rounds; /* samples of each */
    /* After so many no other round of one length, gqa and number of threads begins, but for the first three of attention and the first of steps;
     * 0: all are made. */
    double seconds;
    uint64_t rotate_bytes; /* that are read between two samples of the same layer; 0: four times the last-level cache */
    uint64_t memory_bytes; /* that caches may take; 0: no limit */
    const char *level;     /* NULL: "auto" */
    const struct kvt_progress *progress;
};

struct kvt_bench_row {
    const char *kv; /* of the options */
    int64_t rows;
    int gqa, threads;
    int rounds;                 /* that there was time for */
    double us, us_spread;       /* median of a layer's attention; half the distance of its quartiles */
    uint64_t bytes;             /* that one call reads: all pages of a layer */
    double read_us, read_share; /* reading as many bytes; median of the shares of paired samples */
    double vs_f16;              /* median of paired ratios: how many times faster than f16 */
    /* Error that the kernel adds, over the codec's own, against double precision on up to 1024 rows. */
    double error_ratio;
};

struct kvt_bench_result {
    char machine[80];
    const char *level;
    double read_gbps[KVT_BENCH_LIST]; /* by the options' threads */
    struct kvt_bench_row *row;
    int n;
};

/* ARG for a cache that cannot be, LIMIT for caches that need more than memory_bytes, NOMEM, CANCELLED. On success free with
 * kvt_bench_finish. */
KVT_MUST_CHECK enum kvt_status kvt_bench_attention(struct kvt_bench_result *out,
                                                   const struct kvt_bench_options *options, struct kvt_error *err);
void kvt_bench_finish(struct kvt_bench_result *result);

KVT_MUST_CHECK enum kvt_status kvt_bench_table(struct kvt_buf *out, const struct kvt_bench_result *result,
                                               const struct kvt_bench_options *options);
KVT_MUST_CHECK enum kvt_status kvt_bench_json(struct kvt_buf *out, const struct kvt_bench_result *result,
                                              const struct kvt_bench_options *options);

/* ---- steps of one layer ------------------------------------------------------------------------------------------------ */

/* Decode steps of one layer: begin, append of a row, attention, end. Microseconds. All but attention depends on where the sequence is, so it
 * is of the 128 positions modulo 128, at each the quickest of `rounds`. */
struct kvt_bench_step_row {
    const char *kv;
    int64_t rows;
    int threads, granularity;          /* every so many steps a group is encoded */
    int rounds;                        /* that there was time for */
    double attend_us, attend_spread;   /* median; half the distance of the quartiles */
    double append_us, append_worst_us; /* mean and worst of all but attention */
    double append_share;               /* of all steps together */
    double us, worst_us;               /* of a step: the quickest attention, and the median and the worst of the rest */
    double error; /* attention's, over double precision on the rows before any rounding: root mean squares */
};

struct kvt_bench_step_result {
    char machine[80];
    const char *level;
    struct kvt_bench_step_row *row;
    int n;
    size_t n_taken;
};

/* With the first of the options' gqa. Failures as of kvt_bench_attention; free with kvt_bench_step_finish. */
KVT_MUST_CHECK enum kvt_status kvt_bench_step(struct kvt_bench_step_result *out,
                                              const struct kvt_bench_options *options, struct kvt_error *err);
void kvt_bench_step_finish(struct kvt_bench_step_result *result);

KVT_MUST_CHECK enum kvt_status kvt_bench_step_table(struct kvt_buf *out, const struct kvt_bench_step_result *result,
                                                    const struct kvt_bench_options *options);
KVT_MUST_CHECK enum kvt_status kvt_bench_step_json(struct kvt_buf *out, const struct kvt_bench_step_result *result,
                                                   const struct kvt_bench_options *options);

/* ---- whole models ------------------------------------------------------------------------------------------------------ */

/* Called before each round; a failure ends the measurement. So another program's samples can come between. */
struct kvt_bench_pace {
    enum kvt_status (*wait)(void *ctx, struct kvt_error *err); /* NULL: nobody waits */
    void *ctx;
};

/* A cache of a model, by what it is called in the report. */
struct kvt_bench_cache {
    const char *name, *kv; /* kv: a plan's string */
    int sink, tail;
};

struct kvt_bench_model_options {
    const struct kvt_model *model;
    const struct kvt_bench_cache *caches; /* f16 is measured too, to compare with */
    int n_caches;
    int depth[KVT_BENCH_LIST], n_depths; /* rows in the cache when a sample begins; ascending */
    int tokens;                          /* of a sample */
    int rounds;                          /* samples of each */
    int n_batch; /* tokens of a forward pass while the cache is filled; 0: the session's default */
    struct kvt_place place;
    const char *level;
    const struct kvt_parallel *parallel;
    const struct kvt_progress *progress;
    struct kvt_bench_pace pace;
};

struct kvt_bench_model_row {
    const char *kv;
    int depth;
    double fill_seconds;        /* that it took to fill the cache from the depth before */
    uint64_t bytes;             /* of the cache at that depth, all layers */
    double median, least, most; /* tokens per second */
    double vs_f16;              /* median of paired ratios: how many times faster than f16 */
    double depth_share;         /* of a step's time: what it takes more than at the first depth; NaN at that */
    const double *samples;      /* tokens per second, by round */
};

struct kvt_bench_model_result {
    char machine[80];
    const char *level;
    struct kvt_bench_model_row *row; /* by depth; of each depth the caches in order, f16 last */
    int n, rounds;
    double *samples;
    int n_taken;
};

/* ARG for a cache that cannot be, LIMIT for a depth past the model's context, NOMEM, CANCELLED. Free with kvt_bench_model_finish. The
 * tokens are drawn from the vocabulary. Logits are computed for each token of a sample, and not looked at. */
KVT_MUST_CHECK enum kvt_status kvt_bench_model(struct kvt_bench_model_result *out,
                                               const struct kvt_bench_model_options *options, struct kvt_error *err);
void kvt_bench_model_finish(struct kvt_bench_model_result *result);

KVT_MUST_CHECK enum kvt_status kvt_bench_model_table(struct kvt_buf *out, const struct kvt_bench_model_result *result,
                                                     const struct kvt_bench_model_options *options);
KVT_MUST_CHECK enum kvt_status kvt_bench_model_json(struct kvt_buf *out, const struct kvt_bench_model_result *result,
                                                    const struct kvt_bench_model_options *options);

#endif
