/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to gguf: the opened file, the cursor that reads it, and the parts of the parse.
 */
#ifndef GGUF_INSIDE_H
#define GGUF_INSIDE_H

#include "base/check.h"
#include "base/file.h"
#include "gguf/gguf.h"

/* Names sorted for look-up: binary search has no bad case that a file could be made for. */
struct kvt_gguf_name {
    const char *text;
    size_t at; /* in the list that the index is of */
};

struct kvt_gguf_index {
    struct kvt_gguf_name *names;
    size_t n;
};

struct kvt_gguf_entry {
    char *key;
    struct kvt_gguf_value value;
    struct kvt_slice single;  /* what value.text of a scalar string points to */
    struct kvt_slice *slices; /* of a string array, value.count of them; else NULL */
};

struct kvt_gguf_slot {
    struct kvt_gguf_tensor tensor;
    char *name;      /* tensor.name, to give back */
    uint64_t offset; /* from the start of the tensor data */
};

struct kvt_gguf {
    struct kvt_allocator allocator;
    struct kvt_map map; /* empty where the caller's memory is read */
    const unsigned char *data;
    size_t bytes, alignment;
    int version;
    /* The lists are taken at their full size, zeroed, before they are filled: a parse may stop anywhere. */
    struct kvt_gguf_entry *entries;
    struct kvt_gguf_slot *slots;
    size_t n_entries, n_slots;
    struct kvt_gguf_index entry_index, slot_index;
};

/* Reads forward, never past the end. What it is in the middle of (part, number) goes into the sentences. */
struct kvt_gguf_cursor {
    const unsigned char *data;
    size_t at, bytes;
    const char *file; /* how sentences name the file */
    const char *part; /* "metadata key", "tensor" or "header" */
    size_t number;    /* of the part, from 1; 0: it has none */
    struct kvt_error *err;
};

static inline size_t kvt_gguf_left(const struct kvt_gguf_cursor *c) { return c->bytes - c->at; }

/* Fails with "FILE: PART NUMBER: sentence". */
enum kvt_status kvt_gguf_refuse(const struct kvt_gguf_cursor *c, enum kvt_status code, const char *format, ...)
    KVT_PRINTF(3, 4);

KVT_MUST_CHECK enum kvt_status kvt_gguf_read_bytes(struct kvt_gguf_cursor *c, uint64_t n, const unsigned char **out);
KVT_MUST_CHECK enum kvt_status kvt_gguf_read_u32(struct kvt_gguf_cursor *c, uint32_t *out);
KVT_MUST_CHECK enum kvt_status kvt_gguf_read_u64(struct kvt_gguf_cursor *c, uint64_t *out);
KVT_MUST_CHECK enum kvt_status kvt_gguf_read_slice(struct kvt_gguf_cursor *c, struct kvt_slice *out);
/* A key or tensor name: printable bytes, 1 to 65535 of them; a copy with a NUL, to be given back by length + 1. */
KVT_MUST_CHECK enum kvt_status kvt_gguf_read_name(struct kvt_gguf_cursor *c, const struct kvt_allocator *allocator,
                                                  char **out);

/* Little-endian numbers at any address. */
static inline uint64_t kvt_gguf_le(const unsigned char *p, size_t bytes) {
    uint64_t u = 0;
    for (size_t i = bytes; i-- > 0;) u = u << 8 | p[i];
    return u;
}

/* The parts of the parse: each fills its list, whose room is there, and its index. */
KVT_MUST_CHECK enum kvt_status kvt_gguf_parse_entries(struct kvt_gguf *gguf, struct kvt_gguf_cursor *c);
KVT_MUST_CHECK enum kvt_status kvt_gguf_parse_tensors(struct kvt_gguf *gguf, struct kvt_gguf_cursor *c);

/* Room for n names: false if memory is out. */
KVT_MUST_CHECK bool kvt_gguf_index_init(struct kvt_gguf_index *index, const struct kvt_allocator *allocator, size_t n);
void kvt_gguf_index_finish(struct kvt_gguf_index *index, const struct kvt_allocator *allocator);
/* Sorts the filled names; returns one that is there twice, or NULL. */
const char *kvt_gguf_index_sort(struct kvt_gguf_index *index);
/* Where the name is in its list, or SIZE_MAX. */
size_t kvt_gguf_index_find(const struct kvt_gguf_index *index, const char *name);

/* Bytes of one value of a kind; 0 for strings, arrays and unknown kinds. */
size_t kvt_gguf_kind_bytes(enum kvt_gguf_kind kind);

#endif
