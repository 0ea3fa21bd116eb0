/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiny random models, made from a seed: whole GGUF files with a byte-level vocabulary, named as llama.cpp names things, so
 * that the program loads them like any other.
 */
#ifndef SUPPORT_MAKE_MODEL_H
#define SUPPORT_MAKE_MODEL_H

#include "base/buf.h"

/* Encodes n floats as the bytes of a tensor type (n is whole blocks); false: the type is not known to it. */
typedef bool (*kvt_made_encode_fn)(void *ctx, uint32_t type, const float *src, size_t n, unsigned char *dst);

struct kvt_made {
    const char *name; /* of the case, for messages; also general.name */
    const char *arch; /* "llama", "qwen2" or "qwen3" */
    uint64_t seed;
    int n_layers, width, ffn, n_q_heads, n_kv_heads;
    int head_size; /* 0: width / n_q_heads, and the file does not say it */
    int n_ctx;
    bool biases;          /* of Q, K and V */
    bool untied;          /* has an output.weight */
    bool freq_factors;    /* has a rope_freqs.weight (llama only) */
    const char *scaling;  /* of RoPE: NULL, "none", "linear" or "yarn" */
    float scaling_factor; /* 0: the file does not say it */
    float attn_factor;    /* 0: the file does not say it */
    int n_ctx_orig;       /* 0: the file does not say it */
    float rope_base;      /* 0: the file does not say it (10000) */
    uint32_t type;        /* of the matrices: 0 F32, 1 F16, 30 BF16, 8 Q8_0, others through encode; vectors are F32 */
    kvt_made_encode_fn encode; /* NULL: only the built-in types */
    void *encode_ctx;
};

/* Models that differ in everything an architecture can differ in: one line each. */
extern const struct kvt_made kvt_made_list[];
extern const size_t kvt_made_count;
/* By name; NULL if there is none. */
const struct kvt_made *kvt_made_find(const char *name);

/* Tokens of every made model: 256 bytes, the merges, then BOS and EOS. A byte's id is the byte. */
enum { KVT_MADE_N_MERGES = 10, KVT_MADE_BOS = 256 + KVT_MADE_N_MERGES, KVT_MADE_EOS, KVT_MADE_N_VOCAB };

/* Appends the file to buf. UNSUPPORTED: the weight type cannot be encoded. */
KVT_MUST_CHECK enum kvt_status kvt_made_write(struct kvt_buf *buf, const struct kvt_made *made);

/* Writes it to a new file under the folder for temporary files; the path is put into `path`. The caller removes it. */
KVT_MUST_CHECK enum kvt_status kvt_made_file(char *path, size_t size, const struct kvt_made *made);

/* n token ids below KVT_MADE_N_VOCAB, beginning with BOS. */
void kvt_made_ids(int32_t *ids, int n, uint64_t seed);

#endif
