/* SPDX-License-Identifier: Apache-2.0
 * The vocabulary of the weight kernels at level neon: 32 floats in registers. */
#ifndef WEIGHT_ARM_V32_NEON_H
#define WEIGHT_ARM_V32_NEON_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define V32_NAME(type)  kvt_weight_##type##_neon
#define V32_TILE_TOKENS 6 /* 24 sums, 6 activations and a weight of 32 registers */
enum { V32_PARTS = 8, V32_WIDTH = 4 };

/* One register, a part of 32 lanes. */
typedef float32x4_t vpart;
static inline vpart vpart_zero(void) { return vdupq_n_f32(0); }
static inline vpart vpart_set1(float a) { return vdupq_n_f32(a); }
static inline vpart vpart_load(const float *p) { return vld1q_f32(p); }
static inline void vpart_store(float *p, vpart a) { vst1q_f32(p, a); }
static inline void vpart_storeu(float *p, vpart a) { vst1q_f32(p, a); }
static inline vpart vpart_fma(vpart a, vpart b, vpart c) { return vfmaq_f32(c, a, b); }

typedef struct {
    float32x4_t part[8];
} v32;

/* The body of a function of parts 0-7. */
#define V32_EACH(expr)                                                                                                 \
    v32 r;                                                                                                             \
    for (int i = 0; i < 8; i++) r.part[i] = (expr);                                                                    \
    return r

static inline v32 v32_zero(void) { V32_EACH(vdupq_n_f32(0)); }
static inline float32x4_t four_halves(const unsigned char *p) {
    uint16_t h[4];
    memcpy(h, p, sizeof h);
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(h)));
}
static inline float f16_from_bytes(const unsigned char *p) {
    uint16_t h;
    memcpy(&h, p, 2);
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}
static inline v32 v32_load_bytes(const unsigned char *p) { V32_EACH(vreinterpretq_f32_u8(vld1q_u8(p + 16 * i))); }
static inline v32 v32_load(const float *p) { V32_EACH(vld1q_f32(p + 4 * i)); }
static inline v32 v32_fma(v32 a, v32 b, v32 c) { V32_EACH(vfmaq_f32(c.part[i], a.part[i], b.part[i])); }
static inline v32 v32_from_f16(const unsigned char *p) { V32_EACH(four_halves(p + 8 * i)); }
static inline v32 v32_from_bf16(const unsigned char *p) {
    V32_EACH(vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p + 8 * i)), 16)));
}

/* 32 codes of a byte each. */
typedef uint8x16x2_t u8x32;
#define U8X32_EACH(expr)                                                                                               \
    u8x32 r;                                                                                                           \
    for (int i = 0; i < 2; i++) r.val[i] = (expr);                                                                     \
    return r
static inline u8x32 u8x32_load(const unsigned char *p) { U8X32_EACH(vld1q_u8(p + 16 * i)); }
static inline u8x32 u8x32_and(u8x32 a, int mask) { U8X32_EACH(vandq_u8(a.val[i], vdupq_n_u8((uint8_t)mask))); }
static inline u8x32 u8x32_or(u8x32 a, u8x32 b) { U8X32_EACH(vorrq_u8(a.val[i], b.val[i])); }
static inline u8x32 u8x32_sub(u8x32 a, int b) { U8X32_EACH(vsubq_u8(a.val[i], vdupq_n_u8((uint8_t)b))); }
/* Bits k .. k+count-1 of each byte, moved to bit `to`. */
static inline u8x32 u8x32_bits(u8x32 a, int k, int count, int to) {
    const int8x16_t shift = vdupq_n_s8((int8_t)(to - k));
    for (int i = 0; i < 2; i++) a.val[i] = vshlq_u8(a.val[i], shift);
    return u8x32_and(a, ((1 << count) - 1) << to);
}
/* 16 bytes: the low nibbles are codes 0-15, the high ones 16-31. */
static inline u8x32 u8x32_nibbles(const uint8_t q[16]) {
    const uint8x16_t v = vld1q_u8(q);
    return (u8x32){{vandq_u8(v, vdupq_n_u8(15)), vshrq_n_u8(v, 4)}};
}
/* 4 bytes: 0xFF where bit i is set. */
static inline u8x32 u8x32_mask(const uint8_t bits[4]) {
    static const uint8_t bit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    U8X32_EACH(vtstq_u8(vcombine_u8(vdup_n_u8(bits[2 * i]), vdup_n_u8(bits[2 * i + 1])), vld1q_u8(bit)));
}
#undef U8X32_EACH

/* The f16 numbers that a block begins with, converted together. */
static inline void halves_prepare(float scales[16], const unsigned char *block) {
    vst1q_f32(scales, four_halves(block));
}
/* Number i in all lanes. */
static inline vpart half_of(const float scales[16], const unsigned char *block, int i) {
    (void)block;
    return vdupq_n_f32(scales[i]);
}

/* Weights from codes: d times a signed code, or d times an unsigned one plus m. Every product of these is exact (scales have
 * at most 17 bits, codes 5), so one fused rounding is the definition's two. */
