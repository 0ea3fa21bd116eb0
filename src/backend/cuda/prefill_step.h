/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of a step's prompts: sequences with many query rows.
 */
#ifndef BACKEND_CUDA_PREFILL_STEP_H
#define BACKEND_CUDA_PREFILL_STEP_H

#include "backend/cuda/cuda.h"
#include "backend/cuda/prefill.h"
#include "cache/cache.h"

/* Memory that a step keeps for it: tables here and there, and rows in f16 there. */
struct kvt_cuda_prompts {
    char *host, *device, *units;
    size_t host_bytes, device_bytes, units_bytes;
};
void kvt_cuda_prompts_end(struct kvt_cuda_prompts *kept, const struct kvt_cuda *on,
                          const struct kvt_allocator *allocator);

/* Whether n_rows query rows of one sequence are a prompt, `group` query heads sharing a KV head: a function of the shape alone. The others
 * are for kvt_cuda_attend_launch. */
bool kvt_cuda_is_prompt(const struct kvt_layer *layer, int n_rows, int group);

/* Attends for the step's prompts. call: tiles, q, out and what belongs to them. */
KVT_MUST_CHECK enum kvt_status kvt_cuda_prompts_attend(struct kvt_cuda_prompts *kept, struct kvt_step *step, int layer,
                                                       const struct kvt_cuda_attend *call, const struct kvt_cuda *cuda,
                                                       struct kvt_error *err);

#endif
