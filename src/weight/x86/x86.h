/* SPDX-License-Identifier: Apache-2.0
 * What the vocabularies of the levels avx2 and avx512 share: codes in bytes, scales, and the lower half of the tree. */
#ifndef WEIGHT_X86_X86_H
#define WEIGHT_X86_X86_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline __m128i load8(const void *p) { return _mm_loadl_epi64((const __m128i *)p); }
static inline __m128i load16(const void *p) { return _mm_loadu_si128((const __m128i *)p); }

/* 32 codes of a byte each. */
typedef __m256i u8x32;
static inline u8x32 u8x32_load(const unsigned char *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
static inline u8x32 u8x32_and(u8x32 a, int mask) { return _mm256_and_si256(a, _mm256_set1_epi8((char)mask)); }
static inline u8x32 u8x32_or(u8x32 a, u8x32 b) { return _mm256_or_si256(a, b); }
static inline u8x32 u8x32_sub(u8x32 a, int b) { return _mm256_sub_epi8(a, _mm256_set1_epi8((char)b)); }
/* Bits k .. k+count-1 of each byte, moved to bit `to`. */
static inline u8x32 u8x32_bits(u8x32 a, int k, int count, int to) {
    const __m256i moved = k >= to ? _mm256_srli_epi16(a, k - to) : _mm256_slli_epi16(a, to - k);
    return u8x32_and(moved, ((1 << count) - 1) << to);
}

/* Scales: one f16; eight bytes times a factor. */
static inline float f16_from_bytes(const unsigned char p[2]) {
    uint16_t h;
    memcpy(&h, p, 2);
    return _cvtsh_ss(h);
}
static inline void scales_from_u8(float dst[8], const void *src, float factor) {
    const __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load8(src)));
    _mm256_storeu_ps(dst, _mm256_mul_ps(v, _mm256_set1_ps(factor)));
}
static inline void scales_from_i8(float dst[8], const void *src, float factor) {
    const __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load8(src)));
    _mm256_storeu_ps(dst, _mm256_mul_ps(v, _mm256_set1_ps(factor)));
}

/* The tree from 8 lanes on, for one set of sums and for four. */
static inline float sum_of_8(__m256 s8) {
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}
static inline void sum_of_4x8(float dst[4], const __m256 s[4]) {
    const __m256 ab = _mm256_add_ps(_mm256_permute2f128_ps(s[0], s[1], 0x20), _mm256_permute2f128_ps(s[0], s[1], 0x31));
    const __m256 cd = _mm256_add_ps(_mm256_permute2f128_ps(s[2], s[3], 0x20), _mm256_permute2f128_ps(s[2], s[3], 0x31));
    const __m256 acbd = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xEE));
    const __m256 r = _mm256_add_ps(_mm256_shuffle_ps(acbd, acbd, 0x88), _mm256_shuffle_ps(acbd, acbd, 0xDD));
    _mm_storeu_ps(dst, _mm_unpacklo_ps(_mm256_castps256_ps128(r), _mm256_extractf128_ps(r, 1)));
}

#endif
