/* SPDX-License-Identifier: Apache-2.0
 *
 * Laying out a GGUF file: metadata, tensor descriptions and tensor data grow in a buffer each.
 */
#include "gguf/write.h"

#include <string.h>

#include "gguf/inside.h"

enum { ALIGNMENT = 32 };

struct kvt_gguf_writer {
    struct kvt_allocator allocator;
    struct kvt_buf meta, infos, payload;
    uint64_t n_keys, n_tensors;
    size_t alignment;
    enum kvt_status status;
};

enum kvt_status kvt_gguf_writer_create(struct kvt_gguf_writer **out, const struct kvt_allocator *allocator) {
    const struct kvt_allocator a = kvt_allocator_or_default(allocator);
    struct kvt_gguf_writer *w = kvt_take_zero(&a, 1, sizeof *w);
    if (!w) return KVT_ERR_NOMEM;
    w->allocator = a;
    w->alignment = ALIGNMENT;
    kvt_buf_init(&w->meta, &a, SIZE_MAX / 4);
    kvt_buf_init(&w->infos, &a, SIZE_MAX / 4);
    kvt_buf_init(&w->payload, &a, SIZE_MAX / 4);
    *out = w;
    return KVT_OK;
}

void kvt_gguf_writer_destroy(struct kvt_gguf_writer *w) {
    if (!w) return;
    const struct kvt_allocator a = w->allocator;
    kvt_buf_finish(&w->meta);
    kvt_buf_finish(&w->infos);
    kvt_buf_finish(&w->payload);
    kvt_give(&a, w, 1, sizeof *w);
}

/* ---- pieces; a failure is kept ---------------------------------------------------------------------------------------- */

static void put(struct kvt_gguf_writer *w, struct kvt_buf *buf, const void *data, size_t bytes) {
    if (w->status == KVT_OK) w->status = kvt_buf_add(buf, data, bytes);
}

static void put_le(struct kvt_gguf_writer *w, struct kvt_buf *buf, uint64_t u, size_t bytes) {
    unsigned char le[8];
    for (size_t i = 0; i < 8; i++) le[i] = (unsigned char)(u >> 8 * i);
    put(w, buf, le, bytes);
}

static void put_text(struct kvt_gguf_writer *w, struct kvt_buf *buf, const char *text) {
    const size_t len = strlen(text);
    put_le(w, buf, len, 8);
    put(w, buf, text, len);
}

static void put_padding(struct kvt_gguf_writer *w, struct kvt_buf *buf, size_t len, size_t alignment) {
    for (; len % alignment != 0; len++) put(w, buf, "", 1);
}

/* Host values of 1, 2, 4 or 8 bytes, in the file's order. */
static void put_values(struct kvt_gguf_writer *w, enum kvt_gguf_kind kind, const void *data, size_t n) {
    const size_t size = kvt_gguf_kind_bytes(kind);
    KVT_ASSERT(size > 0);
    for (size_t i = 0; i < n; i++) {
        const unsigned char *p = (const unsigned char *)data + i * size;
        uint64_t u = 0;
        uint32_t u4;
        uint16_t u2;
        switch (size) {
        case 1: u = *p; break;
        case 2:
            memcpy(&u2, p, 2);
            u = u2;
            break;
        case 4:
            memcpy(&u4, p, 4);
            u = u4;
            break;
        default: memcpy(&u, p, 8);
        }
        put_le(w, &w->meta, u, size);
    }
}

static void put_key(struct kvt_gguf_writer *w, const char *key, enum kvt_gguf_kind kind) {
    put_text(w, &w->meta, key);
    put_le(w, &w->meta, (uint64_t)kind, 4);
    w->n_keys++;
}

static void put_array(struct kvt_gguf_writer *w, const char *key, enum kvt_gguf_kind element, size_t n) {
    put_key(w, key, KVT_GGUF_ARRAY);
    put_le(w, &w->meta, (uint64_t)element, 4);
    put_le(w, &w->meta, n, 8);
}

