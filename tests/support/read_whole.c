/* SPDX-License-Identifier: Apache-2.0 */
#include "support/read_whole.h"

#include <math.h>
#include <string.h>

static uint64_t add_bytes(uint64_t sum, const void *data, size_t n) {
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++) sum = (sum ^ p[i]) * 0x100000001B3u;
    return sum;
}

static uint64_t read_value(const struct kvt_gguf_value *v, uint64_t sum, bool *kept) {
    *kept = *kept && (unsigned)v->kind < KVT_GGUF_KIND_COUNT && (unsigned)v->element < KVT_GGUF_KIND_COUNT &&
            v->element != KVT_GGUF_ARRAY && (v->kind == KVT_GGUF_ARRAY || (v->count == 1 && v->element == v->kind)) &&
            (v->text != NULL) == (v->element == KVT_GGUF_STRING && v->count > 0);
    for (uint64_t i = 0; i < v->count; i++) {
        int64_t n = 0;
        double x = 0;
        const bool is_int = kvt_gguf_as_i64(v, i, &n), is_float = kvt_gguf_as_f64(v, i, &x);
        if (v->text) sum = add_bytes(sum, v->text[i].data, v->text[i].len);
        if (v->element == KVT_GGUF_BOOL) *kept = *kept && (n == 0 || n == 1);
        if (is_int) *kept = *kept && is_float && x == (double)n;
        *kept = *kept && is_float == (v->element != KVT_GGUF_STRING);
        sum = sum * 31 + (uint64_t)n + (fabs(x) < 1e9 ? (uint64_t)(int64_t)x : 1);
    }
    return sum;
}

static uint64_t get_typed(const struct kvt_gguf *gguf, const char *key) {
    struct kvt_error err;
    int64_t n = 0;
    double x = 0;
    bool yes = false;
    struct kvt_slice text = {NULL, 0};
    int failures = kvt_gguf_get_int(gguf, key, -5, 5000, &n, &err) != KVT_OK;
    failures += kvt_gguf_get_float(gguf, key, &x, &err) != KVT_OK;
    failures += kvt_gguf_get_bool(gguf, key, &yes, &err) != KVT_OK;
    failures += kvt_gguf_get_text(gguf, key, &text, &err) != KVT_OK;
    return (uint64_t)n + yes + text.len + (uint64_t)failures;
}

static uint64_t read_tensor(const struct kvt_gguf *gguf, const struct kvt_gguf_tensor *t, uint64_t sum, bool *kept) {
    int64_t n = 1;
    for (int i = 0; i < 4; i++) {
        *kept = *kept && t->dims[i] > 0 && (i < t->n_dims || t->dims[i] == 1);
        n *= t->dims[i];
    }
    *kept = *kept && t->dims[0] % t->type->block_len == 0 && t->n_dims >= 0 && t->n_dims <= 4 &&
            (size_t)(n / t->type->block_len) * t->type->block_bytes == t->bytes &&
            kvt_gguf_tensor_find(gguf, t->name) == t && t->bytes <= kvt_gguf_bytes(gguf);
    return add_bytes(sum, t->data, t->bytes);
}

uint64_t kvt_read_whole(const struct kvt_gguf *gguf, bool *kept) {
    const size_t alignment = kvt_gguf_alignment(gguf);
    const int version = kvt_gguf_version(gguf);
    uint64_t sum = 0;
    *kept = (version == 2 || version == 3) && alignment >= 8 && (alignment & (alignment - 1)) == 0;
    for (size_t i = 0; i < kvt_gguf_n_keys(gguf); i++) {
        const char *key = kvt_gguf_key(gguf, i);
        *kept = *kept && kvt_gguf_find(gguf, key) == kvt_gguf_value(gguf, i) && key[0] != 0;
        sum = read_value(kvt_gguf_value(gguf, i), add_bytes(sum, key, strlen(key)), kept) + get_typed(gguf, key);
    }
    for (size_t i = 0; i < kvt_gguf_n_tensors(gguf); i++) sum = read_tensor(gguf, kvt_gguf_tensor(gguf, i), sum, kept);
    return sum;
}
