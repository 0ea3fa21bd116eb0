/* SPDX-License-Identifier: Apache-2.0
 * The report as Markdown, as a README likes it. */
#include <string.h>

#include "base/check.h"
#include "fidelity/report.h"

enum { CONTEXT_TOKENS = 12, TEXT_BYTES_MAX = 1 << 16 };

static enum kvt_status add_head(struct kvt_buf *out, const struct kvt_report *r, struct kvt_buf *text) {
    KVT_TRY(kvt_buf_addf(out, "# %s: what its cache costs\n\n", r->about->model));
    text->len = 0;
    KVT_TRY(kvt_report_head(text, r));
    for (const char *line = kvt_buf_text(text); *line;) {
        const size_t len = strcspn(line, "\n");
        KVT_TRY(kvt_buf_addf(out, "- %.*s\n", (int)len, line));
        line += len + (line[len] == '\n');
    }
    return kvt_buf_addf(out, "\n");
}

/* ---- tables ----------------------------------------------------------------------------------------------------------- */

/* Up to two columns of names, then the cells' heads. */
static enum kvt_status begin_table(struct kvt_buf *out, const char *names, const struct kvt_report_cells *heads) {
    KVT_TRY(kvt_buf_addf(out, "| %s |", names));
    for (int i = 0; i < heads->n; i++) KVT_TRY(kvt_buf_addf(out, " %s |", heads->text[i]));
    KVT_TRY(kvt_buf_addf(out, "\n|%s", strchr(names, '|') ? "---|---|" : "---|"));
    for (int i = 0; i < heads->n; i++) KVT_TRY(kvt_buf_addf(out, "---|"));
    return kvt_buf_addf(out, "\n");
}

/* The rest of a line. */
static enum kvt_status add_cells(struct kvt_buf *out, const struct kvt_report_cells *cells) {
    for (int i = 0; i < cells->n; i++) KVT_TRY(kvt_buf_addf(out, " %s |", cells->text[i]));
    return kvt_buf_addf(out, "\n");
}

static enum kvt_status add_caches(struct kvt_buf *out, const struct kvt_report *r) {
    struct kvt_report_cells cells;
    kvt_report_cache_heads(&cells, r);
    KVT_TRY(begin_table(out, "cache", &cells));
    for (int i = -1; (i = kvt_report_next_cache(r, i)) >= 0;) {
        kvt_report_cache_cells(&cells, r, i);
        KVT_TRY(kvt_buf_addf(out, "| %s |", r->result->rows[i].kv));
        KVT_TRY(add_cells(out, &cells));
    }
    KVT_TRY(kvt_buf_addf(out, "\n"));
    KVT_TRY(kvt_report_notes(out, r));
    return kvt_buf_addf(out, "\n");
}

static enum kvt_status add_plan(struct kvt_buf *out, const struct kvt_report *r) {
    const struct kvt_sweep *s = r->about->sweep;
    if (!s || !s->search) return KVT_OK;
    KVT_TRY(kvt_buf_addf(out, "\n## Plan\n\n    %s\n\n", s->search->kv));
    KVT_TRY(kvt_report_plan(out, r));
    return kvt_buf_addf(out, "\n");
}

static enum kvt_status add_controls(struct kvt_buf *out, const struct kvt_report *r) {
    struct kvt_report_cells cells;
    if (!kvt_report_has(r, KVT_FIDELITY_CONTROL)) return KVT_OK;
    KVT_TRY(kvt_buf_addf(out, "\n## Quantizer and path\n\n"));
    kvt_report_control_heads(&cells, r);
    KVT_TRY(begin_table(out, "cache", &cells));
    for (int i = -1; (i = kvt_report_next_cache(r, i)) >= 0;) {
        if (!kvt_report_control_cells(&cells, r, i)) continue;
        KVT_TRY(kvt_buf_addf(out, "| %s |", r->result->rows[i].kv));
        KVT_TRY(add_cells(out, &cells));
    }
    return kvt_buf_addf(out, "\n%s\n", kvt_report_control_note);
}

