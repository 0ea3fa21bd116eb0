/* SPDX-License-Identifier: Apache-2.0
 * Which tensors become matrices, and what is said of the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "weight/weight.h"

static void types(void **state) {
    (void)state;
    const char *names = kvt_weight_type_names();
    assert_string_equal(names, "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K");
    size_t n = 0;
    for (uint32_t id = 0; id < 256; id++) {
        const struct kvt_weight_type *type = kvt_weight_type_find(id);
        if (!type) continue;
        n++;
        /* The reader of files and this folder agree on numbers and names. */
        const struct kvt_gguf_type *file_type = kvt_gguf_type_find(id);
        assert_non_null(file_type);
        assert_string_equal(file_type->name, kvt_weight_type_name(type));
    }
    assert_int_equal(n, kvt_weight_type_count());
    assert_null(kvt_weight_type_at(n));
    assert_null(kvt_weight_type_find(39)); /* MXFP4: read, not computed with yet */
}

static enum kvt_status bind(struct kvt_weight *out, uint32_t type, int n_dims, int64_t n_in, int64_t n_out,
                            size_t bytes, struct kvt_error *err) {
    static const unsigned char data[4096];
    static const struct kvt_gguf_type unknown = {39, "MXFP4", 32, 17};
    const struct kvt_gguf_type *t = type == 39 ? &unknown : kvt_gguf_type_find(type);
    assert_non_null(t);
    const struct kvt_gguf_tensor tensor = {"blk.0.x", t, n_dims, {n_in, n_out, 1, 1}, data, bytes};
    memset(err, 0, sizeof *err);
    return kvt_weight_bind(out, &tensor, err);
}

static void good(void **state) {
    (void)state;
    struct kvt_weight w;
    struct kvt_error err;
    assert_int_equal(bind(&w, 3, 2, 64, 3, 120, &err), KVT_OK);
    assert_int_equal(w.n_in, 64);
    assert_int_equal(w.n_out, 3);
    assert_int_equal(w.row_bytes, 40);
    assert_ptr_equal(w.type, kvt_weight_type_find(3));
    assert_int_equal(bind(&w, 0, 1, 7, 99, 28, &err), KVT_OK); /* of one dimension: one row */
    assert_int_equal(w.n_out, 1);
    assert_int_equal(w.row_bytes, 28);
}

static void bad(void **state) {
    (void)state;
    static const struct {
        uint32_t type;
        int n_dims;
        int64_t n_in, n_out;
        size_t bytes;
        enum kvt_status status;
        const char *says;
    } cases[] = {
        {39, 2, 32, 1, 17, KVT_ERR_UNSUPPORTED, "MXFP4"},
        {39, 2, 32, 1, 17, KVT_ERR_UNSUPPORTED, "F32, F16"},
        {0, 3, 4, 4, 64, KVT_ERR_UNSUPPORTED, "3 dimensions"},
        {3, 2, 48, 1, 40, KVT_ERR_FORMAT, "blocks of 32"},
        {12, 2, 128, 1, 144, KVT_ERR_FORMAT, "blocks of 256"},
        {3, 2, 64, 3, 119, KVT_ERR_FORMAT, "119 bytes"},
        {0, 2, 0, 3, 119, KVT_ERR_FORMAT, "0 elements"},
        {0, 2, INT64_MAX / 4, INT64_MAX / 4, 119, KVT_ERR_FORMAT, "do not fit"},
    };
    for (size_t i = 0; i < KVT_ARRAY_LEN(cases); i++) {
        struct kvt_weight w = {.n_in = -7};
        struct kvt_error err;
        assert_int_equal(bind(&w, cases[i].type, cases[i].n_dims, cases[i].n_in, cases[i].n_out, cases[i].bytes, &err),
                         cases[i].status);
        assert_int_equal(err.code, cases[i].status);
        assert_non_null(strstr(err.text, "blk.0.x"));
        assert_non_null(strstr(err.text, cases[i].says));
        assert_int_equal(w.n_in, -7); /* untouched */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(types), cmocka_unit_test(good), cmocka_unit_test(bad)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
