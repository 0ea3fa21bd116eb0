/* SPDX-License-Identifier: Apache-2.0
 * The report of `kvtile plan`. */
#include "cli/plan_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "json/json.h"

static const char *size_of(char text[KVT_TERM_BYTES_MAX], uint64_t bytes) { return kvt_term_bytes(text, bytes); }

/* The row of the chosen cache, or NULL. */
static const struct kvt_plan_row *row_of_use(const struct kvt_plan_report *r) {
    const char *kv = kvt_plan_kv(r->use->plan);
    for (int i = 0; i < r->n_rows; i++)
        if (r->rows[i].plan && strcmp(kvt_plan_kv(r->rows[i].plan), kv) == 0 && r->rows[i].sink == r->use->sink &&
            r->rows[i].tail == r->use->tail)
            return &r->rows[i];
    return NULL;
}

static bool fits(const struct kvt_plan_report *r, const struct kvt_plan_row *row) {
    return r->cache_memory == 0 || row->longest >= r->n_ctx;
}

/* ---- for people ------------------------------------------------------------------------------------------------------- */

static enum kvt_status add_head(struct kvt_buf *out, const struct kvt_plan_report *r) {
    const struct kvt_model_info info = kvt_model_info(r->model);
    char a[KVT_TERM_BYTES_MAX], b[KVT_TERM_BYTES_MAX], c[KVT_TERM_BYTES_MAX], d[KVT_TERM_BYTES_MAX];
    KVT_TRY(kvt_buf_addf(out, "model      %s: %s, %s, %s; %d layers, %d KV heads of %d, trained for %d tokens\n",
                         info.name, info.arch, info.types, size_of(a, info.file_bytes), info.n_layers, info.n_kv_heads,
                         info.k_size, info.n_ctx_train));
    KVT_TRY(kvt_buf_addf(out, "context    %lld tokens", (long long)r->n_ctx));
    if (r->n_seqs > 1) KVT_TRY(kvt_buf_addf(out, " in each of %lld sequences", (long long)r->n_seqs));
    if (r->n_ctx > info.n_ctx_train) KVT_TRY(kvt_buf_addf(out, ", more than the model was trained for"));
    if (r->cache_memory == 0) return kvt_buf_addf(out, "\nmemory     unknown; name it with --memory or --kv-memory\n");
    if (r->memory == 0) return kvt_buf_addf(out, "\nmemory     %s for the cache\n", size_of(a, r->cache_memory));
    return kvt_buf_addf(out, "\nmemory     %s%s: %s of weights, %s to compute, %s for the cache\n",
                        size_of(a, r->memory), r->is_asked ? "" : " free now", size_of(b, r->weights),
                        size_of(c, r->computation), size_of(d, r->cache_memory));
}

static enum kvt_status add_row(struct kvt_buf *out, const struct kvt_plan_report *r, const struct kvt_plan_row *row,
                               uint64_t f16) {
    char size[KVT_TERM_BYTES_MAX], layers[32];
    if (!row->plan) return kvt_buf_addf(out, "%-22s %s\n", row->name, row->why_not);
    snprintf(layers, sizeof layers, "%d/%d", kvt_plan_n_encoded(row->plan), kvt_plan_n_layers(row->plan));
    KVT_TRY(kvt_buf_addf(out, "%-22s %5d %5d %7s  %9s", row->name, row->sink, row->tail, layers,
                         size_of(size, row->bytes)));
    KVT_TRY(f16 ? kvt_buf_addf(out, " %7.3f", (double)row->bytes / (double)f16) : kvt_buf_addf(out, " %7s", "-"));
    if (r->cache_memory)
        KVT_TRY(kvt_buf_addf(out, "  %10lld %-4s", (long long)row->longest, fits(r, row) ? "fits" : ""));
    if (r->n_tokens && isnan(row->kl)) KVT_TRY(kvt_buf_addf(out, " %9s %7s", "-", "-"));
    if (r->n_tokens && !isnan(row->kl)) KVT_TRY(kvt_buf_addf(out, " %9.2g %7.2f", row->kl, 100 * row->flips));
    while (out->len > 0 && out->data[out->len - 1] == ' ') out->len--;
    return kvt_buf_addf(out, "\n");
}

static enum kvt_status add_use(struct kvt_buf *out, const struct kvt_plan_report *r) {
    if (!r->use) return kvt_buf_addf(out, "\nuse        nothing: %s\n", r->why_none);
    const struct kvt_plan_row *row = row_of_use(r);
    const char *name = r->use->picked, *why = strstr(r->use->why, ": ");
    char size[KVT_TERM_BYTES_MAX];
    const bool encodes = kvt_plan_n_encoded(r->use->plan) > 0;
    KVT_TRY(kvt_buf_addf(out, "\nuse        %s: %s", name, encodes && why ? why + 2 : "it fits, and loses nothing"));
    if (encodes) KVT_TRY(kvt_buf_addf(out, "; it takes %s", size_of(size, r->use->bytes)));
    if (encodes && row && !isnan(row->kl)) KVT_TRY(kvt_buf_addf(out, ", KL %.2g", row->kl));
    if (r->n_ctx > kvt_model_info(r->model).n_ctx_train) return kvt_buf_addf(out, "\n");
    KVT_TRY(kvt_buf_addf(out, "\n           kvtile run %s -c %lld --kv %s", r->path, (long long)r->n_ctx, name));
    if (r->use->sink) KVT_TRY(kvt_buf_addf(out, " --sink %d", r->use->sink));
    if (r->use->tail) KVT_TRY(kvt_buf_addf(out, " --tail %d", r->use->tail));
    return kvt_buf_addf(out, "\n");
}

