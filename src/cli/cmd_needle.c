/* SPDX-License-Identifier: Apache-2.0
 * kvtile needle */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/engine.h"
#include "cli/plan_file.h"
#include "fidelity/fidelity.h"

enum { REPORT_BYTES_MAX = 4 << 20, TEXT_BYTES_MAX = 64 << 20, LENGTHS_MAX = 16 };

struct settings {
    const char *model, *text, *lengths, *level;
    struct kvt_opt_texts kv;
    int64_t depths, trials, agree, seed, sink, tail, n_threads;
    bool json, quiet;
    struct kvt_place_settings place;
};

static const struct settings defaults = {.lengths = "512,1024,2048", .depths = 5, .trials = 4, .agree = 32, .seed = 1};

static const char *const usual[] = {"affine8g64", "affine4g64", "kivi4g32"};

#define AT(field) offsetof(struct settings, field)

/* clang-format off */
static const struct kvt_opt options[] = {
    {KVT_OPT_ARG, .name = "MODEL", .at = AT(model), .help = "a GGUF file"},
    {KVT_OPT_GROUP, .name = "Caches"},
    {KVT_OPT_TEXTS, .name = "kv", .value = "K[,V]", .at = AT(kv),
     .help = "a cache to test, or @FILE for a plan; give it again for more (none: affine8g64, affine4g64 and kivi4g32). f16 is always "
             "tested first, and the others are held against it"},
    {KVT_OPT_INT, .name = "sink", .value = "N", .at = AT(sink), .max = 1 << 30,
     .help = "keep the first N rows of each in 16 bits (a multiple of 128)"},
    {KVT_OPT_INT, .name = "tail", .also = "kv-tail-tokens", .value = "N", .at = AT(tail), .max = 1 << 30,
     .help = "keep the newest N rows of each in 16 bits"},
    {KVT_OPT_GROUP, .name = "Texts"},
    {KVT_OPT_TEXT, .name = "text", .value = "FILE", .at = AT(text),
     .help = "plant the facts in this text; none: in what the model writes itself"},
    {KVT_OPT_TEXT, .name = "length", .value = "N[,N...]", .at = AT(lengths), .help = "tokens of a text with its questions"},
    {KVT_OPT_INT, .name = "facts", .value = "N", .at = AT(depths), .min = 1, .max = 16,
     .help = "facts in a text, from its beginning to its end"},
    {KVT_OPT_INT, .name = "trials", .value = "N", .at = AT(trials), .min = 1, .max = 1000, .help = "texts of each length"},
    {KVT_OPT_INT, .name = "agree", .value = "N", .at = AT(agree), .max = 1 << 20,
     .help = "also go on greedily for N tokens after each text and say how long the caches agree; 0: do not"},
    {KVT_OPT_INT, .name = "seed", .brief = "s", .value = "N", .at = AT(seed), .max = 0xFFFFFFFFp0,
     .help = "the same seed gives the same texts"},
    {KVT_OPT_GROUP, .name = "Running"},
    {KVT_OPT_INT, .name = "threads", .brief = "t", .value = "N", .at = AT(n_threads), .max = 1024,
     .help = "threads; 0: as many as there are processors. The figures do not depend on it"},
    {KVT_OPT_TEXT, .name = "level", .value = "NAME", .at = AT(level),
     .help = "instruction-set level: auto, ref, neon, avx2, avx512, amx"},
    {KVT_OPT_FLAG, .name = "json", .at = AT(json), .help = "print JSON instead of the grids"},
    {KVT_OPT_FLAG, .name = "quiet", .brief = "q", .at = AT(quiet), .help = "no progress bar"},
};
/* clang-format on */

static const struct kvt_opt_shared shared[] = {{kvt_place_options, KVT_PLACE_N_OPTIONS, AT(place)}};

struct needle {
    const struct settings *settings;
    struct kvt_engine engine;
    struct kvt_buf filler;
    char text_name[300];
    int lengths[LENGTHS_MAX], n_lengths;
    struct kvt_plan_file plans[KVT_OPT_TEXTS_MAX];
    struct kvt_fidelity_scheme schemes[KVT_OPT_TEXTS_MAX + 1];
    int n_schemes;
};

static enum kvt_status name_schemes(struct needle *n, struct kvt_error *err) {
    const struct settings *s = n->settings;
    const int n_kv = s->kv.n ? s->kv.n : (int)KVT_ARRAY_LEN(usual);
    n->schemes[n->n_schemes++] = (struct kvt_fidelity_scheme){"f16", 0, 0};
    for (int i = 0; i < n_kv; i++) {
        const char *kv = s->kv.n ? s->kv.items[i] : usual[i];
        if (strcmp(kv, "f16") == 0) continue; /* it is there */
        const struct kvt_plan_file *plan = &n->plans[i];
        KVT_TRY(kvt_plan_file_resolve(&n->plans[i], kv, s->sink, s->tail, n->engine.model, err));
        n->schemes[n->n_schemes++] = (struct kvt_fidelity_scheme){plan->kv, plan->sink, plan->tail};
    }
    return KVT_OK;
}

