/* SPDX-License-Identifier: Apache-2.0
 * kvtile bench */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "bench/bench.h"
#include "cli/command.h"
#include "cli/engine.h"
#include "cli/plan_file.h"

enum { REPORT_BYTES_MAX = 4 << 20 };

struct settings {
    const char *what, *model, *level, *rows, *depth, *gqa, *threads;
    struct kvt_opt_texts kv;
    int64_t queries, kv_heads, head_size, rounds, tokens, n_batch;
    uint64_t rotate;
    bool paced, json, quiet;
    struct kvt_place_settings place;
};

static const struct settings defaults = {.rows = "32768",
                                         .depth = "0,1024",
                                         .gqa = "4",
                                         .queries = 1,
                                         .kv_heads = 8,
                                         .head_size = 128,
                                         .tokens = 32,
                                         .n_batch = 512};

static const char *const usual[] = {"q8_0", "affine4g64", "kivi4g32", "kvarn4", "kvt4", "kvt2"};
enum { SECONDS = 10 }; /* of one length, gqa and number of threads, where --rounds says nothing */

#define AT(field) offsetof(struct settings, field)

/* clang-format off */
static const struct kvt_opt options[] = {
    {KVT_OPT_ARG, .name = "WHAT", .words = "attention step model", .at = AT(what),
     .help = "attention: of one query row, or a few, over one layer. step: append of a row and attention, and what the steps take that encode a group. "
             "model: a whole model's decoding"},
    {KVT_OPT_ARG, .name = "MODEL", .at = AT(model), .optional = true, .help = "model: a GGUF file"},
    {KVT_OPT_GROUP, .name = "Caches"},
    {KVT_OPT_TEXTS, .name = "kv", .value = "K[,V]", .at = AT(kv),
     .help = "a cache to time: the codec of the keys and of the values, or one for both; for model also with layers that differ, or a plan, "
             "@FILE; give it again for more (none: q8_0, affine4g64, kivi4g32, kvarn4, kvt4 and kvt2). f16 is always timed too"},
    {KVT_OPT_INT, .name = "kv-heads", .value = "N", .at = AT(kv_heads), .min = 1, .max = 128,
     .help = "attention, step: KV heads of the layer"},
    {KVT_OPT_INT, .name = "head-size", .value = "N", .at = AT(head_size), .min = 8, .max = 512,
     .help = "attention, step: elements of a row (a multiple of 8)"},
    {KVT_OPT_GROUP, .name = "Measurement"},
    {KVT_OPT_TEXT, .name = "rows", .value = "N[,N...]", .at = AT(rows), .help = "attention, step: rows in the cache"},
    {KVT_OPT_TEXT, .name = "depth", .brief = "d", .value = "N[,N...]", .at = AT(depth),
     .help = "model: tokens in the cache when a sample begins, ascending; 0 is none"},
    {KVT_OPT_TEXT, .name = "gqa", .value = "N[,N...]", .at = AT(gqa),
     .help = "query heads that share a KV head, 1 to 16; step takes one number"},
    {KVT_OPT_INT, .name = "queries", .value = "N", .at = AT(queries), .min = 1, .max = KVT_BENCH_QUERIES_MAX,
     .help = "attention: query rows of the step, the last ones of --rows: 1 is decoding, 2 to 8 verification, more is prefill"},
    {KVT_OPT_TEXT, .name = "threads", .brief = "t", .value = "N[,N...]", .at = AT(threads),
     .help = "threads (none: attention 1,2; step and model as many as there are processors; model takes one number)"},
    {KVT_OPT_INT, .name = "rounds", .value = "N", .at = AT(rounds), .max = 100000,
     .help = "samples of each, at least 3 (none: 41; step: 3, of 128 steps; of both as many as begin within 10 seconds; model: 5)"},
    {KVT_OPT_INT, .name = "tokens", .brief = "n", .value = "N", .at = AT(tokens), .min = 1, .max = 1 << 20,
     .help = "model: tokens of a sample"},
    {KVT_OPT_INT, .name = "batch-size", .brief = "b", .value = "N", .at = AT(n_batch), .min = 1, .max = 1 << 20,
     .help = "model: tokens that are computed at a time while the cache is filled"},
    {KVT_OPT_BYTES, .name = "rotate", .value = "SIZE", .at = AT(rotate),
     .help = "attention, step: have as many layers that SIZE bytes are read between two samples of the same, so that it is not found in the "
             "processor's caches; none: four times the last-level cache"},
    {KVT_OPT_GROUP, .name = "Running"},
    {KVT_OPT_TEXT, .name = "level", .value = "NAME", .at = AT(level),
     .help = "instruction-set level: auto, ref, neon, avx2, avx512, amx"},
    {KVT_OPT_FLAG, .name = "paced", .at = AT(paced),
     .help = "model: before each round print a line \"ready\" and wait for a line on standard input, so that another program's samples "
             "can come between"},
    {KVT_OPT_FLAG, .name = "json", .at = AT(json), .help = "print JSON instead of the table"},
    {KVT_OPT_FLAG, .name = "quiet", .brief = "q", .at = AT(quiet), .help = "no progress bar"},
};
/* clang-format on */

