/* SPDX-License-Identifier: Apache-2.0
 * kvtile inspect FILE: what a GGUF file holds and what its cache would cost. */
#include <string.h>

#include "base/check.h"
#include "cli/command.h"
#include "cli/inspect.h"
#include "cli/plan_file.h"
#include "cli/term.h"
#include "model/model.h"

enum { NAME_WIDTH_MAX = 44, VALUE_WIDTH = 40, ARRAY_SHOWN = 3, REPORT_MAX = 1 << 28 };

/* ---- values ----------------------------------------------------------------------------------------------------------- */

/* Bytes of the UTF-8 character at data, 0 if there is none. */
static size_t character(const unsigned char *data, size_t len) {
    const size_t n = data[0] < 0x80 ? 1 : data[0] < 0xC2 ? 0 : data[0] < 0xE0 ? 2 : data[0] < 0xF0 ? 3 : 4;
    if (n == 0 || n > len || data[0] > 0xF4) return 0;
    for (size_t i = 1; i < n; i++)
        if ((data[i] & 0xC0) != 0x80) return 0;
    if ((data[0] == 0xE0 && data[1] < 0xA0) || (data[0] == 0xED && data[1] > 0x9F)) return 0; /* overlong, surrogate */
    if ((data[0] == 0xF0 && data[1] < 0x90) || (data[0] == 0xF4 && data[1] > 0x8F)) return 0;
    return n;
}

enum kvt_status kvt_inspect_escape(struct kvt_buf *out, const char *data, size_t len, size_t max) {
    const unsigned char *p = (const unsigned char *)data;
    size_t n_shown = 0;
    for (size_t i = 0; i < len; n_shown++) {
        if (n_shown >= max) return kvt_buf_addf(out, "...");
        const size_t n = character(p + i, len - i);
        if (p[i] == '\n')
            KVT_TRY(kvt_buf_addf(out, "\\n"));
        else if (p[i] == '\t')
            KVT_TRY(kvt_buf_addf(out, "\\t"));
        else if (n == 0 || p[i] < ' ' || p[i] == 127 || (p[i] == 0xC2 && p[i + 1] < 0xA0))
            KVT_TRY(kvt_buf_addf(out, "\\x%02x", p[i]));
        else
            KVT_TRY(kvt_buf_add(out, p + i, n));
        i += n == 0 || p[i] < 0x80 || (p[i] == 0xC2 && p[i + 1] < 0xA0) ? 1 : n;
    }
    return KVT_OK;
}

static enum kvt_status add_element(struct kvt_buf *out, const struct kvt_gguf_value *v, uint64_t i, size_t width) {
    const enum kvt_gguf_kind kind = v->kind == KVT_GGUF_ARRAY ? v->element : v->kind;
    if (kind == KVT_GGUF_STRING) return kvt_inspect_escape(out, v->text[i].data, v->text[i].len, width);
    int64_t n;
    double x;
    if (kind == KVT_GGUF_BOOL) return kvt_buf_addf(out, kvt_gguf_as_i64(v, i, &n) && n != 0 ? "true" : "false");
    if (kind != KVT_GGUF_F32 && kind != KVT_GGUF_F64 && kvt_gguf_as_i64(v, i, &n))
        return kvt_buf_addf(out, "%lld", (long long)n);
    return kvt_gguf_as_f64(v, i, &x) ? kvt_buf_addf(out, "%.7g", x) : kvt_buf_addf(out, "?");
}

static enum kvt_status add_value(struct kvt_buf *out, const struct kvt_gguf_value *v) {
    if (v->kind != KVT_GGUF_ARRAY) return add_element(out, v, 0, VALUE_WIDTH);
    KVT_TRY(kvt_buf_addf(out, "%llu x %s:", (unsigned long long)v->count, kvt_gguf_kind_name(v->element)));
    for (uint64_t i = 0; i < v->count; i++) {
        if (i == ARRAY_SHOWN) return kvt_buf_addf(out, ", ...");
        KVT_TRY(kvt_buf_addf(out, i ? ", " : " "));
        KVT_TRY(add_element(out, v, i, VALUE_WIDTH / ARRAY_SHOWN));
    }
    return KVT_OK;
}

/* ---- the report ------------------------------------------------------------------------------------------------------- */

