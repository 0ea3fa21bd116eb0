/* SPDX-License-Identifier: Apache-2.0
 * Choosing a cache: the words of kvtile, mlx-lm, gmlx and llama.cpp come to the same plans. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/kv_options.c"

static const struct kvt_layer_shape heads128[] = {{2, 128, 128, 0}, {2, 128, 128, 0}}, heads80[] = {{2, 80, 80, 0}},
                                    heads64[] = {{2, 64, 64, 0}}, mixed[] = {{2, 128, 128, 0}, {2, 64, 64, 0}},
                                    windowed[] = {{2, 128, 128, 0}, {2, 128, 128, 512}}, odd[] = {{2, 12, 12, 0}};
static const struct kvt_shape usual = {2, heads128};

static struct kvt_kv_settings filled(struct kvt_kv_settings s) {
    if (s.group == 0) s.group = 64;
    if (s.sink == 0) s.sink = -1;
    if (s.tail == 0) s.tail = -1;
    return s;
}

static struct kvt_kv_wish wish_of(struct kvt_kv_settings s, const struct kvt_shape *shape) {
    struct kvt_kv_wish wish;
    struct kvt_error err = {0};
    s = filled(s);
    if (kvt_kv_resolve(&wish, &s, shape, &err) != KVT_OK) fail_msg("%s", err.text);
    return wish;
}

static void gives(struct kvt_kv_settings s, const char *expected) {
    assert_string_equal(wish_of(s, &usual).kv, expected);
}

static void refuses(struct kvt_kv_settings s, const struct kvt_shape *shape, const char *part) {
    struct kvt_kv_wish wish;
    struct kvt_error err;
    s = filled(s);
    assert_int_equal(kvt_kv_resolve(&wish, &s, shape, &err), KVT_ERR_ARG);
    assert_int_equal(err.code, KVT_ERR_ARG);
    if (!strstr(err.text, part)) fail_msg("'%s' does not say '%s'", err.text, part);
}

static void names_become_plans(void **state) {
    (void)state;
    gives((struct kvt_kv_settings){0}, "auto");
    assert_false(wish_of((struct kvt_kv_settings){0}, &usual).named);
    assert_true(wish_of((struct kvt_kv_settings){.kv = "auto"}, &usual).named);
    gives((struct kvt_kv_settings){.kv = "kivi4g32,affine4g64"}, "kivi4g32,affine4g64");
    gives((struct kvt_kv_settings){.kv = "@plan.json"}, "@plan.json");
    gives((struct kvt_kv_settings){.bits = "4"}, "affine4g64");
    gives((struct kvt_kv_settings){.bits = "8", .group = 32}, "affine8g32");
    assert_false(wish_of((struct kvt_kv_settings){.bits = "4"}, &usual).hold_last); /* mlx-lm holds none */
    assert_true(wish_of((struct kvt_kv_settings){.kv = "kvt4", .hold_last = true}, &usual).hold_last);
}

static void llama_types_are_rotated_as_there(void **state) {
    (void)state;
    const struct kvt_shape small = {1, heads80}, two = {2, mixed};
    gives((struct kvt_kv_settings){.type_k = "q8_0"}, "q8_0-rot,f16");
    gives((struct kvt_kv_settings){.type_v = "q4_0"}, "f16,q4_0-rot");
    gives((struct kvt_kv_settings){.type_k = "q8_0", .type_v = "q4_0"}, "q8_0-rot,q4_0-rot");
    gives((struct kvt_kv_settings){.type_k = "bf16", .type_v = "affine4"}, "bf16,affine4");
    assert_string_equal(wish_of((struct kvt_kv_settings){.type_k = "q8_0"}, &small).kv, "q8_0,f16");
    assert_string_equal(wish_of((struct kvt_kv_settings){.type_k = "q8_0"}, &two).kv, "q8_0,f16");
    gives((struct kvt_kv_settings){.kv = "q8_0"}, "q8_0");
}

static void gmlx_means_what_it_means_there(void **state) {
    (void)state;
    gives((struct kvt_kv_settings){.bits = "6", .scheme = "uniform"}, "affine6g64");
    gives((struct kvt_kv_settings){.bits = "4", .scheme = "kvarn"}, "kvarn4");
    gives((struct kvt_kv_settings){.scheme = "kvarn"}, "kvarn6");
    gives((struct kvt_kv_settings){.bits = "k6v5"}, "kvarn6,kvarn5");
    gives((struct kvt_kv_settings){.bits = "K4V4", .scheme = "kvarn"}, "kvarn4");
    const struct kvt_kv_wish kvarn = wish_of((struct kvt_kv_settings){.scheme = "kvarn"}, &usual);
    assert_int_equal(kvarn.sink, 128);
    assert_int_equal(kvarn.tail, 1024);
    assert_true(kvarn.hold_last);
    assert_int_equal(wish_of((struct kvt_kv_settings){.scheme = "kvarn", .tail = 256}, &usual).tail, 256);
}

