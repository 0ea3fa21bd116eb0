/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a file: the header, the lists, and giving all back.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gguf/inside.h"

enum {
    ALIGNMENT = 32, /* where the file names none */
    ENTRY_MIN = 14, /* bytes of the shortest metadata key: length, one letter, type, one byte */
    SLOT_MIN = 25   /* of the shortest tensor: length, one letter, dimensions, type, offset */
};

static enum kvt_status read_version(struct kvt_gguf *gguf, struct kvt_gguf_cursor *c) {
    const unsigned char *magic;
    uint32_t version;
    if (c->bytes == 0) return kvt_gguf_refuse(c, KVT_ERR_FORMAT, "the file is empty, not a GGUF file");
    if (c->bytes < 4 || memcmp(c->data, "GGUF", 4) != 0)
        return kvt_gguf_refuse(c, KVT_ERR_FORMAT, "not a GGUF file: it does not begin with the letters GGUF");
    KVT_TRY(kvt_gguf_read_bytes(c, 4, &magic));
    KVT_TRY(kvt_gguf_read_u32(c, &version));
    if (version != 0 && (version & 0xFFFF) == 0)
        return kvt_gguf_refuse(c, KVT_ERR_UNSUPPORTED, "a big-endian GGUF file; only little-endian files can be read");
    if (version != 2 && version != 3)
        return kvt_gguf_refuse(c, KVT_ERR_UNSUPPORTED, "GGUF version %" PRIu32 "; versions 2 and 3 can be read",
                               version);
    gguf->version = (int)version;
    return KVT_OK;
}

/* A count from the header, each of its items at least min bytes long. */
static enum kvt_status check_count(const struct kvt_gguf_cursor *c, uint64_t count, size_t min, const char *what) {
    if (count > kvt_gguf_left(c) / min)
        return kvt_gguf_refuse(c, KVT_ERR_FORMAT, "%" PRIu64 " %s are announced, but only %zu bytes follow", count,
                               what, kvt_gguf_left(c));
    return KVT_OK;
}

static enum kvt_status read_header(struct kvt_gguf *gguf, struct kvt_gguf_cursor *c) {
    uint64_t n_tensors, n_keys;
    KVT_TRY(read_version(gguf, c));
    KVT_TRY(kvt_gguf_read_u64(c, &n_tensors));
    KVT_TRY(kvt_gguf_read_u64(c, &n_keys));
    KVT_TRY(check_count(c, n_tensors, SLOT_MIN, "tensors"));
    KVT_TRY(check_count(c, n_keys, ENTRY_MIN, "metadata keys"));
    const struct kvt_allocator *a = &gguf->allocator;
    if (n_keys) gguf->entries = kvt_take_zero(a, (size_t)n_keys, sizeof *gguf->entries);
    if (gguf->entries) gguf->n_entries = (size_t)n_keys;
    if (n_tensors) gguf->slots = kvt_take_zero(a, (size_t)n_tensors, sizeof *gguf->slots);
    if (gguf->slots) gguf->n_slots = (size_t)n_tensors;
    if (gguf->n_entries != n_keys || gguf->n_slots != n_tensors ||
        !kvt_gguf_index_init(&gguf->entry_index, a, gguf->n_entries) ||
        !kvt_gguf_index_init(&gguf->slot_index, a, gguf->n_slots))
        return kvt_gguf_refuse(c, KVT_ERR_NOMEM, "no memory for %" PRIu64 " metadata keys and %" PRIu64 " tensors",
                               n_keys, n_tensors);
    return KVT_OK;
}

/* Takes over the map (empty: data is the caller's), also where it fails. */
static enum kvt_status parse(struct kvt_gguf **out, struct kvt_map map, const void *data, size_t bytes,
                             const char *file, const struct kvt_allocator *allocator, struct kvt_error *err) {
    const struct kvt_allocator a = kvt_allocator_or_default(allocator);
    struct kvt_gguf_cursor c = {.data = data, .bytes = bytes, .file = file, .part = "header", .err = err};
    struct kvt_gguf *gguf = kvt_take_zero(&a, 1, sizeof *gguf);
    if (!gguf) {
        kvt_map_close(&map);
        return kvt_gguf_refuse(&c, KVT_ERR_NOMEM, "no memory to read it");
    }
    *gguf = (struct kvt_gguf){.allocator = a, .map = map, .data = data, .bytes = bytes, .alignment = ALIGNMENT};
    enum kvt_status status = read_header(gguf, &c);
    if (status == KVT_OK) status = kvt_gguf_parse_entries(gguf, &c);
    if (status == KVT_OK) status = kvt_gguf_parse_tensors(gguf, &c);
    if (status == KVT_OK)
        *out = gguf;
    else
        kvt_gguf_close(gguf);
    return status;
}

enum kvt_status kvt_gguf_open(struct kvt_gguf **out, const char *path, const struct kvt_allocator *allocator,
                              struct kvt_error *err) {
    if (!out || !path) return kvt_fail(err, KVT_ERR_ARG, "kvt_gguf_open: out and path must not be NULL");
    struct kvt_map map;
    KVT_TRY(kvt_map_open(&map, path, err));
    char file[256];
    snprintf(file, sizeof file, "'%s'", path);
    return parse(out, map, map.data, map.bytes, file, allocator, err);
}

enum kvt_status kvt_gguf_open_memory(struct kvt_gguf **out, const void *data, size_t bytes,
                                     const struct kvt_allocator *allocator, struct kvt_error *err) {
    if (!out || (!data && bytes))
        return kvt_fail(err, KVT_ERR_ARG, "kvt_gguf_open_memory: out and data must not be NULL");
    return parse(out, (struct kvt_map){NULL, 0}, data, bytes, "GGUF in memory", allocator, err);
}

void kvt_gguf_release(const struct kvt_gguf *gguf, const unsigned char *data, size_t bytes) {
    kvt_map_release(&gguf->map, (size_t)(data - gguf->data), bytes);
}

void kvt_gguf_close(struct kvt_gguf *gguf) {
    if (!gguf) return;
    const struct kvt_allocator a = gguf->allocator;
    for (size_t i = 0; i < gguf->n_entries; i++) {
        struct kvt_gguf_entry *entry = &gguf->entries[i];
        if (entry->key) kvt_give(&a, entry->key, strlen(entry->key) + 1, 1);
        kvt_give(&a, entry->slices, (size_t)entry->value.count, sizeof *entry->slices);
    }
    for (size_t i = 0; i < gguf->n_slots; i++)
        if (gguf->slots[i].name) kvt_give(&a, gguf->slots[i].name, strlen(gguf->slots[i].name) + 1, 1);
    kvt_give(&a, gguf->entries, gguf->n_entries, sizeof *gguf->entries);
    kvt_give(&a, gguf->slots, gguf->n_slots, sizeof *gguf->slots);
    kvt_gguf_index_finish(&gguf->entry_index, &a);
    kvt_gguf_index_finish(&gguf->slot_index, &a);
    kvt_map_close(&gguf->map);
    kvt_give(&a, gguf, 1, sizeof *gguf);
}

int kvt_gguf_version(const struct kvt_gguf *gguf) { return gguf->version; }
size_t kvt_gguf_bytes(const struct kvt_gguf *gguf) { return gguf->bytes; }
size_t kvt_gguf_alignment(const struct kvt_gguf *gguf) { return gguf->alignment; }
