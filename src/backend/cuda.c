/* SPDX-License-Identifier: Apache-2.0
 *
 * NVIDIA GPUs: pages in a device's memory. The device's code is in src/backend/cuda; a build without it has this row all the same.
 */
#include "backend/row.h"

extern const struct kvt_backend kvt_backend_cuda;

#if defined(KVT_HAVE_CUDA)

#include <stdio.h>

#include "backend/cuda/blas.h"
#include "backend/cuda/compute.h"
#include "backend/cuda/pages.h"
#include "base/check.h"

/* Devices of this machine, or why there are none. */
static void look(char *text, size_t bytes) {
    int n = 0, len = snprintf(text, bytes, "CUDA %s; ", kvt_cuda_built_with());
    struct kvt_error err;
    if (kvt_cuda_n_devices(&n, &err) != KVT_OK) {
        snprintf(text + len, bytes - (size_t)len, "%s", err.text);
        return;
    }
    for (int i = 0; i < n && (size_t)len < bytes; i++) {
        struct kvt_cuda_about about;
        if (kvt_cuda_describe(&about, i, &err) != KVT_OK)
            len += snprintf(text + len, bytes - (size_t)len, "%sdevice %d: %s", i ? ", " : "", i, err.text);
        else
            len += snprintf(text + len, bytes - (size_t)len, "%sdevice %d: %s, %.1f GiB", i ? ", " : "", i, about.name,
                            (double)about.total_bytes / (1 << 30));
    }
    if (kvt_cuda_blas_find(&err) != KVT_OK && (size_t)len < bytes)
        snprintf(text + len, bytes - (size_t)len, "; %s", err.text);
}

const struct kvt_backend kvt_backend_cuda = {
    .name = "cuda",
    .about = "NVIDIA GPUs, pages in the memory of one",
    .look = look,
    .pages = {.open = kvt_cuda_pool_open,
              .close = kvt_cuda_pool_close,
              .seq_open = kvt_cuda_seq_open,
              .seq_close = kvt_cuda_seq_close,
              .step_open = kvt_cuda_step_open,
              .step_close = kvt_cuda_step_close,
              .begin = kvt_cuda_step_begin,
              .end = kvt_cuda_step_end,
              .append = kvt_cuda_step_append,
              .reserved = kvt_cuda_pool_reserved,
              .take = kvt_cuda_page_take,
              .give = kvt_cuda_page_give,
              .copy = kvt_cuda_page_copy,
              .read = kvt_cuda_page_read,
              .write = kvt_cuda_page_write,
              .encode = kvt_cuda_page_encode,
              .decode = kvt_cuda_page_decode},
    .attend = kvt_cuda_attention_run,
    .compute = &kvt_cuda_compute,
};

#else

const struct kvt_backend kvt_backend_cuda = {
    .name = "cuda",
    .about = "NVIDIA GPUs, pages in the memory of one",
    .absent = "this build has no CUDA (configure one with cmake --preset cuda)",
};

#endif
