/* SPDX-License-Identifier: Apache-2.0
 *
 * Door of text: tokenizers and chat templates. Text is bytes; where it is not valid UTF-8 it is taken as bytes.
 */
#ifndef TEXT_TEXT_H
#define TEXT_TEXT_H

#include "base/buf.h"

/* GGUF's token types. */
enum kvt_token_type {
    KVT_TOKEN_NORMAL = 1,
    KVT_TOKEN_UNKNOWN = 2,
    KVT_TOKEN_CONTROL = 3,
    KVT_TOKEN_USER = 4,
    KVT_TOKEN_UNUSED = 5,
    KVT_TOKEN_BYTE = 6
};

struct kvt_text_piece {
    const char *data;
    size_t len;
};

/* What a vocabulary is made from; the arrays are copied. -1 for ids that the file does not give. */
struct kvt_text_spec {
    const char *model; /* tokenizer.ggml.model: "gpt2" (byte-level BPE) or "llama" (SentencePiece) */
    const char *pre;   /* tokenizer.ggml.pre; NULL: absent; needed by "gpt2" */
    int n_tokens;
    const struct kvt_text_piece *tokens;
    const float *scores;  /* NULL if absent; needed by "llama" */
    const int32_t *types; /* NULL: all normal */
    int n_merges;
    const struct kvt_text_piece *merges; /* "left right"; needed by "gpt2" */
    int bos, eos, eot, unk, pad;
    int add_bos, add_eos,
        add_space_prefix;    /* 0, 1, or -1 where the file does not say: then as its kind is known to be */
    bool control_eats_space; /* white space after a control token belongs to it: the Phi-3 models */
};

/* A tokenizer. Immutable, any thread, except that each thread needs its own stream (below). */
struct kvt_text;

/* UNSUPPORTED for an unknown model or pre-tokenizer: the sentence names it and lists the known ones. FORMAT for a broken
 * vocabulary. */
KVT_MUST_CHECK enum kvt_status kvt_text_create(struct kvt_text **out, const struct kvt_text_spec *spec,
                                               const struct kvt_allocator *allocator, struct kvt_error *err);
void kvt_text_destroy(struct kvt_text *text);

int kvt_text_n_tokens(const struct kvt_text *text);
int kvt_text_bos(const struct kvt_text *text);      /* -1: none */
int kvt_text_eos(const struct kvt_text *text);      /* -1: none */
bool kvt_text_add_bos(const struct kvt_text *text); /* whether a prompt begins with BOS */
bool kvt_text_add_eos(const struct kvt_text *text);
/* Whether a token ends generation: end of text, end of turn, and their kin (by id and by well-known names). */
bool kvt_text_is_end(const struct kvt_text *text, int id);
/* The id of a token given by its text as the vocabulary writes it ("<|im_end|>"), or -1. */
int kvt_text_find(const struct kvt_text *text, const char *piece, size_t len);

/* Growing list of token ids. */
struct kvt_ids {
    struct kvt_allocator allocator;
    int32_t *data;
    size_t len, capacity;
};
void kvt_ids_init(struct kvt_ids *ids, const struct kvt_allocator *allocator);
void kvt_ids_finish(struct kvt_ids *ids);
KVT_MUST_CHECK enum kvt_status kvt_ids_add(struct kvt_ids *ids, int32_t id);

/* Appends the tokens of a text. parse_special: control tokens written out in the text become those tokens; otherwise they
 * are plain text (user-defined tokens always match). No BOS or EOS is added. */
KVT_MUST_CHECK enum kvt_status kvt_text_encode(const struct kvt_text *text, const char *data, size_t len,
                                               bool parse_special, struct kvt_ids *out, struct kvt_error *err);

/* A stretch of a text. */
struct kvt_text_span {
    size_t start, end;
};

/* A text whose parts come from different hands: control tokens written out in it become those tokens, but for what lies in the
 * spans `plain`, even in part: there a token that is hidden or ends generation is plain text. */
