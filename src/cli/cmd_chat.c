/* SPDX-License-Identifier: Apache-2.0
 * kvtile chat MODEL: a conversation, turn by turn. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/chat.h"
#include "cli/command.h"

enum {
    INPUT_MAX = 1 << 26,
    ROLLING_CONTEXT = 1 << 20 /* tokens of a conversation whose old rows go */
};

#define AT(field) offsetof(struct kvt_chat_settings, field)

static const struct kvt_chat_settings defaults = {.gen = KVT_GEN_DEFAULTS(-1), .kv = KVT_KV_DEFAULTS};

/* clang-format off */
static const struct kvt_opt options[] = {
    {KVT_OPT_ARG, .name = "MODEL", .at = AT(model), .help = "a GGUF file"},
    {KVT_OPT_GROUP, .name = "Conversation"},
    {KVT_OPT_TEXT, .name = "system", .value = "TEXT", .at = AT(system), .help = "a system message before it"},
    {KVT_OPT_TEXT, .name = "session", .value = "FILE", .at = AT(session),
     .help = "go on with the conversation in this file, if it is there, and save it at the end: messages, tokens, cache, and where "
             "the draws of the seed are"},
    {KVT_OPT_TEXT, .name = "template", .value = "NAME", .at = AT(template_name),
     .help = "the family of the chat template, where the file's is not recognised (a model without one: chatml)"},
};
/* clang-format on */

static const struct kvt_opt_shared shared[] = {{kvt_gen_options, KVT_GEN_N_OPTIONS, AT(gen)},
                                               {kvt_place_options, KVT_PLACE_N_OPTIONS, AT(place)},
                                               {kvt_kv_options, KVT_KV_N_OPTIONS, AT(kv)}};

/* ---- answers ---------------------------------------------------------------------------------------------------------- */

static enum kvt_status no_memory(struct kvt_error *err, enum kvt_status status) {
    return status == KVT_OK ? KVT_OK : kvt_fail(err, status, "out of memory for an answer");
}

static enum kvt_status show(struct kvt_chat *c, struct kvt_error *err) {
    if (c->shown.len == 0) return KVT_OK;
    c->ends_line = c->shown.data[c->shown.len - 1] == '\n';
    const enum kvt_status status = kvt_term_write(c->shown.data, c->shown.len, err);
    c->shown.len = 0;
    return status;
}

static enum kvt_status show_token(struct kvt_chat *c, int32_t id, struct kvt_error *err) {
    c->piece.len = 0;
    KVT_TRY(no_memory(err, kvt_text_decode(c->talk.text, id, c->settings->gen.show_special, &c->piece)));
    KVT_TRY(no_memory(err, kvt_utf8_feed(&c->utf8, kvt_buf_text(&c->piece), c->piece.len, &c->shown)));
    return show(c, err);
}

/* The whole answer is shown; a line ends after it. */
static enum kvt_status end_answer(struct kvt_chat *c, struct kvt_error *err) {
    KVT_TRY(no_memory(err, kvt_utf8_flush(&c->utf8, &c->shown)));
    KVT_TRY(show(c, err));
    if (c->ends_line) return KVT_OK;
    c->ends_line = true;
    return kvt_term_write("\n", 1, err);
}

static enum kvt_status context_is_full(const struct kvt_chat *c, struct kvt_error *err) {
    return kvt_fail(err, KVT_ERR_LIMIT,
                    "the context of %d tokens is full: /clear begins anew, /undo takes the last turn back, and with "
                    "--max-kv-size N the oldest rows go",
                    kvt_session_n_ctx(c->session));
}

