/* SPDX-License-Identifier: Apache-2.0
 * Reading requests: every field that is known is checked; what cannot be honoured is refused rather than passed over. */
#include "serve/ask.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

enum { COMPLETION_TOKENS = 16 }; /* of /v1/completions, where max_tokens is not said: OpenAI's */

enum kvt_status kvt_ask_parse(json_t **out, const char *data, size_t len, struct kvt_error *err) {
    json_error_t where;
    json_t *root = json_loadb(data, len, JSON_REJECT_DUPLICATES, &where);
    if (!root && json_error_code(&where) == json_error_null_character)
        return kvt_fail(err, KVT_ERR_FORMAT, "the body has a text with a NUL (\\u0000) on line %d, which none may hold",
                        where.line);
    if (!root)
        return kvt_fail(err, KVT_ERR_FORMAT, "the body is no JSON: line %d, column %d: %.150s", where.line,
                        where.column, where.text);
    if (json_is_object(root)) {
        *out = root;
        return KVT_OK;
    }
    json_decref(root);
    return kvt_fail(err, KVT_ERR_FORMAT, "the body must be a JSON object");
}

/* ---- fields ----------------------------------------------------------------------------------------------------------- */

/* The value of a field; NULL where it is absent or null. */
static const json_t *field(const json_t *body, const char *name) {
    const json_t *value = json_object_get(body, name);
    return json_is_null(value) ? NULL : value;
}

static enum kvt_status read_number(double *out, const json_t *body, const char *name, double min, double max,
                                   struct kvt_error *err) {
    const json_t *value = field(body, name);
    if (!value) return KVT_OK;
    const double x = json_number_value(value);
    if (!json_is_number(value) || !(x >= min && x <= max))
        return kvt_fail(err, KVT_ERR_ARG, "'%s' must be a number from %g to %g", name, min, max);
    *out = x;
    return KVT_OK;
}

static enum kvt_status read_integer(int64_t *out, const json_t *body, const char *name, int64_t min, int64_t max,
                                    struct kvt_error *err) {
    const json_t *value = field(body, name);
    if (!value) return KVT_OK;
    const json_int_t x = json_integer_value(value);
    if (!json_is_integer(value) || x < min || x > max)
        return kvt_fail(err, KVT_ERR_ARG, "'%s' must be a whole number from %lld to %lld", name, (long long)min,
                        (long long)max);
    *out = x;
    return KVT_OK;
}

static enum kvt_status read_flag(bool *out, const json_t *body, const char *name, struct kvt_error *err) {
    const json_t *value = field(body, name);
    if (!value) return KVT_OK;
    if (!json_is_boolean(value)) return kvt_fail(err, KVT_ERR_ARG, "'%s' must be true or false", name);
    *out = json_is_true(value);
    return KVT_OK;
}

static enum kvt_status read_stops(struct kvt_stop_set *out, const json_t *body, struct kvt_error *err) {
    const json_t *value = field(body, "stop");
    if (!value) return KVT_OK;
    if (json_is_string(value)) return kvt_stop_add(out, json_string_value(value), err);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const char *text = json_string_value(json_array_get(value, i));
        if (!text) return kvt_fail(err, KVT_ERR_ARG, "'stop[%zu]' must be a text", i);
        KVT_TRY(kvt_stop_add(out, text, err));
    }
    return json_is_array(value) ? KVT_OK : kvt_fail(err, KVT_ERR_ARG, "'stop' must be a text or a list of texts");
}

/* ---- what is not here ------------------------------------------------------------------------------------------------- */

static bool asks_nothing(const json_t *value) {
    const bool zero = json_is_number(value) && json_number_value(value) == 0;
    const bool empty = (json_is_array(value) && json_array_size(value) == 0) ||
                       (json_is_object(value) && json_object_size(value) == 0) ||
                       (json_is_string(value) && json_string_length(value) == 0);
    return !value || json_is_false(value) || zero || empty;
}

