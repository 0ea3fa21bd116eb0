/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary of fused.inc: sixteen lanes, here four NEON registers of floats, of 32-bit integers, or of 64 bytes (four terms of
 * each lane).
 */
#ifndef KERNEL_ARM_V16_NEON_H
#define KERNEL_ARM_V16_NEON_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    float32x4_t r[4];
} vf;
typedef struct {
    int32x4_t r[4];
} vi;
typedef struct {
    uint8x16_t r[4];
} vb;
typedef vi vs;

enum {
    LANE_SETS = 1,       /* sets of 16 lanes whose sums fit in registers together */
    MOST_VECTORS = 4,    /* query vectors likewise */
    FOLD_VECTORS = 1,    /* vectors that are rounded together */
    CODES_ON_TOP = 0,    /* codes are multiplied as the low bits of bytes */
    FLOAT_HALVES = 1,    /* sets of 8 lanes whose sums of floats fit in registers */
    RUN_QUADS = 1 << 20, /* quads that vs can sum before it must be widened */
    WEIGHT_TOP = 127     /* largest rounded weight: products are of signed bytes */
};

/* Independent sums of each of n vectors, to hide the latency of an addition. */
#define CHAINS(n) ((n) == 1 ? 2 : 1)
/* Numbers of vectors that are rounded together. */
#define EACH_FOLD_SIZE(X, Y) X(Y, 1)
/* What there is of the kernels for eight vectors. */
#define EACH_DOT_8(X)
#define EACH_CLASS_8(X)
#define EACH_FLOAT_8(X)
#define EACH_PLAIN_8(X)

#define EACH_REGISTER(type, expression)                                                                                \
    type out;                                                                                                          \
    for (int i = 0; i < 4; i++) out.r[i] = expression;                                                                 \
    return out

static inline vf vf_load(const float *p) { EACH_REGISTER(vf, vld1q_f32(p + 4 * i)); }
/* p[at[lane]], at below n. */
static inline vf vf_gather(const float *p, const int32_t *at, int n) {
    (void)n;
    float out[16];
    for (int i = 0; i < 16; i++) out[i] = p[at[i]];
    return vf_load(out);
}
static inline void vf_store(float *p, vf a) {
    for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, a.r[i]);
}
static inline vf vf_all(float x) { EACH_REGISTER(vf, vdupq_n_f32(x)); }
static inline vf vf_add(vf a, vf b) { EACH_REGISTER(vf, vaddq_f32(a.r[i], b.r[i])); }
static inline vf vf_mul(vf a, vf b) { EACH_REGISTER(vf, vmulq_f32(a.r[i], b.r[i])); }
static inline vf vf_inverse(vf a) { EACH_REGISTER(vf, vdivq_f32(vdupq_n_f32(1), a.r[i])); }
static inline vf vf_max(vf a, vf b) { EACH_REGISTER(vf, vmaxq_f32(a.r[i], b.r[i])); }
static inline vf vf_min(vf a, vf b) { EACH_REGISTER(vf, vminq_f32(a.r[i], b.r[i])); }
static inline vf vf_magnitude(vf a) { EACH_REGISTER(vf, vabsq_f32(a.r[i])); }
static inline bool vf_any_above(vf a, vf b) {
    uint32x4_t any = vdupq_n_u32(0);
    for (int i = 0; i < 4; i++) any = vorrq_u32(any, vcgtq_f32(a.r[i], b.r[i]));
    return vmaxvq_u32(any) != 0;
}
static inline vf vf_max_magnitude(vf a, vf b) { return vf_max(a, vf_magnitude(b)); }
static inline vf vf_madd(vf a, vf b, vf c) { EACH_REGISTER(vf, vfmaq_f32(c.r[i], a.r[i], b.r[i])); }
static inline vf vf_from(vi a) { EACH_REGISTER(vf, vcvtq_f32_s32(a.r[i])); }
static inline vf vf_load_f16(const void *p) {
    EACH_REGISTER(vf, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)p + 4 * i))));
}
static inline vf vf_load_bf16(const void *p) {
    EACH_REGISTER(vf, vreinterpretq_f32_u32(vshll_n_u16(vld1_u16((const uint16_t *)p + 4 * i), 16)));
}

/* a 2^n; biased: n + 1.5 * 2^23, as the sum rounds it. */
static inline vf vf_times_power(vf a, vf biased, vf n) {
    const int32x4_t one = vdupq_n_s32(127);
    (void)n;
    EACH_REGISTER(vf, vmulq_f32(a.r[i], vreinterpretq_f32_s32(
                                            vshlq_n_s32(vaddq_s32(vreinterpretq_s32_f32(biased.r[i]), one), 23))));
}
/* 0 where x is below the limit. */
static inline vf vf_zero_below(vf a, vf x, float limit) {
    EACH_REGISTER(
        vf, vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(a.r[i]), vcgeq_f32(x.r[i], vdupq_n_f32(limit)))));
}

