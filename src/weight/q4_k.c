/* SPDX-License-Identifier: Apache-2.0
 * Q4_K: 256 codes of 4 bits in eight groups of 32, each with a 6-bit scale and minimum over the block's two f16. Bytes
 * 32k .. 32k+31 hold group 2k in the low nibbles and group 2k+1 in the high ones. */
#include "base/half.h"
#include "weight/k_scales.h"
#include "weight/type.h"

enum { BLOCK_LEN = 256 };

struct block {
    uint16_t d, m;
    uint8_t scales[12], q[128];
};
_Static_assert(sizeof(struct block) == 144, "q4_k block layout");

static void decode(float *dst, const unsigned char *src, int64_t n) {
    for (int64_t i = 0; i < n; i += BLOCK_LEN, src += sizeof(struct block)) {
        struct block b;
        memcpy(&b, src, sizeof b);
        uint8_t scale[8], min[8];
        kvt_k_scales(scale, min, b.scales);
        for (int g = 0; g < 8; g++, dst += 32) {
            const float d = kvt_f32_from_f16(b.d) * (float)scale[g], m = kvt_f32_from_f16(b.m) * (float)min[g];
            for (int j = 0; j < 32; j++) dst[j] = d * (float)(b.q[g / 2 * 32 + j] >> g % 2 * 4 & 15) - m;
        }
    }
}

extern const struct kvt_weight_type kvt_weight_q4_k;
const struct kvt_weight_type kvt_weight_q4_k = {
    .gguf_type = 12,
    .block_len = BLOCK_LEN,
    .block_bytes = sizeof(struct block),
    .decode = decode,
};
