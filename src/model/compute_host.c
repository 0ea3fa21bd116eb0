/* SPDX-License-Identifier: Apache-2.0
 * A pass in the process's memory, by the caller's threads. The same bits for any number of them and for any batch. */
#include <string.h>

#include "base/check.h"
#include "model/compute.h"
#include "model/ops.h"

enum { ROWS_PER_JOB = 16 };

static float *row_of(float *matrix, int row, int64_t len) { return matrix + row * len; }

/* ---- life ------------------------------------------------------------------------------------------------------------- */

static enum kvt_status open_host(struct kvt_pass *p, const struct kvt_pass_options *options, struct kvt_error *err) {
    size_t n_in = (size_t)p->model->config.width;
    for (int l = 0; l < p->model->config.n_layers; l++) {
        const struct kvt_layer *layer = &p->model->layers[l];
        n_in = KVT_MAX(n_in, KVT_MAX((size_t)layer->out.n_in, (size_t)layer->config.n_ff));
    }
    const size_t bytes = kvt_weight_scratch_bytes((int64_t)n_in, p->n_max, p->parallel);
    (void)options;
    if (kvt_arena_init(&p->scratch, &p->allocator, KVT_MAX(bytes, (size_t)1))) return KVT_OK;
    return kvt_fail(err, KVT_ERR_NOMEM, "no memory for products of %d tokens (%zu bytes)", p->n_max, bytes);
}

static void close_host(struct kvt_pass *p) { kvt_arena_finish(&p->scratch); }

static enum kvt_status take(struct kvt_pass *p, float **out, size_t n, struct kvt_error *err) {
    float *taken = kvt_take(&p->allocator, n, sizeof *taken);
    if (!taken) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for %zu floats of a forward pass", n);
    *out = taken;
    return KVT_OK;
}

static void give(struct kvt_pass *p, float *matrix, size_t n) { kvt_give(&p->allocator, matrix, n, sizeof *matrix); }

/* ---- row by row ------------------------------------------------------------------------------------------------------- */

/* What is done with each row: fields are used as `fn` needs them. */
struct row_jobs {
    struct kvt_pass *pass;
    const struct kvt_layer *layer;
    float *dst;
    const float *x, *weight;
    int first, end, width;
    void (*fn)(const struct row_jobs *jobs, int row);
};

static void run_rows(void *arg, int i, int thread) {
    (void)thread;
    const struct row_jobs *jobs = arg;
    const int begin = jobs->first + i * ROWS_PER_JOB, end = KVT_MIN(begin + ROWS_PER_JOB, jobs->end);
    for (int row = begin; row < end; row++) jobs->fn(jobs, row);
}

/* In parallel where there are many. */
static enum kvt_status each_row(struct row_jobs jobs) {
    kvt_parallel_run(jobs.pass->parallel, (int)kvt_div_up(jobs.end - jobs.first, ROWS_PER_JOB), run_rows, &jobs);
    return KVT_OK;
}

static void begin_row(const struct row_jobs *jobs, int row) {
    struct kvt_pass *p = jobs->pass;
    kvt_weight_row(&p->model->embedding, p->ids[row], row_of(p->x, row, p->model->config.width), p->level);
    kvt_rope_table(row_of(p->rope, row, p->model->rope.n_rot), &p->model->rope, p->positions[row]);
}

static enum kvt_status begin(struct kvt_pass *p, struct kvt_error *err) {
    (void)err;
    return each_row((struct row_jobs){.pass = p, .end = p->n, .fn = begin_row});
}

static void norm_row(const struct row_jobs *jobs, int row) {
    const struct kvt_config *c = &jobs->pass->model->config;
    const ptrdiff_t at = (ptrdiff_t)row * c->width;
    kvt_rms_norm(jobs->dst + at, jobs->x + at, jobs->weight, c->width, c->norm_eps);
}

static enum kvt_status norm(struct kvt_pass *p, float *dst, const float *x, const float *weight, int n_rows,
                            struct kvt_error *err) {
    (void)err;
    return each_row((struct row_jobs){.pass = p, .dst = dst, .x = x, .weight = weight, .end = n_rows, .fn = norm_row});
}

/* Biases, norms and rotation of n_heads heads. */
static void finish_heads(const struct kvt_pass *p, float *heads, int n_heads, const float *bias, const float *norm,
                         int row) {
    const struct kvt_model *m = p->model;
    const int size = m->config.k_size;
    if (bias) kvt_add(heads, bias, n_heads * size);
    for (int h = 0; norm && h < n_heads; h++)
        kvt_rms_norm(heads + h * size, heads + h * size, norm, size, m->config.norm_eps);
    kvt_rope_turn(heads, n_heads, size, &m->rope, row_of(p->rope, row, m->rope.n_rot));
}

