/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool: pages with a byte limit.
 */
#include <string.h>

#include "base/check.h"
#include "cache/cache.h"

static struct kvt_plan *copy_plan(const struct kvt_plan *plan, const struct kvt_allocator *a) {
    struct kvt_plan *copy = kvt_take(a, 1, sizeof *copy);
    if (!copy) return NULL;
    *copy = *plan;
    copy->allocator = *a;
    copy->layers = kvt_take(a, (size_t)plan->n_layers, sizeof *copy->layers);
    copy->kv = kvt_take_string(a, plan->kv, strlen(plan->kv));
    if (!copy->layers || !copy->kv) {
        kvt_plan_destroy(copy);
        return NULL;
    }
    memcpy(copy->layers, plan->layers, (size_t)plan->n_layers * sizeof *copy->layers);
    for (int l = 0; l < copy->n_layers; l++) copy->layers[l].plan.reason = copy->layers[l].reason;
    return copy;
}

enum kvt_status kvt_pool_create_on(struct kvt_pool **out, const struct kvt_plan *plan,
                                   const struct kvt_pool_options *options, const struct kvt_page_ops *ops,
                                   const void *backend, struct kvt_error *err) {
    enum kvt_level level;
    KVT_TRY(kvt_level_parse(&level, options->level ? options->level : "auto", err));
    const struct kvt_allocator a = kvt_allocator_or_default(options->allocator);
    struct kvt_pool *pool = kvt_take_zero(&a, 1, sizeof *pool);
    struct kvt_plan *copy = copy_plan(plan, &a);
    if (!pool || !copy) {
        kvt_give(&a, pool, 1, sizeof *pool);
        kvt_plan_destroy(copy);
        return kvt_fail(err, KVT_ERR_NOMEM, "no memory for a page pool");
    }
    pool->allocator = a;
    pool->parallel = options->parallel ? *options->parallel : kvt_threads_parallel(NULL);
    pool->ops = ops;
    pool->backend = backend;
    pool->kernels = kvt_kernels_select(level);
    pool->plan = copy;
    pool->byte_limit = options->byte_limit;
    const enum kvt_status status = ops->open ? ops->open(pool, options, err) : KVT_OK;
    if (status != KVT_OK) {
        kvt_plan_destroy(copy);
        kvt_give(&a, pool, 1, sizeof *pool);
        return status;
    }
    *out = pool;
    return KVT_OK;
}

void kvt_pool_destroy(struct kvt_pool *pool) {
    if (!pool) return;
    KVT_ASSERT(atomic_load(&pool->n_users) == 0);
    KVT_ASSERT(atomic_load(&pool->bytes) == 0);
    const struct kvt_allocator a = pool->allocator;
    if (pool->ops->close) pool->ops->close(pool);
    kvt_plan_destroy(pool->plan);
    kvt_give(&a, pool, 1, sizeof *pool);
}

uint64_t kvt_pool_bytes(const struct kvt_pool *pool) { return atomic_load(&pool->bytes); }

uint64_t kvt_pool_peak_bytes(const struct kvt_pool *pool) { return atomic_load(&pool->peak_bytes); }

uint64_t kvt_pool_reserved_bytes(struct kvt_pool *pool) {
    return pool->ops->reserved ? pool->ops->reserved(pool) : kvt_pool_bytes(pool);
}

void kvt_pool_lose(struct kvt_pool *pool, const struct kvt_error *why) {
    int whole = 0;
    if (!atomic_compare_exchange_strong(&pool->lost, &whole, 1)) return;
    kvt_fail(&pool->why, KVT_ERR_DEVICE, "the cache is lost: %s", why->text);
    atomic_store(&pool->lost, 2);
}

enum kvt_status kvt_pool_check(struct kvt_pool *pool, struct kvt_error *err) {
    const int lost = atomic_load(&pool->lost);
    if (!lost) return KVT_OK;
    return kvt_fail(err, KVT_ERR_DEVICE, "%s", lost == 2 ? pool->why.text : "the cache is lost: its device failed");
}

enum kvt_status kvt_page_take(struct kvt_pool *pool, size_t bytes, struct kvt_page **out, struct kvt_error *err) {
    uint64_t before = atomic_load(&pool->bytes), now;
    do {
        now = before + bytes;
        if (pool->byte_limit && now > pool->byte_limit)
            return kvt_fail(err, KVT_ERR_LIMIT,
                            "the cache is full: a page of %zu bytes would pass its limit of %llu bytes", bytes,
                            (unsigned long long)pool->byte_limit);
    } while (!atomic_compare_exchange_weak(&pool->bytes, &before, now));
    struct kvt_page *page;
    const enum kvt_status status = pool->ops->take(pool, bytes, &page, err);
    if (status != KVT_OK) {
        atomic_fetch_sub(&pool->bytes, bytes);
        return status;
    }
    atomic_store(&page->n_owners, 1);
    uint64_t peak = atomic_load(&pool->peak_bytes);
    while (now > peak && !atomic_compare_exchange_weak(&pool->peak_bytes, &peak, now)) {
    }
    *out = page;
    return KVT_OK;
}

void kvt_page_leave(struct kvt_pool *pool, struct kvt_page *page, size_t bytes) {
    if (!page || atomic_fetch_sub(&page->n_owners, 1) > 1) return;
    pool->ops->give(pool, page, bytes);
    atomic_fetch_sub(&pool->bytes, bytes);
}
