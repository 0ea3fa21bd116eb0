/* SPDX-License-Identifier: Apache-2.0
 *
 * The cache against a plain array: streamed, chunked and one-shot appends, trims, batches, steps that are abandoned, accounting,
 * memory that runs out.
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
#include "base/half.h"
#include "base/rng.h"
#include "kvtile/kvtile.h"

enum { LAYERS = 2, HEADS = 2, MAX_ROWS = 1200 };

/* Layer 1 has other row sizes than layer 0. */
static const struct kvt_layer_shape layers[LAYERS] = {{HEADS, 64, 64, 0}, {HEADS, 40, 72, 0}};
static const struct kvt_shape shape = {LAYERS, layers};

static int row_size(int layer, int side) { return side == KVT_SIDE_K ? layers[layer].k_size : layers[layer].v_size; }

/* Row `row` of every test: a pure function, so that any piece can be made again. */
static void make_row(int layer, int side, int head, int64_t row, float *x) {
    struct kvt_rng rng = {(uint64_t)(((row * 2 + side) * LAYERS + layer) * HEADS + head) * 977};
    for (int c = 0; c < row_size(layer, side); c++)
        x[c] = kvt_rng_normal(&rng) + (side == KVT_SIDE_K && c == 3 ? 30 : 0);
}

struct fixture {
    struct kvt_alloc_counter counter;
    struct kvt_allocator allocator;
    struct kvt_plan *plan;
    struct kvt_pool *pool;
    struct kvt_step *step;
};

static void open(struct fixture *f, const char *kv, int sink, int tail) {
    struct kvt_error err;
    memset(f, 0, sizeof *f);
    f->allocator = kvt_allocator_counted(&f->counter);
    const struct kvt_plan_options o = {.struct_size = sizeof o, .kv = kv, .sink = sink, .tail = tail};
    assert_int_equal(kvt_plan_create(&f->plan, &shape, &o, &f->allocator, &err), KVT_OK);
    const struct kvt_pool_options po = {.struct_size = sizeof po, .allocator = &f->allocator};
    assert_int_equal(kvt_pool_create(&f->pool, f->plan, &po, &err), KVT_OK);
    assert_int_equal(kvt_step_create(&f->step, f->pool, 3, MAX_ROWS, &err), KVT_OK);
}

static void close(struct fixture *f) {
    kvt_step_destroy(f->step);
    kvt_pool_destroy(f->pool);
    kvt_plan_destroy(f->plan);
    assert_int_equal(f->counter.live_blocks, 0);
    assert_int_equal(f->counter.live_bytes, 0);
}

static struct kvt_seq *new_seq(struct fixture *f) {
    struct kvt_seq *seq = NULL;
    assert_int_equal(kvt_seq_create(&seq, f->pool, MAX_ROWS, NULL), KVT_OK);
    return seq;
}

/* Appends the rows of a begun step: entry i brings the rows from first[i] on. */
static enum kvt_status append_layers(struct fixture *f, const int64_t *first, const int *n, int n_seqs) {
    int total = 0;
    for (int i = 0; i < n_seqs; i++) total += n[i];
    for (int l = 0; l < LAYERS; l++) {
        float *x[KVT_SIDE_COUNT];
        struct kvt_rows rows[KVT_SIDE_COUNT];
        for (int side = 0; side < KVT_SIDE_COUNT; side++) {
            const int d = row_size(l, side);
            x[side] = malloc((size_t)(total * HEADS * d) * sizeof(float));
            float *to = x[side];
            for (int i = 0; i < n_seqs; i++)
                for (int r = 0; r < n[i]; r++)
                    for (int h = 0; h < HEADS; h++, to += d) make_row(l, side, h, first[i] + r, to);
            rows[side] = (struct kvt_rows){x[side], KVT_TYPE_F32, HEADS * d, d};
        }
        struct kvt_error err;
        const enum kvt_status status = kvt_step_append(f->step, l, &rows[0], &rows[1], NULL, 0, &err);
        free(x[0]);
        free(x[1]);
        if (status != KVT_OK) return status;
    }
    return KVT_OK;
}

static enum kvt_status feed(struct fixture *f, struct kvt_seq *seq, int n) {
    const int64_t first = kvt_seq_n_rows(seq);
    const enum kvt_status status = kvt_step_begin(f->step, &seq, &n, 1, NULL);
    if (status != KVT_OK) return status;
    assert_int_equal(append_layers(f, &first, &n, 1), KVT_OK);
    return kvt_step_end(f->step, NULL);
}

