/* SPDX-License-Identifier: Apache-2.0
 * Prompts: texts, tokens, messages. */
#include <string.h>

#include "base/check.h"
#include "serve/ask.h"

enum { MESSAGES_MAX = 4096, PROMPT_BYTES_MAX = 1 << 28 };

static enum kvt_status add_text(struct kvt_ids *out, const struct kvt_ask_rules *rules, const char *data, size_t len,
                                bool add_bos, struct kvt_error *err) {
    const struct kvt_text *text = kvt_model_text(rules->model);
    const int bos = kvt_text_bos(text);
    const bool begins = add_bos && kvt_text_add_bos(text) && bos >= 0;
    if (begins && kvt_ids_add(out, bos) != KVT_OK) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the prompt");
    KVT_TRY(kvt_text_encode(text, data, len, true, out, err));
    if (begins && out->len > 1 && out->data[1] == bos) { /* the template or the client wrote it out */
        out->len--;
        memmove(out->data, out->data + 1, out->len * sizeof *out->data);
    }
    return KVT_OK;
}

static enum kvt_status add_ids(struct kvt_ids *out, const struct kvt_ask_rules *rules, const char *field,
                               const json_t *list, struct kvt_error *err) {
    const int n_vocab = kvt_model_info(rules->model).n_vocab;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const json_int_t id = json_integer_value(item);
        if (!json_is_integer(item) || id < 0 || id >= n_vocab)
            return kvt_fail(err, KVT_ERR_ARG, "'%s' has as item %zu something that is no token of the vocabulary of %d",
                            field, i, n_vocab);
        if (kvt_ids_add(out, (int32_t)id) != KVT_OK) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the prompt");
    }
    return KVT_OK;
}

enum kvt_status kvt_prompt_of_value(struct kvt_ids *out, const struct kvt_ask_rules *rules, const char *field,
                                    const json_t *value, bool add_bos, struct kvt_error *err) {
    if (json_is_string(value))
        return add_text(out, rules, json_string_value(value), json_string_length(value), add_bos, err);
    const json_t *first = json_array_get(value, 0);
    if (json_is_integer(first)) return add_ids(out, rules, field, value, err);
    if (first && json_array_size(value) > 1)
        return kvt_fail(err, KVT_ERR_UNSUPPORTED, "'%s' has %zu prompts; send each in a request of its own", field,
                        json_array_size(value));
    if (first) return kvt_prompt_of_value(out, rules, field, first, add_bos, err);
    return kvt_fail(err, KVT_ERR_ARG, "'%s' must be a text or a list of tokens that is not empty", field);
}

/* ---- messages --------------------------------------------------------------------------------------------------------- */

/* Appends a content: a text, or parts of which all are texts. */
static enum kvt_status add_content(struct kvt_buf *out, const json_t *content, size_t i, struct kvt_error *err) {
    const char *text = json_string_value(content);
    if (text) return kvt_buf_add(out, text, strlen(text));
    if (!json_is_array(content))
        return kvt_fail(err, KVT_ERR_ARG, "'messages[%zu].content' must be a text or a list of parts", i);
    for (size_t k = 0; k < json_array_size(content); k++) {
        const json_t *part = json_array_get(content, k);
        const char *type = json_string_value(json_object_get(part, "type"));
        const char *words = json_string_value(json_object_get(part, "text"));
        if (!type || strcmp(type, "text") != 0 || !words)
            return kvt_fail(err, KVT_ERR_UNSUPPORTED,
                            "'messages[%zu].content[%zu]' is of type '%.40s'; only parts of type 'text' are read", i, k,
                            type ? type : "");
        KVT_TRY(kvt_buf_add(out, words, strlen(words)));
    }
    return KVT_OK;
}

static enum kvt_status read_role(const char **out, const json_t *message, size_t i, struct kvt_error *err) {
    static const char *const roles[][2] = {
        {"system", "system"}, {"developer", "system"}, {"user", "user"}, {"assistant", "assistant"}};
    const char *role = json_string_value(json_object_get(message, "role"));
    for (size_t k = 0; role && k < KVT_ARRAY_LEN(roles); k++) {
        if (strcmp(role, roles[k][0]) != 0) continue;
        *out = roles[k][1];
        return KVT_OK;
    }
    return kvt_fail(err, KVT_ERR_ARG, "'messages[%zu].role' is '%.40s'; known: system, developer, user, assistant", i,
                    role ? role : "");
}

/* Contents one after another in `texts`, each with its NUL; where they begin in `at`. */
static enum kvt_status read_messages(struct kvt_chat_message *messages, size_t *at, struct kvt_buf *texts,
                                     const json_t *list, struct kvt_error *err) {
    const size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        const json_t *message = json_array_get(list, i);
        KVT_TRY(read_role(&messages[i].role, message, i, err));
        at[i] = texts->len;
        enum kvt_status status = add_content(texts, json_object_get(message, "content"), i, err);
        if (status == KVT_OK) status = kvt_buf_add(texts, "", 1);
        if (status == KVT_ERR_NOMEM || status == KVT_ERR_LIMIT)
            return kvt_fail(err, status, "the messages do not fit into memory");
        KVT_TRY(status);
    }
    for (size_t i = 0; i < n; i++) messages[i].content = texts->data + at[i];
    return KVT_OK;
}

enum kvt_status kvt_prompt_of_messages(struct kvt_ids *out, const struct kvt_ask_rules *rules, const json_t *list,
                                       struct kvt_error *err) {
    const size_t n = json_array_size(list);
    if (!rules->options->chat)
        return kvt_fail(
            err, KVT_ERR_UNSUPPORTED,
            "the model has no chat template that is known; start the server with --template NAME (%s), or use "
            "/v1/completions",
            kvt_chat_names());
    if (n == 0 || n > MESSAGES_MAX)
        return kvt_fail(err, KVT_ERR_ARG, "'messages' must be a list of 1 to %d messages", MESSAGES_MAX);
    struct kvt_chat_message *messages = kvt_take(&kvt_allocator_libc, n, sizeof *messages);
    size_t *at = kvt_take(&kvt_allocator_libc, n, sizeof *at);
    struct kvt_buf texts;
    kvt_buf_init(&texts, NULL, PROMPT_BYTES_MAX);
    enum kvt_status status = messages && at ? read_messages(messages, at, &texts, list, err)
                                            : kvt_fail(err, KVT_ERR_NOMEM, "no memory for %zu messages", n);
    if (status == KVT_OK)
        status = kvt_chat_encode(kvt_model_text(rules->model), rules->options->chat, rules->options->chat_source,
                                 messages, (int)n, true, out, err);
    kvt_buf_finish(&texts);
    kvt_give(&kvt_allocator_libc, at, n, sizeof *at);
    kvt_give(&kvt_allocator_libc, messages, n, sizeof *messages);
    return status;
}
