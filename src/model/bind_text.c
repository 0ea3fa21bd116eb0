/* SPDX-License-Identifier: Apache-2.0 */
#include "model/bind_text.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>

#include "base/check.h"

#define KEY(name) "tokenizer.ggml." name

/* Copies of the arrays, in the form that a specification has. */
struct arrays {
    struct kvt_allocator allocator;
    struct kvt_text_piece *tokens, *merges;
    float *scores;
    int32_t *types;
    size_t n_tokens, n_merges;
};

static void arrays_finish(struct arrays *a) {
    kvt_give(&a->allocator, a->tokens, a->n_tokens, sizeof *a->tokens);
    kvt_give(&a->allocator, a->merges, a->n_merges, sizeof *a->merges);
    kvt_give(&a->allocator, a->scores, a->n_tokens, sizeof *a->scores);
    kvt_give(&a->allocator, a->types, a->n_tokens, sizeof *a->types);
}

/* An array of strings; absent or empty: none. */
static enum kvt_status get_pieces(struct kvt_text_piece **out, size_t *n, const struct kvt_gguf *gguf, const char *key,
                                  const struct kvt_allocator *allocator, struct kvt_error *err) {
    const struct kvt_gguf_value *value = kvt_gguf_find(gguf, key);
    if (!value || (value->kind == KVT_GGUF_ARRAY && value->count == 0)) return KVT_OK;
    if (value->kind != KVT_GGUF_ARRAY || value->element != KVT_GGUF_STRING)
        return kvt_fail(err, KVT_ERR_FORMAT, "%s is not an array of strings", key);
    if (value->count > INT_MAX) return kvt_fail(err, KVT_ERR_FORMAT, "%s has more than %d elements", key, INT_MAX);
    struct kvt_text_piece *pieces = kvt_take(allocator, value->count, sizeof *pieces);
    if (!pieces) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for %s", key);
    for (size_t i = 0; i < value->count; i++)
        pieces[i] = (struct kvt_text_piece){value->text[i].data, value->text[i].len};
    *out = pieces;
    *n = value->count;
    return KVT_OK;
}

/* An array with a number for each token, or nothing. */
static enum kvt_status find_numbers(const struct kvt_gguf_value **out, const struct kvt_gguf *gguf, const char *key,
                                    size_t n_tokens, struct kvt_error *err) {
    *out = kvt_gguf_find(gguf, key);
    if (!*out) return KVT_OK;
    if ((*out)->kind != KVT_GGUF_ARRAY) return kvt_fail(err, KVT_ERR_FORMAT, "%s is not an array", key);
    if ((*out)->count != n_tokens)
        return kvt_fail(err, KVT_ERR_FORMAT, "%s has %llu elements for %zu tokens", key,
                        (unsigned long long)(*out)->count, n_tokens);
    return KVT_OK;
}

static enum kvt_status get_scores(struct arrays *a, const struct kvt_gguf *gguf, struct kvt_error *err) {
    const struct kvt_gguf_value *value;
    KVT_TRY(find_numbers(&value, gguf, KEY("scores"), a->n_tokens, err));
    if (!value || a->n_tokens == 0) return KVT_OK;
    a->scores = kvt_take(&a->allocator, a->n_tokens, sizeof *a->scores);
    if (!a->scores) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the scores of the vocabulary");
    for (size_t i = 0; i < a->n_tokens; i++) {
        double score;
        if (!kvt_gguf_as_f64(value, i, &score))
            return kvt_fail(err, KVT_ERR_FORMAT, "%s is not an array of numbers", KEY("scores"));
        a->scores[i] = (float)score;
    }
    return KVT_OK;
}

static enum kvt_status get_types(struct arrays *a, const struct kvt_gguf *gguf, struct kvt_error *err) {
    const struct kvt_gguf_value *value;
    KVT_TRY(find_numbers(&value, gguf, KEY("token_type"), a->n_tokens, err));
    if (!value || a->n_tokens == 0) return KVT_OK;
    a->types = kvt_take(&a->allocator, a->n_tokens, sizeof *a->types);
    if (!a->types) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the types of the vocabulary");
    for (size_t i = 0; i < a->n_tokens; i++) {
        int64_t type;
        if (!kvt_gguf_as_i64(value, i, &type) || type < INT32_MIN || type > INT32_MAX)
            return kvt_fail(err, KVT_ERR_FORMAT, "%s is not an array of 32-bit integers", KEY("token_type"));
        a->types[i] = (int32_t)type;
    }
    return KVT_OK;
}

/* ---- single values ----------------------------------------------------------------------------------------------------- */

