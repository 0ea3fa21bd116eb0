/* SPDX-License-Identifier: Apache-2.0
 *
 * Random operations on several sequences of one pool, with memory that runs out at random, against plain arrays: the same rows, the
 * bytes of exactly the pages that are there, nothing changed by what failed, nothing left at the end. The seed is printed;
 * KVT_TEST_SEED=N repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cache/cache.h"
#include "kvtile/snapshot.h"
#include "support/cache_model.h"

enum { N_SEQS = 5, MAX_ROWS = 700, MAX_STEP = 200, K_SIZE = 8, V_SIZE = 16 };

/* Operations for each of the seven plans: fewer under sanitizers and emulators. */
#if defined(KVT_ASSERTS) || defined(SHIM_CMOCKA_H)
enum { N_OPS = 2500 };
#else
enum { N_OPS = 15000 };
#endif

struct world {
    struct kvt_alloc_counter counter;
    struct kvt_rng rng;
    struct kvt_plan *plan;
    struct kvt_pool *pool;
    struct kvt_step *step;
    struct kvt_seq *seqs[N_SEQS];
    struct model_seq models[N_SEQS], spare[N_SEQS];
    float *rows[MODEL_MAX_LAYERS]; /* of a step */
    int n_failed, n_inexact;
};

static int below(struct world *w, int n) { return (int)kvt_rng_below(&w->rng, (uint64_t)n); }

/* ---- operations: each fails for want of memory and changes nothing, or is done to the model too ----------------------------- */

static enum kvt_status keep(enum kvt_status status) {
    assert_true(status == KVT_OK || status == KVT_ERR_NOMEM || status == KVT_ERR_LIMIT);
    return status;
}

static void make_rows(struct world *w, int n) {
    for (int l = 0; l < kvt_plan_n_layers(w->plan); l++) {
        const int size = model_row_size(w->plan, l);
        for (int i = 0; i < n * size; i += 4) {
            const uint64_t random = kvt_rng_u64(&w->rng);
            for (int k = 0; k < 4 && i + k < n * size; k++)
                w->rows[l][i + k] = (float)(int16_t)(random >> 16 * k) / 8192 + ((i + k) % size == 3 ? 30.0f : 0.0f);
        }
    }
}

static enum kvt_status append_layer(struct world *w, int l) {
    const struct kvt_layer_shape *shape = &kvt_plan_layer(w->plan, l)->shape;
    const int size = model_row_size(w->plan, l), v = model_row_at(w->plan, l, KVT_SIDE_V, 0);
    const struct kvt_rows rows[KVT_SIDE_COUNT] = {{w->rows[l], KVT_TYPE_F32, size, shape->k_size},
                                                  {w->rows[l] + v, KVT_TYPE_F32, size, shape->v_size}};
    return kvt_step_append(w->step, l, &rows[0], &rows[1], NULL, 0, NULL);
}

/* A step of n sequences, that is ended, or abandoned after some of its layers. */
static enum kvt_status step(struct world *w, const int *which, int n, int most, bool abandoned) {
    struct kvt_seq *seqs[N_SEQS];
    int n_rows[N_SEQS], total = 0;
    for (int i = 0; i < n; i++) {
        const int64_t room = MAX_ROWS - w->models[which[i]].n_rows;
        if (room == 0) return KVT_OK;
        seqs[i] = w->seqs[which[i]];
        n_rows[i] = 1 + below(w, (int)KVT_MIN(most, room));
        total += n_rows[i];
    }
    make_rows(w, total);
    KVT_TRY(keep(kvt_step_begin(w->step, seqs, n_rows, n, NULL)));
    const int n_layers = kvt_plan_n_layers(w->plan), done = abandoned ? below(w, n_layers + 1) : n_layers;
    for (int l = 0; l < done; l++) assert_int_equal(append_layer(w, l), KVT_OK);
    if (abandoned) {
        if (done < n_layers) {
            w->rows[done][below(w, total * model_row_size(w->plan, done))] = 1e30f;
            assert_int_equal(append_layer(w, done), KVT_ERR_RANGE);
        }
        kvt_step_abandon(w->step);
        return KVT_OK;
    }
    assert_int_equal(kvt_step_end(w->step, NULL), KVT_OK);
    for (int i = 0, first = 0; i < n; first += n_rows[i++]) {
        const float *rows[MODEL_MAX_LAYERS];
        for (int l = 0; l < n_layers; l++) rows[l] = w->rows[l] + first * model_row_size(w->plan, l);
        model_append(&w->models[which[i]], w->plan, rows, n_rows[i]);
    }
    return KVT_OK;
}

