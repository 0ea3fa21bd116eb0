/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary of fused.inc: sixteen lanes, here two AVX2 registers of floats, of 32-bit integers, or of 64 bytes (four terms
 * of each lane).
 */
#ifndef KERNEL_X86_V16_AVX2_H
#define KERNEL_X86_V16_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    __m256 r[2];
} vf;
typedef struct {
    __m256i r[2];
} vi;
typedef vi vb; /* bytes */
typedef vi vs; /* two 16-bit sums in each lane */

enum {
    LANE_SETS = 1,    /* sets of 16 lanes whose sums fit in registers together */
    MOST_VECTORS = 4, /* query vectors likewise */
    FOLD_VECTORS = 1, /* vectors that are rounded together */
    CODES_ON_TOP = 0, /* codes are multiplied as the low bits of bytes: products of two must not saturate 16 bits */
    FLOAT_HALVES = 1, /* sets of 8 lanes whose sums of floats fit in registers */
    RUN_QUADS = 8,    /* quads that vs can sum before it must be widened: 8 * 2 * 8 * 255 and 8 * 2 * 15 * 127 < 2^15 */
    WEIGHT_TOP = 255  /* largest rounded weight */
};

#define VF_2(name, op)                                                                                                 \
    static inline vf name(vf a, vf b) { return (vf){{op(a.r[0], b.r[0]), op(a.r[1], b.r[1])}}; }
#define VI_2(name, op)                                                                                                 \
    static inline vi name(vi a, vi b) { return (vi){{op(a.r[0], b.r[0]), op(a.r[1], b.r[1])}}; }

/* Independent sums of each of n vectors, to hide the latency of an addition. */
#define CHAINS(n) ((n) == 1 ? 4 : (n) == 2 ? 2 : 1)
/* Numbers of vectors that are rounded together. */
#define EACH_FOLD_SIZE(X, Y) X(Y, 1)
/* What there is of the kernels for eight vectors. */
#define EACH_DOT_8(X)
#define EACH_CLASS_8(X)
#define EACH_FLOAT_8(X)
#define EACH_PLAIN_8(X)

static inline vf vf_load(const float *p) { return (vf){{_mm256_load_ps(p), _mm256_load_ps(p + 8)}}; }
/* p[at[lane]], at below n. */
static inline vf vf_gather(const float *p, const int32_t *at, int n) {
    (void)n;
    const __m256i *i = (const __m256i *)(const void *)at;
    return (vf){{_mm256_i32gather_ps(p, _mm256_load_si256(i), 4), _mm256_i32gather_ps(p, _mm256_load_si256(i + 1), 4)}};
}
static inline void vf_store(float *p, vf a) {
    _mm256_store_ps(p, a.r[0]);
    _mm256_store_ps(p + 8, a.r[1]);
}
static inline vf vf_all(float x) { return (vf){{_mm256_set1_ps(x), _mm256_set1_ps(x)}}; }
static inline bool vf_any_above(vf a, vf b) {
    const __m256 lo = _mm256_cmp_ps(a.r[0], b.r[0], _CMP_GT_OQ), hi = _mm256_cmp_ps(a.r[1], b.r[1], _CMP_GT_OQ);
    return _mm256_movemask_ps(_mm256_or_ps(lo, hi)) != 0;
}
VF_2(vf_add, _mm256_add_ps)
VF_2(vf_mul, _mm256_mul_ps)
VF_2(vf_max, _mm256_max_ps)
VF_2(vf_min, _mm256_min_ps)
static inline vf vf_inverse(vf a) {
    const __m256 one = _mm256_set1_ps(1);
    return (vf){{_mm256_div_ps(one, a.r[0]), _mm256_div_ps(one, a.r[1])}};
}
static inline vf vf_magnitude(vf a) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (vf){{_mm256_andnot_ps(sign, a.r[0]), _mm256_andnot_ps(sign, a.r[1])}};
}
static inline vf vf_max_magnitude(vf a, vf b) { return vf_max(a, vf_magnitude(b)); }
static inline vf vf_madd(vf a, vf b, vf c) {
    return (vf){{_mm256_fmadd_ps(a.r[0], b.r[0], c.r[0]), _mm256_fmadd_ps(a.r[1], b.r[1], c.r[1])}};
}
static inline vf vf_from(vi a) { return (vf){{_mm256_cvtepi32_ps(a.r[0]), _mm256_cvtepi32_ps(a.r[1])}}; }
static inline vf vf_load_f16(const void *p) {
    const __m128i *h = p;
    return (vf){{_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1))}};
}
static inline vf vf_load_bf16(const void *p) {
    const __m128i *h = p;
    const __m256i a = _mm256_cvtepu16_epi32(_mm_loadu_si128(h)), b = _mm256_cvtepu16_epi32(_mm_loadu_si128(h + 1));
    return (vf){{_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))}};
}

