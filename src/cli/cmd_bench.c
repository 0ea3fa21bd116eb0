/* SPDX-License-Identifier: Apache-2.0
 * kvtile bench */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "bench/bench.h"
#include "cli/command.h"
#include "cli/term.h"

enum { REPORT_BYTES_MAX = 4 << 20 };

struct settings {
    const char *what, *level, *rows, *gqa, *threads;
    struct kvt_opt_texts kv;
    int64_t kv_heads, head_size, rounds;
    uint64_t rotate;
    bool json, quiet;
};

static const struct settings defaults = {
    .rows = "32768", .gqa = "4", .threads = "1,2", .kv_heads = 8, .head_size = 128, .rounds = 41};

static const char *const usual[] = {"q8_0", "kivi8g32", "affine4g64", "kivi4g64", "kivi4g32", "kvarn4", "kivi2g32"};

#define AT(field) offsetof(struct settings, field)

/* clang-format off */
static const struct kvt_opt options[] = {
    {KVT_OPT_ARG, .name = "attention", .at = AT(what), .help = "what to time: attention"},
    {KVT_OPT_GROUP, .name = "Caches"},
    {KVT_OPT_TEXTS, .name = "kv", .value = "K[,V]", .at = AT(kv),
     .help = "a cache to time: the codec of the keys and of the values, or one for both; give it again for more (none: a usual "
             "selection). f16 is always timed too"},
    {KVT_OPT_INT, .name = "kv-heads", .value = "N", .at = AT(kv_heads), .min = 1, .max = 128, .help = "KV heads of the layer"},
    {KVT_OPT_INT, .name = "head-size", .value = "N", .at = AT(head_size), .min = 8, .max = 512,
     .help = "elements of a row (a multiple of 8)"},
    {KVT_OPT_GROUP, .name = "Measurement"},
    {KVT_OPT_TEXT, .name = "rows", .value = "N[,N...]", .at = AT(rows), .help = "rows in the cache"},
    {KVT_OPT_TEXT, .name = "gqa", .value = "N[,N...]", .at = AT(gqa), .help = "query heads that share a KV head, 1 to 16"},
    {KVT_OPT_TEXT, .name = "threads", .brief = "t", .value = "N[,N...]", .at = AT(threads), .help = "threads"},
    {KVT_OPT_INT, .name = "rounds", .value = "N", .at = AT(rounds), .min = 3, .max = 100000, .help = "samples of each"},
    {KVT_OPT_BYTES, .name = "rotate", .value = "SIZE", .at = AT(rotate),
     .help = "have as many layers that SIZE bytes are read between two samples of the same, so that it is not found in the processor's "
             "caches; none: four times the last-level cache"},
    {KVT_OPT_GROUP, .name = "Running"},
    {KVT_OPT_TEXT, .name = "level", .value = "NAME", .at = AT(level),
     .help = "instruction-set level: auto, ref, neon, avx2, avx512"},
    {KVT_OPT_FLAG, .name = "json", .at = AT(json), .help = "print JSON instead of the table"},
    {KVT_OPT_FLAG, .name = "quiet", .brief = "q", .at = AT(quiet), .help = "no progress bar"},
};
/* clang-format on */

/* Reads "1,2,4" into at most KVT_BENCH_LIST numbers in [1, max]. */
static enum kvt_status read_list(int64_t *out, int *n, const char *name, const char *text, int64_t max,
                                 struct kvt_error *err) {
    const char *at = text;
    for (*n = 0;; at++) {
        char *end;
        errno = 0;
        const long long value = strtoll(at, &end, 10);
        if (end == at || errno || value < 1 || value > max || (*end && *end != ','))
            return kvt_fail(err, KVT_ERR_ARG, "--%s takes numbers from 1 to %lld with commas between, not '%s'", name,
                            (long long)max, text);
        if (*n == KVT_BENCH_LIST)
            return kvt_fail(err, KVT_ERR_ARG, "--%s takes at most %d numbers", name, KVT_BENCH_LIST);
        out[(*n)++] = value;
        at = end;
        if (!*end) return KVT_OK;
    }
}

static enum kvt_status read_ints(int *out, int *n, const char *name, const char *text, int64_t max,
                                 struct kvt_error *err) {
    int64_t values[KVT_BENCH_LIST];
    KVT_TRY(read_list(values, n, name, text, max, err));
    for (int i = 0; i < *n; i++) out[i] = (int)values[i];
    return KVT_OK;
}

static enum kvt_status print_result(const struct settings *s, const struct kvt_bench_result *result,
                                    const struct kvt_bench_options *o, struct kvt_error *err) {
    struct kvt_buf report;
    kvt_buf_init(&report, NULL, REPORT_BYTES_MAX);
    enum kvt_status status = s->json ? kvt_bench_json(&report, result, o) : kvt_bench_table(&report, result, o);
    if (status != KVT_OK)
        kvt_fail(err, status, "not enough memory for the report");
    else
        status = kvt_term_write(report.data, report.len, err);
    kvt_buf_finish(&report);
    return status;
}

static enum kvt_status run(const void *settings, struct kvt_error *err) {
    const struct settings *s = settings;
    struct kvt_term_progress progress;
    struct kvt_bench_result result;
    struct kvt_bench_options o = {
        .kv = s->kv.n ? s->kv.items : usual,
        .n_kv = s->kv.n ? s->kv.n : (int)KVT_ARRAY_LEN(usual),
        .kv_heads = (int)s->kv_heads,
        .head_size = (int)s->head_size,
        .rounds = (int)s->rounds,
        .rotate_bytes = s->rotate,
        .level = s->level,
        .progress = &progress.progress,
    };
    if (strcmp(s->what, "attention") != 0)
        return kvt_fail(err, KVT_ERR_ARG, "there is no bench '%s'; there is: attention", s->what);
    if (s->head_size % KVT_HEAD_STEP)
        return kvt_fail(err, KVT_ERR_ARG, "--head-size takes multiples of %d, not %lld", KVT_HEAD_STEP,
                        (long long)s->head_size);
    KVT_TRY(read_list(o.rows, &o.n_rows, "rows", s->rows, INT64_C(1) << 30, err));
    KVT_TRY(read_ints(o.gqa, &o.n_gqa, "gqa", s->gqa, KVT_BENCH_GQA_MAX, err));
    KVT_TRY(read_ints(o.threads, &o.n_threads, "threads", s->threads, 1024, err));
    kvt_term_progress_init(&progress, s->quiet);
    enum kvt_status status = kvt_bench_attention(&result, &o, err);
    kvt_term_progress_erase(&progress);
    if (status != KVT_OK) return status;
    status = print_result(s, &result, &o, err);
    kvt_bench_finish(&result);
    return status;
}

const struct kvt_command kvt_command_bench = {
    .name = "bench",
    .about = "measure what a cache costs in time",
    .text =
        "Times attention of one query row over one layer of a cache that was filled row by row, for each cache, length, number "
        "of query heads per KV head and number of threads. All are measured in one process and in turn, on memory larger than "
        "the processor's caches, beside the time that reading as many bytes takes.",
    .examples = "kvtile bench attention\n"
                "kvtile bench attention --rows 1024,32768 --gqa 1,4,8 --kv kivi4g32 --kv q8_0\n"
                "kvtile bench attention --level avx2 --json",
    .options = options,
    .n_options = KVT_ARRAY_LEN(options),
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
    .run = run,
};
