/* SPDX-License-Identifier: Apache-2.0
 *
 * Door of attention: over the pages of a step, on the CPU.
 */
#ifndef ATTENTION_ATTENTION_H
#define ATTENTION_ATTENTION_H

#include "cache/cache.h"
#include "kvtile/attention.h"

/* Whether kvt_step_attend can be called so: STATE, ARG. */
KVT_MUST_CHECK enum kvt_status kvt_attention_check(const struct kvt_step *step, int layer,
                                                   const struct kvt_attend *attend, struct kvt_error *err);

/* kvt_step_attend on pages in the process's memory. Checks its arguments. Takes scratch at the first call of a step object
 * (or when the number of query heads grows) and keeps it there. */
KVT_MUST_CHECK enum kvt_status kvt_attention_run(struct kvt_step *step, int layer, const struct kvt_attend *attend,
                                                 struct kvt_error *err);

#endif
