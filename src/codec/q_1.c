/* SPDX-License-Identifier: Apache-2.0
 *
 * q5_1, q4_1: llama.cpp's cache types with a scale and a minimum, codes per token in groups of 32 channels; q5_1-rot and
 * q4_1-rot for rotated rows.
 *
 * The arithmetic is that of its reference (quantize_row_q5_1_ref, quantize_row_q4_1_ref, equal to the gguf package): fp32, one
 * rounding per operation, ties go up; codes come from scale and minimum before they are rounded to f16.
 */
#include <float.h>

#include "base/half.h"
#include "codec/per_token.h"

static void encode_group(const struct kvt_group *g, const float *x) {
    const int top = (1 << g->tile->format.bits) - 1;
    float lo = x[0], hi = x[0];
    for (int i = 1; i < g->n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    const float scale = (hi - lo) / (float)top;
    float inverse = scale != 0 ? 1 / scale : 0;
    if (inverse > FLT_MAX) inverse = 0; /* subnormal: nothing of it is left in f16 */
    uint8_t codes[KVT_BLOCK_LANES];
    for (int i = 0; i < g->n; i++) {
        const int code = (int)((x[i] - lo) * inverse + 0.5f);
        codes[i] = (uint8_t)KVT_MIN(code, top);
    }
    kvt_group_put(g, kvt_f16_from_f32(scale), codes);
    kvt_group_put_zero(g, kvt_f16_from_f32(lo));
}

static void encode(const struct kvt_encode_args *a) { kvt_encode_groups(a, encode_group); }

extern const struct kvt_encoder kvt_encoder_q_1;

#define ROW(b, ending, is_rotated, text)                                                                               \
    {                                                                                                                  \
        .info = {.name = "q" #b "_1" ending,                                                                           \
                 .about = text,                                                                                        \
                 .source = "llama.cpp, quantize_row_q" #b "_1_ref",                                                    \
                 .bits = b,                                                                                            \
                 .group = 32,                                                                                          \
                 .granularity = 1},                                                                                    \
        .encoder = &kvt_encoder_q_1, .format = {                                                                       \
            .bits = b,                                                                                                 \
            .has_zero = true,                                                                                          \
            .group = 32,                                                                                               \
            .per_token = true,                                                                                         \
            .rotated = is_rotated                                                                                      \
        }                                                                                                              \
    }
#define ROWS(b)                                                                                                        \
    ROW(b, "", false, "per token, scale and minimum per 32 channels: llama.cpp's type, not rotated"),                  \
        ROW(b, "-rot", true, "per token, scale and minimum per 32 channels, rows rotated: llama.cpp's default")

static const struct kvt_codec codecs[] = {ROWS(5), ROWS(4)};

const struct kvt_encoder kvt_encoder_q_1 = {
    .grammar = "q{5,4}_1[-rot]",
    .codecs = codecs,
    .n_codecs = KVT_ARRAY_LEN(codecs),
    .encode = encode,
};
