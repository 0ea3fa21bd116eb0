/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole numbers of 16 bits, as encoders compute with them whose kernels do it in vectors: every operation is one instruction there.
 */
#ifndef CODEC_WHOLE_H
#define CODEC_WHOLE_H

#include <stdint.h>

#include "base/attr.h"

enum { KVT_WHOLE_MOST = 32767 };

KVT_INLINE int16_t kvt_whole_cut(int x) {
    return (int16_t)(x < -KVT_WHOLE_MOST - 1 ? -KVT_WHOLE_MOST - 1 : x > KVT_WHOLE_MOST ? KVT_WHOLE_MOST : x);
}
/* a * b / 2^15 to the nearest whole number, halves up; not both -2^15. */
KVT_INLINE int16_t kvt_whole_part(int a, int b) { return (int16_t)((a * b + 0x4000) >> 15); }

#endif
