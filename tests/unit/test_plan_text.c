/* SPDX-License-Identifier: Apache-2.0
 * Plans whose layers differ: what their strings mean, and how they are written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "kvtile/kvtile.h"

enum { LAYERS = 6 };

static const struct kvt_layer_shape layers[LAYERS] = {{2, 64, 64, 0}, {2, 64, 64, 0}, {1, 64, 128, 0},
                                                      {2, 64, 64, 0}, {2, 64, 64, 0}, {2, 64, 64, 0}};
static const struct kvt_shape shape = {LAYERS, layers};

static struct kvt_plan *make(const char *kv) {
    const struct kvt_plan_options o = {.struct_size = sizeof o, .kv = kv, .sink = 128, .tail = 32};
    struct kvt_plan *plan = NULL;
    struct kvt_error err;
    if (kvt_plan_create(&plan, &shape, &o, NULL, &err) != KVT_OK) fail_msg("%s: %s", kv, err.text);
    return plan;
}

static const char *codec_name(const struct kvt_plan *plan, int layer, enum kvt_side side) {
    return kvt_codec_info(kvt_plan_layer(plan, layer)->codec[side]).name;
}

static void layers_have_what_the_string_says(void **state) {
    (void)state;
    struct kvt_plan *plan = make("kivi4,affine4:0-1=f16:5=kivi8:5=kivi2,f16");
    static const char *const k[] = {"f16", "f16", "kivi4g32", "kivi4g32", "kivi4g32", "kivi2g32"};
    static const char *const v[] = {"f16", "f16", "affine4g64", "affine4g64", "affine4g64", "f16"};
    for (int l = 0; l < LAYERS; l++) {
        assert_string_equal(codec_name(plan, l, KVT_SIDE_K), k[l]);
        assert_string_equal(codec_name(plan, l, KVT_SIDE_V), v[l]);
        assert_int_equal(kvt_plan_layer(plan, l)->granularity, l < 2 ? 1 : 32);
    }
    kvt_plan_destroy(plan);
}

static void a_string_is_written_as_short_as_it_can_be(void **state) {
    (void)state;
    static const struct {
        const char *kv, *written;
    } cases[] = {
        {"affine4", "affine4g64"},
        {"kivi4,affine8", "kivi4g32,affine8g64"},
        {"f16:0-5=kivi4", "kivi4g32"},
        {"f16:3=f16", "f16"},
        {"kq4,vu4", "kvt4"},
        {"kvt3,kvt2", "kq3,vu2"},
        {"kq3,vu2:1=kq2,vu2", "kq3,vu2:1=kvt2"},
        {"kq2-feedback,vu2", "kvt2-feedback"},
        {"kivi4:0=f16:1=f16:5=kivi8,affine4", "kivi4g32:0-1=f16:5=kivi8g32,affine4g64"},
        {"f16:0-3=kivi2", "kivi2g32:4-5=f16"},
        {"f16:0=kivi2:1=kivi4:2=f16,f16", "f16:0=kivi2g32:1=kivi4g32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kvt_plan *plan = make(cases[i].kv);
        assert_string_equal(kvt_plan_kv(plan), cases[i].written);
        struct kvt_plan *again = make(kvt_plan_kv(plan));
        assert_string_equal(kvt_plan_kv(again), cases[i].written);
        for (int l = 0; l < LAYERS; l++)
            for (int side = 0; side < KVT_SIDE_COUNT; side++)
                assert_ptr_equal(kvt_plan_layer(plan, l)->codec[side], kvt_plan_layer(again, l)->codec[side]);
        kvt_plan_destroy(plan);
        kvt_plan_destroy(again);
    }
}

static void bytes_are_those_of_the_layers(void **state) {
    (void)state;
    struct kvt_plan *mixed = make("kivi4:2=f16"), *low = make("kivi4"), *wide = make("f16");
    for (int64_t n = 1; n < 2000; n += 333) {
        uint64_t sum = 0;
        for (int l = 0; l < LAYERS; l++) sum += kvt_plan_usage(l == 2 ? wide : low, l, n).total_bytes;
        assert_int_equal(kvt_plan_bytes(mixed, n), sum);
    }
    kvt_plan_destroy(mixed);
    kvt_plan_destroy(low);
    kvt_plan_destroy(wide);
}

static void nonsense_is_named(void **state) {
    (void)state;
    static const struct {
        const char *kv, *says;
    } cases[] = {
        {"f16:", "no part of a plan"},
        {"f16:3", "'3' is no part of a plan"},
        {"f16:x=f16", "'x=f16' is no part of a plan: write LAYER=K[,V]"},
        {"f16:3-1=f16", "'3-1=f16'"},
        {"f16:-1=f16", "'-1=f16'"},
        {"f16:6=f16", "names layer 6; the model has layers 0 to 5"},
        {"f16:0-99999999999=f16", "the model has layers 0 to 5"},
        {"f16:1=", "'' is no cache"},
        {"f16:1=f16,f16,f16", "'f16,f16,f16' is no cache"},
        {"f16:1=kivi9", "unknown codec 'kivi9'"},
        {":0=f16", "'' is no cache"},
        {"kvt5", "the nearest is 'kvt2'; known: f32, f16,"},
        {"kvt5", "kq{2,3,4}-feedback, kvt{2,3,4}[-feedback]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct kvt_plan_options o = {.struct_size = sizeof o, .kv = cases[i].kv};
        struct kvt_plan *plan = NULL;
        struct kvt_error err = {.text = ""};
        assert_int_equal(kvt_plan_create(&plan, &shape, &o, NULL, &err), KVT_ERR_ARG);
        if (!strstr(err.text, cases[i].says)) fail_msg("%s: '%s' has no '%s'", cases[i].kv, err.text, cases[i].says);
        assert_null(plan);
    }
}

static void each_name_is_a_cache(void **state) {
    (void)state;
    bool has_pair = false;
    for (size_t i = 0; kvt_kv_at(i); i++) {
        kvt_plan_destroy(make(kvt_kv_at(i)));
        has_pair |= strcmp(kvt_kv_at(i), "kvt3") == 0;
    }
    assert_true(has_pair);
    static const char *const halves[] = {"kq4", "vu4", "vu4,kq4", "kq4,f16:2=vu2"};
    for (size_t i = 0; i < sizeof halves / sizeof halves[0]; i++) {
        const struct kvt_plan_options o = {.struct_size = sizeof o, .kv = halves[i]};
        struct kvt_plan *plan = NULL;
        struct kvt_error err;
        assert_int_equal(kvt_plan_create(&plan, &shape, &o, NULL, &err), KVT_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.text, " alone: write 'K,V'"));
    }
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    enum kvt_status status = KVT_ERR_NOMEM;
    for (size_t n = 1; status != KVT_OK; n++) {
        struct kvt_alloc_counter counter = {.fail_at = n};
        const struct kvt_allocator a = kvt_allocator_counted(&counter);
        const struct kvt_plan_options o = {.struct_size = sizeof o, .kv = "kivi4:1=f16"};
        const struct kvt_pool_options po = {.struct_size = sizeof po, .allocator = &a};
        struct kvt_plan *plan = NULL;
        struct kvt_pool *pool = NULL;
        status = kvt_plan_create(&plan, &shape, &o, &a, NULL);
        if (status == KVT_OK) status = kvt_pool_create(&pool, plan, &po, NULL);
        if (status == KVT_OK) kvt_pool_destroy(pool);
        kvt_plan_destroy(plan);
        assert_true(status == KVT_OK || status == KVT_ERR_NOMEM);
        assert_int_equal(counter.live_blocks, 0);
        assert_in_range(n, 1, 100);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_have_what_the_string_says), cmocka_unit_test(a_string_is_written_as_short_as_it_can_be),
        cmocka_unit_test(bytes_are_those_of_the_layers),    cmocka_unit_test(nonsense_is_named),
        cmocka_unit_test(every_allocation_may_fail),        cmocka_unit_test(each_name_is_a_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
