/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary of vf_avx2.h in 512 bits.
 */
#ifndef KERNEL_X86_VF_AVX512_H
#define KERNEL_X86_VF_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#include "kernel/x86/vg.h"
#include "kernel/x86/words.h"

enum { VF = 16, VW = 16 };
typedef __m512 vf;

INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vf_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
INLINE vf vf_set(float x) { return _mm512_set1_ps(x); }
INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE vf vf_abs(vf a) { return _mm512_abs_ps(a); }
INLINE vf vf_with_sign(vf a, vf sign) { return _mm512_or_ps(a, _mm512_and_ps(_mm512_set1_ps(-0.0f), sign)); }
INLINE vf vf_quotient(vf v, vf scale, vf inverse) {
    const vf q = v * inverse;
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(q, scale, v), inverse, q);
}
INLINE vf vf_flip_sign(vf a, vf by) { return _mm512_xor_ps(a, by); }
INLINE vf vf_swap(vf a, int stride) {
    return stride == 1   ? _mm512_permute_ps(a, 0xB1)
           : stride == 2 ? _mm512_permute_ps(a, 0x4E)
           : stride == 4 ? _mm512_shuffle_f32x4(a, a, 0xB1)
                         : _mm512_shuffle_f32x4(a, a, 0x4E);
}

INLINE vf vf_from_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)); }
INLINE void vf_to_f16(uint16_t *p, vf a) {
    _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINE vf vf_sizes(const vf a[32 / VF]) { return _mm512_range_ps(a[0], a[1], 0x0B); }

INLINE vg vf_most(const vf a[4]) {
    const vf b = vf_max(_mm512_unpacklo_ps(a[0], a[1]), _mm512_unpackhi_ps(a[0], a[1]));
    const vf c = vf_max(_mm512_unpacklo_ps(a[2], a[3]), _mm512_unpackhi_ps(a[2], a[3]));
    const vf d = vf_max(_mm512_shuffle_ps(b, c, 0x44), _mm512_shuffle_ps(b, c, 0xEE));
    const vg e = vg_max(_mm512_castps512_ps256(d), _mm512_extractf32x8_ps(d, 1));
    return vg_max(e, _mm256_permute2f128_ps(e, e, 1));
}
INLINE vg vf_least(const vf a[4]) {
    const vf b = vf_min(_mm512_unpacklo_ps(a[0], a[1]), _mm512_unpackhi_ps(a[0], a[1]));
    const vf c = vf_min(_mm512_unpacklo_ps(a[2], a[3]), _mm512_unpackhi_ps(a[2], a[3]));
    const vf d = vf_min(_mm512_shuffle_ps(b, c, 0x44), _mm512_shuffle_ps(b, c, 0xEE));
    const vg e = vg_min(_mm512_castps512_ps256(d), _mm512_extractf32x8_ps(d, 1));
    return vg_min(e, _mm256_permute2f128_ps(e, e, 1));
}

/* Packing goes by quarters, which leaves quads in the order 0 4 2 6 1 5 3 7. */
INLINE void vf_store_bytes(uint8_t *out, __m256i bytes, uint8_t flip, int in_order) {
    if (in_order) bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 2, 6, 1, 5, 3, 7));
    _mm256_storeu_si256((void *)out, _mm256_xor_si256(bytes, _mm256_set1_epi8((char)flip)));
}
INLINE void vf_store_cut(uint8_t *out, __m512i a, __m512i b, uint8_t top, uint8_t flip, int in_order) {
    const __m512i halves = _mm512_packs_epi32(a, b);
    const __m256i low = _mm512_castsi512_si256(halves), high = _mm512_extracti64x4_epi64(halves, 1);
    const __m256i bytes = _mm256_min_epu8(_mm256_packus_epi16(low, high), _mm256_set1_epi8((char)top));
    vf_store_bytes(out, bytes, flip, in_order);
}
INLINE void vf_round_bytes(uint8_t *out, const vf a[32 / VF], uint8_t top, uint8_t flip, int in_order) {
    vf_store_cut(out, _mm512_cvtps_epi32(a[0]), _mm512_cvtps_epi32(a[1]), top, flip, in_order);
}
INLINE void vf_trunc_bytes(uint8_t *out, const vf a[32 / VF], uint8_t top, uint8_t flip, int in_order) {
    vf_store_cut(out, _mm512_cvttps_epi32(a[0]), _mm512_cvttps_epi32(a[1]), top, flip, in_order);
}
INLINE void vf_trunc_signed(uint8_t *out, const vf a[32 / VF], uint8_t flip, int in_order) {
    const __m512i halves = _mm512_packs_epi32(_mm512_cvttps_epi32(a[0]), _mm512_cvttps_epi32(a[1]));
    const __m256i low = _mm512_castsi512_si256(halves), high = _mm512_extracti64x4_epi64(halves, 1);
    vf_store_bytes(out, _mm256_packs_epi16(low, high), flip, in_order);
}
INLINE void vf_bytes(uint8_t *out, const int32_t *codes, int in_order) {
    vf_store_cut(out, _mm512_loadu_si512(codes), _mm512_loadu_si512(codes + 16), 255, 0, in_order);
}

