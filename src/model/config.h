/* SPDX-License-Identifier: Apache-2.0
 * The sizes and constants of a model, read from a GGUF's metadata and checked: nothing that reads a config checks again. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include "gguf/gguf.h"

enum kvt_rope_scaling { KVT_ROPE_SCALING_NONE, KVT_ROPE_SCALING_LINEAR, KVT_ROPE_SCALING_YARN };

struct kvt_rope_config {
    int n_rot; /* rotated elements of a head, from its start; even */
    double base;
    enum kvt_rope_scaling scaling;
    double factor;      /* the context is this much longer than the original; 1 without scaling */
    double attn_factor; /* multiplies cosines and sines */
    int n_ctx_original; /* YaRN: the context before scaling */
    double ext_factor, beta_fast, beta_slow;
};

struct kvt_layer_config {
    int n_q_heads, n_kv_heads; /* n_q_heads is a multiple of n_kv_heads */
    int n_ff;
    int window; /* rows a query sees; 0: all */
};

struct kvt_config {
    int n_ctx_train, width, n_layers;
    int k_size, v_size; /* elements of a head's key, value */
    int n_vocab;        /* of the tokenizer; set by whoever reads it */
    float norm_eps;
    float score_scale; /* of attention scores */
    struct kvt_rope_config rope;
    struct kvt_layer_config *layers; /* n_layers */
    struct kvt_allocator allocator;
};

/* Reads the keys "ARCH.*". FORMAT names the key that is missing, of a wrong kind or out of its range; UNSUPPORTED one whose
 * value means something that is not built. */
KVT_MUST_CHECK enum kvt_status kvt_config_read(struct kvt_config *out, const struct kvt_gguf *gguf, const char *arch,
                                               const struct kvt_allocator *allocator, struct kvt_error *err);
void kvt_config_finish(struct kvt_config *config); /* harmless on a zeroed config */

#endif
