/* SPDX-License-Identifier: Apache-2.0
 * Bump memory over one block: many small things with one lifetime. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/alloc.h"

struct kvt_arena {
    struct kvt_allocator allocator;
    char *block;
    size_t bytes, used;
};

/* False if memory is out. finish is harmless on a zeroed arena. */
bool kvt_arena_init(struct kvt_arena *arena, const struct kvt_allocator *allocator, size_t bytes);
void kvt_arena_finish(struct kvt_arena *arena);

/* n * size bytes aligned to KVT_ALIGN, not cleared; NULL if the block is full or n * size is 0 or overflows. */
void *kvt_arena_take(struct kvt_arena *arena, size_t n, size_t size);

/* The block's size for a list of takes: add kvt_arena_need of each. */
static inline size_t kvt_arena_need(size_t n, size_t size) {
    return (n * size + KVT_ALIGN - 1) / KVT_ALIGN * KVT_ALIGN;
}

/* Everything taken after a mark can be given back at once. */
static inline size_t kvt_arena_mark(const struct kvt_arena *arena) { return arena->used; }
static inline void kvt_arena_reset(struct kvt_arena *arena, size_t mark) { arena->used = mark; }

#endif
