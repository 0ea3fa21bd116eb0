/* SPDX-License-Identifier: Apache-2.0
 * The text to measure on: a plain text, or what the model writes itself. */
#include <math.h>

#include "base/check.h"
#include "base/clock.h"
#include "fidelity/fidelity.h"

/* ---- text ------------------------------------------------------------------------------------------------------------- */

enum kvt_status kvt_fidelity_read_text(struct kvt_ids *out, const char *text, size_t len, const struct kvt_model *model,
                                       struct kvt_error *err) {
    const struct kvt_text *tokenizer = kvt_model_text(model);
    const size_t len_before = out->len;
    if (kvt_text_add_bos(tokenizer) && kvt_text_bos(tokenizer) >= 0 &&
        kvt_ids_add(out, kvt_text_bos(tokenizer)) != KVT_OK)
        return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for the tokens of the text");
    const enum kvt_status status = kvt_text_encode(tokenizer, text, len, false, out, err);
    if (status != KVT_OK) out->len = len_before;
    return status;
}

/* ---- the model's own text --------------------------------------------------------------------------------------------- */

struct writer {
    const struct kvt_self_options *options;
    const struct kvt_text *text;
    struct kvt_session *session;
    struct kvt_sampler *sampler;
    float *logits;
    int start; /* the token that begins a text */
};

static int start_token(const struct kvt_text *text) {
    if (kvt_text_bos(text) >= 0) return kvt_text_bos(text);
    return KVT_MAX(kvt_text_eos(text), 0);
}

/* The token at place i; the session holds the text before it. */
static enum kvt_status next_token(int *out, struct writer *w, int i, struct kvt_error *err) {
    int id = w->start;
    if (i % w->options->chunk != 0) {
        KVT_TRY(kvt_session_logits(w->session, 0, 1, w->logits, err));
        id = kvt_sampler_pick(w->sampler, w->logits);
        if (kvt_text_is_end(w->text, id)) id = w->start;
    }
    *out = id;
    return KVT_OK;
}

static enum kvt_status write_tokens(struct kvt_ids *out, struct writer *w, struct kvt_error *err) {
    const int n = w->options->n;
    const double end = w->options->seconds > 0 ? kvt_clock_seconds() + w->options->seconds : INFINITY;
    for (int i = 0; i < n && (i == 0 || kvt_clock_seconds() < end); i++) {
        int id;
        KVT_TRY(next_token(&id, w, i, err));
        if (id == w->start) kvt_session_clear(w->session);
        const int32_t fed = id;
        KVT_TRY(kvt_session_eval(w->session, &fed, 1, 1, NULL, err));
        if (kvt_ids_add(out, fed) != KVT_OK) return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for %d ids", n);
        if (!kvt_progress_report(w->options->progress, "sampling", (uint64_t)i + 1, (uint64_t)n))
            return kvt_fail(err, KVT_ERR_CANCELLED, "cancelled");
    }
    return KVT_OK;
}

enum kvt_status kvt_fidelity_sample(struct kvt_ids *out, const struct kvt_model *model,
                                    const struct kvt_self_options *options, struct kvt_error *err) {
    const struct kvt_model_info info = kvt_model_info(model);
    const struct kvt_allocator allocator = kvt_allocator_or_default(options->allocator);
    const struct kvt_session_options session = {
        .n_ctx = options->chunk,
        .beyond = options->beyond,
        .n_batch = 1,
        .level = options->level,
        .parallel = options->parallel,
        .allocator = options->allocator,
    };
    const struct kvt_sample_options sample = {.temp = 1, .top_p = 1, .seed = options->seed};
    const size_t len_before = out->len;
    struct writer w = {.options = options, .text = kvt_model_text(model), .start = start_token(kvt_model_text(model))};
    if (options->n < 1 || options->chunk < 1)
        return kvt_fail(err, KVT_ERR_ARG, "%d tokens in chunks of %d cannot be sampled; both must be at least 1",
                        options->n, options->chunk);
    enum kvt_status status;
    KVT_TRY_OUT(kvt_session_create(&w.session, model, &session, err));
    KVT_TRY_OUT(kvt_sampler_create(&w.sampler, &sample, info.n_vocab, options->allocator, err));
    w.logits = kvt_take(&allocator, (size_t)info.n_vocab, sizeof(float));
    if (!w.logits) KVT_TRY_OUT(kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for the logits"));
    KVT_TRY_OUT(write_tokens(out, &w, err));
out:
    if (status != KVT_OK) out->len = len_before;
    kvt_give(&allocator, w.logits, (size_t)info.n_vocab, sizeof(float));
    kvt_sampler_destroy(w.sampler);
    kvt_session_destroy(w.session);
    return status;
}
