/* SPDX-License-Identifier: Apache-2.0
 *
 * kq: keys, kvtile's own (docs/codecs.md, "kvtile's own"). Per channel over the tile's 128 rows, not rotated. A quarter of the channels has a
 * bit more than the codec's name says, a quarter a bit less: by how much the queries at the same rows use a channel, its variance times
 * their mean square, or where queries are not known (or all zero) by its range. A scale is one byte below the largest of its class, a zero is f16,
 * and each row has a factor, one byte, that keeps products of the decoded row with its row what they were.
 *
 * Fixed arithmetic in f32, one rounding an operation. Sums over rows go one row after another; sums over channels over 32 lanes as in vu.c.
 */
#include <math.h>
#include <string.h>

#include "base/attr.h"
#include "codec/class.h"

enum { N = KVT_TILE_ROWS, N_LINES = 2, FACTOR_MOST = 37 }; /* the factor's byte: within 1 / 1.5 and 1.5 */
#define F16_MOST 65504.0f

/* One channel's rows, and its codes with what they stand for: step * code + zero. */
struct fit {
    uint8_t scale, codes[N];
    uint16_t zero16;
    float step, zero, error;
};

struct channel {
    float x[N];
    float top;  /* the largest code */
    float most; /* its class's largest scale */
};

/* What a tile needs of all channels before codes are computed. */
struct survey {
    float lo[KVT_LATENT_MAX], hi[KVT_LATENT_MAX];
    float weight[KVT_LATENT_MAX]; /* of queries, at most 1 */
    float worth[KVT_LATENT_MAX];
    uint8_t classes[KVT_LATENT_MAX];
    int place[KVT_LATENT_MAX];
    uint16_t most[KVT_CLASSES];
};

static float clamp(float x, float lo, float hi) { return x < lo ? lo : x > hi ? hi : x; }

/* ---- classes ----------------------------------------------------------------------------------------------------------- */

/* Weights of queries by channel. False, and all 1, where there are none. */
static bool weigh(struct survey *s, const float *queries, int d) {
    float most = 0;
    for (int c = 0; queries && c < d; c++) most = queries[c] > most ? queries[c] : most;
    for (int c = 0; c < d; c++) s->weight[c] = most > 0 ? queries[c] / most : 1;
    return most > 0;
}

/* The sum of the squared distances from the mean. */
static float variation(const float *x, ptrdiff_t stride) {
    float sum = 0, squares = 0;
    for (int r = 0; r < N; r++) sum += x[r * stride];
    const float mean = sum / N;
    for (int r = 0; r < N; r++) squares += (x[r * stride] - mean) * (x[r * stride] - mean);
    return squares;
}

static void measure(struct survey *s, const struct kvt_encode_args *a, int d) {
    const bool by_queries = weigh(s, a->queries, d);
    for (int c = 0; c < d; c++) {
        const float *x = a->rows + c;
        float lo = x[0], hi = x[0];
        for (int r = 1; r < N; r++) {
            const float v = x[r * a->stride];
            lo = v < lo ? v : lo;
            hi = v > hi ? v : hi;
        }
        s->lo[c] = lo, s->hi[c] = hi;
        s->worth[c] = by_queries ? variation(x, a->stride) * s->weight[c] : hi - lo;
    }
}

/* Classes by rank: the largest worth first, the lower channel first of equals. Within a class places follow the channels. */
static void sort(struct survey *s, const struct kvt_classes *classes, int d) {
    int next[KVT_CLASSES];
    for (int i = 0; i < KVT_CLASSES; i++) next[i] = classes->of[i].first;
    for (int c = 0; c < d; c++) {
        int rank = 0;
        for (int o = 0; o < d; o++) rank += s->worth[o] > s->worth[c] || (s->worth[o] == s->worth[c] && o < c);
        s->classes[c] = (uint8_t)kvt_class_of_place(classes, rank);
        s->place[c] = next[s->classes[c]]++;
    }
}

/* The largest scale of each class, rounded up to f16. */
static void find_most(struct survey *s, const struct kvt_classes *classes, int d) {
    float most[KVT_CLASSES] = {0};
    for (int c = 0; c < d; c++) {
        const int class = s->classes[c];
        const float step = (s->hi[c] - s->lo[c]) / (float)((1 << classes->of[class].bits) - 1);
        most[class] = step > most[class] ? step : most[class];
    }
    for (int i = 0; i < KVT_CLASSES; i++) {
        const float wanted = most[i] < F16_MOST ? most[i] : F16_MOST;
        s->most[i] = kvt_f16_from_f32(wanted);
        if (kvt_f32_from_f16(s->most[i]) < wanted) s->most[i]++;
    }
}

/* ---- one channel ------------------------------------------------------------------------------------------------------- */

/* The stored scale that is nearest in the logarithm, the zero that is not above. */
static void store(struct fit *f, const struct channel *ch, float step, float zero) {
    const int below = ch->most > 0 ? -kvt_log8_nearest(step / ch->most, KVT_CLASS_SCALE_PER) : 0;
    f->scale = (uint8_t)KVT_MIN(KVT_MAX(below, 0), 255);
    f->step = kvt_class_scale(ch->most, f->scale);
    zero = clamp(zero, -F16_MOST, F16_MOST);
    f->zero16 = kvt_f16_from_f32(zero);
    if (kvt_f32_from_f16(f->zero16) > zero) f->zero16 = (uint16_t)(f->zero16 >> 15 ? f->zero16 + 1 : f->zero16 - 1);
    f->zero = kvt_f32_from_f16(f->zero16);
}

