/* SPDX-License-Identifier: Apache-2.0
 * The commands of a chat. All they tell goes to standard error. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "cli/chat.h"
#include "cli/summary.h"

/* ---- files ------------------------------------------------------------------------------------------------------------ */

static void tell_file(const struct kvt_chat *c, const char *what, const char *path) {
    char size[KVT_TERM_BYTES_MAX];
    if (c->settings->gen.quiet) return;
    fprintf(stderr, "%s %s: %d messages, %d tokens, %s of cache\n", what, path, c->talk.n_messages,
            kvt_session_n_rows(c->session), kvt_term_bytes(size, kvt_session_usage(c->session).total_bytes));
}

enum kvt_status kvt_chat_save(struct kvt_chat *c, const char *path, struct kvt_error *err) {
    KVT_TRY(kvt_talk_save(&c->talk, kvt_sampler_state(c->gen.sampler), path, err));
    tell_file(c, "saved", path);
    return KVT_OK;
}

enum kvt_status kvt_chat_load(struct kvt_chat *c, const char *path, struct kvt_error *err) {
    uint64_t sampler = 0;
    KVT_TRY(kvt_talk_load(&c->talk, &sampler, path, err));
    kvt_sampler_set_state(c->gen.sampler, sampler);
    tell_file(c, "resumed", path);
    return KVT_OK;
}

/* ---- commands --------------------------------------------------------------------------------------------------------- */

typedef enum kvt_status (*command_fn)(struct kvt_chat *c, const char *rest, struct kvt_error *err);

static enum kvt_status help(struct kvt_chat *c, const char *rest, struct kvt_error *err);

static double rate(int n, double seconds) { return n > 0 && seconds > 0 ? n / seconds : 0; }

static enum kvt_status stats(struct kvt_chat *c, const char *rest, struct kvt_error *err) {
    const struct kvt_chat_turn *t = &c->last;
    const int n_rows = kvt_session_n_rows(c->session);
    (void)rest, (void)err;
    fprintf(stderr, "messages   %d, %d of %d tokens\n", c->talk.n_messages, n_rows, kvt_session_n_ctx(c->session));
    if (t->ended_by)
        fprintf(stderr, "last turn  fed %d of %d tokens, %.1f tokens/s; generated %d, %.1f tokens/s, ended by %s\n",
                t->n_fed, t->n_prompt, rate(t->n_fed, t->feed_seconds), t->n_generated,
                rate(t->n_generated, t->answer_seconds), t->ended_by);
    fprintf(stderr, "reuse      %s\n",
            c->talk.exact
                ? "exact: the cache is as if every token had been fed once"
                : "not exact: to go back, rows were decoded to 16 bits and are encoded again; /clear begins anew");
    if (c->settings->gen.temp > 0) fprintf(stderr, "seed       %llu\n", (unsigned long long)c->gen.seed);
    kvt_summary_print_cache(c->engine.model, c->session);
    return KVT_OK;
}

static bool same_layer(const struct kvt_layer_plan *a, const struct kvt_layer_plan *b) {
    return a->codec[0] == b->codec[0] && a->codec[1] == b->codec[1] && a->sink == b->sink && a->tail == b->tail &&
           a->start == b->start && a->window == b->window && strcmp(a->reason, b->reason) == 0;
}

static void print_layers(int first, int end, const struct kvt_layer_plan *layer) {
    fprintf(stderr, end - first == 1 ? "layer  %d" : "layers %d", first);
    if (end - first > 1) fprintf(stderr, "-%d", end - 1);
    fprintf(stderr, ": K %s, V %s", kvt_codec_info(layer->codec[KVT_SIDE_K]).name,
            kvt_codec_info(layer->codec[KVT_SIDE_V]).name);
    if (layer->sink) fprintf(stderr, ", sink %d", layer->sink);
    if (layer->tail) fprintf(stderr, ", tail %d", layer->tail);
    if (layer->start) fprintf(stderr, ", in 16 bits below %lld rows", (long long)layer->start);
    if (layer->window) fprintf(stderr, ", window %lld", (long long)layer->window);
    fprintf(stderr, "%s%s%s\n", layer->reason[0] ? " (" : "", layer->reason, layer->reason[0] ? ")" : "");
}

static enum kvt_status kv(struct kvt_chat *c, const char *rest, struct kvt_error *err) {
    const struct kvt_plan *plan = kvt_session_plan(c->session);
    const int n = kvt_plan_n_layers(plan);
    (void)rest, (void)err;
    for (int first = 0, end; first < n; first = end) {
        const struct kvt_layer_plan *layer = kvt_plan_layer(plan, first);
        for (end = first + 1; end < n && same_layer(layer, kvt_plan_layer(plan, end));) end++;
        print_layers(first, end, layer);
    }
    kvt_summary_print_cache(c->engine.model, c->session);
    return KVT_OK;
}

