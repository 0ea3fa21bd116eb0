/* SPDX-License-Identifier: Apache-2.0
 *
 * SentencePiece: ids as sentencepiece has them (tests/golden/text/make.py), spaces, bytes, scores, no memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "support/fail_each.h"
#include "support/load_text.h"
#include "text/text.h"

static void made_vocabulary_gives_the_stated_ids(void **state) {
    (void)state;
    struct kvt_golden golden = kvt_load_golden("spm.json");
    golden.spec.bos = 1;
    struct kvt_text *text = kvt_make_text(&golden.spec);
    kvt_assert_golden_ids(text, json_object_get(golden.root, "texts"), json_object_get(golden.root, "ids"), "spm");
    assert_true(kvt_text_add_bos(text)); /* where the file does not say */
    kvt_text_destroy(text);
    kvt_golden_finish(&golden);
}

/* ---- a vocabulary by hand ------------------------------------------------------------------------------------------------ */

#define SP "\xE2\x96\x81"

enum { N_WORDS = 15, N_HAND = 3 + 256 + N_WORDS };

/* Ids 0 to 2 are <unk>, <s>, </s>; 3 to 258 bytes; then these. */
static const struct {
    const char *piece;
    float score;
} words[N_WORDS] = {
    {SP, -1},    {"a", -2},  {"b", -3},  {"c", -4},   {"ab", -6},        {"bc", -5}, {"abc", -7},   {SP "a", -8},
    {SP SP, -9}, {"cb", -9}, {"aa", -5}, {"<s", -20}, {"a" SP "b", -30}, {"x", -40}, {SP "b", -25},
};

struct hand {
    char bytes[256][7];
    struct kvt_text_piece tokens[N_HAND];
    float scores[N_HAND];
    int32_t types[N_HAND];
    struct kvt_text_spec spec;
};

static void hand_init(struct hand *h) {
    static const char *const first[3] = {"<unk>", "<s>", "</s>"};
    for (int i = 0; i < N_HAND; i++) {
        const char *piece = i < 3 ? first[i] : i < 259 ? h->bytes[i - 3] : words[i - 259].piece;
        if (i >= 3 && i < 259) {
            static const char digits[] = "0123456789ABCDEF";
            const char name[7] = {'<', '0', 'x', digits[(i - 3) >> 4], digits[(i - 3) & 15], '>', 0};
            memcpy(h->bytes[i - 3], name, sizeof name);
        }
        h->tokens[i] = (struct kvt_text_piece){piece, strlen(piece)};
        h->scores[i] = i < 259 ? 0 : words[i - 259].score;
        h->types[i] = i == 0    ? KVT_TOKEN_UNKNOWN
                      : i < 3   ? KVT_TOKEN_CONTROL
                      : i < 259 ? KVT_TOKEN_BYTE
                                : KVT_TOKEN_NORMAL;
    }
    h->spec = (struct kvt_text_spec){.model = "llama",
                                     .n_tokens = N_HAND,
                                     .tokens = h->tokens,
                                     .scores = h->scores,
                                     .types = h->types,
                                     .bos = 1,
                                     .eos = 2,
                                     .eot = -1,
                                     .unk = 0,
                                     .pad = -1,
                                     .add_bos = -1,
                                     .add_eos = -1,
                                     .add_space_prefix = -1};
}

/* Byte c of a text that is no token. */
#define BYTE(c) (3 + (c))
enum { SPACE = 259, A, B, C, AB, BC, ABC, SPACE_A, TWO_SPACES, CB, AA, ANGLE_S, A_SPACE_B, X, SPACE_B };

struct expected {
    const char *text;
    int32_t ids[12];
    size_t n;
};

static void check_ids(const struct kvt_text *text, const struct expected *cases, size_t n, bool parse_special) {
    for (size_t i = 0; i < n; i++) {
        struct kvt_ids ids = kvt_encode_all(text, cases[i].text, strlen(cases[i].text), parse_special);
        kvt_assert_ids(&ids, cases[i].ids, cases[i].n, cases[i].text);
        kvt_ids_finish(&ids);
    }
}

