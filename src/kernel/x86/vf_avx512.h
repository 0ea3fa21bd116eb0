/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary of vf_avx2.h in 512 bits.
 */
#ifndef KERNEL_X86_VF_AVX512_H
#define KERNEL_X86_VF_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#include "kernel/x86/words.h"

enum { VF = 16 };
typedef __m512 vf;

static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vf_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
static inline vf vf_set(float x) { return _mm512_set1_ps(x); }
static inline vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vf_abs(vf a) { return _mm512_abs_ps(a); }
static inline vf vf_with_sign(vf a, vf sign) { return _mm512_or_ps(a, _mm512_and_ps(_mm512_set1_ps(-0.0f), sign)); }
static inline vf vf_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline vf vf_if_above(vf a, vf b, vf c, vf d) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), d, c);
}
static inline vf vf_flip_sign(vf a, vf by) { return _mm512_xor_ps(a, by); }
static inline vf vf_swap(vf a, int stride) {
    return stride == 1   ? _mm512_permute_ps(a, 0xB1)
           : stride == 2 ? _mm512_permute_ps(a, 0x4E)
           : stride == 4 ? _mm512_shuffle_f32x4(a, a, 0xB1)
                         : _mm512_shuffle_f32x4(a, a, 0x4E);
}
static inline int vf_any_above(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0; }

static inline vf vf_from_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)); }
static inline void vf_to_f16(uint16_t *p, vf a) {
    _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline void vf_to_f16_below(uint16_t *p, vf a) {
    _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC));
}

#define VF_ACROSS(op)                                                                                                  \
    vf t[8];                                                                                                           \
    for (int i = 0; i < 8; i++)                                                                                        \
        t[i] = op(_mm512_unpacklo_ps(a[2 * i], a[2 * i + 1]), _mm512_unpackhi_ps(a[2 * i], a[2 * i + 1]));             \
    for (int i = 0; i < 4; i++)                                                                                        \
        t[i] = op(_mm512_shuffle_ps(t[2 * i], t[2 * i + 1], 0x44), _mm512_shuffle_ps(t[2 * i], t[2 * i + 1], 0xEE));   \
    for (int i = 0; i < 2; i++)                                                                                        \
        t[i] = op(_mm512_shuffle_f32x4(t[2 * i], t[2 * i + 1], 0x88),                                                  \
                  _mm512_shuffle_f32x4(t[2 * i], t[2 * i + 1], 0xDD));                                                 \
    return op(_mm512_shuffle_f32x4(t[0], t[1], 0x88), _mm512_shuffle_f32x4(t[0], t[1], 0xDD))
static inline vf vf_least(const vf a[VF]) { VF_ACROSS(_mm512_min_ps); }
static inline vf vf_most(const vf a[VF]) { VF_ACROSS(_mm512_max_ps); }

static inline void vf_store_bytes(uint8_t *out, __m512i low, __m512i high, uint8_t top, uint8_t flip) {
    const __m512i none = _mm512_setzero_si512();
    const __m128i a = _mm512_cvtusepi32_epi8(_mm512_max_epi32(low, none));
    const __m128i b = _mm512_cvtusepi32_epi8(_mm512_max_epi32(high, none));
    __m256i packed = _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
    packed = _mm256_min_epu8(packed, _mm256_set1_epi8((char)top));
    _mm256_storeu_si256((void *)out, _mm256_xor_si256(packed, _mm256_set1_epi8((char)flip)));
}
static inline void vf_round_bytes(uint8_t *out, const vf a[32 / VF], uint8_t top, uint8_t flip) {
    vf_store_bytes(out, _mm512_cvtps_epi32(a[0]), _mm512_cvtps_epi32(a[1]), top, flip);
}
static inline void vf_trunc_bytes(uint8_t *out, const vf a[32 / VF], int bias, uint8_t top, uint8_t flip) {
    const __m512i more = _mm512_set1_epi32(bias);
    vf_store_bytes(out, _mm512_add_epi32(_mm512_cvttps_epi32(a[0]), more),
                   _mm512_add_epi32(_mm512_cvttps_epi32(a[1]), more), top, flip);
}

#endif
