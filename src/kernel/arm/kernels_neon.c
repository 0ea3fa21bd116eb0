/* SPDX-License-Identifier: Apache-2.0
 *
 * All operations on rows and blocks at level neon.
 */
#include "base/half.h"
#include "kernel/arm/v32_neon.h"
#include "kernel/arm/vf_neon.h"
#include "kernel/arm/vh_neon.h"
#include "kernel/kernel.h"
#include "kernel/table.h"

/* n is 32 or 16. */
static inline void load_f16_row(float *row, const unsigned char *from, int n) {
    for (int l = 0; l < n; l += 4)
        vst1q_f32(row + l, vcvt_f32_f16(vreinterpret_f16_u16(vreinterpret_u16_u8(vld1_u8(from + 2 * l)))));
}

#define NAME(op)                   kvt_##op##_neon
#define LOAD_F16_ROW(row, from, n) load_f16_row(row, from, n)
#include "kernel/encode.inc"

#include "kernel/encode_vu.inc"

#include "kernel/encode_kq.inc"

#include "kernel/fold.inc"
#include "kernel/unpack.inc"

#include "kernel/decode.inc" /* by way of unpack */
