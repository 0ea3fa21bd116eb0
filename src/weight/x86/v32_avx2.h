/* SPDX-License-Identifier: Apache-2.0
 * The vocabulary of the weight kernels at level avx2: 32 floats in registers. */
#ifndef WEIGHT_X86_V32_AVX2_H
#define WEIGHT_X86_V32_AVX2_H

#include "weight/x86/x86.h"

#define V32_NAME(type) kvt_weight_##type##_avx2

#define V32_TILE_TOKENS 3 /* 12 sums, 3 activations and a weight: all 16 registers */
enum { V32_PARTS = 4, V32_WIDTH = 8 };

/* One register, a part of 32 lanes. */
typedef __m256 vpart;
static inline vpart vpart_zero(void) { return _mm256_setzero_ps(); }
static inline vpart vpart_load(const float *p) { return _mm256_load_ps(p); }
static inline void vpart_store(float *p, vpart a) { _mm256_store_ps(p, a); }
static inline void vpart_storeu(float *p, vpart a) { _mm256_storeu_ps(p, a); }
static inline vpart vpart_fma(vpart a, vpart b, vpart c) { return _mm256_fmadd_ps(a, b, c); }

typedef struct {
    __m256 part[4];
} v32;

/* The body of a function of parts 0-3. */
#define V32_EACH(expr)                                                                                                 \
    v32 r;                                                                                                             \
    for (int i = 0; i < 4; i++) r.part[i] = (expr);                                                                    \
    return r

static inline v32 v32_zero(void) {
    const __m256 z = _mm256_setzero_ps();
    return (v32){{z, z, z, z}};
}
static inline v32 v32_set1(float a) {
    const __m256 v = _mm256_set1_ps(a);
    return (v32){{v, v, v, v}};
}
/* An f16 times a factor. */
static inline v32 v32_set1_f16(const unsigned char *p, float factor) {
    int16_t h;
    memcpy(&h, p, 2);
    __m256 v = _mm256_cvtph_ps(_mm_set1_epi16(h));
    if (factor != 1) v = _mm256_mul_ps(v, _mm256_set1_ps(factor));
    return (v32){{v, v, v, v}};
}
/* Lanes 0-15 and lanes 16-31. */
static inline v32 v32_set2(float a, float b) {
    const __m256 v = _mm256_set1_ps(a), w = _mm256_set1_ps(b);
    return (v32){{v, v, w, w}};
}
static inline v32 v32_load_bytes(const unsigned char *p) {
    V32_EACH(_mm256_loadu_ps((const float *)(const void *)(p + 32 * i)));
}
static inline v32 v32_load(const float *p) { V32_EACH(_mm256_loadu_ps(p + 8 * i)); }
static inline v32 v32_mul(v32 a, v32 b) { V32_EACH(_mm256_mul_ps(a.part[i], b.part[i])); }
static inline v32 v32_fma(v32 a, v32 b, v32 c) { V32_EACH(_mm256_fmadd_ps(a.part[i], b.part[i], c.part[i])); }
/* a * b - c */
static inline v32 v32_fms(v32 a, v32 b, v32 c) { V32_EACH(_mm256_fmsub_ps(a.part[i], b.part[i], c.part[i])); }

static inline v32 v32_from_f16(const unsigned char *p) { V32_EACH(_mm256_cvtph_ps(load16(p + 16 * i))); }
static inline v32 v32_from_bf16(const unsigned char *p) {
    V32_EACH(_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(p + 16 * i)), 16)));
}
static inline v32 v32_from_i8(const unsigned char *p) {
    V32_EACH(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load8(p + 8 * i))));
}

/* 4 bytes: 0xFF where bit i is set. */
static inline u8x32 u8x32_mask(const unsigned char *p) {
    int32_t bits;
    memcpy(&bits, p, 4);
    const __m256i where = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), where);
    return _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
}
/* As floats: every other four codes to each half, then four of each to the bytes `at` of a part's lanes. */
static inline __m256i u8x32_part(u8x32 halves, int part, int at) {
    const __m256i lane = _mm256_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2,
                                          2, 2, 3, 3, 3, 3);
    const __m256i code = _mm256_add_epi8(lane, _mm256_set1_epi8((char)(4 * part)));
    return _mm256_shuffle_epi8(halves,
                               _mm256_or_si256(code, _mm256_set1_epi32((int)(0x80808080u & ~(0xFFu << 8 * at)))));
}
static inline u8x32 u8x32_halves(u8x32 a) {
    return _mm256_permutevar8x32_epi32(a, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
}
static inline v32 v32_from_u8x32(u8x32 a) {
    const u8x32 halves = u8x32_halves(a);
    V32_EACH(_mm256_cvtepi32_ps(u8x32_part(halves, i, 0)));
}
/* Signed codes come out times V32_I8_UNIT: in the upper byte they need no extension of their sign. */
#define V32_I8_UNIT 0x1p24f
static inline v32 v32_from_i8x32(u8x32 a) {
    const u8x32 halves = u8x32_halves(a);
    V32_EACH(_mm256_cvtepi32_ps(u8x32_part(halves, i, 3)));
}
/* The floats of u8x32_nibbles(p), less `bias`; without the way through memory. */
static inline v32 v32_from_nibbles(const unsigned char *p, int bias) {
    v32 r;
    for (int i = 0; i < 2; i++) {
        const __m256i both = _mm256_cvtepu8_epi32(load8(p + 8 * i));
        __m256i low = _mm256_and_si256(both, _mm256_set1_epi32(15)), high = _mm256_srli_epi32(both, 4);
        if (bias) {
            low = _mm256_sub_epi32(low, _mm256_set1_epi32(bias));
            high = _mm256_sub_epi32(high, _mm256_set1_epi32(bias));
        }
        r.part[i] = _mm256_cvtepi32_ps(low);
        r.part[i + 2] = _mm256_cvtepi32_ps(high);
    }
    return r;
}
/* The low (0) or high (1) nibbles of 32 bytes. */
static inline v32 v32_from_nibble_bytes(const unsigned char *p, int high) {
    v32 r;
    for (int i = 0; i < 4; i++) {
        const __m256i both = _mm256_cvtepu8_epi32(load8(p + 8 * i));
        r.part[i] =
            _mm256_cvtepi32_ps(high ? _mm256_srli_epi32(both, 4) : _mm256_and_si256(both, _mm256_set1_epi32(15)));
    }
    return r;
}
#undef V32_EACH

/* The tree: halves of 16 and 8 lanes are whole registers. */
static inline __m256 sum_to_8(__m256 a, __m256 b, __m256 c, __m256 d) {
    return _mm256_add_ps(_mm256_add_ps(a, c), _mm256_add_ps(b, d));
}
static inline float v32_sum(v32 a) { return sum_of_8(sum_to_8(a.part[0], a.part[1], a.part[2], a.part[3])); }
/* The tree of four sets of 32 sums at once, part p of set k at sums + p * part_stride + k * 8. */
static inline void sum_of_4(float dst[4], const float *sums, ptrdiff_t part_stride) {
    __m256 s[4];
    for (int k = 0; k < 4; k++) {
        const float *p = sums + k * 8;
        s[k] = sum_to_8(vpart_load(p), vpart_load(p + part_stride), vpart_load(p + 2 * part_stride),
                        vpart_load(p + 3 * part_stride));
    }
    sum_of_4x8(dst, s);
}

#endif
