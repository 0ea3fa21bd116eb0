/* SPDX-License-Identifier: Apache-2.0
 * The radix tree of kept prefixes. */
#include "serve/prefix.h"

#include <string.h>

/* ---- nodes ------------------------------------------------------------------------------------------------------------ */

static struct kvt_prefix_node *node_create(const int32_t *ids, int n, int depth) {
    struct kvt_prefix_node *node = kvt_take_zero(&kvt_allocator_libc, 1, sizeof *node);
    int32_t *copy = kvt_take(&kvt_allocator_libc, (size_t)n, sizeof *copy);
    if (!node || !copy) {
        kvt_give(&kvt_allocator_libc, copy, (size_t)n, sizeof *copy);
        kvt_give(&kvt_allocator_libc, node, 1, sizeof *node);
        return NULL;
    }
    memcpy(copy, ids, (size_t)n * sizeof *copy);
    node->ids = copy;
    node->n_ids = n;
    node->depth = depth;
    return node;
}

static void node_destroy(struct kvt_prefix_node *node) {
    kvt_give(&kvt_allocator_libc, node->ids, (size_t)node->n_ids, sizeof *node->ids);
    kvt_give(&kvt_allocator_libc, node, 1, sizeof *node);
}

static void hang(struct kvt_prefix_node *parent, struct kvt_prefix_node *node) {
    node->parent = parent;
    node->sibling = parent->child;
    parent->child = node;
}

static void unhang(struct kvt_prefix_node *node) {
    struct kvt_prefix_node **at = &node->parent->child;
    while (*at != node) at = &(*at)->sibling;
    *at = node->sibling;
}

static int n_alike(const int32_t *a, const int32_t *b, int n) {
    int i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

static struct kvt_prefix_node *child_of(const struct kvt_prefix_node *node, int32_t id) {
    struct kvt_prefix_node *child = node->child;
    while (child && child->ids[0] != id) child = child->sibling;
    return child;
}

/* How far the tree goes along ids: the last node that is whole on the way, how many tokens of the edge to *beyond follow it. */
struct walk {
    struct kvt_prefix_node *at, *beyond;
    int n_beyond;
};

static struct walk walk(const struct kvt_prefix *p, const int32_t *ids, int n) {
    struct walk w = {.at = (struct kvt_prefix_node *)&p->root};
    while (w.at->depth < n) {
        struct kvt_prefix_node *child = child_of(w.at, ids[w.at->depth]);
        if (!child) return w;
        const int alike = n_alike(child->ids, ids + w.at->depth, KVT_MIN(child->n_ids, n - w.at->depth));
        if (alike < child->n_ids) {
            w.beyond = child;
            w.n_beyond = alike;
            return w;
        }
        w.at = child;
    }
    return w;
}

/* Puts a node into the edge to `node`, after `n` of its tokens. */
static struct kvt_prefix_node *split(struct kvt_prefix_node *node, int n) {
    struct kvt_prefix_node *upper = node_create(node->ids, n, node->parent->depth + n);
    if (!upper) return NULL;
    int32_t *rest = kvt_take(&kvt_allocator_libc, (size_t)(node->n_ids - n), sizeof *rest);
    if (!rest) {
        node_destroy(upper);
        return NULL;
    }
    memcpy(rest, node->ids + n, (size_t)(node->n_ids - n) * sizeof *rest);
    kvt_give(&kvt_allocator_libc, node->ids, (size_t)node->n_ids, sizeof *node->ids);
    unhang(node);
    hang(node->parent, upper);
    node->ids = rest;
    node->n_ids -= n;
    hang(upper, node);
    return upper;
}

/* ---- keeping ---------------------------------------------------------------------------------------------------------- */

void kvt_prefix_init(struct kvt_prefix *p, void (*give)(void *ctx, void *item), void *ctx) {
    *p = (struct kvt_prefix){.give = give, .ctx = ctx};
}

void kvt_prefix_finish(struct kvt_prefix *p) {
    struct kvt_prefix_node *node;
    while ((node = kvt_prefix_next(p, NULL))) kvt_prefix_drop(p, node);
}

/* Takes away nodes without an item on which nothing hangs. A node with one child and no item stays: it costs little. */
static void prune(struct kvt_prefix_node *node) {
    while (node->parent && !node->child && !node->item) {
        struct kvt_prefix_node *parent = node->parent;
        unhang(node);
        node_destroy(node);
        node = parent;
    }
}

enum kvt_status kvt_prefix_put(struct kvt_prefix *p, const int32_t *ids, int n, void *item) {
    struct walk w = walk(p, ids, n);
    if (w.beyond) {
        w.at = split(w.beyond, w.n_beyond);
        if (!w.at) return KVT_ERR_NOMEM;
    }
    if (w.at->depth < n) {
        struct kvt_prefix_node *node = node_create(ids + w.at->depth, n - w.at->depth, n);
        if (!node) {
            prune(w.at);
            return KVT_ERR_NOMEM;
        }
        hang(w.at, node);
        w.at = node;
    }
    if (w.at->item)
        p->give(p->ctx, w.at->item);
    else
        p->n_items++;
    w.at->item = item;
    kvt_prefix_use(p, w.at);
    return KVT_OK;
}

void kvt_prefix_use(struct kvt_prefix *p, struct kvt_prefix_node *node) { node->used = ++p->clock; }

void kvt_prefix_drop(struct kvt_prefix *p, struct kvt_prefix_node *node) {
    if (node->item) {
        p->give(p->ctx, node->item);
        p->n_items--;
    }
    node->item = NULL;
    prune(node);
}

/* ---- finding ---------------------------------------------------------------------------------------------------------- */

struct kvt_prefix_node *kvt_prefix_longest(const struct kvt_prefix *p, const int32_t *ids, int n, int most) {
    struct kvt_prefix_node *node = walk(p, ids, n).at;
    while (node && (!node->item || node->depth > most)) node = node->parent;
    return node;
}

/* The next node of the tree below `top`, parents before children; NULL past the last. */
static struct kvt_prefix_node *next_node(const struct kvt_prefix_node *top, const struct kvt_prefix_node *node) {
    if (node->child) return node->child;
    while (node != top && !node->sibling) node = node->parent;
    return node == top ? NULL : node->sibling;
}

int kvt_prefix_common(const struct kvt_prefix *p, const int32_t *ids, int n, struct kvt_prefix_node **out) {
    const struct walk w = walk(p, ids, n);
    const struct kvt_prefix_node *top = w.beyond ? w.beyond : w.at;
    struct kvt_prefix_node *best = NULL;
    for (struct kvt_prefix_node *node = (struct kvt_prefix_node *)top; node; node = next_node(top, node))
        if (node->item && (!best || node->depth < best->depth)) best = node;
    if (out) *out = best;
    return w.at->depth + w.n_beyond;
}

bool kvt_prefix_has(const struct kvt_prefix *p, const int32_t *ids, int n) {
    const struct walk w = walk(p, ids, n);
    return !w.beyond && w.at->depth == n && w.at->item;
}

struct kvt_prefix_node *kvt_prefix_next(const struct kvt_prefix *p, const struct kvt_prefix_node *node) {
    struct kvt_prefix_node *next = next_node(&p->root, node ? node : &p->root);
    while (next && !next->item) next = next_node(&p->root, next);
    return next;
}

void kvt_prefix_ids(const struct kvt_prefix_node *node, int32_t *out) {
    for (; node->parent; node = node->parent)
        memcpy(out + node->depth - node->n_ids, node->ids, (size_t)node->n_ids * sizeof *out);
}
