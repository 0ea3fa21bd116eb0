/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls at their edges: empty forks, sharing under a tight limit, reordering, arguments that make no sense, and every want of
 * memory in turn.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "cache/cache.h"
#include "support/fail_each.h"
#include "support/made_cache.h"

static const struct kvt_layer_shape layers[] = {{2, 8, 16, 0}, {1, 16, 8, 0}};
static const struct kvt_plan_options plan = {.kv = "kivi4g32,affine4", .sink = 128, .tail = 20};

static void test_fork_of_nothing(void **state) {
    (void)state;
    struct made_cache m;
    made_cache_open(&m, 2, layers, plan);
    struct kvt_seq *empty = made_cache_seq(&m), *fork = NULL, *again = NULL;
    assert_int_equal(kvt_seq_fork(&fork, empty, NULL), KVT_OK);
    assert_int_equal(kvt_seq_fork(&again, fork, NULL), KVT_OK);
    assert_int_equal(kvt_seq_n_rows(again), 0);
    assert_int_equal(kvt_pool_bytes(m.pool), 0);
    assert_int_equal(kvt_seq_trim(again, 0, NULL, NULL), KVT_OK);
    made_cache_feed(&m, empty, 190);
    made_cache_feed(&m, again, 190);
    made_cache_same(empty, again);
    assert_int_equal(kvt_seq_n_rows(fork), 0);
    kvt_seq_clear(empty);
    kvt_seq_clear(empty);
    kvt_seq_destroy(empty);
    kvt_seq_destroy(fork);
    kvt_seq_destroy(again);
    kvt_seq_destroy(NULL);
    made_cache_close(&m);
}

/* Rows of zeros for a begun step. */
static void finish_step(struct kvt_step *step, int n_layers) {
    static const float zeros[16];
    const struct kvt_rows rows = {zeros, KVT_TYPE_F32, 0, 0};
    for (int l = 0; l < n_layers; l++) assert_int_equal(kvt_step_append(step, l, &rows, &rows, NULL, 0, NULL), KVT_OK);
    assert_int_equal(kvt_step_end(step, NULL), KVT_OK);
}

/* n sequences need no more than n times what one needs, also while forks part; and what does not fit changes nothing. */
static void test_forks_under_a_limit(void **state) {
    (void)state;
    struct made_cache m;
    made_cache_open(&m, 2, layers, plan);
    struct kvt_seq *seqs[2] = {made_cache_seq(&m)};
    made_cache_feed(&m, seqs[0], 60);
    assert_int_equal(kvt_seq_fork(&seqs[1], seqs[0], NULL), KVT_OK);
    const uint64_t bytes = kvt_plan_bytes(m.plan, 60);
    assert_int_equal(kvt_pool_bytes(m.pool), bytes);
    m.pool->byte_limit = 2 * bytes - 1;
    struct kvt_error err;
    assert_int_equal(kvt_step_begin(m.step, seqs, (int[]){1, 1}, 2, &err), KVT_ERR_LIMIT);
    assert_int_equal(kvt_pool_bytes(m.pool), bytes);
    for (int l = 0; l < 2; l++) {
        struct kvt_page *const *a = seqs[0]->layers[l].list[KVT_REGION_SINK].pages;
        assert_ptr_equal(a[0], seqs[1]->layers[l].list[KVT_REGION_SINK].pages[0]);
        assert_int_equal(a[0]->n_owners, 2);
    }
    made_cache_same(seqs[0], seqs[1]);
    m.pool->byte_limit = 2 * bytes;
    assert_int_equal(kvt_step_begin(m.step, seqs, (int[]){1, 1}, 2, &err), KVT_OK);
    assert_int_equal(kvt_pool_bytes(m.pool), 2 * bytes);
    finish_step(m.step, 2);
    made_cache_same(seqs[0], seqs[1]);
    kvt_seq_destroy(seqs[0]);
    assert_int_equal(kvt_pool_bytes(m.pool), bytes);
    kvt_seq_destroy(seqs[1]);
    made_cache_close(&m);
}

