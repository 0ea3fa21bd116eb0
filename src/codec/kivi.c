/* SPDX-License-Identifier: Apache-2.0
 *
 * kivi: keys per channel in groups of tokens, values per token in groups of channels (Liu et al., "KIVI: A Tuning-Free
 * Asymmetric 2bit Quantization for KV Cache", ICML 2024). Keys of models with biased keys survive, since a channel's constant
 * goes into its zero.
 *
 * Minimum and range of the group; scale and zero are rounded to f16 before codes are computed, the zero downwards, so that
 * codes absorb its rounding even when keys carry a bias of hundreds. A code is (x - zero) times the rounded inverse of the scale,
 * ties to even, no fused operation.
 */
#include <math.h>

#include "base/attr.h"
#include "base/half.h"
#include "codec/codec.h"
#include "codec/kivi.h"

static void describe(const struct kvt_codec *codec, enum kvt_side side, int d, struct kvt_tile *out) {
    kvt_tile_init(
        out, side, d,
        &(struct kvt_format){
            .bits = codec->info.bits, .has_zero = true, .group = codec->info.group, .per_token = side == KVT_SIDE_V});
}

/* At most 128 elements that share a scale: element i at x[i * step], term `term`, lane `lane` + i. */
struct group {
    const float *x;
    ptrdiff_t step;
    int n, term, lane;
};

static void encode_group(const struct kvt_tile *tile, void *bytes, const struct group *g) {
    const float top = (float)((1 << tile->format.bits) - 1);
    float lo = g->x[0], hi = g->x[0];
    for (int i = 1; i < g->n; i++) {
        const float v = g->x[i * g->step];
        lo = v < lo ? v : lo;
        hi = v > hi ? v : hi;
    }
    const struct kvt_kivi k = kvt_kivi_fit(lo, hi, top);
    const float zero = kvt_f32_from_f16(k.zero);
    kvt_tile_put_scale(tile, bytes, g->term, g->lane, k.scale);
    kvt_tile_put_zero(tile, bytes, g->term, g->lane, k.zero);
    uint8_t codes[KVT_TILE_ROWS];
    for (int i = 0; i < g->n; i++) {
        const float code = rintf((g->x[i * g->step] - zero) * k.inverse);
        codes[i] = (uint8_t)(code > top ? top : code);
    }
    kvt_tile_put_codes(tile, bytes, g->term, g->lane, 0, 1, codes, g->n);
}

static void encode(const struct kvt_codec *codec, const struct kvt_tile *tile, void *bytes, int first, int n,
                   const float *rows, ptrdiff_t stride) {
    const int group = codec->info.group, d = kvt_tile_row_size(tile);
    if (tile->side == KVT_SIDE_K) {
        for (int r = 0; r < n; r += group)
            for (int c = 0; c < d; c++)
                encode_group(tile, bytes, &(struct group){rows + r * stride + c, stride, group, c, first + r});
    } else {
        for (int r = 0; r < n; r++)
            for (int c = 0; c < d; c += group)
                encode_group(tile, bytes,
                             &(struct group){rows + r * stride + c, 1, KVT_MIN(group, d - c), first + r, c});
    }
}

extern const struct kvt_encoder kvt_encoder_kivi;

#define ROW(b, g)                                                                                                      \
    {                                                                                                                  \
        .info = {.name = "kivi" #b "g" #g,                                                                             \
                 .about = "keys per channel, values per token: calibration-free, survives biased keys",                \
                 .source = "Liu et al., KIVI, ICML 2024",                                                              \
                 .bits = b,                                                                                            \
                 .group = g,                                                                                           \
                 .granularity = g},                                                                                    \
        .encoder = &kvt_encoder_kivi                                                                                   \
    }
#define ROWS(b) ROW(b, 32), ROW(b, 64), ROW(b, 128)

static const struct kvt_codec codecs[] = {ROWS(2), ROWS(3), ROWS(4), ROWS(5), ROWS(6), ROWS(8)};

const struct kvt_encoder kvt_encoder_kivi = {
    .grammar = "kivi{2,3,4,5,6,8}g{32,64,128}",
    .codecs = codecs,
    .n_codecs = KVT_ARRAY_LEN(codecs),
    .describe = describe,
    .encode = encode,
};
