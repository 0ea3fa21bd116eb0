/* SPDX-License-Identifier: Apache-2.0
 * What a plan makes of what was asked for, layer by layer, and that it says why. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/alloc.h"
#include "kvtile/kvtile.h"

static const struct kvt_layer_shape even[] = {{2, 64, 64, 0}, {2, 64, 64, 0}, {2, 64, 64, 0}, {2, 64, 64, 0}};

static struct kvt_plan *plan_of(const struct kvt_layer_shape *layers, int n, struct kvt_plan_options options) {
    const struct kvt_shape shape = {n, layers};
    struct kvt_plan *plan = NULL;
    struct kvt_error err = {0};
    options.struct_size = sizeof options;
    if (kvt_plan_create(&plan, &shape, &options, NULL, &err) != KVT_OK) fail_msg("%s", err.text);
    return plan;
}

static void expect_layer(const struct kvt_plan *plan, int layer, enum kvt_kept kept, const char *k,
                         const char *reason) {
    const struct kvt_layer_plan *l = kvt_plan_layer(plan, layer);
    assert_int_equal(l->kept, kept);
    assert_string_equal(kvt_codec_info(l->codec[KVT_SIDE_K]).name, k);
    if (!strstr(l->reason, reason)) fail_msg("layer %d: '%s' does not say '%s'", layer, l->reason, reason);
}

static void test_as_asked(void **state) {
    (void)state;
    struct kvt_plan *plan = plan_of(even, 4, (struct kvt_plan_options){.kv = "kivi4g32:1=f16"});
    expect_layer(plan, 0, KVT_KEPT_NOT, "kivi4g32", "as asked");
    expect_layer(plan, 1, KVT_KEPT_NOT, "f16", "as asked");
    assert_int_equal(kvt_plan_n_encoded(plan), 3);
    kvt_plan_destroy(plan);
    plan = plan_of(even, 4, (struct kvt_plan_options){.kv = "f16,vu4"});
    assert_int_equal(kvt_plan_n_encoded(plan), 4);
    kvt_plan_destroy(plan);
    plan = plan_of(even, 4, (struct kvt_plan_options){.kv = "kvt4"});
    expect_layer(plan, 3, KVT_KEPT_NOT, "kq4", "classes of keys by queries");
    kvt_plan_destroy(plan);
}

static void test_last_layer_is_held(void **state) {
    (void)state;
    const struct kvt_plan_options held = {.kv = "kvarn4", .hold_last = true};
    struct kvt_plan *plan = plan_of(even, 4, held);
    expect_layer(plan, 2, KVT_KEPT_NOT, "kvarn4", "as asked");
    expect_layer(plan, 3, KVT_KEPT_LAST, "f16", "held: the last of 4 layers");
    assert_string_equal(kvt_plan_kv(plan), "kvarn4:3=f16");
    assert_int_equal(kvt_plan_n_encoded(plan), 3);
    kvt_plan_destroy(plan);
    plan = plan_of(even, 2, held); /* two layers are no deep stack */
    expect_layer(plan, 1, KVT_KEPT_NOT, "kvarn4", "as asked");
    kvt_plan_destroy(plan);
    plan = plan_of(even, 4, (struct kvt_plan_options){.kv = "bf16", .hold_last = true});
    expect_layer(plan, 3, KVT_KEPT_NOT, "bf16", "as asked"); /* 16 bits already */
    kvt_plan_destroy(plan);
}

/* What the held layer's string means is the same without the option, in bytes too. */
static void test_string_says_it_all(void **state) {
    (void)state;
    struct kvt_plan *plan = plan_of(even, 4, (struct kvt_plan_options){.kv = "affine4", .hold_last = true});
    struct kvt_plan *again = plan_of(even, 4, (struct kvt_plan_options){.kv = kvt_plan_kv(plan)});
    assert_string_equal(kvt_plan_kv(plan), kvt_plan_kv(again));
    assert_int_equal(kvt_plan_bytes(plan, 5000), kvt_plan_bytes(again, 5000));
    kvt_plan_destroy(again);
    kvt_plan_destroy(plan);
}

