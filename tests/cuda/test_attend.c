/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on a device against double precision on the decoded rows, over caches that the library built: every codec that the device
 * reads, head sizes, groups of heads, ragged sequences, several query rows, sinks, tails, windows. The rule is design.md's: the kernel's
 * error is at most a fifth of the codec's own, and for 16-bit rows at most twice that of plain 32-bit arithmetic.
 *
 *   test_attend [--only KV] [--few] [--verbose]    --few: short sequences of some codecs, for a processor that stands in for a GPU
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "base/attr.h"
#include "base/half.h"
#include "base/rng.h"
#include "cache/cache.h"
#include "kvtile/kvtile.h"

enum { MAX_SEQS = 4, CPU = 0, GPU = 1 };

struct shape {
    const char *kv;
    int d, n_heads, group;
    int n_rows[MAX_SEQS]; /* of each sequence, 0: no more */
    int n_queries;        /* rows of the step */
    int sink, tail, window;
    float softcap;
    bool sinks;
    float outlier; /* one key channel is so many times the others */
    int v_size;    /* where value rows have another size than keys: not 0 */
};

static int row_size(const struct shape *s, int side) { return side == KVT_SIDE_V && s->v_size ? s->v_size : s->d; }

static struct kvt_error err;
static int n_passed, n_failed;
static bool is_verbose;

static void must(enum kvt_status status) {
    if (status == KVT_OK) return;
    printf("FAILED: %s\n", err.text);
    exit(1);
}

static void *take(size_t n, size_t bytes) {
    void *p = calloc(n, bytes);
    if (!p) exit(1);
    return p;
}

/* What a case works with. */
struct bench {
    const struct shape *s;
    struct kvt_plan *plan;
    struct kvt_pool *pool[2];
    struct kvt_seq *seqs[2][MAX_SEQS];
    struct kvt_step *step[2];
    int n_seqs, n_q_heads, d[KVT_SIDE_COUNT];
    float *rows[KVT_SIDE_COUNT][MAX_SEQS]; /* as appended: [row][head][d] */
    float *q, *sinks;                      /* q: [query row of all sequences][query head][d] */
};

static void draw(struct kvt_rng *rng, float *x, size_t n, float scale) {
    for (size_t i = 0; i < n; i++) x[i] = scale * kvt_rng_normal(rng);
}

/* ---- the cache --------------------------------------------------------------------------------------------------------- */

static void append(struct bench *b, int first, int n, bool is_last) {
    const struct shape *s = b->s;
    int counts[MAX_SEQS], total = 0;
    struct kvt_seq *seqs[2][MAX_SEQS];
    int n_seqs = 0, which[MAX_SEQS];
    for (int i = 0; i < b->n_seqs; i++) {
        const int end = s->n_rows[i] - s->n_queries, begin = is_last ? end : KVT_MIN(first, end);
        const int take_rows = is_last ? s->n_queries : KVT_MIN(end - begin, n);
        if (!take_rows) continue;
        which[n_seqs] = i;
        for (int p = 0; p < 2; p++) seqs[p][n_seqs] = b->seqs[p][i];
        counts[n_seqs++] = take_rows;
        total += take_rows;
    }
    if (!n_seqs) return;
    float *x[KVT_SIDE_COUNT];
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        const size_t row = (size_t)s->n_heads * (size_t)b->d[side];
        x[side] = take((size_t)total * row, sizeof(float));
        float *to = x[side];
        for (int i = 0; i < n_seqs; i++, to += (size_t)counts[i - 1] * row)
            memcpy(to, b->rows[side][which[i]] + (size_t)(is_last ? s->n_rows[which[i]] - s->n_queries : first) * row,
                   (size_t)counts[i] * row * sizeof(float));
    }
    const struct kvt_rows k = {x[0], KVT_TYPE_F32, s->n_heads * b->d[0], b->d[0]},
                          v = {x[1], KVT_TYPE_F32, s->n_heads * b->d[1], b->d[1]};
    for (int p = 0; p < 2; p++) {
        must(kvt_step_begin(b->step[p], seqs[p], counts, n_seqs, &err));
        must(kvt_step_append(b->step[p], 0, &k, &v, NULL, 0, &err));
        if (!is_last) must(kvt_step_end(b->step[p], &err));
    }
    free(x[0]);
    free(x[1]);
}

