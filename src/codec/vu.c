/* SPDX-License-Identifier: Apache-2.0
 *
 * vu: values, kvtile's own (docs/codecs.md, "kvt"). A row is rotated, which makes its elements nearly Gaussian, and groups of 128 channels
 * share a step 2^(e/16) and a zero relative to it, one byte each.
 *
 * Elements are whole numbers of 16 bits from the rotation to the codes: a span, what is rotated or shares a step, is scaled so that its length is
 * LENGTH / sqrt(n) in each block of n that is rotated, which no element can leave by rotating. Sums of whole numbers do not depend on their
 * order, and twice as many fit in a vector. What is left in f32 is one number a group, one rounding an operation; the sum of squares of
 * a span goes over 32 lanes, lane i takes elements i, i + 32, ..., then lanes are added at distances 16, 8, 4, 2, 1.
 *
 * Codes span the mean and on either side a part of the deviation and a part of the distance to the extreme. Then the step is chosen for which
 * products with the row keep their size, <u, u> / <u, code>, u the elements less their mean, and a zero that keeps the mean.
 */
#include <math.h>

#include "codec/log8.h"
#include "codec/per_token.h"
#include "codec/whole.h"

enum { GROUP = 128, LENGTH = 32000 };

/* A shorter span is scaled like one of this length. */
#define SHORTEST 0x1p-40f

/* By bits: how far codes reach from the mean, in deviations and in distances to the extreme. No farther than the extreme. */
static const struct {
    float deviation, extreme;
} reaches[5] = {[2] = {0.8f, 0.3f}, [3] = {0.3f, 0.7f}, [4] = {0.1f, 0.9f}};

enum { CODE_PER = 64 }; /* codes before they are rounded, in parts of a step */

/* A group's step and zero as they are stored, and its codes. */
struct fit {
    uint8_t scale, codes[GROUP];
    int8_t shift;
};

static float smaller(float a, float b) { return a < b ? a : b; }
static float larger(float a, float b) { return a > b ? a : b; }

/* ---- a span ------------------------------------------------------------------------------------------------------------ */

static float length_of(const float *x, int n) {
    float lanes[KVT_BLOCK_LANES] = {0};
    for (int i = 0; i < n; i++) lanes[i % KVT_BLOCK_LANES] += x[i] * x[i];
    for (int step = KVT_BLOCK_LANES / 2; step > 0; step /= 2)
        for (int i = 0; i < step; i++) lanes[i] += lanes[i + step];
    return sqrtf(lanes[0]);
}

/* Rotates in blocks of `block`, without the root of its size. */
static void rotate(int16_t *t, int n, int block) {
    for (int stride = 1; stride < block; stride *= 2)
        for (int i = 0; i < n; i++)
            if (!(i & stride)) {
                const int a = t[i], b = t[i + stride];
                t[i] = (int16_t)(a + b);
                t[i + stride] = (int16_t)(a - b);
            }
}

/* The rotated elements of a span; returns what 1 is worth. */
static float take_span(int16_t *t, const float *x, int n, int block) {
    const float length = larger(length_of(x, n), SHORTEST), scale = LENGTH / sqrtf((float)block) / length;
    for (int i = 0; i < n; i++) t[i] = (int16_t)rintf(x[i] * scale);
    rotate(t, n, block);
    return length * (1.0f / LENGTH);
}

/* ---- a group ----------------------------------------------------------------------------------------------------------- */

/* Elements [0, n) and what of them is needed: floats in their unit. */
struct source {
    const int16_t *t;
    int n, bits;
    float unit, top, mean, variance;
    float shortest; /* step that can be stored, and whose zero gets to the mean */
    int lo, hi;
};

static struct source survey(const int16_t *t, int n, int bits, float unit) {
    struct source s = {.t = t, .n = n, .bits = bits, .unit = unit, .lo = t[0], .hi = t[0]};
    int sum = 0;
    int64_t squares = 0;
    for (int i = 0; i < n; i++) {
        s.lo = KVT_MIN(t[i], s.lo), s.hi = KVT_MAX(t[i], s.hi);
        sum += t[i], squares += t[i] * t[i];
    }
    s.top = (float)((1 << bits) - 1);
    s.mean = (float)sum / (float)n;
    s.variance = larger((float)squares / (float)n - s.mean * s.mean, 0);
    s.shortest = larger(fabsf(s.mean) * (2.125f / s.top), kvt_scale_from_log(0) / unit);
    return s;
}