/* An id, -1 where it is absent. */
static enum kvt_status get_id(int *out, const struct kvt_gguf *gguf, const char *key, struct kvt_error *err) {
    int64_t id = -1;
    const enum kvt_status status = kvt_gguf_get_int(gguf, key, -1, UINT32_MAX, &id, err);
    if (status != KVT_OK && status != KVT_ERR_NOTFOUND) return status;
    *out = id == UINT32_MAX ? -1 : (int)KVT_MIN(id, (int64_t)INT_MAX);
    return KVT_OK;
}

/* A flag, -1 where it is absent. */
static enum kvt_status get_flag(int *out, const struct kvt_gguf *gguf, const char *key, struct kvt_error *err) {
    bool flag = false;
    const enum kvt_status status = kvt_gguf_get_bool(gguf, key, &flag, err);
    if (status != KVT_OK && status != KVT_ERR_NOTFOUND) return status;
    *out = status == KVT_OK ? flag : -1;
    return KVT_OK;
}

/* A short name as a C string; names that don't fit are cut, and then unknown. Absent: *out is NULL. */
static enum kvt_status get_name(const char **out, char *room, size_t bytes, const struct kvt_gguf *gguf,
                                const char *key, struct kvt_error *err) {
    struct kvt_slice name;
    const enum kvt_status status = kvt_gguf_get_text(gguf, key, &name, err);
    *out = NULL;
    if (status == KVT_ERR_NOTFOUND) return KVT_OK;
    KVT_TRY(status);
    const size_t len = KVT_MIN(name.len, bytes - 1);
    memcpy(room, name.data, len);
    room[len] = 0;
    *out = room;
    return KVT_OK;
}

/* The files do not say which tokens eat white space; llama.cpp, too, goes by the model's name. */
static bool is_phi3(const struct kvt_gguf *gguf) {
    struct kvt_slice name;
    if (kvt_gguf_get_text(gguf, "general.name", &name, NULL) != KVT_OK) return false;
    for (size_t i = 0; i + 4 <= name.len; i++) {
        char low[5] = {0};
        const size_t n = KVT_MIN(name.len - i, sizeof low);
        for (size_t k = 0; k < n; k++) low[k] = (char)tolower((unsigned char)name.data[i + k]);
        if (memcmp(low, "phi3", 4) == 0 || (n == 5 && memcmp(low, "phi-3", 5) == 0)) return true;
    }
    return false;
}

static enum kvt_status bind(struct kvt_text **out, struct arrays *a, const struct kvt_gguf *gguf,
                            struct kvt_error *err) {
    char model[64], pre[64];
    struct kvt_text_spec spec = {.control_eats_space = is_phi3(gguf)};
    KVT_TRY(get_name(&spec.model, model, sizeof model, gguf, KEY("model"), err));
    KVT_TRY(get_name(&spec.pre, pre, sizeof pre, gguf, KEY("pre"), err));
    KVT_TRY(get_pieces(&a->tokens, &a->n_tokens, gguf, KEY("tokens"), &a->allocator, err));
    KVT_TRY(get_pieces(&a->merges, &a->n_merges, gguf, KEY("merges"), &a->allocator, err));
    KVT_TRY(get_scores(a, gguf, err));
    KVT_TRY(get_types(a, gguf, err));
    KVT_TRY(get_id(&spec.bos, gguf, KEY("bos_token_id"), err));
    KVT_TRY(get_id(&spec.eos, gguf, KEY("eos_token_id"), err));
    KVT_TRY(get_id(&spec.eot, gguf, KEY("eot_token_id"), err));
    KVT_TRY(get_id(&spec.unk, gguf, KEY("unknown_token_id"), err));
    KVT_TRY(get_id(&spec.pad, gguf, KEY("padding_token_id"), err));
    KVT_TRY(get_flag(&spec.add_bos, gguf, KEY("add_bos_token"), err));
    KVT_TRY(get_flag(&spec.add_eos, gguf, KEY("add_eos_token"), err));
    KVT_TRY(get_flag(&spec.add_space_prefix, gguf, KEY("add_space_prefix"), err));
    spec.n_tokens = (int)a->n_tokens;
    spec.tokens = a->tokens;
    spec.scores = a->scores;
    spec.types = a->types;
    spec.n_merges = (int)a->n_merges;
    spec.merges = a->merges;
    return kvt_text_create(out, &spec, &a->allocator, err);
}

enum kvt_status kvt_bind_text(struct kvt_text **out, const struct kvt_gguf *gguf, const struct kvt_allocator *allocator,
                              struct kvt_error *err) {
    struct arrays arrays = {.allocator = kvt_allocator_or_default(allocator)};
    const enum kvt_status status = bind(out, &arrays, gguf, err);
    arrays_finish(&arrays);
    return status;
}
