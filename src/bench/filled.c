/* SPDX-License-Identifier: Apache-2.0
 * Caches that are filled for real. */
#include "bench/filled.h"

#include <math.h>

#include "base/alloc.h"
#include "base/attr.h"
#include "base/check.h"
#include "base/rng.h"

static size_t row_of(const struct kvt_source *s) { return (size_t)(s->kv_heads * s->head_size); }

/* Of all query vectors. */
static size_t n_query_floats(const struct kvt_source *s) {
    return row_of(s) * KVT_BENCH_GQA_MAX * (size_t)s->n_queries;
}

enum kvt_status kvt_source_create(struct kvt_source *out, int kv_heads, int head_size, int n_queries,
                                  struct kvt_error *err) {
    struct kvt_source s = {.kv_heads = kv_heads, .head_size = head_size, .n_queries = n_queries};
    struct kvt_rng rng = {20261130};
    const size_t row = row_of(&s), n = KVT_SOURCE_ROWS * row;
    bool all = true;
    for (int side = 0; side < KVT_SIDE_COUNT; side++)
        all = (s.rows[side] = kvt_take(&kvt_allocator_libc, n, sizeof(float))) && all;
    s.queries = kvt_take(&kvt_allocator_libc, n_query_floats(&s), sizeof *s.queries);
    if (!all || !s.queries) {
        kvt_source_finish(&s);
        return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the rows to measure with");
    }
    float *k = s.rows[KVT_SIDE_K], *v = s.rows[KVT_SIDE_V], *bias = s.queries;
    for (size_t i = 0; i < row; i++) bias[i] = kvt_rng_normal(&rng);
    for (size_t i = 0; i < n; i++) k[i] = kvt_rng_normal(&rng) + bias[i % row];
    for (size_t i = 0; i < n; i++) v[i] = kvt_rng_normal(&rng);
    for (size_t i = 0; i < n_query_floats(&s); i++) s.queries[i] = kvt_rng_normal(&rng);
    *out = s;
    return KVT_OK;
}

void kvt_source_finish(struct kvt_source *s) {
    const size_t row = row_of(s);
    for (int side = 0; side < KVT_SIDE_COUNT; side++)
        kvt_give(&kvt_allocator_libc, s->rows[side], KVT_SOURCE_ROWS * row, sizeof(float));
    kvt_give(&kvt_allocator_libc, s->queries, n_query_floats(s), sizeof *s->queries);
    *s = (struct kvt_source){0};
}

/* ---- caches ------------------------------------------------------------------------------------------------------------ */

static enum kvt_status make_plan(struct kvt_plan **out, const struct kvt_source *s, const char *kv, int n_layers,
                                 struct kvt_error *err) {
    struct kvt_layer_shape layers[KVT_FILLED_LAYERS_MAX];
    for (int l = 0; l < n_layers; l++)
        layers[l] = (struct kvt_layer_shape){.n_kv_heads = s->kv_heads, .k_size = s->head_size, .v_size = s->head_size};
    const struct kvt_shape shape = {n_layers, layers};
    const struct kvt_plan_options options = {.struct_size = sizeof options, .kv = kv};
    return kvt_plan_create(out, &shape, &options, NULL, err);
}

enum kvt_status kvt_filled_layer_bytes(uint64_t *out, const struct kvt_source *s, const char *kv, int64_t rows,
                                       struct kvt_error *err) {
    struct kvt_plan *plan;
    KVT_TRY(make_plan(&plan, s, kv, 1, err));
    *out = kvt_plan_bytes(plan, rows);
    kvt_plan_destroy(plan);
    return KVT_OK;
}

enum kvt_status kvt_filled_check_memory(uint64_t limit, int64_t rows, int n_layers, uint64_t layer_bytes, uint64_t more,
                                        struct kvt_error *err) {
    const double need = (double)n_layers * (double)layer_bytes + (double)more;
    if (limit == 0 || need <= (double)limit) return KVT_OK;
    return kvt_fail(err, KVT_ERR_LIMIT,
                    "caches of %lld rows take %.0f MiB to measure (%d layers of each), and there are %.0f MiB: take "
                    "fewer rows or caches, or rotate less memory",
                    (long long)rows, need / (1 << 20), n_layers, (double)limit / (1 << 20));
}

enum kvt_status kvt_filled_begin(struct kvt_filled *c, int n, struct kvt_error *err) {
    c->n_step = n;
    return kvt_step_begin(c->step, &c->seq, &n, 1, err);
}

enum kvt_status kvt_filled_append(struct kvt_filled *c, int layer, struct kvt_error *err) {
    const struct kvt_source *s = c->source;
    const int d = s->head_size, row = s->kv_heads * d;
    const int at = (int)(kvt_seq_n_rows(c->seq) % KVT_SOURCE_ROWS);
    const ptrdiff_t first = at + c->n_step <= KVT_SOURCE_ROWS ? (ptrdiff_t)at * row : 0;
    const struct kvt_rows k = {s->rows[KVT_SIDE_K] + first, KVT_TYPE_F32, row, d};
    const struct kvt_rows v = {s->rows[KVT_SIDE_V] + first, KVT_TYPE_F32, row, d};
    /* Codecs that look at queries get the values as such, one head of them for each KV head: normal, and not those that attend. */
    const struct kvt_layer_plan *plan = kvt_plan_layer(c->plan, layer);
    const bool by_queries = kvt_codec_info(plan->codec[KVT_SIDE_K]).queries;
    return kvt_step_append(c->step, layer, &k, &v, by_queries ? &v : NULL, by_queries ? s->kv_heads : 0, err);
}

