/* SPDX-License-Identifier: Apache-2.0
 * Sessions as prompt caches of mlx-lm. */
#include <string.h>

#include "base/check.h"
#include "kvtile/convert.h"
#include "model/runner.h"

/* Elements of a key that mlx-lm's model of the same weights has in another order: it turns halves of a row. */
static int turned(const struct kvt_model *model, bool as_in_gguf) {
    return model->arch->pairing == KVT_ROPE_NEIGHBOURS && !as_in_gguf ? model->config.rope.n_rot : 0;
}

enum kvt_status kvt_session_export(const struct kvt_session *s, const char *path, enum kvt_mlx_layout layout,
                                   bool as_in_gguf, const struct kvt_mlx_entry *entries, int n_entries,
                                   struct kvt_error *err) {
    return kvt_mlx_cache_save(s->seq, path, layout, turned(s->runner->model, as_in_gguf), entries, n_entries, err);
}

static enum kvt_status check_ids(const struct kvt_session *s, const struct kvt_mlx_cache *cache, const int32_t *ids,
                                 int n, struct kvt_error *err) {
    const int n_vocab = s->runner->model->config.n_vocab;
    if (kvt_mlx_cache_n_rows(cache) != n)
        return kvt_fail(err, KVT_ERR_ARG, "the prompt cache has %lld rows, the text that it is said to be of %d tokens",
                        (long long)kvt_mlx_cache_n_rows(cache), n);
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= n_vocab)
            return kvt_fail(err, KVT_ERR_ARG, "token %d is %d, outside the vocabulary of %d", i, ids[i], n_vocab);
    return KVT_OK;
}

enum kvt_status kvt_session_import(struct kvt_session *s, const struct kvt_mlx_cache *cache, bool as_in_gguf,
                                   const int32_t *ids, int n, struct kvt_error *err) {
    struct kvt_seq *seq = NULL;
    KVT_TRY(check_ids(s, cache, ids, n, err));
    KVT_TRY(
        kvt_mlx_cache_load(&seq, s->runner->pool, cache, s->runner->n_ctx, turned(s->runner->model, as_in_gguf), err));
    kvt_seq_destroy(s->seq);
    s->seq = seq;
    s->n_kept = 0;
    memcpy(s->ids, ids, (size_t)n * sizeof *ids);
    return KVT_OK;
}

/* ---- rows into another cache ------------------------------------------------------------------------------------------ */

/* Rows of one layer, all heads of a side. */
static enum kvt_status read_rows(struct kvt_rows *out, float *data, const struct kvt_session *s, int l,
                                 enum kvt_side side, int first, int n, struct kvt_error *err) {
    const struct kvt_layer_shape *shape = &kvt_plan_layer(s->runner->plan, l)->shape;
    const int d = side == KVT_SIDE_K ? shape->k_size : shape->v_size;
    for (int head = 0; head < shape->n_kv_heads; head++)
        KVT_TRY(kvt_seq_read(s->seq, l, side, head, first, n, data + (ptrdiff_t)head * n * d, d, err));
    *out = (struct kvt_rows){.data = data, .type = KVT_TYPE_F32, .row_stride = d, .head_stride = (ptrdiff_t)n * d};
    return KVT_OK;
}

static enum kvt_status copy_rows(struct kvt_session *to, const struct kvt_session *from, float *room[KVT_SIDE_COUNT],
                                 int first, int n, struct kvt_error *err) {
    struct kvt_step *step = to->runner->step;
    struct kvt_rows rows[KVT_SIDE_COUNT];
    enum kvt_status status = kvt_step_begin(step, &to->seq, &n, 1, err);
    for (int l = 0; l < kvt_plan_n_layers(to->runner->plan) && status == KVT_OK; l++) {
        for (int side = 0; side < KVT_SIDE_COUNT && status == KVT_OK; side++)
            status = read_rows(&rows[side], room[side], from, l, (enum kvt_side)side, first, n, err);
        if (status == KVT_OK) status = kvt_step_append(step, l, &rows[KVT_SIDE_K], &rows[KVT_SIDE_V], NULL, 0, err);
    }
    if (status == KVT_OK) return kvt_step_end(step, err);
    kvt_step_abandon(step);
    return status;
}

/* Elements of a side's rows in the layer that has most. */
static size_t most_elements(const struct kvt_plan *plan, enum kvt_side side, int n) {
    size_t most = 0;
    for (int l = 0; l < kvt_plan_n_layers(plan); l++) {
        const struct kvt_layer_shape *shape = &kvt_plan_layer(plan, l)->shape;
        const int d = side == KVT_SIDE_K ? shape->k_size : shape->v_size;
        most = KVT_MAX(most, (size_t)shape->n_kv_heads * (size_t)d * (size_t)n);
    }
    return most;
}

enum kvt_status kvt_session_copy(struct kvt_session *to, const struct kvt_session *from, struct kvt_error *err) {
    const int n_rows = kvt_session_n_rows(from), n_batch = to->runner->n_batch;
    const struct kvt_allocator *a = &to->runner->allocator;
    float *room[KVT_SIDE_COUNT];
    size_t n[KVT_SIDE_COUNT];
    KVT_ASSERT(to->runner->model == from->runner->model && to->runner != from->runner);
    if (n_rows > to->runner->n_ctx)
        return kvt_fail(err, KVT_ERR_LIMIT, "%d tokens do not fit in a context of %d", n_rows, to->runner->n_ctx);
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        n[side] = most_elements(to->runner->plan, (enum kvt_side)side, n_batch);
        room[side] = kvt_take(a, n[side], sizeof *room[side]);
    }
    enum kvt_status status =
        room[0] && room[1] ? KVT_OK : kvt_fail(err, KVT_ERR_NOMEM, "no memory to copy the rows of a session");
    if (status == KVT_OK) kvt_session_clear(to);
    for (int first = 0; first < n_rows && status == KVT_OK; first += n_batch)
        status = copy_rows(to, from, room, first, KVT_MIN(n_batch, n_rows - first), err);
    if (status == KVT_OK)
        memcpy(to->ids, from->ids, (size_t)n_rows * sizeof *to->ids);
    else
        kvt_session_clear(to);
    for (int side = 0; side < KVT_SIDE_COUNT; side++) kvt_give(a, room[side], n[side], sizeof *room[side]);
    return status;
}
