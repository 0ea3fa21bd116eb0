/* SPDX-License-Identifier: Apache-2.0
 * kvtile fidelity */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "cli/command.h"
#include "cli/measure.h"
#include "cli/plan_file.h"

enum { REPORT_BYTES_MAX = 16 << 20 };

struct settings {
    const char *model, *reference, *leg, *attribute;
    struct kvt_opt_texts kv;
    struct kvt_input_settings input;
    struct kvt_measure_settings measure;
    int64_t sink, tail, start;
    bool numerics, worst, json;
};

static const struct settings defaults = {
    .reference = "f16", .leg = "prefill", .input = KVT_INPUT_DEFAULTS, .measure = KVT_MEASURE_DEFAULTS};

/* What is measured where no --kv is given. */
static const char *const usual[] = {"f16", "affine8g64", "affine4g64"};

#define AT(field) offsetof(struct settings, field)

/* clang-format off */
static const struct kvt_opt options[] = {
    {KVT_OPT_ARG, .name = "MODEL", .at = AT(model), .help = "a GGUF file"},
    {KVT_OPT_GROUP, .name = "Caches"},
    {KVT_OPT_TEXTS, .name = "kv", .value = "K[,V]", .at = AT(kv),
     .help = "a cache to measure: the codec of the keys and of the values, or one for both; layers that differ follow, as in "
             "kivi4g32:0-1=f16; @FILE: a plan that kvtile sweep wrote; give it again for more (none: f16, affine8g64 and affine4g64)"},
    {KVT_OPT_INT, .name = "sink", .value = "N", .at = AT(sink), .max = 1 << 30,
     .help = "keep the first N rows of each in 16 bits (a multiple of 128)"},
    {KVT_OPT_INT, .name = "tail", .also = "kv-tail-tokens", .value = "N", .at = AT(tail), .max = 1 << 30,
     .help = "keep the newest N rows of each in 16 bits"},
    {KVT_OPT_INT, .name = "quantized-kv-start", .value = "N", .at = AT(start), .max = 1 << 30,
     .help = "keep all rows of each in 16 bits while there are fewer than N"},
    {KVT_OPT_TEXT, .name = "reference", .value = "K[,V]", .at = AT(reference),
     .help = "the cache that they are held against"},
    {KVT_OPT_GROUP, .name = "What is looked at"},
    {KVT_OPT_TEXT, .name = "leg", .value = "NAME", .words = "prefill decode both", .at = AT(leg),
     .help = "how tokens are fed: prefill, many at once as a prompt is; decode, one by one as text is generated; both"},
    {KVT_OPT_FLAG, .name = "numerics", .at = AT(numerics),
     .help = "also run each cache's decoded rows through plain attention: what is the codec's loss, what the arithmetic's"},
    {KVT_OPT_TEXT, .name = "attribute", .value = "LIST", .at = AT(attribute),
     .help = "take the loss apart, by any of kv (keys alone, values alone), layers, heads, regions (what more 16-bit rows are "
             "worth), comma between; on the first leg"},
    {KVT_OPT_FLAG, .name = "worst", .at = AT(worst), .help = "show the ten positions of the largest KL, with their text"},
    {KVT_OPT_FLAG, .name = "json", .at = AT(json), .help = "print JSON instead of the table"},
};
/* clang-format on */

static const struct kvt_opt_shared shared[] = {{kvt_measure_options, KVT_MEASURE_N_OPTIONS, AT(measure)},
                                               {kvt_place_options, KVT_PLACE_N_OPTIONS, AT(measure.place)},
                                               {kvt_input_options, KVT_INPUT_N_OPTIONS, AT(input)}};

/* ---- what is asked for ------------------------------------------------------------------------------------------------ */

static enum kvt_status choose_legs(bool legs[KVT_LEG_COUNT], const char *name, struct kvt_error *err) {
    const bool both = strcmp(name, "both") == 0;
    bool any = false;
    for (int i = 0; i < KVT_LEG_COUNT; i++) any |= legs[i] = both || strcmp(name, kvt_leg_name((enum kvt_leg)i)) == 0;
    return any ? KVT_OK : kvt_fail(err, KVT_ERR_ARG, "--leg takes prefill, decode or both, not '%s'", name);
}

static enum kvt_status choose_attribution(unsigned *out, const char *list, struct kvt_error *err) {
    static const struct {
        const char *name;
        unsigned bit;
    } known[] = {{"kv", KVT_ATTRIBUTE_KV},
                 {"layers", KVT_ATTRIBUTE_LAYERS},
                 {"heads", KVT_ATTRIBUTE_HEADS},
                 {"regions", KVT_ATTRIBUTE_REGIONS}};
    *out = 0;
    while (list && *list) {
        const size_t len = strcspn(list, ",");
        unsigned bit = 0;
        for (size_t i = 0; i < KVT_ARRAY_LEN(known); i++)
            if (strlen(known[i].name) == len && memcmp(known[i].name, list, len) == 0) bit = known[i].bit;
        if (!bit)
            return kvt_fail(err, KVT_ERR_ARG, "--attribute takes kv, layers, heads and regions, not '%.*s'",
                            (int)KVT_MIN(len, (size_t)40), list);
        *out |= bit;
        list += len + (list[len] == ',');
    }
    return KVT_OK;
}

