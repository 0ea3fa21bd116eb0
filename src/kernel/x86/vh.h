/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole numbers for all levels that have 256 bits: vectors of 16-bit ones (vh), two for each lane of a vg, and of 32-bit ones (vn), one for each.
 * Sums, differences and shifts are the operators of C. What kernel/encode_vu.inc and encode_kq.inc are written over, with vg.h.
 */
#ifndef KERNEL_X86_VH_H
#define KERNEL_X86_VH_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel/x86/vg.h"
#include "kernel/x86/words.h"

typedef int16_t vh __attribute__((vector_size(32)));
typedef int32_t vn __attribute__((vector_size(32)));
enum { VH = 2 * VG };

INLINE vh vh_load(const int16_t *p) { return (vh)_mm256_loadu_si256((const __m256i *)(const void *)p); }
INLINE void vh_store(int16_t *p, vh a) { _mm256_storeu_si256((__m256i *)(void *)p, (__m256i)a); }
INLINE vh vh_set(int x) { return (vh)_mm256_set1_epi16((short)x); }
INLINE vh vh_min(vh a, vh b) { return (vh)_mm256_min_epi16((__m256i)a, (__m256i)b); }
INLINE vh vh_max(vh a, vh b) { return (vh)_mm256_max_epi16((__m256i)a, (__m256i)b); }
/* kvt_whole_cut of the sum, of the difference; kvt_whole_part. */
INLINE vh vh_add_cut(vh a, vh b) { return (vh)_mm256_adds_epi16((__m256i)a, (__m256i)b); }
INLINE vh vh_sub_cut(vh a, vh b) { return (vh)_mm256_subs_epi16((__m256i)a, (__m256i)b); }
INLINE vh vh_part(vh a, vh b) { return (vh)_mm256_mulhrs_epi16((__m256i)a, (__m256i)b); }
/* In lane i: a[2i] * b[2i] + a[2i + 1] * b[2i + 1]. */
INLINE vn vh_dot(vh a, vh b) { return (vn)_mm256_madd_epi16((__m256i)a, (__m256i)b); }

/* sum + vh_dot(a, b). */
INLINE vn vn_add_dot(vn sum, vh a, vh b) { return sum + vh_dot(a, b); }

INLINE vn vn_load(const int32_t *p) { return (vn)_mm256_loadu_si256((const __m256i *)(const void *)p); }
INLINE void vn_store(int32_t *p, vn a) { _mm256_storeu_si256((__m256i *)(void *)p, (__m256i)a); }
INLINE vn vn_set(int32_t x) { return (vn)_mm256_set1_epi32(x); }
INLINE vn vn_min(vn a, vn b) { return (vn)_mm256_min_epi32((__m256i)a, (__m256i)b); }
INLINE vn vn_max(vn a, vn b) { return (vn)_mm256_max_epi32((__m256i)a, (__m256i)b); }
/* To the nearest whole number, ties to even, and back. */
INLINE vn vn_round(vg a) { return (vn)_mm256_cvtps_epi32(a); }
INLINE vg vn_float(vn a) { return _mm256_cvtepi32_ps((__m256i)a); }
/* table[at] of each lane. */
INLINE vn vn_look_up(const uint32_t *table, vn at) {
    return (vn)_mm256_i32gather_epi32((const int *)(const void *)table, (__m256i)at, 4);
}
/* The bits of a float. */
INLINE vn vn_bits(vg a) { return (vn)_mm256_castps_si256(a); }

/* Lane i as two of 16 bits: a's in the low half, b's in the high one. They fit. */
INLINE vh vh_pairs(vn a, vn b) { return (vh)_mm256_blend_epi16((__m256i)a, (__m256i)(b << 16), 0xAA); }
/* The low and the high halves of all lanes. */
INLINE vn vh_lows(vh a) { return (vn)a << 16 >> 16; }
INLINE vn vh_highs(vh a) { return (vn)a >> 16; }

