/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of a prompt over a cache on a device, for bench/cuda/prefill.py, which times it beside others in one process: a shared library.
 *
 * One sequence: some rows that are in the cache already, and a step of as many query rows as the prompt has, whose attention can be called
 * any number of times. A cache with the same rows in the process's memory says what they are when they are decoded.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "base/attr.h"
#include "base/half.h"
#include "base/rng.h"
#include "cache/cache.h"
#include "kvtile/kvtile.h"

enum { CPU, GPU, MAX_CASES = 64, CHUNK = 1024, N_CHECKED = 4 };

/* What prefill.py calls. A number for the case, or -1 with a sentence on stderr; queries are f16, the output is f32. */
KVT_API int bench_create(const char *kv, int d, int n_heads, int group, int n_before, int n_rows, int sink, int tail,
                         void *stream);
KVT_API int bench_attend(int id); /* 0: launched */
/* Root mean squares over a few query rows and heads; 0: done. */
KVT_API int bench_error(int id, double *kernel, double *codec);
KVT_API void bench_free(int id);

struct bench {
    int d, n_heads, group, n_before, n_rows;
    struct kvt_plan *plan;
    struct kvt_pool *pool[2];
    struct kvt_seq *seq[2];
    struct kvt_step *step[2];
    float *rows[KVT_SIDE_COUNT]; /* [row][head][d] */
    uint16_t *q;                 /* [row][query head][d] */
    struct kvt_cuda on;
    void *q_there, *out_there;
    struct kvt_attend attend;
};

static struct bench *cases[MAX_CASES];
static struct kvt_error err;

static void must(enum kvt_status status) {
    if (status == KVT_OK) return;
    fprintf(stderr, "%s\n", err.text);
    exit(1);
}

static void *take(size_t n, size_t bytes) {
    void *p = calloc(n ? n : 1, bytes);
    if (!p) abort();
    return p;
}

/* Rows [first, first + n) to both caches; the last call's step stays open. */
static void append(struct bench *b, int first, int n, bool is_last) {
    const ptrdiff_t row = (ptrdiff_t)b->n_heads * b->d;
    const struct kvt_rows k = {b->rows[0] + first * row, KVT_TYPE_F32, row, b->d},
                          v = {b->rows[1] + first * row, KVT_TYPE_F32, row, b->d};
    for (int p = 0; p < 2; p++) {
        must(kvt_step_begin(b->step[p], &b->seq[p], &n, 1, &err));
        must(kvt_step_append(b->step[p], 0, &k, &v, NULL, 0, &err));
        if (!is_last || p == CPU) must(kvt_step_end(b->step[p], &err));
    }
}

int bench_create(const char *kv, int d, int n_heads, int group, int n_before, int n_rows, int sink, int tail,
                 void *stream) {
    int id = 0;
    while (id < MAX_CASES && cases[id]) id++;
    if (id == MAX_CASES) return -1;
    struct bench *b = cases[id] = take(1, sizeof *b);
    *b = (struct bench){.d = d, .n_heads = n_heads, .group = group, .n_before = n_before, .n_rows = n_rows};
    const struct kvt_layer_shape layer = {n_heads, d, d, 0};
    const struct kvt_plan_options options = {.struct_size = sizeof options, .kv = kv, .sink = sink, .tail = tail};
    must(kvt_plan_create(&b->plan, &(struct kvt_shape){1, &layer}, &options, NULL, &err));
    for (int p = 0; p < 2; p++) {
        const struct kvt_pool_options on = {
            .struct_size = sizeof on, .backend = p == GPU ? "cuda" : "cpu", .stream = p == GPU ? stream : NULL};
        must(kvt_pool_create(&b->pool[p], b->plan, &on, &err));
        must(kvt_seq_create(&b->seq[p], b->pool[p], n_before + n_rows, &err));
        must(kvt_step_create(&b->step[p], b->pool[p], 1, KVT_MAX(CHUNK, n_rows), &err));
    }
    struct kvt_rng rng = {11};
    float normal[4096]; /* drawn from, which is faster than drawing each anew */
    for (size_t i = 0; i < KVT_ARRAY_LEN(normal); i++)
        normal[i] = kvt_f32_from_f16(kvt_f16_from_f32(kvt_rng_normal(&rng)));
    const size_t n = (size_t)(n_before + n_rows) * (size_t)(n_heads * d), n_q = (size_t)(n_rows * n_heads * group * d);
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        b->rows[side] = take(n, sizeof(float));
        for (size_t i = 0; i < n; i++) b->rows[side][i] = normal[kvt_rng_below(&rng, KVT_ARRAY_LEN(normal))];
    }
    b->q = take(n_q, sizeof *b->q);
    for (size_t i = 0; i < n_q; i++) b->q[i] = kvt_f16_from_f32(normal[kvt_rng_below(&rng, KVT_ARRAY_LEN(normal))]);
    for (int first = 0; first < n_before; first += CHUNK) append(b, first, KVT_MIN(CHUNK, n_before - first), false);
    append(b, n_before, n_rows, true);
    must(kvt_cuda_open(&b->on, 0, stream, &err));
    must(kvt_cuda_take(&b->on, &b->q_there, n_q * sizeof *b->q, &err));
    must(kvt_cuda_take(&b->on, &b->out_there, n_q * sizeof(float), &err));
    must(kvt_cuda_copy(&b->on, b->q_there, b->q, n_q * sizeof *b->q, &err));
    must(kvt_cuda_wait(&b->on, &err));
    const ptrdiff_t row = (ptrdiff_t)d * n_heads * group;
    b->attend = (struct kvt_attend){.struct_size = sizeof b->attend,
                                    .n_q_heads = n_heads * group,
                                    .scale = 1 / sqrtf((float)d),
                                    .q = {b->q_there, KVT_TYPE_F16, row, d},
                                    .out = b->out_there,
                                    .out_row_stride = row,
                                    .out_head_stride = d};
    return id;
}