static enum kvt_status add_parts(struct kvt_buf *out, const struct kvt_report *r) {
    struct kvt_report_cells cells;
    bool begun = false;
    for (int i = 0; i < r->result->n_rows; i++) {
        char part[KVT_PART_BYTES];
        const int of = r->about->cases[i].of;
        if (!kvt_report_is_part(r, i, of)) continue;
        if (!begun) {
            KVT_TRY(kvt_buf_addf(out, "\n## Where the loss comes from\n\n"));
            kvt_report_part_heads(&cells);
            KVT_TRY(begin_table(out, "cache | part", &cells));
        }
        begun = true;
        kvt_report_part(part, r, i);
        kvt_report_part_cells(&cells, r, i);
        KVT_TRY(kvt_buf_addf(out, "| %s | %s |", r->result->rows[of].kv, part));
        KVT_TRY(add_cells(out, &cells));
    }
    return KVT_OK;
}

/* ---- worst positions -------------------------------------------------------------------------------------------------- */

/* Text in a cell: nothing that Markdown would take as its own. */
static enum kvt_status add_code(struct kvt_buf *out, const struct kvt_buf *text) {
    KVT_TRY(kvt_buf_addf(out, " `` "));
    for (size_t i = 0; i < text->len; i++)
        KVT_TRY(kvt_buf_addf(out, text->data[i] == '|' ? "\\|" : text->data[i] == '`' ? "'" : "%c", text->data[i]));
    return kvt_buf_addf(out, " `` |");
}

static enum kvt_status add_position(struct kvt_buf *out, const struct kvt_report *r,
                                    const struct kvt_fidelity_position *at, struct kvt_buf *text) {
    const struct kvt_score *s = &at->score;
    KVT_TRY(kvt_buf_addf(out, "| %.3g | %d | %d |", s->kl, at->chunk, at->position));
    text->len = 0;
    if (!kvt_report_context(text, r, at, CONTEXT_TOKENS)) return kvt_buf_addf(out, " | | |\n");
    KVT_TRY(add_code(out, text));
    const int32_t ids[] = {s->top_ref, s->top};
    for (int i = 0; i < 2; i++) {
        text->len = 0;
        KVT_TRY(kvt_report_token(text, r, ids[i]));
        KVT_TRY(add_code(out, text));
    }
    return kvt_buf_addf(out, "\n");
}

static enum kvt_status add_worst(struct kvt_buf *out, const struct kvt_report *r, struct kvt_buf *text) {
    for (int i = -1; (i = kvt_report_next_cache(r, i)) >= 0;) {
        const struct kvt_fidelity_row *row = &r->result->rows[i];
        if (row->kl.max <= 0) continue;
        KVT_TRY(
            kvt_buf_addf(out,
                         "\n### Worst positions: %s, %s\n\n| KL | chunk | position | text before | likeliest | now |\n"
                         "|---|---|---|---|---|---|\n",
                         row->kv, kvt_leg_name(r->about->cases[i].leg)));
        for (int w = 0; w < row->n_worst; w++) KVT_TRY(add_position(out, r, &row->worst[w], text));
    }
    return KVT_OK;
}

static enum kvt_status add_rerun(struct kvt_buf *out, const struct kvt_fidelity_about *a) {
    if (!a->command) return KVT_OK;
    return kvt_buf_addf(
        out,
        "\n## To run it again\n\n    %s\n\nkvtile %s, level %s, %d thread%s, BLAS %s; model %016llx, text %016llx "
        "(XXH3).\n",
        a->command, kvt_version(), a->level, a->n_threads, a->n_threads == 1 ? "" : "s", a->blas,
        (unsigned long long)a->model_hash, (unsigned long long)a->text_hash);
}

enum kvt_status kvt_fidelity_markdown(struct kvt_buf *out, const struct kvt_fidelity_result *result,
                                      const struct kvt_fidelity_about *about) {
    const struct kvt_report r = {result, about};
    struct kvt_buf text;
    enum kvt_status status;
    kvt_buf_init(&text, NULL, TEXT_BYTES_MAX);
    KVT_TRY_OUT(add_head(out, &r, &text));
    KVT_TRY_OUT(add_caches(out, &r));
    KVT_TRY_OUT(add_plan(out, &r));
    KVT_TRY_OUT(add_controls(out, &r));
    KVT_TRY_OUT(add_parts(out, &r));
    KVT_TRY_OUT(add_worst(out, &r, &text));
    KVT_TRY_OUT(add_rerun(out, about));
out:
    kvt_buf_finish(&text);
    return status;
}
