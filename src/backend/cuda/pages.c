/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages in a device's memory.
 */
#include "backend/cuda/pages.h"

#include <string.h>

#include "base/check.h"

enum kvt_status kvt_cuda_done(struct kvt_pool *pool, enum kvt_status status, const struct kvt_error *why,
                              struct kvt_error *err) {
    if (status == KVT_OK) return KVT_OK;
    if (status == KVT_ERR_DEVICE) {
        kvt_pool_lose(pool, why);
        return kvt_pool_check(pool, err);
    }
    return kvt_fail(err, status, "%s", why->text);
}

/* Of an operation that returns nothing. */
static void lose_if(struct kvt_pool *pool, enum kvt_status status, const struct kvt_error *err) {
    if (status != KVT_OK) kvt_pool_lose(pool, err);
}

/* ---- the pool's own ---------------------------------------------------------------------------------------------------- */

enum kvt_status kvt_cuda_pool_takes(const struct kvt_plan *plan, struct kvt_error *err) {
    for (int l = 0; l < plan->n_layers; l++)
        for (int i = 0; i < KVT_SIDE_COUNT; i++) {
            const struct kvt_layer_plan *layer = &plan->layers[l].plan;
            const int d = i == KVT_SIDE_K ? layer->shape.k_size : layer->shape.v_size;
            struct kvt_error why;
            if (kvt_cuda_can_encode(layer->codec[i], (enum kvt_side)i, d, &why) != KVT_OK)
                return kvt_fail(err, KVT_ERR_UNSUPPORTED, "layer %d, %s: %s", l, i == KVT_SIDE_K ? "K" : "V", why.text);
        }
    return KVT_OK;
}

static enum kvt_status take_slab(void *arg, void **out, size_t bytes, struct kvt_error *err) {
    return kvt_cuda_take(&((struct kvt_cuda_pool *)arg)->on, out, bytes, err);
}

static void give_slab(void *arg, void *memory) { kvt_cuda_give(&((struct kvt_cuda_pool *)arg)->on, memory); }

static size_t largest_tile(const struct kvt_plan *plan) {
    size_t most = 0;
    for (int l = 0; l < plan->n_layers; l++)
        for (int region = 0; region < KVT_REGION_COUNT; region++)
            most = KVT_MAX(most, plan->layers[l].page[region].bytes);
    return most;
}

static enum kvt_status open_device(struct kvt_cuda_pool *own, struct kvt_pool *pool,
                                   const struct kvt_pool_options *options, struct kvt_error *err) {
    KVT_TRY(kvt_cuda_open(&own->on, options->device, options->stream, err));
    const struct kvt_slab_source source = {own, take_slab, give_slab};
    own->staging_bytes = largest_tile(pool->plan);
    enum kvt_status status = kvt_cuda_take_pinned(&own->on, &own->staging, own->staging_bytes, err);
    if (status == KVT_OK)
        status = kvt_slabs_init(&own->slabs, &pool->allocator, &source, pool->plan->n_layers * KVT_REGION_COUNT, err);
    if (status == KVT_OK) return KVT_OK;
    kvt_cuda_give_pinned(&own->on, own->staging);
    kvt_cuda_close(&own->on);
    return status;
}

enum kvt_status kvt_cuda_pool_open(struct kvt_pool *pool, const struct kvt_pool_options *options,
                                   struct kvt_error *err) {
    KVT_TRY(kvt_cuda_pool_takes(pool->plan, err));
    struct kvt_cuda_pool *own = kvt_take_zero(&pool->allocator, 1, sizeof *own);
    if (!own) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for a pool of pages on a device");
    const enum kvt_status status = open_device(own, pool, options, err);
    if (status != KVT_OK) {
        kvt_give(&pool->allocator, own, 1, sizeof *own);
        return status;
    }
    pthread_mutex_init(&own->lock, NULL);
    pool->device = own;
    return KVT_OK;
}

void kvt_cuda_pool_close(struct kvt_pool *pool) {
    struct kvt_cuda_pool *own = kvt_cuda_pool_of(pool);
    kvt_slabs_finish(&own->slabs);
    kvt_cuda_give_pinned(&own->on, own->staging);
    kvt_cuda_close(&own->on);
    pthread_mutex_destroy(&own->lock);
    kvt_give(&pool->allocator, own, 1, sizeof *own);
}

uint64_t kvt_cuda_pool_reserved(struct kvt_pool *pool) {
    struct kvt_cuda_pool *own = kvt_cuda_pool_of(pool);
    pthread_mutex_lock(&own->lock);
    const uint64_t bytes = own->slabs.reserved;
    pthread_mutex_unlock(&own->lock);
    return bytes;
}

/* ---- sequences --------------------------------------------------------------------------------------------------------- */

enum kvt_status kvt_cuda_seq_open(struct kvt_seq *seq, struct kvt_error *err) {
    const struct kvt_cuda_pool *own = kvt_cuda_pool_of(seq->pool);
    const size_t bytes = kvt_seq_table_len(seq->pool->plan, seq->n_tiles) * sizeof(void *);
    struct kvt_error why;
    KVT_TRY(kvt_pool_check(seq->pool, err));
    enum kvt_status status = kvt_cuda_take_table(&own->on, &seq->device, bytes, &why);
    if (status == KVT_OK) status = kvt_cuda_fill(&own->on, seq->device, 0, bytes, &why);
    return kvt_cuda_done(seq->pool, status, &why, err);
}

void kvt_cuda_seq_close(struct kvt_seq *seq) { kvt_cuda_give_table(&kvt_cuda_pool_of(seq->pool)->on, seq->device); }

/* ---- pages ------------------------------------------------------------------------------------------------------------- */

