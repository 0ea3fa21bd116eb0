/* SPDX-License-Identifier: Apache-2.0
 * Products of a pass. A token's products are short, a few dozen microseconds, and threads meet at the end of each: those of
 * one input are therefore cut into slices of rows that are all run at once. */
#include "base/check.h"
#include "model/block.h"

enum {
    MAX_OUTPUTS = 3,
    SLICE_PRODUCTS = 1 << 16, /* multiply-adds of a slice */
    SLICE_STEP = 8            /* rows of a slice are a multiple */
};

struct slices {
    const struct kvt_pass *pass;
    const struct kvt_output *outputs;
    const float *x;
    int64_t rows;          /* of a slice */
    int ends[MAX_OUTPUTS]; /* jobs up to the end of each output */
};

static void run_slice(void *arg, int job, int thread) {
    (void)thread;
    const struct slices *s = arg;
    int i = 0;
    while (job >= s->ends[i]) i++;
    const struct kvt_weight *w = s->outputs[i].w;
    const int64_t first = (job - (i ? s->ends[i - 1] : 0)) * s->rows;
    struct kvt_weight slice = *w;
    slice.data += (size_t)first * w->row_bytes;
    slice.n_out = KVT_MIN(s->rows, w->n_out - first);
    kvt_weight_product(s->outputs[i].dst + first, w->n_out, &slice, s->x, w->n_in, 1, s->pass->level, NULL, NULL);
}

static void run_slices(const struct kvt_pass *pass, const struct kvt_output *outputs, int n, const float *x) {
    const int64_t n_in = outputs[0].w->n_in;
    struct slices s = {.pass = pass, .outputs = outputs, .x = x};
    s.rows = kvt_round_up(KVT_MAX(SLICE_PRODUCTS / n_in, 1), SLICE_STEP);
    int n_jobs = 0;
    for (int i = 0; i < n; i++) s.ends[i] = n_jobs += (int)kvt_div_up(outputs[i].w->n_out, s.rows);
    kvt_parallel_run(pass->parallel, n_jobs, run_slice, &s);
}

void kvt_pass_products(struct kvt_pass *p, const struct kvt_output *outputs, int n, const float *x, int first) {
    KVT_ASSERT(n >= 1 && n <= MAX_OUTPUTS);
    const int64_t n_in = outputs[0].w->n_in;
    if (n > 1 && p->n - first == 1 && kvt_weight_scratch_bytes(n_in, 1, NULL) == 0) {
        struct kvt_output last[MAX_OUTPUTS];
        for (int i = 0; i < n; i++)
            last[i] = (struct kvt_output){outputs[i].dst + first * outputs[i].w->n_out, outputs[i].w};
        run_slices(p, last, n, x + first * n_in);
        return;
    }
    for (int i = 0; i < n; i++) {
        const struct kvt_weight *w = outputs[i].w;
        kvt_weight_product(outputs[i].dst + first * w->n_out, w->n_out, w, x + first * n_in, n_in, p->n - first,
                           p->level, p->parallel, &p->scratch);
    }
}
