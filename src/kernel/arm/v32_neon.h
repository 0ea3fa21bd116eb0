/* SPDX-License-Identifier: Apache-2.0
 *
 * 32 floats in eight Advanced SIMD registers.
 */
#ifndef KERNEL_ARM_V32_NEON_H
#define KERNEL_ARM_V32_NEON_H

#include <arm_neon.h>

enum { FOLD_TOGETHER = 2 }; /* vectors of fold */

typedef struct {
    float32x4_t r[8];
} v32;

static inline v32 v32_load(const float *p) {
    v32 out;
    for (int i = 0; i < 8; i++) out.r[i] = vld1q_f32(p + 4 * i);
    return out;
}
static inline void v32_store(float *p, v32 a) {
    for (int i = 0; i < 8; i++) vst1q_f32(p + 4 * i, a.r[i]);
}
static inline v32 v32_madd(v32 a, float s, v32 c) {
    for (int i = 0; i < 8; i++) c.r[i] = vfmaq_n_f32(c.r[i], a.r[i], s);
    return c;
}

#endif
