/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary of x86/vh.h in Advanced SIMD.
 */
#ifndef KERNEL_ARM_VH_NEON_H
#define KERNEL_ARM_VH_NEON_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel/arm/vf_neon.h"

typedef int16_t vh __attribute__((vector_size(16)));
typedef int32_t vn __attribute__((vector_size(16)));
enum { VH = 2 * VG };

INLINE vh vh_load(const int16_t *p) { return (vh)vld1q_s16(p); }
INLINE void vh_store(int16_t *p, vh a) { vst1q_s16(p, (int16x8_t)a); }
INLINE vh vh_set(int x) { return (vh)vdupq_n_s16((int16_t)x); }
INLINE vh vh_min(vh a, vh b) { return (vh)vminq_s16((int16x8_t)a, (int16x8_t)b); }
INLINE vh vh_max(vh a, vh b) { return (vh)vmaxq_s16((int16x8_t)a, (int16x8_t)b); }
INLINE vh vh_add_cut(vh a, vh b) { return (vh)vqaddq_s16((int16x8_t)a, (int16x8_t)b); }
INLINE vh vh_sub_cut(vh a, vh b) { return (vh)vqsubq_s16((int16x8_t)a, (int16x8_t)b); }
INLINE vh vh_part(vh a, vh b) { return (vh)vqrdmulhq_s16((int16x8_t)a, (int16x8_t)b); }
INLINE vn vh_dot(vh a, vh b) {
    const int16x8_t x = (int16x8_t)a, y = (int16x8_t)b;
    return (vn)vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
}
INLINE vn vn_add_dot(vn sum, vh a, vh b) { return sum + vh_dot(a, b); }

INLINE vn vn_load(const int32_t *p) { return (vn)vld1q_s32(p); }
INLINE void vn_store(int32_t *p, vn a) { vst1q_s32(p, (int32x4_t)a); }
INLINE vn vn_set(int32_t x) { return (vn)vdupq_n_s32(x); }
INLINE vn vn_min(vn a, vn b) { return (vn)vminq_s32((int32x4_t)a, (int32x4_t)b); }
INLINE vn vn_max(vn a, vn b) { return (vn)vmaxq_s32((int32x4_t)a, (int32x4_t)b); }
INLINE vn vn_round(vg a) { return (vn)vcvtnq_s32_f32(a); }
INLINE vg vn_float(vn a) { return vcvtq_f32_s32((int32x4_t)a); }
INLINE vn vn_look_up(const uint32_t *table, vn at) {
    for (int i = 0; i < VG; i++) at[i] = (int32_t)table[at[i]];
    return at;
}
INLINE vn vn_bits(vg a) { return (vn)vreinterpretq_s32_f32(a); }

INLINE vh vh_pairs(vn a, vn b) { return (vh)vsliq_n_s32((int32x4_t)a, (int32x4_t)b, 16); }
INLINE vn vh_lows(vh a) { return (vn)a << 16 >> 16; }
INLINE vn vh_highs(vh a) { return (vn)a >> 16; }

INLINE vh vh_pack(vg a, vg b) { return (vh)vcombine_s16(vqmovn_s32(vcvtnq_s32_f32(a)), vqmovn_s32(vcvtnq_s32_f32(b))); }
INLINE vh vh_zip_low(vh x, vh y) { return (vh)vzip1q_s16((int16x8_t)x, (int16x8_t)y); }
INLINE vh vh_zip_high(vh x, vh y) { return (vh)vzip2q_s16((int16x8_t)x, (int16x8_t)y); }

INLINE void vh_transpose(vh a[VG]) {
    vg w[VG];
    for (int i = 0; i < VG; i++) w[i] = (vg)a[i];
    vg_transpose(w);
    for (int i = 0; i < VG; i++) a[i] = (vh)w[i];
}

INLINE void vh_quads(vn *lows, vn *highs, const vh a[4]) {
    static const uint8_t order[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    const uint8x16_t o = vld1q_u8(order);
    const uint64x2_t p = (uint64x2_t)vqtbl1q_u8((uint8x16_t)(a[0] | a[1] << 8), o);
    const uint64x2_t q = (uint64x2_t)vqtbl1q_u8((uint8x16_t)(a[2] | a[3] << 8), o);
    *lows = (vn)vzip1q_u64(p, q);
    *highs = (vn)vzip2q_u64(p, q);
}
INLINE void vn_store_quads(uint32_t *to, ptrdiff_t step, vn a) { (void)step, vst1q_u32(to, (uint32x4_t)a); }

INLINE vn vn_sums(const vn lanes[VG]) {
    return (vn)vpaddq_s32(vpaddq_s32((int32x4_t)lanes[0], (int32x4_t)lanes[1]),
                          vpaddq_s32((int32x4_t)lanes[2], (int32x4_t)lanes[3]));
}

INLINE void vn_store_columns(uint32_t *const to[VG], const vn words[8]) {
    for (int half = 0; half < 8; half += VG) {
        vh w[VG];
        for (int i = 0; i < VG; i++) w[i] = (vh)words[half + i];
        vh_transpose(w);
        for (int i = 0; i < VG; i++) vst1q_u32(to[i] + half, (uint32x4_t)w[i]);
    }
}
INLINE void vn_columns(vn out[32 / VG], const uint8_t *rows) {
    for (int half = 0; half < 2; half++) {
        uint8x16_t a[4];
        for (int i = 0; i < 4; i++) a[i] = vld1q_u8(rows + 32 * i + 16 * half);
        const uint16x8_t low01 = vreinterpretq_u16_u8(vzip1q_u8(a[0], a[1]));
        const uint16x8_t high01 = vreinterpretq_u16_u8(vzip2q_u8(a[0], a[1]));
        const uint16x8_t low23 = vreinterpretq_u16_u8(vzip1q_u8(a[2], a[3]));
        const uint16x8_t high23 = vreinterpretq_u16_u8(vzip2q_u8(a[2], a[3]));
        out[4 * half] = (vn)vzip1q_u16(low01, low23);
        out[4 * half + 1] = (vn)vzip2q_u16(low01, low23);
        out[4 * half + 2] = (vn)vzip1q_u16(high01, high23);
        out[4 * half + 3] = (vn)vzip2q_u16(high01, high23);
    }
}

#endif
