/* SPDX-License-Identifier: Apache-2.0 */
#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

enum { MAX_LAYERS = 4096, MAX_SIZE = 1 << 20, MAX_CTX = 1 << 30 };

/* Where values come from: "ARCH.name" of one file. */
struct reader {
    const struct kvt_gguf *gguf;
    const char *arch;
    struct kvt_error *err;
};

struct key {
    char text[128];
};

static struct key key_of(const struct reader *r, const char *name) {
    struct key key;
    snprintf(key.text, sizeof key.text, "%s.%s", r->arch, name);
    return key;
}

static enum kvt_status missing(const struct reader *r, const char *name) {
    return kvt_fail(r->err, KVT_ERR_FORMAT, "the file has no key %s.%s, which every %s model needs", r->arch, name,
                    r->arch);
}

/* NOTFOUND leaves *out, which has the default. */
static enum kvt_status get_int(const struct reader *r, const char *name, int min, int max, int *out) {
    int64_t value;
    const enum kvt_status status = kvt_gguf_get_int(r->gguf, key_of(r, name).text, min, max, &value, r->err);
    if (status == KVT_OK) *out = (int)value;
    return status;
}

static enum kvt_status need_int(const struct reader *r, const char *name, int min, int max, int *out) {
    const enum kvt_status status = get_int(r, name, min, max, out);
    return status == KVT_ERR_NOTFOUND ? missing(r, name) : status;
}

static enum kvt_status may_int(const struct reader *r, const char *name, int min, int max, int *out) {
    const enum kvt_status status = get_int(r, name, min, max, out);
    return status == KVT_ERR_NOTFOUND ? KVT_OK : status;
}

static enum kvt_status get_float(const struct reader *r, const char *name, double min, double max, double *out) {
    double value;
    KVT_TRY(kvt_gguf_get_float(r->gguf, key_of(r, name).text, &value, r->err));
    if (!(value >= min && value <= max))
        return kvt_fail(r->err, KVT_ERR_FORMAT, "key %s.%s is %g, outside %g to %g", r->arch, name, value, min, max);
    *out = value;
    return KVT_OK;
}

static enum kvt_status need_float(const struct reader *r, const char *name, double min, double max, double *out) {
    const enum kvt_status status = get_float(r, name, min, max, out);
    return status == KVT_ERR_NOTFOUND ? missing(r, name) : status;
}

static enum kvt_status may_float(const struct reader *r, const char *name, double min, double max, double *out) {
    const enum kvt_status status = get_float(r, name, min, max, out);
    return status == KVT_ERR_NOTFOUND ? KVT_OK : status;
}

/* A count that is one number for all layers or an array with one for each: value i goes to dst[i * stride]. */
static enum kvt_status layer_ints(const struct reader *r, const char *name, int max, int n_layers, int *dst,
                                  size_t stride) {
    const struct key key = key_of(r, name);
    const struct kvt_gguf_value *value = kvt_gguf_find(r->gguf, key.text);
    if (!value) return KVT_ERR_NOTFOUND;
    const bool is_array = value->kind == KVT_GGUF_ARRAY;
    if (is_array && value->count != (uint64_t)n_layers)
        return kvt_fail(r->err, KVT_ERR_FORMAT, "key %s has %llu values for %d layers", key.text,
                        (unsigned long long)value->count, n_layers);
    for (int i = 0; i < n_layers; i++) {
        int64_t x;
        if (!kvt_gguf_as_i64(value, is_array ? (uint64_t)i : 0, &x))
            return kvt_fail(r->err, KVT_ERR_FORMAT, "key %s is not a whole number or an array of them", key.text);
        if (x < 1 || x > max)
            return kvt_fail(r->err, KVT_ERR_FORMAT, "key %s is %lld for layer %d, outside 1 to %d", key.text,
                            (long long)x, i, max);
        dst[(size_t)i * stride] = (int)x;
    }
    return KVT_OK;
}

