/* SPDX-License-Identifier: Apache-2.0
 *
 * An architecture is a row: what its tensors are called and which it has, how RoPE pairs elements, and the two halves of
 * its layer. To add one: a file with its row, a line in list.h; a new kind of layer half is a function of that file (or of
 * block.c, if others will use it), a new tensor a field of struct kvt_layer and a line in a list of specs.
 */
#ifndef MODEL_ARCH_H
#define MODEL_ARCH_H

#include "model/list.h"
#include "model/rope.h"
#include "weight/weight.h"

/* A size that a tensor's shape must have. */
enum kvt_dim {
    KVT_DIM_NONE, /* the tensor is a vector: kept as floats */
    KVT_DIM_WIDTH,
    KVT_DIM_VOCAB,
    KVT_DIM_Q, /* all query heads */
    KVT_DIM_K, /* all key heads */
    KVT_DIM_V,
    KVT_DIM_MIX, /* all heads of attention's output */
    KVT_DIM_FF,
    KVT_DIM_KEY, /* one key head */
    KVT_DIM_ROT_PAIRS
};

/* A tensor of a layer ("blk.N." before the name) or of the model. */
struct kvt_tensor_spec {
    const char *name;
    size_t offset;            /* of its struct kvt_weight or const float *, in struct kvt_layer or struct kvt_model */
    enum kvt_dim n_in, n_out; /* row length, rows */
};

/* Specs that go together, up to one without a name. */
extern const struct kvt_tensor_spec kvt_specs_attention[]; /* norm, q, k, v, out */
extern const struct kvt_tensor_spec kvt_specs_qkv_bias[];
extern const struct kvt_tensor_spec kvt_specs_out_bias[];
extern const struct kvt_tensor_spec kvt_specs_qk_norm[]; /* one weight vector for all heads */
extern const struct kvt_tensor_spec kvt_specs_gated[];   /* norm, gate, up, down */

/* Weights of one layer. Vectors that the layer does not have are NULL. */
struct kvt_layer {
    struct kvt_layer_config config;
    struct kvt_weight q, k, v, out, gate, up, down;
    const float *attn_norm, *q_bias, *k_bias, *v_bias, *out_bias, *q_norm, *k_norm, *ffn_norm;
};

struct kvt_pass;

struct kvt_arch {
    const char *name; /* general.architecture, and the prefix of its keys */
    enum kvt_rope_pairing pairing;
    const struct kvt_tensor_spec *needs[4], *may_have[4]; /* lists of a layer's tensors; unused ends are NULL */

    /* The layer's two halves. Each reads and adds to the residual stream; feed only for the rows still needed. */
    enum kvt_status (*attend)(struct kvt_pass *pass, const struct kvt_layer *layer, struct kvt_error *err);
    enum kvt_status (*feed)(struct kvt_pass *pass, const struct kvt_layer *layer, struct kvt_error *err);
};

/* UNSUPPORTED names the file's architecture and lists the known ones. */
KVT_MUST_CHECK enum kvt_status kvt_arch_find(const struct kvt_arch **out, const struct kvt_gguf *gguf,
                                             struct kvt_error *err);

#endif
