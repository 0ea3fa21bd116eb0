/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary of x86/vf_avx2.h in Advanced SIMD.
 */
#ifndef KERNEL_ARM_VF_NEON_H
#define KERNEL_ARM_VF_NEON_H

#include <arm_neon.h>
#include <stddef.h>
#include <string.h>

enum { VF = 4 };
typedef float32x4_t vf;

static inline vf vf_load(const float *p) { return vld1q_f32(p); }
static inline void vf_store(float *p, vf a) { vst1q_f32(p, a); }
static inline vf vf_set(float x) { return vdupq_n_f32(x); }
static inline vf vf_if_above(vf a, vf b, vf c, vf d) { return vbslq_f32(vcgtq_f32(a, b), c, d); }
static inline vf vf_min(vf a, vf b) { return vf_if_above(b, a, a, b); }
static inline vf vf_max(vf a, vf b) { return vf_if_above(a, b, a, b); }
static inline vf vf_abs(vf a) { return vabsq_f32(a); }
static inline vf vf_with_sign(vf a, vf sign) { return vbslq_f32(vdupq_n_u32(0x80000000u), sign, a); }
static inline vf vf_round(vf a) { return vrndnq_f32(a); }
static inline vf vf_flip_sign(vf a, vf by) {
    return vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(by)));
}
static inline vf vf_swap(vf a, int stride) { return stride == 1 ? vrev64q_f32(a) : vextq_f32(a, a, 2); }
static inline int vf_any_above(vf a, vf b) { return vmaxvq_u32(vcgtq_f32(a, b)) != 0; }

static inline vf vf_from_f16(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
static inline void vf_to_f16(uint16_t *p, vf a) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a))); }
/* To nearest, and one step down where that is above. */
static inline void vf_to_f16_below(uint16_t *p, vf a) {
    const float16x4_t near = vcvt_f16_f32(a);
    const uint16x4_t bits = vreinterpret_u16_f16(near), above = vmovn_u32(vcgtq_f32(vcvt_f32_f16(near), a));
    const uint16x4_t sign = vreinterpret_u16_s16(vshr_n_s16(vreinterpret_s16_u16(bits), 15)); /* all ones or 0 */
    const uint16x4_t step = vsub_u16(vdup_n_u16(0xFFFF), vshl_n_u16(sign, 1));                /* 1 or -1 */
    vst1_u16(p, vadd_u16(bits, vand_u16(step, above)));
}

static inline vf vf_least(const vf a[VF]) { return vpminq_f32(vpminq_f32(a[0], a[1]), vpminq_f32(a[2], a[3])); }
static inline vf vf_most(const vf a[VF]) { return vpmaxq_f32(vpmaxq_f32(a[0], a[1]), vpmaxq_f32(a[2], a[3])); }

static inline void vf_store_bytes(uint8_t *out, const int32x4_t i[8], uint8_t top, uint8_t flip) {
    for (int k = 0; k < 2; k++) {
        const uint16x8_t low = vcombine_u16(vqmovun_s32(i[4 * k]), vqmovun_s32(i[4 * k + 1]));
        const uint16x8_t high = vcombine_u16(vqmovun_s32(i[4 * k + 2]), vqmovun_s32(i[4 * k + 3]));
        const uint8x16_t bytes = vminq_u8(vcombine_u8(vqmovn_u16(low), vqmovn_u16(high)), vdupq_n_u8(top));
        vst1q_u8(out + 16 * k, veorq_u8(bytes, vdupq_n_u8(flip)));
    }
}
static inline void vf_round_bytes(uint8_t *out, const vf a[32 / VF], uint8_t top, uint8_t flip) {
    int32x4_t i[8];
    for (int k = 0; k < 8; k++) i[k] = vcvtnq_s32_f32(a[k]);
    vf_store_bytes(out, i, top, flip);
}
static inline void vf_trunc_bytes(uint8_t *out, const vf a[32 / VF], int bias, uint8_t top, uint8_t flip) {
    int32x4_t i[8];
    for (int k = 0; k < 8; k++) i[k] = vaddq_s32(vcvtq_s32_f32(a[k]), vdupq_n_s32(bias));
    vf_store_bytes(out, i, top, flip);
}

static inline void words_of_rows(uint32_t *w, ptrdiff_t ld_w, const void *rows, ptrdiff_t ld) {
    for (int r = 0; r < 32; r++)
        for (int i = 0; i < 8; i++) memcpy(w + i * ld_w + r, (const char *)rows + r * ld + 4 * i, sizeof *w);
}
static inline void words_of_columns(uint32_t w[8][32], uint8_t rows[32][32]) {
    for (int q = 0; q < 8; q++)
        for (int c = 0; c < 32; c += 16) {
            uint8x16x4_t four;
            for (int i = 0; i < 4; i++) four.val[i] = vld1q_u8(rows[4 * q + i] + c);
            vst4q_u8((uint8_t *)&w[q][c], four);
        }
}

#endif