static const struct kvt_opt_shared shared[] = {{kvt_place_options, KVT_PLACE_N_OPTIONS, AT(place)}};

/* The caches to time, without f16, which always is. */
struct caches {
    const char *kv[KVT_OPT_TEXTS_MAX];
    int n;
};

static struct caches caches_of(const struct settings *s) {
    struct caches c = {.n = 0};
    for (int i = 0; i < s->kv.n; i++)
        if (strcmp(s->kv.items[i], "f16") != 0) c.kv[c.n++] = s->kv.items[i];
    for (size_t i = 0; s->kv.n == 0 && i < KVT_ARRAY_LEN(usual); i++) c.kv[c.n++] = usual[i];
    return c;
}

/* ---- layers ------------------------------------------------------------------------------------------------------------ */

static enum kvt_status read_layer_options(struct kvt_bench_options *o, const struct settings *s, const struct caches *c,
                                          int rounds, const char *threads, struct kvt_error *err) {
    *o = (struct kvt_bench_options){.kv = c->kv,
                                    .n_kv = c->n,
                                    .queries = (int)s->queries,
                                    .kv_heads = (int)s->kv_heads,
                                    .head_size = (int)s->head_size,
                                    .rounds = s->rounds ? (int)s->rounds : rounds,
                                    .seconds = s->rounds ? 0 : SECONDS,
                                    .rotate_bytes = s->rotate,
                                    .memory_bytes = kvt_term_free_bytes(),
                                    .level = s->level};
    if (s->model) return kvt_fail(err, KVT_ERR_ARG, "bench %s takes no model, as '%s'", s->what, s->model);
    if (s->place.backend && strcmp(s->place.backend, "cpu") != 0)
        return kvt_fail(err, KVT_ERR_ARG, "bench %s times the processor, not --backend %s: bench model times both",
                        s->what, s->place.backend);
    for (int i = 0; i < c->n; i++)
        if (kvt_plan_file_differs(c->kv[i]))
            return kvt_fail(
                err, KVT_ERR_ARG,
                "bench %s times one layer, whose cache is named by codecs alone, not by '%.60s'; bench model "
                "takes plans",
                s->what, c->kv[i]);
    if (s->head_size % KVT_HEAD_STEP)
        return kvt_fail(err, KVT_ERR_ARG, "--head-size takes multiples of %d, not %lld", KVT_HEAD_STEP,
                        (long long)s->head_size);
    int rows[KVT_BENCH_LIST];
    KVT_TRY(kvt_opt_list(rows, &o->n_rows, KVT_BENCH_LIST, "rows", s->rows, 1, 1 << 30, err));
    KVT_TRY(kvt_opt_list(o->gqa, &o->n_gqa, KVT_BENCH_LIST, "gqa", s->gqa, 1, KVT_BENCH_GQA_MAX, err));
    for (int i = 0; i < o->n_rows; i++) o->rows[i] = rows[i];
    for (int i = 0; i < o->n_rows; i++)
        if (o->rows[i] < o->queries)
            return kvt_fail(err, KVT_ERR_ARG, "%lld rows have no %d query rows: --rows takes at least --queries",
                            (long long)o->rows[i], o->queries);
    return kvt_opt_list(o->threads, &o->n_threads, KVT_BENCH_LIST, "threads", s->threads ? s->threads : threads, 1,
                        1024, err);
}

