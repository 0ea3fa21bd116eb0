/* SPDX-License-Identifier: Apache-2.0
 * kvtile codecs: what each codec stores, loses and takes. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "cli/codecs.h"
#include "cli/command.h"
#include "cli/engine.h"
#include "cli/input_options.h"
#include "cli/plan_file.h"

enum { REPORT_BYTES_MAX = 16 << 20, SELF_CHUNKS = 4, ROWS_LEAST = 128 };

const int kvt_codecs_sizes[KVT_CODECS_N_SIZES] = {64, 128, 256};

struct settings {
    const char *model, *other, *level;
    struct kvt_opt_texts kv;
    struct kvt_input_settings input;
    int64_t chunk, chunks, sink, tail, n_threads;
    bool all, json, markdown, quiet;
};

static const struct settings defaults = {.chunk = 512, .tail = 128, .input = KVT_INPUT_DEFAULTS};

#define AT(field) offsetof(struct settings, field)

/* clang-format off */
static const struct kvt_opt options[] = {
    {KVT_OPT_ARG, .name = "MODEL", .at = AT(model), .optional = true, .help = "a GGUF file to measure on"},
    {KVT_OPT_ARG, .name = "OTHER", .at = AT(other), .optional = true, .help = "a second one"},
    {KVT_OPT_GROUP, .name = "Codecs"},
    {KVT_OPT_TEXTS, .name = "kv", .value = "K[,V]", .at = AT(kv), .not_with = "all",
     .help = "a codec, or one for the keys and one for the values; give it again for more (none: every kind and width "
             "with its usual group)"},
    {KVT_OPT_FLAG, .name = "all", .at = AT(all), .not_with = "kv", .help = "every codec there is"},
    {KVT_OPT_GROUP, .name = "Measurement on a model"},
    {KVT_OPT_INT, .name = "chunk", .value = "N", .at = AT(chunk), .min = 2, .max = 1 << 30,
     .help = "tokens of a chunk; each begins with an empty cache"},
    {KVT_OPT_INT, .name = "chunks", .value = "N", .at = AT(chunks), .max = 1 << 30,
     .help = "chunks at most; 0: all of the text"},
    {KVT_OPT_INT, .name = "sink", .value = "N", .at = AT(sink), .max = 1 << 30,
     .help = "for KL, keep the first N rows of each in 16 bits (a multiple of 128)"},
    {KVT_OPT_INT, .name = "tail", .also = "kv-tail-tokens", .value = "N", .at = AT(tail), .max = 1 << 30,
     .help = "for KL, keep the newest N rows of each in 16 bits"},
    {KVT_OPT_GROUP, .name = "Running"},
    {KVT_OPT_INT, .name = "threads", .brief = "t", .value = "N", .at = AT(n_threads), .max = 1024,
     .help = "threads on a model; 0: as many as there are processors"},
    {KVT_OPT_TEXT, .name = "level", .value = "NAME", .at = AT(level),
     .help = "instruction-set level that is timed beside ref: auto, ref, neon, avx2, avx512, amx"},
    {KVT_OPT_FLAG, .name = "json", .at = AT(json), .not_with = "markdown", .help = "print JSON instead of the tables"},
    {KVT_OPT_FLAG, .name = "markdown", .at = AT(markdown), .not_with = "json",
     .help = "print the tables of docs/codecs.md"},
    {KVT_OPT_FLAG, .name = "quiet", .brief = "q", .at = AT(quiet), .help = "no progress bar"},
};
/* clang-format on */

static const struct kvt_opt_shared shared[] = {{kvt_input_options, KVT_INPUT_N_OPTIONS, AT(input)}};

struct work {
    const struct settings *settings;
    struct kvt_engine engine;
    struct kvt_fidelity_case *cases; /* of the rows, by their names */
    struct kvt_codecs_report report;
};

/* ---- which codecs ----------------------------------------------------------------------------------------------------- */

/* Whether a cache's name stands for its kind and width: no variant ("q8_0-rot"), and of several groups the usual one. */
static bool is_usual(const char *name) {
    char width[64];
    const int len = snprintf(width, sizeof width, "%s", name);
    if (strchr(name, '-')) return false;
    int end = len;
    while (end > 0 && width[end - 1] >= '0' && width[end - 1] <= '9') end--;
    if (end < 2 || end == len || width[end - 1] != 'g') return true;
    width[end - 1] = 0; /* "affine4g64": what does "affine4" mean? */
    const struct kvt_codec *usual;
    return kvt_codec_parse(&usual, width, NULL) == KVT_OK && strcmp(kvt_codec_info(usual).name, name) == 0;
}

