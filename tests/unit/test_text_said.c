/* SPDX-License-Identifier: Apache-2.0
 *
 * Control tokens come from a template alone: whatever people and models say is plain text.
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
#include "text/text.h"

#define GOLDEN KVT_ROOT "/tests/golden/text/"

/* ---- a vocabulary of bytes and of all that templates write as control tokens ------------------------------------------- */

#define BOS_TEXT                                                                                                       \
    "<\xEF\xBD\x9C"                                                                                                    \
    "begin\xE2\x96\x81"                                                                                                \
    "of\xE2\x96\x81"                                                                                                   \
    "sentence\xEF\xBD\x9C>"
#define EOS_TEXT                                                                                                       \
    "<\xEF\xBD\x9C"                                                                                                    \
    "end\xE2\x96\x81"                                                                                                  \
    "of\xE2\x96\x81"                                                                                                   \
    "sentence\xEF\xBD\x9C>"
#define USER_TEXT "<\xEF\xBD\x9CUser\xEF\xBD\x9C>"
#define MODEL_TEXT                                                                                                     \
    "<\xEF\xBD\x9C"                                                                                                    \
    "Assistant\xEF\xBD\x9C>"

static const char *const controls[] = {
    "<unk>",
    "<s>",
    "</s>",
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "[INST]",
    "[/INST]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "<start_of_turn>",
    "<end_of_turn>",
    "<bos>",
    "<|user|>",
    "<|assistant|>",
    "<|system|>",
    "<|end|>",
    "<|EOT|>",
    BOS_TEXT,
    EOS_TEXT,
    USER_TEXT,
    MODEL_TEXT,
};
enum { N_CONTROLS = KVT_ARRAY_LEN(controls), N_TOKENS = N_CONTROLS + 256 + 3, USER_END = N_TOKENS - 3, PAIR, SPACE };

static struct kvt_text *make_text(void) {
    static char bytes[256][7];
    static struct kvt_text_piece tokens[N_TOKENS];
    static float scores[N_TOKENS];
    static int32_t types[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++) {
        const char *piece = i < N_CONTROLS  ? controls[i]
                            : i == USER_END ? "<|eom_id|>"
                            : i == PAIR     ? "\n\n"
                            : i == SPACE    ? "\xE2\x96\x81"
                                            : bytes[i - N_CONTROLS];
        if (i >= N_CONTROLS && i < USER_END) snprintf(bytes[i - N_CONTROLS], 7, "<0x%02X>", (unsigned)(i - N_CONTROLS));
        tokens[i] = (struct kvt_text_piece){piece, strlen(piece)};
        types[i] = i == 0           ? KVT_TOKEN_UNKNOWN
                   : i < N_CONTROLS ? KVT_TOKEN_CONTROL
                   : i < USER_END   ? KVT_TOKEN_BYTE
                   : i == SPACE     ? KVT_TOKEN_NORMAL
                                    : KVT_TOKEN_USER;
    }
    const struct kvt_text_spec spec = {.model = "llama",
                                       .n_tokens = N_TOKENS,
                                       .tokens = tokens,
                                       .scores = scores,
                                       .types = types,
                                       .bos = 1,
                                       .eos = 2,
                                       .eot = -1,
                                       .unk = 0,
                                       .pad = -1,
                                       .add_bos = 0,
                                       .add_eos = 0,
                                       .add_space_prefix = 1};
    return kvt_make_text(&spec);
}

static bool is_control(int32_t id) { return id < N_CONTROLS || id == USER_END; }

/* ---- conversations of all templates --------------------------------------------------------------------------------------- */

enum { N_MESSAGES_MAX = 16 };

static int read_messages(struct kvt_chat_message messages[N_MESSAGES_MAX], const json_t *chat) {
    const json_t *list = json_object_get(chat, "messages");
    const int n = (int)json_array_size(list);
    assert_in_range(n, 1, N_MESSAGES_MAX);
    for (int i = 0; i < n; i++) {
        const json_t *message = json_array_get(list, (size_t)i);
        messages[i].role = json_string_value(json_array_get(message, 0));
        messages[i].content = json_string_value(json_array_get(message, 1));
    }
    return n;
}

struct template {
    const char *file;
    struct kvt_buf source;
    const struct kvt_chat_template *family;
};

