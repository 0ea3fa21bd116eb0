/* SPDX-License-Identifier: Apache-2.0
 * The report as tables for people at a terminal. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "fidelity/report.h"

enum { NAME_WIDTH_MAX = 40, CONTEXT_TOKENS = 12 };

static int name_width(const struct kvt_report *r) {
    size_t width = strlen("cache");
    for (int i = 0; i < r->result->n_rows; i++)
        if (kvt_report_is(r, i, KVT_FIDELITY_SCHEME)) width = KVT_MAX(width, strlen(r->result->rows[i].kv));
    return (int)KVT_MIN(width, (size_t)NAME_WIDTH_MAX);
}

/* A row's first columns: its cache and, where rows say it, its leg. */
static enum kvt_status add_name(struct kvt_buf *out, const struct kvt_report *r, const char *name, const char *leg,
                                int width) {
    KVT_TRY(kvt_buf_addf(out, "%-*s", width, name));
    return kvt_report_names_legs(r) ? kvt_buf_addf(out, " %-7s", leg) : KVT_OK;
}

static enum kvt_status add_scheme_name(struct kvt_buf *out, const struct kvt_report *r, int i, int width) {
    return add_name(out, r, r->result->rows[i].kv, kvt_leg_name(r->about->cases[i].leg), width);
}

/* ---- caches ----------------------------------------------------------------------------------------------------------- */

static enum kvt_status add_scheme(struct kvt_buf *out, const struct kvt_report *r, int i, int width) {
    const struct kvt_fidelity_row *row = &r->result->rows[i];
    const double ppl_ref = r->result->ppl_ref[r->about->cases[i].leg];
    KVT_TRY(add_scheme_name(out, r, i, width));
    return kvt_buf_addf(out, " %6.2f %9.2f %9.3g %8.2g %9.3g %8.3g %8.3g %7.2f %10.4f %+10.4f  %s\n",
                        row->bits_per_element, (double)row->cache_bytes / (1 << 20), row->kl.mean, row->kl_stderr,
                        row->kl.median, row->kl.p99, row->kl.max, 100 * row->flips, row->ppl, row->ppl - ppl_ref,
                        kvt_fidelity_tier(row));
}

static enum kvt_status add_spread(struct kvt_buf *out, const struct kvt_report *r, int i, int width) {
    const struct kvt_fidelity_row *row = &r->result->rows[i];
    KVT_TRY(add_scheme_name(out, r, i, width));
    if (isnan(row->kl_ci.low))
        KVT_TRY(kvt_buf_addf(out, " %20s", "one chunk"));
    else
        KVT_TRY(kvt_buf_addf(out, " %9.3g - %8.3g", row->kl_ci.low, row->kl_ci.high));
    return kvt_buf_addf(out, " %9.3g %+10.3f %10.3f\n", row->kl.p999, 100 * row->top_change, 100 * row->top_rms);
}

static enum kvt_status add_schemes(struct kvt_buf *out, const struct kvt_report *r, int width) {
    KVT_TRY(kvt_buf_addf(out, "\n"));
    KVT_TRY(add_name(out, r, "cache", "leg", width));
    KVT_TRY(kvt_buf_addf(out, " %6s %9s %9s %8s %9s %8s %8s %7s %10s %10s  %s\n", "bits", "MiB", "KL mean", "s.e.",
                         "median", "p99", "max", "flips %", "ppl", "change", "tier"));
    for (int i = 0; i < r->result->n_rows; i++)
        if (kvt_report_is(r, i, KVT_FIDELITY_SCHEME)) KVT_TRY(add_scheme(out, r, i, width));
    KVT_TRY(kvt_buf_addf(out, "\n"));
    KVT_TRY(add_name(out, r, "cache", "leg", width));
    KVT_TRY(kvt_buf_addf(out, " %20s %9s %10s %10s\n", "95 % of KL mean", "p99.9", "top-1 %", "r.m.s. %"));
    for (int i = 0; i < r->result->n_rows; i++)
        if (kvt_report_is(r, i, KVT_FIDELITY_SCHEME)) KVT_TRY(add_spread(out, r, i, width));
    return KVT_OK;
}

/* ---- what explains them ----------------------------------------------------------------------------------------------- */

static enum kvt_status add_controls(struct kvt_buf *out, const struct kvt_report *r, int width) {
    if (!kvt_report_has(r, KVT_FIDELITY_CONTROL)) return KVT_OK;
    KVT_TRY(kvt_buf_addf(out, "\n"));
    KVT_TRY(add_name(out, r, "cache", "leg", width));
    KVT_TRY(kvt_buf_addf(out, " %10s = %10s + %10s\n", "KL mean", "quantizer", "path"));
    for (int i = 0; i < r->result->n_rows; i++) {
        const int control = kvt_report_find(r, KVT_FIDELITY_CONTROL, i);
        if (control < 0 || !kvt_report_is(r, i, KVT_FIDELITY_SCHEME)) continue;
        const double all = r->result->rows[i].kl.mean, quantizer = r->result->rows[control].kl.mean;
        KVT_TRY(add_scheme_name(out, r, i, width));
        KVT_TRY(kvt_buf_addf(out, " %10.3g   %10.3g   %+10.2g\n", all, quantizer, all - quantizer));
    }
    return kvt_buf_addf(out, "quantizer: the same decoded rows through plain attention in 32 bits.\n");
}

