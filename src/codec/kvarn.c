/* SPDX-License-Identifier: Apache-2.0
 *
 * kvarn: rows rotated, then scaled along both axes until tokens and channels have even variance, then rounded per channel (K) or
 * per token (V) with a zero (KVarN, arXiv 2606.03458). A tile is cut into slices of 128 channels, each with its own second factor.
 *
 * In a slice of K lines are channels and columns tokens; of V lines are tokens and columns channels. A line has a scale and a
 * zero, a column a factor: value = (code * scale + zero) * factor.
 *
 * Two encoders of one format. `kvarn4-parity` follows the record that Bee and mlx-kquant share: 16 iterations, ties away from zero,
 * sums one element after another; the update s * clamp(std) stands in for exp(log s + log std), so that no libm is called. `kvarn4`
 * first divides the slice by its root mean square, so that the clamp at exp(-0.3) does not depend on how large a model's rows are,
 * iterates 8 times, and rounds ties to even.
 */
#include <math.h>
#include <string.h>

#include "base/attr.h"
#include "base/half.h"
#include "codec/kvarn.h"

enum { N = KVT_SLICE };

/* One slice: element (r, c) of n_r lines and n_c columns at v[r][c], rotated, in f16, and what it is divided by. */
struct slice {
    int n_r, n_c;
    uint16_t v[N][N];
    float rms;               /* of all elements; 1 where they are not divided by it */
    float row[N], column[N]; /* current divisors */
};

/* An element, divided by all that divides it. */
static float value(const struct slice *s, int r, int c) {
    return kvt_f32_from_f16(s->v[r][c]) / s->rms / (s->column[c] * s->row[r]);
}

static float clamp(float x, float lo, float hi) { return x < lo ? lo : x > hi ? hi : x; }

/* Standard deviation of n values of sums s and s2. */
static float deviation(float sum, float squares, int n) {
    const float mean = sum / (float)n, variance = (squares - (float)n * mean * mean) / (float)(n - 1);
    return sqrtf(variance > 0 ? variance : 0);
}

/* Standard deviations of all lines, and of all columns unless null; sums go one element after another. */
static void deviations(const struct slice *s, float *rows, float *columns) {
    float sum[N] = {0}, squares[N] = {0};
    for (int r = 0; r < s->n_r; r++) {
        float row_sum = 0, row_squares = 0;
        for (int c = 0; c < s->n_c; c++) {
            const float v = value(s, r, c);
            row_sum += v, row_squares += v * v;
            sum[c] += v, squares[c] += v * v;
        }
        rows[r] = deviation(row_sum, row_squares, s->n_c);
    }
    for (int c = 0; columns && c < s->n_c; c++) columns[c] = deviation(sum[c], squares[c], s->n_r);
}

