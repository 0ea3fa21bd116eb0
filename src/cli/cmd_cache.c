/* SPDX-License-Identifier: Apache-2.0
 * kvtile cache: what files of caches hold, and prompt caches of mlx-lm in and out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/engine.h"
#include "cli/gen.h"
#include "fidelity/fidelity.h"
#include "kvtile/convert.h"

enum { FILE_BYTES_MAX = 1 << 28, PLAN_TEXT_MAX = 1 << 16, REPORT_MAX = 1 << 20 };

/* ---- options ---------------------------------------------------------------------------------------------------------- */

struct settings {
    const char *action, *prompt, *file, *ids, *layout, *name, *kv;
    int64_t sink, tail;
    bool as_f16, as_in_gguf;
    struct kvt_opt_texts files;
};

static const struct settings defaults = {.layout = "new"};

#define AT(field) offsetof(struct settings, field)

/* clang-format off */
static const struct kvt_opt options[] = {
    {KVT_OPT_ARG, .name = "ACTION", .words = "show export import", .at = AT(action), .help = "show FILE: what it holds; "
     "export MODEL FILE OUT: a session of kvtile's as a prompt cache for mlx-lm; "
     "import MODEL IN FILE: a prompt cache of mlx-lm's as a session"},
    {KVT_OPT_ARGS, .name = "FILE", .at = AT(files), .help = "what the action needs"},
    {KVT_OPT_GROUP, .name = "Import: the text that the cache is of, which mlx-lm does not keep, one of"},
    {KVT_OPT_TEXT, .name = "prompt", .brief = "p", .value = "TEXT", .at = AT(prompt), .help = "the text itself",
     .not_with = "file ids"},
    {KVT_OPT_TEXT, .name = "file", .brief = "f", .value = "FILE", .at = AT(file), .help = "read it from a file, as it is",
     .not_with = "ids"},
    {KVT_OPT_TEXT, .name = "ids", .value = "FILE", .at = AT(ids), .help = "its token ids, one per line"},
    {KVT_OPT_GROUP, .name = "Export"},
    {KVT_OPT_TEXT, .name = "layout", .value = "NAME", .words = "old new", .at = AT(layout),
     .help = "old: for mlx-lm up to 0.31.3; new: from 0.32 on"},
    {KVT_OPT_FLAG, .name = "as-f16", .at = AT(as_f16),
     .help = "decode whatever the cache is, and write f16"},
    {KVT_OPT_TEXT, .name = "model-name", .value = "NAME", .at = AT(name),
     .help = "what mlx_lm is to take for the model's name or path; the GGUF file's own name if it is absent"},
    {KVT_OPT_TEXT, .name = "kv", .value = "K[,V]", .at = AT(kv),
     .help = "the codecs of the session, where their names are too long for the file to tell"},
    {KVT_OPT_INT, .name = "sink", .value = "N", .at = AT(sink), .max = 1 << 30, .help = "the sink that the session was made with"},
    {KVT_OPT_INT, .name = "tail", .value = "N", .at = AT(tail), .max = 1 << 30, .help = "and the tail"},
    {KVT_OPT_GROUP, .name = "Both"},
    {KVT_OPT_FLAG, .name = "gguf-order", .at = AT(as_in_gguf),
     .help = "leave keys in the order of the GGUF file: for models that MLX runs with rope_traditional"},
};
/* clang-format on */

/* ---- show ------------------------------------------------------------------------------------------------------------- */

static enum kvt_status add_session(struct kvt_buf *out, const char *path, struct kvt_error *err) {
    struct kvt_session_info info;
    char size[KVT_TERM_BYTES_MAX];
    KVT_TRY(kvt_session_peek(&info, path, err));
    KVT_TRY(kvt_buf_addf(out, "session    %d tokens, %s\n", info.n_tokens, kvt_term_bytes(size, info.bytes)));
    KVT_TRY(kvt_buf_addf(out, "cache      %s, %d layers\n", info.kv, info.n_layers));
    KVT_TRY(kvt_buf_addf(out, "model      %016llx\n", (unsigned long long)info.model));
    return kvt_buf_addf(out, "beside it  %llu bytes%s\n", (unsigned long long)info.extra_bytes,
                        info.extra_bytes ? ": a conversation" : "");
}

