/* SPDX-License-Identifier: Apache-2.0
 * Q5_K: Q4_K with a fifth bit per code: bit g of `high[j]` belongs to element j of group g. */
#include "base/half.h"
#include "weight/k_scales.h"
#include "weight/type.h"

enum { BLOCK_LEN = 256 };

struct block {
    uint16_t d, m;
    uint8_t scales[12], high[32], q[128];
};
_Static_assert(sizeof(struct block) == 176, "q5_k block layout");

static void decode(float *dst, const unsigned char *src, int64_t n) {
    for (int64_t i = 0; i < n; i += BLOCK_LEN, src += sizeof(struct block)) {
        struct block b;
        memcpy(&b, src, sizeof b);
        uint8_t scale[8], min[8];
        kvt_k_scales(scale, min, b.scales);
        for (int g = 0; g < 8; g++, dst += 32) {
            const float d = kvt_f32_from_f16(b.d) * (float)scale[g], m = kvt_f32_from_f16(b.m) * (float)min[g];
            for (int j = 0; j < 32; j++) {
                const int code = (b.q[g / 2 * 32 + j] >> g % 2 * 4 & 15) | (b.high[j] >> g & 1) << 4;
                dst[j] = d * (float)code - m;
            }
        }
    }
}

extern const struct kvt_weight_type kvt_weight_q5_k;
const struct kvt_weight_type kvt_weight_q5_k = {
    .gguf_type = 13,
    .block_len = BLOCK_LEN,
    .block_bytes = sizeof(struct block),
    .decode = decode,
};
