/* SPDX-License-Identifier: Apache-2.0
 * The table of types, made from the list. */
#include "weight/list.h"
#include "weight/type.h"

#define X(type, name) extern const struct kvt_weight_type kvt_weight_##type;
KVT_WEIGHT_TYPES(X)
#undef X

static const struct {
    const struct kvt_weight_type *type;
    const char *name;
} table[] = {
#define X(type, name) {&kvt_weight_##type, name},
    KVT_WEIGHT_TYPES(X)
#undef X
};

size_t kvt_weight_type_count(void) { return KVT_ARRAY_LEN(table); }

const struct kvt_weight_type *kvt_weight_type_at(size_t i) { return i < KVT_ARRAY_LEN(table) ? table[i].type : NULL; }

const struct kvt_weight_type *kvt_weight_type_find(uint32_t gguf_type) {
    for (size_t i = 0; i < KVT_ARRAY_LEN(table); i++)
        if (table[i].type->gguf_type == gguf_type) return table[i].type;
    return NULL;
}

const char *kvt_weight_type_name(const struct kvt_weight_type *type) {
    for (size_t i = 0; i < KVT_ARRAY_LEN(table); i++)
        if (table[i].type == type) return table[i].name;
    return "unknown";
}

const char *kvt_weight_type_names(void) {
    static const char names[] = ""
#define X(type, name) ", " name
        KVT_WEIGHT_TYPES(X)
#undef X
        ;
    return names + 2;
}

const struct kvt_weight_kernels *kvt_weight_kernels_find(const struct kvt_weight_type *type, enum kvt_level level) {
    int l = level;
    while (l > 0 && !type->at[l]) l--;
    return type->at[l];
}
