/* SPDX-License-Identifier: Apache-2.0
 *
 * Pre-tokenizers: cutting text into the words inside which byte-level BPE merges.
 */
#ifndef TEXT_SPLIT_H
#define TEXT_SPLIT_H

#include "text/text.h"

enum { KVT_SPLIT_PASSES = 6 };

/* A pre-tokenizer. Each pass cuts every piece that the pass before left into the matches of its expression and what lies
 * between them. */
struct kvt_pretokenizer {
    const char *names; /* as GGUF files write them, separated by blanks; the first is the one we use */
    const char *passes[KVT_SPLIT_PASSES];
    bool whole_words; /* a word that is in the vocabulary is one token, whatever the merges say */
    bool add_bos;     /* where the file does not say */
};

/* By any of its names, or NULL. Row i, or NULL past the last. */
const struct kvt_pretokenizer *kvt_pretokenizer_find(const char *name);
const struct kvt_pretokenizer *kvt_pretokenizer_row(int i);

/* A pre-tokenizer's compiled expressions: immutable, for any thread. */
struct kvt_split;
KVT_MUST_CHECK enum kvt_status kvt_split_create(struct kvt_split **out, const struct kvt_pretokenizer *pretokenizer,
                                                const struct kvt_allocator *allocator, struct kvt_error *err);
void kvt_split_destroy(struct kvt_split *split);

typedef enum kvt_status (*kvt_word_fn)(void *ctx, const char *word, size_t len);

/* Calls `word` for each word of a text, in order; they cover it all. A longest run of bytes that are not well-formed UTF-8 is
 * a word of its own, and the text on either side of it is cut as if it ended there. */
KVT_MUST_CHECK enum kvt_status kvt_split_run(const struct kvt_split *split, const char *text, size_t len,
                                             kvt_word_fn word, void *ctx, struct kvt_error *err);

#endif
