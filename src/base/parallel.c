/* SPDX-License-Identifier: Apache-2.0 */
#include "base/parallel.h"

#ifdef _OPENMP
#include <omp.h>
#endif

static void run_serial(int n_jobs, kvt_job_fn job, void *arg) {
    for (int i = 0; i < n_jobs; i++) job(arg, i, 0);
}

#ifdef _OPENMP
static void run_openmp(void *ctx, int n_jobs, kvt_job_fn job, void *arg) {
    const int n_threads = (int)(size_t)ctx;
#pragma omp parallel for schedule(dynamic, 1) num_threads(n_threads)
    for (int i = 0; i < n_jobs; i++) job(arg, i, omp_get_thread_num());
}
#endif

struct kvt_parallel kvt_parallel_default(int n_threads) {
#ifdef _OPENMP
    if (n_threads > 1) return (struct kvt_parallel){n_threads, run_openmp, (void *)(size_t)n_threads};
#endif
    (void)n_threads;
    return (struct kvt_parallel){1, NULL, NULL};
}

void kvt_parallel_run(const struct kvt_parallel *p, int n_jobs, kvt_job_fn job, void *arg) {
    if (!p || p->n_threads <= 1 || !p->run || n_jobs <= 1)
        run_serial(n_jobs, job, arg);
    else
        p->run(p->ctx, n_jobs, job, arg);
}
