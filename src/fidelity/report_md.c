/* SPDX-License-Identifier: Apache-2.0
 * The report as Markdown, as a README likes it. */
#include <math.h>
#include <stdio.h>

#include "base/check.h"
#include "fidelity/report.h"

enum { CONTEXT_TOKENS = 12, TEXT_BYTES_MAX = 1 << 16 };

static enum kvt_status add_head(struct kvt_buf *out, const struct kvt_report *r) {
    const struct kvt_fidelity_about *a = r->about;
    KVT_TRY(kvt_buf_addf(out, "# %s: what its cache costs\n\n", a->model));
    KVT_TRY(kvt_buf_addf(out, "On %s: %d chunk%s of %d tokens, %lld positions%s. Against a %s cache", a->text,
                         r->result->n_chunks, r->result->n_chunks == 1 ? "" : "s", a->chunk,
                         (long long)r->result->n_positions, a->warmup ? ", without those of each chunk's warm-up" : "",
                         a->reference));
    for (int leg = 0; leg < KVT_LEG_COUNT; leg++)
        if (!isnan(r->result->ppl_ref[leg]))
            KVT_TRY(
                kvt_buf_addf(out, ", perplexity %.4f (%s)", r->result->ppl_ref[leg], kvt_leg_name((enum kvt_leg)leg)));
    if (a->n_ctx_train && a->chunk > a->n_ctx_train)
        KVT_TRY(
            kvt_buf_addf(out, ". A chunk is longer than the %d tokens that the model was trained for", a->n_ctx_train));
    return kvt_buf_addf(out, ".\n\n");
}

static enum kvt_status add_row(struct kvt_buf *out, const struct kvt_report *r, int i) {
    const struct kvt_fidelity_row *row = &r->result->rows[i];
    const struct kvt_fidelity_case *c = &r->about->cases[i];
    const struct kvt_sweep *s = r->about->sweep;
    const double bits = s ? s->points[i].bits : row->bits_per_element;
    const uint64_t bytes = s ? s->points[i].bytes : row->cache_bytes;
    KVT_TRY(kvt_buf_addf(out, "| %s%s | %s | %d / %d | %.2f | %.2f | %.3g |", row->kv,
                         s && s->points[i].on_front ? " **\\***" : "", kvt_leg_name(c->leg), c->sink, c->tail, bits,
                         (double)bytes / (1 << 20), row->kl.mean));
    if (isnan(row->kl_ci.low))
        KVT_TRY(kvt_buf_addf(out, " |"));
    else
        KVT_TRY(kvt_buf_addf(out, " %.3g - %.3g |", row->kl_ci.low, row->kl_ci.high));
    return kvt_buf_addf(out, " %.3g | %.3g | %.3g | %.3g | %.2f | %+.4f | %s |\n", row->kl.median, row->kl.p99,
                        row->kl.p999, row->kl.max, 100 * row->flips, row->ppl - r->result->ppl_ref[c->leg],
                        kvt_fidelity_tier(row));
}

static enum kvt_status add_rows(struct kvt_buf *out, const struct kvt_report *r) {
    const struct kvt_sweep *s = r->about->sweep;
    KVT_TRY(kvt_buf_addf(
        out, "| cache | leg | sink / tail | bits | MiB | KL mean | 95 %% | median | p99 | p99.9 | max | "
             "flips %% | perplexity | tier |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n"));
    if (s)
        for (int i = -1; (i = kvt_report_next_by_bytes(r, i)) >= 0;) KVT_TRY(add_row(out, r, i));
    for (int i = 0; !s && i < r->result->n_rows; i++)
        if (kvt_report_is(r, i, KVT_FIDELITY_SCHEME)) KVT_TRY(add_row(out, r, i));
    if (s)
        KVT_TRY(kvt_buf_addf(
            out, "\nSizes are of a cache of %lld rows. \\* on the front: no other is as small and as close.\n",
            (long long)s->at));
    return kvt_buf_addf(out,
                        "\nKL in nats a position. Tiers are mlx-quant-fidelity's limits; they are checked against no "
                        "task.\n");
}

