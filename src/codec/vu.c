/* SPDX-License-Identifier: Apache-2.0
 *
 * vu: values, kvtile's own (docs/codecs.md, "kvt"). A row is rotated, which makes its elements nearly Gaussian, and groups of 128 channels
 * share a step 2^(e/16) and a zero relative to it, one byte each.
 *
 * Which ends lo and hi the codes span: those of the group drawn in by one of three shares, then twice the line of least squares through
 * (code, element); of these five the one with the least squared error. Codes shrink a group: the step is made longer at last by
 * <u, u> / <u, v>, u the elements and v the decoded ones less the elements' mean, so that products with the row keep their size.
 *
 * Fixed arithmetic in f32, one rounding an operation. Sums go over 32 lanes, lane i takes elements i, i + 32, ..., then lanes are added
 * at distances 16, 8, 4, 2, 1. Codes are (x - zero) times the inverse of the step, ties to even.
 */
#include <math.h>

#include "codec/log8.h"
#include "codec/per_token.h"

enum { GROUP = 128, N_SHARES = 3, N_LINES = 2 };

/* The first of them takes a group's ends as they are. */
static const float shares[5][N_SHARES] = {[2] = {1, 0.75f, 0.55f}, [3] = {1, 0.9f, 0.8f}, [4] = {1, 0.93f, 0.86f}};

/* The elements of a group and what of them is needed again and again. */
struct source {
    const float *x;
    int n, bits;
    float top, mean; /* the largest code; of x */
};

/* Codes with what they stand for: step * code + zero. */
struct fit {
    uint8_t scale, codes[GROUP];
    int8_t shift;
    float step, zero, error;
};

static float add_lanes(float lanes[KVT_BLOCK_LANES]) {
    for (int step = KVT_BLOCK_LANES / 2; step > 0; step /= 2)
        for (int i = 0; i < step; i++) lanes[i] += lanes[i + step];
    return lanes[0];
}

static float clamp(float x, float lo, float hi) { return x < lo ? lo : x > hi ? hi : x; }

/* The stored step and zero that are nearest to these. Where the step comes out shorter, both ends lose. */
static void store(struct fit *f, const struct source *s, float step, float zero) {
    const int e = kvt_log8_nearest(step, KVT_LOG_PER) + KVT_LOG_BIAS;
    f->scale = (uint8_t)KVT_MIN(KVT_MAX(e, 0), 255);
    f->step = kvt_scale_from_log(f->scale);
    const float span = s->top * f->step, lost = s->top * step - span;
    const float middle = (zero + 0.5f * (lost > 0 ? lost : 0) + 0.5f * span) / span;
    f->shift = (int8_t)clamp(rintf(middle * KVT_SHIFT_UNIT), -128, 127);
    f->zero = f->step * kvt_zero_shift(s->bits, f->shift);
}

static void encode_codes(struct fit *f, const struct source *s) {
    const float inverse = 1 / f->step;
    float lanes[KVT_BLOCK_LANES] = {0};
    for (int i = 0; i < s->n; i++) {
        const float code = clamp(rintf((s->x[i] - f->zero) * inverse), 0, s->top);
        const float off = s->x[i] - (f->step * code + f->zero);
        f->codes[i] = (uint8_t)code;
        lanes[i % KVT_BLOCK_LANES] += off * off;
    }
    f->error = add_lanes(lanes);
}

/* Takes the fit to these ends where it is better than the best so far. */
static bool try_ends(struct fit *best, const struct source *s, float lo, float hi) {
    struct fit f;
    store(&f, s, (hi - lo) / s->top, lo);
    encode_codes(&f, s);
    if (!(f.error < best->error)) return false;
    *best = f;
    return true;
}

/* Tries the line of least squares through the codes of the best so far. */
static bool try_line(struct fit *best, const struct source *s) {
    float lanes[KVT_BLOCK_LANES] = {0};
    int sum = 0, squares = 0;
    for (int i = 0; i < s->n; i++) {
        const int code = best->codes[i];
        sum += code, squares += code * code;
        lanes[i % KVT_BLOCK_LANES] += (float)code * (s->x[i] - s->mean);
    }
    const float n = (float)s->n, spread = (float)squares - (float)(sum * sum) / n;
    if (!(spread > 0)) return false;
    const float slope = add_lanes(lanes) / spread, lo = s->mean - slope * ((float)sum / n);
    return try_ends(best, s, lo, lo + slope * s->top);
}

/* Makes the step longer, and keeps the mean where it is. Not past the longest step: what was cut cannot be restored. */
static void restore_size(struct fit *f, const struct source *s) {
    float own[KVT_BLOCK_LANES] = {0}, shared[KVT_BLOCK_LANES] = {0};
    for (int i = 0; i < s->n; i++) {
        const float u = s->x[i] - s->mean, v = (f->step * (float)f->codes[i] + f->zero) - s->mean;
        own[i % KVT_BLOCK_LANES] += u * u;
        shared[i % KVT_BLOCK_LANES] += u * v;
    }
    const float uu = add_lanes(own), uv = add_lanes(shared);
    if (!(uu > 0 && uv > 0)) return;
    const float k = clamp(uu / uv, 0.8f, 1.5f);
    if (f->step * k > kvt_scale_from_log(255)) return;
    store(f, s, f->step * k, s->mean + (f->zero - s->mean) * k);
}

static void encode_group(const struct kvt_group *g, const float *x) {
    struct source s = {.x = x, .n = g->n, .bits = g->tile->format.bits};
    s.top = (float)((1 << s.bits) - 1);
    float lanes[KVT_BLOCK_LANES] = {0}, lo = x[0], hi = x[0];
    for (int i = 0; i < g->n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
        lanes[i % KVT_BLOCK_LANES] += x[i];
    }
    s.mean = add_lanes(lanes) / (float)g->n;
    const float middle = 0.5f * (lo + hi), half = 0.5f * (hi - lo);
    struct fit best = {.error = INFINITY};
    for (int i = 0; i < N_SHARES; i++) {
        const float part = shares[s.bits][i] * half;
        try_ends(&best, &s, middle - part, middle + part);
    }
    for (int i = 0; i < N_LINES && try_line(&best, &s);) i++;
    restore_size(&best, &s);
    kvt_group_put(g, best.scale, best.codes);
    kvt_tile_put_zero(g->tile, g->bytes, kvt_group_term(g), kvt_group_lane(g), (uint8_t)best.shift);
}

static void encode(const struct kvt_encode_args *a) { kvt_encode_groups(a, encode_group); }

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
