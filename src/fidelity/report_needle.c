/* SPDX-License-Identifier: Apache-2.0
 * What was recalled, as grids and as JSON. */

#include "base/check.h"
#include "fidelity/fidelity.h"
#include "json/json.h"

static double depth_of(const struct kvt_needle_result *r, int depth) {
    return r->n_depths > 1 ? 100.0 * depth / (r->n_depths - 1) : 0;
}

static const struct kvt_needle_cell *cell_at(const struct kvt_needle_result *r, int row, int length, int depth) {
    return &r->rows[row].cells[length * r->n_depths + depth];
}

/* ---- tables ----------------------------------------------------------------------------------------------------------- */

static enum kvt_status add_name(struct kvt_buf *out, const struct kvt_needle_row *row) {
    KVT_TRY(kvt_buf_addf(out, "%s", row->kv));
    return row->sink || row->tail ? kvt_buf_addf(out, ", sink %d, tail %d", row->sink, row->tail) : KVT_OK;
}

static enum kvt_status add_grid(struct kvt_buf *out, const struct kvt_needle_result *r, int row) {
    const struct kvt_needle_row *its = &r->rows[row];
    KVT_TRY(kvt_buf_addf(out, "\n"));
    KVT_TRY(add_name(out, its));
    KVT_TRY(kvt_buf_addf(out, ": %d of %d right", its->all.n_right, its->all.n));
    if (row > 0)
        KVT_TRY(kvt_buf_addf(out, "; lost %d of the %d that %s has", its->all.n_lost, r->rows[0].all.n_right,
                             r->rows[0].kv));
    KVT_TRY(kvt_buf_addf(out, "\n  %8s", "depth"));
    for (int d = 0; d < r->n_depths; d++) KVT_TRY(kvt_buf_addf(out, " %5.0f %%", depth_of(r, d)));
    for (int l = 0; l < r->n_lengths; l++) {
        KVT_TRY(kvt_buf_addf(out, "\n  %8d", r->lengths[l]));
        for (int d = 0; d < r->n_depths; d++) {
            const struct kvt_needle_cell *cell = cell_at(r, row, l, d);
            KVT_TRY(kvt_buf_addf(out, " %3d/%-3d", cell->n_right, cell->n));
        }
    }
    return kvt_buf_addf(out, "\n");
}

static enum kvt_status add_agreement(struct kvt_buf *out, const struct kvt_needle_result *r) {
    if (r->n_agree == 0) return KVT_OK;
    KVT_TRY(kvt_buf_addf(out,
                         "\nGreedy continuations of up to %d tokens: how many before the first that differs from %s\n",
                         r->n_agree, r->rows[0].kv));
    for (int i = 1; i < r->n_rows; i++) {
        const struct kvt_agreement *a = &r->rows[i].agreement;
        KVT_TRY(kvt_buf_addf(out, "  %6.1f mean, %5.1f median, %d of %d to the end  ", a->mean, a->median, a->n_whole,
                             a->n));
        KVT_TRY(add_name(out, &r->rows[i]));
        KVT_TRY(kvt_buf_addf(out, "\n"));
    }
    return kvt_buf_addf(out,
                        "A weak oracle: two nearly equal tokens end the agreement, and what follows may be as good.\n");
}

enum kvt_status kvt_needle_table(struct kvt_buf *out, const struct kvt_needle_result *r, const char *model,
                                 const char *text) {
    KVT_TRY(kvt_buf_addf(out, "%s, facts planted in %s: %d text%s of each length, %d fact%s each\n", model, text,
                         r->n_trials, r->n_trials == 1 ? "" : "s", r->n_depths, r->n_depths == 1 ? "" : "s"));
    for (int i = 0; i < r->n_rows; i++) KVT_TRY(add_grid(out, r, i));
    return add_agreement(out, r);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------------- */

static json_t *cells(const struct kvt_needle_result *r, int row) {
    json_t *list = json_array();
    for (int l = 0; l < r->n_lengths; l++)
        for (int d = 0; d < r->n_depths; d++) {
            const struct kvt_needle_cell *cell = cell_at(r, row, l, d);
            json_array_append_new(list, json_pack("{s:i, s:f, s:i, s:i, s:i}", "length", r->lengths[l], "depth",
                                                  depth_of(r, d) / 100, "n", cell->n, "right", cell->n_right, "lost",
                                                  cell->n_lost));
        }
    return list;
}

static json_t *row_object(const struct kvt_needle_result *r, int i) {
    const struct kvt_needle_row *row = &r->rows[i];
    const struct kvt_agreement *a = &row->agreement;
    json_t *agreement = r->n_agree ? json_pack("{s:i, s:i, s:f, s:f}", "n", a->n, "whole", a->n_whole, "mean", a->mean,
                                               "median", a->median)
                                   : json_null();
    return json_pack("{s:o, s:i, s:i, s:I, s:i, s:i, s:i, s:o, s:o}", "kv", kvt_json_text(row->kv), "sink", row->sink,
                     "tail", row->tail, "cache_bytes", (json_int_t)row->cache_bytes, "n", row->all.n, "right",
                     row->all.n_right, "lost", row->all.n_lost, "cells", cells(r, i), "agreement", agreement);
}

enum kvt_status kvt_needle_json(struct kvt_buf *out, const struct kvt_needle_result *r, const char *model,
                                const char *text) {
    json_t *rows = json_array();
    for (int i = 0; i < r->n_rows; i++) json_array_append_new(rows, row_object(r, i));
    json_t *root =
        json_pack("{s:o, s:o, s:i, s:i, s:i, s:o}", "model", kvt_json_text(model), "text", kvt_json_text(text),
                  "trials", r->n_trials, "facts", r->n_depths, "agree", r->n_agree, "caches", rows);
    return kvt_json_dump(out, root, true, 9);
}
