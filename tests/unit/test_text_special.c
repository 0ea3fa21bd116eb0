/* SPDX-License-Identifier: Apache-2.0
 *
 * Special tokens in text, tokens that end it, specifications that are refused, and files.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gguf/write.h"
#include "model/bind_text.h"
#include "support/load_text.h"
#include "text/text.h"

/* ---- a byte-level vocabulary by hand ------------------------------------------------------------------------------------- */

enum { N_MAX = 300 };

struct hand {
    char bytes[256][3];
    struct kvt_text_piece tokens[N_MAX], merges[3];
    int32_t types[N_MAX];
    struct kvt_text_spec spec;
};

static void hand_init(struct hand *h) {
    int n_hidden = 0;
    for (int b = 0; b < 256; b++) { /* as GPT-2 writes bytes */
        const bool seen = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
        const int code = seen ? b : 0x100 + n_hidden++;
        memset(h->bytes[b], 0, 3);
        h->bytes[b][0] = (char)(code < 0x80 ? code : 0xC0 | code >> 6);
        if (code >= 0x80) h->bytes[b][1] = (char)(0x80 | (code & 0x3F));
        h->tokens[b] = (struct kvt_text_piece){h->bytes[b], strlen(h->bytes[b])};
        h->types[b] = KVT_TOKEN_NORMAL;
    }
    h->tokens[256] = (struct kvt_text_piece){"ab", 2};
    h->types[256] = KVT_TOKEN_NORMAL;
    h->merges[0] = (struct kvt_text_piece){"a b", 3};
    h->spec = (struct kvt_text_spec){.model = "gpt2",
                                     .pre = "gpt-2",
                                     .n_tokens = 257,
                                     .tokens = h->tokens,
                                     .types = h->types,
                                     .n_merges = 1,
                                     .merges = h->merges,
                                     .bos = -1,
                                     .eos = -1,
                                     .eot = -1,
                                     .unk = -1,
                                     .pad = -1,
                                     .add_bos = -1,
                                     .add_eos = -1,
                                     .add_space_prefix = -1};
}

static int hand_add(struct hand *h, const char *piece, int type) {
    const int id = h->spec.n_tokens++;
    assert_true(id < N_MAX);
    h->tokens[id] = (struct kvt_text_piece){piece, strlen(piece)};
    h->types[id] = type;
    return id;
}

