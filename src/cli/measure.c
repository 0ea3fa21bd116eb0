/* SPDX-License-Identifier: Apache-2.0
 * What the commands share that measure caches on a model. */
#include "cli/measure.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"

enum { COMMAND_BYTES_MAX = 64 << 10, REPORT_BYTES_MAX = 64 << 20 };

#define AT(field) offsetof(struct kvt_measure_settings, field)

/* clang-format off */
const struct kvt_opt kvt_measure_options[KVT_MEASURE_N_OPTIONS] = {
    {KVT_OPT_GROUP, .name = "Measurement"},
    {KVT_OPT_INT, .name = "chunk", .value = "N", .at = AT(chunk), .min = 2, .max = 1 << 30,
     .help = "tokens of a chunk, up to the model's context; each begins with an empty cache"},
    {KVT_OPT_INT, .name = "chunks", .value = "N", .at = AT(chunks), .max = 1 << 30,
     .help = "chunks at most; 0: all of the text"},
    {KVT_OPT_INT, .name = "warmup", .value = "N", .at = AT(warmup), .min = -1, .max = 1 << 30,
     .help = "do not score the first N positions of each chunk; -1: those before --quantized-kv-start, if there is one"},
    {KVT_OPT_FLAG, .name = "bos-each-chunk", .at = AT(bos_each_chunk),
     .help = "put BOS in the place of each chunk's first token, as llama.cpp's perplexity tool does"},
    {KVT_OPT_FLAG, .name = "beyond-context", .at = AT(beyond),
     .help = "let a chunk be longer than the context that the model was trained for"},
    {KVT_OPT_INT, .name = "prefill-chunk", .value = "N", .at = AT(prefill_chunk), .max = 1 << 30,
     .help = "tokens that are fed at once on the prefill leg; 0: 512"},
    {KVT_OPT_TEXT, .name = "reference-cache", .value = "FOLDER", .at = AT(stored),
     .help = "keep what the reference gives in this folder and use it again; none: do not. If absent: kvtile in "
             "$XDG_CACHE_HOME or in ~/.cache"},
    {KVT_OPT_TEXT, .name = "report", .value = "FILE", .at = AT(report),
     .help = "also write a report: .html (one page with plots), .svg (size "
             "against loss), .md or .json"},
    {KVT_OPT_GROUP, .name = "Running"},
    {KVT_OPT_INT, .name = "threads", .brief = "t", .value = "N", .at = AT(n_threads), .max = 1024,
     .help = "threads; 0: as many as there are processors. The figures do not depend on it"},
    {KVT_OPT_TEXT, .name = "level", .value = "NAME", .at = AT(level),
     .help = "instruction-set level: auto, ref, neon, avx2, avx512, amx"},
    {KVT_OPT_FLAG, .name = "quiet", .brief = "q", .at = AT(quiet), .help = "no progress bar"},
};
/* clang-format on */

/* ---- how the program was called --------------------------------------------------------------------------------------- */

static enum kvt_status add_word(struct kvt_buf *out, const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,@%+";
    if (*word && word[strspn(word, plain)] == 0) return kvt_buf_addf(out, "%s", word);
    KVT_TRY(kvt_buf_addf(out, "'"));
    for (; *word; word++) KVT_TRY(*word == '\'' ? kvt_buf_addf(out, "'\\''") : kvt_buf_add(out, word, 1));
    return kvt_buf_addf(out, "'");
}

/* As a shell would take it. Empty where the system does not tell. */
static void find_command(struct kvt_buf *out) {
    struct kvt_buf words;
    kvt_buf_init(&words, NULL, COMMAND_BYTES_MAX);
    if (kvt_file_read(&words, "/proc/self/cmdline", NULL) != KVT_OK) words.len = 0;
    for (size_t at = 0; at < words.len; at += strlen(words.data + at) + 1) {
        const char *word = words.data + at;
        const char *name = at == 0 && strrchr(word, '/') ? strrchr(word, '/') + 1 : word;
        if ((at > 0 && kvt_buf_addf(out, " ") != KVT_OK) || add_word(out, name) != KVT_OK) break;
    }
    kvt_buf_finish(&words);
}

/* ---- stored references ------------------------------------------------------------------------------------------------ */

