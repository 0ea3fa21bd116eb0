/* SPDX-License-Identifier: Apache-2.0
 * Choosing a cache: the words of kvtile, mlx-lm, gmlx and llama.cpp come to the same plans. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/kv_options.c"

static void gives(struct kvt_kv_settings s, const char *expected) {
    char kv[KVT_KV_TEXT_MAX] = "";
    if (s.group == 0) s.group = 64;
    assert_int_equal(kvt_kv_resolve(kv, &s, NULL), KVT_OK);
    assert_string_equal(kv, expected);
}

static void refuses(struct kvt_kv_settings s, enum kvt_status status, const char *part) {
    char kv[KVT_KV_TEXT_MAX] = "untouched";
    struct kvt_error err;
    assert_int_equal(kvt_kv_resolve(kv, &s, &err), status);
    assert_int_equal(err.code, status);
    assert_string_equal(kv, "untouched");
    if (!strstr(err.text, part)) fail_msg("'%s' does not say '%s'", err.text, part);
}

static void names_become_plans(void **state) {
    (void)state;
    gives((struct kvt_kv_settings){0}, "f16");
    gives((struct kvt_kv_settings){.kv = "kivi4g32,affine4g64"}, "kivi4g32,affine4g64");
    gives((struct kvt_kv_settings){.type_k = "q8_0"}, "q8_0,f16");
    gives((struct kvt_kv_settings){.type_v = "q4_0"}, "f16,q4_0");
    gives((struct kvt_kv_settings){.type_k = "q8_0", .type_v = "q4_0"}, "q8_0,q4_0");
    gives((struct kvt_kv_settings){.bits = 4}, "affine4g64");
    gives((struct kvt_kv_settings){.bits = 8, .group = 32}, "affine8g32");
    gives((struct kvt_kv_settings){.bits = 6, .scheme = "auto"}, "affine6g64");
    gives((struct kvt_kv_settings){.bits = 6, .scheme = "uniform"}, "affine6g64");
    gives((struct kvt_kv_settings){.bits = 6, .scheme = "kvarn"}, "kvarn6");
    gives((struct kvt_kv_settings){.bits = 4, .scheme = "kvarn"}, "kvarn4");
    gives((struct kvt_kv_settings){.scheme = "kvarn"}, "kvarn6");
}

static void what_cannot_be_is_said(void **state) {
    (void)state;
    refuses((struct kvt_kv_settings){.bits = 4, .scheme = "magic"}, KVT_ERR_ARG, "magic");
    refuses((struct kvt_kv_settings){.scheme = "uniform"}, KVT_ERR_ARG, "needs --kv-bits");
    char name[KVT_KV_TEXT_MAX + 1];
    memset(name, 'a', KVT_KV_TEXT_MAX);
    name[KVT_KV_TEXT_MAX] = 0;
    refuses((struct kvt_kv_settings){.kv = name}, KVT_ERR_ARG, "4095");
    name[KVT_KV_TEXT_MAX - 1] = 0;
    gives((struct kvt_kv_settings){.kv = name}, name);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_become_plans),
        cmocka_unit_test(what_cannot_be_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
