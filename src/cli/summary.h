/* SPDX-License-Identifier: Apache-2.0
 * What a run tells at its end. */
#ifndef CLI_SUMMARY_H
#define CLI_SUMMARY_H

#include "cli/reuse.h"
#include "model/model.h"

struct kvt_summary {
    const struct kvt_model *model;
    const struct kvt_session *session; /* NULL if it did not come to one */
    double load_seconds;
    int n_prompt, n_prompt_done; /* tokens of the prompt, tokens in the cache */
    double prompt_seconds;
    const struct kvt_reuse *reuse; /* tokens of the prompt that a file's cache had; NULL: no file was asked for */
    int n_generated;
    double generation_seconds; /* from the first token on: n_generated - 1 forward passes and choices */
    uint64_t seed;
    bool greedy;
    const char *ended_by; /* "an end token" */
};

/* Prints what a session's cache takes by side and region. */
void kvt_summary_print_cache(const struct kvt_model *model, const struct kvt_session *session);
/* Prints it on standard error. What cannot be had (for want of memory) is left out. */
void kvt_summary_print(const struct kvt_summary *s);

#endif
