/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of backends, and what each says of itself in a build and on a machine that cannot use it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "kvtile/kvtile.h"

static void test_list(void **state) {
    (void)state;
    assert_string_equal(kvt_backend_at(0), "cpu");
    assert_string_equal(kvt_backend_at(1), "cuda");
    assert_null(kvt_backend_at(2));
    char text[600];
    struct kvt_error err;
    for (size_t i = 0; kvt_backend_at(i); i++) {
        assert_int_equal(kvt_backend_about(kvt_backend_at(i), text, sizeof text, &err), KVT_OK);
        assert_true(strlen(text) > 10);
    }
    assert_int_equal(kvt_backend_about("abacus", text, sizeof text, &err), KVT_ERR_ARG);
    assert_non_null(strstr(err.text, "known: cpu cuda"));
    char few[8];
    assert_int_equal(kvt_backend_about("cuda", few, sizeof few, NULL), KVT_OK);
    assert_true(strlen(few) < sizeof few);
}

/* A pool is made, or the failure says what is missing: the build's CUDA or the machine's device. */
static void test_pool_or_why(void **state) {
    (void)state;
    const struct kvt_layer_shape layer = {2, 64, 64, 0};
    const struct kvt_shape shape = {1, &layer};
    struct kvt_plan *plan;
    struct kvt_error err;
    assert_int_equal(kvt_plan_create(&plan, &shape, NULL, NULL, &err), KVT_OK);
    char text[600];
    assert_int_equal(kvt_backend_about("cuda", text, sizeof text, &err), KVT_OK);
    struct kvt_pool *pool = NULL;
    const struct kvt_pool_options o = {.struct_size = sizeof o, .backend = "cuda"};
    const enum kvt_status status = kvt_pool_create(&pool, plan, &o, &err);
    if (status == KVT_OK) {
        assert_non_null(strstr(text, "device 0: "));
        kvt_pool_destroy(pool);
    } else if (status == KVT_ERR_UNSUPPORTED) {
        assert_non_null(strstr(err.text, "no backend cuda"));
    } else {
        assert_int_equal(status, KVT_ERR_DEVICE);
        assert_non_null(strstr(text, err.text));
    }
    kvt_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_list), cmocka_unit_test(test_pool_or_why)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
