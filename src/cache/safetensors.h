/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a safetensors file: 8 bytes of the header's length, a header in JSON, and the arrays.
 */
#ifndef CACHE_SAFETENSORS_H
#define CACHE_SAFETENSORS_H

#include "base/arena.h"
#include "kvtile/status.h"

enum { KVT_ST_DIMS = 8 };

/* The element types that prompt caches have. OTHER: one of safetensors' that they have not. */
enum kvt_st_type { KVT_ST_OTHER, KVT_ST_U8, KVT_ST_F16, KVT_ST_BF16, KVT_ST_F32, KVT_ST_I32, KVT_ST_U32 };

struct kvt_st_array {
    const char *name;
    enum kvt_st_type type;
    int n_dims;
    int64_t dims[KVT_ST_DIMS];
    const unsigned char *data; /* in the file, at any address */
    size_t bytes;
};

struct kvt_st_entry {
    const char *key, *value;
};

/* The header, sorted by name and by key. Strings lie in the arena, arrays in the file's bytes. */
struct kvt_st {
    struct kvt_arena arena;
    struct kvt_st_array *arrays;
    int n_arrays;
    struct kvt_st_entry *entries;
    int n_entries;
};

/* `name` is the file's, for sentences. FORMAT for anything that is no such file, arrays outside of it or of another size than their
 * dimensions say; NOMEM. Finish in any case. */
KVT_MUST_CHECK enum kvt_status kvt_st_read(struct kvt_st *out, const unsigned char *data, size_t bytes,
                                           const char *name, const struct kvt_allocator *allocator,
                                           struct kvt_error *err);
void kvt_st_finish(struct kvt_st *st);

/* NULL if there is none. */
const struct kvt_st_array *kvt_st_array(const struct kvt_st *st, const char *name);
const char *kvt_st_entry(const struct kvt_st *st, const char *key);

#endif
