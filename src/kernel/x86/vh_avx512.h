/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary of x86/vg.h and x86/vh.h in 512 bits, as far as kernel/encode_vu.inc and encode_kq.inc need it: nothing in them waits for a
 * division that would be faster by eights.
 */
#ifndef KERNEL_X86_VH_AVX512_H
#define KERNEL_X86_VH_AVX512_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel/x86/words.h"

enum { VG = 16, VH = 2 * VG };
typedef __m512 vg;
typedef int16_t vh __attribute__((vector_size(64)));
typedef int32_t vn __attribute__((vector_size(64)));

/* ---- floats ------------------------------------------------------------------------------------------------------------ */

INLINE vg vg_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vg_store(float *p, vg a) { _mm512_storeu_ps(p, a); }
INLINE vg vg_set(float x) { return _mm512_set1_ps(x); }
INLINE vg vg_min(vg a, vg b) { return _mm512_min_ps(a, b); }
INLINE vg vg_max(vg a, vg b) { return _mm512_max_ps(a, b); }
INLINE vg vg_abs(vg a) { return _mm512_abs_ps(a); }
INLINE vg vg_round(vg a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE vg vg_if_above(vg a, vg b, vg c, vg d) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), d, c);
}
INLINE vg vg_sqrt(vg a) { return _mm512_sqrt_ps(a); }
INLINE void vg_to_f16(uint16_t *p, vg a) {
    _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINE vg vg_f16_below(vg a) { return _mm512_cvtph_ps(_mm512_cvtps_ph(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)); }

/* ---- whole numbers ----------------------------------------------------------------------------------------------------- */

INLINE vh vh_set(int x) { return (vh)_mm512_set1_epi16((short)x); }
INLINE vh vh_min(vh a, vh b) { return (vh)_mm512_min_epi16((__m512i)a, (__m512i)b); }
INLINE vh vh_max(vh a, vh b) { return (vh)_mm512_max_epi16((__m512i)a, (__m512i)b); }
INLINE vh vh_add_cut(vh a, vh b) { return (vh)_mm512_adds_epi16((__m512i)a, (__m512i)b); }
INLINE vh vh_sub_cut(vh a, vh b) { return (vh)_mm512_subs_epi16((__m512i)a, (__m512i)b); }
INLINE vh vh_part(vh a, vh b) { return (vh)_mm512_mulhrs_epi16((__m512i)a, (__m512i)b); }
INLINE vn vh_dot(vh a, vh b) { return (vn)_mm512_madd_epi16((__m512i)a, (__m512i)b); }
/* By hand: gcc 12 copies the sums of the intrinsic around loops. */
INLINE vn vn_add_dot(vn sum, vh a, vh b) {
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

INLINE vn vn_load(const int32_t *p) { return (vn)_mm512_loadu_si512(p); }
INLINE void vn_store(int32_t *p, vn a) { _mm512_storeu_si512(p, (__m512i)a); }
INLINE vn vn_set(int32_t x) { return (vn)_mm512_set1_epi32(x); }
INLINE vn vn_min(vn a, vn b) { return (vn)_mm512_min_epi32((__m512i)a, (__m512i)b); }
INLINE vn vn_max(vn a, vn b) { return (vn)_mm512_max_epi32((__m512i)a, (__m512i)b); }
INLINE vn vn_round(vg a) { return (vn)_mm512_cvtps_epi32(a); }
INLINE vg vn_float(vn a) { return _mm512_cvtepi32_ps((__m512i)a); }
INLINE vn vn_look_up(const uint32_t *table, vn at) { return (vn)_mm512_i32gather_epi32((__m512i)at, table, 4); }
INLINE vn vn_bits(vg a) { return (vn)_mm512_castps_si512(a); }

INLINE vh vh_pairs(vn a, vn b) { return (vh)_mm512_mask_blend_epi16(0xAAAAAAAA, (__m512i)a, (__m512i)(b << 16)); }
INLINE vn vh_lows(vh a) { return (vn)a << 16 >> 16; }
INLINE vn vh_highs(vh a) { return (vn)a >> 16; }

INLINE vh vh_pack(vg a, vg b) { return (vh)_mm512_packs_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b)); }
INLINE vh vh_zip_low(vh x, vh y) { return (vh)_mm512_unpacklo_epi16((__m512i)x, (__m512i)y); }
INLINE vh vh_zip_high(vh x, vh y) { return (vh)_mm512_unpackhi_epi16((__m512i)x, (__m512i)y); }

/* ---- from lane to lane ------------------------------------------------------------------------------------------------- */

