/* SPDX-License-Identifier: Apache-2.0
 * Parts of the server that need no model: stop strings, well-formed text, the tree of prefixes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "serve/prefix.h"
#include "serve/slot.h"
#include "serve/stop.h"

/* ---- stop strings ----------------------------------------------------------------------------------------------------- */

/* Feeds a text byte by byte, as far as it is not stopped; returns what was shown, and checks that nothing shown is taken back. */
static size_t feed(const struct kvt_stop_set *set, const char *text, bool *stopped) {
    size_t shown = 0;
    *stopped = false;
    for (size_t n = 1; n <= strlen(text) && !*stopped; n++) {
        size_t len = 0;
        *stopped = kvt_stop_find(set, text, n, n - 1, &len);
        assert_true(len >= shown);
        shown = len;
    }
    return shown;
}

static void stops_are_found_and_never_shown(void **state) {
    (void)state;
    static const struct {
        const char *stops[3], *text;
        size_t shown;
        bool stopped;
    } cases[] = {
        {{"END"}, "a text END and more", 7, true},
        {{"END"}, "a text EN", 7, false},
        {{"END"}, "EEND", 1, true},
        {{"aab"}, "aaab", 1, true},
        {{"xy", "y"}, "axy", 1, true},
        {{"y", "xy"}, "axy", 1, true},
        {{"\n\n"}, "one\ntwo\n\nthree", 7, true},
        {{"abc", "bd"}, "abd", 1, true},
        {{"never"}, "nothing", 7, false},
        {{"User:", "\n"}, "Us User", 3, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kvt_stop_set set = {.n = 0};
        for (int k = 0; k < 3 && cases[i].stops[k]; k++)
            assert_int_equal(kvt_stop_add(&set, cases[i].stops[k], NULL), KVT_OK);
        bool stopped = false;
        const size_t shown = feed(&set, cases[i].text, &stopped);
        if (shown != cases[i].shown || stopped != cases[i].stopped)
            fail_msg("case %zu: %zu bytes shown, not %zu; stopped %d", i, shown, cases[i].shown, stopped);
        kvt_stop_finish(&set);
    }
    struct kvt_stop_set set = {.n = 0};
    assert_int_equal(kvt_stop_add(&set, "", NULL), KVT_ERR_ARG);
    for (int i = 0; i < KVT_STOPS_MAX; i++) assert_int_equal(kvt_stop_add(&set, "x", NULL), KVT_OK);
    assert_int_equal(kvt_stop_add(&set, "x", NULL), KVT_ERR_ARG);
    kvt_stop_finish(&set);
}

/* ---- text ------------------------------------------------------------------------------------------------------------- */

static void text_is_well_formed(void **state) {
    (void)state;
#define BAD "\xEF\xBF\xBD"
    static const char *const cases[][2] = {
        {"plain", "plain"},
        {"\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80"},
        {"a\xFFz", "a" BAD "z"},
        {"\xC3", BAD},
        {"\xC0\xAF", BAD BAD},                 /* overlong */
        {"\xED\xA0\x80", BAD BAD BAD},         /* a surrogate */
        {"\xF4\x90\x80\x80", BAD BAD BAD BAD}, /* past U+10FFFF */
        {"\xE2\x82z", BAD BAD "z"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kvt_buf out;
        kvt_buf_init(&out, NULL, 100);
        assert_int_equal(kvt_add_well_formed(&out, cases[i][0], strlen(cases[i][0])), KVT_OK);
        assert_string_equal(kvt_buf_text(&out), cases[i][1]);
        kvt_buf_finish(&out);
    }
}

/* ---- the tree of prefixes --------------------------------------------------------------------------------------------- */

static int n_given;
static void give(void *ctx, void *item) {
    (void)ctx, (void)item;
    n_given++;
}

static void prefixes_are_found(void **state) {
    (void)state;
    static int items[4];
    const int32_t a[] = {1, 2, 3, 4, 5, 6}, b[] = {1, 2, 3, 9, 9}, other[] = {7, 8};
    struct kvt_prefix p;
    struct kvt_prefix_node *node = NULL;
    kvt_prefix_init(&p, give, NULL);
    n_given = 0;
    assert_null(kvt_prefix_longest(&p, a, 6, 6));
    assert_int_equal(kvt_prefix_common(&p, a, 6, NULL), 0);

    assert_int_equal(kvt_prefix_put(&p, a, 4, &items[0]), KVT_OK);
    assert_int_equal(kvt_prefix_put(&p, a, 2, &items[1]), KVT_OK); /* splits the edge */
    assert_int_equal(kvt_prefix_put(&p, b, 5, &items[2]), KVT_OK); /* parts after three */
    assert_ptr_equal(kvt_prefix_longest(&p, a, 6, 6)->item, &items[0]);
    assert_ptr_equal(kvt_prefix_longest(&p, a, 6, 3)->item, &items[1]);
    assert_null(kvt_prefix_longest(&p, a, 6, 1));
    assert_null(kvt_prefix_longest(&p, other, 2, 2));
    const int32_t c[] = {1, 2, 3, 9, 5};
    assert_int_equal(kvt_prefix_common(&p, c, 5, &node), 4);
    assert_ptr_equal(node->item, &items[2]);
    int32_t got[5];
    kvt_prefix_ids(node, got);
    assert_memory_equal(got, b, sizeof b);
    assert_int_equal(kvt_prefix_common(&p, a, 3, &node), 3);
    assert_ptr_equal(node->item, &items[0]); /* the shorter of those that go on */
    assert_true(kvt_prefix_has(&p, a, 2) && !kvt_prefix_has(&p, a, 3) && !kvt_prefix_has(&p, a, 5));

    assert_int_equal(kvt_prefix_put(&p, a, 2, &items[3]), KVT_OK); /* in the place of the other */
    assert_int_equal(n_given, 1);
    assert_int_equal(p.n_items, 3);
    kvt_prefix_drop(&p, kvt_prefix_longest(&p, a, 4, 4));
    assert_ptr_equal(kvt_prefix_longest(&p, a, 6, 6)->item, &items[3]);
    kvt_prefix_finish(&p);
    assert_int_equal(n_given, 4);
    assert_null(p.root.child);
}

/* Against a plain list, with few distinct tokens so that much is shared. */
static void random_prefixes_are_as_a_list_says(void **state) {
    (void)state;
    enum { N = 60, LEN = 12 };
    static int32_t ids[N][LEN];
    static int len[N], items[N];
    bool kept[N] = {false};
    struct kvt_rng rng = {5};
    struct kvt_prefix p;
    kvt_prefix_init(&p, give, NULL);
    n_given = 0;
    for (int i = 0; i < N; i++) {
        len[i] = 1 + (int)kvt_rng_below(&rng, LEN);
        for (int k = 0; k < LEN; k++) ids[i][k] = (int32_t)kvt_rng_below(&rng, 2);
    }
    for (int round = 0; round < 2000; round++) {
        const int i = (int)kvt_rng_below(&rng, N), most = 1 + (int)kvt_rng_below(&rng, LEN);
        int longest = 0, common = 0;
        for (int k = 0; k < N; k++) {
            if (!kept[k]) continue;
            int n = 0;
            while (n < len[k] && n < LEN && ids[k][n] == ids[i][n]) n++;
            if (n > common) common = n;
            if (n == len[k] && n <= most && n > longest) longest = n;
        }
        const struct kvt_prefix_node *node = kvt_prefix_longest(&p, ids[i], LEN, most);
        assert_int_equal(node ? node->depth : 0, longest);
        assert_int_equal(kvt_prefix_common(&p, ids[i], LEN, NULL), common);
        if (kvt_rng_below(&rng, 2)) {
            for (int k = 0; k < N; k++) /* the same tokens: one item */
                if (len[k] == len[i] && memcmp(ids[k], ids[i], (size_t)len[i] * sizeof ids[0][0]) == 0) kept[k] = false;
            assert_int_equal(kvt_prefix_put(&p, ids[i], len[i], &items[i]), KVT_OK);
            kept[i] = true;
        } else if (kept[i]) {
            struct kvt_prefix_node *own = kvt_prefix_longest(&p, ids[i], len[i], len[i]);
            assert_ptr_equal(own->item, &items[i]);
            kvt_prefix_drop(&p, own);
            kept[i] = false;
        }
        int n = 0, n_seen = 0;
        for (int k = 0; k < N; k++) n += kept[k];
        for (struct kvt_prefix_node *at = NULL; (at = kvt_prefix_next(&p, at));) n_seen++;
        assert_int_equal(p.n_items, n);
        assert_int_equal(n_seen, n);
    }
    kvt_prefix_finish(&p);
    assert_null(p.root.child);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stops_are_found_and_never_shown),
        cmocka_unit_test(text_is_well_formed),
        cmocka_unit_test(prefixes_are_found),
        cmocka_unit_test(random_prefixes_are_as_a_list_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
