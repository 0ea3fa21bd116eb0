/* SPDX-License-Identifier: Apache-2.0
 *
 * The algebra of online softmax: a state is the largest score so far, the sum of exp(score - max), and the values mixed with
 * those weights. States of disjoint rows merge.
 */
#ifndef ATTENTION_STATE_H
#define ATTENTION_STATE_H

#include <math.h>

#include "base/num.h"

struct kvt_state {
    float max, sum;
};

/* Adds state b, with values vb, to state a, with values va, n of them. */
static inline void kvt_state_merge(struct kvt_state *a, float *va, struct kvt_state b, const float *vb, int n) {
    if (b.max == -INFINITY) return;
    const float max = a->max > b.max ? a->max : b.max;
    const float ka = kvt_exp_negative(a->max - max), kb = kvt_exp_negative(b.max - max);
    for (int i = 0; i < n; i++) va[i] = va[i] * ka + vb[i] * kb;
    a->sum = a->sum * ka + b.sum * kb;
    a->max = max;
}

/* Ends a state: a logit without a value joins (-inf: none), out gets the mean, the log-sum-exp is returned. */
static inline float kvt_state_finish(struct kvt_state a, const float *values, float sink, float *out, int n) {
    const float max = a.max > sink ? a.max : sink;
    const float keep = kvt_exp_negative(a.max - max);
    const float sum = a.sum * keep + kvt_exp_negative(sink - max), k = keep / sum;
    for (int i = 0; i < n; i++) out[i] = values[i] * k;
    return max + logf(sum);
}

#endif
