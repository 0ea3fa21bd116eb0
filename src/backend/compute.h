/* SPDX-License-Identifier: Apache-2.0
 *
 * Arithmetic on matrices that lie where a backend's pages do: what an engine needs whose activations stay there. Rows are dense and in
 * f32; norms, biases, rotations and gates are the bits of the engine's own in the process, products are rounded (see kvt_compute_matrix).
 *
 * Everything happens in the order of a stream: a pool's, so that steps and attention follow. Nothing waits but open and fetch. The
 * first error of the device loses the pool, as any of its own would.
 */
#ifndef BACKEND_COMPUTE_H
#define BACKEND_COMPUTE_H

#include "base/attr.h"
#include "kvtile/cache.h"

struct kvt_compute;

/* A matrix of n_out rows of n_in numbers, kept as f16 numbers of which they are `scale` times (a power of two): row r at
 * halves + r * ld. Products of few rows multiply them with f32 inputs, those of many with inputs rounded to f16; sums are in f32. */
struct kvt_compute_matrix {
    const uint16_t *halves;
    float scale;
    int64_t n_in, n_out, ld;
};
/* From row to row: whole vectors of 16 bytes, the numbers past n_in zero. */
static inline int64_t kvt_compute_ld(int64_t n_in) { return kvt_round_up(n_in, 8); }

/* dst[t] = w x[t] */
struct kvt_compute_output {
    float *dst;
    const struct kvt_compute_matrix *w;
};
enum { KVT_COMPUTE_OUTPUTS = 3 };

/* dst = x * weight / sqrt(mean of x^2 + eps), row by row. dst may be x. */
struct kvt_compute_norm {
    float *dst;
    const float *x, *weight;
    int n_rows, width;
    float eps;
};

/* Heads of one kind: n_heads of `size` elements in each row. What is NULL is left out. */
struct kvt_compute_part {
    float *x;
    int n_heads, size;
    const float *bias; /* of all heads */
    const float *norm; /* of one head, the same for all */
    bool turned;
};
/* Adds biases, normalises heads, turns their first n_rot elements by angles whose cosines, then sines, are in each row's table. Pairs
 * are neighbours, or elements n_rot / 2 apart. */
struct kvt_compute_heads {
    struct kvt_compute_part parts[KVT_COMPUTE_OUTPUTS];
    int n_parts, n_rows;
    float eps;
    const float *tables;
    int n_rot;
    bool neighbours;
};

/* x += h + bias; bias may be NULL. */
struct kvt_compute_add {
    float *x;
    const float *h, *bias;
    int n_rows, width;
};

/* gate = silu(gate) * up, of n numbers. */
struct kvt_compute_gate {
    float *gate;
    const float *up;
    int64_t n;
};

struct kvt_compute_ops {
    /* Whether caches of a plan can be kept there: UNSUPPORTED names the layer. */
    enum kvt_status (*takes)(const struct kvt_plan *plan, struct kvt_error *err);
    /* On a pool, in its order. Without a pool, on a device: for memory that outlives pools, without products. */
    enum kvt_status (*open)(struct kvt_compute **out, struct kvt_pool *pool, int device,
                            const struct kvt_allocator *allocator, struct kvt_error *err);
    void (*close)(struct kvt_compute *c);
    /* "CUDA device 0 (NVIDIA H200)", and what there is to say of it. */
    void (*about)(const struct kvt_compute *c, char *text, size_t bytes);
    enum kvt_status (*free_bytes)(struct kvt_compute *c, uint64_t *out, struct kvt_error *err);

    enum kvt_status (*take)(struct kvt_compute *c, void **out, size_t bytes, struct kvt_error *err);
    void (*give)(struct kvt_compute *c, void *memory); /* NULL is fine */
    /* From the process's memory, which may then change; to it, when what came before is done. */
    enum kvt_status (*send)(struct kvt_compute *c, void *to, const void *from, size_t bytes, struct kvt_error *err);
    enum kvt_status (*fetch)(struct kvt_compute *c, void *to, const void *from, size_t bytes, struct kvt_error *err);

    /* At most KVT_COMPUTE_OUTPUTS matrices of one n_in. */
    enum kvt_status (*products)(struct kvt_compute *c, const struct kvt_compute_output *outputs, int n_outputs,
                                const float *x, int n_rows, struct kvt_error *err);
    enum kvt_status (*norm)(struct kvt_compute *c, const struct kvt_compute_norm *a, struct kvt_error *err);
    enum kvt_status (*heads)(struct kvt_compute *c, const struct kvt_compute_heads *a, struct kvt_error *err);
    enum kvt_status (*add)(struct kvt_compute *c, const struct kvt_compute_add *a, struct kvt_error *err);
    enum kvt_status (*gate)(struct kvt_compute *c, const struct kvt_compute_gate *a, struct kvt_error *err);
};

#endif