static enum kvt_status bench_attention(const struct settings *s, struct kvt_error *err) {
    const struct caches caches = caches_of(s);
    struct kvt_term_progress progress;
    struct kvt_bench_result result;
    struct kvt_bench_options o;
    struct kvt_buf report;
    KVT_TRY(read_layer_options(&o, s, &caches, 41, "1,2", err));
    kvt_term_progress_init(&progress, s->quiet);
    o.progress = &progress.progress;
    const enum kvt_status status = kvt_bench_attention(&result, &o, err);
    kvt_term_progress_erase(&progress);
    if (status != KVT_OK) return status;
    kvt_buf_init(&report, NULL, REPORT_BYTES_MAX);
    const enum kvt_status made = s->json ? kvt_bench_json(&report, &result, &o) : kvt_bench_table(&report, &result, &o);
    kvt_bench_finish(&result);
    return kvt_term_write_report(&report, made, err);
}

static enum kvt_status bench_step(const struct settings *s, struct kvt_error *err) {
    const struct caches caches = caches_of(s);
    struct kvt_term_progress progress;
    struct kvt_bench_step_result result;
    struct kvt_bench_options o;
    struct kvt_buf report;
    char all[16];
    snprintf(all, sizeof all, "%d", kvt_term_n_processors());
    KVT_TRY(read_layer_options(&o, s, &caches, 3, all, err));
    if (o.n_gqa > 1) return kvt_fail(err, KVT_ERR_ARG, "bench step takes one number for --gqa, not '%s'", s->gqa);
    kvt_term_progress_init(&progress, s->quiet);
    o.progress = &progress.progress;
    const enum kvt_status status = kvt_bench_step(&result, &o, err);
    kvt_term_progress_erase(&progress);
    if (status != KVT_OK) return status;
    kvt_buf_init(&report, NULL, REPORT_BYTES_MAX);
    const enum kvt_status made =
        s->json ? kvt_bench_step_json(&report, &result, &o) : kvt_bench_step_table(&report, &result, &o);
    kvt_bench_step_finish(&result);
    return kvt_term_write_report(&report, made, err);
}

/* ---- whole models ------------------------------------------------------------------------------------------------------ */

static enum kvt_status wait_for_line(void *ctx, struct kvt_error *err) {
    char line[16];
    (void)ctx;
    KVT_TRY(kvt_term_write("ready\n", 6, err));
    do {
        if (!fgets(line, sizeof line, stdin)) return kvt_fail(err, KVT_ERR_CANCELLED, "standard input has ended");
    } while (!strchr(line, '\n'));
    return KVT_OK;
}

/* Of a model: what their names mean, plans' files read. */
struct model_caches {
    struct kvt_plan_file plans[KVT_OPT_TEXTS_MAX];
    struct kvt_bench_cache items[KVT_OPT_TEXTS_MAX];
};

static enum kvt_status name_caches(struct model_caches *out, const struct caches *names, const struct kvt_model *model,
                                   struct kvt_error *err) {
    for (int i = 0; i < names->n; i++) {
        struct kvt_plan_file *plan = &out->plans[i];
        KVT_TRY(kvt_plan_file_resolve(plan, names->kv[i], 0, 0, model, err));
        out->items[i] = (struct kvt_bench_cache){names->kv[i], plan->kv, plan->sink, plan->tail};
    }
    return KVT_OK;
}

static enum kvt_status read_model_options(struct kvt_bench_model_options *o, int *n_threads, const struct settings *s,
                                          struct kvt_error *err) {
    int threads[KVT_BENCH_LIST] = {0}, n = 1;
    *o = (struct kvt_bench_model_options){.tokens = (int)s->tokens,
                                          .rounds = s->rounds ? (int)s->rounds : 5,
                                          .n_batch = (int)s->n_batch,
                                          .level = s->level};
    if (!s->model) return kvt_fail(err, KVT_ERR_ARG, "bench model needs MODEL, a GGUF file");
    KVT_TRY(kvt_opt_list(o->depth, &o->n_depths, KVT_BENCH_LIST, "depth", s->depth, 0, 1 << 30, err));
    if (s->threads) KVT_TRY(kvt_opt_list(threads, &n, KVT_BENCH_LIST, "threads", s->threads, 1, 1024, err));
    if (n > 1) return kvt_fail(err, KVT_ERR_ARG, "bench model takes one number for --threads, not '%s'", s->threads);
    if (s->paced) o->pace.wait = wait_for_line;
    *n_threads = threads[0];
    return KVT_OK;
}

