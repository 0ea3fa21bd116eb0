/* SPDX-License-Identifier: Apache-2.0
 * F16: IEEE half precision. */
#include "weight/type.h"

static void decode(float *dst, const unsigned char *src, int64_t n) {
    for (int64_t i = 0; i < n; i++, src += 2) {
        uint16_t h;
        memcpy(&h, src, 2);
        dst[i] = kvt_f32_from_f16(h);
    }
}

KVT_WEIGHT_KERNELS(f16);
extern const struct kvt_weight_type kvt_weight_f16;
const struct kvt_weight_type kvt_weight_f16 = {
    .gguf_type = 1,
    .block_len = 1,
    .block_bytes = 2,
    .decode = decode,
    .at = KVT_WEIGHT_CELLS(f16),
};
