/* SPDX-License-Identifier: Apache-2.0
 *
 * Door of serve: a model behind HTTP, as OpenAI's interface has it.
 *
 *   HTTP threads (one a connection): read, check, tokenize --> queue --> one scheduler thread that owns the runner: every pass has a
 *   token of each answer that is being written and a piece of the prompts that wait --> text, back to the connection's thread
 *
 * Nothing here prints: what there is to say goes to the log's callback.
 */
#ifndef SERVE_SERVE_H
#define SERVE_SERVE_H

#include "model/model.h"

/* Called from any of the server's threads, one at a time; a line without its end. */
struct kvt_serve_log {
    void (*line)(void *ctx, const char *text);
    void *ctx;
};

struct kvt_serve_options {
    const char *name;                     /* of the model, in answers; NULL: the file's own */
    const struct kvt_chat_template *chat; /* NULL: no chat; /v1/chat/completions says so */
    const char *chat_source;              /* as kvt_chat_format takes it */
    const char *host;                     /* a numeric address, or "localhost"; NULL: 127.0.0.1 */
    int port;                             /* 0: any that is free */
    const char *api_key;                  /* NULL: none is asked for */
    int n_parallel;                       /* answers at once */
    int n_queue;                          /* requests that may wait beside them */
    int n_connections;                    /* at once */
    int chunk;                            /* tokens of prompts in one pass */
    int max_tokens;                       /* of an answer at most; 0: what the context holds */
    size_t body_bytes;                    /* of a request at most */
    double seconds;                       /* a request may take, waiting included; 0: any */
    bool exact;                           /* only prefixes that change no bit of the answer (keeper.h) */
    const char *prompt_cache; /* a session's file (kvt_session_save) that is a kept prefix from the start; NULL: none */
    const char *kv_dir;       /* prefixes are kept there over restarts; NULL: nowhere */
    uint64_t kv_dir_bytes;    /* of the files there at most */
    const char *kv_why;       /* why this cache was chosen, where it was not named; NULL or empty: it was */
    const char *fidelity;     /* a report of kvtile fidelity --json; NULL: none */
    const struct kvt_session_options *sessions; /* the cache; n_batch, n_keep and tap are the server's own */
    struct kvt_serve_log log;
};

/* A server that runs. */
struct kvt_server;

/* Starts it; options' strings and the model must outlive it. UNSUPPORTED where the program was built without libmicrohttpd; IO where
 * the address cannot be had; else what kvt_runner_create says. */
KVT_MUST_CHECK enum kvt_status kvt_server_start(struct kvt_server **out, const struct kvt_model *model,
                                                const struct kvt_serve_options *options, struct kvt_error *err);
const char *kvt_server_address(const struct kvt_server *server); /* "http://127.0.0.1:8080" */
const struct kvt_plan *kvt_server_plan(const struct kvt_server *server);
/* Requests that run or wait. */
int kvt_server_n_busy(const struct kvt_server *server);
/* Refuses new requests and those that wait from now on, and gives those that run `seconds` to end; then they are ended. */
void kvt_server_stop(struct kvt_server *server, double seconds);
/* Stops it if that was not done, writes prefixes to kv_dir, ends all threads. NULL is fine. */
void kvt_server_destroy(struct kvt_server *server);
bool kvt_serve_has_http(void); /* whether it was built with libmicrohttpd */

#endif
