/* SPDX-License-Identifier: Apache-2.0
 * kvtile plan MODEL: what fits, for how long a context, and what it costs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/auto.h"
#include "cli/command.h"
#include "cli/kv_check.h"
#include "cli/plan_file.h"
#include "cli/plan_report.h"

enum {
    REPORT_BYTES_MAX = 16 << 20,
    MEASURE_TOKENS = 512,
    MEASURE_FROM = 256,
    N_BATCH = 512,
    LONGEST_MAX = 1 << 24,
    REGION_ROWS = 128
};
static const double measure_seconds = 60, sampling_seconds = 20;

/* ---- options ---------------------------------------------------------------------------------------------------------- */

struct settings {
    const char *model, *level;
    struct kvt_opt_texts kv;
    uint64_t n_ctx, memory, kv_memory;
    int64_t n_seqs, sink, tail, n_threads;
    bool measure, hold_last, no_check, json, quiet;
};

static const struct settings defaults = {.n_seqs = 1, .sink = -1, .tail = -1};

/* What is set side by side where no --kv is given: what auto may pick, and what people know. */
static const char *const usual[] = {"f16",      "q8_0", "affine8g64", "affine4g64", "kvarn4",  "kvt4",
                                    "kivi4g32", "kvt3", "kivi3g32",   "kvt2",       "kivi2g32"};

#define AT(field) offsetof(struct settings, field)

/* clang-format off */
static const struct kvt_opt options[] = {
    {KVT_OPT_ARG, .name = "MODEL", .at = AT(model), .help = "a GGUF file"},
    {KVT_OPT_GROUP, .name = "What is wanted"},
    {KVT_OPT_BYTES, .name = "context", .brief = "c", .also = "ctx-size", .value = "N", .at = AT(n_ctx),
     .help = "tokens of a sequence (128K is 131072); 0: what the model was trained for"},
    {KVT_OPT_INT, .name = "batch", .value = "N", .at = AT(n_seqs), .min = 1, .max = 1 << 16,
     .help = "sequences at once, each of so many tokens"},
    {KVT_OPT_BYTES, .name = "memory", .brief = "m", .value = "SIZE", .at = AT(memory), .not_with = "kv-memory",
     .help = "memory for the weights, the computation and the cache together (8G); if absent, what the machine has free"},
    {KVT_OPT_BYTES, .name = "kv-memory", .value = "SIZE", .at = AT(kv_memory), .help = "memory for the cache alone"},
    {KVT_OPT_GROUP, .name = "Caches"},
    {KVT_OPT_TEXTS, .name = "kv", .value = "K[,V]", .at = AT(kv),
     .help = "a cache to set beside f16; @FILE: a plan that kvtile sweep wrote; give it again for more (none: those that auto picks "
             "from and the best known)"},
    {KVT_OPT_INT, .name = "sink", .value = "N", .at = AT(sink), .max = 1 << 30,
     .help = "keep the first N rows of each in 16 bits, a multiple of 128 (none: 128)"},
    {KVT_OPT_INT, .name = "tail", .also = "kv-tail-tokens", .value = "N", .at = AT(tail), .max = 1 << 30,
     .help = "keep the newest N rows of each in 16 bits (none: 128)"},
    {KVT_OPT_FLAG, .name = "kv-hold-last", .at = AT(hold_last),
     .help = "keep the last layer in 16 bits, where there are more than two"},
    {KVT_OPT_FLAG, .name = "measure", .at = AT(measure),
     .help = "measure each cache's KL divergence on a short text that the model writes; a minute or two at most"},
    {KVT_OPT_FLAG, .name = "no-kv-check", .at = AT(no_check),
     .help = "do not try the cache that is recommended on rows of this model"},
    {KVT_OPT_FLAG, .name = "json", .at = AT(json), .help = "print JSON instead of the table; bytes are exact there"},
    {KVT_OPT_GROUP, .name = "Running"},
    {KVT_OPT_INT, .name = "threads", .brief = "t", .value = "N", .at = AT(n_threads), .max = 1024,
     .help = "threads; 0: as many as there are processors"},
    {KVT_OPT_TEXT, .name = "level", .value = "NAME", .at = AT(level),
     .help = "instruction-set level: auto, ref, neon, avx2, avx512, amx"},
    {KVT_OPT_FLAG, .name = "quiet", .brief = "q", .at = AT(quiet), .help = "no progress bar, and no [kv] line of what the check found"},
};
/* clang-format on */

struct work {
    const struct settings *settings;
    struct kvt_engine engine;
    struct kvt_plan_report report;
    struct kvt_plan_file *files; /* of the rows: their strings */
    struct kvt_choice use;
};

/* ---- memory ----------------------------------------------------------------------------------------------------------- */

/* What a session takes beside its cache: its room for one forward pass, and the 16-bit rows that a prompt's batch holds until it is
 * encoded. */
