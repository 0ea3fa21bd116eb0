/* SPDX-License-Identifier: Apache-2.0 */
#include "support/make_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "base/half.h"
#include "base/rng.h"
#include "gguf/write.h"
#include "support/made_vocab.h"

enum { F32 = 0, F16 = 1, Q8_0 = 8, BF16 = 30 };

/* Head sizes with and without a factor of 16, query heads per KV head 1, 2, 3 and 4, YaRN ramps that begin and end inside. */
const struct kvt_made kvt_made_list[] = {
    {"llama", "llama", 1, 2, 64, 96, 4, 4, 0, 512, .type = F32},
    {"llama-biased", "llama", 2, 2, 96, 128, 6, 2, 0, 512, .biases = true, .untied = true, .type = F16},
    {"llama-q8_0", "llama", 3, 2, 64, 96, 4, 1, 32, 512, .type = Q8_0, .rope_base = 500000},
    {"llama-bf16", "llama", 4, 1, 80, 64, 2, 1, 40, 512, .untied = true, .type = BF16},
    {"llama-factors", "llama", 5, 2, 64, 96, 4, 1, 0, 512, .freq_factors = true},
    {"llama-linear", "llama", 6, 2, 64, 96, 2, 2, 0, 512, .scaling = "linear", .scaling_factor = 4},
    {"llama-old-linear", "llama", 7, 1, 64, 96, 2, 2, 0, 512, .scaling_factor = 2.5f},
    {"llama-none", "llama", 8, 1, 64, 96, 2, 2, 0, 512, .scaling = "none", .scaling_factor = 4},
    {"llama-yarn", "llama", 9, 2, 128, 96, 4, 2, 0, 2048, .scaling = "yarn", .scaling_factor = 4, .n_ctx_orig = 512},
    {"llama-yarn-all", "llama", 10, 2, 64, 96, 2, 1, 64, 2048, .scaling = "yarn", .scaling_factor = 8,
     .attn_factor = 0.9f, .n_ctx_orig = 256, .freq_factors = true, .biases = true, .type = Q8_0},
    {"qwen2", "qwen2", 11, 2, 96, 128, 6, 2, 0, 512, .biases = true, .rope_base = 1000000},
    {"qwen2-yarn", "qwen2", 12, 2, 64, 96, 2, 1, 0, 1024, .biases = true, .untied = true, .scaling = "yarn",
     .scaling_factor = 4, .n_ctx_orig = 256, .type = F16},
    {"qwen2-q8_0", "qwen2", 13, 2, 128, 64, 4, 1, 0, 512, .biases = true, .type = Q8_0},
    {"qwen3", "qwen3", 14, 2, 64, 96, 4, 1, 32, 512, .type = F32},
    {"qwen3-linear", "qwen3", 15, 2, 72, 64, 3, 3, 16, 512, .untied = true, .scaling = "linear", .scaling_factor = 2},
    {"qwen3-q8_0", "qwen3", 16, 2, 64, 96, 6, 2, 64, 512, .type = Q8_0, .rope_base = 1000000},
};
const size_t kvt_made_count = KVT_ARRAY_LEN(kvt_made_list);

const struct kvt_made *kvt_made_find(const char *name) {
    for (size_t i = 0; i < kvt_made_count; i++)
        if (strcmp(kvt_made_list[i].name, name) == 0) return &kvt_made_list[i];
    return NULL;
}

/* ---- encoding -------------------------------------------------------------------------------------------------------- */

/* Blocks of 32: an f16 scale, the largest magnitude over 127, and signed bytes, halves rounded away from zero. */
static void encode_q8_0(const float *src, size_t n, unsigned char *dst) {
    for (size_t b = 0; b < n / 32; b++, src += 32, dst += 34) {
        float largest = 0;
        for (int i = 0; i < 32; i++) largest = KVT_MAX(largest, src[i] < 0 ? -src[i] : src[i]);
        const float d = largest / 127, inverse = d > 0 ? 1 / d : 0;
        const uint16_t half = kvt_f16_from_f32(d);
        memcpy(dst, &half, 2);
        for (int i = 0; i < 32; i++) {
            const float x = src[i] * inverse;
            dst[2 + i] = (unsigned char)(int8_t)(x < 0 ? x - 0.5f : x + 0.5f);
        }
    }
}

static bool encode(const struct kvt_made *made, uint32_t type, const float *src, size_t n, unsigned char *dst) {
    switch (type) {
    case F32: memcpy(dst, src, n * 4); return true;
    case F16:
    case BF16:
        for (size_t i = 0; i < n; i++) {
            const uint16_t half = type == F16 ? kvt_f16_from_f32(src[i]) : kvt_bf16_from_f32(src[i]);
            memcpy(dst + 2 * i, &half, 2);
        }
        return true;
    case Q8_0: encode_q8_0(src, n, dst); return true;
    default: return made->encode && made->encode(made->encode_ctx, type, src, n, dst);
    }
}