static double bits_of(const struct kvt_codec_pair *pair, int d) {
    size_t bytes = 0;
    for (int side = 0; side < KVT_SIDE_COUNT; side++)
        bytes += kvt_codec_tile_bytes(pair->codec[side], (enum kvt_side)side, d);
    return (double)bytes * 8 / (2.0 * KVT_TILE_ROWS * d);
}

static enum kvt_status make_row(struct kvt_codecs_row *row, const char *kv, struct kvt_error *err) {
    const struct kvt_layer_shape layer = {
        .n_kv_heads = 1, .k_size = KVT_CODECS_TIME_SIZE, .v_size = KVT_CODECS_TIME_SIZE};
    const struct kvt_shape shape = {1, &layer};
    const struct kvt_plan_options plan_options = {.struct_size = sizeof plan_options, .kv = kv};
    struct kvt_plan *plan;
    KVT_TRY(kvt_plan_create(&plan, &shape, &plan_options, NULL, err));
    const struct kvt_layer_plan *p = kvt_plan_layer(plan, 0);
    snprintf(row->kv, sizeof row->kv, "%s", kvt_plan_kv(plan));
    row->granularity = p->granularity;
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        row->pair.codec[side] = p->codec[side];
        row->axis[side] = kvt_codec_axis(p->codec[side], (enum kvt_side)side, KVT_CODECS_TIME_SIZE);
    }
    for (int i = 0; i < KVT_CODECS_N_SIZES; i++) row->bits[i] = bits_of(&row->pair, kvt_codecs_sizes[i]);
    kvt_plan_destroy(plan);
    return KVT_OK;
}

static size_t n_rows_taken(const struct work *w) {
    size_t n = 0;
    while (kvt_kv_at(n)) n++;
    return w->settings->kv.n ? (size_t)w->settings->kv.n : n;
}

static enum kvt_status make_rows(struct work *w, struct kvt_error *err) {
    const struct settings *s = w->settings;
    struct kvt_codecs_report *r = &w->report;
    const size_t most = n_rows_taken(w);
    size_t n = 0;
    w->cases = kvt_take_zero(&kvt_allocator_libc, most, sizeof *w->cases);
    r->rows = kvt_take_zero(&kvt_allocator_libc, most, sizeof *r->rows);
    if (!w->cases || !r->rows) return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for %zu codecs", most);
    for (size_t i = 0; i < most; i++) {
        const char *kv = s->kv.n ? s->kv.items[i] : kvt_kv_at(i);
        if (s->kv.n == 0 && !s->all && !is_usual(kv)) continue;
        if (kvt_plan_file_differs(kv))
            return kvt_fail(err, KVT_ERR_ARG,
                            "a row of codecs is one for all keys and one for all values, which '%.60s' is not; kvtile "
                            "fidelity takes plans",
                            kv);
        KVT_TRY(make_row(&r->rows[n], kv, err));
        w->cases[n] = (struct kvt_fidelity_case){.kv = r->rows[n].kv, .sink = (int)s->sink, .tail = (int)s->tail};
        n++;
    }
    r->n_rows = (int)n;
    return KVT_OK;
}

/* ---- what they take --------------------------------------------------------------------------------------------------- */

static enum kvt_status find_levels(struct work *w, struct kvt_error *err) {
    struct kvt_codecs_report *r = &w->report;
    enum kvt_level best;
    KVT_TRY(kvt_level_parse(&best, w->settings->level ? w->settings->level : "auto", err));
    r->levels[r->n_levels++] = KVT_LEVEL_REF;
    if (best != KVT_LEVEL_REF) r->levels[r->n_levels++] = best;
    return KVT_OK;
}

