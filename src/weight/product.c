/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix product: which way, and cut into jobs by the shapes alone.
 *
 * One token: rows are multiplied as they are packed in the file. More: panels of rows are decoded into the second cache
 * and meet blocks of tokens there, so that a weight is unpacked once for all. Both give the bits of the contract in type.h.
 * Where the processor has no kernels, many tokens go through OpenBLAS (about 20 times as fast as the reference, equal up to
 * rounding); it is no faster than the tiles where there are some.
 */
#include "base/check.h"
#include "weight/blas.h"
#include "weight/tile.h"

enum {
    BLAS_TOKENS = 16,        /* from here on without kernels */
    JOB_PRODUCTS = 1 << 16,  /* multiply-adds that a job is worth: about 4 us */
    JOB_BLOCKS = 10,         /* blocks of tokens that a panel meets in one job */
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
    int n_row_jobs, n_token_jobs; /* job i: rows i % n_row_jobs, tokens i / n_row_jobs */
    const struct kvt_weight_kernels *kernels;
    const struct kvt_weight_tile *tile;
    float *tokens;  /* packed, in blocks of KVT_TILE_TOKENS */
    float *threads; /* what each thread works in */
    size_t thread_floats;
};

/* Rows of a job, so that jobs are equal, worth their start, and a multiple of `step` rows. */
static void cut_rows(struct product *p, int step) {
    const int64_t n_out = p->w->n_out, work = p->w->n_in * n_out * (p->n + UNPACK_COST) / (1 + UNPACK_COST);
    const int64_t n_jobs = KVT_MIN(KVT_MAX((work + JOB_PRODUCTS / 2) / JOB_PRODUCTS, 1), kvt_div_up(n_out, step));
    p->job_rows = kvt_round_up(kvt_div_up(n_out, n_jobs), step);
    p->n_row_jobs = (int)kvt_div_up(n_out, p->job_rows);
}

static const unsigned char *packed_row(const struct product *p, int64_t row) {
    return p->w->data + (size_t)row * p->w->row_bytes;
}

static void run_rows(void *arg, int job, int thread) {
    (void)thread;
    const struct product *p = arg;
    const struct kvt_weight *w = p->w;
    const int64_t first = job * p->job_rows, n_rows = KVT_MIN(w->n_out - first, p->job_rows);
    for (int t = 0; t < p->n; t++) {
        float *dst = p->dst + t * p->ld_dst + first;
        const float *x = p->x + t * p->ld_x;
        if (p->kernels)
            p->kernels->rows(dst, packed_row(p, first), w->row_bytes, n_rows, x, w->n_in);
        else
            kvt_weight_rows_ref(dst, w->type, packed_row(p, first), w->row_bytes, n_rows, x, w->n_in);
    }
}

