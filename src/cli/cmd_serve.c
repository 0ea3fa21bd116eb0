/* SPDX-License-Identifier: Apache-2.0
 * kvtile serve MODEL: a model behind HTTP. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "cli/choice.h"
#include "cli/command.h"
#include "serve/serve.h"

enum { KEY_MAX = 4096, REPORT_MAX = 64 << 20 };

/* ---- options ---------------------------------------------------------------------------------------------------------- */

struct settings {
    const char *model, *host, *api_key, *api_key_file, *name, *template_name, *level, *prompt_cache, *kv_dir, *fidelity;
    int64_t port, n_parallel, n_queue, n_connections, max_tokens, n_ctx, n_threads, chunk;
    uint64_t body, kv_dir_bytes;
    double seconds, grace;
    bool exact, quiet;
    struct kvt_kv_settings kv;
    struct kvt_place_settings place;
};

static const struct settings defaults = {.host = "127.0.0.1",
                                         .port = 8080,
                                         .n_parallel = 4,
                                         .n_queue = 64,
                                         .n_connections = 256,
                                         .chunk = 256,
                                         .body = 8 << 20,
                                         .kv_dir_bytes = (uint64_t)8 << 30,
                                         .seconds = 600,
                                         .grace = 30,
                                         .kv = KVT_KV_DEFAULTS};

#define AT(field) offsetof(struct settings, field)

/* clang-format off */
static const struct kvt_opt options[] = {
    {KVT_OPT_ARG, .name = "MODEL", .at = AT(model), .help = "a GGUF file"},
    {KVT_OPT_GROUP, .name = "Listening"},
    {KVT_OPT_TEXT, .name = "host", .value = "ADDRESS", .at = AT(host),
     .help = "a numeric address; 127.0.0.1 is this machine alone, 0.0.0.0 all of its addresses"},
    {KVT_OPT_INT, .name = "port", .value = "N", .at = AT(port), .max = 65535,
     .help = "0: any that is free, which is printed"},
    {KVT_OPT_TEXT, .name = "api-key", .value = "KEY", .at = AT(api_key),
     .help = "ask for 'Authorization: Bearer KEY'; other users of the machine can see an option", .not_with = "api-key-file"},
    {KVT_OPT_TEXT, .name = "api-key-file", .value = "FILE", .at = AT(api_key_file), .help = "the same, read from a file's first line"},
    {KVT_OPT_TEXT, .name = "name", .also = "alias", .value = "NAME", .at = AT(name),
     .help = "what the model is called in answers; the file's own name, if it is not said"},
    {KVT_OPT_TEXT, .name = "template", .value = "NAME", .at = AT(template_name),
     .help = "the family of the chat template, where the file's is not recognised"},
    {KVT_OPT_TEXT, .name = "fidelity", .value = "FILE", .at = AT(fidelity),
     .help = "a report of kvtile fidelity --json on this model, for the page to show"},
    {KVT_OPT_GROUP, .name = "Limits"},
    {KVT_OPT_INT, .name = "parallel", .brief = "np", .value = "N", .at = AT(n_parallel), .min = 1, .max = 256,
     .help = "answers at once"},
    {KVT_OPT_INT, .name = "queue", .value = "N", .at = AT(n_queue), .max = 1 << 16,
     .help = "requests that may wait beside them; one more is told to come later (503)"},
    {KVT_OPT_INT, .name = "connections", .value = "N", .at = AT(n_connections), .min = 1, .max = 1 << 14,
     .help = "connections at once"},
    {KVT_OPT_INT, .name = "max-tokens", .brief = "n", .value = "N", .at = AT(max_tokens), .max = 1 << 30,
     .help = "tokens of an answer at most; 0: what the context holds"},
    {KVT_OPT_BYTES, .name = "body-limit", .value = "SIZE", .at = AT(body), .help = "of a request at most"},
    {KVT_OPT_FLOAT, .name = "time-limit", .value = "SECONDS", .at = AT(seconds), .max = 1e9,
     .help = "a request may take, waiting included; 0: any"},
    {KVT_OPT_FLOAT, .name = "grace", .value = "SECONDS", .at = AT(grace), .max = 1e6,
     .help = "that running answers have to end once the server is told to stop"},
    {KVT_OPT_GROUP, .name = "Kept prefixes"},
    {KVT_OPT_FLAG, .name = "exact-prefixes", .at = AT(exact),
     .help = "begin only with prefixes that change no bit of the answer: whole pieces of prompts. Otherwise also with what was written "
             "token by token, which may differ by rounding"},
    {KVT_OPT_TEXT, .name = "prompt-cache", .value = "FILE", .at = AT(prompt_cache),
     .help = "keep from the start what kvtile run --prompt-cache or chat wrote there, with the same model and cache"},
    {KVT_OPT_TEXT, .name = "kv-dir", .value = "DIR", .at = AT(kv_dir),
     .help = "write kept prefixes there while idle, and find them again after a restart"},
    {KVT_OPT_BYTES, .name = "kv-dir-limit", .value = "SIZE", .at = AT(kv_dir_bytes), .help = "of the files there at most",
     .needs = "kv-dir"},
    {KVT_OPT_GROUP, .name = "Running"},
    {KVT_OPT_INT, .name = "ctx-size", .brief = "c", .value = "N", .at = AT(n_ctx), .max = 1 << 30,
     .help = "context of each request; 0: the model's own"},
    {KVT_OPT_INT, .name = "threads", .brief = "t", .value = "N", .at = AT(n_threads), .max = 1024,
     .help = "threads; 0: as many as there are processors. The text does not depend on it"},
    {KVT_OPT_INT, .name = "batch-size", .brief = "b", .value = "N", .at = AT(chunk), .min = 1, .max = 1 << 20,
     .help = "tokens of prompts in one pass, beside the answers that are being written; prefixes are kept at multiples of it"},
    {KVT_OPT_TEXT, .name = "level", .value = "NAME", .at = AT(level),
     .help = "instruction-set level: auto, ref, neon, avx2, avx512, amx"},
    {KVT_OPT_FLAG, .name = "quiet", .brief = "q", .at = AT(quiet), .help = "no progress bar and no line for each request"},
};
/* clang-format on */

