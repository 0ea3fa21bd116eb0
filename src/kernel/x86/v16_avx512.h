/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary of fused.inc: sixteen lanes, here one AVX-512 register of floats, of 32-bit integers, or of 64 bytes (four
 * terms of each lane).
 */
#ifndef KERNEL_X86_V16_AVX512_H
#define KERNEL_X86_V16_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

typedef __m512 vf;
typedef __m512i vi, vb, vs;

enum {
    LANE_SETS = 2,       /* sets of 16 lanes whose sums fit in registers together */
    MOST_VECTORS = 8,    /* query vectors likewise */
    FOLD_VECTORS = 4,    /* vectors that are rounded together */
    CODES_ON_TOP = 1,    /* codes are multiplied as the top bits of bytes: signed ones need no extension */
    FLOAT_HALVES = 2,    /* sets of 8 lanes whose sums of floats fit in registers */
    RUN_QUADS = 1 << 20, /* quads that vs can sum before it must be widened */
    WEIGHT_TOP = 255     /* largest rounded weight */
};

/* Independent sums of each of n vectors, to hide the latency of an addition. */
#define CHAINS(n) ((n) == 1 ? 4 : (n) == 2 ? 4 : (n) == 4 ? 2 : 1)
/* Numbers of vectors that are rounded together. */
#define EACH_FOLD_SIZE(X, Y) X(Y, 1) X(Y, 2) X(Y, 4)
/* Numbers of vectors for which whole rounds have a function of their own. */
#define EACH_KNOWN_SIZE(X, Y) X(Y, 1) X(Y, 4) X(Y, 8)
/* What there is of the kernels for eight vectors. */
#define EACH_DOT_8(X)   EACH_DOT(X, 8)
#define EACH_CLASS_8(X) EACH_CLASS(X, 8)
#define EACH_FLOAT_8(X) EACH_FLOAT(X, 8)
#define EACH_PLAIN_8(X) EACH_PLAIN(X, 8)

static inline vf vf_load(const float *p) { return _mm512_load_ps(p); }
/* p[at[lane]], at below n. Of 128 numbers each fourth is permuted into the lanes that want it. */
static inline __attribute__((always_inline)) vf vf_gather(const float *p, const int32_t *at, int n) {
    const __m512i i = _mm512_load_si512(at);
    if (n != 128) return _mm512_i32gather_ps(i, p, 4);
    const __mmask16 odd = _mm512_test_epi32_mask(i, _mm512_set1_epi32(32)),
                    high = _mm512_test_epi32_mask(i, _mm512_set1_epi32(64));
    __m512 v = _mm512_castsi512_ps(i); /* lanes that are not had yet keep their index */
    v = _mm512_mask2_permutex2var_ps(vf_load(p), _mm512_castps_si512(v), (__mmask16) ~(odd | high), vf_load(p + 16));
    v = _mm512_mask2_permutex2var_ps(vf_load(p + 32), _mm512_castps_si512(v), odd & (__mmask16)~high, vf_load(p + 48));
    v = _mm512_mask2_permutex2var_ps(vf_load(p + 64), _mm512_castps_si512(v), high & (__mmask16)~odd, vf_load(p + 80));
    return _mm512_mask2_permutex2var_ps(vf_load(p + 96), _mm512_castps_si512(v), odd & high, vf_load(p + 112));
}
static inline void vf_store(float *p, vf a) { _mm512_store_ps(p, a); }
static inline vf vf_all(float x) { return _mm512_set1_ps(x); }
static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_inverse(vf a) { return _mm512_div_ps(_mm512_set1_ps(1), a); }
static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline vf vf_max_magnitude(vf a, vf b) { return _mm512_range_ps(a, b, 11); }
static inline vf vf_madd(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf vf_from(vi a) { return _mm512_cvtepi32_ps(a); }
static inline vf vf_load_f16(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
static inline vf vf_load_bf16(const void *p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}

/* a 2^n; biased: n + 1.5 * 2^23, as the sum rounds it. */
static inline vf vf_times_power(vf a, vf biased, vf n) {
    (void)biased;
    return _mm512_scalef_ps(a, n);
}
/* 0 where x is below the limit. */
static inline vf vf_zero_below(vf a, vf x, float limit) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_GE_OQ), a);
}

