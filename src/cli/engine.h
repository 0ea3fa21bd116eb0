/* SPDX-License-Identifier: Apache-2.0
 * What every command has that runs a model: threads, a progress bar that Ctrl-C ends, the model and where it runs.
 */
#ifndef CLI_ENGINE_H
#define CLI_ENGINE_H

#include "cli/place.h"
#include "cli/term.h"
#include "model/model.h"

struct kvt_engine {
    struct kvt_threads *threads;
    struct kvt_parallel parallel;
    struct kvt_term_progress progress;
    struct kvt_model *model;
    struct kvt_place place;
    struct kvt_place_info placed; /* bytes 0: the model runs in the process */
    bool quiet;
};

/* n_threads: 0 for as many as there are processors. The engine must stay where it is; close it in any case. */
KVT_MUST_CHECK enum kvt_status kvt_engine_open(struct kvt_engine *engine, int64_t n_threads, bool quiet,
                                               struct kvt_error *err);
/* Loads a model instead of the one before, and brings it to where the settings say (NULL: the processor), which is looked for first. */
KVT_MUST_CHECK enum kvt_status kvt_engine_load(struct kvt_engine *engine, const char *path,
                                               const struct kvt_place_settings *where, struct kvt_error *err);
/* Harmless on a zeroed one. */
void kvt_engine_close(struct kvt_engine *engine);

#endif
