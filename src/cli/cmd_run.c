/* SPDX-License-Identifier: Apache-2.0
 * kvtile run MODEL: text from a prompt, as it comes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/choice.h"
#include "cli/command.h"
#include "cli/engine.h"
#include "cli/gen.h"
#include "cli/prompt_cache.h"
#include "cli/summary.h"

enum { PROMPT_MAX = 1 << 28 };

/* ---- options ---------------------------------------------------------------------------------------------------------- */

struct settings {
    const char *model, *prompt, *file, *system, *template_name, *prompt_cache;
    bool chat, read_only;
    struct kvt_gen_settings gen;
    struct kvt_place_settings place;
    struct kvt_kv_settings kv;
};

static const struct settings defaults = {.gen = KVT_GEN_DEFAULTS(128), .kv = KVT_KV_DEFAULTS};

#define AT(field) offsetof(struct settings, field)

/* clang-format off */
static const struct kvt_opt options[] = {
    {KVT_OPT_ARG, .name = "MODEL", .at = AT(model), .help = "a GGUF file"},
    {KVT_OPT_GROUP, .name = "Prompt (standard input, if it is no terminal and nothing else is said)"},
    {KVT_OPT_TEXT, .name = "prompt", .brief = "p", .value = "TEXT", .at = AT(prompt), .help = "the prompt itself",
     .not_with = "file"},
    {KVT_OPT_TEXT, .name = "file", .brief = "f", .value = "FILE", .at = AT(file),
     .help = "read it from a file, \"-\" for standard input; one line end at its end is dropped"},
    {KVT_OPT_FLAG, .name = "chat", .at = AT(chat),
     .help = "make it a user's message in the model's chat template"},
    {KVT_OPT_TEXT, .name = "system", .value = "TEXT", .at = AT(system), .help = "a system message before it",
     .needs = "chat"},
    {KVT_OPT_TEXT, .name = "template", .value = "NAME", .at = AT(template_name),
     .help = "the family of the chat template, where the file's is not recognised", .needs = "chat"},
    {KVT_OPT_TEXT, .name = "prompt-cache", .value = "FILE", .at = AT(prompt_cache),
     .help = "take from FILE, if it is there, what its prompt and this one begin with alike, and keep this one's cache there"},
    {KVT_OPT_FLAG, .name = "prompt-cache-ro", .at = AT(read_only), .help = "leave the file as it is",
     .needs = "prompt-cache"},
};
/* clang-format on */

static const struct kvt_opt_shared shared[] = {{kvt_gen_options, KVT_GEN_N_OPTIONS, AT(gen)},
                                               {kvt_place_options, KVT_PLACE_N_OPTIONS, AT(place)},
                                               {kvt_kv_options, KVT_KV_N_OPTIONS, AT(kv)}};

/* ---- the run ---------------------------------------------------------------------------------------------------------- */

struct run {
    const struct settings *settings;
    struct kvt_engine engine;
    struct kvt_choice choice;
    struct kvt_session *session;
    struct kvt_prompt_cache prompt_cache; /* path NULL: none */
    struct kvt_gen gen;
    struct kvt_buf prompt;
    struct kvt_buf piece, shown; /* the bytes of one token; what goes to standard output next */
    struct kvt_ids ids;
    struct kvt_utf8_stream utf8;
    struct kvt_summary summary;
    bool ends_line;        /* whether the text so far ends one */
    enum kvt_status saved; /* of the prompt's cache, and why not */
    struct kvt_error unsaved;
};

static enum kvt_status no_memory(struct kvt_error *err, enum kvt_status status) {
    if (status == KVT_ERR_NOMEM) kvt_fail(err, status, "out of memory for the prompt or the text");
    if (status == KVT_ERR_LIMIT) kvt_fail(err, status, "the prompt is longer than %d bytes", PROMPT_MAX);
    return status;
}

