/* SPDX-License-Identifier: Apache-2.0
 * What every command has that runs a model: threads, a progress bar that Ctrl-C ends, the model.
 */
#ifndef CLI_ENGINE_H
#define CLI_ENGINE_H

#include "cli/term.h"
#include "model/model.h"

struct kvt_engine {
    struct kvt_threads *threads;
    struct kvt_parallel parallel;
    struct kvt_term_progress progress;
    struct kvt_model *model;
};

/* n_threads: 0 for as many as there are processors. The engine must stay where it is; close it in any case. */
KVT_MUST_CHECK enum kvt_status kvt_engine_open(struct kvt_engine *engine, int64_t n_threads, bool quiet,
                                               struct kvt_error *err);
/* Loads a model in the place of the one before. */
KVT_MUST_CHECK enum kvt_status kvt_engine_load(struct kvt_engine *engine, const char *path, struct kvt_error *err);
/* Harmless on a zeroed one. */
void kvt_engine_close(struct kvt_engine *engine);

#endif