/* The largest of n numbers over the smallest. */
static float spread(const float *x, int n) {
    float lo = x[0], hi = x[0];
    for (int i = 1; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    return hi / (lo > 1e-8f ? lo : 1e-8f);
}

/* s becomes s * d, within what the format's users accept: exp(-0.3) to exp(10). */
static void update(float *s, const float *d, int n) {
    for (int i = 0; i < n; i++) s[i] = clamp(s[i] * clamp(d[i], 1e-3f, 1e3f), 0.7408182f, 22026.466f);
}

/* Leaves the divisors of the most even iterate in s->row and s->column. What was measured of the columns to judge one iterate makes
 * the next. */
static void normalize(struct slice *s, int iterations) {
    float row[N], column[N], rows[N], columns[N], best = INFINITY;
    for (int i = 0; i < N; i++) s->row[i] = s->column[i] = 1;
    if (iterations == 0) return;
    for (int i = 0;; i++) {
        deviations(s, rows, columns);
        const float now = spread(columns, s->n_c) + spread(rows, s->n_r);
        if (i == 0 || !(now > best)) {
            best = now;
            memcpy(row, s->row, sizeof row);
            memcpy(column, s->column, sizeof column);
        }
        if (i == iterations) break;
        update(s->column, columns, s->n_c);
        deviations(s, rows, NULL);
        update(s->row, rows, s->n_r);
    }
    memcpy(s->row, row, sizeof row);
    memcpy(s->column, column, sizeof column);
}

/* The root mean square of a slice; 1 if it is 0. */
static float root_mean_square(const struct slice *s) {
    float squares = 0;
    for (int r = 0; r < s->n_r; r++) {
        float line = 0;
        for (int c = 0; c < s->n_c; c++) {
            const float v = kvt_f32_from_f16(s->v[r][c]);
            line += v * v;
        }
        squares += line;
    }
    const float rms = sqrtf(squares / (float)(s->n_r * s->n_c));
    return rms > 0 ? rms : 1;
}

/* Codes of line r, and its scale and zero but for the slice's own factor. */
static void encode_line(const struct slice *s, int r, const struct kvt_kvarn_recipe *recipe, int bits, uint8_t *codes,
                        float *scale, float *zero) {
    const float top = (float)((1 << bits) - 1);
    float v[N], lo = INFINITY, hi = -INFINITY;
    for (int c = 0; c < s->n_c; c++) {
        v[c] = value(s, r, c);
        lo = v[c] < lo ? v[c] : lo;
        hi = v[c] > hi ? v[c] : hi;
    }
    const float range = (hi - lo) / top, step = range > 1e-10f ? range : 1e-10f;
    for (int c = 0; c < s->n_c; c++) {
        const float x = (v[c] - lo) / step;
        codes[c] = (uint8_t)clamp(recipe->parity ? floorf(x + 0.5f) : rintf(x), 0, top);
    }
    *scale = s->row[r] * step;
    *zero = s->row[r] * lo;
}

static void encode_slice(const struct kvt_tile *tile, void *bytes, int slice, struct slice *s,
                         const struct kvt_kvarn_recipe *recipe) {
    const bool is_k = tile->side == KVT_SIDE_K;
    const int first = slice * N; /* channel */
    s->rms = recipe->parity ? 1 : root_mean_square(s);
    normalize(s, recipe->iterations);
    for (int r = 0; r < s->n_r; r++) {
        uint8_t codes[N];
        float scale, zero;
        encode_line(s, r, recipe, tile->format.bits, codes, &scale, &zero);
        const int term = is_k ? first + r : r, lane = is_k ? 0 : first;
        kvt_tile_put_scale(tile, bytes, term, lane, kvt_f16_from_f32(scale * s->rms));
        kvt_tile_put_zero(tile, bytes, term, lane, kvt_f16_from_f32(zero * s->rms));
        kvt_tile_put_codes(tile, bytes, term, lane, 0, 1, codes, s->n_c);
    }
    for (int c = 0; c < s->n_c; c++)
        kvt_tile_put_factor(tile, bytes, is_k ? slice : 0, is_k ? c : first + c, kvt_f16_from_f32(s->column[c]));
}

void kvt_kvarn_encode(const struct kvt_kvarn_recipe *recipe, const struct kvt_tile *tile, void *bytes,
                      const float *rows, ptrdiff_t stride) {
    const bool is_k = tile->side == KVT_SIDE_K;
    const int d = kvt_tile_row_size(tile);
    struct slice s;
    float row[KVT_LATENT_MAX];
    for (int slice = 0; slice * N < d; slice++) {
        const int n = KVT_MIN(N, d - slice * N);
        s.n_r = is_k ? n : KVT_TILE_ROWS;
        s.n_c = is_k ? KVT_TILE_ROWS : n;
        for (int t = 0; t < KVT_TILE_ROWS; t++) {
            memcpy(row, rows + t * stride, (size_t)d * sizeof *row);
            if (!recipe->rotated) kvt_rotate_f16(row, d);
            for (int c = 0; c < n; c++) *(is_k ? &s.v[c][t] : &s.v[t][c]) = kvt_f16_from_f32(row[slice * N + c]);
        }
        encode_slice(tile, bytes, slice, &s, recipe);
    }
}

static void encode(const struct kvt_encode_args *a) {
    if (a->n == KVT_TILE_ROWS)
        kvt_kvarn_encode(&(struct kvt_kvarn_recipe){.iterations = 8}, a->tile, a->bytes, a->rows, a->stride);
}

static void encode_parity(const struct kvt_encode_args *a) {
    if (a->n == KVT_TILE_ROWS)
        kvt_kvarn_encode(&(struct kvt_kvarn_recipe){.iterations = 16, .parity = true}, a->tile, a->bytes, a->rows,
                         a->stride);
}

static void describe(const struct kvt_codec *codec, enum kvt_side side, int d, struct kvt_tile *out) {
    kvt_tile_init(out, side, d,
                  &(struct kvt_format){.bits = codec->info.bits,
                                       .has_zero = true,
                                       .group = KVT_SLICE,
                                       .per_token = side == KVT_SIDE_V,
                                       .has_factor = true,
                                       .rotated = true});
}

#define ROW(b, suffix, id, text)                                                                                       \
    {                                                                                                                  \
        .info = {.name = "kvarn" #b suffix,                                                                            \
                 .about = text,                                                                                        \
                 .source = "KVarN, arXiv 2606.03458",                                                                  \
                 .bits = b,                                                                                            \
                 .group = KVT_SLICE,                                                                                   \
                 .granularity = KVT_TILE_ROWS},                                                                        \
        .encoder = &kvt_encoder_##id                                                                                   \
    }
#define ROWS(suffix, id, text)                                                                                         \
    ROW(2, suffix, id, text), ROW(3, suffix, id, text), ROW(4, suffix, id, text), ROW(5, suffix, id, text),            \
        ROW(6, suffix, id, text), ROW(8, suffix, id, text)

extern const struct kvt_encoder kvt_encoder_kvarn, kvt_encoder_kvarn_parity;

static const struct kvt_codec codecs[] = {
    ROWS("", kvarn, "rotated, scaled along both axes to even variance, per-channel K, per-token V")};
static const struct kvt_codec parity_codecs[] = {
    ROWS("-parity", kvarn_parity, "kvarn with the codes of Bee's and mlx-kquant's encoder")};

const struct kvt_encoder kvt_encoder_kvarn = {.grammar = "kvarn{2,3,4,5,6,8}",
                                              .codecs = codecs,
                                              .n_codecs = KVT_ARRAY_LEN(codecs),
                                              .describe = describe,
                                              .encode = encode};
const struct kvt_encoder kvt_encoder_kvarn_parity = {.grammar = "kvarn{2,3,4,5,6,8}-parity",
                                                     .codecs = parity_codecs,
                                                     .n_codecs = KVT_ARRAY_LEN(parity_codecs),
                                                     .describe = describe,
                                                     .encode = encode_parity};
