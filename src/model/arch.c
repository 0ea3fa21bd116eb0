/* SPDX-License-Identifier: Apache-2.0 */
#include "model/arch.h"

#include <string.h>

#include "base/check.h"
#include "model/model.h"

#define X(name) extern const struct kvt_arch kvt_arch_##name;
KVT_ARCHES(X)
#undef X

static const struct kvt_arch *const rows[] = {
#define X(name) &kvt_arch_##name,
    KVT_ARCHES(X)
#undef X
};

#define X(name) ", " #name
const char *kvt_arch_names(void) { return &KVT_ARCHES(X)[2]; }
#undef X

#define MATRIX(name, field, in, out)                                                                                   \
    { name, offsetof(struct kvt_layer, field), KVT_DIM_##in, KVT_DIM_##out }
#define VECTOR(name, field, size)                                                                                      \
    { name, offsetof(struct kvt_layer, field), KVT_DIM_##size, KVT_DIM_NONE }
#define END                                                                                                            \
    { NULL, 0, KVT_DIM_NONE, KVT_DIM_NONE }

const struct kvt_tensor_spec kvt_specs_attention[] = {
    VECTOR("attn_norm.weight", attn_norm, WIDTH),  MATRIX("attn_q.weight", q, WIDTH, Q),
    MATRIX("attn_k.weight", k, WIDTH, K),          MATRIX("attn_v.weight", v, WIDTH, V),
    MATRIX("attn_output.weight", out, MIX, WIDTH), END,
};
const struct kvt_tensor_spec kvt_specs_qkv_bias[] = {
    VECTOR("attn_q.bias", q_bias, Q),
    VECTOR("attn_k.bias", k_bias, K),
    VECTOR("attn_v.bias", v_bias, V),
    END,
};
const struct kvt_tensor_spec kvt_specs_out_bias[] = {
    VECTOR("attn_output.bias", out_bias, WIDTH),
    END,
};
const struct kvt_tensor_spec kvt_specs_qk_norm[] = {
    VECTOR("attn_q_norm.weight", q_norm, KEY),
    VECTOR("attn_k_norm.weight", k_norm, KEY),
    END,
};
const struct kvt_tensor_spec kvt_specs_gated[] = {
    VECTOR("ffn_norm.weight", ffn_norm, WIDTH),
    MATRIX("ffn_gate.weight", gate, WIDTH, FF),
    MATRIX("ffn_up.weight", up, WIDTH, FF),
    MATRIX("ffn_down.weight", down, FF, WIDTH),
    END,
};

enum kvt_status kvt_arch_find(const struct kvt_arch **out, const struct kvt_gguf *gguf, struct kvt_error *err) {
    struct kvt_slice name;
    const enum kvt_status status = kvt_gguf_get_text(gguf, "general.architecture", &name, err);
    if (status == KVT_ERR_NOTFOUND)
        return kvt_fail(err, KVT_ERR_FORMAT, "the file has no key general.architecture: it is not a language model");
    KVT_TRY(status);
    for (size_t i = 0; i < KVT_ARRAY_LEN(rows); i++) {
        if (name.len != strlen(rows[i]->name) || memcmp(name.data, rows[i]->name, name.len) != 0) continue;
        *out = rows[i];
        return KVT_OK;
    }
    return kvt_fail(err, KVT_ERR_UNSUPPORTED, "architecture \"%.*s\" is not supported; known: %s",
                    (int)KVT_MIN(name.len, 40), name.data, kvt_arch_names());
}