static float *read_all(const struct kvt_seq *seq, int layer, int side, int head) {
    const int64_t n = kvt_seq_n_rows(seq);
    const int d = row_size(layer, side);
    float *x = malloc((size_t)(n * d + 1) * sizeof *x);
    assert_int_equal(kvt_seq_read(seq, layer, (enum kvt_side)side, head, 0, n, x, d, NULL), KVT_OK);
    return x;
}

static void assert_same(const struct kvt_seq *a, const struct kvt_seq *b) {
    assert_int_equal(kvt_seq_n_rows(a), kvt_seq_n_rows(b));
    for (int l = 0; l < LAYERS; l++)
        for (int side = 0; side < KVT_SIDE_COUNT; side++)
            for (int h = 0; h < HEADS; h++) {
                float *x = read_all(a, l, side, h), *y = read_all(b, l, side, h);
                assert_memory_equal(x, y, (size_t)kvt_seq_n_rows(a) * (size_t)row_size(l, side) * sizeof *x);
                free(x);
                free(y);
            }
}

/* What the array model says: 16-bit rows outside the body, rows of the body as the codec decodes them from 16-bit rows. */
static void assert_model(const struct fixture *f, const struct kvt_seq *seq) {
    const int64_t n = kvt_seq_n_rows(seq);
    for (int l = 0; l < LAYERS; l++)
        for (int side = 0; side < KVT_SIDE_COUNT; side++) {
            const struct kvt_layer_plan *plan = kvt_plan_layer(f->plan, l);
            const int64_t body_end = kvt_plan_body_end(f->plan, l, n);
            const int d = row_size(l, side);
            const bool f16 = !kvt_codec_info(plan->codec[side]).plain || kvt_codec_info(plan->codec[side]).bits == 16;
            float *x = read_all(seq, l, side, 1);
            float *rows = calloc((size_t)(KVT_TILE_ROWS * d), sizeof *rows),
                  *back = calloc((size_t)(KVT_TILE_ROWS * d), 4);
            void *tile = aligned_alloc(64, kvt_codec_tile_bytes(plan->codec[side], (enum kvt_side)side, d));
            for (int64_t t = 0; t * KVT_TILE_ROWS < n; t++) {
                for (int r = 0; r < KVT_TILE_ROWS; r++) {
                    make_row(l, side, 1, t * KVT_TILE_ROWS + r, rows + r * d);
                    for (int c = 0; f16 && c < d; c++)
                        rows[r * d + c] = kvt_f32_from_f16(kvt_f16_from_f32(rows[r * d + c]));
                }
                memset(tile, 0, kvt_codec_tile_bytes(plan->codec[side], (enum kvt_side)side, d));
                assert_int_equal(
                    kvt_codec_encode(plan->codec[side], (enum kvt_side)side, d, tile, 0, KVT_TILE_ROWS, rows, d, NULL),
                    KVT_OK);
                assert_int_equal(
                    kvt_codec_decode(plan->codec[side], (enum kvt_side)side, d, back, d, tile, 0, KVT_TILE_ROWS, NULL),
                    KVT_OK);
                for (int r = 0; r < KVT_TILE_ROWS && t * KVT_TILE_ROWS + r < n; r++) {
                    const int64_t row = t * KVT_TILE_ROWS + r;
                    const bool body = row >= plan->sink && row < body_end;
                    assert_memory_equal(x + row * d, (body ? back : rows) + r * d, (size_t)d * sizeof *x);
                }
            }
            free(x), free(rows), free(back), free(tile);
        }
}

static const struct {
    const char *kv;
    int sink, tail;
} plans[] = {{"f16", 0, 0},          {"f32", 0, 0},           {"affine4g64", 0, 0},
             {"affine3g32", 128, 0}, {"affine4", 0, 100},     {"kivi4g32", 0, 0},
             {"kivi2g32", 128, 64},  {"kivi3g128", 128, 128}, {"kivi4g64,affine8", 0, 33},
             {"f16,kivi4", 0, 5}};