/* The codecs of a prompt cache as a plan's string: that of layer 0, and the layers that differ. */
static enum kvt_status add_plan(struct kvt_buf *out, const struct kvt_mlx_cache *cache) {
    const char *first = kvt_mlx_cache_layer(cache, 0, NULL);
    KVT_TRY(kvt_buf_addf(out, "%s", first));
    for (int l = 1; l < kvt_mlx_cache_n_layers(cache); l++) {
        const char *name = kvt_mlx_cache_layer(cache, l, NULL);
        if (strcmp(name, first) != 0) KVT_TRY(kvt_buf_addf(out, ":%d=%s", l, name));
    }
    return KVT_OK;
}

static enum kvt_status add_mlx(struct kvt_buf *out, const char *path, struct kvt_error *err) {
    static const char *const layouts[] = {[KVT_MLX_LAYOUT_OLD] = "old", [KVT_MLX_LAYOUT_NEW] = "new"};
    struct kvt_mlx_cache *cache = NULL;
    struct kvt_layer_shape shape;
    KVT_TRY(kvt_mlx_cache_open(&cache, path, NULL, err));
    const char *model = kvt_mlx_cache_entry(cache, "model");
    (void)kvt_mlx_cache_layer(cache, 0, &shape);
    enum kvt_status status = kvt_buf_addf(out, "mlx-lm     %lld rows, %s layout\ncache      ",
                                          (long long)kvt_mlx_cache_n_rows(cache), layouts[kvt_mlx_cache_layout(cache)]);
    if (status == KVT_OK) status = add_plan(out, cache);
    if (status == KVT_OK)
        status = kvt_buf_addf(out, ", %d layers of %d KV heads of %d and %d elements\nmodel      %s\n",
                              kvt_mlx_cache_n_layers(cache), shape.n_kv_heads, shape.k_size, shape.v_size,
                              model ? model : "not named");
    kvt_mlx_cache_close(cache);
    return status;
}

static bool is_safetensors(const char *path) {
    unsigned char head[9];
    FILE *file = fopen(path, "rbe");
    const bool read = file && fread(head, 1, sizeof head, file) == sizeof head;
    if (file) fclose(file);
    return read && head[8] == '{';
}

static enum kvt_status show(const struct settings *s, struct kvt_error *err) {
    struct kvt_buf report;
    const char *path = s->files.items[0];
    kvt_buf_init(&report, NULL, REPORT_MAX);
    enum kvt_status status = is_safetensors(path) ? add_mlx(&report, path, err) : add_session(&report, path, err);
    if (status == KVT_OK) status = kvt_term_write(report.data, report.len, err);
    kvt_buf_finish(&report);
    return status;
}

/* ---- models and sessions ---------------------------------------------------------------------------------------------- */

struct work {
    const struct settings *settings;
    struct kvt_engine engine;
    struct kvt_session *session, *decoded; /* decoded: in f16, if that is asked for */
    struct kvt_ids ids;
    struct kvt_buf text;
};

static enum kvt_status open_session(struct kvt_session **out, struct work *w, const char *kv, int64_t n_rows,
                                    bool is_wide, struct kvt_error *err) {
    if (n_rows > INT32_MAX) return kvt_fail(err, KVT_ERR_LIMIT, "%lld rows are too many", (long long)n_rows);
    const struct kvt_session_options o = {.kv = kv,
                                          .sink = is_wide ? 0 : (int)w->settings->sink,
                                          .tail = is_wide ? 0 : (int)w->settings->tail,
                                          .n_ctx = KVT_MAX(1, (int)n_rows),
                                          .beyond = true,
                                          .n_batch = KVT_TILE_ROWS,
                                          .n_keep = 1,
                                          .parallel = &w->engine.parallel};
    return kvt_session_create(out, w->engine.model, &o, err);
}

static enum kvt_status load_model(struct work *w, const char *path, struct kvt_error *err) {
    KVT_TRY(kvt_engine_open(&w->engine, 0, false, err));
    return kvt_engine_load(&w->engine, path, NULL, err);
}

