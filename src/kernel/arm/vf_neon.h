/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary of x86/vf_avx2.h in Advanced SIMD.
 */
#ifndef KERNEL_ARM_VF_NEON_H
#define KERNEL_ARM_VF_NEON_H

#include <arm_neon.h>
#include <stddef.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { VF = 4, VW = 4 };
typedef float32x4_t vf;

INLINE vf vf_load(const float *p) { return vld1q_f32(p); }
INLINE void vf_store(float *p, vf a) { vst1q_f32(p, a); }
INLINE vf vf_set(float x) { return vdupq_n_f32(x); }
INLINE vf vf_min(vf a, vf b) { return vbslq_f32(vcgtq_f32(b, a), a, b); }
INLINE vf vf_max(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
INLINE vf vf_abs(vf a) { return vabsq_f32(a); }
INLINE vf vf_with_sign(vf a, vf sign) { return vbslq_f32(vdupq_n_u32(0x80000000u), sign, a); }
INLINE vf vf_flip_sign(vf a, vf by) {
    return vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(by)));
}
INLINE vf vf_swap(vf a, int stride) { return stride == 1 ? vrev64q_f32(a) : vextq_f32(a, a, 2); }
INLINE vf vf_quotient(vf v, vf scale, vf inverse) {
    const vf q = vmulq_f32(v, inverse);
    return vfmaq_f32(q, vfmsq_f32(v, q, scale), inverse);
}

INLINE vf vf_from_f16(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
INLINE void vf_to_f16(uint16_t *p, vf a) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a))); }
/* Those of vg.h: the same vectors. */
enum { VG = VF };
typedef vf vg;

INLINE vg vg_load(const float *p) { return vld1q_f32(p); }
INLINE void vg_store(float *p, vg a) { vst1q_f32(p, a); }
INLINE vg vg_set(float x) { return vdupq_n_f32(x); }
INLINE vg vg_if_above(vg a, vg b, vg c, vg d) { return vbslq_f32(vcgtq_f32(a, b), c, d); }
INLINE vg vg_min(vg a, vg b) { return vf_min(a, b); }
INLINE vg vg_max(vg a, vg b) { return vf_max(a, b); }
INLINE vg vg_abs(vg a) { return vabsq_f32(a); }
INLINE vg vg_round(vg a) { return vrndnq_f32(a); }
INLINE vg vg_round_away(vg a) { return vrndaq_f32(a); }
INLINE int vg_any_equal(vg a, vg b) { return vmaxvq_u32(vceqq_f32(a, b)) != 0; }
INLINE void vg_to_f16(uint16_t *p, vg a) { vf_to_f16(p, a); }
INLINE vg vg_f16(vg a) { return vcvt_f32_f16(vcvt_f16_f32(a)); }
/* To nearest, and one step down where that is above. */
INLINE vg vg_f16_below(vg a) {
    const float16x4_t near = vcvt_f16_f32(a);
    const uint16x4_t bits = vreinterpret_u16_f16(near), above = vmovn_u32(vcgtq_f32(vcvt_f32_f16(near), a));
    const uint16x4_t sign = vreinterpret_u16_s16(vshr_n_s16(vreinterpret_s16_u16(bits), 15)); /* all ones or 0 */
    const uint16x4_t step = vsub_u16(vdup_n_u16(0xFFFF), vshl_n_u16(sign, 1));                /* 1 or -1 */
    return vcvt_f32_f16(vreinterpret_f16_u16(vadd_u16(bits, vand_u16(step, above))));
}
INLINE vg vg_power_above(vg a) {
    const uint32x4_t bits = vaddq_u32(vreinterpretq_u32_f32(a), vdupq_n_u32(0x7FFFFF));
    return vreinterpretq_f32_u32(vandq_u32(bits, vdupq_n_u32(0x7F800000)));
}

