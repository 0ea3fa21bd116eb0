/* SPDX-License-Identifier: Apache-2.0
 * The scheduler's thread: who comes in, what a pass has, who goes. */
#include "serve/scheduler.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "serve/slot.h"

/* Of generated tokens, for the rate of late: so many seconds, one count each. */
enum { RECENT_SECONDS = 10 };

struct kvt_scheduler {
    const struct kvt_model *model;
    const struct kvt_serve_options *options;
    struct kvt_runner *runner;
    struct kvt_keeper keeper;
    struct kvt_slot_room room;
    struct kvt_slot *slots;
    struct kvt_feed *feeds;
    int n_slots, n_ctx, chunk;
    uint64_t limit, n_came;
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock;
    pthread_cond_t wake, idle;
    /* Under the lock. */
    struct kvt_request *first, **last; /* the queue */
    bool stopping, ending;             /* nothing new; nothing at all */
    struct kvt_view view;              /* its sessions: room for all */
    int n_view_room;
    uint64_t recent[RECENT_SECONDS];
    int64_t recent_second;
};

/* ---- the queue -------------------------------------------------------------------------------------------------------- */

enum kvt_status kvt_scheduler_submit(struct kvt_scheduler *s, struct kvt_request *request, struct kvt_error *err) {
    enum kvt_status status = KVT_OK;
    pthread_mutex_lock(&s->lock);
    if (s->stopping) {
        status = kvt_fail(err, KVT_ERR_STATE, "the server is being stopped and takes no new requests");
    } else if (s->view.n_waiting >= s->options->n_queue && s->view.n_running + s->view.n_waiting >= s->n_slots) {
        status = kvt_fail(err, KVT_ERR_LIMIT, "%d requests wait already, which is all that may; try again later",
                          s->view.n_waiting);
    } else {
        request->next = NULL;
        *s->last = kvt_request_hold(request);
        s->last = &request->next;
        s->view.n_waiting++;
        pthread_cond_signal(&s->wake);
    }
    if (status != KVT_OK) s->view.counts.n_refused++;
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* Takes the request at `at` out of the queue. Under the lock. */
static struct kvt_request *unlink_request(struct kvt_scheduler *s, struct kvt_request **at) {
    struct kvt_request *request = *at;
    *at = request->next;
    if (s->last == &request->next) s->last = at;
    s->view.n_waiting--;
    return request;
}

static bool too_late(const struct kvt_scheduler *s, const struct kvt_request *request) {
    return s->options->seconds > 0 && kvt_clock_seconds() - request->arrived > s->options->seconds;
}

static void fail_late(struct kvt_scheduler *s, struct kvt_request *request) {
    struct kvt_error err;
    kvt_fail(&err, KVT_ERR_CANCELLED, "the request took longer than the %g s that this server allows",
             s->options->seconds);
    kvt_request_fail(request, err.code, err.text);
}

/* ---- coming and going ------------------------------------------------------------------------------------------------- */

/* What a request may come to in the cache: its rows at the end, and 16-bit rows while its prompt is read. */
static uint64_t reserve_of(const struct kvt_scheduler *s, const struct kvt_request *request) {
    const struct kvt_plan *plan = kvt_runner_plan(s->runner);
    const int64_t n = (int64_t)request->ask.prompt.len + request->ask.max_tokens;
    uint64_t bytes = kvt_plan_bytes(plan, KVT_MIN(n, s->n_ctx));
    for (int l = 0; l < kvt_plan_n_layers(plan); l++) {
        const struct kvt_layer_shape *shape = &kvt_plan_layer(plan, l)->shape;
        bytes += (uint64_t)(s->chunk + KVT_TILE_ROWS) * 2 * (uint64_t)shape->n_kv_heads *
                 (uint64_t)(shape->k_size + shape->v_size);
    }
    return bytes;
}

static void leave(struct kvt_scheduler *s, struct kvt_slot *slot, bool keep) {
    if (keep)
        kvt_keeper_give(&s->keeper, slot->session, slot->n_exact);
    else
        kvt_session_destroy(slot->session);
    kvt_sampler_destroy(slot->sampler);
    kvt_request_drop(slot->request);
    *slot = (struct kvt_slot){.request = NULL};
}

/* Begins a request in a free slot, which holds it from here on. */
static enum kvt_status begin(struct kvt_scheduler *s, struct kvt_slot *slot, struct kvt_request *request,
                             struct kvt_error *err) {
    const struct kvt_ask *ask = &request->ask;
    *slot = (struct kvt_slot){
        .request = request, .n_prompt = (int)ask->prompt.len, .reserve = reserve_of(s, request), .number = s->n_came++};
    KVT_TRY(kvt_sampler_create(&slot->sampler, &ask->sample, s->room.n_vocab, NULL, err));
    struct kvt_taken taken;
    KVT_TRY(kvt_keeper_take(&s->keeper, ask->prompt.data, slot->n_prompt, ask->reuse, &taken, err));
    slot->session = taken.session;
    slot->n_common = taken.n_common;
    slot->n_exact = taken.n_exact;
    slot->n_cached = kvt_session_n_rows(slot->session);
    pthread_mutex_lock(&s->lock);
    s->view.counts.cached_tokens += (uint64_t)slot->n_cached;
    pthread_mutex_unlock(&s->lock);
    kvt_request_begin(request, slot->n_cached);
    return KVT_OK;
}

/* Whether the first of the queue has a slot and memory. One alone is let in whatever it may come to. Under the lock. */
static struct kvt_slot *place_for(struct kvt_scheduler *s, const struct kvt_request *request) {
    struct kvt_slot *free_slot = NULL;
    uint64_t reserved = reserve_of(s, request);
    bool alone = true;
    for (int i = 0; i < s->n_slots; i++) {
        if (!s->slots[i].request) {
            free_slot = &s->slots[i];
            continue;
        }
        reserved += s->slots[i].reserve;
        alone = false;
    }
    return alone || s->limit == 0 || reserved <= s->limit ? free_slot : NULL;
}

static void count_end(struct kvt_scheduler *s, struct kvt_request *request) {
    struct kvt_counts *c = &s->view.counts;
    pthread_mutex_lock(&s->lock);
    if (atomic_load(&request->gone))
        c->n_cancelled++;
    else if (request->status != KVT_OK)
        c->n_failed++;
    else
        c->n_done++;
    pthread_mutex_unlock(&s->lock);
}

/* Takes in what waits and has a place. Returns whether anything runs. */
static bool admit(struct kvt_scheduler *s) {
    for (;;) {
        pthread_mutex_lock(&s->lock);
        struct kvt_request *request = s->first;
        struct kvt_slot *slot = request ? place_for(s, request) : NULL;
        if (slot) {
            unlink_request(s, &s->first);
            s->view.n_running++;
        }
        const bool runs = s->view.n_running > 0;
        pthread_mutex_unlock(&s->lock);
        if (!slot) return runs;
        struct kvt_error err = {0};
        if (begin(s, slot, request, &err) == KVT_OK) continue;
        kvt_request_fail(request, err.code, err.text);
        count_end(s, request);
        leave(s, slot, false);
    }
}

/* ---- a pass ----------------------------------------------------------------------------------------------------------- */

static bool reads(const struct kvt_slot *slot) { return kvt_session_n_rows(slot->session) < slot->n_prompt; }

/* The feeds of a pass: tokens of answers first, then prompts in the order in which they came, as far as the pass has room. */
static int plan_pass(struct kvt_scheduler *s) {
    int n_feeds = 0, room = s->chunk;
    for (int i = 0; i < s->n_slots; i++) s->slots[i].n_fed = 0;
    for (int i = 0; i < s->n_slots; i++) {
        struct kvt_slot *slot = &s->slots[i];
        if (!slot->request || reads(slot)) continue;
        slot->n_fed = 1;
        s->feeds[n_feeds++] = (struct kvt_feed){slot->session, &slot->next, 1, 1};
    }
    for (;;) {
        struct kvt_slot *next = NULL;
        for (int i = 0; i < s->n_slots; i++) {
            struct kvt_slot *slot = &s->slots[i];
            if (slot->request && slot->n_fed == 0 && reads(slot) && (!next || slot->number < next->number)) next = slot;
        }
        if (!next) return n_feeds;
        const int done = kvt_session_n_rows(next->session);
        const int n = KVT_MIN(s->chunk - done % s->chunk, next->n_prompt - done);
        if (n > room) return n_feeds;
        room -= n;
        next->n_fed = n;
        s->feeds[n_feeds++] = (struct kvt_feed){next->session, next->request->ask.prompt.data + done, n,
                                                done + n == next->n_prompt ? 1 : 0};
    }
}

/* After a piece of a prompt: whether here is a good place to come back to. At its end, for who asks again. Powers of two bound how much
 * of a shared beginning is read again, with few sessions; where prompts were seen to part, and near a prompt's end, places are
 * known to be of use. */
static void mark(struct kvt_scheduler *s, struct kvt_slot *slot) {
    const int n = kvt_session_n_rows(slot->session), n_chunks = n / s->chunk;
    const bool whole = n % s->chunk == 0 && n > slot->n_cached;
    if (whole && slot->n_exact == n - slot->n_fed) slot->n_exact = n;
    const bool power = (n_chunks & (n_chunks - 1)) == 0;
    const bool parts = n == slot->n_common / s->chunk * s->chunk,
               last = n == (slot->n_prompt - 1) / s->chunk * s->chunk;
    if (n == slot->n_prompt || (whole && (power || parts || last)))
        kvt_keeper_mark(&s->keeper, slot->session, slot->n_exact, whole && (parts || last));
}

static void end_slot(struct kvt_scheduler *s, struct kvt_slot *slot, const char *finish) {
    struct kvt_request *request = slot->request;
    struct kvt_counts *c = &s->view.counts;
    pthread_mutex_lock(&s->lock);
    c->wait_seconds += request->started - request->arrived;
    if (request->first > 0) c->prompt_seconds += request->first - request->started;
    pthread_mutex_unlock(&s->lock);
    kvt_request_end(request, finish);
    count_end(s, request);
    leave(s, slot, true);
}

static void fail_slot(struct kvt_scheduler *s, struct kvt_slot *slot, enum kvt_status status, const char *sentence) {
    kvt_request_fail(slot->request, status, sentence);
    count_end(s, slot->request);
    leave(s, slot, false);
}

/* The pass did not go through even with every kept session evicted: the one that came last makes room for the others. */
static void give_way(struct kvt_scheduler *s, const struct kvt_error *err) {
    struct kvt_slot *youngest = NULL;
    for (int i = 0; i < s->n_slots; i++)
        if (s->slots[i].n_fed && (!youngest || s->slots[i].number > youngest->number)) youngest = &s->slots[i];
    if (!youngest) return;
    struct kvt_error text;
    kvt_fail(&text, err->code, "the cache's memory is full (--kv-memory): %.300s", err->text);
    fail_slot(s, youngest, err->code == KVT_ERR_LIMIT || err->code == KVT_ERR_NOMEM ? KVT_ERR_NOMEM : err->code,
              err->code == KVT_ERR_LIMIT || err->code == KVT_ERR_NOMEM ? text.text : err->text);
}

/* Gives a few answers their next tokens. Returns how many were written. */
static uint64_t pick(struct kvt_scheduler *s, struct kvt_slot *const *slots, int n) {
    struct kvt_error err = {0};
    const enum kvt_status all = kvt_slot_logits(slots, n, &s->room, &err);
    uint64_t n_generated = 0;
    for (int i = 0; i < n; i++) {
        struct kvt_slot *slot = slots[i];
        const int before = slot->n_generated;
        const char *finish = NULL;
        const float *logits = s->room.logits + (ptrdiff_t)i * s->room.n_vocab;
        const enum kvt_status status = all == KVT_OK ? kvt_slot_pick(slot, logits, &s->room, &finish, &err) : all;
        n_generated += (uint64_t)(slot->n_generated - before);
        if (status != KVT_OK)
            fail_slot(s, slot, status, err.text);
        else if (finish)
            end_slot(s, slot, finish);
    }
    return n_generated;
}

static void count_pass(struct kvt_scheduler *s, uint64_t n_prompt, uint64_t n_generated, double seconds) {
    const int64_t second = (int64_t)kvt_clock_seconds();
    pthread_mutex_lock(&s->lock);
    for (; s->recent_second < second; s->recent_second++) s->recent[(s->recent_second + 1) % RECENT_SECONDS] = 0;
    s->recent[second % RECENT_SECONDS] += n_generated;
    s->view.counts.prompt_tokens += n_prompt;
    s->view.counts.generated_tokens += n_generated;
    s->view.counts.n_passes++;
    s->view.counts.pass_seconds += seconds;
    pthread_mutex_unlock(&s->lock);
}

static void after_pass(struct kvt_scheduler *s, double start) {
    struct kvt_slot *picks[KVT_SLOT_PICKS];
    uint64_t n_prompt = 0, n_generated = 0;
    int n = 0;
    for (int i = 0; i < s->n_slots; i++) {
        struct kvt_slot *slot = &s->slots[i];
        if (slot->n_fed == 0) continue;
        if (slot->n_generated == 0) {
            n_prompt += (uint64_t)slot->n_fed;
            mark(s, slot);
            if (reads(slot)) continue;
        }
        picks[n++] = slot;
        if (n < KVT_SLOT_PICKS) continue;
        n_generated += pick(s, picks, n);
        n = 0;
    }
    if (n > 0) n_generated += pick(s, picks, n);
    count_pass(s, n_prompt, n_generated, kvt_clock_seconds() - start);
}

static void pass(struct kvt_scheduler *s) {
    struct kvt_error err = {0};
    const double start = kvt_clock_seconds();
    const int n_feeds = plan_pass(s);
    if (n_feeds == 0) return;
    enum kvt_status status = kvt_runner_eval(s->runner, s->feeds, n_feeds, &err);
    while ((status == KVT_ERR_LIMIT || status == KVT_ERR_NOMEM) && kvt_keeper_evict(&s->keeper))
        status = kvt_runner_eval(s->runner, s->feeds, n_feeds, &err);
    if (status == KVT_OK)
        after_pass(s, start);
    else
        give_way(s, &err);
}

/* ---- the thread ------------------------------------------------------------------------------------------------------- */

/* Of those that wait the first whose client is gone, whose time is over, or that is not to begin any more; NULL: there is none. */
static struct kvt_request *next_dead(struct kvt_scheduler *s) {
    struct kvt_request *dead = NULL;
    pthread_mutex_lock(&s->lock);
    for (struct kvt_request **at = &s->first; *at && !dead;)
        if (s->stopping || atomic_load(&(*at)->gone) || too_late(s, *at))
            dead = unlink_request(s, at);
        else
            at = &(*at)->next;
    pthread_mutex_unlock(&s->lock);
    return dead;
}

static void drop_dead_waiting(struct kvt_scheduler *s) {
    for (struct kvt_request *dead; (dead = next_dead(s));) {
        if (atomic_load(&dead->gone))
            kvt_request_fail(dead, KVT_ERR_CANCELLED, "the client went away");
        else if (too_late(s, dead))
            fail_late(s, dead);
        else
            kvt_request_fail(dead, KVT_ERR_STATE, "the server is being stopped; the request had not begun");
        count_end(s, dead);
        kvt_request_drop(dead);
    }
}

static void drop_dead_running(struct kvt_scheduler *s) {
    pthread_mutex_lock(&s->lock);
    const bool ending = s->ending;
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->n_slots; i++) {
        struct kvt_slot *slot = &s->slots[i];
        if (!slot->request) continue;
        if (ending) {
            fail_slot(s, slot, KVT_ERR_STATE, "the server was stopped before the answer was complete");
        } else if (atomic_load(&slot->request->gone)) {
            kvt_request_fail(slot->request, KVT_ERR_CANCELLED, "the client went away");
            count_end(s, slot->request);
            leave(s, slot, true);
        } else if (too_late(s, slot->request)) {
            fail_late(s, slot->request);
            count_end(s, slot->request);
            leave(s, slot, true);
        }
    }
}

