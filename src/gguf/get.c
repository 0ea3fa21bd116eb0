/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking things up in an opened file.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "gguf/inside.h"

size_t kvt_gguf_n_keys(const struct kvt_gguf *gguf) { return gguf->n_entries; }

const char *kvt_gguf_key(const struct kvt_gguf *gguf, size_t i) {
    KVT_ASSERT(i < gguf->n_entries);
    return gguf->entries[i].key;
}

const struct kvt_gguf_value *kvt_gguf_value(const struct kvt_gguf *gguf, size_t i) {
    KVT_ASSERT(i < gguf->n_entries);
    return &gguf->entries[i].value;
}

const struct kvt_gguf_value *kvt_gguf_find(const struct kvt_gguf *gguf, const char *key) {
    const size_t i = kvt_gguf_index_find(&gguf->entry_index, key);
    return i == SIZE_MAX ? NULL : &gguf->entries[i].value;
}

size_t kvt_gguf_n_tensors(const struct kvt_gguf *gguf) { return gguf->n_slots; }

const struct kvt_gguf_tensor *kvt_gguf_tensor(const struct kvt_gguf *gguf, size_t i) {
    KVT_ASSERT(i < gguf->n_slots);
    return &gguf->slots[i].tensor;
}

const struct kvt_gguf_tensor *kvt_gguf_tensor_find(const struct kvt_gguf *gguf, const char *name) {
    const size_t i = kvt_gguf_index_find(&gguf->slot_index, name);
    return i == SIZE_MAX ? NULL : &gguf->slots[i].tensor;
}

bool kvt_gguf_as_i64(const struct kvt_gguf_value *value, uint64_t i, int64_t *out) {
    KVT_ASSERT(i < value->count);
    const enum kvt_gguf_kind kind = value->kind == KVT_GGUF_ARRAY ? value->element : value->kind;
    const size_t size = kvt_gguf_kind_bytes(kind);
    const uint64_t u = size ? kvt_gguf_le(value->data + i * size, size) : 0;
    switch (kind) {
    case KVT_GGUF_U64:
        if (u > INT64_MAX) return false;
        *out = (int64_t)u;
        return true;
    case KVT_GGUF_U8:
    case KVT_GGUF_U16:
    case KVT_GGUF_U32:
    case KVT_GGUF_I64:
    case KVT_GGUF_BOOL: *out = (int64_t)u; return true;
    case KVT_GGUF_I8: *out = (int8_t)u; return true;
    case KVT_GGUF_I16: *out = (int16_t)u; return true;
    case KVT_GGUF_I32: *out = (int32_t)u; return true;
    default: return false;
    }
}

bool kvt_gguf_as_f64(const struct kvt_gguf_value *value, uint64_t i, double *out) {
    KVT_ASSERT(i < value->count);
    const enum kvt_gguf_kind kind = value->kind == KVT_GGUF_ARRAY ? value->element : value->kind;
    if (kind == KVT_GGUF_F32) {
        *out = kvt_f32_from_bits((uint32_t)kvt_gguf_le(value->data + i * 4, 4));
        return true;
    }
    if (kind == KVT_GGUF_F64 || kind == KVT_GGUF_U64) {
        const uint64_t u = kvt_gguf_le(value->data + i * 8, 8);
        if (kind == KVT_GGUF_F64)
            memcpy(out, &u, 8);
        else
            *out = (double)u;
        return true;
    }
    int64_t n;
    if (!kvt_gguf_as_i64(value, i, &n)) return false;
    *out = (double)n;
    return true;
}

static enum kvt_status wrong_kind(const char *key, const struct kvt_gguf_value *value, const char *wanted,
                                  struct kvt_error *err) {
    return kvt_fail(err, KVT_ERR_FORMAT, "the metadata key '%.100s' is of type %s; it must be %s", key,
                    kvt_gguf_kind_name(value->kind), wanted);
}

enum kvt_status kvt_gguf_get_int(const struct kvt_gguf *gguf, const char *key, int64_t min, int64_t max, int64_t *out,
                                 struct kvt_error *err) {
    const struct kvt_gguf_value *value = kvt_gguf_find(gguf, key);
    if (!value) return KVT_ERR_NOTFOUND;
    int64_t n = 0;
    const bool fits = value->kind != KVT_GGUF_ARRAY && kvt_gguf_as_i64(value, 0, &n);
    if (!fits && value->kind != KVT_GGUF_U64) return wrong_kind(key, value, "an integer", err);
    if (!fits || n < min || n > max) {
        char shown[24] = "past 2^63";
        if (fits) snprintf(shown, sizeof shown, "%" PRId64, n);
        return kvt_fail(err, KVT_ERR_FORMAT, "the metadata key '%.100s' is %s; it must be from %" PRId64 " to %" PRId64,
                        key, shown, min, max);
    }
    *out = n;
    return KVT_OK;
}

enum kvt_status kvt_gguf_get_float(const struct kvt_gguf *gguf, const char *key, double *out, struct kvt_error *err) {
    const struct kvt_gguf_value *value = kvt_gguf_find(gguf, key);
    if (!value) return KVT_ERR_NOTFOUND;
    double x;
    if (value->kind == KVT_GGUF_ARRAY || !kvt_gguf_as_f64(value, 0, &x)) return wrong_kind(key, value, "a number", err);
    if (!isfinite(x))
        return kvt_fail(err, KVT_ERR_FORMAT, "the metadata key '%.100s' is %g, not a finite number", key, x);
    *out = x;
    return KVT_OK;
}

enum kvt_status kvt_gguf_get_bool(const struct kvt_gguf *gguf, const char *key, bool *out, struct kvt_error *err) {
    const struct kvt_gguf_value *value = kvt_gguf_find(gguf, key);
    if (!value) return KVT_ERR_NOTFOUND;
    if (value->kind != KVT_GGUF_BOOL) return wrong_kind(key, value, "a bool", err);
    *out = value->data[0] != 0;
    return KVT_OK;
}

enum kvt_status kvt_gguf_get_text(const struct kvt_gguf *gguf, const char *key, struct kvt_slice *out,
                                  struct kvt_error *err) {
    const struct kvt_gguf_value *value = kvt_gguf_find(gguf, key);
    if (!value) return KVT_ERR_NOTFOUND;
    if (value->kind != KVT_GGUF_STRING) return wrong_kind(key, value, "a string", err);
    *out = value->text[0];
    return KVT_OK;
}
