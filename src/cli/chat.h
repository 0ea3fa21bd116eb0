/* SPDX-License-Identifier: Apache-2.0
 *
 * kvtile chat: the conversation at hand, and the commands that begin with a slash.
 */
#ifndef CLI_CHAT_H
#define CLI_CHAT_H

#include "cli/choice.h"
#include "cli/engine.h"
#include "cli/gen.h"
#include "cli/line.h"
#include "cli/talk.h"

struct kvt_chat_settings {
    const char *model, *system, *session, *template_name;
    struct kvt_gen_settings gen;
    struct kvt_place_settings place;
    struct kvt_kv_settings kv;
};

/* What the last turn did. */
struct kvt_chat_turn {
    int n_prompt, n_fed, n_generated; /* tokens of the conversation up to the answer, of them fed now; of the answer */
    double feed_seconds, answer_seconds;
    const char *ended_by; /* NULL: there was none */
};

struct kvt_chat {
    const struct kvt_chat_settings *settings;
    struct kvt_engine engine;
    struct kvt_choice choice;
    struct kvt_session *session;
    struct kvt_gen gen;
    struct kvt_talk talk;
    struct kvt_line *line;
    struct kvt_buf input; /* what was read last */
    struct kvt_buf piece, shown;
    struct kvt_utf8_stream utf8;
    struct kvt_chat_turn last;
    bool ends_line; /* whether the text shown so far ends one */
    bool is_over;
};

/* Lets the model answer the last message, which is the user's, and adds its answer. After a failure before the answer's first token
 * there is none; Ctrl-C later on keeps what was said so far and is no failure. IO where the answer cannot be shown. */
KVT_MUST_CHECK enum kvt_status kvt_chat_answer(struct kvt_chat *chat, struct kvt_error *err);

/* Does what "/name rest" says. Its failures are for the user, but for IO, which ends the program. */
KVT_MUST_CHECK enum kvt_status kvt_chat_command(struct kvt_chat *chat, const char *text, struct kvt_error *err);

/* Both tell on standard error what they did. */
KVT_MUST_CHECK enum kvt_status kvt_chat_save(struct kvt_chat *chat, const char *path, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status kvt_chat_load(struct kvt_chat *chat, const char *path, struct kvt_error *err);

#endif
