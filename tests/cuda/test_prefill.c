/* SPDX-License-Identifier: Apache-2.0
 *
 * A prompt's attention has the same bits however it is cut: in one step or in several, alone or beside other sequences.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "base/attr.h"
#include "base/rng.h"
#include "kvtile/kvtile.h"

enum { HEADS = 2, GROUP = 12, ROWS = 700, D_MOST = 256, MOST_STEPS = 5 };

static struct kvt_error err;
static float *rows[3], *q; /* of K, of V, of a sequence beside; [row][head][d] */

static void must(enum kvt_status status) {
    if (status == KVT_OK) return;
    printf("FAILED: %s\n", err.text);
    exit(1);
}

static float *take(size_t n) {
    float *x = calloc(n, sizeof *x);
    if (!x) exit(1);
    return x;
}

/* Attention of all rows, n[i] of them in step i; `beside`: another sequence has a row in each step. */
static void run(struct kvt_pool *pool, int d, const int *n, bool beside, float *out) {
    const ptrdiff_t row = (ptrdiff_t)HEADS * d;
    struct kvt_step *step;
    struct kvt_seq *seqs[2];
    must(kvt_step_create(&step, pool, 2, ROWS + 1, &err));
    for (int s = 0; s < 2; s++) must(kvt_seq_create(&seqs[s], pool, ROWS, &err));
    float *x[3], *all = take((size_t)((ROWS + 1) * GROUP * row));
    for (int i = 0; i < 3; i++) x[i] = take((size_t)((ROWS + 1) * (i == 2 ? GROUP : 1) * row));
    for (int first = 0, i = 0; first < ROWS; first += n[i++]) {
        const int counts[] = {n[i], 1};
        const size_t bytes = (size_t)(n[i] * row) * sizeof(float), one = (size_t)row * sizeof(float);
        for (int side = 0; side < 2; side++) {
            memcpy(x[side], rows[side] + first * row, bytes);
            memcpy(x[side] + n[i] * row, rows[2] + i * row, one);
        }
        memcpy(x[2], q + first * GROUP * row, GROUP * bytes);
        memcpy(x[2] + n[i] * GROUP * row, q, GROUP * one);
        const struct kvt_rows k = {x[0], KVT_TYPE_F32, row, d}, v = {x[1], KVT_TYPE_F32, row, d};
        const struct kvt_attend attend = {.struct_size = sizeof attend,
                                          .n_q_heads = HEADS * GROUP,
                                          .scale = 1 / sqrtf((float)d),
                                          .q = {x[2], KVT_TYPE_F32, GROUP * row, d},
                                          .out = all,
                                          .out_row_stride = GROUP * row,
                                          .out_head_stride = d};
        must(kvt_step_begin(step, seqs, counts, beside ? 2 : 1, &err));
        must(kvt_step_append(step, 0, &k, &v, NULL, 0, &err));
        must(kvt_step_attend(step, 0, &attend, &err));
        must(kvt_step_end(step, &err));
        memcpy(out + first * GROUP * row, all, GROUP * bytes);
    }
    for (int s = 0; s < 2; s++) kvt_seq_destroy(seqs[s]);
    kvt_step_destroy(step);
    for (int i = 0; i < 3; i++) free(x[i]);
    free(all);
}

static int try_case(const char *kv, int d, int sink, int tail, int window) {
    const struct kvt_layer_shape layer = {HEADS, d, d, window};
    const struct kvt_plan_options options = {.struct_size = sizeof options, .kv = kv, .sink = sink, .tail = tail};
    const struct kvt_pool_options on = {.struct_size = sizeof on, .backend = "cuda"};
    struct kvt_plan *plan;
    struct kvt_pool *pool;
    must(kvt_plan_create(&plan, &(struct kvt_shape){1, &layer}, &options, NULL, &err));
    must(kvt_pool_create(&pool, plan, &on, &err));
    const size_t n = (size_t)(ROWS * HEADS * GROUP * d);
    float *whole = take(n), *cut = take(n);
    static const int cuts[][MOST_STEPS] = {{ROWS}, {350, 350}, {33, 300, 67, 300}, {127, 129, 45, 399}};
    int n_failed = 0;
    run(pool, d, cuts[0], false, whole);
    for (size_t i = 0; i < 2 * KVT_ARRAY_LEN(cuts); i++) {
        run(pool, d, cuts[i / 2], i % 2, cut);
        size_t n_other = 0;
        for (size_t j = 0; j < n; j++) n_other += memcmp(&whole[j], &cut[j], sizeof *cut) != 0;
        n_failed += n_other > 0;
        if (n_other) printf("FAILED %s d %d, cut %zu: %zu of %zu numbers differ\n", kv, d, i, n_other, n);
    }
    free(whole), free(cut);
    kvt_pool_destroy(pool);
    kvt_plan_destroy(plan);
    return n_failed;
}

int main(void) {
    int n_devices;
    if (kvt_cuda_n_devices(&n_devices, &err) != KVT_OK) {
        printf("skipped: %s\n", err.text);
        return 77;
    }
    struct kvt_rng rng = {5};
    const size_t n = (size_t)(ROWS * HEADS * D_MOST);
    for (int i = 0; i < 3; i++) {
        rows[i] = take(n);
        for (size_t j = 0; j < n; j++) rows[i][j] = kvt_rng_normal(&rng);
    }
    q = take(GROUP * n);
    for (size_t j = 0; j < GROUP * n; j++) q[j] = kvt_rng_normal(&rng);
    static const struct {
        const char *kv;
        int d, sink, tail, window;
    } cases[] = {{"kivi4g32", 128, 128, 128, 0}, {"affine4g64", 128, 0, 0, 0}, {"f16", 128, 0, 0, 0},
                 {"kivi8g64", 64, 128, 30, 200}, {"q8_0", 256, 0, 64, 0},      {"kvarn4", 128, 128, 128, 0}};
    int n_failed = 0;
    for (size_t i = 0; i < KVT_ARRAY_LEN(cases); i++)
        n_failed += try_case(cases[i].kv, cases[i].d, cases[i].sink, cases[i].tail, cases[i].window) > 0;
    for (int i = 0; i < 3; i++) free(rows[i]);
    free(q);
    printf("%d passed, %d failed\n", (int)KVT_ARRAY_LEN(cases) - n_failed, n_failed);
    return n_failed ? 1 : 0;
}