/* The caches by their names; a plan's file brings its own sink and tail. Strings live in `plans`. */
static enum kvt_status name_schemes(struct kvt_fidelity_scheme *out, struct kvt_plan_file *plans, int n,
                                    const struct settings *s, const struct kvt_model *model, struct kvt_error *err) {
    for (int i = 0; i < n; i++) {
        const char *kv = s->kv.n ? s->kv.items[i] : usual[i];
        KVT_TRY(kvt_plan_file_resolve(&plans[i], kv, s->sink, s->tail, model, err));
        out[i] = (struct kvt_fidelity_scheme){plans[i].kv, plans[i].sink, plans[i].tail};
    }
    return KVT_OK;
}

static enum kvt_status make_cases(struct kvt_fidelity_cases *out, const struct settings *s,
                                  const struct kvt_model *model, struct kvt_error *err) {
    const struct kvt_shape shape = kvt_model_shape(model);
    const int n = s->kv.n ? s->kv.n : (int)KVT_ARRAY_LEN(usual);
    struct kvt_fidelity_scheme schemes[KVT_OPT_TEXTS_MAX];
    struct kvt_fidelity_request request = {
        .schemes = schemes, .n_schemes = n, .start = s->start, .numerics = s->numerics};
    KVT_TRY(choose_legs(request.legs, s->leg, err));
    KVT_TRY(choose_attribution(&request.attribute, s->attribute, err));
    struct kvt_plan_file *plans = kvt_take(&kvt_allocator_libc, (size_t)n, sizeof *plans);
    if (!plans) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the names of %d caches", n);
    enum kvt_status status = name_schemes(schemes, plans, n, s, model, err);
    if (status == KVT_OK) status = kvt_fidelity_cases_make(out, &shape, &request, NULL, err);
    kvt_give(&kvt_allocator_libc, plans, (size_t)n, sizeof *plans);
    return status;
}

/* ---- the measurement -------------------------------------------------------------------------------------------------- */

static enum kvt_status print_result(const struct settings *s, const struct kvt_measure *m,
                                    const struct kvt_fidelity_options *o, const struct kvt_fidelity_result *result,
                                    struct kvt_error *err) {
    struct kvt_fidelity_about about = kvt_measure_about(m, o);
    struct kvt_buf report;
    about.tokenizer = kvt_model_text(m->engine.model);
    about.ids = o->ids;
    const enum kvt_status reported = kvt_measure_report(m, result, &about, err);
    if (!s->json && !s->worst) about.ids = NULL;
    kvt_buf_init(&report, NULL, REPORT_BYTES_MAX);
    const enum kvt_status made =
        s->json ? kvt_fidelity_json(&report, result, &about) : kvt_fidelity_table(&report, result, &about);
    const enum kvt_status printed = kvt_term_write_report(&report, made, err);
    return printed != KVT_OK ? printed : reported;
}

static enum kvt_status measure(const struct settings *s, struct kvt_measure *m, const struct kvt_fidelity_cases *cases,
                               struct kvt_error *err) {
    struct kvt_fidelity_options o;
    struct kvt_fidelity_result result = {0};
    KVT_TRY(kvt_measure_fill(&o, m, s->start, err));
    o.reference = s->reference;
    o.cases = cases->items;
    o.n_cases = cases->n;
    KVT_TRY(kvt_fidelity_check(m->engine.model, &o, err));
    KVT_TRY(kvt_measure_text(&o, m, &s->input, err));
    const enum kvt_status status = kvt_fidelity_run(&result, m->engine.model, &o, err);
    kvt_term_progress_erase(&m->engine.progress);
    if (status != KVT_OK && (status != KVT_ERR_CANCELLED || result.n_chunks == 0)) return status;
    kvt_measure_say_stored(&result);
    const enum kvt_status printed = print_result(s, m, &o, &result, err);
    kvt_fidelity_finish(&result);
    return printed != KVT_OK ? printed : status;
}

static enum kvt_status run(const void *settings, struct kvt_error *err) {
    const struct settings *s = settings;
    struct kvt_measure m;
    struct kvt_fidelity_cases cases = {.items = NULL};
    enum kvt_status status;
    if (!kvt_input_is_named(&s->input))
        return kvt_fail(err, KVT_ERR_ARG,
                        "name a text: --text FILE, --ids FILE, or --self N to let the model write it");
    KVT_TRY_OUT(kvt_measure_open(&m, s->model, &s->measure, err));
    KVT_TRY_OUT(make_cases(&cases, s, m.engine.model, err));
    KVT_TRY_OUT(measure(s, &m, &cases, err));
out:
    kvt_fidelity_cases_finish(&cases);
    kvt_measure_close(&m);
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
                "kvtile fidelity model.gguf --ids book.ids --kv kivi4g32 --tail 128 --json\n"
                "kvtile fidelity model.gguf --ids book.ids --kv q4_0 --leg both --numerics",
    .options = options,
    .n_options = KVT_ARRAY_LEN(options),
    .shared = shared,
    .n_shared = KVT_ARRAY_LEN(shared),
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
    .run = run,
};
