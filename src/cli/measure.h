/* SPDX-License-Identifier: Apache-2.0
 *
 * What the commands share that measure caches on a model: loading it, its text in chunks, the folder of stored references, and the
 * options for all that. A command embeds a struct kvt_measure_settings and lists kvt_measure_options among its shared tables.
 */
#ifndef CLI_MEASURE_H
#define CLI_MEASURE_H

#include "cli/engine.h"
#include "cli/input_options.h"

struct kvt_measure_settings {
    const char *level, *stored, *report;
    int64_t chunk, chunks, warmup, prefill_chunk, n_threads;
    bool bos_each_chunk, beyond, quiet;
    struct kvt_place_settings place;
};

#define KVT_MEASURE_DEFAULTS                                                                                           \
    { .chunk = 512, .warmup = -1 }

enum { KVT_MEASURE_N_OPTIONS = 13, KVT_MEASURE_PATH_MAX = 3072 };
extern const struct kvt_opt kvt_measure_options[KVT_MEASURE_N_OPTIONS];

struct kvt_measure {
    const struct kvt_measure_settings *settings;
    const char *path; /* of the model */
    struct kvt_engine engine;
    struct kvt_ids ids;
    char text_name[KVT_INPUT_NAME_MAX];
    char folder[KVT_MEASURE_PATH_MAX];
    struct kvt_fidelity_store store;
    struct kvt_buf command; /* how the program was called */
};

/* Loads the model. kvt_measure_close is to follow, also after a failure. */
KVT_MUST_CHECK enum kvt_status kvt_measure_open(struct kvt_measure *m, const char *path,
                                                const struct kvt_measure_settings *settings, struct kvt_error *err);
void kvt_measure_close(struct kvt_measure *m);

/* The options but for the cases and the text. `start`: the row at which encoding begins; positions before it are not scored
 * unless the settings say otherwise. */
KVT_MUST_CHECK enum kvt_status kvt_measure_fill(struct kvt_fidelity_options *out, const struct kvt_measure *m,
                                                int64_t start, struct kvt_error *err);
/* Reads the text into m->ids, and into the options. Where references are stored it also finds the folder and hashes the model. */
KVT_MUST_CHECK enum kvt_status kvt_measure_text(struct kvt_fidelity_options *o, struct kvt_measure *m,
                                                const struct kvt_input_settings *input, struct kvt_error *err);

/* What a report says of this run. */
struct kvt_fidelity_about kvt_measure_about(const struct kvt_measure *m, const struct kvt_fidelity_options *o);
/* Writes --report FILE, if it was asked for. */
KVT_MUST_CHECK enum kvt_status kvt_measure_report(const struct kvt_measure *m, const struct kvt_fidelity_result *result,
                                                  const struct kvt_fidelity_about *about, struct kvt_error *err);
/* Whether a file can be written, as far as its folder tells: asked before hours of work whose result goes there. IO. */
KVT_MUST_CHECK enum kvt_status kvt_measure_check_file(const char *path, struct kvt_error *err);
/* Says on standard error what is to be said of a stored reference: troubles only. */
void kvt_measure_say_stored(const struct kvt_fidelity_result *result);

#endif
