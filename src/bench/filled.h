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
 * have a bias in each channel, as those of models do. The queries are of KVT_BENCH_GQA_MAX heads per KV head. */
struct kvt_source {
    int kv_heads, head_size;
    float *rows[KVT_SIDE_COUNT], *queries;
};
KVT_MUST_CHECK enum kvt_status kvt_source_create(struct kvt_source *out, int kv_heads, int head_size,
                                                 struct kvt_error *err);
void kvt_source_finish(struct kvt_source *source);

/* A cache of some layers, all alike, and the step that appends to it. */
struct kvt_filled {
    const struct kvt_source *source;
    struct kvt_plan *plan;
    struct kvt_pool *pool;
    struct kvt_seq *seq;
    struct kvt_step *step;
    int n_layers;
};

struct kvt_filled_options {
    const char *kv;
    int64_t rows, max_rows; /* to fill it with; that it will have at most */
    int n_layers;
    const char *level;
    const struct kvt_parallel *parallel;
    const struct kvt_progress *progress;
};

/* ARG or UNSUPPORTED for a cache that cannot be, NOMEM, CANCELLED. Close it in any case. */
KVT_MUST_CHECK enum kvt_status kvt_filled_open(struct kvt_filled *out, const struct kvt_source *source,
                                               const struct kvt_filled_options *options, struct kvt_error *err);
void kvt_filled_close(struct kvt_filled *cache);
/* Begins a step of n rows, the ones that come next; they must not go past a multiple of KVT_SOURCE_ROWS. */
KVT_MUST_CHECK enum kvt_status kvt_filled_begin(struct kvt_filled *cache, int n, struct kvt_error *err);
/* The step's rows of one layer. */
KVT_MUST_CHECK enum kvt_status kvt_filled_append(struct kvt_filled *cache, int layer, struct kvt_error *err);
/* Attention of the source's query row with gqa heads per KV head. out: kv_heads * gqa heads, one after another. */
KVT_MUST_CHECK enum kvt_status kvt_filled_attend(struct kvt_filled *cache, int layer, int gqa, float *out,
                                                 struct kvt_error *err);

/* Bytes of one layer of a cache of so many rows. */
KVT_MUST_CHECK enum kvt_status kvt_filled_layer_bytes(uint64_t *out, const struct kvt_source *source, const char *kv,
                                                      int64_t rows, struct kvt_error *err);

/* Root mean square of what `out` (as from kvt_filled_attend) is off attention over the first n of the source's rows in double
 * precision, over that of the latter. NOMEM. */
KVT_MUST_CHECK enum kvt_status kvt_source_error(double *error, const struct kvt_source *source, int64_t n, int gqa,
                                                const float *out, struct kvt_error *err);

#endif
