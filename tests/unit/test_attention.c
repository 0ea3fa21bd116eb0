/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention against double precision on the decoded rows, whatever the chunking, threads, level and scheme.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "kvtile/kvtile.h"
#include "support/share.h"
#include "support/threads.h"

enum { MAX_ROWS = 5000 };

struct shape {
    int kv_heads, q_heads, k_size, v_size, window, n_rows;
};

/* Rows of one layer for the whole test: the same numbers however they are cut. */
struct data {
    struct shape shape;
    float *k, *v, *q, *sinks;
};

static float *random_rows(struct kvt_rng *rng, int n, int width, float bias) {
    float *x = malloc((size_t)n * (size_t)width * sizeof *x);
    assert_non_null(x);
    for (int r = 0; r < n; r++)
        for (int c = 0; c < width; c++) x[r * width + c] = kvt_rng_normal(rng) + (c % 16 == 3 ? bias : 0);
    return x;
}

static struct data make_data(struct shape s, uint64_t seed) {
    struct kvt_rng rng = {seed};
    struct data d = {.shape = s};
    d.k = random_rows(&rng, s.n_rows, s.kv_heads * s.k_size, 20);
    d.v = random_rows(&rng, s.n_rows, s.kv_heads * s.v_size, 0);
    d.q = random_rows(&rng, s.n_rows, s.q_heads * s.k_size, 0);
    d.sinks = random_rows(&rng, 1, s.q_heads, 0);
    return d;
}

static void free_data(struct data *d) {
    free(d->k);
    free(d->v);
    free(d->q);
    free(d->sinks);
}

struct setup {
    const char *kv;
    int sink, tail, threads;
    const char *level;
    bool with_sinks;
    float softcap;
    int start, rolling;
};

struct made {
    struct kvt_plan *plan;
    struct kvt_pool *pool;
    struct kvt_seq *seq;
    struct kvt_step *step;
    struct kvt_parallel parallel;
};

static struct made make(const struct data *d, const struct setup *u) {
    const struct shape *s = &d->shape;
    const struct kvt_layer_shape layer = {s->kv_heads, s->k_size, s->v_size, s->window};
    const struct kvt_shape shape = {1, &layer};
    const struct kvt_plan_options po = {.struct_size = sizeof po,
                                        .kv = u->kv,
                                        .sink = u->sink,
                                        .tail = u->tail,
                                        .start = u->start,
                                        .rolling = u->rolling};
    struct made m = {.parallel = test_parallel(u->threads)};
    struct kvt_error err;
    assert_int_equal(kvt_plan_create(&m.plan, &shape, &po, NULL, &err), KVT_OK);
    const struct kvt_pool_options oo = {.struct_size = sizeof oo, .level = u->level, .parallel = &m.parallel};
    assert_int_equal(kvt_pool_create(&m.pool, m.plan, &oo, &err), KVT_OK);
    assert_int_equal(kvt_seq_create(&m.seq, m.pool, MAX_ROWS, &err), KVT_OK);
    assert_int_equal(kvt_step_create(&m.step, m.pool, 1, MAX_ROWS, &err), KVT_OK);
    return m;
}

static void unmake(struct made *m) {
    kvt_step_destroy(m->step);
    kvt_seq_destroy(m->seq);
    kvt_pool_destroy(m->pool);
    kvt_plan_destroy(m->plan);
}

