/* SPDX-License-Identifier: Apache-2.0
 * base: allocators, arena, buffer, size arithmetic, errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/check.h"

static void sizes_are_checked(void **state) {
    (void)state;
    size_t out = 7;
    assert_false(kvt_mul_ok(SIZE_MAX / 2, 3, &out));
    assert_false(kvt_add_ok(SIZE_MAX, 1, &out));
    assert_int_equal(out, 7);
    assert_true(kvt_mul_ok(SIZE_MAX / 3, 3, &out));
    assert_int_equal(out, SIZE_MAX / 3 * 3);
    assert_true(kvt_add_ok(SIZE_MAX - 1, 1, &out));
    assert_int_equal(out, SIZE_MAX);
    assert_int_equal(kvt_round_up(0, 128), 0);
    assert_int_equal(kvt_round_up(129, 128), 256);
    assert_int_equal(kvt_div_up(129, 128), 2);
}

static void blocks_are_aligned_and_cleared(void **state) {
    (void)state;
    const struct kvt_allocator a = kvt_allocator_or_default(NULL);
    for (size_t n = 1; n < 300; n += 13) {
        unsigned char *p = kvt_take_zero(&a, n, 3);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % KVT_ALIGN, 0);
        for (size_t i = 0; i < 3 * n; i++) assert_int_equal(p[i], 0);
        memset(p, 0xAA, 3 * n);
        kvt_give(&a, p, n, 3);
    }
    assert_null(kvt_take(&a, SIZE_MAX, 2));
    assert_null(kvt_take(&a, SIZE_MAX, 1));
    assert_null(kvt_take(&a, 0, 8));
    kvt_give(&a, NULL, 5, 5);
    char *text = kvt_take_string(&a, "house", 3);
    assert_string_equal(text, "hou");
    kvt_give(&a, text, 4, 1);
}

static void counter_counts(void **state) {
    (void)state;
    struct kvt_alloc_counter counter = {0};
    const struct kvt_allocator a = kvt_allocator_counted(&counter);
    void *p = kvt_take(&a, 10, 10), *q = kvt_take(&a, 1, 50);
    assert_int_equal(counter.live_bytes, 150);
    assert_int_equal(counter.live_blocks, 2);
    kvt_give(&a, p, 10, 10);
    void *r = kvt_take(&a, 20, 1);
    assert_int_equal(counter.live_bytes, 70);
    assert_int_equal(counter.peak_bytes, 150);
    assert_int_equal(counter.n_takes, 3);
    kvt_give(&a, q, 1, 50);
    kvt_give(&a, r, 20, 1);
    assert_int_equal(counter.live_bytes, 0);
    assert_int_equal(counter.live_blocks, 0);
}

static void counter_fails_on_request(void **state) {
    (void)state;
    struct kvt_alloc_counter counter = {.fail_at = 3};
    const struct kvt_allocator a = kvt_allocator_counted(&counter);
    void *p[5];
    for (int i = 0; i < 5; i++) p[i] = kvt_take(&a, 1, 8);
    for (int i = 0; i < 5; i++) {
        if (i == 2)
            assert_null(p[i]);
        else
            assert_non_null(p[i]);
        kvt_give(&a, p[i], 1, 8);
    }
    assert_int_equal(counter.live_blocks, 0);

    counter.fail_each = 4;
    int n_failed = 0;
    for (int i = 0; i < 4000; i++) {
        void *one = kvt_take(&a, 1, 8);
        n_failed += !one;
        kvt_give(&a, one, 1, 8);
    }
    assert_in_range(n_failed, 850, 1150); /* 1000 expected, standard deviation 27 */
    counter.fail_each = 0;
    void *one = kvt_take(&a, 1, 8);
    assert_non_null(one);
    kvt_give(&a, one, 1, 8);
}

static void arena_bumps(void **state) {
    (void)state;
    struct kvt_alloc_counter counter = {0};
    const struct kvt_allocator a = kvt_allocator_counted(&counter);
    struct kvt_arena arena;
    assert_true(kvt_arena_init(&arena, &a, kvt_arena_need(3, 10) + kvt_arena_need(100, 1)));
    char *p = kvt_arena_take(&arena, 3, 10);
    assert_non_null(p);
    const size_t mark = kvt_arena_mark(&arena);
    char *q = kvt_arena_take(&arena, 100, 1);
    assert_ptr_equal(q, p + KVT_ALIGN);
    assert_int_equal((uintptr_t)q % KVT_ALIGN, 0);
    assert_null(kvt_arena_take(&arena, 1, 1));
    assert_null(kvt_arena_take(&arena, SIZE_MAX / 2, 3));
    assert_null(kvt_arena_take(&arena, SIZE_MAX, 1));
    kvt_arena_reset(&arena, mark);
    assert_null(kvt_arena_take(&arena, 0, 4));
    assert_ptr_equal(kvt_arena_take(&arena, 1, 128), q);
    kvt_arena_finish(&arena);
    kvt_arena_finish(&arena);
    assert_int_equal(counter.live_bytes, 0);

    counter.fail_at = 1;
    assert_false(kvt_arena_init(&arena, &a, 64));
    kvt_arena_finish(&arena);
}

