/* SPDX-License-Identifier: Apache-2.0
 * From a body of JSON to what is asked. */
#ifndef SERVE_ASK_H
#define SERVE_ASK_H

#include <jansson.h>

#include "serve/request.h"
#include "serve/serve.h"

/* What a body is read against. */
struct kvt_ask_rules {
    const struct kvt_model *model;
    const struct kvt_serve_options *options;
    int n_ctx;
};

/* Reads a body as a JSON object; the caller drops it. FORMAT with where it breaks. */
KVT_MUST_CHECK enum kvt_status kvt_ask_parse(json_t **out, const char *data, size_t len, struct kvt_error *err);

/* The body of /v1/completions or, `chat`, of /v1/chat/completions. ARG names the field; RANGE: the prompt does not fit the context;
 * UNSUPPORTED: something of OpenAI's interface that is not here is asked for. */
KVT_MUST_CHECK enum kvt_status kvt_ask_read(struct kvt_ask *ask, const struct kvt_ask_rules *rules, const json_t *body,
                                            bool chat, struct kvt_error *err);
/* The body of /tokenize: "content" or "prompt", or "messages". */
KVT_MUST_CHECK enum kvt_status kvt_ask_tokenize(struct kvt_ids *out, const struct kvt_ask_rules *rules,
                                                const json_t *body, struct kvt_error *err);

/* The tokens of messages in the model's template (prompt.c). */
KVT_MUST_CHECK enum kvt_status kvt_prompt_of_messages(struct kvt_ids *out, const struct kvt_ask_rules *rules,
                                                      const json_t *messages, struct kvt_error *err);
/* The tokens of a text, or tokens as they are, or a list of one of either. */
KVT_MUST_CHECK enum kvt_status kvt_prompt_of_value(struct kvt_ids *out, const struct kvt_ask_rules *rules,
                                                   const char *field, const json_t *value, bool add_bos,
                                                   struct kvt_error *err);

#endif
