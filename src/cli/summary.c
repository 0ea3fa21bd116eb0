/* SPDX-License-Identifier: Apache-2.0
 * What a run tells at its end: speed, and what the cache took by side and region. */
#include "cli/summary.h"

#include <stdio.h>

#include "cli/term.h"

static double rate(int n, double seconds) { return n > 0 && seconds > 0 ? n / seconds : 0; }

/* What an f16 cache of the same rows takes; 0 if that cannot be said. */
static uint64_t f16_bytes(const struct kvt_model *model, int64_t n_rows) {
    const struct kvt_shape shape = kvt_model_shape(model);
    const struct kvt_plan_options options = {.struct_size = sizeof options, .kv = "f16"};
    struct kvt_plan *plan = NULL;
    if (kvt_plan_create(&plan, &shape, &options, NULL, NULL) != KVT_OK) return 0;
    const uint64_t bytes = kvt_plan_bytes(plan, n_rows);
    kvt_plan_destroy(plan);
    return bytes;
}

static void print_regions(const struct kvt_usage *usage) {
    static const char *const sides[KVT_SIDE_COUNT] = {[KVT_SIDE_K] = "K", [KVT_SIDE_V] = "V"};
    fprintf(stderr, "               sink        body        tail\n");
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        fprintf(stderr, "  %s    ", sides[side]);
        for (int region = 0; region < KVT_REGION_COUNT; region++) {
            char size[KVT_TERM_BYTES_MAX];
            fprintf(stderr, "%12s", kvt_term_bytes(size, usage->bytes[side][region]));
        }
        fprintf(stderr, "\n");
    }
}

void kvt_summary_print_cache(const struct kvt_model *model, const struct kvt_session *session) {
    char size[KVT_TERM_BYTES_MAX], other[KVT_TERM_BYTES_MAX];
    const struct kvt_usage usage = kvt_session_usage(session);
    const int n_rows = kvt_session_n_rows(session);
    const uint64_t f16 = f16_bytes(model, n_rows), peak = kvt_session_peak_cache_bytes(session);
    fprintf(stderr, "cache      %s, %d rows: %s (%llu bytes)", kvt_plan_kv(kvt_session_plan(session)), n_rows,
            kvt_term_bytes(size, usage.total_bytes), (unsigned long long)usage.total_bytes);
    if (f16 > 0)
        fprintf(stderr, ", %.3f of the %s of f16", (double)usage.total_bytes / (double)f16, kvt_term_bytes(other, f16));
    if (peak > usage.total_bytes) fprintf(stderr, " (%s at its peak)", kvt_term_bytes(other, peak));
    fputc('\n', stderr);
    print_regions(&usage);
}

void kvt_summary_print(const struct kvt_summary *s) {
    char size[KVT_TERM_BYTES_MAX];
    const struct kvt_model_info info = kvt_model_info(s->model);
    fprintf(stderr, "model      %s: %s, %s, %s, loaded in %.2f s\n", info.name, info.arch, info.types,
            kvt_term_bytes(size, info.file_bytes), s->load_seconds);
    fprintf(stderr, "prompt     %d", s->n_prompt_done);
    if (s->n_prompt_done < s->n_prompt) fprintf(stderr, " of %d", s->n_prompt);
    const int n_reused = s->reuse ? s->reuse->n_kept : 0;
    fprintf(stderr, " tokens, %.1f tokens/s", rate(s->n_prompt_done - n_reused, s->prompt_seconds));
    if (s->reuse) fprintf(stderr, ", %d tokens reused", n_reused);
    if (s->reuse && !s->reuse->exact) fprintf(stderr, ", not exactly: rows were decoded to go back");
    fputc('\n', stderr);
    fprintf(stderr, "generated  %d tokens", s->n_generated);
    if (s->n_generated > 1) fprintf(stderr, ", %.1f tokens/s", rate(s->n_generated - 1, s->generation_seconds));
    if (s->n_generated > 0 && !s->greedy) fprintf(stderr, ", seed %llu", (unsigned long long)s->seed);
    fprintf(stderr, ", ended by %s\n", s->ended_by);
    if (s->session) kvt_summary_print_cache(s->model, s->session);
    fprintf(stderr, "memory     %s at most\n", kvt_term_bytes(size, kvt_term_peak_bytes()));
}
