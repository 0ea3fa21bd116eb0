/* SPDX-License-Identifier: Apache-2.0 */
#include "model/ops.h"

#include <math.h>

#include "base/half.h"

enum { LANES = 16 };

void kvt_rms_norm(float *dst, const float *x, const float *weight, int n, float eps) {
    float lane[LANES] = {0};
    double sum = 0;
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += x[i + j] * x[i + j];
    for (int j = 0; j < LANES; j++) sum += (double)lane[j];
    for (; i < n; i++) sum += (double)(x[i] * x[i]);
    const float scale = (float)(1 / sqrt(sum / n + (double)eps));
    for (i = 0; i < n; i++) dst[i] = x[i] * scale * weight[i];
}

void kvt_add(float *dst, const float *x, int n) {
    for (int i = 0; i < n; i++) dst[i] += x[i];
}

/* exp(x): x = k ln 2 + r, |r| <= ln 2 / 2, and exp(r) by its Taylor series to r^7 (remainder below 6e-9). k is found by
 * adding 1.5 * 2^23, which leaves it rounded to nearest in the low bits; no branch and no libm, so loops over it
 * vectorise. x is clamped to [-87, 88], where results are normal numbers, as integers: compilers will not vectorise
 * comparisons of floats that might trap. */
static inline float exp_f32(float x) {
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

void kvt_swiglu(float *gate, const float *up, int n) {
    for (int i = 0; i < n; i++) gate[i] = gate[i] / (1.0f + exp_f32(-gate[i])) * up[i];
}

void kvt_exp_below(float *dst, const float *x, int n, float max, float scale) {
    for (int i = 0; i < n; i++) {
        const float down = (max - x[i]) * scale + 0.0f;                           /* never -0 */
        const uint32_t keep = kvt_f32_bits(down) <= 0x42AC0000u ? UINT32_MAX : 0; /* down <= 86: no inf, no NaN */
        dst[i] = kvt_f32_from_bits(kvt_f32_bits(exp_f32(-down)) & keep);
    }
}
