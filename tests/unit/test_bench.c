/* SPDX-License-Identifier: Apache-2.0
 * Caches that benches fill, and what steps that encode a group do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/attr.h"
#include "base/buf.h"
#include "bench/bench.h"
#include "bench/filled.h"

enum { HEADS = 2, SIZE = 64, GQA = 2 };

/* A parallel-for that counts its loops. */
static void count(void *ctx, int n_jobs, void (*job)(void *arg, int i, int thread), void *arg) {
    ++*(int *)ctx;
    for (int i = n_jobs; i-- > 0;) job(arg, i, i % 2);
}

static double error_of(const char *kv, int64_t rows) {
    struct kvt_source source;
    struct kvt_filled cache;
    float out[HEADS * GQA * SIZE];
    double error;
    const struct kvt_filled_options o = {.kv = kv, .rows = rows, .max_rows = rows + 1, .n_layers = 1};
    assert_int_equal(kvt_source_create(&source, HEADS, SIZE, 1, NULL), KVT_OK);
    assert_int_equal(kvt_filled_open(&cache, &source, &o, NULL), KVT_OK);
    assert_int_equal(kvt_filled_begin(&cache, 1, NULL), KVT_OK);
    assert_int_equal(kvt_filled_append(&cache, 0, NULL), KVT_OK);
    assert_int_equal(kvt_filled_attend(&cache, 0, GQA, out, NULL), KVT_OK);
    assert_int_equal(kvt_source_error(&error, &source, rows + 1, GQA, out, NULL), KVT_OK);
    kvt_filled_close(&cache);
    kvt_source_finish(&source);
    return error;
}

/* Also where rows have come for a second time. */
static void test_error(void **state) {
    (void)state;
    const int64_t rows[] = {0, 100, KVT_SOURCE_ROWS, KVT_SOURCE_ROWS + 300};
    for (size_t i = 0; i < KVT_ARRAY_LEN(rows); i++) {
        const double f32 = error_of("f32", rows[i]);
        if (f32 > 1e-5) fail_msg("f32, %d rows: off by %g", (int)rows[i], f32);
    }
    const double eight = error_of("kivi8g32", 2000), four = error_of("kivi4g32", 2000),
                 two = error_of("kivi2g32", 2000);
    if (!(eight > 1e-4 && four > 8 * eight && two > 3 * four && two < 2))
        fail_msg("8, 4 and 2 bits are off by %g, %g and %g", eight, four, two);
    const double kvt = error_of("kvt4", 2000);
    if (!(kvt > 1e-4 && kvt < 4 * four)) fail_msg("kvt4 is off by %g, kivi4g32 by %g", kvt, four);
}

/* Single rows are written by the calling thread, the group that the last of them completes by all. */
static void test_flush_is_parallel(void **state) {
    (void)state;
    struct kvt_source source;
    struct kvt_filled cache;
    int n = 0;
    const struct kvt_parallel parallel = {2, count, &n};
    const struct kvt_filled_options o = {
        .kv = "kivi4g32", .rows = 70, .max_rows = 200, .n_layers = 1, .parallel = &parallel};
    assert_int_equal(kvt_source_create(&source, HEADS, SIZE, 1, NULL), KVT_OK);
    assert_int_equal(kvt_filled_open(&cache, &source, &o, NULL), KVT_OK);
    for (int row = 71; row <= 170; row++) {
        n = 0;
        assert_int_equal(kvt_filled_begin(&cache, 1, NULL), KVT_OK);
        assert_int_equal(kvt_filled_append(&cache, 0, NULL), KVT_OK);
        assert_int_equal(kvt_step_end(cache.step, NULL), KVT_OK);
        assert_int_equal(n, row % 32 == 0);
    }
    kvt_filled_close(&cache);
    kvt_source_finish(&source);
}

static const char *const kv[] = {"kivi4g32", "q8_0"};
static const struct kvt_bench_options small = {.kv = kv,
                                               .n_kv = 2,
                                               .rows = {130},
                                               .n_rows = 1,
                                               .gqa = {GQA},
                                               .n_gqa = 1,
                                               .threads = {1, 2},
                                               .n_threads = 2,
                                               .kv_heads = HEADS,
                                               .head_size = SIZE,
                                               .rounds = 3,
                                               .rotate_bytes = 1};

