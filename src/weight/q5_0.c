/* SPDX-License-Identifier: Apache-2.0
 * Q5_0: Q4_0 with a fifth bit per code (bit i of `high` is element i's), so codes are less 16. */
#include "base/half.h"
#include "weight/type.h"

enum { BLOCK_LEN = 32 };

struct block {
    uint16_t d;
    uint8_t high[4], q[16];
};
_Static_assert(sizeof(struct block) == 22, "q5_0 block layout");

static void decode(float *dst, const unsigned char *src, int64_t n) {
    for (int64_t i = 0; i < n; i += BLOCK_LEN, dst += BLOCK_LEN, src += sizeof(struct block)) {
        struct block b;
        memcpy(&b, src, sizeof b);
        const float d = kvt_f32_from_f16(b.d);
        uint32_t high;
        memcpy(&high, b.high, sizeof high);
        for (int j = 0; j < 16; j++) {
            const int low = (b.q[j] & 15) | (int)(high >> j & 1) << 4;
            const int up = b.q[j] >> 4 | (int)(high >> (j + 16) & 1) << 4;
            dst[j] = d * (float)(low - 16);
            dst[j + 16] = d * (float)(up - 16);
        }
    }
}

extern const struct kvt_weight_type kvt_weight_q5_0;
const struct kvt_weight_type kvt_weight_q5_0 = {
    .gguf_type = 6,
    .block_len = BLOCK_LEN,
    .block_bytes = sizeof(struct block),
    .decode = decode,
};
