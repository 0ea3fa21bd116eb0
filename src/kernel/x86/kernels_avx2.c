/* SPDX-License-Identifier: Apache-2.0
 *
 * All operations on rows and blocks at level avx2.
 */
#include "base/half.h"
#include "kernel/kernel.h"
#include "kernel/table.h"
#include "kernel/x86/v32_avx2.h"
#include "kernel/x86/vf_avx2.h"
#include "kernel/x86/vh.h"

/* n is 32 or 16. */
static inline void load_f16_row(float *row, const unsigned char *from, int n) {
    for (int l = 0; l < n; l += 8)
        _mm256_storeu_ps(row + l, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + 2 * l))));
}

#define NAME(op)                   kvt_##op##_avx2
#define LOAD_F16_ROW(row, from, n) load_f16_row(row, from, n)
#include "kernel/encode.inc"

#include "kernel/encode_vu.inc"

#include "kernel/encode_kq.inc"

#include "kernel/fold.inc"
#include "kernel/unpack.inc"

#include "kernel/decode.inc" /* by way of unpack */