/* "  NAME", padded to a column of `width`. */
static enum kvt_status add_name(struct kvt_buf *out, const char *name, int width) {
    const size_t start = out->len;
    KVT_TRY(kvt_buf_addf(out, "  "));
    KVT_TRY(kvt_inspect_escape(out, name, strlen(name), 100));
    return kvt_buf_addf(out, "%*s  ", KVT_MAX(width + 2 - (int)(out->len - start), 0), "");
}

static int longer(int width, const char *name) { return KVT_MAX(width, (int)KVT_MIN(strlen(name), NAME_WIDTH_MAX)); }

static enum kvt_status add_metadata(struct kvt_buf *out, const struct kvt_gguf *gguf) {
    int width = 0;
    for (size_t i = 0; i < kvt_gguf_n_keys(gguf); i++) width = longer(width, kvt_gguf_key(gguf, i));
    KVT_TRY(kvt_buf_addf(out, "\nMetadata\n"));
    for (size_t i = 0; i < kvt_gguf_n_keys(gguf); i++) {
        KVT_TRY(add_name(out, kvt_gguf_key(gguf, i), width));
        KVT_TRY(add_value(out, kvt_gguf_value(gguf, i)));
        KVT_TRY(kvt_buf_addf(out, "\n"));
    }
    return KVT_OK;
}

static enum kvt_status add_tensors(struct kvt_buf *out, const struct kvt_gguf *gguf) {
    char size[KVT_TERM_BYTES_MAX];
    int width = 0;
    for (size_t i = 0; i < kvt_gguf_n_tensors(gguf); i++) width = longer(width, kvt_gguf_tensor(gguf, i)->name);
    KVT_TRY(kvt_buf_addf(out, "\nTensors\n"));
    for (size_t i = 0; i < kvt_gguf_n_tensors(gguf); i++) {
        const struct kvt_gguf_tensor *t = kvt_gguf_tensor(gguf, i);
        KVT_TRY(add_name(out, t->name, width));
        KVT_TRY(kvt_buf_addf(out, "%-7s", t->type->name));
        const size_t start = out->len;
        for (int d = 0; d < t->n_dims; d++)
            KVT_TRY(kvt_buf_addf(out, "%s%lld", d ? " x " : " ", (long long)t->dims[d]));
        KVT_TRY(kvt_buf_addf(out, "%*s %9s\n", KVT_MAX(20 - (int)(out->len - start), 0), "",
                             kvt_term_bytes(size, t->bytes)));
    }
    return KVT_OK;
}

static enum kvt_status add_shape(struct kvt_buf *out, const struct kvt_shape *shape) {
    const struct kvt_layer_shape *first = &shape->layers[0];
    bool same = true;
    for (int i = 1; i < shape->n_layers; i++) same &= memcmp(&shape->layers[i], first, sizeof *first) == 0;
    return kvt_buf_addf(out, "  %d layers%s, KV heads: %d, rows of %d (K) and %d (V) elements\n", shape->n_layers,
                        same ? "" : " that differ, of which the first", first->n_kv_heads, first->k_size,
                        first->v_size);
}

static enum kvt_status add_cost(struct kvt_buf *out, const char *name, int width, const struct kvt_inspect_cost *cost) {
    char size[KVT_TERM_BYTES_MAX];
    KVT_TRY(add_name(out, name, width));
    if (cost->why_not[0]) return kvt_buf_addf(out, "%s\n", cost->why_not);
    KVT_TRY(kvt_buf_addf(out, "%5.2f %12s", cost->bits, kvt_term_bytes(size, (uint64_t)(cost->token_bytes + 0.5))));
    for (int i = 0; i < KVT_INSPECT_N_LENGTHS; i++)
        KVT_TRY(kvt_buf_addf(out, " %12s", kvt_term_bytes(size, cost->bytes[i])));
    return kvt_buf_addf(out, "\n");
}

