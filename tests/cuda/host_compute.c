/* SPDX-License-Identifier: Apache-2.0
 *
 * backend/cuda/compute.h and blas.h over the process's memory: what they say, as loops. cuBLAS is there unless the test says no.
 */
#include <math.h>
#include <stdlib.h>

#include "backend/cuda/blas.h"
#include "backend/cuda/compute.h"
#include "base/alloc.h"
#include "base/check.h"
#include "base/half.h"
#include "base/num.h"
#include "cuda/host_device.h"

enum { LANES = 16, MOST_IN = 512 };

static void norm_row(float *dst, const float *x, const float *weight, int n, float eps) {
    float lane[LANES] = {0};
    double sum = 0;
    int i = 0;
    for (; i < n / LANES * LANES; i++) lane[i % LANES] += x[i] * x[i];
    for (int j = 0; j < LANES; j++) sum += (double)lane[j];
    for (; i < n; i++) sum += (double)(x[i] * x[i]);
    const float scale = (float)(1 / sqrt(sum / n + (double)eps));
    for (i = 0; i < n; i++) dst[i] = x[i] * scale * weight[i];
}

enum kvt_status kvt_cuda_norm(const struct kvt_compute_norm *a, void *stream, struct kvt_error *err) {
    (void)stream;
    KVT_TRY(host_device_call(err));
    for (ptrdiff_t r = 0; r < a->n_rows; r++)
        norm_row(a->dst + r * a->width, a->x + r * a->width, a->weight, a->width, a->eps);
    return KVT_OK;
}

static void turn(float *x, const struct kvt_compute_heads *a, const float *table) {
    const int half = a->n_rot / 2;
    for (int i = 0; i < half; i++) {
        float *first = x + (a->neighbours ? 2 * i : i), *second = first + (a->neighbours ? 1 : half);
        const float u = *first, v = *second;
        *first = u * table[i] - v * table[half + i];
        *second = u * table[half + i] + v * table[i];
    }
}

enum kvt_status kvt_cuda_heads(const struct kvt_compute_heads *a, void *stream, struct kvt_error *err) {
    (void)stream;
    KVT_TRY(host_device_call(err));
    for (int i = 0; i < a->n_parts; i++)
        for (ptrdiff_t r = 0; r < a->n_rows; r++)
            for (int h = 0; h < a->parts[i].n_heads; h++) {
                const struct kvt_compute_part *p = &a->parts[i];
                float *x = p->x + (r * p->n_heads + h) * p->size;
                for (int c = 0; p->bias && c < p->size; c++) x[c] += p->bias[h * p->size + c];
                if (p->norm) norm_row(x, x, p->norm, p->size, a->eps);
                if (p->turned) turn(x, a, a->tables + r * a->n_rot);
            }
    return KVT_OK;
}

enum kvt_status kvt_cuda_add(const struct kvt_compute_add *a, void *stream, struct kvt_error *err) {
    (void)stream;
    KVT_TRY(host_device_call(err));
    for (ptrdiff_t i = 0; i < (ptrdiff_t)a->n_rows * a->width; i++)
        a->x[i] += a->bias ? a->h[i] + a->bias[i % a->width] : a->h[i];
    return KVT_OK;
}

enum kvt_status kvt_cuda_gate(const struct kvt_compute_gate *a, void *stream, struct kvt_error *err) {
    (void)stream;
    KVT_TRY(host_device_call(err));
    for (ptrdiff_t i = 0; i < a->n; i++) a->gate[i] = a->gate[i] / (1.0f + kvt_exp(-a->gate[i])) * a->up[i];
    return KVT_OK;
}

/* Row o of a matrix as floats. */
static void read_row(float *to, const struct kvt_compute_matrix *w, int64_t o) {
    if (w->n_in > MOST_IN) abort();
    for (int64_t c = 0; c < w->n_in; c++) to[c] = kvt_f32_from_f16(w->halves[o * w->ld + c]);
}

