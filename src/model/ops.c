/* SPDX-License-Identifier: Apache-2.0 */
#include "model/ops.h"

#include <math.h>

#include "base/num.h"

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

void kvt_swiglu(float *gate, const float *up, int n) {
    for (int i = 0; i < n; i++) gate[i] = gate[i] / (1.0f + kvt_exp(-gate[i])) * up[i];
}

void kvt_exp_below(float *dst, const float *x, int n, float max, float scale) {
    for (int i = 0; i < n; i++) {
        const float down = (max - x[i]) * scale + 0.0f;                           /* never -0 */
        const uint32_t keep = kvt_f32_bits(down) <= 0x42AC0000u ? UINT32_MAX : 0; /* down <= 86: no inf, no NaN */
        dst[i] = kvt_f32_from_bits(kvt_f32_bits(kvt_exp(-down)) & keep);
    }
}
