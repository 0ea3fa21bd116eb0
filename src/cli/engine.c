/* SPDX-License-Identifier: Apache-2.0
 * Threads, progress and a model. */
#include "cli/engine.h"

#include <stdio.h>

#include "base/check.h"

enum kvt_status kvt_engine_open(struct kvt_engine *engine, int64_t n_threads, bool quiet, struct kvt_error *err) {
    *engine = (struct kvt_engine){.quiet = quiet};
    kvt_term_progress_init(&engine->progress, quiet);
    KVT_TRY(kvt_term_threads(&engine->threads, n_threads, err));
    engine->parallel = kvt_threads_parallel(engine->threads);
    return KVT_OK;
}

/* Weights that were brought somewhere. */
static void tell(const struct kvt_engine *engine) {
    char bytes[KVT_TERM_BYTES_MAX];
    if (engine->placed.bytes && !engine->quiet)
        fprintf(stderr, "[place] %s of weights as f16 on %s\n", kvt_term_bytes(bytes, engine->placed.bytes),
                engine->placed.about);
}

enum kvt_status kvt_engine_load(struct kvt_engine *engine, const char *path, const struct kvt_place_settings *where,
                                struct kvt_error *err) {
    static const struct kvt_place_settings processor;
    const struct kvt_model_options options = {.progress = &engine->progress.progress};
    if (!where) where = &processor;
    kvt_model_destroy(engine->model);
    engine->model = NULL;
    KVT_TRY(kvt_place_find(&engine->place, where, err));
    enum kvt_status status = kvt_model_load(&engine->model, path, &options, err);
    if (status == KVT_OK)
        status = kvt_place_bring(&engine->place, &engine->placed, where, engine->model, &engine->parallel,
                                 &engine->progress.progress, err);
    kvt_term_progress_erase(&engine->progress);
    if (status == KVT_OK) tell(engine);
    return status;
}

void kvt_engine_close(struct kvt_engine *engine) {
    kvt_term_progress_erase(&engine->progress);
    kvt_model_destroy(engine->model);
    kvt_threads_destroy(engine->threads);
    engine->model = NULL;
    engine->threads = NULL;
}
