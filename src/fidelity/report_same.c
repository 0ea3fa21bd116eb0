/* SPDX-License-Identifier: Apache-2.0
 * What several forms of the report say alike: what was run, the cells of their tables, their notes. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/check.h"
#include "fidelity/report.h"

/* ---- order ------------------------------------------------------------------------------------------------------------ */

static int next_by_bytes(const struct kvt_report *r, int last) {
    const struct kvt_sweep_point *p = r->about->sweep->points;
    const struct kvt_fidelity_row *rows = r->result->rows;
    int best = -1;
    for (int i = 0; i < r->result->n_rows; i++) {
        if (!kvt_report_is(r, i, KVT_FIDELITY_SCHEME)) continue;
        const bool after = last < 0 || p[i].bytes > p[last].bytes ||
                           (p[i].bytes == p[last].bytes && (rows[i].kl.mean > rows[last].kl.mean ||
                                                            (rows[i].kl.mean == rows[last].kl.mean && i > last)));
        const bool before = best < 0 || p[i].bytes < p[best].bytes ||
                            (p[i].bytes == p[best].bytes && rows[i].kl.mean < rows[best].kl.mean);
        if (after && before) best = i;
    }
    return best;
}

int kvt_report_next_cache(const struct kvt_report *r, int last) {
    if (r->about->sweep) return next_by_bytes(r, last);
    while (++last < r->result->n_rows)
        if (kvt_report_is(r, last, KVT_FIDELITY_SCHEME)) return last;
    return -1;
}

bool kvt_report_is_part(const struct kvt_report *r, int i, int of) {
    return r->about->cases[i].of == of && !kvt_report_is(r, i, KVT_FIDELITY_SCHEME) &&
           !kvt_report_is(r, i, KVT_FIDELITY_CONTROL);
}

/* ---- what was run ----------------------------------------------------------------------------------------------------- */

/* One line for all caches, or where they differ one for each that keeps rows. A sweep's tables have columns for it. */
static enum kvt_status add_regions(struct kvt_buf *out, const struct kvt_report *r) {
    const struct kvt_fidelity_case *cases = r->about->cases;
    bool differ = false;
    for (int i = 0; i < r->result->n_rows; i++)
        differ |= kvt_report_is(r, i, KVT_FIDELITY_SCHEME) &&
                  (cases[i].sink != r->about->sink || cases[i].tail != r->about->tail);
    if (!differ && (r->about->sink || r->about->tail))
        KVT_TRY(kvt_buf_addf(out, "all caches keep %d first and %d newest rows in 16 bits\n", r->about->sink,
                             r->about->tail));
    for (int i = 0; differ && !r->about->sweep && i < r->result->n_rows; i++)
        if (kvt_report_is(r, i, KVT_FIDELITY_SCHEME) && (cases[i].sink || cases[i].tail))
            KVT_TRY(kvt_buf_addf(out, "%.60s keeps %d first and %d newest rows in 16 bits\n", r->result->rows[i].kv,
                                 cases[i].sink, cases[i].tail));
    return KVT_OK;
}

enum kvt_status kvt_report_head(struct kvt_buf *out, const struct kvt_report *r) {
    const struct kvt_fidelity_about *a = r->about;
    const char *comma = "";
    KVT_TRY(kvt_buf_addf(out, "%s on %s: %d chunk%s of %d tokens, %lld positions\n", a->model, a->text,
                         r->result->n_chunks, r->result->n_chunks == 1 ? "" : "s", a->chunk,
                         (long long)r->result->n_positions));
    KVT_TRY(kvt_buf_addf(out, "reference: %s cache, perplexity", a->reference));
    for (int leg = 0; leg < KVT_LEG_COUNT; leg++) {
        if (isnan(r->result->ppl_ref[leg])) continue;
        KVT_TRY(kvt_buf_addf(out, "%s %.4f", comma, r->result->ppl_ref[leg]));
        if (kvt_report_names_legs(r)) KVT_TRY(kvt_buf_addf(out, " (%s)", kvt_leg_name((enum kvt_leg)leg)));
        comma = ",";
    }
    KVT_TRY(kvt_buf_addf(out, "\n"));
    KVT_TRY(add_regions(out, r));
    if (a->start)
        KVT_TRY(kvt_buf_addf(out, "nothing is encoded while there are fewer than %lld rows\n", (long long)a->start));
    if (a->n_ctx_train && a->chunk > a->n_ctx_train)
        KVT_TRY(
            kvt_buf_addf(out, "a chunk is longer than the %d tokens that the model was trained for\n", a->n_ctx_train));
    if (a->warmup) KVT_TRY(kvt_buf_addf(out, "the first %d positions of each chunk are not scored\n", a->warmup));
    return KVT_OK;
}

/* ---- tables ----------------------------------------------------------------------------------------------------------- */

static void add(struct kvt_report_cells *cells, const char *format, ...) KVT_PRINTF(2, 3);
static void add(struct kvt_report_cells *cells, const char *format, ...) {
    va_list args;
    KVT_ASSERT(cells->n < KVT_CELLS_MAX);
    va_start(args, format);
    vsnprintf(cells->text[cells->n++], KVT_CELL_BYTES, format, args);
    va_end(args);
}

static void add_heads(struct kvt_report_cells *out, const struct kvt_report *r, const char *const *heads, size_t n) {
    if (kvt_report_names_legs(r)) add(out, "leg");
    for (size_t i = 0; i < n; i++) add(out, "%s", heads[i]);
}

