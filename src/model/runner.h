/* SPDX-License-Identifier: Apache-2.0
 * What a runner and a session are inside this folder. */
#ifndef MODEL_RUNNER_H
#define MODEL_RUNNER_H

#include "model/block.h"

struct kvt_runner {
    const struct kvt_model *model;
    struct kvt_allocator allocator;
    struct kvt_parallel parallel;
    int n_ctx, n_batch, n_keep_max, max_feeds;

    struct kvt_plan *plan;
    struct kvt_pool *pool;
    struct kvt_step *step;
    struct kvt_pass pass;
    struct kvt_pass_feed *feeds; /* max_feeds, of the pass under way */

    float *kept; /* n_keep_max rows of width: normalised outputs of the last layer */
    int n_kept;
    uint64_t n_evals; /* begun */
};

struct kvt_session {
    struct kvt_runner *runner;
    bool owns_runner;
    struct kvt_seq *seq;
    int32_t *ids; /* n_ctx of them */

    /* Its rows of runner->kept, while the runner's evaluation is still this one. */
    int first_kept, n_kept;
    uint64_t eval;
};

#endif
