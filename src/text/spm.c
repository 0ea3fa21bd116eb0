/* SPDX-License-Identifier: Apache-2.0
 *
 * SentencePiece as GGUF files carry it: BPE without merges, where of two neighbours that make a token the pair with the
 * highest score goes first. Spaces are U+2581 in the vocabulary; a character that is no token becomes the tokens of its
 * bytes.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "text/inside.h"
#include "text/utf8.h"

static const char space[3] = {'\xE2', '\x96', '\x81'}; /* U+2581 */

static bool is_space(const char *p, size_t n) { return n >= sizeof space && memcmp(p, space, sizeof space) == 0; }

/* ---- making ------------------------------------------------------------------------------------------------------------ */

/* Text may merge into these; the others are found by name only. */
static bool merges(const struct kvt_vocab *vocab, int id) {
    return !kvt_vocab_is_hidden(vocab, id) && vocab->types[id] != KVT_TOKEN_BYTE;
}

static int find_mergeable(const struct kvt_vocab *vocab, const char *data, size_t len) {
    const int id = kvt_vocab_find(vocab, data, len);
    return id >= 0 && merges(vocab, id) ? id : -1;
}

static void note_bytes_before_space(struct kvt_spm *spm, struct kvt_text_piece piece) {
    for (size_t i = 1; i + sizeof space <= piece.len; i++) {
        const unsigned char before = (unsigned char)piece.data[i - 1];
        if (is_space(piece.data + i, piece.len - i)) spm->goes_on[before / 64] |= (uint64_t)1 << before % 64;
    }
}

enum kvt_status kvt_spm_init(struct kvt_text *text, const struct kvt_text_spec *spec, struct kvt_error *err) {
    const struct kvt_vocab *vocab = &text->vocab;
    struct kvt_spm *spm = &text->spm;
    if (!vocab->scores)
        return kvt_fail(err, KVT_ERR_FORMAT,
                        "the vocabulary has no scores (tokenizer.ggml.scores), which SentencePiece needs");
    for (int b = 0; b < 256; b++) {
        char name[8];
        const int len = snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        spm->bytes[b] = kvt_vocab_find(vocab, name, (size_t)len);
        if (spm->bytes[b] < 0 && text->unk < 0)
            return kvt_fail(err, KVT_ERR_FORMAT, "the vocabulary has neither a token %s nor an unknown token", name);
    }
    for (int c = 0; c < 128; c++) {
        const char text_of[1] = {(char)c};
        spm->ascii[c] = find_mergeable(vocab, text_of, 1);
    }
    for (int id = 0; id < vocab->n; id++)
        if (merges(vocab, id)) note_bytes_before_space(spm, kvt_vocab_piece(vocab, id));
    spm->add_space = spec->add_space_prefix != 0;
    if (spec->add_bos < 0) text->add_bos = true;
    return KVT_OK;
}

/* ---- encoding ---------------------------------------------------------------------------------------------------------- */

struct words {
    const struct kvt_vocab *vocab;
    const char *text;
};

static bool find_pair(const void *ctx, const struct kvt_symbol *left, const struct kvt_symbol *right,
                      struct kvt_pair *pair) {
    const struct words *w = ctx;
    (void)right;
    const int id = find_mergeable(w->vocab, w->text + left->start, pair->len);
    if (id < 0) return false;
    pair->key = -(double)w->vocab->scores[id];
    pair->id = id;
    return true;
}

static enum kvt_status add_bytes(struct kvt_encoding *e, const char *data, size_t len) {
    bool unknown = false;
    for (size_t i = 0; i < len; i++) unknown |= e->text->spm.bytes[(unsigned char)data[i]] < 0;
    if (unknown) return kvt_encoding_add(e, e->text->unk);
    for (size_t i = 0; i < len; i++) KVT_TRY(kvt_encoding_add(e, e->text->spm.bytes[(unsigned char)data[i]]));
    return KVT_OK;
}

static enum kvt_status encode_word(struct kvt_encoding *e, const char *word, size_t len) {
    const struct words w = {&e->text->vocab, word};
    struct kvt_merger *m = &e->merger;
    if (kvt_merger_begin(m, len) != KVT_OK) return kvt_encoding_no_memory(e);
    for (size_t i = 0; i < len;) {
        const size_t n = (size_t)KVT_MAX(kvt_utf8_char_len(word + i, len - i), 1);
        const unsigned char c = (unsigned char)word[i];
        const int id = c < 128 ? e->text->spm.ascii[c] : find_mergeable(w.vocab, word + i, n);
        kvt_merger_add(m, id, (uint32_t)i, (uint32_t)n);
        i += n;
    }
    kvt_merger_run(m, find_pair, &w);
    for (int32_t i = 0; i >= 0; i = m->symbols[i].next) {
        const struct kvt_symbol *s = &m->symbols[i];
        KVT_TRY(s->id >= 0 ? kvt_encoding_add(e, s->id) : add_bytes(e, word + s->start, s->len));
    }
    return KVT_OK;
}

/* Bytes of the first word: to the first space that no token reaches from before. */
static size_t word_len(const struct kvt_spm *spm, const char *text, size_t len) {
    for (size_t i = 1; i < len; i++) {
        const unsigned char before = (unsigned char)text[i - 1];
        if (is_space(text + i, len - i) && !(spm->goes_on[before / 64] >> before % 64 & 1)) return i;
    }
    return len;
}

enum kvt_status kvt_spm_encode(struct kvt_encoding *e, const char *data, size_t len) {
    struct kvt_buf *escaped = &e->scratch;
    escaped->len = 0;
    enum kvt_status status = KVT_OK;
    if (e->text->spm.add_space && e->after_special) status = kvt_buf_add(escaped, space, sizeof space);
    for (size_t i = 0; i < len && status == KVT_OK;) {
        const char *blank = memchr(data + i, ' ', len - i);
        const size_t n = blank ? (size_t)(blank - data) - i : len - i;
        status = kvt_buf_add(escaped, data + i, n);
        if (blank && status == KVT_OK) status = kvt_buf_add(escaped, space, sizeof space);
        i += n + (blank != NULL);
    }
    if (status != KVT_OK) return kvt_encoding_no_memory(e);
    for (size_t i = 0; i < escaped->len;) {
        const size_t n = word_len(&e->text->spm, escaped->data + i, escaped->len - i);
        KVT_TRY(encode_word(e, escaped->data + i, n));
        i += n;
    }
    return KVT_OK;
}

/* ---- decoding ---------------------------------------------------------------------------------------------------------- */

static int hex(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

enum kvt_status kvt_spm_decode(const struct kvt_text *text, int id, struct kvt_buf *out) {
    const struct kvt_text_piece piece = kvt_vocab_piece(&text->vocab, id);
    const char *p = piece.data;
    if (text->vocab.types[id] == KVT_TOKEN_BYTE && piece.len == 6 && hex(p[3]) >= 0 && hex(p[4]) >= 0) {
        const char byte = (char)(hex(p[3]) << 4 | hex(p[4]));
        return kvt_buf_add(out, &byte, 1);
    }
    for (size_t i = 0; i < piece.len;) {
        size_t n = 0;
        while (i + n < piece.len && !is_space(p + i + n, piece.len - i - n)) n++;
        KVT_TRY(kvt_buf_add(out, p + i, n));
        i += n;
        if (i < piece.len) {
            KVT_TRY(kvt_buf_add(out, " ", 1));
            i += sizeof space;
        }
    }
    return KVT_OK;
}
