/* SPDX-License-Identifier: Apache-2.0
 * Answers as OpenAI's interface has them. */
#include "serve/reply.h"

#include <string.h>

#include "base/check.h"
#include "json/json.h"
#include "serve/slot.h"

enum { TOKEN_TEXT_MAX = 1 << 16 };

static int add_bytes(const char *data, size_t len, void *out) { return kvt_buf_add(out, data, len) == KVT_OK ? 0 : -1; }

enum kvt_status kvt_reply_dump(struct kvt_buf *out, json_t *root) {
    const bool failed = !root || json_dump_callback(root, add_bytes, out, JSON_COMPACT | JSON_REAL_PRECISION(9)) != 0;
    json_decref(root);
    return failed ? KVT_ERR_NOMEM : KVT_OK;
}

/* ---- errors ----------------------------------------------------------------------------------------------------------- */

/* What each status means to a client; the last row is all others. */
static const struct row {
    enum kvt_status status;
    int http;
    const char *type, *code;
} rows[] = {
    {KVT_ERR_ARG, 400, "invalid_request_error", "invalid_value"},
    {KVT_ERR_FORMAT, 400, "invalid_request_error", "invalid_json"},
    {KVT_ERR_RANGE, 400, "invalid_request_error", "context_length_exceeded"},
    {KVT_ERR_UNSUPPORTED, 400, "invalid_request_error", "unsupported_value"},
    {KVT_ERR_NOTFOUND, 404, "invalid_request_error", "not_found"},
    {KVT_ERR_LIMIT, 503, "overloaded_error", "queue_full"},
    {KVT_ERR_STATE, 503, "overloaded_error", "stopping"},
    {KVT_ERR_CANCELLED, 504, "timeout_error", "time_limit"},
    {KVT_ERR_NOMEM, 503, "overloaded_error", "out_of_memory"},
    {KVT_OK, 500, "server_error", "internal_error"},
};

static const struct row *row_of(enum kvt_status status) {
    const struct row *row = rows;
    while (row->status != KVT_OK && row->status != status) row++;
    return row;
}

int kvt_reply_http_status(enum kvt_status status) { return row_of(status)->http; }

json_t *kvt_reply_error(enum kvt_status status, const char *sentence) {
    const struct row *row = row_of(status);
    return json_pack("{s:{s:o, s:s, s:n, s:s}}", "error", "message", kvt_json_text(sentence), "type", row->type,
                     "param", "code", row->code);
}

/* ---- log probabilities ------------------------------------------------------------------------------------------------ */

/* A token's text and bytes into one object; what is not UTF-8 by itself is replaced in the text. */
static json_t *token_object(const struct kvt_text *text, int32_t id, float logprob) {
    struct kvt_buf bytes, clean;
    kvt_buf_init(&bytes, NULL, TOKEN_TEXT_MAX);
    kvt_buf_init(&clean, NULL, TOKEN_TEXT_MAX);
    json_t *list = json_array(), *object = NULL;
    if (kvt_text_decode(text, id, true, &bytes) == KVT_OK &&
        kvt_add_well_formed(&clean, kvt_buf_text(&bytes), bytes.len) == KVT_OK) {
        for (size_t i = 0; i < bytes.len; i++)
            json_array_append_new(list, json_integer((unsigned char)kvt_buf_text(&bytes)[i]));
        object = json_pack("{s:s#, s:o, s:O}", "token", kvt_buf_text(&clean), clean.len, "logprob",
                           kvt_json_number((double)logprob), "bytes", list);
    }
    json_decref(list);
    kvt_buf_finish(&clean);
    kvt_buf_finish(&bytes);
    return object;
}

static json_t *chat_logprobs(const struct kvt_text *text, const struct kvt_token_note *notes, size_t n) {
    json_t *content = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *object = token_object(text, notes[i].id, notes[i].logprob), *top = json_array();
        for (int k = 0; k < notes[i].n_top; k++)
            json_array_append_new(top, token_object(text, notes[i].top[k].id, notes[i].top[k].logprob));
        json_object_set_new(object, "top_logprobs", top);
        json_array_append_new(content, object);
    }
    return json_pack("{s:o}", "content", content);
}

/* Characters of the first n bytes of a well-formed text. */
static json_int_t n_characters(const char *text, size_t n) {
    json_int_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

static json_t *completion_logprobs(const struct kvt_request *r, const struct kvt_text *text,
                                   const struct kvt_token_note *notes, size_t n) {
    json_t *tokens = json_array(), *values = json_array(), *tops = json_array(), *offsets = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *object = token_object(text, notes[i].id, notes[i].logprob), *top = json_object();
        json_array_append(tokens, json_object_get(object, "token"));
        json_array_append(values, json_object_get(object, "logprob"));
        json_decref(object);
        for (int k = notes[i].n_top - 1; k >= 0; k--) { /* of tokens with the same text the likeliest stays */
            json_t *other = token_object(text, notes[i].top[k].id, notes[i].top[k].logprob);
            const char *name = json_string_value(json_object_get(other, "token"));
            if (name) json_object_set(top, name, json_object_get(other, "logprob"));
            json_decref(other);
        }
        json_array_append_new(tops, top);
        json_array_append_new(offsets, json_integer(n_characters(kvt_buf_text(&r->text), notes[i].at)));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", values, "top_logprobs", tops,
                     "text_offset", offsets);
}

/* Of notes [first, first + n); null where none were asked for. */
static json_t *logprobs(const struct kvt_request *r, const struct kvt_text *text, size_t first, size_t n) {
    if (!r->ask.logprobs) return json_null();
    const struct kvt_token_note *notes = (const void *)r->notes.data;
    if (n > 0) notes += first;
    return r->ask.chat ? chat_logprobs(text, notes, n) : completion_logprobs(r, text, notes, n);
}