static enum kvt_status measure_times(struct work *w, struct kvt_error *err) {
    struct kvt_codecs_report *r = &w->report;
    for (int i = 0; i < r->n_rows; i++) {
        struct kvt_codecs_row *row = &r->rows[i];
        if (!kvt_progress_report(&w->engine.progress.progress, "time", (uint64_t)i, (uint64_t)r->n_rows))
            return kvt_fail(err, KVT_ERR_CANCELLED, "cancelled");
        for (int side = 0; side < KVT_SIDE_COUNT; side++)
            KVT_TRY(kvt_measure_times(&row->times[side], row->pair.codec[side], (enum kvt_side)side,
                                      KVT_CODECS_TIME_SIZE, r->levels, r->n_levels, NULL, err));
    }
    return KVT_OK;
}

/* ---- what they lose --------------------------------------------------------------------------------------------------- */

static enum kvt_status add_source(struct kvt_codecs_source **out, struct work *w, const char *name,
                                  struct kvt_error *err) {
    struct kvt_codecs_report *r = &w->report;
    struct kvt_codecs_source *source = &r->sources[r->n_sources];
    source->name = name;
    source->sums = kvt_take_zero(&kvt_allocator_libc, (size_t)r->n_rows, sizeof *source->sums);
    if (!source->sums) return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for the errors of %d codecs", r->n_rows);
    r->n_sources++;
    *out = source;
    return KVT_OK;
}

static enum kvt_status measure_made(struct work *w, struct kvt_error *err) {
    static const char *const names[KVT_MADE_COUNT] = {
        [KVT_MADE_NORMAL] = "normal rows",
        [KVT_MADE_OUTLIERS] = "normal rows with four outlier channels in the keys",
    };
    struct kvt_codecs_report *r = &w->report;
    enum kvt_status status;
    struct kvt_codec_pair *pairs = kvt_take(&kvt_allocator_libc, (size_t)r->n_rows, sizeof *pairs);
    if (!pairs) return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for %d codecs", r->n_rows);
    for (int i = 0; i < r->n_rows; i++) pairs[i] = r->rows[i].pair;
    for (int kind = 0; kind < KVT_MADE_COUNT; kind++) {
        struct kvt_codecs_source *source = NULL;
        KVT_TRY_OUT(add_source(&source, w, names[kind], err));
        KVT_TRY_OUT(kvt_measure_made_rows(source->sums, pairs, r->n_rows, (enum kvt_made_rows)kind, &w->engine.parallel,
                                          NULL, err));
    }
out:
    kvt_give(&kvt_allocator_libc, pairs, (size_t)r->n_rows, sizeof *pairs);
    return status;
}

static enum kvt_status read_text(struct kvt_ids *ids, char *name, const struct work *w, const struct kvt_model *model,
                                 struct kvt_error *err) {
    const struct settings *s = w->settings;
    const struct kvt_input_reader reader = {
        .model = model,
        .chunk = (int)s->chunk,
        .level = s->level,
        .parallel = &w->engine.parallel,
        .progress = &w->engine.progress.progress,
    };
    struct kvt_input_settings input = s->input;
    if (!kvt_input_is_named(&input)) input.self = s->chunk * (s->chunks ? s->chunks : SELF_CHUNKS);
    return kvt_input_read(ids, name, &input, &reader, err);
}

static enum kvt_status measure_loaded(struct kvt_codecs_source *source, struct work *w, const struct kvt_model *model,
                                      struct kvt_error *err) {
    const struct settings *s = w->settings;
    struct kvt_fidelity_options o = {
        .cases = w->cases,
        .n_cases = w->report.n_rows,
        .chunk = (int)s->chunk,
        .n_chunks = (int)s->chunks,
        .first_id = -1,
        .level = s->level,
        .parallel = &w->engine.parallel,
        .progress = &w->engine.progress.progress,
    };
    struct kvt_ids ids;
    enum kvt_status status;
    kvt_ids_init(&ids, NULL);
    KVT_TRY_OUT(kvt_fidelity_check(model, &o, err));
    KVT_TRY_OUT(read_text(&ids, source->text, w, model, err));
    o.ids = ids.data;
    o.n_ids = ids.len;
    KVT_TRY_OUT(kvt_measure_model_rows(source->sums, model, &o, err));
    status = kvt_fidelity_run(&source->kl, model, &o, err);
out:
    kvt_ids_finish(&ids);
    return status;
}

