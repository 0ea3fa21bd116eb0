/* SPDX-License-Identifier: Apache-2.0
 *
 * Sockets: libmicrohttpd with a thread for each connection, which may wait. A slow reader holds its own thread and nothing else: what
 * it has not read lies in its request, which is bounded by the context.
 */
#include "serve/server.h"

#include <string.h>

#include "base/check.h"

#if defined(KVT_HAVE_MICROHTTPD)
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <microhttpd.h>

enum {
    IDLE_SECONDS = 60,        /* a connection may be without a byte read or written */
    CONNECTION_BYTES = 65536, /* of a connection's head */
    EVENT_BYTES = 16384,      /* of a stream that are sent at a time */
    TELL_SECONDS = 15 /* after so many a stream that waits says so, which also finds out whether anybody reads */
};

/* What a connection's current request has. */
struct exchange {
    struct kvt_server *server;
    struct MHD_Connection *connection;
    struct kvt_buf body;
    bool too_large;
};

/* ---- the client ------------------------------------------------------------------------------------------------------- */

static int socket_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? info->connect_fd : -1;
}

/* A client that has closed its side is gone: nobody who waits for an answer does that. */
static bool is_gone(void *ctx) {
    char byte;
    const ssize_t n = recv(socket_of(ctx), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

static const char *header(struct MHD_Connection *connection, const char *name) {
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

/* ---- who may ---------------------------------------------------------------------------------------------------------- */

/* In a time that does not tell where they differ. */
static bool same_key(const char *given, const char *key) {
    const size_t n = strlen(given), n_key = strlen(key);
    unsigned differs = n != n_key;
    for (size_t i = 0; i < n; i++) differs |= (unsigned)(unsigned char)given[i] ^ (unsigned char)key[i % n_key];
    return differs == 0;
}

static bool has_key(const struct exchange *x, const char *path) {
    static const char scheme[] = "Bearer ";
    const char *key = x->server->options.api_key, *given = header(x->connection, "Authorization");
    if (!key || kvt_server_path_is_open(path)) return true;
    return given && strncmp(given, scheme, sizeof scheme - 1) == 0 && same_key(given + sizeof scheme - 1, key);
}

/* Of "name:port" or "[address]:port" the length of the name. */
static size_t name_len(const char *host) {
    const char *end = host[0] == '[' ? strchr(host, ']') : NULL;
    return end ? (size_t)(end + 1 - host) : strcspn(host, ":");
}

static bool is_local_name(const char *host) {
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    for (size_t i = 0; i < KVT_ARRAY_LEN(names); i++)
        if (strlen(names[i]) == name_len(host) && strncmp(host, names[i], name_len(host)) == 0) return true;
    return false;
}

/* Pages of other sites must not reach a server that only listens to this machine: not by a request across sites, nor by a name that
 * is made to point here. */
static bool is_foreign(const struct exchange *x) {
    const char *host = header(x->connection, "Host"), *origin = header(x->connection, "Origin");
    const char *own = x->server->options.host;
    const bool local = !own || is_local_name(own) || strcmp(own, "::1") == 0;
    if (local && host && !is_local_name(host)) return true;
    if (!origin || !host) return false;
    const char *after = strstr(origin, "://");
    return !after || strcmp(after + 3, host) != 0;
}

/* ---- replies ---------------------------------------------------------------------------------------------------------- */

static enum MHD_Result send_response(struct MHD_Connection *connection, const struct kvt_call *call,
                                     struct MHD_Response *response) {
    if (!response) return MHD_NO;
    MHD_add_response_header(response, "Content-Type", call->type ? call->type : "text/plain");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Cache-Control", call->fixed && !call->stream ? "no-cache" : "no-store");
    if (call->http_status == 503) MHD_add_response_header(response, "Retry-After", "1");
    if (call->http_status == 401) MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    if (call->allow && call->http_status == 405) MHD_add_response_header(response, "Allow", call->allow);
    if (call->type && strncmp(call->type, "text/html", 9) == 0) {
        MHD_add_response_header(response, "Content-Security-Policy",
                                "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
                                "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
        MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    }
    const enum MHD_Result result = MHD_queue_response(connection, (unsigned)call->http_status, response);
    MHD_destroy_response(response);
    return result;
}

/* A stream on its way. */
struct sending {
    struct kvt_server *server;
    struct MHD_Connection *connection;
    struct kvt_reply_stream stream;
    struct kvt_buf ready;
    size_t n_sent; /* of it */
};

static ssize_t send_events(void *ctx, uint64_t position, char *out, size_t max) {
    struct sending *s = ctx;
    (void)position;
    double waited = 0;
    while (s->n_sent == s->ready.len) {
        s->n_sent = s->ready.len = 0;
        if (s->stream.ended) return MHD_CONTENT_READER_END_OF_STREAM;
        if (kvt_reply_next(&s->stream, 0.2, &s->ready) != KVT_OK) return MHD_CONTENT_READER_END_WITH_ERROR;
        if (s->ready.len > 0) break;
        if (is_gone(s->connection)) return MHD_CONTENT_READER_END_WITH_ERROR;
        waited += 0.2;
        if (waited >= TELL_SECONDS && kvt_buf_addf(&s->ready, ": waiting\n\n") != KVT_OK)
            return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    const size_t n = KVT_MIN(max, s->ready.len - s->n_sent);
    memcpy(out, s->ready.data + s->n_sent, n);
    s->n_sent += n;
    return (ssize_t)n;
}

static void finish_sending(void *ctx) {
    struct sending *s = ctx;
    struct kvt_request *r = s->stream.request;
    atomic_store(&r->gone, !s->stream.ended); /* the scheduler drops what nobody reads */
    pthread_mutex_lock(&r->lock);
    const int n = r->n_generated, n_cached = r->n_cached;
    const char *how = s->stream.ended ? r->finish : "the client went away";
    char sentence[200];
    snprintf(sentence, sizeof sentence, "%.199s", how ? how : r->err.text);
    pthread_mutex_unlock(&r->lock);
    kvt_server_log(s->server, "%s: %s; streamed, %zu tokens of prompt, %d of them kept, %d written", r->id, sentence,
                   r->ask.prompt.len, n_cached, n);
    kvt_request_drop(r);
    kvt_buf_finish(&s->ready);
    kvt_give(&kvt_allocator_libc, s, 1, sizeof *s);
}

static enum MHD_Result send_stream(struct exchange *x, const struct kvt_call *call) {
    struct sending *s = kvt_take_zero(&kvt_allocator_libc, 1, sizeof *s);
    if (!s) {
        atomic_store(&call->stream->gone, true);
        kvt_request_drop(call->stream);
        return MHD_NO;
    }
    s->server = x->server;
    s->connection = x->connection;
    s->stream = (struct kvt_reply_stream){
        .request = call->stream, .model = x->server->name, .text = kvt_model_text(x->server->model)};
    kvt_buf_init(&s->ready, NULL, (size_t)1 << 28);
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, EVENT_BYTES, send_events, s, finish_sending);
    if (!response) finish_sending(s);
    return send_response(x->connection, call, response);
}

static enum MHD_Result send_reply(struct exchange *x, struct kvt_call *call) {
    if (call->http_status == 499) return MHD_NO;
    if (call->stream) return send_stream(x, call);
    const void *data = call->fixed ? call->fixed : kvt_buf_text(&call->reply);
    const size_t len = call->fixed ? call->fixed_len : call->reply.len;
    const enum MHD_ResponseMemoryMode mode = call->fixed ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_COPY;
    return send_response(x->connection, call, MHD_create_response_from_buffer(len, (void *)(uintptr_t)data, mode));
}

/* ---- requests --------------------------------------------------------------------------------------------------------- */

/* What stands in the way of a call before anyone reads it; false: nothing. */
static bool refuse(struct exchange *x, struct kvt_call *call) {
    struct kvt_error err;
    if (is_foreign(x)) {
        kvt_call_fail(call, KVT_ERR_ARG,
                      "a page of another site, or a name that is not this server's, may not ask here");
        call->http_status = 403;
    } else if (!has_key(x, call->path)) {
        kvt_call_fail(call, KVT_ERR_ARG, "the API key is missing or wrong; send 'Authorization: Bearer KEY'");
        call->http_status = 401;
    } else if (x->too_large) {
        kvt_fail(&err, KVT_ERR_ARG, "the body is larger than the %zu bytes that this server takes (--body-limit)",
                 x->server->options.body_bytes);
        kvt_call_fail(call, err.code, err.text);
        call->http_status = 413;
    } else {
        return false;
    }
    kvt_scheduler_refused(x->server->scheduler);
    return true;
}

static enum MHD_Result answer(struct exchange *x, const char *path, const char *method, bool only_refuse) {
    struct kvt_call call = {.method = method,
                            .path = path,
                            .body = kvt_buf_text(&x->body),
                            .body_len = x->body.len,
                            .is_gone = is_gone,
                            .ctx = x->connection};
    kvt_buf_init(&call.reply, NULL, (size_t)1 << 30);
    enum MHD_Result result = MHD_YES;
    const bool refused = refuse(x, &call);
    if (!refused && !only_refuse) kvt_server_call(x->server, &call);
    if (refused || !only_refuse) result = send_reply(x, &call);
    kvt_buf_finish(&call.reply);
    return result;
}

/* At the head of a request: refused before its body comes, where that is known. */
static enum MHD_Result begin(struct kvt_server *server, struct MHD_Connection *connection, const char *path,
                             const char *method, void **state) {
    struct exchange *x = kvt_take_zero(&kvt_allocator_libc, 1, sizeof *x);
    if (!x) return MHD_NO;
    *state = x;
    atomic_fetch_add(&server->n_exchanges, 1);
    x->server = server;
    x->connection = connection;
    kvt_buf_init(&x->body, NULL, server->options.body_bytes);
    const char *length = header(connection, "Content-Length");
    x->too_large = length && strtoull(length, NULL, 10) > server->options.body_bytes;
    return answer(x, path, method, true);
}

static enum MHD_Result on_request(void *ctx, struct MHD_Connection *connection, const char *path, const char *method,
                                  const char *version, const char *data, size_t *n_data, void **state) {
    (void)version;
    struct exchange *x = *state;
    if (!x) return begin(ctx, connection, path, method, state);
    if (*n_data > 0) {
        if (!x->too_large && kvt_buf_add(&x->body, data, *n_data) != KVT_OK) x->too_large = true;
        *n_data = 0;
        return MHD_YES;
    }
    return answer(x, path, method, false);
}

static void on_end(void *ctx, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode why) {
    (void)ctx, (void)connection, (void)why;
    struct exchange *x = *state;
    if (!x) return;
    atomic_fetch_add(&x->server->n_exchanges, -1);
    kvt_buf_finish(&x->body);
    kvt_give(&kvt_allocator_libc, x, 1, sizeof *x);
    *state = NULL;
}

static void on_connection(void *ctx, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode what) {
    (void)connection, (void)state;
    struct kvt_server *server = ctx;
    atomic_fetch_add(&server->n_connections, what == MHD_CONNECTION_NOTIFY_STARTED ? 1 : -1);
}

/* ---- life ------------------------------------------------------------------------------------------------------------- */

bool kvt_serve_has_http(void) { return true; }

/* The address to listen at; ARG where it is none. */
static enum kvt_status read_address(struct sockaddr_storage *out, socklen_t *len, const char *host, int port,
                                    struct kvt_error *err) {
    struct sockaddr_in *v4 = (void *)out;
    struct sockaddr_in6 *v6 = (void *)out;
    memset(out, 0, sizeof *out);
    if (!host || strcmp(host, "localhost") == 0) host = "127.0.0.1";
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        *len = sizeof *v4;
    } else if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        *len = sizeof *v6;
    } else {
        return kvt_fail(err, KVT_ERR_ARG,
                        "--host '%.100s' is no numeric address; 127.0.0.1 is this machine alone, 0.0.0.0 all", host);
    }
    return KVT_OK;
}

static enum kvt_status listen_at(int *out, struct sockaddr_storage *address, socklen_t len, const char *host, int port,
                                 struct kvt_error *err) {
    const int on = 1, fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (struct sockaddr *)address, len) != 0 || listen(fd, 128) != 0 ||
        getsockname(fd, (struct sockaddr *)address, &len) != 0) {
        const int error = errno;
        if (fd >= 0) close(fd);
        return kvt_fail(err, KVT_ERR_IO, "cannot listen at %s, port %d: %s", host ? host : "127.0.0.1", port,
                        strerror(error));
    }
    *out = fd;
    return KVT_OK;
}

