/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte-level BPE: words and ids as other tokenizers have them (tests/golden/text/make.py), bytes that are no UTF-8, bytes
 * that have no token, long words, no memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/parallel.h"
#include "base/rng.h"
#include "support/fail_each.h"
#include "support/load_text.h"
#include "text/split.h"
#include "text/text.h"

/* ---- words --------------------------------------------------------------------------------------------------------------- */

struct words {
    const json_t *lens;
    size_t n;
    const char *next, *what;
};

static enum kvt_status check_word(void *ctx, const char *word, size_t len) {
    struct words *w = ctx;
    const size_t expected = (size_t)json_integer_value(json_array_get(w->lens, w->n));
    assert_ptr_equal(word, w->next);
    if (len != expected) fail_msg("%s: word %zu, '%.*s', expected %zu bytes", w->what, w->n, (int)len, word, expected);
    w->n++;
    w->next = word + len;
    return KVT_OK;
}

static void words_are_cut_as_published(void **state) {
    (void)state;
    struct kvt_golden golden = kvt_load_golden("split.json");
    const json_t *texts = json_object_get(golden.root, "texts"), *cases = json_object_get(golden.root, "cases");
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i), *words = json_object_get(one, "words");
        const char *pre = json_string_value(json_object_get(one, "pre"));
        const struct kvt_pretokenizer *row = kvt_pretokenizer_find(pre);
        struct kvt_split *split;
        if (!row) fail_msg("no pre-tokenizer '%s'", pre);
        assert_int_equal(kvt_split_create(&split, row, &kvt_allocator_libc, NULL), KVT_OK);
        for (size_t k = 0; k < json_array_size(texts); k++) {
            const char *text = json_string_value(json_array_get(texts, k));
            const size_t len = json_string_length(json_array_get(texts, k));
            char what[300];
            snprintf(what, sizeof what, "%s, text %zu '%.150s'", pre, k, text);
            struct words w = {json_array_get(words, k), 0, text, what};
            assert_int_equal(kvt_split_run(split, text, len, check_word, &w, NULL), KVT_OK);
            assert_int_equal(w.n, json_array_size(w.lens));
            assert_ptr_equal(w.next, text + len);
        }
        kvt_split_destroy(split);
    }
    assert_true(json_array_size(cases) >= 12);
    kvt_golden_finish(&golden);
}

/* Each row has a case in the golden file, and each name finds one row. */
static void rows_are_all_tried(void **state) {
    (void)state;
    struct kvt_golden golden = kvt_load_golden("split.json");
    const json_t *cases = json_object_get(golden.root, "cases");
    for (int r = 0; kvt_pretokenizer_row(r); r++) {
        const char *names = kvt_pretokenizer_row(r)->names;
        bool tried = false;
        for (size_t i = 0; i < json_array_size(cases); i++) {
            const char *pre = json_string_value(json_object_get(json_array_get(cases, i), "pre"));
            tried |= kvt_pretokenizer_find(pre) == kvt_pretokenizer_row(r);
        }
        if (!tried) fail_msg("no case for %s", names);
        for (const char *p = names; *p; p += strcspn(p, " "), p += *p == ' ') {
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)strcspn(p, " "), p);
            assert_ptr_equal(kvt_pretokenizer_find(name), kvt_pretokenizer_row(r));
        }
    }
    assert_null(kvt_pretokenizer_find("default"));
    assert_null(kvt_pretokenizer_find(""));
    assert_null(kvt_pretokenizer_find("gpt"));
    assert_null(kvt_pretokenizer_find("gpt-2 phi-2"));
    kvt_golden_finish(&golden);
}

struct cut {
    size_t lens[8], n;
};

static enum kvt_status note_word(void *ctx, const char *word, size_t len) {
    struct cut *cut = ctx;
    (void)word;
    assert_true(cut->n < 8);
    cut->lens[cut->n++] = len;
    return KVT_OK;
}