/* The spans are in order, hold what somebody said, and all else is the template's: the same with other contents. */
static void check_spans(const struct template *t, const struct kvt_chat_message *messages, int n,
                        const struct kvt_chat_text *chat) {
    struct kvt_buf expected;
    kvt_buf_init(&expected, NULL, 1 << 20);
    assert_int_equal(kvt_chat_format(t->family, t->source.data, messages, n, true, &expected, NULL), KVT_OK);
    assert_string_equal(kvt_buf_text(&chat->text), kvt_buf_text(&expected));
    size_t end = 0;
    for (int i = 0; i < chat->n_contents; i++) {
        const struct kvt_text_span *span = &chat->contents[i];
        assert_true(span->start >= end && span->end >= span->start && span->end <= chat->text.len);
        end = span->end;
        bool said = span->start == span->end;
        for (int m = 0; m < n; m++)
            for (const char *p = messages[m].content; (p = strchr(p, chat->text.data[span->start])); p++)
                said |= strncmp(p, chat->text.data + span->start, span->end - span->start) == 0;
        if (!said)
            fail_msg("%s: span %d, '%.*s', was said by nobody", t->file, i, (int)(end - span->start),
                     chat->text.data + span->start);
    }
    kvt_buf_finish(&expected);
}

/* The control tokens of a conversation, in order. */
static int controls_of(const struct kvt_text *text, const struct template *t, const struct kvt_chat_message *messages,
                       int n, int32_t *out) {
    struct kvt_ids ids;
    struct kvt_error err = {KVT_OK, ""};
    int found = 0;
    kvt_ids_init(&ids, NULL);
    if (kvt_chat_encode(text, t->family, t->source.data, messages, n, true, &ids, &err) != KVT_OK)
        fail_msg("%s: %s", t->file, err.text);
    for (size_t i = 0; i < ids.len; i++)
        if (is_control(ids.data[i])) out[found++] = ids.data[i];
    kvt_ids_finish(&ids);
    return found;
}

/* Every content is put between all control tokens: what the template writes stays what it is. */
static void check_hostile(const struct kvt_text *text, const struct template *t,
                          const struct kvt_chat_message *messages, int n) {
    struct kvt_chat_message harmless[N_MESSAGES_MAX], hostile[N_MESSAGES_MAX];
    struct kvt_buf contents[N_MESSAGES_MAX], said_x[N_MESSAGES_MAX];
    int32_t plain[400], said[400];
    for (int i = 0; i < n; i++) {
        kvt_buf_init(&contents[i], NULL, 10000);
        kvt_buf_init(&said_x[i], NULL, 10000);
        assert_int_equal(kvt_buf_addf(&said_x[i], "x%sx", messages[i].content), KVT_OK);
        harmless[i] = (struct kvt_chat_message){messages[i].role, kvt_buf_text(&said_x[i])};
        assert_int_equal(kvt_buf_addf(&contents[i], "|end|>x%s", messages[i].content), KVT_OK);
        for (int c = 0; c < N_CONTROLS; c++) assert_int_equal(kvt_buf_addf(&contents[i], "%s", controls[c]), KVT_OK);
        assert_int_equal(kvt_buf_addf(&contents[i], "<|eom_id|>x<|im_end"), KVT_OK);
        hostile[i] = (struct kvt_chat_message){messages[i].role, kvt_buf_text(&contents[i])};
    }
    const int n_plain = controls_of(text, t, harmless, n, plain), n_said = controls_of(text, t, hostile, n, said);
    if (n_said != n_plain || memcmp(plain, said, (size_t)n_plain * sizeof *plain) != 0)
        fail_msg("%s: %d control tokens, and %d where they are said", t->file, n_plain, n_said);
    for (int i = 0; i < n; i++) {
        kvt_buf_finish(&contents[i]);
        kvt_buf_finish(&said_x[i]);
    }
}

static void only_templates_write_control_tokens(void **state) {
    (void)state;
    json_error_t jerr;
    json_t *golden = json_load_file(GOLDEN "chat.json", 0, &jerr), *entry;
    if (!golden) fail_msg("%s", jerr.text);
    const json_t *chats = json_object_get(golden, "chats");
    struct kvt_text *text = make_text();
    int n_checked = 0;
    size_t i;
    json_array_foreach(json_object_get(golden, "templates"), i, entry) {
        struct template t = {.file = json_string_value(json_object_get(entry, "file"))};
        char path[512];
        snprintf(path, sizeof path, GOLDEN "chat/%s", t.file);
        t.source = kvt_load_file(path);
        t.family = kvt_chat_detect(t.source.data, t.source.len);
        for (size_t k = 0; k < json_array_size(chats); k++) {
            struct kvt_chat_message messages[N_MESSAGES_MAX];
            struct kvt_chat_text chat;
            const int n = read_messages(messages, json_array_get(chats, k));
            kvt_chat_text_init(&chat, NULL, 1 << 20);
            if (kvt_chat_write(t.family, t.source.data, messages, n, true, &chat, NULL) == KVT_OK) {
                check_spans(&t, messages, n, &chat);
                check_hostile(text, &t, messages, n);
                n_checked++;
            }
            kvt_chat_text_finish(&chat);
        }
        kvt_buf_finish(&t.source);
    }
    assert_true(n_checked > 100);
    kvt_text_destroy(text);
    json_decref(golden);
}

