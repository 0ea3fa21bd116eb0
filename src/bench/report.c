/* SPDX-License-Identifier: Apache-2.0
 * The report: a table for people, JSON for programs. */
#include <string.h>

#include "base/attr.h"
#include "base/check.h"
#include "bench/bench.h"
#include "json/json.h"

enum kvt_status kvt_bench_table(struct kvt_buf *out, const struct kvt_bench_result *r,
                                const struct kvt_bench_options *o) {
    size_t width = strlen("cache");
    int least = o->rounds, most = 0;
    for (int i = 0; i < r->n; i++) {
        width = KVT_MAX(width, strlen(r->row[i].kv));
        least = KVT_MIN(least, r->row[i].rounds);
        most = KVT_MAX(most, r->row[i].rounds);
    }
    KVT_TRY(kvt_buf_addf(out, "%s; level %s\none layer, %d KV heads of %d; query rows: %d; ", r->machine, r->level,
                         o->kv_heads, o->head_size, o->queries));
    if (least < most) KVT_TRY(kvt_buf_addf(out, "%d to ", least));
    KVT_TRY(kvt_buf_addf(out, "%d samples each%s, in turn\n", most,
                         least < o->rounds ? " (as many as there was time for)" : ""));
    for (int t = 0; t < o->n_threads; t++)
        KVT_TRY(kvt_buf_addf(out, "reading with %d thread%s: %.1f GB/s at most\n", o->threads[t],
                             o->threads[t] == 1 ? "" : "s", r->read_gbps[t]));
    KVT_TRY(kvt_buf_addf(out, "\n%-*s %8s %4s %8s %10s %7s %9s %6s %6s %6s\n", (int)width, "cache", "rows", "gqa",
                         "threads", "us", "+-", "MiB", "read", "f16", "error"));
    for (int i = 0; i < r->n; i++) {
        const struct kvt_bench_row *row = &r->row[i];
        KVT_TRY(kvt_buf_addf(out, "%-*s %8lld %4d %8d %10.1f %7.1f %9.2f %6.2f %6.2f %6.3f\n", (int)width, row->kv,
                             (long long)row->rows, row->gqa, row->threads, row->us, row->us_spread,
                             (double)row->bytes / (1 << 20), row->read_share, row->vs_f16, row->error_ratio));
    }
    return kvt_buf_addf(
        out, "\nus: median time of a step's attention; +-: half the distance of the quartiles. read: share of"
             "\nthe speed at which the same process reads as many bytes. f16: times faster than f16. error: what the"
             "\nkernel adds to the codec's own attention error (0.2 is the limit); f16's own is tiny.\n");
}

enum kvt_status kvt_bench_json(struct kvt_buf *out, const struct kvt_bench_result *r,
                               const struct kvt_bench_options *o) {
    json_t *rows = json_array(), *read = json_object();
    for (int t = 0; t < o->n_threads; t++) {
        char name[16];
        snprintf(name, sizeof name, "%d", o->threads[t]);
        json_object_set_new(read, name, json_real(r->read_gbps[t]));
    }
    for (int i = 0; i < r->n; i++) {
        const struct kvt_bench_row *row = &r->row[i];
        json_array_append_new(rows,
                              json_pack("{s:s, s:I, s:i, s:i, s:i, s:f, s:f, s:I, s:f, s:f, s:f, s:f}", "kv", row->kv,
                                        "rows", (json_int_t)row->rows, "gqa", row->gqa, "threads", row->threads,
                                        "rounds", row->rounds, "us", row->us, "us_spread", row->us_spread, "bytes",
                                        (json_int_t)row->bytes, "read_us", row->read_us, "read_share", row->read_share,
                                        "vs_f16", row->vs_f16, "error_ratio", row->error_ratio));
    }
    const bool whole = json_array_size(rows) == (size_t)r->n;
    json_t *root =
        json_pack("{s:s, s:s, s:i, s:i, s:i, s:o, s:o}", "machine", r->machine, "level", r->level, "kv_heads",
                  o->kv_heads, "head_size", o->head_size, "queries", o->queries, "read_gbps", read, "rows", rows);
    return kvt_json_dump(out, root, whole, 6);
}
