/* SPDX-License-Identifier: Apache-2.0
 * The vocabulary of strips at level avx512: a register has four elements of all 16 rows. */
#ifndef WEIGHT_X86_STRIP_AVX512_H
#define WEIGHT_X86_STRIP_AVX512_H

#include "weight/strip.h"
#include "weight/x86/x86.h"

enum { STRIP_LANES = 16, STRIP_PARTS = 1 };
#define STRIP_TOKENS 8 /* 16 dot products of bytes and 8 sums of 32 registers */

typedef __m512i strip_codes;
typedef __m512 strip_sum;
typedef struct {
    __m512i upper, lower; /* by the token's bytes */
} strip_dot;

static inline strip_codes strip_load(const unsigned char *p) { return _mm512_loadu_si512(p); }
static inline strip_codes strip_low(strip_codes a) { return _mm512_and_si512(a, _mm512_set1_epi8(15)); }
static inline strip_codes strip_high(strip_codes a) { return strip_low(_mm512_srli_epi16(a, 4)); }
/* Bits k .. k+count-1 of `bits` become bits 4 .. of a. */
static inline __attribute__((always_inline)) strip_codes strip_with_bits(strip_codes a, strip_codes bits, int k,
                                                                         int count) {
    const __m512i moved =
        k < 4 ? _mm512_slli_epi16(bits, (unsigned)(4 - k)) : _mm512_srli_epi16(bits, (unsigned)(k - 4));
    return _mm512_ternarylogic_epi32(a, moved, _mm512_set1_epi8((char)(((1 << count) - 1) << 4)), 0xF8); /* a | b & c */
}

static inline strip_dot strip_zero(void) { return (strip_dot){_mm512_setzero_si512(), _mm512_setzero_si512()}; }
static inline __m512i strip_four(const int8_t *p) {
    int32_t v;
    memcpy(&v, p, 4);
    return _mm512_set1_epi32(v);
}
static inline strip_dot strip_add_dot(strip_dot a, strip_codes codes, const struct kvt_rounded *x, int k) {
    return (strip_dot){_mm512_dpbusd_epi32(a.upper, codes, strip_four(x->bytes[0] + 4 * k)),
                       _mm512_dpbusd_epi32(a.lower, codes, strip_four(x->bytes[1] + 4 * k))};
}
/* The whole numbers less `less`. */
static inline strip_sum strip_float(strip_dot a, int32_t less) {
    const __m512i both = _mm512_add_epi32(_mm512_slli_epi32(a.upper, 8), a.lower);
    return _mm512_cvtepi32_ps(less ? _mm512_sub_epi32(both, _mm512_set1_epi32(less)) : both);
}

static inline strip_sum strip_all(float a) { return _mm512_set1_ps(a); }
static inline strip_sum strip_mul(strip_sum a, strip_sum b) { return _mm512_mul_ps(a, b); }
static inline strip_sum strip_fma(strip_sum a, strip_sum b, strip_sum c) { return _mm512_fmadd_ps(a, b, c); }
static inline strip_sum strip_from_f16(const unsigned char *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline strip_sum strip_from_u8(const unsigned char *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load16(p)));
}
static inline strip_sum strip_from_i8(const unsigned char *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load16(p)));
}
static inline void strip_store(float *dst, strip_sum a, int n) {
    _mm512_mask_storeu_ps(dst, (__mmask16)((1u << n) - 1), a);
}

static inline void strip_round_32(struct kvt_rounded *dst, const float *x) {
    const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
    const __m512i most = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(a), magnitude),
                                          _mm512_and_si512(_mm512_castps_si512(b), magnitude));
    const float m = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((int)_mm512_reduce_max_epu32(most))));
    if (!(m >= 0x1p-100f && m < __builtin_inff())) {
        kvt_weight_round_ref(dst, 1, x, 32);
        return;
    }
    const __m512 inverse = _mm512_set1_ps(KVT_ROUNDED_MOST / m);
    const __m512i qa = _mm512_cvtps_epi32(_mm512_mul_ps(a, inverse)),
                  qb = _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse));
    const __m256i half = _mm256_set1_epi16(128);
    const __m256i sa = _mm512_cvtepi32_epi16(qa), sb = _mm512_cvtepi32_epi16(qb);
    /* q = 256 * upper + lower: adding 128 carries what lower takes. */
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(sa), sb, 1);
    const __m512i carried =
        _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_add_epi16(sa, half)), _mm256_add_epi16(sb, half), 1);
    _mm256_storeu_si256((__m256i *)(void *)dst->bytes[0], _mm512_cvtepi16_epi8(_mm512_srai_epi16(carried, 8)));
    _mm256_storeu_si256((__m256i *)(void *)dst->bytes[1], _mm512_cvtepi16_epi8(both));
    dst->sum[0] = _mm512_reduce_add_epi32(qa);
    dst->sum[1] = _mm512_reduce_add_epi32(qb);
    dst->scale = m / KVT_ROUNDED_MOST;
    dst->moment = (float)(dst->sum[0] + dst->sum[1]) * dst->scale;
}

static inline void strip_round(struct kvt_rounded *dst, ptrdiff_t ld_dst, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i += 32, dst += ld_dst) strip_round_32(dst, x + i);
}

#endif