/* To the nearest integer, ties to even. */
static inline vi vf_round(vf a) { return _mm512_cvtps_epi32(a); }
/* -1 where the sign bit is set, else 0. */
static inline vi vf_signs(vf a) { return _mm512_srai_epi32(_mm512_castps_si512(a), 31); }
static inline vi vi_down(vi a, int n) { return _mm512_srai_epi32(a, (unsigned)n); }
static inline vi vi_up(vi a, int n) { return _mm512_slli_epi32(a, (unsigned)n); }
static inline vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
static inline vi vi_sub(vi a, vi b) { return _mm512_sub_epi32(a, b); }
static inline vf vf_of_bits(vi a) { return _mm512_castsi512_ps(a); }
static inline vi vi_iota(void) { return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
static inline vi vi_load_bytes(const unsigned char *p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
static inline vi vi_load_signed_bytes(const unsigned char *p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
/* table[at]: n entries, 16, 32 or 64, at below n. */
static inline __attribute__((always_inline)) vi vi_look_up(const uint32_t *table, vi at, int n) {
    const __m512i first = _mm512_loadu_si512(table);
    if (n == 16) return _mm512_permutexvar_epi32(at, first);
    const __m512i low = _mm512_permutex2var_epi32(first, at, _mm512_loadu_si512(table + 16));
    if (n == 32) return low;
    const __m512i third = _mm512_loadu_si512(table + 32), last = _mm512_loadu_si512(table + 48);
    const __m512i high = _mm512_permutex2var_epi32(third, at, last);
    return _mm512_mask_blend_epi32(_mm512_test_epi32_mask(at, _mm512_set1_epi32(32)), low, high);
}
/* Puts the lanes whose bit is set at `to`, one after the other, and anything behind; returns where they end. */
static inline int32_t *vi_append(int32_t *to, vi a, unsigned bits) {
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi32((__mmask16)bits, a));
    return to + __builtin_popcount(bits);
}
/* Bits 0, 2, 4 ... as the low 16. */
static inline unsigned every_second_bit(uint32_t x) { return _pext_u32(x, 0x55555555); }
static inline vi vi_zero(void) { return _mm512_setzero_si512(); }
static inline vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
static inline vi vi_all(int32_t x) { return _mm512_set1_epi32(x); }

static inline vb vb_load(const void *p) { return _mm512_load_si512(p); }
static inline void vb_store(void *p, vb a) { _mm512_store_si512(p, a); }
static inline vb vb_all(unsigned x) { return _mm512_set1_epi8((char)x); }
static inline vb vb_and(vb a, vb b) { return _mm512_and_si512(a, b); }
static inline vb vb_or(vb a, vb b) { return _mm512_or_si512(a, b); }
static inline vb vb_xor(vb a, vb b) { return _mm512_xor_si512(a, b); }
static inline vb vb_sub(vb a, vb b) { return _mm512_sub_epi8(a, b); }
/* Bits cross from one byte of a pair to the other: mask them. */
static inline vb vb_up(vb a, int n) { return _mm512_slli_epi16(a, (unsigned)n); }
static inline vb vb_down(vb a, int n) { return _mm512_srli_epi16(a, (unsigned)n); }
/* The bytes of a 32-bit number in each lane. */
static inline vb vb_words(int32_t x) { return vi_all(x); }
/* table[a]: 16 bytes, a below 16. */
static inline vb vb_look_up(const int8_t *table, vb a) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)(const void *)table)), a);
}

/* sum + four products of unsigned and signed bytes in each lane. By hand: gcc 12 copies the sums of the intrinsic around loops. */
static inline vs vs_dot(vs sum, vb u, vb s) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(u), "v"(s));
    return sum;
}
static inline vi vs_widen(vs a) { return a; }
/* sum + two products of 16-bit integers in each lane. */
static inline vi vi_dot2(vi sum, vb a, vi b) {
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}
/* Bytes 0 and 2 of each lane as 16-bit integers, and bytes 1 and 3. */
static inline vb vb_even_u(vb a) { return _mm512_and_si512(a, _mm512_set1_epi16(0xFF)); }
static inline vb vb_odd_u(vb a) { return _mm512_srli_epi16(a, 8); }
static inline vb vb_even_s(vb a) { return _mm512_srai_epi16(_mm512_slli_epi16(a, 8), 8); }
static inline vb vb_odd_s(vb a) { return _mm512_srai_epi16(a, 8); }

/* Bytes 0 and 2 of each lane as the high bytes of 16-bit numbers, and bytes 1 and 3. */
static inline vb vb_high_even(vb a) { return _mm512_slli_epi16(a, 8); }
static inline vb vb_high_odd(vb a) { return _mm512_and_si512(a, _mm512_set1_epi16((short)0xFF00)); }
/* e4m3 in the high byte of 16 bits as f16, 2^8 too small. */
static inline vb vb_narrow_exponent(vb a) {
    return _mm512_and_si512(_mm512_srai_epi16(a, 1), _mm512_set1_epi16((short)0xBF80));
}
/* The f16 numbers of lanes 0 to 7, or 8 to 15: two of each lane. */
static inline vf vf_half(vb a, int upper) {
    return _mm512_cvtph_ps(upper ? _mm512_extracti64x4_epi64(a, 1) : _mm512_castsi512_si256(a));
}
/* Two numbers for each of 8 lanes. */
static inline vf vf_pair(const float *p) {
    return _mm512_castpd_ps(_mm512_broadcastsd_pd(_mm_load_sd((const double *)(const void *)p)));
}
/* Stores the 8 sums of neighbours. */
static inline void vf_store_pair_sums(float *to, vf a) {
    const __m256 lo = _mm512_castps512_ps256(a), hi = _mm512_extractf32x8_ps(a, 1);
    const __m256d sums = _mm256_castps_pd(_mm256_hadd_ps(lo, hi));
    _mm256_store_ps(to, _mm256_castpd_ps(_mm256_permute4x64_pd(sums, 0xD8)));
}
/* Each quad in the order 0, 2, 1, 3. */
static inline vf vf_swap_middle(vf a) { return _mm512_permute_ps(a, 0xD8); }
/* The magnitudes of 16 e4m3 numbers, 2^8 too small. */
static inline vf vf_half_scale(const unsigned char *p) {
    const __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm512_cvtph_ps(_mm256_and_si256(_mm256_slli_epi16(x, 7), _mm256_set1_epi16(0x3F80)));
}

