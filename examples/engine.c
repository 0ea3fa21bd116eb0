/* SPDX-License-Identifier: Apache-2.0
 * A cache in an engine: what a program that has a model of its own does with libkvtile. The model here is waves, 2 layers of 8
 * query heads and 2 KV heads. It reads a prompt of 300 tokens, then 100 single ones. Usage: engine [SCHEME] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kvtile/kvtile.h"

enum { LAYERS = 2, Q_HEADS = 8, KV_HEADS = 2, SIZE = 64, PROMPT = 300, ROWS = 400 };

static struct kvt_error err;

static void must(enum kvt_status status) {
    if (status == KVT_OK) return;
    fprintf(stderr, "%s\n", err.text);
    exit(1);
}

/* Rows [p, p + n) of a layer, `heads` vectors each. A real engine multiplies by Wq, Wk or Wv here. */
static struct kvt_rows project(float *x, int heads, int p, int n, int seed) {
    for (int r = 0; r < n; r++)
        for (int c = 0; c < heads * SIZE; c++)
            x[r * heads * SIZE + c] = sinf((float)((p + r) * (c % 89 + 3) + seed * c));
    return (struct kvt_rows){x, KVT_TYPE_F32, heads * SIZE, SIZE};
}

int main(int argc, char **argv) {
    struct kvt_layer_shape layers[LAYERS];
    for (int l = 0; l < LAYERS; l++) layers[l] = (struct kvt_layer_shape){KV_HEADS, SIZE, SIZE, 0};
    const struct kvt_shape shape = {LAYERS, layers};
    const char *kv = argc > 1 ? argv[1] : "kivi4g32,affine4g64";
    const struct kvt_plan_options options = {.struct_size = sizeof options, .kv = kv, .tail = 32};
    struct kvt_threads *threads;
    must(kvt_threads_create(&threads, 2, NULL, &err));
    const struct kvt_parallel parallel = kvt_threads_parallel(threads);
    const struct kvt_pool_options pool_options = {.struct_size = sizeof pool_options, .parallel = &parallel};

    struct kvt_plan *plan;
    struct kvt_pool *pool;
    struct kvt_seq *seq;
    struct kvt_step *step;
    must(kvt_plan_create(&plan, &shape, &options, NULL, &err));
    must(kvt_pool_create(&pool, plan, &pool_options, &err));
    must(kvt_seq_create(&seq, pool, ROWS, &err));
    must(kvt_step_create(&step, pool, 1, PROMPT, &err));

    static float q[PROMPT * Q_HEADS * SIZE], k[PROMPT * KV_HEADS * SIZE], v[PROMPT * KV_HEADS * SIZE];
    static float out[PROMPT * Q_HEADS * SIZE];
    for (int p = 0, n = PROMPT; p < ROWS; p += n, n = 1) {
        must(kvt_step_begin(step, &seq, &n, 1, &err));
        for (int l = 0; l < LAYERS; l++) {
            const struct kvt_rows k_rows = project(k, KV_HEADS, p, n, 5 + l),
                                  v_rows = project(v, KV_HEADS, p, n, 7 + l);
            struct kvt_attend attend = {.struct_size = sizeof attend, .n_q_heads = Q_HEADS, .scale = 1 / sqrtf(SIZE)};
            attend.q = project(q, Q_HEADS, p, n, 3 + l);
            attend.out = out;
            attend.out_row_stride = Q_HEADS * SIZE;
            attend.out_head_stride = SIZE;
            must(kvt_step_append(step, l, &k_rows, &v_rows, &attend.q, Q_HEADS, &err));
            must(kvt_step_attend(step, l, &attend, &err));
        }
        must(kvt_step_end(step, &err));
    }
    printf("%s: %lld rows in %llu bytes (planned: %llu), the last output begins %.4f %.4f %.4f\n", kvt_plan_kv(plan),
           (long long)kvt_seq_n_rows(seq), (unsigned long long)kvt_seq_usage(seq, -1).total_bytes,
           (unsigned long long)kvt_plan_bytes(plan, ROWS), (double)out[0], (double)out[1], (double)out[2]);
    kvt_step_destroy(step);
    kvt_seq_destroy(seq);
    kvt_pool_destroy(pool);
    kvt_plan_destroy(plan);
    kvt_threads_destroy(threads);
    return 0;
}
