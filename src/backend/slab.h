/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages out of slabs, for memory that is slow to take: a slab is taken whole and cut into pages of one size, and goes back when all of
 * its pages are free, but for one of each size. Knows nothing of devices. One thread at a time: its user has a lock.
 */
#ifndef BACKEND_SLAB_H
#define BACKEND_SLAB_H

#include "cache/cache.h"

enum { KVT_SLAB_BYTES = 32 << 20, KVT_SLAB_ALIGN = 256 };

/* Whose memory it is. */
struct kvt_slab_source {
    void *arg;
    enum kvt_status (*take)(void *arg, void **out, size_t bytes, struct kvt_error *err);
    void (*give)(void *arg, void *memory);
};

struct kvt_slab;

/* Pages of one size. */
struct kvt_slab_size {
    size_t bytes;           /* of a page, its header counted, which lies in the process's memory */
    size_t step;            /* from page to page in a slab */
    struct kvt_slab *slabs; /* those with free pages first */
};

struct kvt_slabs {
    struct kvt_allocator allocator;
    struct kvt_slab_source source;
    struct kvt_slab_size *sizes;
    int n_sizes, max_sizes;
    uint64_t reserved; /* bytes of all slabs */
    uint64_t used;     /* and of pages that are taken, without headers */
};

/* For pages of at most max_sizes sizes. */
KVT_MUST_CHECK enum kvt_status kvt_slabs_init(struct kvt_slabs *slabs, const struct kvt_allocator *allocator,
                                              const struct kvt_slab_source *source, int max_sizes,
                                              struct kvt_error *err);
/* All pages are back. */
void kvt_slabs_finish(struct kvt_slabs *slabs);

/* A page of `bytes`, its tiles as they happen to be. A new slab has room for `most` bytes of pages at the most (0: as many as fit),
 * for one page at the least; where the source has too little, half as many are tried. Fails with the source's error. */
KVT_MUST_CHECK enum kvt_status kvt_slabs_take(struct kvt_slabs *slabs, size_t bytes, uint64_t most,
                                              struct kvt_page **out, struct kvt_error *err);
void kvt_slabs_give(struct kvt_slabs *slabs, struct kvt_page *page);

#endif
