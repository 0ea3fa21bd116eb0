/* SPDX-License-Identifier: Apache-2.0
 *
 * Two threads with sequences of one pool that share pages: the same bytes as one thread alone, and the pool's limit holds. One
 * sequence in two threads is the caller's fault, and seen in builds with our assertions.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "support/made_cache.h"

enum { N_THREADS = 2, N_RUNS = 20, N_ROUNDS = 60, K_SIZE = 8, V_SIZE = 16, MAX_STEP = 90 };

static const struct kvt_layer_shape layers[] = {{1, K_SIZE, V_SIZE, 0}, {1, K_SIZE, V_SIZE, 0}};
static const struct kvt_plan_options plan = {.kv = "kivi4g32,affine4", .sink = 128, .tail = 20};

/* What one thread does. Nothing of cmocka may be called in it: what goes wrong is counted. */
struct worker {
    struct made_cache *cache;
    struct kvt_step *step;
    struct kvt_seq *seqs[2]; /* at first a fork of what the other worker has too, and an empty one */
    int id, n_fed, n_wrong, n_full;
};

/* Appends n rows that no other call appends. */
static enum kvt_status feed(struct worker *w, struct kvt_seq *seq, int n) {
    float x[MAX_STEP * (K_SIZE + V_SIZE)];
    const struct kvt_rows k = {x, KVT_TYPE_F32, K_SIZE, 0}, v = {x + MAX_STEP * K_SIZE, KVT_TYPE_F32, V_SIZE, 0};
    const int64_t first = kvt_seq_n_rows(seq);
    const int salt = w->id + ++w->n_fed * N_THREADS;
    const enum kvt_status status = kvt_step_begin(w->step, &seq, &n, 1, NULL);
    if (status != KVT_OK) return status;
    for (int l = 0; l < 2; l++) {
        for (int r = 0; r < n; r++) {
            made_cache_row(l, KVT_SIDE_K, salt, first + r, K_SIZE, x + r * K_SIZE);
            made_cache_row(l, KVT_SIDE_V, salt, first + r, V_SIZE, x + MAX_STEP * K_SIZE + r * V_SIZE);
        }
        w->n_wrong += kvt_step_append(w->step, l, &k, &v, NULL, 0, NULL) != KVT_OK;
    }
    w->n_wrong += kvt_step_end(w->step, NULL) != KVT_OK;
    return KVT_OK;
}

static void *work(void *arg) {
    struct worker *w = arg;
    struct kvt_rng rng = {(uint64_t)w->id};
    for (int i = 0; i < N_ROUNDS; i++) {
        struct kvt_seq *seq = w->seqs[kvt_rng_below(&rng, 2)], *fork = NULL;
        const int64_t n = kvt_seq_n_rows(seq);
        const int parents[2] = {(int)kvt_rng_below(&rng, 2), (int)kvt_rng_below(&rng, 2)};
        enum kvt_status status;
        float row[V_SIZE];
        switch (kvt_rng_below(&rng, 6)) {
        case 0: status = kvt_seq_trim(seq, n - (int64_t)kvt_rng_below(&rng, (uint64_t)(n / 2 + 1)), NULL, NULL); break;
        case 1: status = kvt_seq_permute(w->seqs, parents, 2, NULL); break;
        case 2: /* a fork that comes and goes */
            status = kvt_seq_fork(&fork, seq, NULL);
            if (status == KVT_OK) status = feed(w, fork, 1 + (int)kvt_rng_below(&rng, MAX_STEP));
            kvt_seq_destroy(fork);
            break;
        case 3: status = n ? kvt_seq_read(seq, 1, KVT_SIDE_V, 0, n - 1, 1, row, V_SIZE, NULL) : KVT_OK; break;
        default: status = feed(w, seq, n < MADE_MAX_ROWS - MAX_STEP ? 1 + (int)kvt_rng_below(&rng, MAX_STEP) : 1);
        }
        w->n_full += status == KVT_ERR_LIMIT;
        w->n_wrong += status != KVT_OK && status != KVT_ERR_LIMIT;
    }
    return NULL;
}

/* Workers that share the pages of a sequence, just the two of them, and all their work: side by side, or one after the other. */
static void run(struct made_cache *m, struct worker w[N_THREADS], int seed, bool at_once) {
    pthread_t threads[N_THREADS];
    struct kvt_seq *base = made_cache_seq(m);
    made_cache_feed(m, base, 200 + seed % 7 * 20);
    for (int i = 0; i < N_THREADS; i++) {
        w[i] = (struct worker){.cache = m, .id = seed * N_THREADS + i};
        assert_int_equal(kvt_step_create(&w[i].step, m->pool, 1, MAX_STEP, NULL), KVT_OK);
        assert_int_equal(kvt_seq_fork(&w[i].seqs[0], base, NULL), KVT_OK);
        w[i].seqs[1] = made_cache_seq(m);
    }
    kvt_seq_destroy(base);
    for (int i = 0; i < N_THREADS; i++) {
        if (at_once)
            assert_int_equal(pthread_create(&threads[i], NULL, work, &w[i]), 0);
        else
            work(&w[i]);
    }
    for (int i = 0; i < N_THREADS && at_once; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < N_THREADS; i++) assert_int_equal(w[i].n_wrong, 0);
}