static void buffer_grows_to_its_maximum(void **state) {
    (void)state;
    struct kvt_alloc_counter counter = {0};
    const struct kvt_allocator a = kvt_allocator_counted(&counter);
    struct kvt_buf buf;
    kvt_buf_init(&buf, &a, 1000);
    assert_string_equal(kvt_buf_text(&buf), "");
    for (int i = 0; i < 100; i++) {
        assert_int_equal(kvt_buf_addf(&buf, "%05d ", i), KVT_OK);
        assert_true(buf.len < buf.capacity); /* room for the NUL */
    }
    assert_int_equal(buf.len, 600);
    assert_memory_equal(buf.data + 594, "00099 ", 7);
    char big[401] = {0};
    assert_int_equal(kvt_buf_add(&buf, big, 401), KVT_ERR_LIMIT);
    assert_int_equal(kvt_buf_addf(&buf, "%500d", 1), KVT_ERR_LIMIT);
    assert_int_equal(buf.len, 600);
    assert_int_equal(kvt_buf_add(&buf, big, 400), KVT_OK);
    assert_int_equal(buf.len, 1000);
    assert_int_equal(buf.data[1000], 0);
    assert_int_equal(kvt_buf_add(&buf, big, 0), KVT_OK);
    assert_int_equal(kvt_buf_add(&buf, big, SIZE_MAX), KVT_ERR_LIMIT);
    kvt_buf_finish(&buf);
    assert_int_equal(counter.live_bytes, 0);
    assert_true(counter.peak_bytes < 3000);
}

static void buffer_has_room_for_its_nul(void **state) {
    (void)state;
    struct kvt_buf buf;
    kvt_buf_init(&buf, NULL, 5000);
    for (size_t i = 0; i < 5000; i++) {
        assert_int_equal(kvt_buf_add(&buf, "x", 1), KVT_OK);
        assert_true(buf.len < buf.capacity);
        assert_int_equal(buf.data[buf.len], 0);
    }
    kvt_buf_finish(&buf);
}

static void buffer_keeps_its_content_without_memory(void **state) {
    (void)state;
    struct kvt_alloc_counter counter = {0};
    const struct kvt_allocator a = kvt_allocator_counted(&counter);
    struct kvt_buf buf;
    kvt_buf_init(&buf, &a, 100000);
    assert_int_equal(kvt_buf_addf(&buf, "kept"), KVT_OK);
    char big[5000] = {0};
    counter.fail_at = 1;
    assert_int_equal(kvt_buf_add(&buf, big, sizeof big), KVT_ERR_NOMEM);
    assert_string_equal(kvt_buf_text(&buf), "kept");
    assert_int_equal(kvt_buf_add(&buf, big, sizeof big), KVT_OK);
    assert_string_equal(kvt_buf_text(&buf), "kept");
    kvt_buf_finish(&buf);
    assert_int_equal(counter.live_blocks, 0);
}

static enum kvt_status passes_up(enum kvt_status inner) {
    KVT_TRY(inner);
    return KVT_OK;
}

static enum kvt_status cleans_up(enum kvt_status inner, int *cleaned) {
    enum kvt_status status;
    KVT_TRY_OUT(inner);
out:
    ++*cleaned;
    return status;
}

static void errors_are_sentences(void **state) {
    (void)state;
    struct kvt_error err = {0};
    assert_int_equal(kvt_fail(&err, KVT_ERR_RANGE, "row %d of %s", 7, "the tile"), KVT_ERR_RANGE);
    assert_int_equal(err.code, KVT_ERR_RANGE);
    assert_string_equal(err.text, "row 7 of the tile");
    /* A callee's sentence may be wrapped in place. */
    assert_int_equal(kvt_fail(&err, KVT_ERR_FORMAT, "layer 3: %s", err.text), KVT_ERR_FORMAT);
    assert_string_equal(err.text, "layer 3: row 7 of the tile");
    /* A long one is cut, and ends. */
    char big[2000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    kvt_fail(&err, KVT_ERR_ARG, "%s", big);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_int_equal(kvt_fail(NULL, KVT_ERR_IO, "nobody listens"), KVT_ERR_IO);

    int cleaned = 0;
    assert_int_equal(passes_up(KVT_ERR_IO), KVT_ERR_IO);
    assert_int_equal(passes_up(KVT_OK), KVT_OK);
    assert_int_equal(cleans_up(KVT_ERR_IO, &cleaned), KVT_ERR_IO);
    assert_int_equal(cleans_up(KVT_OK, &cleaned), KVT_OK);
    assert_int_equal(cleaned, 2);
}

static void statuses_have_names(void **state) {
    (void)state;
    assert_string_equal(kvt_status_name(KVT_OK), "OK");
    assert_string_equal(kvt_status_name(KVT_ERR_NOMEM), "NOMEM");
    assert_string_equal(kvt_status_text(KVT_ERR_NOMEM), "out of memory");
    assert_string_equal(kvt_status_name((enum kvt_status) - 999), "UNKNOWN");
    assert_non_null(kvt_status_text((enum kvt_status) - 999));
    /* Pinned: other languages bind to the numbers. */
    assert_int_equal(KVT_ERR_ARG, -2);
    assert_int_equal(KVT_ERR_NOTFOUND, -11);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(blocks_are_aligned_and_cleared),
        cmocka_unit_test(counter_counts),
        cmocka_unit_test(counter_fails_on_request),
        cmocka_unit_test(arena_bumps),
        cmocka_unit_test(buffer_grows_to_its_maximum),
        cmocka_unit_test(buffer_has_room_for_its_nul),
        cmocka_unit_test(buffer_keeps_its_content_without_memory),
        cmocka_unit_test(errors_are_sentences),
        cmocka_unit_test(statuses_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
