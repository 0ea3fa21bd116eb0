/* SPDX-License-Identifier: Apache-2.0
 *
 * 32 floats in four AVX2 registers.
 */
#ifndef KERNEL_X86_V32_AVX2_H
#define KERNEL_X86_V32_AVX2_H

#include <immintrin.h>

enum { FOLD_TOGETHER = 2 }; /* vectors of fold */

typedef struct {
    __m256 r[4];
} v32;

static inline v32 v32_load(const float *p) {
    return (v32){{_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8), _mm256_loadu_ps(p + 16), _mm256_loadu_ps(p + 24)}};
}
static inline void v32_store(float *p, v32 a) {
    for (int i = 0; i < 4; i++) _mm256_storeu_ps(p + 8 * i, a.r[i]);
}
static inline v32 v32_madd(v32 a, float s, v32 c) {
    const __m256 k = _mm256_set1_ps(s);
    for (int i = 0; i < 4; i++) c.r[i] = _mm256_fmadd_ps(a.r[i], k, c.r[i]);
    return c;
}

#endif
