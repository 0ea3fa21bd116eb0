/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of one byte on a logarithmic scale, 2^(e / per) with per = 16, 32 or 64: what a byte means and which is nearest, without the C
 * library's logarithm. Both are read from one table, 2^(j/128) in f32.
 */
#ifndef CODEC_LOG8_H
#define CODEC_LOG8_H

#include "base/half.h"

/* The fraction of 2^(j/128), as it lies in an f32. */
extern const uint32_t kvt_log8_fractions[128];
/* For kernels, by the upper 8 of a fraction's 23 bits: above bit 16, j of the largest of those that is not above the first fraction with these
 * bits; below, how far behind that one the next of those is. There is at most one more among them; 2^15: none. */
extern const uint32_t kvt_log8_cells[256];
/* For kernels too, every eighth, every fourth, every second fraction: those of 2^(j/n) from place n - 16 on, n = 16, 32 and 64. */
extern const uint32_t kvt_log8_sparse[112];
#if defined(__CUDACC__)
static __constant__ uint32_t kvt_log8_fractions_gpu[128] = {
#include "codec/log8.inc"
};
#endif

KVT_INLINE uint32_t kvt_log8_fraction(int j) {
#if defined(__CUDA_ARCH__)
    return kvt_log8_fractions_gpu[j];
#else
    return kvt_log8_fractions[j];
#endif
}

/* 2^(e / per), e at least -64 * per. */
KVT_INLINE float kvt_log8_value(int e, int per) {
    const unsigned from = (unsigned)(e + 64 * per), p = (unsigned)per;
    return kvt_f32_from_bits((from / p + 63) << 23 | kvt_log8_fraction((int)(from % p * (128 / p))));
}

/* The e whose 2^(e / per) is nearest to x >= 0 in the logarithm: per * log2(x), rounded. At most -126 * per for 0 and subnormals. */
KVT_INLINE int kvt_log8_nearest(float x, int per) {
    const uint32_t bits = kvt_f32_bits(x), fraction = bits & 0x7FFFFF;
    int e = ((int)(bits >> 23) - 127) * per;
    for (int j = 64 / per; j < 128; j += 128 / per) e += fraction >= kvt_log8_fraction(j); /* the middles */
    return e;
}

/* KVT_SCALE_LOG and KVT_SCALE_SHIFT. */
enum { KVT_LOG_PER = 16, KVT_LOG_BIAS = 192, KVT_SHIFT_UNIT = 128 };
KVT_INLINE float kvt_scale_from_log(uint8_t c) { return kvt_log8_value(c - KVT_LOG_BIAS, KVT_LOG_PER); }
KVT_INLINE float kvt_zero_shift(int bits, int8_t r) {
    return (float)(((1 << bits) - 1) * (r - KVT_SHIFT_UNIT / 2)) / KVT_SHIFT_UNIT;
}

#endif
