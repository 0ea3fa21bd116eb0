/* SPDX-License-Identifier: Apache-2.0
 *
 * The options that choose the text which a model is measured on. A command embeds a struct kvt_input_settings and lists
 * kvt_input_options among its shared tables.
 */
#ifndef CLI_INPUT_OPTIONS_H
#define CLI_INPUT_OPTIONS_H

#include "cli/opt.h"
#include "fidelity/fidelity.h"

struct kvt_input_settings {
    const char *text, *ids;
    int64_t self, seed;
};

#define KVT_INPUT_DEFAULTS                                                                                             \
    { .seed = 1 }

enum { KVT_INPUT_N_OPTIONS = 5, KVT_INPUT_NAME_MAX = 300 };
extern const struct kvt_opt kvt_input_options[KVT_INPUT_N_OPTIONS];

/* Who reads or writes the text. */
struct kvt_input_reader {
    const struct kvt_model *model;
    int chunk;   /* tokens; a text that the model writes must fill one */
    bool beyond; /* it may be longer than the model's context */
    const char *level;
    const struct kvt_parallel *parallel;
    const struct kvt_progress *progress;
};

static inline bool kvt_input_is_named(const struct kvt_input_settings *s) { return s->text || s->ids || s->self; }

/* Appends the text's tokens; `name` becomes what reports call it. One of the settings must be named. */
KVT_MUST_CHECK enum kvt_status kvt_input_read(struct kvt_ids *out, char name[KVT_INPUT_NAME_MAX],
                                              const struct kvt_input_settings *s, const struct kvt_input_reader *reader,
                                              struct kvt_error *err);

#endif
