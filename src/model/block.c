/* SPDX-License-Identifier: Apache-2.0 */
#include "model/block.h"

#include "base/check.h"
#include "model/ops.h"

static float *row_of(float *matrix, int row, int64_t len) { return matrix + row * len; }

static void product(struct kvt_pass *p, float *dst, const struct kvt_weight *w, const float *x, int first) {
    kvt_pass_products(p, &(struct kvt_output){dst, w}, 1, x, first);
}

static void norm_row(struct kvt_pass *p, const struct kvt_layer *layer, int row) {
    const struct kvt_config *c = &p->model->config;
    kvt_rms_norm(row_of(p->h, row, c->width), row_of(p->x, row, c->width), layer->attn_norm, c->width, c->norm_eps);
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

static void qkv_row(struct kvt_pass *p, const struct kvt_layer *layer, int row) {
    const int n_q = layer->config.n_q_heads, n_kv = layer->config.n_kv_heads;
    finish_heads(p, row_of(p->q, row, layer->q.n_out), n_q, layer->q_bias, layer->q_norm, row);
    finish_heads(p, row_of(p->k, row, layer->k.n_out), n_kv, layer->k_bias, layer->k_norm, row);
    if (layer->v_bias) kvt_add(row_of(p->v, row, layer->v.n_out), layer->v_bias, (int)layer->v.n_out);
}

static void add_row(struct kvt_pass *p, const struct kvt_layer *layer, int row) {
    (void)layer;
    const int width = p->model->config.width;
    kvt_add(row_of(p->x, row, width), row_of(p->h, row, width), width);
}

static void add_biased_row(struct kvt_pass *p, const struct kvt_layer *layer, int row) {
    const int width = p->model->config.width;
    kvt_add(row_of(p->h, row, width), layer->out_bias, width);
    add_row(p, layer, row);
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

/* p->mix becomes attention's output. */
static enum kvt_status attend(const struct kvt_pass *p, const struct kvt_layer_rows *rows, struct kvt_error *err) {
    const int v_size = p->model->config.v_size;
    if (p->tap.attend) return p->tap.attend(p->tap.ctx, rows, p->mix, err);
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
    kvt_pass_rows(p, layer, 0, norm_row);
    const struct kvt_output qkv[] = {{p->q, &layer->q}, {p->k, &layer->k}, {p->v, &layer->v}};
    kvt_pass_products(p, qkv, 3, p->h, 0);
    kvt_pass_rows(p, layer, 0, qkv_row);

    const struct kvt_layer_rows rows = layer_rows(p, n_q, n_kv);
    if (p->tap.look) KVT_TRY(p->tap.look(p->tap.ctx, &rows, err));
    KVT_TRY(kvt_step_append(p->step, p->layer, &rows.k, &rows.v, &rows.q, n_q, err));
    if (p->first == p->n) return KVT_OK;
    KVT_TRY(attend(p, &rows, err));
    product(p, p->h, &layer->out, p->mix, p->first);
    kvt_pass_rows(p, layer, p->first, layer->out_bias ? add_biased_row : add_row);
    return KVT_OK;
}

static void ff_norm_row(struct kvt_pass *p, const struct kvt_layer *layer, int row) {
    const struct kvt_config *c = &p->model->config;
    kvt_rms_norm(row_of(p->h, row, c->width), row_of(p->x, row, c->width), layer->ffn_norm, c->width, c->norm_eps);
}

static void swiglu_row(struct kvt_pass *p, const struct kvt_layer *layer, int row) {
    const int n_ff = layer->config.n_ff;
    kvt_swiglu(row_of(p->gate, row, n_ff), row_of(p->up, row, n_ff), n_ff);
}

void kvt_block_feed_gated(struct kvt_pass *p, const struct kvt_layer *layer) {
    kvt_pass_rows(p, layer, p->first, ff_norm_row);
    const struct kvt_output gate_up[] = {{p->gate, &layer->gate}, {p->up, &layer->up}};
    kvt_pass_products(p, gate_up, 2, p->h, p->first);
    kvt_pass_rows(p, layer, p->first, swiglu_row);
    product(p, p->h, &layer->down, p->gate, p->first);
    kvt_pass_rows(p, layer, p->first, add_row);
}
