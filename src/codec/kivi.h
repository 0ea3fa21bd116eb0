/* SPDX-License-Identifier: Apache-2.0
 *
 * kivi's fit, shared by the encoder and its kernels.
 */
#ifndef CODEC_KIVI_H
#define CODEC_KIVI_H

#include "base/half.h"

struct kvt_kivi {
    uint16_t scale, zero; /* f16, as stored */
    float inverse;        /* of the stored scale; 0 for a scale of 0 */
};

/* The fit of a group with these extremes; top is the largest code. */
KVT_INLINE struct kvt_kivi kvt_kivi_fit(float lo, float hi, float top) {
    struct kvt_kivi k = {.zero = kvt_f16_from_f32(lo)};
    if (kvt_f32_from_f16(k.zero) > lo) k.zero = (uint16_t)(k.zero >> 15 ? k.zero + 1 : k.zero - 1); /* downwards */
    k.scale = kvt_f16_from_f32((hi - kvt_f32_from_f16(k.zero)) / top);
    const float scale = kvt_f32_from_f16(k.scale);
    k.inverse = scale > 0 ? 1 / scale : 0;
    return k;
}

#endif