/* Tokens until something ends the answer; *ended_by says what. */
static enum kvt_status generate(struct kvt_chat *c, struct kvt_error *err) {
    struct kvt_chat_turn *turn = &c->last;
    turn->ended_by = "-n";
    while (turn->n_generated != c->settings->gen.n) {
        int32_t id = 0;
        if (kvt_term_interrupted()) {
            turn->ended_by = "Ctrl-C";
            return KVT_OK;
        }
        KVT_TRY(kvt_gen_pick(&id, &c->gen, c->session, err));
        if (kvt_text_is_end(c->talk.text, id)) {
            turn->ended_by = "an end token";
            return c->settings->gen.show_special ? show_token(c, id, err) : KVT_OK;
        }
        turn->n_generated++;
        KVT_TRY(show_token(c, id, err));
        c->piece.len = 0;
        KVT_TRY(no_memory(err, kvt_text_decode(c->talk.text, id, false, &c->piece)));
        KVT_TRY(kvt_talk_hear(&c->talk, kvt_buf_text(&c->piece), c->piece.len, err));
        if (kvt_session_n_rows(c->session) == kvt_session_n_ctx(c->session)) {
            turn->ended_by = "a full context";
            return context_is_full(c, err);
        }
        KVT_TRY(kvt_talk_feed_token(&c->talk, id, kvt_buf_text(&c->piece), c->piece.len, err));
    }
    return KVT_OK;
}

static enum kvt_status feed(struct kvt_chat *c, struct kvt_error *err) {
    const double start = kvt_clock_seconds();
    KVT_TRY(kvt_talk_prepare(&c->talk, err));
    c->last = (struct kvt_chat_turn){.n_prompt = (int)KVT_MIN(c->talk.ids.len, (size_t)INT32_MAX)};
    if (c->last.n_prompt >= kvt_session_n_ctx(c->session)) return context_is_full(c, err);
    const enum kvt_status status = kvt_talk_feed(&c->talk, &c->engine.progress.progress, err);
    kvt_term_progress_erase(&c->engine.progress);
    c->last.n_fed = c->last.n_prompt - c->talk.reuse.n_kept;
    c->last.feed_seconds = kvt_clock_seconds() - start;
    return status;
}

enum kvt_status kvt_chat_answer(struct kvt_chat *c, struct kvt_error *err) {
    struct kvt_error shown = {KVT_OK, ""};
    kvt_term_catch_interrupt(false);
    KVT_TRY(feed(c, err));
    KVT_TRY(kvt_talk_say(&c->talk, "", 0, err)); /* to be heard */
    const double start = kvt_clock_seconds();
    enum kvt_status status = generate(c, err);
    c->last.answer_seconds = kvt_clock_seconds() - start;
    const enum kvt_status ended = end_answer(c, &shown);
    if (c->last.n_generated == 0 && (status != KVT_OK || kvt_term_interrupted())) kvt_talk_drop(&c->talk);
    if (ended != KVT_OK) return kvt_fail(err, ended, "%s", shown.text);
    if (c->last.n_generated == 0 && status == KVT_OK && kvt_term_interrupted())
        return kvt_fail(err, KVT_ERR_CANCELLED, "stopped before the answer began");
    return status;
}

/* ---- turns ------------------------------------------------------------------------------------------------------------ */

/* A message of the user's and its answer; without an answer the message is not kept. */
static enum kvt_status take_turn(struct kvt_chat *c, struct kvt_error *err) {
    const int before = c->talk.n_messages;
    KVT_TRY(kvt_talk_say(&c->talk, kvt_buf_text(&c->input), c->input.len, err));
    const enum kvt_status status = kvt_chat_answer(c, err);
    if (c->talk.n_messages == before + 1) kvt_talk_drop(&c->talk);
    return status;
}

static bool is_blank(const struct kvt_buf *text) { return strspn(kvt_buf_text(text), " \t\n") == text->len; }

static enum kvt_status do_input(struct kvt_chat *c, struct kvt_error *err) {
    if (is_blank(&c->input)) return KVT_OK;
    if (c->input.data[0] != '/') return take_turn(c, err);
    if (c->input.data[1] != '/') return kvt_chat_command(c, kvt_buf_text(&c->input), err);
    memmove(c->input.data, c->input.data + 1, c->input.len); /* "//" is a slash; the NUL moves along */
    c->input.len--;
    return take_turn(c, err);
}