static enum kvt_status add_cache(struct kvt_buf *out, const struct kvt_inspect_cache *cache,
                                 const struct kvt_inspect_ask *asks, int n_asks) {
    static const struct kvt_inspect_ask plain = {.name = "f16", .kv = "f16"};
    int width = 14;
    KVT_TRY(kvt_buf_addf(out, "\nCache\n"));
    if (!cache->arch_is_known)
        KVT_TRY(kvt_buf_addf(out, "  The engine does not run this architecture; it knows %s.\n", kvt_arch_names()));
    if (cache->why_not[0]) return kvt_buf_addf(out, "  Its cost is not known: %s.\n", cache->why_not);
    KVT_TRY(add_shape(out, &cache->shape));
    const struct kvt_inspect_cost f16 = kvt_inspect_cost(cache, &plain);
    if (f16.why_not[0]) return kvt_buf_addf(out, "  No codec stores its rows: %s.\n", f16.why_not);
    if (cache->caveat[0]) KVT_TRY(kvt_buf_addf(out, "  %s\n", cache->caveat));
    for (int i = 0; i < n_asks; i++) width = longer(width, asks[i].name);
    KVT_TRY(kvt_buf_addf(out, "\n  %-*s %6s %12s %12s %12s %12s\n", width, "codec", "bits", "a token", "4K", "32K",
                         "128K"));
    for (int i = 0; i < n_asks; i++) {
        const struct kvt_inspect_cost cost = kvt_inspect_cost(cache, &asks[i]);
        KVT_TRY(add_cost(out, asks[i].name, width, &cost));
    }
    return KVT_OK;
}

static enum kvt_status inspect_text(struct kvt_buf *out, const char *path, const struct kvt_gguf *gguf,
                                    const struct kvt_inspect_cache *cache, const struct kvt_inspect_ask *asks,
                                    int n_asks) {
    char size[KVT_TERM_BYTES_MAX];
    uint64_t n_params = 0;
    for (size_t i = 0; i < kvt_gguf_n_tensors(gguf); i++) {
        const struct kvt_gguf_tensor *t = kvt_gguf_tensor(gguf, i);
        n_params += (uint64_t)t->dims[0] * (uint64_t)t->dims[1] * (uint64_t)t->dims[2] * (uint64_t)t->dims[3];
    }
    KVT_TRY(kvt_inspect_escape(out, path, strlen(path), 1000));
    KVT_TRY(kvt_buf_addf(out, "\n  GGUF version %d, %s, %zu keys, %zu tensors, %.1f M parameters\n",
                         kvt_gguf_version(gguf), kvt_term_bytes(size, kvt_gguf_bytes(gguf)), kvt_gguf_n_keys(gguf),
                         kvt_gguf_n_tensors(gguf), (double)n_params / 1e6));
    KVT_TRY(add_metadata(out, gguf));
    KVT_TRY(add_tensors(out, gguf));
    return add_cache(out, cache, asks, n_asks);
}

/* ---- the command ------------------------------------------------------------------------------------------------------ */

struct settings {
    const char *file;
    struct kvt_opt_texts kv;
    bool json;
};

static const struct settings defaults;

#define AT(field) offsetof(struct settings, field)

/* clang-format off */
static const struct kvt_opt options[] = {
    {KVT_OPT_ARG, .name = "FILE", .at = AT(file), .help = "a GGUF file"},
    {KVT_OPT_TEXTS, .name = "kv", .value = "K[,V]", .at = AT(kv),
     .help = "a cache to tell the cost of, in the place of all codecs: codecs of keys and values, also with layers that differ, or a plan, "
             "@FILE; give it again for more"},
    {KVT_OPT_FLAG, .name = "json", .at = AT(json), .help = "write the report as JSON, with whole strings"},
};
/* clang-format on */

/* The caches to tell the cost of, and what their plans' files say. */
struct asks {
    struct kvt_inspect_ask *items;
    struct kvt_plan_file *plans;
    int n;
    size_t n_taken;
};

static void finish_asks(struct asks *a) {
    kvt_give(&kvt_allocator_libc, a->items, a->n_taken, sizeof *a->items);
    kvt_give(&kvt_allocator_libc, a->plans, a->n_taken, sizeof *a->plans);
}