/* Appends n rows from `first` on and attends for them. */
static void feed(const struct made *m, const struct data *d, const struct setup *u, int first, int n, float *out,
                 float *lse) {
    const struct shape *s = &d->shape;
    const int kw = s->kv_heads * s->k_size, vw = s->kv_heads * s->v_size, qw = s->q_heads * s->k_size;
    const struct kvt_rows k = {d->k + first * kw, KVT_TYPE_F32, kw, s->k_size};
    const struct kvt_rows v = {d->v + first * vw, KVT_TYPE_F32, vw, s->v_size};
    const struct kvt_attend a = {.struct_size = sizeof a,
                                 .n_q_heads = s->q_heads,
                                 .scale = 1 / sqrtf((float)s->k_size),
                                 .softcap = u->softcap,
                                 .sinks = u->with_sinks ? d->sinks : NULL,
                                 .q = {d->q + first * qw, KVT_TYPE_F32, qw, s->k_size},
                                 .out = out + (ptrdiff_t)first * s->q_heads * s->v_size,
                                 .out_row_stride = s->q_heads * s->v_size,
                                 .out_head_stride = s->v_size,
                                 .lse = lse ? lse + first * s->q_heads : NULL};
    struct kvt_error err;
    assert_int_equal(kvt_step_begin(m->step, &(struct kvt_seq *){m->seq}, &n, 1, &err), KVT_OK);
    assert_int_equal(kvt_step_append(m->step, 0, &k, &v, &a.q, s->q_heads, &err), KVT_OK);
    assert_int_equal(kvt_step_attend(m->step, 0, &a, &err), KVT_OK);
    assert_int_equal(kvt_step_end(m->step, &err), KVT_OK);
    assert_int_equal(kvt_pool_bytes(m->pool), kvt_plan_bytes(m->plan, first + n));
}

/* Whether the query at position p sees row r. */
static bool sees(const struct shape *s, const struct setup *u, int p, int r) {
    if (s->window) return r > p - s->window;
    return !u->rolling || r < u->sink || r > p - (u->rolling - u->sink);
}

/* One query of the newest row in double precision: over the rows as the cache now decodes them, or as they were appended. */
static void oracle(const struct made *m, const struct data *d, const struct setup *u, bool decoded, int p, int head,
                   double *out, double *lse) {
    const struct shape *s = &d->shape;
    const int kv = head / (s->q_heads / s->kv_heads), n = p + 1, kw = s->kv_heads * s->k_size,
              vw = s->kv_heads * s->v_size;
    float *k = malloc((size_t)n * (size_t)(s->k_size + s->v_size) * sizeof *k), *v = k + n * s->k_size;
    double *score = malloc((size_t)n * sizeof *score), max = u->with_sinks ? (double)d->sinks[head] : -INFINITY,
           sum = 0;
    for (int r = 0; r < n; r++) {
        if (!sees(s, u, p, r)) continue;
        float *kr = k + r * s->k_size, *vr = v + r * s->v_size;
        memcpy(kr, d->k + r * kw + kv * s->k_size, (size_t)s->k_size * sizeof *kr);
        memcpy(vr, d->v + r * vw + kv * s->v_size, (size_t)s->v_size * sizeof *vr);
        if (decoded) {
            assert_int_equal(kvt_seq_read(m->seq, 0, KVT_SIDE_K, kv, r, 1, kr, s->k_size, NULL), KVT_OK);
            assert_int_equal(kvt_seq_read(m->seq, 0, KVT_SIDE_V, kv, r, 1, vr, s->v_size, NULL), KVT_OK);
        }
        score[r] = 0;
        for (int c = 0; c < s->k_size; c++)
            score[r] += (double)d->q[(p * s->q_heads + head) * s->k_size + c] * (double)kr[c];
        score[r] /= sqrt(s->k_size);
        if (u->softcap > 0) score[r] = (double)u->softcap * tanh(score[r] / (double)u->softcap);
        max = score[r] > max ? score[r] : max;
    }
    for (int c = 0; c < s->v_size; c++) out[c] = 0;
    for (int r = 0; r < n; r++) {
        if (!sees(s, u, p, r)) continue;
        const double w = exp(score[r] - max);
        sum += w;
        for (int c = 0; c < s->v_size; c++) out[c] += w * (double)v[r * s->v_size + c];
    }
    if (u->with_sinks) sum += exp((double)d->sinks[head] - max);
    for (int c = 0; c < s->v_size; c++) out[c] /= sum;
    *lse = max + log(sum);
    free(k);
    free(score);
}

