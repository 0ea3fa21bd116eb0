/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend cuda's part of kvt_page_ops that is of pools, sequences and pages (pages.c); steps' is in pool.h.
 */
#ifndef BACKEND_CUDA_PAGES_H
#define BACKEND_CUDA_PAGES_H

#include "backend/cuda/pool.h"

/* Whether the device encodes what a plan has: UNSUPPORTED names layer and side. */
enum kvt_status kvt_cuda_pool_takes(const struct kvt_plan *plan, struct kvt_error *err);
enum kvt_status kvt_cuda_pool_open(struct kvt_pool *pool, const struct kvt_pool_options *options,
                                   struct kvt_error *err);
void kvt_cuda_pool_close(struct kvt_pool *pool);
uint64_t kvt_cuda_pool_reserved(struct kvt_pool *pool);
enum kvt_status kvt_cuda_seq_open(struct kvt_seq *seq, struct kvt_error *err);
void kvt_cuda_seq_close(struct kvt_seq *seq);
enum kvt_status kvt_cuda_page_take(struct kvt_pool *pool, size_t bytes, struct kvt_page **out, struct kvt_error *err);
void kvt_cuda_page_give(struct kvt_pool *pool, struct kvt_page *page, size_t bytes);
void kvt_cuda_page_copy(struct kvt_pool *pool, struct kvt_page *to, const struct kvt_page *from, size_t bytes);
void kvt_cuda_page_read(struct kvt_pool *pool, void *tiles, const struct kvt_page *page, size_t bytes);
void kvt_cuda_page_write(struct kvt_pool *pool, struct kvt_page *page, const void *tiles, size_t bytes);
void kvt_cuda_page_encode(struct kvt_pool *pool, const struct kvt_encode_args *args);
void kvt_cuda_page_decode(struct kvt_pool *pool, const struct kvt_tile *tile, float *rows, ptrdiff_t stride,
                          const void *bytes, int first, int n);

#endif
