/* SPDX-License-Identifier: Apache-2.0 */
#include "support/cache_model.h"

#include <stdlib.h>
#include <string.h>

#include "base/attr.h"
#include "base/half.h"

static int side_size(const struct kvt_layer_shape *shape, int side) {
    return side == KVT_SIDE_K ? shape->k_size : shape->v_size;
}

int model_row_size(const struct kvt_plan *plan, int layer) {
    const struct kvt_layer_shape *shape = &kvt_plan_layer(plan, layer)->shape;
    return shape->n_kv_heads * (shape->k_size + shape->v_size);
}

int model_row_at(const struct kvt_plan *plan, int layer, enum kvt_side side, int head) {
    const struct kvt_layer_shape *shape = &kvt_plan_layer(plan, layer)->shape;
    const int v = shape->n_kv_heads * shape->k_size;
    return side == KVT_SIDE_K ? head * shape->k_size : v + head * shape->v_size;
}

bool model_init(struct model_seq *m, const struct kvt_plan *plan, int64_t max_rows) {
    bool good = true;
    *m = (struct model_seq){.max_rows = max_rows};
    for (int l = 0; l < kvt_plan_n_layers(plan); l++) {
        struct model_layer *layer = &m->layers[l];
        const size_t n = (size_t)max_rows * (size_t)model_row_size(plan, l);
        layer->wide = calloc(n, sizeof *layer->wide);
        layer->body = calloc(n, sizeof *layer->body);
        layer->is_wide = calloc((size_t)max_rows, sizeof *layer->is_wide);
        layer->is_gone = calloc((size_t)max_rows, sizeof *layer->is_gone);
        good = good && layer->wide && layer->body && layer->is_wide && layer->is_gone;
    }
    return good;
}

void model_finish(struct model_seq *m) {
    for (int l = 0; l < MODEL_MAX_LAYERS; l++) {
        free(m->layers[l].wide);
        free(m->layers[l].body);
        free(m->layers[l].is_wide);
        free(m->layers[l].is_gone);
    }
}

void model_copy(struct model_seq *to, const struct model_seq *from, const struct kvt_plan *plan) {
    const size_t n = (size_t)from->n_rows;
    to->n_rows = from->n_rows;
    for (int l = 0; l < kvt_plan_n_layers(plan); l++) {
        struct model_layer *a = &to->layers[l];
        const struct model_layer *b = &from->layers[l];
        const size_t row = (size_t)model_row_size(plan, l);
        memcpy(a->wide, b->wide, n * row * sizeof *a->wide);
        memcpy(a->body, b->body, n * row * sizeof *a->body);
        memcpy(a->is_wide, b->is_wide, n * sizeof *a->is_wide);
        memcpy(a->is_gone, b->is_gone, n * sizeof *a->is_gone);
    }
}

/* ---- one layer --------------------------------------------------------------------------------------------------------- */

/* What the codec makes of rows [first, end), whole groups: encoded into a fresh tile and decoded again. */
static void encode(struct model_layer *layer, const struct kvt_plan *plan, int l, int64_t first, int64_t end) {
    const struct kvt_layer_plan *p = kvt_plan_layer(plan, l);
    const int row = model_row_size(plan, l);
    for (int64_t at = first; at < end;) {
        const int in_tile = (int)(at % KVT_TILE_ROWS), n = (int)KVT_MIN(KVT_TILE_ROWS - in_tile, end - at);
        for (int side = 0; side < KVT_SIDE_COUNT; side++)
            for (int head = 0; head < p->shape.n_kv_heads; head++) {
                const enum kvt_side s = (enum kvt_side)side;
                const int d = side_size(&p->shape, side);
                const int64_t from = at * row + model_row_at(plan, l, s, head);
                const size_t bytes = kvt_codec_tile_bytes(p->codec[side], s, d);
                void *tile = aligned_alloc(64, bytes);
                if (!tile) abort();
                memset(tile, 0, bytes);
                if (kvt_codec_encode(p->codec[side], s, d, tile, in_tile, n, layer->wide + from, row, NULL) != KVT_OK ||
                    kvt_codec_decode(p->codec[side], s, d, layer->body + from, row, tile, in_tile, n, NULL) != KVT_OK)
                    abort();
                free(tile);
            }
        at += n;
    }
}

