/* SPDX-License-Identifier: Apache-2.0
 *
 * iq4_nl: llama.cpp's cache type with 16 unequal levels, codes per token in groups of 32 channels; iq4_nl-rot for rotated rows.
 *
 * The arithmetic is that of its reference for caches (quantize_row_iq4_nl_ref, which searches no scale): codes from the scale
 * that puts the element of largest magnitude on the lowest level, then the least-squares scale for these codes, elements
 * weighted by their squares. fp32, one rounding per operation; a tie between two levels takes the upper one. A group below
 * 1e-15 has scale 0; its codes, which llama.cpp leaves undefined, are 8.
 */
#include <math.h>

#include "base/half.h"
#include "codec/per_token.h"

enum { N_LEVELS = 16, NEAR_ZERO = 8 };

static const float levels[N_LEVELS] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* The level nearest to x. */
static uint8_t nearest(float x) {
    if (x <= levels[0]) return 0;
    int upper = 1;
    while (upper < N_LEVELS - 1 && x >= levels[upper]) upper++;
    return (uint8_t)(x - levels[upper - 1] < levels[upper] - x ? upper - 1 : upper);
}

static void encode_group(const struct kvt_group *g, const float *x) {
    uint8_t codes[KVT_BLOCK_LANES];
    float edge = 0;
    for (int i = 0; i < g->n; i++) edge = fabsf(x[i]) > fabsf(edge) ? x[i] : edge;
    if (fabsf(edge) < 1e-15f) {
        memset(codes, NEAR_ZERO, sizeof codes);
        kvt_group_put(g, 0, codes);
        return;
    }
    const float inverse = 1 / (edge / levels[0]);
    float dot = 0, square = 0;
    for (int i = 0; i < g->n; i++) {
        codes[i] = nearest(inverse * x[i]);
        const float level = levels[codes[i]], weight = x[i] * x[i];
        dot += weight * level * x[i];
        square += weight * level * level;
    }
    kvt_group_put(g, kvt_f16_from_f32(dot / square), codes);
}

static void encode(const struct kvt_encode_args *a) { kvt_encode_groups(a, encode_group); }

extern const struct kvt_encoder kvt_encoder_iq4_nl;

#define ROW(ending, is_rotated, text)                                                                                  \
    {                                                                                                                  \
        .info = {.name = "iq4_nl" ending,                                                                              \
                 .about = text,                                                                                        \
                 .source = "llama.cpp, quantize_row_iq4_nl_ref",                                                       \
                 .bits = 4,                                                                                            \
                 .group = 32,                                                                                          \
                 .granularity = 1},                                                                                    \
        .encoder = &kvt_encoder_iq4_nl, .format = {                                                                    \
            .meaning = KVT_MEANING_TABLE,                                                                              \
            .table = levels,                                                                                           \
            .bits = 4,                                                                                                 \
            .group = 32,                                                                                               \
            .per_token = true,                                                                                         \
            .rotated = is_rotated                                                                                      \
        }                                                                                                              \
    }

static const struct kvt_codec codecs[] = {
    ROW("", false, "per token, 16 unequal levels, a scale per 32 channels: llama.cpp's type, not rotated"),
    ROW("-rot", true, "per token, 16 unequal levels, a scale per 32 channels, rows rotated: llama.cpp's default"),
};

const struct kvt_encoder kvt_encoder_iq4_nl = {
    .grammar = "iq4_nl[-rot]",
    .codecs = codecs,
    .n_codecs = KVT_ARRAY_LEN(codecs),
    .encode = encode,
};