static enum kvt_status op_append(struct world *w, int s) { return step(w, &s, 1, MAX_STEP, false); }
static enum kvt_status op_token(struct world *w, int s) { return step(w, &s, 1, 1, false); }

static int draw_distinct(struct world *w, int *which) {
    const int n = 2 + below(w, N_SEQS - 1);
    for (int i = 0; i < N_SEQS; i++) which[i] = i;
    for (int i = 0; i < n; i++) {
        const int k = i + below(w, N_SEQS - i), swap = which[i];
        which[i] = which[k];
        which[k] = swap;
    }
    return n;
}

static enum kvt_status op_batch(struct world *w, int s) {
    int which[N_SEQS];
    const int n = draw_distinct(w, which);
    return step(w, which, n, s % 2 ? 1 : 40, false);
}

static enum kvt_status op_abandon(struct world *w, int s) {
    int which[N_SEQS];
    const int n = draw_distinct(w, which);
    return step(w, which, n, s % 2 ? 3 : 60, true);
}

static enum kvt_status op_fork(struct world *w, int s) {
    struct kvt_seq *fork = NULL;
    const int to = below(w, N_SEQS);
    if (to == s) return KVT_OK;
    const enum kvt_status status = keep(kvt_seq_fork(&fork, w->seqs[s], NULL));
    if (status != KVT_OK) {
        assert_null(fork);
        return status;
    }
    kvt_seq_destroy(w->seqs[to]);
    w->seqs[to] = fork;
    model_copy(&w->models[to], &w->models[s], w->plan);
    return KVT_OK;
}

static enum kvt_status op_permute(struct world *w, int s) {
    int which[N_SEQS], parents[N_SEQS];
    struct kvt_seq *seqs[N_SEQS];
    (void)s;
    const int n = draw_distinct(w, which);
    for (int i = 0; i < n; i++) {
        seqs[i] = w->seqs[which[i]];
        parents[i] = below(w, n);
    }
    KVT_TRY(keep(kvt_seq_permute(seqs, parents, n, NULL)));
    for (int i = 0; i < n; i++) model_copy(&w->spare[i], &w->models[which[i]], w->plan);
    for (int i = 0; i < n; i++) model_copy(&w->models[which[i]], &w->spare[parents[i]], w->plan);
    return KVT_OK;
}

static enum kvt_status trim(struct world *w, int s, int64_t n_rows) {
    bool exact = true, expected = true;
    const enum kvt_status status = kvt_seq_trim(w->seqs[s], n_rows, &exact, NULL);
    if (status == KVT_ERR_NOMEM || status == KVT_ERR_LIMIT) return status;
    assert_int_equal(status, model_trim(&w->models[s], w->plan, n_rows, &expected));
    assert_int_equal(exact, expected);
    w->n_inexact += !exact;
    return KVT_OK;
}

static enum kvt_status op_trim_little(struct world *w, int s) {
    const int64_t n = w->models[s].n_rows;
    return trim(w, s, KVT_MAX(n - below(w, 24), 0));
}
static enum kvt_status op_trim_deep(struct world *w, int s) {
    return trim(w, s, below(w, (int)w->models[s].n_rows + 2)); /* one too many at times */
}

static enum kvt_status op_clear(struct world *w, int s) {
    kvt_seq_clear(w->seqs[s]);
    model_clear(&w->models[s]);
    return KVT_OK;
}

