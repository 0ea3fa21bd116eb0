/* SPDX-License-Identifier: Apache-2.0
 *
 * What commands have in common that write text: how tokens are chosen, how the model is run, which chat template. A command
 * embeds a struct kvt_gen_settings and lists kvt_gen_options among its shared tables.
 */
#ifndef CLI_GEN_H
#define CLI_GEN_H

#include "cli/opt.h"
#include "model/model.h"

struct kvt_gen_settings {
    int64_t n, n_ctx, n_batch, n_threads, top_k, seed;
    double temp, top_p, min_p;
    const char *level;
    bool show_special, quiet;
};

#define KVT_GEN_DEFAULTS(tokens)                                                                                       \
    { .n = (tokens), .n_batch = 512, .top_k = 40, .seed = -1, .temp = 0.8, .top_p = 0.95, .min_p = 0.05 }

enum { KVT_GEN_N_OPTIONS = 14 };
extern const struct kvt_opt kvt_gen_options[KVT_GEN_N_OPTIONS];

/* The tokens that a model's logits give. */
struct kvt_gen {
    struct kvt_sampler *sampler;
    float *logits;
    size_t n_logits;
    uint64_t seed; /* that was asked for, or a new one */
};
/* Finish it in any case; harmless on a zeroed one. */
KVT_MUST_CHECK enum kvt_status kvt_gen_init(struct kvt_gen *gen, const struct kvt_gen_settings *s,
                                            const struct kvt_model *model, struct kvt_error *err);
void kvt_gen_finish(struct kvt_gen *gen);
/* The token after those that the session holds. */
KVT_MUST_CHECK enum kvt_status kvt_gen_pick(int32_t *out, struct kvt_gen *gen, struct kvt_session *session,
                                            struct kvt_error *err);

/* Appends the tokens of a prompt, control tokens in it read as such, BOS in front where the tokenizer wants it. */
KVT_MUST_CHECK enum kvt_status kvt_gen_encode(const struct kvt_text *text, const char *data, size_t len,
                                              struct kvt_ids *out, struct kvt_error *err);

/* The model's chat template, or the one called `name` if that is not NULL: then *source is NULL. UNSUPPORTED or ARG: the sentence names
 * --template and lists the known ones. */
KVT_MUST_CHECK enum kvt_status kvt_gen_template(const struct kvt_chat_template **out, const char **source,
                                                const char *name, const struct kvt_model *model, struct kvt_error *err);

#endif
