/* SPDX-License-Identifier: Apache-2.0
 * BF16: the upper half of an f32. */
#include "weight/type.h"

static void decode(float *dst, const unsigned char *src, int64_t n) {
    for (int64_t i = 0; i < n; i++, src += 2) {
        uint16_t h;
        memcpy(&h, src, 2);
        dst[i] = kvt_f32_from_bf16(h);
    }
}

KVT_WEIGHT_KERNELS(bf16);
extern const struct kvt_weight_type kvt_weight_bf16;
const struct kvt_weight_type kvt_weight_bf16 = {
    .gguf_type = 30,
    .block_len = 1,
    .block_bytes = 2,
    .decode = decode,
    .at = KVT_WEIGHT_CELLS(bf16),
};
