/* SPDX-License-Identifier: Apache-2.0
 *
 * kq with error feedback: the same tiles, better codes for a slower encoder. What the codes of one channel get wrong is made up for by the
 * channels that come after it, as far as the queries use them together: with C the second moments of the queries at these rows, the
 * channels in the order of their worth, half of its mean diagonal added to the diagonal, and C = R R^T with R upper triangular, the error of
 * channel i times R^-1[i][j] / R^-1[i][i] is made up for by the elements of each later channel j (GPTQ, Frantar et al. 2022, for keys and
 * queries instead of weights and inputs). A row's factor keeps (x - middle)^T C (x - middle) what it was.
 *
 * Sums are of floats, one after another. Where queries are not known it is kq.
 */
#include <math.h>
#include <string.h>

#include "base/attr.h"
#include "codec/kq.h"

enum { N = KVT_TILE_ROWS };
/* Of the mean diagonal. The moments are of 128 queries alone: with 1/20 heads of 128 lose. */
#define DAMPING 0.5f

/* The room: matrices by rank of their channels. */
struct room {
    float *q; /* [row][channel], then u */
    float *u; /* [rank][row]: elements less their middles */
    /* [rank][row]: elements less what is made up for; once they have codes, decoded ones less their middles. */
    float *w;
    float *c;     /* [rank][rank]: second moments, damped */
    float *lower; /* [rank][rank]: R^T, then its inverse */
};

size_t kvt_kq_room(int d) { return (size_t)d * (2 * N + 2 * (size_t)d); }

static struct room cut_room(float *at, int d) {
    const size_t rows = (size_t)d * N, square = (size_t)d * (size_t)d;
    return (struct room){.q = at, .u = at, .w = at + rows, .c = at + 2 * rows, .lower = at + 2 * rows + square};
}

/* to[i] += k * from[i]. */
static void add_times(float *restrict to, float k, const float *restrict from, int n) {
    for (int i = 0; i < n; i++) to[i] += k * from[i];
}

static void sum_squares(float *sums, const float *q, int d) {
    memset(sums, 0, (size_t)d * sizeof *sums);
    for (int r = 0; r < N; r++)
        for (int c = 0; c < d; c++) sums[c] += q[r * d + c] * q[r * d + c];
}

/* Second moments; the order of channels is that of their ranks from here on. */
static void find_moments(const struct room *m, const int *rank, int d) {
    float ranked[KVT_LATENT_MAX];
    memset(m->c, 0, (size_t)d * (size_t)d * sizeof *m->c);
    for (int r = 0; r < N; r++) {
        for (int c = 0; c < d; c++) ranked[rank[c]] = m->q[r * d + c];
        for (int i = 0; i < d; i++) add_times(m->c + (ptrdiff_t)i * d, ranked[i], ranked, d);
    }
}

/* Damps C; lower = R^T; then its inverse. */
static void factor(const struct room *m, int d) {
    float *l = m->lower, mean = 0;
    for (int i = 0; i < d; i++) mean += m->c[i * d + i];
    mean /= (float)d;
    for (int i = 0; i < d; i++) m->c[i * d + i] += DAMPING * mean;
    memcpy(l, m->c, (size_t)d * (size_t)d * sizeof *l);
    for (int k = d - 1; k >= 0; k--) {
        float *row = l + (ptrdiff_t)k * d;
        const float root = sqrtf(row[k] > 0 ? row[k] : mean > 0 ? mean : 1); /* above 0 but for rounding */
        row[k] = root;
        for (int i = 0; i < k; i++) row[i] /= root;
        for (int i = 0; i < k; i++) add_times(l + (ptrdiff_t)i * d, -row[i], row, i + 1);
    }
    for (int j = 0; j < d; j++) {
        float *row = l + (ptrdiff_t)j * d, sum[KVT_LATENT_MAX] = {0};
        for (int k = 0; k < j; k++) add_times(sum, -row[k], l + (ptrdiff_t)k * d, k + 1);
        for (int k = 0; k < j; k++) row[k] = sum[k] / row[j];
        row[j] = 1 / row[j];
    }
}

