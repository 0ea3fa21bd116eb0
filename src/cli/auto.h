/* SPDX-License-Identifier: Apache-2.0
 * --kv auto: the best cache that fits the memory. `kvtile plan` shows how it comes to its choice. */
#ifndef CLI_AUTO_H
#define CLI_AUTO_H

#include "cli/engine.h"
#include "cli/kv_options.h"

/* The caches that are looked at, best first; NULL past the end. Of all but f16 the first and the newest 128 rows stay in 16 bits. */
const char *kvt_auto_at(size_t i);

/* The memory that a cache may take: what was asked for, or what the machine has left beside the weights; 0: that cannot be said. */
uint64_t kvt_auto_memory(const struct kvt_kv_settings *s, const struct kvt_engine *engine);

struct kvt_auto_request {
    const struct kvt_kv_wish *wish; /* sink, tail and hold_last as the user wants them */
    int64_t start, rolling;
    int64_t n_ctx, n_sessions;
    struct kvt_place place;   /* that has to take it */
    uint64_t memory;          /* for all sessions together; 0: without an end */
    const char *const * not ; /* caches that the model's rows spoke against */
    int n_not;
};

struct kvt_auto_pick {
    const char *kv; /* of kvt_auto_at */
    int sink, tail;
    uint64_t bytes; /* of all sessions */
    char why[232];  /* "auto picked kvt4: ..."; empty for f16 that fits, where the user named nothing */
};

/* LIMIT where not even the smallest fits: the sentence tells what it takes and the longest context that would fit. */
KVT_MUST_CHECK enum kvt_status kvt_auto_choose(struct kvt_auto_pick *out, const struct kvt_model *model,
                                               const struct kvt_auto_request *request, struct kvt_error *err);

/* The names of all that fit, as they would be chosen; how many. */
int kvt_auto_fitting(const char **names, int most, const struct kvt_model *model,
                     const struct kvt_auto_request *request);

/* The most rows, at most `most`, whose cache takes no more than `bytes`, nor that of any fewer; 0: not even one. */
int64_t kvt_auto_longest(const struct kvt_plan *plan, uint64_t bytes, int64_t most);

#endif