int64_t model_first_row(const struct kvt_layer_plan *plan, int64_t n_rows) {
    const int64_t first = plan->window ? n_rows - plan->window : 0;
    return first > plan->sink ? first : plan->sink;
}

/* Pages go whole: rows in 16 bits that no page of the tail holds, and rows before the window. */
static void forget(struct model_layer *layer, const struct kvt_plan *plan, int l, int64_t n_rows) {
    const struct kvt_layer_plan *p = kvt_plan_layer(plan, l);
    const int64_t body_end = kvt_plan_body_end(plan, l, n_rows), oldest = model_first_row(p, n_rows);
    const int64_t first_kept = oldest / KVT_TILE_ROWS * KVT_TILE_ROWS;
    int64_t first_wide = KVT_MAX(body_end / KVT_TILE_ROWS * KVT_TILE_ROWS, first_kept);
    if (body_end == n_rows) first_wide = n_rows;
    for (int64_t r = p->sink; r < n_rows; r++) {
        if (r < first_wide) layer->is_wide[r] = false;
        if (r < first_kept) layer->is_gone[r] = true;
    }
}

void model_append(struct model_seq *m, const struct kvt_plan *plan, const float *const *rows, int n) {
    const int64_t before = m->n_rows, after = before + n;
    for (int l = 0; l < kvt_plan_n_layers(plan); l++) {
        struct model_layer *layer = &m->layers[l];
        const int64_t row = model_row_size(plan, l);
        for (int64_t i = 0; i < n * row; i++)
            layer->wide[before * row + i] = kvt_f32_from_f16(kvt_f16_from_f32(rows[l][i]));
        for (int64_t r = before; r < after; r++) {
            layer->is_wide[r] = true;
            layer->is_gone[r] = false;
        }
        encode(layer, plan, l, kvt_plan_body_end(plan, l, before), kvt_plan_body_end(plan, l, after));
        forget(layer, plan, l, after);
    }
    m->n_rows = after;
}

enum kvt_status model_trim(struct model_seq *m, const struct kvt_plan *plan, int64_t n_rows, bool *exact) {
    if (n_rows < 0 || n_rows > m->n_rows) return KVT_ERR_RANGE;
    for (int l = 0; l < kvt_plan_n_layers(plan); l++)
        for (int64_t r = model_first_row(kvt_plan_layer(plan, l), n_rows); r < n_rows; r++)
            if (m->layers[l].is_gone[r]) return KVT_ERR_RANGE;
    *exact = true;
    for (int l = 0; l < kvt_plan_n_layers(plan); l++) {
        struct model_layer *layer = &m->layers[l];
        const int64_t row = model_row_size(plan, l);
        for (int64_t r = kvt_plan_body_end(plan, l, n_rows); r < n_rows; r++) {
            if (layer->is_wide[r] || layer->is_gone[r]) continue;
            *exact = false;
            for (int64_t i = r * row; i < (r + 1) * row; i++)
                layer->wide[i] = kvt_f32_from_f16(kvt_f16_from_f32(layer->body[i]));
            layer->is_wide[r] = true;
        }
        forget(layer, plan, l, n_rows);
    }
    m->n_rows = n_rows;
    return KVT_OK;
}

void model_clear(struct model_seq *m) { m->n_rows = 0; }

const float *model_row(const struct model_seq *m, const struct kvt_plan *plan, int layer, int64_t r) {
    const struct kvt_layer_plan *p = kvt_plan_layer(plan, layer);
    const bool in_body = r >= p->sink && r < kvt_plan_body_end(plan, layer, m->n_rows);
    return (in_body ? m->layers[layer].body : m->layers[layer].wide) + r * model_row_size(plan, layer);
}