static void build(struct bench *b, const struct shape *s, struct kvt_rng *rng) {
    *b = (struct bench){.s = s, .n_q_heads = s->n_heads * s->group, .d = {s->d, row_size(s, KVT_SIDE_V)}};
    const struct kvt_layer_shape layer = {s->n_heads, b->d[0], b->d[1], s->window};
    const struct kvt_shape shape = {1, &layer};
    must(kvt_plan_create(
        &b->plan, &shape,
        &(struct kvt_plan_options){
            .struct_size = sizeof(struct kvt_plan_options), .kv = s->kv, .sink = s->sink, .tail = s->tail},
        NULL, &err));
    for (int p = 0; p < 2; p++) {
        const struct kvt_pool_options options = {.struct_size = sizeof options, .backend = p == GPU ? "cuda" : "cpu"};
        must(kvt_pool_create(&b->pool[p], b->plan, &options, &err));
        must(kvt_step_create(&b->step[p], b->pool[p], MAX_SEQS, 4096, &err));
    }
    int longest = 0;
    float *bias = take((size_t)s->d, sizeof *bias);
    for (int c = 0; c < s->d; c++) bias[c] = c % 7 == 0 ? 3 * kvt_rng_normal(rng) : 0;
    for (int i = 0; i < MAX_SEQS && s->n_rows[i]; i++) {
        for (int p = 0; p < 2; p++) must(kvt_seq_create(&b->seqs[p][i], b->pool[p], s->n_rows[i], &err));
        b->n_seqs++;
        longest = KVT_MAX(longest, s->n_rows[i]);
        for (int side = 0; side < KVT_SIDE_COUNT; side++) {
            const size_t n = (size_t)(s->n_rows[i] * s->n_heads) * (size_t)b->d[side];
            b->rows[side][i] = take(n, sizeof(float));
            draw(rng, b->rows[side][i], n, 1);
            for (size_t j = 0; side == KVT_SIDE_K && j < n; j++) {
                const int c = (int)(j % (size_t)s->d);
                b->rows[side][i][j] = (b->rows[side][i][j] + bias[c]) * (c == 5 && s->outlier > 0 ? s->outlier : 1);
            }
        }
    }
    free(bias);
    const size_t n_q = (size_t)(b->n_seqs * s->n_queries) * (size_t)b->n_q_heads * (size_t)s->d;
    b->q = take(n_q, sizeof(float));
    draw(rng, b->q, n_q, 1);
    if (s->sinks) {
        b->sinks = take((size_t)b->n_q_heads, sizeof(float));
        draw(rng, b->sinks, (size_t)b->n_q_heads, 2);
    }
    for (int first = 0; first < longest; first += 512) append(b, first, 512, false);
    append(b, 0, 0, true);
}

static void destroy(struct bench *b) {
    for (int p = 0; p < 2; p++) {
        kvt_step_abandon(b->step[p]);
        for (int i = 0; i < b->n_seqs; i++) kvt_seq_destroy(b->seqs[p][i]);
        kvt_step_destroy(b->step[p]);
        kvt_pool_destroy(b->pool[p]);
    }
    for (int i = 0; i < b->n_seqs; i++) {
        free(b->rows[0][i]);
        free(b->rows[1][i]);
    }
    kvt_plan_destroy(b->plan);
    free(b->q);
    free(b->sinks);
}

/* ---- the oracle -------------------------------------------------------------------------------------------------------- */

static float round_to(enum kvt_number number, float x) {
    return number == KVT_NUMBER_F32    ? x
           : number == KVT_NUMBER_BF16 ? kvt_f32_from_bf16(kvt_bf16_from_f32(x))
                                       : kvt_f32_from_f16(kvt_f16_from_f32(x));
}