static void finish(struct work *w) {
    kvt_buf_finish(&w->text);
    kvt_ids_finish(&w->ids);
    kvt_session_destroy(w->decoded);
    kvt_session_destroy(w->session);
    kvt_engine_close(&w->engine);
}

/* ---- export ----------------------------------------------------------------------------------------------------------- */

static enum kvt_status parse_layout(enum kvt_mlx_layout *out, const char *name, struct kvt_error *err) {
    *out = strcmp(name, "old") == 0 ? KVT_MLX_LAYOUT_OLD : KVT_MLX_LAYOUT_NEW;
    if (strcmp(name, "old") == 0 || strcmp(name, "new") == 0) return KVT_OK;
    return kvt_fail(err, KVT_ERR_ARG, "--layout takes old or new, not '%s'", name);
}

/* The tokens as text, for an import: mlx-lm keeps entries that it does not know. */
static enum kvt_status write_tokens(struct work *w, struct kvt_error *err) {
    enum kvt_status status = KVT_OK;
    const int32_t *ids = kvt_session_ids(w->session);
    for (int i = 0; i < kvt_session_n_rows(w->session) && status == KVT_OK; i++)
        status = kvt_buf_addf(&w->text, "%s%d", i ? " " : "", (int)ids[i]);
    return status == KVT_OK ? status : kvt_fail(err, status, "out of memory for the tokens' text");
}

static enum kvt_status export_all(struct work *w, struct kvt_error *err) {
    const struct settings *s = w->settings;
    const char *path = s->files.items[1];
    struct kvt_session_info info;
    enum kvt_mlx_layout layout;
    KVT_TRY(parse_layout(&layout, s->layout, err));
    KVT_TRY(kvt_session_peek(&info, path, err));
    KVT_TRY(load_model(w, s->files.items[0], err));
    KVT_TRY(open_session(&w->session, w, s->kv ? s->kv : info.kv, info.n_tokens, false, err));
    KVT_TRY(kvt_session_load(w->session, path, NULL, err));
    if (s->as_f16) {
        KVT_TRY(open_session(&w->decoded, w, "f16", info.n_tokens, true, err));
        KVT_TRY(kvt_session_copy(w->decoded, w->session, err));
    }
    KVT_TRY(write_tokens(w, err));
    const struct kvt_mlx_entry entries[] = {{"model", s->name ? s->name : kvt_model_info(w->engine.model).name},
                                            {"tokenizer_config", "{}"},
                                            {"tokens", kvt_buf_text(&w->text)}};
    return kvt_session_export(s->as_f16 ? w->decoded : w->session, s->files.items[2], layout, s->as_in_gguf, entries,
                              KVT_ARRAY_LEN(entries), err);
}

/* ---- import ----------------------------------------------------------------------------------------------------------- */

static enum kvt_status read_tokens(struct work *w, const char *text, struct kvt_error *err) {
    for (char *end; *text; text = *end ? end + 1 : end) {
        const long id = strtol(text, &end, 10);
        if (end == text || (*end && *end != ' ') || id < 0 || id > INT32_MAX)
            return kvt_fail(err, KVT_ERR_FORMAT,
                            "the prompt cache's entry 'tokens' is no list of tokens; name the text");
        if (kvt_ids_add(&w->ids, (int32_t)id) != KVT_OK)
            return kvt_fail(err, KVT_ERR_NOMEM, "out of memory for the tokens");
    }
    return KVT_OK;
}

/* The tokens that a prompt cache is of. */
static enum kvt_status find_tokens(struct work *w, const struct kvt_mlx_cache *cache, struct kvt_error *err) {
    const struct settings *s = w->settings;
    const struct kvt_text *text = kvt_model_text(w->engine.model);
    const char *path = s->ids ? s->ids : s->file, *tokens = kvt_mlx_cache_entry(cache, "tokens");
    if (path) KVT_TRY(kvt_file_read(&w->text, path, err));
    if (s->ids)
        return kvt_fidelity_read_ids(&w->ids, kvt_buf_text(&w->text), w->text.len, path,
                                     kvt_model_info(w->engine.model).n_vocab, err);
    if (s->file) return kvt_gen_encode(text, kvt_buf_text(&w->text), w->text.len, &w->ids, err);
    if (s->prompt) return kvt_gen_encode(text, s->prompt, strlen(s->prompt), &w->ids, err);
    if (tokens) return read_tokens(w, tokens, err);
    return kvt_fail(err, KVT_ERR_ARG, "mlx-lm does not keep what its cache is of: name the text with -p, -f or --ids");
}