static void add_leg(struct kvt_report_cells *out, const struct kvt_report *r, int i) {
    if (kvt_report_names_legs(r)) add(out, "%s", kvt_leg_name(r->about->cases[i].leg));
}

void kvt_report_cache_heads(struct kvt_report_cells *out, const struct kvt_report *r) {
    static const char *const heads[] = {"sink / tail", "bits", "MiB",     "KL mean", "95 %",       "median", "p99",
                                        "p99.9",       "max",  "flips %", "top-1 %", "ppl change", "tier"};
    out->n = 0;
    if (r->about->sweep) add(out, "front");
    add_heads(out, r, heads, KVT_ARRAY_LEN(heads));
}

void kvt_report_cache_cells(struct kvt_report_cells *out, const struct kvt_report *r, int i) {
    const struct kvt_fidelity_row *row = &r->result->rows[i];
    const struct kvt_fidelity_case *c = &r->about->cases[i];
    const struct kvt_sweep_point *point = r->about->sweep ? &r->about->sweep->points[i] : NULL;
    out->n = 0;
    if (point) add(out, "%s", point->on_front ? "front" : "");
    add_leg(out, r, i);
    add(out, "%d / %d", c->sink, c->tail);
    add(out, "%.2f", point ? point->bits : row->bits_per_element);
    add(out, "%.2f", (double)(point ? point->bytes : row->cache_bytes) / (1 << 20));
    add(out, "%.3g", row->kl.mean);
    if (isnan(row->kl_ci.low))
        add(out, "%s", "");
    else
        add(out, "%.3g - %.3g", row->kl_ci.low, row->kl_ci.high);
    add(out, "%.3g", row->kl.median);
    add(out, "%.3g", row->kl.p99);
    add(out, "%.3g", row->kl.p999);
    add(out, "%.3g", row->kl.max);
    add(out, "%.2f", 100 * row->flips);
    add(out, "%+.2f", 100 * row->top_change);
    add(out, "%+.4f", row->ppl - r->result->ppl_ref[c->leg]);
    add(out, "%s", kvt_fidelity_tier(row));
}

void kvt_report_control_heads(struct kvt_report_cells *out, const struct kvt_report *r) {
    static const char *const heads[] = {"KL mean", "quantizer", "path"};
    out->n = 0;
    add_heads(out, r, heads, KVT_ARRAY_LEN(heads));
}

bool kvt_report_control_cells(struct kvt_report_cells *out, const struct kvt_report *r, int i) {
    const int control = kvt_report_find(r, KVT_FIDELITY_CONTROL, i);
    if (control < 0) return false;
    const double all = r->result->rows[i].kl.mean, quantizer = r->result->rows[control].kl.mean;
    out->n = 0;
    add_leg(out, r, i);
    add(out, "%.3g", all);
    add(out, "%.3g", quantizer);
    add(out, "%+.2g", all - quantizer);
    return true;
}

void kvt_report_part_heads(struct kvt_report_cells *out) {
    out->n = 0;
    add(out, "KL mean");
    add(out, "of the whole");
}

void kvt_report_part_cells(struct kvt_report_cells *out, const struct kvt_report *r, int i) {
    const double all = r->result->rows[r->about->cases[i].of].kl.mean, part = r->result->rows[i].kl.mean;
    out->n = 0;
    add(out, "%.3g", part);
    if (all > 0)
        add(out, "%.1f %%", 100 * part / all);
    else
        add(out, "%s", "");
}

/* ---- notes ------------------------------------------------------------------------------------------------------------ */

enum kvt_status kvt_report_notes(struct kvt_buf *out, const struct kvt_report *r) {
    KVT_TRY(kvt_buf_addf(out, "KL(reference || cache) in nats a position, with a bootstrap interval by chunk. "));
    if (r->about->sweep)
        KVT_TRY(kvt_buf_addf(out,
                             "Sizes are of a cache of %lld rows; on the front: no other is as small and as close. ",
                             (long long)r->about->sweep->at));
    else
        KVT_TRY(kvt_buf_addf(out, "Sizes are what is allocated at a chunk's end. "));
    return kvt_buf_addf(out,
                        "Tiers are limits of mlx-quant-fidelity on KL mean, p99 and flips, checked against no task: "
                        "a good cache may still lose a needle, a bad one may still answer well.");
}

const char kvt_report_control_note[] =
    "Quantizer: the same decoded rows through plain attention in 32 bits. Path: what the "
    "cache's own arithmetic adds.";

enum kvt_status kvt_report_plan(struct kvt_buf *out, const struct kvt_report *r) {
    const struct kvt_sweep *s = r->about->sweep;
    KVT_TRY(kvt_buf_addf(out,
                         "Sink %d, tail %d: %.2f MiB of %.2f at %lld rows; measured KL mean %.3g, p99 %.3g, flips %.2f "
                         "%%. Its parts, measured alone on %d chunk%s, sum to %.3g.",
                         s->sink, s->tail, (double)s->search->bytes / (1 << 20), (double)s->budget / (1 << 20),
                         (long long)s->at, s->plan->kl.mean, s->plan->kl.p99, 100 * s->plan->flips, s->search_chunks,
                         s->search_chunks == 1 ? "" : "s", s->search->expected_kl));
    if (s->best < 0) return kvt_buf_addf(out, " No swept cache is as small.");
    return kvt_buf_addf(out, " The best swept cache of no more bytes is %s, %.2f MiB, with %.3g.",
                        r->result->rows[s->best].kv, (double)s->points[s->best].bytes / (1 << 20),
                        r->result->rows[s->best].kl.mean);
}
