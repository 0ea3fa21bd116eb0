/* SPDX-License-Identifier: Apache-2.0
 * The matrix product: cut into jobs by the shapes alone, so that the bits never depend on the number of threads. */
#include "base/check.h"
#include "weight/blas.h"
#include "weight/type.h"

enum {
    FEW_TOKENS = 8,  /* up to here the packed blocks are multiplied as they are */
    CHUNK_ROWS = 64, /* rows of a job with few tokens */
    PANEL_ROWS = 64, /* rows that a job with many tokens dequantizes */
};

struct product {
    float *dst;
    ptrdiff_t ld_dst;
    const struct kvt_weight *w;
    const float *x;
    ptrdiff_t ld_x;
    int n;
    struct kvt_weight_kernels kernels;
    float *panels; /* one of PANEL_ROWS rows a thread */
};

static void run_rows(void *arg, int i, int thread) {
    (void)thread;
    const struct product *p = arg;
    const int64_t first = (int64_t)i * CHUNK_ROWS;
    const struct kvt_weight_rows job = {
        .data = p->w->data + (size_t)first * p->w->row_bytes,
        .row_bytes = p->w->row_bytes,
        .n_in = p->w->n_in,
        .n_rows = (int)KVT_MIN(p->w->n_out - first, CHUNK_ROWS),
        .n_tokens = p->n,
        .x = p->x,
        .ld_x = p->ld_x,
        .dst = p->dst + first,
        .ld_dst = p->ld_dst,
    };
    if (p->kernels.rows)
        p->kernels.rows(&job);
    else
        kvt_weight_rows_ref(p->w->type, &job);
}

static void run_panel(void *arg, int i, int thread) {
    const struct product *p = arg;
    const int64_t first = (int64_t)i * PANEL_ROWS, n_in = p->w->n_in;
    const int n_rows = (int)KVT_MIN(p->w->n_out - first, PANEL_ROWS);
    float *panel = p->panels + (size_t)thread * PANEL_ROWS * (size_t)n_in;
    for (int r = 0; r < n_rows; r++)
        p->kernels.decode(panel + r * n_in, p->w->data + (size_t)(first + r) * p->w->row_bytes, n_in);
    kvt_blas_product(p->dst + first, p->ld_dst, panel, n_rows, n_in, p->x, p->ld_x, p->n);
}

size_t kvt_weight_scratch_bytes(int64_t n_in_max, int n_max, const struct kvt_parallel *parallel) {
    if (n_max <= FEW_TOKENS) return 0;
    return kvt_arena_need((size_t)kvt_parallel_n_threads(parallel) * PANEL_ROWS * (size_t)n_in_max, sizeof(float));
}

void kvt_weight_product(float *dst, ptrdiff_t ld_dst, const struct kvt_weight *w, const float *x, ptrdiff_t ld_x, int n,
                        enum kvt_level level, const struct kvt_parallel *parallel, struct kvt_arena *scratch) {
    struct product p = {dst, ld_dst, w, x, ld_x, n, kvt_weight_kernels_select(w->type, level), NULL};
    if (n <= FEW_TOKENS) {
        kvt_parallel_run(parallel, (int)kvt_div_up(w->n_out, CHUNK_ROWS), run_rows, &p);
        return;
    }
    const size_t mark = kvt_arena_mark(scratch);
    p.panels =
        kvt_arena_take(scratch, (size_t)kvt_parallel_n_threads(parallel) * PANEL_ROWS * (size_t)w->n_in, sizeof(float));
    KVT_ASSERT(p.panels);
    kvt_blas_begin();
    kvt_parallel_run(parallel, (int)kvt_div_up(w->n_out, PANEL_ROWS), run_panel, &p);
    kvt_arena_reset(scratch, mark);
}