/* Two vg as 16-bit whole numbers, in an order of which the next two know: vh_zip_low(x, y) has in lane i the pair of x's and y's lane i of the
 * first vg, vh_zip_high that of the second. */
INLINE vh vh_pack(vg a, vg b) { return (vh)_mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b)); }
INLINE vh vh_zip_low(vh x, vh y) { return (vh)_mm256_unpacklo_epi16((__m256i)x, (__m256i)y); }
INLINE vh vh_zip_high(vh x, vh y) { return (vh)_mm256_unpackhi_epi16((__m256i)x, (__m256i)y); }

/* Word i of a[r] becomes word r of a[i]. */
INLINE void vh_transpose(vh a[VG]) {
    __m256i w[VG];
    for (int i = 0; i < VG; i++) w[i] = (__m256i)a[i];
    words_transpose(w);
    for (int i = 0; i < VG; i++) a[i] = (vh)w[i];
}

/* Codes, a byte in each half of each lane, of four vectors: words whose bytes are those of four lanes. lows: of the low halves, word i of a[i],
 * four words for each four lanes. highs likewise. */
INLINE void vh_quads(vn *lows, vn *highs, const vh a[4]) {
    const __m256i order = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 0, 4, 8, 12, 1, 5, 9,
                                           13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m256i p = _mm256_shuffle_epi8((__m256i)(a[0] | a[1] << 8), order);
    const __m256i q = _mm256_shuffle_epi8((__m256i)(a[2] | a[3] << 8), order);
    *lows = (vn)_mm256_unpacklo_epi64(p, q);
    *highs = (vn)_mm256_unpackhi_epi64(p, q);
}
/* Each four words, `step` apart. */
INLINE void vn_store_quads(uint32_t *to, ptrdiff_t step, vn a) {
    _mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128((__m256i)a));
    _mm_storeu_si128((__m128i *)(void *)(to + step), _mm256_extracti128_si256((__m256i)a, 1));
}

/* Lane i of the result is the sum of the lanes of lanes[i]. */
INLINE vn vn_sums(const vn lanes[VG]) {
    __m256i a[2];
    for (int i = 0; i < 2; i++) {
        const vn *v = lanes + 4 * i;
        a[i] = _mm256_hadd_epi32(_mm256_hadd_epi32((__m256i)v[0], (__m256i)v[1]),
                                 _mm256_hadd_epi32((__m256i)v[2], (__m256i)v[3]));
    }
    return (vn)_mm256_permute2x128_si256(a[0], a[1], 0x20) + (vn)_mm256_permute2x128_si256(a[0], a[1], 0x31);
}

/* Word i of all of eight vectors, 32 bytes at to[i], in an order that vn_columns undoes. */
INLINE void vn_store_columns(uint32_t *const to[VG], const vn words[8]) {
    __m256i w[8];
    for (int i = 0; i < 8; i++) w[i / 2 + i % 2 * 4] = (__m256i)words[i];
    words_transpose(w);
    for (int i = 0; i < VG; i++) _mm256_storeu_si256((__m256i *)(void *)to[i], w[i]);
}
/* Of four rows of such 32 bytes, 32 apart: in word i the i-th byte of each. */
INLINE void vn_columns(vn out[32 / VG], const uint8_t *rows) {
    __m256i a[4], b[4];
    for (int i = 0; i < 4; i++) a[i] = _mm256_loadu_si256((const __m256i *)(const void *)(rows + 32 * i));
    for (int i = 0; i < 2; i++) {
        b[i] = _mm256_unpacklo_epi8(a[2 * i], a[2 * i + 1]);
        b[2 + i] = _mm256_unpackhi_epi8(a[2 * i], a[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        out[2 * i] = (vn)_mm256_unpacklo_epi16(b[2 * i], b[2 * i + 1]);
        out[2 * i + 1] = (vn)_mm256_unpackhi_epi16(b[2 * i], b[2 * i + 1]);
    }
}

#endif
