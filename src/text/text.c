/* SPDX-License-Identifier: Apache-2.0 */
#include "text/text.h"

#include <string.h>

#include "base/check.h"
#include "text/inside.h"

/* ---- making ------------------------------------------------------------------------------------------------------------ */

static enum kvt_status check_ids(const struct kvt_text_spec *spec, struct kvt_error *err) {
    const struct {
        const char *name;
        int id;
    } ids[] = {
        {"bos", spec->bos}, {"eos", spec->eos}, {"eot", spec->eot}, {"unknown", spec->unk}, {"padding", spec->pad}};
    for (size_t i = 0; i < KVT_ARRAY_LEN(ids); i++)
        if (ids[i].id < -1 || ids[i].id >= spec->n_tokens)
            return kvt_fail(err, KVT_ERR_FORMAT, "the %s token is %d, but the vocabulary has %d tokens", ids[i].name,
                            ids[i].id, spec->n_tokens);
    if (spec->add_bos > 0 && spec->bos < 0)
        return kvt_fail(err, KVT_ERR_FORMAT, "the vocabulary wants a BOS token in front but names none");
    if (spec->add_eos > 0 && spec->eos < 0)
        return kvt_fail(err, KVT_ERR_FORMAT, "the vocabulary wants an EOS token at the end but names none");
    return KVT_OK;
}

static enum kvt_status choose_kind(enum kvt_text_kind *out, const struct kvt_text_spec *spec, struct kvt_error *err) {
    if (spec->model && strcmp(spec->model, "gpt2") == 0)
        *out = KVT_TEXT_BPE;
    else if (spec->model && strcmp(spec->model, "llama") == 0)
        *out = KVT_TEXT_SPM;
    else
        return kvt_fail(
            err, KVT_ERR_UNSUPPORTED,
            "unknown tokenizer '%.60s' (tokenizer.ggml.model); known: gpt2 (byte-level BPE), llama (SentencePiece)",
            spec->model ? spec->model : "");
    return KVT_OK;
}

static size_t n_end_words(int n_tokens) { return (size_t)n_tokens / 64 + 1; }

/* Sizes first, then one block for everything. */
static enum kvt_status fill(struct kvt_text *text, const struct kvt_text_spec *spec, struct kvt_error *err) {
    size_t need = 0;
    KVT_TRY(choose_kind(&text->kind, spec, err));
    KVT_TRY(kvt_vocab_measure(&need, spec, err));
    KVT_TRY(check_ids(spec, err));
    if (text->kind == KVT_TEXT_BPE) KVT_TRY(kvt_bpe_measure(&need, spec, err));
    const size_t n_specials = (size_t)kvt_special_count(spec) + 1;
    need += kvt_arena_need(n_specials, sizeof *text->specials);
    need += kvt_arena_need(n_end_words(spec->n_tokens), sizeof *text->ends);
    if (!kvt_arena_init(&text->arena, &text->allocator, need)) return KVT_ERR_NOMEM;

    KVT_TRY(kvt_vocab_init(&text->vocab, &text->arena, spec, err));
    text->specials = kvt_arena_take(&text->arena, n_specials, sizeof *text->specials);
    text->ends = kvt_arena_take(&text->arena, n_end_words(spec->n_tokens), sizeof *text->ends);
    memset(text->ends, 0, n_end_words(spec->n_tokens) * sizeof *text->ends);
    kvt_special_init(text);
    kvt_ends_init(text, spec);
    text->bos = spec->bos;
    text->eos = spec->eos;
    text->unk = spec->unk;
    text->add_bos = spec->add_bos > 0;
    text->add_eos = spec->add_eos > 0;
    text->eat_space = spec->control_eats_space;
    KVT_TRY(text->kind == KVT_TEXT_BPE ? kvt_bpe_init(text, spec, err) : kvt_spm_init(text, spec, err));
    text->add_bos = text->add_bos && text->bos >= 0;
    return KVT_OK;
}