static void heads_row(const struct row_jobs *jobs, int row) {
    struct kvt_pass *p = jobs->pass;
    const struct kvt_layer *layer = jobs->layer;
    const int n_q = layer->config.n_q_heads, n_kv = layer->config.n_kv_heads;
    finish_heads(p, row_of(p->q, row, layer->q.n_out), n_q, layer->q_bias, layer->q_norm, row);
    finish_heads(p, row_of(p->k, row, layer->k.n_out), n_kv, layer->k_bias, layer->k_norm, row);
    if (layer->v_bias) kvt_add(row_of(p->v, row, layer->v.n_out), layer->v_bias, (int)layer->v.n_out);
}

static enum kvt_status heads(struct kvt_pass *p, const struct kvt_layer *layer, struct kvt_error *err) {
    (void)err;
    return each_row((struct row_jobs){.pass = p, .layer = layer, .end = p->n, .fn = heads_row});
}

static void add_row(const struct row_jobs *jobs, int row) {
    struct kvt_pass *p = jobs->pass;
    const int width = p->model->config.width;
    float *h = row_of(p->h, row, width);
    if (jobs->weight) kvt_add(h, jobs->weight, width);
    kvt_add(row_of(p->x, row, width), h, width);
}

static enum kvt_status add(struct kvt_pass *p, const float *bias, int first, struct kvt_error *err) {
    (void)err;
    return each_row((struct row_jobs){.pass = p, .weight = bias, .first = first, .end = p->n, .fn = add_row});
}

static void gate_row(const struct row_jobs *jobs, int row) {
    struct kvt_pass *p = jobs->pass;
    kvt_swiglu(row_of(p->gate, row, jobs->width), row_of(p->up, row, jobs->width), jobs->width);
}

static enum kvt_status gate(struct kvt_pass *p, int n_ff, int first, struct kvt_error *err) {
    (void)err;
    return each_row((struct row_jobs){.pass = p, .width = n_ff, .first = first, .end = p->n, .fn = gate_row});
}

/* ---- products --------------------------------------------------------------------------------------------------------- */

static enum kvt_status products(struct kvt_pass *p, const struct kvt_output *outputs, int n, const float *x, int first,
                                struct kvt_error *err) {
    KVT_ASSERT(n >= 1 && n <= KVT_PASS_OUTPUTS);
    (void)err;
    const int64_t n_in = outputs[0].w->n_in;
    struct kvt_weight_output to[KVT_PASS_OUTPUTS];
    for (int i = 0; i < n; i++) {
        const int64_t n_out = outputs[i].w->n_out;
        to[i] = (struct kvt_weight_output){outputs[i].dst + first * n_out, n_out, outputs[i].w};
    }
    kvt_weight_products(to, n, x + first * n_in, n_in, p->n - first, p->level, p->parallel, &p->scratch);
    return KVT_OK;
}

static enum kvt_status logits(struct kvt_pass *p, float *dst, const float *outputs, bool is_here, int n,
                              struct kvt_error *err) {
    const struct kvt_weight *w = &p->model->output;
    const int64_t width = p->model->config.width;
    (void)is_here, (void)err;
    for (int done = 0; done < n; done += p->n_max)
        kvt_weight_product(dst + done * w->n_out, w->n_out, w, outputs + done * width, width,
                           KVT_MIN(n - done, p->n_max), p->level, p->parallel, &p->scratch);
    return KVT_OK;
}

/* ---- to and from: the same memory ------------------------------------------------------------------------------------- */

static enum kvt_status show(struct kvt_pass *p, struct kvt_layer_rows *rows, float **out, struct kvt_error *err) {
    (void)rows, (void)err;
    *out = p->mix;
    return KVT_OK;
}

static enum kvt_status copy(struct kvt_pass *p, float *dst, const float *src, size_t n, struct kvt_error *err) {
    (void)p, (void)err;
    if (dst != src) memcpy(dst, src, n * sizeof *dst);
    return KVT_OK;
}

const struct kvt_pass_ops kvt_pass_ops_host = {
    .open = open_host,
    .close = close_host,
    .take = take,
    .give = give,
    .begin = begin,
    .norm = norm,
    .products = products,
    .heads = heads,
    .add = add,
    .gate = gate,
    .show = show,
    .send = copy,
    .fetch = copy,
    .logits = logits,
};
