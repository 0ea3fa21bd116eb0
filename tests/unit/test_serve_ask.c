/* SPDX-License-Identifier: Apache-2.0
 * Requests as they are read: what is said, what is not, and what is refused by its name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/ask.h"
#include "support/make_model.h"

static struct kvt_model *model;
static struct kvt_serve_options options;

static int begin(void **state) {
    (void)state;
    char file[256];
    if (kvt_made_file(file, sizeof file, kvt_made_find("llama-biased")) != KVT_OK) return -1;
    const enum kvt_status status = kvt_model_load(&model, file, NULL, NULL);
    remove(file);
    options.chat = kvt_chat_find("chatml");
    return status == KVT_OK ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    kvt_model_destroy(model);
    return 0;
}

static enum kvt_status read_ask(struct kvt_ask *ask, const char *body, bool chat, struct kvt_error *err) {
    const struct kvt_ask_rules rules = {model, &options, 512};
    json_t *root = NULL;
    *ask = (struct kvt_ask){.chat = false};
    kvt_ids_init(&ask->prompt, NULL);
    enum kvt_status status = kvt_ask_parse(&root, body, strlen(body), err);
    if (status == KVT_OK) status = kvt_ask_read(ask, &rules, root, chat, err);
    json_decref(root);
    return status;
}

static void finish(struct kvt_ask *ask) {
    kvt_ids_finish(&ask->prompt);
    kvt_stop_finish(&ask->stops);
}

static void a_completion_is_read(void **state) {
    (void)state;
    struct kvt_ask ask;
    struct kvt_error err = {0};
    assert_int_equal(read_ask(&ask, "{\"prompt\": \"abc\"}", false, &err), KVT_OK);
    assert_int_equal(ask.max_tokens, 16);
    assert_int_equal(ask.prompt.len, 4); /* BOS and a byte each */
    assert_int_equal(ask.prompt.data[0], KVT_MADE_BOS);
    assert_true(ask.sample.temp == 1 && ask.sample.top_p == 1 && ask.sample.top_k == 0 && ask.reuse && !ask.stream);
    finish(&ask);

    assert_int_equal(
        read_ask(&ask,
                 "{\"prompt\": [5, 6, 7], \"max_tokens\": 3, \"temperature\": 0, \"seed\": -4, \"stop\": [\"x\", "
                 "\"yz\"], \"logprobs\": 5, \"stream\": true, \"stream_options\": {\"include_usage\": true}, "
                 "\"top_k\": -1, \"n\": 1, \"tools\": [], \"echo\": false, \"user\": \"someone\", "
                 "\"cache_prompt\": false, \"suffix\": null}",
                 false, &err),
        KVT_OK);
    assert_int_equal(ask.prompt.len, 3);
    assert_int_equal(ask.max_tokens, 3);
    assert_int_equal(ask.stops.n, 2);
    assert_true(ask.logprobs && ask.n_top == 5 && ask.stream && ask.stream_usage && !ask.reuse);
    assert_true(ask.sample.seed == (uint64_t)-4 && ask.sample.temp == 0 && ask.sample.top_k == 0);
    finish(&ask);

    assert_int_equal(read_ask(&ask, "{\"prompt\": \"a\", \"top_p\": 0, \"top_k\": 40}", false, &err), KVT_OK);
    assert_true(ask.sample.top_p == 1 && ask.sample.top_k == 1); /* the likeliest token alone */
    finish(&ask);
}

static void a_chat_is_read(void **state) {
    (void)state;
    struct kvt_ask ask;
    struct kvt_error err = {0};
    const char *body =
        "{\"messages\": [{\"role\": \"developer\", \"content\": \"be brief\"}, {\"role\": \"user\", \"content\": "
        "[{\"type\": \"text\", \"text\": \"hel\"}, {\"type\": \"text\", \"text\": \"lo\"}]}], \"logprobs\": true, "
        "\"top_logprobs\": 2}";
    assert_int_equal(read_ask(&ask, body, true, &err), KVT_OK);
    struct kvt_buf text;
    kvt_buf_init(&text, NULL, 1000);
    for (size_t i = 0; i < ask.prompt.len; i++)
        assert_int_equal(kvt_text_decode(kvt_model_text(model), ask.prompt.data[i], false, &text), KVT_OK);
    assert_string_equal(kvt_buf_text(&text),
                        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n"
                        "<|im_start|>assistant\n");
    kvt_buf_finish(&text);
    assert_true(ask.logprobs && ask.n_top == 2);
    assert_int_equal(ask.max_tokens, 512 - (int)ask.prompt.len); /* all that the context holds */
    finish(&ask);
}

