/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void *libc_take(void *ctx, size_t bytes, size_t align) {
    (void)ctx;
    size_t padded;
    if (!kvt_add_ok(bytes, align - 1, &padded)) return NULL;
    return aligned_alloc(align, padded / align * align);
}

static void libc_give(void *ctx, void *ptr, size_t bytes) {
    (void)ctx;
    (void)bytes;
    free(ptr);
}

const struct kvt_allocator kvt_allocator_libc = {libc_take, libc_give, NULL};

struct kvt_allocator kvt_allocator_or_default(const struct kvt_allocator *a) {
    return a ? *a : kvt_allocator_libc;
}

void *kvt_take(const struct kvt_allocator *a, size_t n, size_t size) {
    size_t bytes;
    if (!kvt_mul_ok(n, size, &bytes) || bytes == 0) return NULL;
    return a->take(a->ctx, bytes, KVT_ALIGN);
}

void *kvt_take_zero(const struct kvt_allocator *a, size_t n, size_t size) {
    void *ptr = kvt_take(a, n, size);
    if (ptr) memset(ptr, 0, n * size);
    return ptr;
}

void kvt_give(const struct kvt_allocator *a, void *ptr, size_t n, size_t size) {
    if (ptr) a->give(a->ctx, ptr, n * size);
}

char *kvt_take_string(const struct kvt_allocator *a, const char *text, size_t len) {
    char *copy = kvt_take(a, len + 1, 1);
    if (copy) {
        memcpy(copy, text, len);
        copy[len] = 0;
    }
    return copy;
}

void kvt_advise_large(void *ptr, size_t bytes) {
#if defined(MADV_HUGEPAGE)
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = ((uintptr_t)ptr + page - 1) / page * page, end = ((uintptr_t)ptr + bytes) / page * page;
    if (first < end) (void)madvise((void *)first, end - first, MADV_HUGEPAGE);
#else
    (void)ptr, (void)bytes;
#endif
}

static bool must_fail(struct kvt_alloc_counter *c) {
    size_t at = atomic_load(&c->fail_at);
    while (at > 0)
        if (atomic_compare_exchange_weak(&c->fail_at, &at, at - 1)) {
            if (at == 1) return true;
            break;
        }
    const size_t each = atomic_load(&c->fail_each);
    if (each == 0) return false;
    const uint64_t r = atomic_fetch_add(&c->random, 0x9E3779B97F4A7C15u) * 0xD1342543DE82EF95u;
    return (r >> 33) % each == 0;
}

static void *counted_take(void *ctx, size_t bytes, size_t align) {
    struct kvt_alloc_counter *c = ctx;
    atomic_fetch_add(&c->n_takes, 1);
    if (must_fail(c)) return NULL;
    void *ptr = libc_take(NULL, bytes, align);
    if (!ptr) return NULL;
    atomic_fetch_add(&c->live_blocks, 1);
    const size_t live = atomic_fetch_add(&c->live_bytes, bytes) + bytes;
    size_t peak = atomic_load(&c->peak_bytes);
    while (live > peak && !atomic_compare_exchange_weak(&c->peak_bytes, &peak, live)) {
    }
    return ptr;
}

static void counted_give(void *ctx, void *ptr, size_t bytes) {
    struct kvt_alloc_counter *c = ctx;
    atomic_fetch_sub(&c->live_blocks, 1);
    atomic_fetch_sub(&c->live_bytes, bytes);
    free(ptr);
}

struct kvt_allocator kvt_allocator_counted(struct kvt_alloc_counter *counter) {
    return (struct kvt_allocator){counted_take, counted_give, counter};
}
