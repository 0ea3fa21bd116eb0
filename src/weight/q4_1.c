/* SPDX-License-Identifier: Apache-2.0
 * Q4_1: 32 codes of 4 bits, a scale and a minimum. The low nibbles are elements 0 to 15, the high ones 16 to 31. */
#include "base/half.h"
#include "weight/type.h"

enum { BLOCK_LEN = 32 };

struct block {
    uint16_t d, m;
    uint8_t q[16];
};
_Static_assert(sizeof(struct block) == 20, "q4_1 block layout");

static void decode(float *dst, const unsigned char *src, int64_t n) {
    for (int64_t i = 0; i < n; i += BLOCK_LEN, dst += BLOCK_LEN, src += sizeof(struct block)) {
        struct block b;
        memcpy(&b, src, sizeof b);
        const float d = kvt_f32_from_f16(b.d), m = kvt_f32_from_f16(b.m);
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float)(b.q[j] & 15) + m;
            dst[j + 16] = d * (float)(b.q[j] >> 4) + m;
        }
    }
}

extern const struct kvt_weight_type kvt_weight_q4_1;
const struct kvt_weight_type kvt_weight_q4_1 = {
    .gguf_type = 3,
    .block_len = BLOCK_LEN,
    .block_bytes = sizeof(struct block),
    .decode = decode,
};
