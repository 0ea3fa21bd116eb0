/* SPDX-License-Identifier: Apache-2.0
 * The report as one HTML page: no script, nothing from elsewhere, light and dark. */
#include <string.h>

#include "base/check.h"
#include "fidelity/plot.h"
#include "fidelity/report.h"

enum { TEXT_BYTES_MAX = 1 << 16, CONTEXT_TOKENS = 24, PARTS_OPEN = 8 };

static const char style[] =
    ":root{--bg:#fff;--good:#1a7f4b;--marginal:#9a6700;--bad:#b3261e;" KVT_PLOT_LIGHT "}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#14171b;--good:#5bc98b;--marginal:#e0b04a;--bad:#ff8a80;" KVT_PLOT_DARK
    "}}\n"
    "*{box-sizing:border-box}body{margin:0 auto;padding:1.5rem 1rem 4rem;max-width:72rem;background:var(--bg);color:var(--fg);"
    "font:16px/1.5 system-ui,sans-serif}h1{font-size:1.5rem;line-height:1.25;margin:0 0 .5rem;overflow-wrap:anywhere}"
    "h2{font-size:1.15rem;margin:2.2rem 0 .6rem}p{max-width:46rem}.soft,figcaption+*+.soft{color:var(--soft)}\n"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.8125rem;font-variant-numeric:tabular-nums}"
    "th,td{padding:.25rem .45rem;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}"
    "th{color:var(--soft);font-weight:600}th:first-child,td:first-child,td.text{text-align:left}"
    "th:first-child,td:first-child{position:sticky;left:0;background:var(--bg)}"
    "td.text{font-family:ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere;min-width:14rem}"
    ".good{color:var(--good)}.marginal{color:var(--marginal)}.bad{color:var(--bad)}\n"
    ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(28rem,100%),1fr));gap:1rem}"
    "figure{margin:0;padding:.8rem;background:var(--panel);border-radius:.5rem;min-width:0}figcaption{font-weight:600}"
    "svg{display:block;width:100%;height:auto}" KVT_PLOT_STYLE
    ".legend{list-style:none;margin:.4rem 0 0;padding:0;display:flex;flex-wrap:wrap;gap:.2rem .9rem;font-size:.8125rem}"
    ".legend li::before{content:\"\";display:inline-block;width:.7em;height:.7em;border-radius:50%;background:var(--c);"
    "margin-right:.4em}\n"
    "pre{background:var(--panel);padding:.8rem;border-radius:.5rem;white-space:pre-wrap;overflow-wrap:anywhere;font-size:.875rem}"
    "details{margin:.5rem 0}summary{cursor:pointer}dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;"
    "font-size:.875rem}dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}\n";

static enum kvt_status add_text(struct kvt_buf *out, const char *text) {
    return kvt_html_text(out, text, strlen(text));
}

/* Tiers are classes of the style. */
static bool is_tier(const char *text) {
    return strcmp(text, "good") == 0 || strcmp(text, "marginal") == 0 || strcmp(text, "bad") == 0;
}

/* A paragraph in the colour of notes. */
static enum kvt_status add_note(struct kvt_buf *out, const char *text) {
    KVT_TRY(kvt_buf_addf(out, "<p class=\"soft\">"));
    KVT_TRY(add_text(out, text));
    return kvt_buf_addf(out, "</p>\n");
}

/* <td>text</td> */
static enum kvt_status add_cell(struct kvt_buf *out, const char *class, const char *text, size_t len) {
    KVT_TRY(class ? kvt_buf_addf(out, "<td class=\"%s\">", class) : kvt_buf_addf(out, "<td>"));
    KVT_TRY(kvt_html_text(out, text, len));
    return kvt_buf_addf(out, "</td>");
}

static enum kvt_status begin_table(struct kvt_buf *out, const char *name, const struct kvt_report_cells *heads) {
    KVT_TRY(kvt_buf_addf(out, "<div class=\"scroll\"><table><thead><tr><th>%s</th>", name));
    for (int i = 0; i < heads->n; i++) KVT_TRY(kvt_buf_addf(out, "<th>%s</th>", heads->text[i]));
    return kvt_buf_addf(out, "</tr></thead><tbody>\n");
}

static enum kvt_status add_cells(struct kvt_buf *out, const char *name, const struct kvt_report_cells *cells) {
    KVT_TRY(kvt_buf_addf(out, "<tr>"));
    KVT_TRY(add_cell(out, NULL, name, strlen(name)));
    for (int i = 0; i < cells->n; i++)
        KVT_TRY(add_cell(out, is_tier(cells->text[i]) ? cells->text[i] : NULL, cells->text[i], strlen(cells->text[i])));
    return kvt_buf_addf(out, "</tr>\n");
}

static enum kvt_status end_table(struct kvt_buf *out) { return kvt_buf_addf(out, "</tbody></table></div>\n"); }

/* ---- head and caches -------------------------------------------------------------------------------------------------- */

static enum kvt_status add_head(struct kvt_buf *out, const struct kvt_report *r, struct kvt_buf *text) {
    KVT_TRY(kvt_buf_addf(
        out, "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
             "content=\"width=device-width,initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n"
             "<title>"));
    KVT_TRY(add_text(out, r->about->model));
    KVT_TRY(kvt_buf_addf(out, ": what its cache costs</title>\n<style>\n%s</style>\n<h1>", style));
    KVT_TRY(add_text(out, r->about->model));
    KVT_TRY(kvt_buf_addf(out, ": what its cache costs</h1>\n<p>"));
    text->len = 0;
    KVT_TRY(kvt_report_head(text, r));
    for (const char *line = kvt_buf_text(text); *line;) {
        const size_t len = strcspn(line, "\n");
        KVT_TRY(kvt_html_text(out, line, len));
        KVT_TRY(kvt_buf_addf(out, "<br>\n"));
        line += len + (line[len] == '\n');
    }
    return kvt_buf_addf(out, "</p>\n");
}

