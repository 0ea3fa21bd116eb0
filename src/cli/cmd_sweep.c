/* SPDX-License-Identifier: Apache-2.0
 * kvtile sweep */
#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "cli/command.h"
#include "cli/measure.h"
#include "cli/plan_file.h"

enum { REPORT_BYTES_MAX = 16 << 20, SCHEMES_MAX = 1024, LIST_MAX = 16, NAME_MAX_BYTES = 128 };

struct settings {
    const char *model, *sinks, *tails, *budget, *plan, *leg;
    struct kvt_opt_texts globs;
    struct kvt_input_settings input;
    struct kvt_measure_settings measure;
    int64_t at, search_chunks;
    bool json;
};

static const struct settings defaults = {.sinks = "0",
                                         .tails = "0",
                                         .at = 32768,
                                         .leg = "prefill",
                                         .search_chunks = 2,
                                         .input = KVT_INPUT_DEFAULTS,
                                         .measure = KVT_MEASURE_DEFAULTS};

/* What is swept where nothing is named. */
static const char *const usual[] = {"f16", "affine*g64", "kivi*g32", "kvarn*", "kvt*"};

#define AT(field) offsetof(struct settings, field)

/* clang-format off */
static const struct kvt_opt options[] = {
    {KVT_OPT_ARG, .name = "MODEL", .at = AT(model), .help = "a GGUF file"},
    {KVT_OPT_ARGS, .name = "CACHE", .at = AT(globs),
     .help = "codecs by name or pattern ('kivi*g32', 'kvarn[346]'), or whole caches (kivi4g32,affine4g64). Patterns leave out variants "
             "with a dash unless they have one. None: f16, 'affine*g64', 'kivi*g32', 'kvarn*' and 'kvt*'"},
    {KVT_OPT_GROUP, .name = "Caches"},
    {KVT_OPT_TEXT, .name = "sink", .value = "N[,N...]", .at = AT(sinks), .help = "first rows in 16 bits: each of these is tried"},
    {KVT_OPT_TEXT, .name = "tail", .value = "N[,N...]", .at = AT(tails), .help = "newest rows in 16 bits: each of these is tried"},
    {KVT_OPT_INT, .name = "at", .value = "N", .at = AT(at), .min = 1, .max = 1e9, .help = "rows of the cache whose size is told"},
    {KVT_OPT_TEXT, .name = "leg", .value = "NAME", .words = "prefill decode", .at = AT(leg), .help = "how tokens are fed: prefill or decode"},
    {KVT_OPT_GROUP, .name = "Plan"},
    {KVT_OPT_TEXT, .name = "budget", .value = "SIZE", .at = AT(budget),
     .help = "also find the best codec for the keys and values of each layer, so that a cache of --at rows takes at most SIZE (300M), or "
             "at most this part of f16's (0.25); with the first sink and tail of the lists"},
    {KVT_OPT_INT, .name = "search-chunks", .value = "N", .at = AT(search_chunks), .min = 1, .max = 1 << 30,
     .help = "chunks that the search looks at"},
    {KVT_OPT_TEXT, .name = "plan", .value = "FILE", .at = AT(plan), .needs = "budget",
     .help = "where the plan is written, for --kv @FILE. If absent: kvtile-plan.json"},
    {KVT_OPT_GROUP, .name = "Report"},
    {KVT_OPT_FLAG, .name = "json", .at = AT(json), .help = "print JSON instead of the table"},
};
/* clang-format on */

static const struct kvt_opt_shared shared[] = {{kvt_measure_options, KVT_MEASURE_N_OPTIONS, AT(measure)},
                                               {kvt_place_options, KVT_PLACE_N_OPTIONS, AT(measure.place)},
                                               {kvt_input_options, KVT_INPUT_N_OPTIONS, AT(input)}};

struct sweep {
    const struct settings *settings;
    struct kvt_measure m;
    const char *names[SCHEMES_MAX]; /* caches, each once */
    int n_names;
    int sinks[LIST_MAX], tails[LIST_MAX];
    int n_sinks, n_tails;
    struct kvt_fidelity_scheme schemes[SCHEMES_MAX];
    struct kvt_fidelity_cases cases;
    struct kvt_fidelity_options o;
    struct kvt_fidelity_result result, planned;
    struct kvt_sweep_point *points;
    struct kvt_search search;
    struct kvt_sweep about;
};

