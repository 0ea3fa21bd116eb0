/* SPDX-License-Identifier: Apache-2.0
 *
 * affine's fit, shared by the encoder and its kernels.
 */
#ifndef CODEC_AFFINE_H
#define CODEC_AFFINE_H

#include <math.h>
#include <stdbool.h>

#include "base/attr.h"

struct kvt_affine {
    float scale, zero;
};

/* Scale and zero of a group with these extremes; top is the largest code. The scale is not yet rounded to f16. away: ties go away
 * from zero, else to even. */
KVT_INLINE struct kvt_affine kvt_affine_fit_ties(float lo, float hi, float top, bool away) {
    const int low_side = fabsf(lo) > fabsf(hi);
    float scale = (hi - lo) / top;
    scale = scale > 1e-7f ? scale : 1e-7f;
    scale = low_side ? scale : -scale;
    const float edge = low_side ? lo : hi, q0 = away ? roundf(edge / scale) : rintf(edge / scale);
    if (q0 == 0) return (struct kvt_affine){scale, 0};
    return (struct kvt_affine){edge / q0, edge};
}

KVT_INLINE struct kvt_affine kvt_affine_fit(float lo, float hi, float top) {
    return kvt_affine_fit_ties(lo, hi, top, false);
}

#endif