/* Makes a folder and those above it. */
static bool make_folder(const char *path) {
    char part[KVT_MEASURE_PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (char *p = part + 1; *p; p++)
        if (*p == '/') {
            *p = 0;
            if (mkdir(part, 0777) != 0 && errno != EEXIST) return false;
            *p = '/';
        }
    return mkdir(part, 0777) == 0 || errno == EEXIST;
}

/* Empty where nothing is to be kept. */
static enum kvt_status find_folder(struct kvt_measure *m, struct kvt_error *err) {
    const char *asked = m->settings->stored, *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int len = 0;
    m->folder[0] = 0;
    if (asked && strcmp(asked, "none") == 0) return KVT_OK;
    if (asked)
        len = snprintf(m->folder, sizeof m->folder, "%s", asked);
    else if (cache && cache[0] == '/')
        len = snprintf(m->folder, sizeof m->folder, "%s/kvtile", cache);
    else if (home && home[0] == '/')
        len = snprintf(m->folder, sizeof m->folder, "%s/.cache/kvtile", home);
    if (len < KVT_MEASURE_PATH_MAX && (len == 0 || make_folder(m->folder))) return KVT_OK;
    if (asked)
        return kvt_fail(err, KVT_ERR_IO, "cannot make the folder '%.100s': %s", asked,
                        len < KVT_MEASURE_PATH_MAX ? strerror(errno) : "its name is too long");
    m->folder[0] = 0; /* a home that cannot be written to: then without */
    return KVT_OK;
}

static enum kvt_status open_store(struct kvt_measure *m, struct kvt_error *err) {
    struct kvt_map map;
    KVT_TRY(kvt_map_open(&map, m->path, err));
    m->store.model = kvt_hash(map.data, map.bytes);
    kvt_map_close(&map);
    KVT_TRY(find_folder(m, err));
    m->store.folder = m->folder;
    return KVT_OK;
}

void kvt_measure_say_stored(const struct kvt_fidelity_result *result) {
    for (int leg = 0; leg < KVT_LEG_COUNT; leg++)
        if (result->stored[leg].trouble[0])
            fprintf(stderr, "kvtile: stored reference (%s): %s\n", kvt_leg_name((enum kvt_leg)leg),
                    result->stored[leg].trouble);
}

/* ---- the report ------------------------------------------------------------------------------------------------------- */

typedef enum kvt_status (*report_fn)(struct kvt_buf *, const struct kvt_fidelity_result *,
                                     const struct kvt_fidelity_about *);

/* By the name's end; NULL: unknown. */
static report_fn report_form(const char *path) {
    static const struct {
        const char *end;
        report_fn fn;
    } forms[] = {{".html", kvt_fidelity_html},
                 {".svg", kvt_fidelity_svg},
                 {".md", kvt_fidelity_markdown},
                 {".json", kvt_fidelity_json}};
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < KVT_ARRAY_LEN(forms); i++)
        if (strcmp(dot, forms[i].end) == 0) return forms[i].fn;
    return NULL;
}

enum kvt_status kvt_measure_check_file(const char *path, struct kvt_error *err) {
    char folder[KVT_MEASURE_PATH_MAX];
    const char *slash = strrchr(path, '/');
    const size_t len = slash ? KVT_MIN((size_t)(slash - path) + 1, sizeof folder - 1) : 1;
    memcpy(folder, slash ? path : ".", len);
    folder[len] = 0;
    if (access(folder, W_OK) == 0) return KVT_OK;
    return kvt_fail(err, KVT_ERR_IO, "cannot write '%s': %s", path, strerror(errno));
}

static enum kvt_status check_report(const char *path, struct kvt_error *err) {
    if (!path) return KVT_OK;
    if (!report_form(path))
        return kvt_fail(err, KVT_ERR_ARG, "--report takes a file that ends in .html, .svg, .md or .json, not '%s'",
                        path);
    return kvt_measure_check_file(path, err);
}

enum kvt_status kvt_measure_report(const struct kvt_measure *m, const struct kvt_fidelity_result *result,
                                   const struct kvt_fidelity_about *about, struct kvt_error *err) {
    struct kvt_buf out;
    if (!m->settings->report) return KVT_OK;
    kvt_buf_init(&out, NULL, REPORT_BYTES_MAX);
    enum kvt_status status = report_form(m->settings->report)(&out, result, about);
    if (status != KVT_OK)
        kvt_fail(err, status, "not enough memory for the report");
    else
        status = kvt_file_write(m->settings->report, out.data, out.len, err);
    kvt_buf_finish(&out);
    return status;
}