/* One part of a cache and its share of the whole loss. */
static enum kvt_status add_part(struct kvt_buf *out, const struct kvt_report *r, int i) {
    char part[KVT_PART_BYTES];
    const struct kvt_fidelity_row *row = &r->result->rows[i];
    const double all = r->result->rows[r->about->cases[i].of].kl.mean;
    kvt_report_part(part, r, i);
    KVT_TRY(kvt_buf_addf(out, "  %-30s %10.3g", part, row->kl.mean));
    if (all > 0) KVT_TRY(kvt_buf_addf(out, " %6.1f %%", 100 * row->kl.mean / all));
    return kvt_buf_addf(out, "\n");
}

static const enum kvt_fidelity_kind parts[] = {KVT_FIDELITY_SIDE, KVT_FIDELITY_LAYER, KVT_FIDELITY_KEPT,
                                               KVT_FIDELITY_HEAD, KVT_FIDELITY_REGION};

static enum kvt_status add_parts(struct kvt_buf *out, const struct kvt_report *r, int of) {
    bool any = false;
    for (size_t k = 0; k < KVT_ARRAY_LEN(parts); k++) any |= kvt_report_find(r, parts[k], of) >= 0;
    if (!any) return KVT_OK;
    KVT_TRY(kvt_buf_addf(out, "\n%s, %s: KL mean of its parts, and of the whole %.3g\n", r->result->rows[of].kv,
                         kvt_leg_name(r->about->cases[of].leg), r->result->rows[of].kl.mean));
    for (size_t k = 0; k < KVT_ARRAY_LEN(parts); k++)
        for (int i = -1; (i = kvt_report_next(r, parts[k], of, i)) >= 0;) KVT_TRY(add_part(out, r, i));
    return KVT_OK;
}

/* ---- the worst positions ---------------------------------------------------------------------------------------------- */

static enum kvt_status add_token(struct kvt_buf *out, const struct kvt_report *r, int32_t id) {
    KVT_TRY(kvt_buf_addf(out, "'"));
    KVT_TRY(kvt_report_token(out, r, id));
    return kvt_buf_addf(out, "'");
}

static enum kvt_status add_position(struct kvt_buf *out, const struct kvt_report *r,
                                    const struct kvt_fidelity_position *at) {
    const struct kvt_score *s = &at->score;
    KVT_TRY(kvt_buf_addf(out, "  %9.3g  chunk %d, position %d: ", s->kl, at->chunk, at->position));
    KVT_TRY(add_token(out, r, s->top_ref));
    KVT_TRY(kvt_buf_addf(out, " %.3f -> %.3f, now ", s->p_ref, s->p));
    KVT_TRY(add_token(out, r, s->top));
    KVT_TRY(kvt_buf_addf(out, "\n             ..."));
    (void)kvt_report_context(out, r, at, CONTEXT_TOKENS);
    return kvt_buf_addf(out, "\n");
}

static enum kvt_status add_worst(struct kvt_buf *out, const struct kvt_report *r, int i) {
    const struct kvt_fidelity_row *row = &r->result->rows[i];
    if (!r->about->ids || row->kl.max <= 0) return KVT_OK;
    KVT_TRY(kvt_buf_addf(out, "\n%s, %s: where it was worst (KL; the likeliest token's probability)\n", row->kv,
                         kvt_leg_name(r->about->cases[i].leg)));
    for (int w = 0; w < row->n_worst; w++) KVT_TRY(add_position(out, r, &row->worst[w]));
    return KVT_OK;
}

/* ---- all -------------------------------------------------------------------------------------------------------------- */

enum kvt_status kvt_fidelity_table(struct kvt_buf *out, const struct kvt_fidelity_result *result,
                                   const struct kvt_fidelity_about *about) {
    const struct kvt_report r = {result, about};
    const int width = name_width(&r);
    KVT_TRY(kvt_report_head(out, &r));
    KVT_TRY(add_schemes(out, &r, width));
    KVT_TRY(add_controls(out, &r, width));
    for (int i = 0; i < result->n_rows; i++)
        if (kvt_report_is(&r, i, KVT_FIDELITY_SCHEME)) KVT_TRY(add_parts(out, &r, i));
    for (int i = 0; i < result->n_rows; i++)
        if (kvt_report_is(&r, i, KVT_FIDELITY_SCHEME)) KVT_TRY(add_worst(out, &r, i));
    return kvt_buf_addf(
        out,
        "\nKL(reference || cache) in nats a position; bits and MiB are what is allocated at a chunk's end."
        "\nTiers are limits on KL mean, p99 and flips (good %g, %g, %g %%; marginal %g, %g, %g %%), checked"
        "\nagainst no task: a good row may still lose a needle, a bad one may still answer well.\n",
        kvt_tiers[0].mean, kvt_tiers[0].p99, 100 * kvt_tiers[0].flips, kvt_tiers[1].mean, kvt_tiers[1].p99,
        100 * kvt_tiers[1].flips);
}
