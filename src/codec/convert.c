/* SPDX-License-Identifier: Apache-2.0
 *
 * Converters to and from the packed arrays of other programs. All of them keep codes as one stream of bits, the lowest first, seen as
 * 32-bit words.
 */
#include "kvtile/convert.h"

#include "base/attr.h"
#include "base/check.h"
#include "codec/encoders.h"

static void stream_put(uint32_t *words, int bits, size_t i, unsigned code) {
    const size_t at = i * (size_t)bits;
    const uint64_t mask = ((UINT64_C(1) << bits) - 1) << at % 32, put = (uint64_t)code << at % 32;
    words[at / 32] = (words[at / 32] & ~(uint32_t)mask) | (uint32_t)put;
    if (mask >> 32) words[at / 32 + 1] = (words[at / 32 + 1] & ~(uint32_t)(mask >> 32)) | (uint32_t)(put >> 32);
}

static unsigned stream_get(const uint32_t *words, int bits, size_t i) {
    const size_t at = i * (size_t)bits;
    uint64_t two = words[at / 32];
    if (at % 32 + (size_t)bits > 32) two |= (uint64_t)words[at / 32 + 1] << 32;
    return (unsigned)(two >> at % 32 & ((1u << bits) - 1));
}

static bool is_f16_finite(uint16_t half) { return (half & 0x7C00u) != 0x7C00u; }

/* ---- MLX --------------------------------------------------------------------------------------------------------------- */

/* A tile's part of MLX's arrays: row `row`, group `group` of its channels. */
struct mlx {
    struct kvt_tile tile;
    bool is_k, is_affine;
    int d, group, n_groups;
    size_t row_words;
};

static int term_of(const struct mlx *m, int row, int channel) { return m->is_k ? channel : row; }
static int lane_of(const struct mlx *m, int row, int channel) { return m->is_k ? row : channel; }

static enum kvt_status mlx_init(struct mlx *m, const struct kvt_codec *codec, enum kvt_side side, int d,
                                const struct kvt_mlx_arrays *arrays, int first, int n, struct kvt_error *err) {
    const struct kvt_encoder *e = codec->encoder;
    const bool is_affine = e == &kvt_encoder_affine || e == &kvt_encoder_affine_metal;
    if (!is_affine && e != &kvt_encoder_mxfp)
        return kvt_fail(err, KVT_ERR_UNSUPPORTED,
                        "MLX has no arrays for %s: affine, mxfp8, mxfp4 and nvfp4 can be converted", codec->info.name);
    KVT_TRY(kvt_codec_fits(codec, side, d, err));
    if (d % codec->info.group != 0)
        return kvt_fail(err, KVT_ERR_UNSUPPORTED,
                        "MLX packs rows of whole groups: %s takes multiples of %d elements, these have %d",
                        codec->info.name, codec->info.group, d);
    if (first < 0 || n < 0 || first > KVT_TILE_ROWS || n > KVT_TILE_ROWS - first)
        return kvt_fail(err, KVT_ERR_RANGE, "%d rows from row %d on are not within a tile of %d rows", n, first,
                        KVT_TILE_ROWS);
    if (!arrays->codes || !arrays->scales || !arrays->biases == is_affine)
        return kvt_fail(err, KVT_ERR_ARG, "%s takes arrays of codes and scales%s", codec->info.name,
                        is_affine ? ", and of biases" : ", and no biases");
    *m = (struct mlx){.is_k = side == KVT_SIDE_K,
                      .is_affine = is_affine,
                      .d = d,
                      .group = codec->info.group,
                      .n_groups = d / codec->info.group,
                      .row_words = (size_t)d * (size_t)codec->info.bits / 32};
    kvt_codec_describe(codec, side, d, &m->tile);
    return KVT_OK;
}