static void check_ids(const struct kvt_text *text, const char *data, bool parse_special, const int32_t *ids, size_t n) {
    struct kvt_ids got = kvt_encode_all(text, data, strlen(data), parse_special);
    kvt_assert_ids(&got, ids, n, data);
    kvt_ids_finish(&got);
}
#define CHECK(text, data, parse, ...)                                                                                  \
    check_ids(text, data, parse, (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / 4)

/* ---- finding ------------------------------------------------------------------------------------------------------------- */

static void kinds_decide_when_they_match(void **state) {
    (void)state;
    struct hand h;
    hand_init(&h);
    const int end = hand_add(&h, "<|im_end|>", KVT_TOKEN_CONTROL), user = hand_add(&h, "[U]", KVT_TOKEN_USER);
    const int unknown = hand_add(&h, "<?>", KVT_TOKEN_UNKNOWN), normal = hand_add(&h, "<n>", KVT_TOKEN_NORMAL);
    const int unused = hand_add(&h, "<x>", KVT_TOKEN_UNUSED);
    struct kvt_text *text = kvt_make_text(&h.spec);
    CHECK(text, "a[U]b", false, 'a', user, 'b');
    CHECK(text, "a[U]b", true, 'a', user, 'b');
    CHECK(text, "<|im_end|>ab", true, end, 256);
    CHECK(text, "<?>", false, '<', '?', '>');
    CHECK(text, "<?>", true, unknown);
    CHECK(text, "<n>", true, '<', 'n', '>'); /* only merges make it */
    CHECK(text, "<x>", true, '<', 'x', '>');
    CHECK(text, "<|im_end|>", false, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>');
    CHECK(text, "<|im_end", true, '<', '|', 'i', 'm', '_', 'e', 'n', 'd');
    CHECK(text, "ab<|im_end|>", true, 256, end);
    assert_int_equal(kvt_text_find(text, "<n>", 3), normal);
    assert_int_equal(kvt_text_find(text, "<x>", 3), unused);
    assert_int_equal(kvt_text_find(text, "<y>", 3), -1);
    assert_int_equal(kvt_text_find(text, "", 0), -1);
    kvt_text_destroy(text);
}

/* Of merges of the same pair the first counts. */
static void the_first_merge_counts(void **state) {
    (void)state;
    struct hand h;
    hand_init(&h);
    const int bc = hand_add(&h, "bc", KVT_TOKEN_NORMAL);
    h.merges[1] = (struct kvt_text_piece){"b c", 3};
    h.merges[2] = h.merges[0];
    h.spec.n_merges = 3;
    struct kvt_text *text = kvt_make_text(&h.spec);
    CHECK(text, "abc", false, 256, 'c');
    CHECK(text, "bc", false, bc);
    kvt_text_destroy(text);
}

/* Some vocabularies have added tokens that are written as bytes are, but mean their own text. */
static void user_tokens_are_no_bytes(void **state) {
    (void)state;
    struct hand h;
    hand_init(&h);
    h.types[0xF5] = KVT_TOKEN_USER; /* U+00F5, by which the byte 0xF5 is written */
    struct kvt_text *text = kvt_make_text(&h.spec);
    CHECK(text, "a\xC3\xB5", false, 'a', 0xF5);
    CHECK(text, "a\xF5", false, 'a', 0xEF, 0xBF, 0xBD);
    kvt_text_destroy(text);
}

/* As llama.cpp does: the longest token wherever it is, before shorter ones, even if those come first. */
static void the_longest_is_found_first(void **state) {
    (void)state;
    struct hand h;
    hand_init(&h);
    const int two = hand_add(&h, "<<", KVT_TOKEN_USER), four = hand_add(&h, "<<<<", KVT_TOKEN_USER);
    const int xy = hand_add(&h, "xy", KVT_TOKEN_USER), yzz = hand_add(&h, "yzz", KVT_TOKEN_CONTROL);
    const int lambda = hand_add(&h, "\xCE\xBB", KVT_TOKEN_USER);
    struct kvt_text *text = kvt_make_text(&h.spec);
    CHECK(text, "<<<<", false, four);
    CHECK(text, "<<<<<", false, four, '<');
    CHECK(text, "<<<<<<", false, four, two);
    CHECK(text, "<<<", false, two, '<');
    CHECK(text, "xyzz", false, xy, 'z', 'z');
    CHECK(text, "xyzz", true, 'x', yzz);
    CHECK(text, "\xCE\xBBxy\xCE\xBB\xCE\xBB", true, lambda, xy, lambda, lambda);
    CHECK(text,
          "a\xCE\xBB"
          "b",
          true, 'a', lambda, 'b'); /* nothing merges over a token */
    kvt_text_destroy(text);
}

static void control_tokens_may_eat_space(void **state) {
    (void)state;
    struct hand h;
    hand_init(&h);
    const int end = hand_add(&h, "<|end|>", KVT_TOKEN_CONTROL),
              text_end = hand_add(&h, "<|endoftext|>", KVT_TOKEN_CONTROL);
    const int own_space = hand_add(&h, "\t<long token>", KVT_TOKEN_USER);
    h.spec.control_eats_space = true;
    struct kvt_text *text = kvt_make_text(&h.spec);
    CHECK(text, "<|end|> \n\t a", true, end, 'a');
    CHECK(text, " <|end|> ", true, ' ', end);
    CHECK(text, "<|end|>\n<|end|>\n", true, end, end);
    CHECK(text, "<|endoftext|>\na", true, text_end, '\n', 'a');
    CHECK(text, "<|end|> \t<long token>", true, end, own_space);
    kvt_text_destroy(text);
    h.spec.control_eats_space = false;
    text = kvt_make_text(&h.spec);
    CHECK(text, "<|end|>\na", true, end, '\n', 'a');
    kvt_text_destroy(text);
}

static void tokens_are_shown(void **state) {
    (void)state;
    struct hand h;
    hand_init(&h);
    const int control = hand_add(&h, "<|c|>", KVT_TOKEN_CONTROL), user = hand_add(&h, "\xC4\xA0 u", KVT_TOKEN_USER);
    const int odd = hand_add(&h, "\xE2\x84\xA2\xC4\xA0\xFFz", KVT_TOKEN_NORMAL);
    const struct {
        int id;
        bool special;
        const char *text;
    } cases[] = {
        {256, false, "ab"},
        {' ', false, " "},
        {0xE9, false, "\xE9"},
        {control, false, ""},
        {control, true, "<|c|>"},
        {user, false, "\xC4\xA0 u"},        /* as it is written */
        {odd, false, "\xE2\x84\xA2 \xFFz"}, /* characters that stand for no byte, too */
    };
    struct kvt_text *text = kvt_make_text(&h.spec);
    for (size_t i = 0; i < KVT_ARRAY_LEN(cases); i++) {
        struct kvt_buf out;
        kvt_buf_init(&out, NULL, 100);
        assert_int_equal(kvt_text_decode(text, cases[i].id, cases[i].special, &out), KVT_OK);
        assert_string_equal(kvt_buf_text(&out), cases[i].text);
        kvt_buf_finish(&out);
    }
    kvt_text_destroy(text);
}

/* ---- ends ---------------------------------------------------------------------------------------------------------------- */

static void ends_are_known(void **state) {
    (void)state;
    struct hand h;
    hand_init(&h);
    static const char *const by_name[] = {
        "<|endoftext|>", "<|im_end|>",      "<|eot_id|>", "<|end|>",
        "<end_of_turn>", "<|end_of_text|>", "<|eom_id|>", "<\uFF5Cend\u2581of\u2581sentence\uFF5C>"};
    for (size_t i = 0; i < KVT_ARRAY_LEN(by_name); i++) hand_add(&h, by_name[i], KVT_TOKEN_CONTROL);
    const int last = h.spec.n_tokens - 1;
    const int s = hand_add(&h, "</s>", KVT_TOKEN_NORMAL), eos = hand_add(&h, "<eos>", KVT_TOKEN_CONTROL);
    const int own_eos = hand_add(&h, "[over]", KVT_TOKEN_CONTROL), own_eot = hand_add(&h, "[turn]", KVT_TOKEN_CONTROL);
    const int start = hand_add(&h, "<|im_start|>", KVT_TOKEN_CONTROL);
    h.spec.eos = own_eos;
    h.spec.eot = own_eot;
    struct kvt_text *text = kvt_make_text(&h.spec);
    for (int id = 257; id <= last; id++) assert_true(kvt_text_is_end(text, id));
    assert_false(kvt_text_is_end(text, s)); /* HTML may hold it */
    assert_true(kvt_text_is_end(text, eos));
    assert_true(kvt_text_is_end(text, own_eos));
    assert_true(kvt_text_is_end(text, own_eot));
    assert_false(kvt_text_is_end(text, start));
    assert_false(kvt_text_is_end(text, 'a'));
    assert_false(kvt_text_is_end(text, -1));
    assert_false(kvt_text_is_end(text, h.spec.n_tokens));
    assert_int_equal(kvt_text_eos(text), own_eos);
    assert_int_equal(kvt_text_bos(text), -1);
    assert_int_equal(kvt_text_n_tokens(text), h.spec.n_tokens);
    kvt_text_destroy(text);
    h.types[s] = KVT_TOKEN_CONTROL;
    text = kvt_make_text(&h.spec);
    assert_true(kvt_text_is_end(text, s));
    kvt_text_destroy(text);
}

/* gpt-oss: a message may end while the turn goes on. */
static void messages_of_a_turn_are_no_ends(void **state) {
    (void)state;
    struct hand h;
    hand_init(&h);
    const int end = hand_add(&h, "<|end|>", KVT_TOKEN_CONTROL), call = hand_add(&h, "<|call|>", KVT_TOKEN_CONTROL);
    const int back = hand_add(&h, "<|return|>", KVT_TOKEN_CONTROL);
    struct kvt_text *text = kvt_make_text(&h.spec);
    assert_false(kvt_text_is_end(text, end));
    assert_true(kvt_text_is_end(text, call));
    assert_true(kvt_text_is_end(text, back));
    kvt_text_destroy(text);
}

static void bos_is_as_the_kind_has_it(void **state) {
    (void)state;
    static const struct {
        const char *pre;
        int said, bos;
        bool added;
    } cases[] = {{"gpt-2", -1, 1, false}, {"gpt-2", 1, 1, true},      {"llama-bpe", -1, 1, true},
                 {"tekken", -1, 1, true}, {"llama-bpe", 0, 1, false}, {"llama-bpe", -1, -1, false}};
    struct hand h;
    hand_init(&h);
    for (size_t i = 0; i < KVT_ARRAY_LEN(cases); i++) {
        h.spec.pre = cases[i].pre;
        h.spec.add_bos = cases[i].said;
        h.spec.bos = cases[i].bos;
        struct kvt_text *text = kvt_make_text(&h.spec);
        assert_int_equal(kvt_text_add_bos(text), cases[i].added);
        assert_false(kvt_text_add_eos(text));
        kvt_text_destroy(text);
    }
}

/* ---- what is refused ------------------------------------------------------------------------------------------------------- */

static void refuse(const struct kvt_text_spec *spec, enum kvt_status status, const char *part) {
    struct kvt_text *text = NULL;
    struct kvt_error err = {KVT_OK, ""};
    assert_int_equal(kvt_text_create(&text, spec, NULL, &err), status);
    assert_int_equal(err.code, status);
    assert_null(text);
    if (!strstr(err.text, part)) fail_msg("'%s' does not say '%s'", err.text, part);
    assert_int_equal(kvt_text_create(&text, spec, NULL, NULL), status);
}

static void broken_vocabularies_are_refused(void **state) {
    (void)state;
    struct hand h;
    hand_init(&h);
    const struct kvt_text_spec good = h.spec;
    struct kvt_text_spec s = good;
#define REFUSE(change, status, part)                                                                                   \
    do {                                                                                                               \
        change;                                                                                                        \
        refuse(&s, status, part);                                                                                      \
        s = good;                                                                                                      \
    } while (0)
    REFUSE(s.model = "bert", KVT_ERR_UNSUPPORTED, "'bert'");
    REFUSE(s.model = "t5", KVT_ERR_UNSUPPORTED, "gpt2");
    REFUSE(s.model = NULL, KVT_ERR_UNSUPPORTED, "llama (SentencePiece)");
    REFUSE(s.pre = "gpt-5", KVT_ERR_UNSUPPORTED, "'gpt-5'");
    REFUSE(
        s.pre = "gpt-5", KVT_ERR_UNSUPPORTED,
        "known: gpt-2, llama-bpe, dbrx, qwen2, qwen35, smollm, starcoder, deepseek-llm, deepseek-coder, deepseek-v3, "
        "tekken, gpt-4o");
    REFUSE(s.pre = "default", KVT_ERR_UNSUPPORTED, "'default'");
    REFUSE(s.pre = NULL, KVT_ERR_UNSUPPORTED, "no pre-tokenizer");
    REFUSE(s.n_tokens = 0, KVT_ERR_FORMAT, "no tokens");
    REFUSE(s.n_tokens = -1, KVT_ERR_FORMAT, "no tokens");
    REFUSE(s.tokens = NULL, KVT_ERR_FORMAT, "no tokens");
    REFUSE(s.n_merges = 0, KVT_ERR_FORMAT, "no merges");
    REFUSE(s.merges = NULL, KVT_ERR_FORMAT, "no merges");
    REFUSE(s.bos = 257, KVT_ERR_FORMAT, "the bos token is 257");
    REFUSE(s.eos = -2, KVT_ERR_FORMAT, "the eos token is -2");
    REFUSE(s.eot = INT32_MAX, KVT_ERR_FORMAT, "257 tokens");
    REFUSE(s.unk = 1000, KVT_ERR_FORMAT, "unknown token");
    REFUSE(s.pad = 1000, KVT_ERR_FORMAT, "padding token");
    REFUSE(s.add_bos = 1, KVT_ERR_FORMAT, "BOS");
    REFUSE(s.add_eos = 1, KVT_ERR_FORMAT, "EOS");
    REFUSE(s.model = "llama", KVT_ERR_FORMAT, "no scores");

    static const char *const merges[] = {"", " ", "ab", "a ", " b", "a zz", "zz b", "b a", "a b c"};
    static const char *const reasons[] = {"two parts", "two parts", "two parts", "two parts", "two parts",
                                          "no token",  "no token",  "no token",  "has a part"};
    for (size_t i = 0; i < KVT_ARRAY_LEN(merges); i++) {
        h.merges[0] = (struct kvt_text_piece){merges[i], strlen(merges[i])};
        refuse(&good, KVT_ERR_FORMAT, reasons[i]);
        refuse(&good, KVT_ERR_FORMAT, "merge 0");
    }
    h.merges[0] = (struct kvt_text_piece){"a b", 3};

    h.types[7] = 7;
    refuse(&good, KVT_ERR_FORMAT, "token 7 of the vocabulary has type 7");
    h.types[7] = -1;
    refuse(&good, KVT_ERR_FORMAT, "type -1");
    h.types[7] = 1;
    h.tokens[9] = h.tokens[8];
    refuse(&good, KVT_ERR_FORMAT, "tokens 8 and 9");
    h.tokens[9] = (struct kvt_text_piece){"", 0}; /* an empty piece is never met */
    struct kvt_text *text = kvt_make_text(&good);
    kvt_text_destroy(text);

    float scores[257] = {0};
    scores[3] = NAN;
    s = good;
    s.model = "llama";
    s.scores = scores;
    refuse(&s, KVT_ERR_FORMAT, "token 3");
}

/* ---- files ----------------------------------------------------------------------------------------------------------------- */

struct file {
    const char *name, *model, *pre;
    bool tokens, merges;
    size_t n_types, n_scores;
    int64_t bos; /* -1: absent */
    bool types_are_text;
};

static enum kvt_status bind_file(const struct file *f, struct kvt_text **text, struct kvt_error *err) {
    struct hand h;
    hand_init(&h);
    const char *tokens[257];
    char copy[257][3] = {{0}};
    for (int i = 0; i < 257; i++) {
        memcpy(copy[i], h.tokens[i].data, h.tokens[i].len);
        tokens[i] = copy[i];
    }
    static const char *const merges[] = {"a b"};
    static const float scores[300] = {0};
    int32_t types[300];
    for (int i = 0; i < 300; i++) types[i] = 1;
    struct kvt_gguf_writer *w;
    assert_int_equal(kvt_gguf_writer_create(&w, NULL), KVT_OK);
    if (f->name) kvt_gguf_add_text(w, "general.name", f->name);
    if (f->model) kvt_gguf_add_text(w, "tokenizer.ggml.model", f->model);
    if (f->pre) kvt_gguf_add_text(w, "tokenizer.ggml.pre", f->pre);
    if (f->tokens) kvt_gguf_add_texts(w, "tokenizer.ggml.tokens", tokens, 257);
    if (f->merges) kvt_gguf_add_texts(w, "tokenizer.ggml.merges", merges, 1);
    if (f->n_types) kvt_gguf_add_i32s(w, "tokenizer.ggml.token_type", types, f->n_types);
    if (f->types_are_text) kvt_gguf_add_texts(w, "tokenizer.ggml.token_type", tokens, 257);
    if (f->n_scores) kvt_gguf_add_array(w, "tokenizer.ggml.scores", KVT_GGUF_F32, scores, f->n_scores);
    if (f->bos >= 0) kvt_gguf_add_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)f->bos);
    struct kvt_buf buf;
    kvt_buf_init(&buf, NULL, 1 << 20);
    assert_int_equal(kvt_gguf_writer_finish(w, &buf), KVT_OK);
    kvt_gguf_writer_destroy(w);
    struct kvt_gguf *gguf;
    assert_int_equal(kvt_gguf_open_memory(&gguf, buf.data, buf.len, NULL, err), KVT_OK);
    const enum kvt_status status = kvt_bind_text(text, gguf, NULL, err);
    kvt_gguf_close(gguf);
    kvt_buf_finish(&buf);
    return status;
}

