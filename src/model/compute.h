/* SPDX-License-Identifier: Apache-2.0
 *
 * What computes a pass: one row of functions for matrices in the process's memory (compute_host.c) and one for matrices that lie with the
 * cache's pages on a device (compute_device.c). Layers are written once over them (block.c). All of them work on the rows [first, p->n)
 * of the pass's matrices, in the order in which they are called; on a device nothing but `show`, `fetch` and `logits` waits.
 */
#ifndef MODEL_COMPUTE_H
#define MODEL_COMPUTE_H

#include "model/block.h"

/* Matrices of one input, which is as wide as they are: each gives a row of its dst. At most KVT_PASS_OUTPUTS. */
struct kvt_output {
    float *dst;
    const struct kvt_weight *w;
};
enum { KVT_PASS_OUTPUTS = 3 };

struct kvt_pass_ops {
    /* Sets p->compute, where the row has something of its own; the pass's sizes are set. */
    enum kvt_status (*open)(struct kvt_pass *p, const struct kvt_pass_options *options, struct kvt_error *err);
    void (*close)(struct kvt_pass *p);
    /* Memory for matrices: n > 0 floats. */
    enum kvt_status (*take)(struct kvt_pass *p, float **out, size_t n, struct kvt_error *err);
    void (*give)(struct kvt_pass *p, float *matrix, size_t n);

    /* The residual stream's first rows and the tables of positions, by p->ids and p->positions. */
    enum kvt_status (*begin)(struct kvt_pass *p, struct kvt_error *err);
    /* dst = norm(x) of n_rows rows of the model's width. */
    enum kvt_status (*norm)(struct kvt_pass *p, float *dst, const float *x, const float *weight, int n_rows,
                            struct kvt_error *err);
    enum kvt_status (*products)(struct kvt_pass *p, const struct kvt_output *outputs, int n, const float *x, int first,
                                struct kvt_error *err);
    /* Biases and norms of a layer's heads, and the rotation of those of Q and K. All rows. */
    enum kvt_status (*heads)(struct kvt_pass *p, const struct kvt_layer *layer, struct kvt_error *err);
    /* x += h + bias; bias may be NULL. */
    enum kvt_status (*add)(struct kvt_pass *p, const float *bias, int first, struct kvt_error *err);
    /* gate = silu(gate) * up */
    enum kvt_status (*gate)(struct kvt_pass *p, int n_ff, int first, struct kvt_error *err);

    /* Makes q, k and v of `rows` ones that the process can read, and *out what it can write a mix to. */
    enum kvt_status (*show)(struct kvt_pass *p, struct kvt_layer_rows *rows, float **out, struct kvt_error *err);
    /* n floats from the process's memory, and to it. */
    enum kvt_status (*send)(struct kvt_pass *p, float *dst, const float *src, size_t n, struct kvt_error *err);
    enum kvt_status (*fetch)(struct kvt_pass *p, float *dst, const float *src, size_t n, struct kvt_error *err);
    /* Logits of n outputs of the last layer, to the process's memory. is_here: so do the outputs lie. */
    enum kvt_status (*logits)(struct kvt_pass *p, float *dst, const float *outputs, bool is_here, int n,
                              struct kvt_error *err);
};

extern const struct kvt_pass_ops kvt_pass_ops_host, kvt_pass_ops_device;

#endif
