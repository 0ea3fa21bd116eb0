/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix product: which way, and cut into jobs by the shapes alone.
 *
 * Types of floats: one token meets rows as they are in the file; for more, panels of rows are laid out in the second cache and
 * meet blocks of tokens there. Types of codes: tokens are rounded, and strips of 16 rows meet a few at a time. All give the bits of
 * the contract in type.h. Where the processor has no kernels, many tokens go through OpenBLAS (about 20 times as fast as the
 * reference, equal up to rounding); it is no faster than the tiles where there are some.
 */
#include "base/check.h"
#include "weight/blas.h"
#include "weight/strip.h"
#include "weight/tile.h"

enum {
    BLAS_TOKENS = 16,        /* from here on without kernels */
    STRIP_JOB_TOKENS = 64,   /* that strips meet in one job: a multiple of KVT_TOKEN_GROUP */
    JOB_PRODUCTS = 1 << 16,  /* multiply-adds that a job is worth: about 4 us */
    JOB_BLOCKS = 10,         /* blocks of tokens that a panel meets in one job */
    UNPACK_COST = 3,         /* unpacking a weight, in multiply-adds */
    MOST_PAD = 8 * (31 + 16) /* floats that kvt_tile_stride can add to a row over all its parts */
};

struct product;
struct matrix;

/* Rows first .. first + n_rows - 1 of a matrix with the tokens of one part. */
typedef void run_fn(const struct product *p, const struct matrix *m, int64_t first, int64_t n_rows, int part,
                    int thread);

/* One matrix of a product. Its jobs are first_job + i: rows i % n_row_jobs, tokens i / n_row_jobs. */
struct matrix {
    struct kvt_weight_output to;
    const struct kvt_weight_kernels *kernels;
    run_fn *run;
    int64_t job_rows;
    int first_job, n_row_jobs, n_token_jobs;
};

struct product {
    struct matrix matrices[KVT_WEIGHT_OUTPUTS];
    int n_matrices, n_jobs;
    const float *x;
    ptrdiff_t ld_x;
    int64_t n_in;
    int n;
    const struct kvt_weight_tile *tile;
    struct kvt_rounded *rounded; /* tokens for types of codes */
    float *tokens;               /* packed, in blocks of KVT_TILE_TOKENS; for OpenBLAS the rounded ones, dense */
    float *threads;              /* what each thread works in */
    size_t thread_floats;
};

static void run_job(void *arg, int job, int thread) {
    const struct product *p = arg;
    int i = p->n_matrices - 1;
    while (job < p->matrices[i].first_job) i--;
    const struct matrix *m = &p->matrices[i];
    const int64_t first = (job - m->first_job) % m->n_row_jobs * m->job_rows;
    m->run(p, m, first, KVT_MIN(m->to.w->n_out - first, m->job_rows), (job - m->first_job) / m->n_row_jobs, thread);
}

static const unsigned char *packed_row(const struct matrix *m, int64_t row) {
    return m->to.w->data + (size_t)row * m->to.w->row_bytes;
}

/* Tokens from t on, of one group: block b of token t + i is the result's [b * *ld + i]. */
static struct kvt_rounded *rounded_at(const struct product *p, int t, ptrdiff_t *ld) {
    const int first = t / KVT_TOKEN_GROUP * KVT_TOKEN_GROUP;
    *ld = KVT_MIN(p->n - first, KVT_TOKEN_GROUP);
    return p->rounded + first * (p->n_in / 32) + (t - first);
}

static void run_rows(const struct product *p, const struct matrix *m, int64_t first, int64_t n_rows, int part,
                     int thread) {
    (void)part, (void)thread;
    const struct kvt_weight *w = m->to.w;
    for (int t = 0; t < p->n; t++) {
        float *dst = m->to.dst + t * m->to.ld + first;
        const float *x = p->x + t * p->ld_x;
        ptrdiff_t ld;
        if (w->type->codes) {
            const struct kvt_rounded *rounded = rounded_at(p, t, &ld);
            kvt_weight_code_rows_ref(dst, w->type, packed_row(m, first), w->row_bytes, n_rows, rounded, ld, p->n_in);
        } else if (m->kernels)
            m->kernels->rows(dst, packed_row(m, first), w->row_bytes, n_rows, x, p->n_in);
        else
            kvt_weight_rows_ref(dst, w->type, packed_row(m, first), w->row_bytes, n_rows, x, p->n_in);
    }
}

