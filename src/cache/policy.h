/* SPDX-License-Identifier: Apache-2.0
 * What a layer stores of what was asked for, and why: the one place where a plan differs from its string. */
#ifndef CACHE_POLICY_H
#define CACHE_POLICY_H

#include "cache/plan_text.h"
#include "kvtile/cache.h"

enum { KVT_REASON_MAX = 232 };

/* Decides for one layer: `pair`, what the string asks for, becomes what it stores; *kept and reason say why. What the options'
 * hold_last and fallback mean is said there. ARG for a shape that makes no sense or a codec on the wrong side, UNSUPPORTED for rows
 * that a codec cannot store where there is no fallback. */
KVT_MUST_CHECK enum kvt_status kvt_policy_decide(struct kvt_kv_pair *pair, enum kvt_kept *kept,
                                                 char reason[KVT_REASON_MAX], const struct kvt_shape *shape, int layer,
                                                 const struct kvt_plan_options *options, struct kvt_error *err);

#endif