enum kvt_status kvt_mlx_export(const struct kvt_codec *codec, enum kvt_side side, int d,
                               const struct kvt_mlx_arrays *out, const void *tile, int first, int n,
                               struct kvt_error *err) {
    struct mlx m;
    KVT_TRY(mlx_init(&m, codec, side, d, out, first, n, err));
    for (int r = 0; r < n; r++) {
        const int row = first + r;
        uint32_t *words = out->codes + (size_t)r * m.row_words;
        for (int c = 0; c < d; c++)
            stream_put(words, m.tile.format.bits, (size_t)c,
                       kvt_tile_get_code(&m.tile, tile, term_of(&m, row, c), lane_of(&m, row, c)));
        for (int g = 0; g < m.n_groups; g++) {
            const int term = term_of(&m, row, g * m.group), lane = lane_of(&m, row, g * m.group);
            const uint32_t scale = kvt_tile_get_scale(&m.tile, tile, term, lane);
            const int at = r * m.n_groups + g;
            if (m.is_affine) {
                ((uint16_t *)out->scales)[at] = (uint16_t)scale;
                out->biases[at] = (uint16_t)kvt_tile_get_zero(&m.tile, tile, term, lane);
            } else {
                ((uint8_t *)out->scales)[at] = (uint8_t)scale;
            }
        }
    }
    return KVT_OK;
}

/* Whether everything in a row of arrays is a number here and in MLX alike. */
static bool is_mlx_row_good(const struct mlx *m, const struct kvt_mlx_arrays *in, int r) {
    for (int g = 0; g < m->n_groups; g++) {
        const int at = r * m->n_groups + g;
        if (m->is_affine) {
            if (!is_f16_finite(((const uint16_t *)in->scales)[at]) || !is_f16_finite(in->biases[at])) return false;
        } else {
            const uint8_t scale = ((const uint8_t *)in->scales)[at];
            if (m->tile.format.scale == KVT_SCALE_E8M0 ? scale == 0xFF : (scale & 0x7F) == 0x7F) return false;
        }
    }
    if (m->tile.format.meaning == KVT_MEANING_E4M3)
        for (int c = 0; c < m->d; c++)
            if ((stream_get(in->codes + (size_t)r * m->row_words, 8, (size_t)c) & 0x7F) == 0x7F) return false;
    return true;
}

enum kvt_status kvt_mlx_import(const struct kvt_codec *codec, enum kvt_side side, int d, void *tile,
                               const struct kvt_mlx_arrays *in, int first, int n, struct kvt_error *err) {
    struct mlx m;
    KVT_TRY(mlx_init(&m, codec, side, d, in, first, n, err));
    for (int r = 0; r < n; r++)
        if (!is_mlx_row_good(&m, in, r))
            return kvt_fail(err, KVT_ERR_RANGE, "row %d of the arrays holds a number that is infinite or NaN", r);
    for (int r = 0; r < n; r++) {
        const int row = first + r;
        const uint32_t *words = in->codes + (size_t)r * m.row_words;
        for (int g = 0; g < m.n_groups; g++) {
            const int c0 = g * m.group, term = term_of(&m, row, c0), lane = lane_of(&m, row, c0);
            const int at = r * m.n_groups + g;
            uint8_t codes[KVT_TILE_ROWS];
            for (int i = 0; i < m.group; i++)
                codes[i] = (uint8_t)stream_get(words, m.tile.format.bits, (size_t)(c0 + i));
            kvt_tile_put_codes(&m.tile, tile, term, lane, m.is_k, !m.is_k, codes, m.group);
            if (m.is_affine) kvt_tile_put_zero(&m.tile, tile, term, lane, in->biases[at]);
            kvt_tile_put_scale(&m.tile, tile, term, lane,
                               m.is_affine ? ((const uint16_t *)in->scales)[at] : ((const uint8_t *)in->scales)[at]);
        }
    }
    return KVT_OK;
}

/* ---- kvarn ------------------------------------------------------------------------------------------------------------- */

enum { LINES = KVT_SLICE, COLUMNS = KVT_TILE_ROWS, AXES = 3 };

/* Where line 0 and column 0 of a slice lie in the tile, and its number among the factors. */
struct slice {
    int term, lane, factor;
    uint32_t *codes;
    uint16_t *scales, *zeros, *factors;
};

