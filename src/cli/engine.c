/* SPDX-License-Identifier: Apache-2.0
 * Threads, progress and a model. */
#include "cli/engine.h"

#include "base/check.h"

enum kvt_status kvt_engine_open(struct kvt_engine *engine, int64_t n_threads, bool quiet, struct kvt_error *err) {
    *engine = (struct kvt_engine){.model = NULL};
    kvt_term_progress_init(&engine->progress, quiet);
    KVT_TRY(kvt_term_threads(&engine->threads, n_threads, err));
    engine->parallel = kvt_threads_parallel(engine->threads);
    return KVT_OK;
}

enum kvt_status kvt_engine_load(struct kvt_engine *engine, const char *path, struct kvt_error *err) {
    const struct kvt_model_options options = {.progress = &engine->progress.progress};
    kvt_model_destroy(engine->model);
    engine->model = NULL;
    const enum kvt_status status = kvt_model_load(&engine->model, path, &options, err);
    kvt_term_progress_erase(&engine->progress);
    return status;
}

void kvt_engine_close(struct kvt_engine *engine) {
    kvt_term_progress_erase(&engine->progress);
    kvt_model_destroy(engine->model);
    kvt_threads_destroy(engine->threads);
    engine->model = NULL;
    engine->threads = NULL;
}
