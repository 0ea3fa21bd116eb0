/* SPDX-License-Identifier: Apache-2.0
 *
 * A vector of floats of the level's own width (vf), and one of 32-bit words (vw): with x86/vg.h the vocabulary of kernel/encode*.inc. Sums,
 * products and quotients are the operators of C.
 */
#ifndef KERNEL_X86_VF_AVX2_H
#define KERNEL_X86_VF_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#include "kernel/x86/vg.h"
#include "kernel/x86/words.h"

enum { VF = 8, VW = 8 };
typedef vg vf;

INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void vf_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
INLINE vf vf_set(float x) { return _mm256_set1_ps(x); }
/* a < b ? a : b and a > b ? a : b, in each lane: b where they are equal. */
INLINE vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
INLINE vf vf_abs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
INLINE vf vf_with_sign(vf a, vf sign) { return _mm256_or_ps(a, _mm256_and_ps(_mm256_set1_ps(-0.0f), sign)); }
/* v / scale as the operator gives it, wherever the quotient is within a few ulps of half an odd number below 512, and within one ulp of it elsewhere;
 * inverse = 1 / scale. The first product is off by at most 1.5 ulps; the residual corrects that to within 2e-7 of an ulp before the last rounding.
 * Few quotients of floats are that near to where roundings part, and tests/unit/test_kernel.c tries them all. */
INLINE vf vf_quotient(vf v, vf scale, vf inverse) {
    const vf q = v * inverse;
    return _mm256_fmadd_ps(_mm256_fnmadd_ps(q, scale, v), inverse, q);
}
INLINE vf vf_flip_sign(vf a, vf by) { return _mm256_xor_ps(a, by); }
/* Lane i of the result is lane i ^ stride. */
INLINE vf vf_swap(vf a, int stride) {
    return stride == 1   ? _mm256_permute_ps(a, 0xB1)
           : stride == 2 ? _mm256_permute_ps(a, 0x4E)
                         : _mm256_permute2f128_ps(a, a, 1);
}

INLINE vf vf_from_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)); }
INLINE void vf_to_f16(uint16_t *p, vf a) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

/* The largest of four magnitudes, or two, lane by lane. */
INLINE vf vf_sizes(const vf a[32 / VF]) {
    return vf_max(vf_max(vf_abs(a[0]), vf_abs(a[1])), vf_max(vf_abs(a[2]), vf_abs(a[3])));
}

/* The largest lanes of four vectors, or the smallest, on the way: lane i of those of every four lanes is about a[i]. */
INLINE vf vf_four_edges(const vf a[4], int is_most) {
    vf b[2], c[2];
    for (int i = 0; i < 2; i++) {
        b[i] = _mm256_unpacklo_ps(a[2 * i], a[2 * i + 1]), c[i] = _mm256_unpackhi_ps(a[2 * i], a[2 * i + 1]);
        b[i] = is_most ? vf_max(b[i], c[i]) : vf_min(b[i], c[i]);
    }
    const vf low = _mm256_shuffle_ps(b[0], b[1], 0x44), high = _mm256_shuffle_ps(b[0], b[1], 0xEE);
    return is_most ? vf_max(low, high) : vf_min(low, high);
}
/* Those of the eight vectors that a and b are about. */
INLINE void vf_store_edges(float *out, vf a, vf b, int is_most) {
    const vf low = _mm256_permute2f128_ps(a, b, 0x20), high = _mm256_permute2f128_ps(a, b, 0x31);
    vf_store(out, is_most ? vf_max(low, high) : vf_min(low, high));
}

/* Codes of two groups of 32 elements: 64 floats or integers as bytes, in the order that packing leaves. Here each group has its quads in the order
 * 0 2 4 6 1 3 5 7. What takes codes knows it: vf_place, vw_of_rows, vw_of_columns, vw_spread, vq_of_row. */
enum { PAIR = 64 / VF };

