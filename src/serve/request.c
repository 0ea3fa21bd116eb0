/* SPDX-License-Identifier: Apache-2.0
 * A request's life, and its answer between two threads. */
#include "serve/request.h"

#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"

enum { ANSWER_BYTES_MAX = 1 << 28 };

struct kvt_request *kvt_request_create(void) {
    struct kvt_request *r = kvt_take_zero(&kvt_allocator_libc, 1, sizeof *r);
    if (!r) return NULL;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&r->lock, NULL);
    kvt_ids_init(&r->ask.prompt, NULL);
    kvt_buf_init(&r->text, NULL, ANSWER_BYTES_MAX);
    kvt_buf_init(&r->notes, NULL, ANSWER_BYTES_MAX);
    r->n_holders = 1;
    r->created = (int64_t)time(NULL);
    r->arrived = kvt_clock_seconds();
    return r;
}

struct kvt_request *kvt_request_hold(struct kvt_request *r) {
    atomic_fetch_add(&r->n_holders, 1);
    return r;
}

void kvt_request_drop(struct kvt_request *r) {
    if (!r || atomic_fetch_sub(&r->n_holders, 1) > 1) return;
    kvt_stop_finish(&r->ask.stops);
    kvt_ids_finish(&r->ask.prompt);
    kvt_buf_finish(&r->notes);
    kvt_buf_finish(&r->text);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->changed);
    kvt_give(&kvt_allocator_libc, r, 1, sizeof *r);
}

/* ---- the scheduler's side --------------------------------------------------------------------------------------------- */

void kvt_request_begin(struct kvt_request *r, int n_cached) {
    pthread_mutex_lock(&r->lock);
    r->state = KVT_REQUEST_RUNS;
    r->n_cached = n_cached;
    r->started = kvt_clock_seconds();
    pthread_mutex_unlock(&r->lock);
}

/* Drops the stop string, what followed it, and the notes of tokens that begin there. */
static void cut(struct kvt_request *r) {
    const struct kvt_token_note *notes = (const void *)r->notes.data;
    size_t n = r->notes.len / sizeof *notes;
    while (n > 0 && notes[n - 1].at >= r->n_shown) n--;
    r->notes.len = n * sizeof *notes;
    r->text.len = r->n_shown;
}

enum kvt_status kvt_request_add(struct kvt_request *r, const char *bytes, size_t n, const struct kvt_token_note *note,
                                bool *out_stopped) {
    pthread_mutex_lock(&r->lock);
    const size_t before = r->text.len;
    enum kvt_status status = kvt_buf_add(&r->text, bytes, n);
    if (status == KVT_OK && note) {
        struct kvt_token_note placed = *note;
        placed.at = before;
        status = kvt_buf_add(&r->notes, &placed, sizeof placed);
    }
    if (status == KVT_OK) {
        if (r->n_generated++ == 0) r->first = kvt_clock_seconds();
        *out_stopped = kvt_stop_find(&r->ask.stops, kvt_buf_text(&r->text), r->text.len, before, &r->n_shown);
        if (*out_stopped) cut(r);
        pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    return status;
}

void kvt_request_end(struct kvt_request *r, const char *finish) {
    pthread_mutex_lock(&r->lock);
    r->n_shown = r->text.len;
    r->finish = finish;
    r->state = KVT_REQUEST_ENDED;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

void kvt_request_fail(struct kvt_request *r, enum kvt_status status, const char *sentence) {
    pthread_mutex_lock(&r->lock);
    r->status = kvt_fail(&r->err, status, "%s", sentence);
    r->state = KVT_REQUEST_ENDED;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* ---- the connection's side -------------------------------------------------------------------------------------------- */

size_t kvt_request_n_notes(const struct kvt_request *r) {
    const struct kvt_token_note *notes = (const void *)r->notes.data;
    size_t n = r->notes.len / sizeof *notes;
    while (r->state != KVT_REQUEST_ENDED && n > 0 && notes[n - 1].at >= r->n_shown) n--;
    return n;
}

static bool has_more(const struct kvt_request *r, size_t n_seen, size_t n_notes_seen) {
    return r->state == KVT_REQUEST_ENDED || r->n_shown > n_seen || kvt_request_n_notes(r) > n_notes_seen;
}

bool kvt_request_wait(struct kvt_request *r, size_t n_seen, size_t n_notes_seen, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t nanoseconds = until.tv_nsec + (int64_t)(seconds * 1e9);
    until.tv_sec += (time_t)(nanoseconds / 1000000000);
    until.tv_nsec = (long)(nanoseconds % 1000000000);
    pthread_mutex_lock(&r->lock);
    int waited = 0;
    while (waited == 0 && !has_more(r, n_seen, n_notes_seen))
        waited = pthread_cond_timedwait(&r->changed, &r->lock, &until);
    const bool more = has_more(r, n_seen, n_notes_seen);
    pthread_mutex_unlock(&r->lock);
    return more;
}
