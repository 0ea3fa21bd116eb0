/* SPDX-License-Identifier: Apache-2.0
 *
 * What the backend cuda keeps with a pool, its sequences and its steps. C; a page's header is in the process's memory, its tiles are in
 * the device's.
 */
#ifndef BACKEND_CUDA_POOL_H
#define BACKEND_CUDA_POOL_H

#include <pthread.h>

#include "backend/cuda/attend_step.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/encode.h"
#include "backend/slab.h"

/* pool->device */
struct kvt_cuda_pool {
    struct kvt_cuda on;
    pthread_mutex_t lock; /* of slabs and staging */
    struct kvt_slabs slabs;
    void *staging; /* pinned: room for one tile */
    size_t staging_bytes;
};

static inline struct kvt_cuda_pool *kvt_cuda_pool_of(const struct kvt_pool *pool) { return pool->device; }

/* The table of a sequence's pages on the device (seq->device) is as the one in the process's memory (seq->table), but that it has the
 * addresses of pages' tiles, NULL where there is no page. Brought up to date when a step begins; this is the list of one region, entry t
 * for tile t. */
static inline void **kvt_cuda_list(const struct kvt_seq *seq, int layer, enum kvt_region region) {
    return (void **)seq->device + (seq->layers[layer].list[region].pages - seq->table);
}

/* What a layer is given. */
enum kvt_cuda_given { KVT_CUDA_K, KVT_CUDA_V, KVT_CUDA_Q, KVT_CUDA_GIVEN };

/* step->device */
struct kvt_cuda_step {
    char *host;   /* jobs, gathered here */
    void *device; /* and sent here */
    size_t bytes, filled;
    uint64_t *bad_host, *bad;   /* by layer and what they were in, process and device */
    void *rows[KVT_CUDA_GIVEN]; /* device: rows that came in the process's memory */
    size_t rows_bytes[KVT_CUDA_GIVEN];
    void *wide_queries; /* device: queries as they are kept, in floats */
    int64_t *positions; /* device: of the step's rows, where queries are kept */
    struct kvt_cuda_attention attention;
};

/* The parts of kvt_page_ops that are of steps (step.c). */
enum kvt_status kvt_cuda_step_open(struct kvt_step *step, struct kvt_error *err);
void kvt_cuda_step_close(struct kvt_step *step);
enum kvt_status kvt_cuda_step_begin(struct kvt_step *step, struct kvt_error *err);
enum kvt_status kvt_cuda_step_end(struct kvt_step *step, struct kvt_error *err);
enum kvt_status kvt_cuda_step_append(struct kvt_step *step, int layer, const struct kvt_append *given,
                                     struct kvt_error *err);

/* Passes a status and its sentence on; one that the device is to blame for loses the pool. */
enum kvt_status kvt_cuda_done(struct kvt_pool *pool, enum kvt_status status, const struct kvt_error *why,
                              struct kvt_error *err);

#endif