static void publish(struct kvt_scheduler *s) {
    struct kvt_view *v = &s->view;
    int n = 0;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->n_slots; i++) {
        const struct kvt_slot *slot = &s->slots[i];
        if (!slot->request) continue;
        struct kvt_view_session *to = &v->sessions[n++];
        *to = (struct kvt_view_session){.n_rows = kvt_session_n_rows(slot->session),
                                        .n_prompt = slot->n_prompt,
                                        .n_cached = slot->n_cached,
                                        .n_generated = slot->n_generated};
        memcpy(to->id, slot->request->id, sizeof to->id);
    }
    v->n_running = n;
    for (struct kvt_prefix_node *node = NULL;
         n < s->n_view_room && (node = kvt_prefix_next(&s->keeper.prefixes, node));) {
        const struct kvt_kept_prefix *kept = node->item;
        if (kept->session) v->sessions[n++] = (struct kvt_view_session){.n_rows = node->depth, .n_hits = kept->n_hits};
    }
    v->n_sessions = n;
    v->n_kept = s->keeper.n_sessions;
    v->n_files = s->keeper.n_files;
    v->file_bytes = s->keeper.file_bytes;
    v->prefix_hits = s->keeper.n_hits;
    v->prefix_misses = s->keeper.n_misses;
    v->prefix_evicted = s->keeper.n_evicted;
    v->cache_bytes = kvt_runner_cache_bytes(s->runner);
    v->peak_bytes = kvt_runner_peak_cache_bytes(s->runner);
    if (v->n_running == 0) pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
}