/* ---- open, fill, close ------------------------------------------------------------------------------------------------ */

enum kvt_status kvt_measure_open(struct kvt_measure *m, const char *path, const struct kvt_measure_settings *settings,
                                 struct kvt_error *err) {
    *m = (struct kvt_measure){.settings = settings, .path = path};
    kvt_ids_init(&m->ids, NULL);
    kvt_buf_init(&m->command, NULL, COMMAND_BYTES_MAX);
    KVT_TRY(check_report(settings->report, err));
    find_command(&m->command);
    KVT_TRY(kvt_engine_open(&m->engine, settings->n_threads, settings->quiet, err));
    return kvt_engine_load(&m->engine, path, &settings->place, err);
}

void kvt_measure_close(struct kvt_measure *m) {
    kvt_engine_close(&m->engine);
    kvt_ids_finish(&m->ids);
    kvt_buf_finish(&m->command);
}

static enum kvt_status first_id(int *out, const struct kvt_measure *m, struct kvt_error *err) {
    const int bos = kvt_text_bos(kvt_model_text(m->engine.model));
    if (m->settings->bos_each_chunk && bos < 0)
        return kvt_fail(err, KVT_ERR_ARG, "%s has no BOS token; leave --bos-each-chunk out", m->path);
    *out = m->settings->bos_each_chunk ? bos : -1;
    return KVT_OK;
}

enum kvt_status kvt_measure_fill(struct kvt_fidelity_options *out, const struct kvt_measure *m, int64_t start,
                                 struct kvt_error *err) {
    const struct kvt_measure_settings *s = m->settings;
    *out = (struct kvt_fidelity_options){
        .reference = "f16",
        .chunk = (int)s->chunk,
        .beyond = s->beyond,
        .n_chunks = (int)s->chunks,
        .warmup = (int)(s->warmup >= 0 ? s->warmup : KVT_MIN(start, (int64_t)1 << 30)),
        .prefill_chunk = (int)s->prefill_chunk,
        .place = m->engine.place,
        .level = s->level,
        .parallel = &m->engine.parallel,
        .progress = &m->engine.progress.progress,
    };
    return first_id(&out->first_id, m, err);
}

enum kvt_status kvt_measure_text(struct kvt_fidelity_options *o, struct kvt_measure *m,
                                 const struct kvt_input_settings *input, struct kvt_error *err) {
    const struct kvt_input_reader reader = {
        .model = m->engine.model,
        .chunk = o->chunk,
        .beyond = o->beyond,
        .level = m->settings->level,
        .parallel = &m->engine.parallel,
        .progress = &m->engine.progress.progress,
    };
    KVT_TRY(kvt_input_read(&m->ids, m->text_name, input, &reader, err));
    o->ids = m->ids.data;
    o->n_ids = m->ids.len;
    KVT_TRY(open_store(m, err));
    if (m->folder[0]) o->store = &m->store;
    return KVT_OK;
}

struct kvt_fidelity_about kvt_measure_about(const struct kvt_measure *m, const struct kvt_fidelity_options *o) {
    enum kvt_level level = KVT_LEVEL_REF;
    if (kvt_level_parse(&level, o->level ? o->level : "auto", NULL) != KVT_OK) level = KVT_LEVEL_REF;
    return (struct kvt_fidelity_about){
        .model = m->path,
        .text = m->text_name,
        .reference = o->reference,
        .chunk = o->chunk,
        .n_ctx_train = kvt_model_info(m->engine.model).n_ctx_train,
        .warmup = o->warmup,
        .sink = o->cases[0].sink,
        .tail = o->cases[0].tail,
        .start = o->cases[0].start,
        .prefill_chunk = o->prefill_chunk ? o->prefill_chunk : 512,
        .cases = o->cases,
        .command = kvt_buf_text(&m->command),
        .level = m->engine.placed.bytes ? m->engine.place.backend : kvt_level_name(level),
        .blas = kvt_model_blas_name(),
        .n_threads = m->engine.parallel.n_threads,
        .model_hash = m->store.model,
        .text_hash = kvt_hash(o->ids, o->n_ids * sizeof *o->ids),
    };
}
