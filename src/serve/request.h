/* SPDX-License-Identifier: Apache-2.0
 *
 * A request: what is asked, and the answer as it grows. The connection's thread and the scheduler hold it by a count; what is asked
 * does not change once it is submitted, the answer is guarded by its lock.
 */
#ifndef SERVE_REQUEST_H
#define SERVE_REQUEST_H

#include <pthread.h>
#include <stdatomic.h>

#include "model/model.h"
#include "serve/stop.h"

enum { KVT_TOP_MAX = 20, KVT_REQUEST_ID_MAX = 40 };

enum kvt_request_state { KVT_REQUEST_WAITS, KVT_REQUEST_RUNS, KVT_REQUEST_ENDED };

/* What is asked. */
struct kvt_ask {
    bool chat, stream, stream_usage;
    struct kvt_ids prompt;
    int max_tokens;
    struct kvt_sample_options sample;
    bool logprobs;
    int n_top; /* likeliest tokens that are told beside each */
    struct kvt_stop_set stops;
    bool reuse;       /* may begin with a kept prefix */
    bool ignores_end; /* goes on after an end token */
};

/* One token of the answer, where logprobs were asked for. */
struct kvt_token_note {
    int32_t id;
    float logprob;
    size_t at; /* bytes of the answer before it */
    int n_top;
    struct {
        int32_t id;
        float logprob;
    } top[KVT_TOP_MAX];
};

struct kvt_request {
    struct kvt_ask ask;
    char id[KVT_REQUEST_ID_MAX];
    int64_t created;          /* seconds since 1970 */
    double arrived;           /* kvt_clock_seconds */
    _Atomic bool gone;        /* the client is: nobody waits for the answer */
    struct kvt_request *next; /* in the queue; the scheduler's */

    _Atomic int n_holders;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock. Text is well-formed UTF-8; what may still become part of a stop string is not shown. */
    enum kvt_request_state state;
    struct kvt_buf text;
    size_t n_shown;
    struct kvt_buf notes; /* struct kvt_token_note */
    int n_cached, n_generated;
    const char *finish; /* "stop", "length"; NULL: it failed */
    enum kvt_status status;
    struct kvt_error err;
    double started, first; /* clock when it left the queue, and at its first token */
};

/* Held once. NULL: no memory. */
struct kvt_request *kvt_request_create(void);
struct kvt_request *kvt_request_hold(struct kvt_request *request);
void kvt_request_drop(struct kvt_request *request); /* NULL is fine */

/* The scheduler's side. */
void kvt_request_begin(struct kvt_request *request, int n_cached);
/* Adds what a token gives, note or NULL. *out_stopped: a stop string is in the text, which now ends before it. */
KVT_MUST_CHECK enum kvt_status kvt_request_add(struct kvt_request *request, const char *bytes, size_t n,
                                               const struct kvt_token_note *note, bool *out_stopped);
void kvt_request_end(struct kvt_request *request, const char *finish);
void kvt_request_fail(struct kvt_request *request, enum kvt_status status, const char *sentence);

/* The connection's side. Waits, `seconds` at most, until there is more than has been seen or the end; true if there is. */
bool kvt_request_wait(struct kvt_request *request, size_t n_seen, size_t n_notes_seen, double seconds);
/* Of the notes, those whose text can be shown by now. Under the lock. */
size_t kvt_request_n_notes(const struct kvt_request *request);

#endif
