/* SPDX-License-Identifier: Apache-2.0
 * The report on whole models. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "bench/bench.h"
#include "json/json.h"

/* What the cache's depth takes of a step bounds what a faster cache can gain. */
static enum kvt_status add_bound(struct kvt_buf *out, const struct kvt_bench_model_row *f16) {
    if (isnan(f16->depth_share)) return KVT_OK;
    return kvt_buf_addf(
        out, "depth %d: %.0f %% of an f16 step is attention over it: no cache can be %.2f times faster than f16\n",
        f16->depth, 100 * f16->depth_share, 1 / (1 - f16->depth_share));
}

enum kvt_status kvt_bench_model_table(struct kvt_buf *out, const struct kvt_bench_model_result *r,
                                      const struct kvt_bench_model_options *o) {
    const struct kvt_model_info info = kvt_model_info(o->model);
    size_t width = strlen("cache");
    for (int i = 0; i < r->n; i++) width = KVT_MAX(width, strlen(r->row[i].kv));
    KVT_TRY(kvt_buf_addf(
        out, "%s; level %s, %d threads\n%s: %s, %d layers, %d query and %d KV heads of %d; %d tokens, %d rounds\n",
        r->machine, r->level, o->parallel ? o->parallel->n_threads : 1, info.name, info.types, info.n_layers,
        info.n_q_heads, info.n_kv_heads, info.k_size, o->tokens, r->rounds));
    for (int at = o->n_caches; at < r->n; at += o->n_caches + 1) KVT_TRY(add_bound(out, &r->row[at]));
    KVT_TRY(kvt_buf_addf(out, "\n%-*s %7s %9s %9s %9s %6s %6s %9s %9s\n", (int)width, "cache", "depth", "tokens/s",
                         "least", "most", "f16", "depth", "MiB", "fill s"));
    for (int i = 0; i < r->n; i++) {
        const struct kvt_bench_model_row *row = &r->row[i];
        char share[16] = "";
        if (!isnan(row->depth_share)) snprintf(share, sizeof share, "%.3f", row->depth_share);
        KVT_TRY(kvt_buf_addf(out, "%-*s %7d %9.2f %9.2f %9.2f %6.2f %6s %9.2f %9.2f\n", (int)width, row->kv, row->depth,
                             row->median, row->least, row->most, row->vs_f16, share, (double)row->bytes / (1 << 20),
                             row->fill_seconds));
    }
    return kvt_buf_addf(
        out,
        "\ntokens/s: median of decoding from that depth on. f16: times faster than f16. depth: part of a step that"
        "\nthe first depth's step does not take. MiB: the whole cache. fill s: seconds to come from the depth before.\n");
}

static json_t *row_json(const struct kvt_bench_model_row *row, int rounds) {
    json_t *samples = json_array();
    for (int i = 0; i < rounds; i++) json_array_append_new(samples, json_real(row->samples[i]));
    return json_pack("{s:s, s:i, s:f, s:f, s:f, s:f, s:o, s:I, s:f, s:o}", "kv", row->kv, "depth", row->depth,
                     "tokens_per_s", row->median, "least", row->least, "most", row->most, "vs_f16", row->vs_f16,
                     "depth_share", kvt_json_number(row->depth_share), "bytes", (json_int_t)row->bytes, "fill_seconds",
                     row->fill_seconds, "samples", samples);
}

enum kvt_status kvt_bench_model_json(struct kvt_buf *out, const struct kvt_bench_model_result *r,
                                     const struct kvt_bench_model_options *o) {
    json_t *rows = json_array();
    for (int i = 0; i < r->n; i++) json_array_append_new(rows, row_json(&r->row[i], r->rounds));
    const bool whole = json_array_size(rows) == (size_t)r->n;
    json_t *root = json_pack("{s:s, s:s, s:i, s:s, s:i, s:o}", "machine", r->machine, "level", r->level, "threads",
                             o->parallel ? o->parallel->n_threads : 1, "model", kvt_model_info(o->model).name, "tokens",
                             o->tokens, "rows", rows);
    return kvt_json_dump(out, root, whole, 6);
}