/* a 2^n; biased: n + 1.5 * 2^23, as the sum rounds it. */
static inline vf vf_times_power(vf a, vf biased, vf n) {
    vf out;
    (void)n;
    for (int i = 0; i < 2; i++) {
        const __m256i bits = _mm256_add_epi32(_mm256_castps_si256(biased.r[i]), _mm256_set1_epi32(127));
        out.r[i] = _mm256_mul_ps(a.r[i], _mm256_castsi256_ps(_mm256_slli_epi32(bits, 23)));
    }
    return out;
}
/* 0 where x is below the limit. */
static inline vf vf_zero_below(vf a, vf x, float limit) {
    const __m256 l = _mm256_set1_ps(limit);
    return (vf){{_mm256_and_ps(a.r[0], _mm256_cmp_ps(x.r[0], l, _CMP_GE_OQ)),
                 _mm256_and_ps(a.r[1], _mm256_cmp_ps(x.r[1], l, _CMP_GE_OQ))}};
}

/* To the nearest integer, ties to even. */
static inline vi vf_round(vf a) { return (vi){{_mm256_cvtps_epi32(a.r[0]), _mm256_cvtps_epi32(a.r[1])}}; }
/* -1 where the sign bit is set, else 0. */
static inline vi vf_signs(vf a) {
    return (vi){
        {_mm256_srai_epi32(_mm256_castps_si256(a.r[0]), 31), _mm256_srai_epi32(_mm256_castps_si256(a.r[1]), 31)}};
}
static inline vi vi_up(vi a, int n) { return (vi){{_mm256_slli_epi32(a.r[0], n), _mm256_slli_epi32(a.r[1], n)}}; }
static inline vi vi_down(vi a, int n) { return (vi){{_mm256_srai_epi32(a.r[0], n), _mm256_srai_epi32(a.r[1], n)}}; }
static inline vi vi_zero(void) { return (vi){{_mm256_setzero_si256(), _mm256_setzero_si256()}}; }
VI_2(vi_add, _mm256_add_epi32)
VI_2(vi_sub, _mm256_sub_epi32)
VI_2(vi_and, _mm256_and_si256)
static inline vf vf_of_bits(vi a) { return (vf){{_mm256_castsi256_ps(a.r[0]), _mm256_castsi256_ps(a.r[1])}}; }
static inline vi vi_iota(void) {
    return (vi){{_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)}};
}
static inline vi vi_load_bytes(const unsigned char *p) {
    const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
    return (vi){{_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8))}};
}
static inline vi vi_load_signed_bytes(const unsigned char *p) {
    const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
    return (vi){{_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8))}};
}
/* table[at]: n entries, at below n. */
static inline vi vi_look_up(const uint32_t *table, vi at, int n) {
    (void)n;
    const int *t = (const int *)(const void *)table;
    return (vi){{_mm256_i32gather_epi32(t, at.r[0], 4), _mm256_i32gather_epi32(t, at.r[1], 4)}};
}
/* Puts the lanes whose bit is set at `to`, one after the other, and anything behind; returns where they end. */
static inline int32_t *vi_append(int32_t *to, vi a, unsigned bits) {
    for (int i = 0; i < 2; i++) {
        const unsigned half = bits >> 8 * i & 0xFF;
        const uint64_t bytes = _pdep_u64(half, 0x0101010101010101) * 0xFF;
        const __m128i order = _mm_cvtsi64_si128((long long)_pext_u64(0x0706050403020100, bytes));
        _mm256_storeu_si256((__m256i *)(void *)to, _mm256_permutevar8x32_epi32(a.r[i], _mm256_cvtepu8_epi32(order)));
        to += __builtin_popcount(half);
    }
    return to;
}
/* Bits 0, 2, 4 ... as the low 16. */
static inline unsigned every_second_bit(uint32_t x) { return _pext_u32(x, 0x55555555); }
static inline vi vi_all(int32_t x) { return (vi){{_mm256_set1_epi32(x), _mm256_set1_epi32(x)}}; }