static inline uint16x4_t quarter_u16(uint16x8_t a, int i) { return i ? vget_high_u16(a) : vget_low_u16(a); }
static inline int16x4_t quarter_s16(int16x8_t a, int i) { return i ? vget_high_s16(a) : vget_low_s16(a); }
static inline v32 v32_affine_u8(vpart d, u8x32 codes, vpart m) {
    uint16x8_t wide[4];
    for (int i = 0; i < 2; i++) {
        wide[2 * i] = vmovl_u8(vget_low_u8(codes.val[i]));
        wide[2 * i + 1] = vmovl_u8(vget_high_u8(codes.val[i]));
    }
    V32_EACH(vfmaq_f32(m, d, vcvtq_f32_u32(vmovl_u16(quarter_u16(wide[i / 2], i % 2)))));
}
/* Lanes 0-15 by low, lanes 16-31 by high. */
static inline v32 scale_i8(vpart low, vpart high, u8x32 codes) {
    int16x8_t wide[4];
    for (int i = 0; i < 2; i++) {
        const int8x16_t c = vreinterpretq_s8_u8(codes.val[i]);
        wide[2 * i] = vmovl_s8(vget_low_s8(c));
        wide[2 * i + 1] = vmovl_s8(vget_high_s8(c));
    }
    V32_EACH(vmulq_f32(i < 4 ? low : high, vcvtq_f32_s32(vmovl_s16(quarter_s16(wide[i / 2], i % 2)))));
}
#undef V32_EACH
static inline v32 v32_scale2_i8(const float d[2], u8x32 codes) {
    return scale_i8(vdupq_n_f32(d[0]), vdupq_n_f32(d[1]), codes);
}
static inline v32 v32_scale_i8(vpart d, const int8_t q[32]) {
    return scale_i8(d, d, u8x32_load((const unsigned char *)q));
}
/* u8x32_nibbles and, with a fifth bit, bit i of four bytes being code i's. */
static inline v32 v32_affine_u4(vpart d, const uint8_t q[16], vpart m) { return v32_affine_u8(d, u8x32_nibbles(q), m); }
static inline v32 v32_scale_i4(vpart d, const uint8_t q[16]) { return scale_i8(d, d, u8x32_sub(u8x32_nibbles(q), 8)); }
static inline u8x32 u8x32_nibbles5(const uint8_t q[16], const uint8_t bits[4]) {
    return u8x32_or(u8x32_nibbles(q), u8x32_and(u8x32_mask(bits), 16));
}
static inline v32 v32_affine_u5(vpart d, const uint8_t q[16], const uint8_t bits[4], vpart m) {
    return v32_affine_u8(d, u8x32_nibbles5(q, bits), m);
}
static inline v32 v32_scale_i5(vpart d, const uint8_t q[16], const uint8_t bits[4]) {
    return scale_i8(d, d, u8x32_sub(u8x32_nibbles5(q, bits), 16));
}
/* 32 bytes: the codes are their low (0) or high (1) nibbles. */
static inline v32 v32_affine_nibbles(vpart d, const uint8_t q[32], int high, vpart m) {
    return v32_affine_u8(d, u8x32_bits(u8x32_load(q), high * 4, 4, 0), m);
}

/* Scales: eight bytes times a factor. */
static inline void scales_from_u8(float dst[8], const void *src, float factor) {
    const uint16x8_t wide = vmovl_u8(vld1_u8(src));
    for (int i = 0; i < 2; i++)
        vst1q_f32(dst + 4 * i, vmulq_n_f32(vcvtq_f32_u32(vmovl_u16(quarter_u16(wide, i))), factor));
}
static inline void scales_from_i8(float dst[8], const void *src, float factor) {
    const int16x8_t wide = vmovl_s8(vld1_s8(src));
    for (int i = 0; i < 2; i++)
        vst1q_f32(dst + 4 * i, vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(quarter_s16(wide, i))), factor));
}

/* The tree: halves of 16, 8 and 4 lanes are whole registers. */
static inline float32x4_t sum_to_4(const float32x4_t a[8]) {
    float32x4_t s8[2];
    for (int i = 0; i < 2; i++) s8[i] = vaddq_f32(vaddq_f32(a[i], a[i + 4]), vaddq_f32(a[i + 2], a[i + 6]));
    return vaddq_f32(s8[0], s8[1]);
}
static inline float v32_sum(v32 a) {
    const float32x4_t s4 = sum_to_4(a.part);
    const float32x2_t s2 = vadd_f32(vget_low_f32(s4), vget_high_f32(s4));
    return vget_lane_f32(s2, 0) + vget_lane_f32(s2, 1);
}
/* The tree of four sets of 32 sums at once, part p of set k at sums + p * part_stride + k * 4. */
static inline void sum_of_4(float dst[4], const float *sums, ptrdiff_t part_stride) {
    for (int k = 0; k < 4; k++) {
        v32 s;
        for (int p = 0; p < 8; p++) s.part[p] = vpart_load(sums + k * 4 + p * part_stride);
        dst[k] = v32_sum(s);
    }
}

#endif