/* What failed is told, and the conversation goes on; in a script's conversation a failure is the program's in the end. */
static enum kvt_status talk(struct kvt_chat *c, struct kvt_error *err) {
    enum kvt_status result = KVT_OK;
    const bool is_typed = kvt_line_is_typed(c->line);
    for (int n_interrupts = 0; !c->is_over;) {
        enum kvt_line_end end = KVT_LINE_OVER;
        kvt_term_catch_interrupt(true);
        if (kvt_term_ended()) return KVT_ERR_CANCELLED;
        KVT_TRY(kvt_line_read(&end, c->line, &c->input, err));
        if (end == KVT_LINE_INTERRUPTED) {
            if (!is_typed || kvt_term_ended()) return KVT_ERR_CANCELLED;
            fputs(n_interrupts ? "\n" : "\n(Ctrl-C again or Ctrl-D ends)\n", stderr);
            c->is_over = n_interrupts++ > 0;
            continue;
        }
        n_interrupts = 0;
        if (end == KVT_LINE_OVER) {
            if (is_typed) fputc('\n', stderr);
            break;
        }
        struct kvt_error told = {KVT_OK, ""};
        const enum kvt_status status = do_input(c, &told);
        if (status == KVT_ERR_IO && told.text[0] == 0) return kvt_fail(err, status, "%s", "");
        if (status != KVT_OK && told.text[0]) kvt_term_error(told.text);
        if (!is_typed && kvt_term_interrupted()) return KVT_ERR_CANCELLED;
        if (status != KVT_OK && !is_typed) result = KVT_ERR_STATE;
    }
    if (result != KVT_OK) return kvt_fail(err, result, "%s", ""); /* it was told */
    return KVT_OK;
}

/* ---- beginning and end ------------------------------------------------------------------------------------------------ */

static enum kvt_status create_session(struct kvt_chat *c, struct kvt_error *err) {
    const struct kvt_chat_settings *s = c->settings;
    const int64_t trained = kvt_model_info(c->engine.model).n_ctx_train;
    const bool rolls = s->kv.rolling > 0;
    const int64_t n_ctx = s->gen.n_ctx ? s->gen.n_ctx : rolls ? KVT_MAX(trained, (int64_t)ROLLING_CONTEXT) : trained;
    const struct kvt_choice_request request = {
        .kv = &s->kv, .n_ctx = (int)n_ctx, .n_sessions = 1, .level = s->gen.level, .quiet = s->gen.quiet};
    KVT_TRY(kvt_choice_make(&c->choice, &c->engine, &request, err));
    struct kvt_session_options o = {.n_ctx = request.n_ctx,
                                    .beyond = rolls,
                                    .n_keep = 1,
                                    .n_batch = (int)s->gen.n_batch,
                                    .place = c->engine.place,
                                    .level = s->gen.level,
                                    .parallel = &c->engine.parallel};
    kvt_choice_apply(&o, &c->choice);
    KVT_TRY(kvt_session_create(&c->session, c->engine.model, &o, err));
    return kvt_choice_tell(&c->choice, &c->engine, &request, err);
}

/* What a conversation is written in where neither the model nor the caller says, and said so. */
static const char *template_of(const struct kvt_chat *c) {
    static const char usual[] = "chatml";
    if (c->settings->template_name || kvt_model_info(c->engine.model).chat_template) return c->settings->template_name;
    fprintf(stderr, "[chat] the model has no chat template: turns are written in %s; --template NAME chooses another\n",
            usual);
    return usual;
}