static enum kvt_status save(struct kvt_chat *c, const char *rest, struct kvt_error *err) {
    const char *path = rest[0] ? rest : c->settings->session;
    if (!path) return kvt_fail(err, KVT_ERR_ARG, "/save needs a file: /save FILE, or start with --session FILE");
    return kvt_chat_save(c, path, err);
}

static enum kvt_status load(struct kvt_chat *c, const char *rest, struct kvt_error *err) {
    if (!rest[0]) return kvt_fail(err, KVT_ERR_ARG, "/load needs a file: /load FILE");
    return kvt_chat_load(c, rest, err);
}

static enum kvt_status clear(struct kvt_chat *c, const char *rest, struct kvt_error *err) {
    (void)rest, (void)err;
    kvt_talk_clear(&c->talk);
    c->last = (struct kvt_chat_turn){.ended_by = NULL};
    return KVT_OK;
}

static enum kvt_status set_system(struct kvt_chat *c, const char *rest, struct kvt_error *err) {
    return kvt_talk_set_system(&c->talk, rest, strlen(rest), err);
}

/* The answer before comes back where there is no new one. */
static enum kvt_status retry(struct kvt_chat *c, const char *rest, struct kvt_error *err) {
    const char *answer = kvt_talk_last(&c->talk);
    (void)rest;
    if (!answer) return kvt_fail(err, KVT_ERR_ARG, "there is nothing to answer yet");
    const int before = c->talk.n_messages;
    c->input.len = 0;
    if (kvt_buf_add(&c->input, answer, strlen(answer)) != KVT_OK)
        return kvt_fail(err, KVT_ERR_NOMEM, "out of memory to keep the answer");
    kvt_talk_drop(&c->talk);
    enum kvt_status status = kvt_chat_answer(c, err);
    if (c->talk.n_messages < before) {
        const enum kvt_status kept = kvt_talk_say(&c->talk, kvt_buf_text(&c->input), c->input.len, err);
        if (kept != KVT_OK) status = kept;
    }
    return status;
}

static enum kvt_status undo(struct kvt_chat *c, const char *rest, struct kvt_error *err) {
    (void)rest;
    if (c->talk.n_messages == 0) return kvt_fail(err, KVT_ERR_ARG, "there is no turn to take back");
    kvt_talk_drop(&c->talk);
    kvt_talk_drop(&c->talk);
    return KVT_OK;
}

static enum kvt_status quit(struct kvt_chat *c, const char *rest, struct kvt_error *err) {
    (void)rest, (void)err;
    c->is_over = true;
    return KVT_OK;
}

static const struct command {
    const char *name, *value, *help;
    command_fn run;
} commands[] = {
    {"help", "", "this list", help},
    {"stats", "", "tokens, speed, what the cache takes", stats},
    {"kv", "", "the cache layer by layer", kv},
    {"save", " [FILE]", "save the conversation with its cache", save},
    {"load", " FILE", "go on with a saved one", load},
    {"system", " [TEXT]", "set the system message, or take it away", set_system},
    {"retry", "", "answer the last message again", retry},
    {"undo", "", "take the last message and its answer back", undo},
    {"clear", "", "begin a new conversation", clear},
    {"quit", "", "end; so does Ctrl-D", quit},
};

static enum kvt_status help(struct kvt_chat *c, const char *rest, struct kvt_error *err) {
    (void)c, (void)rest, (void)err;
    for (size_t i = 0; i < KVT_ARRAY_LEN(commands); i++) {
        char name[32];
        snprintf(name, sizeof name, "%s%s", commands[i].name, commands[i].value);
        fprintf(stderr, "/%-15s %s\n", name, commands[i].help);
    }
    fprintf(stderr,
            "A backslash at the end of a line: the message goes on. Two slashes in front: a message, no command.\n");
    return KVT_OK;
}

enum kvt_status kvt_chat_command(struct kvt_chat *c, const char *text, struct kvt_error *err) {
    char name[16];
    const size_t len = strcspn(text + 1, " \t\n");
    const char *rest = text + 1 + len + strspn(text + 1 + len, " \t\n");
    snprintf(name, sizeof name, "%.*s", (int)KVT_MIN(len, sizeof name - 1), text + 1);
    const struct command *nearest = NULL;
    int least = INT_MAX;
    for (size_t i = 0; i < KVT_ARRAY_LEN(commands); i++) {
        const int distance = kvt_word_distance(name, commands[i].name);
        if (distance < least) {
            least = distance;
            nearest = &commands[i];
        }
    }
    if (least == 0) return nearest->run(c, rest, err);
    return kvt_fail(err, KVT_ERR_ARG, "there is no command /%s%s%s; /help lists them", name,
                    kvt_word_is_near(name, least) ? "; did you mean /" : "",
                    kvt_word_is_near(name, least) ? nearest->name : "");
}
