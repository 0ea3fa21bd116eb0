/* SPDX-License-Identifier: Apache-2.0
 * The vocabulary of strips at level neon: two registers have four elements of 8 rows. */
#ifndef WEIGHT_ARM_STRIP_NEON_H
#define WEIGHT_ARM_STRIP_NEON_H

#include "weight/arm/v32_neon.h"
#include "weight/strip.h"

enum { STRIP_LANES = 8, STRIP_PARTS = 2 };
#define STRIP_TOKENS 2 /* 16 dot products of 32 registers */

typedef uint8x16x2_t strip_codes;
typedef float32x4x2_t strip_sum;
typedef int32x4x4_t strip_four_rows;
typedef struct {
    strip_four_rows half[2]; /* rows 0-3 and 4-7, four sums of each */
} strip_dot;

static inline strip_codes strip_load(const unsigned char *p) { return u8x32_load(p); }
static inline strip_codes strip_low(strip_codes a) { return u8x32_and(a, 15); }
static inline strip_codes strip_high(strip_codes a) { return u8x32_bits(a, 4, 4, 0); }
/* Bits k .. k+count-1 of `bits` become bits 4 .. of a. */
static inline strip_codes strip_with_bits(strip_codes a, strip_codes bits, int k, int count) {
    return u8x32_or(a, u8x32_bits(bits, k, count, 4));
}

static inline strip_dot strip_zero(void) {
    strip_dot r;
    for (int i = 0; i < 8; i++) r.half[i / 4].val[i % 4] = vdupq_n_s32(0);
    return r;
}
static inline strip_dot strip_add_dot(strip_dot a, strip_codes codes, const struct kvt_rounded *x, int k) {
    const int16x4_t q = vld1_s16(x->q + 4 * k);
    for (int i = 0; i < 2; i++) {
        const int16x8_t low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(codes.val[i])));
        const int16x8_t high = vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(codes.val[i])));
        int32x4_t *rows = a.half[i].val;
        rows[0] = vmlal_s16(rows[0], vget_low_s16(low), q);
        rows[1] = vmlal_s16(rows[1], vget_high_s16(low), q);
        rows[2] = vmlal_s16(rows[2], vget_low_s16(high), q);
        rows[3] = vmlal_s16(rows[3], vget_high_s16(high), q);
    }
    return a;
}
/* The whole numbers less `less`. */
static inline strip_sum strip_float(strip_dot a, int32_t less) {
    strip_sum r;
    for (int i = 0; i < 2; i++) {
        const int32x4_t *rows = a.half[i].val;
        const int32x4_t sums = vpaddq_s32(vpaddq_s32(rows[0], rows[1]), vpaddq_s32(rows[2], rows[3]));
        r.val[i] = vcvtq_f32_s32(vsubq_s32(sums, vdupq_n_s32(less)));
    }
    return r;
}

#define STRIP_EACH(expr)                                                                                               \
    strip_sum r;                                                                                                       \
    for (int i = 0; i < 2; i++) r.val[i] = (expr);                                                                     \
    return r
static inline strip_sum strip_all(float a) { STRIP_EACH(vdupq_n_f32(a)); }
static inline strip_sum strip_mul(strip_sum a, strip_sum b) { STRIP_EACH(vmulq_f32(a.val[i], b.val[i])); }
static inline strip_sum strip_fma(strip_sum a, strip_sum b, strip_sum c) {
    STRIP_EACH(vfmaq_f32(c.val[i], a.val[i], b.val[i]));
}
static inline strip_sum strip_from_f16(const unsigned char *p) { STRIP_EACH(four_halves(p + 8 * i)); }
static inline strip_sum strip_from_u8(const unsigned char *p) {
    const uint16x8_t v = vmovl_u8(vld1_u8(p));
    STRIP_EACH(vcvtq_f32_u32(vmovl_u16(i ? vget_high_u16(v) : vget_low_u16(v))));
}
static inline strip_sum strip_from_i8(const unsigned char *p) {
    const int16x8_t v = vmovl_s8(vreinterpret_s8_u8(vld1_u8(p)));
    STRIP_EACH(vcvtq_f32_s32(vmovl_s16(i ? vget_high_s16(v) : vget_low_s16(v))));
}
#undef STRIP_EACH
static inline void strip_store(float *dst, strip_sum a, int n) {
    float last[8];
    for (int i = 0; i < 2; i++) vst1q_f32((n == 8 ? dst : last) + 4 * i, a.val[i]);
    if (n > 0 && n < 8) memcpy(dst, last, (size_t)n * sizeof *dst);
}

static inline void strip_round_32(struct kvt_rounded *dst, const float *x) {
    uint32x4_t most = vdupq_n_u32(0);
    for (int i = 0; i < 8; i++) most = vmaxq_u32(most, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + 4 * i))));
    const float m = vgetq_lane_f32(vreinterpretq_f32_u32(vdupq_n_u32(vmaxvq_u32(most))), 0);
    if (!(m >= 0x1p-100f && m < __builtin_inff())) {
        kvt_weight_round_ref(dst, 1, x, 32);
        return;
    }
    const float inverse = KVT_ROUNDED_MOST / m;
    for (int i = 0; i < 2; i++) {
        int32x4_t sum = vdupq_n_s32(0);
        for (int j = 4 * i; j < 4 * i + 4; j++) {
            const int32x4_t q = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4 * j), inverse));
            vst1_s16(dst->q + 4 * j, vmovn_s32(q));
            sum = vaddq_s32(sum, q);
        }
        dst->sum[i] = vaddvq_s32(sum);
    }
    dst->scale = m / KVT_ROUNDED_MOST;
    dst->moment = (float)(dst->sum[0] + dst->sum[1]) * dst->scale;
}

static inline void strip_round(struct kvt_rounded *dst, ptrdiff_t ld_dst, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i += 32, dst += ld_dst) strip_round_32(dst, x + i);
}

#endif
