/* SPDX-License-Identifier: Apache-2.0
 *
 * Kept prefixes: a radix tree over token ids. A node stands for the tokens from the root to it; where something is kept for exactly
 * these tokens it has an item (a session, or a file).
 */
#ifndef SERVE_PREFIX_H
#define SERVE_PREFIX_H

#include "base/alloc.h"

struct kvt_prefix_node {
    struct kvt_prefix_node *parent, *child, *sibling;
    int32_t *ids; /* of the edge from its parent; none at the root */
    int n_ids;
    int depth;     /* tokens from the root */
    void *item;    /* NULL: nothing is kept here */
    uint64_t used; /* clock of its last use */
};

struct kvt_prefix {
    struct kvt_prefix_node root;
    void (*give)(void *ctx, void *item); /* ends the life of an item */
    void *ctx;
    uint64_t clock;
    int n_items;
};

void kvt_prefix_init(struct kvt_prefix *p, void (*give)(void *ctx, void *item), void *ctx);
void kvt_prefix_finish(struct kvt_prefix *p);

/* Keeps an item for n >= 1 tokens, in the place of the one that may be there. NOMEM: the item stays the caller's. */
KVT_MUST_CHECK enum kvt_status kvt_prefix_put(struct kvt_prefix *p, const int32_t *ids, int n, void *item);

/* The node with an item for the most tokens, `most` at most, that is a beginning of ids; NULL: there is none. */
struct kvt_prefix_node *kvt_prefix_longest(const struct kvt_prefix *p, const int32_t *ids, int n, int most);
/* How many of the tokens some kept prefix begins with; in *out (may be NULL) the shortest that does. */
int kvt_prefix_common(const struct kvt_prefix *p, const int32_t *ids, int n, struct kvt_prefix_node **out);
/* Whether something is kept for exactly these tokens. */
bool kvt_prefix_has(const struct kvt_prefix *p, const int32_t *ids, int n);

void kvt_prefix_use(struct kvt_prefix *p, struct kvt_prefix_node *node);
/* Gives the node's item and forgets the node where nothing hangs on it. */
void kvt_prefix_drop(struct kvt_prefix *p, struct kvt_prefix_node *node);

/* The next node with an item after `node` (NULL: the first), each once, in no order that means anything. */
struct kvt_prefix_node *kvt_prefix_next(const struct kvt_prefix *p, const struct kvt_prefix_node *node);
/* The tokens of a node, its depth of them. */
void kvt_prefix_ids(const struct kvt_prefix_node *node, int32_t *out);

#endif