static enum kvt_status add_caches(struct kvt_buf *out, const struct kvt_report *r, struct kvt_buf *text) {
    struct kvt_report_cells cells;
    KVT_TRY(kvt_buf_addf(out, "<h2>Caches</h2>\n"));
    kvt_report_cache_heads(&cells, r);
    KVT_TRY(begin_table(out, "cache", &cells));
    for (int i = -1; (i = kvt_report_next_cache(r, i)) >= 0;) {
        kvt_report_cache_cells(&cells, r, i);
        KVT_TRY(add_cells(out, r->result->rows[i].kv, &cells));
    }
    KVT_TRY(end_table(out));
    text->len = 0;
    KVT_TRY(kvt_report_notes(text, r));
    return add_note(out, kvt_buf_text(text));
}

static enum kvt_status add_plan(struct kvt_buf *out, const struct kvt_report *r, struct kvt_buf *text) {
    const struct kvt_sweep *s = r->about->sweep;
    if (!s || !s->search) return KVT_OK;
    KVT_TRY(kvt_buf_addf(out, "<h2>Plan</h2>\n<pre>"));
    KVT_TRY(add_text(out, s->search->kv));
    KVT_TRY(kvt_buf_addf(out, "</pre>\n<p>"));
    text->len = 0;
    KVT_TRY(kvt_report_plan(text, r));
    KVT_TRY(add_text(out, kvt_buf_text(text)));
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
    struct kvt_report_cells cells;
    if (!kvt_report_has(r, KVT_FIDELITY_CONTROL)) return KVT_OK;
    KVT_TRY(kvt_buf_addf(out, "<h2>Quantizer and path</h2>\n"));
    kvt_report_control_heads(&cells, r);
    KVT_TRY(begin_table(out, "cache", &cells));
    for (int i = -1; (i = kvt_report_next_cache(r, i)) >= 0;)
        if (kvt_report_control_cells(&cells, r, i)) KVT_TRY(add_cells(out, r->result->rows[i].kv, &cells));
    KVT_TRY(end_table(out));
    return add_note(out, kvt_report_control_note);
}

static int count_parts(const struct kvt_report *r, int of) {
    int n = 0;
    for (int i = 0; i < r->result->n_rows; i++) n += kvt_report_is_part(r, i, of);
    return n;
}

static enum kvt_status add_parts_of(struct kvt_buf *out, const struct kvt_report *r, int of) {
    const int n = count_parts(r, of);
    struct kvt_report_cells cells;
    if (n == 0) return KVT_OK;
    KVT_TRY(kvt_buf_addf(out, n > PARTS_OPEN ? "<details><summary>" : "<details open><summary>"));
    KVT_TRY(add_text(out, r->result->rows[of].kv));
    KVT_TRY(kvt_buf_addf(out, ", %s</summary>\n", kvt_leg_name(r->about->cases[of].leg)));
    kvt_report_part_heads(&cells);
    KVT_TRY(begin_table(out, "part", &cells));
    for (int i = 0; i < r->result->n_rows; i++) {
        char part[KVT_PART_BYTES];
        if (!kvt_report_is_part(r, i, of)) continue;
        kvt_report_part(part, r, i);
        kvt_report_part_cells(&cells, r, i);
        KVT_TRY(add_cells(out, part, &cells));
    }
    KVT_TRY(end_table(out));
    return kvt_buf_addf(out, "</details>\n");
}

static enum kvt_status add_parts(struct kvt_buf *out, const struct kvt_report *r) {
    int n = 0;
    for (int i = -1; (i = kvt_report_next_cache(r, i)) >= 0;) n += count_parts(r, i);
    if (n == 0) return KVT_OK;
    KVT_TRY(kvt_buf_addf(out, "<h2>Where the loss comes from</h2>\n"));
    for (int i = -1; (i = kvt_report_next_cache(r, i)) >= 0;) KVT_TRY(add_parts_of(out, r, i));
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
    static const struct kvt_report_cells heads = {
        .text = {"chunk", "position", "text before", "likeliest", "its share now", "likeliest now"}, .n = 6};
    KVT_TRY(kvt_buf_addf(out, "<h2>Worst positions</h2>\n"));
    for (int i = -1; (i = kvt_report_next_cache(r, i)) >= 0;) {
        const struct kvt_fidelity_row *row = &r->result->rows[i];
        if (row->kl.max <= 0) continue;
        KVT_TRY(kvt_buf_addf(out, "<details><summary>"));
        KVT_TRY(add_text(out, row->kv));
        KVT_TRY(
            kvt_buf_addf(out, ", %s: up to %.3g nats</summary>\n", kvt_leg_name(r->about->cases[i].leg), row->kl.max));
        KVT_TRY(begin_table(out, "KL", &heads));
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
    KVT_TRY_OUT(add_head(out, &r, &text));
    KVT_TRY_OUT(add_caches(out, &r, &text));
    KVT_TRY_OUT(add_plan(out, &r, &text));
    KVT_TRY_OUT(add_plots(out, &r));
    KVT_TRY_OUT(add_controls(out, &r));
    KVT_TRY_OUT(add_parts(out, &r));
    KVT_TRY_OUT(add_worst(out, &r, &text));
    KVT_TRY_OUT(add_rerun(out, about));
out:
    kvt_buf_finish(&text);
    return status;
}
