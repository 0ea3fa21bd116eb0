/* SPDX-License-Identifier: Apache-2.0
 * The report as one HTML page: no script, nothing from elsewhere, light and dark. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "fidelity/plot.h"
#include "fidelity/report.h"

enum { TEXT_BYTES_MAX = 1 << 16, CONTEXT_TOKENS = 24, PARTS_OPEN = 8 };

static const char style[] =
    ":root{--bg:#fff;--fg:#1b1e23;--soft:#5c6470;--rule:#d9dde3;--panel:#f6f7f9;--good:#1a7f4b;--marginal:#9a6700;--bad:#b3261e;"
    "--c0:#0b62c4;--c1:#d9480f;--c2:#2b8a3e;--c3:#9c36b5;--c4:#a67c00;--c5:#0c8599;--c6:#c2255c;--c7:#5c6470}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e6e9ee;--soft:#9aa4b2;--rule:#323943;--panel:#1c2127;"
    "--good:#5bc98b;--marginal:#e0b04a;--bad:#ff8a80;"
    "--c0:#6cb0ff;--c1:#ff9a62;--c2:#7bd389;--c3:#d9a1ec;--c4:#e3c050;--c5:#62d0e0;--c6:#ff8ab3;--c7:#aab4c2}}\n"
    "*{box-sizing:border-box}body{margin:0 auto;padding:1.5rem 1rem 4rem;max-width:72rem;background:var(--bg);color:var(--fg);"
    "font:16px/1.5 system-ui,sans-serif}h1{font-size:1.5rem;line-height:1.25;margin:0 0 .5rem;overflow-wrap:anywhere}"
    "h2{font-size:1.15rem;margin:2.2rem 0 .6rem}p{max-width:46rem}.soft,figcaption+*+.soft{color:var(--soft)}\n"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}"
    "th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}"
    "th{color:var(--soft);font-weight:600}th:first-child,td:first-child,td.text{text-align:left}"
    "td.text{font-family:ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere;min-width:14rem}"
    ".good{color:var(--good)}.marginal{color:var(--marginal)}.bad{color:var(--bad)}\n"
    ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(28rem,100%),1fr));gap:1rem}"
    "figure{margin:0;padding:.8rem;background:var(--panel);border-radius:.5rem;min-width:0}figcaption{font-weight:600}"
    "svg{display:block;width:100%;height:auto}svg text{fill:var(--soft);font:13px system-ui,sans-serif}"
    "svg .label{fill:var(--fg);font-size:12px}.grid{stroke:var(--rule);stroke-width:1}"
    ".axis{fill:none;stroke:var(--soft);stroke-width:1}.line{fill:none;stroke-width:1.8}.dashed{stroke-dasharray:5 4}\n"
    ".c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}.c5{--c:var(--c5)}"
    ".c6{--c:var(--c6)}.c7{--c:var(--c7)}.line{stroke:var(--c)}.mark{fill:var(--c)}"
    ".legend{list-style:none;margin:.4rem 0 0;padding:0;display:flex;flex-wrap:wrap;gap:.2rem .9rem;font-size:.8125rem}"
    ".legend li::before{content:\"\";display:inline-block;width:.7em;height:.7em;border-radius:50%;background:var(--c);"
    "margin-right:.4em}\n"
    "pre{background:var(--panel);padding:.8rem;border-radius:.5rem;white-space:pre-wrap;overflow-wrap:anywhere;font-size:.875rem}"
    "details{margin:.5rem 0}summary{cursor:pointer}dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;"
    "font-size:.875rem}dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}\n";

static enum kvt_status add_text(struct kvt_buf *out, const char *text) {
    return kvt_html_text(out, text, strlen(text));
}

/* <td>text</td> */
static enum kvt_status add_cell(struct kvt_buf *out, const char *class, const char *text, size_t len) {
    KVT_TRY(class ? kvt_buf_addf(out, "<td class=\"%s\">", class) : kvt_buf_addf(out, "<td>"));
    KVT_TRY(kvt_html_text(out, text, len));
    return kvt_buf_addf(out, "</td>");
}