/* Rows of one head that a query at position p sees, decoded or as appended; [row][d]. */
static void see_rows(const struct bench *b, enum kvt_side side, int seq, int head, int64_t p, bool decoded,
                     float *rows) {
    const struct kvt_layer *layer = &b->pool[CPU]->plan->layers[0];
    const int d = b->d[side];
    const int64_t first = kvt_layer_first_row(layer, p + 1);
    const enum kvt_number wide = layer->page[KVT_REGION_TAIL].tile[side].number;
    for (int64_t r = 0; r <= p; r++) {
        if (r >= layer->plan.sink && r < first) continue; /* not there */
        const float *row = b->rows[side][seq] + ((size_t)r * (size_t)b->s->n_heads + (size_t)head) * (size_t)d;
        const bool in_body = r >= layer->plan.sink && r < kvt_layer_body_end(layer, p + 1);
        for (int c = 0; c < d; c++) rows[r * d + c] = in_body && !decoded ? row[c] : round_to(wide, row[c]);
        if (in_body && decoded) {
            const struct kvt_page *page = b->seqs[CPU][seq]->layers[0].list[KVT_REGION_BODY].pages[r / KVT_TILE_ROWS];
            const struct kvt_page_shape *shape = &layer->page[KVT_REGION_BODY];
            kvt_tile_decode(&shape->tile[side], rows + r * d, d, kvt_page_tile(page, shape, head, side),
                            (int)(r % KVT_TILE_ROWS), 1);
        }
    }
}

/* Softmax attention of one query in REAL arithmetic; returns the log-sum-exp. */
#define ATTEND(name, REAL, EXP, TANH, LOG)                                                                             \
    static REAL name(const struct bench *b, const float *q, const float *k, const float *v, int64_t first,             \
                     int64_t sink, int64_t end, int q_head, REAL *out) {                                               \
        const int d = b->d[KVT_SIDE_K], dv = b->d[KVT_SIDE_V];                                                         \
        const REAL scale = (REAL)(1 / sqrt((double)d));                                                                \
        REAL *w = take((size_t)end, sizeof *w), most = b->sinks ? (REAL)b->sinks[q_head] : (REAL)-1e30, sum = 0;       \
        for (int64_t r = 0; r < end; r++) {                                                                            \
            REAL s = 0;                                                                                                \
            for (int c = 0; c < d; c++) s += (REAL)q[c] * (REAL)k[r * d + c];                                          \
            s *= scale;                                                                                                \
            if (b->s->softcap > 0) s = (REAL)b->s->softcap * TANH(s / (REAL)b->s->softcap);                            \
            w[r] = r >= sink && r < first ? (REAL)-1e30 : s;                                                           \
            most = KVT_MAX(most, w[r]);                                                                                \
        }                                                                                                              \
        if (b->sinks) sum = EXP((REAL)b->sinks[q_head] - most);                                                        \
        for (int c = 0; c < dv; c++) out[c] = 0;                                                                       \
        for (int64_t r = 0; r < end; r++) {                                                                            \
            if (r >= sink && r < first) continue;                                                                      \
            const REAL e = EXP(w[r] - most);                                                                           \
            sum += e;                                                                                                  \
            for (int c = 0; c < dv; c++) out[c] += e * (REAL)v[r * dv + c];                                            \
        }                                                                                                              \
        for (int c = 0; c < dv; c++) out[c] /= sum;                                                                    \
        free(w);                                                                                                       \
        return most + LOG(sum);                                                                                        \
    }
ATTEND(attend_double, double, exp, tanh, log)
ATTEND(attend_float, float, expf, tanhf, logf)

/* ---- judging --------------------------------------------------------------------------------------------------------- */

struct errors {
    double kernel, codec, plain, lse; /* root mean squares; lse: the largest */
    double size;
};

