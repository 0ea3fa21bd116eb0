/* SPDX-License-Identifier: Apache-2.0
 *
 * The block types by their definitions (GGML's): f16 scale d, f16 minimum m, quants q; a value is d * q or d * q + m.
 * GGML rounds each value to float, and so does this: the oracle is exact on the weights as every reader sees them.
 */
#include "support/oracle_weight.h"

#include <string.h>

#include "base/half.h"

static float f32_at(const unsigned char *p) {
    float x;
    memcpy(&x, p, 4);
    return x;
}

static uint16_t u16_at(const unsigned char *p) { return (uint16_t)(p[0] | p[1] << 8); }
static float f16_at(const unsigned char *p) { return kvt_f32_from_f16(u16_at(p)); }

/* Nibble i of 32: the low halves of 16 bytes come first. */
static int nibble(const unsigned char *p, int i) { return i < 16 ? p[i] & 15 : p[i - 16] >> 4; }

/* Element i of a block. */
typedef float (*element_fn)(const unsigned char *block, int i);

static float f32(const unsigned char *b, int i) { return f32_at(b + 4 * i); }
static float f16(const unsigned char *b, int i) { return f16_at(b + 2 * i); }
static float bf16(const unsigned char *b, int i) { return kvt_f32_from_bf16(u16_at(b + 2 * i)); }
static float q8_0(const unsigned char *b, int i) { return f16_at(b) * (float)(int8_t)b[2 + i]; }
static float q4_0(const unsigned char *b, int i) { return f16_at(b) * (float)(nibble(b + 2, i) - 8); }
static float q4_1(const unsigned char *b, int i) { return f16_at(b) * (float)nibble(b + 4, i) + f16_at(b + 2); }

static element_fn element_of(uint32_t type) {
    switch (type) {
    case 0: return f32;
    case 1: return f16;
    case 30: return bf16;
    case 8: return q8_0;
    case 2: return q4_0;
    case 3: return q4_1;
    default: return NULL;
    }
}

bool kvt_oracle_type_known(const struct kvt_gguf_type *type) { return element_of(type->id) != NULL; }

void kvt_oracle_row(double *dst, const struct kvt_gguf_tensor *tensor, int64_t i) {
    const element_fn element = element_of(tensor->type->id);
    const int64_t n_blocks = tensor->dims[0] / tensor->type->block_len;
    const unsigned char *block = tensor->data + (size_t)(i * n_blocks) * tensor->type->block_bytes;
    for (int64_t b = 0; b < n_blocks; b++, block += tensor->type->block_bytes)
        for (int k = 0; k < tensor->type->block_len; k++) *dst++ = element(block, k);
}
