/* SPDX-License-Identifier: Apache-2.0
 *
 * Text: encoding any bytes with a small vocabulary of each kind and showing them again; streams; reading and writing by chat
 * templates. The first byte chooses.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/split.h"
#include "text/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok) {
    if (!ok) abort();
}

/* ---- vocabularies: bytes, a few merges or scored pieces, special tokens of each kind --------------------------------------- */

enum { N_MERGED = 8, N_SPECIAL = 6, N_TOKENS = 256 + N_MERGED + N_SPECIAL };

#define SP "\xE2\x96\x81"

static const char *const merges[N_MERGED] = {"a b", "ab a", "b b", "\304\240 a", "1 1", "11 1", "\303\245 \305\203",
                                             "! !"};
static const char *const bpe_pieces[N_MERGED] = {"ab", "aba", "bb", "\304\240a", "11", "111", "\303\245\305\203", "!!"};
static const char *const spm_pieces[N_MERGED] = {"ab", "aba", SP, (SP "a"), (SP SP), ("a" SP "b"), "\xE5\xAD\x97", "b"};
static const char *const specials[N_SPECIAL] = {"<|end|>", "<|en", "[U]", "[U][", "<unk>", "\n\n"};
static const int special_types[N_SPECIAL] = {KVT_TOKEN_CONTROL, KVT_TOKEN_CONTROL, KVT_TOKEN_USER,
                                             KVT_TOKEN_USER,    KVT_TOKEN_UNKNOWN, KVT_TOKEN_USER};

static void byte_name(char name[8], unsigned b, unsigned *n_hidden, bool spm) {
    static const char digits[] = "0123456789ABCDEF";
    const bool seen = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
    const unsigned code = seen ? b : 0x100 + (*n_hidden)++;
    if (spm) {
        const char full[8] = {'<', '0', 'x', digits[b >> 4], digits[b & 15], '>'};
        memcpy(name, full, sizeof full);
    } else {
        const char full[8] = {(char)(code < 0x80 ? code : 0xC0 | code >> 6),
                              (char)(code < 0x80 ? 0 : 0x80 | (code & 0x3F))};
        memcpy(name, full, sizeof full);
    }
}

static struct kvt_text *make(const char *pre, bool eats_space) {
    const bool spm = !pre;
    char names[256][8];
    struct kvt_text_piece tokens[N_TOKENS], pairs[N_MERGED];
    float scores[N_TOKENS];
    int32_t types[N_TOKENS];
    unsigned n_hidden = 0;
    for (unsigned i = 0; i < N_TOKENS; i++) {
        if (i < 256) byte_name(names[i], i, &n_hidden, spm);
        const unsigned merged = i - 256, special = i - 256 - N_MERGED;
        const char *piece = i < 256             ? names[i]
                            : merged < N_MERGED ? (spm ? spm_pieces : bpe_pieces)[merged]
                                                : specials[special];
        tokens[i] = (struct kvt_text_piece){piece, strlen(piece)};
        types[i] = merged < N_MERGED ? KVT_TOKEN_NORMAL
                   : i >= 256        ? special_types[special]
                   : spm             ? KVT_TOKEN_BYTE
                                     : KVT_TOKEN_NORMAL;
        scores[i] = -(float)(i % 5);
    }
    for (int i = 0; i < N_MERGED; i++) pairs[i] = (struct kvt_text_piece){merges[i], strlen(merges[i])};
    const struct kvt_text_spec spec = {.model = spm ? "llama" : "gpt2",
                                       .pre = pre,
                                       .n_tokens = N_TOKENS,
                                       .tokens = tokens,
                                       .scores = scores,
                                       .types = types,
                                       .n_merges = N_MERGED,
                                       .merges = pairs,
                                       .bos = -1,
                                       .eos = -1,
                                       .eot = -1,
                                       .unk = N_TOKENS - 2,
                                       .pad = -1,
                                       .add_bos = 0,
                                       .add_eos = 0,
                                       .add_space_prefix = 0,
                                       .control_eats_space = eats_space};
    struct kvt_text *text;
    must(kvt_text_create(&text, &spec, NULL, NULL) == KVT_OK);
    return text;
}

