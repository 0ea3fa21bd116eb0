/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

bool kvt_arena_init(struct kvt_arena *arena, const struct kvt_allocator *allocator, size_t bytes) {
    *arena = (struct kvt_arena){.allocator = kvt_allocator_or_default(allocator), .bytes = bytes};
    arena->block = kvt_take(&arena->allocator, bytes, 1);
    return arena->block != NULL;
}

void kvt_arena_finish(struct kvt_arena *arena) {
    if (arena->block) kvt_give(&arena->allocator, arena->block, arena->bytes, 1);
    arena->block = NULL;
}

void *kvt_arena_take(struct kvt_arena *arena, size_t n, size_t size) {
    size_t bytes;
    if (!kvt_mul_ok(n, size, &bytes) || bytes == 0) return NULL;
    if (!kvt_add_ok(bytes, KVT_ALIGN - 1, &bytes)) return NULL;
    bytes = bytes / KVT_ALIGN * KVT_ALIGN;
    if (bytes > arena->bytes - arena->used) return NULL;
    void *ptr = arena->block + arena->used;
    arena->used += bytes;
    return ptr;
}
