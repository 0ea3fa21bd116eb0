/* SPDX-License-Identifier: Apache-2.0
 *
 * A pass on a device: matrices lie beside the cache's pages, and what happens to them is the backend's (backend/compute.h). Tokens'
 * embeddings and the tables of their positions are made in the process and go down; what comes up is what is asked for.
 */
#include <string.h>

#include "base/check.h"
#include "model/compute.h"
#include "model/place.h"

enum { LOGITS_FLOATS = 1 << 24 };

/* p->compute */
struct device {
    const struct kvt_placed *placed;
    const struct kvt_compute_ops *ops;
    struct kvt_compute *compute;
    float *begun; /* in the process: embeddings, then tables, of n_max rows */
    size_t n_begun;
    float *seen; /* in the process, where there is a tap: rows of q, k, v and mix */
    size_t n_seen;
    float *logits; /* on the device, of max_logits rows */
    int max_logits;
};

static struct device *device_of(const struct kvt_pass *p) { return p->compute; }

/* ---- life ------------------------------------------------------------------------------------------------------------- */

/* Floats of the rows that a tap sees, at most. */
static size_t seen_floats(const struct kvt_pass *p) {
    size_t most = 0;
    for (int l = 0; l < p->model->config.n_layers; l++) {
        const struct kvt_layer *layer = &p->model->layers[l];
        most = KVT_MAX(most, (size_t)(layer->q.n_out + layer->k.n_out + layer->v.n_out + layer->out.n_in));
    }
    return most * (size_t)p->n_max;
}

static enum kvt_status open_device(struct kvt_pass *p, const struct kvt_pass_options *o, struct kvt_error *err) {
    const struct kvt_model *m = p->model;
    struct device *d = kvt_take_zero(&p->allocator, 1, sizeof *d);
    if (!d) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for passes on a device");
    p->compute = d;
    d->placed = o->placed;
    d->ops = o->placed->ops;
    d->n_begun = (size_t)p->n_max * (size_t)(m->config.width + m->rope.n_rot);
    d->n_seen = p->tap.look || p->tap.attend ? seen_floats(p) : 0;
    d->begun = kvt_take(&p->allocator, d->n_begun, sizeof *d->begun);
    d->seen = d->n_seen ? kvt_take(&p->allocator, d->n_seen, sizeof *d->seen) : NULL;
    if (!d->begun || (d->n_seen && !d->seen))
        return kvt_fail(err, KVT_ERR_NOMEM, "no memory for passes of %d tokens on a device", p->n_max);
    KVT_TRY(d->ops->open(&d->compute, o->pool, o->placed->device, &p->allocator, err));
    d->max_logits = (int)KVT_MIN(p->n_max, KVT_MAX(1, LOGITS_FLOATS / m->output.n_out));
    return d->ops->take(d->compute, (void **)&d->logits,
                        (size_t)d->max_logits * (size_t)m->output.n_out * sizeof(float), err);
}

static void close_device(struct kvt_pass *p) {
    struct device *d = device_of(p);
    if (!d) return;
    if (d->compute) {
        d->ops->give(d->compute, d->logits);
        d->ops->close(d->compute);
    }
    kvt_give(&p->allocator, d->begun, d->n_begun, sizeof *d->begun);
    kvt_give(&p->allocator, d->seen, d->n_seen, sizeof *d->seen);
    kvt_give(&p->allocator, d, 1, sizeof *d);
    p->compute = NULL;
}

static enum kvt_status take(struct kvt_pass *p, float **out, size_t n, struct kvt_error *err) {
    struct device *d = device_of(p);
    return d->ops->take(d->compute, (void **)out, n * sizeof(float), err);
}

static void give(struct kvt_pass *p, float *matrix, size_t n) {
    struct device *d = device_of(p);
    (void)n;
    d->ops->give(d->compute, matrix);
}

static enum kvt_status send(struct kvt_pass *p, float *dst, const float *src, size_t n, struct kvt_error *err) {
    struct device *d = device_of(p);
    return d->ops->send(d->compute, dst, src, n * sizeof *dst, err);
}

static enum kvt_status fetch(struct kvt_pass *p, float *dst, const float *src, size_t n, struct kvt_error *err) {
    struct device *d = device_of(p);
    return d->ops->fetch(d->compute, dst, src, n * sizeof *dst, err);
}

/* ---- a layer ---------------------------------------------------------------------------------------------------------- */

static void begin_row(void *arg, int row, int thread) {
    const struct kvt_pass *p = arg;
    const struct kvt_model *m = p->model;
    float *x = device_of(p)->begun + (ptrdiff_t)row * m->config.width;
    float *table = device_of(p)->begun + (ptrdiff_t)p->n * m->config.width + (ptrdiff_t)row * m->rope.n_rot;
    (void)thread;
    kvt_weight_row(&m->embedding, p->ids[row], x, p->level);
    kvt_rope_table(table, &m->rope, p->positions[row]);
}

static enum kvt_status begin(struct kvt_pass *p, struct kvt_error *err) {
    struct device *d = device_of(p);
    const size_t n = (size_t)p->n, width = (size_t)p->model->config.width;
    kvt_parallel_run(p->parallel, p->n, begin_row, p);
    KVT_TRY(send(p, p->x, d->begun, n * width, err));
    return send(p, p->rope, d->begun + n * width, n * (size_t)p->model->rope.n_rot, err);
}

