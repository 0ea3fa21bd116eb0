/* SPDX-License-Identifier: Apache-2.0
 * Memory. The only callers of the C library's allocation functions are in alloc.c. */
#ifndef BASE_ALLOC_H
#define BASE_ALLOC_H

#include <stdatomic.h>

#include "base/attr.h"
#include "kvtile/runtime.h"

enum { KVT_ALIGN = 64 };

/* The C library's allocator. */
extern const struct kvt_allocator kvt_allocator_libc;

/* *a, or the C library's where a is NULL. */
struct kvt_allocator kvt_allocator_or_default(const struct kvt_allocator *a);

/* n * size bytes aligned to KVT_ALIGN, not cleared / cleared. NULL on overflow, on n * size == 0 and when memory is out.
 * Free with kvt_give and the same n * size. */
void *kvt_take(const struct kvt_allocator *a, size_t n, size_t size);
void *kvt_take_zero(const struct kvt_allocator *a, size_t n, size_t size);
void kvt_give(const struct kvt_allocator *a, void *ptr, size_t n, size_t size);     /* ptr may be NULL */
char *kvt_take_string(const struct kvt_allocator *a, const char *text, size_t len); /* adds the NUL; give len + 1 */

/* Tells the system that a block will be read whole and often: from pages of 2 MiB, where it has them, that goes faster. */
void kvt_advise_large(void *ptr, size_t bytes);

/* An allocator that counts, and fails on request: for tests and for the program's peak. Thread-safe. */
struct kvt_alloc_counter {
    _Atomic size_t live_bytes, peak_bytes, live_blocks, n_takes;
    _Atomic size_t fail_at;   /* the fail_at-th take from now fails (1: the next); 0: never */
    _Atomic size_t fail_each; /* every take fails with probability 1 / fail_each; 0: never */
    _Atomic uint64_t random;
};
struct kvt_allocator kvt_allocator_counted(struct kvt_alloc_counter *counter); /* counter zeroed, outlives all blocks */

#endif
