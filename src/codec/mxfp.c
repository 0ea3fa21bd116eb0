/* SPDX-License-Identifier: Apache-2.0
 *
 * mxfp8, mxfp4, nvfp4: small floats with a shared scale, per token, with the bytes of MLX 0.32's modes of these names (its CPU
 * backend).
 *
 *   mxfp8, mxfp4  groups of 32; the scale is the smallest power of two that is not below largest magnitude / 448 (6), so that
 *                 nothing is cut. The OCP specification's own rule rounds down. A group of zeros has scale 1.
 *   nvfp4         groups of 16; the scale is largest magnitude / 6 as e4m3, to nearest even. There is no tensor scale: a group
 *                 whose magnitudes are all below 0.0058 becomes 0, and what is beyond 2688 is cut.
 *   e4m3          to nearest even, the sign of a zero kept
 *   e2m1          to nearest, a tie to the smaller magnitude, a negative zero becomes positive; MLX's Metal backend takes ties to
 *                 the even code
 *
 * MLX takes a logarithm in f32 for the power of two; here it is exact. The two part only where the quotient lies above a power
 * of two by less than that logarithm's rounding, as no f16 row makes it.
 */
#include <math.h>

#include "base/half.h"
#include "codec/per_token.h"

static const float e2m1[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

static uint8_t e2m1_from_f32(float x) {
    static const float middles[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5};
    int code = 0;
    for (size_t i = 0; i < KVT_ARRAY_LEN(middles); i++) code += fabsf(x) > middles[i];
    return (uint8_t)(code != 0 && x < 0 ? code | 8 : code);
}

static void encode_group(const struct kvt_group *g, const float *x) {
    const struct kvt_format *format = &g->tile->format;
    const bool e4m3 = format->meaning == KVT_MEANING_E4M3, nv = format->scale == KVT_SCALE_E4M3;
    float most = 0;
    for (int i = 0; i < g->n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    const float target = most / (e4m3 ? 448.0f : 6.0f);
    const uint8_t stored = nv ? kvt_e4m3_from_f32(target) : most > 0 ? kvt_e8m0_above_f32(target) : 127;
    const float scale = nv ? kvt_f32_from_e4m3(stored) : kvt_f32_from_e8m0(stored);
    uint8_t codes[KVT_BLOCK_LANES];
    for (int i = 0; i < g->n; i++) {
        const float v = scale > 0 ? x[i] / scale : 0;
        codes[i] = e4m3 ? kvt_e4m3_from_f32(v) : e2m1_from_f32(v);
    }
    kvt_group_put(g, stored, codes);
}

static void encode(const struct kvt_encode_args *a) { kvt_encode_groups(a, encode_group); }

extern const struct kvt_encoder kvt_encoder_mxfp;

#define ROW(id, width, size, kind, values, stored, text)                                                               \
    {                                                                                                                  \
        .info = {.name = id,                                                                                           \
                 .about = text,                                                                                        \
                 .source = "MLX 0.32 quantize, mode " id " (CPU arithmetic)",                                          \
                 .bits = width,                                                                                        \
                 .group = size,                                                                                        \
                 .granularity = 1},                                                                                    \
        .encoder = &kvt_encoder_mxfp, .format = {                                                                      \
            .meaning = kind,                                                                                           \
            .table = values,                                                                                           \
            .bits = width,                                                                                             \
            .scale = stored,                                                                                           \
            .group = size,                                                                                             \
            .per_token = true                                                                                          \
        }                                                                                                              \
    }

static const struct kvt_codec codecs[] = {
    ROW("mxfp8", 8, 32, KVT_MEANING_E4M3, NULL, KVT_SCALE_E8M0, "8-bit floats, a power of two per 32 channels"),
    ROW("mxfp4", 4, 32, KVT_MEANING_TABLE, e2m1, KVT_SCALE_E8M0, "4-bit floats, a power of two per 32 channels"),
    ROW("nvfp4", 4, 16, KVT_MEANING_TABLE, e2m1, KVT_SCALE_E4M3, "4-bit floats, an 8-bit float scale per 16 channels"),
};

const struct kvt_encoder kvt_encoder_mxfp = {
    .grammar = "mxfp{8,4}, nvfp4",
    .codecs = codecs,
    .n_codecs = KVT_ARRAY_LEN(codecs),
    .encode = encode,
};
