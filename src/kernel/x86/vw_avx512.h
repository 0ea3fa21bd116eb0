/* SPDX-License-Identifier: Apache-2.0
 *
 * Words in 512 bits, as x86/vf_avx2.h describes them. Codes come in the order of x86/vf_avx512.h.
 */
#ifndef KERNEL_X86_VW_AVX512_H
#define KERNEL_X86_VW_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#include "kernel/x86/words.h"

enum { VW = 16 };
typedef uint32_t vw __attribute__((vector_size(4 * VW)));

INLINE vw vw_choose(vw mask, vw a, vw b) {
    return (vw)_mm512_ternarylogic_epi32((__m512i)mask, (__m512i)a, (__m512i)b, 0xCA);
}

INLINE void vw_spread(vw words[32 / VW], const uint8_t *codes, int second, const vw places[4], int down, unsigned up) {
    const __m512i both = (__m512i)((vw)_mm512_loadu_si512(codes) >> down << up);
    for (int k = 0; k < 2; k++) words[k] = (vw)_mm512_shuffle_epi8(both, (__m512i)places[2 * second + k]);
}

typedef uint32_t vq __attribute__((vector_size(16)));

INLINE void vq_of_row(vq even[2], vq odd[2], const uint8_t *codes) {
    __m128i a[4];
    for (int i = 0; i < 4; i++) a[i] = _mm_loadu_si128((const void *)(codes + 16 * i));
    even[0] = (vq)_mm_unpacklo_epi32(a[0], a[2]), even[1] = (vq)_mm_unpackhi_epi32(a[0], a[2]);
    odd[0] = (vq)_mm_unpacklo_epi32(a[1], a[3]), odd[1] = (vq)_mm_unpackhi_epi32(a[1], a[3]);
}

/* Quads 0 to 3 of 16 rows: quarter k of a[i] holds quad k of rows 4i to 4i + 3. */
INLINE void quarters_transpose(vw quads[4], const __m512i a[4]) {
    const __m512i b0 = _mm512_shuffle_i32x4(a[0], a[1], 0x44), b1 = _mm512_shuffle_i32x4(a[2], a[3], 0x44);
    const __m512i b2 = _mm512_shuffle_i32x4(a[0], a[1], 0xEE), b3 = _mm512_shuffle_i32x4(a[2], a[3], 0xEE);
    quads[0] = (vw)_mm512_shuffle_i32x4(b0, b1, 0x88), quads[1] = (vw)_mm512_shuffle_i32x4(b0, b1, 0xDD);
    quads[2] = (vw)_mm512_shuffle_i32x4(b2, b3, 0x88), quads[3] = (vw)_mm512_shuffle_i32x4(b2, b3, 0xDD);
}

INLINE void vw_of_rows(vw quads[8], const uint8_t (*rows)[32]) {
    __m512i low[4], high[4];
    for (int i = 0; i < 4; i++) {
        const __m512 a = _mm512_load_ps(rows[4 * i]), b = _mm512_load_ps(rows[4 * i + 2]);
        low[i] = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88));
        high[i] = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xDD));
    }
    quarters_transpose(quads, low), quarters_transpose(quads + 4, high);
}

INLINE void vw_of_columns(vw words[32 / VW], const uint8_t (*rows)[32]) {
    const __m512i in_turn = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    const __m512i a = _mm512_shuffle_epi8(_mm512_load_si512(rows[0]), in_turn);
    const __m512i b = _mm512_shuffle_epi8(_mm512_load_si512(rows[2]), in_turn);
    words[0] = (vw)_mm512_unpacklo_epi16(a, b), words[1] = (vw)_mm512_unpackhi_epi16(a, b);
}

#endif