static void run_blas(void *arg, int job, int thread) {
    const struct product *p = arg;
    const int64_t n_in = p->w->n_in, first = job * p->job_rows, n_rows = KVT_MIN(p->w->n_out - first, p->job_rows);
    float *rows = p->threads + (size_t)thread * p->thread_floats;
    for (int64_t r = 0; r < n_rows; r++) p->w->type->decode(rows + r * n_in, packed_row(p, first + r), n_in);
    kvt_blas_product(p->dst + first, p->ld_dst, rows, (int)n_rows, n_in, p->x, p->ld_x, p->n);
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

static void pack_tokens(void *arg, int block, int thread) {
    (void)thread;
    const struct product *p = arg;
    const ptrdiff_t stride = kvt_tile_stride(p->tile->n_parts, p->w->n_in);
    float *dst = p->tokens + block * block_floats(p, KVT_TILE_TOKENS);
    const int first = block * KVT_TILE_TOKENS, n = KVT_MIN(p->n - first, KVT_TILE_TOKENS);
    for (int t = 0; t < n; t++)
        pack_floats(p, dst + t * stride, KVT_TILE_TOKENS * stride, p->x + (first + t) * p->ld_x, p->w->n_in);
}

/* n_rows rows with blocks of tokens first_block .. end_block-1. */
static void run_panel(const struct product *p, int64_t first, int n_rows, int first_block, int end_block,
                      float *panel) {
    const ptrdiff_t stride = kvt_tile_stride(p->tile->n_parts, p->w->n_in);
    for (int r = 0; r < kvt_round_up(n_rows, 4); r++) /* rows past the last repeat it */
        pack_row(p, panel + r * stride, KVT_TILE_ROWS * stride, packed_row(p, first + KVT_MIN(r, n_rows - 1)));
    for (int b = first_block; b < end_block; b++) {
        const int t = b * KVT_TILE_TOKENS;
        p->tile->multiply(p->dst + t * p->ld_dst + first, p->ld_dst, panel, n_rows,
                          p->tokens + b * block_floats(p, KVT_TILE_TOKENS), KVT_MIN(p->n - t, KVT_TILE_TOKENS),
                          p->w->n_in, panel + block_floats(p, KVT_TILE_ROWS));
    }
}

static void run_panels(void *arg, int job, int thread) {
    const struct product *p = arg;
    const int n_blocks = (int)kvt_div_up(p->n, KVT_TILE_TOKENS), part = job / p->n_row_jobs;
    const int64_t first = job % p->n_row_jobs * p->job_rows, end = KVT_MIN(first + p->job_rows, p->w->n_out);
    for (int64_t r = first; r < end; r += KVT_TILE_ROWS)
        run_panel(p, r, (int)KVT_MIN(end - r, KVT_TILE_ROWS), part * n_blocks / p->n_token_jobs,
                  (part + 1) * n_blocks / p->n_token_jobs, p->threads + (size_t)thread * p->thread_floats);
}

static size_t tokens_need(ptrdiff_t block, int n) {
    return kvt_arena_need((size_t)kvt_div_up(n, KVT_TILE_TOKENS) * (size_t)block, sizeof(float));
}

static size_t threads_need(size_t thread_floats, const struct kvt_parallel *parallel) {
    return kvt_arena_need((size_t)kvt_parallel_n_threads(parallel) * thread_floats, sizeof(float));
}

/* At the most, over the levels. */
static size_t row_floats(int64_t n_in) { return (size_t)kvt_round_up(n_in, KVT_WEIGHT_LANES) + MOST_PAD; }
static size_t thread_floats(int64_t n_in) { return KVT_TILE_ROWS * row_floats(n_in) + KVT_TILE_SUMS; }

size_t kvt_weight_scratch_bytes(int64_t n_in_max, int n_max, const struct kvt_parallel *parallel) {
    if (n_max <= 1) return 0;
    return tokens_need((ptrdiff_t)(KVT_TILE_TOKENS * row_floats(n_in_max)), n_max) +
           threads_need(thread_floats(n_in_max), parallel);
}

void kvt_weight_product(float *dst, ptrdiff_t ld_dst, const struct kvt_weight *w, const float *x, ptrdiff_t ld_x, int n,
                        enum kvt_level level, const struct kvt_parallel *parallel, struct kvt_arena *scratch) {
    struct product p = {.dst = dst, .ld_dst = ld_dst, .w = w, .x = x, .ld_x = ld_x, .n = n};
    KVT_ASSERT(n >= 1);
    p.tile = kvt_weight_tile_find(level);
    p.kernels = kvt_weight_kernels_find(w->type, level);
    const bool use_blas = !p.tile && n >= BLAS_TOKENS && kvt_blas_is_present();
    if (n == 1 || (!p.tile && !use_blas)) {
        cut_rows(&p, 8);
        kvt_parallel_run(parallel, p.n_row_jobs, run_rows, &p);
        return;
    }
    const size_t mark = kvt_arena_mark(scratch);
    p.thread_floats = thread_floats(w->n_in);
    p.threads = kvt_arena_take(scratch, threads_need(p.thread_floats, parallel), 1);
    if (use_blas) {
        KVT_ASSERT(p.threads);
        p.job_rows = (int64_t)p.thread_floats / w->n_in;
        kvt_blas_begin();
        kvt_parallel_run(parallel, (int)kvt_div_up(w->n_out, p.job_rows), run_blas, &p);
    } else {
        p.tokens = kvt_arena_take(scratch, tokens_need(block_floats(&p, KVT_TILE_TOKENS), n), 1);
        KVT_ASSERT(p.threads && p.tokens);
        cut_rows(&p, KVT_TILE_ROWS);
        p.n_token_jobs = (int)kvt_div_up(kvt_div_up(n, KVT_TILE_TOKENS), JOB_BLOCKS);
        kvt_parallel_run(parallel, (int)kvt_div_up(n, KVT_TILE_TOKENS), pack_tokens, &p);
        kvt_parallel_run(parallel, p.n_row_jobs * p.n_token_jobs, run_panels, &p);
    }
    kvt_arena_reset(scratch, mark);
}
