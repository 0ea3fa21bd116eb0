/* SPDX-License-Identifier: Apache-2.0 */
#include "weight/q6_k.h"

#include "weight/strip.h"

static void split(int8_t *code, float *scale, float *min, const unsigned char *block) {
    const struct kvt_q6_k_block *b = (const void *)block;
    (void)min;
    for (int i = 0; i < 16; i++) scale[i] = kvt_f16_at(b->d) * (float)b->scale[i];
    for (int run = 0; run < 8; run++) {
        const uint8_t *low = b->low + run / 4 * 64 + run % 2 * 32, *high = b->high + run / 4 * 32;
        for (int j = 0; j < 32; j++)
            *code++ = (int8_t)(((low[j] >> run % 4 / 2 * 4 & 15) | (high[j] >> run % 4 * 2 & 3) << 4) - 32);
    }
}

enum { SCALES = 32 + 8 * 32, UNIT = SCALES + 8 * 384 };

static void put(unsigned char *unit, int row, const unsigned char *block) {
    const struct kvt_q6_k_block *b = (const void *)block;
    memcpy(unit + 2 * row, b->d, 2);
    for (int g = 0; g < 8; g++) {
        const uint8_t *low = b->low + g / 4 * 64 + g % 2 * 32, *high = b->high + g / 4 * 32;
        unsigned char *to = unit + SCALES + g * 384;
        uint32_t upper[2] = {0, 0};
        for (int i = 0; i < 2; i++) unit[32 + 32 * g + KVT_STRIP_ROWS * i + row] = (uint8_t)b->scale[2 * g + i];
        for (int k = 0; k < 4; k++) kvt_strip_put(to, k, row, kvt_strip_nibbles(low, g % 4 / 2, k));
        for (int k = 0; k < 8; k++)
            upper[k / 4] |= (kvt_strip_word(high + 4 * k) >> g % 4 * 2 & 0x03030303u) << k % 4 * 2;
        for (int i = 0; i < 2; i++) kvt_strip_put(to, 4 + i, row, upper[i]);
    }
}

static void pack(unsigned char *strip, const unsigned char *rows, size_t row_bytes, int n_rows, int64_t n_blocks) {
    kvt_strip_pack(strip, rows, row_bytes, n_rows, n_blocks, UNIT, sizeof(struct kvt_q6_k_block), put);
}

static const struct kvt_weight_codes codes = {16, false, split, UNIT, pack};
KVT_WEIGHT_CODE_KERNELS(q6_k);
extern const struct kvt_weight_type kvt_weight_q6_k;
const struct kvt_weight_type kvt_weight_q6_k = {
    .gguf_type = 14,
    .block_len = 256,
    .block_bytes = sizeof(struct kvt_q6_k_block),
    .codes = &codes,
    .at = KVT_WEIGHT_CODE_CELLS(q6_k),
};
