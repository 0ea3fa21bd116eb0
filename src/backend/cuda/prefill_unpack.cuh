/* SPDX-License-Identifier: Apache-2.0
 *
 * The first of prefill's two launches.
 */
#ifndef BACKEND_CUDA_PREFILL_UNPACK_CUH
#define BACKEND_CUDA_PREFILL_UNPACK_CUH

#include "backend/cuda/prefill.h"

/* Writes the units of all heads. */
extern "C" enum kvt_status kvt_cuda_prefill_unpack(const struct kvt_cuda_prefill *prefill, void *stream,
                                                   struct kvt_error *err);

#endif
