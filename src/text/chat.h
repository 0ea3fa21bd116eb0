/* SPDX-License-Identifier: Apache-2.0
 * Inside of chat templates: what they are made of, and reading a GGUF's Jinja source. */
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H

#include "text/text.h"

/* What a template writes around the content of a message. */
struct kvt_chat_turn {
    const char *open, *close;
};

enum {
    KVT_CHAT_TAKES_TURNS = 1 << 0,     /* user and assistant alternate, the user first */
    KVT_CHAT_NO_SYSTEM = 1 << 1,       /* there is no place for a system message */
    KVT_CHAT_SYSTEM_FIRST = 1 << 2,    /* only the first message may be the system's */
    KVT_CHAT_SYSTEM_IN_USER = 1 << 3,  /* it is written into the user's first turn */
    KVT_CHAT_SYSTEM_IN_LAST = 1 << 4,  /* or into the last message, if that is the user's */
    KVT_CHAT_SYSTEM_ALWAYS = 1 << 5,   /* its turn is written even where there is none */
    KVT_CHAT_SYSTEM_IF_ANY = 1 << 6,   /* an empty one is left out */
    KVT_CHAT_DEFAULT_IF_NONE = 1 << 7, /* the default is written if there is none at all, not just none at the start */
    KVT_CHAT_TRIM = 1 << 8,            /* contents lose white space at both ends */
    KVT_CHAT_TRIM_TURN = 1 << 9,       /* the user's after the system message was put in front */
    KVT_CHAT_TRIM_ASSISTANT = 1 << 10, /* the assistant's only */
    KVT_CHAT_BOS_EACH_TURN = 1 << 11,  /* each turn of the user begins with BOS */
    KVT_CHAT_FORGET_THOUGHT = 1 << 12, /* of the assistant's contents only what follows </think> is kept */
    KVT_CHAT_SHOW_THOUGHT = 1 << 13    /* but all of a last message that comes after the user's */
};

struct kvt_chat_template {
    const char *name;
    const char *pieces[3];  /* a source of this kind has all of these, in plain form (below), */
    const char *without[6]; /* and none of these */
    const char *bos;        /* text of the token it begins with; NULL: none */
    struct kvt_chat_turn system, user, assistant;
    const char *reply;          /* opens the assistant's turn */
    const char *thinking_reply; /* the string of sources that open it with <think>, in plain form; NULL: none do */
    const char *ending; /* written where no reply is opened, by sources that write eos_token there; NULL: nothing */
    const char *default_open, *default_end; /* what stands around a default system message in a source; NULL: none */
    unsigned rules;
};

/* The templates; one that suits a source stands before those that are less particular. NULL past the last. */
const struct kvt_chat_template *kvt_chat_row(int i);

/* The plain form of a source, in which spelling does not matter: comments, white space outside of strings and the marks that
 * strip it are gone; strings are in single quotes, with \n for line ends, and constant sums of them are one; m['x'] is m.x. */
KVT_MUST_CHECK enum kvt_status kvt_chat_plain_form(struct kvt_buf *out, const char *source, size_t len);

/* Appends the text of a string in plain form: without its escapes. */
KVT_MUST_CHECK enum kvt_status kvt_chat_unescape(struct kvt_buf *out, const char *string, size_t len);

#endif
