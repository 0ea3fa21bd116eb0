/* SPDX-License-Identifier: Apache-2.0
 *
 * Formulas: Touvron et al. 2023 (LLaMA), Su et al. 2021 (RoPE), Peng et al. 2023 (YaRN) with the constants and the choices
 * of llama.cpp, whose files these are.
 */
#include "support/oracle_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "support/oracle_weight.h"

static const double pi = 3.14159265358979323846;

struct oracle {
    const struct kvt_gguf *gguf;
    struct kvt_error *err;
    char arch[16];
    int n_layers, width, ffn, n_q_heads, n_kv_heads, head_size, n_rot, n_ctx_train, n_vocab;
    bool halves; /* RoPE turns elements i and i + n_rot / 2 together; otherwise 2i and 2i + 1 */
    bool yarn;
    double eps, rope_base, rope_scale /* of positions: 1 / factor */, rope_gain, n_ctx_orig;
    int n; /* positions */
};

/* ---- reading ---------------------------------------------------------------------------------------------------------- */

static enum kvt_status int_key(const struct oracle *o, const char *suffix, int fallback, int *out) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", o->arch, suffix);
    int64_t value = fallback;
    const enum kvt_status status = kvt_gguf_get_int(o->gguf, key, 1, 1 << 24, &value, o->err);
    if (status == KVT_ERR_NOTFOUND && fallback == 0) return kvt_fail(o->err, KVT_ERR_FORMAT, "no key '%s'", key);
    if (status != KVT_OK && status != KVT_ERR_NOTFOUND) return status;
    *out = (int)value;
    return KVT_OK;
}

/* Returns whether the key is there. */
static bool float_key(const struct oracle *o, const char *suffix, double *out) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", o->arch, suffix);
    return kvt_gguf_get_float(o->gguf, key, out, NULL) == KVT_OK;
}

/* "linear" where the file says nothing; "none" switches a factor off. YaRN lengthens the rotated rows by 1 + ln(factor) / 10. */
static enum kvt_status read_rope(struct oracle *o) {
    char key[96];
    struct kvt_slice type = {"linear", 6};
    snprintf(key, sizeof key, "%s.rope.scaling.type", o->arch);
    const enum kvt_status status = kvt_gguf_get_text(o->gguf, key, &type, o->err);
    if (status != KVT_OK && status != KVT_ERR_NOTFOUND) return status;
    const bool none = type.len == 4 && memcmp(type.data, "none", 4) == 0;
    o->yarn = type.len == 4 && memcmp(type.data, "yarn", 4) == 0;
    if (!none && !o->yarn && !(type.len == 6 && memcmp(type.data, "linear", 6) == 0))
        return kvt_fail(o->err, KVT_ERR_UNSUPPORTED, "RoPE scaling '%.*s'", (int)type.len, type.data);
    double factor = 1, n_ctx_orig = o->n_ctx_train;
    if (!float_key(o, "rope.scaling.factor", &factor)) float_key(o, "rope.scale_linear", &factor);
    if (factor == 0 || none) factor = 1;
    float_key(o, "rope.scaling.original_context_length", &n_ctx_orig);
    o->rope_scale = 1 / factor;
    o->n_ctx_orig = n_ctx_orig;
    o->rope_base = 10000;
    float_key(o, "rope.freq_base", &o->rope_base);
    o->rope_gain = 1;
    float_key(o, "rope.scaling.attn_factor", &o->rope_gain);
    if (o->yarn && factor > 1) o->rope_gain *= 1 + 0.1 * log(factor);
    return KVT_OK;
}

