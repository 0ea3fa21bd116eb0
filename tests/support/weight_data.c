/* SPDX-License-Identifier: Apache-2.0 */
#include "support/weight_data.h"

#include <string.h>

static const struct weight_layout layouts[] = {
    {"F32", 1, 4, {-1, -1}},    {"F16", 1, 2, {0, -1}},     {"BF16", 1, 2, {-1, -1}},      {"Q8_0", 32, 34, {0, -1}},
    {"Q4_0", 32, 18, {0, -1}},  {"Q4_1", 32, 20, {0, 2}},   {"Q5_0", 32, 22, {0, -1}},     {"Q5_1", 32, 24, {0, 2}},
    {"Q4_K", 256, 144, {0, 2}}, {"Q5_K", 256, 176, {0, 2}}, {"Q6_K", 256, 210, {208, -1}},
};

const struct weight_layout *weight_layout_find(const char *name) {
    for (size_t i = 0; i < KVT_ARRAY_LEN(layouts); i++)
        if (strcmp(layouts[i].name, name) == 0) return &layouts[i];
    return NULL;
}

static uint16_t scale(struct kvt_rng *rng, int i) {
    static const uint16_t extreme[] = {0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x0000, 0x8000};
    uint16_t h = (uint16_t)kvt_rng_u64(rng);
    if ((h & 0x7C00) == 0x7C00) h ^= 0x4000;
    return i % 4 == 3 ? extreme[i / 4 % 8] : h;
}

void weight_data_fill(unsigned char *dst, const struct weight_layout *layout, int n, uint64_t seed) {
    struct kvt_rng rng = {seed};
    for (int i = 0; i < n; i++, dst += layout->block_bytes) {
        if (layout->block_len == 1) {
            const uint64_t r = kvt_rng_u64(&rng);
            const uint32_t bits = (uint32_t)r & 0xBFFFFFFFu;
            const uint16_t high = (uint16_t)(bits >> 16), half = scale(&rng, i);
            if (layout->block_bytes == 4)
                memcpy(dst, &bits, 4);
            else
                memcpy(dst, layout->half[0] < 0 ? &high : &half, 2);
            continue;
        }
        for (int j = 0; j < layout->block_bytes; j++) dst[j] = i < 256 ? (uint8_t)i : (uint8_t)kvt_rng_u64(&rng);
        for (int k = 0; k < 2 && layout->half[k] >= 0; k++) {
            const uint16_t h = scale(&rng, i + k);
            memcpy(dst + layout->half[k], &h, 2);
        }
    }
}