static enum kvt_status begin_table(struct kvt_buf *out, const char *const *heads, int n) {
    KVT_TRY(kvt_buf_addf(out, "<div class=\"scroll\"><table><thead><tr>"));
    for (int i = 0; i < n; i++) {
        KVT_TRY(kvt_buf_addf(out, "<th>"));
        KVT_TRY(add_text(out, heads[i]));
        KVT_TRY(kvt_buf_addf(out, "</th>"));
    }
    return kvt_buf_addf(out, "</tr></thead><tbody>\n");
}

static enum kvt_status end_table(struct kvt_buf *out) { return kvt_buf_addf(out, "</tbody></table></div>\n"); }

/* ---- head and caches -------------------------------------------------------------------------------------------------- */

static enum kvt_status add_head(struct kvt_buf *out, const struct kvt_report *r) {
    const struct kvt_fidelity_about *a = r->about;
    KVT_TRY(kvt_buf_addf(
        out, "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
             "content=\"width=device-width,initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n"
             "<title>"));
    KVT_TRY(add_text(out, a->model));
    KVT_TRY(kvt_buf_addf(out, ": what its cache costs</title>\n<style>\n%s</style>\n<h1>", style));
    KVT_TRY(add_text(out, a->model));
    KVT_TRY(kvt_buf_addf(out, ": what its cache costs</h1>\n<p>On "));
    KVT_TRY(add_text(out, a->text));
    KVT_TRY(kvt_buf_addf(out, ": %d chunk%s of %d tokens, %lld positions, against a ", r->result->n_chunks,
                         r->result->n_chunks == 1 ? "" : "s", a->chunk, (long long)r->result->n_positions));
    KVT_TRY(add_text(out, a->reference));
    KVT_TRY(kvt_buf_addf(out, " cache"));
    for (int leg = 0; leg < KVT_LEG_COUNT; leg++)
        if (!isnan(r->result->ppl_ref[leg]))
            KVT_TRY(
                kvt_buf_addf(out, ", perplexity %.4f (%s)", r->result->ppl_ref[leg], kvt_leg_name((enum kvt_leg)leg)));
    if (a->n_ctx_train && a->chunk > a->n_ctx_train)
        KVT_TRY(
            kvt_buf_addf(out, ". A chunk is longer than the %d tokens that the model was trained for", a->n_ctx_train));
    if (a->warmup) KVT_TRY(kvt_buf_addf(out, ". The first %d positions of each chunk are not scored", a->warmup));
    return kvt_buf_addf(out, ".</p>\n");
}

static enum kvt_status add_row(struct kvt_buf *out, const struct kvt_report *r, int i) {
    const struct kvt_fidelity_row *row = &r->result->rows[i];
    const struct kvt_fidelity_case *c = &r->about->cases[i];
    const struct kvt_sweep *s = r->about->sweep;
    const double bits = s ? s->points[i].bits : row->bits_per_element;
    const double bytes = (double)(s ? s->points[i].bytes : row->cache_bytes);
    const char *tier = kvt_fidelity_tier(row);
    KVT_TRY(kvt_buf_addf(out, "<tr>"));
    KVT_TRY(add_cell(out, NULL, row->kv, strlen(row->kv)));
    if (s) KVT_TRY(kvt_buf_addf(out, "<td>%s</td>", s->points[i].on_front ? "front" : ""));
    KVT_TRY(kvt_buf_addf(out, "<td>%s</td><td>%d / %d</td><td>%.2f</td><td>%.2f</td><td>%.3g</td>",
                         kvt_leg_name(c->leg), c->sink, c->tail, bits, bytes / (1 << 20), row->kl.mean));
    if (isnan(row->kl_ci.low))
        KVT_TRY(kvt_buf_addf(out, "<td></td>"));
    else
        KVT_TRY(kvt_buf_addf(out, "<td>%.3g &#8211; %.3g</td>", row->kl_ci.low, row->kl_ci.high));
    return kvt_buf_addf(out,
                        "<td>%.3g</td><td>%.3g</td><td>%.3g</td><td>%.3g</td><td>%.2f</td><td>%+.2f</td><td>%+.4f</td>"
                        "<td class=\"%s\">%s</td></tr>\n",
                        row->kl.median, row->kl.p99, row->kl.p999, row->kl.max, 100 * row->flips, 100 * row->top_change,
                        row->ppl - r->result->ppl_ref[c->leg], tier, tier);
}