static void test_any_chunking_gives_the_same(void **state) {
    (void)state;
    struct kvt_rng rng = {11};
    for (size_t p = 0; p < sizeof plans / sizeof plans[0]; p++) {
        struct fixture f;
        open(&f, plans[p].kv, plans[p].sink, plans[p].tail);
        struct kvt_seq *once = new_seq(&f), *stream = new_seq(&f), *cut = new_seq(&f);
        const int n = 550 + (int)kvt_rng_below(&rng, 100);
        assert_int_equal(feed(&f, once, n), KVT_OK);
        for (int i = 0; i < n; i++) assert_int_equal(feed(&f, stream, 1), KVT_OK);
        for (int left = n; left;) {
            const int len = 1 + (int)kvt_rng_below(&rng, (uint64_t)(left < 200 ? left : 200));
            assert_int_equal(feed(&f, cut, len), KVT_OK);
            left -= len;
        }
        assert_same(once, stream);
        assert_same(once, cut);
        assert_model(&f, once);
        assert_int_equal(kvt_pool_bytes(f.pool), 3 * kvt_plan_bytes(f.plan, n));
        kvt_seq_destroy(once), kvt_seq_destroy(stream), kvt_seq_destroy(cut);
        close(&f);
    }
}

static void test_accounting(void **state) {
    (void)state;
    for (size_t p = 0; p < sizeof plans / sizeof plans[0]; p++) {
        struct fixture f;
        open(&f, plans[p].kv, plans[p].sink, plans[p].tail);
        struct kvt_seq *seq = new_seq(&f);
        const size_t fixed = f.counter.live_bytes;
        for (int n = 1; n <= 420; n++) {
            assert_int_equal(feed(&f, seq, 1), KVT_OK);
            const struct kvt_usage u = kvt_seq_usage(seq, -1);
            assert_int_equal(f.counter.live_bytes - fixed, kvt_plan_bytes(f.plan, n));
            assert_int_equal(kvt_pool_bytes(f.pool), u.total_bytes);
            assert_int_equal(u.rows[0] + u.rows[1] + u.rows[2], n);
            assert_true(u.rows[KVT_REGION_SINK] == (n < plans[p].sink ? n : plans[p].sink));
            uint64_t sum = 0;
            for (int l = 0; l < LAYERS; l++) sum += kvt_seq_usage(seq, l).total_bytes;
            assert_int_equal(sum, u.total_bytes);
        }
        kvt_seq_clear(seq);
        assert_int_equal(f.counter.live_bytes, fixed);
        kvt_seq_destroy(seq);
        close(&f);
    }
}

/* A token's path allocates pages and nothing else. */
static void test_steps_allocate_only_pages(void **state) {
    (void)state;
    struct fixture f;
    open(&f, "kivi4g32", 0, 32);
    struct kvt_seq *seq = new_seq(&f);
    assert_int_equal(feed(&f, seq, 200), KVT_OK);
    const size_t takes = f.counter.n_takes;
    for (int i = 0; i < 40; i++) assert_int_equal(feed(&f, seq, 1), KVT_OK);
    assert_int_equal(f.counter.n_takes, takes);
    kvt_seq_destroy(seq);
    close(&f);
}

static void test_trim(void **state) {
    (void)state;
    struct kvt_rng rng = {12};
    for (size_t p = 0; p < sizeof plans / sizeof plans[0]; p++) {
        struct fixture f;
        open(&f, plans[p].kv, plans[p].sink, plans[p].tail);
        struct kvt_seq *seq = new_seq(&f);

        for (int i = 0; i < 60; i++) {
            const int64_t n = kvt_seq_n_rows(seq);
            if (kvt_rng_below(&rng, 2) && n < 700) {
                assert_int_equal(feed(&f, seq, 1 + (int)kvt_rng_below(&rng, 150)), KVT_OK);
            } else {
                /* Rows that were decoded back to 16 bits are not what a fresh sequence has; start over then. */
                bool exact;
                const int64_t to = n - (int64_t)kvt_rng_below(&rng, (uint64_t)(n < 90 ? n + 1 : 90));
                const int64_t b = kvt_plan_body_end(f.plan, 0, to), old = kvt_plan_body_end(f.plan, 0, n);
                assert_int_equal(kvt_seq_trim(seq, to, &exact, NULL), KVT_OK);
                if (b >= old || b >= to) assert_true(exact);

                if (!exact) {
                    assert_int_equal(kvt_pool_bytes(f.pool), kvt_plan_bytes(f.plan, to));
                    kvt_seq_clear(seq);
                }
            }
            assert_int_equal(kvt_pool_bytes(f.pool), kvt_plan_bytes(f.plan, kvt_seq_n_rows(seq)));
            assert_model(&f, seq);
        }

        struct kvt_error err;
        assert_int_equal(kvt_seq_trim(seq, kvt_seq_n_rows(seq) + 1, NULL, &err), KVT_ERR_RANGE);
        assert_int_equal(kvt_seq_trim(seq, -1, NULL, &err), KVT_ERR_RANGE);
        kvt_seq_destroy(seq);
        close(&f);
    }
}