/* ---- tensors --------------------------------------------------------------------------------------------------------- */

struct making {
    const struct kvt_made *made;
    struct kvt_gguf_writer *w;
    struct kvt_rng rng;
    enum kvt_status status;
};

/* n_out rows (0: a vector) of n_in numbers around `centre`. */
static void add_tensor(struct making *m, const char *name, uint32_t type, int n_in, int n_out, float centre,
                       float spread) {
    if (m->status != KVT_OK) return;
    const struct kvt_allocator *a = &kvt_allocator_libc;
    const struct kvt_gguf_type *t = kvt_gguf_type_find(type);
    const size_t n = (size_t)n_in * (size_t)KVT_MAX(n_out, 1);
    if (!t || n_in % t->block_len != 0) {
        m->status = KVT_ERR_UNSUPPORTED;
        return;
    }
    const size_t bytes = n / (size_t)t->block_len * t->block_bytes;
    float *x = kvt_take(a, n, sizeof *x);
    unsigned char *data = kvt_take(a, bytes, 1);
    if (!x || !data) m->status = KVT_ERR_NOMEM;
    for (size_t i = 0; m->status == KVT_OK && i < n; i++) x[i] = centre + spread * kvt_rng_normal(&m->rng);
    if (m->status == KVT_OK && !encode(m->made, type, x, n, data)) m->status = KVT_ERR_UNSUPPORTED;
    const int64_t dims[2] = {n_in, n_out};
    if (m->status == KVT_OK) kvt_gguf_add_tensor(m->w, name, type, n_out ? 2 : 1, dims, data, bytes);
    kvt_give(a, data, bytes, 1);
    kvt_give(a, x, n, sizeof *x);
}

/* A matrix whose products are `gain` times as large as what goes in. */
static void add_matrix(struct making *m, const char *name, int n_in, int n_out, float gain) {
    float root = 1;
    for (int i = 0; i < 20; i++) root = 0.5f * (root + (float)n_in / root); /* Newton: no libm, the same everywhere */
    add_tensor(m, name, m->made->type, n_in, n_out, 0, gain / root);
}

static void add_vector(struct making *m, const char *name, int n, float centre, float spread) {
    add_tensor(m, name, F32, n, 0, centre, spread);
}

/* Gains are such that heads look at few tokens and every part of a layer counts in the logits. */
static void add_layer(struct making *m, int layer) {
    const struct kvt_made *made = m->made;
    const int head = made->head_size ? made->head_size : made->width / made->n_q_heads;
    const int n_q = head * made->n_q_heads, n_kv = head * made->n_kv_heads;
    char name[64];
#define NAME(suffix) (snprintf(name, sizeof name, "blk.%d." suffix, layer), name)
    add_vector(m, NAME("attn_norm.weight"), made->width, 1, 0.2f);
    add_matrix(m, NAME("attn_q.weight"), made->width, n_q, 1.4f);
    add_matrix(m, NAME("attn_k.weight"), made->width, n_kv, 1.4f);
    add_matrix(m, NAME("attn_v.weight"), made->width, n_kv, 1);
    if (made->biases) {
        add_vector(m, NAME("attn_q.bias"), n_q, 0, 0.5f);
        add_vector(m, NAME("attn_k.bias"), n_kv, 0, 2);
        add_vector(m, NAME("attn_v.bias"), n_kv, 0, 0.5f);
    }
    if (strcmp(made->arch, "qwen3") == 0) {
        add_vector(m, NAME("attn_q_norm.weight"), head, 1.5f, 0.3f);
        add_vector(m, NAME("attn_k_norm.weight"), head, 1.5f, 0.3f);
    }
    add_matrix(m, NAME("attn_output.weight"), n_q, made->width, 1);
    add_vector(m, NAME("ffn_norm.weight"), made->width, 1, 0.2f);
    add_matrix(m, NAME("ffn_gate.weight"), made->width, made->ffn, 1);
    add_matrix(m, NAME("ffn_up.weight"), made->width, made->ffn, 1);
    add_matrix(m, NAME("ffn_down.weight"), made->ffn, made->width, 1.5f);
#undef NAME
}

/* From 1 for the fastest pair to 8 for the slowest, as Llama 3.1's. */
static void add_freq_factors(struct making *m) {
    const struct kvt_made *made = m->made;
    const int64_t n = (made->head_size ? made->head_size : made->width / made->n_q_heads) / 2;
    float factors[256];
    for (int i = 0; i < n; i++) factors[i] = 1 + 7 * (float)i / (float)(n - 1);
    kvt_gguf_add_tensor(m->w, "rope_freqs.weight", F32, 1, &n, factors, (size_t)n * 4);
}