static void best_pairs_merge_first(void **state) {
    (void)state;
    static const struct expected cases[] = {
        {"", {0}, 0},
        {"abc", {ABC}, 1},   /* bc before ab; then a and bc */
        {"aaa", {AA, A}, 2}, /* of equals the leftmost */
        {"ab", {AB}, 1},
        {"bcb", {BC, B}, 2},              /* cb is worse than bc */
        {"a b", {A_SPACE_B}, 1},          /* a token that goes on over a space */
        {"<s>", {ANGLE_S, BYTE('>')}, 2}, /* not the control token, whatever its score; < and s are no tokens */
        {"\xC3\xA9", {BYTE(0xC3), BYTE(0xA9)}, 2}, /* a character in bytes */
        {"\xFF"
         "a",
         {BYTE(0xFF), A},
         2},
        {"<0x41>", {BYTE('<'), BYTE('0'), X, BYTE('4'), BYTE('1'), BYTE('>')}, 6}, /* not the byte token */
    };
    struct hand h;
    hand_init(&h);
    h.spec.add_space_prefix = 0;
    struct kvt_text *text = kvt_make_text(&h.spec);
    struct expected all[KVT_ARRAY_LEN(cases)];
    memcpy(all, cases, sizeof cases);
    check_ids(text, all, KVT_ARRAY_LEN(all), false);
    kvt_text_destroy(text);

    /* Without the token that goes on over a space words are merged one by one: the same ids. */
    h.tokens[A_SPACE_B] = (struct kvt_text_piece){"zzz", 3};
    text = kvt_make_text(&h.spec);
    all[5] = (struct expected){"a b", {A, SPACE_B}, 2};
    check_ids(text, all, KVT_ARRAY_LEN(all), false);
    kvt_text_destroy(text);
}

static void spaces_go_in_front(void **state) {
    (void)state;
    static const struct expected with[] = {
        {"", {0}, 0},
        {"a", {SPACE_A}, 1},
        {" a", {SPACE, SPACE_A}, 2}, /* the better pair, not the first */
        {"a a", {SPACE_A, SPACE_A}, 2},
    };
    static const struct expected special[] = {
        {"<s>a</s>a", {1, SPACE_A, 2, SPACE_A}, 4}, /* again after each special token */
        {"a<s>", {SPACE_A, 1}, 2},
        {"<s>", {1}, 1},
        {"<unk>a", {0, SPACE_A}, 2},
    };
    struct hand h;
    hand_init(&h);
    struct kvt_text *text = kvt_make_text(&h.spec);
    check_ids(text, with, KVT_ARRAY_LEN(with), false);
    check_ids(text, special, KVT_ARRAY_LEN(special), true);
    kvt_text_destroy(text);
    h.spec.add_space_prefix = 0;
    text = kvt_make_text(&h.spec);
    static const struct expected without[] = {{"a", {A}, 1}, {" a", {SPACE_A}, 1}, {"  ", {TWO_SPACES}, 1}};
    check_ids(text, without, KVT_ARRAY_LEN(without), false);
    kvt_text_destroy(text);
}

static void tokens_are_shown(void **state) {
    (void)state;
    static const struct {
        int id;
        const char *hidden, *shown;
    } cases[] = {{0, "", "<unk>"},    {1, "", "<s>"},           {BYTE(0xC3), "\xC3", "\xC3"}, {SPACE_A, " a", " a"},
                 {ABC, "abc", "abc"}, {TWO_SPACES, "  ", "  "}, {A_SPACE_B, "a b", "a b"}};
    struct hand h;
    hand_init(&h);
    struct kvt_text *text = kvt_make_text(&h.spec);
    for (size_t i = 0; i < KVT_ARRAY_LEN(cases); i++)
        for (int shown = 0; shown < 2; shown++) {
            struct kvt_buf out;
            kvt_buf_init(&out, NULL, 100);
            assert_int_equal(kvt_text_decode(text, cases[i].id, shown, &out), KVT_OK);
            assert_string_equal(kvt_buf_text(&out), shown ? cases[i].shown : cases[i].hidden);
            kvt_buf_finish(&out);
        }
    struct kvt_buf out;
    kvt_buf_init(&out, NULL, 2);
    assert_int_equal(kvt_text_decode(text, -1, true, &out), KVT_ERR_RANGE);
    assert_int_equal(kvt_text_decode(text, N_HAND, true, &out), KVT_ERR_RANGE);
    assert_int_equal(kvt_text_decode(text, A_SPACE_B, true, &out), KVT_ERR_LIMIT);
    assert_int_equal(out.len, 0);
    kvt_buf_finish(&out);
    kvt_text_destroy(text);
}

