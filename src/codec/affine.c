/* SPDX-License-Identifier: Apache-2.0
 *
 * affine: mlx-lm's scheme, codes per token on both sides, in groups of channels.
 *
 * The arithmetic is that of MLX's quantize on its CPU backend (0.32): fp32, one rounding per operation, true division, ties to
 * even. Code 0 is the extreme of larger magnitude, so a scale may be negative; the scale is nudged so that zero is a code; codes
 * come from the scale before it is rounded to f16; the zero is an element of the group or 0, so f16 holds it exactly.
 */
#include <math.h>

#include "base/attr.h"
#include "base/half.h"
#include "codec/affine.h"
#include "codec/codec.h"

static void describe(const struct kvt_codec *codec, enum kvt_side side, int d, struct kvt_tile *out) {
    kvt_tile_init(out, side, d,
                  &(struct kvt_format){
                      .bits = codec->info.bits, .has_zero = true, .group = codec->info.group, .per_token = true});
}

static struct kvt_affine fit(const float *x, int n, float top) {
    float lo = x[0], hi = x[0];
    for (int i = 1; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    return kvt_affine_fit(lo, hi, top);
}

static void encode_row(const struct kvt_codec *codec, const struct kvt_tile *tile, void *bytes, int row,
                       const float *x) {
    const bool is_k = tile->side == KVT_SIDE_K;
    const int d = kvt_tile_row_size(tile), group = codec->info.group;
    const float top = (float)((1 << tile->format.bits) - 1);
    for (int c0 = 0; c0 < d; c0 += group) {
        const int end = KVT_MIN(c0 + group, d);
        const struct kvt_affine a = fit(x + c0, end - c0, top);
        const int term = is_k ? c0 : row, lane = is_k ? row : c0;
        kvt_tile_put_scale(tile, bytes, term, lane, kvt_f16_from_f32(a.scale));
        kvt_tile_put_zero(tile, bytes, term, lane, kvt_f16_from_f32(a.zero));
        uint8_t codes[KVT_TILE_ROWS];
        for (int c = c0; c < end; c++) {
            const float code = rintf((x[c] - a.zero) / a.scale);
            codes[c - c0] = (uint8_t)(code < 0 ? 0 : code > top ? top : code);
        }
        kvt_tile_put_codes(tile, bytes, term, lane, is_k, !is_k, codes, end - c0);
    }
}

static void encode(const struct kvt_encode_args *a) {
    for (int r = 0; r < a->n; r++) encode_row(a->codec, a->tile, a->bytes, a->first + r, a->rows + r * a->stride);
}

extern const struct kvt_encoder kvt_encoder_affine;

#define ROW(b, g)                                                                                                      \
    {                                                                                                                  \
        .info = {.name = "affine" #b "g" #g,                                                                           \
                 .about = "per token, scale and zero per group of channels: mlx-lm's scheme, equal codes",             \
                 .source = "MLX 0.32 quantize (CPU arithmetic), mlx-lm QuantizedKVCache",                              \
                 .bits = b,                                                                                            \
                 .group = g,                                                                                           \
                 .granularity = 1},                                                                                    \
        .encoder = &kvt_encoder_affine                                                                                 \
    }
#define ROWS(b) ROW(b, 64), ROW(b, 32), ROW(b, 128)

static const struct kvt_codec codecs[] = {ROWS(2), ROWS(3), ROWS(4), ROWS(5), ROWS(6), ROWS(8)};

const struct kvt_encoder kvt_encoder_affine = {
    .grammar = "affine{2,3,4,5,6,8}g{32,64,128}",
    .codecs = codecs,
    .n_codecs = KVT_ARRAY_LEN(codecs),
    .describe = describe,
    .encode = encode,
};