enum kvt_status kvt_http_start(struct kvt_server *server, struct kvt_error *err) {
    const struct kvt_serve_options *o = &server->options;
    struct sockaddr_storage address;
    socklen_t len = 0;
    int fd = -1;
    KVT_TRY(read_address(&address, &len, o->host, o->port, err));
    KVT_TRY(listen_at(&fd, &address, len, o->host, o->port, err));
    const bool v6 = address.ss_family == AF_INET6;
    server->port = ntohs(v6 ? ((struct sockaddr_in6 *)(void *)&address)->sin6_port
                            : ((struct sockaddr_in *)(void *)&address)->sin_port);
    snprintf(server->address, sizeof server->address, v6 ? "http://[%s]:%d" : "http://%s:%d",
             o->host ? o->host : "127.0.0.1", server->port);
    server->http = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC, 0, NULL, NULL,
        on_request, server, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)o->n_connections,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_BYTES, MHD_OPTION_THREAD_STACK_SIZE, (size_t)1 << 20, MHD_OPTION_NOTIFY_COMPLETED, on_end,
        NULL, MHD_OPTION_NOTIFY_CONNECTION, on_connection, server, MHD_OPTION_END);
    if (server->http) return KVT_OK;
    close(fd);
    return kvt_fail(err, KVT_ERR_IO, "the HTTP server cannot be started: %s", strerror(errno));
}

void kvt_http_stop(struct kvt_server *server) {
    if (server->http) MHD_stop_daemon(server->http);
    server->http = NULL;
}

#else

bool kvt_serve_has_http(void) { return false; }

enum kvt_status kvt_http_start(struct kvt_server *server, struct kvt_error *err) {
    (void)server;
    return kvt_fail(
        err, KVT_ERR_UNSUPPORTED,
        "this kvtile was built without libmicrohttpd; install it (Debian: libmicrohttpd-dev) and build again");
}

void kvt_http_stop(struct kvt_server *server) { (void)server; }

#endif
