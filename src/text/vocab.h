/* SPDX-License-Identifier: Apache-2.0
 * The pieces of a vocabulary: their text as the file writes it, and the way from text to id. */
#ifndef TEXT_VOCAB_H
#define TEXT_VOCAB_H

#include "base/arena.h"
#include "text/text.h"

enum { KVT_TEXT_MAX = 0x1FFFFFFF }; /* bytes of a vocabulary, and of a text: three times as many fit an int */

struct kvt_vocab_slot {
    uint32_t tag;        /* of the text's hash */
    int32_t id;          /* -1: free */
    uint32_t start, len; /* as in the vocabulary: one miss of the processor's cache less */
};

struct kvt_vocab {
    int n;
    const char *bytes;
    const uint32_t *start;      /* n + 1 */
    const unsigned char *types; /* enum kvt_token_type */
    const float *scores;        /* NULL if the file gives none */
    struct kvt_vocab_slot *slots;
    size_t n_slots; /* a power of two, at most half used */
    size_t max_len; /* of a piece */
};

/* Checks the pieces of a specification and counts the bytes of arena that they need. */
enum kvt_status kvt_vocab_measure(size_t *need, const struct kvt_text_spec *spec, struct kvt_error *err);
/* Copies the pieces of a measured specification. */
enum kvt_status kvt_vocab_init(struct kvt_vocab *vocab, struct kvt_arena *arena, const struct kvt_text_spec *spec,
                               struct kvt_error *err);

/* The id of a piece, or -1. Empty pieces are never found. */
int kvt_vocab_find(const struct kvt_vocab *vocab, const char *data, size_t len);

static inline struct kvt_text_piece kvt_vocab_piece(const struct kvt_vocab *vocab, int id) {
    return (struct kvt_text_piece){vocab->bytes + vocab->start[id], vocab->start[id + 1] - vocab->start[id]};
}

/* Text that is matched only where special tokens are read. */
static inline bool kvt_vocab_is_hidden(const struct kvt_vocab *vocab, int id) {
    return vocab->types[id] == KVT_TOKEN_CONTROL || vocab->types[id] == KVT_TOKEN_UNKNOWN;
}

#endif
