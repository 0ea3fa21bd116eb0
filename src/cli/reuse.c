/* SPDX-License-Identifier: Apache-2.0
 * Trims that cost as little exactness as can be. */
#include "cli/reuse.h"

#include "base/check.h"

static int common(const struct kvt_session *session, const int32_t *ids, int n) {
    const int32_t *held = kvt_session_ids(session);
    const int most = KVT_MIN(n - 1, kvt_session_n_rows(session));
    int i = 0;
    while (i < most && held[i] == ids[i]) i++;
    return i;
}

/* Whether a trim to n tokens would be exact: tried on a fork, which shares all pages. */
static bool would_be_exact(const struct kvt_session *session, int n) {
    struct kvt_session *fork = NULL;
    bool exact = false;
    if (kvt_session_fork(&fork, session, NULL) != KVT_OK) return false;
    const bool trimmed = kvt_session_trim(fork, n, &exact, NULL) == KVT_OK;
    kvt_session_destroy(fork);
    return trimmed && exact;
}

/* Rows that are encoded at once, at most. */
static int granularity(const struct kvt_session *session) {
    const struct kvt_plan *plan = kvt_session_plan(session);
    int most = 1;
    for (int l = 0; l < kvt_plan_n_layers(plan); l++) most = KVT_MAX(most, kvt_plan_layer(plan, l)->granularity);
    return most;
}

enum kvt_status kvt_reuse_trim(struct kvt_reuse *out, struct kvt_session *session, const int32_t *ids, int n,
                               struct kvt_error *err) {
    struct kvt_reuse r = {.n_common = common(session, ids, n), .exact = true};
    const int whole = r.n_common / granularity(session) * granularity(session);
    r.n_kept = r.n_common;
    if (r.n_kept == kvt_session_n_rows(session)) {
        *out = r;
        return KVT_OK;
    }
    if (!would_be_exact(session, r.n_kept) && would_be_exact(session, whole)) r.n_kept = whole;
    const enum kvt_status status = kvt_session_trim(session, r.n_kept, &r.exact, err);
    if (status == KVT_ERR_RANGE) { /* a window has dropped what it needs */
        kvt_session_clear(session);
        r.n_kept = 0;
        r.exact = true;
    } else if (status != KVT_OK) {
        return status;
    }
    *out = r;
    return KVT_OK;
}