static enum kvt_status read_config(struct oracle *o) {
    struct kvt_slice arch = {"", 0};
    if (kvt_gguf_get_text(o->gguf, "general.architecture", &arch, NULL) != KVT_OK || arch.len >= sizeof o->arch)
        return kvt_fail(o->err, KVT_ERR_FORMAT, "no usable general.architecture");
    memcpy(o->arch, arch.data, arch.len);
    o->arch[arch.len] = 0;
    o->halves = strcmp(o->arch, "qwen2") == 0 || strcmp(o->arch, "qwen3") == 0;
    if (!o->halves && strcmp(o->arch, "llama") != 0)
        return kvt_fail(o->err, KVT_ERR_UNSUPPORTED, "architecture '%s'", o->arch);
    KVT_TRY(int_key(o, "block_count", 0, &o->n_layers));
    KVT_TRY(int_key(o, "context_length", 0, &o->n_ctx_train));
    KVT_TRY(int_key(o, "embedding_length", 0, &o->width));
    KVT_TRY(int_key(o, "feed_forward_length", 0, &o->ffn));
    KVT_TRY(int_key(o, "attention.head_count", 0, &o->n_q_heads));
    KVT_TRY(int_key(o, "attention.head_count_kv", o->n_q_heads, &o->n_kv_heads));
    KVT_TRY(int_key(o, "attention.key_length", o->width / o->n_q_heads, &o->head_size));
    KVT_TRY(int_key(o, "rope.dimension_count", o->head_size, &o->n_rot));
    if (!float_key(o, "attention.layer_norm_rms_epsilon", &o->eps))
        return kvt_fail(o->err, KVT_ERR_FORMAT, "no epsilon");
    o->n_vocab = kvt_oracle_n_vocab(o->gguf);
    return read_rope(o);
}