static enum kvt_status read_prompt(struct run *r, struct kvt_error *err) {
    const struct settings *s = r->settings;
    if (s->prompt) {
        KVT_TRY(no_memory(err, kvt_buf_add(&r->prompt, s->prompt, strlen(s->prompt))));
    } else {
        if (!s->file && isatty(STDIN_FILENO))
            return kvt_fail(err, KVT_ERR_ARG, "run needs a prompt: -p TEXT, -f FILE, or text on standard input");
        KVT_TRY(kvt_file_read(&r->prompt, s->file ? s->file : "-", err));
        if (r->prompt.len > 0 && r->prompt.data[r->prompt.len - 1] == '\n') r->prompt.data[--r->prompt.len] = 0;
    }
    if (r->prompt.len == 0)
        return kvt_fail(err, KVT_ERR_ARG, "the prompt is empty; a text needs something to go on from");
    return KVT_OK;
}

/* The prompt as a user's message. */
static enum kvt_status encode_chat(struct run *r, struct kvt_error *err) {
    const struct kvt_chat_template *family = NULL;
    const char *source = NULL;
    KVT_TRY(kvt_gen_template(&family, &source, r->settings->template_name, r->engine.model, err));
    if (memchr(r->prompt.data, 0, r->prompt.len))
        return kvt_fail(err, KVT_ERR_ARG, "the prompt holds a zero byte, which a chat message cannot");
    struct kvt_chat_message messages[2];
    int n = 0;
    if (r->settings->system) messages[n++] = (struct kvt_chat_message){"system", r->settings->system};
    messages[n++] = (struct kvt_chat_message){"user", kvt_buf_text(&r->prompt)};
    return kvt_chat_encode(kvt_model_text(r->engine.model), family, source, messages, n, true, &r->ids, err);
}

static enum kvt_status encode_prompt(struct run *r, struct kvt_error *err) {
    const struct kvt_text *text = kvt_model_text(r->engine.model);
    KVT_TRY(r->settings->chat ? encode_chat(r, err)
                              : kvt_gen_encode(text, kvt_buf_text(&r->prompt), r->prompt.len, &r->ids, err));
    r->summary.n_prompt = (int)KVT_MIN(r->ids.len, (size_t)INT32_MAX);
    return KVT_OK;
}

/* The context to make: as asked, or what prompt and text need, up to what the model was trained for. */
static enum kvt_status choose_context(const struct run *r, int *out, struct kvt_error *err) {
    const struct settings *s = r->settings;
    const int64_t n_prompt = (int64_t)r->ids.len, trained = kvt_model_info(r->engine.model).n_ctx_train;
    int64_t n_ctx = s->gen.n_ctx;
    if (n_ctx == 0) {
        n_ctx = s->gen.n < 0 ? trained : KVT_MIN(n_prompt + s->gen.n, trained);
        n_ctx = KVT_MAX(n_ctx, KVT_MIN((int64_t)r->prompt_cache.n_held, trained));
    }
    if (n_prompt > n_ctx)
        return kvt_fail(err, KVT_ERR_ARG,
                        "the prompt has %lld tokens, the context holds %lld; shorten the prompt%s (the model was "
                        "trained for %lld)",
                        (long long)n_prompt, (long long)n_ctx, n_ctx < trained ? " or raise -c" : "",
                        (long long)trained);
    *out = (int)n_ctx;
    return KVT_OK;
}

static enum kvt_status load(struct run *r, struct kvt_error *err) {
    const double start = kvt_clock_seconds();
    const enum kvt_status status = kvt_engine_load(&r->engine, r->settings->model, &r->settings->place, err);
    r->summary.load_seconds = kvt_clock_seconds() - start;
    r->summary.model = r->engine.model;
    return status;
}

static enum kvt_status create_session(struct run *r, struct kvt_error *err) {
    const struct settings *s = r->settings;
    struct kvt_choice_request request = {.kv = &s->kv, .n_sessions = 1, .level = s->gen.level, .quiet = s->gen.quiet};
    KVT_TRY(choose_context(r, &request.n_ctx, err));
    KVT_TRY(kvt_choice_make(&r->choice, &r->engine, &request, err));
    struct kvt_session_options o = {.n_ctx = request.n_ctx,
                                    .n_keep = 1,
                                    .n_batch = (int)s->gen.n_batch,
                                    .place = r->engine.place,
                                    .level = s->gen.level,
                                    .parallel = &r->engine.parallel};
    kvt_choice_apply(&o, &r->choice);
    KVT_TRY(kvt_session_create(&r->session, r->engine.model, &o, err));
    KVT_TRY(kvt_choice_tell(&r->choice, &r->engine, &request, err));
    r->summary.session = r->session;
    KVT_TRY(kvt_gen_init(&r->gen, &s->gen, r->engine.model, err));
    r->summary.seed = r->gen.seed;
    r->summary.greedy = s->gen.temp == 0;
    return KVT_OK;
}

