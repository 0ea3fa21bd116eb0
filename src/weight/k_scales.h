/* SPDX-License-Identifier: Apache-2.0
 * The 6-bit scales and minima of Q4_K and Q5_K, eight each in 12 bytes: the low 6 bits of bytes 0-3 and 4-7 are those of
 * groups 0-3; groups 4-7 have their low 4 bits in the nibbles of bytes 8-11 and their upper 2 above the former. */
#ifndef WEIGHT_K_SCALES_H
#define WEIGHT_K_SCALES_H

#include <stdint.h>

static inline void kvt_k_scales(uint8_t scale[8], uint8_t min[8], const uint8_t packed[12]) {
    for (int j = 0; j < 4; j++) {
        const uint8_t s = packed[j], m = packed[j + 4], both = packed[j + 8];
        scale[j] = s & 63;
        min[j] = m & 63;
        scale[j + 4] = (uint8_t)((both & 15) | (s >> 6) << 4);
        min[j + 4] = (uint8_t)(both >> 4 | (m >> 6) << 4);
    }
}

#endif