/* Sums of squares: of what attention adds to the oracle, of what the codec itself adds, and of the exact outputs. */
struct errors {
    double kernel, codec, power, kernel_lse, n;
};

static void add_errors(struct errors *e, const struct made *m, const struct data *d, const struct setup *u, int p,
                       int h, const float *out, float lse) {
    const int n = d->shape.v_size;
    double *decoded = malloc(2 * (size_t)n * sizeof *decoded), *exact = decoded + n, decoded_lse, exact_lse;
    oracle(m, d, u, true, p, h, decoded, &decoded_lse);
    oracle(m, d, u, false, p, h, exact, &exact_lse);
    for (int c = 0; c < n; c++) {
        e->kernel += pow((double)out[c] - decoded[c], 2);
        e->codec += pow(decoded[c] - exact[c], 2);
        e->power += decoded[c] * decoded[c];
    }
    e->kernel_lse += pow((double)lse - decoded_lse, 2);
    e->n++;
    free(decoded);
}

/* The rule: a kernel adds at most a share of what the codec adds, and rounding in 32 bits. The reference level, and 16-bit rows,
 * add rounding alone. */
static double allowed(const struct setup *u, double share, double codec, double power) {
    if (strcmp(u->level, "ref") == 0) share = 0;
    return share * share * codec + power * 2e-6 * 2e-6;
}

/* Feeds token by token and compares each row with the oracle; then feeds the same rows in chunks and compares with that. */
static void check(struct shape s, struct setup u, const int *chunks) {
    struct data d = make_data(s, 7);
    const size_t width = (size_t)(s.q_heads * s.v_size);
    float *one = calloc((size_t)s.n_rows * width, sizeof *one), *many = calloc((size_t)s.n_rows * width, sizeof *many);
    float *lse = calloc((size_t)(s.n_rows * s.q_heads), sizeof *lse);
    struct made m = make(&d, &u);
    struct errors e = {0};
    const int prompt = s.n_rows > 1000 ? s.n_rows - 200 : 0; /* the rest token by token */
    if (prompt) feed(&m, &d, &u, 0, prompt, one, lse);
    for (int p = prompt; p < s.n_rows; p++) {
        feed(&m, &d, &u, p, 1, one, lse);
        if (p % 97 != 50 && p < s.n_rows - 2 && p > 1) continue;
        for (int h = 0; h<s.q_heads; h += s.q_heads> 1 ? s.q_heads - 1 : 1) /* the first and the last */
            add_errors(&e, &m, &d, &u, p, h, one + (size_t)p * width + (size_t)(h * s.v_size), lse[p * s.q_heads + h]);
    }
    const double most = allowed(&u, 0.2, e.codec, e.power);
    if (getenv("KVT_SHOW"))
        print_message("%-22s %-6s kernel/codec %.4f, log-sum-exp off by %.1e\n", u.kv, u.level,
                      sqrt(e.kernel / e.codec), sqrt(e.kernel_lse / e.n));
    if (!(e.kernel <= most))
        fail_msg("%s: error %g of the output, %g of the codec's own", u.kv, sqrt(e.kernel / e.power),
                 sqrt(e.kernel / e.codec));
    /* An error that all rows share leaves the output alone and shows here: a kernel's bound in nats. */
    const double most_lse = strcmp(u.level, "ref") == 0 ? 1e-4 : 0.1;
    if (!(sqrt(e.kernel_lse / e.n) <= most_lse))
        fail_msg("%s: log-sum-exps are off by %g", u.kv, sqrt(e.kernel_lse / e.n));
    unmake(&m);
    m = make(&d, &u);
    for (int p = 0, i = 0; p < s.n_rows; i++) {
        const int n = chunks[i] && chunks[i] < s.n_rows - p ? chunks[i] : s.n_rows - p;
        feed(&m, &d, &u, p, n, many, NULL);
        p += n;
        if (!chunks[i]) break;
    }
    double differ = 0;
    for (size_t i = 0; i < (size_t)s.n_rows * width; i++) differ += pow((double)(one[i] - many[i]), 2);
    const double most_differ = 4 * most * s.n_rows * s.q_heads / e.n; /* the oracle has seen n of the outputs */
    if (!(differ <= most_differ))
        fail_msg("%s: chunked differs by %g of what is allowed", u.kv, sqrt(differ / most_differ));
    unmake(&m);
    free(one);
    free(many);
    free(lse);
    free_data(&d);
}