static enum kvt_status measure_model(struct work *w, const char *path, struct kvt_error *err) {
    struct kvt_codecs_source *source = NULL;
    KVT_TRY(add_source(&source, w, path, err));
    source->is_model = true;
    KVT_TRY(kvt_engine_load(&w->engine, path, NULL, err));
    return measure_loaded(source, w, w->engine.model, err);
}

/* ---- the command ------------------------------------------------------------------------------------------------------ */

/* Every codec must have rows to encode where KL is measured. */
static enum kvt_status check(const struct settings *s, struct kvt_error *err) {
    if (!s->model && kvt_input_is_named(&s->input))
        return kvt_fail(err, KVT_ERR_ARG, "a text needs a model to read it: kvtile codecs MODEL ...");
    if (s->chunk - 1 - s->sink - s->tail >= ROWS_LEAST) return KVT_OK;
    return kvt_fail(err, KVT_ERR_ARG,
                    "chunks of %lld tokens with a sink of %lld and a tail of %lld rows leave less than %d rows to "
                    "encode; take longer chunks",
                    (long long)s->chunk, (long long)s->sink, (long long)s->tail, ROWS_LEAST);
}

static enum kvt_status print(const struct work *w, struct kvt_error *err) {
    const struct settings *s = w->settings;
    struct kvt_buf text;
    kvt_buf_init(&text, NULL, REPORT_BYTES_MAX);
    const enum kvt_status made =
        s->json ? kvt_codecs_json(&text, &w->report) : kvt_codecs_table(&text, &w->report, s->markdown);
    return kvt_term_write_report(&text, made, err);
}

static enum kvt_status measure(struct work *w, struct kvt_error *err) {
    const struct settings *s = w->settings;
    KVT_TRY(find_levels(w, err));
    KVT_TRY(make_rows(w, err));
    w->report.chunk = (int)s->chunk;
    w->report.sink = (int)s->sink;
    w->report.tail = (int)s->tail;
    if (s->model) KVT_TRY(measure_model(w, s->model, err));
    if (s->other) KVT_TRY(measure_model(w, s->other, err));
    if (!s->model) KVT_TRY(measure_made(w, err));
    KVT_TRY(measure_times(w, err));
    kvt_term_progress_erase(&w->engine.progress);
    return print(w, err);
}

static void finish(struct work *w) {
    struct kvt_codecs_report *r = &w->report;
    for (int i = 0; i < r->n_sources; i++) {
        kvt_give(&kvt_allocator_libc, r->sources[i].sums, (size_t)r->n_rows, sizeof *r->sources[i].sums);
        kvt_fidelity_finish(&r->sources[i].kl);
    }
    kvt_give(&kvt_allocator_libc, r->rows, n_rows_taken(w), sizeof *r->rows);
    kvt_give(&kvt_allocator_libc, w->cases, n_rows_taken(w), sizeof *w->cases);
}

static enum kvt_status run(const void *settings, struct kvt_error *err) {
    const struct settings *s = settings;
    struct work w = {.settings = s};
    enum kvt_status status;
    KVT_TRY(check(s, err));
    KVT_TRY_OUT(kvt_engine_open(&w.engine, s->n_threads, s->quiet, err));
    KVT_TRY_OUT(measure(&w, err));
out:
    finish(&w);
    kvt_engine_close(&w.engine);
    return status;
}

const struct kvt_command kvt_command_codecs = {
    .name = "codecs",
    .about = "set the codecs side by side: bits, error, time",
    .text =
        "One row a codec: how many rows it must have before it can encode, what shares a scale, the bits of an "
        "element; the error of rows that were encoded and decoded, and of attention over them; the time to encode and to "
        "decode, beside a plain copy. Without a model the rows are made up. With one they are the model's own over a "
        "text, and KL divergence says what each codec costs the model's predictions (see 'kvtile fidelity'); without a "
        "text the model writes four chunks itself. docs/codecs.md has the tables of the repository's models and how "
        "to read them.",
    .examples = "kvtile codecs\n"
                "kvtile codecs model.gguf --kv kivi4g32 --kv kvarn4 --kv q8_0,turbo3\n"
                "kvtile codecs model.gguf --text book.txt --chunks 10 --json",
    .options = options,
    .n_options = KVT_ARRAY_LEN(options),
    .shared = shared,
    .n_shared = KVT_ARRAY_LEN(shared),
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
    .run = run,
};