/* The longest sequence whose pages have no more bytes, in whole tiles. */
static int64_t rows_within(const struct kvt_plan *plan, uint64_t bytes) {
    int64_t fits = 0, not = KVT_SEQ_MAX_ROWS / KVT_TILE_ROWS;
    while (not -fits > 1) {
        const int64_t middle = fits + (not -fits) / 2;
        if (kvt_plan_bytes(plan, middle * KVT_TILE_ROWS) <= bytes)
            fits = middle;
        else
            not = middle;
    }
    return fits * KVT_TILE_ROWS;
}

static enum kvt_status no_memory(struct kvt_pool *pool, size_t bytes, struct kvt_error *err) {
    struct kvt_cuda_pool *own = kvt_cuda_pool_of(pool);
    size_t free_bytes = 0;
    struct kvt_error why;
    KVT_TRY(kvt_cuda_done(pool, kvt_cuda_free_bytes(&own->on, &free_bytes, &why), &why, err));
    const uint64_t have = atomic_load(&pool->bytes) - bytes;
    const uint64_t all = free_bytes + kvt_cuda_pool_reserved(pool);
    return kvt_fail(
        err, KVT_ERR_NOMEM,
        "CUDA device %d has no memory for a cache page of %zu bytes: %zu are free, the cache has %llu; all of "
        "that would do for %lld rows in one sequence of this plan",
        own->on.device, bytes, free_bytes, (unsigned long long)have, (long long)rows_within(pool->plan, all));
}

enum kvt_status kvt_cuda_page_take(struct kvt_pool *pool, size_t bytes, struct kvt_page **out, struct kvt_error *err) {
    struct kvt_cuda_pool *own = kvt_cuda_pool_of(pool);
    const uint64_t taken = atomic_load(&pool->bytes), limit = pool->byte_limit;
    const uint64_t most = limit ? KVT_MAX(limit, taken) - taken + bytes : 0;
    struct kvt_page *page;
    struct kvt_error why;
    pthread_mutex_lock(&own->lock);
    enum kvt_status status = kvt_slabs_take(&own->slabs, bytes, most, &page, &why);
    pthread_mutex_unlock(&own->lock);
    if (status == KVT_ERR_NOMEM) return no_memory(pool, bytes, err);
    if (status == KVT_OK) {
        status = kvt_cuda_fill(&own->on, page->tiles, 0, bytes - KVT_PAGE_HEADER, &why);
        if (status != KVT_OK) kvt_cuda_page_give(pool, page, bytes);
    }
    if (status == KVT_OK) *out = page;
    return kvt_cuda_done(pool, status, &why, err);
}

/* What the stream still has to do with it is done before what comes after it in the same place. */
void kvt_cuda_page_give(struct kvt_pool *pool, struct kvt_page *page, size_t bytes) {
    struct kvt_cuda_pool *own = kvt_cuda_pool_of(pool);
    (void)bytes;
    pthread_mutex_lock(&own->lock);
    kvt_slabs_give(&own->slabs, page);
    pthread_mutex_unlock(&own->lock);
}

static void copy_tiles(struct kvt_pool *pool, void *to, const void *from, size_t bytes, bool wait) {
    struct kvt_error why;
    const struct kvt_cuda *on = &kvt_cuda_pool_of(pool)->on;
    enum kvt_status status = kvt_cuda_copy(on, to, from, bytes, &why);
    if (status == KVT_OK && wait) status = kvt_cuda_wait(on, &why);
    lose_if(pool, status, &why);
}

void kvt_cuda_page_copy(struct kvt_pool *pool, struct kvt_page *to, const struct kvt_page *from, size_t bytes) {
    copy_tiles(pool, to->tiles, from->tiles, bytes - KVT_PAGE_HEADER, false);
}

void kvt_cuda_page_read(struct kvt_pool *pool, void *tiles, const struct kvt_page *page, size_t bytes) {
    memset(tiles, 0, bytes - KVT_PAGE_HEADER);
    copy_tiles(pool, tiles, page->tiles, bytes - KVT_PAGE_HEADER, true);
}

void kvt_cuda_page_write(struct kvt_pool *pool, struct kvt_page *page, const void *tiles, size_t bytes) {
    copy_tiles(pool, page->tiles, tiles, bytes - KVT_PAGE_HEADER, true);
}

/* ---- rows, one run at a time: of trims and of who reads a cache; steps have launches for all --------------------------- */

void kvt_cuda_page_encode(struct kvt_pool *pool, const struct kvt_encode_args *args) {
    struct kvt_cuda_pool *own = kvt_cuda_pool_of(pool);
    struct kvt_encode_args there = *args;
    there.bytes = own->staging;
    there.bytes_step = args->tile->bytes;
    KVT_ASSERT(args->n_more == 0 && args->tile->bytes <= own->staging_bytes);
    pthread_mutex_lock(&own->lock);
    copy_tiles(pool, own->staging, args->bytes, args->tile->bytes, true);
    kvt_encode_select(args->codec, pool->kernels.level)(&there);
    copy_tiles(pool, args->bytes, own->staging, args->tile->bytes, true);
    pthread_mutex_unlock(&own->lock);
}

void kvt_cuda_page_decode(struct kvt_pool *pool, const struct kvt_tile *tile, float *rows, ptrdiff_t stride,
                          const void *bytes, int first, int n) {
    struct kvt_cuda_pool *own = kvt_cuda_pool_of(pool);
    KVT_ASSERT(tile->bytes <= own->staging_bytes);
    pthread_mutex_lock(&own->lock);
    memset(own->staging, 0, tile->bytes);
    copy_tiles(pool, own->staging, bytes, tile->bytes, true);
    pool->kernels.decode(tile, rows, stride, own->staging, first, n);
    pthread_mutex_unlock(&own->lock);
}
