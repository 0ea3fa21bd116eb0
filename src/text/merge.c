/* SPDX-License-Identifier: Apache-2.0 */
#include "text/merge.h"

void kvt_merger_init(struct kvt_merger *merger, const struct kvt_allocator *allocator) {
    *merger = (struct kvt_merger){.allocator = *allocator};
}

void kvt_merger_finish(struct kvt_merger *merger) {
    kvt_give(&merger->allocator, merger->symbols, merger->capacity, sizeof *merger->symbols);
    kvt_give(&merger->allocator, merger->heap, merger->capacity * 2, sizeof *merger->heap);
    *merger = (struct kvt_merger){.allocator = merger->allocator};
}

enum kvt_status kvt_merger_begin(struct kvt_merger *merger, size_t n) {
    merger->n_symbols = merger->n_heap = 0;
    if (n <= merger->capacity) return KVT_OK;
    const size_t capacity = KVT_MAX(n, KVT_MAX((size_t)64, merger->capacity * 2));
    kvt_merger_finish(merger);
    struct kvt_symbol *symbols = kvt_take(&merger->allocator, capacity, sizeof *symbols);
    struct kvt_pair *heap = kvt_take(&merger->allocator, capacity * 2, sizeof *heap);
    if (!symbols || !heap) {
        kvt_give(&merger->allocator, symbols, capacity, sizeof *symbols);
        kvt_give(&merger->allocator, heap, capacity * 2, sizeof *heap);
        return KVT_ERR_NOMEM;
    }
    merger->symbols = symbols;
    merger->heap = heap;
    merger->capacity = capacity;
    return KVT_OK;
}

static bool before(const struct kvt_pair *a, const struct kvt_pair *b) {
    return a->key < b->key || (a->key == b->key && a->left < b->left);
}

/* Each merge takes at least one pair out and puts at most two in, and fewer than n merges follow the first n - 1 pairs: the
 * heap never holds 2n. */
static void push(struct kvt_merger *merger, struct kvt_pair pair) {
    struct kvt_pair *heap = merger->heap;
    size_t i = merger->n_heap++;
    while (i > 0) {
        const size_t parent = (i - 1) / 2;
        if (!before(&pair, &heap[parent])) break;
        heap[i] = heap[parent];
        i = parent;
    }
    heap[i] = pair;
}

static struct kvt_pair pop(struct kvt_merger *merger) {
    struct kvt_pair *heap = merger->heap;
    const struct kvt_pair top = heap[0], last = heap[--merger->n_heap];
    const size_t n = merger->n_heap;
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && before(&heap[child + 1], &heap[child])) child++;
        if (!before(&heap[child], &last)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

static void consider(struct kvt_merger *merger, int32_t left, int32_t right, kvt_pair_fn find, const void *ctx) {
    if (left < 0 || right < 0) return;
    const struct kvt_symbol *l = &merger->symbols[left], *r = &merger->symbols[right];
    struct kvt_pair pair = {.left = left, .right = right, .len = l->len + r->len};
    if (find(ctx, l, r, &pair)) push(merger, pair);
}

void kvt_merger_run(struct kvt_merger *merger, kvt_pair_fn find, const void *ctx) {
    struct kvt_symbol *symbols = merger->symbols;
    for (size_t i = 1; i < merger->n_symbols; i++) consider(merger, (int32_t)i - 1, (int32_t)i, find, ctx);
    while (merger->n_heap > 0) {
        const struct kvt_pair pair = pop(merger);
        struct kvt_symbol *left = &symbols[pair.left], *right = &symbols[pair.right];
        if (left->len == 0 || right->len == 0 || left->len + right->len != pair.len) continue;
        left->id = pair.id;
        left->len = pair.len;
        left->next = right->next;
        right->len = 0;
        if (left->next >= 0) symbols[left->next].prev = pair.left;
        consider(merger, left->prev, pair.left, find, ctx);
        consider(merger, pair.left, left->next, find, ctx);
    }
}
