/* SPDX-License-Identifier: Apache-2.0
 *
 * f32, f16, bf16: rows as numbers. Rounding is to nearest even.
 */
#include "codec/codec.h"

static void encode(const struct kvt_encode_args *a) {
    for (int r = 0; r < a->n; r++) kvt_tile_put_numbers(a->tile, a->bytes, a->first + r, a->rows + r * a->stride);
}

#define PLAIN(id, number, width, text)                                                                                 \
    static void describe_##id(const struct kvt_codec *codec, enum kvt_side side, int d, struct kvt_tile *out) {        \
        (void)codec;                                                                                                   \
        kvt_tile_init_plain(out, side, d, number);                                                                     \
    }                                                                                                                  \
    extern const struct kvt_encoder kvt_encoder_##id;                                                                  \
    static const struct kvt_codec codec_##id = {.info = {.name = #id,                                                  \
                                                         .about = text,                                                \
                                                         .source = "IEEE 754, bfloat16",                               \
                                                         .bits = width,                                                \
                                                         .granularity = 1,                                             \
                                                         .plain = true},                                               \
                                                .encoder = &kvt_encoder_##id};                                         \
    const struct kvt_encoder kvt_encoder_##id = {                                                                      \
        .grammar = #id, .codecs = &codec_##id, .n_codecs = 1, .describe = describe_##id, .encode = encode}

PLAIN(f32, KVT_NUMBER_F32, 32, "32-bit floats: nothing is rounded");
PLAIN(f16, KVT_NUMBER_F16, 16, "16-bit floats: the baseline");
PLAIN(bf16, KVT_NUMBER_BF16, 16, "16-bit brain floats: f32's range, 8 bits of precision");
