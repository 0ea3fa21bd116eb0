/* SPDX-License-Identifier: Apache-2.0
 *
 * Special tokens in text, and the tokens that end it.
 */
#include <string.h>

#include "text/inside.h"

/* Tokens that are looked for before anything else; the hidden ones only where the caller asks for it. */
static bool is_special(int type) {
    return type == KVT_TOKEN_USER || type == KVT_TOKEN_CONTROL || type == KVT_TOKEN_UNKNOWN;
}

bool kvt_special_is(const struct kvt_text *text, int id) { return is_special(text->vocab.types[id]); }

static int find_name(const struct kvt_text *text, const char *name) {
    return kvt_vocab_find(&text->vocab, name, strlen(name));
}

/* ---- finding ----------------------------------------------------------------------------------------------------------- */

int kvt_special_count(const struct kvt_text_spec *spec) {
    int n = 0;
    for (int i = 0; i < spec->n_tokens; i++) n += spec->types && is_special(spec->types[i]);
    return n;
}

static void set_bit(uint64_t *set, size_t i) { set[i / 64] |= (uint64_t)1 << i % 64; }
static bool has_bit(const uint64_t *set, size_t i) { return set[i / 64] >> i % 64 & 1; }

/* The entry of a length, made where it belongs if there is none. */
static struct kvt_special *entry(struct kvt_text *text, uint32_t len) {
    int i = 0;
    while (i < text->n_specials && text->specials[i].len > len) i++;
    struct kvt_special *at = &text->specials[i];
    if (i < text->n_specials && at->len == len) return at;
    memmove(at + 1, at, (size_t)(text->n_specials - i) * sizeof *at);
    *at = (struct kvt_special){.len = len};
    text->n_specials++;
    return at;
}

void kvt_special_init(struct kvt_text *text) {
    static const char *const keep_space[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (int i = 0; i < 3; i++) text->keeps_space[i] = find_name(text, keep_space[i]);
    for (int id = 0; id < text->vocab.n; id++) {
        const struct kvt_text_piece piece = kvt_vocab_piece(&text->vocab, id);
        if (!is_special(text->vocab.types[id]) || piece.len == 0) continue;
        struct kvt_special *special = entry(text, (uint32_t)piece.len);
        special->user |= text->vocab.types[id] == KVT_TOKEN_USER;
        set_bit(special->first, (unsigned char)piece.data[0]);
        set_bit(special->second, (unsigned char)piece.data[KVT_MIN(piece.len - 1, (size_t)1)]);
        set_bit(special->last, (unsigned char)piece.data[piece.len - 1]);
    }
}

bool kvt_special_possible(const struct kvt_text *text, const char *data, size_t len, bool parse_special) {
    uint64_t first[4] = {0};
    bool any = false;
    for (int i = 0; i < text->n_specials; i++) {
        const struct kvt_special *special = &text->specials[i];
        if (!parse_special && !special->user) continue;
        for (int k = 0; k < 4; k++) first[k] |= special->first[k];
        any = true;
    }
    for (size_t i = 0; any && i < len; i++)
        if (has_bit(first, (unsigned char)data[i])) return true;
    return false;
}

static bool blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static bool eats_space(const struct kvt_text *text, int id) {
    const int *keeps = text->keeps_space;
    return text->eat_space && id != keeps[0] && id != keeps[1] && id != keeps[2];
}

static bool may_be(const struct kvt_special *special, const char *data) {
    const size_t last = special->len - 1;
    return has_bit(special->first, (unsigned char)data[0]) && has_bit(special->last, (unsigned char)data[last]) &&
           has_bit(special->second, (unsigned char)data[KVT_MIN(last, (size_t)1)]);
}

/* Whether [start, end) touches text that is plain whatever it looks like. */
static bool is_plain(const struct kvt_text_mixed *mixed, size_t start, size_t end) {
    int low = 0, high = mixed->n_plain; /* the first span that ends after start */
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (mixed->plain[middle].end > start)
            high = middle;
        else
            low = middle + 1;
    }
    return low < mixed->n_plain && mixed->plain[low].start < end;
}