static enum kvt_status import_cache(struct work *w, const struct kvt_mlx_cache *cache, struct kvt_error *err) {
    struct kvt_buf plan;
    enum kvt_status status;
    kvt_buf_init(&plan, NULL, PLAN_TEXT_MAX);
    KVT_TRY_OUT(add_plan(&plan, cache));
    KVT_TRY_OUT(load_model(w, w->settings->files.items[0], err));
    KVT_TRY_OUT(find_tokens(w, cache, err));
    KVT_TRY_OUT(open_session(&w->session, w, kvt_buf_text(&plan), kvt_mlx_cache_n_rows(cache), true, err));
    KVT_TRY_OUT(kvt_session_import(w->session, cache, w->settings->as_in_gguf, w->ids.data, (int)w->ids.len, err));
    KVT_TRY_OUT(kvt_session_save(w->session, w->settings->files.items[2], NULL, 0, err));
out:
    kvt_buf_finish(&plan);
    return status;
}

static enum kvt_status import_all(struct work *w, struct kvt_error *err) {
    struct kvt_mlx_cache *cache = NULL;
    KVT_TRY(kvt_mlx_cache_open(&cache, w->settings->files.items[1], NULL, err));
    const enum kvt_status status = import_cache(w, cache, err);
    kvt_mlx_cache_close(cache);
    return status;
}

/* ---- actions ---------------------------------------------------------------------------------------------------------- */

static enum kvt_status work(const struct settings *s, enum kvt_status (*all)(struct work *w, struct kvt_error *err),
                            struct kvt_error *err) {
    struct work w = {.settings = s};
    kvt_ids_init(&w.ids, NULL);
    kvt_buf_init(&w.text, NULL, FILE_BYTES_MAX);
    const enum kvt_status status = all(&w, err);
    finish(&w);
    return status;
}

static enum kvt_status run(const void *settings, struct kvt_error *err) {
    static const struct {
        const char *name, *needs;
        int n;
    } actions[] = {{"show", "FILE", 1}, {"export", "MODEL FILE OUT", 3}, {"import", "MODEL IN FILE", 3}};
    const struct settings *s = settings;
    size_t i = 0;
    while (i < KVT_ARRAY_LEN(actions) && strcmp(s->action, actions[i].name) != 0) i++;
    if (i == KVT_ARRAY_LEN(actions))
        return kvt_fail(err, KVT_ERR_ARG, "cache does show, export or import, not '%s'", s->action);
    if (s->files.n != actions[i].n) return kvt_fail(err, KVT_ERR_ARG, "cache %s takes %s", s->action, actions[i].needs);
    if (i != 2 && (s->prompt || s->file || s->ids))
        return kvt_fail(err, KVT_ERR_ARG, "-p, -f and --ids are for cache import");
    return i == 0 ? show(s, err) : work(s, i == 1 ? export_all : import_all, err);
}

const struct kvt_command kvt_command_cache = {
    .name = "cache",
    .about = "show a file that holds a cache; exchange prompt caches with mlx-lm",
    .text =
        "Files of kvtile run --prompt-cache and kvtile chat hold a session: tokens and their cache. mlx-lm's prompt caches hold rows alone, in 16 "
        "bits or affine codes. Nothing is encoded again on the way, so what mlx-lm has too can be exported: f16, bf16 or one affine "
        "codec, without sink, tail, start and window; with --as-f16 everything. Keys of models whose RoPE turns neighbours (llama in GGUF) are put in "
        "mlx-lm's order; affine codes can then be moved only if a group has all elements that RoPE turns, as affine4g64 has where heads are of 64.",
    .examples = "kvtile cache show talk.kvt\n"
                "kvtile cache export model.gguf prompt.kvt prompt.safetensors\n"
                "kvtile cache import model.gguf cache.safetensors prompt.kvt -f prompt.txt",
    .options = options,
    .n_options = KVT_ARRAY_LEN(options),
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
    .run = run,
};