/* Sleeps until there is something to do: at most a second, which is when kept prefixes are written. Returns false at the end. */
static bool rest(struct kvt_scheduler *s) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    pthread_mutex_lock(&s->lock);
    int waited = 0;
    while (!s->first && !s->ending && waited == 0) waited = pthread_cond_timedwait(&s->wake, &s->lock, &until);
    const bool ends = s->ending && !s->first, empty = !s->first;
    pthread_mutex_unlock(&s->lock);
    if (!ends && empty) (void)kvt_keeper_save_one(&s->keeper);
    return !ends;
}

static void *run(void *arg) {
    struct kvt_scheduler *s = arg;
    for (;;) {
        drop_dead_waiting(s);
        drop_dead_running(s);
        const bool runs = admit(s);
        if (runs) pass(s);
        publish(s);
        if (!runs && !rest(s)) break;
    }
    while (kvt_keeper_save_one(&s->keeper)) {
    }
    return NULL;
}

/* ---- from outside ----------------------------------------------------------------------------------------------------- */

static enum kvt_status create(struct kvt_scheduler *s, struct kvt_error *err) {
    struct kvt_session_options o = *s->options->sessions;
    s->n_slots = s->options->n_parallel;
    s->chunk = s->options->chunk;
    s->limit = o.cache_byte_limit;
    o.n_batch = s->chunk + s->n_slots;
    o.n_keep = s->n_slots;
    KVT_TRY(kvt_runner_create(&s->runner, s->model, &o, s->n_slots, err));
    s->n_ctx = o.n_ctx ? o.n_ctx : kvt_model_info(s->model).n_ctx_train;
    KVT_TRY(kvt_keeper_init(&s->keeper, s->runner, s->model, s->options, err));
    KVT_TRY(kvt_slot_room_init(&s->room, s->model, err));
    s->n_view_room = s->n_slots + 256;
    s->slots = kvt_take_zero(&kvt_allocator_libc, (size_t)s->n_slots, sizeof *s->slots);
    s->feeds = kvt_take_zero(&kvt_allocator_libc, (size_t)s->n_slots, sizeof *s->feeds);
    s->view.sessions = kvt_take_zero(&kvt_allocator_libc, (size_t)s->n_view_room, sizeof *s->view.sessions);
    if (!s->slots || !s->feeds || !s->view.sessions)
        return kvt_fail(err, KVT_ERR_NOMEM, "no memory for %d answers at once", s->n_slots);
    publish(s);
    if (pthread_create(&s->thread, NULL, run, s) != 0)
        return kvt_fail(err, KVT_ERR_NOMEM, "the scheduler's thread cannot be started");
    s->has_thread = true;
    return KVT_OK;
}

