/* SPDX-License-Identifier: Apache-2.0
 *
 * kq: keys, kvtile's own (docs/codecs.md, "kvtile's own"). Per channel over the tile's 128 rows, not rotated. A quarter of the channels has a
 * bit more than the codec's name says, a quarter a bit less: by how much the queries at the same rows use a channel, its range times their
 * root mean square, or where queries are not known (or all zero) its range alone. A scale is one byte below the largest of its class, a zero is
 * f16, and each row has a factor, one byte, that keeps products of the decoded row with its row what they were.
 *
 * From the first codes to the last, elements are whole numbers of 16 bits, the distance from their channel's lowest in parts of its range: sums do
 * not depend on their order, and twice as many fit in a vector as floats. What is left in f32, one rounding an operation, is a few numbers a
 * channel. Sums over channels are of slices of 128: of floats over 32 lanes as in vu.c, of slices one after another.
 */
#include <math.h>
#include <string.h>

#include "base/attr.h"
#include "codec/kq.h"
#include "codec/whole.h"

enum { N = KVT_TILE_ROWS, FACTOR_MOST = 37 }; /* the factor's byte: within 1 / 1.5 and 1.5 */
#define F16_MOST 65504.0f
/* A channel of a smaller range counts as constant, weights of a smaller sum as none. */
#define LEAST 0x1p-100f

/* A slice of channels. */
struct slice {
    int16_t t[KVT_SLICE][N];
    struct kvt_kq_fit fits[KVT_SLICE];
    int16_t weight[KVT_SLICE];
};

static float clamp(float x, float lo, float hi) { return x < lo ? lo : x > hi ? hi : x; }

/* ---- classes ----------------------------------------------------------------------------------------------------------- */

/* Weights of queries by channel: all 1 where there are none. */
static void weigh(struct kvt_kq_survey *s, const float *queries, int d) {
    float most = 0;
    for (int c = 0; queries && c < d; c++) most = queries[c] > most ? queries[c] : most;
    for (int c = 0; c < d; c++) s->weight[c] = most > 0 ? queries[c] / most : 1;
}

static void measure(struct kvt_kq_survey *s, const struct kvt_encode_args *a, const float *queries, int d) {
    weigh(s, queries, d);
    for (int c = 0; c < d; c++) {
        const float *x = a->rows + c;
        float lo = x[0], hi = x[0];
        for (int r = 1; r < N; r++) {
            const float v = x[r * a->stride];
            lo = v < lo ? v : lo;
            hi = v > hi ? v : hi;
        }
        s->lo[c] = lo, s->range[c] = hi - lo;
        s->worth[c] = s->range[c] * s->range[c] * s->weight[c];
    }
}

/* Classes by rank: the largest worth first, the lower channel first of equals. Within a class places follow the channels. */
static void sort(struct kvt_kq_survey *s, const struct kvt_classes *classes, int d) {
    int next[KVT_CLASSES];
    for (int i = 0; i < KVT_CLASSES; i++) next[i] = classes->of[i].first;
    for (int c = 0; c < d; c++) {
        int rank = 0;
        for (int o = 0; o < d; o++) rank += s->worth[o] > s->worth[c] || (s->worth[o] == s->worth[c] && o < c);
        s->rank[c] = rank;
        s->classes[c] = (uint8_t)kvt_class_of_place(classes, rank);
        s->place[c] = next[s->classes[c]]++;
    }
}

/* The largest scale of each class, rounded up to f16: those of the first codes. */
static void find_most(struct kvt_kq_survey *s, const struct kvt_classes *classes, int d) {
    float most[KVT_CLASSES] = {0};
    for (int c = 0; c < d; c++) most[s->classes[c]] = KVT_MAX(s->range[c], most[s->classes[c]]);
    for (int i = 0; i < KVT_CLASSES; i++) {
        const float step = most[i] / (float)((1 << classes->of[i].bits) - 1), wanted = KVT_MIN(step, F16_MOST);
        s->most[i] = kvt_f16_from_f32(wanted);
        if (kvt_f32_from_f16(s->most[i]) < wanted) s->most[i]++;
    }
}

