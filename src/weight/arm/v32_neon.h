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
static inline v32 v32_set1(float a) { V32_EACH(vdupq_n_f32(a)); }
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
/* An f16 times a factor. */
static inline v32 v32_set1_f16(const unsigned char *p, float factor) { return v32_set1(f16_from_bytes(p) * factor); }
/* Lanes 0-15 and lanes 16-31. */
static inline v32 v32_set2(float a, float b) { V32_EACH(vdupq_n_f32(i < 4 ? a : b)); }
static inline v32 v32_load_bytes(const unsigned char *p) { V32_EACH(vreinterpretq_f32_u8(vld1q_u8(p + 16 * i))); }
static inline v32 v32_load(const float *p) { V32_EACH(vld1q_f32(p + 4 * i)); }
static inline v32 v32_mul(v32 a, v32 b) { V32_EACH(vmulq_f32(a.part[i], b.part[i])); }
static inline v32 v32_fma(v32 a, v32 b, v32 c) { V32_EACH(vfmaq_f32(c.part[i], a.part[i], b.part[i])); }
/* a * b - c */
static inline v32 v32_fms(v32 a, v32 b, v32 c) { V32_EACH(vfmaq_f32(vnegq_f32(c.part[i]), a.part[i], b.part[i])); }

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
static inline u8x32 u8x32_not(u8x32 a) { U8X32_EACH(vmvnq_u8(a.val[i])); }
/* Bits k .. k+count-1 of each byte, moved to bit `to`. */
static inline u8x32 u8x32_bits(u8x32 a, int k, int count, int to) {
    const int8x16_t shift = vdupq_n_s8((int8_t)(to - k));
    for (int i = 0; i < 2; i++) a.val[i] = vshlq_u8(a.val[i], shift);
    return u8x32_and(a, ((1 << count) - 1) << to);
}
/* 16 bytes: the low nibbles are codes 0-15, the high ones 16-31. */
static inline u8x32 u8x32_nibbles(const unsigned char *p) {
    const uint8x16_t v = vld1q_u8(p);
    return (u8x32){{vandq_u8(v, vdupq_n_u8(15)), vshrq_n_u8(v, 4)}};
}
/* 4 bytes: 0xFF where bit i is set. */
static inline u8x32 u8x32_mask(const unsigned char *p) {
    static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    U8X32_EACH(vtstq_u8(vcombine_u8(vdup_n_u8(p[2 * i]), vdup_n_u8(p[2 * i + 1])), vld1q_u8(bits)));
}
#undef U8X32_EACH

static inline uint16x4_t quarter_u16(uint16x8_t a, int i) { return i ? vget_high_u16(a) : vget_low_u16(a); }
static inline int16x4_t quarter_s16(int16x8_t a, int i) { return i ? vget_high_s16(a) : vget_low_s16(a); }
static inline v32 v32_from_u8x32(u8x32 a) {
    uint16x8_t wide[4];
    for (int i = 0; i < 2; i++) {
        wide[2 * i] = vmovl_u8(vget_low_u8(a.val[i]));
        wide[2 * i + 1] = vmovl_u8(vget_high_u8(a.val[i]));
    }
    V32_EACH(vcvtq_f32_u32(vmovl_u16(quarter_u16(wide[i / 2], i % 2))));
}
/* Signed codes come out times V32_I8_UNIT. */
#define V32_I8_UNIT 1.0f
static inline v32 v32_from_i8x32(u8x32 a) {
    int16x8_t wide[4];
    for (int i = 0; i < 2; i++) {
        wide[2 * i] = vmovl_s8(vget_low_s8(vreinterpretq_s8_u8(a.val[i])));
        wide[2 * i + 1] = vmovl_s8(vget_high_s8(vreinterpretq_s8_u8(a.val[i])));
    }
    V32_EACH(vcvtq_f32_s32(vmovl_s16(quarter_s16(wide[i / 2], i % 2))));
}
static inline v32 v32_from_i8(const unsigned char *p) { return v32_from_i8x32(u8x32_load(p)); }
/* The floats of u8x32_nibbles(p), less `bias`. */
static inline v32 v32_from_nibbles(const unsigned char *p, int bias) {
    return v32_from_i8x32(u8x32_sub(u8x32_nibbles(p), bias));
}
/* The low (0) or high (1) nibbles of 32 bytes. */
static inline v32 v32_from_nibble_bytes(const unsigned char *p, int high) {
    return v32_from_u8x32(u8x32_bits(u8x32_load(p), high * 4, 4, 0));
}
#undef V32_EACH

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