static const struct kvt_opt_shared shared[] = {{kvt_place_options, KVT_PLACE_N_OPTIONS, AT(place)},
                                               {kvt_kv_options, KVT_KV_N_OPTIONS, AT(kv)}};

/* ---- signals ---------------------------------------------------------------------------------------------------------- */

/* The first one that arrived, told through a pipe to whoever waits; the second ends the program at once. */
static volatile sig_atomic_t signal_seen;
static int signal_pipe[2] = {-1, -1};

static void on_signal(int number) {
    if (signal_seen) _exit(128 + number);
    signal_seen = number;
    const int error = errno;
    if (write(signal_pipe[1], "", 1) < 0) {
    } /* one byte always fits */
    errno = error;
}

static enum kvt_status catch_signals(struct kvt_error *err) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    if (pipe(signal_pipe) != 0) return kvt_fail(err, KVT_ERR_IO, "no pipe for signals: %s", strerror(errno));
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return KVT_OK;
}

/* ---- the server ------------------------------------------------------------------------------------------------------- */

struct serve {
    const struct settings *settings;
    struct kvt_engine engine;
    struct kvt_buf key, report;
    struct kvt_choice_request request;
    struct kvt_choice choice;
    struct kvt_session_options sessions;
    struct kvt_serve_options options;
    struct kvt_server *server;
};

static void print_line(void *ctx, const char *text) {
    (void)ctx;
    char time_text[16] = "";
    const time_t now = time(NULL);
    struct tm parts;
    if (localtime_r(&now, &parts)) strftime(time_text, sizeof time_text, "%H:%M:%S", &parts);
    fprintf(stderr, "%s %s\n", time_text, text);
}

static enum kvt_status read_key(struct serve *s, struct kvt_error *err) {
    s->options.api_key = s->settings->api_key;
    if (!s->settings->api_key_file) return KVT_OK;
    KVT_TRY(kvt_file_read(&s->key, s->settings->api_key_file, err));
    if (s->key.len == 0 || kvt_buf_text(&s->key)[0] == '\n')
        return kvt_fail(err, KVT_ERR_ARG, "%s has no key in its first line", s->settings->api_key_file);
    s->key.data[strcspn(s->key.data, "\r\n")] = 0;
    s->options.api_key = s->key.data;
    return KVT_OK;
}

