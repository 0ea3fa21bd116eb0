/* SPDX-License-Identifier: Apache-2.0
 * The vocabulary of the weight kernels at level avx512: 32 floats in registers. */
#ifndef WEIGHT_X86_V32_AVX512_H
#define WEIGHT_X86_V32_AVX512_H

#include "weight/x86/x86.h"

#define V32_NAME(type)  kvt_weight_##type##_avx512
#define V32_TILE_TOKENS 6 /* 24 sums, 6 activations and a weight of 32 registers */
enum { V32_PARTS = 2, V32_WIDTH = 16 };

/* One register, a part of 32 lanes. */
typedef __m512 vpart;
static inline vpart vpart_zero(void) { return _mm512_setzero_ps(); }
static inline vpart vpart_set1(float a) { return _mm512_set1_ps(a); }
static inline vpart vpart_load(const float *p) { return _mm512_load_ps(p); }
static inline void vpart_store(float *p, vpart a) { _mm512_store_ps(p, a); }
static inline void vpart_storeu(float *p, vpart a) { _mm512_storeu_ps(p, a); }
static inline vpart vpart_fma(vpart a, vpart b, vpart c) { return _mm512_fmadd_ps(a, b, c); }

typedef struct {
    __m512 part[2];
} v32;

/* The body of a function of parts 0 and 1. */
#define V32_EACH(expr)                                                                                                 \
    v32 r;                                                                                                             \
    for (int i = 0; i < 2; i++) r.part[i] = (expr);                                                                    \
    return r

static inline v32 v32_zero(void) { V32_EACH(_mm512_setzero_ps()); }
static inline v32 v32_load_bytes(const unsigned char *p) { V32_EACH(_mm512_loadu_ps(p + 64 * i)); }
static inline v32 v32_load(const float *p) { V32_EACH(_mm512_loadu_ps(p + 16 * i)); }
static inline v32 v32_fma(v32 a, v32 b, v32 c) { V32_EACH(_mm512_fmadd_ps(a.part[i], b.part[i], c.part[i])); }
static inline __m256i load32(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
static inline v32 v32_from_f16(const unsigned char *p) { V32_EACH(_mm512_cvtph_ps(load32(p + 32 * i))); }
static inline v32 v32_from_bf16(const unsigned char *p) {
    V32_EACH(_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load32(p + 32 * i)), 16)));
}

/* The f16 numbers that a block begins with, converted together. Through memory, since a broadcasting load is free and a
 * broadcast costs one of the two ports; the barrier keeps the compiler from undoing it. */
static inline void halves_prepare(float scales[16], const unsigned char *block) {
    _mm_storeu_ps(scales, _mm_cvtph_ps(load8(block)));
    __asm__ volatile("" : "+m"(*(float(*)[4])scales));
}
/* Number i in all lanes. */
static inline vpart half_of(const float scales[16], const unsigned char *block, int i) {
    (void)block;
    return _mm512_set1_ps(scales[i]);
}

/* Weights from codes: d times a signed code, or d times an unsigned one plus m. Every product of these is exact (scales have
 * at most 17 bits, codes 5), so one fused rounding is the definition's two. Of 4-bit codes all 16 weights are made, and
 * looked up by the code: the permutation takes the lowest four bits. */
