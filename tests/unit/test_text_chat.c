/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates: conversations as Jinja2 renders them (tests/golden/text/make.py), and what is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "support/fail_each.h"
#include "support/load_text.h"
#include "text/chat.h"
#include "text/text.h"

#define GOLDEN KVT_ROOT "/tests/golden/text/"

static struct kvt_buf load_source(const char *file) {
    char path[512];
    snprintf(path, sizeof path, GOLDEN "chat/%s", file);
    return kvt_load_file(path);
}

static int read_messages(struct kvt_chat_message messages[16], const json_t *chat) {
    const json_t *list = json_object_get(chat, "messages");
    const int n = (int)json_array_size(list);
    assert_in_range(n, 1, 16);
    for (int i = 0; i < n; i++) {
        const json_t *message = json_array_get(list, (size_t)i);
        messages[i].role = json_string_value(json_array_get(message, 0));
        messages[i].content = json_string_value(json_array_get(message, 1));
    }
    return n;
}

/* One conversation by one template: the text, or a refusal where expected is NULL. */
static void check_chat(const char *file, const struct kvt_chat_template *family, const char *source, const json_t *chat,
                       const char *expected) {
    struct kvt_chat_message messages[16];
    struct kvt_error err = {KVT_OK, ""};
    struct kvt_buf out;
    kvt_buf_init(&out, NULL, 1 << 20);
    assert_int_equal(kvt_buf_add(&out, "before", 6), KVT_OK);
    const int n = read_messages(messages, chat);
    const bool reply = json_is_true(json_object_get(chat, "reply"));
    const enum kvt_status status = kvt_chat_format(family, source, messages, n, reply, &out, &err);
    if (status != (expected ? KVT_OK : KVT_ERR_ARG)) fail_msg("%s: status %d, '%s'", file, status, err.text);
    if (!expected) {
        assert_string_equal(kvt_buf_text(&out), "before");
        assert_true(strlen(err.text) > 20);
    } else if (strcmp(kvt_buf_text(&out) + 6, expected) != 0) {
        fail_msg("%s: wrote\n%s\nexpected\n%s", file, kvt_buf_text(&out) + 6, expected);
    }
    kvt_buf_finish(&out);
}

static void conversations_are_as_rendered(void **state) {
    (void)state;
    json_error_t jerr;
    json_t *golden = json_load_file(GOLDEN "chat.json", 0, &jerr), *template;
    if (!golden) fail_msg("%s", jerr.text);
    const json_t *chats = json_object_get(golden, "chats");
    size_t i;
    json_array_foreach(json_object_get(golden, "templates"), i, template) {
        const char *file = json_string_value(json_object_get(template, "file"));
        const json_t *texts = json_object_get(template, "texts");
        struct kvt_buf source = load_source(file);
        const struct kvt_chat_template *family = kvt_chat_detect(source.data, source.len);
        if (!family) fail_msg("%s is not known", file);
        assert_string_equal(kvt_chat_name(family), json_string_value(json_object_get(template, "family")));
        assert_int_equal(kvt_chat_begins_with_bos(family, source.data), json_is_true(json_object_get(template, "bos")));
        assert_int_equal(json_array_size(texts), json_array_size(chats));
        for (size_t k = 0; k < json_array_size(chats); k++)
            check_chat(file, family, source.data, json_array_get(chats, k),
                       json_string_value(json_array_get(texts, k)));
        kvt_buf_finish(&source);
    }
    assert_true(i >= 26);
    json_decref(golden);
}

static void spelling_does_not_matter(void **state) {
    (void)state;
    static const struct {
        const char *source, *plain;
    } cases[] = {
        {"", ""},
        {"a\n b", "a\\n b"},
        {"{{ m['x'] }}", "{{m.x}}"},
        {"{{ m[\"x_1\"][0]['a b'] }}", "{{m.x_1[0]['a b']}}"},
        {"{{- \"a\" + 'b' + c -}}", "{{'ab'+c}}"},
        {"{{ 'it\\'s' + \"a\nb\" }}", "{{'it\\'sa\\nb'}}"},
        {"{#- a {{ comment }} -#} x", "x"},
        /* White space: of marked ends; after a block the line end; before a block on its own line the blanks. */
        {" {{- a -}} \n {{ b }} ", "{{a}}{{b}} "},
        {"{% if x %}\n\ny{% endif %}\n", "{%ifx%}\\ny{%endif%}"},
        {"a\n  {% if x %} \n  {%+ if y %}", "a\\n{%ifx%} \\n  {%ify%}"},
        {"  {% if x %}\n  {% if y %}b  {% if z %}", "{%ifx%}{%ify%}b  {%ifz%}"},
        {"{{ a }}\n  {{ b }}  {% c %}", "{{a}}\\n  {{b}}  {%c%}"},
        {"{% a -%} \n {%- b +%}\n\n", "{%a%}{%b%}\\n"},
    };
    for (size_t i = 0; i < KVT_ARRAY_LEN(cases); i++) {
        struct kvt_buf plain;
        kvt_buf_init(&plain, NULL, strlen(cases[i].source) * 2);
        assert_int_equal(kvt_chat_plain_form(&plain, cases[i].source, strlen(cases[i].source)), KVT_OK);
        assert_string_equal(kvt_buf_text(&plain), cases[i].plain);
        kvt_buf_finish(&plain);
    }
}

