/* SPDX-License-Identifier: Apache-2.0
 * Planted facts: the texts that are made, and what a model of the repository recalls of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "fidelity/needle_text.h"
#include "support/threads.h"

enum { FACTS = 5 };

static struct kvt_model *model;
static struct kvt_buf story;

static int load(void **state) {
    (void)state;
    kvt_buf_init(&story, NULL, 1 << 20);
    if (kvt_file_read(&story, KVT_ROOT "/tests/golden/fidelity.txt", NULL) != KVT_OK) return -1;
    return kvt_model_load(&model, KVT_ROOT "/models/plain.gguf", NULL, NULL) == KVT_OK ? 0 : -1;
}

static int unload(void **state) {
    (void)state;
    kvt_model_destroy(model);
    kvt_buf_finish(&story);
    return 0;
}

static void decode(struct kvt_buf *out, const int32_t *ids, size_t n) {
    out->len = 0;
    for (size_t i = 0; i < n; i++) assert_int_equal(kvt_text_decode(kvt_model_text(model), ids[i], false, out), KVT_OK);
}

static struct kvt_needle_text make(const char *text, size_t len, int length, uint64_t seed) {
    struct kvt_needle_filler filler;
    struct kvt_needle_text made;
    struct kvt_rng rng = {seed};
    assert_int_equal(kvt_needle_cut(&filler, text, len, kvt_model_text(model), NULL, NULL), KVT_OK);
    assert_int_equal(kvt_needle_make(&made, &filler, kvt_model_text(model), length, FACTS, &rng, NULL, NULL), KVT_OK);
    kvt_needle_filler_finish(&filler);
    return made;
}

/* Every fact is in the text once, the earlier the smaller its depth; its question names it and its answer is its value. */
static void check_facts(const struct kvt_needle_text *made) {
    struct kvt_buf text, part;
    size_t place[FACTS];
    kvt_buf_init(&text, NULL, 1 << 20);
    kvt_buf_init(&part, NULL, 1 << 20);
    decode(&text, made->ids.data, made->ids.len);
    assert_int_equal(made->n_questions, FACTS);
    for (int i = 0; i < FACTS; i++) {
        const struct kvt_needle_question *q = &made->questions[i];
        char thing[32], name[32], again[32], same[32], value[32], fact[128];
        decode(&part, q->ids.data, q->ids.len);
        const char *ask = kvt_buf_text(&part) + strspn(kvt_buf_text(&part), "\n");
        assert_int_equal(
            sscanf(ask, "What is the %31s of %31[^?]? The %31s of %31s is %31[0-9].", thing, name, again, same, value),
            5);
        assert_string_equal(thing, again);
        assert_string_equal(name, same);
        snprintf(fact, sizeof fact, "Remember this: the %s of %s is %s.", thing, name, value);
        const char *at = strstr(kvt_buf_text(&text), fact);
        if (!at) fail_msg("no '%s'", fact);
        assert_null(strstr(at + 1, fact));
        place[q->depth] = (size_t)(at - kvt_buf_text(&text));
        decode(&part, q->ids.data + q->ids.len - (size_t)q->n_answer, (size_t)q->n_answer);
        snprintf(fact, sizeof fact, " %s.", value);
        assert_string_equal(kvt_buf_text(&part), fact);
    }
    for (int i = 1; i < FACTS; i++) assert_true(place[i - 1] < place[i]);
    assert_int_equal(place[0], 0);
    assert_true(place[FACTS - 1] + 100 > text.len);
    kvt_buf_finish(&part);
    kvt_buf_finish(&text);
}

static size_t n_all(const struct kvt_needle_text *made) {
    size_t n = made->ids.len;
    for (int i = 0; i < made->n_questions; i++) n += made->questions[i].ids.len;
    return n;
}

static void texts_have_their_facts(void **state) {
    (void)state;
    for (int length = 500; length <= 2000; length += 750) { /* more than the story has: it is gone round */
        struct kvt_needle_text made = make(story.data, story.len, length, (uint64_t)length);
        check_facts(&made);
        assert_in_range(n_all(&made), length - 200, length);
        kvt_needle_text_finish(&made);
    }
}

static void a_seed_makes_a_text(void **state) {
    (void)state;
    struct kvt_needle_text a = make(story.data, story.len, 700, 5), b = make(story.data, story.len, 700, 5),
                           c = make(story.data, story.len, 700, 6);
    assert_int_equal(a.ids.len, b.ids.len);
    assert_memory_equal(a.ids.data, b.ids.data, a.ids.len * sizeof *a.ids.data);
    assert_true(a.ids.len != c.ids.len || memcmp(a.ids.data, c.ids.data, a.ids.len * sizeof *a.ids.data) != 0);
    kvt_needle_text_finish(&a);
    kvt_needle_text_finish(&b);
    kvt_needle_text_finish(&c);
}