static inline v32 v32_scale_i8(vpart d, const int8_t q[32]) {
    V32_EACH(_mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load16(q + 16 * i)))));
}
static inline __m512 counting(void) { return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
static inline v32 look_up_nibbles(__m512 table, const uint8_t q[16]) {
    const __m512i both = _mm512_cvtepu8_epi32(load16(q));
    return (v32){{_mm512_permutexvar_ps(both, table), _mm512_permutexvar_ps(_mm512_srli_epi32(both, 4), table)}};
}
/* 16 bytes: the low nibbles are codes 0-15, the high ones 16-31. */
static inline v32 v32_affine_u4(vpart d, const uint8_t q[16], vpart m) {
    return look_up_nibbles(_mm512_fmadd_ps(d, counting(), m), q);
}
/* The same codes less 8. */
static inline v32 v32_scale_i4(vpart d, const uint8_t q[16]) {
    return look_up_nibbles(_mm512_mul_ps(d, _mm512_sub_ps(counting(), _mm512_set1_ps(8))), q);
}
/* 32 bytes: the codes are their low (0) or high (1) nibbles. */
static inline v32 v32_affine_nibbles(vpart d, const uint8_t q[32], int high, vpart m) {
    const __m512 table = _mm512_fmadd_ps(d, counting(), m);
    v32 r;
    for (int i = 0; i < 2; i++) {
        const __m512i both = _mm512_cvtepu8_epi32(load16(q + 16 * i));
        r.part[i] = _mm512_permutexvar_ps(high ? _mm512_srli_epi32(both, 4) : both, table);
    }
    return r;
}
/* v32_affine_u4 and v32_scale_i4 with a fifth bit: bit i of four bytes is code i's. */
static inline __m512i nibble_part(const uint8_t q[16], int i) {
    const __m512i both = _mm512_cvtepu8_epi32(load16(q));
    return i ? _mm512_srli_epi32(both, 4) : _mm512_and_si512(both, _mm512_set1_epi32(15));
}
static inline __mmask16 bits_part(const uint8_t bits[4], int i) {
    uint16_t b;
    memcpy(&b, bits + 2 * i, 2);
    return b;
}
static inline v32 v32_affine_u5(vpart d, const uint8_t q[16], const uint8_t bits[4], vpart m) {
    v32 r;
    for (int i = 0; i < 2; i++) {
        const __m512i low = nibble_part(q, i);
        const __m512i codes = _mm512_mask_or_epi32(low, bits_part(bits, i), low, _mm512_set1_epi32(16));
        r.part[i] = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(codes), m);
    }
    return r;
}
static inline v32 v32_scale_i5(vpart d, const uint8_t q[16], const uint8_t bits[4]) {
    v32 r;
    for (int i = 0; i < 2; i++) {
        const __m512i low = nibble_part(q, i);
        const __mmask16 clear = (__mmask16)~bits_part(bits, i);
        const __m512i codes = _mm512_mask_sub_epi32(low, clear, low, _mm512_set1_epi32(16));
        r.part[i] = _mm512_mul_ps(d, _mm512_cvtepi32_ps(codes));
    }
    return r;
}
/* Codes in bytes. */
static inline __m128i u8x32_half(u8x32 a, int i) {
    return i ? _mm256_extracti128_si256(a, 1) : _mm256_castsi256_si128(a);
}
static inline v32 v32_affine_u8(vpart d, u8x32 codes, vpart m) {
    V32_EACH(_mm512_fmadd_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(u8x32_half(codes, i))), m));
}
/* Lanes 0-15 by d[0], lanes 16-31 by d[1]. */
static inline v32 v32_scale2_i8(const float d[2], u8x32 codes) {
    V32_EACH(_mm512_mul_ps(_mm512_set1_ps(d[i]), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(u8x32_half(codes, i)))));
}
#undef V32_EACH

/* The tree: halves of 16 lanes are whole registers, those of 8 the halves of one. */
static inline __m256 sum_to_8(__m512 a, __m512 b) {
    const __m512 s = _mm512_add_ps(a, b);
    return _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));
}
static inline float v32_sum(v32 a) { return sum_of_8(sum_to_8(a.part[0], a.part[1])); }
/* The tree of four sets of 32 sums at once, part p of set k at sums + p * part_stride + k * 16. */
static inline void sum_of_4(float dst[4], const float *sums, ptrdiff_t part_stride) {
    __m256 s[4];
    for (int k = 0; k < 4; k++) s[k] = sum_to_8(vpart_load(sums + k * 16), vpart_load(sums + k * 16 + part_stride));
    sum_of_4x8(dst, s);
}

#endif