static enum kvt_status read_layers(const struct reader *r, struct kvt_config *c) {
    struct kvt_layer_config *layers = c->layers;
    const size_t stride = sizeof *layers / sizeof(int);
    enum kvt_status status = layer_ints(r, "attention.head_count", MAX_SIZE, c->n_layers, &layers->n_q_heads, stride);
    if (status == KVT_ERR_NOTFOUND) return missing(r, "attention.head_count");
    KVT_TRY(status);
    status = layer_ints(r, "attention.head_count_kv", MAX_SIZE, c->n_layers, &layers->n_kv_heads, stride);
    if (status == KVT_ERR_NOTFOUND) {
        for (int i = 0; i < c->n_layers; i++) layers[i].n_kv_heads = layers[i].n_q_heads;
    } else {
        KVT_TRY(status);
    }
    status = layer_ints(r, "feed_forward_length", MAX_SIZE, c->n_layers, &layers->n_ff, stride);
    if (status == KVT_ERR_NOTFOUND) return missing(r, "feed_forward_length");
    KVT_TRY(status);
    for (int i = 0; i < c->n_layers; i++) {
        if (layers[i].n_q_heads % layers[i].n_kv_heads == 0) continue;
        return kvt_fail(r->err, KVT_ERR_FORMAT,
                        "layer %d has %d query heads, which is not a multiple of its %d KV heads "
                        "(%s.attention.head_count, head_count_kv)",
                        i, layers[i].n_q_heads, layers[i].n_kv_heads, r->arch);
    }
    return KVT_OK;
}

/* Head sizes: given, or the width shared among the first layer's heads. */
static enum kvt_status read_head(const struct reader *r, struct kvt_config *c) {
    const int n_heads = c->layers[0].n_q_heads;
    c->k_size = c->v_size = c->width % n_heads == 0 ? c->width / n_heads : 0;
    KVT_TRY(may_int(r, "attention.key_length", 1, MAX_SIZE, &c->k_size));
    KVT_TRY(may_int(r, "attention.value_length", 1, MAX_SIZE, &c->v_size));
    if (!c->k_size || !c->v_size)
        return kvt_fail(r->err, KVT_ERR_FORMAT,
                        "%s.embedding_length %d is not a multiple of head_count %d, and the file has no "
                        "%s.attention.key_length and value_length",
                        r->arch, c->width, n_heads, r->arch);
    for (int i = 0; i < c->n_layers; i++) {
        if ((int64_t)c->layers[i].n_q_heads * KVT_MAX(c->k_size, c->v_size) <= MAX_SIZE) continue;
        return kvt_fail(r->err, KVT_ERR_FORMAT, "layer %d has %d heads of %d elements, more than %d in all", i,
                        c->layers[i].n_q_heads, KVT_MAX(c->k_size, c->v_size), MAX_SIZE);
    }
    c->score_scale = (float)(1 / sqrt(c->k_size));
    return KVT_OK;
}

static enum kvt_status read_scaling_type(const struct reader *r, struct kvt_rope_config *rope) {
    static const char *const names[] = {"none", "linear", "yarn"};
    struct kvt_slice text;
    const enum kvt_status status = kvt_gguf_get_text(r->gguf, key_of(r, "rope.scaling.type").text, &text, r->err);
    rope->scaling = KVT_ROPE_SCALING_LINEAR; /* what a factor alone means */
    if (status == KVT_ERR_NOTFOUND) return KVT_OK;
    KVT_TRY(status);
    for (size_t i = 0; i < KVT_ARRAY_LEN(names); i++) {
        if (text.len != strlen(names[i]) || memcmp(text.data, names[i], text.len) != 0) continue;
        rope->scaling = (enum kvt_rope_scaling)i;
        return KVT_OK;
    }
    return kvt_fail(r->err, KVT_ERR_UNSUPPORTED,
                    "%s.rope.scaling.type \"%.*s\" is not supported; known: none, linear, yarn", r->arch,
                    (int)KVT_MIN(text.len, 40), text.data);
}