static enum kvt_status op_anew(struct world *w, int s) {
    struct kvt_seq *fresh = NULL;
    KVT_TRY(keep(kvt_seq_create(&fresh, w->pool, MAX_ROWS, NULL)));
    kvt_seq_destroy(w->seqs[s]);
    w->seqs[s] = fresh;
    model_clear(&w->models[s]);
    return KVT_OK;
}

/* Through a snapshot and back, in the place of another sequence. */
static enum kvt_status op_reload(struct world *w, int s) {
    struct kvt_snapshot *snapshot = NULL;
    struct kvt_seq *loaded = NULL;
    const int to = below(w, N_SEQS);
    const size_t bytes = (size_t)kvt_seq_save_bytes(w->seqs[s], sizeof s);
    const struct kvt_allocator a = kvt_allocator_counted(&w->counter);
    void *data = malloc(bytes);
    assert_non_null(data);
    enum kvt_status status = keep(kvt_seq_save_memory(w->seqs[s], data, bytes, &s, sizeof s, NULL));
    if (status == KVT_OK) status = keep(kvt_snapshot_open_memory(&snapshot, data, bytes, &a, NULL));
    if (status == KVT_OK) {
        assert_memory_equal(kvt_snapshot_info(snapshot).blob, &s, sizeof s);
        status = keep(kvt_seq_load(&loaded, w->pool, snapshot, MAX_ROWS, NULL));
    }
    kvt_snapshot_close(snapshot);
    free(data);
    if (status != KVT_OK) {
        assert_null(loaded);
        return status;
    }
    kvt_seq_destroy(w->seqs[to]);
    w->seqs[to] = loaded;
    if (to != s) model_copy(&w->models[to], &w->models[s], w->plan);
    return KVT_OK;
}

/* ---- checks ------------------------------------------------------------------------------------------------------------ */

static void check_rows(const struct world *w, int s, int layer, int64_t first, int64_t n) {
    float x[32 * (K_SIZE + V_SIZE)];
    const struct model_seq *m = &w->models[s];
    const struct kvt_layer_plan *plan = kvt_plan_layer(w->plan, layer);
    for (int side = 0; side < KVT_SIDE_COUNT; side++)
        for (int head = 0; head < plan->shape.n_kv_heads; head++) {
            const int d = side == KVT_SIDE_K ? K_SIZE : V_SIZE;
            const int at = model_row_at(w->plan, layer, (enum kvt_side)side, head);
            assert_int_equal(kvt_seq_read(w->seqs[s], layer, (enum kvt_side)side, head, first, n, x, d, NULL), KVT_OK);
            for (int64_t r = 0; r < n; r++)
                assert_memory_equal(x + r * d, model_row(m, w->plan, layer, first + r) + at, (size_t)d * sizeof *x);
        }
}

/* Rows [first, end) of a region that is there. */
static void check_range(struct world *w, int s, int layer, int64_t first, int64_t end, bool all) {
    if (first >= end) return;
    if (!all) {
        first += below(w, (int)(end - first));
        end = KVT_MIN(end, first + 2);
    }
    for (; first < end; first += 32) check_rows(w, s, layer, first, KVT_MIN(32, end - first));
}

static void check_seq(struct world *w, int s, bool all) {
    const int64_t n = w->models[s].n_rows;
    assert_int_equal(kvt_seq_n_rows(w->seqs[s]), n);
    for (int l = 0; l < kvt_plan_n_layers(w->plan); l++) {
        const struct kvt_layer_plan *plan = kvt_plan_layer(w->plan, l);
        const int64_t oldest = model_first_row(plan, n);
        check_range(w, s, l, 0, KVT_MIN(plan->sink, n), all);
        check_range(w, s, l, oldest, n, all);
        if (oldest > plan->sink && n > oldest) {
            float x[K_SIZE];
            assert_int_equal(kvt_seq_read(w->seqs[s], l, KVT_SIDE_K, 0, oldest - 1, 1, x, K_SIZE, NULL), KVT_ERR_RANGE);
        }
    }
}

