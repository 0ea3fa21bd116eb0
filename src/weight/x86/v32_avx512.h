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
static inline v32 v32_set1(float a) { V32_EACH(_mm512_set1_ps(a)); }
/* An f16 times a factor. */
static inline v32 v32_set1_f16(const unsigned char *p, float factor) {
    int16_t h;
    memcpy(&h, p, 2);
    __m512 v = _mm512_cvtph_ps(_mm256_set1_epi16(h));
    if (factor != 1) v = _mm512_mul_ps(v, _mm512_set1_ps(factor));
    return (v32){{v, v}};
}
/* Lanes 0-15 and lanes 16-31. */
static inline v32 v32_set2(float a, float b) { return (v32){{_mm512_set1_ps(a), _mm512_set1_ps(b)}}; }
static inline v32 v32_load_bytes(const unsigned char *p) { V32_EACH(_mm512_loadu_ps(p + 64 * i)); }
static inline v32 v32_load(const float *p) { V32_EACH(_mm512_loadu_ps(p + 16 * i)); }
static inline v32 v32_mul(v32 a, v32 b) { V32_EACH(_mm512_mul_ps(a.part[i], b.part[i])); }
static inline v32 v32_fma(v32 a, v32 b, v32 c) { V32_EACH(_mm512_fmadd_ps(a.part[i], b.part[i], c.part[i])); }
/* a * b - c */
static inline v32 v32_fms(v32 a, v32 b, v32 c) { V32_EACH(_mm512_fmsub_ps(a.part[i], b.part[i], c.part[i])); }

static inline __m256i load32(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
static inline v32 v32_from_f16(const unsigned char *p) { V32_EACH(_mm512_cvtph_ps(load32(p + 32 * i))); }
static inline v32 v32_from_bf16(const unsigned char *p) {
    V32_EACH(_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load32(p + 32 * i)), 16)));
}
static inline v32 v32_from_i8(const unsigned char *p) {
    V32_EACH(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load16(p + 16 * i))));
}

/* 4 bytes: 0xFF where bit i is set. */
static inline u8x32 u8x32_mask(const unsigned char *p) {
    uint32_t bits;
    memcpy(&bits, p, 4);
    return _mm256_movm_epi8(bits);
}
static inline __m128i u8x32_half(u8x32 a, int i) {
    return i ? _mm256_extracti128_si256(a, 1) : _mm256_castsi256_si128(a);
}
static inline v32 v32_from_u8x32(u8x32 a) { V32_EACH(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(u8x32_half(a, i)))); }
/* Signed codes come out times V32_I8_UNIT. */
#define V32_I8_UNIT 1.0f
static inline v32 v32_from_i8x32(u8x32 a) { V32_EACH(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(u8x32_half(a, i)))); }
/* The floats of u8x32_nibbles(p), less `bias`. */
static inline v32 v32_from_nibbles(const unsigned char *p, int bias) {
    const __m512i both = _mm512_cvtepu8_epi32(load16(p));
    __m512i low = _mm512_and_si512(both, _mm512_set1_epi32(15)), high = _mm512_srli_epi32(both, 4);
    if (bias) {
        low = _mm512_sub_epi32(low, _mm512_set1_epi32(bias));
        high = _mm512_sub_epi32(high, _mm512_set1_epi32(bias));
    }
    return (v32){{_mm512_cvtepi32_ps(low), _mm512_cvtepi32_ps(high)}};
}
/* The low (0) or high (1) nibbles of 32 bytes. */
static inline v32 v32_from_nibble_bytes(const unsigned char *p, int high) {
    v32 r;
    for (int i = 0; i < 2; i++) {
        const __m512i both = _mm512_cvtepu8_epi32(load16(p + 16 * i));
        r.part[i] =
            _mm512_cvtepi32_ps(high ? _mm512_srli_epi32(both, 4) : _mm512_and_si512(both, _mm512_set1_epi32(15)));
    }
    return r;
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
