/* SPDX-License-Identifier: Apache-2.0 */
#include "weight/q8_0.h"

#include "weight/strip.h"

static void split(int8_t *code, float *scale, float *min, const unsigned char *block) {
    const struct kvt_q8_0_block *b = (const void *)block;
    (void)min;
    *scale = kvt_f16_at(b->d);
    for (int j = 0; j < 32; j++) code[j] = (int8_t)(b->q[j]);
}

enum { SCALES = 32, UNIT = SCALES + 512 };

static void put(unsigned char *unit, int row, const unsigned char *block) {
    const struct kvt_q8_0_block *b = (const void *)block;
    memcpy(unit + 2 * row, b->d, 2);
    for (int k = 0; k < 8; k++) {
        const uint32_t word = kvt_strip_word((const unsigned char *)b->q + 4 * k);
        kvt_strip_put(unit + SCALES, k, row, word ^ 0x80808080u); /* 128 more */
    }
}

static void pack(unsigned char *strip, const unsigned char *rows, size_t row_bytes, int n_rows, int64_t n_blocks) {
    kvt_strip_pack(strip, rows, row_bytes, n_rows, n_blocks, UNIT, sizeof(struct kvt_q8_0_block), put);
}

static const struct kvt_weight_codes codes = {32, false, split, UNIT, pack};
KVT_WEIGHT_CODE_KERNELS(q8_0);
extern const struct kvt_weight_type kvt_weight_q8_0;
const struct kvt_weight_type kvt_weight_q8_0 = {
    .gguf_type = 8,
    .block_len = 32,
    .block_bytes = sizeof(struct kvt_q8_0_block),
    .codes = &codes,
    .at = KVT_WEIGHT_CODE_CELLS(q8_0),
};