enum kvt_status kvt_text_create(struct kvt_text **out, const struct kvt_text_spec *spec,
                                const struct kvt_allocator *allocator, struct kvt_error *err) {
    const struct kvt_allocator a = kvt_allocator_or_default(allocator);
    struct kvt_text *text = kvt_take_zero(&a, 1, sizeof *text);
    enum kvt_status status = KVT_ERR_NOMEM;
    if (text) {
        text->allocator = a;
        status = fill(text, spec, err);
    }
    if (status == KVT_ERR_NOMEM) kvt_fail(err, status, "no memory for a vocabulary of %d tokens", spec->n_tokens);
    if (status != KVT_OK) {
        kvt_text_destroy(text);
        return status;
    }
    *out = text;
    return KVT_OK;
}

void kvt_text_destroy(struct kvt_text *text) {
    if (!text) return;
    kvt_split_destroy(text->bpe.split);
    kvt_arena_finish(&text->arena);
    kvt_give(&text->allocator, text, 1, sizeof *text);
}

/* ---- asking ------------------------------------------------------------------------------------------------------------ */

int kvt_text_n_tokens(const struct kvt_text *text) { return text->vocab.n; }
int kvt_text_bos(const struct kvt_text *text) { return text->bos; }
int kvt_text_eos(const struct kvt_text *text) { return text->eos; }
bool kvt_text_add_bos(const struct kvt_text *text) { return text->add_bos; }
bool kvt_text_add_eos(const struct kvt_text *text) { return text->add_eos; }

bool kvt_text_is_end(const struct kvt_text *text, int id) {
    return id >= 0 && id < text->vocab.n && (text->ends[id / 64] >> id % 64 & 1);
}

int kvt_text_find(const struct kvt_text *text, const char *piece, size_t len) {
    return kvt_vocab_find(&text->vocab, piece, len);
}

/* ---- ids --------------------------------------------------------------------------------------------------------------- */

void kvt_ids_init(struct kvt_ids *ids, const struct kvt_allocator *allocator) {
    *ids = (struct kvt_ids){.allocator = kvt_allocator_or_default(allocator)};
}

void kvt_ids_finish(struct kvt_ids *ids) {
    kvt_give(&ids->allocator, ids->data, ids->capacity, sizeof *ids->data);
    *ids = (struct kvt_ids){.allocator = ids->allocator};
}

enum kvt_status kvt_ids_add(struct kvt_ids *ids, int32_t id) {
    if (ids->len == ids->capacity) {
        const size_t capacity = KVT_MAX((size_t)64, ids->capacity * 2);
        int32_t *data = kvt_take(&ids->allocator, capacity, sizeof *data);
        if (!data) return KVT_ERR_NOMEM;
        if (ids->len) memcpy(data, ids->data, ids->len * sizeof *data);
        kvt_give(&ids->allocator, ids->data, ids->capacity, sizeof *data);
        ids->data = data;
        ids->capacity = capacity;
    }
    ids->data[ids->len++] = id;
    return KVT_OK;
}

/* ---- encoding ---------------------------------------------------------------------------------------------------------- */

enum kvt_status kvt_encoding_no_memory(const struct kvt_encoding *e) {
    return kvt_fail(e->err, KVT_ERR_NOMEM, "no memory to encode the text");
}

enum kvt_status kvt_encoding_add(struct kvt_encoding *e, int32_t id) {
    return kvt_ids_add(e->out, id) == KVT_OK ? KVT_OK : kvt_encoding_no_memory(e);
}

static enum kvt_status encode_plain(struct kvt_encoding *e, const char *data, size_t len) {
    if (len == 0) return KVT_OK;
    KVT_TRY(e->text->kind == KVT_TEXT_BPE ? kvt_bpe_encode(e, data, len) : kvt_spm_encode(e, data, len));
    e->after_special = false;
    return KVT_OK;
}