/* Codes of one channel, whose elements become decoded ones less the middle. Returns errors in error[]. */
static void code_channel(uint8_t codes[N], float error[N], float w[N], const struct kvt_kq_fit *f, int top) {
    const float zero = kvt_f32_from_f16(f->zero16), inverse = f->step > 0 ? 1 / f->step : 0;
    const float half = (float)top / 2;
    for (int r = 0; r < N; r++) {
        float code = rintf((w[r] - zero) * inverse);
        code = code > 0 ? code < (float)top ? code : (float)top : 0;
        codes[r] = (uint8_t)code;
        const float decoded = zero + f->step * code;
        error[r] = w[r] - decoded;
        w[r] = f->step * (code - half);
    }
}

/* By row, products of u with C u and with C (decoded - middle). */
static void find_products(const struct room *m, int d, float own[N], float shared[N]) {
    for (int r = 0; r < N; r++) own[r] = shared[r] = 0;
    for (int i = 0; i < d; i++) {
        float y[N] = {0};
        for (int j = 0; j < d; j++) add_times(y, m->c[(ptrdiff_t)i * d + j], m->u + (ptrdiff_t)j * N, N);
        for (int r = 0; r < N; r++) {
            own[r] += m->u[i * N + r] * y[r];
            shared[r] += m->w[i * N + r] * y[r];
        }
    }
}

static void encode_with(const struct kvt_encode_args *a, const struct room *m) {
    const int d = a->tile->n_terms, bits = a->tile->format.bits;
    const struct kvt_classes classes = kvt_classes_of(d, bits);
    struct kvt_kq_survey s;
    struct kvt_kq_fit fits[KVT_LATENT_MAX];
    float sums[KVT_LATENT_MAX], own[N], shared[N];
    int channel[KVT_LATENT_MAX];
    sum_squares(sums, m->q, d);
    kvt_kq_survey(&s, a, sums, &classes);
    kvt_class_put_head(a->tile, a->bytes, s.most, s.classes);
    find_moments(m, s.rank, d);
    factor(m, d);
    for (int c = 0; c < d; c++) {
        const int top = (1 << classes.of[s.classes[c]].bits) - 1, i = s.rank[c];
        int16_t t[N];
        kvt_kq_take_channel(t, a, &s, c);
        kvt_kq_fit_channel(&fits[c], t, &s, c, top, bits);
        const float middle = kvt_f32_from_f16(fits[c].zero16) + fits[c].step * ((float)top / 2);
        channel[i] = c;
        for (int r = 0; r < N; r++) {
            m->w[i * N + r] = a->rows[r * a->stride + c];
            m->u[i * N + r] = a->rows[r * a->stride + c] - middle;
        }
    }
    for (int i = 0; i < d; i++) {
        const int c = channel[i], top = (1 << classes.of[s.classes[c]].bits) - 1;
        uint8_t codes[N];
        float error[N];
        code_channel(codes, error, m->w + (ptrdiff_t)i * N, &fits[c], top);
        kvt_class_put_place(a->tile, a->bytes, s.place[c], fits[c].scale, fits[c].zero16, codes);
        for (int j = i + 1; j < d; j++)
            add_times(m->w + (ptrdiff_t)j * N, -m->lower[j * d + i] / m->lower[i * d + i], error, N);
    }
    find_products(m, d, own, shared);
    kvt_kq_put_factors(a, own, shared);
}

extern const struct kvt_encoder kvt_encoder_kq, kvt_encoder_kq_feedback;

static void encode(const struct kvt_encode_args *a) {
    const int d = a->tile->n_terms;
    bool known = false;
    for (int i = 0; a->room && i < d * N && !known; i++) known = a->room[i] != 0;
    if (a->n != N) return;
    if (!known) {
        kvt_encoder_kq.encode(a);
        return;
    }
    const struct room room = cut_room(a->room, d);
    encode_with(a, &room);
}

#define ROW(b)                                                                                                         \
    KVT_KQ_ROW(b, "-feedback", "kq, encoded better and slower: later channels make up for errors of earlier ones",     \
               true, kvt_encoder_kq_feedback)

static const struct kvt_codec codecs[] = {ROW(2), ROW(3), ROW(4)};

const struct kvt_encoder kvt_encoder_kq_feedback = {
    .grammar = "kq{2,3,4}-feedback",
    .codecs = codecs,
    .n_codecs = KVT_ARRAY_LEN(codecs),
    .describe = kvt_kq_describe,
    .encode = encode,
};
