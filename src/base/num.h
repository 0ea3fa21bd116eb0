/* SPDX-License-Identifier: Apache-2.0
 *
 * Arithmetic whose bits must not depend on a C library.
 */
#ifndef BASE_NUM_H
#define BASE_NUM_H

#include "base/half.h"

/* exp(x) for x <= 0; below -87, and for -inf, it is 0. Relative error under 2^-22. x = n ln 2 + r, |r| <= ln 2 / 2; Taylor's
 * polynomial of degree 7 in r; then 2^n through the exponent's bits. Without branches, so that loops over it become vectors. */
static inline float kvt_exp_negative(float x) {
    const float shift = 0x1.8p23f, clamped = x < -87.0f ? -87.0f : x;
    const float biased = clamped * 0x1.715476p+0f + shift, n = biased - shift;
    const float r = (clamped - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const float scale = kvt_f32_from_bits((kvt_f32_bits(biased) + 127u) << 23);
    return x < -87.0f ? 0.0f : p * scale;
}

#endif
