/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of a step whose pages are in a device's memory.
 */
#ifndef BACKEND_CUDA_ATTEND_STEP_H
#define BACKEND_CUDA_ATTEND_STEP_H

#include "attention/attention.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/prefill_step.h"

/* What a step keeps between calls: memory here and there, taken as it is needed. */
struct kvt_cuda_attention {
    char *host, *device;
    size_t host_bytes, device_bytes;
    struct kvt_cuda_prompts prompts;
};
void kvt_cuda_attention_end(struct kvt_cuda_attention *kept, const struct kvt_cuda *on,
                            const struct kvt_allocator *allocator);

/* kvt_step_attend. q, sinks, out and lse may be in the process's memory, which is waited for, or in the device's, which is not; out and
 * lse in the same. */
KVT_MUST_CHECK enum kvt_status kvt_cuda_attention_run(struct kvt_step *step, int layer, const struct kvt_attend *attend,
                                                      struct kvt_error *err);

#endif