/* One long line is cut too; what looks like a fact is left out; nothing is too little. */
static void filler_of_any_kind_is_cut(void **state) {
    (void)state;
    char line[4096],
        odd[] = "Remember this: the code of Maria is 1.\n\nA line.\n\n\n\nWhat is the time?\n\n  \n\nAn end";
    for (size_t i = 0; i < sizeof line; i++) line[i] = i % 7 == 6 ? ' ' : i % 7 == 5 && i % 140 < 7 ? '.' : 'a';
    struct kvt_needle_filler filler;
    const struct kvt_text *text = kvt_model_text(model);
    assert_int_equal(kvt_needle_cut(&filler, line, sizeof line, text, NULL, NULL), KVT_OK);
    size_t sum = 0;
    for (size_t i = 0; i < filler.n; i++) {
        assert_in_range(filler.pieces[i].len, 1, 480);
        sum += filler.pieces[i].len;
    }
    assert_in_range(sum, sizeof line - 2 * filler.n, sizeof line);
    kvt_needle_filler_finish(&filler);
    assert_int_equal(kvt_needle_cut(&filler, odd, sizeof odd - 1, text, NULL, NULL), KVT_OK);
    assert_int_equal(filler.n, 2);
    assert_memory_equal(filler.pieces[0].text, "A line.", 7);
    assert_memory_equal(filler.pieces[1].text, "An end", 6);
    kvt_needle_filler_finish(&filler);
    assert_int_equal(kvt_needle_cut(&filler, "  \n\n ", 5, text, NULL, NULL), KVT_ERR_ARG);
}

static enum kvt_status run(struct kvt_needle_result *r, const struct kvt_fidelity_scheme *schemes, int n,
                           const int *length, const struct kvt_allocator *allocator, struct kvt_error *err) {
    const struct kvt_parallel two = test_parallel(2);
    const struct kvt_needle_options o = {.schemes = schemes,
                                         .n_schemes = n,
                                         .lengths = length,
                                         .n_lengths = 1,
                                         .n_depths = FACTS,
                                         .n_trials = 1,
                                         .n_agree = 8,
                                         .seed = 3,
                                         .filler = story.data,
                                         .filler_len = story.len,
                                         .parallel = &two,
                                         .allocator = allocator};
    return kvt_needle_run(r, model, &o, err);
}

/* The model recalls with 16 bits; a cache of the same kind loses nothing and says the same; one of 2 bits without a tail says something
 * else. */
static void a_model_recalls(void **state) {
    (void)state;
    static const struct kvt_fidelity_scheme schemes[] = {{"f16", 0, 0}, {"f16", 0, 0}, {"affine2g64", 0, 0}};
    const int length = 600;
    struct kvt_needle_result r;
    struct kvt_error err;
    if (run(&r, schemes, 3, &length, NULL, &err) != KVT_OK) fail_msg("%s", err.text);
    assert_int_equal(r.rows[0].all.n, FACTS);
    assert_true(r.rows[0].all.n_right >= 3);
    assert_int_equal(r.rows[1].all.n_right, r.rows[0].all.n_right);
    assert_int_equal(r.rows[1].all.n_lost, 0);
    assert_int_equal(r.rows[1].agreement.n_whole, 1);
    assert_true(r.rows[1].agreement.mean == 8);
    assert_true(r.rows[2].all.n_right < r.rows[0].all.n_right);
    assert_true(r.rows[2].agreement.mean < 8);
    int n_right = 0;
    for (int i = 0; i < FACTS; i++) n_right += r.rows[0].cells[i].n_right;
    assert_int_equal(n_right, r.rows[0].all.n_right);
    kvt_needle_finish(&r);
    kvt_needle_finish(&r);
}

static void bad_input_is_refused(void **state) {
    (void)state;
    static const struct kvt_fidelity_scheme good = {"f16", 0, 0}, bad = {"affin4", 0, 0};
    static const struct {
        const struct kvt_fidelity_scheme *scheme;
        int length;
        enum kvt_status status;
        const char *sentence;
    } cases[] = {{&good, 200, KVT_ERR_ARG, "no room for text"},
                 {&good, 5000, KVT_ERR_RANGE, "context of 4096"},
                 {&bad, 600, KVT_ERR_ARG, "affin4"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kvt_alloc_counter counter = {.fail_at = 0};
        const struct kvt_allocator a = kvt_allocator_counted(&counter);
        struct kvt_needle_result r;
        struct kvt_error err = {.text = ""};
        assert_int_equal(run(&r, cases[i].scheme, 1, &cases[i].length, &a, &err), cases[i].status);
        if (!strstr(err.text, cases[i].sentence)) fail_msg("'%s' has no '%s'", err.text, cases[i].sentence);
        assert_int_equal(counter.live_blocks, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_have_their_facts),    cmocka_unit_test(a_seed_makes_a_text),
        cmocka_unit_test(filler_of_any_kind_is_cut), cmocka_unit_test(a_model_recalls),
        cmocka_unit_test(bad_input_is_refused),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