/* To the nearest integer, ties to even. */
static inline vi vf_round(vf a) { EACH_REGISTER(vi, vcvtnq_s32_f32(a.r[i])); }
/* -1 where the sign bit is set, else 0. */
static inline vi vf_signs(vf a) { EACH_REGISTER(vi, vshrq_n_s32(vreinterpretq_s32_f32(a.r[i]), 31)); }
static inline vi vi_down(vi a, int n) { EACH_REGISTER(vi, vshlq_s32(a.r[i], vdupq_n_s32(-n))); }
static inline vi vi_up(vi a, int n) { EACH_REGISTER(vi, vshlq_s32(a.r[i], vdupq_n_s32(n))); }
static inline vi vi_zero(void) { EACH_REGISTER(vi, vdupq_n_s32(0)); }
static inline vi vi_add(vi a, vi b) { EACH_REGISTER(vi, vaddq_s32(a.r[i], b.r[i])); }
static inline vi vi_all(int32_t x) { EACH_REGISTER(vi, vdupq_n_s32(x)); }
static inline vi vi_sub(vi a, vi b) { EACH_REGISTER(vi, vsubq_s32(a.r[i], b.r[i])); }
static inline vi vi_and(vi a, vi b) { EACH_REGISTER(vi, vandq_s32(a.r[i], b.r[i])); }
static inline vf vf_of_bits(vi a) { EACH_REGISTER(vf, vreinterpretq_f32_s32(a.r[i])); }
static inline vi vi_load(const int32_t *p) { EACH_REGISTER(vi, vld1q_s32(p + 4 * i)); }
static inline vi vi_iota(void) {
    static const int32_t lanes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return vi_load(lanes);
}
static inline vi vi_load_bytes(const unsigned char *p) {
    int32_t out[16];
    for (int i = 0; i < 16; i++) out[i] = p[i];
    return vi_load(out);
}
static inline vi vi_load_signed_bytes(const unsigned char *p) {
    int32_t out[16];
    for (int i = 0; i < 16; i++) out[i] = (int8_t)p[i];
    return vi_load(out);
}
/* table[at]: n entries, at below n. */
static inline vi vi_look_up(const uint32_t *table, vi at, int n) {
    (void)n;
    int32_t out[16];
    for (int i = 0; i < 4; i++) vst1q_s32(out + 4 * i, at.r[i]);
    for (int i = 0; i < 16; i++) out[i] = (int32_t)table[out[i]];
    return vi_load(out);
}
/* Puts the lanes whose bit is set at `to`, one after the other, and anything behind; returns where they end. */
static inline int32_t *vi_append(int32_t *to, vi a, unsigned bits) {
    int32_t lanes[16];
    for (int i = 0; i < 4; i++) vst1q_s32(lanes + 4 * i, a.r[i]);
    for (int i = 0; i < 16; i++) {
        *to = lanes[i];
        to += bits >> i & 1;
    }
    return to;
}
/* Bits 0, 2, 4 ... as the low 16. */
static inline unsigned every_second_bit(uint32_t x) {
    unsigned out = 0;
    for (int i = 0; i < 16; i++) out |= (x >> 2 * i & 1) << i;
    return out;
}

static inline vb vb_load(const void *p) { EACH_REGISTER(vb, vld1q_u8((const uint8_t *)p + 16 * i)); }
static inline void vb_store(void *p, vb a) {
    for (int i = 0; i < 4; i++) vst1q_u8((uint8_t *)p + 16 * i, a.r[i]);
}
static inline vb vb_all(unsigned x) { EACH_REGISTER(vb, vdupq_n_u8((uint8_t)x)); }
static inline vb vb_and(vb a, vb b) { EACH_REGISTER(vb, vandq_u8(a.r[i], b.r[i])); }
static inline vb vb_or(vb a, vb b) { EACH_REGISTER(vb, vorrq_u8(a.r[i], b.r[i])); }
static inline vb vb_xor(vb a, vb b) { EACH_REGISTER(vb, veorq_u8(a.r[i], b.r[i])); }
static inline vb vb_sub(vb a, vb b) { EACH_REGISTER(vb, vsubq_u8(a.r[i], b.r[i])); }
static inline vb vb_up(vb a, int n) { EACH_REGISTER(vb, vshlq_u8(a.r[i], vdupq_n_s8((int8_t)n))); }
static inline vb vb_down(vb a, int n) { EACH_REGISTER(vb, vshlq_u8(a.r[i], vdupq_n_s8((int8_t)-n))); }
/* table[a]: 16 bytes, a below 16. */
static inline vb vb_look_up(const int8_t *table, vb a) {
    const uint8x16_t t = vreinterpretq_u8_s8(vld1q_s8(table));
    EACH_REGISTER(vb, vqtbl1q_u8(t, a.r[i]));
}