/* The text between the special tokens that kvt_special_find has marked, and those tokens. */
static enum kvt_status encode_marked(struct kvt_encoding *e, const char *data, size_t len, const int32_t *marks) {
    size_t plain = 0;
    for (size_t i = 0; i < len;) {
        if (marks[i] == 0) {
            i++;
            continue;
        }
        KVT_TRY(encode_plain(e, data + plain, i - plain));
        KVT_TRY(kvt_encoding_add(e, marks[i] - 1));
        e->after_special = true;
        for (i++; i < len && marks[i] < 0;) i++;
        plain = i;
    }
    return encode_plain(e, data + plain, len - plain);
}

static enum kvt_status encode(struct kvt_encoding *e, const struct kvt_text_mixed *mixed, bool parse_special) {
    const char *data = mixed->data + mixed->from;
    const size_t len = mixed->len - mixed->from;
    if (!kvt_special_possible(e->text, data, len, parse_special)) return encode_plain(e, data, len);
    int32_t *marks = kvt_take(&e->text->allocator, len, sizeof *marks);
    if (!marks) return kvt_encoding_no_memory(e);
    const bool found = kvt_special_find(e->text, mixed, parse_special, marks);
    const enum kvt_status status = found ? encode_marked(e, data, len, marks) : encode_plain(e, data, len);
    kvt_give(&e->text->allocator, marks, len, sizeof *marks);
    return status;
}

static enum kvt_status encode_all(const struct kvt_text *text, const struct kvt_text_mixed *mixed, bool parse_special,
                                  struct kvt_ids *out, struct kvt_error *err) {
    if (mixed->len > KVT_TEXT_MAX)
        return kvt_fail(err, KVT_ERR_LIMIT, "the text has %zu bytes; at most %d can be encoded at once", mixed->len,
                        KVT_TEXT_MAX);
    struct kvt_encoding e = {
        .text = text, .out = out, .err = err, .after_special = mixed->after < 0 || kvt_special_is(text, mixed->after)};
    const size_t before = out->len;
    kvt_merger_init(&e.merger, &text->allocator);
    kvt_buf_init(&e.scratch, &text->allocator, (size_t)KVT_TEXT_MAX * 3 + 3);
    const enum kvt_status status = encode(&e, mixed, parse_special);
    kvt_buf_finish(&e.scratch);
    kvt_merger_finish(&e.merger);
    if (status != KVT_OK) out->len = before;
    return status;
}

enum kvt_status kvt_text_encode(const struct kvt_text *text, const char *data, size_t len, bool parse_special,
                                struct kvt_ids *out, struct kvt_error *err) {
    const struct kvt_text_mixed whole = {.data = data, .len = len, .after = -1};
    return encode_all(text, &whole, parse_special, out, err);
}

enum kvt_status kvt_text_encode_mixed(const struct kvt_text *text, const struct kvt_text_mixed *mixed,
                                      struct kvt_ids *out, struct kvt_error *err) {
    KVT_ASSERT(mixed->from <= mixed->len && mixed->after < text->vocab.n);
    return encode_all(text, mixed, true, out, err);
}

/* ---- decoding ---------------------------------------------------------------------------------------------------------- */

enum kvt_status kvt_text_decode(const struct kvt_text *text, int id, bool show_special, struct kvt_buf *out) {
    if (id < 0 || id >= text->vocab.n) return KVT_ERR_RANGE;
    const struct kvt_text_piece piece = kvt_vocab_piece(&text->vocab, id);
    const bool hidden = kvt_vocab_is_hidden(&text->vocab, id);
    if (hidden && !show_special) return KVT_OK;
    if (hidden || text->vocab.types[id] == KVT_TOKEN_USER) return kvt_buf_add(out, piece.data, piece.len);
    const size_t before = out->len;
    const enum kvt_status status =
        text->kind == KVT_TEXT_BPE ? kvt_bpe_decode(text, id, out) : kvt_spm_decode(text, id, out);
    if (status != KVT_OK) {
        out->len = before;
        if (out->data) out->data[before] = 0;
    }
    return status;
}