struct found_page {
    const struct kvt_page *page;
    size_t bytes;
};

static int by_address(const void *a, const void *b) {
    const uintptr_t x = (uintptr_t)((const struct found_page *)a)->page,
                    y = (uintptr_t)((const struct found_page *)b)->page;
    return (x > y) - (x < y);
}

/* Each sequence has the pages of its length, each page has as many owners as it says, and the pool counts each once. */
static void check_pages(const struct world *w) {
    static struct found_page found[N_SEQS * MODEL_MAX_LAYERS * KVT_REGION_COUNT * (MAX_ROWS / KVT_TILE_ROWS + 2)];
    size_t n = 0;
    for (int s = 0; s < N_SEQS; s++) {
        uint64_t mine = 0;
        for (int l = 0; l < w->plan->n_layers; l++)
            for (int region = 0; region < KVT_REGION_COUNT; region++) {
                const struct kvt_page_list *list = &w->seqs[s]->layers[l].list[region];
                assert_null(w->seqs[s]->layers[l].kept[region].page);
                for (int64_t t = list->first; t < list->end; t++) {
                    if (!list->pages[t]) continue;
                    found[n++] = (struct found_page){list->pages[t], w->plan->layers[l].page[region].bytes};
                    mine += found[n - 1].bytes;
                }
            }
        assert_int_equal(mine, kvt_plan_bytes(w->plan, w->models[s].n_rows));
    }
    qsort(found, n, sizeof *found, by_address);
    uint64_t sum = 0;
    for (size_t i = 0, same; i < n; i += same) {
        for (same = 1; i + same < n && found[i + same].page == found[i].page;) same++;
        assert_int_equal(found[i].page->n_owners, same);
        sum += found[i].bytes;
    }
    assert_int_equal(kvt_pool_bytes(w->pool), sum);
}

/* ---- runs -------------------------------------------------------------------------------------------------------------- */

static const struct {
    int weight; /* of 100 */
    enum kvt_status (*run)(struct world *w, int s);
} ops[] = {{24, op_append},      {17, op_token},    {12, op_batch}, {8, op_abandon}, {9, op_fork},  {5, op_permute},
           {14, op_trim_little}, {5, op_trim_deep}, {1, op_clear},  {2, op_anew},    {3, op_reload}};

static void operate(struct world *w) {
    size_t i = 0;
    for (int at = below(w, 100); at >= ops[i].weight; i++) at -= ops[i].weight;
    const int s = below(w, N_SEQS);
    const uint64_t bytes = kvt_pool_bytes(w->pool);
    const size_t live = w->counter.live_bytes;
    w->counter.fail_each = below(w, 2) ? 9 : 0;
    w->pool->byte_limit = below(w, 16) ? 0 : bytes + (uint64_t)below(w, 4 * 128 * 64) + 1;
    const enum kvt_status status = ops[i].run(w, s);
    w->counter.fail_each = 0;
    w->pool->byte_limit = 0;
    if (status != KVT_OK) {
        w->n_failed++;
        assert_int_equal(kvt_pool_bytes(w->pool), bytes);
        assert_int_equal(w->counter.live_bytes, live);
    }
    check_pages(w);
    check_seq(w, s, status != KVT_OK && below(w, 8) == 0);
}

