/* SPDX-License-Identifier: Apache-2.0
 *
 * A pool of threads for short loops. Workers wait for the next loop by spinning for some tens of microseconds, then sleep: a token's
 * loops follow each other within that time, and a busy machine is not kept busier. (OpenMP's threads spin for milliseconds, which
 * on a machine with other work made generation 12 times slower.)
 */
#include "base/parallel.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/attr.h"
#include "base/check.h"

enum { SPINS = 1000, MAX_THREADS = 1024, MAX_JOBS = 1 << 20 };

/* The loop that runs: its number, its jobs, and the next job to hand out, in one word so that a job is claimed at once with the
 * loop that it belongs to. */
typedef uint64_t ticket;
static ticket make_ticket(uint64_t loop, uint64_t n_jobs) { return loop << 40 | n_jobs << 20; }
static int ticket_next(ticket t) { return (int)(t & (MAX_JOBS - 1)); }
static int ticket_jobs(ticket t) { return (int)(t >> 20 & (MAX_JOBS - 1)); }
static bool has_job(ticket t) { return ticket_next(t) < ticket_jobs(t); }

struct kvt_threads {
    struct kvt_allocator allocator;
    int n_threads;
    pthread_t *workers; /* n_threads - 1 */
    int n_started;
    pthread_mutex_t mutex;
    pthread_cond_t more, finished;
    _Atomic bool busy, stop, caller_sleeps;
    _Atomic int n_sleeping, n_done;
    _Atomic ticket ticket;
    uint64_t loop;
    kvt_job_fn job; /* of the loop: read by whoever has claimed a job of it */
    void *arg;
};

struct worker {
    struct kvt_threads *threads;
    int index;
};

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Does jobs until there are none. */
static void do_jobs(struct kvt_threads *t, int thread) {
    ticket now = atomic_load(&t->ticket);
    while (has_job(now)) {
        if (!atomic_compare_exchange_weak(&t->ticket, &now, now + 1)) continue;
        t->job(t->arg, ticket_next(now), thread);
        if (atomic_fetch_add(&t->n_done, 1) + 1 == ticket_jobs(now) && atomic_load(&t->caller_sleeps)) {
            pthread_mutex_lock(&t->mutex);
            pthread_cond_signal(&t->finished);
            pthread_mutex_unlock(&t->mutex);
        }
        now = atomic_load(&t->ticket);
    }
}

static void wait_for_jobs(struct kvt_threads *t) {
    for (int i = 0; i < SPINS; i++) {
        if (has_job(atomic_load(&t->ticket)) || atomic_load(&t->stop)) return;
        relax();
    }
    pthread_mutex_lock(&t->mutex);
    atomic_fetch_add(&t->n_sleeping, 1);
    while (!has_job(atomic_load(&t->ticket)) && !atomic_load(&t->stop)) pthread_cond_wait(&t->more, &t->mutex);
    atomic_fetch_sub(&t->n_sleeping, 1);
    pthread_mutex_unlock(&t->mutex);
}

static void *work(void *arg) {
    const struct worker *w = arg;
    struct kvt_threads *t = w->threads;
    const int index = w->index;
    kvt_give(&t->allocator, arg, 1, sizeof *w);
    while (!atomic_load(&t->stop)) {
        wait_for_jobs(t);
        do_jobs(t, index);
    }
    return NULL;
}

static void wake(struct kvt_threads *t) {
    if (atomic_load(&t->n_sleeping) == 0) return;
    pthread_mutex_lock(&t->mutex);
    pthread_cond_broadcast(&t->more);
    pthread_mutex_unlock(&t->mutex);
}

static void wait_for_end(struct kvt_threads *t, int n_jobs) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load(&t->n_done) == n_jobs) return;
        relax();
    }
    pthread_mutex_lock(&t->mutex);
    atomic_store(&t->caller_sleeps, true);
    while (atomic_load(&t->n_done) != n_jobs) pthread_cond_wait(&t->finished, &t->mutex);
    atomic_store(&t->caller_sleeps, false);
    pthread_mutex_unlock(&t->mutex);
}

static void run_serial(int n_jobs, kvt_job_fn job, void *arg) {
    for (int i = 0; i < n_jobs; i++) job(arg, i, 0);
}

/* A second caller, or a loop within a loop, does its jobs by itself. */
static void run(void *ctx, int n_jobs, kvt_job_fn job, void *arg) {
    struct kvt_threads *t = ctx;
    if (n_jobs >= MAX_JOBS || atomic_exchange(&t->busy, true)) {
        run_serial(n_jobs, job, arg);
        return;
    }
    t->job = job;
    t->arg = arg;
    atomic_store(&t->n_done, 0);
    atomic_store(&t->ticket, make_ticket(++t->loop, (uint64_t)n_jobs));
    wake(t);
    do_jobs(t, 0);
    wait_for_end(t, n_jobs);
    atomic_store(&t->busy, false);
}

static bool start_worker(struct kvt_threads *t, int index) {
    struct worker *w = kvt_take(&t->allocator, 1, sizeof *w);
    if (!w) return false;
    *w = (struct worker){t, index};
    if (pthread_create(&t->workers[index - 1], NULL, work, w) == 0) return true;
    kvt_give(&t->allocator, w, 1, sizeof *w);
    return false;
}

enum kvt_status kvt_threads_create(struct kvt_threads **out, int n_threads, const struct kvt_allocator *allocator,
                                   struct kvt_error *err) {
    if (n_threads < 1 || n_threads > MAX_THREADS)
        return kvt_fail(err, KVT_ERR_ARG, "%d threads: there can be 1 to %d", n_threads, MAX_THREADS);
    const struct kvt_allocator a = kvt_allocator_or_default(allocator);
    struct kvt_threads *t = kvt_take_zero(&a, 1, sizeof *t);
    if (!t) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for %d threads", n_threads);
    t->allocator = a;
    t->n_threads = n_threads;
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->more, NULL);
    pthread_cond_init(&t->finished, NULL);
    t->workers = kvt_take_zero(&a, (size_t)n_threads, sizeof *t->workers);
    bool started = t->workers != NULL;
    for (int i = 1; i < n_threads && started; i++) {
        started = start_worker(t, i);
        t->n_started += started;
    }
    if (!started) {
        kvt_threads_destroy(t);
        return kvt_fail(err, KVT_ERR_NOMEM, "the system gives no %d threads", n_threads);
    }
    *out = t;
    return KVT_OK;
}

void kvt_threads_destroy(struct kvt_threads *threads) {
    if (!threads) return;
    atomic_store(&threads->stop, true);
    wake(threads);
    for (int i = 0; i < threads->n_started; i++) pthread_join(threads->workers[i], NULL);
    pthread_cond_destroy(&threads->finished);
    pthread_cond_destroy(&threads->more);
    pthread_mutex_destroy(&threads->mutex);
    const struct kvt_allocator a = threads->allocator;
    kvt_give(&a, threads->workers, (size_t)threads->n_threads, sizeof *threads->workers);
    kvt_give(&a, threads, 1, sizeof *threads);
}

struct kvt_parallel kvt_threads_parallel(struct kvt_threads *threads) {
    if (!threads || threads->n_threads == 1) return (struct kvt_parallel){1, NULL, NULL};
    return (struct kvt_parallel){threads->n_threads, run, threads};
}

void kvt_parallel_run(const struct kvt_parallel *p, int n_jobs, kvt_job_fn job, void *arg) {
    if (!p || p->n_threads <= 1 || !p->run || n_jobs <= 1)
        run_serial(n_jobs, job, arg);
    else
        p->run(p->ctx, n_jobs, job, arg);
}
