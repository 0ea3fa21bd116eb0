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

enum { KVT_BENCH_GQA_MAX = 16, KVT_BENCH_LIST = 8 };

/* Attention of one decode step over one layer. */
struct kvt_bench_options {
    const char *const *kv; /* caches, "K[,V]"; f16 is measured too, to compare with */
    int n_kv;
    int64_t rows[KVT_BENCH_LIST];
    int n_rows;
    int gqa[KVT_BENCH_LIST], n_gqa; /* query heads per KV head */
    int threads[KVT_BENCH_LIST], n_threads;
    int kv_heads, head_size;
    int rounds;            /* samples of each */
    uint64_t rotate_bytes; /* that are read between two samples of the same layer; 0: four times the last-level cache */
    const char *level;     /* NULL: "auto" */
    const struct kvt_progress *progress;
};

struct kvt_bench_row {
    const char *kv; /* of the options */
    int64_t rows;
    int gqa, threads;
    double us, us_spread;       /* median of a layer's attention; half the distance of its quartiles */
    uint64_t bytes;             /* that one call reads: all pages of a layer */
    double read_us, read_share; /* reading as many bytes; median of the shares of paired samples */
    double vs_f16;              /* median of paired ratios: how many times faster than f16 */
    double
        error_ratio; /* error that the kernel adds, over the codec's own, against double precision on up to 1024 rows */
};

struct kvt_bench_result {
    char machine[80];
    const char *level;
    double read_gbps[KVT_BENCH_LIST]; /* by the options' threads */
    struct kvt_bench_row *row;
    int n;
};

/* ARG for a cache that cannot be, NOMEM, CANCELLED. On success free with kvt_bench_finish. */
KVT_MUST_CHECK enum kvt_status kvt_bench_attention(struct kvt_bench_result *out,
                                                   const struct kvt_bench_options *options, struct kvt_error *err);
void kvt_bench_finish(struct kvt_bench_result *result);

KVT_MUST_CHECK enum kvt_status kvt_bench_table(struct kvt_buf *out, const struct kvt_bench_result *result,
                                               const struct kvt_bench_options *options);
KVT_MUST_CHECK enum kvt_status kvt_bench_json(struct kvt_buf *out, const struct kvt_bench_result *result,
                                              const struct kvt_bench_options *options);

#endif
