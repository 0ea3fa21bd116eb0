/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU: pages in the process's memory.
 */
#include "backend/backend.h"

static void *take(struct kvt_pool *pool, size_t bytes) { return kvt_take_zero(&pool->allocator, bytes, 1); }

static void give(struct kvt_pool *pool, void *page, size_t bytes) { kvt_give(&pool->allocator, page, bytes, 1); }

static void encode(struct kvt_pool *pool, const struct kvt_codec *codec, const struct kvt_tile *tile, void *bytes,
                   int first, int n, const float *rows, ptrdiff_t stride) {
    (void)pool;
    kvt_tile_encode(codec, tile, bytes, first, n, rows, stride);
}

static void decode(struct kvt_pool *pool, const struct kvt_tile *tile, float *rows, ptrdiff_t stride, const void *bytes,
                   int first, int n) {
    (void)pool;
    kvt_tile_decode(tile, rows, stride, bytes, first, n);
}

extern const struct kvt_backend kvt_backend_cpu;
const struct kvt_backend kvt_backend_cpu = {
    .name = "cpu",
    .about = "the processor, pages in main memory",
    .pages = {take, give, encode, decode},
    .attend = kvt_attention_run,
};