static void files_are_bound(void **state) {
    (void)state;
    struct kvt_error err = {KVT_OK, ""};
    struct kvt_text *text;
    struct file f = {"a model", "gpt2", "gpt-2", true, true, 257, 0, 65, false};
    assert_int_equal(bind_file(&f, &text, &err), KVT_OK);
    CHECK(text, "ab a", false, 256, ' ', 'a');
    assert_int_equal(kvt_text_bos(text), 65);
    assert_false(kvt_text_add_bos(text));
    kvt_text_destroy(text);
    f.pre = "llama-bpe";
    f.n_types = 0;
    assert_int_equal(bind_file(&f, &text, &err), KVT_OK);
    assert_true(kvt_text_add_bos(text));
    kvt_text_destroy(text);
}

static void broken_files_are_refused(void **state) {
    (void)state;
    const struct file good = {"a model", "gpt2", "gpt-2", true, true, 257, 0, 65, false};
    struct file f = good;
    struct kvt_error err;
    struct kvt_text *text;
#define REFUSE_FILE(change, status, part)                                                                              \
    do {                                                                                                               \
        change;                                                                                                        \
        assert_int_equal(bind_file(&f, &text, &err), status);                                                          \
        if (!strstr(err.text, part)) fail_msg("'%s' does not say '%s'", err.text, part);                               \
        f = good;                                                                                                      \
    } while (0)
    REFUSE_FILE(f.model = NULL, KVT_ERR_UNSUPPORTED, "known: gpt2");
    REFUSE_FILE(f.pre = NULL, KVT_ERR_UNSUPPORTED, "no pre-tokenizer");
    REFUSE_FILE(f.pre = "a name that is much too long to be the name of any pre-tokenizer that there is or will be",
                KVT_ERR_UNSUPPORTED, "unknown pre-tokenizer 'a name");
    REFUSE_FILE(f.tokens = false; f.n_types = 0, KVT_ERR_FORMAT, "no tokens");
    REFUSE_FILE(f.merges = false, KVT_ERR_FORMAT, "no merges");
    REFUSE_FILE(f.n_types = 256, KVT_ERR_FORMAT, "token_type has 256 elements for 257 tokens");
    REFUSE_FILE(f.n_types = 258, KVT_ERR_FORMAT, "token_type has 258 elements");
    REFUSE_FILE(f.n_scores = 3, KVT_ERR_FORMAT, "scores has 3 elements");
    REFUSE_FILE(f.bos = 257, KVT_ERR_FORMAT, "bos");
    REFUSE_FILE(f.bos = 0xFFFFFFFE, KVT_ERR_FORMAT, "bos");
    REFUSE_FILE(f.n_types = 0; f.types_are_text = true, KVT_ERR_FORMAT, "integers");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_decide_when_they_match),
        cmocka_unit_test(user_tokens_are_no_bytes),
        cmocka_unit_test(the_first_merge_counts),
        cmocka_unit_test(the_longest_is_found_first),
        cmocka_unit_test(control_tokens_may_eat_space),
        cmocka_unit_test(tokens_are_shown),
        cmocka_unit_test(ends_are_known),
        cmocka_unit_test(messages_of_a_turn_are_no_ends),
        cmocka_unit_test(bos_is_as_the_kind_has_it),
        cmocka_unit_test(broken_vocabularies_are_refused),
        cmocka_unit_test(files_are_bound),
        cmocka_unit_test(broken_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