static enum kvt_status norm(struct kvt_pass *p, float *dst, const float *x, const float *weight, int n_rows,
                            struct kvt_error *err) {
    struct device *d = device_of(p);
    const struct kvt_config *c = &p->model->config;
    const struct kvt_compute_norm a = {dst, x, kvt_placed_vector(d->placed, weight), n_rows, c->width, c->norm_eps};
    return d->ops->norm(d->compute, &a, err);
}

static enum kvt_status products(struct kvt_pass *p, const struct kvt_output *outputs, int n, const float *x, int first,
                                struct kvt_error *err) {
    struct device *d = device_of(p);
    struct kvt_compute_output there[KVT_PASS_OUTPUTS];
    for (int i = 0; i < n; i++)
        there[i] = (struct kvt_compute_output){outputs[i].dst + first * outputs[i].w->n_out,
                                               kvt_placed_matrix(d->placed, outputs[i].w)};
    return d->ops->products(d->compute, there, n, x + first * outputs[0].w->n_in, p->n - first, err);
}

static struct kvt_compute_part part(const struct device *d, float *x, int n_heads, int size, const float *bias,
                                    const float *norm, bool turned) {
    return (struct kvt_compute_part){
        x, n_heads, size, kvt_placed_vector(d->placed, bias), kvt_placed_vector(d->placed, norm), turned};
}

static enum kvt_status heads(struct kvt_pass *p, const struct kvt_layer *layer, struct kvt_error *err) {
    struct device *d = device_of(p);
    const struct kvt_config *c = &p->model->config;
    const struct kvt_rope *rope = &p->model->rope;
    const int n_q = layer->config.n_q_heads, n_kv = layer->config.n_kv_heads;
    const struct kvt_compute_heads a = {
        .parts = {part(d, p->q, n_q, c->k_size, layer->q_bias, layer->q_norm, true),
                  part(d, p->k, n_kv, c->k_size, layer->k_bias, layer->k_norm, true),
                  part(d, p->v, n_kv, c->v_size, layer->v_bias, NULL, false)},
        .n_parts = layer->v_bias ? 3 : 2,
        .n_rows = p->n,
        .eps = c->norm_eps,
        .tables = p->rope,
        .n_rot = rope->n_rot,
        .neighbours = rope->pairing == KVT_ROPE_NEIGHBOURS,
    };
    return d->ops->heads(d->compute, &a, err);
}

static enum kvt_status add(struct kvt_pass *p, const float *bias, int first, struct kvt_error *err) {
    struct device *d = device_of(p);
    const int width = p->model->config.width;
    const ptrdiff_t at = (ptrdiff_t)first * width;
    const struct kvt_compute_add a = {p->x + at, p->h + at, kvt_placed_vector(d->placed, bias), p->n - first, width};
    return d->ops->add(d->compute, &a, err);
}

static enum kvt_status gate(struct kvt_pass *p, int n_ff, int first, struct kvt_error *err) {
    struct device *d = device_of(p);
    const ptrdiff_t at = (ptrdiff_t)first * n_ff;
    const struct kvt_compute_gate a = {p->gate + at, p->up + at, (int64_t)(p->n - first) * n_ff};
    return d->ops->gate(d->compute, &a, err);
}

/* ---- up to the process ------------------------------------------------------------------------------------------------ */

static enum kvt_status show(struct kvt_pass *p, struct kvt_layer_rows *rows, float **out, struct kvt_error *err) {
    struct kvt_rows *const shown[] = {&rows->q, &rows->k, &rows->v};
    float *to = device_of(p)->seen;
    for (size_t i = 0; i < KVT_ARRAY_LEN(shown); i++) {
        const size_t n = (size_t)rows->n * (size_t)shown[i]->row_stride;
        KVT_TRY(fetch(p, to, shown[i]->data, n, err));
        shown[i]->data = to;
        to += n;
    }
    *out = to;
    return KVT_OK;
}

static enum kvt_status logits(struct kvt_pass *p, float *dst, const float *outputs, bool is_here, int n,
                              struct kvt_error *err) {
    struct device *d = device_of(p);
    const int64_t width = p->model->config.width, n_vocab = p->model->output.n_out;
    const struct kvt_compute_output all = {d->logits, kvt_placed_matrix(d->placed, &p->model->output)};
    for (int done = 0, some; done < n; done += some) {
        const float *x = outputs + done * width;
        some = KVT_MIN(n - done, d->max_logits);
        if (!is_here) KVT_TRY(send(p, p->h, x, (size_t)(some * width), err));
        KVT_TRY(d->ops->products(d->compute, &all, 1, is_here ? x : p->h, some, err));
        KVT_TRY(fetch(p, dst + done * n_vocab, d->logits, (size_t)(some * n_vocab), err));
    }
    return KVT_OK;
}

const struct kvt_pass_ops kvt_pass_ops_device = {
    .open = open_device,
    .close = close_device,
    .take = take,
    .give = give,
    .begin = begin,
    .norm = norm,
    .products = products,
    .heads = heads,
    .add = add,
    .gate = gate,
    .show = show,
    .send = send,
    .fetch = fetch,
    .logits = logits,
};
