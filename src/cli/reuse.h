/* SPDX-License-Identifier: Apache-2.0
 * Going back to what a session and new tokens have in common. */
#ifndef CLI_REUSE_H
#define CLI_REUSE_H

#include "model/model.h"

struct kvt_reuse {
    int n_common; /* tokens that session and text began with alike */
    int n_kept; /* of them the cache was kept: less where going back a little more is exact, and 0 where a window has dropped rows */
    bool exact; /* the cache is as it was when it first held that many tokens */
};

/* Trims a session to what it has in common with ids[0 .. n), n >= 1, but always so that a token is left to feed. Where a trim
 * would have to decode rows back to 16 bits it goes back to where whole groups end, if that is exact. */
KVT_MUST_CHECK enum kvt_status kvt_reuse_trim(struct kvt_reuse *out, struct kvt_session *session, const int32_t *ids,
                                              int n, struct kvt_error *err);

#endif