INLINE vg vg_from_f16(const uint16_t *p) { return vf_from_f16(p); }
INLINE vg vg_sqrt(vg a) { return vsqrtq_f32(a); }
INLINE vg vg_quotient(vg v, vg divisor, vg inverse) {
    const vg q = vmulq_f32(v, inverse), near = vfmaq_f32(q, vfmsq_f32(v, q, divisor), inverse);
    return vfmaq_f32(near, vfmsq_f32(v, near, divisor), inverse);
}
INLINE void vg_transpose(vg a[VG]) {
    const float64x2_t low01 = vreinterpretq_f64_f32(vtrn1q_f32(a[0], a[1]));
    const float64x2_t high01 = vreinterpretq_f64_f32(vtrn2q_f32(a[0], a[1]));
    const float64x2_t low23 = vreinterpretq_f64_f32(vtrn1q_f32(a[2], a[3]));
    const float64x2_t high23 = vreinterpretq_f64_f32(vtrn2q_f32(a[2], a[3]));
    a[0] = vreinterpretq_f32_f64(vtrn1q_f64(low01, low23));
    a[1] = vreinterpretq_f32_f64(vtrn1q_f64(high01, high23));
    a[2] = vreinterpretq_f32_f64(vtrn2q_f64(low01, low23));
    a[3] = vreinterpretq_f32_f64(vtrn2q_f64(high01, high23));
}

INLINE vf vf_sizes(const vf a[32 / VF]) {
    vf size = vf_abs(a[0]);
    for (int k = 1; k < 32 / VF; k++) size = vf_max(vf_abs(a[k]), size);
    return size;
}
INLINE vf vf_four_edges(const vf a[4], int is_most) {
    return is_most ? vpmaxq_f32(vpmaxq_f32(a[0], a[1]), vpmaxq_f32(a[2], a[3]))
                   : vpminq_f32(vpminq_f32(a[0], a[1]), vpminq_f32(a[2], a[3]));
}
INLINE void vf_store_edges(float *out, vf a, vf b, int is_most) {
    (void)is_most;
    vf_store(out, a), vf_store(out + 4, b);
}

/* Codes are in order here. */
enum { PAIR = 64 / VF };

INLINE void vf_store_cut(uint8_t *out, const int32x4_t i[PAIR], uint8_t top, uint8_t flip) {
    for (int k = 0; k < PAIR; k += 4, out += 16) {
        const uint16x8_t low = vcombine_u16(vqmovun_s32(i[k]), vqmovun_s32(i[k + 1]));
        const uint16x8_t high = vcombine_u16(vqmovun_s32(i[k + 2]), vqmovun_s32(i[k + 3]));
        const uint8x16_t bytes = vminq_u8(vcombine_u8(vqmovn_u16(low), vqmovn_u16(high)), vdupq_n_u8(top));
        vst1q_u8(out, veorq_u8(bytes, vdupq_n_u8(flip)));
    }
}
INLINE void vf_round_bytes(uint8_t *out, const vf a[PAIR], uint8_t top, uint8_t flip) {
    int32x4_t i[PAIR];
    for (int k = 0; k < PAIR; k++) i[k] = vcvtnq_s32_f32(a[k]);
    vf_store_cut(out, i, top, flip);
}
INLINE void vf_trunc_bytes(uint8_t *out, const vf a[PAIR], uint8_t top, uint8_t flip) {
    int32x4_t i[PAIR];
    for (int k = 0; k < PAIR; k++) i[k] = vcvtq_s32_f32(a[k]);
    vf_store_cut(out, i, top, flip);
}
INLINE void vf_trunc_signed(uint8_t *out, const vf a[PAIR], uint8_t flip) {
    for (int k = 0; k < PAIR; k += 4, out += 16) {
        int16x4_t i[4];
        for (int j = 0; j < 4; j++) i[j] = vqmovn_s32(vcvtq_s32_f32(a[k + j]));
        const int8x16_t bytes = vcombine_s8(vqmovn_s16(vcombine_s16(i[0], i[1])), vqmovn_s16(vcombine_s16(i[2], i[3])));
        vst1q_u8(out, veorq_u8(vreinterpretq_u8_s8(bytes), vdupq_n_u8(flip)));
    }
}
INLINE void vf_bytes(uint8_t *out, const int32_t *codes) {
    int32x4_t i[PAIR];
    for (int k = 0; k < PAIR; k++) i[k] = vld1q_s32(codes + VF * k);
    vf_store_cut(out, i, 255, 0);
}
INLINE int vf_place(int i) { return i; }

