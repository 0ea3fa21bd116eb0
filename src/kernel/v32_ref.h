/* SPDX-License-Identifier: Apache-2.0
 *
 * 32 floats, in plain C: the vocabulary that each level gives in its own header.
 */
#ifndef KERNEL_V32_REF_H
#define KERNEL_V32_REF_H

enum { FOLD_TOGETHER = 2 }; /* vectors of fold */

typedef struct {
    float f[32];
} v32;

static inline v32 v32_load(const float *p) {
    v32 out;
    for (int i = 0; i < 32; i++) out.f[i] = p[i];
    return out;
}
static inline void v32_store(float *p, v32 a) {
    for (int i = 0; i < 32; i++) p[i] = a.f[i];
}
/* a * s + c, one rounding where the level has a fused multiply-add, two where it has none. */
static inline v32 v32_madd(v32 a, float s, v32 c) {
    for (int i = 0; i < 32; i++) c.f[i] += a.f[i] * s;
    return c;
}

#endif