/* Tokenizers that are made once: 0 is SentencePiece, the others byte-level BPE by pre-tokenizer. */
static const struct kvt_text *tokenizer(size_t i, bool eats_space) {
    static struct kvt_text *made[64][2];
    must(i < 64);
    struct kvt_text **one = &made[i][eats_space];
    if (!*one) {
        char pre[64] = "";
        if (i > 0) {
            const char *names = kvt_pretokenizer_row((int)i - 1)->names;
            memcpy(pre, names, strcspn(names, " "));
        }
        *one = make(i > 0 ? pre : NULL, eats_space);
    }
    return *one;
}

/* ---- what is tried --------------------------------------------------------------------------------------------------------- */

/* The bytes that all tokens add, shown in a stream, are those of the text; SentencePiece takes U+2581 for a space. */
static void round_trip(const struct kvt_text *text, const char *data, size_t len, bool parse, bool spm) {
    struct kvt_ids ids;
    struct kvt_buf piece, whole, expected;
    struct kvt_utf8_stream stream = {.n_held = 0};
    kvt_ids_init(&ids, NULL);
    kvt_buf_init(&piece, NULL, 100);
    kvt_buf_init(&whole, NULL, len + 100);
    kvt_buf_init(&expected, NULL, len);
    must(kvt_text_encode(text, data, len, parse, &ids, NULL) == KVT_OK);
    for (size_t i = 0; i < ids.len; i++) {
        must(ids.data[i] >= 0 && ids.data[i] < N_TOKENS);
        piece.len = 0;
        must(kvt_text_decode(text, ids.data[i], true, &piece) == KVT_OK);
        must(kvt_utf8_feed(&stream, kvt_buf_text(&piece), piece.len, &whole) == KVT_OK);
    }
    must(kvt_utf8_flush(&stream, &whole) == KVT_OK);
    for (size_t i = 0; i < len;) {
        const bool space = spm && len - i >= 3 && memcmp(data + i, SP, 3) == 0;
        must(kvt_buf_add(&expected, space ? " " : data + i, 1) == KVT_OK);
        i += space ? 3 : 1;
    }
    must(whole.len == expected.len && memcmp(kvt_buf_text(&whole), kvt_buf_text(&expected), whole.len) == 0);
    kvt_ids_finish(&ids);
    kvt_buf_finish(&piece);
    kvt_buf_finish(&whole);
    kvt_buf_finish(&expected);
}

/* Where tokens eat white space, nothing is promised but that the call returns. */
static void encode_only(const struct kvt_text *text, const char *data, size_t len) {
    struct kvt_ids ids;
    kvt_ids_init(&ids, NULL);
    must(kvt_text_encode(text, data, len, true, &ids, NULL) == KVT_OK);
    must(ids.len <= len);
    kvt_ids_finish(&ids);
}

/* The bytes as a template, and as what is said. */
static void chat(const char *data, size_t len, bool reply) {
    char *source = malloc(len + 1);
    must(source != NULL);
    memcpy(source, data, len);
    source[len] = 0;
    const struct kvt_chat_template *family = kvt_chat_detect(source, len);
    const struct kvt_chat_message messages[] = {
        {"system", source}, {"user", source}, {"assistant", source}, {"user", "x"}};
    const int first = family ? 0 : 1;
    struct kvt_buf out;
    kvt_buf_init(&out, NULL, (len + 1000) * 8);
    const enum kvt_status status = kvt_chat_format(family ? family : kvt_chat_find("qwen3"), source, messages + first,
                                                   4 - first, reply, &out, NULL);
    must(status == KVT_OK || status == KVT_ERR_ARG);
    kvt_buf_finish(&out);
    free(source);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    const char *text = (const char *)data + 1;
    size_t n_rows = 0;
    while (kvt_pretokenizer_row((int)n_rows)) n_rows++;
    const size_t choice = data[0] % (n_rows + 2);
    const bool parse = data[0] & 0x80;
    if (choice == n_rows + 1) {
        chat(text, size - 1, parse);
        return 0;
    }
    round_trip(tokenizer(choice, false), text, size - 1, parse, choice == 0);
    encode_only(tokenizer(choice, true), text, size - 1);
    return 0;
}