/* Runs of bytes that are no UTF-8 are words; what stands beside them is cut as if it ended there. */
static void malformed_bytes_are_words(void **state) {
    (void)state;
    static const struct {
        const char *text;
        struct cut expected;
    } cases[] = {
        {"a\xFF"
         "b",
         {{1, 1, 1}, 3}},
        {"a \xFF\xFE\x80 b", {{1, 1, 3, 2}, 4}},
        {"no  \xC3", {{2, 2, 1}, 3}},               /* both blanks: nothing follows them */
        {"\xE2\x82 x\xE2\x82\xAC", {{2, 2, 3}, 3}}, /* a character cut short, and a whole one */
        {"\xED\xA0\x80", {{3}, 1}},                 /* a surrogate */
        {"\xC0\x80\xF4\x90\x80\x80", {{6}, 1}},
        {"\xF0\x9F\x98\x80\xF0\x9F\x98", {{4, 3}, 2}},
    };
    struct kvt_split *split;
    assert_int_equal(kvt_split_create(&split, kvt_pretokenizer_find("gpt-2"), &kvt_allocator_libc, NULL), KVT_OK);
    for (size_t i = 0; i < KVT_ARRAY_LEN(cases); i++) {
        struct cut cut = {.n = 0};
        assert_int_equal(kvt_split_run(split, cases[i].text, strlen(cases[i].text), note_word, &cut, NULL), KVT_OK);
        assert_int_equal(cut.n, cases[i].expected.n);
        assert_memory_equal(cut.lens, cases[i].expected.lens, cut.n * sizeof *cut.lens);
    }
    kvt_split_destroy(split);
}

/* ---- ids ----------------------------------------------------------------------------------------------------------------- */

static void made_vocabulary_gives_the_stated_ids(void **state) {
    (void)state;
    struct kvt_golden golden = kvt_load_golden("bpe.json");
    const json_t *cases = json_object_get(golden.root, "cases");
    for (size_t i = 0; i < json_array_size(cases); i++) {
        golden.spec.pre = json_string_value(json_object_get(json_array_get(cases, i), "pre"));
        struct kvt_text *text = kvt_make_text(&golden.spec);
        kvt_assert_golden_ids(text, json_object_get(golden.root, "texts"),
                              json_object_get(json_array_get(cases, i), "ids"), golden.spec.pre);
        kvt_text_destroy(text);
    }
    assert_true(json_array_size(cases) >= 12);
    kvt_golden_finish(&golden);
}

static void plain_gives_the_stated_ids(void **state) {
    (void)state;
    struct kvt_golden golden = kvt_load_golden("plain.json");
    struct kvt_text *text = kvt_load_text(KVT_ROOT "/models/plain.gguf");
    kvt_assert_golden_ids(text, json_object_get(golden.root, "texts"), json_object_get(golden.root, "ids"), "plain");
    kvt_text_destroy(text);
    kvt_golden_finish(&golden);
}

static void any_bytes_come_back(void **state) {
    (void)state;
    struct kvt_golden golden = kvt_load_golden("bpe.json");
    struct kvt_rng rng = {2024};
    for (int r = 0; kvt_pretokenizer_row(r); r++) {
        char pre[32];
        const char *names = kvt_pretokenizer_row(r)->names;
        snprintf(pre, sizeof pre, "%.*s", (int)strcspn(names, " "), names);
        golden.spec.pre = pre;
        struct kvt_text *text = kvt_make_text(&golden.spec);
        for (int i = 0; i < 300; i++) {
            /* Random bytes, or pieces of text with some bytes broken. */
            char data[200];
            const size_t len = kvt_rng_below(&rng, sizeof data);
            static const char sample[] =
                "It\xE2\x80\x99s 42\xC2\xA0 \xE5\xAD\x97\xE3\x80\x82 \xF0\x9F\x98\x80\r\n\t  'll \xD0\x96!";
            for (size_t k = 0; k < len; k++) data[k] = sample[(k + (size_t)i) % (sizeof sample - 1)];
            const size_t n_broken = i % 2 ? len : len / 10;
            for (size_t k = 0; k < n_broken; k++) data[kvt_rng_below(&rng, len)] = (char)kvt_rng_u64(&rng);
            struct kvt_ids ids = kvt_encode_all(text, data, len, i % 3 == 0);
            kvt_assert_decodes(text, &ids, data, len, pre);
            kvt_ids_finish(&ids);
        }
        kvt_text_destroy(text);
    }
    kvt_golden_finish(&golden);
}

