/* SPDX-License-Identifier: Apache-2.0
 *
 * A vector of floats of the level's own width, what encoders do with it: the vocabulary of kernel/encode*.inc. Sums, products and quotients are the operators of C.
 */
#ifndef KERNEL_X86_VF_AVX2_H
#define KERNEL_X86_VF_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#include "kernel/x86/words.h"

enum { VF = 8 };
typedef __m256 vf;

static inline vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vf_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
static inline vf vf_set(float x) { return _mm256_set1_ps(x); }
/* a < b ? a : b and a > b ? a : b, in each lane: b where they are equal. */
static inline vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf vf_abs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
static inline vf vf_with_sign(vf a, vf sign) { return _mm256_or_ps(a, _mm256_and_ps(_mm256_set1_ps(-0.0f), sign)); }
/* To the nearest whole number, ties to even. */
static inline vf vf_round(vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* a > b ? c : d in each lane. */
static inline vf vf_if_above(vf a, vf b, vf c, vf d) { return _mm256_blendv_ps(d, c, _mm256_cmp_ps(a, b, _CMP_GT_OQ)); }
static inline vf vf_flip_sign(vf a, vf by) { return _mm256_xor_ps(a, by); }
/* Lane i of the result is lane i ^ stride. */
static inline vf vf_swap(vf a, int stride) {
    return stride == 1   ? _mm256_permute_ps(a, 0xB1)
           : stride == 2 ? _mm256_permute_ps(a, 0x4E)
                         : _mm256_permute2f128_ps(a, a, 1);
}
static inline int vf_any_above(vf a, vf b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)) != 0; }

static inline vf vf_from_f16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
static inline void vf_to_f16(uint16_t *p, vf a) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

/* Downwards. */
static inline void vf_to_f16_below(uint16_t *p, vf a) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEG_INF));
}

/* Lane i of the result is the smallest (largest) of the lanes of a[i]. */
#define VF_ACROSS(op)                                                                                                  \
    vf t[4];                                                                                                           \
    for (int i = 0; i < 4; i++)                                                                                        \
        t[i] = op(_mm256_unpacklo_ps(a[2 * i], a[2 * i + 1]), _mm256_unpackhi_ps(a[2 * i], a[2 * i + 1]));             \
    for (int i = 0; i < 2; i++)                                                                                        \
        t[i] = op(_mm256_shuffle_ps(t[2 * i], t[2 * i + 1], 0x44), _mm256_shuffle_ps(t[2 * i], t[2 * i + 1], 0xEE));   \
    return op(_mm256_permute2f128_ps(t[0], t[1], 0x20), _mm256_permute2f128_ps(t[0], t[1], 0x31))
static inline vf vf_least(const vf a[VF]) { VF_ACROSS(_mm256_min_ps); }
static inline vf vf_most(const vf a[VF]) { VF_ACROSS(_mm256_max_ps); }

static inline __m256i vf_pack_integers(const __m256i i[4]) {
    const __m256i low = _mm256_packs_epi32(i[0], i[1]), high = _mm256_packs_epi32(i[2], i[3]);
    return _mm256_packus_epi16(low, high);
}
/* Integers in the order of their lanes, from what vf_pack_integers leaves. */
static inline void vf_store_bytes(uint8_t *out, __m256i packed, uint8_t top, uint8_t flip) {
    packed = _mm256_min_epu8(packed, _mm256_set1_epi8((char)top));
    packed = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    packed = _mm256_xor_si256(packed, _mm256_set1_epi8((char)flip));
    _mm256_storeu_si256((__m256i *)(void *)out, packed);
}
/* 32 floats between -2^31 and 2^31 to the nearest integer, ties to even, cut to 0 .. top, as bytes with some bits flipped. */
static inline void vf_round_bytes(uint8_t *out, const vf a[32 / VF], uint8_t top, uint8_t flip) {
    __m256i i[4];
    for (int k = 0; k < 4; k++) i[k] = _mm256_cvtps_epi32(a[k]);
    vf_store_bytes(out, vf_pack_integers(i), top, flip);
}
/* The same towards 0, with `bias` added before the cut. */
static inline void vf_trunc_bytes(uint8_t *out, const vf a[32 / VF], int bias, uint8_t top, uint8_t flip) {
    __m256i i[4];
    for (int k = 0; k < 4; k++) i[k] = _mm256_add_epi32(_mm256_cvttps_epi32(a[k]), _mm256_set1_epi32(bias));
    vf_store_bytes(out, vf_pack_integers(i), top, flip);
}

#endif
