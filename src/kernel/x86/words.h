/* SPDX-License-Identifier: Apache-2.0
 *
 * Transposing 32-bit words, in 256 bits, for the levels that have them.
 */
#ifndef KERNEL_X86_WORDS_H
#define KERNEL_X86_WORDS_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

/* Word i of a[r] becomes word r of a[i]. */
INLINE void words_transpose(__m256i a[8]) {
    __m256i b[8];
    for (int i = 0; i < 4; i++) {
        b[2 * i] = _mm256_unpacklo_epi32(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = _mm256_unpackhi_epi32(a[2 * i], a[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            a[4 * i + 2 * j] = _mm256_unpacklo_epi64(b[4 * i + j], b[4 * i + j + 2]);
            a[4 * i + 2 * j + 1] = _mm256_unpackhi_epi64(b[4 * i + j], b[4 * i + j + 2]);
        }
    for (int i = 0; i < 4; i++) {
        const __m256i low = _mm256_permute2x128_si256(a[i], a[4 + i], 0x20);
        a[4 + i] = _mm256_permute2x128_si256(a[i], a[4 + i], 0x31);
        a[i] = low;
    }
}

/* w[i * ld_w + r] = word i of row r, for 32 rows of 8 words; row r at rows + r * ld bytes. */
static inline void words_of_rows(uint32_t *w, ptrdiff_t ld_w, const void *rows, ptrdiff_t ld) {
    for (int r = 0; r < 32; r += 8) {
        __m256i a[8];
        for (int i = 0; i < 8; i++) a[i] = _mm256_loadu_si256((const void *)((const char *)rows + (r + i) * ld));
        words_transpose(a);
        for (int i = 0; i < 8; i++) _mm256_storeu_si256((void *)(w + i * ld_w + r), a[i]);
    }
}

#endif