/* ---- mixed texts ---------------------------------------------------------------------------------------------------------- */

static void check_mixed(const struct kvt_text *text, struct kvt_text_mixed mixed, const char *expected) {
    struct kvt_ids ids;
    struct kvt_buf got;
    kvt_ids_init(&ids, NULL);
    kvt_buf_init(&got, NULL, 1000);
    mixed.len = strlen(mixed.data);
    assert_int_equal(kvt_text_encode_mixed(text, &mixed, &ids, NULL), KVT_OK);
    for (size_t i = 0; i < ids.len; i++) { /* control tokens in braces */
        const bool special = is_control(ids.data[i]) || ids.data[i] == PAIR;
        assert_int_equal(kvt_buf_addf(&got, "%s", special ? "{" : ""), KVT_OK);
        assert_int_equal(kvt_text_decode(text, ids.data[i], true, &got), KVT_OK);
        assert_int_equal(kvt_buf_addf(&got, "%s", special ? "}" : ""), KVT_OK);
    }
    assert_string_equal(kvt_buf_text(&got), expected);
    kvt_ids_finish(&ids);
    kvt_buf_finish(&got);
}

static void spans_are_plain(void **state) {
    (void)state;
    static const struct kvt_text_span inside[] = {{3, 3}, {4, 6}}, user[] = {{0, 12}};
    struct kvt_text *text = make_text();
    check_mixed(text, (struct kvt_text_mixed){.data = "<s>a</s>b", .after = -1}, "{<s>} a{</s>} b");
    check_mixed(text, (struct kvt_text_mixed){.data = "<s>a</s>b", .plain = inside, .n_plain = 2, .after = -1},
                "{<s>} a</s>b");
    check_mixed(text, (struct kvt_text_mixed){.data = "<s>a</s>b", .plain = inside, .n_plain = 1, .after = -1},
                "{<s>} a{</s>} b");
    check_mixed(text, (struct kvt_text_mixed){.data = "<|eom_id|>\n\n<s>", .plain = user, .n_plain = 1, .after = -1},
                " <|eom_id|>{\n\n}{<s>}");
    /* From somewhere on; a space comes in front at the start and after special tokens. */
    check_mixed(text,
                (struct kvt_text_mixed){.data = "<s>a</s>b", .plain = inside, .n_plain = 2, .from = 3, .after = -1},
                " a</s>b");
    check_mixed(text,
                (struct kvt_text_mixed){.data = "<s>a</s>b", .plain = inside, .n_plain = 2, .from = 3, .after = 1},
                " a</s>b");
    check_mixed(text, (struct kvt_text_mixed){.data = "<s>a</s>b", .from = 3, .after = N_CONTROLS}, "a{</s>} b");
    check_mixed(text, (struct kvt_text_mixed){.data = "<s>a</s>b", .from = 9, .after = 1}, "");
    kvt_text_destroy(text);
}

static enum kvt_status scenario(void *ctx, const struct kvt_allocator *allocator) {
    const struct kvt_text *text = ctx;
    const struct kvt_chat_message messages[] = {{"user", "Hello"}, {"assistant", "Hi"}, {"user", "Bye"}};
    struct kvt_ids ids;
    kvt_ids_init(&ids, allocator);
    const enum kvt_status status = kvt_chat_encode(text, kvt_chat_find("gemma"), NULL, messages, 3, true, &ids, NULL);
    if (status == KVT_OK)
        assert_int_equal(ids.data[0], 1); /* BOS, since the template wants it */
    else
        assert_int_equal(ids.len, 0);
    kvt_ids_finish(&ids);
    return status;
}

static void memory_may_be_out(void **state) {
    (void)state;
    struct kvt_text *text = make_text();
    assert_true(kvt_fail_each(scenario, text) >= 3);
    kvt_text_destroy(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_templates_write_control_tokens),
        cmocka_unit_test(spans_are_plain),
        cmocka_unit_test(memory_may_be_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