static enum kvt_status begin(struct kvt_chat *c, struct kvt_error *err) {
    const struct kvt_chat_settings *s = c->settings;
    struct kvt_kv_wish wish;
    enum kvt_level level;
    const struct kvt_chat_template *family = NULL;
    const char *source = NULL;
    KVT_TRY(kvt_kv_resolve(&wish, &s->kv, NULL, err)); /* nonsense is found before any work */
    if (s->gen.level) KVT_TRY(kvt_level_parse(&level, s->gen.level, err));
    if (s->session) KVT_TRY(kvt_file_probe(s->session, err));
    kvt_term_catch_end(); /* what was said is to be saved, and the terminal given back */
    KVT_TRY(kvt_engine_open(&c->engine, s->gen.n_threads, s->gen.quiet, err));
    KVT_TRY(kvt_line_open(&c->line, err)); /* what is typed from here on is for the first turn */
    KVT_TRY(kvt_engine_load(&c->engine, s->model, &s->place, err));
    KVT_TRY(kvt_gen_template(&family, &source, template_of(c), c->engine.model, err));
    KVT_TRY(create_session(c, err));
    KVT_TRY(kvt_gen_init(&c->gen, &s->gen, c->engine.model, err));
    kvt_talk_init(&c->talk, c->engine.model, c->session, family, source);
    if (s->session && access(s->session, F_OK) == 0) KVT_TRY(kvt_chat_load(c, s->session, err));
    if (s->system) KVT_TRY(kvt_talk_set_system(&c->talk, s->system, strlen(s->system), err));
    if (kvt_line_is_typed(c->line) && !s->gen.quiet)
        fprintf(stderr, "%s, %s, %d tokens of context; /help lists the commands\n",
                kvt_model_info(c->engine.model).name, kvt_plan_kv(kvt_session_plan(c->session)),
                kvt_session_n_ctx(c->session));
    return KVT_OK;
}

/* The conversation is saved however it ended. */
static enum kvt_status run_all(struct kvt_chat *c, struct kvt_error *err) {
    KVT_TRY(begin(c, err));
    const enum kvt_status status = talk(c, err);
    if (!c->settings->session || (c->talk.n_messages == 0 && kvt_session_n_rows(c->session) == 0)) return status;
    struct kvt_error unsaved = {KVT_OK, ""};
    const enum kvt_status saved = kvt_chat_save(c, c->settings->session, &unsaved);
    if (saved == KVT_OK) return status;
    return kvt_fail(err, saved, "%s", unsaved.text);
}

static void finish(struct kvt_chat *c) {
    kvt_line_close(c->line);
    if (c->talk.session) kvt_talk_finish(&c->talk);
    kvt_gen_finish(&c->gen);
    kvt_session_destroy(c->session);
    kvt_choice_finish(&c->choice);
    kvt_engine_close(&c->engine);
    kvt_buf_finish(&c->shown);
    kvt_buf_finish(&c->piece);
    kvt_buf_finish(&c->input);
}

static enum kvt_status run(const void *settings, struct kvt_error *err) {
    struct kvt_chat c = {.settings = settings, .ends_line = true};
    kvt_buf_init(&c.input, NULL, INPUT_MAX);
    kvt_buf_init(&c.piece, NULL, INPUT_MAX);
    kvt_buf_init(&c.shown, NULL, INPUT_MAX);
    const enum kvt_status status = run_all(&c, err);
    finish(&c);
    return status;
}

const struct kvt_command kvt_command_chat = {
    .name = "chat",
    .about = "talk with a model, turn by turn",
    .text =
        "Reads what you say and streams the model's answers. Turns are written by the model's own chat template, and only what is new is "
        "fed: the cache keeps the rest. Ctrl-C stops an answer and keeps the conversation; at the prompt it clears the line, and "
        "twice it ends the program, as Ctrl-D does. What --session names is saved also where a terminal goes away or the process is told to end. A backslash at the end of a line, or pasted text, makes a message of several lines.\n"
        "Where standard input is no terminal each line is a turn: answers alone go to standard output, all else to standard error. "
        "A line that begins with a slash is a command, and /help lists them; one that begins with two is a message that begins with one.\n"
        "Control tokens in what you say are plain text. A conversation saved with --session or /save goes on, with the same model and cache, as if "
        "the program had not ended in between.",
    .examples = "kvtile chat SmolLM2-135M-Instruct.Q4_1.gguf --kv kvt4 --session talk.kvt\n"
                "kvtile chat models/plain.gguf --template chatml\n"
                "kvtile chat chat.gguf --system \"Be brief.\" -q < turns.txt > answers.txt",
    .options = options,
    .n_options = KVT_ARRAY_LEN(options),
    .shared = shared,
    .n_shared = KVT_ARRAY_LEN(shared),
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
    .run = run,
};
