/* SPDX-License-Identifier: Apache-2.0
 *
 * turbo: TurboQuant's MSE form (Zandieh et al., arXiv 2504.19874; DRIVE and EDEN came before it). A row is rotated, which makes
 * its elements nearly Gaussian, and each is rounded to the nearest of the 2^b levels that lose the least of a Gaussian of the row's
 * root mean square (Lloyd and Max). One f16 scale for the row.
 *
 * What differs from the paper: the rotation is kvt_rotate, without random signs; levels are the Gaussian's at every head size;
 * the scale is corrected so that the decoded row has the length of the row (the paper's comes out too short).
 */
#include <math.h>

#include "base/half.h"
#include "codec/per_token.h"

/* Lloyd-Max levels of the unit Gaussian, which tests/unit/test_codec_turbo.c computes anew. */
#define SYMMETRIC_2(a, b)       -b, -a, a, b
#define SYMMETRIC_4(a, b, c, d) -d, -c, -b, -a, a, b, c, d
static const float levels2[] = {SYMMETRIC_2(0.452780035f, 1.510417608f)};
static const float levels3[] = {SYMMETRIC_4(0.245094179f, 0.756005281f, 1.343909279f, 2.151945705f)};
static const float levels4[] = {-2.732589571f, -2.069017227f, -1.618046386f, -1.256231197f,
                                -0.942340456f, -0.656759119f, -0.388048299f, -0.128395030f,
                                0.128395030f,  0.388048299f,  0.656759119f,  0.942340456f,
                                1.256231197f,  1.618046386f,  2.069017227f,  2.732589571f};

/* Sums of products in an order that vectors can follow: 32 lanes, lane i takes elements i, i + 32, ..., then lanes are added at
 * distances 16, 8, 4, 2, 1. */
static float dot(const float *a, const float *b, int n) {
    float lanes[KVT_BLOCK_LANES] = {0};
    for (int i = 0; i < n; i++) lanes[i % KVT_BLOCK_LANES] += a[i] * b[i];
    for (int step = KVT_BLOCK_LANES / 2; step > 0; step /= 2)
        for (int i = 0; i < step; i++) lanes[i] += lanes[i + step];
    return lanes[0];
}

static void encode_group(const struct kvt_group *g, const float *x) {
    const float *levels = g->tile->format.table;
    const int n_levels = 1 << g->tile->format.bits;
    const float square = dot(x, x, g->n), rms = sqrtf(square / (float)g->n);
    uint8_t codes[KVT_LATENT_MAX] = {0};
    for (int k = 1; k < n_levels; k++) {
        const float middle = (levels[k - 1] + levels[k]) / 2 * rms;
        for (int i = 0; i < g->n; i++) codes[i] = (uint8_t)(codes[i] + (x[i] > middle));
    }
    float near[KVT_LATENT_MAX];
    for (int i = 0; i < g->n; i++) near[i] = levels[codes[i]];
    kvt_group_put(g, kvt_f16_from_f32(sqrtf(square / dot(near, near, g->n))), codes);
}

static void encode(const struct kvt_encode_args *a) { kvt_encode_groups(a, encode_group); }

extern const struct kvt_encoder kvt_encoder_turbo;

#define ROW(b)                                                                                                         \
    {                                                                                                                  \
        .info = {.name = "turbo" #b,                                                                                   \
                 .about = "rows rotated, Gaussian levels, a scale per token and head: TurboQuant's MSE form",          \
                 .source = "Zandieh et al., TurboQuant, ICLR 2026 (Algorithm 1), norm corrected",                      \
                 .bits = b,                                                                                            \
                 .granularity = 1},                                                                                    \
        .encoder = &kvt_encoder_turbo, .format = {                                                                     \
            .meaning = KVT_MEANING_TABLE,                                                                              \
            .table = levels##b,                                                                                        \
            .bits = b,                                                                                                 \
            .per_token = true,                                                                                         \
            .rotated = true                                                                                            \
        }                                                                                                              \
    }

static const struct kvt_codec codecs[] = {ROW(2), ROW(3), ROW(4)};

const struct kvt_encoder kvt_encoder_turbo = {
    .grammar = "turbo{2,3,4}",
    .codecs = codecs,
    .n_codecs = KVT_ARRAY_LEN(codecs),
    .encode = encode,
};