static enum kvt_status add_rows(struct kvt_buf *out, const struct kvt_report *r) {
    static const char *const heads[] = {"cache",   "",        "leg",        "sink / tail", "bits",  "MiB",
                                        "KL mean", "95 %",    "median",     "p99",         "p99.9", "max",
                                        "flips %", "top-1 %", "perplexity", "tier"};
    static const char *const plain[] = {"cache",   "leg",     "sink / tail", "bits",       "MiB",
                                        "KL mean", "95 %",    "median",      "p99",        "p99.9",
                                        "max",     "flips %", "top-1 %",     "perplexity", "tier"};
    const bool sweep = r->about->sweep != NULL;
    KVT_TRY(kvt_buf_addf(out, "<h2>Caches</h2>\n"));
    KVT_TRY(begin_table(out, sweep ? heads : plain, (int)(sweep ? KVT_ARRAY_LEN(heads) : KVT_ARRAY_LEN(plain))));
    if (sweep)
        for (int i = -1; (i = kvt_report_next_by_bytes(r, i)) >= 0;) KVT_TRY(add_row(out, r, i));
    for (int i = 0; !sweep && i < r->result->n_rows; i++)
        if (kvt_report_is(r, i, KVT_FIDELITY_SCHEME)) KVT_TRY(add_row(out, r, i));
    KVT_TRY(end_table(out));
    if (sweep)
        KVT_TRY(kvt_buf_addf(out,
                             "<p class=\"soft\">Sizes are of a cache of %lld rows. On the front: no other is as small "
                             "and as close.</p>\n",
                             (long long)r->about->sweep->at));
    return kvt_buf_addf(
        out, "<p class=\"soft\">KL(reference || cache) in nats a position; the interval is a bootstrap by "
             "chunk. Tiers are limits of mlx-quant-fidelity on KL mean, p99 and flips; they are checked "
             "against no task: a good cache may still lose a needle, a bad one may still answer well.</p>\n");
}

static enum kvt_status add_plan(struct kvt_buf *out, const struct kvt_report *r) {
    const struct kvt_sweep *s = r->about->sweep;
    if (!s || !s->search) return KVT_OK;
    KVT_TRY(kvt_buf_addf(out, "<h2>Plan</h2>\n<pre>"));
    KVT_TRY(add_text(out, s->search->kv));
    KVT_TRY(kvt_buf_addf(out,
                         "</pre>\n<p>Sink %d, tail %d: %.2f MiB of %.2f at %lld rows; measured KL mean %.3g, p99 %.3g, "
                         "flips %.2f %%. Its parts, measured alone on %d chunk%s, sum to %.3g.",
                         s->sink, s->tail, (double)s->search->bytes / (1 << 20), (double)s->budget / (1 << 20),
                         (long long)s->at, s->plan->kl.mean, s->plan->kl.p99, 100 * s->plan->flips, s->search_chunks,
                         s->search_chunks == 1 ? "" : "s", s->search->expected_kl));
    if (s->best >= 0) {
        KVT_TRY(kvt_buf_addf(out, " The best swept cache of no more bytes is "));
        KVT_TRY(add_text(out, r->result->rows[s->best].kv));
        KVT_TRY(kvt_buf_addf(out, " with %.3g.", r->result->rows[s->best].kl.mean));
    }
    return kvt_buf_addf(out, "</p>\n");
}

/* ---- plots, controls, parts ------------------------------------------------------------------------------------------- */

static enum kvt_status add_plots(struct kvt_buf *out, const struct kvt_report *r) {
    KVT_TRY(kvt_buf_addf(out, "<h2>Plots</h2>\n<div class=\"plots\">\n"));
    KVT_TRY(kvt_report_pareto(out, r));
    KVT_TRY(kvt_report_depth(out, r));
    KVT_TRY(kvt_report_layers(out, r));
    KVT_TRY(kvt_report_tail(out, r));
    return kvt_buf_addf(out, "</div>\n");
}

