/* SPDX-License-Identifier: Apache-2.0
 * base: the pool of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/parallel.h"

/* A loop's jobs add up their numbers, and note that no two run under one thread number at once. */
struct sum {
    int64_t parts[8];
    _Atomic int running[8];
    _Atomic int clashes, n;
};

static void add(void *arg, int i, int thread) {
    struct sum *sum = arg;
    if (atomic_fetch_add(&sum->running[thread], 1) != 0) atomic_fetch_add(&sum->clashes, 1);
    sum->parts[thread] += i;
    atomic_fetch_add(&sum->n, 1);
    atomic_fetch_sub(&sum->running[thread], 1);
}

static void check_loop(const struct kvt_parallel *p, int n_jobs) {
    struct sum sum = {0};
    kvt_parallel_run(p, n_jobs, add, &sum);
    int64_t total = 0;
    for (int t = 0; t < 8; t++) total += sum.parts[t];
    assert_int_equal(sum.n, n_jobs);
    assert_int_equal(total, (int64_t)n_jobs * (n_jobs - 1) / 2);
    assert_int_equal(sum.clashes, 0);
}

static void loops_follow_each_other(void **state) {
    (void)state;
    for (int n_threads = 1; n_threads <= 5; n_threads++) {
        struct kvt_threads *threads = NULL;
        assert_int_equal(kvt_threads_create(&threads, n_threads, NULL, NULL), KVT_OK);
        const struct kvt_parallel p = kvt_threads_parallel(threads);
        assert_int_equal(p.n_threads, n_threads);
        for (int i = 0; i < 2000; i++) check_loop(&p, i % 19);
        check_loop(&p, 100000);
        kvt_threads_destroy(threads);
    }
}

/* Long enough apart for the workers to sleep. */
static void sleepers_wake(void **state) {
    (void)state;
    struct kvt_threads *threads = NULL;
    assert_int_equal(kvt_threads_create(&threads, 4, NULL, NULL), KVT_OK);
    const struct kvt_parallel p = kvt_threads_parallel(threads);
    for (int i = 0; i < 20; i++) {
        usleep(3000);
        check_loop(&p, 64);
    }
    usleep(3000);
    kvt_threads_destroy(threads);
}

static void wait_a_little(void *arg, int i, int thread) {
    (void)thread;
    if (i % 4 == 0) usleep(2000);
    atomic_fetch_add((_Atomic int *)arg, 1);
}

/* The caller sleeps until the last job is done. */
static void a_slow_job_is_waited_for(void **state) {
    (void)state;
    struct kvt_threads *threads = NULL;
    assert_int_equal(kvt_threads_create(&threads, 3, NULL, NULL), KVT_OK);
    const struct kvt_parallel p = kvt_threads_parallel(threads);
    for (int i = 0; i < 20; i++) {
        _Atomic int n = 0;
        kvt_parallel_run(&p, 9, wait_a_little, &n);
        assert_int_equal(n, 9);
    }
    kvt_threads_destroy(threads);
}

static void *call_many(void *arg) {
    for (int i = 0; i < 500; i++) {
        struct sum sum = {0};
        kvt_parallel_run(arg, 50, add, &sum);
        if (sum.n != 50 || sum.clashes != 0) return NULL;
    }
    return arg;
}

static void callers_do_not_meet(void **state) {
    (void)state;
    struct kvt_threads *threads = NULL;
    assert_int_equal(kvt_threads_create(&threads, 3, NULL, NULL), KVT_OK);
    struct kvt_parallel p = kvt_threads_parallel(threads);
    pthread_t other[3];
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&other[i], NULL, call_many, &p), 0);
    for (int i = 0; i < 3; i++) {
        void *result = NULL;
        pthread_join(other[i], &result);
        assert_ptr_equal(result, &p);
    }
    kvt_threads_destroy(threads);
}

static void loop_within(void *arg, int i, int thread) {
    (void)i, (void)thread;
    check_loop(arg, 10);
}

static void a_loop_within_a_loop_runs(void **state) {
    (void)state;
    struct kvt_threads *threads = NULL;
    assert_int_equal(kvt_threads_create(&threads, 3, NULL, NULL), KVT_OK);
    struct kvt_parallel p = kvt_threads_parallel(threads);
    kvt_parallel_run(&p, 30, loop_within, &p);
    kvt_threads_destroy(threads);
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    struct kvt_error err;
    struct kvt_threads *threads = NULL;
    assert_int_equal(kvt_threads_create(&threads, 0, NULL, &err), KVT_ERR_ARG);
    assert_int_equal(kvt_threads_create(&threads, 1 << 20, NULL, &err), KVT_ERR_ARG);
    assert_non_null(strstr(err.text, "1048576 threads"));
    assert_null(threads);
    kvt_threads_destroy(NULL);
    const struct kvt_parallel alone = kvt_threads_parallel(NULL);
    check_loop(&alone, 10);

    struct kvt_alloc_counter counter = {0};
    const struct kvt_allocator a = kvt_allocator_counted(&counter);
    assert_int_equal(kvt_threads_create(&threads, 4, &a, &err), KVT_OK);
    kvt_threads_destroy(threads);
    assert_int_equal(counter.live_blocks, 0);
    const size_t n_takes = counter.n_takes;
    for (size_t i = 1; i <= n_takes; i++) {
        counter.fail_at = i;
        assert_int_equal(kvt_threads_create(&threads, 4, &a, &err), KVT_ERR_NOMEM);
        assert_int_equal(counter.live_blocks, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_follow_each_other),   cmocka_unit_test(sleepers_wake),
        cmocka_unit_test(a_slow_job_is_waited_for),  cmocka_unit_test(callers_do_not_meet),
        cmocka_unit_test(a_loop_within_a_loop_runs), cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