static const int at_once[] = {0}, odd[] = {1, 2, 125, 3, 64, 0}, small[] = {31, 97, 1, 1, 1, 128, 0};

static void test_schemes(void **state) {
    (void)state;
    static const char *const kv[] = {"f32",
                                     "f16",
                                     "bf16",
                                     "affine8g64",
                                     "affine4g64",
                                     "affine3",
                                     "affine5",
                                     "affine2",
                                     "affine6g32",
                                     "kivi4g32",
                                     "kivi2g64",
                                     "kivi8g128",
                                     "kivi3g32",
                                     "kivi5g32,affine4g64",
                                     "f16,kivi4",
                                     "q8_0,turbo3",
                                     "turbo4,q5_1-rot",
                                     "mxfp8,nvfp4",
                                     "nvfp4,iq4_nl",
                                     "fp8e5m2-row,fp8e4m3",
                                     "mxfp4,f16",
                                     "f16,vu2",
                                     "kivi8g128,vu3",
                                     "affine4g64,vu4",
                                     "kvt4",
                                     "kvt2"};
    unsigned n_cases = 0;
    for (size_t i = 0; i < sizeof kv / sizeof kv[0]; i++) {
        if (!share_takes(&n_cases)) continue;
        check((struct shape){2, 4, 64, 64, 0, 200}, (struct setup){kv[i], 0, 0, 1, "auto", false, 0, 0, 0}, at_once);
        check((struct shape){1, 3, 128, 64, 0, 330}, (struct setup){kv[i], 128, 100, 2, "auto", false, 0, 0, 0}, odd);
    }
}

static void test_levels(void **state) {
    (void)state;
    for (int l = 0; l < KVT_LEVEL_COUNT; l++)
        if (kvt_level_runs((enum kvt_level)l))
            check((struct shape){2, 8, 128, 128, 0, 290},
                  (struct setup){"kivi4g32,affine4g64", 128, 32, 1, kvt_level_name((enum kvt_level)l), false, 0, 0, 0},
                  small);
}

static void test_head_sizes(void **state) {
    (void)state;
    static const int sizes[] = {8, 72, 80, 96, 112, 192, 256, 512};
    unsigned n_cases = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (!share_takes(&n_cases)) continue;
        check((struct shape){1, 2, sizes[i], sizes[i], 0, 200},
              (struct setup){"affine3g64", 0, 7, 1, "auto", false, 0, 0, 0}, odd);
        check((struct shape){1, 2, sizes[i], 64, 0, 200}, (struct setup){"kivi5g32", 0, 7, 1, "auto", false, 0, 0, 0},
              odd);
    }
    check((struct shape){1, 16, 576, 512, 0, 140}, (struct setup){"kivi4g32,affine4", 0, 0, 1, "auto", false, 0, 0, 0},
          odd);
}

static void test_masks(void **state) {
    (void)state;
    const struct shape window = {1, 2, 64, 64, 50, 400};
    check(window, (struct setup){"kivi4g32", 128, 64, 1, "auto", false, 0, 0, 0}, small);
    check(window, (struct setup){"affine4", 0, 0, 2, "auto", true, 0, 0, 0}, odd);
    check(window, (struct setup){"kivi4g128", 0, 128, 1, "auto", false, 0, 0, 0}, odd);
    check((struct shape){1, 2, 64, 64, 300, 700}, (struct setup){"kivi2g64,affine4", 0, 30, 1, "auto", false, 0, 0, 0},
          at_once);
    check((struct shape){2, 2, 64, 64, 0, 150}, (struct setup){"f16", 0, 0, 1, "auto", true, 5, 0, 0}, odd);
}

