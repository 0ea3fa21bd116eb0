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

/* exp(x): x = k ln 2 + r, |r| <= ln 2 / 2, and exp(r) by its Taylor series to r^7 (remainder below 6e-9). k is found by
 * adding 1.5 * 2^23, which leaves it rounded to nearest in the low bits; no branch and no libm, so loops over it
 * vectorise. x is clamped to [-87, 88], where results are normal numbers, as integers: compilers will not vectorise
 * comparisons of floats that might trap. */
KVT_INLINE float kvt_exp(float x) {
    const float shift = 0x1.8p23f;
    const int32_t above = (int32_t)kvt_f32_bits(x);
    const uint32_t below = (uint32_t)(above > 0x42B00000 ? 0x42B00000 : above);
    x = kvt_f32_from_bits(below > 0xC2AE0000u ? 0xC2AE0000u : below);
    const float shifted = x * 0x1.715476p0f + shift, k = shifted - shift;
    const float r = (x - k * 0x1.62e4p-1f) - k * 0x1.7f7d1cp-20f; /* ln 2 in two parts; the first product is exact */
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = (p * r) * r + r;
    return (p + 1.0f) * kvt_f32_from_bits((kvt_f32_bits(shifted) << 23) + 0x3F800000u);
}

#endif
