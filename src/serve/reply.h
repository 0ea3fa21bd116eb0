/* SPDX-License-Identifier: Apache-2.0
 * From an answer to JSON: whole, in events as it comes, and as an error. */
#ifndef SERVE_REPLY_H
#define SERVE_REPLY_H

#include <jansson.h>

#include "serve/request.h"

/* Appends a tree without blanks and gives it back. NOMEM also where it is NULL. */
KVT_MUST_CHECK enum kvt_status kvt_reply_dump(struct kvt_buf *out, json_t *root);

/* The HTTP status of a failure, and its object as OpenAI has it. */
int kvt_reply_http_status(enum kvt_status status);
json_t *kvt_reply_error(enum kvt_status status, const char *sentence);

/* The object of a whole answer; the request has ended well. */
json_t *kvt_reply_whole(struct kvt_request *request, const char *model, const struct kvt_text *text);

/* An answer as server-sent events. */
struct kvt_reply_stream {
    struct kvt_request *request; /* held */
    const char *model;
    const struct kvt_text *text;
    size_t n_seen, n_notes_seen;
    bool begun, ended;
};
/* Appends what has come since, after waiting `seconds` at most for it; nothing if nothing came. Once `ended`, all was said. */
KVT_MUST_CHECK enum kvt_status kvt_reply_next(struct kvt_reply_stream *stream, double seconds, struct kvt_buf *out);

#endif