/* ---- what is swept ---------------------------------------------------------------------------------------------------- */

static enum kvt_status add_name(struct sweep *s, const char *name, struct kvt_error *err) {
    for (int i = 0; i < s->n_names; i++)
        if (strcmp(s->names[i], name) == 0) return KVT_OK;
    if (s->n_names == SCHEMES_MAX) return kvt_fail(err, KVT_ERR_ARG, "more than %d caches to sweep", SCHEMES_MAX);
    s->names[s->n_names++] = name;
    return KVT_OK;
}

/* Whether a model's rows can be stored in a cache. */
static bool fits(const struct kvt_model *model, const char *kv) {
    const struct kvt_shape shape = kvt_model_shape(model);
    const struct kvt_plan_options plan_options = {.struct_size = sizeof plan_options, .kv = kv};
    struct kvt_plan *plan = NULL;
    const bool is = kvt_plan_create(&plan, &shape, &plan_options, NULL, NULL) == KVT_OK;
    kvt_plan_destroy(plan);
    return is;
}

static enum kvt_status add_glob(struct sweep *s, const char *glob, struct kvt_error *err) {
    int n = 0, n_unfit = 0;
    if (glob[0] == '@')
        return kvt_fail(err, KVT_ERR_ARG,
                        "a sweep makes plans and measures none from a file, as %.60s; kvtile fidelity --kv %.60s does",
                        glob, glob);
    if (!strpbrk(glob, "*?[")) return add_name(s, glob, err);
    for (size_t i = 0; kvt_kv_at(i); i++) {
        const char *name = kvt_kv_at(i);
        if (fnmatch(glob, name, 0) != 0 || (strchr(name, '-') && !strchr(glob, '-'))) continue;
        if (fits(s->m.engine.model, name)) {
            n++;
            KVT_TRY(add_name(s, name, err));
        } else {
            n_unfit++;
        }
    }
    if (n > 0) return KVT_OK;
    if (n_unfit > 0)
        return kvt_fail(err, KVT_ERR_UNSUPPORTED, "no cache named like '%s' can store this model's rows", glob);
    return kvt_fail(err, KVT_ERR_ARG, "no cache is named like '%s'; 'kvtile codecs' lists them", glob);
}

static enum kvt_status make_cases(struct sweep *s, struct kvt_error *err) {
    const struct settings *set = s->settings;
    const struct kvt_shape shape = kvt_model_shape(s->m.engine.model);
    const int n_globs = set->globs.n ? set->globs.n : (int)KVT_ARRAY_LEN(usual);
    KVT_TRY(kvt_opt_list(s->sinks, &s->n_sinks, LIST_MAX, "sink", set->sinks, 0, 1 << 30, err));
    KVT_TRY(kvt_opt_list(s->tails, &s->n_tails, LIST_MAX, "tail", set->tails, 0, 1 << 30, err));
    for (int i = 0; i < n_globs; i++) KVT_TRY(add_glob(s, set->globs.n ? set->globs.items[i] : usual[i], err));
    struct kvt_fidelity_request request = {.schemes = s->schemes};
    for (int k = 0; k < s->n_sinks; k++)
        for (int t = 0; t < s->n_tails; t++)
            for (int i = 0; i < s->n_names; i++) {
                if (request.n_schemes == SCHEMES_MAX)
                    return kvt_fail(err, KVT_ERR_ARG, "more than %d caches to sweep", SCHEMES_MAX);
                s->schemes[request.n_schemes++] = (struct kvt_fidelity_scheme){s->names[i], s->sinks[k], s->tails[t]};
            }
    const bool decode = strcmp(set->leg, "decode") == 0;
    if (!decode && strcmp(set->leg, "prefill") != 0)
        return kvt_fail(err, KVT_ERR_ARG, "--leg takes prefill or decode, not '%s'", set->leg);
    request.legs[decode ? KVT_LEG_DECODE : KVT_LEG_PREFILL] = true;
    return kvt_fidelity_cases_make(&s->cases, &shape, &request, NULL, err);
}

/* ---- the plan --------------------------------------------------------------------------------------------------------- */

static const char *plan_path(const struct settings *s) { return s->plan ? s->plan : "kvtile-plan.json"; }

