/* SPDX-License-Identifier: Apache-2.0
 *
 * All operations at level avx512.
 */
#include "base/half.h"
#include "kernel/kernel.h"
#include "kernel/table.h"
#include "kernel/x86/v32_avx512.h"

/* n is 32 or 16. */
static inline void load_f16_row(float *row, const unsigned char *from, int n) {
    for (int l = 0; l < n; l += 8)
        _mm256_storeu_ps(row + l, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + 2 * l))));
}

/* Rounds to nearest even, as kvt_f16_from_f32. */
static inline void to_f16(uint16_t *out, const float *x, int n) {
    for (int i = 0; i < n; i += 8) /* row sizes are multiples of 8 */
        _mm_storeu_si128((__m128i *)(void *)(out + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
}

#define NAME(op)                   kvt_##op##_avx512
#define LOAD_F16_ROW(row, from, n) load_f16_row(row, from, n)
#include "kernel/encode.inc"
#include "kernel/fold.inc"
#include "kernel/soften.inc"
#include "kernel/unpack.inc"