static void test_rows_that_do_not_fit(void **state) {
    (void)state;
    static const struct kvt_layer_shape mixed[] = {{2, 64, 64, 0}, {2, 24, 64, 0}, {2, 64, 64, 0}};
    struct kvt_plan_options options = {.struct_size = sizeof options, .kv = "kvt4"};
    const struct kvt_shape shape = {3, mixed};
    struct kvt_plan *plan = NULL;
    struct kvt_error err = {0};
    assert_int_equal(kvt_plan_create(&plan, &shape, &options, NULL, &err), KVT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "layer 1: kq4 cannot store K rows of 24 elements"));
    options.fallback = true;
    plan = plan_of(mixed, 3, options);
    expect_layer(plan, 0, KVT_KEPT_NOT, "kq4", "as asked");
    expect_layer(plan, 1, KVT_KEPT_SHAPE, "f16", "kq4 cannot store K rows of 24 elements");
    assert_int_equal(kvt_plan_n_encoded(plan), 2);
    kvt_plan_destroy(plan);
}

/* A fallback is for shapes, not for what makes no sense. */
static void test_wrong_calls_stay_wrong(void **state) {
    (void)state;
    static const struct kvt_layer_shape odd[] = {{1, 12, 12, 0}};
    struct kvt_plan_options options = {.struct_size = sizeof options, .kv = "vu4", .fallback = true};
    struct kvt_shape shape = {4, even};
    struct kvt_plan *plan = NULL;
    struct kvt_error err = {0};
    assert_int_equal(kvt_plan_create(&plan, &shape, &options, NULL, &err), KVT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "vu4 is made for values alone"));
    options.kv = "kivi4g32";
    shape = (struct kvt_shape){1, odd}; /* rows that even f16 cannot store */
    assert_int_equal(kvt_plan_create(&plan, &shape, &options, NULL, &err), KVT_ERR_UNSUPPORTED);
}

static void test_windows(void **state) {
    (void)state;
    struct {
        int window, tail;
        const char *kv;
        enum kvt_kept kept;
    } const cases[] = {
        {127, 0, "kvarn4", KVT_KEPT_WINDOW},    {128, 0, "kvarn4", KVT_KEPT_NOT},
        {255, 128, "kvarn4", KVT_KEPT_WINDOW},  {256, 128, "kvarn4", KVT_KEPT_NOT},
        {31, 0, "kivi4g32", KVT_KEPT_WINDOW},   {32, 0, "kivi4g32", KVT_KEPT_NOT},
        {100, 100, "affine4", KVT_KEPT_WINDOW}, {101, 100, "affine4", KVT_KEPT_NOT},
        {1, 0, "affine4", KVT_KEPT_NOT},        {64, 128, "f16", KVT_KEPT_NOT},
    };
    for (size_t i = 0; i < KVT_ARRAY_LEN(cases); i++) {
        const struct kvt_layer_shape layers[] = {{1, 64, 64, 0}, {1, 64, 64, cases[i].window}};
        struct kvt_plan *plan = plan_of(layers, 2, (struct kvt_plan_options){.kv = cases[i].kv, .tail = cases[i].tail});
        const struct kvt_layer_plan *l = kvt_plan_layer(plan, 1);
        assert_int_equal(kvt_plan_layer(plan, 0)->kept, KVT_KEPT_NOT);
        if (l->kept != cases[i].kept) fail_msg("case %zu: kept %d: %s", i, (int)l->kept, l->reason);
        if (l->kept) assert_non_null(strstr(l->reason, "its window of"));
        kvt_plan_destroy(plan);
    }
}

/* Reasons live with the plan that says them, and a failed allocation leaves nothing behind. */
static void test_memory(void **state) {
    (void)state;
    const struct kvt_shape shape = {4, even};
    const struct kvt_plan_options options = {
        .struct_size = sizeof options, .kv = "kvarn4", .hold_last = true, .fallback = true};
    for (size_t n = 1;; n++) {
        struct kvt_alloc_counter counts = {.fail_at = n};
        const struct kvt_allocator allocator = kvt_allocator_counted(&counts);
        struct kvt_plan *plan = NULL;
        const enum kvt_status status = kvt_plan_create(&plan, &shape, &options, &allocator, NULL);
        if (status == KVT_OK) {
            expect_layer(plan, 3, KVT_KEPT_LAST, "f16", "held");
            kvt_plan_destroy(plan);
            assert_int_equal(counts.live_blocks, 0);
            assert_true(n > 1);
            return;
        }
        assert_int_equal(status, KVT_ERR_NOMEM);
        assert_int_equal(counts.live_blocks, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_asked),
        cmocka_unit_test(test_last_layer_is_held),
        cmocka_unit_test(test_string_says_it_all),
        cmocka_unit_test(test_rows_that_do_not_fit),
        cmocka_unit_test(test_wrong_calls_stay_wrong),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