static enum kvt_status add_controls(struct kvt_buf *out, const struct kvt_report *r) {
    static const char *const heads[] = {"cache", "leg", "KL mean", "quantizer", "path"};
    if (!kvt_report_has(r, KVT_FIDELITY_CONTROL)) return KVT_OK;
    KVT_TRY(kvt_buf_addf(out, "<h2>Quantizer and path</h2>\n"));
    KVT_TRY(begin_table(out, heads, KVT_ARRAY_LEN(heads)));
    for (int i = 0; i < r->result->n_rows; i++) {
        const int control = kvt_report_is(r, i, KVT_FIDELITY_SCHEME) ? kvt_report_find(r, KVT_FIDELITY_CONTROL, i) : -1;
        if (control < 0) continue;
        const double all = r->result->rows[i].kl.mean, quantizer = r->result->rows[control].kl.mean;
        KVT_TRY(kvt_buf_addf(out, "<tr>"));
        KVT_TRY(add_cell(out, NULL, r->result->rows[i].kv, strlen(r->result->rows[i].kv)));
        KVT_TRY(kvt_buf_addf(out, "<td>%s</td><td>%.3g</td><td>%.3g</td><td>%+.2g</td></tr>\n",
                             kvt_leg_name(r->about->cases[i].leg), all, quantizer, all - quantizer));
    }
    KVT_TRY(end_table(out));
    return kvt_buf_addf(
        out, "<p class=\"soft\">Quantizer: the same decoded rows through plain attention in 32 bits. Path: what "
             "the cache's own arithmetic adds.</p>\n");
}

static bool is_part(const struct kvt_report *r, int i, int of) {
    return r->about->cases[i].of == of && !kvt_report_is(r, i, KVT_FIDELITY_SCHEME) &&
           !kvt_report_is(r, i, KVT_FIDELITY_CONTROL);
}

static int count_parts(const struct kvt_report *r, int of) {
    int n = 0;
    for (int i = 0; i < r->result->n_rows; i++) n += is_part(r, i, of);
    return n;
}

static enum kvt_status add_parts_of(struct kvt_buf *out, const struct kvt_report *r, int of) {
    static const char *const heads[] = {"part", "KL mean", "of the whole"};
    const double all = r->result->rows[of].kl.mean;
    bool begun = false;
    for (int i = 0; i < r->result->n_rows; i++) {
        char part[KVT_PART_BYTES];
        if (!is_part(r, i, of)) continue;
        if (!begun) {
            KVT_TRY(
                kvt_buf_addf(out, count_parts(r, of) > PARTS_OPEN ? "<details><summary>" : "<details open><summary>"));
            KVT_TRY(add_text(out, r->result->rows[of].kv));
            KVT_TRY(kvt_buf_addf(out, ", %s</summary>\n", kvt_leg_name(r->about->cases[of].leg)));
            KVT_TRY(begin_table(out, heads, KVT_ARRAY_LEN(heads)));
        }
        begun = true;
        kvt_report_part(part, r, i);
        KVT_TRY(kvt_buf_addf(out, "<tr><td>%s</td><td>%.3g</td>", part, r->result->rows[i].kl.mean));
        KVT_TRY(all > 0 ? kvt_buf_addf(out, "<td>%.1f %%</td></tr>\n", 100 * r->result->rows[i].kl.mean / all)
                        : kvt_buf_addf(out, "<td></td></tr>\n"));
    }
    if (!begun) return KVT_OK;
    KVT_TRY(end_table(out));
    return kvt_buf_addf(out, "</details>\n");
}

static enum kvt_status add_parts(struct kvt_buf *out, const struct kvt_report *r) {
    bool any = false;
    for (int i = 0; i < r->result->n_rows; i++) any |= is_part(r, i, r->about->cases[i].of);
    if (!any) return KVT_OK;
    KVT_TRY(kvt_buf_addf(out, "<h2>Where the loss comes from</h2>\n"));
    for (int i = 0; i < r->result->n_rows; i++)
        if (kvt_report_is(r, i, KVT_FIDELITY_SCHEME)) KVT_TRY(add_parts_of(out, r, i));
    return KVT_OK;
}

/* ---- worst positions -------------------------------------------------------------------------------------------------- */

static enum kvt_status add_token(struct kvt_buf *out, const struct kvt_report *r, int32_t id, double p,
                                 struct kvt_buf *text) {
    text->len = 0;
    KVT_TRY(kvt_report_token(text, r, id));
    KVT_TRY(kvt_buf_addf(out, "<td><code>"));
    KVT_TRY(kvt_html_text(out, kvt_buf_text(text), text->len));
    KVT_TRY(kvt_buf_addf(out, "</code>"));
    if (p >= 0) KVT_TRY(kvt_buf_addf(out, " %.3f", p));
    return kvt_buf_addf(out, "</td>");
}

