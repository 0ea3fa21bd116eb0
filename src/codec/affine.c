/* SPDX-License-Identifier: Apache-2.0
 *
 * affine: mlx-lm's scheme, codes per token on both sides, in groups of channels.
 *
 * The arithmetic is that of MLX's quantize (0.32): fp32, one rounding per operation, true division. Code 0 is the extreme of larger
 * magnitude, so a scale may be negative; the scale is nudged so that zero is a code; codes come from the scale before it is rounded to
 * f16; the zero is an element of the group or 0, so f16 holds it exactly.
 *
 * MLX's backends differ. `affine4g64` is its CPU backend: ties to even. `affine4g64-metal` is its Metal kernels, as their source
 * reads: ties away from zero, and a largest element below 0 counts as 0, so that groups of negative numbers waste codes.
 */
#include <math.h>

#include "base/half.h"
#include "codec/affine.h"
#include "codec/per_token.h"

static void encode_group(const struct kvt_group *g, const float *x, bool metal) {
    const float top = (float)((1 << g->tile->format.bits) - 1);
    float lo = x[0], hi = x[0];
    for (int i = 1; i < g->n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    if (metal && hi < 0) hi = 0;
    const struct kvt_affine a = kvt_affine_fit_ties(lo, hi, top, metal);
    uint8_t codes[KVT_TILE_ROWS];
    for (int i = 0; i < g->n; i++) {
        const float x_steps = (x[i] - a.zero) / a.scale, code = metal ? roundf(x_steps) : rintf(x_steps);
        codes[i] = (uint8_t)(code < 0 ? 0 : code > top ? top : code);
    }
    kvt_group_put_zero(g, kvt_f16_from_f32(a.zero));
    kvt_group_put(g, kvt_f16_from_f32(a.scale), codes);
}

static void encode_group_cpu(const struct kvt_group *g, const float *x) { encode_group(g, x, false); }
static void encode_group_metal(const struct kvt_group *g, const float *x) { encode_group(g, x, true); }

static void encode(const struct kvt_encode_args *a) { kvt_encode_groups(a, encode_group_cpu); }
static void encode_metal(const struct kvt_encode_args *a) { kvt_encode_groups(a, encode_group_metal); }

extern const struct kvt_encoder kvt_encoder_affine, kvt_encoder_affine_metal;

#define ROW(b, g, suffix, id, text, arithmetic)                                                                        \
    {                                                                                                                  \
        .info = {.name = "affine" #b "g" #g suffix,                                                                    \
                 .about = text,                                                                                        \
                 .source = "MLX 0.32 quantize (" arithmetic " arithmetic), mlx-lm QuantizedKVCache",                   \
                 .bits = b,                                                                                            \
                 .group = g,                                                                                           \
                 .granularity = 1},                                                                                    \
        .encoder = &kvt_encoder_##id, .format = {                                                                      \
            .bits = b,                                                                                                 \
            .has_zero = true,                                                                                          \
            .group = g,                                                                                                \
            .per_token = true                                                                                          \
        }                                                                                                              \
    }
#define GROUPS(b, ...) ROW(b, 64, __VA_ARGS__), ROW(b, 32, __VA_ARGS__), ROW(b, 128, __VA_ARGS__)
#define ROWS(...)                                                                                                      \
    GROUPS(2, __VA_ARGS__), GROUPS(3, __VA_ARGS__), GROUPS(4, __VA_ARGS__), GROUPS(5, __VA_ARGS__),                    \
        GROUPS(6, __VA_ARGS__), GROUPS(8, __VA_ARGS__)

static const struct kvt_codec codecs[] = {
    ROWS("", affine, "per token, scale and zero per group of channels: mlx-lm's scheme, equal codes", "CPU")};
static const struct kvt_codec metal_codecs[] = {
    ROWS("-metal", affine_metal, "affine with the rounding of MLX's Metal kernels", "Metal")};

const struct kvt_encoder kvt_encoder_affine = {.grammar = "affine{2,3,4,5,6,8}g{32,64,128}",
                                               .codecs = codecs,
                                               .n_codecs = KVT_ARRAY_LEN(codecs),
                                               .encode = encode};
const struct kvt_encoder kvt_encoder_affine_metal = {.grammar = "affine{2,3,4,5,6,8}g{32,64,128}-metal",
                                                     .codecs = metal_codecs,
                                                     .n_codecs = KVT_ARRAY_LEN(metal_codecs),
                                                     .encode = encode_metal};
