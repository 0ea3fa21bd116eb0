/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of backend/compute.h, as C sees them: pointers are the device's, launches go to a stream (a cudaStream_t).
 */
#ifndef BACKEND_CUDA_COMPUTE_H
#define BACKEND_CUDA_COMPUTE_H

#include "backend/compute.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of the backend's row (compute.c). */
extern const struct kvt_compute_ops kvt_cuda_compute;

enum kvt_status kvt_cuda_norm(const struct kvt_compute_norm *a, void *stream, struct kvt_error *err);
enum kvt_status kvt_cuda_heads(const struct kvt_compute_heads *a, void *stream, struct kvt_error *err);
enum kvt_status kvt_cuda_add(const struct kvt_compute_add *a, void *stream, struct kvt_error *err);
enum kvt_status kvt_cuda_gate(const struct kvt_compute_gate *a, void *stream, struct kvt_error *err);

/* Rows that one launch of kvt_cuda_products_few takes. */
enum { KVT_CUDA_FEW_ROWS = 8 };

/* Products of up to KVT_CUDA_FEW_ROWS rows with up to KVT_COMPUTE_OUTPUTS matrices: inputs in f32. A row's bits do not depend on how many
 * there are. Each matrix is read once, which is what bounds it. */
struct kvt_cuda_products {
    float *dst[KVT_COMPUTE_OUTPUTS];
    struct kvt_compute_matrix w[KVT_COMPUTE_OUTPUTS];
    int n_outputs, n_rows;
    const float *x;
};
enum kvt_status kvt_cuda_products_few(const struct kvt_cuda_products *a, void *stream, struct kvt_error *err);

/* Rows as f16 numbers, ld apart, the ones past n_in zero; each row divided by a power of two, its factor, where its largest number would
 * not do: too large, or so small that f16 has few bits left for the rest. */
struct kvt_cuda_round {
    uint16_t *halves;
    float *factors; /* of each row */
    const float *x;
    int n_rows;
    int64_t n_in, ld;
};
enum kvt_status kvt_cuda_round_rows(const struct kvt_cuda_round *a, void *stream, struct kvt_error *err);

/* Multiplies rows by their factors. */
struct kvt_cuda_restore {
    float *x;
    const float *factors;
    int n_rows;
    int64_t width;
};
enum kvt_status kvt_cuda_restore_rows(const struct kvt_cuda_restore *a, void *stream, struct kvt_error *err);

#ifdef __cplusplus
}
#endif
#endif