/* "0.25" is a part of f16's bytes, "300M" bytes. */
static enum kvt_status read_budget(uint64_t *out, const struct sweep *s, struct kvt_error *err) {
    static const char units[] = "KMGT";
    const char *text = s->settings->budget;
    char *end;
    double x = strtod(text, &end);
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit) {
        x *= (double)(UINT64_C(1) << (10 * (unit - units + 1)));
        end++;
    }
    if (end == text || *end || !(x > 0 && x < 0x1p60))
        return kvt_fail(err, KVT_ERR_ARG,
                        "--budget takes a size such as 300M, or a part of f16's such as 0.25, not '%s'", text);
    if (!unit && x <= 1) {
        const struct kvt_shape shape = kvt_model_shape(s->m.engine.model);
        struct kvt_plan *plan;
        KVT_TRY(kvt_plan_create(&plan, &shape, NULL, NULL, err));
        x *= (double)kvt_plan_bytes(plan, s->settings->at);
        kvt_plan_destroy(plan);
    }
    *out = (uint64_t)x;
    return KVT_OK;
}

static int best_within(const struct sweep *s, uint64_t bytes) {
    int best = -1;
    for (int i = 0; i < s->result.n_rows; i++)
        if (s->points[i].bytes <= bytes && (best < 0 || s->result.rows[i].kl.mean < s->result.rows[best].kl.mean))
            best = i;
    return best;
}

static enum kvt_status find_plan(struct sweep *s, struct kvt_error *err) {
    s->about.sink = s->sinks[0];
    s->about.tail = s->tails[0];
    s->about.search_chunks = (int)KVT_MIN(s->settings->search_chunks, (int64_t)s->result.n_chunks);
    const struct kvt_search_request request = {
        .options = &s->o,
        .n_chunks = s->about.search_chunks,
        .sink = s->about.sink,
        .tail = s->about.tail,
        .at = s->settings->at,
        .budget = s->about.budget,
    };
    KVT_TRY(kvt_sweep_search(&s->search, s->m.engine.model, &request, err));
    const struct kvt_fidelity_case planned = {.kv = s->search.kv,
                                              .sink = s->about.sink,
                                              .tail = s->about.tail,
                                              .leg = s->cases.items[0].leg,
                                              .side = -1,
                                              .layer = -1,
                                              .head = -1};
    struct kvt_fidelity_options o = s->o;
    o.cases = &planned;
    o.n_cases = 1;
    KVT_TRY(kvt_fidelity_run(&s->planned, s->m.engine.model, &o, err));
    s->about.search = &s->search;
    s->about.plan = &s->planned.rows[0];
    s->about.best = best_within(s, s->search.bytes);
    return KVT_OK;
}

static enum kvt_status write_plan(const struct sweep *s, struct kvt_error *err) {
    const char *path = plan_path(s->settings);
    struct kvt_plan_file plan = {.sink = s->about.sink, .tail = s->about.tail};
    const struct kvt_plan_file_about about = {.text = s->m.text_name,
                                              .cache_bytes = s->search.bytes,
                                              .at = (uint64_t)s->settings->at,
                                              .kl = s->about.plan->kl.mean};
    if (strlen(s->search.kv) >= sizeof plan.kv)
        return kvt_fail(err, KVT_ERR_LIMIT, "the plan's string is longer than %zu bytes", sizeof plan.kv - 1);
    memcpy(plan.kv, s->search.kv, strlen(s->search.kv) + 1);
    KVT_TRY(kvt_plan_file_write(path, &plan, s->m.engine.model, &about, err));
    if (!s->m.settings->quiet) fprintf(stderr, "kvtile: wrote the plan to %s; use it with --kv @%s\n", path, path);
    return KVT_OK;
}

/* ---- running ---------------------------------------------------------------------------------------------------------- */

static enum kvt_status print_result(const struct sweep *s, struct kvt_error *err) {
    struct kvt_fidelity_about about = kvt_measure_about(&s->m, &s->o);
    struct kvt_buf report;
    about.sweep = &s->about;
    about.tokenizer = kvt_model_text(s->m.engine.model);
    about.ids = s->o.ids;
    const enum kvt_status reported = kvt_measure_report(&s->m, &s->result, &about, err);
    kvt_buf_init(&report, NULL, REPORT_BYTES_MAX);
    const enum kvt_status made = s->settings->json ? kvt_fidelity_json(&report, &s->result, &about)
                                                   : kvt_fidelity_sweep_table(&report, &s->result, &about);
    const enum kvt_status printed = kvt_term_write_report(&report, made, err);
    return printed != KVT_OK ? printed : reported;
}

