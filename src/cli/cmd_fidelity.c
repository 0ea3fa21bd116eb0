/* SPDX-License-Identifier: Apache-2.0
 * kvtile fidelity */
#include <stdio.h>

#include "base/check.h"
#include "cli/command.h"
#include "cli/input_options.h"
#include "cli/term.h"
#include "fidelity/fidelity.h"

enum { REPORT_BYTES_MAX = 16 << 20 };

struct settings {
    const char *model, *reference, *level;
    struct kvt_opt_texts kv;
    struct kvt_input_settings input;
    int64_t chunk, chunks, sink, tail, n_threads;
    bool bos_each_chunk, json, quiet;
};

static const struct settings defaults = {.reference = "f16", .chunk = 512, .input = KVT_INPUT_DEFAULTS};

/* What is measured where no --kv is given. */
static const char *const usual[] = {"f16", "affine8g64", "affine4g64"};

#define AT(field) offsetof(struct settings, field)

/* clang-format off */
static const struct kvt_opt options[] = {
    {KVT_OPT_ARG, .name = "MODEL", .at = AT(model), .help = "a GGUF file"},
    {KVT_OPT_GROUP, .name = "Caches"},
    {KVT_OPT_TEXTS, .name = "kv", .value = "K[,V]", .at = AT(kv),
     .help = "a cache to measure: the codec of the keys and of the values, or one for both; give it again for more "
             "(none: f16, affine8g64 and affine4g64)"},
    {KVT_OPT_INT, .name = "sink", .value = "N", .at = AT(sink), .max = 1 << 30,
     .help = "keep the first N rows of each in 16 bits (a multiple of 128)"},
    {KVT_OPT_INT, .name = "tail", .also = "kv-tail-tokens", .value = "N", .at = AT(tail), .max = 1 << 30,
     .help = "keep the newest N rows of each in 16 bits"},
    {KVT_OPT_TEXT, .name = "reference", .value = "K[,V]", .at = AT(reference),
     .help = "the cache that they are held against"},
    {KVT_OPT_GROUP, .name = "Measurement"},
    {KVT_OPT_INT, .name = "chunk", .value = "N", .at = AT(chunk), .min = 2, .max = 1 << 30,
     .help = "tokens of a chunk; each begins with an empty cache"},
    {KVT_OPT_INT, .name = "chunks", .value = "N", .at = AT(chunks), .max = 1 << 30,
     .help = "chunks at most; 0: all of the text"},
    {KVT_OPT_FLAG, .name = "bos-each-chunk", .at = AT(bos_each_chunk),
     .help = "put BOS in the place of each chunk's first token, as llama.cpp's perplexity tool does"},
    {KVT_OPT_GROUP, .name = "Running"},
    {KVT_OPT_INT, .name = "threads", .brief = "t", .value = "N", .at = AT(n_threads), .max = 1024,
     .help = "threads; 0: as many as there are processors. The figures do not depend on it"},
    {KVT_OPT_TEXT, .name = "level", .value = "NAME", .at = AT(level),
     .help = "instruction-set level: auto, ref, neon, avx2, avx512"},
    {KVT_OPT_FLAG, .name = "json", .at = AT(json), .help = "print JSON instead of the table"},
    {KVT_OPT_FLAG, .name = "quiet", .brief = "q", .at = AT(quiet), .help = "no progress bar"},
};
/* clang-format on */

static const struct kvt_opt_shared shared[] = {{kvt_input_options, KVT_INPUT_N_OPTIONS, AT(input)}};

/* Everything of one run of the command. */
struct work {
    const struct settings *settings;
    struct kvt_parallel parallel;
    struct kvt_term_progress progress;
    struct kvt_model *model;
    struct kvt_ids ids;
    char text_name[KVT_INPUT_NAME_MAX];
};

/* ---- the measurement -------------------------------------------------------------------------------------------------- */

static enum kvt_status print_result(const struct work *w, const struct kvt_fidelity_result *result,
                                    struct kvt_error *err) {
    const struct settings *s = w->settings;
    const struct kvt_fidelity_about about = {
        .model = s->model,
        .text = w->text_name,
        .reference = s->reference,
        .chunk = (int)s->chunk,
        .sink = (int)s->sink,
        .tail = (int)s->tail,
    };
    struct kvt_buf report;
    kvt_buf_init(&report, NULL, REPORT_BYTES_MAX);
    enum kvt_status status =
        s->json ? kvt_fidelity_json(&report, result, &about) : kvt_fidelity_table(&report, result, &about);
    if (status != KVT_OK)
        kvt_fail(err, status, "not enough memory for the report");
    else
        status = kvt_term_write(report.data, report.len, err);
    kvt_buf_finish(&report);
    return status;
}

