/* SPDX-License-Identifier: Apache-2.0
 * Inside of a tokenizer: what its files share. */
#ifndef TEXT_INSIDE_H
#define TEXT_INSIDE_H

#include "text/merge.h"
#include "text/split.h"
#include "text/vocab.h"

/* A merge of byte-level BPE: a pair of tokens, its rank, and what it makes. */
struct kvt_bpe_merge {
    int32_t left, right; /* left -1: a free slot */
    int32_t rank, id;
};

/* Byte-level BPE ("gpt2"). */
struct kvt_bpe {
    struct kvt_split *split;
    struct kvt_bpe_merge *merges; /* by hash of the pair */
    size_t n_merges;              /* slots, a power of two */
    int32_t bytes[256];           /* the token of each byte, or -1 */
    int32_t stand_in[3];          /* U+FFFD byte by byte, for bytes that have no token; -1: there is none */
    bool whole_words;
};

/* SentencePiece ("llama"). */
struct kvt_spm {
    int32_t bytes[256];  /* the token of each byte, or -1 */
    int32_t ascii[128];  /* the token that text of this one character is, or -1 */
    uint64_t goes_on[4]; /* the set of bytes that some token has before a space; after others words merge one by one */
    bool add_space;      /* before text that starts, or follows a special token */
};

/* Special tokens of one length. */
struct kvt_special {
    uint32_t len;
    bool user;                             /* some are user-defined: matched always */
    uint64_t first[4], second[4], last[4]; /* the sets of their bytes there: most of a text is none of these */
};

enum kvt_text_kind { KVT_TEXT_BPE, KVT_TEXT_SPM };

struct kvt_text {
    struct kvt_allocator allocator;
    struct kvt_arena arena; /* everything but the split */
    enum kvt_text_kind kind;
    struct kvt_vocab vocab;
    struct kvt_bpe bpe;
    struct kvt_spm spm;
    struct kvt_special *specials; /* longest first */
    int n_specials;
    uint64_t *ends; /* the set of tokens that end generation */
    int bos, eos, unk;
    bool add_bos, add_eos;
    bool eat_space;     /* special tokens eat the white space after them, */
    int keeps_space[3]; /* but for these */
};

/* One encode call. */
struct kvt_encoding {
    const struct kvt_text *text;
    struct kvt_merger merger;
    struct kvt_buf scratch;
    struct kvt_ids *out;
    struct kvt_error *err;
    bool after_special; /* or at the start */
};

/* Byte-level BPE. measure adds to the arena's need. */
enum kvt_status kvt_bpe_measure(size_t *need, const struct kvt_text_spec *spec, struct kvt_error *err);
enum kvt_status kvt_bpe_init(struct kvt_text *text, const struct kvt_text_spec *spec, struct kvt_error *err);
enum kvt_status kvt_bpe_encode(struct kvt_encoding *e, const char *data, size_t len);
enum kvt_status kvt_bpe_decode(const struct kvt_text *text, int id, struct kvt_buf *out);

/* SentencePiece. */
enum kvt_status kvt_spm_init(struct kvt_text *text, const struct kvt_text_spec *spec, struct kvt_error *err);
enum kvt_status kvt_spm_encode(struct kvt_encoding *e, const char *data, size_t len);
enum kvt_status kvt_spm_decode(const struct kvt_text *text, int id, struct kvt_buf *out);

/* Special tokens: the lengths they come in, and finding them. */
int kvt_special_count(const struct kvt_text_spec *spec);
void kvt_special_init(struct kvt_text *text);
/* Whether some special token occurs. If so marks[i] is its id + 1 at its first byte, -1 at its others (and at white space it
 * eats), 0 elsewhere; marks are of data[from .. len). As llama.cpp does, longer tokens are found before shorter ones, wherever they are. */
bool kvt_special_find(const struct kvt_text *text, const struct kvt_text_mixed *mixed, bool parse_special,
                      int32_t *marks);
/* Whether a token is looked for before anything else. */
bool kvt_special_is(const struct kvt_text *text, int id);
/* Whether a byte of the text could start one: if not, there is nothing to find. */
bool kvt_special_possible(const struct kvt_text *text, const char *data, size_t len, bool parse_special);

/* Fills the set of tokens that end generation. */
void kvt_ends_init(struct kvt_text *text, const struct kvt_text_spec *spec);

enum kvt_status kvt_encoding_add(struct kvt_encoding *e, int32_t id);
enum kvt_status kvt_encoding_no_memory(const struct kvt_encoding *e); /* NOMEM, with its sentence */

#endif
