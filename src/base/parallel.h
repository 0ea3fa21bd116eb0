/* SPDX-License-Identifier: Apache-2.0
 * Running a parallel-for that may be absent. */
#ifndef BASE_PARALLEL_H
#define BASE_PARALLEL_H

#include "kvtile/runtime.h"

typedef void (*kvt_job_fn)(void *arg, int i, int thread);

/* job(arg, i, thread) for i in [0, n_jobs), by p or, where p is NULL or it is not worth it, by the calling thread. */
void kvt_parallel_run(const struct kvt_parallel *p, int n_jobs, kvt_job_fn job, void *arg);

static inline int kvt_parallel_n_threads(const struct kvt_parallel *p) { return p ? p->n_threads : 1; }

#endif
