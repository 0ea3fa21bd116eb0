/* SPDX-License-Identifier: Apache-2.0 */
#include "weight/q5_1.h"

#include "weight/strip.h"

static void split(int8_t *code, float *scale, float *min, const unsigned char *block) {
    const struct kvt_q5_1_block *b = (const void *)block;
    *scale = kvt_f16_at(b->d);
    *min = kvt_f16_at(b->m);
    for (int j = 0; j < 32; j++)
        code[j] = (int8_t)((b->q[j % 16] >> j / 16 * 4 & 15) | (b->high[j / 8] >> j % 8 & 1) << 4);
}

enum { SCALES = 64, UNIT = SCALES + 320 };

static void put(unsigned char *unit, int row, const unsigned char *block) {
    const struct kvt_q5_1_block *b = (const void *)block;
    memcpy(unit + 2 * row, b->d, 2);
    memcpy(unit + 2 * (KVT_STRIP_ROWS + row), b->m, 2);
    for (int k = 0; k < 4; k++) kvt_strip_put(unit + SCALES, k, row, kvt_strip_word(b->q + 4 * k));
    kvt_strip_put(unit + SCALES, 4, row, kvt_strip_fifths(b->high));
}

static void pack(unsigned char *strip, const unsigned char *rows, size_t row_bytes, int n_rows, int64_t n_blocks) {
    kvt_strip_pack(strip, rows, row_bytes, n_rows, n_blocks, UNIT, sizeof(struct kvt_q5_1_block), put);
}

static const struct kvt_weight_codes codes = {32, true, split, UNIT, pack};
KVT_WEIGHT_CODE_KERNELS(q5_1);
extern const struct kvt_weight_type kvt_weight_q5_1;
const struct kvt_weight_type kvt_weight_q5_1 = {
    .gguf_type = 7,
    .block_len = 32,
    .block_bytes = sizeof(struct kvt_q5_1_block),
    .codes = &codes,
    .at = KVT_WEIGHT_CODE_CELLS(q5_1),
};
