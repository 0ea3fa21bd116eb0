/* SPDX-License-Identifier: Apache-2.0
 *
 * All operations at level neon.
 */
#include "base/half.h"
#include "kernel/arm/v32_neon.h"
#include "kernel/kernel.h"
#include "kernel/table.h"

/* n is 32 or 16. */
static inline void load_f16_row(float *row, const unsigned char *from, int n) {
    for (int l = 0; l < n; l += 4)
        vst1q_f32(row + l, vcvt_f32_f16(vreinterpret_f16_u16(vreinterpret_u16_u8(vld1_u8(from + 2 * l)))));
}

/* Rounds to nearest even, as kvt_f16_from_f32. */
static inline void to_f16(uint16_t *out, const float *x, int n) {
    for (int i = 0; i < n; i += 4) /* row sizes are multiples of 8 */
        vst1_u16(out + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x + i))));
}

#define NAME(op)                   kvt_##op##_neon
#define LOAD_F16_ROW(row, from, n) load_f16_row(row, from, n)
#include "kernel/encode.inc"
#include "kernel/fold.inc"
#include "kernel/soften.inc"
#include "kernel/unpack.inc"
