/* SPDX-License-Identifier: Apache-2.0
 * The report of `kvtile inspect --json`. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "cli/inspect.h"
#include "json/json.h"

enum { ARRAY_SHOWN = 8 };

/* What adds one by one is checked by `ok`. */

/* A string; where it is not UTF-8 its escaped form. */
static json_t *text(const char *data, size_t len) {
    json_t *json = json_stringn(data, len);
    if (json) return json;
    struct kvt_buf escaped;
    kvt_buf_init(&escaped, NULL, len * 4 + 16);
    if (kvt_inspect_escape(&escaped, data, len, len + 1) == KVT_OK) json = json_string(kvt_buf_text(&escaped));
    kvt_buf_finish(&escaped);
    return json;
}

static json_t *element(const struct kvt_gguf_value *v, uint64_t i) {
    const enum kvt_gguf_kind kind = v->kind == KVT_GGUF_ARRAY ? v->element : v->kind;
    if (kind == KVT_GGUF_STRING) return text(v->text[i].data, v->text[i].len);
    int64_t n;
    double x;
    if (kind == KVT_GGUF_BOOL) return json_boolean(kvt_gguf_as_i64(v, i, &n) && n != 0);
    if (kind != KVT_GGUF_F32 && kind != KVT_GGUF_F64 && kvt_gguf_as_i64(v, i, &n)) return json_integer(n);
    return kvt_gguf_as_f64(v, i, &x) ? kvt_json_number(x) : json_null();
}

static json_t *value(const struct kvt_gguf_value *v, bool *ok) {
    if (v->kind != KVT_GGUF_ARRAY) return element(v, 0);
    json_t *first = json_array();
    for (uint64_t i = 0; i < v->count && i < ARRAY_SHOWN; i++) *ok &= json_array_append_new(first, element(v, i)) == 0;
    return json_pack("{s:s, s:I, s:o}", "type", kvt_gguf_kind_name(v->element), "count", (json_int_t)v->count, "first",
                     first);
}

static json_t *metadata(const struct kvt_gguf *gguf, bool *ok) {
    json_t *object = json_object();
    for (size_t i = 0; i < kvt_gguf_n_keys(gguf); i++) {
        json_t *key = text(kvt_gguf_key(gguf, i), strlen(kvt_gguf_key(gguf, i)));
        const char *name = json_string_value(key);
        *ok &= name && json_object_set_new(object, name, value(kvt_gguf_value(gguf, i), ok)) == 0;
        json_decref(key);
    }
    return object;
}

static json_t *tensors(const struct kvt_gguf *gguf, bool *ok) {
    json_t *list = json_array();
    for (size_t i = 0; i < kvt_gguf_n_tensors(gguf); i++) {
        const struct kvt_gguf_tensor *t = kvt_gguf_tensor(gguf, i);
        json_t *shape = json_array();
        for (int d = 0; d < t->n_dims; d++) *ok &= json_array_append_new(shape, json_integer(t->dims[d])) == 0;
        json_t *row = json_pack("{s:o, s:s, s:o, s:I}", "name", text(t->name, strlen(t->name)), "type", t->type->name,
                                "shape", shape, "bytes", (json_int_t)t->bytes);
        *ok &= json_array_append_new(list, row) == 0;
    }
    return list;
}

static json_t *cost(const struct kvt_inspect_cache *cache, const struct kvt_inspect_ask *ask, bool *ok) {
    const struct kvt_inspect_cost c = kvt_inspect_cost(cache, ask);
    json_t *name = text(ask->name, strlen(ask->name));
    if (c.why_not[0]) return json_pack("{s:o, s:s}", "kv", name, "why_not", c.why_not);
    json_t *bytes = json_object();
    for (int i = 0; i < KVT_INSPECT_N_LENGTHS; i++) {
        char length[16];
        snprintf(length, sizeof length, "%d", kvt_inspect_lengths[i]);
        *ok &= json_object_set_new(bytes, length, json_integer((json_int_t)c.bytes[i])) == 0;
    }
    return json_pack("{s:o, s:f, s:f, s:o}", "kv", name, "bits_per_element", c.bits, "bytes_per_token", c.token_bytes,
                     "bytes", bytes);
}

static json_t *costs(const struct kvt_inspect_cache *cache, const struct kvt_inspect_ask *asks, int n_asks, bool *ok) {
    if (cache->why_not[0])
        return json_pack("{s:b, s:s}", "arch_is_known", cache->arch_is_known, "why_not", cache->why_not);
    json_t *list = json_array();
    for (int i = 0; i < n_asks; i++) *ok &= json_array_append_new(list, cost(cache, &asks[i], ok)) == 0;
    return json_pack("{s:b, s:i, s:I, s:s, s:o}", "arch_is_known", cache->arch_is_known, "layers",
                     cache->shape.n_layers, "elements_per_token", (json_int_t)cache->n_elements, "caveat",
                     cache->caveat, "codecs", list);
}

enum kvt_status kvt_inspect_json(struct kvt_buf *out, const char *path, const struct kvt_gguf *gguf,
                                 const struct kvt_inspect_cache *cache, const struct kvt_inspect_ask *asks,
                                 int n_asks) {
    bool ok = true;
    json_t *root =
        json_pack("{s:o, s:i, s:I, s:o, s:o, s:o}", "file", text(path, strlen(path)), "version", kvt_gguf_version(gguf),
                  "bytes", (json_int_t)kvt_gguf_bytes(gguf), "metadata", metadata(gguf, &ok), "tensors",
                  tensors(gguf, &ok), "cache", costs(cache, asks, n_asks, &ok));
    return kvt_json_dump(out, root, ok, 9);
}
