/* SPDX-License-Identifier: Apache-2.0
 * How long work reports on itself and is told to stop. */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* Called from the thread that does the work. Returns false to cancel: the work then ends with KVT_ERR_CANCELLED. */
struct kvt_progress {
    bool (*report)(void *ctx, const char *what, uint64_t done, uint64_t total);
    void *ctx;
};

/* p may be NULL. */
static inline bool kvt_progress_report(const struct kvt_progress *p, const char *what, uint64_t done, uint64_t total) {
    return !p || p->report(p->ctx, what, done, total);
}

#endif
