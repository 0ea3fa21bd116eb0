/* SPDX-License-Identifier: Apache-2.0
 * A sweep as a table for people: caches by size, the front marked, and the plan that was found. */
#include <string.h>

#include "base/check.h"
#include "fidelity/report.h"

enum { NAME_WIDTH_MAX = 40 };

static int name_width(const struct kvt_report *r) {
    size_t width = strlen("cache");
    for (int i = 0; i < r->result->n_rows; i++) width = KVT_MAX(width, strlen(r->result->rows[i].kv));
    return (int)KVT_MIN(width, (size_t)NAME_WIDTH_MAX);
}

static enum kvt_status add_point(struct kvt_buf *out, const struct kvt_report *r, int i, int width) {
    const struct kvt_fidelity_row *row = &r->result->rows[i];
    const struct kvt_fidelity_case *c = &r->about->cases[i];
    const struct kvt_sweep *s = r->about->sweep;
    const struct kvt_sweep_point *p = &s->points[i];
    return kvt_buf_addf(out, "%c %-*s %5d %5d %6.2f %9.2f %9.1f %9.3g %8.2g %8.3g %7.2f  %s\n", p->on_front ? '*' : ' ',
                        width, row->kv, c->sink, c->tail, p->bits, (double)p->bytes / (1 << 20),
                        (double)p->bytes / (double)s->at, row->kl.mean, row->kl_stderr, row->kl.p99, 100 * row->flips,
                        kvt_fidelity_tier(row));
}

static enum kvt_status add_plan(struct kvt_buf *out, const struct kvt_report *r) {
    const struct kvt_sweep *s = r->about->sweep;
    if (!s->search) return KVT_OK;
    KVT_TRY(kvt_buf_addf(out, "\nplan for %.2f MiB: %.2f MiB, sink %d, tail %d\n  %s\n", (double)s->budget / (1 << 20),
                         (double)s->search->bytes / (1 << 20), s->sink, s->tail, s->search->kv));
    KVT_TRY(
        kvt_buf_addf(out,
                     "  KL mean %.3g (s.e. %.2g), p99 %.3g, flips %.2f %%; %.3g was expected of its parts, which were "
                     "measured on %d chunk%s\n",
                     s->plan->kl.mean, s->plan->kl_stderr, s->plan->kl.p99, 100 * s->plan->flips,
                     s->search->expected_kl, s->search_chunks, s->search_chunks == 1 ? "" : "s"));
    if (s->best < 0) return kvt_buf_addf(out, "  no swept cache is as small\n");
    const double best = r->result->rows[s->best].kl.mean;
    KVT_TRY(kvt_buf_addf(out, "  the best swept cache of no more bytes: %s, %.2f MiB, KL mean %.3g",
                         r->result->rows[s->best].kv, (double)s->points[s->best].bytes / (1 << 20), best));
    return kvt_buf_addf(out, s->plan->kl.mean > 0 ? ": %.2f times the plan's\n" : "\n", best / s->plan->kl.mean);
}

enum kvt_status kvt_fidelity_sweep_table(struct kvt_buf *out, const struct kvt_fidelity_result *result,
                                         const struct kvt_fidelity_about *about) {
    const struct kvt_report r = {result, about};
    const int width = name_width(&r);
    KVT_TRY(kvt_report_head(out, &r));
    KVT_TRY(kvt_buf_addf(out, "\n"));
    KVT_TRY(kvt_buf_addf(out, "  %-*s %5s %5s %6s %9s %9s %9s %8s %8s %7s  %s\n", width, "cache", "sink", "tail",
                         "bits", "MiB", "B/token", "KL mean", "s.e.", "p99", "flips %", "tier"));
    for (int i = -1; (i = kvt_report_next_cache(&r, i)) >= 0;) KVT_TRY(add_point(out, &r, i, width));
    KVT_TRY(add_plan(out, &r));
    return kvt_buf_addf(
        out,
        "\nSizes are of a cache of %lld rows; KL is of chunks of %d. * on the front: no other is as small and "
        "as close.\n",
        (long long)about->sweep->at, about->chunk);
}
