/* SPDX-License-Identifier: Apache-2.0 */
#include "model/block.h"

#include "base/check.h"
#include "model/compute.h"

static enum kvt_status product(struct kvt_pass *p, float *dst, const struct kvt_weight *w, const float *x, int first,
                               struct kvt_error *err) {
    return p->ops->products(p, &(struct kvt_output){dst, w}, 1, x, first, err);
}

/* h = norm(x) of rows from `first` on. */
static enum kvt_status norm(struct kvt_pass *p, const float *weight, int first, struct kvt_error *err) {
    const ptrdiff_t at = (ptrdiff_t)first * p->model->config.width;
    return p->ops->norm(p, p->h + at, p->x + at, weight, p->n - first, err);
}

static struct kvt_rows rows_of(const float *data, int n_heads, int size) {
    return (struct kvt_rows){data, KVT_TYPE_F32, (ptrdiff_t)n_heads * size, size};
}

static struct kvt_layer_rows layer_rows(const struct kvt_pass *p, int n_q, int n_kv) {
    const struct kvt_config *c = &p->model->config;
    return (struct kvt_layer_rows){
        .layer = p->layer,
        .n = p->n,
        .n_q_heads = n_q,
        .position = p->positions[0],
        .scale = c->score_scale,
        .q = rows_of(p->q, n_q, c->k_size),
        .k = rows_of(p->k, n_kv, c->k_size),
        .v = rows_of(p->v, n_kv, c->v_size),
    };
}

/* What the tap is to look at, and, where it attends itself, p->mix. */
static enum kvt_status look(struct kvt_pass *p, const struct kvt_layer_rows *rows, struct kvt_error *err) {
    struct kvt_layer_rows seen = *rows;
    float *mix;
    KVT_TRY(p->ops->show(p, &seen, &mix, err));
    if (p->tap.look) KVT_TRY(p->tap.look(p->tap.ctx, &seen, err));
    if (!p->tap.attend || p->first == p->n) return KVT_OK;
    KVT_TRY(p->tap.attend(p->tap.ctx, &seen, mix, err));
    const size_t n = (size_t)rows->n * (size_t)rows->n_q_heads * (size_t)p->model->config.v_size;
    return p->ops->send(p, p->mix, mix, n, err);
}

/* p->mix becomes attention's output. */
static enum kvt_status attend(const struct kvt_pass *p, const struct kvt_layer_rows *rows, struct kvt_error *err) {
    const int v_size = p->model->config.v_size;
    const struct kvt_attend attend = {
        .struct_size = sizeof attend,
        .n_q_heads = rows->n_q_heads,
        .scale = rows->scale,
        .q = rows->q,
        .out = p->mix,
        .out_row_stride = (ptrdiff_t)rows->n_q_heads * v_size,
        .out_head_stride = v_size,
    };
    return kvt_step_attend(p->step, p->layer, &attend, err);
}

enum kvt_status kvt_block_attend(struct kvt_pass *p, const struct kvt_layer *layer, struct kvt_error *err) {
    const int n_q = layer->config.n_q_heads, n_kv = layer->config.n_kv_heads;
    KVT_TRY(norm(p, layer->attn_norm, 0, err));
    const struct kvt_output qkv[] = {{p->q, &layer->q}, {p->k, &layer->k}, {p->v, &layer->v}};
    KVT_TRY(p->ops->products(p, qkv, 3, p->h, 0, err));
    KVT_TRY(p->ops->heads(p, layer, err));

    const struct kvt_layer_rows rows = layer_rows(p, n_q, n_kv);
    if (p->tap.look || p->tap.attend) KVT_TRY(look(p, &rows, err));
    KVT_TRY(kvt_step_append(p->step, p->layer, &rows.k, &rows.v, &rows.q, n_q, err));
    if (p->first == p->n) return KVT_OK;
    if (!p->tap.attend) KVT_TRY(attend(p, &rows, err));
    KVT_TRY(product(p, p->h, &layer->out, p->mix, p->first, err));
    return p->ops->add(p, layer->out_bias, p->first, err);
}

enum kvt_status kvt_block_feed_gated(struct kvt_pass *p, const struct kvt_layer *layer, struct kvt_error *err) {
    KVT_TRY(norm(p, layer->ffn_norm, p->first, err));
    const struct kvt_output gate_up[] = {{p->gate, &layer->gate}, {p->up, &layer->up}};
    KVT_TRY(p->ops->products(p, gate_up, 2, p->h, p->first, err));
    KVT_TRY(p->ops->gate(p, layer->config.n_ff, p->first, err));
    KVT_TRY(product(p, p->h, &layer->down, p->gate, p->first, err));
    return p->ops->add(p, NULL, p->first, err);
}
