/* SPDX-License-Identifier: Apache-2.0
 * Texts with planted facts, in the form that the repository's models were trained on (models/README.md). */
#include "fidelity/needle_text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

enum { PIECE_BYTES = 480, VALUE_MAX = 8, FACT_BYTES = 128 };

static const char *const names[] = {"Maria", "John",  "Amara", "Felix", "Ingrid", "Tomas", "Yuki",  "Priya", "Oscar",
                                    "Lena",  "Hugo",  "Nadia", "Boris", "Clara",  "Elise", "Farid", "Greta", "Hassan",
                                    "Irene", "Jonas", "Katya", "Leo",   "Mina",   "Noor",  "Otto",  "Paula", "Quentin",
                                    "Rosa",  "Samir", "Tessa", "Vera",  "Walter", "Yara",  "Zane"};
static const char *const things[] = {"code",   "number", "password", "key",     "badge",
                                     "ticket", "locker", "room",     "account", "token"};
_Static_assert(KVT_ARRAY_LEN(names) >= KVT_NEEDLE_FACTS_MAX, "each fact of a text is of someone else");

/* ---- the filler ------------------------------------------------------------------------------------------------------- */

/* Bytes of the first piece of text, and in *out_after where the next one begins. */
static size_t piece_len(const char *text, size_t len, size_t *out_after) {
    size_t end = 0, cut = 0;
    while (end < len && !(text[end] == '\n' && end + 1 < len && text[end + 1] == '\n') && end < PIECE_BYTES) {
        if (end + 1 < len && strchr(".!?", text[end]) && isspace((unsigned char)text[end + 1])) cut = end + 1;
        end++;
    }
    if (end == PIECE_BYTES && end < len && text[end] != '\n') {
        if (cut == 0)
            for (cut = end; cut > 0 && !isspace((unsigned char)text[cut]);) cut--;
        if (cut > 0) end = cut;
    }
    *out_after = end;
    while (*out_after < len && isspace((unsigned char)text[*out_after])) ++*out_after;
    return end;
}

static bool holds(const char *text, size_t len, const char *what) {
    const size_t n = strlen(what);
    for (size_t i = 0; i + n <= len; i++)
        if (memcmp(text + i, what, n) == 0) return true;
    return false;
}

static bool is_filler(const char *text, size_t len) {
    return len > 0 && !holds(text, len, "Remember this") && !holds(text, len, "What is the");
}

static enum kvt_status count_tokens(int *out, struct kvt_ids *ids, const struct kvt_text *tokenizer, const char *text,
                                    size_t len, struct kvt_error *err) {
    ids->len = 0;
    KVT_TRY(kvt_text_encode(tokenizer, text, len, false, ids, err));
    *out = (int)ids->len + 2; /* the blank line */
    return KVT_OK;
}

static enum kvt_status cut(struct kvt_needle_filler *f, const char *text, size_t len, const struct kvt_text *tokenizer,
                           struct kvt_error *err) {
    struct kvt_ids ids;
    enum kvt_status status = KVT_OK;
    kvt_ids_init(&ids, &f->allocator);
    size_t at = 0, after;
    while (at < len && isspace((unsigned char)text[at])) at++;
    for (; at < len && f->n < f->n_taken && status == KVT_OK; at += after) {
        const size_t n = piece_len(text + at, len - at, &after);
        if (after == 0) after = 1;
        if (!is_filler(text + at, n)) continue;
        struct kvt_needle_piece *piece = &f->pieces[f->n];
        *piece = (struct kvt_needle_piece){text + at, n, 0};
        status = count_tokens(&piece->n_tokens, &ids, tokenizer, piece->text, n, err);
        f->n++;
    }
    kvt_ids_finish(&ids);
    return status;
}

enum kvt_status kvt_needle_cut(struct kvt_needle_filler *out, const char *text, size_t len,
                               const struct kvt_text *tokenizer, const struct kvt_allocator *allocator,
                               struct kvt_error *err) {
    struct kvt_needle_filler f = {.allocator = kvt_allocator_or_default(allocator)};
    f.n_taken = 1; /* pieces at most: one a blank line, and one a cut */
    for (size_t i = 0; i + 1 < len; i++) f.n_taken += text[i] == '\n' && text[i + 1] == '\n';
    f.n_taken += 2 * (len / (PIECE_BYTES / 4)) + 1;
    f.pieces = kvt_take(&f.allocator, f.n_taken, sizeof *f.pieces);
    if (!f.pieces) return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory to cut a text of %zu bytes", len);
    enum kvt_status status = cut(&f, text, len, tokenizer, err);
    if (status == KVT_OK && f.n == 0) status = kvt_fail(err, KVT_ERR_ARG, "there is no text to plant facts in");
    if (status == KVT_OK)
        *out = f;
    else
        kvt_needle_filler_finish(&f);
    return status;
}