static void run_blas(const struct product *p, const struct matrix *m, int64_t first, int64_t n_rows, int part,
                     int thread) {
    (void)part;
    const struct kvt_weight_type *type = m->to.w->type;
    float *rows = p->threads + (size_t)thread * p->thread_floats;
    for (int64_t r = 0; r < n_rows; r++)
        kvt_weight_decode_ref(type, rows + r * p->n_in, packed_row(m, first + r), p->n_in);
    kvt_blas_product(m->to.dst + first, m->to.ld, rows, (int)n_rows, p->n_in, type->codes ? p->tokens : p->x,
                     type->codes ? p->n_in : p->ld_x, p->n);
}

/* A group of tokens at a time, so that it stays in the first caches while strips pass, and the strips in the second. */
static void run_strips(const struct product *p, const struct matrix *m, int64_t first, int64_t n_rows, int part,
                       int thread) {
    (void)thread;
    const struct kvt_weight_type *type = m->to.w->type;
    const unsigned char *strips = m->to.w->packed + (size_t)(first / KVT_STRIP_ROWS) *
                                                        (size_t)(p->n_in / type->block_len) * type->codes->unit_bytes;
    const int end = KVT_MIN((part + 1) * STRIP_JOB_TOKENS, p->n);
    for (int t = part * STRIP_JOB_TOKENS; t < end; t += KVT_TOKEN_GROUP) {
        ptrdiff_t ld;
        const struct kvt_rounded *rounded = rounded_at(p, t, &ld);
        m->kernels->strips(m->to.dst + t * m->to.ld + first, m->to.ld, strips, n_rows, rounded, ld, (int)ld, p->n_in);
    }
}

static void round_token(void *arg, int t, int thread) {
    (void)thread;
    const struct product *p = arg;
    ptrdiff_t ld;
    struct kvt_rounded *rounded = rounded_at(p, t, &ld);
    (p->tile ? p->tile->round : kvt_weight_round_ref)(rounded, ld, p->x + t * p->ld_x, p->n_in);
}

/* What the rounded tokens are worth, for OpenBLAS. */
static void unround_token(void *arg, int t, int thread) {
    (void)thread;
    const struct product *p = arg;
    ptrdiff_t ld;
    const struct kvt_rounded *rounded = rounded_at(p, t, &ld);
    for (int64_t i = 0; i < p->n_in; i++) {
        const struct kvt_rounded *r = rounded + i / 32 * ld;
        p->tokens[t * p->n_in + i] = (float)r->q[i % 32] * r->scale;
    }
}

extern const struct kvt_weight_type kvt_weight_f32;

static void pack_floats(const struct product *p, float *dst, ptrdiff_t part_stride, const float *src, int64_t n) {
    kvt_weight_f32.at[p->tile->level]->pack(dst, part_stride, (const unsigned char *)src, n);
}

/* A type without kernels at the tile's level goes through floats. */
static void pack_row(const struct product *p, float *dst, ptrdiff_t part_stride, const struct matrix *m, int64_t row) {
    const struct kvt_weight_type *type = m->to.w->type;
    const unsigned char *src = packed_row(m, row);
    if (type->at[p->tile->level]) {
        type->at[p->tile->level]->pack(dst, part_stride, src, p->n_in);
        return;
    }
    float chunk[256];
    for (int64_t i = 0; i < p->n_in; i += 256) {
        const int64_t n = KVT_MIN(p->n_in - i, 256);
        type->decode(chunk, src + (size_t)(i / type->block_len) * type->block_bytes, n);
        pack_floats(p, dst + i / p->tile->n_parts, part_stride, chunk, n);
    }
}

