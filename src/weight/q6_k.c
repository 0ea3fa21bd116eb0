/* SPDX-License-Identifier: Apache-2.0 */
#include "weight/q6_k.h"

#include "weight/type.h"

static void decode(float *dst, const unsigned char *src, int64_t n) {
    const struct kvt_q6_k_block *b = (const void *)src;
    for (int64_t i = 0; i < n; i += 256, b++) {
        for (int run = 0; run < 8; run++) {
            const uint8_t *low = b->low + run / 4 * 64 + run % 2 * 32, *high = b->high + run / 4 * 32;
            for (int j = 0; j < 32; j++) {
                const float d = kvt_f16_at(b->d) * (float)b->scale[run * 2 + j / 16];
                const int code = (low[j] >> run % 4 / 2 * 4 & 15) | (high[j] >> run % 4 * 2 & 3) << 4;
                *dst++ = d * (float)(code - 32);
            }
        }
    }
}

KVT_WEIGHT_KERNELS(q6_k);
extern const struct kvt_weight_type kvt_weight_q6_k;
const struct kvt_weight_type kvt_weight_q6_k = {
    .gguf_type = 14,
    .block_len = 256,
    .block_bytes = sizeof(struct kvt_q6_k_block),
    .decode = decode,
    .at = KVT_WEIGHT_CELLS(q6_k),
};
