/* SPDX-License-Identifier: Apache-2.0
 *
 * 32 floats in two AVX-512 registers.
 */
#ifndef KERNEL_X86_V32_AVX512_H
#define KERNEL_X86_V32_AVX512_H

#include <immintrin.h>

enum { FOLD_TOGETHER = 8 }; /* vectors of fold */

typedef struct {
    __m512 r[2];
} v32;

static inline v32 v32_load(const float *p) { return (v32){{_mm512_loadu_ps(p), _mm512_loadu_ps(p + 16)}}; }
static inline void v32_store(float *p, v32 a) {
    for (int i = 0; i < 2; i++) _mm512_storeu_ps(p + 16 * i, a.r[i]);
}
static inline v32 v32_madd(v32 a, float s, v32 c) {
    const __m512 k = _mm512_set1_ps(s);
    for (int i = 0; i < 2; i++) c.r[i] = _mm512_fmadd_ps(a.r[i], k, c.r[i]);
    return c;
}

#endif