/* Deep in the body a trim brings rows back as they decode, and says so. */
static void test_deep_trim(void **state) {
    (void)state;
    struct fixture f;
    open(&f, "kivi4g32", 128, 64);
    struct kvt_seq *seq = new_seq(&f);
    assert_int_equal(feed(&f, seq, 700), KVT_OK);
    float *before = read_all(seq, 0, KVT_SIDE_K, 0);
    bool exact = true;
    assert_int_equal(kvt_seq_trim(seq, 333, &exact, NULL), KVT_OK);
    assert_false(exact);
    float *after = read_all(seq, 0, KVT_SIDE_K, 0);
    for (int i = 0; i < 333 * 64; i++) /* decoded rows, rounded to 16 bits where they are tail again */
        assert_true(fabsf(before[i] - after[i]) <= fabsf(before[i]) * 0x1p-11f);
    assert_int_equal(kvt_pool_bytes(f.pool), kvt_plan_bytes(f.plan, 333));
    assert_int_equal(feed(&f, seq, 100), KVT_OK);
    assert_int_equal(kvt_pool_bytes(f.pool), kvt_plan_bytes(f.plan, 433));
    free(before);
    free(after);
    kvt_seq_destroy(seq);
    close(&f);
}

static void test_batches_and_abandoned_steps(void **state) {
    (void)state;
    struct fixture f;
    open(&f, "kivi4g32,affine4g64", 128, 16);
    struct kvt_seq *seq[3] = {new_seq(&f), new_seq(&f), new_seq(&f)}, *alone = new_seq(&f);
    static const int rounds[][3] = {{5, 300, 129}, {1, 1, 1}, {200, 3, 64}, {1, 40, 100}};
    struct kvt_error err;
    for (size_t i = 0; i < sizeof rounds / sizeof rounds[0]; i++) {
        int64_t first[3];
        for (int s = 0; s < 3; s++) first[s] = kvt_seq_n_rows(seq[s]);
        const uint64_t bytes = kvt_pool_bytes(f.pool);
        assert_int_equal(kvt_step_begin(f.step, seq, rounds[i], 3, &err), KVT_OK);
        assert_int_equal(kvt_step_begin(f.step, seq, rounds[i], 3, &err), KVT_ERR_STATE);
        if (i % 2) assert_int_equal(append_layers(&f, first, rounds[i], 3), KVT_OK);
        kvt_step_abandon(f.step);
        assert_int_equal(kvt_pool_bytes(f.pool), bytes);
        assert_int_equal(kvt_step_begin(f.step, seq, rounds[i], 3, &err), KVT_OK);
        assert_int_equal(append_layers(&f, first, rounds[i], 3), KVT_OK);
        assert_int_equal(kvt_step_end(f.step, &err), KVT_OK);
    }
    assert_int_equal(feed(&f, alone, (int)kvt_seq_n_rows(seq[1])), KVT_OK);
    assert_same(seq[1], alone);
    for (int s = 0; s < 3; s++) assert_model(&f, seq[s]), kvt_seq_destroy(seq[s]);
    kvt_seq_destroy(alone);
    close(&f);
}

