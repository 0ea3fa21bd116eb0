/* SPDX-License-Identifier: Apache-2.0
 *
 * The cache of a command that writes text: what the options ask for, resolved on the loaded model, told in [kv] lines on standard
 * error, and tried on the model's own rows:
 *
 *   kvt_engine_load; kvt_choice_make; kvt_choice_apply to the options; kvt_session_create or kvt_runner_create; kvt_choice_tell
 */
#ifndef CLI_CHOICE_H
#define CLI_CHOICE_H

#include "cli/engine.h"
#include "cli/kv_check.h"
#include "cli/kv_options.h"

struct kvt_choice_request {
    const struct kvt_kv_settings *kv;
    int n_ctx;         /* rows of a session */
    int n_sessions;    /* that may be full at once; 0: 1 */
    const char *level; /* NULL: "auto" */
    const char *label; /* before what the [kv] lines say, where there may be several models; NULL: nothing */
    bool quiet;        /* no lines; and no check, but for auto */
};

enum { KVT_CHOICE_WHY_MAX = 232 };

/* What a session or a runner is made with. */
struct kvt_choice {
    struct kvt_plan *plan; /* with the reason of each layer */
    char *kv;              /* the string that it was made of */
    int sink, tail;
    int64_t start, rolling;
    bool hold_last, fallback;
    uint64_t limit;               /* of the cache, all sessions; 0: none */
    uint64_t bytes;               /* of n_sessions full sessions that share nothing */
    uint64_t f16_bytes;           /* of as many with f16; 0: unknown */
    const char *picked;           /* the name of what auto chose ("kvt4"); NULL where a cache was named */
    char why[KVT_CHOICE_WHY_MAX]; /* why auto chose it, or empty */
    struct kvt_kv_check check;    /* what the check found, if it was done */
};

/* Resolves. kvt_choice_finish is to follow in any case. ARG for a wrong call; UNSUPPORTED for what the
 * model's rows cannot be stored in (with --kv-strict: for any layer); LIMIT where the cache cannot fit --kv-memory. */
KVT_MUST_CHECK enum kvt_status kvt_choice_make(struct kvt_choice *out, struct kvt_engine *engine,
                                               const struct kvt_choice_request *request, struct kvt_error *err);
/* Prints the [kv] lines and tries the cache on the model's own rows, once the session or runner is there; what the check finds is a
 * warning. Fails only where Ctrl-C ends it. */
KVT_MUST_CHECK enum kvt_status kvt_choice_tell(struct kvt_choice *choice, struct kvt_engine *engine,
                                               const struct kvt_choice_request *request, struct kvt_error *err);
void kvt_choice_finish(struct kvt_choice *choice); /* harmless on a zeroed one */

/* Sets what the options say of the cache: kv and what goes with it, and cache_byte_limit; their plan is the choice's, reasons too. They
 * borrow from the choice. */
void kvt_choice_apply(struct kvt_session_options *options, const struct kvt_choice *choice);

#endif
