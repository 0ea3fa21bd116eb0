/* SPDX-License-Identifier: Apache-2.0
 *
 * A vector of eight floats for all levels that have 256 bits: what scales and zeros are computed in, one group in each lane. (Wider ones would
 * gain nothing: division is as fast by eights, and the four groups of a row fill half of one.)
 */
#ifndef KERNEL_X86_VG_H
#define KERNEL_X86_VG_H

#include <immintrin.h>
#include <stdint.h>

#include "kernel/x86/words.h"

enum { VG = 8 };
typedef __m256 vg;

INLINE vg vg_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void vg_store(float *p, vg a) { _mm256_storeu_ps(p, a); }
INLINE vg vg_set(float x) { return _mm256_set1_ps(x); }
/* a < b ? a : b and a > b ? a : b, in each lane: b where they are equal. */
INLINE vg vg_min(vg a, vg b) { return _mm256_min_ps(a, b); }
INLINE vg vg_max(vg a, vg b) { return _mm256_max_ps(a, b); }
INLINE vg vg_abs(vg a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
/* To the nearest whole number, ties to even. */
INLINE vg vg_round(vg a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* The same, ties away from zero: towards zero after the float below 0.5 is added. */
INLINE vg vg_round_away(vg a) {
    const vg half = _mm256_or_ps(_mm256_and_ps(_mm256_set1_ps(-0.0f), a), _mm256_set1_ps(0x1.fffffep-2f));
    return _mm256_round_ps(a + half, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}
/* a > b ? c : d in each lane. */
INLINE vg vg_if_above(vg a, vg b, vg c, vg d) { return _mm256_blendv_ps(d, c, _mm256_cmp_ps(a, b, _CMP_GT_OQ)); }
INLINE int vg_any_equal(vg a, vg b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)) != 0; }
/* f16, to nearest even. */
INLINE void vg_to_f16(uint16_t *p, vg a) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
/* Rounded to f16: to nearest even; downwards. */
INLINE vg vg_f16(vg a) { return _mm256_cvtph_ps(_mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT)); }
INLINE vg vg_f16_below(vg a) { return _mm256_cvtph_ps(_mm256_cvtps_ph(a, _MM_FROUND_TO_NEG_INF)); }

INLINE vg vg_from_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)); }
INLINE vg vg_sqrt(vg a) { return _mm256_sqrt_ps(a); }

/* v / divisor as the operator gives it, where nothing over- or underflows and inverse = 1 / divisor: with an inverse that is rounded right, a quotient
 * that is off by less than an ulp and its residual give the right one (Markstein 1990), and the first step gets that near. */
INLINE vg vg_quotient(vg v, vg divisor, vg inverse) {
    const vg q = v * inverse, near = _mm256_fmadd_ps(_mm256_fnmadd_ps(q, divisor, v), inverse, q);
    return _mm256_fmadd_ps(_mm256_fnmadd_ps(near, divisor, v), inverse, near);
}

/* Lane i of a[r] becomes lane r of a[i]. */
INLINE void vg_transpose(vg a[VG]) {
    __m256i w[VG];
    for (int i = 0; i < VG; i++) w[i] = _mm256_castps_si256(a[i]);
    words_transpose(w);
    for (int i = 0; i < VG; i++) a[i] = _mm256_castsi256_ps(w[i]);
}

/* The smallest power of two that is not below a, which is more than 2^-127. */
INLINE vg vg_power_above(vg a) {
    const __m256i bits = _mm256_add_epi32(_mm256_castps_si256(a), _mm256_set1_epi32(0x7FFFFF));
    return _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32(0x7F800000)));
}

#endif