enum kvt_status kvt_filled_attend(struct kvt_filled *c, int layer, int gqa, float *out, struct kvt_error *err) {
    const int d = c->source->head_size, heads = c->source->kv_heads * gqa;
    const struct kvt_attend a = {.struct_size = sizeof a,
                                 .n_q_heads = heads,
                                 .scale = 1 / sqrtf((float)d),
                                 .q = {c->source->queries, KVT_TYPE_F32, heads * d, d},
                                 .out = out,
                                 .out_row_stride = heads * d,
                                 .out_head_stride = d};
    return kvt_step_attend(c->step, layer, &a, err);
}

enum kvt_status kvt_filled_open(struct kvt_filled *c, const struct kvt_source *s, const struct kvt_filled_options *o,
                                struct kvt_error *err) {
    *c = (struct kvt_filled){.source = s, .n_layers = o->n_layers};
    KVT_TRY(make_plan(&c->plan, s, o->kv, o->n_layers, err));
    const struct kvt_pool_options pool = {.struct_size = sizeof pool, .level = o->level, .parallel = o->parallel};
    KVT_TRY(kvt_pool_create(&c->pool, c->plan, &pool, err));
    KVT_TRY(kvt_seq_create(&c->seq, c->pool, o->max_rows, err));
    KVT_TRY(kvt_step_create(&c->step, c->pool, 1, KVT_SOURCE_ROWS, err));
    for (int64_t done = 0; done < o->rows;) {
        const int n = (int)KVT_MIN(o->rows - done, KVT_SOURCE_ROWS);
        KVT_TRY(kvt_filled_begin(c, n, err));
        for (int l = 0; l < c->n_layers; l++) KVT_TRY(kvt_filled_append(c, l, err));
        KVT_TRY(kvt_step_end(c->step, err));
        done += n;
        if (!kvt_progress_report(o->progress, "filling caches", (uint64_t)(o->part * o->rows + done),
                                 (uint64_t)(KVT_MAX(o->n_parts, 1) * o->rows)))
            return kvt_fail(err, KVT_ERR_CANCELLED, "cancelled");
    }
    return KVT_OK;
}

void kvt_filled_close(struct kvt_filled *c) {
    if (c->step) kvt_step_abandon(c->step);
    kvt_step_destroy(c->step);
    kvt_seq_destroy(c->seq);
    kvt_pool_destroy(c->pool);
    kvt_plan_destroy(c->plan);
    *c = (struct kvt_filled){0};
}

/* ---- error ------------------------------------------------------------------------------------------------------------- */

void kvt_exact_attention(double *out, const float *q, const float *k, const float *v, ptrdiff_t stride, int64_t n,
                         int d, double *score) {
    const int n_rows = (int)KVT_MIN(n, KVT_SOURCE_ROWS);
    double top = -INFINITY, sum = 0;
    for (int r = 0; r < n_rows; r++) {
        score[r] = 0;
        for (int c = 0; c < d; c++) score[r] += (double)q[c] * (double)k[r * stride + c];
        score[r] /= sqrt(d);
        top = score[r] > top ? score[r] : top;
    }
    for (int c = 0; c < d; c++) out[c] = 0;
    for (int r = 0; r < n_rows; r++) {
        const int64_t times = (n - r + KVT_SOURCE_ROWS - 1) / KVT_SOURCE_ROWS; /* that the row occurs */
        const double w = exp(score[r] - top) * (double)times;
        sum += w;
        for (int c = 0; c < d; c++) out[c] += w * (double)v[r * stride + c];
    }
    for (int c = 0; c < d; c++) out[c] /= sum;
}

enum kvt_status kvt_source_error(double *error, const struct kvt_source *s, int64_t n, int gqa, const float *out,
                                 struct kvt_error *err) {
    const int d = s->head_size;
    const size_t n_work = (size_t)(KVT_SOURCE_ROWS + d);
    double *work = kvt_take(&kvt_allocator_libc, n_work, sizeof *work), off = 0, all = 0;
    if (!work) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the oracle");
    for (int h = 0; h < s->kv_heads * gqa; h++) {
        double *right = work + KVT_SOURCE_ROWS;
        const float *k = s->rows[KVT_SIDE_K] + h / gqa * d, *v = s->rows[KVT_SIDE_V] + h / gqa * d;
        kvt_exact_attention(right, s->queries + h * d, k, v, (ptrdiff_t)row_of(s), n, d, work);
        for (int c = 0; c < d; c++) {
            off += pow((double)out[h * d + c] - right[c], 2);
            all += right[c] * right[c];
        }
    }
    kvt_give(&kvt_allocator_libc, work, n_work, sizeof *work);
    *error = sqrt(off / all);
    return KVT_OK;
}