/* Vocabularies of the GPT-2 kind often lack bytes that were never seen: U+FFFD stands for them, or the unknown token. */
static void bytes_without_a_token_are_shown(void **state) {
    (void)state;
    struct kvt_golden golden = kvt_load_golden("bpe.json");
    struct kvt_text_spec *spec = &golden.spec;
    spec->pre = "gpt-2";
    struct kvt_text_piece *tokens = (struct kvt_text_piece *)(uintptr_t)spec->tokens;
    for (int i = 0; i < spec->n_tokens; i++)
        if (tokens[i].len == 2 && memcmp(tokens[i].data, "\xC3\xBF", 2) == 0)
            tokens[i] = (struct kvt_text_piece){"[UNK]", 5};
    struct kvt_text *text = kvt_make_text(spec);
    struct kvt_ids ids = kvt_encode_all(text, "a\xFFz", 3, false);
    kvt_assert_decodes(text, &ids, "a\xEF\xBF\xBDz", 5, "stand-in");
    kvt_ids_finish(&ids);
    const int unknown = kvt_text_find(text, "[UNK]", 5);
    kvt_text_destroy(text);

    /* Without U+FFFD's own bytes: the byte 0xBF is written U+00BF. */
    for (int i = 0; i < spec->n_tokens; i++)
        if (tokens[i].len == 2 && memcmp(tokens[i].data, "\xC2\xBF", 2) == 0)
            tokens[i] = (struct kvt_text_piece){"[X]", 3};
    struct kvt_error err = {KVT_OK, ""};
    spec->n_merges = 1;
    text = kvt_make_text(spec);
    kvt_ids_init(&ids, NULL);
    assert_int_equal(kvt_text_encode(text, "a\xFFz", 3, false, &ids, &err), KVT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "0xFF"));
    assert_int_equal(ids.len, 0);
    kvt_text_destroy(text);
    spec->unk = unknown;
    text = kvt_make_text(spec);
    assert_int_equal(kvt_text_encode(text, "a\xFFz", 3, false, &ids, &err), KVT_OK);
    assert_int_equal(ids.len, 3);
    assert_int_equal(ids.data[1], unknown);
    kvt_ids_finish(&ids);
    kvt_text_destroy(text);
    kvt_golden_finish(&golden);
}

/* ---- size ---------------------------------------------------------------------------------------------------------------- */

/* Of the processor's time: other programs don't count. */
static double seconds_for(const struct kvt_text *text, const char *data, size_t len) {
    const clock_t start = clock();
    struct kvt_ids ids = kvt_encode_all(text, data, len, false);
    const double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    kvt_assert_decodes(text, &ids, data, len, "long text");
    kvt_ids_finish(&ids);
    return seconds;
}

/* Words as long as the text, and runs of blanks that several passes look at: eight times the length may not take much more
 * than eight times as long. Quadratic work would take 64 times. */
static void long_words_take_their_share_of_time(void **state) {
    (void)state;
    static const char *const pres[] = {"gpt-2", "deepseek-llm", "tekken", "gpt-4o"};
    static const char *const units[] = {"a",  "A",    " ",        "!", "7", "\xE5\xAD\x97", " \xE5\xAD\x97 ",
                                        "\n", "\xFF", "e\xCC\x81"};
    const size_t len = 240000;
    char *data = malloc(len);
    assert_non_null(data);
    struct kvt_golden golden = kvt_load_golden("bpe.json");
    for (size_t p = 0; p < KVT_ARRAY_LEN(pres); p++) {
        golden.spec.pre = pres[p];
        struct kvt_text *text = kvt_make_text(&golden.spec);
        for (size_t u = 0; u < KVT_ARRAY_LEN(units); u++) {
            const size_t n = strlen(units[u]);
            for (size_t i = 0; i < len; i++) data[i] = units[u][i % n];
            data[len - 1] = data[len / 8 - 1] = '7'; /* no pass but the last takes a digit */
            const double small = seconds_for(text, data, len / 8), large = seconds_for(text, data, len);
            if (large > 0.3 && large > small * 24)
                fail_msg("%s: %zu bytes of '%s' take %.3f s, an eighth %.3f s", pres[p], len, units[u], large, small);
        }
        kvt_text_destroy(text);
    }
    kvt_golden_finish(&golden);
    free(data);
}

