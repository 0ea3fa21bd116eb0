/* SPDX-License-Identifier: Apache-2.0
 * The check at the start: a plan on the model's own rows, and which cache would do where it will not. */
#ifndef CLI_KV_CHECK_H
#define CLI_KV_CHECK_H

#include "cli/engine.h"
#include "fidelity/fidelity.h"

enum { KVT_KV_CHECK_MAX = 8 };

struct kvt_kv_check {
    struct kvt_check found;
    const struct kvt_plan *plan; /* that was tried, and the others by name, those that the model's rows fit */
    struct kvt_plan *plans[KVT_KV_CHECK_MAX];
    const char *names[KVT_KV_CHECK_MAX];
    int n_others;
    bool done;
};

/* Tries a plan; `others` are names of caches that may do in its place, best first. Takes up to two seconds. Finish it in any case. */
KVT_MUST_CHECK enum kvt_status kvt_kv_check_run(struct kvt_kv_check *out, struct kvt_engine *engine,
                                                const struct kvt_plan *plan, const char *const *others, int n_others,
                                                const char *level, struct kvt_error *err);
void kvt_kv_check_finish(struct kvt_kv_check *check); /* harmless on a zeroed one */

/* Whether the plan spoils a layer; the name of a cache that does not, or NULL. */
bool kvt_kv_check_is_bad(const struct kvt_kv_check *check);
const char *kvt_kv_check_better(const struct kvt_kv_check *check);

/* "keys of layers 0-7 lose 0.41 of their attention" */
enum { KVT_KV_CHECK_TEXT_MAX = 160 };
void kvt_kv_check_say(char text[KVT_KV_CHECK_TEXT_MAX], const struct kvt_kv_check *check);
/* One line on standard error: a warning, or that not every layer could be looked at. Nothing where all were, and all is well. */
void kvt_kv_check_tell(const struct kvt_kv_check *check, const char *label);

#endif