static void test_rolling_and_start(void **state) {
    (void)state;
    const struct shape s = {1, 2, 64, 64, 0, 700};
    check(s, (struct setup){"kivi4g32", 128, 64, 1, "auto", false, 0, 0, 320}, small);
    check(s, (struct setup){"affine4", 0, 0, 1, "auto", false, 0, 0, 200}, at_once);
    check(s, (struct setup){"kivi4g32", 0, 0, 2, "auto", false, 0, 333, 0}, odd);
    check(s, (struct setup){"affine8", 128, 0, 1, "auto", true, 0, 250, 512}, at_once);
}

/* Long enough that the context is cut into spans. */
static void test_spans(void **state) {
    (void)state;
    const struct shape s = {1, 2, 8, 8, 0, 4500};
    check(s, (struct setup){"kivi4g32", 128, 128, 2, "auto", true, 0, 0, 0}, at_once);
}

static void test_threads_do_not_matter(void **state) {
    (void)state;
    const struct shape s = {2, 4, 32, 32, 0, 2300};
    struct data d = make_data(s, 3);
    const size_t n = (size_t)(s.n_rows * s.q_heads * s.v_size);
    float *out[2] = {calloc(n, sizeof(float)), calloc(n, sizeof(float))};
    for (int i = 0; i < 2; i++) {
        const struct setup u = {"kivi4g32", 0, 128, i ? 4 : 1, "auto", false, 0, 0, 0};
        struct made m = make(&d, &u);
        feed(&m, &d, &u, 0, 2290, out[i], NULL);
        for (int p = 2290; p < s.n_rows; p++) feed(&m, &d, &u, p, 1, out[i], NULL);
        unmake(&m);
    }
    assert_memory_equal(out[0], out[1], n * sizeof(float));
    free(out[0]);
    free(out[1]);
    free_data(&d);
}

static void test_bad_calls(void **state) {
    (void)state;
    const struct shape s = {2, 4, 64, 64, 0, 10};
    struct data d = make_data(s, 1);
    const struct setup u = {"f16", 0, 0, 1, "auto", false, 0, 0, 0};
    struct made m = make(&d, &u);
    struct kvt_error err;
    struct kvt_attend a = {.struct_size = sizeof a, .n_q_heads = 4};
    assert_int_equal(kvt_step_attend(m.step, 0, &a, &err), KVT_ERR_STATE);
    assert_int_equal(kvt_step_begin(m.step, &(struct kvt_seq *){m.seq}, &(int){1}, 1, &err), KVT_OK);
    assert_int_equal(kvt_step_attend(m.step, 0, &a, &err), KVT_ERR_STATE);
    assert_int_equal(kvt_step_attend(m.step, 1, &a, &err), KVT_ERR_ARG);
    assert_int_equal(kvt_step_end(m.step, &err), KVT_ERR_STATE);
    const struct kvt_rows k = {d.k, KVT_TYPE_F32, 128, 64}, v = {d.v, KVT_TYPE_F32, 128, 64};
    assert_int_equal(kvt_step_append(m.step, 0, &k, &v, NULL, 0, &err), KVT_OK);
    assert_int_equal(kvt_step_append(m.step, 0, &k, &v, NULL, 0, &err), KVT_ERR_STATE);
    a.n_q_heads = 3;
    assert_int_equal(kvt_step_attend(m.step, 0, &a, &err), KVT_ERR_ARG);
    kvt_step_abandon(m.step);
    assert_int_equal(kvt_seq_n_rows(m.seq), 0);
    assert_int_equal(kvt_pool_bytes(m.pool), 0);
    unmake(&m);
    free_data(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schemes),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_head_sizes),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_rolling_and_start),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_threads_do_not_matter),
        cmocka_unit_test(test_bad_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
