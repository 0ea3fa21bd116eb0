/* SPDX-License-Identifier: Apache-2.0
 * Choosing tokens, and the template of a conversation. */
#include "cli/gen.h"

#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

#define AT(field) offsetof(struct kvt_gen_settings, field)

/* clang-format off */
const struct kvt_opt kvt_gen_options[KVT_GEN_N_OPTIONS] = {
    {KVT_OPT_GROUP, .name = "Generation"},
    {KVT_OPT_INT, .name = "max-tokens", .brief = "n", .also = "predict n-predict", .value = "N", .at = AT(n), .min = -1,
     .max = 1 << 30, .help = "tokens at most; -1: until an end token or a full context"},
    {KVT_OPT_FLOAT, .name = "temp", .also = "temperature", .value = "X", .at = AT(temp), .max = 100,
     .help = "temperature; 0 takes the likeliest token, always"},
    {KVT_OPT_INT, .name = "top-k", .value = "N", .at = AT(top_k), .max = 1 << 30,
     .help = "choose among the N likeliest tokens; 0: all"},
    {KVT_OPT_FLOAT, .name = "top-p", .value = "X", .at = AT(top_p), .max = 1,
     .help = "and among the likeliest that together have probability X; 1: all"},
    {KVT_OPT_FLOAT, .name = "min-p", .value = "X", .at = AT(min_p), .max = 1,
     .help = "and among those with X times the probability of the likeliest; 0: all"},
    {KVT_OPT_INT, .name = "seed", .brief = "s", .value = "N", .at = AT(seed), .min = -1, .max = 0xFFFFFFFFp0,
     .help = "the same seed gives the same text; -1: a new one, which is told"},
    {KVT_OPT_FLAG, .name = "verbose-special", .at = AT(show_special), .help = "show control tokens in the text"},
    {KVT_OPT_GROUP, .name = "Running"},
    {KVT_OPT_INT, .name = "ctx-size", .brief = "c", .value = "N", .at = AT(n_ctx), .max = 1 << 30,
     .help = "context: tokens of prompt and text at most; 0: what they need (a chat: all that fit), up to the model's own"},
    {KVT_OPT_INT, .name = "threads", .brief = "t", .value = "N", .at = AT(n_threads), .max = 1024,
     .help = "threads; 0: as many as there are processors. The text does not depend on it"},
    {KVT_OPT_INT, .name = "batch-size", .brief = "b", .value = "N", .at = AT(n_batch), .min = 1, .max = 1 << 20,
     .help = "tokens of the prompt that are computed at a time"},
    {KVT_OPT_TEXT, .name = "level", .value = "NAME", .at = AT(level),
     .help = "instruction-set level: auto, ref, neon, avx2, avx512, amx"},
    {KVT_OPT_FLAG, .name = "quiet", .brief = "q", .at = AT(quiet), .help = "no progress bar, no [kv] lines and no summary"},
};
/* clang-format on */

/* ---- tokens ----------------------------------------------------------------------------------------------------------- */

static uint64_t random_seed(void) {
    uint32_t seed = 0;
    if (getentropy(&seed, sizeof seed) != 0) seed = (uint32_t)(kvt_clock_seconds() * 1e6);
    return seed;
}

enum kvt_status kvt_gen_init(struct kvt_gen *gen, const struct kvt_gen_settings *s, const struct kvt_model *model,
                             struct kvt_error *err) {
    *gen = (struct kvt_gen){.seed = s->seed < 0 ? random_seed() : (uint64_t)s->seed,
                            .n_logits = (size_t)kvt_model_info(model).n_vocab};
    const struct kvt_sample_options sample = {(float)s->temp, (int)s->top_k, (float)s->top_p, (float)s->min_p,
                                              gen->seed};
    KVT_TRY(kvt_sampler_create(&gen->sampler, &sample, (int)gen->n_logits, NULL, err));
    gen->logits = kvt_take(&kvt_allocator_libc, gen->n_logits, sizeof *gen->logits);
    return gen->logits ? KVT_OK : kvt_fail(err, KVT_ERR_NOMEM, "out of memory for the logits");
}

void kvt_gen_finish(struct kvt_gen *gen) {
    kvt_give(&kvt_allocator_libc, gen->logits, gen->n_logits, sizeof *gen->logits);
    kvt_sampler_destroy(gen->sampler);
    *gen = (struct kvt_gen){.sampler = NULL};
}

enum kvt_status kvt_gen_pick(int32_t *out, struct kvt_gen *gen, struct kvt_session *session, struct kvt_error *err) {
    KVT_TRY(kvt_session_logits(session, 0, 1, gen->logits, err));
    *out = kvt_sampler_pick(gen->sampler, gen->logits);
    return KVT_OK;
}

/* ---- prompt ----------------------------------------------------------------------------------------------------------- */

enum kvt_status kvt_gen_encode(const struct kvt_text *text, const char *data, size_t len, struct kvt_ids *out,
                               struct kvt_error *err) {
    const int bos = kvt_text_bos(text);
    const bool add_bos = kvt_text_add_bos(text) && bos >= 0;
    const size_t at = out->len;
    if (add_bos && kvt_ids_add(out, bos) != KVT_OK)
        return kvt_fail(err, KVT_ERR_NOMEM, "out of memory for the prompt's tokens");
    KVT_TRY(kvt_text_encode(text, data, len, true, out, err));
    if (add_bos && out->len > at + 1 && out->data[at + 1] == bos) { /* the user wrote it out */
        out->len--;
        memmove(out->data + at, out->data + at + 1, (out->len - at) * sizeof *out->data);
    }
    return KVT_OK;
}

/* ---- template --------------------------------------------------------------------------------------------------------- */

enum kvt_status kvt_gen_template(const struct kvt_chat_template **out, const char **source, const char *name,
                                 const struct kvt_model *model, struct kvt_error *err) {
    const char *own = kvt_model_info(model).chat_template;
    if (!name && !own)
        return kvt_fail(err, KVT_ERR_UNSUPPORTED, "the model has no chat template; name one with --template: %s",
                        kvt_chat_names());
    const struct kvt_chat_template *family = name ? kvt_chat_find(name) : kvt_chat_detect(own, strlen(own));
    if (!family && name)
        return kvt_fail(err, KVT_ERR_ARG, "there is no chat template '%s'; known are %s", name, kvt_chat_names());
    if (!family)
        return kvt_fail(err, KVT_ERR_UNSUPPORTED,
                        "the model's chat template is of no known family; name the nearest with --template: %s",
                        kvt_chat_names());
    *out = family;
    *source = name ? NULL : own;
    return KVT_OK;
}
