/* SPDX-License-Identifier: Apache-2.0
 *
 * Arithmetic for an engine on a device (backend/compute.h): memory, and which kernels do what.
 */
#include <stdio.h>

#include "backend/cuda/blas.h"
#include "backend/cuda/compute.h"
#include "backend/cuda/pages.h"
#include "base/check.h"

/* Rows that are multiplied without cuBLAS where it is there. On an H200 a layer's matrices of width 4096 took 112 us with one row, 142 with
 * two, 200 with four and 357 with eight: arithmetic of f32 by then. Tensor cores have none of that; cuBLAS was not timed beside it. */
enum { BEST_ROWS = 4 };

struct kvt_compute {
    struct kvt_allocator allocator;
    struct kvt_pool *pool;      /* or NULL */
    struct kvt_cuda own;        /* without a pool */
    const struct kvt_cuda *on;  /* the pool's or `own` */
    struct kvt_cuda_blas *blas; /* NULL: none */
    uint16_t *halves;           /* rows that are rounded for cuBLAS, and room for so many of them */
    float *factors;
    size_t halves_bytes;
    int max_factors;
};

/* The result of a call on the device. */
static enum kvt_status done(struct kvt_compute *c, enum kvt_status status, const struct kvt_error *why,
                            struct kvt_error *err) {
    if (status == KVT_OK) return KVT_OK;
    return c->pool ? kvt_cuda_done(c->pool, status, why, err) : kvt_fail(err, status, "%s", why->text);
}

/* The device is the thread's own around what launches. */
static enum kvt_status enter(struct kvt_compute *c, int *before, struct kvt_error *err) {
    struct kvt_error why;
    if (c->pool) KVT_TRY(kvt_pool_check(c->pool, err));
    return done(c, kvt_cuda_enter(c->on, before, &why), &why, err);
}

static enum kvt_status leave(struct kvt_compute *c, int before, enum kvt_status status, const struct kvt_error *why,
                             struct kvt_error *err) {
    kvt_cuda_leave(before);
    return done(c, status, why, err);
}

/* ---- life --------------------------------------------------------------------------------------------------------------- */

static enum kvt_status open_blas(struct kvt_compute *c, struct kvt_error *err) {
    int before;
    struct kvt_error why;
    KVT_TRY(enter(c, &before, err));
    enum kvt_status status = kvt_cuda_blas_open(&c->blas, c->on->stream, &c->allocator, &why);
    if (status == KVT_ERR_UNSUPPORTED) status = KVT_OK; /* products of many rows go without: `about` says so */
    return leave(c, before, status, &why, err);
}

static void close_compute(struct kvt_compute *c) {
    int before;
    const struct kvt_allocator allocator = c->allocator;
    const bool inside = kvt_cuda_enter(c->on, &before, NULL) == KVT_OK;
    kvt_cuda_blas_close(c->blas);
    if (inside) kvt_cuda_leave(before);
    kvt_cuda_give(c->on, c->halves);
    kvt_cuda_give(c->on, c->factors);
    if (!c->pool) kvt_cuda_close(&c->own);
    kvt_give(&allocator, c, 1, sizeof *c);
}

static enum kvt_status open_compute(struct kvt_compute **out, struct kvt_pool *pool, int device,
                                    const struct kvt_allocator *allocator, struct kvt_error *err) {
    struct kvt_compute *c = kvt_take_zero(allocator, 1, sizeof *c);
    if (!c) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for computing on a device");
    c->allocator = *allocator;
    c->pool = pool;
    c->on = pool ? &kvt_cuda_pool_of(pool)->on : &c->own;
    enum kvt_status status = pool ? KVT_OK : kvt_cuda_open(&c->own, device, NULL, err);
    if (status != KVT_OK) {
        kvt_give(allocator, c, 1, sizeof *c);
        return status;
    }
    if (pool) status = open_blas(c, err);
    if (status == KVT_OK)
        *out = c;
    else
        close_compute(c);
    return status;
}

static void about(const struct kvt_compute *c, char *text, size_t bytes) {
    struct kvt_cuda_about found = {.name = "unknown"};
    struct kvt_error lacks = {.text = ""};
    (void)kvt_cuda_describe(&found, c->on->device, NULL);
    const bool has_blas = kvt_cuda_blas_find(&lacks) == KVT_OK;
    snprintf(text, bytes, "CUDA device %d (%s)%s%s%s", c->on->device, found.name, has_blas ? "" : "; ", lacks.text,
             has_blas ? "" : ", so prompts are computed a few tokens at a time");
}

static enum kvt_status free_bytes(struct kvt_compute *c, uint64_t *out, struct kvt_error *err) {
    struct kvt_error why;
    size_t bytes = 0;
    const enum kvt_status status = kvt_cuda_free_bytes(c->on, &bytes, &why);
    if (status == KVT_OK) *out = bytes;
    return done(c, status, &why, err);
}

/* ---- memory ------------------------------------------------------------------------------------------------------------- */

static enum kvt_status take(struct kvt_compute *c, void **out, size_t bytes, struct kvt_error *err) {
    struct kvt_error why;
    return done(c, kvt_cuda_take(c->on, out, bytes, &why), &why, err);
}

static void give(struct kvt_compute *c, void *memory) { kvt_cuda_give(c->on, memory); }

static enum kvt_status copy(struct kvt_compute *c, void *to, const void *from, size_t bytes, bool wait,
                            struct kvt_error *err) {
    struct kvt_error why;
    if (c->pool) KVT_TRY(kvt_pool_check(c->pool, err));
    enum kvt_status status = kvt_cuda_copy(c->on, to, from, bytes, &why);
    if (status == KVT_OK && wait) status = kvt_cuda_wait(c->on, &why);
    return done(c, status, &why, err);
}

