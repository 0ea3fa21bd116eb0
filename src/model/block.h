/* SPDX-License-Identifier: Apache-2.0
 * A forward pass and the two halves of a layer. */
#ifndef MODEL_BLOCK_H
#define MODEL_BLOCK_H

#include "model/loaded.h"

struct kvt_pass_ops;

/* The working set of forward passes of at most n_max tokens, sized once; and the pass that is under way. Matrices have one
 * row a token, lie densely, and are where `ops` keeps them. */
struct kvt_pass {
    const struct kvt_model *model;
    const struct kvt_pass_ops *ops;
    void *compute; /* of ops */
    const struct kvt_parallel *parallel;
    enum kvt_level level;
    struct kvt_step *step;
    struct kvt_allocator allocator;
    struct kvt_arena scratch; /* of products in the process */
    struct kvt_tap tap;
    int n_max;

    int n;              /* tokens of this pass */
    int first;          /* rows [first, n) are still needed; the others stop after the last layer's keys and values */
    int layer;          /* that is computed */
    int32_t *ids;       /* of each row */
    int64_t *positions; /* likewise */
    struct kvt_seq **seqs; /* of the step */
    int *seq_rows;
    struct kvt_arena arena; /* of the four */

    float *x;         /* the residual stream, width */
    float *h;         /* normalised input of a half, then its output, width */
    float *q, *k, *v; /* all heads */
    float *mix;       /* attention's output, all heads */
    float *gate, *up; /* n_ff */
    float *rope;      /* tables, n_rot */
    float *matrices;  /* the block of all of them, and its floats */
    size_t n_floats;
};

struct kvt_placed;

struct kvt_pass_options {
    int n_max, max_seqs; /* that the step takes */
    enum kvt_level level;
    const struct kvt_parallel *parallel;
    struct kvt_pool *pool;
    struct kvt_step *step;
    /* The weights on the pool's device, where the pass is to run; NULL: in the process. */
    const struct kvt_placed *placed;
    struct kvt_tap tap;
    const struct kvt_allocator *allocator;
};

KVT_MUST_CHECK enum kvt_status kvt_pass_init(struct kvt_pass *pass, const struct kvt_model *model,
                                             const struct kvt_pass_options *options, struct kvt_error *err);
void kvt_pass_finish(struct kvt_pass *pass); /* harmless on a zeroed pass */

/* What one sequence gets in a pass, and where its rows are. */
struct kvt_pass_feed {
    struct kvt_seq *seq;
    const int32_t *ids;
    int n, keep; /* keep in [0, n] */
    int row;     /* of its first token in the pass; kvt_pass_run tells it */
};

/* Appends tokens to distinct sequences, n_max together at most. Afterwards the last `keep` rows of each are the last layer's
 * output in pass->x. On failure all sequences are as they were. In the process a row's bits do not depend on the others' sequences;
 * on a device they do, by rounding. */
KVT_MUST_CHECK enum kvt_status kvt_pass_run(struct kvt_pass *pass, struct kvt_pass_feed *feeds, int n_feeds,
                                            struct kvt_error *err);

/* Attention with optional biases and norms of Q and K heads: x += out(attention(norm(x))). */
enum kvt_status kvt_block_attend(struct kvt_pass *pass, const struct kvt_layer *layer, struct kvt_error *err);
/* Gated feed-forward: x += down(silu(gate(norm(x))) * up(norm(x))). */
enum kvt_status kvt_block_feed_gated(struct kvt_pass *pass, const struct kvt_layer *layer, struct kvt_error *err);

#endif