static inline vb vb_load(const void *p) {
    const __m256i *q = p;
    return (vb){{_mm256_load_si256(q), _mm256_load_si256(q + 1)}};
}
static inline void vb_store(void *p, vb a) {
    __m256i *q = p;
    _mm256_store_si256(q, a.r[0]);
    _mm256_store_si256(q + 1, a.r[1]);
}
static inline vb vb_all(unsigned x) { return (vb){{_mm256_set1_epi8((char)x), _mm256_set1_epi8((char)x)}}; }
VI_2(vb_and, _mm256_and_si256)
VI_2(vb_or, _mm256_or_si256)
VI_2(vb_xor, _mm256_xor_si256)
VI_2(vb_sub, _mm256_sub_epi8)
/* Bits cross from one byte of a pair to the other: mask them. */
static inline vb vb_up(vb a, int n) { return (vb){{_mm256_slli_epi16(a.r[0], n), _mm256_slli_epi16(a.r[1], n)}}; }
static inline vb vb_down(vb a, int n) { return (vb){{_mm256_srli_epi16(a.r[0], n), _mm256_srli_epi16(a.r[1], n)}}; }
/* The bytes of a 32-bit number in each lane. */
static inline vb vb_words(int32_t x) { return vi_all(x); }
/* table[a]: 16 bytes, a below 16. */
static inline vb vb_look_up(const int8_t *table, vb a) {
    const __m256i t = _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)(const void *)table));
    return (vb){{_mm256_shuffle_epi8(t, a.r[0]), _mm256_shuffle_epi8(t, a.r[1])}};
}

/* sum + products of unsigned and signed bytes, four in each lane as two sums. */
static inline vs vs_dot(vs sum, vb u, vb s) {
    return (vs){{_mm256_add_epi16(sum.r[0], _mm256_maddubs_epi16(u.r[0], s.r[0])),
                 _mm256_add_epi16(sum.r[1], _mm256_maddubs_epi16(u.r[1], s.r[1]))}};
}
static inline vi vs_widen(vs a) {
    const __m256i one = _mm256_set1_epi16(1);
    return (vi){{_mm256_madd_epi16(a.r[0], one), _mm256_madd_epi16(a.r[1], one)}};
}
/* sum + two products of 16-bit integers in each lane. */
static inline vi vi_dot2(vi sum, vb a, vi b) {
    return (vi){{_mm256_add_epi32(sum.r[0], _mm256_madd_epi16(a.r[0], b.r[0])),
                 _mm256_add_epi32(sum.r[1], _mm256_madd_epi16(a.r[1], b.r[1]))}};
}
/* Bytes 0 and 2 of each lane as 16-bit integers, and bytes 1 and 3. */
static inline vb vb_even_u(vb a) {
    const __m256i low = _mm256_set1_epi16(0xFF);
    return (vb){{_mm256_and_si256(a.r[0], low), _mm256_and_si256(a.r[1], low)}};
}
static inline vb vb_odd_u(vb a) { return vb_down(a, 8); }
static inline vb vb_odd_s(vb a) { return (vb){{_mm256_srai_epi16(a.r[0], 8), _mm256_srai_epi16(a.r[1], 8)}}; }
static inline vb vb_even_s(vb a) { return vb_odd_s(vb_up(a, 8)); }