void kvt_kq_survey(struct kvt_kq_survey *s, const struct kvt_encode_args *a, const float *queries,
                   const struct kvt_classes *classes) {
    const int d = a->tile->n_terms;
    measure(s, a, queries, d);
    sort(s, classes, d);
    find_most(s, classes, d);
}

/* ---- one channel ------------------------------------------------------------------------------------------------------- */

void kvt_kq_take_channel(int16_t t[N], const struct kvt_encode_args *a, const struct kvt_kq_survey *s, int c) {
    const float per = s->range[c] >= LEAST ? KVT_WHOLE_MOST / s->range[c] : 0;
    for (int r = 0; r < N; r++) t[r] = kvt_whole_cut((int)rintf((a->rows[r * a->stride + c] - s->lo[c]) * per));
}

/* The line of least squares through the first codes and the elements: what a code's step is worth, and where code 0 is. */
static void find_line(const int16_t t[N], int top, int bits, float *slope, float *start) {
    const struct kvt_class_first first = kvt_class_first_of(top, bits);
    int sum = 0, squares = 0, total = 0, products = 0;
    for (int r = 0; r < N; r++) {
        int code = kvt_whole_part(t[r], first.inverse);
        if (first.offset) code = KVT_MIN(KVT_MAX(kvt_whole_part(code + first.offset, first.round), 0), top);
        sum += code, squares += code * code;
        total += t[r], products += code * t[r];
    }
    const float spread = (float)(N * squares - sum * sum), mean = (float)total / N, mean_code = (float)sum / N;
    *slope = spread > 0 ? ((float)products - mean * (float)sum) * N / spread : 0;
    *start = mean - *slope * mean_code;
}

/* The stored scale that is nearest in the logarithm, the zero that is not above. */
static void store(struct kvt_kq_fit *f, float most, float step, float zero) {
    const int below = most > 0 ? -kvt_log8_nearest(step / most, KVT_CLASS_SCALE_PER) : 0;
    f->scale = (uint8_t)KVT_MIN(KVT_MAX(below, 0), 255);
    f->step = kvt_class_scale(most, f->scale);
    zero = clamp(zero, -F16_MOST, F16_MOST);
    f->zero16 = kvt_f16_from_f32(zero);
    if (kvt_f32_from_f16(f->zero16) > zero) f->zero16 = (uint16_t)(f->zero16 >> 15 ? f->zero16 + 1 : f->zero16 - 1);
}

void kvt_kq_fit_channel(struct kvt_kq_fit *f, const int16_t t[N], const struct kvt_kq_survey *s, int c, int top,
                        int bits) {
    const float unit = s->range[c] * (1.0f / KVT_WHOLE_MOST), lo = s->lo[c];
    float slope, start;
    find_line(t, top, bits, &slope, &start);
    store(f, kvt_f32_from_f16(s->most[s->classes[c]]), slope * unit, start * unit + lo);
    const float per = f->step > 0 ? (float)kvt_class_parts(bits) / f->step : 0;
    f->inverse = (int16_t)rintf(KVT_MIN(unit * per * 32768, KVT_WHOLE_MOST));
    f->offset = (int16_t)rintf(clamp((lo - kvt_f32_from_f16(f->zero16)) * per, -KVT_WHOLE_MOST, KVT_WHOLE_MOST));
}

/* ---- a slice ----------------------------------------------------------------------------------------------------------- */

/* Weights for the factors, of queries times the square of a step, as whole numbers whose sum is 2^15. Returns what that sum is worth. */
static float weigh_steps(struct slice *slice, const float *weight, int n) {
    float lanes[KVT_BLOCK_LANES] = {0}, worth[KVT_SLICE];
    for (int i = 0; i < n; i++) {
        worth[i] = weight[i] * (slice->fits[i].step * slice->fits[i].step);
        lanes[i % KVT_BLOCK_LANES] += worth[i];
    }
    for (int step = KVT_BLOCK_LANES / 2; step > 0; step /= 2)
        for (int i = 0; i < step; i++) lanes[i] += lanes[i + step];
    const float per = lanes[0] >= LEAST ? KVT_WHOLE_MOST / lanes[0] : 0;
    for (int i = 0; i < n; i++) slice->weight[i] = (int16_t)rintf(worth[i] * per);
    return lanes[0];
}

