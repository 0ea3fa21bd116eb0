/* SPDX-License-Identifier: Apache-2.0 */
#include "support/made_cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"

void made_cache_open(struct made_cache *m, int n_layers, const struct kvt_layer_shape *layers,
                     struct kvt_plan_options options) {
    struct kvt_error err = {KVT_OK, ""};
    memset(m, 0, sizeof *m);
    m->allocator = kvt_allocator_counted(&m->counter);
    options.struct_size = sizeof options;
    const struct kvt_pool_options po = {.struct_size = sizeof po, .allocator = &m->allocator};
    if (kvt_plan_create(&m->plan, &(struct kvt_shape){n_layers, layers}, &options, &m->allocator, &err) != KVT_OK ||
        kvt_pool_create(&m->pool, m->plan, &po, &err) != KVT_OK ||
        kvt_step_create(&m->step, m->pool, 2, MADE_MAX_ROWS, &err) != KVT_OK)
        fail_msg("%s", err.text);
}

void made_cache_close(struct made_cache *m) {
    kvt_step_destroy(m->step);
    assert_int_equal(kvt_pool_bytes(m->pool), 0);
    kvt_pool_destroy(m->pool);
    kvt_plan_destroy(m->plan);
    assert_int_equal(m->counter.live_blocks, 0);
    assert_int_equal(m->counter.live_bytes, 0);
}

struct kvt_seq *made_cache_seq(struct made_cache *m) {
    struct kvt_seq *seq = NULL;
    assert_int_equal(kvt_seq_create(&seq, m->pool, MADE_MAX_ROWS, NULL), KVT_OK);
    return seq;
}

void made_cache_row(int layer, int side, int head, int64_t row, int d, float *x) {
    struct kvt_rng rng = {(uint64_t)(((row * 3 + side) * 64 + layer) * 64 + head)};
    for (int c = 0; c < d; c += 4) {
        const uint64_t random = kvt_rng_u64(&rng);
        for (int k = 0; k < 4 && c + k < d; k++) x[c + k] = (float)(int16_t)(random >> 16 * k) / 16384;
    }
    if (side == KVT_SIDE_K) x[3] += 20;
}

static float *make_rows(int layer, int side, int n_heads, int64_t first, int n, int d) {
    float *x = malloc((size_t)n * (size_t)n_heads * (size_t)d * sizeof *x);
    assert_non_null(x);
    for (int r = 0; r < n; r++)
        for (int h = 0; h < n_heads; h++) made_cache_row(layer, side, h, first + r, d, x + (r * n_heads + h) * d);
    return x;
}

static void append(struct made_cache *m, int l, int64_t first, int n) {
    const struct kvt_layer_shape *s = &kvt_plan_layer(m->plan, l)->shape;
    const int heads = s->n_kv_heads;
    float *k = make_rows(l, KVT_SIDE_K, heads, first, n, s->k_size);
    float *v = make_rows(l, KVT_SIDE_V, heads, first, n, s->v_size);
    const struct kvt_rows rows[] = {{k, KVT_TYPE_F32, heads * s->k_size, s->k_size},
                                    {v, KVT_TYPE_F32, heads * s->v_size, s->v_size}};
    assert_int_equal(kvt_step_append(m->step, l, &rows[0], &rows[1], NULL, 0, NULL), KVT_OK);
    free(k);
    free(v);
}

static uint64_t attend(struct made_cache *m, int l, int64_t first, int n) {
    const struct kvt_layer_shape *s = &kvt_plan_layer(m->plan, l)->shape;
    const int q_heads = s->n_kv_heads * MADE_Q_GROUP;
    float *q = make_rows(l, KVT_SIDE_COUNT, q_heads, first, n, s->k_size);
    const size_t n_out = (size_t)(n * q_heads * s->v_size);
    float *out = malloc(n_out * sizeof *out);
    assert_non_null(out);
    const struct kvt_attend a = {.struct_size = sizeof a,
                                 .n_q_heads = q_heads,
                                 .scale = 0.25f,
                                 .q = {q, KVT_TYPE_F32, q_heads * s->k_size, s->k_size},
                                 .out = out,
                                 .out_row_stride = q_heads * s->v_size,
                                 .out_head_stride = s->v_size};
    assert_int_equal(kvt_step_attend(m->step, l, &a, NULL), KVT_OK);
    const uint64_t hash = kvt_hash(out, n_out * sizeof *out);
    free(q);
    free(out);
    return hash;
}

static uint64_t step(struct made_cache *m, struct kvt_seq *seq, int n, bool with_attention) {
    const int64_t first = kvt_seq_n_rows(seq);
    uint64_t hash = 0;
    assert_int_equal(kvt_step_begin(m->step, &seq, &n, 1, NULL), KVT_OK);
    for (int l = 0; l < kvt_plan_n_layers(m->plan); l++) {
        append(m, l, first, n);
        if (with_attention) hash = hash * 31 + attend(m, l, first, n);
    }
    assert_int_equal(kvt_step_end(m->step, NULL), KVT_OK);
    return hash;
}

void made_cache_feed(struct made_cache *m, struct kvt_seq *seq, int n) { step(m, seq, n, false); }
uint64_t made_cache_attend(struct made_cache *m, struct kvt_seq *seq, int n) { return step(m, seq, n, true); }

void *made_cache_save(const struct kvt_seq *seq, const void *blob, size_t blob_bytes, size_t *bytes) {
    struct kvt_error err = {KVT_OK, ""};
    *bytes = (size_t)kvt_seq_save_bytes(seq, blob_bytes);
    void *data = malloc(*bytes);
    assert_non_null(data);
    memset(data, 0xAA, *bytes);
    if (kvt_seq_save_memory(seq, data, *bytes, blob, blob_bytes, &err) != KVT_OK) fail_msg("%s", err.text);
    return data;
}

void made_cache_same(const struct kvt_seq *a, const struct kvt_seq *b) {
    size_t n[2];
    void *data[2] = {made_cache_save(a, NULL, 0, &n[0]), made_cache_save(b, NULL, 0, &n[1])};
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(data[0], data[1], n[0]);
    free(data[0]);
    free(data[1]);
}
