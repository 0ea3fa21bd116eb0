/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix product: cut into jobs by the shapes alone. One token: rows are multiplied as they are packed in the file.
 * More: panels of rows are decoded into the second cache and meet blocks of tokens there, so that every weight is unpacked
 * once. Both give the bits of the contract in type.h.
 */
#include "base/check.h"
#include "weight/tile.h"

enum {
    JOB_PRODUCTS = 1 << 16,  /* multiply-adds that a job is worth: about 4 us */
    UNPACK_COST = 3,         /* unpacking a weight, in multiply-adds */
    MOST_PAD = 8 * (31 + 16) /* floats that kvt_tile_stride can add to a row over all its parts */
};

struct product {
    float *dst;
    ptrdiff_t ld_dst;
    const struct kvt_weight *w;
    const float *x;
    ptrdiff_t ld_x;
    int n;
    int64_t job_rows;
    const struct kvt_weight_kernels *kernels;
    const struct kvt_weight_tile *tile;
    float *tokens;  /* packed, in blocks of KVT_TILE_TOKENS */
    float *threads; /* a panel and the sums of a tile product for each thread */
};

/* Rows a job so that jobs are equal, worth their start, and a multiple of `step` rows. */
static int64_t rows_of_job(const struct kvt_weight *w, int n, int step) {
    const int64_t work = w->n_in * w->n_out * (n + UNPACK_COST) / (1 + UNPACK_COST);
    const int64_t n_jobs = KVT_MIN(KVT_MAX((work + JOB_PRODUCTS / 2) / JOB_PRODUCTS, 1), kvt_div_up(w->n_out, step));
    return kvt_round_up(kvt_div_up(w->n_out, n_jobs), step);
}

static void run_rows(void *arg, int job, int thread) {
    (void)thread;
    const struct product *p = arg;
    const struct kvt_weight *w = p->w;
    const int64_t first = job * p->job_rows, n_rows = KVT_MIN(w->n_out - first, p->job_rows);
    const unsigned char *rows = w->data + (size_t)first * w->row_bytes;
    for (int t = 0; t < p->n; t++) {
        float *dst = p->dst + t * p->ld_dst + first;
        const float *x = p->x + t * p->ld_x;
        if (p->kernels)
            p->kernels->rows(dst, rows, w->row_bytes, n_rows, x, w->n_in);
        else
            kvt_weight_rows_ref(dst, w->type, rows, w->row_bytes, n_rows, x, w->n_in);
    }
}

extern const struct kvt_weight_type kvt_weight_f32;

static void pack_floats(const struct product *p, float *dst, ptrdiff_t part_stride, const float *src, int64_t n) {
    kvt_weight_f32.at[p->tile->level]->pack(dst, part_stride, (const unsigned char *)src, n);
}

/* A type without kernels at the tile's level goes through floats. */
static void pack_row(const struct product *p, float *dst, ptrdiff_t part_stride, const unsigned char *row) {
    const struct kvt_weight_type *type = p->w->type;
    if (type->at[p->tile->level]) {
        type->at[p->tile->level]->pack(dst, part_stride, row, p->w->n_in);
        return;
    }
    float chunk[256];
    for (int64_t i = 0; i < p->w->n_in; i += 256) {
        const int64_t n = KVT_MIN(p->w->n_in - i, 256);
        type->decode(chunk, row + (size_t)(i / type->block_len) * type->block_bytes, n);
        pack_floats(p, dst + i / p->tile->n_parts, part_stride, chunk, n);
    }
}

static ptrdiff_t block_floats(const struct product *p, int n_rows) {
    return p->tile->n_parts * n_rows * kvt_tile_stride(p->tile->n_parts, p->w->n_in);
}

static void pack_tokens(void *arg, int job, int thread) {
    (void)thread;
    const struct product *p = arg;
    const ptrdiff_t stride = kvt_tile_stride(p->tile->n_parts, p->w->n_in);
    float *block = p->tokens + job * block_floats(p, KVT_TILE_TOKENS);
    for (int t = 0; t < KVT_TILE_TOKENS && job * KVT_TILE_TOKENS + t < p->n; t++)
        pack_floats(p, block + t * stride, KVT_TILE_TOKENS * stride, p->x + (job * KVT_TILE_TOKENS + t) * p->ld_x,
                    p->w->n_in);
}