typedef uint32_t vw __attribute__((vector_size(4 * VW)));

INLINE vw vw_of_bytes(const uint8_t *p) { return (vw)_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p)); }

INLINE void vw_of_rows(vw quads[8], const uint8_t (*rows)[32]) {
    static const int order[8] = {0, 4, 2, 6, 1, 5, 3, 7};
    /* Rows i and i + 4 in a vector, so that the last of three exchanges leaves rows in order. */
    __m512i a[8], b[8];
    for (int i = 0; i < 8; i++) {
        const uint8_t(*pair)[32] = rows + i % 4 + i / 4 * 8;
        const __m512i one = _mm512_castsi256_si512(_mm256_load_si256((const void *)pair[0]));
        a[i] = _mm512_inserti64x4(one, _mm256_load_si256((const void *)pair[4]), 1);
    }
    for (int i = 0; i < 4; i++) {
        b[2 * i] = _mm512_unpacklo_epi32(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = _mm512_unpackhi_epi32(a[2 * i], a[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            a[4 * i + 2 * j] = _mm512_unpacklo_epi64(b[4 * i + j], b[4 * i + j + 2]);
            a[4 * i + 2 * j + 1] = _mm512_unpackhi_epi64(b[4 * i + j], b[4 * i + j + 2]);
        }
    for (int i = 0; i < 4; i++) {
        quads[order[i]] = (vw)_mm512_shuffle_i32x4(a[i], a[4 + i], 0x88);
        quads[order[4 + i]] = (vw)_mm512_shuffle_i32x4(a[i], a[4 + i], 0xDD);
    }
}

INLINE void vw_of_columns(vw words[32 / VW], const uint8_t (*rows)[32]) {
    __m256i a[4], b[4];
    for (int i = 0; i < 4; i++) a[i] = _mm256_load_si256((const void *)rows[i]);
    for (int i = 0; i < 2; i++) {
        b[i] = _mm256_unpacklo_epi8(a[2 * i], a[2 * i + 1]);
        b[2 + i] = _mm256_unpackhi_epi8(a[2 * i], a[2 * i + 1]);
    }
    /* Quads 0 and 1, 4 and 5, 2 and 3, 6 and 7. */
    const __m256i c01 = _mm256_unpacklo_epi16(b[0], b[1]), c45 = _mm256_unpackhi_epi16(b[0], b[1]);
    const __m256i c23 = _mm256_unpacklo_epi16(b[2], b[3]), c67 = _mm256_unpackhi_epi16(b[2], b[3]);
    words[0] = (vw)_mm512_inserti64x4(_mm512_castsi256_si512(c01), c23, 1);
    words[1] = (vw)_mm512_inserti64x4(_mm512_castsi256_si512(c45), c67, 1);
}

#endif
