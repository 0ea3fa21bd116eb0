/* SPDX-License-Identifier: Apache-2.0 */
#include "weight/q5_k.h"

#include "weight/k_scales.h"
#include "weight/strip.h"

static void split(int8_t *code, float *scale, float *min, const unsigned char *block) {
    const struct kvt_q5_k_block *b = (const void *)block;
    uint8_t scales[8], mins[8];
    kvt_k_scales(scales, mins, b->scales);
    for (int g = 0; g < 8; g++) {
        scale[g] = kvt_f16_at(b->d) * (float)scales[g];
        min[g] = -(kvt_f16_at(b->m) * (float)mins[g]);
        for (int j = 0; j < 32; j++)
            *code++ = (int8_t)((b->q[g / 2 * 32 + j] >> g % 2 * 4 & 15) | (b->high[j] >> g & 1) << 4);
    }
}

enum { SCALES = 64 + 8 * 32, UNIT = SCALES + 8 * 320 };

static void put(unsigned char *unit, int row, const unsigned char *block) {
    const struct kvt_q5_k_block *b = (const void *)block;
    uint8_t scales[8], mins[8];
    kvt_k_scales(scales, mins, b->scales);
    memcpy(unit + 2 * row, b->d, 2);
    unit[2 * (KVT_STRIP_ROWS + row)] = b->m[0];
    unit[2 * (KVT_STRIP_ROWS + row) + 1] = b->m[1] ^ 0x80; /* what is added is less than 0 */
    for (int g = 0; g < 8; g++) {
        unsigned char *to = unit + SCALES + g * 320;
        unit[64 + 32 * g + row] = scales[g];
        unit[64 + 32 * g + KVT_STRIP_ROWS + row] = mins[g];
        for (int k = 0; k < 4; k++) kvt_strip_put(to, k, row, kvt_strip_nibbles(b->q + g / 2 * 32, g % 2, k));
        uint32_t high = 0;
        for (int k = 0; k < 8; k++) high |= (kvt_strip_word(b->high + 4 * k) >> g & 0x01010101u) << k;
        kvt_strip_put(to, 4, row, high);
    }
}

static void pack(unsigned char *strip, const unsigned char *rows, size_t row_bytes, int n_rows, int64_t n_blocks) {
    kvt_strip_pack(strip, rows, row_bytes, n_rows, n_blocks, UNIT, sizeof(struct kvt_q5_k_block), put);
}

static const struct kvt_weight_codes codes = {32, true, split, UNIT, pack};
KVT_WEIGHT_CODE_KERNELS(q5_k);
extern const struct kvt_weight_type kvt_weight_q5_k;
const struct kvt_weight_type kvt_weight_q5_k = {
    .gguf_type = 13,
    .block_len = 256,
    .block_bytes = sizeof(struct kvt_q5_k_block),
    .codes = &codes,
    .at = KVT_WEIGHT_CODE_CELLS(q5_k),
};