void kvt_needle_filler_finish(struct kvt_needle_filler *f) {
    if (f->pieces) kvt_give(&f->allocator, f->pieces, f->n_taken, sizeof *f->pieces);
    *f = (struct kvt_needle_filler){.pieces = NULL};
}

/* ---- facts ------------------------------------------------------------------------------------------------------------ */

struct fact {
    const char *thing, *name;
    char value[VALUE_MAX];
};

/* Facts of different people. */
static void make_facts(struct fact *facts, int n, struct kvt_rng *rng) {
    size_t order[KVT_ARRAY_LEN(names)];
    for (size_t i = 0; i < KVT_ARRAY_LEN(names); i++) order[i] = i;
    for (int i = 0; i < n; i++) {
        const size_t other = (size_t)i + kvt_rng_below(rng, KVT_ARRAY_LEN(names) - (size_t)i), name = order[other];
        order[other] = order[i];
        order[i] = name;
        facts[i].name = names[name];
        facts[i].thing = things[kvt_rng_below(rng, KVT_ARRAY_LEN(things))];
        const int n_digits = 4 + (int)kvt_rng_below(rng, 3);
        for (int k = 0; k < n_digits; k++) facts[i].value[k] = (char)('0' + kvt_rng_below(rng, 10));
        facts[i].value[n_digits] = 0;
    }
}

static void write_fact(char out[FACT_BYTES], const struct fact *f) {
    snprintf(out, FACT_BYTES, "Remember this: the %s of %s is %s.", f->thing, f->name, f->value);
}

/* The question's tokens and the answer's: encoded together, as a text has them; the answer begins where the two differ from the
 * question alone. */
static enum kvt_status make_question(struct kvt_needle_question *q, const struct fact *f, bool first,
                                     const struct kvt_text *tokenizer, struct kvt_ids *alone, struct kvt_error *err) {
    char ask[FACT_BYTES], whole[FACT_BYTES + VALUE_MAX + 2];
    snprintf(ask, sizeof ask, "%sWhat is the %s of %s? The %s of %s is", first ? "" : "\n\n", f->thing, f->name,
             f->thing, f->name);
    snprintf(whole, sizeof whole, "%s %s.", ask, f->value);
    alone->len = 0;
    KVT_TRY(kvt_text_encode(tokenizer, ask, strlen(ask), false, alone, err));
    KVT_TRY(kvt_text_encode(tokenizer, whole, strlen(whole), false, &q->ids, err));
    size_t same = 0;
    while (same < alone->len && same < q->ids.len && alone->data[same] == q->ids.data[same]) same++;
    q->n_answer = (int)(q->ids.len - same);
    return KVT_OK;
}

/* ---- the text --------------------------------------------------------------------------------------------------------- */

/* Pieces from `first` on, round about, that fit into n tokens; returns how many. */
static size_t count_pieces(const struct kvt_needle_filler *filler, size_t first, int n) {
    size_t k = 0;
    for (int sum = 0; k < 1 << 20; k++) {
        sum += filler->pieces[(first + k) % filler->n].n_tokens;
        if (sum > n) break;
    }
    return k;
}

static enum kvt_status write_text(struct kvt_buf *text, const struct kvt_needle_filler *filler, size_t first,
                                  size_t n_pieces, const struct fact *facts, int n_facts) {
    int next = 0;
    for (size_t k = 0; k <= n_pieces; k++) {
        while (next < n_facts && k >= (size_t)next * n_pieces / (size_t)KVT_MAX(n_facts - 1, 1)) {
            char fact[FACT_BYTES];
            write_fact(fact, &facts[next++]);
            KVT_TRY(kvt_buf_addf(text, "%s\n\n", fact));
        }
        if (k == n_pieces) break;
        const struct kvt_needle_piece *piece = &filler->pieces[(first + k) % filler->n];
        KVT_TRY(kvt_buf_add(text, piece->text, piece->len));
        KVT_TRY(kvt_buf_addf(text, "\n\n"));
    }
    return KVT_OK;
}

