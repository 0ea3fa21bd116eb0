/* SPDX-License-Identifier: Apache-2.0
 * A server's life. */
#include "serve/server.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"

static void log_line(void *ctx, const char *text) {
    struct kvt_server *server = ctx;
    if (!server->log.line) return;
    pthread_mutex_lock(&server->log_lock);
    server->log.line(server->log.ctx, text);
    pthread_mutex_unlock(&server->log_lock);
}

void kvt_server_log(struct kvt_server *server, const char *format, ...) {
    char line[600];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    log_line(server, line);
}

static enum kvt_status check(const struct kvt_serve_options *o, struct kvt_error *err) {
    if (o->n_parallel < 1 || o->n_queue < 0 || o->n_connections < 1 || o->chunk < 1 || o->max_tokens < 0)
        return kvt_fail(err, KVT_ERR_ARG,
                        "a server needs room for an answer, a connection and a token of a prompt, not %d, %d and %d",
                        o->n_parallel, o->n_connections, o->chunk);
    if (o->api_key && !o->api_key[0]) return kvt_fail(err, KVT_ERR_ARG, "the API key is empty");
    return KVT_OK;
}

static enum kvt_status prepare(struct kvt_server *server, struct kvt_error *err) {
    if (server->options.fidelity) KVT_TRY(kvt_figures_read(&server->figures, server->options.fidelity, err));
    const struct kvt_shape shape = kvt_model_shape(server->model);
    const struct kvt_plan_options f16 = {.struct_size = sizeof f16, .kv = "f16"};
    KVT_TRY(kvt_plan_create(&server->f16, &shape, &f16, NULL, err));
    return kvt_scheduler_create(&server->scheduler, server->model, &server->options, err);
}

enum kvt_status kvt_server_start(struct kvt_server **out, const struct kvt_model *model,
                                 const struct kvt_serve_options *options, struct kvt_error *err) {
    KVT_TRY(check(options, err));
    struct kvt_server *server = kvt_take_zero(&kvt_allocator_libc, 1, sizeof *server);
    if (!server) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for a server");
    server->model = model;
    server->options = *options;
    server->log = options->log;
    server->options.log = (struct kvt_serve_log){log_line, server};
    server->name = options->name ? options->name : kvt_model_info(model).name;
    server->created = (int64_t)time(NULL);
    server->started = kvt_clock_seconds();
    pthread_mutex_init(&server->log_lock, NULL);
    enum kvt_status status = kvt_serve_has_http() ? prepare(server, err) : KVT_OK;
    if (status == KVT_OK) status = kvt_http_start(server, err);
    if (status == KVT_OK)
        *out = server;
    else
        kvt_server_destroy(server);
    return status;
}

void kvt_server_stop(struct kvt_server *server, double seconds) {
    const double until = kvt_clock_seconds() + seconds;
    kvt_scheduler_stop(server->scheduler, seconds);
    /* What was written is still to be sent, to whoever reads it in that time. */
    while (atomic_load(&server->n_exchanges) > 0 && kvt_clock_seconds() < until)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

void kvt_server_destroy(struct kvt_server *server) {
    if (!server) return;
    if (server->scheduler) kvt_scheduler_stop(server->scheduler, 0); /* whoever waits for an answer is told */
    kvt_http_stop(server);
    kvt_scheduler_destroy(server->scheduler);
    json_decref(server->figures);
    kvt_plan_destroy(server->f16);
    pthread_mutex_destroy(&server->log_lock);
    kvt_give(&kvt_allocator_libc, server, 1, sizeof *server);
}

const char *kvt_server_address(const struct kvt_server *server) { return server->address; }
const struct kvt_plan *kvt_server_plan(const struct kvt_server *server) {
    return kvt_scheduler_plan(server->scheduler);
}
int kvt_server_n_busy(const struct kvt_server *server) { return kvt_scheduler_n_busy(server->scheduler); }