/* ---- the door --------------------------------------------------------------------------------------------------------- */

void kvt_gguf_writer_align(struct kvt_gguf_writer *w, uint32_t alignment) {
    KVT_ASSERT(w->n_tensors == 0 && alignment >= 8 && (alignment & (alignment - 1)) == 0);
    kvt_gguf_add_u32(w, "general.alignment", alignment);
    w->alignment = alignment;
}

void kvt_gguf_add_value(struct kvt_gguf_writer *w, const char *key, enum kvt_gguf_kind kind, const void *data) {
    put_key(w, key, kind);
    put_values(w, kind, data, 1);
}

void kvt_gguf_add_array(struct kvt_gguf_writer *w, const char *key, enum kvt_gguf_kind element, const void *data,
                        size_t n) {
    put_array(w, key, element, n);
    put_values(w, element, data, n);
}

void kvt_gguf_add_u32(struct kvt_gguf_writer *w, const char *key, uint32_t value) {
    kvt_gguf_add_value(w, key, KVT_GGUF_U32, &value);
}

void kvt_gguf_add_f32(struct kvt_gguf_writer *w, const char *key, float value) {
    kvt_gguf_add_value(w, key, KVT_GGUF_F32, &value);
}

void kvt_gguf_add_bool(struct kvt_gguf_writer *w, const char *key, bool value) {
    const uint8_t byte = value;
    kvt_gguf_add_value(w, key, KVT_GGUF_BOOL, &byte);
}

void kvt_gguf_add_text(struct kvt_gguf_writer *w, const char *key, const char *value) {
    put_key(w, key, KVT_GGUF_STRING);
    put_text(w, &w->meta, value);
}

void kvt_gguf_add_texts(struct kvt_gguf_writer *w, const char *key, const char *const *values, size_t n) {
    put_array(w, key, KVT_GGUF_STRING, n);
    for (size_t i = 0; i < n; i++) put_text(w, &w->meta, values[i]);
}

void kvt_gguf_add_i32s(struct kvt_gguf_writer *w, const char *key, const int32_t *values, size_t n) {
    kvt_gguf_add_array(w, key, KVT_GGUF_I32, values, n);
}

void kvt_gguf_add_tensor(struct kvt_gguf_writer *w, const char *name, uint32_t type, int n_dims, const int64_t *dims,
                         const void *data, size_t bytes) {
    const struct kvt_gguf_type *known = kvt_gguf_type_find(type);
    size_t n = 1, need = 0;
    bool right = true;
    for (int i = 0; i < n_dims; i++) right = right && dims[i] > 0 && kvt_mul_ok(n, (size_t)dims[i], &n);
    if (known) right = right && kvt_mul_ok(n / (size_t)known->block_len, known->block_bytes, &need) && need == bytes;
    if (!right && w->status == KVT_OK) w->status = KVT_ERR_ARG;
    put_text(w, &w->infos, name);
    put_le(w, &w->infos, (uint64_t)n_dims, 4);
    for (int i = 0; i < n_dims; i++) put_le(w, &w->infos, (uint64_t)dims[i], 8);
    put_le(w, &w->infos, type, 4);
    put_padding(w, &w->payload, w->payload.len, w->alignment);
    put_le(w, &w->infos, w->payload.len, 8);
    put(w, &w->payload, data, bytes);
    w->n_tensors++;
}

enum kvt_status kvt_gguf_writer_finish(struct kvt_gguf_writer *w, struct kvt_buf *buf) {
    const size_t start = buf->len;
    put(w, buf, "GGUF", 4);
    put_le(w, buf, 3, 4);
    put_le(w, buf, w->n_tensors, 8);
    put_le(w, buf, w->n_keys, 8);
    put(w, buf, w->meta.data, w->meta.len);
    put(w, buf, w->infos.data, w->infos.len);
    put_padding(w, buf, buf->len - start, w->alignment);
    put(w, buf, w->payload.data, w->payload.len);
    put_padding(w, buf, buf->len - start, w->alignment);
    return w->status;
}
