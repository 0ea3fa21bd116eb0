/* SPDX-License-Identifier: Apache-2.0
 * Conversions between f32 and f16, bf16, 8-bit floats: scalar, exact, round to nearest even. */
#ifndef BASE_HALF_H
#define BASE_HALF_H

#include <stdint.h>
#include <string.h>

#include "base/attr.h"

KVT_INLINE uint32_t kvt_f32_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

KVT_INLINE float kvt_f32_from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}

/* Values too large become infinite; a NaN stays one (quiet). Subnormals are kept. */
KVT_INLINE uint16_t kvt_f16_from_f32(float x) {
    const uint32_t u = kvt_f32_bits(x), sign = u >> 16 & 0x8000u;
    uint32_t a = u & 0x7FFFFFFFu;
    if (a > 0x7F800000u) return (uint16_t)(sign | 0x7E00u | (a >> 13 & 0x3FFu));
    if (a >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u); /* 65520 and more */
    if (a < 0x38800000u) {                                   /* below 2^-14: the unit is 2^-24 */
        const float scaled = kvt_f32_from_bits(a) + 0.5f;    /* 0.5 has an ulp of 2^-24: the addition rounds to even */
        return (uint16_t)(sign | (kvt_f32_bits(scaled) - 0x3F000000u));
    }
    a += 0xFFFu + (a >> 13 & 1u);
    return (uint16_t)(sign | (a - 0x38000000u) >> 13);
}

KVT_INLINE float kvt_f32_from_f16(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = h >> 10 & 31u, m = h & 0x3FFu;
    if (e == 31) return kvt_f32_from_bits(sign | 0x7F800000u | m << 13 | (m ? 0x400000u : 0));
    if (e == 0) {
        const float x = (float)m * 0x1p-24f;
        return kvt_f32_from_bits(sign | kvt_f32_bits(x));
    }
    return kvt_f32_from_bits(sign | (e + 112u) << 23 | m << 13);
}

KVT_INLINE uint16_t kvt_bf16_from_f32(float x) {
    const uint32_t u = kvt_f32_bits(x);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
}

KVT_INLINE float kvt_f32_from_bf16(uint16_t h) { return kvt_f32_from_bits((uint32_t)h << 16); }

/* ---- 8-bit floats (OCP 8-bit floating point, revision 1.0; MX scales) ------------------------------------------------- */

/* Without branches, so that loops become vectors. */

/* e4m3: exponent bias 7, largest 448, no infinity; the two NaN codes give 0. */
KVT_INLINE float kvt_f32_from_e4m3(uint32_t c) {
    const uint32_t low = c & 0x7Fu, sign = (uint32_t)(c & 0x80u) << 24;
    const uint32_t normal = (120u << 23) + (low << 20), is_normal = 0u - (low >= 8), is_number = 0u - (low != 0x7F);
    const uint32_t subnormal = kvt_f32_bits(kvt_f32_from_bits((121u << 23) + (low << 20)) - 0x1p-6f);
    return kvt_f32_from_bits(((normal & is_normal) | (subnormal & ~is_normal) | sign) & is_number);
}

/* e5m2: exponent bias 15, largest 57344; infinities and NaNs give 0. */
KVT_INLINE float kvt_f32_from_e5m2(uint32_t c) {
    const uint32_t low = c & 0x7Fu, sign = (uint32_t)(c & 0x80u) << 24;
    const uint32_t normal = (112u << 23) + (low << 21), is_normal = 0u - (low >= 4), is_number = 0u - (low < 0x7C);
    const uint32_t subnormal = kvt_f32_bits(kvt_f32_from_bits((113u << 23) + (low << 21)) - 0x1p-14f);
    return kvt_f32_from_bits(((normal & is_normal) | (subnormal & ~is_normal) | sign) & is_number);
}

/* e8m0: 2^(c - 127); code 0 is 2^-127, code 255 (a NaN there) gives 2^127. */
KVT_INLINE float kvt_f32_from_e8m0(uint8_t c) {
    if (c == 0) return 0x1p-127f;
    return kvt_f32_from_bits((uint32_t)(c == 255 ? 254 : c) << 23);
}

/* Encoders round to nearest even and saturate: what is beyond the largest number, infinite or a NaN becomes that. The sign of
 * a zero and subnormals are kept. */
KVT_INLINE uint8_t kvt_e4m3_from_f32(float x) {
    const uint32_t u = kvt_f32_bits(x), sign = u >> 24 & 0x80u;
    uint32_t a = u & 0x7FFFFFFFu;
    if (a >= 0x43E00000u) return (uint8_t)(sign | 0x7Eu); /* 448 and more */
    if (a < 0x3C800000u) {                                /* below 2^-6: the unit is 2^-9, the ulp of 2^14 */
        const float scaled = kvt_f32_from_bits(a) + 0x1p14f;
        return (uint8_t)(sign | (kvt_f32_bits(scaled) - 0x46800000u));
    }
    a += 0x7FFFFu + (a >> 20 & 1u);
    return (uint8_t)(sign | (a - 0x3C000000u) >> 20);
}

KVT_INLINE uint8_t kvt_e5m2_from_f32(float x) {
    const uint32_t u = kvt_f32_bits(x), sign = u >> 24 & 0x80u;
    uint32_t a = u & 0x7FFFFFFFu;
    if (a >= 0x47600000u) return (uint8_t)(sign | 0x7Bu); /* 57344 and more */
    if (a < 0x38800000u) {                                /* below 2^-14: the unit is 2^-16, the ulp of 2^7 */
        const float scaled = kvt_f32_from_bits(a) + 0x1p7f;
        return (uint8_t)(sign | (kvt_f32_bits(scaled) - 0x43000000u));
    }
    a += 0xFFFFFu + (a >> 21 & 1u);
    return (uint8_t)(sign | (a - 0x38000000u) >> 21);
}

/* The smallest e8m0 that is not below a finite x >= 0. */
KVT_INLINE uint8_t kvt_e8m0_above_f32(float x) {
    const uint32_t u = kvt_f32_bits(x), e = u >> 23;
    if (u <= 0x00400000u) return 0; /* 2^-127 */
    return (uint8_t)((u & 0x7FFFFFu) != 0 ? e + 1 : e);
}

#endif