struct kvt_text_mixed {
    const char *data;
    size_t len;
    const struct kvt_text_span *plain; /* in order, apart from each other */
    int n_plain;
    size_t from; /* only what follows here is encoded, */
    int after;   /* after this token; -1: at the start */
};
/* Appends the tokens of a mixed text. No BOS or EOS is added. */
KVT_MUST_CHECK enum kvt_status kvt_text_encode_mixed(const struct kvt_text *text, const struct kvt_text_mixed *mixed,
                                                     struct kvt_ids *out, struct kvt_error *err);

/* Appends the bytes of one token: exactly what it adds to a text. Control tokens give nothing unless show_special. */
KVT_MUST_CHECK enum kvt_status kvt_text_decode(const struct kvt_text *text, int id, bool show_special,
                                               struct kvt_buf *out);

/* Streaming: holds back an unfinished UTF-8 character. feed appends to out what can be shown after a piece of bytes; flush
 * what is left. */
struct kvt_utf8_stream {
    char held[4];
    int n_held;
};
KVT_MUST_CHECK enum kvt_status kvt_utf8_feed(struct kvt_utf8_stream *stream, const char *data, size_t len,
                                             struct kvt_buf *out);
KVT_MUST_CHECK enum kvt_status kvt_utf8_flush(struct kvt_utf8_stream *stream, struct kvt_buf *out);

/* ---- chat templates: families, recognised, never guessed --------------------------------------------------------------- */

struct kvt_chat_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
};

/* A family of templates: static storage. */
struct kvt_chat_template;

/* By name ("chatml"), or NULL. */
const struct kvt_chat_template *kvt_chat_find(const char *name);
const char *kvt_chat_name(const struct kvt_chat_template *family);
const char *kvt_chat_names(void); /* "chatml, qwen3, llama2, ..." */
/* The family of a GGUF's tokenizer.chat_template, or NULL if it is none that is known (or memory is out). */
const struct kvt_chat_template *kvt_chat_detect(const char *source, size_t len);
/* Appends the conversation as text; add_reply: open the assistant's turn.
 * `source` is the GGUF's template (NULL if the family was named by hand): some bring a default system message. A BOS token in
 * front is not written: whoever encodes the text puts it there if kvt_text_add_bos or kvt_chat_begins_with_bos. ARG for a
 * role or an order that the family does not know. */
KVT_MUST_CHECK enum kvt_status kvt_chat_format(const struct kvt_chat_template *family, const char *source,
                                               const struct kvt_chat_message *messages, int n, bool add_reply,
                                               struct kvt_buf *out, struct kvt_error *err);
/* Whether the template itself writes a BOS token in front. */
bool kvt_chat_begins_with_bos(const struct kvt_chat_template *family, const char *source);

/* A conversation as text, and where in it the contents of messages are. */
struct kvt_chat_text {
    struct kvt_buf text;
    struct kvt_text_span *contents;
    int n_contents, room;
};
void kvt_chat_text_init(struct kvt_chat_text *chat, const struct kvt_allocator *allocator, size_t max);
void kvt_chat_text_finish(struct kvt_chat_text *chat);
/* kvt_chat_format in the place of what was there. */
KVT_MUST_CHECK enum kvt_status kvt_chat_write(const struct kvt_chat_template *family, const char *source,
                                              const struct kvt_chat_message *messages, int n, bool add_reply,
                                              struct kvt_chat_text *out, struct kvt_error *err);

/* Appends the tokens of a conversation, BOS in front where tokenizer or template want it. Control tokens come from the template
 * alone: what messages hold is plain text, whatever it looks like. */
KVT_MUST_CHECK enum kvt_status kvt_chat_encode(const struct kvt_text *text, const struct kvt_chat_template *family,
                                               const char *source, const struct kvt_chat_message *messages, int n,
                                               bool add_reply, struct kvt_ids *out, struct kvt_error *err);
/* The token that a conversation begins with; -1: none. */
int kvt_chat_bos(const struct kvt_text *text, const struct kvt_chat_template *family, const char *source);

#endif