/* Whether a token that is written out at [start, end) counts. */
static bool counts(const struct kvt_text *text, const struct kvt_text_mixed *mixed, bool parse_special, int id,
                   size_t start, size_t end) {
    if (id < 0 || !is_special(text->vocab.types[id])) return false;
    const bool hidden = kvt_vocab_is_hidden(&text->vocab, id);
    if (hidden && !parse_special) return false;
    return !(hidden || kvt_text_is_end(text, id)) || !is_plain(mixed, start, end);
}

/* Tokens of one length, left to right, where nothing longer was found. What was found is at least this long, so it covers an
 * end of whatever it overlaps. */
static bool find_one_length(const struct kvt_text *text, const struct kvt_special *special,
                            const struct kvt_text_mixed *mixed, bool parse_special, int32_t *marks) {
    const char *data = mixed->data + mixed->from;
    const size_t n = special->len, len = mixed->len - mixed->from;
    bool found = false;
    for (size_t i = 0; i + n <= len; i++) {
        if (!may_be(special, data + i) || marks[i] != 0 || marks[i + n - 1] != 0) continue;
        const int id = kvt_vocab_find(&text->vocab, data + i, n);
        if (!counts(text, mixed, parse_special, id, mixed->from + i, mixed->from + i + n)) continue;
        size_t end = i + n;
        while (eats_space(text, id) && end < len && marks[end] == 0 && blank(data[end])) end++;
        for (size_t k = i; k < end; k++) marks[k] = -1;
        marks[i] = id + 1;
        i = end - 1;
        found = true;
    }
    return found;
}

bool kvt_special_find(const struct kvt_text *text, const struct kvt_text_mixed *mixed, bool parse_special,
                      int32_t *marks) {
    bool found = false;
    memset(marks, 0, (mixed->len - mixed->from) * sizeof *marks);
    for (int i = 0; i < text->n_specials; i++)
        if (parse_special || text->specials[i].user)
            found |= find_one_length(text, &text->specials[i], mixed, parse_special, marks);
    return found;
}

/* ---- ends -------------------------------------------------------------------------------------------------------------- */

/* Names under which vocabularies have a token that ends a text or a turn. Those that plain text could also hold count only
 * where the vocabulary says that they are control tokens. */
static const struct {
    const char *name;
    bool control_only;
} end_names[] = {
    {"<|endoftext|>", false},
    {"<|end_of_text|>", false},
    {"<|im_end|>", false},
    {"<|eot_id|>", false},
    {"<|eom_id|>", false},
    {"<|end|>", false},
    {"<|return|>", false},
    {"<|call|>", false},
    {"<|fim_pad|>", false},
    {"<end_of_turn>", false},
    {"<end_of_utterance>", false},
    {"<|end_of_turn|>", false},
    {"<|endofturn|>", true},
    {"<|EOT|>", false},
    {"<\xEF\xBD\x9C"
     "end\xE2\x96\x81"
     "of\xE2\x96\x81"
     "sentence\xEF\xBD\x9C>",
     false}, /* DeepSeek's */
    {"<|repo_name|>", true},
    {"<|file_sep|>", true},
    {"</s>", true},
    {"<eos>", true},
    {"<EOT>", true},
    {"[EOT]", true},
    {"[EOS]", true},
};

void kvt_ends_init(struct kvt_text *text, const struct kvt_text_spec *spec) {
    for (size_t i = 0; i < KVT_ARRAY_LEN(end_names); i++) {
        const int id = find_name(text, end_names[i].name);
        if (id < 0 || (end_names[i].control_only && text->vocab.types[id] != KVT_TOKEN_CONTROL)) continue;
        set_bit(text->ends, (size_t)id);
    }
    /* gpt-oss: <|end|> only ends a message of a turn that goes on. */
    const int end = find_name(text, "<|end|>");
    if (end >= 0 && find_name(text, "<|return|>") >= 0 && find_name(text, "<|call|>") >= 0)
        text->ends[end / 64] &= ~((uint64_t)1 << end % 64);
    if (spec->eos >= 0) set_bit(text->ends, (size_t)spec->eos);
    if (spec->eot >= 0) set_bit(text->ends, (size_t)spec->eot);
}