static enum kvt_status add_controls(struct kvt_buf *out, const struct kvt_report *r) {
    if (!kvt_report_has(r, KVT_FIDELITY_CONTROL)) return KVT_OK;
    KVT_TRY(kvt_buf_addf(
        out, "\n## Quantizer and path\n\n| cache | leg | KL mean | quantizer | path |\n|---|---|---|---|---|\n"));
    for (int i = 0; i < r->result->n_rows; i++) {
        const int control = kvt_report_is(r, i, KVT_FIDELITY_SCHEME) ? kvt_report_find(r, KVT_FIDELITY_CONTROL, i) : -1;
        if (control < 0) continue;
        const double all = r->result->rows[i].kl.mean, quantizer = r->result->rows[control].kl.mean;
        KVT_TRY(kvt_buf_addf(out, "| %s | %s | %.3g | %.3g | %+.2g |\n", r->result->rows[i].kv,
                             kvt_leg_name(r->about->cases[i].leg), all, quantizer, all - quantizer));
    }
    return KVT_OK;
}

static enum kvt_status add_parts(struct kvt_buf *out, const struct kvt_report *r) {
    bool begun = false;
    for (int i = 0; i < r->result->n_rows; i++) {
        char part[KVT_PART_BYTES];
        const int of = r->about->cases[i].of;
        if (kvt_report_is(r, i, KVT_FIDELITY_SCHEME) || kvt_report_is(r, i, KVT_FIDELITY_CONTROL)) continue;
        if (!begun)
            KVT_TRY(kvt_buf_addf(out, "\n## Parts\n\n| cache | part | KL mean | of the whole |\n|---|---|---|---|\n"));
        begun = true;
        kvt_report_part(part, r, i);
        KVT_TRY(kvt_buf_addf(out, "| %s | %s | %.3g | %.1f %% |\n", r->result->rows[of].kv, part,
                             r->result->rows[i].kl.mean,
                             100 * r->result->rows[i].kl.mean / r->result->rows[of].kl.mean));
    }
    return KVT_OK;
}

static enum kvt_status add_plan(struct kvt_buf *out, const struct kvt_report *r) {
    const struct kvt_sweep *s = r->about->sweep;
    if (!s || !s->search) return KVT_OK;
    KVT_TRY(kvt_buf_addf(out,
                         "\n## Plan\n\n`%s`, sink %d, tail %d: %.2f MiB of %.2f at %lld rows, KL mean %.3g, p99 %.3g.",
                         s->search->kv, s->sink, s->tail, (double)s->search->bytes / (1 << 20),
                         (double)s->budget / (1 << 20), (long long)s->at, s->plan->kl.mean, s->plan->kl.p99));
    if (s->best >= 0)
        KVT_TRY(kvt_buf_addf(out, " The best swept cache of no more bytes is %s with %.3g.",
                             r->result->rows[s->best].kv, r->result->rows[s->best].kl.mean));
    return kvt_buf_addf(out, "\n");
}

/* Text in a cell: nothing that Markdown would take as its own. */
static enum kvt_status add_cell(struct kvt_buf *out, const struct kvt_buf *text) {
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
    KVT_TRY(add_cell(out, text));
    const int32_t ids[] = {s->top_ref, s->top};
    for (int i = 0; i < 2; i++) {
        text->len = 0;
        KVT_TRY(kvt_report_token(text, r, ids[i]));
        KVT_TRY(add_cell(out, text));
    }
    return kvt_buf_addf(out, "\n");
}

static enum kvt_status add_worst(struct kvt_buf *out, const struct kvt_report *r, struct kvt_buf *text) {
    for (int i = 0; i < r->result->n_rows; i++) {
        const struct kvt_fidelity_row *row = &r->result->rows[i];
        if (!kvt_report_is(r, i, KVT_FIDELITY_SCHEME) || row->kl.max <= 0) continue;
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
        "\n## Again\n\n    %s\n\nkvtile %s, level %s, %d thread%s, BLAS %s; model %016llx, text %016llx "
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
    KVT_TRY_OUT(add_head(out, &r));
    KVT_TRY_OUT(add_rows(out, &r));
    KVT_TRY_OUT(add_plan(out, &r));
    KVT_TRY_OUT(add_controls(out, &r));
    KVT_TRY_OUT(add_parts(out, &r));
    KVT_TRY_OUT(add_worst(out, &r, &text));
    KVT_TRY_OUT(add_rerun(out, about));
out:
    kvt_buf_finish(&text);
    return status;
}