int bench_attend(int id) {
    const enum kvt_status status = kvt_step_attend(cases[id]->step[GPU], 0, &cases[id]->attend, &err);
    if (status != KVT_OK) fprintf(stderr, "%s\n", err.text);
    return status;
}

/* Double precision, over rows as they were appended or as they are decoded. */
static void attend(const struct bench *b, int head, int64_t p, const uint16_t *q, bool decoded, double *out) {
    const struct kvt_layer *layer = &b->plan->layers[0];
    const struct kvt_page_shape *shape = &layer->page[KVT_REGION_BODY];
    const int d = b->d;
    double most = -1e300, sum = 0, *w = take((size_t)(p + 1), sizeof *w);
    float *row = take((size_t)d, sizeof *row);
    for (int side = 0; side < KVT_SIDE_COUNT; side++)
        for (int64_t r = 0; r <= p; r++) {
            const bool in_body = r >= layer->plan.sink && r < kvt_layer_body_end(layer, p + 1);
            const float *x = b->rows[side] + (r * b->n_heads + head) * d;
            if (in_body && decoded) {
                const struct kvt_page *page = b->seq[CPU]->layers[0].list[KVT_REGION_BODY].pages[r / KVT_TILE_ROWS];
                kvt_tile_decode(&shape->tile[side], row, d, kvt_page_tile(page, shape, head, (enum kvt_side)side),
                                (int)(r % KVT_TILE_ROWS), 1);
                x = row;
            }
            if (side == KVT_SIDE_K) {
                for (int c = 0; c < d; c++) w[r] += (double)kvt_f32_from_f16(q[c]) * x[c];
                w[r] /= sqrt(d);
                most = fmax(most, w[r]);
            } else {
                const double e = exp(w[r] - most);
                sum += e;
                for (int c = 0; c < d; c++) out[c] += e * x[c];
            }
        }
    for (int c = 0; c < d; c++) out[c] /= sum;
    free(w);
    free(row);
}

int bench_error(int id, double *kernel, double *codec) {
    const struct bench *b = cases[id];
    const size_t n_q = (size_t)(b->n_rows * b->n_heads * b->group * b->d);
    float *out = take(n_q, sizeof *out);
    must(kvt_cuda_fill(&b->on, b->out_there, 0, n_q * sizeof *out, &err));
    if (bench_attend(id)) return -1;
    must(kvt_cuda_copy(&b->on, out, b->out_there, n_q * sizeof *out, &err));
    must(kvt_cuda_wait(&b->on, &err));
    *kernel = *codec = 0;
    for (int i = 0; i < N_CHECKED; i++) {
        const int row = (int)((int64_t)(b->n_rows - 1) * i / (N_CHECKED - 1)),
                  head = i * (b->n_heads - 1) / (N_CHECKED - 1);
        const size_t at = ((size_t)row * (size_t)(b->n_heads * b->group) + (size_t)(head * b->group)) * (size_t)b->d;
        double want[256] = {0}, exact[256] = {0};
        attend(b, head, b->n_before + row, b->q + at, true, want);
        attend(b, head, b->n_before + row, b->q + at, false, exact);
        for (int c = 0; c < b->d; c++) {
            *kernel += (out[at + (size_t)c] - want[c]) * (out[at + (size_t)c] - want[c]) / (N_CHECKED * b->d);
            *codec += (want[c] - exact[c]) * (want[c] - exact[c]) / (N_CHECKED * b->d);
        }
    }
    *kernel = sqrt(*kernel);
    *codec = sqrt(*codec);
    free(out);
    return 0;
}

void bench_free(int id) {
    struct bench *b = cases[id];
    kvt_step_abandon(b->step[GPU]);
    for (int p = 0; p < 2; p++) {
        kvt_seq_destroy(b->seq[p]);
        kvt_step_destroy(b->step[p]);
        kvt_pool_destroy(b->pool[p]);
    }
    kvt_plan_destroy(b->plan);
    kvt_cuda_give(&b->on, b->q_there);
    kvt_cuda_give(&b->on, b->out_there);
    kvt_cuda_close(&b->on);
    free(b->rows[0]), free(b->rows[1]), free(b->q), free(b);
    cases[id] = NULL;
}
