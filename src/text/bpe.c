/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte-level BPE. Vocabularies write each byte as a character: those that print (of Latin-1) as themselves, the others as
 * U+0100 and on, in order (GPT-2's encoder). Merging works on ids; the text of tokens is only read when they are made and
 * shown.
 */
#include <string.h>

#include "base/check.h"
#include "text/inside.h"
#include "text/utf8.h"

static bool prints(unsigned b) { return (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD); }

/* The character that stands for a byte. */
static uint32_t code_of_byte(unsigned b) {
    if (prints(b)) return b;
    if (b < 0x21) return 0x100 + b;
    return b == 0xAD ? 0x143 : 0x121 + b - 0x7F;
}

/* And back: -1 for a character that stands for none. */
static int byte_of_code(uint32_t code) {
    if (code < 0x100) return prints(code) ? (int)code : -1;
    if (code < 0x121) return (int)(code - 0x100);
    if (code < 0x143) return (int)(code - 0x121 + 0x7F);
    return code == 0x143 ? 0xAD : -1;
}

/* ---- making ------------------------------------------------------------------------------------------------------------ */

static size_t n_slots_for(int n_merges) {
    size_t slots = 64;
    while (slots < (size_t)n_merges * 2) slots *= 2;
    return slots;
}

enum kvt_status kvt_bpe_measure(size_t *need, const struct kvt_text_spec *spec, struct kvt_error *err) {
    if (spec->n_merges <= 0 || !spec->merges)
        return kvt_fail(err, KVT_ERR_FORMAT,
                        "the vocabulary has no merges (tokenizer.ggml.merges), which byte-level BPE needs");
    *need += kvt_arena_need(n_slots_for(spec->n_merges), sizeof(struct kvt_bpe_merge));
    return KVT_OK;
}

static size_t slot_of(const struct kvt_bpe *bpe, int32_t left, int32_t right) {
    const uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    return (size_t)(h >> 32) & (bpe->n_merges - 1);
}

/* The slot of a pair, or the free one where it would be. */
static struct kvt_bpe_merge *probe(const struct kvt_bpe *bpe, int32_t left, int32_t right) {
    for (size_t i = slot_of(bpe, left, right);; i = (i + 1) & (bpe->n_merges - 1)) {
        struct kvt_bpe_merge *merge = &bpe->merges[i];
        if (merge->left < 0 || (merge->left == left && merge->right == right)) return merge;
    }
}

static enum kvt_status bad_merge(struct kvt_error *err, int rank, struct kvt_text_piece merge, const char *what) {
    return kvt_fail(err, KVT_ERR_FORMAT, "merge %d of the vocabulary, '%.*s', %s", rank,
                    (int)KVT_MIN(merge.len, (size_t)100), merge.data, what);
}

static enum kvt_status add_merge(struct kvt_text *text, int rank, struct kvt_text_piece merge, struct kvt_buf *joined,
                                 struct kvt_error *err) {
    /* The parts are separated by the first blank that is not a part by itself. */
    const char *blank = merge.len > 2 ? memchr(merge.data + 1, ' ', merge.len - 2) : NULL;
    if (!blank) return bad_merge(err, rank, merge, "is not two parts with a blank between them");
    const size_t n_left = (size_t)(blank - merge.data), n_right = merge.len - n_left - 1;
    joined->len = 0;
    if (kvt_buf_add(joined, merge.data, n_left) != KVT_OK || kvt_buf_add(joined, blank + 1, n_right) != KVT_OK)
        return KVT_ERR_NOMEM;
    const int left = kvt_vocab_find(&text->vocab, joined->data, n_left);
    const int right = kvt_vocab_find(&text->vocab, joined->data + n_left, n_right);
    const int id = kvt_vocab_find(&text->vocab, joined->data, joined->len);
    if (left < 0 || right < 0) return bad_merge(err, rank, merge, "has a part that is no token");
    if (id < 0) return bad_merge(err, rank, merge, "makes a piece that is no token");
    struct kvt_bpe_merge *slot = probe(&text->bpe, left, right);
    if (slot->left < 0) *slot = (struct kvt_bpe_merge){left, right, rank, id};
    return KVT_OK;
}

static enum kvt_status add_merges(struct kvt_text *text, const struct kvt_text_spec *spec, struct kvt_error *err) {
    struct kvt_buf joined;
    kvt_buf_init(&joined, &text->allocator, KVT_TEXT_MAX);
    for (size_t i = 0; i < text->bpe.n_merges; i++) text->bpe.merges[i].left = -1;
    enum kvt_status status = KVT_OK;
    for (int rank = 0; rank < spec->n_merges && status == KVT_OK; rank++)
        status = add_merge(text, rank, spec->merges[rank], &joined, err);
    kvt_buf_finish(&joined);
    return status;
}

/* Only ordinary tokens are bytes: some vocabularies have a user-defined token whose text looks like one. */
static void find_bytes(struct kvt_text *text) {
    for (unsigned b = 0; b < 256; b++) {
        char name[2];
        const int len = kvt_utf8_put(name, code_of_byte(b));
        const int id = kvt_vocab_find(&text->vocab, name, (size_t)len);
        text->bpe.bytes[b] = id >= 0 && text->vocab.types[id] == KVT_TOKEN_NORMAL ? id : -1;
    }
    static const unsigned char replacement[3] = {0xEF, 0xBF, 0xBD};
    for (int i = 0; i < 3; i++) text->bpe.stand_in[i] = text->bpe.bytes[replacement[i]];
    for (int i = 0; i < 3; i++)
        if (text->bpe.stand_in[i] < 0) text->bpe.stand_in[0] = -1;
}

static enum kvt_status unknown_pretokenizer(const struct kvt_text_spec *spec, struct kvt_error *err) {
    char known[300];
    size_t len = 0;
    known[0] = 0;
    for (int i = 0; kvt_pretokenizer_row(i); i++) {
        const char *names = kvt_pretokenizer_row(i)->names;
        const size_t n = strcspn(names, " ");
        if (len + n + 3 > sizeof known) break;
        if (len) len += (memcpy(known + len, ", ", 2), 2);
        memcpy(known + len, names, n);
        len += n;
        known[len] = 0;
    }
    if (!spec->pre)
        return kvt_fail(err, KVT_ERR_UNSUPPORTED,
                        "the file names no pre-tokenizer (tokenizer.ggml.pre), which byte-level BPE needs; known: %s",
                        known);
    return kvt_fail(err, KVT_ERR_UNSUPPORTED, "unknown pre-tokenizer '%.60s' (tokenizer.ggml.pre); known: %s",
                    spec->pre, known);
}

enum kvt_status kvt_bpe_init(struct kvt_text *text, const struct kvt_text_spec *spec, struct kvt_error *err) {
    struct kvt_bpe *bpe = &text->bpe;
    bpe->n_merges = n_slots_for(spec->n_merges);
    bpe->merges = kvt_arena_take(&text->arena, bpe->n_merges, sizeof *bpe->merges);
    const struct kvt_pretokenizer *pretokenizer = spec->pre ? kvt_pretokenizer_find(spec->pre) : NULL;
    if (!pretokenizer) return unknown_pretokenizer(spec, err);
    bpe->whole_words = pretokenizer->whole_words;
    if (spec->add_bos < 0) text->add_bos = pretokenizer->add_bos;
    find_bytes(text);
    KVT_TRY(add_merges(text, spec, err));
    return kvt_split_create(&bpe->split, pretokenizer, &text->allocator, err);
}

/* ---- encoding ---------------------------------------------------------------------------------------------------------- */

static bool find_pair(const void *ctx, const struct kvt_symbol *left, const struct kvt_symbol *right,
                      struct kvt_pair *pair) {
    const struct kvt_bpe *bpe = ctx;
    if (left->id < 0 || right->id < 0) return false;
    const struct kvt_bpe_merge *merge = probe(bpe, left->id, right->id);
    if (merge->left < 0) return false;
    pair->key = merge->rank;
    pair->id = merge->id;
    return true;
}

/* The token that a whole word is, or -1. */
static enum kvt_status find_word(struct kvt_encoding *e, const char *word, size_t len, int *id) {
    const struct kvt_vocab *vocab = &e->text->vocab;
    *id = -1;
    if (len > vocab->max_len) return KVT_OK;
    e->scratch.len = 0;
    for (size_t i = 0; i < len; i++) {
        char name[2];
        const int n = kvt_utf8_put(name, code_of_byte((unsigned char)word[i]));
        if (kvt_buf_add(&e->scratch, name, (size_t)n) != KVT_OK) return kvt_encoding_no_memory(e);
    }
    const int found = kvt_vocab_find(vocab, e->scratch.data, e->scratch.len);
    if (found >= 0 && !kvt_vocab_is_hidden(vocab, found)) *id = found;
    return KVT_OK;
}

/* A byte that has no token is shown as U+FFFD, or as the unknown token. */
static enum kvt_status add_stand_in(struct kvt_encoding *e, unsigned char byte) {
    const struct kvt_bpe *bpe = &e->text->bpe;
    if (bpe->stand_in[0] >= 0) {
        for (int i = 0; i < 3; i++) KVT_TRY(kvt_encoding_add(e, bpe->stand_in[i]));
        return KVT_OK;
    }
    if (e->text->unk >= 0) return kvt_encoding_add(e, e->text->unk);
    return kvt_fail(e->err, KVT_ERR_UNSUPPORTED,
                    "the vocabulary has no token for the byte 0x%02X of the text, and no unknown token", byte);
}

static enum kvt_status encode_word(void *ctx, const char *word, size_t len) {
    struct kvt_encoding *e = ctx;
    const struct kvt_bpe *bpe = &e->text->bpe;
    if (bpe->whole_words) {
        int id;
        KVT_TRY(find_word(e, word, len, &id));
        if (id >= 0) return kvt_encoding_add(e, id);
    }
    struct kvt_merger *m = &e->merger;
    if (kvt_merger_begin(m, len) != KVT_OK) return kvt_encoding_no_memory(e);
    for (size_t i = 0; i < len; i++) kvt_merger_add(m, bpe->bytes[(unsigned char)word[i]], (uint32_t)i, 1);
    kvt_merger_run(m, find_pair, bpe);
    for (int32_t i = 0; i >= 0; i = m->symbols[i].next) {
        const int32_t id = m->symbols[i].id;
        KVT_TRY(id >= 0 ? kvt_encoding_add(e, id) : add_stand_in(e, (unsigned char)word[m->symbols[i].start]));
    }
    return KVT_OK;
}

enum kvt_status kvt_bpe_encode(struct kvt_encoding *e, const char *data, size_t len) {
    return kvt_split_run(e->text->bpe.split, data, len, encode_word, e, e->err);
}

/* Characters that stand for no byte are shown as they are. */
enum kvt_status kvt_bpe_decode(const struct kvt_text *text, int id, struct kvt_buf *out) {
    const struct kvt_text_piece piece = kvt_vocab_piece(&text->vocab, id);
    for (size_t i = 0; i < piece.len;) {
        const int n = kvt_utf8_char_len(piece.data + i, piece.len - i);
        const int byte = n ? byte_of_code(kvt_utf8_code(piece.data + i, n)) : -1;
        const char c = (char)byte;
        KVT_TRY(byte >= 0 ? kvt_buf_add(out, &c, 1) : kvt_buf_add(out, piece.data + i, (size_t)KVT_MAX(n, 1)));
        i += (size_t)KVT_MAX(n, 1);
    }
    return KVT_OK;
}