static enum kvt_status make_questions(struct kvt_needle_text *t, const struct fact *facts, int n_facts,
                                      const struct kvt_text *tokenizer, struct kvt_rng *rng,
                                      const struct kvt_allocator *allocator, struct kvt_error *err) {
    int order[KVT_NEEDLE_FACTS_MAX] = {0};
    struct kvt_ids alone;
    enum kvt_status status = KVT_OK;
    kvt_ids_init(&alone, allocator);
    for (int i = 0; i < n_facts; i++) {
        const int j = (int)kvt_rng_below(rng, (uint64_t)i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (int i = 0; i < n_facts && status == KVT_OK; i++) {
        struct kvt_needle_question *q = &t->questions[t->n_questions++];
        kvt_ids_init(&q->ids, allocator);
        q->depth = order[i];
        status = make_question(q, &facts[order[i]], i == 0, tokenizer, &alone, err);
    }
    kvt_ids_finish(&alone);
    return status;
}

/* Tokens that facts and questions take. */
static enum kvt_status count_facts(int *out, const struct kvt_needle_text *t, const struct fact *facts, int n_facts,
                                   const struct kvt_text *tokenizer, const struct kvt_allocator *allocator,
                                   struct kvt_error *err) {
    struct kvt_ids ids;
    enum kvt_status status = KVT_OK;
    kvt_ids_init(&ids, allocator);
    *out = 0;
    for (int i = 0; i < n_facts && status == KVT_OK; i++) {
        char fact[FACT_BYTES];
        int n = 0;
        write_fact(fact, &facts[i]);
        status = count_tokens(&n, &ids, tokenizer, fact, strlen(fact), err);
        *out += n + (int)t->questions[i].ids.len;
    }
    kvt_ids_finish(&ids);
    return status;
}

static enum kvt_status make(struct kvt_needle_text *t, struct kvt_buf *text, const struct kvt_needle_filler *filler,
                            const struct kvt_text *tokenizer, int length, int n_facts, struct kvt_rng *rng,
                            const struct kvt_allocator *allocator, struct kvt_error *err) {
    struct fact facts[KVT_NEEDLE_FACTS_MAX];
    const size_t first = kvt_rng_below(rng, filler->n);
    int n_taken;
    make_facts(facts, n_facts, rng);
    KVT_TRY(make_questions(t, facts, n_facts, tokenizer, rng, allocator, err));
    KVT_TRY(count_facts(&n_taken, t, facts, n_facts, tokenizer, allocator, err));
    const int room = length - n_taken - 1;
    const size_t n_pieces = room > 0 ? count_pieces(filler, first, room) : 0;
    if (n_pieces == 0)
        return kvt_fail(err, KVT_ERR_ARG, "%d tokens have no room for text between %d facts and their questions",
                        length, n_facts);
    if (write_text(text, filler, first, n_pieces, facts, n_facts) != KVT_OK)
        return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for a text of %d tokens", length);
    if (kvt_text_add_bos(tokenizer) && kvt_text_bos(tokenizer) >= 0 &&
        kvt_ids_add(&t->ids, kvt_text_bos(tokenizer)) != KVT_OK)
        return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for a text of %d tokens", length);
    return kvt_text_encode(tokenizer, kvt_buf_text(text), text->len, false, &t->ids, err);
}

enum kvt_status kvt_needle_make(struct kvt_needle_text *out, const struct kvt_needle_filler *filler,
                                const struct kvt_text *tokenizer, int length, int n_facts, struct kvt_rng *rng,
                                const struct kvt_allocator *allocator, struct kvt_error *err) {
    struct kvt_needle_text t = {.n_questions = 0};
    struct kvt_buf text;
    KVT_ASSERT(n_facts >= 1 && n_facts <= KVT_NEEDLE_FACTS_MAX);
    kvt_ids_init(&t.ids, allocator);
    kvt_buf_init(&text, allocator, KVT_NEEDLE_BYTES_MAX);
    const enum kvt_status status = make(&t, &text, filler, tokenizer, length, n_facts, rng, allocator, err);
    kvt_buf_finish(&text);
    if (status == KVT_OK)
        *out = t;
    else
        kvt_needle_text_finish(&t);
    return status;
}

void kvt_needle_text_finish(struct kvt_needle_text *t) {
    for (int i = 0; i < t->n_questions; i++) kvt_ids_finish(&t->questions[i].ids);
    kvt_ids_finish(&t->ids);
    t->n_questions = 0;
}