static enum kvt_status find_computation(struct work *w, struct kvt_error *err) {
    const struct kvt_shape shape = kvt_model_shape(w->engine.model);
    struct kvt_alloc_counter counter = {0};
    const struct kvt_allocator allocator = kvt_allocator_counted(&counter);
    const struct kvt_session_options o = {.n_ctx = (int)w->report.n_ctx,
                                          .beyond = true,
                                          .n_batch = N_BATCH,
                                          .n_keep = 1,
                                          .level = w->settings->level,
                                          .parallel = &w->engine.parallel,
                                          .allocator = &allocator};
    struct kvt_session *session;
    struct kvt_plan *f16;
    KVT_TRY(kvt_session_create(&session, w->engine.model, &o, err));
    w->report.computation = counter.peak_bytes;
    kvt_session_destroy(session);
    KVT_TRY(kvt_plan_create(&f16, &shape, NULL, NULL, err));
    w->report.computation += kvt_plan_bytes(f16, N_BATCH);
    kvt_plan_destroy(f16);
    return KVT_OK;
}

static enum kvt_status find_memory(struct work *w, struct kvt_error *err) {
    struct kvt_plan_report *r = &w->report;
    const struct settings *s = w->settings;
    const struct kvt_kv_settings none = KVT_KV_DEFAULTS;
    char has[KVT_TERM_BYTES_MAX], need[KVT_TERM_BYTES_MAX];
    r->weights = kvt_model_info(r->model).file_bytes;
    r->is_asked = s->memory || s->kv_memory;
    KVT_TRY(find_computation(w, err));
    if (s->kv_memory || !r->is_asked) {
        r->memory = s->kv_memory ? 0 : kvt_term_free_bytes();
        r->cache_memory = s->kv_memory ? s->kv_memory : kvt_auto_memory(&none, &w->engine);
        return KVT_OK;
    }
    r->memory = s->memory;
    if (s->memory <= r->weights + r->computation)
        return kvt_fail(err, KVT_ERR_LIMIT, "%s of memory leave nothing for a cache: weights and computation take %s",
                        kvt_term_bytes(has, s->memory), kvt_term_bytes(need, r->weights + r->computation));
    r->cache_memory = s->memory - r->weights - r->computation;
    return KVT_OK;
}

/* ---- the table -------------------------------------------------------------------------------------------------------- */

static enum kvt_status make_row(struct work *w, struct kvt_plan_row *row, struct kvt_plan_file *file, const char *name,
                                struct kvt_error *err) {
    const struct settings *s = w->settings;
    const struct kvt_shape shape = kvt_model_shape(w->engine.model);
    const bool is_f16 = strcmp(name, "f16") == 0, is_file = name[0] == '@';
    KVT_TRY(kvt_plan_file_resolve(file, name, 0, 0, w->engine.model, err));
    *row = (struct kvt_plan_row){.name = name, .kl = NAN, .flips = NAN};
    row->sink = s->sink >= 0 ? (int)s->sink : is_file ? file->sink : is_f16 ? 0 : REGION_ROWS;
    row->tail = s->tail >= 0 ? (int)s->tail : is_file ? file->tail : is_f16 ? 0 : REGION_ROWS;
    const struct kvt_plan_options wish = {.struct_size = sizeof wish,
                                          .kv = file->kv,
                                          .sink = row->sink,
                                          .tail = row->tail,
                                          .hold_last = s->hold_last,
                                          .fallback = true};
    struct kvt_error why;
    const enum kvt_status status = kvt_plan_create(&row->plan, &shape, &wish, NULL, &why);
    if (status == KVT_ERR_UNSUPPORTED) {
        snprintf(row->why_not, sizeof row->why_not, "%.*s", (int)sizeof row->why_not - 1, why.text);
        return KVT_OK;
    }
    if (status != KVT_OK) return kvt_fail(err, status, "%s", why.text);
    row->bytes = (uint64_t)w->report.n_seqs * kvt_plan_bytes(row->plan, w->report.n_ctx);
    if (w->report.cache_memory)
        row->longest = kvt_auto_longest(row->plan, w->report.cache_memory / (uint64_t)w->report.n_seqs, LONGEST_MAX);
    return KVT_OK;
}

/* The names of the table's caches: f16 and those that were asked for, each once. */
static int name_rows(const char *names[KVT_OPT_TEXTS_MAX + 1], const struct kvt_opt_texts *asked) {
    int n = 0;
    for (int i = 0; i < asked->n + 1; i++) {
        const char *name = i == 0 ? "f16" : asked->items[i - 1];
        int k = 0;
        while (k < n && strcmp(names[k], name) != 0) k++;
        if (k == n) names[n++] = name;
    }
    return n;
}

