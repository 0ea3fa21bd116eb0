/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler: one thread that owns the runner. Each pass has the next token of every answer that is being written and a piece of the
 * prompts that wait to be read, so that a long prompt does not stop the others.
 *
 * Prompts are cut at multiples of `chunk` tokens from their beginning, wherever they begin to be read, and kept at such lengths: a
 * prompt that begins with what was kept there gives the bits that it would give alone.
 */
#ifndef SERVE_SCHEDULER_H
#define SERVE_SCHEDULER_H

#include "serve/keeper.h"
#include "serve/request.h"

/* What has happened so far. */
struct kvt_counts {
    uint64_t n_done, n_cancelled, n_failed, n_refused;
    uint64_t prompt_tokens, cached_tokens, generated_tokens;
    uint64_t n_passes;
    double pass_seconds;   /* in them */
    double wait_seconds;   /* of requests in the queue */
    double prompt_seconds; /* from there to their first token */
};

/* One session as it is now: of a request, or kept. */
struct kvt_view_session {
    char id[KVT_REQUEST_ID_MAX]; /* empty: kept */
    int n_rows, n_prompt, n_cached, n_generated, n_hits;
};

/* All of them; taken between two passes. */
struct kvt_view {
    struct kvt_counts counts;
    int n_waiting, n_running, n_kept;
    int n_files;
    uint64_t file_bytes;
    uint64_t prefix_hits, prefix_misses, prefix_evicted;
    uint64_t cache_bytes, peak_bytes;
    double recent; /* generated tokens a second, of the last seconds */
    int n_sessions, n_room;
    struct kvt_view_session *sessions; /* those that run first; the caller gives them back: kvt_view_finish */
};

struct kvt_scheduler;

KVT_MUST_CHECK enum kvt_status kvt_scheduler_create(struct kvt_scheduler **out, const struct kvt_model *model,
                                                    const struct kvt_serve_options *options, struct kvt_error *err);
/* Stops it first, at once. NULL is fine. */
void kvt_scheduler_destroy(struct kvt_scheduler *s);

/* From any thread. Takes a hold of the request. LIMIT: the queue is full; STATE: it is being stopped. */
KVT_MUST_CHECK enum kvt_status kvt_scheduler_submit(struct kvt_scheduler *s, struct kvt_request *request,
                                                    struct kvt_error *err);
/* Fails what waits, lets what runs go on for so many seconds, then ends it. Waits for that. */
void kvt_scheduler_stop(struct kvt_scheduler *s, double seconds);
bool kvt_scheduler_stopping(struct kvt_scheduler *s);
int kvt_scheduler_n_busy(struct kvt_scheduler *s);
void kvt_scheduler_refused(struct kvt_scheduler *s); /* counts a request that did not get here */

const struct kvt_plan *kvt_scheduler_plan(const struct kvt_scheduler *s);
int kvt_scheduler_n_ctx(const struct kvt_scheduler *s);
/* NOMEM. */
KVT_MUST_CHECK enum kvt_status kvt_scheduler_view(struct kvt_scheduler *s, struct kvt_view *out);
void kvt_view_finish(struct kvt_view *view);

#endif
