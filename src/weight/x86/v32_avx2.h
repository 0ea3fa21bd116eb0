/* SPDX-License-Identifier: Apache-2.0
 * The vocabulary of the weight kernels at level avx2: 32 floats in registers. */
#ifndef WEIGHT_X86_V32_AVX2_H
#define WEIGHT_X86_V32_AVX2_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define V32_NAME(type) kvt_weight_##type##_avx2

#define V32_TILE_TOKENS 3 /* 12 sums, 3 activations and a weight: all 16 registers */
enum { V32_PARTS = 4, V32_WIDTH = 8, V32_ROWS = 2 };

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

static inline v32 v32_from_f16(const unsigned char *p) {
    V32_EACH(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i))));
}
static inline v32 v32_from_bf16(const unsigned char *p) {
    V32_EACH(_mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i))), 16)));
}
static inline __m128i load8(const void *p) { return _mm_loadl_epi64((const __m128i *)p); }
static inline v32 v32_from_i8(const unsigned char *p) {
    V32_EACH(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load8(p + 8 * i))));
}

/* 32 codes of a byte each. From registers to floats they go through memory: a widening load costs half of a widening move. */
typedef __m256i u8x32;
static inline u8x32 u8x32_load(const unsigned char *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
static inline u8x32 u8x32_and(u8x32 a, int mask) { return _mm256_and_si256(a, _mm256_set1_epi8((char)mask)); }
static inline u8x32 u8x32_or(u8x32 a, u8x32 b) { return _mm256_or_si256(a, b); }
static inline u8x32 u8x32_sub(u8x32 a, int b) { return _mm256_sub_epi8(a, _mm256_set1_epi8((char)b)); }
static inline u8x32 u8x32_not(u8x32 a) { return _mm256_xor_si256(a, _mm256_set1_epi8(-1)); }
/* Bits k .. k+count-1 of each byte, moved to bit `to`. */
static inline u8x32 u8x32_bits(u8x32 a, int k, int count, int to) {
    const __m256i moved = k >= to ? _mm256_srli_epi16(a, k - to) : _mm256_slli_epi16(a, to - k);
    return u8x32_and(moved, ((1 << count) - 1) << to);
}
/* 16 bytes: the low nibbles are codes 0-15, the high ones 16-31. */
static inline u8x32 u8x32_nibbles(const unsigned char *p) {
    const __m256i v = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)p));
    return u8x32_and(_mm256_blend_epi32(v, _mm256_srli_epi16(v, 4), 0xF0), 15);
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
static inline v32 v32_from_u8x32(u8x32 a) {
    unsigned char p[32] __attribute__((aligned(32)));
    _mm256_store_si256((__m256i *)(void *)p, a);
    V32_EACH(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load8(p + 8 * i))));
}
static inline v32 v32_from_i8x32(u8x32 a) {
    unsigned char p[32] __attribute__((aligned(32)));
    _mm256_store_si256((__m256i *)(void *)p, a);
    return v32_from_i8(p);
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
#undef V32_EACH

static inline float f16_from_bytes(const unsigned char p[2]) {
    uint16_t h;
    memcpy(&h, p, 2);
    return _cvtsh_ss(h);
}

/* Scales, eight at a time: of f16, and of bytes times a factor. */
static inline void scales_from_f16(float dst[8], const void *src) {
    _mm256_storeu_ps(dst, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)src)));
}
static inline void scales_from_u8(float dst[8], const void *src, float factor) {
    const __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load8(src)));
    _mm256_storeu_ps(dst, _mm256_mul_ps(v, _mm256_set1_ps(factor)));
}
static inline void scales_from_i8(float dst[8], const void *src, float factor) {
    const __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load8(src)));
    _mm256_storeu_ps(dst, _mm256_mul_ps(v, _mm256_set1_ps(factor)));
}

/* The tree: halves of 16 and 8 are whole registers, those of 4, 2 and 1 lie inside one. */
static inline __m256 sum_to_8(__m256 a, __m256 b, __m256 c, __m256 d) {
    return _mm256_add_ps(_mm256_add_ps(a, c), _mm256_add_ps(b, d));
}
static inline float v32_sum(v32 a) {
    const __m256 s8 = sum_to_8(a.part[0], a.part[1], a.part[2], a.part[3]);
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}
/* The tree of four sets of 32 sums at once, part p of set k at sums + p * part_stride + k * 8. */
static inline void sum_of_4(float dst[4], const float *sums, ptrdiff_t part_stride) {
    __m256 s[4];
    for (int k = 0; k < 4; k++) {
        const float *p = sums + k * 8;
        s[k] = sum_to_8(vpart_load(p), vpart_load(p + part_stride), vpart_load(p + 2 * part_stride),
                        vpart_load(p + 3 * part_stride));
    }
    const __m256 ab = _mm256_add_ps(_mm256_permute2f128_ps(s[0], s[1], 0x20), _mm256_permute2f128_ps(s[0], s[1], 0x31));
    const __m256 cd = _mm256_add_ps(_mm256_permute2f128_ps(s[2], s[3], 0x20), _mm256_permute2f128_ps(s[2], s[3], 0x31));
    const __m256 acbd = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xEE));
    const __m256 r = _mm256_add_ps(_mm256_shuffle_ps(acbd, acbd, 0x88), _mm256_shuffle_ps(acbd, acbd, 0xDD));
    _mm_storeu_ps(dst, _mm_unpacklo_ps(_mm256_castps256_ps128(r), _mm256_extractf128_ps(r, 1)));
}

#endif