static float dot(const float *row, const float *x, int64_t n) {
    float sum = 0;
    for (int64_t c = 0; c < n; c++) sum += row[c] * x[c];
    return sum;
}

enum kvt_status kvt_cuda_products_few(const struct kvt_cuda_products *a, void *stream, struct kvt_error *err) {
    float row[MOST_IN];
    (void)stream;
    KVT_TRY(host_device_call(err));
    if (a->n_rows > KVT_CUDA_FEW_ROWS) abort();
    for (int i = 0; i < a->n_outputs; i++)
        for (int64_t o = 0; o < a->w[i].n_out; o++) {
            read_row(row, &a->w[i], o);
            for (int t = 0; t < a->n_rows; t++)
                a->dst[i][t * a->w[i].n_out + o] = dot(row, a->x + t * a->w[i].n_in, a->w[i].n_in) * a->w[i].scale;
        }
    return KVT_OK;
}

enum kvt_status kvt_cuda_round_rows(const struct kvt_cuda_round *a, void *stream, struct kvt_error *err) {
    (void)stream;
    KVT_TRY(host_device_call(err));
    for (ptrdiff_t r = 0; r < a->n_rows; r++) {
        a->factors[r] = r % 2 ? 4 : 1; /* any power of two does here */
        for (int64_t c = 0; c < a->ld; c++)
            a->halves[r * a->ld + c] = c < a->n_in ? kvt_f16_from_f32(a->x[r * a->n_in + c] / a->factors[r]) : 0;
    }
    return KVT_OK;
}

enum kvt_status kvt_cuda_restore_rows(const struct kvt_cuda_restore *a, void *stream, struct kvt_error *err) {
    (void)stream;
    KVT_TRY(host_device_call(err));
    for (ptrdiff_t i = 0; i < a->n_rows * a->width; i++) a->x[i] *= a->factors[i / a->width];
    return KVT_OK;
}

/* ---- cuBLAS ------------------------------------------------------------------------------------------------------------- */

struct kvt_cuda_blas {
    struct kvt_allocator allocator;
};

enum kvt_status kvt_cuda_blas_find(struct kvt_error *err) {
    return host_device.no_blas ? kvt_fail(err, KVT_ERR_UNSUPPORTED, "this test has no cuBLAS") : KVT_OK;
}

enum kvt_status kvt_cuda_blas_open(struct kvt_cuda_blas **out, void *stream, const struct kvt_allocator *allocator,
                                   struct kvt_error *err) {
    (void)stream;
    KVT_TRY(kvt_cuda_blas_find(err));
    struct kvt_cuda_blas *blas = kvt_take_zero(allocator, 1, sizeof *blas);
    if (!blas) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for cuBLAS");
    blas->allocator = *allocator;
    *out = blas;
    return KVT_OK;
}

void kvt_cuda_blas_close(struct kvt_cuda_blas *blas) {
    if (!blas) return;
    const struct kvt_allocator allocator = blas->allocator;
    kvt_give(&allocator, blas, 1, sizeof *blas);
}

enum kvt_status kvt_cuda_blas_product(struct kvt_cuda_blas *blas, float *dst, const struct kvt_compute_matrix *w,
                                      const uint16_t *x, int n, struct kvt_error *err) {
    float row[MOST_IN], *in = malloc((size_t)(n * w->n_in) * sizeof *in);
    const struct kvt_compute_matrix inputs = {x, 1, w->n_in, n, w->ld};
    (void)blas;
    if (!in) abort();
    for (ptrdiff_t t = 0; t < n; t++) read_row(in + t * w->n_in, &inputs, t);
    for (int64_t o = 0; o < w->n_out; o++) {
        read_row(row, w, o);
        for (ptrdiff_t t = 0; t < n; t++) dst[t * w->n_out + o] = dot(row, in + t * w->n_in, w->n_in) * w->scale;
    }
    free(in);
    return host_device_call(err);
}