static void compare(const struct bench *b, const float *out, const float *lse, struct errors *e) {
    const struct shape *s = b->s;
    const struct kvt_layer *layer = &b->pool[CPU]->plan->layers[0];
    const int d = b->d[KVT_SIDE_K], dv = b->d[KVT_SIDE_V];
    *e = (struct errors){0};
    size_t n = 0;
    for (int i = 0; i < b->n_seqs; i++) {
        const size_t size = (size_t)s->n_rows[i] * (size_t)KVT_MAX(d, dv);
        float *k = take(size, sizeof(float)), *v = take(size, sizeof(float)), *k0 = take(size, sizeof(float)),
              *v0 = take(size, sizeof(float));
        for (int head = 0; head < s->n_heads; head++)
            for (int r = 0; r < s->n_queries; r++) {
                const int64_t p = s->n_rows[i] - s->n_queries + r, first = kvt_layer_first_row(layer, p + 1);
                see_rows(b, KVT_SIDE_K, i, head, p, true, k);
                see_rows(b, KVT_SIDE_V, i, head, p, true, v);
                see_rows(b, KVT_SIDE_K, i, head, p, false, k0);
                see_rows(b, KVT_SIDE_V, i, head, p, false, v0);
                for (int g = 0; g < s->group; g++) {
                    const int row = i * s->n_queries + r, q_head = head * s->group + g;
                    const float *q = b->q + ((size_t)row * (size_t)b->n_q_heads + (size_t)q_head) * (size_t)d;
                    double want[KVT_HEAD_MAX], exact[KVT_HEAD_MAX];
                    float plain[KVT_HEAD_MAX];
                    const double want_lse = attend_double(b, q, k, v, first, layer->plan.sink, p + 1, q_head, want);
                    attend_double(b, q, k0, v0, first, layer->plan.sink, p + 1, q_head, exact);
                    attend_float(b, q, k, v, first, layer->plan.sink, p + 1, q_head, plain);
                    const float *got = out + ((size_t)row * (size_t)b->n_q_heads + (size_t)q_head) * (size_t)dv;
                    for (int c = 0; c < dv; c++, n++) {
                        const double x = got[c] - want[c], y = want[c] - exact[c], z = plain[c] - want[c];
                        e->kernel += x * x;
                        e->codec += y * y;
                        e->plain += z * z;
                        e->size += want[c] * want[c];
                    }
                    e->lse = fmax(e->lse, fabs(lse[row * b->n_q_heads + q_head] - want_lse));
                }
            }
        free(k), free(v), free(k0), free(v0);
    }
    e->kernel = sqrt(e->kernel / (double)n);
    e->codec = sqrt(e->codec / (double)n);
    e->plain = sqrt(e->plain / (double)n);
    e->size = sqrt(e->size / (double)n);
}

static void judge(const struct shape *s, bool good, const char *what, const struct errors *e) {
    good ? n_passed++ : n_failed++;
    if (good && !is_verbose) return;
    printf(
        "%s %-20s d %3d heads %2d x %2d rows %5d.. queries %d sink %3d tail %3d window %4d cap %g sinks %d outlier %g: %s "
        "kernel %.2e codec %.2e (%.3f) f32 %.2e lse %.1e size %.2e\n",
        good ? "  ok  " : "FAILED", s->kv, s->d, s->n_heads, s->group, s->n_rows[0], s->n_queries, s->sink, s->tail,
        s->window, (double)s->softcap, s->sinks, (double)s->outlier, what, e->kernel, e->codec,
        e->codec > 0 ? e->kernel / e->codec : 0, e->plain, e->lse, e->size);
}

static void try_case(const struct shape *s, struct kvt_rng *rng) {
    struct bench b;
    build(&b, s, rng);
    const size_t n = (size_t)(b.n_seqs * s->n_queries) * (size_t)b.n_q_heads;
    const size_t n_out = n * (size_t)b.d[KVT_SIDE_V];
    float *out = take(n_out, sizeof(float)), *again = take(n_out, sizeof(float)), *lse = take(n, sizeof(float));
    for (size_t i = 0; i < n_out; i++) out[i] = again[i] = NAN;
    struct kvt_attend a = {.struct_size = sizeof a,
                           .n_q_heads = b.n_q_heads,
                           .scale = 1 / sqrtf((float)s->d),
                           .softcap = s->softcap,
                           .sinks = b.sinks,
                           .q = {b.q, KVT_TYPE_F32, b.n_q_heads * s->d, s->d},
                           .out = out,
                           .out_row_stride = b.n_q_heads * b.d[KVT_SIDE_V],
                           .out_head_stride = b.d[KVT_SIDE_V],
                           .lse = lse};
    must(kvt_step_attend(b.step[GPU], 0, &a, &err));
    a.out = again;
    must(kvt_step_attend(b.step[GPU], 0, &a, &err));
    struct errors e;
    compare(&b, out, lse, &e);
    const struct kvt_tile *body = b.pool[CPU]->plan->layers[0].page[KVT_REGION_BODY].tile;
    const bool is_plain = body[KVT_SIDE_K].kind == KVT_TILE_PLAIN && body[KVT_SIDE_V].kind == KVT_TILE_PLAIN;
    /* Prompts of 16-bit rows are long sums on tensor cores alone; of others, rows are rounded to f16, and an outlier makes those count
     * whose keys are large. */
    const bool is_prompt = s->n_queries > 8;
    const double share = is_prompt && s->outlier > 0 ? 0.25 : 0.2;
    const bool good = is_plain ? e.kernel <= (is_prompt ? 4 : 2) * e.plain : e.kernel <= share * e.codec;
    judge(s, good && e.lse < 2e-3 * (s->outlier > 0 ? s->outlier : 1), "error", &e);
    judge(s, memcmp(out, again, n_out * sizeof *out) == 0, "same bits twice", &e);
    free(out), free(again), free(lse);
    destroy(&b);
}

