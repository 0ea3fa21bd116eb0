/* SPDX-License-Identifier: Apache-2.0
 *
 * Merging neighbours, best pair first: what both kinds of tokenizer do. They differ in which pairs merge and in what order.
 */
#ifndef TEXT_MERGE_H
#define TEXT_MERGE_H

#include "base/alloc.h"

/* A stretch of the text. Symbols form a list in text order; one that was merged into its left neighbour has len 0. */
struct kvt_symbol {
    int32_t id;         /* of its token, or -1 */
    int32_t prev, next; /* -1: none */
    uint32_t start, len;
};

/* A pair that may merge. The lowest key goes first, of equal keys the leftmost. */
struct kvt_pair {
    double key;
    int32_t left, right;
    int32_t id;   /* of the merged token */
    uint32_t len; /* of both: tells a pair that has grown since */
};

/* Whether two neighbours merge: fills key and id. */
typedef bool (*kvt_pair_fn)(const void *ctx, const struct kvt_symbol *left, const struct kvt_symbol *right,
                            struct kvt_pair *pair);

/* Room that grows and is used again from word to word. */
struct kvt_merger {
    struct kvt_allocator allocator;
    struct kvt_symbol *symbols;
    struct kvt_pair *heap;
    size_t n_symbols, n_heap;
    size_t capacity; /* of symbols; the heap has twice as many */
};

void kvt_merger_init(struct kvt_merger *merger, const struct kvt_allocator *allocator);
void kvt_merger_finish(struct kvt_merger *merger);

/* Starts a word of at most n symbols (n > 0). */
enum kvt_status kvt_merger_begin(struct kvt_merger *merger, size_t n);
/* Adds the word's next symbol. */
static inline void kvt_merger_add(struct kvt_merger *merger, int32_t id, uint32_t start, uint32_t len) {
    const int32_t i = (int32_t)merger->n_symbols++;
    merger->symbols[i] = (struct kvt_symbol){id, i - 1, -1, start, len};
    if (i > 0) merger->symbols[i - 1].next = i;
}
/* Merges until no pair is left. */
void kvt_merger_run(struct kvt_merger *merger, kvt_pair_fn find, const void *ctx);

#endif