static void encode_codes(struct fit *f, const struct channel *ch) {
    const float inverse = f->step > 0 ? 1 / f->step : 0;
    f->error = 0;
    for (int r = 0; r < N; r++) {
        const float y = ch->x[r] - f->zero, code = clamp(rintf(y * inverse), 0, ch->top);
        const float off = y - f->step * code;
        f->codes[r] = (uint8_t)code;
        f->error += off * off;
    }
}

/* Tries the line of least squares through the codes of the best so far. */
static bool try_line(struct fit *best, const struct channel *ch) {
    float total = 0, products = 0;
    int sum = 0, squares = 0;
    for (int r = 0; r < N; r++) {
        const float y = ch->x[r] - best->zero;
        const int code = best->codes[r];
        sum += code, squares += code * code;
        total += y;
        products += (float)code * y;
    }
    const float mean = total / N, spread = (float)squares - (float)(sum * sum) / N;
    if (!(spread > 0)) return false;
    const float slope = (products - (float)sum * mean) / spread;
    struct fit f;
    store(&f, ch, slope, best->zero + (mean - slope * ((float)sum / N)));
    encode_codes(&f, ch);
    if (!(f.error < best->error)) return false;
    *best = f;
    return true;
}

/* ---- a tile ------------------------------------------------------------------------------------------------------------ */

/* By row, sums over channels of the weighted products of the row (less the channels' middles) with itself and with the decoded row. */
struct products {
    float own[N][KVT_BLOCK_LANES], shared[N][KVT_BLOCK_LANES];
};

static void add_products(struct products *p, int channel, float weight, const struct channel *ch, const struct fit *f,
                         int bits) {
    const struct kvt_class_place place = kvt_class_place_of(f->step, f->zero, bits);
    for (int r = 0; r < N; r++) {
        const float u = ch->x[r] - place.middle, wu = weight * u;
        p->own[r][channel % KVT_BLOCK_LANES] += wu * u;
        p->shared[r][channel % KVT_BLOCK_LANES] += wu * (place.step * ((float)f->codes[r] - place.half));
    }
}

static float add_lanes(float lanes[KVT_BLOCK_LANES]) {
    for (int step = KVT_BLOCK_LANES / 2; step > 0; step /= 2)
        for (int i = 0; i < step; i++) lanes[i] += lanes[i + step];
    return lanes[0];
}

static void put_factors(const struct kvt_encode_args *a, struct products *p) {
    int8_t factors[N];
    for (int r = 0; r < N; r++) {
        const float own = add_lanes(p->own[r]), shared = add_lanes(p->shared[r]);
        const int e = own > 0 && shared > 0 ? kvt_log8_nearest(own / shared, KVT_CLASS_FACTOR_PER) : 0;
        factors[r] = (int8_t)KVT_MIN(KVT_MAX(e, -FACTOR_MOST), FACTOR_MOST);
    }
    kvt_class_put_factors(a->tile, a->bytes, factors);
}

static void encode(const struct kvt_encode_args *a) {
    const int d = a->tile->n_terms;
    const struct kvt_classes classes = kvt_classes_of(d, a->tile->format.bits);
    struct survey s;
    struct products products;
    if (a->n != N) return;
    memset(&products, 0, sizeof products);
    measure(&s, a, d);
    sort(&s, &classes, d);
    find_most(&s, &classes, d);
    kvt_class_put_head(a->tile, a->bytes, s.most, s.classes);
    for (int c = 0; c < d; c++) {
        const int class = s.classes[c], bits = classes.of[class].bits;
        struct channel ch = {.top = (float)((1 << bits) - 1), .most = kvt_f32_from_f16(s.most[class])};
        struct fit best;
        for (int r = 0; r < N; r++) ch.x[r] = a->rows[r * a->stride + c];
        store(&best, &ch, (s.hi[c] - s.lo[c]) / ch.top, s.lo[c]);
        encode_codes(&best, &ch);
        for (int i = 0; i < N_LINES && try_line(&best, &ch);) i++;
        kvt_class_put_place(a->tile, a->bytes, s.place[c], best.scale, best.zero16, best.codes);
        add_products(&products, c, s.weight[c], &ch, &best, bits);
    }
    put_factors(a, &products);
}

static void describe(const struct kvt_codec *codec, enum kvt_side side, int d, struct kvt_tile *out) {
    (void)side;
    kvt_tile_init_class(out, d, &codec->format);
}

extern const struct kvt_encoder kvt_encoder_kq;

#define ROW(b)                                                                                                         \
    {                                                                                                                  \
        .info = {.name = "kq" #b,                                                                                      \
                 .about = "keys alone: per channel, more bits where queries use a channel, a factor per token",        \
                 .source = "kvtile's own",                                                                             \
                 .bits = b,                                                                                            \
                 .group = N,                                                                                           \
                 .granularity = N,                                                                                     \
                 .sides = KVT_SIDES_K,                                                                                 \
                 .queries = true},                                                                                     \
        .encoder = &kvt_encoder_kq, .row_step = KVT_CLASS_STEP, .format = {                                            \
            .bits = b,                                                                                                 \
            .scale = KVT_SCALE_LOG,                                                                                    \
            .has_zero = true,                                                                                          \
            .group = N,                                                                                                \
            .has_factor = true                                                                                         \
        }                                                                                                              \
    }

static const struct kvt_codec codecs[] = {ROW(2), ROW(3), ROW(4)};

const struct kvt_encoder kvt_encoder_kq = {
    .grammar = "kq{2,3,4}",
    .codecs = codecs,
    .n_codecs = KVT_ARRAY_LEN(codecs),
    .describe = describe,
    .encode = encode,
};