static void test_row_types(void **state) {
    (void)state;
    struct fixture f;
    open(&f, "f16", 0, 0);
    struct kvt_seq *a = new_seq(&f), *b = new_seq(&f);
    uint16_t half[HEADS * 72], brain[HEADS * 72];
    float back[2][72];
    for (int i = 0; i < HEADS * 72; i++) {
        half[i] = kvt_f16_from_f32((float)i / 16);
        brain[i] = kvt_bf16_from_f32((float)i / 16);
    }
    for (int i = 0; i < 2; i++) {
        struct kvt_seq *seq = i ? b : a;
        assert_int_equal(kvt_step_begin(f.step, &seq, &(int){1}, 1, NULL), KVT_OK);
        for (int l = 0; l < LAYERS; l++) {
            const struct kvt_rows k = {i ? brain : half, i ? KVT_TYPE_BF16 : KVT_TYPE_F16, 0, row_size(l, 0)};
            const struct kvt_rows v = {i ? brain : half, i ? KVT_TYPE_BF16 : KVT_TYPE_F16, 0, row_size(l, 1)};
            assert_int_equal(kvt_step_append(f.step, l, &k, &v, NULL, 0, NULL), KVT_OK);
        }
        assert_int_equal(kvt_step_end(f.step, NULL), KVT_OK);
        assert_int_equal(kvt_seq_read(seq, 1, KVT_SIDE_V, 1, 0, 1, back[i], 72, NULL), KVT_OK);
    }
    for (int c = 0; c < 72; c++) {
        assert_true(back[0][c] == (float)(72 + c) / 16);
        assert_true(back[1][c] == kvt_f32_from_bf16(brain[72 + c]));
    }
    kvt_seq_destroy(a);
    kvt_seq_destroy(b);
    close(&f);
}

static void test_bad_numbers_are_refused(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY, 70000};
    struct fixture f;
    open(&f, "kivi4g32", 0, 0);
    struct kvt_seq *seq = new_seq(&f);
    assert_int_equal(feed(&f, seq, 40), KVT_OK);
    for (size_t i = 0; i < 4; i++) {
        struct kvt_error err;
        float x[3 * HEADS * 64] = {0};
        x[(2 * HEADS + 1) * 64 + 5] = bad[i];
        const struct kvt_rows rows = {x, KVT_TYPE_F32, HEADS * 64, 64};
        assert_int_equal(kvt_step_begin(f.step, &seq, &(int){3}, 1, NULL), KVT_OK);
        assert_int_equal(kvt_step_append(f.step, 0, &rows, &rows, NULL, 0, &err), KVT_ERR_RANGE);
        assert_non_null(strstr(err.text, "layer 0, K, KV head 1, position 42, channel 5"));
        kvt_step_abandon(f.step);
        assert_int_equal(kvt_seq_n_rows(seq), 40);
        assert_model(&f, seq);
    }
    kvt_seq_destroy(seq);
    close(&f);
}

static void test_limits(void **state) {
    (void)state;
    struct fixture f;
    open(&f, "affine4", 0, 0);
    struct kvt_error err;
    struct kvt_pool *pool;
    const uint64_t limit = kvt_plan_bytes(f.plan, 256);
    const struct kvt_pool_options o = {.struct_size = sizeof o, .byte_limit = limit, .allocator = &f.allocator};
    assert_int_equal(kvt_pool_create(&pool, f.plan, &o, &err), KVT_OK);
    struct kvt_seq *seq;
    struct kvt_step *step;
    assert_int_equal(kvt_seq_create(&seq, pool, 1000, &err), KVT_OK);
    assert_int_equal(kvt_step_create(&step, pool, 1, 1000, &err), KVT_OK);
    assert_int_equal(kvt_step_begin(step, &seq, &(int){257}, 1, &err), KVT_ERR_LIMIT);
    assert_int_equal(kvt_pool_bytes(pool), 0);
    assert_int_equal(kvt_step_begin(step, &seq, &(int){1001}, 1, &err), KVT_ERR_LIMIT);
    assert_int_equal(kvt_step_begin(step, &seq, &(int){0}, 1, &err), KVT_ERR_ARG);
    assert_int_equal(kvt_step_begin(step, (struct kvt_seq *[]){seq, seq}, (int[]){1, 1}, 2, &err), KVT_ERR_ARG);
    assert_int_equal(kvt_step_begin(step, &seq, &(int){256}, 1, &err), KVT_OK);
    assert_int_equal(kvt_pool_bytes(pool), limit);
    kvt_step_destroy(step); /* abandons */
    kvt_seq_destroy(seq);
    kvt_pool_destroy(pool);
    close(&f);
}

