/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside weight: how 16 rows of a type of codes lie together, so that a register holds four elements of each and sums are a lane
 * each. A strip is one unit for each block of its rows; a unit is
 *
 *     scales   f16 of each row, then of types with minima f16 of each row; of K types then 32 bytes for each group of 32: each row's
 *              scale and each row's minimum, or each row's two scales
 *     codes    of each group of 32 elements: vectors of 64 bytes in which row r has bytes 4r .. 4r+3
 *
 * Codes are less their type's smallest, that is from 0 on. Quad k of a group is its elements 4k .. 4k+3. Vector k holds quad k as
 * bytes, or for types of 4 to 6 bits vectors 0-3 have the low 4 bits of quad k in the low and those of quad k + 4 in the high
 * nibbles; the fifth bit of quad k is bit k of vector 4, the upper two of six are bits 2k mod 8 and the next of vector 4 + k / 4.
 */
#ifndef WEIGHT_STRIP_H
#define WEIGHT_STRIP_H

#include "weight/type.h"

enum { KVT_STRIP_ROWS = 16, KVT_STRIP_VECTOR = 4 * KVT_STRIP_ROWS };

/* What the scales of a unit are. */
enum { STRIP_HALF, STRIP_HALF_MIN, STRIP_K, STRIP_K_TWO };

static inline uint32_t kvt_strip_word(const unsigned char *p) {
    uint32_t w;
    memcpy(&w, p, 4);
    return w;
}

/* The four bytes of a row in a vector. */
static inline void kvt_strip_put(unsigned char *codes, int vector, int row, uint32_t word) {
    memcpy(codes + vector * KVT_STRIP_VECTOR + 4 * row, &word, 4);
}

/* Far ahead: strips are long, and hardware prefetching stops at every page. Reading from memory took 0.7 of the time on a Xeon. */
static inline void strip_prefetch(const unsigned char *p, int n) {
    for (int i = 0; i < n; i += 64) __builtin_prefetch((const void *)((uintptr_t)p + (uintptr_t)i + 4096));
}

/* Vector 4's word from four bytes whose bit i is element i's fifth. */
static inline uint32_t kvt_strip_fifths(const unsigned char high[4]) {
    const uint32_t bits = kvt_strip_word(high);
    uint32_t word = 0;
    for (int k = 0; k < 8; k++) word |= ((bits >> 4 * k & 15) * 0x00204081u & 0x01010101u) << k;
    return word;
}

/* Vector k's word from 32 bytes whose low (0) or high (1) nibbles are elements' low bits. */
static inline uint32_t kvt_strip_nibbles(const unsigned char q[32], int high, int k) {
    const uint32_t low_quad = kvt_strip_word(q + 4 * k) >> 4 * high & 0x0F0F0F0Fu;
    return low_quad | (kvt_strip_word(q + 16 + 4 * k) >> 4 * high & 0x0F0F0F0Fu) << 4;
}

/* The body of a type's pack: `put` writes a block as row `row` of a unit. Rows that are not there are zeros. */
static inline __attribute__((always_inline)) void
kvt_strip_pack(unsigned char *strip, const unsigned char *rows, size_t row_bytes, int n_rows, int64_t n_blocks,
               size_t unit_bytes, size_t block_bytes,
               void (*put)(unsigned char *unit, int row, const unsigned char *block)) {
    if (n_rows < KVT_STRIP_ROWS) memset(strip, 0, (size_t)n_blocks * unit_bytes);
    for (int64_t b = 0; b < n_blocks; b++, strip += unit_bytes, rows += block_bytes)
        for (int r = 0; r < n_rows; r++) put(strip, r, rows + (size_t)r * row_bytes);
}

#endif
