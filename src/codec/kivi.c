/* SPDX-License-Identifier: Apache-2.0
 *
 * kivi: keys per channel in groups of tokens, values per token in groups of channels (Liu et al., "KIVI: A Tuning-Free
 * Asymmetric 2bit Quantization for KV Cache", ICML 2024). Keys of models with biased keys survive, since a channel's constant
 * goes into its zero.
 *
 * `kivi4g32` takes minimum and range of the group; scale and zero are rounded to f16 before codes are computed, the zero
 * downwards, so that codes absorb its rounding even when keys carry a bias of hundreds. A code is (x - zero) times the rounded
 * inverse of the scale, ties to even, no fused operation.
 *
 * `kivi4g32-parity` has the numbers of published implementations (VeloxQuant-MLX 0.94 and its Metal kernels), to the bit: scale
 * and zero stay in f32, the scale is at least 1e-8, and a code is a true quotient. They pad a ragged last group by repeating its
 * last element, which changes neither extreme: the same as a short group.
 */
#include <math.h>

#include "base/attr.h"
#include "base/half.h"
#include "codec/codec.h"
#include "codec/kivi.h"

static void describe_parity(const struct kvt_codec *codec, enum kvt_side side, int d, struct kvt_tile *out) {
    kvt_tile_init(out, side, d,
                  &(struct kvt_format){.bits = codec->info.bits,
                                       .scale = KVT_SCALE_F32,
                                       .has_zero = true,
                                       .zero = KVT_SCALE_F32,
                                       .group = codec->info.group,
                                       .per_token = side == KVT_SIDE_V});
}

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

static void extremes(const struct group *g, float *lo, float *hi) {
    *lo = *hi = g->x[0];
    for (int i = 1; i < g->n; i++) {
        const float v = g->x[i * g->step];
        *lo = v < *lo ? v : *lo;
        *hi = v > *hi ? v : *hi;
    }
}

typedef void (*group_fn)(const struct kvt_tile *tile, void *bytes, const struct group *g);

static void encode_group(const struct kvt_tile *tile, void *bytes, const struct group *g) {
    const float top = (float)((1 << tile->format.bits) - 1);
    float lo, hi;
    extremes(g, &lo, &hi);
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

static void encode_group_parity(const struct kvt_tile *tile, void *bytes, const struct group *g) {
    const float top = (float)((1 << tile->format.bits) - 1);
    float lo, hi;
    extremes(g, &lo, &hi);
    const float range = (hi - lo) / top, scale = range > 1e-8f ? range : 1e-8f;
    kvt_tile_put_scale(tile, bytes, g->term, g->lane, kvt_f32_bits(scale));
    kvt_tile_put_zero(tile, bytes, g->term, g->lane, kvt_f32_bits(lo));
    uint8_t codes[KVT_TILE_ROWS];
    for (int i = 0; i < g->n; i++) {
        const float code = rintf((g->x[i * g->step] - lo) / scale);
        codes[i] = (uint8_t)(code > top ? top : code);
    }
    kvt_tile_put_codes(tile, bytes, g->term, g->lane, 0, 1, codes, g->n);
}

static void encode_groups(const struct kvt_encode_args *a, group_fn fn) {
    const int group = a->codec->info.group, d = kvt_tile_row_size(a->tile);
    const bool is_k = a->tile->side == KVT_SIDE_K;
    for (int r = 0; r < a->n; r += is_k ? group : 1) {
        const float *x = a->rows + r * a->stride;
        const int row = a->first + r;
        for (int c = 0; c < d; c += is_k ? 1 : group)
            fn(a->tile, a->bytes,
               is_k ? &(struct group){x + c, a->stride, group, c, row}
                    : &(struct group){x + c, 1, KVT_MIN(group, d - c), row, c});
    }
}

static void encode(const struct kvt_encode_args *a) { encode_groups(a, encode_group); }
static void encode_parity(const struct kvt_encode_args *a) { encode_groups(a, encode_group_parity); }

extern const struct kvt_encoder kvt_encoder_kivi, kvt_encoder_kivi_parity;

#define ROW(b, g, suffix, id, text)                                                                                    \
    {                                                                                                                  \
        .info = {.name = "kivi" #b "g" #g suffix,                                                                      \
                 .about = text,                                                                                        \
                 .source = "Liu et al., KIVI, ICML 2024",                                                              \
                 .bits = b,                                                                                            \
                 .group = g,                                                                                           \
                 .granularity = g},                                                                                    \
        .encoder = &kvt_encoder_##id                                                                                   \
    }
#define GROUPS(b, ...) ROW(b, 32, __VA_ARGS__), ROW(b, 64, __VA_ARGS__), ROW(b, 128, __VA_ARGS__)
#define ROWS(...)                                                                                                      \
    GROUPS(2, __VA_ARGS__), GROUPS(3, __VA_ARGS__), GROUPS(4, __VA_ARGS__), GROUPS(5, __VA_ARGS__),                    \
        GROUPS(6, __VA_ARGS__), GROUPS(8, __VA_ARGS__)

static const struct kvt_codec codecs[] = {
    ROWS("", kivi, "keys per channel, values per token: calibration-free, survives biased keys")};
static const struct kvt_codec parity_codecs[] = {
    ROWS("-parity", kivi_parity, "kivi with f32 scales and zeros: the values of VeloxQuant-MLX")};

const struct kvt_encoder kvt_encoder_kivi = {
    .grammar = "kivi{2,3,4,5,6,8}g{32,64,128}",
    .codecs = codecs,
    .n_codecs = KVT_ARRAY_LEN(codecs),
    .describe = describe,
    .encode = encode,
};
const struct kvt_encoder kvt_encoder_kivi_parity = {
    .grammar = "kivi{2,3,4,5,6,8}g{32,64,128}-parity",
    .codecs = parity_codecs,
    .n_codecs = KVT_ARRAY_LEN(parity_codecs),
    .describe = describe_parity,
    .encode = encode_parity,
};
