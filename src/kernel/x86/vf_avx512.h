/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary of vf_avx2.h in 512 bits.
 */
#ifndef KERNEL_X86_VF_AVX512_H
#define KERNEL_X86_VF_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#include "kernel/x86/vg.h"
#include "kernel/x86/vw_avx512.h"
#include "kernel/x86/words.h"

enum { VF = 16 };
typedef __m512 vf;

INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vf_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
INLINE vf vf_set(float x) { return _mm512_set1_ps(x); }
INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE vf vf_abs(vf a) { return _mm512_abs_ps(a); }
INLINE vf vf_with_sign(vf a, vf sign) {
    const __m512i x = _mm512_castps_si512(a), y = _mm512_castps_si512(sign); /* x | y & mask */
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(x, y, _mm512_set1_epi32(INT32_MIN), 0xF8));
}
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

/* Of each pair the larger, or the smaller. */
INLINE vf vf_edge(vf a, vf b, int is_most) { return is_most ? _mm512_max_ps(a, b) : _mm512_min_ps(a, b); }

/* Each step takes half of the lanes from one, half from another, and what they meet from both. */
INLINE vf vf_four_edges(const vf a[4], int is_most) {
    const __m512i ones = _mm512_setr_epi32(1, 16, 3, 18, 5, 20, 7, 22, 9, 24, 11, 26, 13, 28, 15, 30);
    vf b[2];
    for (int i = 0; i < 2; i++)
        b[i] = vf_edge(_mm512_mask_blend_ps(0xCCCC, a[i], a[i + 2]), _mm512_shuffle_ps(a[i], a[i + 2], 0x4E), is_most);
    return vf_edge(_mm512_mask_blend_ps(0xAAAA, b[0], b[1]), _mm512_permutex2var_ps(b[0], ones, b[1]), is_most);
}
INLINE void vf_store_edges(float *out, vf a, vf b, int is_most) {
    const __m512i fours = _mm512_setr_epi32(4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27);
    const vf c = vf_edge(_mm512_mask_blend_ps(0xF0F0, a, b), _mm512_permutex2var_ps(a, fours, b), is_most);
    const vg low = _mm512_castps512_ps256(c), high = _mm512_extractf32x8_ps(c, 1);
    vg_store(out, is_most ? vg_max(low, high) : vg_min(low, high));
}

/* Packing goes by quarters: in quarter k of 64 bytes lie quads k and k + 4 of the first group, then those of the second. */
enum { PAIR = 64 / VF };

INLINE void vf_store_cut(uint8_t *out, const __m512i i[PAIR], uint8_t top, uint8_t flip) {
    const __m512i first = _mm512_packs_epi32(i[0], i[1]), second = _mm512_packs_epi32(i[2], i[3]);
    const __m512i bytes = _mm512_min_epu8(_mm512_packus_epi16(first, second), _mm512_set1_epi8((char)top));
    _mm512_storeu_si512(out, _mm512_xor_si512(bytes, _mm512_set1_epi8((char)flip)));
}
INLINE void vf_round_bytes(uint8_t *out, const vf a[PAIR], uint8_t top, uint8_t flip) {
    __m512i i[PAIR];
    for (int k = 0; k < PAIR; k++) i[k] = _mm512_cvtps_epi32(a[k]);
    vf_store_cut(out, i, top, flip);
}
INLINE void vf_trunc_bytes(uint8_t *out, const vf a[PAIR], uint8_t top, uint8_t flip) {
    __m512i i[PAIR];
    for (int k = 0; k < PAIR; k++) i[k] = _mm512_cvttps_epi32(a[k]);
    vf_store_cut(out, i, top, flip);
}
INLINE void vf_trunc_signed(uint8_t *out, const vf a[PAIR], uint8_t flip) {
    const __m512i first = _mm512_packs_epi32(_mm512_cvttps_epi32(a[0]), _mm512_cvttps_epi32(a[1]));
    const __m512i second = _mm512_packs_epi32(_mm512_cvttps_epi32(a[2]), _mm512_cvttps_epi32(a[3]));
    const __m512i bytes = _mm512_packs_epi16(first, second);
    _mm512_storeu_si512(out, _mm512_xor_si512(bytes, _mm512_set1_epi8((char)flip)));
}
INLINE void vf_bytes(uint8_t *out, const int32_t *codes) {
    __m512i i[PAIR];
    for (int k = 0; k < PAIR; k++) i[k] = _mm512_loadu_si512(codes + VF * k);
    vf_store_cut(out, i, 255, 0);
}
INLINE int vf_place(int i) { return i / 4 % 4 * 16 + i / 32 * 8 + i / 16 % 2 * 4 + i % 4; }

#endif
