/* SPDX-License-Identifier: Apache-2.0 */
#include "text/vocab.h"

#include <math.h>
#include <string.h>

#include "base/check.h"

/* Eight bytes a round, multiplied and folded; the last round takes what is left. */
static uint64_t hash(const char *data, size_t len) {
    const uint64_t k = 0x9E3779B97F4A7C15u;
    uint64_t h = len * k;
    while (len > 0) {
        uint64_t word = 0;
        const size_t n = KVT_MIN(len, sizeof word);
        memcpy(&word, data, n);
        h = (h ^ word) * k;
        h ^= h >> 32;
        data += n;
        len -= n;
    }
    h *= 0xBF58476D1CE4E5B9u;
    return h ^ h >> 29;
}

static size_t n_slots_for(int n) {
    size_t slots = 64;
    while (slots < (size_t)n * 2) slots *= 2;
    return slots;
}

enum kvt_status kvt_vocab_measure(size_t *need, const struct kvt_text_spec *spec, struct kvt_error *err) {
    if (spec->n_tokens <= 0 || !spec->tokens)
        return kvt_fail(err, KVT_ERR_FORMAT, "the vocabulary has no tokens (tokenizer.ggml.tokens)");
    size_t bytes = 0;
    for (int i = 0; i < spec->n_tokens; i++) {
        const size_t len = spec->tokens[i].len;
        if (len > KVT_TEXT_MAX || (bytes += len) > KVT_TEXT_MAX)
            return kvt_fail(err, KVT_ERR_FORMAT, "the vocabulary has more than %d bytes of text, the most that is read",
                            KVT_TEXT_MAX);
        if (spec->types && (spec->types[i] < 0 || spec->types[i] > KVT_TOKEN_BYTE))
            return kvt_fail(err, KVT_ERR_FORMAT, "token %d of the vocabulary has type %d; types are 0 to %d", i,
                            spec->types[i], KVT_TOKEN_BYTE);
        if (spec->scores && isnan(spec->scores[i]))
            return kvt_fail(err, KVT_ERR_FORMAT, "token %d of the vocabulary has a score that is not a number", i);
    }
    const size_t n = (size_t)spec->n_tokens;
    *need = kvt_arena_need(bytes + 1, 1) + kvt_arena_need(n + 1, sizeof(uint32_t)) + kvt_arena_need(n, 1) +
            (spec->scores ? kvt_arena_need(n, sizeof(float)) : 0) +
            kvt_arena_need(n_slots_for(spec->n_tokens), sizeof(struct kvt_vocab_slot));
    return KVT_OK;
}

/* The slot that holds a text, or the free one where it would be. */
static struct kvt_vocab_slot *probe(const struct kvt_vocab *vocab, const char *data, size_t len, uint32_t *tag) {
    const uint64_t h = hash(data, len);
    *tag = (uint32_t)(h >> 32);
    for (size_t i = h & (vocab->n_slots - 1);; i = (i + 1) & (vocab->n_slots - 1)) {
        struct kvt_vocab_slot *slot = &vocab->slots[i];
        if (slot->id < 0) return slot;
        if (slot->tag == *tag && slot->len == len && memcmp(vocab->bytes + slot->start, data, len) == 0) return slot;
    }
}

static enum kvt_status index_pieces(struct kvt_vocab *vocab, struct kvt_error *err) {
    for (size_t i = 0; i < vocab->n_slots; i++) vocab->slots[i].id = -1;
    for (int id = 0; id < vocab->n; id++) {
        const struct kvt_text_piece piece = kvt_vocab_piece(vocab, id);
        if (piece.len == 0) continue;
        uint32_t tag;
        struct kvt_vocab_slot *slot = probe(vocab, piece.data, piece.len, &tag);
        if (slot->id >= 0)
            return kvt_fail(err, KVT_ERR_FORMAT, "tokens %d and %d of the vocabulary are both '%.*s'", slot->id, id,
                            (int)KVT_MIN(piece.len, (size_t)100), piece.data);
        *slot = (struct kvt_vocab_slot){tag, id, vocab->start[id], (uint32_t)piece.len};
    }
    return KVT_OK;
}

enum kvt_status kvt_vocab_init(struct kvt_vocab *vocab, struct kvt_arena *arena, const struct kvt_text_spec *spec,
                               struct kvt_error *err) {
    const size_t n = (size_t)spec->n_tokens;
    size_t total = 0;
    for (size_t i = 0; i < n; i++) total += spec->tokens[i].len;
    char *bytes = kvt_arena_take(arena, total + 1, 1);
    uint32_t *start = kvt_arena_take(arena, n + 1, sizeof *start);
    unsigned char *types = kvt_arena_take(arena, n, 1);
    float *scores = spec->scores ? kvt_arena_take(arena, n, sizeof *scores) : NULL;
    const size_t n_slots = n_slots_for(spec->n_tokens);
    struct kvt_vocab_slot *slots = kvt_arena_take(arena, n_slots, sizeof *slots);

    uint32_t at = 0;
    size_t max_len = 0;
    for (size_t i = 0; i < n; i++) {
        const struct kvt_text_piece piece = spec->tokens[i];
        start[i] = at;
        if (piece.len) memcpy(bytes + at, piece.data, piece.len);
        at += (uint32_t)piece.len;
        max_len = KVT_MAX(max_len, piece.len);
        types[i] = (unsigned char)(spec->types && spec->types[i] ? spec->types[i] : KVT_TOKEN_NORMAL);
    }
    start[n] = at;
    bytes[at] = 0;
    if (scores) memcpy(scores, spec->scores, n * sizeof *scores);
    *vocab = (struct kvt_vocab){spec->n_tokens, bytes, start, types, scores, slots, n_slots, max_len};
    return index_pieces(vocab, err);
}

int kvt_vocab_find(const struct kvt_vocab *vocab, const char *data, size_t len) {
    if (len == 0 || len > vocab->max_len) return -1;
    uint32_t tag;
    return probe(vocab, data, len, &tag)->id;
}