/* By row, products of the row, less its channels' middles, with itself and with the decoded row, weighted. */
struct products {
    int32_t own[N], shared[N];
};

/* Codes, and what they add to the products. */
static void finish_channel(uint8_t codes[N], struct products *p, const struct slice *s, int i, int top, int parts) {
    const struct kvt_kq_fit *f = &s->fits[i];
    const int half = top * parts / 2;
    for (int r = 0; r < N; r++) {
        const int fine = kvt_whole_cut(kvt_whole_part(s->t[i][r], f->inverse) + f->offset);
        const int code = KVT_MIN(KVT_MAX(kvt_whole_part(fine, 32768 / parts), 0), top);
        const int u = kvt_whole_cut(fine - half), part = kvt_whole_part(u, s->weight[i]);
        codes[r] = (uint8_t)code;
        p->own[r] += part * u;
        p->shared[r] += part * (code * parts - half);
    }
}

void kvt_kq_put_factors(const struct kvt_encode_args *a, const float own[N], const float shared[N]) {
    int8_t factors[N];
    for (int r = 0; r < N; r++) {
        const bool is_known = own[r] > 0 && shared[r] > 0;
        const int e = is_known ? kvt_log8_nearest(own[r] / shared[r], KVT_CLASS_FACTOR_PER) : 0;
        factors[r] = (int8_t)KVT_MIN(KVT_MAX(e, -FACTOR_MOST), FACTOR_MOST);
    }
    kvt_class_put_factors(a->tile, a->bytes, factors);
}

static void encode(const struct kvt_encode_args *a) {
    const int d = a->tile->n_terms, bits = a->tile->format.bits;
    const struct kvt_classes classes = kvt_classes_of(d, bits);
    float own[N] = {0}, shared[N] = {0};
    struct kvt_kq_survey s;
    struct slice slice;
    if (a->n != N) return;
    kvt_kq_survey(&s, a, a->queries, &classes);
    kvt_class_put_head(a->tile, a->bytes, s.most, s.classes);
    for (int c = 0; c < d; c += KVT_SLICE) {
        const int n = KVT_MIN(KVT_SLICE, d - c);
        struct products products = {0};
        for (int i = 0; i < n; i++) {
            kvt_kq_take_channel(slice.t[i], a, &s, c + i);
            kvt_kq_fit_channel(&slice.fits[i], slice.t[i], &s, c + i, (1 << classes.of[s.classes[c + i]].bits) - 1,
                               bits);
        }
        const float unit = weigh_steps(&slice, s.weight + c, n);
        for (int i = 0; i < n; i++) {
            uint8_t codes[N];
            const int top = (1 << classes.of[s.classes[c + i]].bits) - 1;
            finish_channel(codes, &products, &slice, i, top, kvt_class_parts(bits));
            kvt_class_put_place(a->tile, a->bytes, s.place[c + i], slice.fits[i].scale, slice.fits[i].zero16, codes);
        }
        for (int r = 0; r < N; r++)
            own[r] += (float)products.own[r] * unit, shared[r] += (float)products.shared[r] * unit;
    }
    kvt_kq_put_factors(a, own, shared);
}

void kvt_kq_describe(const struct kvt_codec *codec, enum kvt_side side, int d, struct kvt_tile *out) {
    (void)side;
    kvt_tile_init_class(out, d, &codec->format);
}

extern const struct kvt_encoder kvt_encoder_kq;

#define ROW(b)                                                                                                         \
    KVT_KQ_ROW(b, "", "keys alone: per channel, more bits where queries use a channel, a factor per token", false,     \
               kvt_encoder_kq)

static const struct kvt_codec codecs[] = {ROW(2), ROW(3), ROW(4)};

const struct kvt_encoder kvt_encoder_kq = {
    .grammar = "kq{2,3,4}",
    .codecs = codecs,
    .n_codecs = KVT_ARRAY_LEN(codecs),
    .describe = kvt_kq_describe,
    .encode = encode,
};
