/* SPDX-License-Identifier: Apache-2.0
 *
 * Door of gguf: reading a GGUF file (versions 2 and 3, little-endian), mapped read-only.
 *
 * Every count, length, offset, alignment and product in the file is checked before it is used; a file that opens can be
 * read without further checks. Names (of keys and tensors) are unique and have 1 to 65535 bytes, none a control character;
 * a dimension is at least 1; a bool is 0 or 1. An opened file is immutable and may be read from any thread.
 */
#ifndef GGUF_GGUF_H
#define GGUF_GGUF_H

#include "base/alloc.h"

/* Metadata value types, by their numbers in the file. */
enum kvt_gguf_kind {
    KVT_GGUF_U8,
    KVT_GGUF_I8,
    KVT_GGUF_U16,
    KVT_GGUF_I16,
    KVT_GGUF_U32,
    KVT_GGUF_I32,
    KVT_GGUF_F32,
    KVT_GGUF_BOOL,
    KVT_GGUF_STRING,
    KVT_GGUF_ARRAY,
    KVT_GGUF_U64,
    KVT_GGUF_I64,
    KVT_GGUF_F64,
    KVT_GGUF_KIND_COUNT
};

/* Bytes in the file, not NUL-terminated. */
struct kvt_slice {
    const char *data;
    size_t len;
};

struct kvt_gguf_value {
    enum kvt_gguf_kind kind;      /* ARRAY: see element */
    enum kvt_gguf_kind element;   /* of an array; never ARRAY itself */
    uint64_t count;               /* of an array, else 1 */
    const unsigned char *data;    /* the value, or an array's first element, unaligned, in the file */
    const struct kvt_slice *text; /* strings: count slices, indexed at open; else NULL */
};

/* Tensor types: GGML's numbers, with how elements lie in blocks. The list is in types.c. */
struct kvt_gguf_type {
    uint32_t id;
    const char *name;   /* "Q4_K" */
    int block_len;      /* elements a block; 1 for plain types */
    size_t block_bytes; /* bytes a block */
};

struct kvt_gguf_tensor {
    const char *name; /* NUL-terminated copy; contains no NUL of its own */
    const struct kvt_gguf_type *type;
    int n_dims;
    int64_t dims[4];           /* dims[0] is the row length, unused ones are 1 */
    const unsigned char *data; /* in the file; aligned to 8 or more in a file opened by path */
    size_t bytes;
};

struct kvt_gguf;

/* Opens a file / reads one that is in memory (data must outlive it). FORMAT: the sentence says what is wrong, where. */
KVT_MUST_CHECK enum kvt_status kvt_gguf_open(struct kvt_gguf **out, const char *path,
                                             const struct kvt_allocator *allocator, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status kvt_gguf_open_memory(struct kvt_gguf **out, const void *data, size_t bytes,
                                                    const struct kvt_allocator *allocator, struct kvt_error *err);
void kvt_gguf_close(struct kvt_gguf *gguf);

/* Lets the system have a tensor's memory back, where it is a file's: it is read again when somebody looks. */
void kvt_gguf_release(const struct kvt_gguf *gguf, const unsigned char *data, size_t bytes);

int kvt_gguf_version(const struct kvt_gguf *gguf);
size_t kvt_gguf_bytes(const struct kvt_gguf *gguf);
size_t kvt_gguf_alignment(const struct kvt_gguf *gguf);

/* Metadata, in file order. Keys are NUL-terminated copies. find returns NULL if the key is absent. */
size_t kvt_gguf_n_keys(const struct kvt_gguf *gguf);
const char *kvt_gguf_key(const struct kvt_gguf *gguf, size_t i);
const struct kvt_gguf_value *kvt_gguf_value(const struct kvt_gguf *gguf, size_t i);
const struct kvt_gguf_value *kvt_gguf_find(const struct kvt_gguf *gguf, const char *key);

/* One element of a value (or of an array) as a number: integers and booleans of any width; false if it is not one or does
 * not fit. i in [0, count). */
bool kvt_gguf_as_i64(const struct kvt_gguf_value *value, uint64_t i, int64_t *out);
bool kvt_gguf_as_f64(const struct kvt_gguf_value *value, uint64_t i, double *out); /* integers too */

/* Typed look-up of a scalar. If the key is absent: NOTFOUND, out untouched, err untouched. Of another kind, outside
 * [min, max] or not finite: FORMAT with a sentence. A float may be stored as an integer, a bool as a bool only. */
KVT_MUST_CHECK enum kvt_status kvt_gguf_get_int(const struct kvt_gguf *gguf, const char *key, int64_t min, int64_t max,
                                                int64_t *out, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status kvt_gguf_get_float(const struct kvt_gguf *gguf, const char *key, double *out,
                                                  struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status kvt_gguf_get_bool(const struct kvt_gguf *gguf, const char *key, bool *out,
                                                 struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status kvt_gguf_get_text(const struct kvt_gguf *gguf, const char *key, struct kvt_slice *out,
                                                 struct kvt_error *err);

/* Tensors, in file order; names are unique. find returns NULL if absent. */
size_t kvt_gguf_n_tensors(const struct kvt_gguf *gguf);
const struct kvt_gguf_tensor *kvt_gguf_tensor(const struct kvt_gguf *gguf, size_t i);
const struct kvt_gguf_tensor *kvt_gguf_tensor_find(const struct kvt_gguf *gguf, const char *name);

/* Every tensor type that is known by size; NULL if unknown. */
const struct kvt_gguf_type *kvt_gguf_type_find(uint32_t id);
const char *kvt_gguf_kind_name(enum kvt_gguf_kind kind);

#endif
