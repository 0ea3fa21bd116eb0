/* SPDX-License-Identifier: Apache-2.0
 *
 * q8_0, q5_0, q4_0: llama.cpp's cache types with a scale and no zero, codes per token in groups of 32 channels; q8_0-rot and
 * so on are the same for rotated rows, as llama.cpp keeps quantized caches by default since b8628 (over blocks of 64 where a
 * head of V is larger; here over the whole head).
 *
 * The arithmetic is that of its reference (quantize_row_q8_0_ref and so on, equal to the gguf package): fp32, one rounding
 * per operation, the f16 rounding of the scale does not reach the codes. q8_0: largest magnitude / 127, ties away from zero;
 * llama.cpp's AVX2 encoder takes ties to even and differs there. q5_0, q4_0: the element of largest magnitude, the first of
 * equals, becomes the lowest code, so a scale may be negative; ties go up.
 */
#include <float.h>
#include <math.h>

#include "base/half.h"
#include "codec/per_token.h"

/* To the nearest integer, ties away from zero; |x| is small. */
static int round_away(float x) {
    const int whole = (int)x;
    const float rest = x - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

static void encode_group(const struct kvt_group *g, const float *x) {
    const int bits = g->tile->format.bits, middle = 1 << (bits - 1);
    float edge = 0;
    for (int i = 0; i < g->n; i++) edge = fabsf(x[i]) > fabsf(edge) ? x[i] : edge;
    const float scale = bits == 8 ? fabsf(edge) / 127 : edge / (float)-middle;
    float inverse = scale != 0 ? 1 / scale : 0;
    if (fabsf(inverse) > FLT_MAX) inverse = 0; /* subnormal: nothing of it is left in f16 */
    uint8_t codes[KVT_BLOCK_LANES];
    for (int i = 0; i < g->n; i++) {
        const float v = x[i] * inverse;
        const int code = bits == 8 ? middle + round_away(v) : (int)(v + ((float)middle + 0.5f));
        codes[i] = (uint8_t)KVT_MIN(code, 2 * middle - 1);
    }
    kvt_group_put(g, kvt_f16_from_f32(scale), codes);
}

static void encode(const struct kvt_encode_args *a) { kvt_encode_groups(a, encode_group); }

extern const struct kvt_encoder kvt_encoder_q_0;

#define ROW(b, ending, is_rotated, text)                                                                               \
    {                                                                                                                  \
        .info = {.name = "q" #b "_0" ending,                                                                           \
                 .about = text,                                                                                        \
                 .source = "llama.cpp, quantize_row_q" #b "_0_ref",                                                    \
                 .bits = b,                                                                                            \
                 .group = 32,                                                                                          \
                 .granularity = 1},                                                                                    \
        .encoder = &kvt_encoder_q_0, .format = {                                                                       \
            .bits = b,                                                                                                 \
            .offset = 1 << ((b)-1),                                                                                    \
            .group = 32,                                                                                               \
            .per_token = true,                                                                                         \
            .rotated = is_rotated                                                                                      \
        }                                                                                                              \
    }
#define ROWS(b)                                                                                                        \
    ROW(b, "", false, "per token, a scale per 32 channels: llama.cpp's type, not rotated"),                            \
        ROW(b, "-rot", true, "per token, a scale per 32 channels, rows rotated: llama.cpp's default")

static const struct kvt_codec codecs[] = {ROWS(8), ROWS(5), ROWS(4)};

const struct kvt_encoder kvt_encoder_q_0 = {
    .grammar = "q{8,5,4}_0[-rot]",
    .codecs = codecs,
    .n_codecs = KVT_ARRAY_LEN(codecs),
    .encode = encode,
};