/* Cases that a codec of the usual sizes goes through, and those for rows of other sizes: `few` are those for a processor. */
static const struct shape shapes[] = {
    {NULL, 128, 2, 4, {1500, 700, 129, 64}, 1, 128, 128, 0, 0, false, 0, 0},
    {NULL, 128, 2, 8, {2048}, 1, 0, 0, 0, 0, false, 0, 0},
    {NULL, 128, 2, 4, {1000, 1}, 1, 0, 64, 0, 0, true, 50, 0},
    {NULL, 64, 3, 1, {900, 300}, 1, 128, 100, 0, 0, false, 0, 0},
    {NULL, 64, 1, 3, {900, 300}, 3, 128, 128, 0, 30, true, 0, 0},
    {NULL, 128, 1, 4, {1200, 515}, 4, 128, 32, 0, 0, false, 0, 0},
    {NULL, 128, 2, 2, {1200, 300}, 4, 0, 128, 400, 0, false, 0, 0},
    {NULL, 128, 1, 16, {700}, 8, 128, 128, 0, 0, true, 0, 0},
    {NULL, 128, 2, 2, {600, 4}, 4, 0, 0, 0, 0, false, 0, 0}, /* no row is ever in 16 bits */
    {NULL, 256, 2, 2, {800, 130}, 1, 128, 64, 0, 0, false, 0, 0},
    {NULL, 256, 1, 5, {800, 900}, 2, 128, 64, 0, 20, true, 0, 0},
    {NULL, 128, 2, 1, {700, 66}, 5, 0, 0, 200, 0, false, 0, 0},
};
static const struct shape odd_shapes[] = {
    {NULL, 96, 2, 4, {900, 300}, 1, 128, 64, 0, 0, false, 0, 0},
    {NULL, 80, 2, 3, {700, 100}, 3, 0, 100, 0, 25, true, 0, 0},
    {NULL, 576, 1, 16, {800, 300}, 1, 128, 64, 0, 0, false, 0, 512},
    {NULL, 192, 1, 4, {600}, 2, 0, 32, 300, 0, false, 0, 128},
};
/* Prompts: many query rows, beside one that is a decode. */
static const struct shape prompt_shapes[] = {
    {NULL, 128, 2, 4, {500, 420}, 100, 128, 64, 0, 0, false, 0, 0},
    {NULL, 128, 1, 3, {700}, 150, 0, 0, 0, 0, true, 50, 0},
    {NULL, 64, 1, 16, {900, 200}, 26, 128, 128, 300, 30, true, 0, 0},
    {NULL, 256, 1, 4, {400}, 100, 128, 32, 0, 0, false, 0, 0},
    {NULL, 96, 1, 4, {500, 90}, 33, 128, 30, 0, 0, false, 0, 0},
};
static const struct shape few_shapes[] = {
    {NULL, 128, 1, 3, {276}, 2, 128, 20, 0, 0, true, 0, 0},
    {NULL, 128, 1, 4, {260}, 1, 0, 0, 0, 20, false, 0, 0},
    {NULL, 80, 1, 3, {150}, 1, 0, 0, 100, 25, false, 0, 48},
};
static const struct shape few_prompts[] = {
    {NULL, 64, 1, 2, {140, 3}, 3, 0, 0, 0, 0, false, 0, 0},
    {NULL, 64, 2, 7, {160, 40}, 19, 0, 8, 0, 0, true, 0, 0},
};