static void test_step(void **state) {
    (void)state;
    const struct kvt_bench_options o = small;
    struct kvt_bench_step_result r;
    struct kvt_buf text;
    kvt_buf_init(&text, NULL, 1 << 20);
    assert_int_equal(kvt_bench_step(&r, &o, NULL), KVT_OK);
    assert_int_equal(r.n, 6);
    for (int i = 0; i < r.n; i++) {
        const struct kvt_bench_step_row *row = &r.row[i];
        assert_int_equal(row->granularity, i % 3 == 0 ? 32 : 1);
        assert_int_equal(row->threads, i < 3 ? 1 : 2);
        assert_int_equal(row->rounds, 3);
        assert_true(row->append_us > 0 && row->append_worst_us >= row->append_us && row->attend_us > 0);
        assert_true(row->worst_us >= row->us && row->append_share > 0 && row->append_share < 1);
    }
    assert_int_equal(kvt_bench_step_table(&text, &r, &o), KVT_OK);
    assert_int_equal(kvt_bench_step_json(&text, &r, &o), KVT_OK);
    kvt_bench_step_finish(&r);
    kvt_buf_finish(&text);
}

/* Steps end at the first whole round after their time. */
static void test_step_time(void **state) {
    (void)state;
    struct kvt_bench_options o = small;
    struct kvt_bench_step_result r;
    struct kvt_buf text;
    o.rounds = 1000;
    o.seconds = 1e-9;
    kvt_buf_init(&text, NULL, 1 << 20);
    assert_int_equal(kvt_bench_step(&r, &o, NULL), KVT_OK);
    for (int i = 0; i < r.n; i++) assert_int_equal(r.row[i].rounds, 1);
    assert_int_equal(kvt_bench_step_table(&text, &r, &o), KVT_OK);
    assert_non_null(strstr(kvt_buf_text(&text), "; 1 times 128 steps of each (as many as there was time for)"));
    kvt_bench_step_finish(&r);
    kvt_buf_finish(&text);
}

static void test_attention_time(void **state) {
    (void)state;
    struct kvt_bench_options o = small;
    struct kvt_bench_result r;
    o.queries = 1;
    o.rounds = 1000;
    o.seconds = 1e-9;
    assert_int_equal(kvt_bench_attention(&r, &o, NULL), KVT_OK);
    for (int i = 0; i < r.n; i++) assert_true(r.row[i].rounds == 3 && r.row[i].us > 0 && r.row[i].read_us > 0);
    kvt_bench_finish(&r);
}

/* What would not fit is refused before memory is taken. */
static void test_memory(void **state) {
    (void)state;
    struct kvt_bench_options o = small;
    struct kvt_bench_step_result steps;
    struct kvt_bench_result attention;
    struct kvt_error err;
    o.queries = 1;
    o.memory_bytes = 100000;
    assert_int_equal(kvt_bench_step(&steps, &o, &err), KVT_ERR_LIMIT);
    assert_int_equal(kvt_bench_attention(&attention, &o, &err), KVT_ERR_LIMIT);
    assert_non_null(strstr(err.text, "caches of 130 rows take "));
    o.memory_bytes = 10000000;
    assert_int_equal(kvt_bench_attention(&attention, &o, &err), KVT_OK);
    kvt_bench_finish(&attention);
}

/* How often, how far, and whether it went back within one piece of work; stops at the last report. */
struct watch {
    const char *what;
    uint64_t done, total, n, back;
};

static bool watch(void *ctx, const char *what, uint64_t done, uint64_t total) {
    struct watch *w = ctx;
    if (what != w->what) *w = (struct watch){.what = what, .n = w->n, .back = w->back};
    w->back += done < w->done;
    w->done = done;
    w->total = total;
    w->n++;
    return done <= total;
}

/* A bar runs once over all that is filled, and once over all that is measured. */
static void test_progress(void **state) {
    (void)state;
    struct watch w = {0};
    const struct kvt_progress progress = {watch, &w};
    struct kvt_bench_options o = small;
    struct kvt_bench_result r;
    o.queries = 1;
    o.progress = &progress;
    assert_int_equal(kvt_bench_attention(&r, &o, NULL), KVT_OK);
    assert_true(w.n > 8 && w.done == w.total);
    assert_int_equal(w.back, 0);
    kvt_bench_finish(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_error),          cmocka_unit_test(test_flush_is_parallel),
                                       cmocka_unit_test(test_step),           cmocka_unit_test(test_step_time),
                                       cmocka_unit_test(test_attention_time), cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_progress)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