static enum kvt_status prefill(struct run *r, struct kvt_error *err) {
    struct kvt_prompt_cache *cache = &r->prompt_cache;
    const int n = (int)r->ids.len;
    if (cache->path) KVT_TRY(kvt_prompt_cache_load(cache, r->session, r->ids.data, n, err));
    const int kept = cache->reuse.n_kept;
    const double start = kvt_clock_seconds();
    const enum kvt_status status =
        kvt_session_eval(r->session, r->ids.data + kept, n - kept, 1, &r->engine.progress.progress, err);
    kvt_term_progress_erase(&r->engine.progress);
    r->summary.prompt_seconds = kvt_clock_seconds() - start;
    r->summary.n_prompt_done = kvt_session_n_rows(r->session);
    r->summary.reuse = cache->path ? &cache->reuse : NULL;
    if (status == KVT_OK && cache->path) r->saved = kvt_prompt_cache_save(cache, r->session, &r->unsaved);
    return status;
}

/* ---- the text --------------------------------------------------------------------------------------------------------- */

static enum kvt_status show(struct run *r, struct kvt_error *err) {
    if (r->shown.len == 0) return KVT_OK;
    r->ends_line = r->shown.data[r->shown.len - 1] == '\n';
    const enum kvt_status status = kvt_term_write(r->shown.data, r->shown.len, err);
    r->shown.len = 0;
    return status;
}

/* On a terminal the text follows its prompt, which is dim. */
static enum kvt_status show_prompt(struct run *r, struct kvt_error *err) {
    if (!kvt_term_stdout_is_tty() || r->settings->chat) return KVT_OK;
    const bool dim = getenv("NO_COLOR") == NULL;
    KVT_TRY(no_memory(err, kvt_buf_addf(&r->shown, "%s", dim ? "\033[2m" : "")));
    KVT_TRY(no_memory(err, kvt_buf_add(&r->shown, r->prompt.data, r->prompt.len)));
    KVT_TRY(no_memory(err, kvt_buf_addf(&r->shown, "%s", dim ? "\033[0m" : "")));
    return show(r, err);
}

static enum kvt_status show_token(struct run *r, int id, struct kvt_error *err) {
    r->piece.len = 0;
    KVT_TRY(
        no_memory(err, kvt_text_decode(kvt_model_text(r->engine.model), id, r->settings->gen.show_special, &r->piece)));
    KVT_TRY(no_memory(err, kvt_utf8_feed(&r->utf8, kvt_buf_text(&r->piece), r->piece.len, &r->shown)));
    return show(r, err);
}

static enum kvt_status pick(int32_t *out, struct run *r, double *start, struct kvt_error *err) {
    KVT_TRY(kvt_gen_pick(out, &r->gen, r->session, err));
    if (r->summary.n_generated == 0)
        *start = kvt_clock_seconds();
    else
        r->summary.generation_seconds = kvt_clock_seconds() - *start;
    return KVT_OK;
}

static enum kvt_status generate(struct run *r, struct kvt_error *err) {
    struct kvt_summary *s = &r->summary;
    double start = 0;
    s->ended_by = "-n";
    while (s->n_generated != r->settings->gen.n) {
        if (kvt_term_interrupted()) return KVT_ERR_CANCELLED;
        int32_t id = 0;
        KVT_TRY(pick(&id, r, &start, err));
        if (kvt_text_is_end(kvt_model_text(r->engine.model), id)) {
            s->ended_by = "an end token";
            return r->settings->gen.show_special ? show_token(r, id, err) : KVT_OK;
        }
        s->n_generated++;
        KVT_TRY(show_token(r, id, err));
        if (s->n_generated == r->settings->gen.n) break;
        if (kvt_session_n_rows(r->session) == kvt_session_n_ctx(r->session)) {
            s->ended_by = "a full context";
            break;
        }
        KVT_TRY(kvt_session_eval(r->session, &id, 1, 1, NULL, err));
    }
    return KVT_OK;
}