enum kvt_status kvt_scheduler_create(struct kvt_scheduler **out, const struct kvt_model *model,
                                     const struct kvt_serve_options *options, struct kvt_error *err) {
    struct kvt_scheduler *s = kvt_take_zero(&kvt_allocator_libc, 1, sizeof *s);
    if (!s) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for a scheduler");
    s->model = model;
    s->options = options;
    s->last = &s->first;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, &monotonic);
    pthread_cond_init(&s->idle, &monotonic);
    pthread_condattr_destroy(&monotonic);
    const enum kvt_status status = create(s, err);
    if (status == KVT_OK)
        *out = s;
    else
        kvt_scheduler_destroy(s);
    return status;
}

void kvt_scheduler_stop(struct kvt_scheduler *s, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t nanoseconds = until.tv_nsec + (int64_t)(seconds * 1e9);
    until.tv_sec += (time_t)(nanoseconds / 1000000000);
    until.tv_nsec = (long)(nanoseconds % 1000000000);
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_signal(&s->wake);
    int waited = 0;
    while (s->view.n_running + s->view.n_waiting > 0 && waited == 0)
        waited = pthread_cond_timedwait(&s->idle, &s->lock, &until);
    s->ending = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

void kvt_scheduler_destroy(struct kvt_scheduler *s) {
    if (!s) return;
    if (s->has_thread) {
        kvt_scheduler_stop(s, 0);
        pthread_join(s->thread, NULL);
    }
    if (s->keeper.runner) kvt_keeper_finish(&s->keeper);
    kvt_runner_destroy(s->runner);
    if (s->room.n_vocab) kvt_slot_room_finish(&s->room);
    kvt_give(&kvt_allocator_libc, s->view.sessions, (size_t)s->n_view_room, sizeof *s->view.sessions);
    kvt_give(&kvt_allocator_libc, s->feeds, (size_t)s->n_slots, sizeof *s->feeds);
    kvt_give(&kvt_allocator_libc, s->slots, (size_t)s->n_slots, sizeof *s->slots);
    pthread_cond_destroy(&s->idle);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    kvt_give(&kvt_allocator_libc, s, 1, sizeof *s);
}

bool kvt_scheduler_stopping(struct kvt_scheduler *s) {
    pthread_mutex_lock(&s->lock);
    const bool stopping = s->stopping;
    pthread_mutex_unlock(&s->lock);
    return stopping;
}

int kvt_scheduler_n_busy(struct kvt_scheduler *s) {
    pthread_mutex_lock(&s->lock);
    const int n = s->view.n_running + s->view.n_waiting;
    pthread_mutex_unlock(&s->lock);
    return n;
}

void kvt_scheduler_refused(struct kvt_scheduler *s) {
    pthread_mutex_lock(&s->lock);
    s->view.counts.n_refused++;
    pthread_mutex_unlock(&s->lock);
}

const struct kvt_plan *kvt_scheduler_plan(const struct kvt_scheduler *s) { return kvt_runner_plan(s->runner); }
int kvt_scheduler_n_ctx(const struct kvt_scheduler *s) { return s->n_ctx; }

/* Tokens a second of the last whole seconds. Under the lock. */
static double recent_rate(const struct kvt_scheduler *s) {
    const int64_t second = (int64_t)kvt_clock_seconds();
    uint64_t n = 0;
    for (int64_t t = second - RECENT_SECONDS + 1; t < second; t++)
        if (t <= s->recent_second && t > s->recent_second - RECENT_SECONDS) n += s->recent[t % RECENT_SECONDS];
    return (double)n / (RECENT_SECONDS - 1);
}

enum kvt_status kvt_scheduler_view(struct kvt_scheduler *s, struct kvt_view *out) {
    struct kvt_view_session *sessions = kvt_take(&kvt_allocator_libc, (size_t)s->n_view_room, sizeof *sessions);
    if (!sessions) return KVT_ERR_NOMEM;
    pthread_mutex_lock(&s->lock);
    *out = s->view;
    out->recent = recent_rate(s);
    memcpy(sessions, s->view.sessions, (size_t)s->view.n_sessions * sizeof *sessions);
    pthread_mutex_unlock(&s->lock);
    out->sessions = sessions;
    out->n_room = s->n_view_room;
    return KVT_OK;
}

void kvt_view_finish(struct kvt_view *view) {
    kvt_give(&kvt_allocator_libc, view->sessions, (size_t)view->n_room, sizeof *view->sessions);
}
