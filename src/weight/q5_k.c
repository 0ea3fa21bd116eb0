/* SPDX-License-Identifier: Apache-2.0 */
#include "weight/q5_k.h"

#include "weight/k_scales.h"
#include "weight/type.h"

static void decode(float *dst, const unsigned char *src, int64_t n) {
    const struct kvt_q5_k_block *b = (const void *)src;
    for (int64_t i = 0; i < n; i += 256, b++) {
        uint8_t scale[8], min[8];
        kvt_k_scales(scale, min, b->scales);
        for (int g = 0; g < 8; g++) {
            const float d = kvt_f16_at(b->d) * (float)scale[g], m = kvt_f16_at(b->m) * (float)min[g];
            for (int j = 0; j < 32; j++) {
                const int code = (b->q[g / 2 * 32 + j] >> g % 2 * 4 & 15) | (b->high[j] >> g & 1) << 4;
                *dst++ = d * (float)code - m;
            }
        }
    }
}

KVT_WEIGHT_KERNELS(q5_k);
extern const struct kvt_weight_type kvt_weight_q5_k;
const struct kvt_weight_type kvt_weight_q5_k = {
    .gguf_type = 13,
    .block_len = 256,
    .block_bytes = sizeof(struct kvt_q5_k_block),
    .decode = decode,
    .at = KVT_WEIGHT_CELLS(q5_k),
};
