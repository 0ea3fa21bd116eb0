/* SPDX-License-Identifier: Apache-2.0
 *
 * The runtime's errors as ours, for .cu files.
 */
#ifndef BACKEND_CUDA_CHECK_CUH
#define BACKEND_CUDA_CHECK_CUH

#include <cuda_runtime.h>

extern "C" {
#include "base/check.h"
}

/* What failed, for the sentence: "launching the encoder". An error of an earlier launch can show at any later call. */
static inline enum kvt_status kvt_cuda_status(cudaError_t error, const char *what, struct kvt_error *err) {
    if (error == cudaSuccess) return KVT_OK;
    (void)cudaGetLastError(); /* where it is one that can be taken back, the next call does not see it again */
    return kvt_fail(err, error == cudaErrorMemoryAllocation ? KVT_ERR_NOMEM : KVT_ERR_DEVICE, "CUDA, %s: %s (%s)", what,
                    cudaGetErrorString(error), cudaGetErrorName(error));
}

/* After a launch. */
static inline enum kvt_status kvt_cuda_launched(const char *what, struct kvt_error *err) {
    return kvt_cuda_status(cudaGetLastError(), what, err);
}

#endif
