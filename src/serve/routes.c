/* SPDX-License-Identifier: Apache-2.0
 * The table of routes, and the answers of those that run a model. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "serve/ask.h"
#include "serve/server.h"

/* `under`: also for every path that goes on after it. `open`: without the API key. */
static const struct route {
    const char *method, *path;
    bool under, open;
    void (*run)(struct kvt_server *server, struct kvt_call *call);
} routes[] = {
    {"POST", "/v1/chat/completions", false, false, kvt_serve_chat},
    {"POST", "/v1/completions", false, false, kvt_serve_completions},
    {"GET", "/v1/models", false, false, kvt_serve_models},
    {"GET", "/v1/models/", true, false, kvt_serve_model},
    {"POST", "/tokenize", false, false, kvt_serve_tokenize},
    {"GET", "/health", false, true, kvt_serve_health},
    {"GET", "/metrics", false, false, kvt_serve_metrics},
    {"GET", "/cache", false, false, kvt_serve_cache},
    {"GET", "/fidelity", false, false, kvt_serve_fidelity},
    {"GET", "/", false, true, kvt_serve_page},
    {"GET", "/page/", true, true, kvt_serve_page},
};

static bool is_on(const struct route *route, const char *path) {
    return route->under ? strncmp(path, route->path, strlen(route->path)) == 0 : strcmp(path, route->path) == 0;
}

bool kvt_server_path_is_open(const char *path) {
    for (size_t i = 0; i < KVT_ARRAY_LEN(routes); i++)
        if (is_on(&routes[i], path)) return routes[i].open;
    return false;
}

void kvt_call_reply(struct kvt_call *call, json_t *root) {
    call->type = "application/json";
    call->reply.len = 0;
    if (kvt_reply_dump(&call->reply, root) == KVT_OK && kvt_buf_add(&call->reply, "\n", 1) == KVT_OK) return;
    call->http_status = 500;
    call->fixed =
        "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\",\"param\":null,\"code\":\"out_of_memory\"}}\n";
    call->fixed_len = strlen(call->fixed);
}

void kvt_call_fail(struct kvt_call *call, enum kvt_status status, const char *sentence) {
    call->http_status = kvt_reply_http_status(status);
    kvt_call_reply(call, kvt_reply_error(status, sentence));
}

void kvt_server_call(struct kvt_server *server, struct kvt_call *call) {
    const bool head = strcmp(call->method, "HEAD") == 0;
    call->http_status = 200;
    for (size_t i = 0; i < KVT_ARRAY_LEN(routes); i++) {
        if (!is_on(&routes[i], call->path)) continue;
        if (strcmp(call->method, routes[i].method) == 0 || (head && strcmp(routes[i].method, "GET") == 0)) {
            routes[i].run(server, call);
            return;
        }
        call->allow = routes[i].method;
    }
    struct kvt_error err;
    if (call->allow)
        kvt_fail(&err, KVT_ERR_NOTFOUND, "%.100s takes %s, not %.20s", call->path, call->allow, call->method);
    else
        kvt_fail(&err, KVT_ERR_NOTFOUND,
                 "there is no %.100s here; /v1/models, /v1/completions and /v1/chat/completions are", call->path);
    kvt_call_fail(call, err.code, err.text);
    if (call->allow) call->http_status = 405;
}

/* ---- completions ------------------------------------------------------------------------------------------------------ */

static struct kvt_ask_rules rules_of(const struct kvt_server *server) {
    return (struct kvt_ask_rules){server->model, &server->options, kvt_scheduler_n_ctx(server->scheduler)};
}

static enum kvt_status read_request(struct kvt_server *server, const struct kvt_call *call, bool chat,
                                    struct kvt_request *request, struct kvt_error *err) {
    const struct kvt_ask_rules rules = rules_of(server);
    json_t *body = NULL;
    KVT_TRY(kvt_ask_parse(&body, call->body, call->body_len, err));
    const enum kvt_status status = kvt_ask_read(&request->ask, &rules, body, chat, err);
    json_decref(body);
    snprintf(request->id, sizeof request->id, "%s-%08" PRIx64 "%08" PRIx64, chat ? "chatcmpl" : "cmpl",
             (uint64_t)server->created, atomic_fetch_add(&server->n_requests, 1));
    return status;
}

static void log_end(struct kvt_server *server, const struct kvt_request *r, const char *how) {
    const double now = kvt_clock_seconds();
    const double rate = r->n_generated > 1 && r->first > 0 ? (r->n_generated - 1) / (now - r->first) : 0;
    kvt_server_log(server, "%s: %s; %zu tokens of prompt, %d of them kept, %d written in %.2f s, %.1f tokens/s", r->id,
                   how, r->ask.prompt.len, r->n_cached, r->n_generated, now - r->arrived, rate);
}

/* Waits for the whole answer; false: the client is gone. */
static bool wait_for(const struct kvt_call *call, struct kvt_request *request) {
    while (!kvt_request_wait(request, SIZE_MAX, SIZE_MAX, 0.2)) {
        if (!call->is_gone || !call->is_gone(call->ctx)) continue;
        atomic_store(&request->gone, true);
        return false;
    }
    return true;
}

static void complete(struct kvt_server *server, struct kvt_call *call, bool chat) {
    struct kvt_error err = {0};
    struct kvt_request *request = kvt_request_create();
    if (!request) {
        kvt_call_fail(call, KVT_ERR_NOMEM, "no memory for the request");
        return;
    }
    enum kvt_status status = read_request(server, call, chat, request, &err);
    if (status != KVT_OK)
        kvt_scheduler_refused(server->scheduler);
    else
        status = kvt_scheduler_submit(server->scheduler, request, &err);
    if (status != KVT_OK) {
        kvt_call_fail(call, status, err.text);
    } else if (request->ask.stream) {
        call->type = "text/event-stream";
        call->stream = kvt_request_hold(request);
    } else if (!wait_for(call, request)) {
        call->http_status = 499;
    } else if (request->status != KVT_OK) {
        log_end(server, request, request->err.text);
        kvt_call_fail(call, request->status, request->err.text);
    } else {
        log_end(server, request, request->finish);
        kvt_call_reply(call, kvt_reply_whole(request, server->name, kvt_model_text(server->model)));
    }
    kvt_request_drop(request);
}

void kvt_serve_completions(struct kvt_server *server, struct kvt_call *call) { complete(server, call, false); }
void kvt_serve_chat(struct kvt_server *server, struct kvt_call *call) { complete(server, call, true); }

void kvt_serve_tokenize(struct kvt_server *server, struct kvt_call *call) {
    const struct kvt_ask_rules rules = rules_of(server);
    struct kvt_error err = {0};
    struct kvt_ids ids;
    json_t *body = NULL;
    kvt_ids_init(&ids, NULL);
    enum kvt_status status = kvt_ask_parse(&body, call->body, call->body_len, &err);
    if (status == KVT_OK) status = kvt_ask_tokenize(&ids, &rules, body, &err);
    json_decref(body);
    if (status != KVT_OK) {
        kvt_call_fail(call, status, err.text);
    } else {
        json_t *tokens = json_array();
        for (size_t i = 0; i < ids.len; i++) json_array_append_new(tokens, json_integer(ids.data[i]));
        kvt_call_reply(call, json_pack("{s:o, s:I, s:i}", "tokens", tokens, "count", (json_int_t)ids.len,
                                       "max_model_len", rules.n_ctx));
    }
    kvt_ids_finish(&ids);
}