struct shared {
    const struct kvt_text *text;
    const struct kvt_ids *expected;
    bool same[16];
};

static const char spoken[] = "It's 1999, and \xFF bytes; \xE5\xAD\x97\xE5\xAD\x97 HTTPServer's end.";

static void encode_job(void *arg, int i, int thread) {
    struct shared *s = arg;
    struct kvt_ids ids;
    (void)thread;
    kvt_ids_init(&ids, NULL);
    s->same[i] = kvt_text_encode(s->text, spoken, sizeof spoken - 1, false, &ids, NULL) == KVT_OK &&
                 ids.len == s->expected->len && memcmp(ids.data, s->expected->data, ids.len * sizeof *ids.data) == 0;
    kvt_ids_finish(&ids);
}

static void threads_share_a_tokenizer(void **state) {
    (void)state;
    struct kvt_golden golden = kvt_load_golden("bpe.json");
    golden.spec.pre = "llama-bpe";
    struct kvt_text *text = kvt_make_text(&golden.spec);
    struct kvt_ids ids = kvt_encode_all(text, spoken, sizeof spoken - 1, false);
    struct shared shared = {text, &ids, {false}};
    struct kvt_threads *threads;
    assert_int_equal(kvt_threads_create(&threads, 4, NULL, NULL), KVT_OK);
    const struct kvt_parallel parallel = kvt_threads_parallel(threads);
    kvt_parallel_run(&parallel, 16, encode_job, &shared);
    kvt_threads_destroy(threads);
    for (int i = 0; i < 16; i++) assert_true(shared.same[i]);
    kvt_ids_finish(&ids);
    kvt_text_destroy(text);
    kvt_golden_finish(&golden);
}

static enum kvt_status scenario(void *ctx, const struct kvt_allocator *allocator) {
    static const char sample[] = "It's 1999, <|end|> and \xFF bytes; \xE5\xAD\x97\xE5\xAD\x97 HTTPServer's end.";
    struct kvt_text *text;
    const enum kvt_status made = kvt_text_create(&text, ctx, allocator, NULL);
    if (made != KVT_OK) return made;
    struct kvt_ids ids;
    kvt_ids_init(&ids, allocator);
    const enum kvt_status status = kvt_text_encode(text, sample, sizeof sample - 1, true, &ids, NULL);
    if (status != KVT_OK) assert_int_equal(ids.len, 0);
    kvt_ids_finish(&ids);
    kvt_text_destroy(text);
    return status;
}

static void memory_may_be_out(void **state) {
    (void)state;
    static const char *const pres[] = {"gpt-2", "llama-bpe", "deepseek-llm"};
    struct kvt_golden golden = kvt_load_golden("bpe.json");
    ((struct kvt_text_piece *)(uintptr_t)golden.spec.tokens)[golden.spec.n_tokens - 1] =
        (struct kvt_text_piece){"<|end|>", 7};
    ((int32_t *)(uintptr_t)golden.spec.types)[golden.spec.n_tokens - 1] = KVT_TOKEN_CONTROL;
    for (size_t i = 0; i < KVT_ARRAY_LEN(pres); i++) {
        golden.spec.pre = pres[i];
        assert_true(kvt_fail_each(scenario, &golden.spec) >= 6);
    }
    kvt_golden_finish(&golden);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_cut_as_published),      cmocka_unit_test(rows_are_all_tried),
        cmocka_unit_test(malformed_bytes_are_words),       cmocka_unit_test(made_vocabulary_gives_the_stated_ids),
        cmocka_unit_test(plain_gives_the_stated_ids),      cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(bytes_without_a_token_are_shown), cmocka_unit_test(long_words_take_their_share_of_time),
        cmocka_unit_test(threads_share_a_tokenizer),       cmocka_unit_test(memory_may_be_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