static enum kvt_status make_rows(struct work *w, struct kvt_error *err) {
    const struct kvt_opt_texts *asked = &w->settings->kv;
    const char *names[KVT_OPT_TEXTS_MAX + 1];
    const int n = asked->n ? name_rows(names, asked) : (int)KVT_ARRAY_LEN(usual);
    w->report.rows = kvt_take_zero(&kvt_allocator_libc, (size_t)n, sizeof *w->report.rows);
    w->files = kvt_take(&kvt_allocator_libc, (size_t)n, sizeof *w->files);
    if (!w->report.rows || !w->files) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for a table of %d caches", n);
    w->report.n_rows = n;
    for (int i = 0; i < n; i++) {
        KVT_TRY(make_row(w, &w->report.rows[i], &w->files[i], asked->n ? names[i] : usual[i], err));
    }
    return KVT_OK;
}

/* ---- measuring -------------------------------------------------------------------------------------------------------- */

static enum kvt_status write_text(struct kvt_ids *ids, struct work *w, struct kvt_error *err) {
    const struct kvt_self_options self = {.n = MEASURE_TOKENS,
                                          .chunk = MEASURE_TOKENS,
                                          .beyond = true,
                                          .seconds = sampling_seconds,
                                          .seed = 1,
                                          .level = w->settings->level,
                                          .parallel = &w->engine.parallel,
                                          .progress = &w->engine.progress.progress};
    KVT_TRY(kvt_fidelity_sample(ids, w->engine.model, &self, err));
    for (size_t written = ids->len; ids->len < MEASURE_TOKENS;) /* what there was no time to write: it goes round */
        if (kvt_ids_add(ids, ids->data[ids->len - written]) != KVT_OK)
            return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for %d ids", MEASURE_TOKENS);
    return KVT_OK;
}

/* Measures n rows at once, against one reference. */
static enum kvt_status measure_rows(struct work *w, const struct kvt_ids *ids, struct kvt_plan_row *const *rows, int n,
                                    struct kvt_error *err) {
    struct kvt_fidelity_case cases[KVT_OPT_TEXTS_MAX + 1];
    for (int i = 0; i < n; i++)
        cases[i] = (struct kvt_fidelity_case){.kv = kvt_plan_kv(rows[i]->plan),
                                              .sink = rows[i]->sink,
                                              .tail = rows[i]->tail,
                                              .leg = KVT_LEG_PREFILL,
                                              .kind = KVT_FIDELITY_SCHEME,
                                              .side = -1,
                                              .layer = -1,
                                              .head = -1};
    const struct kvt_fidelity_options o = {.cases = cases,
                                           .n_cases = n,
                                           .ids = ids->data,
                                           .n_ids = ids->len,
                                           .chunk = MEASURE_TOKENS,
                                           .beyond = true,
                                           .warmup = MEASURE_FROM, /* before it sink and tail hide what a cache loses */
                                           .first_id = -1,
                                           .level = w->settings->level,
                                           .parallel = &w->engine.parallel,
                                           .progress = &w->engine.progress.progress};
    struct kvt_fidelity_result result;
    KVT_TRY(kvt_fidelity_run(&result, w->engine.model, &o, err));
    for (int i = 0; i < n; i++) {
        rows[i]->kl = result.rows[i].kl.mean;
        rows[i]->flips = result.rows[i].flips;
    }
    kvt_fidelity_finish(&result);
    return KVT_OK;
}

/* Rows in the order of their interest: the recommended one, then as they stand. f16 is what they are measured against. */
static int rows_to_measure(struct kvt_plan_row **rows, struct kvt_plan_report *r) {
    const char *first = r->use ? r->use->picked : "";
    int n = 0;
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < r->n_rows; i++) {
            struct kvt_plan_row *row = &r->rows[i];
            if (strcmp(row->name, "f16") == 0)
                row->kl = row->flips = 0;
            else if (row->plan && (strcmp(row->name, first) == 0) == (turn == 0))
                rows[n++] = row;
        }
    return n;
}

/* The first cache tells how long one takes, and so how many there is time for. */
static enum kvt_status measure(struct work *w, struct kvt_error *err) {
    const double start = kvt_clock_seconds();
    struct kvt_plan_row *rows[2 * (KVT_OPT_TEXTS_MAX + 1)];
    const int n = rows_to_measure(rows, &w->report);
    struct kvt_ids ids;
    enum kvt_status status = KVT_OK;
    kvt_ids_init(&ids, NULL);
    w->report.n_tokens = MEASURE_TOKENS;
    w->report.n_scored = MEASURE_TOKENS - MEASURE_FROM;
    if (n == 0) goto out;
    KVT_TRY_OUT(write_text(&ids, w, err));
    const double written = kvt_clock_seconds();
    KVT_TRY_OUT(measure_rows(w, &ids, rows, 1, err));
    const double now = kvt_clock_seconds(), one = (now - written) / 2, left = start + measure_seconds - now - one;
    const int n_more = (int)KVT_MIN(KVT_MAX(left / one, 0), (double)(n - 1));
    if (n_more > 0) KVT_TRY_OUT(measure_rows(w, &ids, rows + 1, n_more, err));
out:
    kvt_ids_finish(&ids);
    return status;
}

