/* SPDX-License-Identifier: Apache-2.0 */
#include "weight/q5_1.h"

#include "weight/type.h"

static void decode(float *dst, const unsigned char *src, int64_t n) {
    const struct kvt_q5_1_block *b = (const void *)src;
    for (int64_t i = 0; i < n; i += 32, b++) {
        const float d = kvt_f16_at(b->d), m = kvt_f16_at(b->m);
        for (int j = 0; j < 32; j++) {
            const int code = (b->q[j % 16] >> j / 16 * 4 & 15) | (b->high[j / 8] >> j % 8 & 1) << 4;
            *dst++ = d * (float)code + m;
        }
    }
}

KVT_WEIGHT_KERNELS(q5_1);
extern const struct kvt_weight_type kvt_weight_q5_1;
const struct kvt_weight_type kvt_weight_q5_1 = {
    .gguf_type = 7,
    .block_len = 32,
    .block_bytes = sizeof(struct kvt_q5_1_block),
    .decode = decode,
    .at = KVT_WEIGHT_CELLS(q5_1),
};
