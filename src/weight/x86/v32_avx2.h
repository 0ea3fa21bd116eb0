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
static inline vpart vpart_set1(float a) { return _mm256_set1_ps(a); }
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

static inline v32 v32_zero(void) { V32_EACH(_mm256_setzero_ps()); }
static inline v32 v32_load_bytes(const unsigned char *p) {
    V32_EACH(_mm256_loadu_ps((const float *)(const void *)(p + 32 * i)));
}
static inline v32 v32_load(const float *p) { V32_EACH(_mm256_loadu_ps(p + 8 * i)); }
static inline v32 v32_fma(v32 a, v32 b, v32 c) { V32_EACH(_mm256_fmadd_ps(a.part[i], b.part[i], c.part[i])); }
static inline v32 v32_from_f16(const unsigned char *p) { V32_EACH(_mm256_cvtph_ps(load16(p + 16 * i))); }
static inline v32 v32_from_bf16(const unsigned char *p) {
    V32_EACH(_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(p + 16 * i)), 16)));
}

/* The f16 number i that a block begins with, in all lanes: converted where it is needed. */
static inline void halves_prepare(float scales[16], const unsigned char *block) { (void)scales, (void)block; }
static inline vpart half_of(const float scales[16], const unsigned char *block, int i) {
    (void)scales;
    int16_t h;
    memcpy(&h, block + 2 * i, 2);
    return _mm256_cvtph_ps(_mm_set1_epi16(h));
}

/* Weights from codes: d times a signed code, or d times an unsigned one plus m. Every product of these is exact (scales have
 * at most 17 bits, codes 5), so one fused rounding is the definition's two. */
static inline v32 v32_scale_i8(vpart d, const int8_t q[32]) {
    V32_EACH(_mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load8(q + 8 * i)))));
}
static inline __m256 affine(__m256 d, __m256i codes, __m256 m) {
    return _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(codes), m);
}
/* 16 bytes: the low nibbles are codes 0-15, the high ones 16-31. */
static inline v32 v32_affine_u4(vpart d, const uint8_t q[16], vpart m) {
    v32 r;
    for (int i = 0; i < 2; i++) {
        const __m256i both = _mm256_cvtepu8_epi32(load8(q + 8 * i));
        r.part[i] = affine(d, _mm256_and_si256(both, _mm256_set1_epi32(15)), m);
        r.part[i + 2] = affine(d, _mm256_srli_epi32(both, 4), m);
    }
    return r;
}
/* The same codes less 8. */
static inline v32 v32_scale_i4(vpart d, const uint8_t q[16]) {
    const __m256i eight = _mm256_set1_epi32(8);
    v32 r;
    for (int i = 0; i < 2; i++) {
        const __m256i both = _mm256_cvtepu8_epi32(load8(q + 8 * i));
        const __m256i low = _mm256_and_si256(both, _mm256_set1_epi32(15)), high = _mm256_srli_epi32(both, 4);
        r.part[i] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_sub_epi32(low, eight)));
        r.part[i + 2] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_sub_epi32(high, eight)));
    }
    return r;
}
/* 32 bytes: the codes are their low (0) or high (1) nibbles. */
static inline v32 v32_affine_nibbles(vpart d, const uint8_t q[32], int high, vpart m) {
    v32 r;
    for (int i = 0; i < 4; i++) {
        const __m256i both = _mm256_cvtepu8_epi32(load8(q + 8 * i));
        r.part[i] = affine(d, high ? _mm256_srli_epi32(both, 4) : _mm256_and_si256(both, _mm256_set1_epi32(15)), m);
    }
    return r;
}

/* Codes in bytes. To floats: every other four codes to each half, then four of each to the bytes `at` of a part's lanes. In
 * the upper byte signed codes need no extension, and are 2^24 times what they are. */
static inline u8x32 u8x32_halves(u8x32 a) {
    return _mm256_permutevar8x32_epi32(a, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
}
static inline __m256 u8x32_part(u8x32 halves, int part, int at) {
    const __m256i lane = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3));
    const __m256i code = _mm256_add_epi8(lane, _mm256_set1_epi8((char)(4 * part)));
    const __m256i others = _mm256_set1_epi32((int)(0x80808080u & ~(0xFFu << 8 * at)));
    return _mm256_cvtepi32_ps(_mm256_shuffle_epi8(halves, _mm256_or_si256(code, others)));
}
static inline v32 v32_affine_u8(vpart d, u8x32 codes, vpart m) {
    const u8x32 halves = u8x32_halves(codes);
    V32_EACH(_mm256_fmadd_ps(d, u8x32_part(halves, i, 0), m));
}
/* Lanes 0-15 by d[0], lanes 16-31 by d[1]. */
static inline v32 v32_scale2_i8(const float d[2], u8x32 codes) {
    const u8x32 halves = u8x32_halves(codes);
    const vpart low = vpart_set1(d[0] * 0x1p-24f), high = vpart_set1(d[1] * 0x1p-24f);
    V32_EACH(_mm256_mul_ps(i < 2 ? low : high, u8x32_part(halves, i, 3)));
}
/* v32_affine_u4 and v32_scale_i4 with a fifth bit: bit i of four bytes is code i's. */
static inline u8x32 u8x32_nibbles(const uint8_t q[16]) {
    const __m256i v = _mm256_broadcastsi128_si256(load16(q));
    return u8x32_and(_mm256_blend_epi32(v, _mm256_srli_epi16(v, 4), 0xF0), 15);
}
static inline u8x32 u8x32_mask(const uint8_t bits[4]) {
    int32_t b;
    memcpy(&b, bits, 4);
    const __m256i where = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    return _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(b), where), bit), bit);
}
static inline v32 v32_affine_u5(vpart d, const uint8_t q[16], const uint8_t bits[4], vpart m) {
    return v32_affine_u8(d, u8x32_or(u8x32_nibbles(q), u8x32_and(u8x32_mask(bits), 16)), m);
}
static inline v32 v32_scale_i5(vpart d, const uint8_t q[16], const uint8_t bits[4]) {
    const u8x32 clear = _mm256_andnot_si256(u8x32_mask(bits), _mm256_set1_epi8((char)0xF0)); /* 16 less */
    const u8x32 halves = u8x32_halves(u8x32_or(u8x32_nibbles(q), clear));
    const vpart unit = _mm256_mul_ps(d, _mm256_set1_ps(0x1p-24f));
    V32_EACH(_mm256_mul_ps(unit, u8x32_part(halves, i, 3)));
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