/* sum + four products of bytes in each lane; all below 128, so that signed products do. */
static inline vs vs_dot(vs sum, vb u, vb s) {
    for (int i = 0; i < 4; i++) {
        const int8x16_t a = vreinterpretq_s8_u8(u.r[i]), b = vreinterpretq_s8_u8(s.r[i]);
        const int16x8_t lo = vmull_s8(vget_low_s8(a), vget_low_s8(b)), hi = vmull_high_s8(a, b);
        sum.r[i] = vpadalq_s16(sum.r[i], vpaddq_s16(lo, hi));
    }
    return sum;
}
static inline vi vs_widen(vs a) { return a; }
/* sum + two products of 16-bit integers in each lane. */
static inline vi vi_dot2(vi sum, vb u, vi s) {
    for (int i = 0; i < 4; i++) {
        const int16x8_t a = vreinterpretq_s16_u8(u.r[i]), b = vreinterpretq_s16_s32(s.r[i]);
        const int32x4_t lo = vmull_s16(vget_low_s16(a), vget_low_s16(b)), hi = vmull_high_s16(a, b);
        sum.r[i] = vaddq_s32(sum.r[i], vpaddq_s32(lo, hi));
    }
    return sum;
}
/* The bytes of a 32-bit number in each lane. */
static inline vb vb_words(int32_t x) { EACH_REGISTER(vb, vreinterpretq_u8_s32(vdupq_n_s32(x))); }
/* Bytes 0 and 2 of each lane as 16-bit integers, and bytes 1 and 3. */
static inline vb vb_even_u(vb a) {
    return vb_and(a, (vb){{vreinterpretq_u8_u16(vdupq_n_u16(0xFF)), vreinterpretq_u8_u16(vdupq_n_u16(0xFF)),
                           vreinterpretq_u8_u16(vdupq_n_u16(0xFF)), vreinterpretq_u8_u16(vdupq_n_u16(0xFF))}});
}
static inline vb vb_odd_u(vb a) {
    EACH_REGISTER(vb, vreinterpretq_u8_u16(vshrq_n_u16(vreinterpretq_u16_u8(a.r[i]), 8)));
}
static inline vb vb_odd_s(vb a) {
    EACH_REGISTER(vb, vreinterpretq_u8_s16(vshrq_n_s16(vreinterpretq_s16_u8(a.r[i]), 8)));
}
static inline vb vb_even_s(vb a) {
    EACH_REGISTER(vb, vreinterpretq_u8_s16(vshrq_n_s16(vshlq_n_s16(vreinterpretq_s16_u8(a.r[i]), 8), 8)));
}

/* Bytes 0 and 2 of each lane as the high bytes of 16-bit numbers, and bytes 1 and 3. */
static inline vb vb_high_even(vb a) {
    EACH_REGISTER(vb, vreinterpretq_u8_u16(vshlq_n_u16(vreinterpretq_u16_u8(a.r[i]), 8)));
}
static inline vb vb_high_odd(vb a) {
    EACH_REGISTER(vb, vreinterpretq_u8_u16(vandq_u16(vreinterpretq_u16_u8(a.r[i]), vdupq_n_u16(0xFF00))));
}
/* e4m3 in the high byte of 16 bits as f16, 2^8 too small. */
static inline vb vb_narrow_exponent(vb a) {
    EACH_REGISTER(vb, vreinterpretq_u8_s16(
                          vandq_s16(vshrq_n_s16(vreinterpretq_s16_u8(a.r[i]), 1), vdupq_n_s16((int16_t)0xBF80))));
}
/* The f16 numbers of lanes 0 to 7, or 8 to 15: two of each lane. */
static inline vf vf_half(vb a, int upper) {
    vf out;
    for (int i = 0; i < 2; i++) {
        const float16x8_t x = vreinterpretq_f16_u8(a.r[2 * upper + i]);
        out.r[2 * i] = vcvt_f32_f16(vget_low_f16(x));
        out.r[2 * i + 1] = vcvt_f32_f16(vget_high_f16(x));
    }
    return out;
}
/* Two numbers for each of 8 lanes. */
static inline vf vf_pair(const float *p) {
    const float32x2_t x = vld1_f32(p);
    EACH_REGISTER(vf, vcombine_f32(x, x));
}
/* Stores the 8 sums of neighbours. */
static inline void vf_store_pair_sums(float *to, vf a) {
    for (int i = 0; i < 2; i++) vst1q_f32(to + 4 * i, vpaddq_f32(a.r[2 * i], a.r[2 * i + 1]));
}
/* Each quad in the order 0, 2, 1, 3. */
static inline vf vf_swap_middle(vf a) { EACH_REGISTER(vf, vzip1q_f32(a.r[i], vextq_f32(a.r[i], a.r[i], 2))); }
/* The magnitudes of 16 e4m3 numbers, 2^8 too small. */
static inline vf vf_half_scale(const unsigned char *p) {
    const uint8x16_t x = vld1q_u8(p);
    const uint16x8_t h[2] = {vshll_n_u8(vget_low_u8(x), 7), vshll_n_u8(vget_high_u8(x), 7)};
    vf out;
    for (int i = 0; i < 4; i++) {
        const uint16x4_t four = i % 2 ? vget_high_u16(h[i / 2]) : vget_low_u16(h[i / 2]);
        out.r[i] = vcvt_f32_f16(vreinterpret_f16_u16(vand_u16(four, vdup_n_u16(0x3F80))));
    }
    return out;
}

