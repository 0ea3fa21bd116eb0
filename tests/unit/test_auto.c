/* SPDX-License-Identifier: Apache-2.0
 * --kv auto: the best of what fits, told why; and the longest context that fits. */
#define _GNU_SOURCE /* cli/term.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "cli/auto.c"
#include "cli/term.c"

static struct kvt_model *model;

static int load(void **state) {
    (void)state;
    return kvt_model_load(&model, KVT_ROOT "/models/plain.gguf", NULL, NULL) == KVT_OK ? 0 : -1;
}

static int unload(void **state) {
    (void)state;
    kvt_model_destroy(model);
    return 0;
}

static struct kvt_plan *plan_of(const char *kv, int sink, int tail, int64_t start) {
    const struct kvt_shape shape = kvt_model_shape(model);
    const struct kvt_plan_options options = {
        .struct_size = sizeof options, .kv = kv, .sink = sink, .tail = tail, .start = start};
    struct kvt_plan *plan = NULL;
    assert_int_equal(kvt_plan_create(&plan, &shape, &options, NULL, NULL), KVT_OK);
    return plan;
}

static uint64_t bytes_of(const char *kv, int64_t n) {
    const int region = strcmp(kv, "f16") == 0 ? 0 : 128;
    struct kvt_plan *plan = plan_of(kv, region, region, 0);
    const uint64_t bytes = kvt_plan_bytes(plan, n);
    kvt_plan_destroy(plan);
    return bytes;
}

static const struct kvt_kv_wish unnamed = {.kv = "auto", .sink = -1, .tail = -1};

/* The first of the order whose bytes fit, for any memory. */
static void the_best_that_fits(void **state) {
    (void)state;
    enum { N = 3000 };
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; kvt_auto_at(i); i++) least = KVT_MIN(least, bytes_of(kvt_auto_at(i), N));
    for (uint64_t memory = least / 2; memory < 2 * bytes_of("f16", N); memory += memory / 8) {
        const struct kvt_auto_request request = {.wish = &unnamed, .n_ctx = N, .n_sessions = 1, .memory = memory};
        struct kvt_auto_pick pick;
        struct kvt_error err;
        const enum kvt_status status = kvt_auto_choose(&pick, model, &request, &err);
        const char *expected = NULL;
        for (size_t i = 0; kvt_auto_at(i) && !expected; i++)
            if (bytes_of(kvt_auto_at(i), N) <= memory) expected = kvt_auto_at(i);
        assert_int_equal(status, expected ? KVT_OK : KVT_ERR_LIMIT);
        if (!expected && !strstr(err.text, "even kvt2 needs")) fail_msg("%s", err.text);
        if (!expected) continue;
        assert_string_equal(pick.kv, expected);
        assert_int_equal(pick.bytes, bytes_of(expected, N));
        assert_int_equal(pick.sink, strcmp(expected, "f16") == 0 ? 0 : 128);
        if (strcmp(expected, "f16") == 0) assert_string_equal(pick.why, ""); /* as ever: nothing to say */
        if (strcmp(expected, "f16") != 0 && !strstr(pick.why, expected)) fail_msg("'%s'", pick.why);
    }
}

static void what_rows_speak_against_is_left_out(void **state) {
    (void)state;
    static const char *const not [] = {"kvt4"};
    struct kvt_auto_request request = {
        .wish = &unnamed, .n_ctx = 3000, .n_sessions = 1, .memory = bytes_of("kivi4g32", 3000)};
    const char *fits[8];
    struct kvt_auto_pick pick;
    assert_int_equal(kvt_auto_fitting(fits, 8, model, &request), 6); /* all but f16 */
    assert_string_equal(fits[0], "kvt4");
    request.not = not ;
    request.n_not = 1;
    assert_int_equal(kvt_auto_choose(&pick, model, &request, NULL), KVT_OK);
    assert_string_equal(pick.kv, "kivi4g32");
    assert_int_equal(kvt_auto_fitting(fits, 8, model, &request), 5);
}

static void sessions_share_the_memory(void **state) {
    (void)state;
    struct kvt_auto_request request = {
        .wish = &unnamed, .n_ctx = 3000, .n_sessions = 1, .memory = bytes_of("f16", 3000)};
    struct kvt_auto_pick pick;
    assert_int_equal(kvt_auto_choose(&pick, model, &request, NULL), KVT_OK);
    assert_string_equal(pick.kv, "f16");
    request.n_sessions = 2;
    assert_int_equal(kvt_auto_choose(&pick, model, &request, NULL), KVT_OK);
    assert_string_equal(pick.kv, "kvt4");
    assert_int_equal(pick.bytes, 2 * bytes_of("kvt4", 3000));
}

static void regions_may_be_asked_for(void **state) {
    (void)state;
    const struct kvt_kv_wish wish = {.kv = "auto", .named = true, .sink = 256, .tail = 0};
    const struct kvt_auto_request request = {
        .wish = &wish, .n_ctx = 3000, .n_sessions = 1, .memory = bytes_of("f16", 3000) - 1};
    struct kvt_auto_pick pick;
    assert_int_equal(kvt_auto_choose(&pick, model, &request, NULL), KVT_OK);
    assert_string_equal(pick.kv, "kvt4");
    assert_int_equal(pick.sink, 256);
    assert_int_equal(pick.tail, 0);
}

/* Against every length there is. */
static void the_longest_context(void **state) {
    (void)state;
    const struct {
        const char *kv;
        int sink, tail;
        int64_t start;
    } plans[] = {
        {"f16", 0, 0, 0}, {"kvt4", 128, 128, 0}, {"kivi4g32", 0, 100, 0}, {"affine4", 0, 0, 0}, {"kvt2", 0, 0, 900}};
    enum { MOST = 2000 };
    for (size_t p = 0; p < KVT_ARRAY_LEN(plans); p++) {
        struct kvt_plan *plan = plan_of(plans[p].kv, plans[p].sink, plans[p].tail, plans[p].start);
        for (uint64_t bytes = 100000; bytes < 20000000; bytes += bytes / 3) {
            int64_t expected = 0;
            while (expected < MOST && kvt_plan_bytes(plan, expected + 1) <= bytes) expected++;
            assert_int_equal(kvt_auto_longest(plan, bytes, MOST), expected);
        }
        kvt_plan_destroy(plan);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_that_fits),        cmocka_unit_test(what_rows_speak_against_is_left_out),
        cmocka_unit_test(sessions_share_the_memory), cmocka_unit_test(regions_may_be_asked_for),
        cmocka_unit_test(the_longest_context),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