static enum kvt_status send(struct kvt_compute *c, void *to, const void *from, size_t bytes, struct kvt_error *err) {
    return copy(c, to, from, bytes, false, err);
}

static enum kvt_status fetch(struct kvt_compute *c, void *to, const void *from, size_t bytes, struct kvt_error *err) {
    return copy(c, to, from, bytes, true, err);
}

/* ---- products ----------------------------------------------------------------------------------------------------------- */

static enum kvt_status few(struct kvt_compute *c, const struct kvt_compute_output *outputs, int n_outputs,
                           const float *x, int first, int n, struct kvt_error *err) {
    struct kvt_cuda_products a = {.n_outputs = n_outputs, .n_rows = n, .x = x + (ptrdiff_t)first * outputs[0].w->n_in};
    for (int i = 0; i < n_outputs; i++) {
        a.w[i] = *outputs[i].w;
        a.dst[i] = outputs[i].dst + (ptrdiff_t)first * a.w[i].n_out;
    }
    return kvt_cuda_products_few(&a, c->on->stream, err);
}

/* Room for n rounded rows. */
static enum kvt_status make_room(struct kvt_compute *c, int n, int64_t ld, struct kvt_error *err) {
    const size_t bytes = (size_t)n * (size_t)ld * sizeof *c->halves;
    if (bytes > c->halves_bytes) {
        void *taken;
        KVT_TRY(kvt_cuda_take(c->on, &taken, bytes, err));
        kvt_cuda_give(c->on, c->halves);
        c->halves = taken;
        c->halves_bytes = bytes;
    }
    if (n > c->max_factors) {
        void *taken;
        KVT_TRY(kvt_cuda_take(c->on, &taken, (size_t)n * sizeof *c->factors, err));
        kvt_cuda_give(c->on, c->factors);
        c->factors = taken;
        c->max_factors = n;
    }
    return KVT_OK;
}

static enum kvt_status many(struct kvt_compute *c, const struct kvt_compute_output *outputs, int n_outputs,
                            const float *x, int n, struct kvt_error *err) {
    const int64_t ld = outputs[0].w->ld;
    KVT_TRY(make_room(c, n, ld, err));
    const struct kvt_cuda_round rounded = {c->halves, c->factors, x, n, outputs[0].w->n_in, ld};
    KVT_TRY(kvt_cuda_round_rows(&rounded, c->on->stream, err));
    for (int i = 0; i < n_outputs; i++) {
        const struct kvt_compute_matrix *w = outputs[i].w;
        const struct kvt_cuda_restore restored = {outputs[i].dst, c->factors, n, w->n_out};
        KVT_TRY(kvt_cuda_blas_product(c->blas, outputs[i].dst, w, c->halves, n, err));
        KVT_TRY(kvt_cuda_restore_rows(&restored, c->on->stream, err));
    }
    return KVT_OK;
}

static enum kvt_status multiply(struct kvt_compute *c, const struct kvt_compute_output *outputs, int n_outputs,
                                const float *x, int n, struct kvt_error *err) {
    if (n > BEST_ROWS && c->blas) return many(c, outputs, n_outputs, x, n, err);
    for (int first = 0; first < n; first += KVT_CUDA_FEW_ROWS)
        KVT_TRY(few(c, outputs, n_outputs, x, first, KVT_MIN(n - first, KVT_CUDA_FEW_ROWS), err));
    return KVT_OK;
}

static enum kvt_status products(struct kvt_compute *c, const struct kvt_compute_output *outputs, int n_outputs,
                                const float *x, int n_rows, struct kvt_error *err) {
    int before;
    struct kvt_error why;
    KVT_ASSERT(n_outputs >= 1 && n_outputs <= KVT_COMPUTE_OUTPUTS);
    KVT_TRY(enter(c, &before, err));
    return leave(c, before, multiply(c, outputs, n_outputs, x, n_rows, &why), &why, err);
}

/* ---- the rest ----------------------------------------------------------------------------------------------------------- */

static enum kvt_status norm(struct kvt_compute *c, const struct kvt_compute_norm *a, struct kvt_error *err) {
    int before;
    struct kvt_error why;
    KVT_TRY(enter(c, &before, err));
    return leave(c, before, kvt_cuda_norm(a, c->on->stream, &why), &why, err);
}

static enum kvt_status heads(struct kvt_compute *c, const struct kvt_compute_heads *a, struct kvt_error *err) {
    int before;
    struct kvt_error why;
    KVT_TRY(enter(c, &before, err));
    return leave(c, before, kvt_cuda_heads(a, c->on->stream, &why), &why, err);
}

static enum kvt_status add(struct kvt_compute *c, const struct kvt_compute_add *a, struct kvt_error *err) {
    int before;
    struct kvt_error why;
    KVT_TRY(enter(c, &before, err));
    return leave(c, before, kvt_cuda_add(a, c->on->stream, &why), &why, err);
}

static enum kvt_status gate(struct kvt_compute *c, const struct kvt_compute_gate *a, struct kvt_error *err) {
    int before;
    struct kvt_error why;
    KVT_TRY(enter(c, &before, err));
    return leave(c, before, kvt_cuda_gate(a, c->on->stream, &why), &why, err);
}

const struct kvt_compute_ops kvt_cuda_compute = {
    .takes = kvt_cuda_pool_takes,
    .open = open_compute,
    .close = close_compute,
    .about = about,
    .free_bytes = free_bytes,
    .take = take,
    .give = give,
    .send = send,
    .fetch = fetch,
    .products = products,
    .norm = norm,
    .heads = heads,
    .add = add,
    .gate = gate,
};