static enum kvt_status produce(struct run *r, struct kvt_error *err) {
    KVT_TRY(prefill(r, err));
    KVT_TRY(show_prompt(r, err));
    const enum kvt_status status = generate(r, err);
    if (status != KVT_OK && status != KVT_ERR_CANCELLED) return status;
    KVT_TRY(no_memory(err, kvt_utf8_flush(&r->utf8, &r->shown)));
    KVT_TRY(show(r, err));
    return status;
}

/* On a terminal a line's end after the text, and an empty line before the summary. */
static void end_line(const struct run *r) {
    if (!kvt_term_stdout_is_tty()) return;
    if (!r->ends_line) putchar('\n');
    fflush(stdout);
    if (kvt_term_stderr_is_tty() && !r->settings->gen.quiet) fputc('\n', stderr);
}

static enum kvt_status run_all(struct run *r, struct kvt_error *err) {
    struct kvt_kv_wish wish;
    enum kvt_level level;
    KVT_TRY(kvt_kv_resolve(&wish, &r->settings->kv, NULL, err)); /* nonsense is found before any work */
    if (r->settings->gen.level) KVT_TRY(kvt_level_parse(&level, r->settings->gen.level, err));
    KVT_TRY(read_prompt(r, err));
    if (r->settings->prompt_cache && !r->settings->read_only) KVT_TRY(kvt_file_probe(r->settings->prompt_cache, err));
    KVT_TRY(kvt_engine_open(&r->engine, r->settings->gen.n_threads, r->settings->gen.quiet,
                            err)); /* Ctrl-C means more from here on */
    KVT_TRY(load(r, err));
    KVT_TRY(encode_prompt(r, err));
    if (r->settings->prompt_cache)
        KVT_TRY(kvt_prompt_cache_open(&r->prompt_cache, r->settings->prompt_cache, r->settings->read_only, err));
    KVT_TRY(create_session(r, err));
    const enum kvt_status status = produce(r, err);
    if (status == KVT_ERR_CANCELLED) r->summary.ended_by = "Ctrl-C";
    if (status != KVT_OK && status != KVT_ERR_CANCELLED)
        r->summary.ended_by = err->text[0] ? "a failure" : "a closed pipe";
    end_line(r);
    if (!r->settings->gen.quiet) kvt_summary_print(&r->summary);
    if (status != KVT_OK || r->saved == KVT_OK) return status;
    return kvt_fail(err, r->saved, "%s", r->unsaved.text); /* the text came first */
}

static void finish(struct run *r) {
    kvt_gen_finish(&r->gen);
    kvt_session_destroy(r->session);
    kvt_choice_finish(&r->choice);
    kvt_engine_close(&r->engine);
    kvt_ids_finish(&r->ids);
    kvt_buf_finish(&r->shown);
    kvt_buf_finish(&r->piece);
    kvt_buf_finish(&r->prompt);
}

static enum kvt_status run(const void *settings, struct kvt_error *err) {
    struct run r = {.settings = settings, .ends_line = true};
    kvt_buf_init(&r.prompt, NULL, PROMPT_MAX);
    kvt_buf_init(&r.piece, NULL, PROMPT_MAX);
    kvt_buf_init(&r.shown, NULL, PROMPT_MAX);
    kvt_ids_init(&r.ids, NULL);
    const enum kvt_status status = run_all(&r, err);
    finish(&r);
    return status;
}

const struct kvt_command kvt_command_run = {
    .name = "run",
    .about = "write text with a model, from a prompt",
    .text =
        "Writes the text that follows a prompt to standard output as it comes, and a summary to standard error: speed, "
        "what the cache took and what an f16 cache would take, and the most memory in use. Control tokens that are "
        "written out in the prompt are read as such, but in a user's message (--chat) they are plain text. The speed of generation counts from the first token on.",
    .examples = "kvtile run models/plain.gguf -p \"The old house\" -n 64 --kv affine4g64\n"
                "kvtile run chat.gguf --chat -p \"What is a key/value cache?\" -n -1\n"
                "kvtile run models/plain.gguf -f letter.txt --temp 0 > answer.txt",
    .options = options,
    .n_options = KVT_ARRAY_LEN(options),
    .shared = shared,
    .n_shared = KVT_ARRAY_LEN(shared),
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
    .run = run,
};