static bool is_text(const json_t *value, const char *text) {
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

/* Fields of OpenAI's interface that would change the answer and that are not honoured here. */
static enum kvt_status refuse_others(const json_t *body, struct kvt_error *err) {
    static const char *const refused[] = {
        "tools", "functions",          "logit_bias", "frequency_penalty",  "presence_penalty", "suffix",
        "echo",  "repetition_penalty", "audio",      "web_search_options", "prediction"};
    for (size_t i = 0; i < KVT_ARRAY_LEN(refused); i++)
        if (!asks_nothing(field(body, refused[i])))
            return kvt_fail(err, KVT_ERR_UNSUPPORTED, "'%s' is not supported by this server; leave it out", refused[i]);
    static const char *const one[] = {"n", "best_of"};
    for (size_t i = 0; i < KVT_ARRAY_LEN(one); i++) {
        const json_t *value = field(body, one[i]);
        if (value && !(json_is_integer(value) && json_integer_value(value) == 1))
            return kvt_fail(err, KVT_ERR_UNSUPPORTED, "'%s' must be 1: send a request for each answer", one[i]);
    }
    const json_t *format = field(body, "response_format");
    if (format && !is_text(json_object_get(format, "type"), "text"))
        return kvt_fail(err, KVT_ERR_UNSUPPORTED, "'response_format' other than {\"type\": \"text\"} is not supported");
    const json_t *kinds = field(body, "modalities");
    if (kinds && !(json_array_size(kinds) == 1 && is_text(json_array_get(kinds, 0), "text")))
        return kvt_fail(err, KVT_ERR_UNSUPPORTED, "'modalities' other than [\"text\"] are not supported");
    return KVT_OK;
}

/* ---- requests --------------------------------------------------------------------------------------------------------- */

static uint64_t random_seed(void) {
    uint64_t seed = 0;
    if (getentropy(&seed, sizeof seed) != 0) seed = (uint64_t)(kvt_clock_seconds() * 1e9);
    return seed;
}

/* OpenAI's defaults, not run's: a client that says nothing expects temperature 1 and no cut. */
static enum kvt_status read_sampling(struct kvt_sample_options *out, const json_t *body, struct kvt_error *err) {
    double temp = 1, top_p = 1, min_p = 0;
    int64_t top_k = 0, seed = 0;
    KVT_TRY(read_number(&temp, body, "temperature", 0, 100, err));
    KVT_TRY(read_number(&top_p, body, "top_p", 0, 1, err));
    KVT_TRY(read_number(&min_p, body, "min_p", 0, 1, err));
    KVT_TRY(read_integer(&top_k, body, "top_k", -1, 1 << 30, err));
    KVT_TRY(read_integer(&seed, body, "seed", INT64_MIN, INT64_MAX, err));
    if ((float)top_p == 0) { /* no probability is left but of the likeliest */
        top_p = 1;
        top_k = 1;
    }
    *out = (struct kvt_sample_options){(float)temp, (int)KVT_MAX(top_k, 0), (float)top_p, (float)min_p,
                                       field(body, "seed") ? (uint64_t)seed : random_seed()};
    return KVT_OK;
}

/* logprobs is a number for completions, and a flag with a number beside it for chat. */
static enum kvt_status read_logprobs(struct kvt_ask *ask, const json_t *body, bool chat, struct kvt_error *err) {
    int64_t n_top = 0;
    if (chat) {
        KVT_TRY(read_flag(&ask->logprobs, body, "logprobs", err));
        KVT_TRY(read_integer(&n_top, body, "top_logprobs", 0, KVT_TOP_MAX, err));
        if (n_top > 0 && !ask->logprobs)
            return kvt_fail(err, KVT_ERR_ARG, "'top_logprobs' needs 'logprobs' to be true");
    } else {
        ask->logprobs = field(body, "logprobs") && !json_is_false(field(body, "logprobs"));
        if (ask->logprobs) KVT_TRY(read_integer(&n_top, body, "logprobs", 0, KVT_TOP_MAX, err));
    }
    ask->n_top = (int)n_top;
    return KVT_OK;
}

static enum kvt_status read_length(struct kvt_ask *ask, const struct kvt_ask_rules *rules, const json_t *body,
                                   bool chat, struct kvt_error *err) {
    const int64_t n_prompt = (int64_t)ask->prompt.len, room = rules->n_ctx - n_prompt;
    const int most = rules->options->max_tokens;
    if (n_prompt == 0) return kvt_fail(err, KVT_ERR_ARG, "the prompt is empty");
    if (room < 1)
        return kvt_fail(err, KVT_ERR_RANGE,
                        "the prompt has %lld tokens, the context holds %d with at least one of the answer",
                        (long long)n_prompt, rules->n_ctx);
    int64_t n = chat ? room : KVT_MIN(room, COMPLETION_TOKENS);
    if (most > 0) n = KVT_MIN(n, most);
    KVT_TRY(read_integer(&n, body, "max_tokens", 1, INT32_MAX, err));
    KVT_TRY(read_integer(&n, body, "max_completion_tokens", 1, INT32_MAX, err));
    if (most > 0 && n > most)
        return kvt_fail(err, KVT_ERR_ARG, "'max_tokens' is %lld; this server gives at most %d", (long long)n, most);
    if (n > room && field(body, "max_tokens"))
        return kvt_fail(err, KVT_ERR_RANGE,
                        "'max_tokens' is %lld and the prompt has %lld tokens; the context holds %d together",
                        (long long)n, (long long)n_prompt, rules->n_ctx);
    ask->max_tokens = (int)KVT_MIN(n, room);
    return KVT_OK;
}

static enum kvt_status read_prompt(struct kvt_ask *ask, const struct kvt_ask_rules *rules, const json_t *body,
                                   bool chat, struct kvt_error *err) {
    const char *name = chat ? "messages" : "prompt";
    const json_t *value = field(body, name);
    if (!value) return kvt_fail(err, KVT_ERR_ARG, "'%s' is missing", name);
    return chat ? kvt_prompt_of_messages(&ask->prompt, rules, value, err)
                : kvt_prompt_of_value(&ask->prompt, rules, name, value, true, err);
}

enum kvt_status kvt_ask_read(struct kvt_ask *ask, const struct kvt_ask_rules *rules, const json_t *body, bool chat,
                             struct kvt_error *err) {
    ask->chat = chat;
    ask->reuse = true;
    KVT_TRY(refuse_others(body, err));
    KVT_TRY(read_flag(&ask->stream, body, "stream", err));
    const json_t *stream_options = field(body, "stream_options");
    if (stream_options) KVT_TRY(read_flag(&ask->stream_usage, stream_options, "include_usage", err));
    KVT_TRY(read_flag(&ask->reuse, body, "cache_prompt", err));
    KVT_TRY(read_flag(&ask->ignores_end, body, "ignore_eos", err));
    KVT_TRY(read_sampling(&ask->sample, body, err));
    KVT_TRY(read_logprobs(ask, body, chat, err));
    KVT_TRY(read_stops(&ask->stops, body, err));
    KVT_TRY(read_prompt(ask, rules, body, chat, err));
    return read_length(ask, rules, body, chat, err);
}

enum kvt_status kvt_ask_tokenize(struct kvt_ids *out, const struct kvt_ask_rules *rules, const json_t *body,
                                 struct kvt_error *err) {
    bool add_special = true;
    KVT_TRY(read_flag(&add_special, body, "add_special", err));
    if (field(body, "messages")) return kvt_prompt_of_messages(out, rules, field(body, "messages"), err);
    static const char *const names[] = {"content", "prompt"};
    for (size_t i = 0; i < KVT_ARRAY_LEN(names); i++) {
        const json_t *value = field(body, names[i]);
        if (!value) continue;
        if (json_is_string(value) && json_string_length(value) == 0) return KVT_OK;
        return kvt_prompt_of_value(out, rules, names[i], value, add_special, err);
    }
    return kvt_fail(err, KVT_ERR_ARG, "'content' is missing: the text to tokenize (or 'messages')");
}
