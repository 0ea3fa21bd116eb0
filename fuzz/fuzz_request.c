/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as the body of a request to serve: refused with a sentence, or read into something that the scheduler can take. The first
 * byte chooses the route: 'c' is /v1/completions, 'm' (messages) /v1/chat/completions, 't' /tokenize, and others fall to these.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/ask.h"
#include "serve/reply.h"
#include "support/make_model.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

enum { N_CTX = 96, MAX_TOKENS = 40, REPLY_MAX = 1 << 16 };

static void must(bool good) {
    if (!good) abort();
}

/* Bodies are read against a made model, whose tokens are bytes; 'chat' or not. */
static const struct kvt_ask_rules *rules_of(bool chat, bool limited) {
    static struct kvt_model *model;
    static struct kvt_serve_options options[2][2];
    static struct kvt_ask_rules rules[2][2];
    if (!model) {
        char file[256];
        must(kvt_made_file(file, sizeof file, kvt_made_find("llama-biased")) == KVT_OK);
        must(kvt_model_load(&model, file, NULL, NULL) == KVT_OK);
        remove(file);
    }
    options[chat][limited] = (struct kvt_serve_options){.chat = chat ? kvt_chat_find("chatml") : NULL,
                                                        .max_tokens = limited ? MAX_TOKENS : 0};
    rules[chat][limited] = (struct kvt_ask_rules){model, &options[chat][limited], N_CTX};
    return &rules[chat][limited];
}

static void check_ids(const struct kvt_ids *ids) {
    for (size_t i = 0; i < ids->len; i++) must(ids->data[i] >= 0 && ids->data[i] < KVT_MADE_N_VOCAB);
}

/* What the scheduler, the sampler and stop strings rely on. */
static void check_ask(const struct kvt_ask *ask, bool chat, int most) {
    const struct kvt_sample_options *s = &ask->sample;
    must(ask->chat == chat);
    check_ids(&ask->prompt);
    must(ask->prompt.len >= 1 && ask->max_tokens >= 1 && ask->prompt.len + (size_t)ask->max_tokens <= N_CTX);
    must(most == 0 || ask->max_tokens <= most);
    must(s->temp >= 0 && s->temp <= 100 && s->top_k >= 0 && s->top_p > 0 && s->top_p <= 1 && s->min_p >= 0 &&
         s->min_p <= 1);
    must(ask->n_top >= 0 && ask->n_top <= KVT_TOP_MAX && (ask->logprobs || ask->n_top == 0));
    must(ask->stops.n >= 0 && ask->stops.n <= KVT_STOPS_MAX);
    for (int i = 0; i < ask->stops.n; i++)
        must(ask->stops.texts[i][0] && strlen(ask->stops.texts[i]) <= KVT_STOP_BYTES_MAX);
}

/* An answer's text, byte by byte and whole, stops at the same place, and what is shown before is never taken back. */
static void check_stops(const struct kvt_stop_set *set, const char *text, size_t len) {
    size_t whole = 0, shown = 0, before = 0;
    bool stops = false;
    for (size_t n = 0; n < len && !stops; n++) {
        stops = kvt_stop_find(set, text, n + 1, n, &shown);
        must(shown >= before && shown <= n + 1);
        before = shown;
    }
    if (len > 0) must(kvt_stop_find(set, text, len, 0, &whole) == stops && whole <= shown);
}

/* A failure is the client's, has a sentence, and becomes JSON. */
static void check_failure(enum kvt_status status, const struct kvt_error *err) {
    struct kvt_buf reply;
    json_error_t where;
    must(status == KVT_ERR_ARG || status == KVT_ERR_FORMAT || status == KVT_ERR_RANGE || status == KVT_ERR_UNSUPPORTED);
    must(err->code == status && strlen(err->text) > 0 && kvt_reply_http_status(status) == 400);
    kvt_buf_init(&reply, NULL, REPLY_MAX);
    must(kvt_reply_dump(&reply, kvt_reply_error(status, err->text)) == KVT_OK);
    json_t *back = json_loadb(reply.data, reply.len, 0, &where);
    must(json_is_string(json_object_get(json_object_get(back, "error"), "message")));
    json_decref(back);
    kvt_buf_finish(&reply);
}

static void complete(const json_t *body, bool chat, bool limited, const char *text, size_t len) {
    struct kvt_ask ask = {.chat = !chat};
    struct kvt_error err = {KVT_OK, ""};
    kvt_ids_init(&ask.prompt, NULL);
    const enum kvt_status status = kvt_ask_read(&ask, rules_of(chat, limited), body, chat, &err);
    if (status != KVT_OK) {
        check_failure(status, &err);
    } else {
        check_ask(&ask, chat, limited ? MAX_TOKENS : 0);
        check_stops(&ask.stops, text, len);
    }
    kvt_ids_finish(&ask.prompt);
    kvt_stop_finish(&ask.stops);
}

static void tokenize(const json_t *body, bool chat) {
    struct kvt_ids ids;
    struct kvt_error err = {KVT_OK, ""};
    kvt_ids_init(&ids, NULL);
    const enum kvt_status status = kvt_ask_tokenize(&ids, rules_of(chat, false), body, &err);
    if (status != KVT_OK) check_failure(status, &err);
    check_ids(&ids);
    kvt_ids_finish(&ids);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    if (size == 0) return 0;
    const char *text = (const char *)data + 1;
    const bool odd = size & 1;
    struct kvt_error err = {KVT_OK, ""};
    json_t *body = NULL;
    const enum kvt_status status = kvt_ask_parse(&body, text, size - 1, &err);
    if (status != KVT_OK) {
        must(!body);
        check_failure(status, &err);
        return 0;
    }
    switch (data[0] % 3) {
    case 'c' % 3: complete(body, false, odd, text, size - 1); break;
    case 'm' % 3: complete(body, true, odd, text, size - 1); break;
    default: tokenize(body, odd); break;
    }
    json_decref(body);
    return 0;
}
