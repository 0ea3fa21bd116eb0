/* SPDX-License-Identifier: Apache-2.0
 * Caches that benches fill, and what steps that encode a group do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

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

static void test_step(void **state) {
    (void)state;
    const char *const kv[] = {"kivi4g32", "q8_0"};
    const struct kvt_bench_options o = {.kv = kv,
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
    struct kvt_bench_step_result r;
    struct kvt_buf text;
    kvt_buf_init(&text, NULL, 1 << 20);
    assert_int_equal(kvt_bench_step(&r, &o, NULL), KVT_OK);
    assert_int_equal(r.n, 6);
    for (int i = 0; i < r.n; i++) {
        const struct kvt_bench_step_row *row = &r.row[i];
        assert_int_equal(row->granularity, i % 3 == 0 ? 32 : 1);
        assert_int_equal(row->threads, i < 3 ? 1 : 2);
        assert_true(row->append_us > 0 && row->append_worst_us >= row->append_us && row->attend_us > 0);
        assert_true(row->worst_us >= row->us && row->append_share > 0 && row->append_share < 1);
    }
    assert_int_equal(kvt_bench_step_table(&text, &r, &o), KVT_OK);
    assert_int_equal(kvt_bench_step_json(&text, &r, &o), KVT_OK);
    kvt_bench_step_finish(&r);
    kvt_buf_finish(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_error), cmocka_unit_test(test_flush_is_parallel),
                                       cmocka_unit_test(test_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