static enum kvt_status add_position(struct kvt_buf *out, const struct kvt_report *r,
                                    const struct kvt_fidelity_position *at, struct kvt_buf *text) {
    const struct kvt_score *s = &at->score;
    KVT_TRY(kvt_buf_addf(out, "<tr><td>%.3g</td><td>%d</td><td>%d</td>", s->kl, at->chunk, at->position));
    text->len = 0;
    const bool there = kvt_report_context(text, r, at, CONTEXT_TOKENS);
    KVT_TRY(add_cell(out, "text", there ? kvt_buf_text(text) : "", there ? text->len : 0));
    KVT_TRY(add_token(out, r, s->top_ref, (double)s->p_ref, text));
    KVT_TRY(kvt_buf_addf(out, "<td>%.3f</td>", (double)s->p));
    KVT_TRY(add_token(out, r, s->top, -1, text));
    return kvt_buf_addf(out, "</tr>\n");
}

static enum kvt_status add_worst(struct kvt_buf *out, const struct kvt_report *r, struct kvt_buf *text) {
    static const char *const heads[] = {"KL",        "chunk",         "position",     "text before",
                                        "likeliest", "its share now", "likeliest now"};
    KVT_TRY(kvt_buf_addf(out, "<h2>Worst positions</h2>\n"));
    for (int i = 0; i < r->result->n_rows; i++) {
        const struct kvt_fidelity_row *row = &r->result->rows[i];
        if (!kvt_report_is(r, i, KVT_FIDELITY_SCHEME) || row->kl.max <= 0) continue;
        KVT_TRY(kvt_buf_addf(out, "<details><summary>"));
        KVT_TRY(add_text(out, row->kv));
        KVT_TRY(
            kvt_buf_addf(out, ", %s: up to %.3g nats</summary>\n", kvt_leg_name(r->about->cases[i].leg), row->kl.max));
        KVT_TRY(begin_table(out, heads, KVT_ARRAY_LEN(heads)));
        for (int w = 0; w < row->n_worst; w++) KVT_TRY(add_position(out, r, &row->worst[w], text));
        KVT_TRY(end_table(out));
        KVT_TRY(kvt_buf_addf(out, "</details>\n"));
    }
    return KVT_OK;
}

static enum kvt_status add_rerun(struct kvt_buf *out, const struct kvt_fidelity_about *a) {
    if (!a->command) return KVT_OK;
    KVT_TRY(kvt_buf_addf(out, "<h2>To run it again</h2>\n<pre>"));
    KVT_TRY(add_text(out, a->command));
    KVT_TRY(kvt_buf_addf(
        out, "</pre>\n<dl><dt>program</dt><dd>kvtile %s</dd><dt>level</dt><dd>%s, %d thread%s</dd><dt>BLAS</dt><dd>",
        kvt_version(), a->level, a->n_threads, a->n_threads == 1 ? "" : "s"));
    KVT_TRY(add_text(out, a->blas));
    return kvt_buf_addf(
        out,
        "</dd><dt>model</dt><dd>%016llx</dd><dt>text</dt><dd>%016llx (ids)</dd><dt>hashes</dt><dd>XXH3, 64 "
        "bits</dd></dl>\n",
        (unsigned long long)a->model_hash, (unsigned long long)a->text_hash);
}

enum kvt_status kvt_fidelity_html(struct kvt_buf *out, const struct kvt_fidelity_result *result,
                                  const struct kvt_fidelity_about *about) {
    const struct kvt_report r = {result, about};
    struct kvt_buf text;
    enum kvt_status status;
    kvt_buf_init(&text, NULL, TEXT_BYTES_MAX);
    KVT_TRY_OUT(add_head(out, &r));
    KVT_TRY_OUT(add_rows(out, &r));
    KVT_TRY_OUT(add_plan(out, &r));
    KVT_TRY_OUT(add_plots(out, &r));
    KVT_TRY_OUT(add_controls(out, &r));
    KVT_TRY_OUT(add_parts(out, &r));
    KVT_TRY_OUT(add_worst(out, &r, &text));
    KVT_TRY_OUT(add_rerun(out, about));
out:
    kvt_buf_finish(&text);
    return status;
}