static ptrdiff_t block_floats(const struct product *p, int n_rows) {
    return p->tile->n_parts * n_rows * kvt_tile_stride(p->tile->n_parts, p->n_in);
}

static void pack_tokens(void *arg, int block, int thread) {
    (void)thread;
    const struct product *p = arg;
    const ptrdiff_t stride = kvt_tile_stride(p->tile->n_parts, p->n_in);
    float *dst = p->tokens + block * block_floats(p, KVT_TILE_TOKENS);
    const int first = block * KVT_TILE_TOKENS, n = KVT_MIN(p->n - first, KVT_TILE_TOKENS);
    for (int t = 0; t < n; t++)
        pack_floats(p, dst + t * stride, KVT_TILE_TOKENS * stride, p->x + (first + t) * p->ld_x, p->n_in);
}

/* n_rows rows with blocks of tokens first_block .. end_block-1. */
static void run_panel(const struct product *p, const struct matrix *m, int64_t first, int n_rows, int first_block,
                      int end_block, float *panel) {
    const ptrdiff_t stride = kvt_tile_stride(p->tile->n_parts, p->n_in);
    for (int r = 0; r < kvt_round_up(n_rows, 4); r++) /* rows past the last repeat it */
        pack_row(p, panel + r * stride, KVT_TILE_ROWS * stride, m, first + KVT_MIN(r, n_rows - 1));
    for (int b = first_block; b < end_block; b++) {
        const int t = b * KVT_TILE_TOKENS;
        p->tile->multiply(m->to.dst + t * m->to.ld + first, m->to.ld, panel, n_rows,
                          p->tokens + b * block_floats(p, KVT_TILE_TOKENS), KVT_MIN(p->n - t, KVT_TILE_TOKENS), p->n_in,
                          panel + block_floats(p, KVT_TILE_ROWS));
    }
}

static void run_panels(const struct product *p, const struct matrix *m, int64_t first, int64_t n_rows, int part,
                       int thread) {
    const int n_blocks = (int)kvt_div_up(p->n, KVT_TILE_TOKENS);
    for (int64_t r = 0; r < n_rows; r += KVT_TILE_ROWS)
        run_panel(p, m, first + r, (int)KVT_MIN(n_rows - r, KVT_TILE_ROWS), part * n_blocks / m->n_token_jobs,
                  (part + 1) * n_blocks / m->n_token_jobs, p->threads + (size_t)thread * p->thread_floats);
}

/* Which way a matrix goes, and its jobs: all its rows in equal parts that are worth their start, in multiples of `step` rows. */
static void cut(struct product *p, struct matrix *m, bool use_blas) {
    const struct kvt_weight *w = m->to.w;
    int64_t step = 8, most = INT64_MAX;
    m->n_token_jobs = 1;
    m->run = run_rows;
    if (use_blas) {
        m->run = run_blas;
        step = most = (int64_t)p->thread_floats / p->n_in;
    } else if (w->packed && m->kernels && m->kernels->strips) {
        m->run = run_strips;
        m->n_token_jobs = (int)kvt_div_up(p->n, STRIP_JOB_TOKENS);
        step = 4 * KVT_STRIP_ROWS;
    } else if (p->tile && p->n > 1 && !w->type->codes) {
        m->run = run_panels;
        m->n_token_jobs = (int)kvt_div_up(kvt_div_up(p->n, KVT_TILE_TOKENS), JOB_BLOCKS);
        step = KVT_TILE_ROWS;
    }
    const int64_t work = p->n_in * w->n_out * (p->n + UNPACK_COST) / (1 + UNPACK_COST);
    const int64_t n_worth = KVT_MAX((work + JOB_PRODUCTS / 2) / JOB_PRODUCTS, 1);
    const int64_t n_jobs = KVT_MIN(n_worth, kvt_div_up(w->n_out, step));
    m->job_rows = KVT_MIN(kvt_round_up(kvt_div_up(w->n_out, n_jobs), step), most);
    m->n_row_jobs = (int)kvt_div_up(w->n_out, m->job_rows);
    m->first_job = p->n_jobs;
    p->n_jobs += m->n_row_jobs * m->n_token_jobs;
}