/* ---- all -------------------------------------------------------------------------------------------------------------- */

/* What `run --kv auto` would take; nothing that fits is an answer too. */
static enum kvt_status recommend(struct work *w, struct kvt_error *err) {
    const struct settings *s = w->settings;
    struct kvt_kv_settings kv = KVT_KV_DEFAULTS;
    kv.kv = "auto";
    kv.memory = w->report.cache_memory ? w->report.cache_memory : UINT64_MAX >> 1;
    kv.sink = s->sink;
    kv.tail = s->tail;
    kv.hold_last = s->hold_last;
    kv.no_check = s->no_check;
    const struct kvt_choice_request request = {
        .kv = &kv, .n_ctx = (int)w->report.n_ctx, .n_sessions = (int)s->n_seqs, .level = s->level, .quiet = true};
    const enum kvt_status status = kvt_choice_make(&w->use, &w->engine, &request, err);
    if (status == KVT_ERR_LIMIT)
        snprintf(w->report.why_none, sizeof w->report.why_none, "%.*s", (int)strcspn(err->text, ";"), err->text);
    else if (status != KVT_OK)
        return status;
    else
        w->report.use = &w->use;
    return KVT_OK;
}

static enum kvt_status print(struct work *w, struct kvt_error *err) {
    struct kvt_buf text;
    kvt_buf_init(&text, NULL, REPORT_BYTES_MAX);
    const enum kvt_status made =
        w->settings->json ? kvt_plan_report_json(&text, &w->report) : kvt_plan_report_table(&text, &w->report);
    return kvt_term_write_report(&text, made, err);
}

static enum kvt_status plan(struct work *w, struct kvt_error *err) {
    const struct settings *s = w->settings;
    KVT_TRY(kvt_engine_open(&w->engine, s->n_threads, s->quiet, err));
    KVT_TRY(kvt_engine_load(&w->engine, s->model, NULL, err));
    struct kvt_plan_report *r = &w->report;
    r->path = s->model;
    r->model = w->engine.model;
    r->n_seqs = s->n_seqs;
    r->n_ctx = s->n_ctx ? (int64_t)KVT_MIN(s->n_ctx, (uint64_t)INT64_MAX) : kvt_model_info(r->model).n_ctx_train;
    if (r->n_ctx > LONGEST_MAX)
        return kvt_fail(err, KVT_ERR_ARG, "--context takes up to %d tokens, not %lld", LONGEST_MAX,
                        (long long)r->n_ctx);
    KVT_TRY(find_memory(w, err));
    KVT_TRY(make_rows(w, err));
    KVT_TRY(recommend(w, err));
    if (s->measure) KVT_TRY(measure(w, err));
    kvt_term_progress_erase(&w->engine.progress);
    KVT_TRY(print(w, err));
    if (r->use && !s->quiet) kvt_kv_check_tell(&w->use.check, "");
    return r->use ? KVT_OK : kvt_fail(err, KVT_ERR_LIMIT, "%s", r->why_none);
}

static enum kvt_status run(const void *settings, struct kvt_error *err) {
    struct work w = {.settings = settings};
    const enum kvt_status status = plan(&w, err);
    const size_t n = (size_t)w.report.n_rows;
    kvt_choice_finish(&w.use);
    for (size_t i = 0; i < n; i++) kvt_plan_destroy(w.report.rows[i].plan);
    kvt_give(&kvt_allocator_libc, w.report.rows, n, sizeof *w.report.rows);
    kvt_give(&kvt_allocator_libc, w.files, n, sizeof *w.files);
    kvt_engine_close(&w.engine);
    return status;
}

const struct kvt_command kvt_command_plan = {
    .name = "plan",
    .about = "which cache for a model, a context and the memory there is",
    .text =
        "Sets caches side by side for a context: the bytes that a run allocates, the longest context that fits the memory "
        "(longest), and with --measure what each loses of the model's predictions; then says which one 'run --kv auto' "
        "would take, and why. Every cache but f16 keeps the first and the newest 128 rows in 16 bits unless told "
        "otherwise. docs/policy.md has the rules.",
    .examples = "kvtile plan model.gguf --memory 8G --context 128K\n"
                "kvtile plan model.gguf --context 32K --batch 16 --kv-memory 2G\n"
                "kvtile plan models/biased.gguf --context 4096 --memory 64M --measure",
    .options = options,
    .n_options = KVT_ARRAY_LEN(options),
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
    .run = run,
};
