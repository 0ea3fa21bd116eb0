/* SPDX-License-Identifier: Apache-2.0
 *
 * Between C and CUDA. This side is plain C17 and includes no header of CUDA; what is declared here is defined in the .cu files
 * beside it, and only where the build has CUDA (KVT_HAVE_CUDA). Pointers called `device` are into a device's memory. No function here takes
 * the process's memory; the first call that a device answers with an error gives KVT_ERR_DEVICE with the runtime's sentence.
 */
#ifndef BACKEND_CUDA_CUDA_H
#define BACKEND_CUDA_CUDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "codec/codec.h"

/* "13.0 for sm_90a": of nvcc, and what it compiled for. */
const char *kvt_cuda_built_with(void);

/* Devices that the driver shows. DEVICE where there is no driver or no device. */
enum kvt_status kvt_cuda_n_devices(int *out, struct kvt_error *err);

struct kvt_cuda_about {
    char name[64];
    int major, minor; /* compute capability */
    int n_multiprocessors;
    size_t l2_bytes, total_bytes;
};
enum kvt_status kvt_cuda_describe(struct kvt_cuda_about *out, int device, struct kvt_error *err);

/* A device in use: its own stream, on which everything below happens in order. */
struct kvt_cuda {
    int device;
    int n_multiprocessors;
    void *stream;
};
/* ARG for a device that is not there (the sentence names those that are), UNSUPPORTED for one that the build has no code for. */
enum kvt_status kvt_cuda_open(struct kvt_cuda *out, int device, struct kvt_error *err);
void kvt_cuda_close(struct kvt_cuda *cuda);

/* Makes the device the calling thread's own until kvt_cuda_leave, as launches need it, and what was it before is it again. */
enum kvt_status kvt_cuda_enter(const struct kvt_cuda *cuda, int *before, struct kvt_error *err);
void kvt_cuda_leave(int before);

/* Memory of the device. NOMEM: the sentence says how much is free. */
enum kvt_status kvt_cuda_take(const struct kvt_cuda *cuda, void **device, size_t bytes, struct kvt_error *err);
void kvt_cuda_give(const struct kvt_cuda *cuda, void *device); /* NULL is fine */
enum kvt_status kvt_cuda_free_bytes(const struct kvt_cuda *cuda, size_t *out, struct kvt_error *err);
/* Memory of the process that the device reads and writes fast. */
enum kvt_status kvt_cuda_take_pinned(const struct kvt_cuda *cuda, void **host, size_t bytes, struct kvt_error *err);
void kvt_cuda_give_pinned(const struct kvt_cuda *cuda, void *host);

/* In the stream's order; `wait` until it is done. Host memory that is not pinned may be used again when copy_in returns. */
enum kvt_status kvt_cuda_clear(const struct kvt_cuda *cuda, void *device, size_t bytes, struct kvt_error *err);
enum kvt_status kvt_cuda_copy(const struct kvt_cuda *cuda, void *device, const void *from, size_t bytes,
                              struct kvt_error *err);
enum kvt_status kvt_cuda_copy_in(const struct kvt_cuda *cuda, void *device, const void *host, size_t bytes,
                                 struct kvt_error *err);
enum kvt_status kvt_cuda_copy_out(const struct kvt_cuda *cuda, void *host, const void *device, size_t bytes,
                                  struct kvt_error *err); /* waits */
enum kvt_status kvt_cuda_wait(const struct kvt_cuda *cuda, struct kvt_error *err);

/* ---- encoding ---------------------------------------------------------------------------------------------------------- */

/* Rows [first, first + n) of a tile, of one sequence and all KV heads: from 16-bit pages to pages of the body. */
struct kvt_cuda_run {
    const void *from; /* the wide page's tiles: rows in 16 bits (or what the side's plain codec has) */
    void *to;         /* the body page's */
    int32_t first, n; /* in whole groups of the codec; first + n <= 128 */
};

/* What one layer and side encodes in a step: one launch for all runs and heads. By value, with tables that lie on the device. */
struct kvt_cuda_encode {
    const struct kvt_codec *codec; /* host memory: for choosing the kernel */
    struct kvt_tile wide, body;    /* descriptions; format.table is host memory */
    size_t wide_offset, wide_step; /* of KV head h the tile lies at from + wide_offset + h * wide_step */
    size_t body_offset, body_step; /* ... and at to + body_offset + h * body_step */
    int n_heads, n_runs;
    const struct kvt_cuda_run *runs;     /* on the device */
    struct kvt_tile queries;             /* of 0 bytes: the codec uses none, or the rows came without */
    size_t queries_offset, queries_step; /* as wide_offset, in the wide page */
    int queries_parts;                   /* row r has part r modulo this of the channels (src/cache/queries.c) */
};

/* Launches on a stream. The bytes that kvt_encode_fn gives, those of other rows as they were. */
typedef enum kvt_status (*kvt_cuda_encode_fn)(const struct kvt_cuda_encode *args, void *stream, struct kvt_error *err);

/* The encoder of a codec for rows of d elements, or NULL: the device has none yet. */
kvt_cuda_encode_fn kvt_cuda_encode_find(const struct kvt_codec *codec, enum kvt_side side, int d);
/* What kvt_cuda_encode_find has something for, for people: "f16, bf16, f32". */
const char *kvt_cuda_encode_names(void);

/* ---- where a pointer is ------------------------------------------------------------------------------------------------- */

/* Whether a pointer is into this device's memory, or memory that it shares with the process (managed). */
enum kvt_status kvt_cuda_is_device(const struct kvt_cuda *cuda, const void *pointer, int *out, struct kvt_error *err);

#ifdef __cplusplus
}
#endif
#endif
