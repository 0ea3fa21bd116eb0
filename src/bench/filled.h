/* SPDX-License-Identifier: Apache-2.0
 *
 * Caches that are filled for real, with made rows, and the exact result of attention over those rows.
 */
#ifndef BENCH_FILLED_H
#define BENCH_FILLED_H

#include "base/progress.h"
#include "bench/bench.h"

enum { KVT_SOURCE_ROWS = 1024, KVT_FILLED_LAYERS_MAX = 512 };

/* Made rows of K and V, KVT_SOURCE_ROWS different ones, which come over and over: row r of a cache is row r % KVT_SOURCE_ROWS here. Keys
 * have a bias in each channel, as those of models do. There are n_queries query rows of KVT_BENCH_GQA_MAX heads per KV head. */
struct kvt_source {
    int kv_heads, head_size, n_queries;
    float *rows[KVT_SIDE_COUNT], *queries;
};
KVT_MUST_CHECK enum kvt_status kvt_source_create(struct kvt_source *out, int kv_heads, int head_size, int n_queries,
                                                 struct kvt_error *err);
void kvt_source_finish(struct kvt_source *source);

/* A cache of some layers, all alike, and the step that appends to it. */
struct kvt_filled {
    const struct kvt_source *source;
    struct kvt_plan *plan;
    struct kvt_pool *pool;
    struct kvt_seq *seq;
    struct kvt_step *step;
    int n_layers, n_step; /* n_step: rows of the step that is open */
};

struct kvt_filled_options {
    const char *kv;
    int64_t rows, max_rows; /* to fill it with; that it will have at most */
    int n_layers;
    int part,
        n_parts; /* of several caches that are filled one after another: which, of how many; so is progress reported */
    const char *level;
    const struct kvt_parallel *parallel;
    const struct kvt_progress *progress;
};

/* ARG or UNSUPPORTED for a cache that cannot be, NOMEM, CANCELLED. Close it in any case. */
KVT_MUST_CHECK enum kvt_status kvt_filled_open(struct kvt_filled *out, const struct kvt_source *source,
                                               const struct kvt_filled_options *options, struct kvt_error *err);
void kvt_filled_close(struct kvt_filled *cache);
/* Begins a step of n rows, at most KVT_SOURCE_ROWS: the ones that come next, or where those go past a multiple of KVT_SOURCE_ROWS
 * the first ones. */
KVT_MUST_CHECK enum kvt_status kvt_filled_begin(struct kvt_filled *cache, int n, struct kvt_error *err);
/* The step's rows of one layer. */
KVT_MUST_CHECK enum kvt_status kvt_filled_append(struct kvt_filled *cache, int layer, struct kvt_error *err);
/* Attention of the step's rows, at most n_queries of the source, with gqa heads per KV head. out: kv_heads * gqa heads, one after another,
 * of each row. */
KVT_MUST_CHECK enum kvt_status kvt_filled_attend(struct kvt_filled *cache, int layer, int gqa, float *out,
                                                 struct kvt_error *err);

/* Bytes of one layer of a cache of so many rows. */
KVT_MUST_CHECK enum kvt_status kvt_filled_layer_bytes(uint64_t *out, const struct kvt_source *source, const char *kv,
                                                      int64_t rows, struct kvt_error *err);
/* LIMIT where n_layers layers, one of each cache together layer_bytes, and `more` bytes are above the limit; 0 is none. */
KVT_MUST_CHECK enum kvt_status kvt_filled_check_memory(uint64_t limit, int64_t rows, int n_layers, uint64_t layer_bytes,
                                                       uint64_t more, struct kvt_error *err);

/* Attention of one query of d elements over n rows, in double precision. Rows past KVT_SOURCE_ROWS are the first ones again. score:
 * room for KVT_SOURCE_ROWS. */
void kvt_exact_attention(double *out, const float *q, const float *k, const float *v, ptrdiff_t stride, int64_t n,
                         int d, double *score);

/* Root mean square of what `out` (as from kvt_filled_attend of one row) is off attention over the first n of the source's rows in double
 * precision, over that of the latter. NOMEM. */
KVT_MUST_CHECK enum kvt_status kvt_source_error(double *error, const struct kvt_source *source, int64_t n, int gqa,
                                                const float *out, struct kvt_error *err);

#endif