static enum kvt_status take_asks(struct asks *a, const struct settings *s, struct kvt_error *err) {
    while (s->kv.n == 0 && kvt_kv_at(a->n_taken)) a->n_taken++;
    if (s->kv.n > 0) a->n_taken = (size_t)s->kv.n;
    a->n = (int)a->n_taken;
    a->items = kvt_take_zero(&kvt_allocator_libc, a->n_taken, sizeof *a->items);
    a->plans = kvt_take_zero(&kvt_allocator_libc, a->n_taken, sizeof *a->plans);
    if (!a->items || !a->plans) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the names of %d caches", a->n);
    for (int i = 0; i < a->n; i++) {
        const char *name = s->kv.n ? s->kv.items[i] : kvt_kv_at((size_t)i);
        a->items[i] = (struct kvt_inspect_ask){.name = name, .kv = name};
    }
    return KVT_OK;
}

/* Reads plans' files, which are held against the model they were made for. */
static enum kvt_status read_plans(struct asks *a, const char *path, struct kvt_error *err) {
    struct kvt_model *model = NULL;
    enum kvt_status status = KVT_OK;
    for (int i = 0; i < a->n && status == KVT_OK; i++) {
        struct kvt_inspect_ask *ask = &a->items[i];
        if (ask->name[0] != '@') continue;
        if (!model) KVT_TRY(kvt_model_load(&model, path, NULL, err));
        status = kvt_plan_file_resolve(&a->plans[i], ask->name, 0, 0, model, err);
        *ask = (struct kvt_inspect_ask){ask->name, a->plans[i].kv, a->plans[i].sink, a->plans[i].tail};
    }
    kvt_model_destroy(model);
    return status;
}

/* What was named must be a cache that the file's rows fit into. */
static enum kvt_status check_asks(const struct asks *a, const struct kvt_inspect_cache *cache, struct kvt_error *err) {
    if (cache->why_not[0]) return KVT_OK;
    for (int i = 0; i < a->n; i++) {
        const struct kvt_inspect_cost cost = kvt_inspect_cost(cache, &a->items[i]);
        if (cost.why_not[0]) return kvt_fail(err, KVT_ERR_ARG, "%s", cost.why_not);
    }
    return KVT_OK;
}

static enum kvt_status print(const struct settings *s, const struct kvt_gguf *gguf,
                             const struct kvt_inspect_cache *cache, const struct asks *a, struct kvt_error *err) {
    struct kvt_buf text;
    kvt_buf_init(&text, NULL, REPORT_MAX);
    const enum kvt_status status = s->json ? kvt_inspect_json(&text, s->file, gguf, cache, a->items, a->n)
                                           : inspect_text(&text, s->file, gguf, cache, a->items, a->n);
    return kvt_term_write_report(&text, status, err);
}

static enum kvt_status report(const struct settings *s, const struct kvt_gguf *gguf, struct kvt_error *err) {
    struct kvt_inspect_cache cache = {.caveat = ""};
    struct asks asks = {.n = 0};
    enum kvt_status status;
    KVT_TRY_OUT(take_asks(&asks, s, err));
    KVT_TRY_OUT(read_plans(&asks, s->file, err));
    KVT_TRY_OUT(kvt_inspect_cache_init(&cache, gguf, err));
    if (s->kv.n) KVT_TRY_OUT(check_asks(&asks, &cache, err));
    status = print(s, gguf, &cache, &asks, err);
out:
    kvt_inspect_cache_finish(&cache);
    finish_asks(&asks);
    return status;
}

static enum kvt_status run(const void *settings, struct kvt_error *err) {
    const struct settings *s = settings;
    struct kvt_gguf *gguf = NULL;
    KVT_TRY(kvt_gguf_open(&gguf, s->file, NULL, err));
    const enum kvt_status status = report(s, gguf, err);
    kvt_gguf_close(gguf);
    return status;
}

const struct kvt_command kvt_command_inspect = {
    .name = "inspect",
    .about = "show what a GGUF file holds and what its cache would cost",
    .text =
        "Lists the metadata (long texts and arrays cut) and the tensors of a file, and what its key/value cache takes a "
        "token and at 4K, 32K and 128K tokens in each codec: allocated bytes, exactly. 'bits' is what an element of "
        "a key or value takes, scales and padding included. Any GGUF file will do; the engine need not know its "
        "architecture.",
    .examples = "kvtile inspect models/plain.gguf\n"
                "kvtile inspect models/plain.gguf --kv kivi4g32,affine4g64 --kv @plan.json\n"
                "kvtile inspect --json models/plain.gguf",
    .options = options,
    .n_options = KVT_ARRAY_LEN(options),
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
    .run = run,
};
