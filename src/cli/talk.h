/* SPDX-License-Identifier: Apache-2.0
 *
 * A conversation and the session that holds it. Before each answer the whole conversation is written by the model's template and
 * compared with what the session holds; only what differs is fed. Tokens that the model wrote stay the tokens they were, even
 * where their text would be cut into others.
 */
#ifndef CLI_TALK_H
#define CLI_TALK_H

#include "base/progress.h"
#include "cli/reuse.h"
#include "model/model.h"

struct kvt_talk {
    const struct kvt_text *text;
    struct kvt_session *session;
    const struct kvt_chat_template *family;
    const char *source;

    struct kvt_buf system; /* the system message; empty: none */
    struct kvt_buf said;   /* messages, each with its NUL: the user's and the assistant's in turn, the user's first */
    int n_messages;

    struct kvt_buf written, parts; /* what the session's tokens are the text of, and its parts (struct part) */
    struct kvt_chat_text chat;
    struct kvt_ids ids; /* of the conversation as it was prepared */
    int n_kept_parts;
    size_t n_kept_bytes;

    struct kvt_reuse reuse; /* at the last feed */
    bool exact;             /* whether all were */
};

void kvt_talk_init(struct kvt_talk *talk, const struct kvt_model *model, struct kvt_session *session,
                   const struct kvt_chat_template *family, const char *source);
void kvt_talk_finish(struct kvt_talk *talk);

/* ARG for a zero byte, which a message cannot hold. */
KVT_MUST_CHECK enum kvt_status kvt_talk_set_system(struct kvt_talk *talk, const char *text, size_t len,
                                                   struct kvt_error *err);
/* A message of whoever's turn it is. */
KVT_MUST_CHECK enum kvt_status kvt_talk_say(struct kvt_talk *talk, const char *text, size_t len, struct kvt_error *err);
void kvt_talk_drop(struct kvt_talk *talk); /* the last message, if there is one */
/* The last message; NULL if there is none. */
const char *kvt_talk_last(const struct kvt_talk *talk);
void kvt_talk_clear(struct kvt_talk *talk); /* all but the system message; the session too */

/* Puts the tokens of the conversation, up to where the assistant's next answer begins, into talk->ids. ARG for one that the template
 * has no place for. */
KVT_MUST_CHECK enum kvt_status kvt_talk_prepare(struct kvt_talk *talk, struct kvt_error *err);
/* Trims the session and feeds it what was prepared. What was fed before a failure is used the next time. */
KVT_MUST_CHECK enum kvt_status kvt_talk_feed(struct kvt_talk *talk, const struct kvt_progress *progress,
                                             struct kvt_error *err);

/* More text of the last message, which is an answer: what a token adds. */
KVT_MUST_CHECK enum kvt_status kvt_talk_hear(struct kvt_talk *talk, const char *piece, size_t len,
                                             struct kvt_error *err);
/* Feeds that token. */
KVT_MUST_CHECK enum kvt_status kvt_talk_feed_token(struct kvt_talk *talk, int32_t id, const char *piece, size_t len,
                                                   struct kvt_error *err);

/* Conversation, session and a sampler's state in a file, by kvt_session_save; and back. After a failed load the conversation is as it
 * was, though it may have to be fed again. */
KVT_MUST_CHECK enum kvt_status kvt_talk_save(const struct kvt_talk *talk, uint64_t sampler, const char *path,
                                             struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status kvt_talk_load(struct kvt_talk *talk, uint64_t *sampler, const char *path,
                                             struct kvt_error *err);

#endif