static enum kvt_status measure_model(struct kvt_bench_model_result *out, struct kvt_bench_model_options *o,
                                     const struct settings *s, struct kvt_engine *engine, struct model_caches *caches,
                                     struct kvt_error *err) {
    const struct caches names = caches_of(s);
    KVT_TRY(kvt_engine_load(engine, s->model, &s->place, err));
    KVT_TRY(name_caches(caches, &names, engine->model, err));
    o->model = engine->model;
    o->place = engine->place;
    o->caches = caches->items;
    o->n_caches = names.n;
    o->parallel = &engine->parallel;
    o->progress = &engine->progress.progress;
    const enum kvt_status status = kvt_bench_model(out, o, err);
    kvt_term_progress_erase(&engine->progress);
    return status;
}

static enum kvt_status bench_model(const struct settings *s, struct kvt_error *err) {
    struct kvt_bench_model_options o;
    struct kvt_bench_model_result result;
    struct kvt_engine engine;
    struct kvt_buf report;
    enum kvt_status status;
    int n_threads = 0;
    KVT_TRY(read_model_options(&o, &n_threads, s, err));
    struct model_caches *caches = kvt_take(&kvt_allocator_libc, 1, sizeof *caches);
    if (!caches) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the names of caches");
    KVT_TRY_OUT(kvt_engine_open(&engine, n_threads, s->quiet, err));
    KVT_TRY_OUT(measure_model(&result, &o, s, &engine, caches, err));
    kvt_buf_init(&report, NULL, REPORT_BYTES_MAX);
    const enum kvt_status made =
        s->json ? kvt_bench_model_json(&report, &result, &o) : kvt_bench_model_table(&report, &result, &o);
    kvt_bench_model_finish(&result);
    status = kvt_term_write_report(&report, made, err);
out:
    kvt_engine_close(&engine);
    kvt_give(&kvt_allocator_libc, caches, 1, sizeof *caches);
    return status;
}

/* ---- the command ------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum kvt_status (*run)(const struct settings *s, struct kvt_error *err);
} benches[] = {{"attention", bench_attention}, {"step", bench_step}, {"model", bench_model}};

static enum kvt_status run(const void *settings, struct kvt_error *err) {
    const struct settings *s = settings;
    if (s->rounds != 0 && s->rounds < 3)
        return kvt_fail(err, KVT_ERR_ARG, "--rounds takes at least 3, not %lld", (long long)s->rounds);
    if (s->paced && strcmp(s->what, "model") != 0)
        return kvt_fail(err, KVT_ERR_ARG, "--paced is for bench model alone");
    for (size_t i = 0; i < KVT_ARRAY_LEN(benches); i++)
        if (strcmp(s->what, benches[i].name) == 0) return benches[i].run(s, err);
    return kvt_fail(err, KVT_ERR_ARG, "there is no bench '%s'; there are: attention, step, model", s->what);
}

const struct kvt_command kvt_command_bench = {
    .name = "bench",
    .about = "measure what a cache costs in time",
    .text =
        "attention and step time one layer of a cache that was filled row by row, for each cache, length and number of "
        "threads: attention alone, beside the time that reading as many bytes takes, or whole decode steps. model times a "
        "model's decoding with caches that it has filled itself. Whatever is compared is measured in one process and in turn, "
        "layers on memory larger than the processor's caches.",
    .examples = "kvtile bench attention\n"
                "kvtile bench attention --rows 1024,32768 --gqa 1,4,8 --kv kivi4g32 --kv q8_0\n"
                "kvtile bench step --kv kivi4g32 --kv kvarn4\n"
                "kvtile bench model models/plain.gguf --depth 0,1024,3500 --kv kivi4g32\n"
                "kvtile bench attention --level avx2 --json",
    .options = options,
    .n_options = KVT_ARRAY_LEN(options),
    .shared = shared,
    .n_shared = KVT_ARRAY_LEN(shared),
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
    .run = run,
};
