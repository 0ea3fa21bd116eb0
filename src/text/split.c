/* SPDX-License-Identifier: Apache-2.0
 * Running a pre-tokenizer's expressions, by PCRE2. */
#include "text/split.h"

#include <stdatomic.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/check.h"
#include "text/utf8.h"

struct kvt_split {
    struct kvt_allocator allocator;
    pcre2_general_context *general;
    pcre2_match_context *limits;
    pcre2_code *passes[KVT_SPLIT_PASSES];
    int n_passes;
    atomic_bool starved; /* the allocator has said no */
};

/* ---- memory: PCRE2 frees without a size, so it is kept in front of each block ---------------------------------------------- */

static void *take(PCRE2_SIZE bytes, void *ctx) {
    struct kvt_split *split = ctx;
    size_t total;
    if (!kvt_add_ok(bytes, KVT_ALIGN, &total)) return NULL;
    char *block = kvt_take(&split->allocator, total, 1);
    if (!block) {
        atomic_store(&split->starved, true);
        return NULL;
    }
    memcpy(block, &total, sizeof total);
    return block + KVT_ALIGN;
}

static void give(void *ptr, void *ctx) {
    const struct kvt_split *split = ctx;
    if (!ptr) return;
    char *block = (char *)ptr - KVT_ALIGN;
    size_t total;
    memcpy(&total, block, sizeof total);
    kvt_give(&split->allocator, block, total, 1);
}

/* ---- compiling --------------------------------------------------------------------------------------------------------- */

static enum kvt_status compile(struct kvt_split *split, const char *expression, struct kvt_error *err) {
    pcre2_compile_context *context = pcre2_compile_context_create(split->general);
    if (!context) return KVT_ERR_NOMEM;
    int code = 0;
    PCRE2_SIZE at = 0;
    pcre2_code *pass =
        pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, context);
    pcre2_compile_context_free(context);
    if (!pass && atomic_load(&split->starved)) return KVT_ERR_NOMEM;
    if (!pass)
        return kvt_fail(err, KVT_ERR_UNSUPPORTED,
                        "the PCRE2 library here does not take the pre-tokenizer's expression: error %d at byte %zu",
                        code, (size_t)at);
    split->passes[split->n_passes++] = pass;
    /* Where the system allows no code at run time, matching is slower, not different. */
    const int jit = pcre2_jit_compile(pass, PCRE2_JIT_COMPLETE);
    return jit == PCRE2_ERROR_NOMEMORY && atomic_load(&split->starved) ? KVT_ERR_NOMEM : KVT_OK;
}

enum kvt_status kvt_split_create(struct kvt_split **out, const struct kvt_pretokenizer *pretokenizer,
                                 const struct kvt_allocator *allocator, struct kvt_error *err) {
    struct kvt_split *split = kvt_take_zero(allocator, 1, sizeof *split);
    if (!split) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the pre-tokenizer");
    split->allocator = *allocator;
    split->general = pcre2_general_context_create(take, give, split);
    split->limits = split->general ? pcre2_match_context_create(split->general) : NULL;
    enum kvt_status status = split->limits ? KVT_OK : KVT_ERR_NOMEM;
    if (split->limits)
        pcre2_set_match_limit(split->limits, UINT32_MAX); /* our expressions don't run away; texts are long */
    for (int i = 0; status == KVT_OK && i < KVT_SPLIT_PASSES && pretokenizer->passes[i]; i++)
        status = compile(split, pretokenizer->passes[i], err);
    if (status != KVT_OK) {
        kvt_split_destroy(split);
        return status == KVT_ERR_NOMEM ? kvt_fail(err, status, "no memory for the pre-tokenizer") : status;
    }
    *out = split;
    return KVT_OK;
}

void kvt_split_destroy(struct kvt_split *split) {
    if (!split) return;
    for (int i = 0; i < split->n_passes; i++) pcre2_code_free(split->passes[i]);
    pcre2_match_context_free(split->limits);
    pcre2_general_context_free(split->general);
    kvt_give(&split->allocator, split, 1, sizeof *split);
}

/* ---- cutting ----------------------------------------------------------------------------------------------------------- */

struct run {
    const struct kvt_split *split;
    pcre2_match_data *match;
    kvt_word_fn word;
    void *ctx;
    struct kvt_error *err;
};

/* Finds the next match at or after *start. The piece is well-formed and cut at characters, so PCRE2 need not check it. */
static enum kvt_status next_match(struct run *run, const pcre2_code *pass, const char *piece, size_t len, size_t *start,
                                  size_t *end) {
    const uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
    const PCRE2_SPTR subject = (PCRE2_SPTR)piece;
    int code = pcre2_match(pass, subject, len, *start, options, run->match, run->split->limits);
    if (code == PCRE2_ERROR_JIT_STACKLIMIT)
        code = pcre2_match(pass, subject, len, *start, options | PCRE2_NO_JIT, run->match, run->split->limits);
    if (code == PCRE2_ERROR_NOMATCH) {
        *start = *end = len;
        return KVT_OK;
    }
    if (code < 0)
        return kvt_fail(run->err, code == PCRE2_ERROR_NOMEMORY ? KVT_ERR_NOMEM : KVT_ERR_LIMIT,
                        "cutting the text into words failed (PCRE2 error %d)", code);
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(run->match);
    *start = span[0];
    *end = span[1];
    return KVT_OK;
}

static enum kvt_status cut(struct run *run, int pass, const char *piece, size_t len) {
    if (pass == run->split->n_passes) return run->word(run->ctx, piece, len);
    size_t done = 0;
    while (done < len) {
        size_t start = done, end = 0;
        KVT_TRY(next_match(run, run->split->passes[pass], piece, len, &start, &end));
        if (start > done) KVT_TRY(cut(run, pass + 1, piece + done, start - done));
        if (end > start) KVT_TRY(cut(run, pass + 1, piece + start, end - start));
        done = end;
    }
    return KVT_OK;
}

static size_t malformed_len(const char *text, size_t len) {
    size_t n = 0;
    while (n < len && kvt_utf8_char_len(text + n, len - n) == 0) n++;
    return n;
}

enum kvt_status kvt_split_run(const struct kvt_split *split, const char *text, size_t len, kvt_word_fn word, void *ctx,
                              struct kvt_error *err) {
    struct run run = {split, pcre2_match_data_create(1, split->general), word, ctx, err};
    if (!run.match) return kvt_fail(err, KVT_ERR_NOMEM, "no memory to cut the text into words");
    enum kvt_status status = KVT_OK;
    while (len > 0 && status == KVT_OK) {
        const size_t good = kvt_utf8_valid_len(text, len);
        const size_t bad = malformed_len(text + good, len - good);
        if (good) status = cut(&run, 0, text, good);
        if (bad && status == KVT_OK) status = word(ctx, text + good, bad);
        text += good + bad;
        len -= good + bad;
    }
    pcre2_match_data_free(run.match);
    return status;
}
