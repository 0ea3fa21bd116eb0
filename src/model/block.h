/* SPDX-License-Identifier: Apache-2.0
 * A forward pass and the two halves of a layer. */
#ifndef MODEL_BLOCK_H
#define MODEL_BLOCK_H

#include "model/loaded.h"

/* The working set of forward passes of at most n_max tokens, sized once; and the pass that is under way. Matrices have one
 * row a token and lie densely. */
struct kvt_pass {
    const struct kvt_model *model;
    const struct kvt_parallel *parallel;
    enum kvt_level level;
    struct kvt_step *step;
    struct kvt_arena scratch; /* of products */
    struct kvt_tap tap;
    int n_max;

    int n;              /* tokens of this pass */
    int first;          /* rows [first, n) are still needed; the others stop after the last layer's keys and values */
    int layer;          /* that is computed */
    int32_t *ids;       /* of each row */
    int64_t *positions; /* likewise */
    struct kvt_seq **seqs; /* of the step */
    int *seq_rows;
    float *x;               /* the residual stream, width */
    float *h;               /* normalised input of a half, then its output, width */
    float *q, *k, *v;       /* all heads */
    float *mix;             /* attention's output, all heads */
    float *gate, *up;       /* n_ff */
    float *rope;            /* tables, n_rot */
    struct kvt_arena arena; /* all of the above */
};

/* `step` takes n_max rows of max_seqs sequences. */
KVT_MUST_CHECK enum kvt_status kvt_pass_init(struct kvt_pass *pass, const struct kvt_model *model, int n_max,
                                             int max_seqs, enum kvt_level level, const struct kvt_parallel *parallel,
                                             struct kvt_step *step, const struct kvt_allocator *allocator,
                                             struct kvt_error *err);
void kvt_pass_finish(struct kvt_pass *pass); /* harmless on a zeroed pass */

/* What one sequence gets in a pass, and where its rows are. */
struct kvt_pass_feed {
    struct kvt_seq *seq;
    const int32_t *ids;
    int n, keep; /* keep in [0, n] */
    int row;     /* of its first token in the pass; kvt_pass_run tells it */
};

/* Appends tokens to distinct sequences, n_max together at most. Afterwards the last `keep` rows of each are the last layer's
 * output in pass->x. On failure all sequences are as they were. A row's bits do not depend on the others' sequences. */
KVT_MUST_CHECK enum kvt_status kvt_pass_run(struct kvt_pass *pass, struct kvt_pass_feed *feeds, int n_feeds,
                                            struct kvt_error *err);

/* Calls fn for rows [first, pass->n), in parallel where there are many. */
typedef void (*kvt_row_fn)(struct kvt_pass *pass, const struct kvt_layer *layer, int row);
void kvt_pass_rows(struct kvt_pass *pass, const struct kvt_layer *layer, int first, kvt_row_fn fn);

/* Matrices of one input: for rows [first, pass->n) of x, which is as wide as the matrices, each gives a row of its dst. At
 * most three. */
struct kvt_output {
    float *dst;
    const struct kvt_weight *w;
};
void kvt_pass_products(struct kvt_pass *pass, const struct kvt_output *outputs, int n, const float *x, int first);

/* Attention with optional biases and norms of Q and K heads: x += out(attention(norm(x))). */
enum kvt_status kvt_block_attend(struct kvt_pass *pass, const struct kvt_layer *layer, struct kvt_error *err);
/* Gated feed-forward: x += down(silu(gate(norm(x))) * up(norm(x))). */
void kvt_block_feed_gated(struct kvt_pass *pass, const struct kvt_layer *layer);

#endif