/* Without byte tokens what is no token is the unknown one. */
static void bytes_may_be_unknown(void **state) {
    (void)state;
    struct hand h;
    struct kvt_error err;
    hand_init(&h);
    for (int i = 0; i < 256; i++) h.bytes[i][0] = '[';
    h.spec.add_space_prefix = 0;
    struct kvt_text *text = kvt_make_text(&h.spec);
    static const struct expected cases[] = {{"a\xC3\xA9"
                                             "b",
                                             {A, 0, B},
                                             3}};
    check_ids(text, cases, 1, false);
    kvt_text_destroy(text);
    h.spec.unk = -1;
    assert_int_equal(kvt_text_create(&text, &h.spec, NULL, &err), KVT_ERR_FORMAT);
    assert_non_null(strstr(err.text, "<0x00>"));
}

/* Bytes come back, less what the vocabulary cannot tell apart: U+2581 is a space, and one is put in front. */
static void any_bytes_come_back(void **state) {
    (void)state;
    struct kvt_golden golden = kvt_load_golden("spm.json");
    golden.spec.add_space_prefix = 0;
    struct kvt_text *text = kvt_make_text(&golden.spec);
    struct kvt_rng rng = {7};
    for (int i = 0; i < 2000; i++) {
        char data[120];
        const size_t len = kvt_rng_below(&rng, sizeof data);
        for (size_t k = 0; k < len; k++) {
            const uint64_t r = kvt_rng_u64(&rng);
            data[k] = r % 3 ? "the keeper of \xD0\xB0\xE6\xB5\xB7\n"[r % 20] : (char)(r >> 8);
            if (data[k] == '\x81') data[k] = '\x82'; /* of U+2581 */
        }
        struct kvt_ids ids = kvt_encode_all(text, data, len, false);
        kvt_assert_decodes(text, &ids, data, len, "spm");
        kvt_ids_finish(&ids);
    }
    kvt_text_destroy(text);
    kvt_golden_finish(&golden);
}

static double seconds_for(const struct kvt_text *text, const char *data, size_t len) {
    const clock_t start = clock();
    struct kvt_ids ids = kvt_encode_all(text, data, len, false);
    kvt_ids_finish(&ids);
    return (double)(clock() - start) / CLOCKS_PER_SEC;
}

static void long_words_take_their_share_of_time(void **state) {
    (void)state;
    const size_t len = 200000;
    char *data = malloc(len);
    assert_non_null(data);
    struct hand h;
    hand_init(&h);
    struct kvt_text *text = kvt_make_text(&h.spec);
    for (int unit = 0; unit < 3; unit++) {
        for (size_t i = 0; i < len; i++) data[i] = unit == 0 ? 'a' : unit == 1 ? ' ' : "abc"[i % 3];
        const double small = seconds_for(text, data, len / 8), large = seconds_for(text, data, len);
        if (large > 0.3 && large > small * 24) fail_msg("unit %d: %.3f s, an eighth %.3f s", unit, large, small);
    }
    kvt_text_destroy(text);
    free(data);
}

static enum kvt_status scenario(void *ctx, const struct kvt_allocator *allocator) {
    struct kvt_text *text;
    const enum kvt_status made = kvt_text_create(&text, ctx, allocator, NULL);
    if (made != KVT_OK) return made;
    struct kvt_ids ids;
    kvt_ids_init(&ids, allocator);
    const enum kvt_status status = kvt_text_encode(text, "a<s>abc \xFF", 9, true, &ids, NULL);
    if (status != KVT_OK) assert_int_equal(ids.len, 0);
    kvt_ids_finish(&ids);
    kvt_text_destroy(text);
    return status;
}

static void memory_may_be_out(void **state) {
    (void)state;
    struct hand h;
    hand_init(&h);
    assert_true(kvt_fail_each(scenario, &h.spec) >= 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(made_vocabulary_gives_the_stated_ids),
        cmocka_unit_test(best_pairs_merge_first),
        cmocka_unit_test(spaces_go_in_front),
        cmocka_unit_test(tokens_are_shown),
        cmocka_unit_test(bytes_may_be_unknown),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(long_words_take_their_share_of_time),
        cmocka_unit_test(memory_may_be_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