static void test_permute(void **state) {
    (void)state;
    struct made_cache m, other;
    struct kvt_error err;
    made_cache_open(&m, 2, layers, plan);
    made_cache_open(&other, 2, layers, plan);
    struct kvt_seq *seqs[3] = {made_cache_seq(&m), made_cache_seq(&m), made_cache_seq(&m)}, *shorter;
    struct kvt_seq *stranger = made_cache_seq(&other);
    made_cache_feed(&m, seqs[0], 200);
    made_cache_feed(&m, seqs[1], 50);
    const uint64_t bytes = kvt_pool_bytes(m.pool);
    assert_int_equal(kvt_seq_permute(seqs, (int[]){0, 3, 1}, 3, &err), KVT_ERR_ARG);
    assert_non_null(strstr(err.text, "no parent 3"));
    assert_int_equal(kvt_seq_permute(seqs, (int[]){0, -1, 1}, 3, &err), KVT_ERR_ARG);
    assert_int_equal(kvt_seq_permute(seqs, (int[]){0}, 0, &err), KVT_ERR_ARG);
    assert_int_equal(kvt_seq_permute((struct kvt_seq *[]){seqs[0], seqs[0]}, (int[]){0, 1}, 2, &err), KVT_ERR_ARG);
    assert_int_equal(kvt_seq_permute((struct kvt_seq *[]){seqs[0], stranger}, (int[]){0, 1}, 2, &err), KVT_ERR_ARG);
    assert_int_equal(kvt_seq_create(&shorter, m.pool, 199, NULL), KVT_OK);
    assert_int_equal(kvt_seq_permute((struct kvt_seq *[]){seqs[0], shorter}, (int[]){1, 0}, 2, &err), KVT_ERR_LIMIT);
    assert_non_null(strstr(err.text, "holds 199 rows"));
    assert_int_equal(kvt_step_begin(m.step, seqs, &(int){1}, 1, NULL), KVT_OK);
    assert_int_equal(kvt_seq_permute(seqs, (int[]){1, 0}, 2, &err), KVT_ERR_STATE);
    kvt_step_abandon(m.step);
    assert_int_equal(kvt_pool_bytes(m.pool), bytes);
    /* A cycle, then all of one. */
    assert_int_equal(kvt_seq_permute(seqs, (int[]){1, 2, 0}, 3, &err), KVT_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(kvt_seq_n_rows(seqs[i]), i == 0 ? 50 : i == 1 ? 0 : 200);
    assert_int_equal(kvt_pool_bytes(m.pool), bytes);
    assert_int_equal(kvt_seq_permute(seqs, (int[]){2, 2, 2}, 3, &err), KVT_OK);
    assert_int_equal(kvt_pool_bytes(m.pool), kvt_plan_bytes(m.plan, 200));
    made_cache_same(seqs[0], seqs[1]);
    made_cache_same(seqs[0], seqs[2]);
    for (int i = 0; i < 3; i++) kvt_seq_destroy(seqs[i]);
    kvt_seq_destroy(shorter);
    kvt_seq_destroy(stranger);
    made_cache_close(&m);
    made_cache_close(&other);
}

static void test_arguments(void **state) {
    (void)state;
    struct made_cache m, other;
    struct kvt_error err;
    float x[16];
    made_cache_open(&m, 2, layers, plan);
    made_cache_open(&other, 2, layers, plan);
    struct kvt_seq *seq = made_cache_seq(&m), *fresh = NULL;
    struct kvt_step *step = NULL;
    made_cache_feed(&m, seq, 10);
    static const struct {
        int layer, side, head;
        int64_t first, n;
        enum kvt_status status;
    } reads[] = {
        {2, 0, 0, 0, 1, KVT_ERR_ARG},           {-1, 0, 0, 0, 1, KVT_ERR_ARG},   {0, 0, 2, 0, 1, KVT_ERR_ARG},
        {1, 0, 1, 0, 1, KVT_ERR_ARG},           {0, 2, 0, 0, 1, KVT_ERR_ARG},    {0, 0, 0, 10, 1, KVT_ERR_RANGE},
        {0, 0, 0, 0, 11, KVT_ERR_RANGE},        {0, 0, 0, -1, 1, KVT_ERR_RANGE}, {0, 0, 0, 5, -1, KVT_ERR_RANGE},
        {0, 0, 0, 2, INT64_MAX, KVT_ERR_RANGE}, {0, 0, 0, 10, 0, KVT_OK}};
    for (size_t i = 0; i < KVT_ARRAY_LEN(reads); i++)
        assert_int_equal(kvt_seq_read(seq, reads[i].layer, (enum kvt_side)reads[i].side, reads[i].head, reads[i].first,
                                      reads[i].n, x, 16, &err),
                         reads[i].status);
    assert_int_equal(kvt_seq_create(&fresh, m.pool, 0, &err), KVT_ERR_ARG);
    assert_int_equal(kvt_seq_create(&fresh, m.pool, (INT64_C(1) << 40) + 1, &err), KVT_ERR_ARG);
    assert_null(fresh);
    assert_int_equal(kvt_step_create(&step, m.pool, 0, 1, &err), KVT_ERR_ARG);
    assert_int_equal(kvt_step_create(&step, m.pool, 5, 4, &err), KVT_ERR_ARG);
    assert_null(step);
    assert_int_equal(kvt_step_begin(other.step, &seq, &(int){1}, 1, &err), KVT_ERR_ARG);
    assert_non_null(strstr(err.text, "another pool"));
    assert_int_equal(kvt_step_begin(m.step, &seq, &(int){1}, 0, &err), KVT_ERR_ARG);
    assert_int_equal(kvt_step_begin(m.step, &seq, &(int){MADE_MAX_ROWS - 9}, 1, &err), KVT_ERR_LIMIT);
    assert_non_null(strstr(err.text, "has 10 rows of at most 1000: 991 more do not fit"));
    assert_int_equal(kvt_seq_trim(seq, 11, NULL, &err), KVT_ERR_RANGE);
    assert_non_null(strstr(err.text, "cannot trim to 11 rows: the sequence has 10"));
    /* A sequence in a step stays there. */
    assert_int_equal(kvt_step_create(&step, m.pool, 1, 4, &err), KVT_OK);
    assert_int_equal(kvt_step_begin(m.step, &seq, &(int){1}, 1, &err), KVT_OK);
    assert_int_equal(kvt_step_begin(step, &seq, &(int){1}, 1, &err), KVT_ERR_STATE);
    assert_int_equal(kvt_step_append(m.step, 2, NULL, NULL, NULL, 0, &err), KVT_ERR_ARG);
    assert_int_equal(kvt_step_append(step, 0, NULL, NULL, NULL, 0, &err), KVT_ERR_STATE);
    assert_int_equal(kvt_step_end(step, &err), KVT_ERR_STATE);
    kvt_step_abandon(step);
    finish_step(m.step, 2);
    kvt_step_destroy(step);
    assert_int_equal(kvt_seq_n_rows(seq), 11);
    kvt_seq_destroy(seq);
    made_cache_close(&m);
    made_cache_close(&other);
}

/* Within the sink nothing is ever dropped: a rolling cache can go back there. */
static void test_trim_into_the_sink(void **state) {
    (void)state;
    struct made_cache m;
    struct kvt_error err;
    made_cache_open(&m, 2, layers,
                    (struct kvt_plan_options){.kv = "kivi4g32", .sink = 128, .tail = 20, .rolling = 300});
    struct kvt_seq *seq = made_cache_seq(&m), *fresh = made_cache_seq(&m);
    made_cache_feed(&m, seq, 600);
    assert_int_equal(kvt_seq_trim(seq, 500, NULL, &err), KVT_ERR_RANGE);
    assert_non_null(strstr(err.text, "layer 0 has dropped the rows before 384"));
    assert_int_equal(kvt_seq_n_rows(seq), 600);
    assert_int_equal(kvt_seq_trim(seq, 129, NULL, &err), KVT_ERR_RANGE);
    assert_int_equal(kvt_seq_trim(seq, 100, NULL, &err), KVT_OK);
    made_cache_feed(&m, fresh, 100);
    made_cache_same(seq, fresh);
    made_cache_feed(&m, seq, 300);
    made_cache_feed(&m, fresh, 300);
    made_cache_same(seq, fresh);
    kvt_seq_destroy(seq);
    kvt_seq_destroy(fresh);
    made_cache_close(&m);
}

/* Codes may decode to a little more than what went in: no row may become infinite on its way back. */
static void test_trim_of_the_largest(void **state) {
    (void)state;
    struct made_cache m;
    float x[200][16], back[16];
    made_cache_open(&m, 2, layers, (struct kvt_plan_options){.kv = "kivi4g32"});
    struct kvt_seq *seq = made_cache_seq(&m);
    for (int r = 0; r < 200; r++)
        for (int c = 0; c < 16; c++) x[r][c] = (r + c) % 3 ? 65504 : -65504;
    const struct kvt_rows rows = {x, KVT_TYPE_F32, 16, 0};
    assert_int_equal(kvt_step_begin(m.step, &seq, &(int){200}, 1, NULL), KVT_OK);
    for (int l = 0; l < 2; l++) assert_int_equal(kvt_step_append(m.step, l, &rows, &rows, NULL, 0, NULL), KVT_OK);
    assert_int_equal(kvt_step_end(m.step, NULL), KVT_OK);
    assert_int_equal(kvt_seq_read(seq, 0, KVT_SIDE_K, 0, 90, 1, back, 16, NULL), KVT_OK);
    float most = 0;
    for (int c = 0; c < 8; c++) most = back[c] > most ? back[c] : most;
    assert_true(most > 65504);
    assert_int_equal(kvt_seq_trim(seq, 95, NULL, NULL), KVT_OK);
    assert_int_equal(kvt_seq_read(seq, 0, KVT_SIDE_K, 0, 90, 1, back, 16, NULL), KVT_OK);
    for (int c = 0; c < 8; c++) assert_true(back[c] == ((90 + c) % 3 ? 65504.0f : -65504.0f));
    made_cache_feed(&m, seq, 100);
    kvt_seq_destroy(seq);
    made_cache_close(&m);
}

/* ---- no memory --------------------------------------------------------------------------------------------------------- */

static enum kvt_status feed_pair(struct kvt_step *step, struct kvt_seq *const *seqs, int n) {
    KVT_TRY(kvt_step_begin(step, seqs, (int[]){n, n}, 2, NULL));
    finish_step(step, 2);
    return KVT_OK;
}

/* Batches of forks that part, deep trims of what is shared, beams. A failure leaves lengths and bytes as they were. */
static enum kvt_status share(void *ctx, const struct kvt_allocator *allocator) {
    (void)ctx;
    const struct kvt_pool_options po = {.struct_size = sizeof po, .allocator = allocator};
    struct kvt_plan_options options = plan;
    options.struct_size = sizeof options;
    struct kvt_plan *p = NULL;
    struct kvt_pool *pool = NULL;
    struct kvt_step *step = NULL;
    struct kvt_seq *seqs[2] = {NULL, NULL};
    uint64_t bytes = 0;
    int64_t n_rows = 0;
    enum kvt_status status = kvt_plan_create(&p, &(struct kvt_shape){2, layers}, &options, allocator, NULL);
    if (status == KVT_OK) status = kvt_pool_create(&pool, p, &po, NULL);
    if (status == KVT_OK) status = kvt_step_create(&step, pool, 2, 600, NULL);
    if (status == KVT_OK) status = kvt_seq_create(&seqs[0], pool, 700, NULL);
    if (status == KVT_OK) status = kvt_seq_fork(&seqs[1], seqs[0], NULL);
    for (int i = 0; i < 6 && status == KVT_OK; i++) {
        bytes = kvt_pool_bytes(pool);
        n_rows = kvt_seq_n_rows(seqs[1]);
        switch (i) {
        case 0: status = feed_pair(step, seqs, 290); break;
        case 1: status = kvt_seq_permute(seqs, (int[]){1, 1}, 2, NULL); break;
        case 2: status = kvt_seq_trim(seqs[1], 200, NULL, NULL); break;
        case 3: status = feed_pair(step, seqs, 3); break;
        case 4: status = kvt_seq_permute(seqs, (int[]){1, 0}, 2, NULL); break;
        default: status = kvt_seq_trim(seqs[1], 231, NULL, NULL);
        }
    }
    if (status != KVT_OK && seqs[1]) {
        assert_int_equal(kvt_pool_bytes(pool), bytes);
        assert_int_equal(kvt_seq_n_rows(seqs[1]), n_rows);
    }
    kvt_seq_destroy(seqs[0]);
    kvt_seq_destroy(seqs[1]);
    kvt_step_destroy(step);
    kvt_pool_destroy(pool);
    kvt_plan_destroy(p);
    return status;
}

static void test_no_memory(void **state) {
    (void)state;
    assert_true(kvt_fail_each(share, NULL) > 40);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fork_of_nothing),
        cmocka_unit_test(test_forks_under_a_limit),
        cmocka_unit_test(test_permute),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_trim_into_the_sink),
        cmocka_unit_test(test_trim_of_the_largest),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