static size_t rounded_need(int64_t n_in, int n) {
    return kvt_arena_need((size_t)n * (size_t)kvt_div_up(n_in, 32), sizeof(struct kvt_rounded));
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
    const size_t rounded = rounded_need(n_in_max, n_max);
    if (n_max <= 1) return rounded;
    return rounded + tokens_need((ptrdiff_t)(KVT_TILE_TOKENS * row_floats(n_in_max)), n_max) +
           threads_need(thread_floats(n_in_max), parallel);
}

/* Tokens as the matrices want them. */
static void lay_out(struct product *p, bool use_blas, const struct kvt_parallel *parallel, struct kvt_arena *scratch) {
    bool any_codes = false, any_panels = false;
    for (int i = 0; i < p->n_matrices; i++) {
        any_codes |= p->matrices[i].to.w->type->codes != NULL;
        any_panels |= p->matrices[i].run == run_panels;
    }
    if (any_codes) {
        p->rounded = kvt_arena_take(scratch, rounded_need(p->n_in, p->n), 1);
        KVT_ASSERT(p->rounded);
        kvt_parallel_run(parallel, p->n, round_token, p);
    }
    if (any_panels || (any_codes && use_blas)) {
        p->tokens = kvt_arena_take(
            scratch, tokens_need(p->tile ? block_floats(p, KVT_TILE_TOKENS) : KVT_TILE_TOKENS * p->n_in, p->n), 1);
        KVT_ASSERT(p->tokens);
        if (any_panels)
            kvt_parallel_run(parallel, (int)kvt_div_up(p->n, KVT_TILE_TOKENS), pack_tokens, p);
        else
            kvt_parallel_run(parallel, p->n, unround_token, p);
    }
    if (any_panels || use_blas) {
        p->threads = kvt_arena_take(scratch, threads_need(p->thread_floats, parallel), 1);
        KVT_ASSERT(p->threads);
    }
}

void kvt_weight_products(const struct kvt_weight_output *outputs, int n_outputs, const float *x, ptrdiff_t ld_x, int n,
                         enum kvt_level level, const struct kvt_parallel *parallel, struct kvt_arena *scratch) {
    KVT_ASSERT(n >= 1 && n_outputs >= 1 && n_outputs <= KVT_WEIGHT_OUTPUTS);
    struct product p = {.n_matrices = n_outputs, .x = x, .ld_x = ld_x, .n = n, .n_in = outputs[0].w->n_in};
    p.tile = kvt_weight_tile_find(level);
    p.thread_floats = thread_floats(p.n_in);
    const bool use_blas = !p.tile && n >= BLAS_TOKENS && kvt_blas_is_present();
    for (int i = 0; i < n_outputs; i++) {
        KVT_ASSERT(outputs[i].w->n_in == p.n_in);
        p.matrices[i] =
            (struct matrix){.to = outputs[i], .kernels = kvt_weight_kernels_find(outputs[i].w->type, level)};
        cut(&p, &p.matrices[i], use_blas);
    }
    const size_t mark = kvt_arena_mark(scratch);
    lay_out(&p, use_blas, parallel, scratch);
    if (use_blas) kvt_blas_begin();
    kvt_parallel_run(parallel, p.n_jobs, run_job, &p);
    kvt_arena_reset(scratch, mark);
}

void kvt_weight_product(float *dst, ptrdiff_t ld_dst, const struct kvt_weight *w, const float *x, ptrdiff_t ld_x, int n,
                        enum kvt_level level, const struct kvt_parallel *parallel, struct kvt_arena *scratch) {
    kvt_weight_products(&(struct kvt_weight_output){dst, ld_dst, w}, 1, x, ld_x, n, level, parallel, scratch);
}