/* 64 integers as bytes, in order, unsigned or signed; they fit. */
static inline vb vi_pack_bytes(const vi *a, bool is_unsigned) {
    const __m512i lo = _mm512_packs_epi32(a[0], a[1]), hi = _mm512_packs_epi32(a[2], a[3]);
    const __m512i packed = is_unsigned ? _mm512_packus_epi16(lo, hi) : _mm512_packs_epi16(lo, hi);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, packed);
}
/* 32 integers as 16-bit ones, each quad in the order 0, 2, 1, 3. */
static inline void vi_store_pairs(void *to, vi a, vi b) {
    const __m512i packed = _mm512_packs_epi32(a, b);
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    const __m512i pairs = _mm512_shufflehi_epi16(_mm512_shufflelo_epi16(packed, 0xD8), 0xD8);
    _mm512_store_si512(to, _mm512_permutexvar_epi64(order, pairs));
}

/* The largest of the 16 lanes of each of n vectors, or their sum, in the first n lanes; 0 in the others. n is 1, 2, 4 or 8. */
#define VF_ACROSS(name, op512, op256, op128, reduce)                                                                   \
    static inline __m128 name##_4(const vf *v) {                                                                       \
        const __m512 ab = op512(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));                       \
        const __m512 cd = op512(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));                       \
        const __m512d p = _mm512_castps_pd(ab), q = _mm512_castps_pd(cd);                                              \
        const __m512 e =                                                                                               \
            op512(_mm512_castpd_ps(_mm512_unpacklo_pd(p, q)), _mm512_castpd_ps(_mm512_unpackhi_pd(p, q)));             \
        const __m256 f = op256(_mm512_castps512_ps256(e), _mm512_extractf32x8_ps(e, 1));                               \
        return op128(_mm256_castps256_ps128(f), _mm256_extractf128_ps(f, 1));                                          \
    }                                                                                                                  \
    static inline __attribute__((always_inline)) vf name(const vf *v, int n) {                                         \
        if (n == 1) return _mm512_zextps128_ps512(_mm_set_ss(reduce(v[0])));                                           \
        if (n == 2) return _mm512_zextps128_ps512(_mm_setr_ps(reduce(v[0]), reduce(v[1]), 0, 0));                      \
        const __m512 first = _mm512_zextps128_ps512(name##_4(v));                                                      \
        return n == 4 ? first : _mm512_insertf32x4(first, name##_4(v + 4), 1);                                         \
    }
VF_ACROSS(vf_max_across, _mm512_max_ps, _mm256_max_ps, _mm_max_ps, _mm512_reduce_max_ps)
VF_ACROSS(vf_sum_across, _mm512_add_ps, _mm256_add_ps, _mm_add_ps, _mm512_reduce_add_ps)
/* n numbers as the first lanes, 0 in the others, and back. n is 1, 2, 4 or 8. */
static inline __attribute__((always_inline)) vf vf_load_few(const float *p, int n) {
    return n == 1   ? _mm512_zextps128_ps512(_mm_load_ss(p))
           : n == 2 ? _mm512_zextps128_ps512(_mm_castpd_ps(_mm_load_sd((const double *)(const void *)p)))
           : n == 4 ? _mm512_zextps128_ps512(_mm_loadu_ps(p))
                    : _mm512_zextps256_ps512(_mm256_loadu_ps(p));
}
static inline __attribute__((always_inline)) void vf_store_few(float *p, vf a, int n) {
    const __m128 first = _mm512_castps512_ps128(a);
    if (n == 1) _mm_store_ss(p, first);
    if (n == 2) _mm_storel_pi((__m64 *)(void *)p, first);
    if (n == 4) _mm_storeu_ps(p, first);
    if (n == 8) _mm256_storeu_ps(p, _mm512_castps512_ps256(a));
}
static inline float vf_first(vf a) { return _mm512_cvtss_f32(a); }
static inline vf vf_magnitude(vf a) { return _mm512_abs_ps(a); }
static inline bool vf_any_above(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0; }

/* Asked for by hand: gcc takes a function that only prefetches for one without effect and drops its calls. */
static inline void fetch_near(const void *p) { __asm__ volatile("prefetcht0 (%0)" : : "r"(p)); }
static inline void fetch_far(const void *p) { __asm__ volatile("prefetcht1 (%0)" : : "r"(p)); }

#endif
