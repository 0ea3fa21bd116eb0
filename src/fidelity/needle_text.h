/* SPDX-License-Identifier: Apache-2.0
 * Texts with planted facts. */
#ifndef FIDELITY_NEEDLE_TEXT_H
#define FIDELITY_NEEDLE_TEXT_H

#include "base/rng.h"
#include "fidelity/fidelity.h"

enum { KVT_NEEDLE_FACTS_MAX = 16, KVT_NEEDLE_BYTES_MAX = 4 << 20 };

/* A piece of the filler, in place. */
struct kvt_needle_piece {
    const char *text;
    size_t len;
    int n_tokens; /* with the blank line after it */
};

/* The filler cut at blank lines, and where there is none for long at a sentence's or a word's end. Pieces that look like planted facts or
 * questions are left out. */
struct kvt_needle_filler {
    struct kvt_needle_piece *pieces;
    size_t n, n_taken;
    struct kvt_allocator allocator;
};
KVT_MUST_CHECK enum kvt_status kvt_needle_cut(struct kvt_needle_filler *out, const char *text, size_t len,
                                              const struct kvt_text *tokenizer, const struct kvt_allocator *allocator,
                                              struct kvt_error *err);
void kvt_needle_filler_finish(struct kvt_needle_filler *filler);

/* A question and its answer: the last n_answer tokens of ids. */
struct kvt_needle_question {
    struct kvt_ids ids;
    int n_answer;
    int depth;
};

/* A text of at most `length` tokens, questions included, with n_facts facts, fact i at i / (n_facts - 1) of the filler, and its
 * questions in a random order. */
struct kvt_needle_text {
    struct kvt_ids ids;
    int n_questions;
    struct kvt_needle_question questions[KVT_NEEDLE_FACTS_MAX];
};
KVT_MUST_CHECK enum kvt_status kvt_needle_make(struct kvt_needle_text *out, const struct kvt_needle_filler *filler,
                                               const struct kvt_text *tokenizer, int length, int n_facts,
                                               struct kvt_rng *rng, const struct kvt_allocator *allocator,
                                               struct kvt_error *err);
void kvt_needle_text_finish(struct kvt_needle_text *text);

#endif