/* A template that is not known is no failure here: completions work without one. */
static enum kvt_status find_template(struct serve *s, struct kvt_error *err) {
    const char *name = s->settings->template_name, *own = kvt_model_info(s->engine.model).chat_template;
    if (name) {
        s->options.chat = kvt_chat_find(name);
        if (s->options.chat) return KVT_OK;
        return kvt_fail(err, KVT_ERR_ARG, "there is no chat template '%s'; known are %s", name, kvt_chat_names());
    }
    s->options.chat = own ? kvt_chat_detect(own, strlen(own)) : NULL;
    s->options.chat_source = s->options.chat ? own : NULL;
    return KVT_OK;
}

/* What all answers at once may need, with 16-bit rows of the prompts on their way, but at most half of the memory. */
static uint64_t default_memory(const struct serve *s) {
    const struct kvt_model_info info = kvt_model_info(s->engine.model);
    const uint64_t n = (uint64_t)s->settings->n_parallel, rows = (uint64_t)(s->settings->chunk + 2 * KVT_TILE_ROWS);
    const uint64_t row_bytes =
        2 * (uint64_t)info.n_layers * (uint64_t)info.n_kv_heads * (uint64_t)(info.k_size + info.v_size);
    const uint64_t need = n * (kvt_plan_bytes(s->choice.plan, s->request.n_ctx) + rows * row_bytes);
    if (s->engine.placed.bytes) return KVT_MIN(need, s->engine.placed.free_bytes / 10 * 9);
    const uint64_t half = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
    return KVT_MIN(need, half);
}

/* The cache. One that is named must hold a whole context, and shares --kv-memory among the answers; auto looks for one that holds all
 * of them. */
static enum kvt_status choose_cache(struct serve *s, struct kvt_error *err) {
    const struct settings *o = s->settings;
    const int n_ctx_train = kvt_model_info(s->engine.model).n_ctx_train;
    const bool named =
        (o->kv.kv && strcmp(o->kv.kv, "auto") != 0) || o->kv.type_k || o->kv.type_v || o->kv.scheme || o->kv.bits;
    if (o->n_ctx > n_ctx_train)
        return kvt_fail(err, KVT_ERR_ARG, "a context of %lld tokens is more than the %d that the model was trained for",
                        (long long)o->n_ctx, n_ctx_train);
    s->request = (struct kvt_choice_request){.kv = &o->kv,
                                             .n_ctx = o->n_ctx ? (int)o->n_ctx : n_ctx_train,
                                             .n_sessions = named ? 1 : (int)o->n_parallel,
                                             .level = o->level,
                                             .quiet = o->quiet};
    KVT_TRY(kvt_choice_make(&s->choice, &s->engine, &s->request, err));
    s->sessions = (struct kvt_session_options){
        .n_ctx = s->request.n_ctx, .place = s->engine.place, .level = o->level, .parallel = &s->engine.parallel};
    kvt_choice_apply(&s->sessions, &s->choice);
    if (o->kv.memory) s->sessions.cache_byte_limit = o->kv.memory;
    if (s->sessions.cache_byte_limit == 0) s->sessions.cache_byte_limit = default_memory(s);
    return KVT_OK;
}

static enum kvt_status set_options(struct serve *s, struct kvt_error *err) {
    const struct settings *o = s->settings;
    s->options.kv_why = s->choice.why;
    s->options.name = o->name;
    s->options.host = o->host;
    s->options.port = (int)o->port;
    s->options.n_parallel = (int)o->n_parallel;
    s->options.n_queue = (int)o->n_queue;
    s->options.n_connections = (int)o->n_connections;
    s->options.chunk = (int)o->chunk;
    s->options.max_tokens = (int)o->max_tokens;
    s->options.body_bytes = o->body;
    s->options.seconds = o->seconds;
    s->options.exact = o->exact;
    s->options.prompt_cache = o->prompt_cache;
    s->options.kv_dir = o->kv_dir;
    s->options.kv_dir_bytes = o->kv_dir_bytes;
    s->options.sessions = &s->sessions;
    if (!o->quiet) s->options.log.line = print_line;
    if (o->fidelity) {
        KVT_TRY(kvt_file_read(&s->report, o->fidelity, err));
        s->options.fidelity = kvt_buf_text(&s->report);
    }
    KVT_TRY(read_key(s, err));
    return find_template(s, err);
}

