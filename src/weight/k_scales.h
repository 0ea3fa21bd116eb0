/* SPDX-License-Identifier: Apache-2.0
 * The 6-bit scales and minima of Q4_K and Q5_K, eight each in 12 bytes: the low 6 bits of bytes 0-3 and 4-7 are those of
 * groups 0-3; groups 4-7 have their low 4 bits in the nibbles of bytes 8-11 and their upper 2 above the former. */
#ifndef WEIGHT_K_SCALES_H
#define WEIGHT_K_SCALES_H

#include <stdint.h>
#include <string.h>

/* Four bytes at a time. */
static inline void kvt_k_scales(uint8_t scale[8], uint8_t min[8], const uint8_t packed[12]) {
    uint32_t p[3], s[2], m[2];
    memcpy(p, packed, sizeof p);
    s[0] = p[0] & 0x3F3F3F3Fu;
    m[0] = p[1] & 0x3F3F3F3Fu;
    s[1] = (p[2] & 0x0F0F0F0Fu) | (p[0] >> 2 & 0x30303030u);
    m[1] = (p[2] >> 4 & 0x0F0F0F0Fu) | (p[1] >> 2 & 0x30303030u);
    memcpy(scale, s, sizeof s);
    memcpy(min, m, sizeof m);
}

#endif