/* The rules of gmlx 0.5.3 in their order, each with what comes before and after it. */
static void auto_chooses_as_gmlx(void **state) {
    (void)state;
    const struct kvt_shape window = {2, windowed}, all = {1, windowed + 1}, unfit = {1, odd}, small = {1, heads64},
                           two = {2, mixed};
    const struct {
        struct kvt_kv_settings s;
        const struct kvt_shape *shape;
        const char *kv, *why;
    } cases[] = {
        /* 2: what only kvarn has, whatever else is asked for; affine where it cannot */
        {{.bits = "5"}, &usual, "kvarn5", "only kvarn has"},
        {{.bits = "5", .group = 32}, &usual, "kvarn5", "only kvarn has"},
        {{.bits = "5", .start = 10}, &usual, "kvarn5", "only kvarn has"},
        {{.bits = "k8v4"}, &usual, "kvarn8,kvarn4", "only kvarn has"},
        {{.bits = "4", .tail = 128}, &usual, "kvarn4", "only kvarn has"},
        {{.bits = "4", .tail = 1024}, &usual, "affine4g64", "all layers"},
        {{.bits = "4", .tail = 128}, &two, "kvarn4", "only kvarn has"}, /* one size that fits suffices */
        {{.bits = "4", .tail = 128}, &small, "affine4g64", "no kvarn for this model"},
        {{.bits = "4", .tail = 128}, &unfit, "affine4g64", "no kvarn for this model"},
        /* 3: what only affine has */
        {{.bits = "6", .rolling = 2048, .group = 32}, &usual, "affine6g32", "only affine has"},
        {{.bits = "6", .start = 10}, &window, "affine6g64", "only affine has"},
        /* 4: nothing is dropped, or nothing grows */
        {{.bits = "6"}, &usual, "affine6g64", "affine: all layers see the whole context"},
        {{.bits = "6"}, &all, "affine6g64", "affine: no layer grows"},
        {{.bits = "6", .rolling = 2048}, &all, "affine6g64", "affine: no layer grows"},
        /* 5: old rows are dropped; the least window is sink, tail (or 128) and 128 */
        {{.bits = "6"}, &window, "kvarn6", "kvarn: old rows are dropped"},
        {{.bits = "6", .rolling = 2048}, &usual, "kvarn6", "kvarn: old rows are dropped"},
        {{.bits = "6", .rolling = 1280}, &usual, "kvarn6", "kvarn: old rows are dropped"},
        {{.bits = "6", .rolling = 1279}, &usual, "affine6g64", "no kvarn for this model"},
        {{.bits = "6", .rolling = 384, .tail = 128}, &usual, "kvarn6", "only kvarn has"},
        {{.bits = "6", .rolling = 383, .tail = 128}, &usual, "affine6g64", "no kvarn for this model"},
        {{.bits = "6", .rolling = 2048}, &small, "affine6g64", "no kvarn for this model"},
    };
    for (size_t i = 0; i < KVT_ARRAY_LEN(cases); i++) {
        struct kvt_kv_settings s = cases[i].s;
        s.scheme = "auto";
        const struct kvt_kv_wish wish = wish_of(s, cases[i].shape);
        if (strcmp(wish.kv, cases[i].kv) != 0 || !strstr(wish.why, cases[i].why))
            fail_msg("case %zu: %s, '%s'", i, wish.kv, wish.why);
        assert_true(wish.hold_last);
    }
    refuses((struct kvt_kv_settings){.bits = "5", .scheme = "auto"}, &unfit, "needs kvarn");
    refuses((struct kvt_kv_settings){.bits = "k6v5", .scheme = "auto"}, &small, "needs kvarn");
    gives((struct kvt_kv_settings){.bits = "5", .scheme = "kvarn", .rolling = 300}, "kvarn5"); /* named, it stays */
}

static void what_cannot_be_is_said(void **state) {
    (void)state;
    refuses((struct kvt_kv_settings){.bits = "4", .scheme = "magic"}, NULL, "magic");
    refuses((struct kvt_kv_settings){.scheme = "uniform"}, NULL, "needs --kv-bits");
    refuses((struct kvt_kv_settings){.scheme = "kvarn", .group = 32}, NULL, "groups of 128");
    refuses((struct kvt_kv_settings){.bits = "k6v5", .scheme = "uniform"}, NULL, "affine6g64,affine5g64");
    static const char *const widths[] = {"",   "1",   "9",    "16",   "7",    "k7v4",   "4.5",
                                         "k6", "k6v", "k6v9", "k1v4", "v4k4", "k66v55", "four"};
    for (size_t i = 0; i < KVT_ARRAY_LEN(widths); i++)
        refuses((struct kvt_kv_settings){.bits = widths[i]}, NULL, "--kv-bits takes a width");
    char name[KVT_KV_TEXT_MAX + 1];
    memset(name, 'a', KVT_KV_TEXT_MAX);
    name[KVT_KV_TEXT_MAX] = 0;
    refuses((struct kvt_kv_settings){.kv = name}, NULL, "4095");
    refuses((struct kvt_kv_settings){.type_k = name}, NULL, "longer than");
    name[KVT_KV_TEXT_MAX - 1] = 0;
    gives((struct kvt_kv_settings){.kv = name}, name);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_become_plans),
        cmocka_unit_test(llama_types_are_rotated_as_there),
        cmocka_unit_test(gmlx_means_what_it_means_there),
        cmocka_unit_test(auto_chooses_as_gmlx),
        cmocka_unit_test(what_cannot_be_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
