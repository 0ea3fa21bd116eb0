/* SPDX-License-Identifier: Apache-2.0
 * The vocabulary of strips at level avx2: a register has four elements of 8 rows. */
#ifndef WEIGHT_X86_STRIP_AVX2_H
#define WEIGHT_X86_STRIP_AVX2_H

#include "weight/strip.h"
#include "weight/x86/x86.h"

enum { STRIP_LANES = 8, STRIP_PARTS = 2 };
#define STRIP_TOKENS 4 /* 8 dot products of 16 registers, and what they are made from */

typedef __m256i strip_codes;
typedef __m256 strip_sum;
typedef struct {
    __m256i a, b; /* rows 0 0 1 1 4 4 5 5, and 2 2 3 3 6 6 7 7 */
} strip_dot;

static inline strip_codes strip_load(const unsigned char *p) { return u8x32_load(p); }
static inline strip_codes strip_low(strip_codes a) { return u8x32_and(a, 15); }
static inline strip_codes strip_high(strip_codes a) { return u8x32_bits(a, 4, 4, 0); }
/* Bits k .. k+count-1 of `bits` become bits 4 .. of a. */
static inline __attribute__((always_inline)) strip_codes strip_with_bits(strip_codes a, strip_codes bits, int k,
                                                                         int count) {
    return u8x32_or(a, u8x32_bits(bits, k, count, 4));
}

static inline strip_dot strip_zero(void) { return (strip_dot){_mm256_setzero_si256(), _mm256_setzero_si256()}; }
static inline strip_dot strip_add_dot(strip_dot dot, strip_codes codes, const struct kvt_rounded *x, int k) {
    long long four;
    memcpy(&four, x->q + 4 * k, 8);
    const __m256i q = _mm256_set1_epi64x(four), zero = _mm256_setzero_si256();
    return (strip_dot){_mm256_add_epi32(dot.a, _mm256_madd_epi16(_mm256_unpacklo_epi8(codes, zero), q)),
                       _mm256_add_epi32(dot.b, _mm256_madd_epi16(_mm256_unpackhi_epi8(codes, zero), q))};
}
/* The whole numbers less `less`. */
static inline strip_sum strip_float(strip_dot dot, int32_t less) {
    const __m256i both = _mm256_hadd_epi32(dot.a, dot.b);
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(both, _mm256_set1_epi32(less)));
}

static inline strip_sum strip_all(float a) { return _mm256_set1_ps(a); }
static inline strip_sum strip_mul(strip_sum a, strip_sum b) { return _mm256_mul_ps(a, b); }
static inline strip_sum strip_fma(strip_sum a, strip_sum b, strip_sum c) { return _mm256_fmadd_ps(a, b, c); }
static inline strip_sum strip_from_f16(const unsigned char *p) { return _mm256_cvtph_ps(load16(p)); }
static inline strip_sum strip_from_u8(const unsigned char *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load8(p)));
}
static inline strip_sum strip_from_i8(const unsigned char *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load8(p)));
}
static inline void strip_store(float *dst, strip_sum a, int n) {
    float last[8];
    _mm256_storeu_ps(n == 8 ? dst : last, a);
    if (n > 0 && n < 8) memcpy(dst, last, (size_t)n * sizeof *dst);
}

static inline void strip_round_32(struct kvt_rounded *dst, const float *x) {
    const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
    __m256i most = _mm256_setzero_si256(), q[4];
    for (int i = 0; i < 4; i++)
        most = _mm256_max_epu32(most, _mm256_and_si256(u8x32_load((const unsigned char *)(x + 8 * i)), magnitude));
    __m128i m4 = _mm_max_epu32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    m4 = _mm_max_epu32(m4, _mm_shuffle_epi32(m4, 0x4E));
    m4 = _mm_max_epu32(m4, _mm_shuffle_epi32(m4, 0xB1));
    const float m = _mm_cvtss_f32(_mm_castsi128_ps(m4));
    if (!(m >= 0x1p-100f && m < __builtin_inff())) {
        kvt_weight_round_ref(dst, 1, x, 32);
        return;
    }
    const __m256 inverse = _mm256_set1_ps(KVT_ROUNDED_MOST / m);
    for (int i = 0; i < 4; i++) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), inverse));
    for (int i = 0; i < 2; i++) {
        const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(q[2 * i], q[2 * i + 1]), 0xD8);
        const __m256i sum8 = _mm256_add_epi32(q[2 * i], q[2 * i + 1]);
        __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(sum8), _mm256_extracti128_si256(sum8, 1));
        sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
        sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1));
        _mm256_storeu_si256((__m256i *)(void *)(dst->q + 16 * i), packed);
        dst->sum[i] = _mm_cvtsi128_si32(sum);
    }
    dst->scale = m / KVT_ROUNDED_MOST;
    dst->moment = (float)(dst->sum[0] + dst->sum[1]) * dst->scale;
}

static inline void strip_round(struct kvt_rounded *dst, ptrdiff_t ld_dst, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i += 32, dst += ld_dst) strip_round_32(dst, x + i);
}

#endif
