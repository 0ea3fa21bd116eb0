/* SPDX-License-Identifier: Apache-2.0
 * Inside of serve: the server, and calls of its routes. Only http.c knows of sockets. */
#ifndef SERVE_SERVER_H
#define SERVE_SERVER_H

#include "serve/reply.h"
#include "serve/scheduler.h"

struct kvt_server {
    const struct kvt_model *model;
    const char *name;
    struct kvt_serve_options options; /* its log is one line at a time */
    struct kvt_serve_log log;         /* the caller's */
    pthread_mutex_t log_lock;
    struct kvt_scheduler *scheduler;
    json_t *figures;      /* of /fidelity; NULL: none */
    struct kvt_plan *f16; /* what figures are held against */
    int64_t created;
    double started;
    _Atomic uint64_t n_requests;            /* for ids */
    _Atomic int n_connections, n_exchanges; /* connections; requests of theirs whose answers are not sent yet */
    int port;
    char address[80];
    void *http;
};

/* A call: what came, and what goes back. */
struct kvt_call {
    const char *method, *path;
    const char *body;
    size_t body_len;
    bool (*is_gone)(void *ctx); /* whether the client is */
    void *ctx;

    int http_status;
    const char *type; /* of the content */
    struct kvt_buf reply;
    struct kvt_request *stream; /* held: the reply is its events */
    const char *fixed;          /* the reply, in static storage; NULL: `reply` */
    size_t fixed_len;
    const char *allow; /* methods that the path has, with 405 */
};

/* Answers a call by the table of routes. Blocks until the answer is there, if it is no stream. */
void kvt_server_call(struct kvt_server *server, struct kvt_call *call);
/* Whether a path is answered without an API key. */
bool kvt_server_path_is_open(const char *path);
/* Makes the reply an error object. */
void kvt_call_fail(struct kvt_call *call, enum kvt_status status, const char *sentence);
/* Makes the reply a tree, which is given back; NULL: memory is out. */
void kvt_call_reply(struct kvt_call *call, json_t *root);

void kvt_serve_completions(struct kvt_server *server, struct kvt_call *call);
void kvt_serve_chat(struct kvt_server *server, struct kvt_call *call);
void kvt_serve_tokenize(struct kvt_server *server, struct kvt_call *call);
void kvt_serve_health(struct kvt_server *server, struct kvt_call *call);
void kvt_serve_models(struct kvt_server *server, struct kvt_call *call);
void kvt_serve_model(struct kvt_server *server, struct kvt_call *call);
void kvt_serve_metrics(struct kvt_server *server, struct kvt_call *call);
void kvt_serve_cache(struct kvt_server *server, struct kvt_call *call);
void kvt_serve_fidelity(struct kvt_server *server, struct kvt_call *call);
void kvt_serve_page(struct kvt_server *server, struct kvt_call *call);

/* What the page shows of a report (figures.c); FORMAT where it is none. */
KVT_MUST_CHECK enum kvt_status kvt_figures_read(json_t **out, const char *report, struct kvt_error *err);

/* Sockets (http.c). */
KVT_MUST_CHECK enum kvt_status kvt_http_start(struct kvt_server *server, struct kvt_error *err);
void kvt_http_stop(struct kvt_server *server);

void kvt_server_log(struct kvt_server *server, const char *format, ...) KVT_PRINTF(2, 3);

#endif