/* Why layers keep 16 bits, each reason once a cache. */
static enum kvt_status add_kept(struct kvt_buf *out, const struct kvt_plan_report *r) {
    for (int i = 0; i < r->n_rows; i++) {
        const char *said = NULL;
        for (int l = 0; r->rows[i].plan && l < kvt_plan_n_layers(r->rows[i].plan); l++) {
            const struct kvt_layer_plan *layer = kvt_plan_layer(r->rows[i].plan, l);
            if (layer->kept == KVT_KEPT_NOT || (said && strcmp(said, layer->reason) == 0)) continue;
            said = layer->reason;
            KVT_TRY(kvt_buf_addf(out, "%s: layer %d%s in 16 bits: %s\n", r->rows[i].name, l,
                                 l + 1 < kvt_plan_n_layers(r->rows[i].plan) ? " and on" : "", said));
        }
    }
    return KVT_OK;
}

enum kvt_status kvt_plan_report_table(struct kvt_buf *out, const struct kvt_plan_report *r) {
    KVT_TRY(add_head(out, r));
    KVT_TRY(kvt_buf_addf(out, "\n%-22s %5s %5s %7s  %9s %7s", "cache", "sink", "tail", "layers", "bytes", "of f16"));
    if (r->cache_memory) KVT_TRY(kvt_buf_addf(out, "  %10s", "longest"));
    if (r->n_tokens && r->cache_memory) KVT_TRY(kvt_buf_addf(out, "     "));
    if (r->n_tokens) KVT_TRY(kvt_buf_addf(out, " %9s %7s", "KL", "flips %"));
    KVT_TRY(kvt_buf_addf(out, "\n"));
    const uint64_t f16 = r->n_rows && strcmp(r->rows[0].name, "f16") == 0 ? r->rows[0].bytes : 0;
    for (int i = 0; i < r->n_rows; i++) KVT_TRY(add_row(out, r, &r->rows[i], f16));
    KVT_TRY(add_kept(out, r));
    if (r->n_tokens)
        KVT_TRY(kvt_buf_addf(
            out,
            "\nKL: mean divergence from f16 in nats, flips: how often the likeliest token differs, over the last %d\n"
            "of %d tokens that the model wrote; '-': not measured in time. kvtile fidelity and sweep measure at length.\n",
            r->n_scored, r->n_tokens));
    return add_use(out, r);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------------- */

static json_t *layers_of(const struct kvt_plan *plan) {
    json_t *list = json_array();
    for (int l = 0; l < kvt_plan_n_layers(plan); l++) {
        const struct kvt_layer_plan *layer = kvt_plan_layer(plan, l);
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:b, s:s}", "k", kvt_codec_info(layer->codec[KVT_SIDE_K]).name, "v",
                                        kvt_codec_info(layer->codec[KVT_SIDE_V]).name, "kept",
                                        layer->kept != KVT_KEPT_NOT, "reason", layer->reason));
    }
    return list;
}

static json_t *row_of(const struct kvt_plan_report *r, const struct kvt_plan_row *row) {
    if (!row->plan) return json_pack("{s:s, s:o}", "name", row->name, "why_not", kvt_json_text(row->why_not));
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:I, s:o, s:o, s:o, s:o, s:o}", "name", row->name, "kv",
                     kvt_plan_kv(row->plan), "sink", row->sink, "tail", row->tail, "layers_quantized",
                     kvt_plan_n_encoded(row->plan), "bytes", (json_int_t)row->bytes, "longest",
                     r->cache_memory ? json_integer(row->longest) : json_null(), "fits",
                     r->cache_memory ? json_boolean(fits(r, row)) : json_null(), "kl", kvt_json_number(row->kl),
                     "flips", kvt_json_number(row->flips), "layers", layers_of(row->plan));
}

static json_t *size_or_null(uint64_t bytes) { return bytes ? json_integer((json_int_t)bytes) : json_null(); }

enum kvt_status kvt_plan_report_json(struct kvt_buf *out, const struct kvt_plan_report *r) {
    const struct kvt_model_info info = kvt_model_info(r->model);
    json_t *rows = json_array(), *use = json_null();
    bool whole = true;
    for (int i = 0; i < r->n_rows; i++) whole &= json_array_append_new(rows, row_of(r, &r->rows[i])) == 0;
    if (r->use)
        use = json_pack("{s:s, s:s, s:i, s:i, s:I, s:o}", "name", r->use->picked, "kv", kvt_plan_kv(r->use->plan),
                        "sink", r->use->sink, "tail", r->use->tail, "bytes", (json_int_t)r->use->bytes, "why",
                        kvt_json_text(r->use->why));
    json_t *root =
        json_pack("{s:o, s:o, s:i, s:i, s:I, s:I, s:{s:o, s:I, s:I, s:o}, s:i, s:o, s:o, s:o}", "model",
                  kvt_json_text(r->path), "name", kvt_json_text(info.name), "layers", info.n_layers, "trained_for",
                  info.n_ctx_train, "context", (json_int_t)r->n_ctx, "sequences", (json_int_t)r->n_seqs, "memory",
                  "total", size_or_null(r->memory), "weights", (json_int_t)r->weights, "computation",
                  (json_int_t)r->computation, "cache", size_or_null(r->cache_memory), "measured_tokens", r->n_scored,
                  "caches", rows, "use", use, "why_none", r->use ? json_null() : kvt_json_text(r->why_none));
    return kvt_json_dump(out, root, whole, 9);
}
