/* SPDX-License-Identifier: Apache-2.0
 *
 * fp8e4m3, fp8e5m2: elements as 8-bit floats (OCP 8-bit floating point, revision 1.0), to nearest even, saturating at 448 and
 * 57344. Without a scale, as vLLM and TensorRT-LLM store them where nothing was calibrated: larger keys are cut. With -row an
 * f32 scale for each row of each head, largest magnitude / 448 (57344), as vLLM's fp8_per_token_head; nothing is cut.
 */
#include <math.h>

#include "base/half.h"
#include "codec/per_token.h"

static void encode_group(const struct kvt_group *g, const float *x) {
    const struct kvt_format *format = &g->tile->format;
    const bool e4m3 = format->meaning == KVT_MEANING_E4M3;
    float scale = 1;
    if (format->scale == KVT_SCALE_F32) {
        float most = 0;
        for (int i = 0; i < g->n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
        scale = most / (e4m3 ? 448.0f : 57344.0f);
    }
    uint8_t codes[KVT_LATENT_MAX];
    for (int i = 0; i < g->n; i++) {
        const float v = scale > 0 ? x[i] / scale : 0;
        codes[i] = e4m3 ? kvt_e4m3_from_f32(v) : kvt_e5m2_from_f32(v);
    }
    kvt_group_put(g, kvt_f32_bits(scale), codes);
}

static void encode(const struct kvt_encode_args *a) { kvt_encode_groups(a, encode_group); }

extern const struct kvt_encoder kvt_encoder_fp8;

#define ROW(type, kind, ending, stored, text)                                                                          \
    {                                                                                                                  \
        .info = {.name = "fp8" type ending,                                                                            \
                 .about = text,                                                                                        \
                 .source = "OCP OFP8; vLLM's KV cache types",                                                          \
                 .bits = 8,                                                                                            \
                 .granularity = 1},                                                                                    \
        .encoder = &kvt_encoder_fp8, .format = {                                                                       \
            .meaning = kind,                                                                                           \
            .bits = 8,                                                                                                 \
            .scale = stored,                                                                                           \
            .per_token = true                                                                                          \
        }                                                                                                              \
    }
#define ROWS(type, kind, most)                                                                                         \
    ROW(type, kind, "", KVT_SCALE_NONE, "8-bit floats, scale 1: what is beyond " most " is cut"),                      \
        ROW(type, kind, "-row", KVT_SCALE_F32, "8-bit floats, an f32 scale per token and head")

static const struct kvt_codec codecs[] = {ROWS("e4m3", KVT_MEANING_E4M3, "448"),
                                          ROWS("e5m2", KVT_MEANING_E5M2, "57344")};

const struct kvt_encoder kvt_encoder_fp8 = {
    .grammar = "fp8{e4m3,e5m2}[-row]",
    .codecs = codecs,
    .n_codecs = KVT_ARRAY_LEN(codecs),
    .encode = encode,
};