static void put_step(struct fit *f, const struct source *s, float step, float mean_code) {
    const int e = kvt_log8_nearest(step * s->unit, KVT_LOG_PER) + KVT_LOG_BIAS;
    f->scale = (uint8_t)KVT_MIN(KVT_MAX(e, 0), 255);
    const float middle = s->mean * s->unit / kvt_scale_from_log(f->scale) - mean_code;
    const float shift = rintf(middle * (KVT_SHIFT_UNIT / s->top)) + KVT_SHIFT_UNIT / 2;
    f->shift = (int8_t)larger(smaller(shift, 127), -128);
}

static void fit_group(struct fit *f, const struct source *s) {
    const float deviation = sqrtf(s->variance) * reaches[s->bits].deviation, part = reaches[s->bits].extreme;
    const float below = s->mean - (float)s->lo, above = (float)s->hi - s->mean;
    const float down = smaller(deviation + below * part, below), up = smaller(deviation + above * part, above);
    const float first = larger((down + up) / s->top, s->shortest);
    const int from = (int)rintf(s->mean - down),
              inverse = (int)rintf(smaller(CODE_PER * 32768.0f / first, KVT_WHOLE_MOST));
    int sum = 0, products = 0;
    for (int i = 0; i < s->n; i++) {
        const int16_t fine = kvt_whole_part(kvt_whole_cut(s->t[i] - from), inverse);
        const int code = KVT_MIN(KVT_MAX(kvt_whole_part(fine, 32768 / CODE_PER), 0), (1 << s->bits) - 1);
        f->codes[i] = (uint8_t)code;
        sum += code, products += code * s->t[i];
    }
    const float shared = (float)products - s->mean * (float)sum;
    const float step = shared > 0 ? larger(s->variance * (float)s->n / shared, s->shortest) : first;
    put_step(f, s, step, (float)sum / (float)s->n);
}

static void encode_row(const struct kvt_encode_args *a, int row, const float *x) {
    const struct kvt_tile *tile = a->tile;
    const int d = kvt_tile_row_size(tile), block = d & -d, span = KVT_MAX(GROUP, block);
    int16_t t[KVT_LATENT_MAX];
    for (int c0 = 0; c0 < d; c0 += span) {
        const int n = KVT_MIN(span, d - c0);
        const float unit = take_span(t, x + c0, n, block);
        for (int c = 0; c < n; c += GROUP) {
            const struct kvt_group g = {tile, a->bytes, row, c0 + c, KVT_MIN(GROUP, n - c)};
            const struct source s = survey(t + c, g.n, tile->format.bits, unit);
            struct fit f;
            fit_group(&f, &s);
            kvt_group_put(&g, f.scale, f.codes);
            kvt_tile_put_zero(tile, a->bytes, kvt_group_term(&g), kvt_group_lane(&g), (uint8_t)f.shift);
        }
    }
}

static void encode(const struct kvt_encode_args *a) {
    for (int r = 0; r < a->n; r++) encode_row(a, a->first + r, a->rows + r * a->stride);
}

extern const struct kvt_encoder kvt_encoder_vu;

#define ROW(b)                                                                                                         \
    {                                                                                                                  \
        .info = {.name = "vu" #b,                                                                                      \
                 .about = "values alone: rotated, per token, a step and a zero of one byte per 128 channels",          \
                 .source = "kvtile's own",                                                                             \
                 .bits = b,                                                                                            \
                 .group = GROUP,                                                                                       \
                 .granularity = 1,                                                                                     \
                 .sides = KVT_SIDES_V},                                                                                \
        .encoder = &kvt_encoder_vu, .format = {                                                                        \
            .bits = b,                                                                                                 \
            .scale = KVT_SCALE_LOG,                                                                                    \
            .has_zero = true,                                                                                          \
            .zero = KVT_SCALE_SHIFT,                                                                                   \
            .group = GROUP,                                                                                            \
            .per_token = true,                                                                                         \
            .rotated = true                                                                                            \
        }                                                                                                              \
    }

static const struct kvt_codec codecs[] = {ROW(2), ROW(3), ROW(4)};

const struct kvt_encoder kvt_encoder_vu = {
    .grammar = "vu{2,3,4}",
    .codecs = codecs,
    .n_codecs = KVT_ARRAY_LEN(codecs),
    .encode = encode,
};