static void add_tensors(struct making *m) {
    const struct kvt_made *made = m->made;
    add_tensor(m, "token_embd.weight", made->type, made->width, KVT_MADE_N_VOCAB, 0, 0.5f);
    add_vector(m, "output_norm.weight", made->width, 1, 0.2f);
    if (made->untied) add_matrix(m, "output.weight", made->width, KVT_MADE_N_VOCAB, 2);
    if (made->freq_factors) add_freq_factors(m);
    for (int i = 0; i < made->n_layers; i++) add_layer(m, i);
}

/* ---- metadata --------------------------------------------------------------------------------------------------------- */

static const char *key_of(const struct kvt_made *made, char *key, size_t size, const char *suffix) {
    snprintf(key, size, "%s.%s", made->arch, suffix);
    return key;
}

static void add_metadata(struct kvt_gguf_writer *w, const struct kvt_made *made) {
    char key[96];
#define KEY(suffix) key_of(made, key, sizeof key, suffix)
    kvt_gguf_add_text(w, "general.architecture", made->arch);
    kvt_gguf_add_text(w, "general.name", made->name);
    kvt_gguf_add_u32(w, KEY("block_count"), (uint32_t)made->n_layers);
    kvt_gguf_add_u32(w, KEY("context_length"), (uint32_t)made->n_ctx);
    kvt_gguf_add_u32(w, KEY("embedding_length"), (uint32_t)made->width);
    kvt_gguf_add_u32(w, KEY("feed_forward_length"), (uint32_t)made->ffn);
    kvt_gguf_add_u32(w, KEY("attention.head_count"), (uint32_t)made->n_q_heads);
    kvt_gguf_add_u32(w, KEY("attention.head_count_kv"), (uint32_t)made->n_kv_heads);
    kvt_gguf_add_f32(w, KEY("attention.layer_norm_rms_epsilon"), 1e-5f);
    if (made->head_size) {
        kvt_gguf_add_u32(w, KEY("attention.key_length"), (uint32_t)made->head_size);
        kvt_gguf_add_u32(w, KEY("attention.value_length"), (uint32_t)made->head_size);
    }
    if (made->rope_base > 0) kvt_gguf_add_f32(w, KEY("rope.freq_base"), made->rope_base);
    if (made->scaling) kvt_gguf_add_text(w, KEY("rope.scaling.type"), made->scaling);
    if (made->scaling_factor > 0)
        kvt_gguf_add_f32(w, made->scaling ? KEY("rope.scaling.factor") : KEY("rope.scale_linear"),
                         made->scaling_factor);
    if (made->attn_factor > 0) kvt_gguf_add_f32(w, KEY("rope.scaling.attn_factor"), made->attn_factor);
    if (made->n_ctx_orig) kvt_gguf_add_u32(w, KEY("rope.scaling.original_context_length"), (uint32_t)made->n_ctx_orig);
#undef KEY
    kvt_made_vocab_add(w, strcmp(made->arch, "llama") == 0 ? "gpt-2" : "qwen2");
}

/* ---- the door --------------------------------------------------------------------------------------------------------- */

enum kvt_status kvt_made_write(struct kvt_buf *buf, const struct kvt_made *made) {
    struct making m = {.made = made, .rng = {made->seed}, .status = KVT_OK};
    KVT_TRY(kvt_gguf_writer_create(&m.w, NULL));
    add_metadata(m.w, made);
    add_tensors(&m);
    if (m.status == KVT_OK) m.status = kvt_gguf_writer_finish(m.w, buf);
    kvt_gguf_writer_destroy(m.w);
    return m.status;
}

enum kvt_status kvt_made_file(char *path, size_t size, const struct kvt_made *made) {
    const char *folder = getenv("TMPDIR");
    const int len = snprintf(path, size, "%s/kvtile-%s-XXXXXX", folder ? folder : "/tmp", made->name);
    if (len < 0 || (size_t)len >= size) return KVT_ERR_RANGE;
    const int fd = mkstemp(path);
    if (fd < 0) return KVT_ERR_IO;
    close(fd);
    struct kvt_buf buf;
    kvt_buf_init(&buf, NULL, (size_t)1 << 30);
    enum kvt_status status = kvt_made_write(&buf, made);
    if (status == KVT_OK) status = kvt_file_write(path, buf.data, buf.len, NULL);
    kvt_buf_finish(&buf);
    if (status != KVT_OK) unlink(path);
    return status;
}

void kvt_made_ids(int32_t *ids, int n, uint64_t seed) {
    struct kvt_rng rng = {seed};
    for (int i = 0; i < n; i++) ids[i] = i == 0 ? KVT_MADE_BOS : (int32_t)kvt_rng_below(&rng, KVT_MADE_BOS);
}
