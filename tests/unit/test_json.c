/* SPDX-License-Identifier: Apache-2.0
 * Numbers that JSON has not, texts that are no UTF-8, trees that lack a part. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "json/json.h"

static void expect(json_t *value, const char *want) {
    struct kvt_buf out;
    kvt_buf_init(&out, NULL, 1 << 10);
    assert_int_equal(kvt_json_dump(&out, json_pack("[o]", value), true, 3), KVT_OK);
    assert_string_equal(kvt_buf_text(&out), want);
    kvt_buf_finish(&out);
}

static void test_values(void **state) {
    (void)state;
    expect(kvt_json_number(0.12345), "[\n  0.123\n]\n");
    expect(kvt_json_number(NAN), "[\n  null\n]\n");
    expect(kvt_json_number(-INFINITY), "[\n  null\n]\n");
    expect(kvt_json_text("a\xc3\xa9"), "[\n  \"a\xc3\xa9\"\n]\n");
    expect(kvt_json_text("a\xc3\xa9\xff\x7f"), "[\n  \"a\?\?\?\?\"\n]\n");
    expect(kvt_json_text(NULL), "[\n  null\n]\n");
}

static void test_dump_fails(void **state) {
    (void)state;
    struct kvt_buf out, small;
    kvt_buf_init(&out, NULL, 1 << 10);
    kvt_buf_init(&small, NULL, 4);
    assert_int_equal(kvt_json_dump(&out, NULL, true, 3), KVT_ERR_NOMEM);
    assert_int_equal(kvt_json_dump(&out, json_object(), false, 3), KVT_ERR_NOMEM);
    assert_int_equal(kvt_json_dump(&small, json_pack("[s]", "longer than that"), true, 3), KVT_ERR_NOMEM);
    kvt_buf_finish(&small);
    kvt_buf_finish(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_dump_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
