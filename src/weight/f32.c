/* SPDX-License-Identifier: Apache-2.0
 * F32: the floats themselves. */
#include "weight/type.h"

static void decode(float *dst, const unsigned char *src, int64_t n) { memcpy(dst, src, (size_t)n * sizeof *dst); }

KVT_WEIGHT_KERNELS(f32);
extern const struct kvt_weight_type kvt_weight_f32;
const struct kvt_weight_type kvt_weight_f32 = {
    .gguf_type = 0,
    .block_len = 1,
    .block_bytes = 4,
    .decode = decode,
    .at = KVT_WEIGHT_CELLS(f32),
};