static void what_cannot_be_done_is_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *body;
        bool chat;
        enum kvt_status status;
        const char *names;
    } cases[] = {
        {"{\"prompt\": \"a\", \"n\": 2}", false, KVT_ERR_UNSUPPORTED, "'n'"},
        {"{\"prompt\": \"a\", \"tools\": [1]}", false, KVT_ERR_UNSUPPORTED, "'tools'"},
        {"{\"prompt\": \"a\", \"frequency_penalty\": 0.5}", false, KVT_ERR_UNSUPPORTED, "'frequency_penalty'"},
        {"{\"prompt\": \"a\", \"response_format\": {\"type\": \"json_object\"}}", false, KVT_ERR_UNSUPPORTED,
         "'response_format'"},
        {"{\"prompt\": [\"a\", \"b\"]}", false, KVT_ERR_UNSUPPORTED, "'prompt'"},
        {"{}", false, KVT_ERR_ARG, "'prompt' is missing"},
        {"{}", true, KVT_ERR_ARG, "'messages' is missing"},
        {"{\"prompt\": \"a\", \"temperature\": -1}", false, KVT_ERR_ARG, "'temperature'"},
        {"{\"prompt\": \"a\", \"temperature\": \"hot\"}", false, KVT_ERR_ARG, "'temperature'"},
        {"{\"prompt\": \"a\", \"max_tokens\": 0}", false, KVT_ERR_ARG, "'max_tokens'"},
        {"{\"prompt\": \"a\", \"max_tokens\": 1.5}", false, KVT_ERR_ARG, "'max_tokens'"},
        {"{\"prompt\": \"a\", \"max_tokens\": 511}", false, KVT_ERR_RANGE, "the context holds 512"},
        {"{\"prompt\": \"a\", \"stop\": \"\"}", false, KVT_ERR_ARG, "'stop'"},
        {"{\"prompt\": \"a\", \"stop\": 5}", false, KVT_ERR_ARG, "'stop'"},
        {"{\"prompt\": \"a\", \"stream\": 1}", false, KVT_ERR_ARG, "'stream'"},
        {"{\"prompt\": \"a\", \"logprobs\": 21}", false, KVT_ERR_ARG, "'logprobs'"},
        {"{\"prompt\": [5, 268]}", false, KVT_ERR_ARG, "item 1"},
        {"{\"prompt\": []}", false, KVT_ERR_ARG, "'prompt'"},
        {"{\"prompt\": {}}", false, KVT_ERR_ARG, "'prompt'"},
        {"[1]", false, KVT_ERR_FORMAT, "object"},
        {"{\"prompt\": \"a\\u0000b\"}", false, KVT_ERR_FORMAT, "NUL"},
        {"{\"prompt\": ", false, KVT_ERR_FORMAT, "line 1"},
        {"{\"prompt\": \"a\", \"prompt\": \"b\"}", false, KVT_ERR_FORMAT, "duplicate"},
        {"{\"messages\": [{\"role\": \"tool\", \"content\": \"x\"}]}", true, KVT_ERR_ARG, "messages[0].role"},
        {"{\"messages\": [{\"role\": \"user\"}]}", true, KVT_ERR_ARG, "messages[0].content"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}", true, KVT_ERR_UNSUPPORTED,
         "image_url"},
        {"{\"messages\": []}", true, KVT_ERR_ARG, "'messages'"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"top_logprobs\": 2}", true, KVT_ERR_ARG,
         "'top_logprobs'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kvt_ask ask = {.chat = false};
        struct kvt_error err = {0};
        const enum kvt_status status = read_ask(&ask, cases[i].body, cases[i].chat, &err);
        if (status != cases[i].status || !strstr(err.text, cases[i].names))
            fail_msg("%s: status %s, '%s'", cases[i].body, kvt_status_name(status), err.text);
        finish(&ask);
    }
}

static void a_prompt_longer_than_the_context_is_refused(void **state) {
    (void)state;
    char body[1200] = "{\"prompt\": \"";
    memset(body + strlen(body), 'z', 512);
    memcpy(body + strlen(body), "\"}", 3);
    struct kvt_ask ask;
    struct kvt_error err = {0};
    assert_int_equal(read_ask(&ask, body, false, &err), KVT_ERR_RANGE);
    assert_non_null(strstr(err.text, "513 tokens"));
    finish(&ask);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_completion_is_read),
        cmocka_unit_test(a_chat_is_read),
        cmocka_unit_test(what_cannot_be_done_is_refused_by_name),
        cmocka_unit_test(a_prompt_longer_than_the_context_is_refused),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
