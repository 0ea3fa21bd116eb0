/* SPDX-License-Identifier: Apache-2.0
 *
 * cuBLAS, found when it is needed: a build has no need of it, and a machine without it computes prompts more slowly.
 */
#ifndef BACKEND_CUDA_BLAS_H
#define BACKEND_CUDA_BLAS_H

#include "backend/compute.h"

struct kvt_cuda_blas;

/* Whether there is a library: UNSUPPORTED says what was looked for. */
KVT_MUST_CHECK enum kvt_status kvt_cuda_blas_find(struct kvt_error *err);

/* For products in the order of a stream (a cudaStream_t) of the thread's device. UNSUPPORTED where there is no library. */
KVT_MUST_CHECK enum kvt_status kvt_cuda_blas_open(struct kvt_cuda_blas **out, void *stream,
                                                  const struct kvt_allocator *allocator, struct kvt_error *err);
void kvt_cuda_blas_close(struct kvt_cuda_blas *blas); /* NULL is fine */

/* dst[t * w->n_out + o] = scale of w * (row o of w times row t of x), of n rows of f16 numbers, w->ld apart; sums in f32. */
KVT_MUST_CHECK enum kvt_status kvt_cuda_blas_product(struct kvt_cuda_blas *blas, float *dst,
                                                     const struct kvt_compute_matrix *w, const uint16_t *x, int n,
                                                     struct kvt_error *err);

#endif
