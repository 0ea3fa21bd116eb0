/* SPDX-License-Identifier: Apache-2.0
 *
 * The metadata part of a file: keys and their values.
 */
#include <inttypes.h>

#include "gguf/inside.h"

static enum kvt_status check_bools(const struct kvt_gguf_cursor *c, const unsigned char *data, uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        if (data[i] > 1) return kvt_gguf_refuse(c, KVT_ERR_FORMAT, "a bool is %u, not 0 or 1", (unsigned)data[i]);
    return KVT_OK;
}

static enum kvt_status read_kind(struct kvt_gguf_cursor *c, enum kvt_gguf_kind *out) {
    uint32_t kind;
    KVT_TRY(kvt_gguf_read_u32(c, &kind));
    if (kind >= KVT_GGUF_KIND_COUNT)
        return kvt_gguf_refuse(c, KVT_ERR_FORMAT, "value type %" PRIu32 " is unknown; 0 to %d are defined", kind,
                               KVT_GGUF_KIND_COUNT - 1);
    *out = (enum kvt_gguf_kind)kind;
    return KVT_OK;
}

/* Elements that lie one after the other, all of one size. */
static enum kvt_status read_plain(struct kvt_gguf_cursor *c, enum kvt_gguf_kind kind, uint64_t count,
                                  const unsigned char **out) {
    const size_t size = kvt_gguf_kind_bytes(kind);
    if (count > kvt_gguf_left(c) / size)
        return kvt_gguf_refuse(c, KVT_ERR_FORMAT, "%" PRIu64 " values of %s are announced, but only %zu bytes follow",
                               count, kvt_gguf_kind_name(kind), kvt_gguf_left(c));
    const unsigned char *data;
    KVT_TRY(kvt_gguf_read_bytes(c, count * size, &data));
    if (kind == KVT_GGUF_BOOL) KVT_TRY(check_bools(c, data, count));
    *out = data;
    return KVT_OK;
}

static enum kvt_status read_strings(struct kvt_gguf_cursor *c, const struct kvt_allocator *allocator,
                                    struct kvt_gguf_entry *entry) {
    const uint64_t count = entry->value.count;
    entry->value.data = c->data + c->at;
    if (count > kvt_gguf_left(c) / 8) /* each has at least its length */
        return kvt_gguf_refuse(c, KVT_ERR_FORMAT, "%" PRIu64 " strings are announced, but only %zu bytes follow", count,
                               kvt_gguf_left(c));
    if (count == 0) return KVT_OK;
    entry->slices = kvt_take(allocator, (size_t)count, sizeof *entry->slices);
    if (!entry->slices) return kvt_gguf_refuse(c, KVT_ERR_NOMEM, "no memory to index %" PRIu64 " strings", count);
    entry->value.text = entry->slices;
    for (uint64_t i = 0; i < count; i++) KVT_TRY(kvt_gguf_read_slice(c, &entry->slices[i]));
    return KVT_OK;
}

static enum kvt_status read_array(struct kvt_gguf_cursor *c, const struct kvt_allocator *allocator,
                                  struct kvt_gguf_entry *entry) {
    struct kvt_gguf_value *value = &entry->value;
    KVT_TRY(read_kind(c, &value->element));
    if (value->element == KVT_GGUF_ARRAY)
        return kvt_gguf_refuse(c, KVT_ERR_UNSUPPORTED, "'%.100s' is an array of arrays, which is not supported",
                               entry->key);
    KVT_TRY(kvt_gguf_read_u64(c, &value->count));
    if (value->element == KVT_GGUF_STRING) return read_strings(c, allocator, entry);
    return read_plain(c, value->element, value->count, &value->data);
}

static enum kvt_status read_value(struct kvt_gguf_cursor *c, const struct kvt_allocator *allocator,
                                  struct kvt_gguf_entry *entry) {
    struct kvt_gguf_value *value = &entry->value;
    KVT_TRY(read_kind(c, &value->kind));
    if (value->kind == KVT_GGUF_ARRAY) return read_array(c, allocator, entry);
    value->element = value->kind;
    value->count = 1;
    if (value->kind != KVT_GGUF_STRING) return read_plain(c, value->kind, 1, &value->data);
    value->data = c->data + c->at;
    KVT_TRY(kvt_gguf_read_slice(c, &entry->single));
    value->text = &entry->single;
    return KVT_OK;
}

/* The specification asks for a multiple of 8, GGML for a power of two. */
static enum kvt_status set_alignment(struct kvt_gguf *gguf, const struct kvt_gguf_cursor *c) {
    static const char key[] = "general.alignment";
    const struct kvt_gguf_value *value = kvt_gguf_find(gguf, key);
    if (!value) return KVT_OK;
    int64_t n;
    if (value->kind == KVT_GGUF_ARRAY || !kvt_gguf_as_i64(value, 0, &n))
        return kvt_gguf_refuse(c, KVT_ERR_FORMAT, "%s is of type %s; it must be an integer", key,
                               kvt_gguf_kind_name(value->kind));
    if (n < 8 || n > INT64_C(1) << 31 || (n & (n - 1)) != 0)
        return kvt_gguf_refuse(c, KVT_ERR_FORMAT, "%s is %" PRId64 "; it must be a power of two from 8 to 2^31", key,
                               n);
    gguf->alignment = (size_t)n;
    return KVT_OK;
}

enum kvt_status kvt_gguf_parse_entries(struct kvt_gguf *gguf, struct kvt_gguf_cursor *c) {
    const size_t n = gguf->n_entries;
    for (size_t i = 0; i < n; i++) {
        c->part = "metadata key";
        c->number = i + 1;
        struct kvt_gguf_entry *entry = &gguf->entries[i];
        KVT_TRY(kvt_gguf_read_name(c, &gguf->allocator, &entry->key));
        gguf->entry_index.names[i] = (struct kvt_gguf_name){entry->key, i};
        KVT_TRY(read_value(c, &gguf->allocator, entry));
    }
    c->number = 0;
    const char *twice = kvt_gguf_index_sort(&gguf->entry_index);
    if (twice) return kvt_gguf_refuse(c, KVT_ERR_FORMAT, "the metadata key '%.100s' is there twice", twice);
    return set_alignment(gguf, c);
}