/* By name alone there is no source to take a default from. */
static void named_families_need_no_source(void **state) {
    (void)state;
    const struct kvt_chat_message hello = {"user", "Hello"};
    struct kvt_buf out;
    kvt_buf_init(&out, NULL, 1000);
    const struct kvt_chat_template *family = kvt_chat_find("chatml");
    assert_non_null(family);
    assert_int_equal(kvt_chat_format(family, NULL, &hello, 1, true, &out, NULL), KVT_OK);
    assert_string_equal(kvt_buf_text(&out), "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
    assert_false(kvt_chat_begins_with_bos(family, NULL));
    assert_true(kvt_chat_begins_with_bos(kvt_chat_find("gemma"), NULL));
    assert_null(kvt_chat_find("chat"));
    assert_null(kvt_chat_find(""));
    kvt_buf_finish(&out);
}

static void names_are_all_told(void **state) {
    (void)state;
    char names[1000] = "";
    for (int i = 0; kvt_chat_row(i); i++) {
        const size_t len = strlen(names);
        snprintf(names + len, sizeof names - len, "%s%s", i ? ", " : "", kvt_chat_row(i)->name);
        assert_ptr_equal(kvt_chat_find(kvt_chat_row(i)->name), kvt_chat_row(i));
    }
    assert_string_equal(kvt_chat_names(), names);
}

static void others_are_not_guessed(void **state) {
    (void)state;
    static const char *const sources[] = {
        "",
        "chatml",
        "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}",
        /* Speaks of the tokens of one that is known, and writes something else. */
        "{% for message in messages %}{{ '<|im_start|>' + message.role + '<|im_sep|>' + message.content + '<|im_end|>' }}"
        "{% endfor %}",
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
        "{% for message in messages %}{{ '[INST]' + message['content'] + '[/INST]' }}{% endfor %}",
        "{{ '<|start_header_id|>' + 'user' + '<|end_header_id|>' }}",
        /* Writes a date. */
        "{{ strftime_now('%d') }}{% for message in messages %}{{'<|im_start|>' + message.role + '\\n' + message.content + "
        "'<|im_end|>\\n'}}{% endfor %}",
        /* Not ended. */
        "{{ '<|im_start|>' + message.role + '\\n' + message",
        "{{ \"",
        "{{ '\\",
        "{#",
        "{# -",
        "{{-",
        "{%",
        "{",
        "{{ ['",
        "{{ ['a'",
        "{{ x -",
        "\n{%- -%}\n{%",
    };
    for (size_t i = 0; i < KVT_ARRAY_LEN(sources); i++)
        if (kvt_chat_detect(sources[i], strlen(sources[i]))) fail_msg("'%s' is taken for a known one", sources[i]);
}

/* Every beginning of every source is read without harm, and a conversation by its family, if it has one. */
static void cut_sources_do_no_harm(void **state) {
    (void)state;
    static const char *const files[] = {"chatml_default.jinja", "deepseek_coder.jinja", "llama31.jinja", "qwen3.jinja"};
    const struct kvt_chat_message hello = {"user", "Hello"};
    for (size_t f = 0; f < KVT_ARRAY_LEN(files); f++) {
        struct kvt_buf source = load_source(files[f]);
        for (size_t len = source.len; len-- > 0;) {
            source.data[len] = 0;
            const struct kvt_chat_template *family = kvt_chat_detect(source.data, len);
            if (!family) family = kvt_chat_find("chatml");
            struct kvt_buf out;
            kvt_buf_init(&out, NULL, 1 << 16);
            assert_int_equal(kvt_chat_format(family, source.data, &hello, 1, true, &out, NULL), KVT_OK);
            kvt_buf_finish(&out);
        }
        kvt_buf_finish(&source);
    }
}

static void bad_conversations_are_refused(void **state) {
    (void)state;
    const struct kvt_chat_message tool[] = {{"tool", "x"}}, two[] = {{"user", "a"}, {"user", "b"}};
    struct kvt_error err;
    struct kvt_buf out;
    kvt_buf_init(&out, NULL, 10);
    assert_int_equal(kvt_chat_format(kvt_chat_find("chatml"), NULL, tool, 1, true, &out, &err), KVT_ERR_ARG);
    assert_non_null(strstr(err.text, "'tool'"));
    assert_non_null(strstr(err.text, "system, user, assistant"));
    assert_int_equal(kvt_chat_format(kvt_chat_find("chatml"), NULL, two, 0, true, &out, &err), KVT_ERR_ARG);
    assert_int_equal(kvt_chat_format(kvt_chat_find("llama2"), NULL, two, 2, true, &out, &err), KVT_ERR_ARG);
    assert_non_null(strstr(err.text, "llama2"));
    assert_int_equal(kvt_chat_format(kvt_chat_find("chatml"), NULL, two, 2, true, &out, &err), KVT_ERR_LIMIT);
    assert_int_equal(out.len, 0);
    kvt_buf_finish(&out);
}

static enum kvt_status scenario(void *ctx, const struct kvt_allocator *allocator) {
    const struct kvt_buf *source = ctx;
    const struct kvt_chat_message messages[] = {{"user", "Hello"}, {"assistant", "Hi"}, {"user", "Bye"}};
    struct kvt_buf out;
    kvt_buf_init(&out, allocator, 1 << 20);
    const enum kvt_status status = kvt_chat_format(kvt_chat_find("qwen3"), source->data, messages, 3, true, &out, NULL);
    kvt_buf_finish(&out);
    return status;
}

static void memory_may_be_out(void **state) {
    (void)state;
    struct kvt_buf source = load_source("qwen3.jinja");
    assert_true(kvt_fail_each(scenario, &source) >= 2);
    kvt_buf_finish(&source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversations_are_as_rendered),
        cmocka_unit_test(named_families_need_no_source),
        cmocka_unit_test(names_are_all_told),
        cmocka_unit_test(others_are_not_guessed),
        cmocka_unit_test(cut_sources_do_no_harm),
        cmocka_unit_test(bad_conversations_are_refused),
        cmocka_unit_test(spelling_does_not_matter),
        cmocka_unit_test(memory_may_be_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
