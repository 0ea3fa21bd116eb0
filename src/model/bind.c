/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "model/loaded.h"

static const struct kvt_tensor_spec embedding_specs[] = {
    {"token_embd.weight", offsetof(struct kvt_model, embedding), KVT_DIM_WIDTH, KVT_DIM_VOCAB},
    {"output_norm.weight", offsetof(struct kvt_model, output_norm), KVT_DIM_WIDTH, KVT_DIM_NONE},
    {NULL, 0, KVT_DIM_NONE, KVT_DIM_NONE},
};
static const struct kvt_tensor_spec extra_specs[] = {
    {"output.weight", offsetof(struct kvt_model, output), KVT_DIM_WIDTH, KVT_DIM_VOCAB},
    {"rope_freqs.weight", offsetof(struct kvt_model, rope_factors), KVT_DIM_ROT_PAIRS, KVT_DIM_NONE},
    {NULL, 0, KVT_DIM_NONE, KVT_DIM_NONE},
};

/* Tensors of old files that say what the metadata says too. */
static const char *const ignored[] = {"attn_rot_embd.weight", "attn_rot_embd"};

int64_t kvt_dim_size(const struct kvt_config *c, const struct kvt_layer_config *l, enum kvt_dim dim) {
    switch (dim) {
    case KVT_DIM_WIDTH: return c->width;
    case KVT_DIM_VOCAB: return c->n_vocab;
    case KVT_DIM_Q: return (int64_t)l->n_q_heads * c->k_size;
    case KVT_DIM_K: return (int64_t)l->n_kv_heads * c->k_size;
    case KVT_DIM_V: return (int64_t)l->n_kv_heads * c->v_size;
    case KVT_DIM_MIX: return (int64_t)l->n_q_heads * c->v_size;
    case KVT_DIM_FF: return l->n_ff;
    case KVT_DIM_KEY: return c->k_size;
    case KVT_DIM_ROT_PAIRS: return c->rope.n_rot / 2;
    case KVT_DIM_NONE: break;
    }
    return 1;
}

static enum kvt_status check_shape(const struct kvt_gguf_tensor *t, int64_t n_in, int64_t n_out, bool vector,
                                   struct kvt_error *err) {
    if (t->dims[0] == n_in && t->dims[1] == n_out && t->dims[2] == 1 && t->dims[3] == 1) return KVT_OK;
    char found[96], expected[48];
    int len = snprintf(found, sizeof found, "%lld", (long long)t->dims[0]);
    for (int i = 1; i < t->n_dims && i < 4 && len < 72; i++)
        len += snprintf(found + len, sizeof found - (size_t)len, " x %lld", (long long)t->dims[i]);
    if (vector)
        snprintf(expected, sizeof expected, "%lld", (long long)n_in);
    else
        snprintf(expected, sizeof expected, "%lld x %lld", (long long)n_in, (long long)n_out);
    return kvt_fail(err, KVT_ERR_FORMAT, "tensor %s has the shape %s; the file's own sizes make it %s", t->name, found,
                    expected);
}

/* Fills the field at base + spec->offset from the tensor called name. */
static enum kvt_status bind_one(struct kvt_model *m, const struct kvt_tensor_spec *spec, const char *name, void *base,
                                const struct kvt_layer_config *l, bool needed, struct kvt_error *err) {
    const struct kvt_gguf_tensor *tensor = kvt_gguf_tensor_find(m->gguf, name);
    if (!tensor && !needed) return KVT_OK;
    if (!tensor)
        return kvt_fail(err, KVT_ERR_FORMAT, "the file has no tensor %s, which every %s model needs", name,
                        m->arch->name);
    const bool vector = spec->n_out == KVT_DIM_NONE;
    const int64_t n_in = kvt_dim_size(&m->config, l, spec->n_in), n_out = kvt_dim_size(&m->config, l, spec->n_out);
    KVT_TRY(check_shape(tensor, n_in, n_out, vector, err));
    struct kvt_weight weight;
    KVT_TRY(kvt_weight_bind(&weight, tensor, err));
    if (!vector) {
        memcpy((char *)base + spec->offset, &weight, sizeof weight);
        return KVT_OK;
    }
    float *values = kvt_arena_take(&m->arena, (size_t)n_in, sizeof *values);
    if (!values) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for tensor %s", name);
    kvt_weight_row(&weight, 0, values, KVT_LEVEL_REF);
    memcpy((char *)base + spec->offset, &values, sizeof values);
    return KVT_OK;
}

/* layer < 0: a list of the model's own tensors. */
static enum kvt_status bind_list(struct kvt_model *m, const struct kvt_tensor_spec *specs, int layer, bool needed,
                                 struct kvt_error *err) {
    for (; specs && specs->name; specs++) {
        if (layer < 0) {
            KVT_TRY(bind_one(m, specs, specs->name, m, NULL, needed, err));
            continue;
        }
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s", layer, specs->name);
        struct kvt_layer *l = &m->layers[layer];
        KVT_TRY(bind_one(m, specs, name, l, &l->config, needed, err));
    }
    return KVT_OK;
}

static bool has_name(const struct kvt_tensor_spec *specs, const char *name) {
    for (; specs && specs->name; specs++)
        if (strcmp(specs->name, name) == 0) return true;
    return false;
}

static bool is_known(const struct kvt_model *m, const char *name) {
    int layer, len = 0;
    const bool of_layer = sscanf(name, "blk.%d.%n", &layer, &len) == 1 && len > 0;
    const char *rest = of_layer ? name + len : name;
    for (size_t i = 0; i < KVT_ARRAY_LEN(ignored); i++)
        if (strcmp(rest, ignored[i]) == 0) return true;
    if (!of_layer) return has_name(embedding_specs, name) || has_name(extra_specs, name);
    if (layer < 0 || layer >= m->config.n_layers) return false;
    for (size_t i = 0; i < KVT_ARRAY_LEN(m->arch->needs); i++)
        if (has_name(m->arch->needs[i], rest) || has_name(m->arch->may_have[i], rest)) return true;
    return false;
}

/* A tensor that is not understood would be left out of the sums: better no model than a wrong one. */
static enum kvt_status check_known(const struct kvt_model *m, struct kvt_error *err) {
    for (size_t i = 0; i < kvt_gguf_n_tensors(m->gguf); i++) {
        const char *name = kvt_gguf_tensor(m->gguf, i)->name;
        if (is_known(m, name)) continue;
        return kvt_fail(err, KVT_ERR_UNSUPPORTED,
                        "tensor %.64s is not one that a %s model of %d layers has here: the file needs a newer program",
                        name, m->arch->name, m->config.n_layers);
    }
    return KVT_OK;
}

enum kvt_status kvt_model_bind(struct kvt_model *m, struct kvt_error *err) {
    KVT_TRY(bind_list(m, embedding_specs, -1, true, err));
    m->output = m->embedding;
    KVT_TRY(bind_list(m, extra_specs, -1, false, err));
    for (int layer = 0; layer < m->config.n_layers; layer++) {
        for (size_t i = 0; i < KVT_ARRAY_LEN(m->arch->needs); i++) {
            KVT_TRY(bind_list(m, m->arch->needs[i], layer, true, err));
            KVT_TRY(bind_list(m, m->arch->may_have[i], layer, false, err));
        }
    }
    return check_known(m, err);
}