/* 64 integers as bytes, in order, unsigned (below 128) or signed, with saturation. */
static inline vb vi_pack_bytes(const vi *a, bool is_unsigned) {
    vb out;
    for (int i = 0; i < 4; i++) {
        const int16x8_t lo = vcombine_s16(vqmovn_s32(a[i].r[0]), vqmovn_s32(a[i].r[1]));
        const int16x8_t hi = vcombine_s16(vqmovn_s32(a[i].r[2]), vqmovn_s32(a[i].r[3]));
        int8x16_t b = vcombine_s8(vqmovn_s16(lo), vqmovn_s16(hi));
        if (is_unsigned) b = vmaxq_s8(b, vdupq_n_s8(0));
        out.r[i] = vreinterpretq_u8_s8(b);
    }
    return out;
}
/* 32 integers as 16-bit ones, each quad in the order 0, 2, 1, 3. */
static inline void vi_store_pairs(void *to, vi a, vi b) {
    const uint8x8_t order = vcreate_u8(0x0706030205040100u);
    for (int i = 0; i < 8; i++) {
        const int16x4_t quad = vqmovn_s32(i < 4 ? a.r[i] : b.r[i - 4]);
        vst1_u8((uint8_t *)to + 8 * i, vtbl1_u8(vreinterpret_u8_s16(quad), order));
    }
}

/* n numbers as the first lanes, 0 in the others, and back. n is 1, 2 or 4. */
static inline vf vf_load_few(const float *p, int n) {
    float few[4] = {0};
    for (int i = 0; i < n; i++) few[i] = p[i];
    return (vf){{vld1q_f32(few), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)}};
}
static inline void vf_store_few(float *p, vf a, int n) {
    float few[4];
    vst1q_f32(few, a.r[0]);
    for (int i = 0; i < n; i++) p[i] = few[i];
}
static inline float vf_first(vf a) { return vgetq_lane_f32(a.r[0], 0); }

/* The largest of the 16 lanes of each of n vectors, or their sum, in the first n lanes; 0 in the others. n is 1, 2 or 4. */
static inline vf vf_max_across(const vf *v, int n) {
    float out[4];
    for (int i = 0; i < n; i++)
        out[i] = vmaxvq_f32(vmaxq_f32(vmaxq_f32(v[i].r[0], v[i].r[1]), vmaxq_f32(v[i].r[2], v[i].r[3])));
    return vf_load_few(out, n);
}
static inline vf vf_sum_across(const vf *v, int n) {
    float out[4];
    for (int i = 0; i < n; i++)
        out[i] = vaddvq_f32(vaddq_f32(vaddq_f32(v[i].r[0], v[i].r[1]), vaddq_f32(v[i].r[2], v[i].r[3])));
    return vf_load_few(out, n);
}

/* Asked for by hand: gcc takes a function that only prefetches for one without effect and drops its calls. */
static inline void fetch_near(const void *p) { __asm__ volatile("prfm pldl1keep, [%0]" : : "r"(p)); }
static inline void fetch_far(const void *p) { __asm__ volatile("prfm pldl2keep, [%0]" : : "r"(p)); }

#undef EACH_REGISTER

#endif
