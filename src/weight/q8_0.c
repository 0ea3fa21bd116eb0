/* SPDX-License-Identifier: Apache-2.0
 * Q8_0: 32 signed bytes and a scale. */
#include "base/half.h"
#include "weight/type.h"

enum { BLOCK_LEN = 32 };

struct block {
    uint16_t d;
    int8_t q[32];
};
_Static_assert(sizeof(struct block) == 34, "q8_0 block layout");

static void decode(float *dst, const unsigned char *src, int64_t n) {
    for (int64_t i = 0; i < n; i += BLOCK_LEN, dst += BLOCK_LEN, src += sizeof(struct block)) {
        struct block b;
        memcpy(&b, src, sizeof b);
        const float d = kvt_f32_from_f16(b.d);
        for (int j = 0; j < 32; j++) dst[j] = d * (float)b.q[j];
    }
}

extern const struct kvt_weight_type kvt_weight_q8_0;
const struct kvt_weight_type kvt_weight_q8_0 = {
    .gguf_type = 8,
    .block_len = BLOCK_LEN,
    .block_bytes = sizeof(struct block),
    .decode = decode,
};