static enum kvt_status rank(struct sweep *s, struct kvt_error *err) {
    const struct kvt_shape shape = kvt_model_shape(s->m.engine.model);
    s->points = kvt_take_zero(&kvt_allocator_libc, (size_t)s->cases.n, sizeof *s->points);
    if (!s->points) return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory to rank %d caches", s->cases.n);
    s->about.at = s->settings->at;
    s->about.points = s->points;
    s->about.best = -1;
    return kvt_sweep_points(s->points, &shape, s->cases.items, &s->result, s->settings->at, err);
}

/* Ctrl-C ends the measurement or the search; what is known by then is printed. */
static enum kvt_status sweep(struct sweep *s, struct kvt_error *err) {
    KVT_TRY(kvt_measure_fill(&s->o, &s->m, 0, err));
    s->o.cases = s->cases.items;
    s->o.n_cases = s->cases.n;
    KVT_TRY(kvt_fidelity_check(s->m.engine.model, &s->o, err));
    if (s->settings->budget) KVT_TRY(read_budget(&s->about.budget, s, err));
    if (s->settings->budget) KVT_TRY(kvt_measure_check_file(plan_path(s->settings), err));
    KVT_TRY(kvt_measure_text(&s->o, &s->m, &s->settings->input, err));
    enum kvt_status status = kvt_fidelity_run(&s->result, s->m.engine.model, &s->o, err);
    if (status != KVT_OK && (status != KVT_ERR_CANCELLED || s->result.n_chunks == 0)) return status;
    KVT_TRY(rank(s, err));
    if (status == KVT_OK && s->settings->budget) status = find_plan(s, err);
    kvt_term_progress_erase(&s->m.engine.progress);
    kvt_measure_say_stored(&s->result);
    struct kvt_error why = *err;
    KVT_TRY(print_result(s, err));
    if (s->about.search) return write_plan(s, err);
    return status == KVT_OK ? KVT_OK : kvt_fail(err, status, "%s", why.text);
}

static enum kvt_status run(const void *settings, struct kvt_error *err) {
    const struct settings *set = settings;
    if (!kvt_input_is_named(&set->input))
        return kvt_fail(err, KVT_ERR_ARG,
                        "name a text: --text FILE, --ids FILE, or --self N to let the model write it");
    struct sweep *s = kvt_take_zero(&kvt_allocator_libc, 1, sizeof *s);
    if (!s) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for a sweep");
    s->settings = set;
    enum kvt_status status = kvt_measure_open(&s->m, set->model, &set->measure, err);
    if (status == KVT_OK) status = make_cases(s, err);
    if (status == KVT_OK) status = sweep(s, err);
    kvt_give(&kvt_allocator_libc, s->points, (size_t)s->cases.n, sizeof *s->points);
    kvt_search_finish(&s->search);
    kvt_fidelity_finish(&s->planned);
    kvt_fidelity_finish(&s->result);
    kvt_fidelity_cases_finish(&s->cases);
    kvt_measure_close(&s->m);
    kvt_give(&kvt_allocator_libc, s, 1, sizeof *s);
    return status;
}

const struct kvt_command kvt_command_sweep = {
    .name = "sweep",
    .about = "size against quality of many caches, and the best plan for a budget",
    .text =
        "Measures many caches on one text as kvtile fidelity does and sets what they lose against what they take. "
        "Those that no other beats in both are marked. With --budget it then measures what the keys and the values "
        "of each layer lose alone, gives each the codec that serves the whole best within the budget, measures that "
        "plan for real, and writes it to a file that --kv @FILE takes.",
    .examples = "kvtile sweep model.gguf --text book.txt --chunks 4 'kivi*' 'affine*g64'\n"
                "kvtile sweep model.gguf --self 4096 'kvarn[346]' --tail 0,128\n"
                "kvtile sweep model.gguf --self 8192 'kivi*' 'kvarn*' --budget 0.25",
    .options = options,
    .n_options = KVT_ARRAY_LEN(options),
    .shared = shared,
    .n_shared = KVT_ARRAY_LEN(shared),
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
    .run = run,
};