/* Keys and defaults as llama.cpp has them (llama-model.cpp, llama-context.cpp). */
static enum kvt_status read_rope(const struct reader *r, struct kvt_config *c) {
    struct kvt_rope_config *rope = &c->rope;
    *rope = (struct kvt_rope_config){.n_rot = c->k_size,
                                     .base = 10000,
                                     .factor = 1,
                                     .attn_factor = 1,
                                     .n_ctx_original = c->n_ctx_train,
                                     .ext_factor = 1,
                                     .beta_fast = 32,
                                     .beta_slow = 1};
    double log_multiplier = 0;
    KVT_TRY(may_int(r, "rope.dimension_count", 2, c->k_size, &rope->n_rot));
    if (rope->n_rot % 2 != 0)
        return kvt_fail(r->err, KVT_ERR_FORMAT, "%s.rope.dimension_count is %d, which is odd: elements rotate in pairs",
                        r->arch, rope->n_rot);
    KVT_TRY(may_float(r, "rope.freq_base", 1.0001, 1e15, &rope->base));
    KVT_TRY(read_scaling_type(r, rope));
    KVT_TRY(may_float(r, "rope.scale_linear", 0, 1e6, &rope->factor)); /* of old files */
    KVT_TRY(may_float(r, "rope.scaling.factor", 0, 1e6, &rope->factor));
    if (rope->factor == 0 || rope->scaling == KVT_ROPE_SCALING_NONE) rope->factor = 1;
    KVT_TRY(may_float(r, "rope.scaling.attn_factor", 1e-6, 1e6, &rope->attn_factor));
    KVT_TRY(may_int(r, "rope.scaling.original_context_length", 1, MAX_CTX, &rope->n_ctx_original));
    KVT_TRY(may_float(r, "rope.scaling.yarn_ext_factor", 0, 1, &rope->ext_factor));
    KVT_TRY(may_float(r, "rope.scaling.yarn_beta_fast", 1e-6, 1e6, &rope->beta_fast));
    KVT_TRY(may_float(r, "rope.scaling.yarn_beta_slow", 1e-6, 1e6, &rope->beta_slow));
    KVT_TRY(may_float(r, "rope.scaling.yarn_log_multiplier", 0, 1e6, &log_multiplier));
    if (log_multiplier != 0)
        return kvt_fail(r->err, KVT_ERR_UNSUPPORTED, "%s.rope.scaling.yarn_log_multiplier %g is not supported, only 0",
                        r->arch, log_multiplier);
    return KVT_OK;
}

static enum kvt_status read_all(const struct reader *r, struct kvt_config *c) {
    double eps = 0;
    int n_experts = 0;
    KVT_TRY(need_int(r, "context_length", 1, MAX_CTX, &c->n_ctx_train));
    KVT_TRY(need_int(r, "embedding_length", 1, MAX_SIZE, &c->width));
    KVT_TRY(need_int(r, "block_count", 1, MAX_LAYERS, &c->n_layers));
    KVT_TRY(need_float(r, "attention.layer_norm_rms_epsilon", 0, 1, &eps));
    KVT_TRY(may_int(r, "expert_count", 0, MAX_SIZE, &n_experts));
    if (n_experts > 0)
        return kvt_fail(r->err, KVT_ERR_UNSUPPORTED,
                        "the model has %d experts (%s.expert_count); only models without "
                        "experts are supported",
                        n_experts, r->arch);
    c->norm_eps = (float)eps;
    c->layers = kvt_take_zero(&c->allocator, (size_t)c->n_layers, sizeof *c->layers);
    if (!c->layers) return kvt_fail(r->err, KVT_ERR_NOMEM, "no memory for the sizes of %d layers", c->n_layers);
    KVT_TRY(read_layers(r, c));
    KVT_TRY(read_head(r, c));
    return read_rope(r, c);
}

enum kvt_status kvt_config_read(struct kvt_config *out, const struct kvt_gguf *gguf, const char *arch,
                                const struct kvt_allocator *allocator, struct kvt_error *err) {
    struct kvt_config config = {.allocator = kvt_allocator_or_default(allocator)};
    const enum kvt_status status = read_all(&(struct reader){gguf, arch, err}, &config);
    if (status != KVT_OK) {
        kvt_config_finish(&config);
        return status;
    }
    *out = config;
    return KVT_OK;
}

void kvt_config_finish(struct kvt_config *config) {
    if (config->layers) kvt_give(&config->allocator, config->layers, (size_t)config->n_layers, sizeof *config->layers);
    config->layers = NULL;
}