static void test_bad_plans(void **state) {
    (void)state;
    static const struct {
        const char *kv;
        int sink, tail;
        enum kvt_status status;
        const char *says;
    } cases[] = {
        {"kivi4g32,", 0, 0, KVT_ERR_ARG, "'kivi4g32,' is no cache"},
        {"q9", 0, 0, KVT_ERR_ARG, "unknown codec 'q9'"},
        {"f16,f16,f16", 0, 0, KVT_ERR_ARG, "K or K,V"},
        {"f16", 64, 0, KVT_ERR_ARG, "multiple of 128"},
        {"f16", 0, -1, KVT_ERR_ARG, "negative"},
    };
    struct kvt_plan *plan;
    struct kvt_error err;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct kvt_plan_options o = {
            .struct_size = sizeof o, .kv = cases[i].kv, .sink = cases[i].sink, .tail = cases[i].tail};
        assert_int_equal(kvt_plan_create(&plan, &shape, &o, NULL, &err), cases[i].status);
        assert_non_null(strstr(err.text, cases[i].says));
    }
    const struct kvt_layer_shape odd[] = {{1, 64, 64, 0}, {1, 64, 60, 0}};
    assert_int_equal(kvt_plan_create(&plan, &(struct kvt_shape){2, odd}, NULL, NULL, &err), KVT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "layer 1: f16 cannot store V rows of 60 elements"));
    const struct kvt_plan_options o = {.struct_size = sizeof o, .kv = "kivi4,affine8"};
    assert_int_equal(kvt_plan_create(&plan, &shape, &o, NULL, &err), KVT_OK);
    assert_string_equal(kvt_plan_kv(plan), "kivi4g32,affine8g64");
    assert_null(kvt_plan_layer(plan, LAYERS));
    struct kvt_pool *pool;
    const struct kvt_pool_options po = {.struct_size = sizeof po, .backend = "abacus"};
    assert_int_equal(kvt_pool_create(&pool, plan, &po, &err), KVT_ERR_ARG);
    assert_non_null(strstr(err.text, "known: cpu"));
    kvt_plan_destroy(plan);
}

/* Every allocation of a scenario fails in turn; nothing leaks, the sequence stays whole. */
static void test_memory_runs_out(void **state) {
    (void)state;
    for (size_t at = 1;; at++) {
        struct kvt_alloc_counter counter = {0};
        const struct kvt_allocator a = kvt_allocator_counted(&counter);
        struct fixture f = {.allocator = a};
        struct kvt_seq *seq = NULL;
        const struct kvt_plan_options o = {.struct_size = sizeof o, .kv = "kivi4g32", .sink = 128, .tail = 10};
        const struct kvt_pool_options po = {.struct_size = sizeof po, .allocator = &a};
        counter.fail_at = at;
        enum kvt_status status = kvt_plan_create(&f.plan, &shape, &o, &a, NULL);
        if (status == KVT_OK) status = kvt_pool_create(&f.pool, f.plan, &po, NULL);
        if (status == KVT_OK) status = kvt_step_create(&f.step, f.pool, 1, 600, NULL);
        if (status == KVT_OK) status = kvt_seq_create(&seq, f.pool, 1000, NULL);
        for (int i = 0; i < 4 && status == KVT_OK; i++) {
            status = feed(&f, seq, 150);
            assert_int_equal(kvt_pool_bytes(f.pool), kvt_plan_bytes(f.plan, kvt_seq_n_rows(seq)));
        }
        if (status == KVT_OK) {
            status = kvt_seq_trim(seq, 200, NULL, NULL);
            assert_int_equal(kvt_pool_bytes(f.pool), kvt_plan_bytes(f.plan, kvt_seq_n_rows(seq)));
        }
        kvt_seq_destroy(seq);
        kvt_step_destroy(f.step);
        kvt_pool_destroy(f.pool);
        kvt_plan_destroy(f.plan);
        assert_int_equal(counter.live_blocks, 0);
        if (status == KVT_OK) break;
        assert_int_equal(status, KVT_ERR_NOMEM);
        assert_true(at < 200);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_chunking_gives_the_same),
        cmocka_unit_test(test_accounting),
        cmocka_unit_test(test_steps_allocate_only_pages),
        cmocka_unit_test(test_trim),
        cmocka_unit_test(test_deep_trim),
        cmocka_unit_test(test_batches_and_abandoned_steps),
        cmocka_unit_test(test_row_types),
        cmocka_unit_test(test_bad_numbers_are_refused),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_bad_plans),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