/* Integers of 16 bits or less, cut to 0 .. top, with some bits flipped. */
INLINE void vf_store_cut(uint8_t *out, const __m256i i[PAIR], uint8_t top, uint8_t flip) {
    for (int k = 0; k < PAIR; k += 4, out += 32) {
        const __m256i low = _mm256_packs_epi32(i[k], i[k + 1]), high = _mm256_packs_epi32(i[k + 2], i[k + 3]);
        const __m256i bytes = _mm256_min_epu8(_mm256_packus_epi16(low, high), _mm256_set1_epi8((char)top));
        _mm256_storeu_si256((__m256i *)(void *)out, _mm256_xor_si256(bytes, _mm256_set1_epi8((char)flip)));
    }
}
/* Floats between -2^31 and 2^31 to the nearest integer, ties to even, cut to 0 .. top, with some bits flipped. */
INLINE void vf_round_bytes(uint8_t *out, const vf a[PAIR], uint8_t top, uint8_t flip) {
    __m256i i[PAIR];
    for (int k = 0; k < PAIR; k++) i[k] = _mm256_cvtps_epi32(a[k]);
    vf_store_cut(out, i, top, flip);
}
/* The same towards 0. */
INLINE void vf_trunc_bytes(uint8_t *out, const vf a[PAIR], uint8_t top, uint8_t flip) {
    __m256i i[PAIR];
    for (int k = 0; k < PAIR; k++) i[k] = _mm256_cvttps_epi32(a[k]);
    vf_store_cut(out, i, top, flip);
}
/* The same, cut to -128 .. 127. */
INLINE void vf_trunc_signed(uint8_t *out, const vf a[PAIR], uint8_t flip) {
    for (int k = 0; k < PAIR; k += 4, out += 32) {
        const __m256i low = _mm256_packs_epi32(_mm256_cvttps_epi32(a[k]), _mm256_cvttps_epi32(a[k + 1]));
        const __m256i high = _mm256_packs_epi32(_mm256_cvttps_epi32(a[k + 2]), _mm256_cvttps_epi32(a[k + 3]));
        const __m256i bytes = _mm256_packs_epi16(low, high);
        _mm256_storeu_si256((__m256i *)(void *)out, _mm256_xor_si256(bytes, _mm256_set1_epi8((char)flip)));
    }
}
/* Integers of 0 .. 255. */
INLINE void vf_bytes(uint8_t *out, const int32_t *codes) {
    __m256i i[PAIR];
    for (int k = 0; k < PAIR; k++) i[k] = _mm256_loadu_si256((const void *)(codes + VF * k));
    vf_store_cut(out, i, 255, 0);
}
/* Where element i of 64 is. */
INLINE int vf_place(int i) { return i / 32 * 32 + i / 4 % 2 * 16 + i / 8 % 4 * 4 + i % 4; }

/* 32-bit words of quads; and, or and shifts are the operators of C. */
typedef uint32_t vw __attribute__((vector_size(4 * VW)));

/* a where mask is set, b elsewhere. */
INLINE vw vw_choose(vw mask, vw a, vw b) { return (a & mask) | (b & ~mask); }

/* Each code of one group of 32, the first or the second, in a word of its own: in one of its bytes, down and up by so many bits, and what bits of
 * other codes come by that. places[k], in every four words: where quad k of 16 codes is, and 0x80 for the other bytes. */
INLINE void vw_spread(vw words[32 / VW], const uint8_t *codes, int second, const vw places[4], int down, unsigned up) {
    const vw from = (vw)_mm256_loadu_si256((const __m256i *)(const void *)(codes + 32 * second));
    const __m256i all = (__m256i)(from >> down << up);
    for (int k = 0; k < 4; k++) words[k] = (vw)_mm256_shuffle_epi8(all, (__m256i)places[k]);
}

/* Four quads. */
typedef uint32_t vq __attribute__((vector_size(16)));

/* Quads 0 2 4 6 and 1 3 5 7 of both groups. */
INLINE void vq_of_row(vq even[2], vq odd[2], const uint8_t *codes) {
    for (int i = 0; i < 2; i++) {
        even[i] = (vq)_mm_loadu_si128((const __m128i *)(const void *)(codes + 32 * i));
        odd[i] = (vq)_mm_loadu_si128((const __m128i *)(const void *)(codes + 32 * i + 16));
    }
}

/* Word r of quads[q] is quad q of row r of a square, for VW rows. */
INLINE void vw_of_rows(vw quads[8], const uint8_t (*rows)[32]) {
    static const int order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    __m256i a[8];
    for (int r = 0; r < 8; r++) a[r] = _mm256_load_si256((const __m256i *)(const void *)rows[r]);
    words_transpose(a);
    for (int w = 0; w < 8; w++) quads[order[w]] = (vw)a[w];
}

/* Byte i of word c, over four vectors, is channel c of row i of a square: the lanes of one quad. */
INLINE void vw_of_columns(vw words[32 / VW], const uint8_t (*rows)[32]) {
    __m256i a[4], b[4];
    for (int i = 0; i < 4; i++) a[i] = _mm256_load_si256((const __m256i *)(const void *)rows[i]);
    for (int i = 0; i < 2; i++) {
        b[i] = _mm256_unpacklo_epi8(a[2 * i], a[2 * i + 1]);
        b[2 + i] = _mm256_unpackhi_epi8(a[2 * i], a[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        words[2 * i] = (vw)_mm256_unpacklo_epi16(b[2 * i], b[2 * i + 1]);
        words[2 * i + 1] = (vw)_mm256_unpackhi_epi16(b[2 * i], b[2 * i + 1]);
    }
}

#endif
