/* SPDX-License-Identifier: Apache-2.0
 * Q6_K: 256 codes of 6 bits less 32, in sixteen groups of 16 with a signed byte scale each over the block's f16. Each half
 * of 128 elements is four runs of 32: the low 4 bits of runs 0 and 2 are the nibbles of bytes 0-31, those of runs 1 and 3
 * the nibbles of bytes 32-63; the upper 2 bits of run k are bits 2k and 2k+1 of the half's 32 bytes of `high`. */
#include "base/half.h"
#include "weight/type.h"

enum { BLOCK_LEN = 256 };

struct block {
    uint8_t low[128], high[64];
    int8_t scale[16];
    uint16_t d;
};
_Static_assert(sizeof(struct block) == 210, "q6_k block layout");

static void decode(float *dst, const unsigned char *src, int64_t n) {
    for (int64_t i = 0; i < n; i += BLOCK_LEN, src += sizeof(struct block)) {
        struct block b;
        memcpy(&b, src, sizeof b);
        for (int run = 0; run < 8; run++, dst += 32) {
            const uint8_t *low = b.low + run / 4 * 64 + run % 2 * 32, *high = b.high + run / 4 * 32;
            for (int j = 0; j < 32; j++) {
                const float d = kvt_f32_from_f16(b.d) * (float)b.scale[run * 2 + j / 16];
                const int code = (low[j] >> run % 4 / 2 * 4 & 15) | (high[j] >> run % 4 * 2 & 3) << 4;
                dst[j] = d * (float)(code - 32);
            }
        }
    }
}

extern const struct kvt_weight_type kvt_weight_q6_k;
const struct kvt_weight_type kvt_weight_q6_k = {
    .gguf_type = 14,
    .block_len = BLOCK_LEN,
    .block_bytes = sizeof(struct block),
    .decode = decode,
};