/* As much text as the longest test needs. */
static enum kvt_status write_filler(struct needle *n, struct kvt_error *err) {
    const struct kvt_text *text = kvt_model_text(n->engine.model);
    struct kvt_self_options self = {.seed = (uint64_t)n->settings->seed,
                                    .level = n->settings->level,
                                    .parallel = &n->engine.parallel,
                                    .progress = &n->engine.progress.progress};
    struct kvt_ids ids;
    for (int i = 0; i < n->n_lengths; i++) self.n = KVT_MAX(self.n, n->lengths[i]);
    self.chunk = KVT_MIN(self.n, kvt_model_info(n->engine.model).n_ctx_train);
    kvt_ids_init(&ids, NULL);
    enum kvt_status status = kvt_fidelity_sample(&ids, n->engine.model, &self, err);
    for (size_t i = 0; i < ids.len && status == KVT_OK; i++) {
        status = kvt_text_decode(text, ids.data[i], false, &n->filler);
        if (status != KVT_OK) kvt_fail(err, status, "not enough memory for the model's own text");
    }
    kvt_ids_finish(&ids);
    snprintf(n->text_name, sizeof n->text_name, "self:%d, seed %lld", self.n, (long long)n->settings->seed);
    return status;
}

static enum kvt_status find_filler(struct needle *n, struct kvt_error *err) {
    if (!n->settings->text) return write_filler(n, err);
    snprintf(n->text_name, sizeof n->text_name, "%s", n->settings->text);
    return kvt_file_read(&n->filler, n->settings->text, err);
}

static enum kvt_status print_result(const struct needle *n, const struct kvt_needle_result *result,
                                    struct kvt_error *err) {
    struct kvt_buf report;
    kvt_buf_init(&report, NULL, REPORT_BYTES_MAX);
    const enum kvt_status made = n->settings->json
                                     ? kvt_needle_json(&report, result, n->settings->model, n->text_name)
                                     : kvt_needle_table(&report, result, n->settings->model, n->text_name);
    return kvt_term_write_report(&report, made, err);
}

static enum kvt_status test(struct needle *n, struct kvt_error *err) {
    const struct settings *s = n->settings;
    struct kvt_needle_result result;
    KVT_TRY(kvt_opt_list(n->lengths, &n->n_lengths, LENGTHS_MAX, "length", s->lengths, 1, 1 << 30, err));
    KVT_TRY(name_schemes(n, err));
    struct kvt_needle_options o = {
        .schemes = n->schemes,
        .n_schemes = n->n_schemes,
        .lengths = n->lengths,
        .n_lengths = n->n_lengths,
        .n_depths = (int)s->depths,
        .n_trials = (int)s->trials,
        .n_agree = (int)s->agree,
        .seed = (uint64_t)s->seed,
        .place = n->engine.place,
        .level = s->level,
        .parallel = &n->engine.parallel,
        .progress = &n->engine.progress.progress,
    };
    KVT_TRY(kvt_needle_check(n->engine.model, &o, err));
    KVT_TRY(find_filler(n, err));
    o.filler = kvt_buf_text(&n->filler);
    o.filler_len = n->filler.len;
    KVT_TRY(kvt_needle_run(&result, n->engine.model, &o, err));
    kvt_term_progress_erase(&n->engine.progress);
    const enum kvt_status status = print_result(n, &result, err);
    kvt_needle_finish(&result);
    return status;
}

static enum kvt_status run(const void *settings, struct kvt_error *err) {
    const struct settings *s = settings;
    struct needle *n = kvt_take_zero(&kvt_allocator_libc, 1, sizeof *n);
    enum kvt_status status;
    if (!n) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for a recall test");
    n->settings = s;
    kvt_buf_init(&n->filler, NULL, TEXT_BYTES_MAX);
    KVT_TRY_OUT(kvt_engine_open(&n->engine, s->n_threads, s->quiet, err));
    KVT_TRY_OUT(kvt_engine_load(&n->engine, s->model, &s->place, err));
    KVT_TRY_OUT(test(n, err));
out:
    kvt_engine_close(&n->engine);
    kvt_buf_finish(&n->filler);
    kvt_give(&kvt_allocator_libc, n, 1, sizeof *n);
    return status;
}

const struct kvt_command kvt_command_needle = {
    .name = "needle",
    .about = "whether facts planted in a long text are still recalled",
    .text =
        "Plants facts in texts of several lengths, at several depths, asks for them at the end and counts the right "
        "answers, with an f16 cache and with each cache under test. The text goes in as a prompt, the questions "
        "token by token. It needs a model that can do this at all: the two of the repository can. It also continues "
        "each text greedily and says how long each cache says the same as f16.",
    .examples = "kvtile needle models/biased.gguf --kv affine4g64 --kv kivi4g32\n"
                "kvtile needle models/plain.gguf --text book.txt --length 1024,4000 --trials 8",
    .options = options,
    .n_options = KVT_ARRAY_LEN(options),
    .shared = shared,
    .n_shared = KVT_ARRAY_LEN(shared),
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
    .run = run,
};