static struct slice slice_of(const struct kvt_tile *tile, const struct kvt_kvarn_record *record, int s) {
    const bool is_k = tile->side == KVT_SIDE_K;
    uint16_t *axes = record->axes + (size_t)s * AXES * LINES;
    return (struct slice){.term = is_k ? s * KVT_SLICE : 0,
                          .lane = is_k ? 0 : s * KVT_SLICE,
                          .factor = is_k ? s : 0,
                          .codes = record->codes + (size_t)(s * LINES * COLUMNS * tile->format.bits / 32),
                          .scales = axes,
                          .zeros = axes + LINES,
                          .factors = axes + 2 * LINES};
}

static enum kvt_status kvarn_init(struct kvt_tile *tile, const struct kvt_codec *codec, enum kvt_side side, int d,
                                  struct kvt_error *err) {
    if (codec->encoder != &kvt_encoder_kvarn && codec->encoder != &kvt_encoder_kvarn_parity)
        return kvt_fail(err, KVT_ERR_UNSUPPORTED, "%s has no kvarn record", codec->info.name);
    KVT_TRY(kvt_codec_fits(codec, side, d, err));
    if (d % KVT_SLICE != 0)
        return kvt_fail(err, KVT_ERR_UNSUPPORTED,
                        "a kvarn record has slices of %d channels: rows of a multiple of that, not of %d", KVT_SLICE,
                        d);
    kvt_codec_describe(codec, side, d, tile);
    return KVT_OK;
}

enum kvt_status kvt_kvarn_export(const struct kvt_codec *codec, enum kvt_side side, int d,
                                 const struct kvt_kvarn_record *out, const void *tile, struct kvt_error *err) {
    struct kvt_tile t;
    KVT_TRY(kvarn_init(&t, codec, side, d, err));
    for (int s = 0; s < d / KVT_SLICE; s++) {
        const struct slice at = slice_of(&t, out, s);
        for (int i = 0; i < LINES; i++) {
            for (int c = 0; c < COLUMNS; c++)
                stream_put(at.codes, t.format.bits, (size_t)(i * COLUMNS + c),
                           kvt_tile_get_code(&t, tile, at.term + i, at.lane + c));
            at.scales[i] = (uint16_t)kvt_tile_get_scale(&t, tile, at.term + i, at.lane);
            at.zeros[i] = (uint16_t)kvt_tile_get_zero(&t, tile, at.term + i, at.lane);
            at.factors[i] = kvt_tile_get_factor(&t, tile, at.factor, at.lane + i);
        }
    }
    return KVT_OK;
}

enum kvt_status kvt_kvarn_import(const struct kvt_codec *codec, enum kvt_side side, int d, void *tile,
                                 const struct kvt_kvarn_record *in, struct kvt_error *err) {
    struct kvt_tile t;
    KVT_TRY(kvarn_init(&t, codec, side, d, err));
    for (int i = 0; i < d / KVT_SLICE * AXES * LINES; i++)
        if (!is_f16_finite(in->axes[i]))
            return kvt_fail(err, KVT_ERR_RANGE, "number %d of axis %d is infinite or NaN", i % LINES, i / LINES);
    for (int s = 0; s < d / KVT_SLICE; s++) {
        const struct slice at = slice_of(&t, in, s);
        for (int i = 0; i < LINES; i++) {
            uint8_t codes[COLUMNS];
            for (int c = 0; c < COLUMNS; c++)
                codes[c] = (uint8_t)stream_get(at.codes, t.format.bits, (size_t)(i * COLUMNS + c));
            kvt_tile_put_codes(&t, tile, at.term + i, at.lane, 0, 1, codes, COLUMNS);
            kvt_tile_put_scale(&t, tile, at.term + i, at.lane, at.scales[i]);
            kvt_tile_put_zero(&t, tile, at.term + i, at.lane, at.zeros[i]);
            kvt_tile_put_factor(&t, tile, at.factor, at.lane + i, at.factors[i]);
        }
    }
    return KVT_OK;
}