static void run_panel(const struct product *p, int64_t first, int n_rows, float *panel) {
    const struct kvt_weight *w = p->w;
    const ptrdiff_t stride = kvt_tile_stride(p->tile->n_parts, w->n_in);
    float *sums = panel + block_floats(p, KVT_TILE_ROWS);
    for (int r = 0; r < kvt_round_up(n_rows, 4); r++) /* rows past the last repeat it */
        pack_row(p, panel + r * stride, KVT_TILE_ROWS * stride,
                 w->data + (size_t)(first + KVT_MIN(r, n_rows - 1)) * w->row_bytes);
    for (int t = 0; t < p->n; t += KVT_TILE_TOKENS)
        p->tile->multiply(p->dst + t * p->ld_dst + first, p->ld_dst, panel, n_rows,
                          p->tokens + t / KVT_TILE_TOKENS * block_floats(p, KVT_TILE_TOKENS),
                          KVT_MIN(p->n - t, KVT_TILE_TOKENS), w->n_in, sums);
}

static void run_panels(void *arg, int job, int thread) {
    const struct product *p = arg;
    float *panel = p->threads + thread * (block_floats(p, KVT_TILE_ROWS) + KVT_TILE_SUMS);
    const int64_t end = KVT_MIN((job + 1) * p->job_rows, p->w->n_out);
    for (int64_t r = job * p->job_rows; r < end; r += KVT_TILE_ROWS)
        run_panel(p, r, (int)KVT_MIN(end - r, KVT_TILE_ROWS), panel);
}

static int n_jobs(const struct product *p) { return (int)kvt_div_up(p->w->n_out, p->job_rows); }

static size_t tokens_need(ptrdiff_t block, int n) {
    return kvt_arena_need((size_t)kvt_div_up(n, KVT_TILE_TOKENS) * (size_t)block, sizeof(float));
}

static size_t threads_need(ptrdiff_t block, const struct kvt_parallel *parallel) {
    return kvt_arena_need((size_t)kvt_parallel_n_threads(parallel) * (size_t)(block + KVT_TILE_SUMS), sizeof(float));
}

size_t kvt_weight_scratch_bytes(int64_t n_in_max, int n_max, const struct kvt_parallel *parallel) {
    if (n_max <= 1) return 0;
    const ptrdiff_t row = (ptrdiff_t)kvt_round_up(n_in_max, KVT_WEIGHT_LANES) + MOST_PAD;
    return tokens_need(KVT_TILE_TOKENS * row, n_max) + threads_need(KVT_TILE_ROWS * row, parallel);
}

void kvt_weight_product(float *dst, ptrdiff_t ld_dst, const struct kvt_weight *w, const float *x, ptrdiff_t ld_x, int n,
                        enum kvt_level level, const struct kvt_parallel *parallel, struct kvt_arena *scratch) {
    struct product p = {.dst = dst, .ld_dst = ld_dst, .w = w, .x = x, .ld_x = ld_x, .n = n};
    p.tile = n > 1 ? kvt_weight_tile_find(level) : NULL;
    if (!p.tile) {
        p.kernels = kvt_weight_kernels_find(w->type, level);
        p.job_rows = rows_of_job(w, 1, 8);
        kvt_parallel_run(parallel, n_jobs(&p), run_rows, &p);
        return;
    }
    const size_t mark = kvt_arena_mark(scratch);
    p.job_rows = rows_of_job(w, n, KVT_TILE_ROWS);
    p.tokens = kvt_arena_take(scratch, tokens_need(block_floats(&p, KVT_TILE_TOKENS), n), 1);
    p.threads = kvt_arena_take(scratch, threads_need(block_floats(&p, KVT_TILE_ROWS), parallel), 1);
    KVT_ASSERT(p.tokens && p.threads);
    kvt_parallel_run(parallel, (int)kvt_div_up(n, KVT_TILE_TOKENS), pack_tokens, &p);
    kvt_parallel_run(parallel, n_jobs(&p), run_panels, &p);
    kvt_arena_reset(scratch, mark);
}