static const char *const usual[] = {
    "f16", "kivi4g32", "kivi4g64", "kivi4g128", "kivi2g32", "kivi3g32", "kivi5g64", "kivi6g32", "kivi8g32",
    "affine4g64", "affine4g32", "affine8g64", "affine2g64", "affine3g64", "affine6g128", "affine5g32", "q8_0", "q4_0",
    "q5_1", "q5_0", "q4_1", "q4_0-rot", "kivi4g32,affine8g64", "kvarn4", "kvarn2", "kvarn8", "kivi4g32,q8_0",
    /* codes that are no whole numbers, scales that are not f16, widths that differ by channel, two sides that differ: */
    "bf16", "f32", "kvt4", "kvt3", "kvt2", "kq4-feedback,vu4", "kq3,f16", "f16,vu3", "kq4,kivi4g32", "kivi4g32,vu2",
    "f16,kivi4g32", "affine4g64,f16", "f32,q8_0", "bf16,kivi4g64", "iq4_nl", "iq4_nl-rot", "fp8e4m3", "fp8e5m2",
    "fp8e4m3-row", "mxfp8", "mxfp4", "nvfp4", "turbo4", "turbo3", "turbo2", "kivi4g32-parity", "kivi8g64-parity",
    "kvarn3-parity", "affine4g64-metal", "nvfp4,fp8e4m3", "fp8e5m2,mxfp4"};
/* Some of each kind. */
static const char *const odd[] = {"f16",    "bf16",    "f32",   "kivi4g32", "affine5g64", "q8_0",
                                  "iq4_nl", "fp8e4m3", "mxfp8", "mxfp4",    "nvfp4",      "turbo3",
                                  "kvarn4", "kvt4",    "kvt3",  "kvt2",     "f16,vu4"};
static const char *const few[] = {"f16",     "f32",   "kivi3g32", "affine5g64",     "q8_0",   "iq4_nl-rot",
                                  "fp8e5m2", "mxfp8", "nvfp4",    "turbo2",         "kvarn4", "kvt4",
                                  "kvt3",    "kvt2",  "bf16,vu4", "kivi8g32-parity"};

static const char *const few_prompted[] = {"f16", "affine5g64", "nvfp4", "kvt3"};

/* Not if a codec takes no rows of the shape's sizes, or the device does not encode them. */
static bool fits(const char *kv, const struct shape *s) {
    struct kvt_plan *plan = NULL;
    struct kvt_pool *pool = NULL;
    const struct kvt_layer_shape layer = {s->n_heads, s->d, row_size(s, KVT_SIDE_V), s->window};
    const struct kvt_plan_options options = {.struct_size = sizeof options, .kv = kv, .sink = s->sink, .tail = s->tail};
    const struct kvt_pool_options on = {.struct_size = sizeof on, .backend = "cuda"};
    enum kvt_status status = kvt_plan_create(&plan, &(struct kvt_shape){1, &layer}, &options, NULL, &err);
    if (status == KVT_OK) status = kvt_pool_create(&pool, plan, &on, &err);
    if (status != KVT_OK && is_verbose) printf("  left out: %s\n", err.text);
    kvt_pool_destroy(pool);
    kvt_plan_destroy(plan);
    return status == KVT_OK;
}

static void try_all(const char *const *kvs, size_t n_kvs, const struct shape *of, size_t n, const char *only,
                    struct kvt_rng *rng) {
    if (only) kvs = &only, n_kvs = 1;
    for (size_t i = 0; i < n_kvs; i++)
        for (size_t j = 0; j < n; j++) {
            struct shape s = of[j];
            s.kv = kvs[i];
            if (fits(kvs[i], &s)) try_case(&s, rng);
        }
}
#define TRY_ALL(kvs, shapes) try_all(kvs, KVT_ARRAY_LEN(kvs), shapes, KVT_ARRAY_LEN(shapes), only, &rng)

int main(int argc, char **argv) {
    const char *only = NULL;
    bool is_few = false, is_prompts = false;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--verbose") == 0)
            is_verbose = true;
        else if (strcmp(argv[i], "--few") == 0)
            is_few = true;
        else if (strcmp(argv[i], "--prompts") == 0)
            is_prompts = true;
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            only = argv[++i];
    int n_devices;
    if (kvt_cuda_n_devices(&n_devices, &err) != KVT_OK) {
        printf("skipped: %s\n", err.text);
        return 77;
    }
    struct kvt_rng rng = {1};
    if (is_few) {
        TRY_ALL(few, few_shapes);
        TRY_ALL(few_prompted, few_prompts);
    } else {
        if (!is_prompts) TRY_ALL(usual, shapes);
        if (!is_prompts) TRY_ALL(odd, odd_shapes);
        TRY_ALL(usual, prompt_shapes);
    }
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed ? 1 : 0;
}
