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

#include "kvtile/status.h"

#ifdef __cplusplus
extern "C" {
#endif

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

/* A device in use, and the stream on which everything below happens in order. */
struct kvt_cuda {
    int device;
    int n_multiprocessors;
    void *stream;    /* cudaStream_t */
    int owns_stream; /* it is closed with the device */
};
/* stream: the caller's, or NULL for one of its own. ARG for a device that is not there (the sentence names those that are), UNSUPPORTED
 * for one that the build has no code for. */
enum kvt_status kvt_cuda_open(struct kvt_cuda *out, int device, void *stream, struct kvt_error *err);
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

/* In the stream's order. Host memory is read before they return, or before the stream has come so far where it is pinned. */
enum kvt_status kvt_cuda_fill(const struct kvt_cuda *cuda, void *device, int byte, size_t bytes, struct kvt_error *err);
enum kvt_status kvt_cuda_copy(const struct kvt_cuda *cuda, void *to, const void *from, size_t bytes,
                              struct kvt_error *err);
/* n rows of row_bytes from wherever they are, each `step` bytes after the one before, packed at `device`. */
enum kvt_status kvt_cuda_pack(const struct kvt_cuda *cuda, void *device, const void *from, size_t row_bytes,
                              ptrdiff_t step, size_t n, struct kvt_error *err);
/* Waits for what the stream has to do. */
enum kvt_status kvt_cuda_wait(const struct kvt_cuda *cuda, struct kvt_error *err);

/* Memory for tables, taken and given in the stream's order: fast. */
enum kvt_status kvt_cuda_take_table(const struct kvt_cuda *cuda, void **device, size_t bytes, struct kvt_error *err);
void kvt_cuda_give_table(const struct kvt_cuda *cuda, void *device);

/* An entry of a table of pages. */
struct kvt_cuda_entry {
    void **slot; /* device */
    void *value;
};
/* Writes n entries, which lie on the device, to their slots. */
enum kvt_status kvt_cuda_set_entries(const struct kvt_cuda *cuda, const struct kvt_cuda_entry *entries, int n,
                                     struct kvt_error *err);

/* Whether a pointer is into this device's memory, or memory that it shares with the process (managed). */
enum kvt_status kvt_cuda_is_device(const struct kvt_cuda *cuda, const void *pointer, int *out, struct kvt_error *err);

#ifdef __cplusplus
}
#endif
#endif
