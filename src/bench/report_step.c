/* SPDX-License-Identifier: Apache-2.0
 * The report on decode steps. */
#include <string.h>

#include "base/check.h"
#include "bench/bench.h"
#include "json/json.h"

enum kvt_status kvt_bench_step_table(struct kvt_buf *out, const struct kvt_bench_step_result *r,
                                     const struct kvt_bench_options *o) {
    size_t width = strlen("cache");
    int least = o->rounds, most = 0;
    for (int i = 0; i < r->n; i++) {
        width = KVT_MAX(width, strlen(r->row[i].kv));
        least = KVT_MIN(least, r->row[i].rounds);
        most = KVT_MAX(most, r->row[i].rounds);
    }
    KVT_TRY(kvt_buf_addf(out, "%s; level %s\nper layer, %d KV heads of %d, gqa %d; ", r->machine, r->level, o->kv_heads,
                         o->head_size, o->gqa[0]));
    if (least < most) KVT_TRY(kvt_buf_addf(out, "%d to ", least));
    KVT_TRY(kvt_buf_addf(out, "%d times 128 steps of each", most));
    KVT_TRY(kvt_buf_addf(out, "%s, in turn\n\n", least < o->rounds ? " (as many as there was time for)" : ""));
    KVT_TRY(kvt_buf_addf(out, "%-*s %8s %7s %6s %9s %7s %8s %8s %6s %9s %9s %6s %8s\n", (int)width, "cache", "rows",
                         "threads", "every", "attention", "+-", "append", "worst", "share", "step", "worst", "ratio",
                         "error"));
    for (int i = 0; i < r->n; i++) {
        const struct kvt_bench_step_row *row = &r->row[i];
        KVT_TRY(kvt_buf_addf(out, "%-*s %8lld %7d %6d %9.1f %7.1f %8.2f %8.1f %6.3f %9.1f %9.1f %6.2f %8.4f\n",
                             (int)width, row->kv, (long long)row->rows, row->threads, row->granularity, row->attend_us,
                             row->attend_spread, row->append_us, row->append_worst_us, row->append_share, row->us,
                             row->worst_us, row->worst_us / row->us, row->error));
    }
    return kvt_buf_addf(
        out,
        "\nMicroseconds. attention: median, +-: half the distance of the quartiles. append: all else of a step, mean; worst:"
        "\nat the dearest of 128 positions, share: its part of all steps. step, worst: the quickest attention and the usual or the"
        "\nworst append; ratio of the two. every: so many steps, a group is encoded. error: attention's, over double precision on"
        "\nthe rows before any rounding.\n");
}

enum kvt_status kvt_bench_step_json(struct kvt_buf *out, const struct kvt_bench_step_result *r,
                                    const struct kvt_bench_options *o) {
    json_t *rows = json_array();
    for (int i = 0; i < r->n; i++) {
        const struct kvt_bench_step_row *row = &r->row[i];
        json_array_append_new(rows, json_pack("{s:s, s:I, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}",
                                              "kv", row->kv, "rows", (json_int_t)row->rows, "threads", row->threads,
                                              "granularity", row->granularity, "rounds", row->rounds, "attend_us",
                                              row->attend_us, "attend_spread", row->attend_spread, "append_us",
                                              row->append_us, "append_worst_us", row->append_worst_us, "append_share",
                                              row->append_share, "us", row->us, "worst_us", row->worst_us,
                                              "worst_ratio", row->worst_us / row->us, "error", row->error));
    }
    const bool whole = json_array_size(rows) == (size_t)r->n;
    json_t *root = json_pack("{s:s, s:s, s:i, s:i, s:i, s:o}", "machine", r->machine, "level", r->level, "kv_heads",
                             o->kv_heads, "head_size", o->head_size, "gqa", o->gqa[0], "rows", rows);
    return kvt_json_dump(out, root, whole, 6);
}
