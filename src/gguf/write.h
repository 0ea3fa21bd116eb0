/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing GGUF version 3: for tests, which make tiny models from a seed.
 */
#ifndef GGUF_WRITE_H
#define GGUF_WRITE_H

#include "base/buf.h"
#include "gguf/gguf.h"

/* Collects metadata and tensors, then lays the file out in a buffer. The first failure (NOMEM; ARG for a tensor whose
 * bytes are not what a known type and dims need) is kept and returned by finish, so the adds need no checks. */
struct kvt_gguf_writer;

KVT_MUST_CHECK enum kvt_status kvt_gguf_writer_create(struct kvt_gguf_writer **out,
                                                      const struct kvt_allocator *allocator);
void kvt_gguf_writer_destroy(struct kvt_gguf_writer *w);

/* Where tensor data is aligned: a power of two, at least 8, told in the file. Before the first tensor; without it 32. */
void kvt_gguf_writer_align(struct kvt_gguf_writer *w, uint32_t alignment);

/* One value, or n of them as an array, of a kind of fixed size; data as the host holds them. */
void kvt_gguf_add_value(struct kvt_gguf_writer *w, const char *key, enum kvt_gguf_kind kind, const void *data);
void kvt_gguf_add_array(struct kvt_gguf_writer *w, const char *key, enum kvt_gguf_kind element, const void *data,
                        size_t n);
void kvt_gguf_add_u32(struct kvt_gguf_writer *w, const char *key, uint32_t value);
void kvt_gguf_add_f32(struct kvt_gguf_writer *w, const char *key, float value);
void kvt_gguf_add_bool(struct kvt_gguf_writer *w, const char *key, bool value);
void kvt_gguf_add_text(struct kvt_gguf_writer *w, const char *key, const char *value);
void kvt_gguf_add_texts(struct kvt_gguf_writer *w, const char *key, const char *const *values, size_t n);
void kvt_gguf_add_i32s(struct kvt_gguf_writer *w, const char *key, const int32_t *values, size_t n);
/* data is copied. */
void kvt_gguf_add_tensor(struct kvt_gguf_writer *w, const char *name, uint32_t type, int n_dims, const int64_t *dims,
                         const void *data, size_t bytes);

/* The whole file, appended to buf. */
KVT_MUST_CHECK enum kvt_status kvt_gguf_writer_finish(struct kvt_gguf_writer *w, struct kvt_buf *buf);

#endif