/* "blk.LAYER.NAME", or NAME where layer is negative. n_out 0: a vector. Absent: NULL if optional, else FORMAT. */
static enum kvt_status find(const struct oracle *o, int layer, const char *name, int n_in, int n_out, bool optional,
                            const struct kvt_gguf_tensor **out) {
    char full[96];
    if (layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    const struct kvt_gguf_tensor *t = kvt_gguf_tensor_find(o->gguf, full);
    if (!t && !optional) return kvt_fail(o->err, KVT_ERR_FORMAT, "no tensor '%s'", full);
    if (t && !kvt_oracle_type_known(t->type))
        return kvt_fail(o->err, KVT_ERR_UNSUPPORTED, "tensor '%s' is %s", full, t->type->name);
    if (t && (t->dims[0] != n_in || t->dims[1] != KVT_MAX(n_out, 1) || t->n_dims > 2))
        return kvt_fail(o->err, KVT_ERR_FORMAT, "tensor '%s' is not %d x %d", full, n_in, n_out);
    *out = t;
    return KVT_OK;
}

static double *take(size_t n) { return kvt_take_zero(&kvt_allocator_libc, n, sizeof(double)); }
static void give(double *p, size_t n) { kvt_give(&kvt_allocator_libc, p, n, sizeof(double)); }

/* ---- the pieces ------------------------------------------------------------------------------------------------------- */

/* y[p] = W x[p] + b for every position; the bias is optional: `bias` NULL for none ever. */
static enum kvt_status product(const struct oracle *o, double *y, const double *x, int layer, const char *weight,
                               const char *bias, int n_in, int n_out) {
    const struct kvt_gguf_tensor *w, *b = NULL;
    KVT_TRY(find(o, layer, weight, n_in, n_out, false, &w));
    if (bias) KVT_TRY(find(o, layer, bias, n_out, 0, true, &b));
    double *row = take((size_t)n_in), *biases = take((size_t)n_out);
    const bool enough = row && biases;
    if (enough && b) kvt_oracle_row(biases, b, 0);
    for (int i = 0; enough && i < n_out; i++) {
        kvt_oracle_row(row, w, i);
        for (int p = 0; p < o->n; p++) {
            double sum = 0;
            for (int k = 0; k < n_in; k++) sum += row[k] * x[(size_t)p * n_in + k];
            y[(size_t)p * n_out + i] = sum + biases[i];
        }
    }
    give(row, (size_t)n_in);
    give(biases, (size_t)n_out);
    return enough ? KVT_OK : kvt_fail(o->err, KVT_ERR_NOMEM, "no memory");
}

/* y = x / sqrt(mean(x^2) + eps) * weight, over each of `rows` rows of n; y may be x. */
static enum kvt_status normalize(const struct oracle *o, double *y, const double *x, int layer, const char *name, int n,
                                 int rows) {
    const struct kvt_gguf_tensor *w;
    KVT_TRY(find(o, layer, name, n, 0, false, &w));
    double *weight = take((size_t)n);
    if (!weight) return kvt_fail(o->err, KVT_ERR_NOMEM, "no memory");
    kvt_oracle_row(weight, w, 0);
    for (int r = 0; r < rows; r++, x += n, y += n) {
        double squares = 0;
        for (int i = 0; i < n; i++) squares += x[i] * x[i];
        const double scale = 1 / sqrt(squares / n + o->eps);
        for (int i = 0; i < n; i++) y[i] = x[i] * scale * weight[i];
    }
    give(weight, (size_t)n);
    return KVT_OK;
}

/* The pair that turns `turns` times over the original context: where YaRN's ramp begins (32) and ends (1). */
static double yarn_pair(const struct oracle *o, double turns) {
    return o->n_rot * log(o->n_ctx_orig / (turns * 2 * pi)) / (2 * log(o->rope_base));
}

/* The angle of pair i at a position. */
static double angle(const struct oracle *o, int position, int i, double freq_factor) {
    const double full = position * pow(o->rope_base, -2.0 * i / o->n_rot) / freq_factor,
                 stretched = full * o->rope_scale;
    if (!o->yarn) return stretched;
    const double low = fmax(0, floor(yarn_pair(o, 32))), high = fmin(o->n_rot - 1, ceil(yarn_pair(o, 1)));
    const double ramp = 1 - fmin(1, fmax(0, (i - low) / fmax(0.001, high - low)));
    return stretched * (1 - ramp) + full * ramp;
}

/* Turns every head of every position. */
static enum kvt_status rotate(const struct oracle *o, double *x, int n_heads) {
    const struct kvt_gguf_tensor *factors = NULL;
    const int n_pairs = o->n_rot / 2;
    double *freq = take((size_t)n_pairs);
    if (!freq) return kvt_fail(o->err, KVT_ERR_NOMEM, "no memory");
    enum kvt_status status = KVT_OK;
    if (!o->halves) status = find(o, -1, "rope_freqs.weight", n_pairs, 0, true, &factors);
    for (int i = 0; i < n_pairs; i++) freq[i] = 1;
    if (factors) kvt_oracle_row(freq, factors, 0);
    for (int p = 0; p < o->n && status == KVT_OK; p++)
        for (int h = 0; h < n_heads; h++, x += o->head_size)
            for (int i = 0; i < n_pairs; i++) {
                double *a = o->halves ? &x[i] : &x[2 * i], *b = o->halves ? &x[i + n_pairs] : &x[2 * i + 1];
                const double turn = angle(o, p, i, freq[i]), re = *a, im = *b;
                *a = (re * cos(turn) - im * sin(turn)) * o->rope_gain;
                *b = (re * sin(turn) + im * cos(turn)) * o->rope_gain;
            }
    give(freq, (size_t)n_pairs);
    return status;
}

/* One query row over the keys and values of positions 0 .. p of one KV head; rows lie `stride` apart. */
static void attend(double *dst, const double *q, const double *k, const double *v, int p, int size, size_t stride,
                   double *weights) {
    double largest = -INFINITY, sum = 0;
    for (int t = 0; t <= p; t++) {
        double dot = 0;
        for (int i = 0; i < size; i++) dot += q[i] * k[(size_t)t * stride + i];
        weights[t] = dot / sqrt(size);
        largest = fmax(largest, weights[t]);
    }
    for (int t = 0; t <= p; t++) sum += weights[t] = exp(weights[t] - largest);
    for (int i = 0; i < size; i++) dst[i] = 0;
    for (int t = 0; t <= p; t++)
        for (int i = 0; i < size; i++) dst[i] += weights[t] / sum * v[(size_t)t * stride + i];
}

/* ---- a layer ---------------------------------------------------------------------------------------------------------- */

/* Scratch for all positions: rows of the width, of the query heads, of the KV heads and of the feed-forward part. */
struct scratch {
    double *normed, *out, *q, *mixed, *k, *v, *gate, *up, *weights;
};

static enum kvt_status attention(const struct oracle *o, struct scratch *s, int layer) {
    const int n_q = o->n_q_heads * o->head_size, n_kv = o->n_kv_heads * o->head_size,
              group = o->n_q_heads / o->n_kv_heads;
    KVT_TRY(product(o, s->q, s->normed, layer, "attn_q.weight", "attn_q.bias", o->width, n_q));
    KVT_TRY(product(o, s->k, s->normed, layer, "attn_k.weight", "attn_k.bias", o->width, n_kv));
    KVT_TRY(product(o, s->v, s->normed, layer, "attn_v.weight", "attn_v.bias", o->width, n_kv));
    if (strcmp(o->arch, "qwen3") == 0) {
        KVT_TRY(normalize(o, s->q, s->q, layer, "attn_q_norm.weight", o->head_size, o->n * o->n_q_heads));
        KVT_TRY(normalize(o, s->k, s->k, layer, "attn_k_norm.weight", o->head_size, o->n * o->n_kv_heads));
    }
    KVT_TRY(rotate(o, s->q, o->n_q_heads));
    KVT_TRY(rotate(o, s->k, o->n_kv_heads));
    for (int p = 0; p < o->n; p++)
        for (int h = 0; h < o->n_q_heads; h++) {
            const size_t at = (size_t)p * n_q + (size_t)h * o->head_size, kv = (size_t)(h / group) * o->head_size;
            attend(s->mixed + at, s->q + at, s->k + kv, s->v + kv, p, o->head_size, (size_t)n_kv, s->weights);
        }
    return product(o, s->out, s->mixed, layer, "attn_output.weight", "attn_output.bias", n_q, o->width);
}

static enum kvt_status feed_forward(const struct oracle *o, struct scratch *s, int layer) {
    KVT_TRY(product(o, s->gate, s->normed, layer, "ffn_gate.weight", "ffn_gate.bias", o->width, o->ffn));
    KVT_TRY(product(o, s->up, s->normed, layer, "ffn_up.weight", "ffn_up.bias", o->width, o->ffn));
    for (size_t i = 0; i < (size_t)o->n * o->ffn; i++) s->gate[i] = s->gate[i] / (1 + exp(-s->gate[i])) * s->up[i];
    return product(o, s->out, s->gate, layer, "ffn_down.weight", "ffn_down.bias", o->ffn, o->width);
}

static enum kvt_status forward(const struct oracle *o, double *dst, double *x, struct scratch *s) {
    const size_t n_x = (size_t)o->n * o->width;
    for (int layer = 0; layer < o->n_layers; layer++) {
        KVT_TRY(normalize(o, s->normed, x, layer, "attn_norm.weight", o->width, o->n));
        KVT_TRY(attention(o, s, layer));
        for (size_t i = 0; i < n_x; i++) x[i] += s->out[i];
        KVT_TRY(normalize(o, s->normed, x, layer, "ffn_norm.weight", o->width, o->n));
        KVT_TRY(feed_forward(o, s, layer));
        for (size_t i = 0; i < n_x; i++) x[i] += s->out[i];
    }
    const char *output = kvt_gguf_tensor_find(o->gguf, "output.weight") ? "output.weight" : "token_embd.weight";
    KVT_TRY(normalize(o, s->normed, x, -1, "output_norm.weight", o->width, o->n));
    return product(o, dst, s->normed, -1, output, NULL, o->width, o->n_vocab);
}

/* ---- the door --------------------------------------------------------------------------------------------------------- */

int kvt_oracle_n_vocab(const struct kvt_gguf *gguf) {
    const struct kvt_gguf_tensor *t = kvt_gguf_tensor_find(gguf, "token_embd.weight");
    return t ? (int)t->dims[1] : 0;
}

enum kvt_status kvt_oracle_logits(double *dst, const struct kvt_gguf *gguf, const int32_t *ids, int n,
                                  struct kvt_error *err) {
    struct oracle o = {.gguf = gguf, .err = err, .n = n};
    const struct kvt_gguf_tensor *embedding;
    KVT_TRY(read_config(&o));
    KVT_TRY(find(&o, -1, "token_embd.weight", o.width, o.n_vocab, false, &embedding));
    const size_t n_x = (size_t)n * o.width, n_q = (size_t)n * o.n_q_heads * o.head_size,
                 n_kv = (size_t)n * o.n_kv_heads * o.head_size, n_ffn = (size_t)n * o.ffn;
    const size_t total = 3 * n_x + 2 * n_q + 2 * n_kv + 2 * n_ffn + (size_t)n;
    double *all = take(total), *x = all;
    if (!all) return kvt_fail(err, KVT_ERR_NOMEM, "no memory");
    struct scratch s;
    s.normed = x + n_x;
    s.out = s.normed + n_x;
    s.q = s.out + n_x;
    s.mixed = s.q + n_q;
    s.k = s.mixed + n_q;
    s.v = s.k + n_kv;
    s.gate = s.v + n_kv;
    s.up = s.gate + n_ffn;
    s.weights = s.up + n_ffn;
    for (int p = 0; p < n; p++) kvt_oracle_row(x + (size_t)p * o.width, embedding, ids[p]);
    const enum kvt_status status = forward(&o, dst, x, &s);
    give(all, total);
    return status;
}
