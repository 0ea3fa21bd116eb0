/* SPDX-License-Identifier: Apache-2.0
 *
 * A small cache to try things on: a plan, a pool whose allocator counts, a step, and rows that are a pure function of where they are.
 */
#ifndef SUPPORT_MADE_CACHE_H
#define SUPPORT_MADE_CACHE_H

#include "base/alloc.h"
#include "kvtile/kvtile.h"

enum { MADE_MAX_ROWS = 1000, MADE_Q_GROUP = 2 };

struct made_cache {
    struct kvt_alloc_counter counter;
    struct kvt_allocator allocator;
    struct kvt_plan *plan;
    struct kvt_pool *pool;
    struct kvt_step *step;
};

/* Fails the cmocka test where something does not work, as the rest here does. */
void made_cache_open(struct made_cache *m, int n_layers, const struct kvt_layer_shape *layers,
                     struct kvt_plan_options options);
/* All sequences are gone; wants no byte left. */
void made_cache_close(struct made_cache *m);

struct kvt_seq *made_cache_seq(struct made_cache *m);

/* Row `row` of a layer, side and head; of the queries with side KVT_SIDE_COUNT. */
void made_cache_row(int layer, int side, int head, int64_t row, int d, float *x);

/* Appends the next n rows. made_cache_attend also attends for them in each layer, and returns the checksum of what comes out. */
void made_cache_feed(struct made_cache *m, struct kvt_seq *seq, int n);
uint64_t made_cache_attend(struct made_cache *m, struct kvt_seq *seq, int n);

/* A snapshot in memory: free() it. */
void *made_cache_save(const struct kvt_seq *seq, const void *blob, size_t blob_bytes, size_t *bytes);
/* Both have the same rows, in 16 bits and encoded: their snapshots are equal. */
void made_cache_same(const struct kvt_seq *a, const struct kvt_seq *b);

#endif