static enum kvt_status first_id(int *out, const struct work *w, struct kvt_error *err) {
    const int bos = kvt_text_bos(kvt_model_text(w->model));
    if (w->settings->bos_each_chunk && bos < 0)
        return kvt_fail(err, KVT_ERR_ARG, "%s has no BOS token; leave --bos-each-chunk out", w->settings->model);
    *out = w->settings->bos_each_chunk ? bos : -1;
    return KVT_OK;
}

/* Everything but the text. */
static enum kvt_status make_options(struct kvt_fidelity_options *out, const struct work *w, struct kvt_error *err) {
    const struct settings *s = w->settings;
    struct kvt_fidelity_options o = {
        .kv = s->kv.n ? s->kv.items : usual,
        .n_kv = s->kv.n ? s->kv.n : (int)KVT_ARRAY_LEN(usual),
        .reference = s->reference,
        .sink = (int)s->sink,
        .tail = (int)s->tail,
        .chunk = (int)s->chunk,
        .n_chunks = (int)s->chunks,
        .level = s->level,
        .parallel = &w->parallel,
        .progress = &w->progress.progress,
    };
    KVT_TRY(first_id(&o.first_id, w, err));
    KVT_TRY(kvt_fidelity_check(w->model, &o, err));
    *out = o;
    return KVT_OK;
}

static enum kvt_status read_text(struct work *w, struct kvt_error *err) {
    const struct kvt_input_reader reader = {
        .model = w->model,
        .chunk = (int)w->settings->chunk,
        .level = w->settings->level,
        .parallel = &w->parallel,
        .progress = &w->progress.progress,
    };
    return kvt_input_read(&w->ids, w->text_name, &w->settings->input, &reader, err);
}

static enum kvt_status measure(struct work *w, struct kvt_error *err) {
    struct kvt_fidelity_options o;
    struct kvt_fidelity_result result = {0};
    KVT_TRY(make_options(&o, w, err));
    KVT_TRY(read_text(w, err));
    o.ids = w->ids.data;
    o.n_ids = w->ids.len;
    const enum kvt_status status = kvt_fidelity_run(&result, w->model, &o, err);
    kvt_term_progress_erase(&w->progress);
    if (status != KVT_OK && (status != KVT_ERR_CANCELLED || result.n_chunks == 0)) return status;
    const enum kvt_status printed = print_result(w, &result, err);
    kvt_fidelity_finish(&result);
    return printed != KVT_OK ? printed : status;
}

static enum kvt_status run(const void *settings, struct kvt_error *err) {
    const struct settings *s = settings;
    struct work w = {.settings = s};
    struct kvt_threads *threads = NULL;
    enum kvt_status status;
    if (!kvt_input_is_named(&s->input))
        return kvt_fail(err, KVT_ERR_ARG,
                        "name a text: --text FILE, --ids FILE, or --self N to let the model write it");
    kvt_ids_init(&w.ids, NULL);
    kvt_term_progress_init(&w.progress, s->quiet);
    const struct kvt_model_options load = {.progress = &w.progress.progress};
    KVT_TRY_OUT(kvt_term_threads(&threads, s->n_threads, err));
    w.parallel = kvt_threads_parallel(threads);
    KVT_TRY_OUT(kvt_model_load(&w.model, s->model, &load, err));
    KVT_TRY_OUT(measure(&w, err));
out:
    kvt_term_progress_erase(&w.progress);
    kvt_model_destroy(w.model);
    kvt_threads_destroy(threads);
    kvt_ids_finish(&w.ids);
    return status;
}

const struct kvt_command kvt_command_fidelity = {
    .name = "fidelity",
    .about = "measure what a cache costs in quality",
    .text =
        "Runs the model over a text twice, with a 16-bit cache and with the cache under test, and compares what the "
        "two predict after every token: KL divergence over the whole vocabulary, how often the most probable token "
        "differs, perplexity. The text is cut into chunks without overlap, each with an empty cache of its own, and "
        "every token goes through the cache under test from the first on. Ctrl-C ends the run with the chunks done "
        "so far. docs/fidelity.md has each definition and how to read it.",
    .examples = "kvtile fidelity model.gguf --text book.txt --chunks 10\n"
                "kvtile fidelity model.gguf --self 5120 --kv affine8 --kv affine8,affine4\n"
                "kvtile fidelity model.gguf --ids book.ids --kv kivi4g32 --tail 128 --json",
    .options = options,
    .n_options = KVT_ARRAY_LEN(options),
    .shared = shared,
    .n_shared = KVT_ARRAY_LEN(shared),
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
    .run = run,
};