/* Word i of quarter k of a[r] becomes word r of quarter k of a[i], for four of them. */
INLINE void quarters_words(__m512i a[4]) {
    const __m512i b0 = _mm512_unpacklo_epi32(a[0], a[1]), b1 = _mm512_unpackhi_epi32(a[0], a[1]);
    const __m512i b2 = _mm512_unpacklo_epi32(a[2], a[3]), b3 = _mm512_unpackhi_epi32(a[2], a[3]);
    a[0] = _mm512_unpacklo_epi64(b0, b2), a[1] = _mm512_unpackhi_epi64(b0, b2);
    a[2] = _mm512_unpacklo_epi64(b1, b3), a[3] = _mm512_unpackhi_epi64(b1, b3);
}
/* Quarter k of a[r] becomes quarter r of a[k], for four that lie `step` apart. */
INLINE void whole_quarters(__m512i *a, int step) {
    const __m512i b0 = _mm512_shuffle_i32x4(a[0], a[step], 0x44), b1 = _mm512_shuffle_i32x4(a[0], a[step], 0xEE);
    const __m512i b2 = _mm512_shuffle_i32x4(a[2 * step], a[3 * step], 0x44),
                  b3 = _mm512_shuffle_i32x4(a[2 * step], a[3 * step], 0xEE);
    a[0] = _mm512_shuffle_i32x4(b0, b2, 0x88), a[step] = _mm512_shuffle_i32x4(b0, b2, 0xDD);
    a[2 * step] = _mm512_shuffle_i32x4(b1, b3, 0x88), a[3 * step] = _mm512_shuffle_i32x4(b1, b3, 0xDD);
}

INLINE void vh_transpose(vh a[VG]) {
    __m512i w[VG];
    for (int i = 0; i < VG; i++) w[i] = (__m512i)a[i];
    for (int i = 0; i < VG; i += 4) quarters_words(w + i);
    for (int i = 0; i < 4; i++) whole_quarters(w + i, 4);
    for (int i = 0; i < VG; i++) a[i] = (vh)w[i];
}
INLINE void vg_transpose(vg a[VG]) {
    vh w[VG];
    for (int i = 0; i < VG; i++) w[i] = (vh)_mm512_castps_si512(a[i]);
    vh_transpose(w);
    for (int i = 0; i < VG; i++) a[i] = _mm512_castsi512_ps((__m512i)w[i]);
}

/* Sums of neighbours of a[0], then of a[1]: of words; of pairs of words; of quarters. */
INLINE __m512i sum_words(__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}
INLINE __m512i sum_pairs(__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}
INLINE __m512i sum_quarters(__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD));
}
INLINE vn vn_sums(const vn lanes[VG]) {
    __m512i a[4];
    for (int i = 0; i < 4; i++) {
        const vn *v = lanes + 4 * i;
        a[i] = sum_pairs(sum_words((__m512i)v[0], (__m512i)v[1]), sum_words((__m512i)v[2], (__m512i)v[3]));
    }
    return (vn)sum_quarters(sum_quarters(a[0], a[1]), sum_quarters(a[2], a[3]));
}

INLINE void vh_quads(vn *lows, vn *highs, const vh a[4]) {
    const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m512i p = _mm512_shuffle_epi8((__m512i)(a[0] | a[1] << 8), order);
    const __m512i q = _mm512_shuffle_epi8((__m512i)(a[2] | a[3] << 8), order);
    *lows = (vn)_mm512_unpacklo_epi64(p, q);
    *highs = (vn)_mm512_unpackhi_epi64(p, q);
}
INLINE void vn_store_quads(uint32_t *to, ptrdiff_t step, vn a) {
    _mm_storeu_si128((void *)to, _mm512_castsi512_si128((__m512i)a));
    _mm_storeu_si128((void *)(to + step), _mm512_extracti32x4_epi32((__m512i)a, 1));
    _mm_storeu_si128((void *)(to + 2 * step), _mm512_extracti32x4_epi32((__m512i)a, 2));
    _mm_storeu_si128((void *)(to + 3 * step), _mm512_extracti32x4_epi32((__m512i)a, 3));
}

INLINE void vn_store_columns(uint32_t *const to[VG], const vn words[8]) {
    const __m512i even = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                  odd = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    __m512i a[8];
    for (int i = 0; i < 8; i++) a[i] = (__m512i)words[i];
    quarters_words(a), quarters_words(a + 4);
    for (int i = 0; i < 4; i++) {
        const __m512i first = _mm512_permutex2var_epi64(a[i], even, a[4 + i]),
                      last = _mm512_permutex2var_epi64(a[i], odd, a[4 + i]);
        _mm256_storeu_si256((void *)to[i], _mm512_castsi512_si256(first));
        _mm256_storeu_si256((void *)to[4 + i], _mm512_extracti64x4_epi64(first, 1));
        _mm256_storeu_si256((void *)to[8 + i], _mm512_castsi512_si256(last));
        _mm256_storeu_si256((void *)to[12 + i], _mm512_extracti64x4_epi64(last, 1));
    }
}
/* Byte i of each of four rows of 32. */
INLINE void vn_columns(vn out[32 / VG], const uint8_t *rows) {
    static const uint8_t first[64] = {0,  32, 64, 96,  1,  33, 65, 97,  2,  34, 66, 98,  3,  35, 67, 99,
                                      4,  36, 68, 100, 5,  37, 69, 101, 6,  38, 70, 102, 7,  39, 71, 103,
                                      8,  40, 72, 104, 9,  41, 73, 105, 10, 42, 74, 106, 11, 43, 75, 107,
                                      12, 44, 76, 108, 13, 45, 77, 109, 14, 46, 78, 110, 15, 47, 79, 111};
    const __m512i a = _mm512_loadu_si512(rows), b = _mm512_loadu_si512(rows + 64), order = _mm512_loadu_si512(first);
    const __m512i next = _mm512_add_epi8(order, _mm512_set1_epi8(16));
    out[0] = (vn)_mm512_permutex2var_epi8(a, order, b);
    out[1] = (vn)_mm512_permutex2var_epi8(a, next, b);
}

#endif