/* Bytes 0 and 2 of each lane as the high bytes of 16-bit numbers, and bytes 1 and 3. */
static inline vb vb_high_even(vb a) { return vb_up(a, 8); }
static inline vb vb_high_odd(vb a) {
    const __m256i high = _mm256_set1_epi16((short)0xFF00);
    return (vb){{_mm256_and_si256(a.r[0], high), _mm256_and_si256(a.r[1], high)}};
}
/* e4m3 in the high byte of 16 bits as f16, 2^8 too small. */
static inline vb vb_narrow_exponent(vb a) {
    const __m256i keep = _mm256_set1_epi16((short)0xBF80);
    return (vb){
        {_mm256_and_si256(_mm256_srai_epi16(a.r[0], 1), keep), _mm256_and_si256(_mm256_srai_epi16(a.r[1], 1), keep)}};
}
/* The f16 numbers of lanes 0 to 7, or 8 to 15: two of each lane. */
static inline vf vf_half(vb a, int upper) {
    const __m256i x = a.r[upper];
    return (vf){{_mm256_cvtph_ps(_mm256_castsi256_si128(x)), _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1))}};
}
/* Two numbers for each of 8 lanes. */
static inline vf vf_pair(const float *p) {
    const __m256 x = _mm256_castpd_ps(_mm256_broadcast_sd((const double *)(const void *)p));
    return (vf){{x, x}};
}
/* Stores the 8 sums of neighbours. */
static inline void vf_store_pair_sums(float *to, vf a) {
    const __m256d sums = _mm256_castps_pd(_mm256_hadd_ps(a.r[0], a.r[1]));
    _mm256_store_ps(to, _mm256_castpd_ps(_mm256_permute4x64_pd(sums, 0xD8)));
}
/* Each quad in the order 0, 2, 1, 3. */
static inline vf vf_swap_middle(vf a) {
    return (vf){{_mm256_permute_ps(a.r[0], 0xD8), _mm256_permute_ps(a.r[1], 0xD8)}};
}
/* The magnitudes of 16 e4m3 numbers, 2^8 too small. */
static inline vf vf_half_scale(const unsigned char *p) {
    const __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    const __m256i h = _mm256_and_si256(_mm256_slli_epi16(x, 7), _mm256_set1_epi16(0x3F80));
    return (vf){{_mm256_cvtph_ps(_mm256_castsi256_si128(h)), _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1))}};
}

/* 64 integers as bytes, in order, unsigned or signed; they fit. */
static inline vb vi_pack_bytes(const vi *a, bool is_unsigned) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    vb out;
    for (int i = 0; i < 2; i++) {
        const __m256i lo = _mm256_packs_epi32(a[2 * i].r[0], a[2 * i].r[1]);
        const __m256i hi = _mm256_packs_epi32(a[2 * i + 1].r[0], a[2 * i + 1].r[1]);
        const __m256i packed = is_unsigned ? _mm256_packus_epi16(lo, hi) : _mm256_packs_epi16(lo, hi);
        out.r[i] = _mm256_permutevar8x32_epi32(packed, order);
    }
    return out;
}
/* 32 integers as 16-bit ones, each quad in the order 0, 2, 1, 3. */
static inline void vi_store_pairs(void *to, vi a, vi b) {
    const vi in[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        const __m256i packed = _mm256_packs_epi32(in[i].r[0], in[i].r[1]);
        const __m256i pairs = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(packed, 0xD8), 0xD8);
        _mm256_store_si256((__m256i *)to + i, _mm256_permute4x64_epi64(pairs, 0xD8));
    }
}