static void finish(struct worker w[N_THREADS]) {
    for (int i = 0; i < N_THREADS; i++) {
        kvt_step_destroy(w[i].step);
        for (int s = 0; s < 2; s++) kvt_seq_destroy(w[i].seqs[s]);
    }
}

static void test_two_threads(void **state) {
    (void)state;
    struct made_cache m;
    struct worker one[N_THREADS], two[N_THREADS];
    made_cache_open(&m, 2, layers, plan);
    for (int seed = 0; seed < N_RUNS; seed++) {
        run(&m, one, seed, false);
        run(&m, two, seed, true);
        for (int i = 0; i < N_THREADS; i++)
            for (int s = 0; s < 2; s++) made_cache_same(one[i].seqs[s], two[i].seqs[s]);
        finish(one);
        finish(two);
    }
    made_cache_close(&m);
}

static void test_limit_of_two_threads(void **state) {
    (void)state;
    struct made_cache m;
    struct worker w[N_THREADS];
    made_cache_open(&m, 2, layers, plan);
    const uint64_t limit = kvt_plan_bytes(m.plan, 700);
    kvt_step_destroy(m.step);
    kvt_pool_destroy(m.pool);
    const struct kvt_pool_options po = {.struct_size = sizeof po, .byte_limit = limit, .allocator = &m.allocator};
    assert_int_equal(kvt_pool_create(&m.pool, m.plan, &po, NULL), KVT_OK);
    assert_int_equal(kvt_step_create(&m.step, m.pool, 1, MADE_MAX_ROWS, NULL), KVT_OK);
    int n_full = 0;
    for (int seed = 0; seed < N_RUNS; seed++) {
        run(&m, w, seed, true);
        n_full += w[0].n_full + w[1].n_full;
        finish(w);
    }
    assert_true(n_full > 0);
    assert_true(kvt_pool_peak_bytes(m.pool) <= limit);
    made_cache_close(&m);
}

/* ---- one sequence, two threads ------------------------------------------------------------------------------------------- */

#if defined(KVT_ASSERTS)
/* Memory that is taken while `hold` is set waits for ever, and says that it does. */
struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t reached;
    bool hold, is_reached;
};

static void *gated_take(void *ctx, size_t bytes, size_t align) {
    struct gate *gate = ctx;
    (void)align;
    pthread_mutex_lock(&gate->mutex);
    if (gate->hold) {
        gate->is_reached = true;
        pthread_cond_signal(&gate->reached);
        for (;;) pthread_cond_wait(&gate->reached, &gate->mutex);
    }
    pthread_mutex_unlock(&gate->mutex);
    return kvt_take(&kvt_allocator_libc, bytes, 1);
}

static void gated_give(void *ctx, void *ptr, size_t bytes) {
    (void)ctx;
    kvt_give(&kvt_allocator_libc, ptr, bytes, 1);
}

static void *trim_deep(void *seq) {
    (void)!kvt_seq_trim(seq, 300, NULL, NULL);
    return NULL;
}

/* Never returns: it must abort in kvt_seq_read, while another thread is in kvt_seq_trim. */
static void use_at_once(void) {
    struct gate gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .reached = PTHREAD_COND_INITIALIZER};
    const struct kvt_allocator allocator = {gated_take, gated_give, &gate};
    struct made_cache m;
    pthread_t thread;
    float row[V_SIZE];
    made_cache_open(&m, 2, layers, plan);
    m.pool = NULL;
    const struct kvt_pool_options po = {.struct_size = sizeof po, .allocator = &allocator};
    if (kvt_pool_create(&m.pool, m.plan, &po, NULL) != KVT_OK || kvt_step_create(&m.step, m.pool, 1, 900, NULL))
        _exit(3);
    struct kvt_seq *seq = made_cache_seq(&m);
    made_cache_feed(&m, seq, 600);
    gate.hold = true;
    if (pthread_create(&thread, NULL, trim_deep, seq) != 0) _exit(3);
    pthread_mutex_lock(&gate.mutex);
    while (!gate.is_reached) pthread_cond_wait(&gate.reached, &gate.mutex);
    pthread_mutex_unlock(&gate.mutex);
    (void)!kvt_seq_read(seq, 0, KVT_SIDE_V, 0, 0, 1, row, V_SIZE, NULL);
    _exit(0);
}

static void test_one_sequence_in_two_threads(void **state) {
    (void)state;
    int status = 0;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) use_at_once();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
#if defined(KVT_ASSERTS)
        cmocka_unit_test(test_one_sequence_in_two_threads),
#endif
        cmocka_unit_test(test_two_threads),
        cmocka_unit_test(test_limit_of_two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