/* The address goes to standard output: with --port 0 a script reads it there. */
static enum kvt_status announce(const struct serve *s, struct kvt_error *err) {
    char memory[KVT_TERM_BYTES_MAX], line[120];
    if (!s->settings->quiet) {
        fprintf(stderr, "serving %s with a cache of %s, %s at most, %d answers at once%s\n",
                s->options.name ? s->options.name : kvt_model_info(s->engine.model).name,
                kvt_plan_kv(kvt_server_plan(s->server)), kvt_term_bytes(memory, s->sessions.cache_byte_limit),
                s->options.n_parallel, s->options.chat ? "" : "; the model has no chat template that is known");
    }
    snprintf(line, sizeof line, "%s\n", kvt_server_address(s->server));
    return kvt_term_write(line, strlen(line), err);
}

static enum kvt_status wait_and_stop(struct serve *s, struct kvt_error *err) {
    struct pollfd wait = {.fd = signal_pipe[0], .events = POLLIN};
    while (poll(&wait, 1, -1) < 0 && errno == EINTR) {
    }
    const int n = kvt_server_n_busy(s->server);
    if (!s->settings->quiet)
        fprintf(stderr, "stopping: %d requests, %g s for those that run; once more ends them\n", n, s->settings->grace);
    kvt_server_stop(s->server, s->settings->grace);
    return signal_seen == SIGINT ? kvt_fail(err, KVT_ERR_CANCELLED, "%s", "") : KVT_OK;
}

static enum kvt_status serve_all(struct serve *s, struct kvt_error *err) {
    if (!kvt_serve_has_http())
        return kvt_fail(err, KVT_ERR_UNSUPPORTED,
                        "this kvtile was built without libmicrohttpd (Debian: libmicrohttpd-dev), "
                        "which serve needs; install it and build again");
    if (s->settings->body == 0)
        return kvt_fail(err, KVT_ERR_ARG, "--body-limit 0 would refuse every request; it takes a size such as 8M");
    KVT_TRY(kvt_engine_open(&s->engine, s->settings->n_threads, s->settings->quiet, err));
    KVT_TRY(kvt_engine_load(&s->engine, s->settings->model, &s->settings->place, err));
    KVT_TRY(choose_cache(s, err));
    KVT_TRY(set_options(s, err));
    KVT_TRY(catch_signals(err));
    KVT_TRY(kvt_server_start(&s->server, s->engine.model, &s->options, err));
    KVT_TRY(kvt_choice_tell(&s->choice, &s->engine, &s->request, err));
    KVT_TRY(announce(s, err));
    return wait_and_stop(s, err);
}

static enum kvt_status run(const void *settings, struct kvt_error *err) {
    struct serve s = {.settings = settings};
    kvt_buf_init(&s.key, NULL, KEY_MAX);
    kvt_buf_init(&s.report, NULL, REPORT_MAX);
    const enum kvt_status status = serve_all(&s, err);
    kvt_server_destroy(s.server);
    kvt_choice_finish(&s.choice);
    kvt_engine_close(&s.engine);
    kvt_buf_finish(&s.report);
    kvt_buf_finish(&s.key);
    return status;
}

const struct kvt_command kvt_command_serve = {
    .name = "serve",
    .about = "put a model behind HTTP, with OpenAI's interface and a web page",
    .text =
        "Serves OpenAI's interface (/v1/chat/completions, /v1/completions, /v1/models), /tokenize, /health, /metrics and a web page at "
        "the address that it prints. Requests are computed together, token by token; what prompts begin with is kept and shared. "
        "Ends well when it is told to (SIGTERM, Ctrl-C): nothing new is taken, what runs has --grace seconds to end; a second signal "
        "ends it at once.",
    .examples = "kvtile serve chat.gguf --kv kivi4g32\n"
                "kvtile serve models/plain.gguf --port 0 --parallel 8 --kv-memory 2G\n"
                "curl 127.0.0.1:8080/v1/completions -d '{\"prompt\": \"The old house\"}'",
    .options = options,
    .n_options = KVT_ARRAY_LEN(options),
    .shared = shared,
    .n_shared = KVT_ARRAY_LEN(shared),
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
    .run = run,
};
