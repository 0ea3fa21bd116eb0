/* SPDX-License-Identifier: Apache-2.0
 * The report: a table for people, JSON for programs. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "fidelity/fidelity.h"

/* Inclusive limits; all three must hold. Facts of mlx-quant-fidelity 0.10.0 (IonDen), its KV probe. */
static const struct tier {
    const char *name;
    double mean, p99, flips;
} tiers[] = {
    {"good", 0.01, 0.10, 0.01},
    {"marginal", 0.10, 1.00, 0.05},
};

const char *kvt_fidelity_tier(const struct kvt_fidelity_row *row) {
    for (size_t i = 0; i < KVT_ARRAY_LEN(tiers); i++)
        if (row->kl.mean <= tiers[i].mean && row->kl.p99 <= tiers[i].p99 && row->flips <= tiers[i].flips)
            return tiers[i].name;
    return "bad";
}

/* ---- table ------------------------------------------------------------------------------------------------------------ */

static int name_width(const struct kvt_fidelity_result *result) {
    size_t width = strlen("cache");
    for (int i = 0; i < result->n_rows; i++) width = KVT_MAX(width, strlen(result->rows[i].kv));
    return (int)width;
}

static enum kvt_status add_row(struct kvt_buf *out, const struct kvt_fidelity_row *row, double ppl_ref, int width) {
    return kvt_buf_addf(out, "%-*s %6.2f %9.2f %9.3g %8.2g %9.3g %8.3g %8.3g %7.2f %10.4f %+10.4f  %s\n", width,
                        row->kv, row->bits_per_element, (double)row->cache_bytes / (1 << 20), row->kl.mean,
                        row->kl_stderr, row->kl.median, row->kl.p99, row->kl.max, 100 * row->flips, row->ppl,
                        row->ppl - ppl_ref, kvt_fidelity_tier(row));
}

enum kvt_status kvt_fidelity_table(struct kvt_buf *out, const struct kvt_fidelity_result *result,
                                   const struct kvt_fidelity_about *about) {
    const int width = name_width(result);
    KVT_TRY(kvt_buf_addf(out, "%s on %s: %d chunk%s of %d tokens, %lld positions\n", about->model, about->text,
                         result->n_chunks, result->n_chunks == 1 ? "" : "s", about->chunk,
                         (long long)result->n_positions));
    KVT_TRY(kvt_buf_addf(out, "reference: %s cache, perplexity %.4f", about->reference, result->ppl_ref));
    if (about->sink || about->tail)
        KVT_TRY(kvt_buf_addf(out, "; caches keep %d first and %d newest rows in 16 bits", about->sink, about->tail));
    KVT_TRY(kvt_buf_addf(out, "\n\n%-*s %6s %9s %9s %8s %9s %8s %8s %7s %10s %10s  %s\n", width, "cache", "bits", "MiB",
                         "KL mean", "s.e.", "median", "p99", "max", "flips %", "ppl", "change", "tier"));
    for (int i = 0; i < result->n_rows; i++) KVT_TRY(add_row(out, &result->rows[i], result->ppl_ref, width));
    return kvt_buf_addf(
        out,
        "\nKL(reference || cache) in nats a position; bits and MiB are what is allocated at a chunk's end."
        "\nTiers are limits on KL mean, p99 and flips (good %g, %g, %g %%; marginal %g, %g, %g %%), checked"
        "\nagainst no task: a good row may still lose a needle, a bad one may still answer well.\n",
        tiers[0].mean, tiers[0].p99, 100 * tiers[0].flips, tiers[1].mean, tiers[1].p99, 100 * tiers[1].flips);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------------- */

static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

/* A name that may not be UTF-8: then its bytes past ASCII become '?'. */
static json_t *text(const char *s) {
    json_t *value = json_string(s);
    char ascii[256];
    if (value) return value;
    snprintf(ascii, sizeof ascii, "%s", s);
    for (char *p = ascii; *p; p++)
        if ((unsigned char)*p > 126) *p = '?';
    return json_string(ascii);
}

static json_t *depths(const double *kl) {
    json_t *list = json_array();
    for (int i = 0; i < KVT_FIDELITY_DEPTHS; i++) json_array_append_new(list, number(kl[i]));
    return list;
}

static json_t *scheme(const struct kvt_fidelity_row *row, double ppl_ref) {
    return json_pack("{s:o, s:o, s:I, s:{s:o, s:o, s:o, s:o, s:o, s:o}, s:o, s:o, s:o, s:s, s:o}", "kv", text(row->kv),
                     "bits_per_element", number(row->bits_per_element), "cache_bytes", (json_int_t)row->cache_bytes,
                     "kl", "mean", number(row->kl.mean), "median", number(row->kl.median), "p99", number(row->kl.p99),
                     "max", number(row->kl.max), "stderr", number(row->kl_stderr), "by_depth", depths(row->kl_depth),
                     "flips", number(row->flips), "ppl", number(row->ppl), "ppl_ref", number(ppl_ref), "tier",
                     kvt_fidelity_tier(row), "seconds", number(row->seconds));
}

static int add_bytes(const char *data, size_t len, void *out) { return kvt_buf_add(out, data, len) == KVT_OK ? 0 : -1; }

enum kvt_status kvt_fidelity_json(struct kvt_buf *out, const struct kvt_fidelity_result *result,
                                  const struct kvt_fidelity_about *about) {
    json_t *schemes = json_array();
    for (int i = 0; i < result->n_rows; i++)
        if (json_array_append_new(schemes, scheme(&result->rows[i], result->ppl_ref)) != 0) break;
    const bool whole = json_array_size(schemes) == (size_t)result->n_rows;
    json_t *root = json_pack("{s:o, s:o, s:s, s:i, s:i, s:I, s:i, s:i, s:o}", "model", text(about->model), "text",
                             text(about->text), "reference", about->reference, "chunk", about->chunk, "chunks",
                             result->n_chunks, "positions", (json_int_t)result->n_positions, "sink", about->sink,
                             "tail", about->tail, "schemes", schemes);
    const int failed = !root || json_dump_callback(root, add_bytes, out, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) != 0;
    json_decref(root);
    return whole && !failed ? kvt_buf_add(out, "\n", 1) : KVT_ERR_NOMEM;
}