typedef uint32_t vw __attribute__((vector_size(4 * VW)));
typedef vw vq;

INLINE vw vw_choose(vw mask, vw a, vw b) { return (vw)vbslq_u32((uint32x4_t)mask, (uint32x4_t)a, (uint32x4_t)b); }

INLINE void vw_spread(vw words[32 / VW], const uint8_t *codes, int second, const vw places[4], int down, unsigned up) {
    for (int k = 0; k < 8; k += 4) {
        const vw all = (vw)vreinterpretq_u32_u8(vld1q_u8(codes + 32 * second + k * 4)) >> down << up;
        for (int i = 0; i < 4; i++) words[k + i] = (vw)vqtbl1q_u8((uint8x16_t)all, (uint8x16_t)places[i]);
    }
}

INLINE void vq_of_row(vq even[2], vq odd[2], const uint8_t *codes) {
    for (int i = 0; i < 2; i++) {
        const uint32x4_t a = vreinterpretq_u32_u8(vld1q_u8(codes + 32 * i));
        const uint32x4_t b = vreinterpretq_u32_u8(vld1q_u8(codes + 32 * i + 16));
        even[i] = (vq)vuzp1q_u32(a, b), odd[i] = (vq)vuzp2q_u32(a, b);
    }
}

INLINE void vw_of_rows(vw quads[8], const uint8_t (*rows)[32]) {
    for (int half = 0; half < 2; half++) {
        uint32x4_t a[4];
        for (int r = 0; r < 4; r++) a[r] = vreinterpretq_u32_u8(vld1q_u8(rows[r] + 16 * half));
        const uint64x2_t low01 = vreinterpretq_u64_u32(vtrn1q_u32(a[0], a[1]));
        const uint64x2_t high01 = vreinterpretq_u64_u32(vtrn2q_u32(a[0], a[1]));
        const uint64x2_t low23 = vreinterpretq_u64_u32(vtrn1q_u32(a[2], a[3]));
        const uint64x2_t high23 = vreinterpretq_u64_u32(vtrn2q_u32(a[2], a[3]));
        quads[4 * half] = (vw)vtrn1q_u64(low01, low23);
        quads[4 * half + 1] = (vw)vtrn1q_u64(high01, high23);
        quads[4 * half + 2] = (vw)vtrn2q_u64(low01, low23);
        quads[4 * half + 3] = (vw)vtrn2q_u64(high01, high23);
    }
}

INLINE void vw_of_columns(vw words[32 / VW], const uint8_t (*rows)[32]) {
    for (int half = 0; half < 2; half++) {
        uint8x16_t a[4];
        for (int i = 0; i < 4; i++) a[i] = vld1q_u8(rows[i] + 16 * half);
        const uint16x8_t low01 = vreinterpretq_u16_u8(vzip1q_u8(a[0], a[1]));
        const uint16x8_t high01 = vreinterpretq_u16_u8(vzip2q_u8(a[0], a[1]));
        const uint16x8_t low23 = vreinterpretq_u16_u8(vzip1q_u8(a[2], a[3]));
        const uint16x8_t high23 = vreinterpretq_u16_u8(vzip2q_u8(a[2], a[3]));
        words[4 * half] = (vw)vzip1q_u16(low01, low23);
        words[4 * half + 1] = (vw)vzip2q_u16(low01, low23);
        words[4 * half + 2] = (vw)vzip1q_u16(high01, high23);
        words[4 * half + 3] = (vw)vzip2q_u16(high01, high23);
    }
}

static inline void words_of_rows(uint32_t *w, ptrdiff_t ld_w, const void *rows, ptrdiff_t ld) {
    for (int r = 0; r < 32; r++)
        for (int i = 0; i < 8; i++) memcpy(w + i * ld_w + r, (const char *)rows + r * ld + 4 * i, sizeof *w);
}
#endif
