/* SPDX-License-Identifier: Apache-2.0 */
#include "weight/q8_0.h"

#include "weight/type.h"

static void decode(float *dst, const unsigned char *src, int64_t n) {
    const struct kvt_q8_0_block *b = (const void *)src;
    for (int64_t i = 0; i < n; i += 32, b++) {
        const float d = kvt_f16_at(b->d);
        for (int j = 0; j < 32; j++) *dst++ = d * (float)b->q[j];
    }
}

KVT_WEIGHT_KERNELS(q8_0);
extern const struct kvt_weight_type kvt_weight_q8_0;
const struct kvt_weight_type kvt_weight_q8_0 = {
    .gguf_type = 8,
    .block_len = 32,
    .block_bytes = sizeof(struct kvt_q8_0_block),
    .decode = decode,
    .at = KVT_WEIGHT_CELLS(q8_0),
};