/* ---- answers ---------------------------------------------------------------------------------------------------------- */

static json_t *usage(const struct kvt_request *r) {
    const json_int_t n_prompt = (json_int_t)r->ask.prompt.len;
    return json_pack("{s:I, s:i, s:I, s:{s:i}}", "prompt_tokens", n_prompt, "completion_tokens", r->n_generated,
                     "total_tokens", n_prompt + r->n_generated, "prompt_tokens_details", "cached_tokens", r->n_cached);
}

json_t *kvt_reply_whole(struct kvt_request *r, const char *model, const struct kvt_text *text) {
    pthread_mutex_lock(&r->lock);
    json_t *said = json_stringn(kvt_buf_text(&r->text), r->text.len);
    json_t *probs = logprobs(r, text, 0, kvt_request_n_notes(r));
    json_t *choice = r->ask.chat
                         ? json_pack("{s:i, s:{s:s, s:o, s:n}, s:o, s:s}", "index", 0, "message", "role", "assistant",
                                     "content", said, "refusal", "logprobs", probs, "finish_reason", r->finish)
                         : json_pack("{s:i, s:o, s:o, s:s}", "index", 0, "text", said, "logprobs", probs,
                                     "finish_reason", r->finish);
    json_t *root = json_pack("{s:s, s:s, s:I, s:o, s:[o], s:o}", "id", r->id, "object",
                             r->ask.chat ? "chat.completion" : "text_completion", "created", (json_int_t)r->created,
                             "model", kvt_json_text(model), "choices", choice, "usage", usage(r));
    pthread_mutex_unlock(&r->lock);
    return root;
}

/* One event: choices (NULL: none) and, where it is the last of a stream that asked for it, the usage. */
static enum kvt_status add_event(const struct kvt_reply_stream *s, json_t *choice, bool last, struct kvt_buf *out) {
    const struct kvt_request *r = s->request;
    json_t *root = json_pack("{s:s, s:s, s:I, s:o, s:[]}", "id", r->id, "object",
                             r->ask.chat ? "chat.completion.chunk" : "text_completion", "created",
                             (json_int_t)r->created, "model", kvt_json_text(s->model), "choices");
    if (choice) json_array_append_new(json_object_get(root, "choices"), choice);
    if (r->ask.stream_usage) json_object_set_new(root, "usage", last ? usage(r) : json_null());
    KVT_TRY(kvt_buf_addf(out, "data: "));
    KVT_TRY(kvt_reply_dump(out, root));
    return kvt_buf_addf(out, "\n\n");
}

/* A piece of the answer: its new text and notes. */
static json_t *piece(const struct kvt_reply_stream *s, size_t n_notes) {
    const struct kvt_request *r = s->request;
    json_t *said = json_stringn(kvt_buf_text(&r->text) + s->n_seen, r->n_shown - s->n_seen);
    json_t *probs =
        n_notes > s->n_notes_seen ? logprobs(r, s->text, s->n_notes_seen, n_notes - s->n_notes_seen) : json_null();
    return r->ask.chat
               ? json_pack("{s:i, s:{s:o}, s:o, s:n}", "index", 0, "delta", "content", said, "logprobs", probs,
                           "finish_reason")
               : json_pack("{s:i, s:o, s:o, s:n}", "index", 0, "text", said, "logprobs", probs, "finish_reason");
}

static enum kvt_status add_end(struct kvt_reply_stream *s, struct kvt_buf *out) {
    const struct kvt_request *r = s->request;
    s->ended = true;
    if (!r->finish) {
        KVT_TRY(kvt_buf_addf(out, "data: "));
        KVT_TRY(kvt_reply_dump(out, kvt_reply_error(r->status, r->err.text)));
        return kvt_buf_addf(out, "\n\n");
    }
    json_t *choice =
        r->ask.chat ? json_pack("{s:i, s:{}, s:n, s:s}", "index", 0, "delta", "logprobs", "finish_reason", r->finish)
                    : json_pack("{s:i, s:s, s:n, s:s}", "index", 0, "text", "", "logprobs", "finish_reason", r->finish);
    KVT_TRY(add_event(s, choice, false, out));
    if (r->ask.stream_usage) KVT_TRY(add_event(s, NULL, true, out));
    return kvt_buf_addf(out, "data: [DONE]\n\n");
}

enum kvt_status kvt_reply_next(struct kvt_reply_stream *s, double seconds, struct kvt_buf *out) {
    struct kvt_request *r = s->request;
    const bool more = kvt_request_wait(r, s->n_seen, s->n_notes_seen, seconds);
    enum kvt_status status = KVT_OK;
    pthread_mutex_lock(&r->lock);
    if (!s->begun && r->ask.chat && more) {
        json_t *choice = json_pack("{s:i, s:{s:s, s:s}, s:n, s:n}", "index", 0, "delta", "role", "assistant", "content",
                                   "", "logprobs", "finish_reason");
        status = add_event(s, choice, false, out);
        s->begun = true;
    }
    const size_t n_notes = kvt_request_n_notes(r);
    if (status == KVT_OK && (r->n_shown > s->n_seen || n_notes > s->n_notes_seen)) {
        status = add_event(s, piece(s, n_notes), false, out);
        s->n_seen = r->n_shown;
        s->n_notes_seen = n_notes;
    }
    if (status == KVT_OK && r->state == KVT_REQUEST_ENDED) status = add_end(s, out);
    pthread_mutex_unlock(&r->lock);
    return status;
}