static void run(uint64_t seed, const struct kvt_shape *shape, const struct kvt_plan_options *options) {
    struct world w = {.rng = {seed}, .counter = {.random = seed}};
    const struct kvt_allocator a = kvt_allocator_counted(&w.counter);
    const struct kvt_pool_options po = {.struct_size = sizeof po, .allocator = &a};
    assert_int_equal(kvt_plan_create(&w.plan, shape, options, &a, NULL), KVT_OK);
    assert_int_equal(kvt_pool_create(&w.pool, w.plan, &po, NULL), KVT_OK);
    assert_int_equal(kvt_step_create(&w.step, w.pool, N_SEQS, N_SEQS * MAX_STEP, NULL), KVT_OK);
    for (int l = 0; l < shape->n_layers; l++) {
        w.rows[l] = malloc((size_t)(N_SEQS * MAX_STEP * model_row_size(w.plan, l)) * sizeof *w.rows[l]);
        assert_non_null(w.rows[l]);
    }
    for (int s = 0; s < N_SEQS; s++) {
        assert_int_equal(kvt_seq_create(&w.seqs[s], w.pool, MAX_ROWS, NULL), KVT_OK);
        assert_true(model_init(&w.models[s], w.plan, MAX_ROWS));
        assert_true(model_init(&w.spare[s], w.plan, MAX_ROWS));
    }
    for (int i = 1; i <= N_OPS; i++) {
        operate(&w);
        for (int s = 0; s < N_SEQS && i % 200 == 0; s++) check_seq(&w, s, true);
    }
    print_message("%s, sink %d, tail %d: %d operations, %d failed, %d inexact trims\n", kvt_plan_kv(w.plan),
                  options->sink, options->tail, N_OPS, w.n_failed, w.n_inexact);
    assert_true(w.n_failed > N_OPS / 200);
    for (int s = 0; s < N_SEQS; s++) {
        kvt_seq_destroy(w.seqs[s]);
        model_finish(&w.models[s]);
        model_finish(&w.spare[s]);
    }
    assert_int_equal(kvt_pool_bytes(w.pool), 0);
    for (int l = 0; l < shape->n_layers; l++) free(w.rows[l]);
    kvt_step_destroy(w.step);
    kvt_pool_destroy(w.pool);
    kvt_plan_destroy(w.plan);
    assert_int_equal(w.counter.live_blocks, 0);
    assert_int_equal(w.counter.live_bytes, 0);
}

static uint64_t seed(void) {
    const char *asked = getenv("KVT_TEST_SEED");
    const uint64_t s = asked ? strtoull(asked, NULL, 0) : 20261;
    print_message("KVT_TEST_SEED=%llu\n", (unsigned long long)s);
    return s;
}

static void check_plan(int n_layers, const struct kvt_layer_shape *layers, struct kvt_plan_options options) {
    options.struct_size = sizeof options;
    run(seed(), &(struct kvt_shape){n_layers, layers}, &options);
}

static const struct kvt_layer_shape one[] = {{2, K_SIZE, V_SIZE, 0}},
                                    two[] = {{1, K_SIZE, V_SIZE, 0}, {2, K_SIZE, V_SIZE, 0}},
                                    windows[] = {{1, K_SIZE, V_SIZE, 0}, {1, K_SIZE, V_SIZE, 150}};

static void test_kivi(void **state) {
    (void)state;
    check_plan(2, two, (struct kvt_plan_options){.kv = "kivi2g32", .sink = 128, .tail = 10});
}
static void test_direct(void **state) {
    (void)state;
    check_plan(1, one, (struct kvt_plan_options){.kv = "affine4"});
}
static void test_f16(void **state) {
    (void)state;
    check_plan(2, two, (struct kvt_plan_options){.kv = "f16"});
}
static void test_windows(void **state) {
    (void)state;
    check_plan(2, windows, (struct kvt_plan_options){.kv = "kivi4g32", .sink = 128, .tail = 130});
}
static void test_rolling(void **state) {
    (void)state;
    check_plan(1, one, (struct kvt_plan_options){.kv = "kivi4g64,affine8", .sink = 128, .tail = 20, .rolling = 300});
}
static void test_start(void **state) {
    (void)state;
    check_plan(1, one, (struct kvt_plan_options){.kv = "affine3,kivi4g32", .tail = 16, .start = 200});
}
static void test_whole_tiles(void **state) {
    (void)state;
    check_plan(1, one, (struct kvt_plan_options){.kv = "f16,kivi3g128", .tail = 7});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kivi),        cmocka_unit_test(test_direct),  cmocka_unit_test(test_f16),
        cmocka_unit_test(test_windows),     cmocka_unit_test(test_rolling), cmocka_unit_test(test_start),
        cmocka_unit_test(test_whole_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