/* The largest of the 16 lanes of each of n vectors, or their sum, in the first n lanes; 0 in the others. n is 1, 2 or 4. */
#define VF_ACROSS(name, op256, op128, op1)                                                                             \
    static inline __m128 name##_4(const vf *v) {                                                                       \
        __m256 e[4];                                                                                                   \
        for (int i = 0; i < 4; i++) e[i] = op256(v[i].r[0], v[i].r[1]);                                                \
        const __m256 ab = op256(_mm256_unpacklo_ps(e[0], e[1]), _mm256_unpackhi_ps(e[0], e[1]));                       \
        const __m256 cd = op256(_mm256_unpacklo_ps(e[2], e[3]), _mm256_unpackhi_ps(e[2], e[3]));                       \
        const __m256d p = _mm256_castps_pd(ab), q = _mm256_castps_pd(cd);                                              \
        const __m256 f =                                                                                               \
            op256(_mm256_castpd_ps(_mm256_unpacklo_pd(p, q)), _mm256_castpd_ps(_mm256_unpackhi_pd(p, q)));             \
        return op128(_mm256_castps256_ps128(f), _mm256_extractf128_ps(f, 1));                                          \
    }                                                                                                                  \
    static inline float name##_1(vf v) {                                                                               \
        const __m256 e = op256(v.r[0], v.r[1]);                                                                        \
        const __m128 f = op128(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));                                \
        const __m128 g = op128(f, _mm_movehl_ps(f, f));                                                                \
        return _mm_cvtss_f32(op1(g, _mm_movehdup_ps(g)));                                                              \
    }                                                                                                                  \
    static inline __attribute__((always_inline)) vf name(const vf *v, int n) {                                         \
        const __m128 few = n == 1   ? _mm_set_ss(name##_1(v[0]))                                                       \
                           : n == 2 ? _mm_setr_ps(name##_1(v[0]), name##_1(v[1]), 0, 0)                                \
                                    : name##_4(v);                                                                     \
        return vf_of_few(few);                                                                                         \
    }
static inline vf vf_of_few(__m128 few) { return (vf){{_mm256_zextps128_ps256(few), _mm256_setzero_ps()}}; }
VF_ACROSS(vf_max_across, _mm256_max_ps, _mm_max_ps, _mm_max_ss)
VF_ACROSS(vf_sum_across, _mm256_add_ps, _mm_add_ps, _mm_add_ss)
/* n numbers as the first lanes, 0 in the others, and back. n is 1, 2 or 4. */
static inline __attribute__((always_inline)) vf vf_load_few(const float *p, int n) {
    return vf_of_few(n == 1   ? _mm_load_ss(p)
                     : n == 2 ? _mm_castpd_ps(_mm_load_sd((const double *)(const void *)p))
                              : _mm_loadu_ps(p));
}
static inline __attribute__((always_inline)) void vf_store_few(float *p, vf a, int n) {
    const __m128 first = _mm256_castps256_ps128(a.r[0]);
    if (n == 1) _mm_store_ss(p, first);
    if (n == 2) _mm_storel_pi((__m64 *)(void *)p, first);
    if (n == 4) _mm_storeu_ps(p, first);
}
static inline float vf_first(vf a) { return _mm256_cvtss_f32(a.r[0]); }

/* Asked for by hand: gcc takes a function that only prefetches for one without effect and drops its calls. */
static inline void fetch_near(const void *p) { __asm__ volatile("prefetcht0 (%0)" : : "r"(p)); }
static inline void fetch_far(const void *p) { __asm__ volatile("prefetcht1 (%0)" : : "r"(p)); }

#undef VF_2
#undef VI_2

#endif
