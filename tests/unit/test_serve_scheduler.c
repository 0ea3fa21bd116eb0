/* SPDX-License-Identifier: Apache-2.0
 * The scheduler: answers do not depend on who else is served, on what was kept, or on how little memory there is; every request ends. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/attr.h"
#include "serve/scheduler.h"
#include "support/make_model.h"
#include "support/threads.h"

enum { CHUNK = 64, N_CTX = 1500, N_PROMPTS = 5, PROMPT_MAX = 700 };

static struct kvt_model *model;
static char dir[64];
static struct kvt_parallel parallel;
static struct kvt_session_options sessions;
static struct kvt_serve_options options;
static const int lengths[N_PROMPTS] = {1, 63, 200, 129, 650};
static int32_t prompts[N_PROMPTS][PROMPT_MAX];

static int begin(void **state) {
    (void)state;
    char file[256];
    if (kvt_made_file(file, sizeof file, kvt_made_find("llama-yarn")) != KVT_OK) return -1;
    const enum kvt_status status = kvt_model_load(&model, file, NULL, NULL);
    remove(file);
    parallel = test_parallel(2);
    for (int i = 0; i < N_PROMPTS; i++) kvt_made_ids(prompts[i], PROMPT_MAX, (uint64_t)i + 1);
    snprintf(dir, sizeof dir, "/tmp/test_serve.XXXXXX");
    return status == KVT_OK && mkdtemp(dir) ? 0 : -1;
}

static void empty_dir(void) {
    DIR *d = opendir(dir);
    for (const struct dirent *e; d && (e = readdir(d));) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (e->d_name[0] != '.') remove(path);
    }
    if (d) closedir(d);
}

static int end(void **state) {
    (void)state;
    empty_dir();
    rmdir(dir);
    kvt_model_destroy(model);
    return 0;
}

/* A scheduler over a cache, with the options as they are. */
static struct kvt_scheduler *start(const char *kv, int n_parallel) {
    struct kvt_scheduler *s = NULL;
    struct kvt_error err = {0};
    sessions.kv = kv;
    sessions.n_ctx = N_CTX;
    sessions.parallel = &parallel;
    options.sessions = &sessions;
    options.n_parallel = n_parallel;
    options.chunk = CHUNK;
    if (options.n_queue == 0) options.n_queue = 32;
    if (kvt_scheduler_create(&s, model, &options, &err) != KVT_OK) fail_msg("%s", err.text);
    return s;
}

static void stop(struct kvt_scheduler *s) {
    kvt_scheduler_destroy(s);
    options = (struct kvt_serve_options){.name = NULL};
    sessions = (struct kvt_session_options){.kv = NULL};
}

/* Greedy, past end tokens, so that lengths are known. */
static struct kvt_request *ask(const int32_t *ids, int n, int max_tokens, bool reuse) {
    struct kvt_request *r = kvt_request_create();
    assert_non_null(r);
    for (int i = 0; i < n; i++) assert_int_equal(kvt_ids_add(&r->ask.prompt, ids[i]), KVT_OK);
    r->ask.max_tokens = max_tokens;
    r->ask.sample = (struct kvt_sample_options){.top_p = 1};
    r->ask.reuse = reuse;
    r->ask.ignores_end = true;
    r->ask.logprobs = true; /* so that tokens can be compared, and not text alone */
    return r;
}

static struct kvt_request *send_to(struct kvt_scheduler *s, struct kvt_request *r) {
    struct kvt_error err = {0};
    if (kvt_scheduler_submit(s, r, &err) != KVT_OK) fail_msg("%s", err.text);
    return r;
}

static void await(struct kvt_request *r) {
    if (!kvt_request_wait(r, SIZE_MAX, SIZE_MAX, 120)) fail_msg("a request did not end");
}

static void await_well(struct kvt_request *r) {
    await(r);
    if (r->status != KVT_OK) fail_msg("%s", r->err.text);
}

/* Drops both. */
static void assert_same(struct kvt_request *a, struct kvt_request *b) {
    assert_int_equal(a->n_generated, b->n_generated);
    assert_int_equal(a->notes.len, b->notes.len);
    const struct kvt_token_note *x = (const void *)a->notes.data, *y = (const void *)b->notes.data;
    for (int i = 0; i < a->n_generated; i++)
        if (x[i].id != y[i].id || memcmp(&x[i].logprob, &y[i].logprob, sizeof x[i].logprob) != 0)
            fail_msg("token %d of %d: %d and %d", i, a->n_generated, x[i].id, y[i].id);
    kvt_request_drop(a);
    kvt_request_drop(b);
}

/* ---- tests ------------------------------------------------------------------------------------------------------------ */

static void an_answer_is_the_same_alone_and_among_others(void **state) {
    (void)state;
    static const char *const caches[] = {"f16", "kivi4g32", "kvt4"};
    for (size_t c = 0; c < KVT_ARRAY_LEN(caches); c++) {
        struct kvt_request *alone[N_PROMPTS], *among[N_PROMPTS];
        struct kvt_scheduler *s = start(caches[c], 3);
        for (int i = 0; i < N_PROMPTS; i++) {
            alone[i] = send_to(s, ask(prompts[i], lengths[i], 20 + i, false));
            await_well(alone[i]);
        }
        for (int i = 0; i < N_PROMPTS; i++) among[i] = send_to(s, ask(prompts[i], lengths[i], 20 + i, false));
        for (int i = 0; i < N_PROMPTS; i++) {
            await_well(among[i]);
            assert_int_equal(among[i]->n_cached, 0);
            assert_same(alone[i], among[i]);
        }
        stop(s);
    }
}

/* Where what is kept ends at a multiple of the piece, the rest is cut as it would be without: the same bits. */
static void a_kept_prefix_changes_nothing(void **state) {
    (void)state;
    static const char *const caches[] = {"f16", "kivi4g32", "kvt4", "affine4g32"};
    for (size_t c = 0; c < KVT_ARRAY_LEN(caches); c++) {
        struct kvt_scheduler *s = start(caches[c], 2);
        int32_t other[PROMPT_MAX];
        memcpy(other, prompts[4], sizeof other);
        for (int i = 256; i < PROMPT_MAX; i++) other[i] = prompts[0][i];
        struct kvt_request *without[2], *with[2];
        without[0] = send_to(s, ask(prompts[4], 641, 30, false));
        await_well(without[0]);
        with[0] = send_to(s, ask(prompts[4], 641, 30, true));
        with[1] = send_to(s, ask(other, 641, 30, true));
        without[1] = send_to(s, ask(other, 641, 30, false));
        for (int i = 0; i < 2; i++) {
            await_well(with[i]);
            await_well(without[i]);
            assert_int_equal(with[i]->n_cached, i == 0 ? 640 : 256);
            assert_same(with[i], without[i]);
        }
        stop(s);
    }
}

static void prompts_that_part_are_kept_where_they_do(void **state) {
    (void)state;
    struct kvt_scheduler *s = start("kivi4g32", 1);
    int32_t texts[3][PROMPT_MAX];
    for (int i = 0; i < 3; i++) { /* alike for 200 tokens: three pieces, which is no power of two */
        memcpy(texts[i], prompts[4], sizeof texts[i]);
        for (int k = 200; k < PROMPT_MAX; k++) texts[i][k] = prompts[i][k];
    }
    static const int cached[3] = {0, 128, 192};
    for (int i = 0; i < 3; i++) {
        struct kvt_request *r = send_to(s, ask(texts[i], 500, 4, true));
        await_well(r);
        assert_int_equal(r->n_cached, cached[i]);
        kvt_request_drop(r);
    }
    stop(s);
}

/* However long the answer was: the prompt's end is kept, and one token less can be had from it. */
static void a_prompt_can_be_asked_again(void **state) {
    (void)state;
    struct kvt_scheduler *s = start("kivi4g32", 1);
    for (int i = 0; i < 2; i++) {
        struct kvt_request *r = send_to(s, ask(prompts[2], 50, 200, true));
        await_well(r);
        assert_int_equal(r->n_cached, i == 0 ? 0 : 49);
        kvt_request_drop(r);
    }
    stop(s);
}

static void an_answer_can_be_gone_on_from(void **state) {
    (void)state;
    struct kvt_scheduler *s = start("kivi4g32", 1);
    struct kvt_request *first = send_to(s, ask(prompts[2], 200, 50, true));
    await_well(first);
    int32_t next[300];
    memcpy(next, prompts[2], 200 * sizeof next[0]);
    const struct kvt_token_note *notes = (const void *)first->notes.data;
    for (int i = 0; i < 50; i++) next[200 + i] = notes[i].id;
    for (int i = 250; i < 300; i++) next[i] = prompts[0][i];
    struct kvt_request *second = send_to(s, ask(next, 300, 10, true));
    await_well(second);
    assert_int_equal(second->n_cached, 249); /* the last token of an answer is never fed */
    kvt_request_drop(first);
    kvt_request_drop(second);
    stop(s);
}

/* Where prefixes must be exact, an answer and the rest of a prompt are read again, and whatever was kept, every bit is as without. */
static void exact_prefixes_change_no_bit(void **state) {
    (void)state;
    static const char *const caches[] = {"f16", "kivi4g32"};
    for (size_t c = 0; c < KVT_ARRAY_LEN(caches); c++) {
        options.exact = true;
        options.kv_dir = dir;
        struct kvt_scheduler *s = start(caches[c], 1);
        struct kvt_request *turn = send_to(s, ask(prompts[4], 300, 50, true));
        await_well(turn);
        int32_t next[500];
        memcpy(next, prompts[4], 300 * sizeof next[0]);
        const struct kvt_token_note *notes = (const void *)turn->notes.data;
        for (int i = 0; i < 200; i++) next[300 + i] = i < 50 ? notes[i].id : prompts[0][i];
        struct kvt_request *without = send_to(s, ask(next, 500, 20, false));
        await_well(without);
        struct kvt_request *again = send_to(s, ask(next, 450, 20, true)), *with = NULL;
        await_well(again);
        assert_int_equal(again->n_cached, 448); /* of the one that began with nothing */
        kvt_request_drop(turn);
        kvt_request_drop(again);
        for (int round = 0; round < 2; round++) { /* the second time from files */
            with = send_to(s, ask(next, 500, 20, true));
            await_well(with);
            assert_int_equal(with->n_cached, 448);
            assert_same(kvt_request_hold(without), with);
            stop(s);
            options.exact = true;
            options.kv_dir = dir;
            s = start(caches[c], 1);
        }
        with = send_to(s, ask(next, 349, 20, true)); /* ends in the answer: of that nothing is begun with */
        await_well(with);
        assert_in_range(with->n_cached, 128, 320);
        kvt_request_drop(with);
        kvt_request_drop(without);
        stop(s);
    }
    empty_dir();
}

/* What was begun within a piece is never taken for exact, neither by who kept it nor, from its file, by another server. */
static void a_prefix_says_how_much_of_it_is_exact(void **state) {
    (void)state;
    options.kv_dir = dir;
    struct kvt_scheduler *s = start("kivi4g32", 1);
    static const int lens[] = {100, 500}, cached[] = {0, 100};
    for (int i = 0; i < 2; i++) {
        struct kvt_request *r = send_to(s, ask(prompts[4], lens[i], 5, true));
        await_well(r);
        assert_int_equal(r->n_cached, cached[i]);
        kvt_request_drop(r);
    }
    stop(s);
    options.kv_dir = dir;
    options.exact = true;
    s = start("kivi4g32", 1);
    struct kvt_request *with = send_to(s, ask(prompts[4], 500, 20, true));
    await_well(with);
    assert_int_equal(with->n_cached, 64);
    struct kvt_request *without = send_to(s, ask(prompts[4], 500, 20, false));
    await_well(without);
    assert_same(with, without);
    stop(s);
    empty_dir();
}

static void memory_bounds_everything(void **state) {
    (void)state;
    struct kvt_request *plenty[8], *few[8];
    struct kvt_scheduler *s = start("kivi4g32", 4);
    for (int i = 0; i < 8; i++) plenty[i] = send_to(s, ask(prompts[i % N_PROMPTS], 300 + 20 * i, 12, true));
    for (int i = 0; i < 8; i++) await_well(plenty[i]);
    struct kvt_view view;
    assert_int_equal(kvt_scheduler_view(s, &view), KVT_OK);
    const uint64_t peak = view.peak_bytes;
    kvt_view_finish(&view);
    stop(s);

    sessions.cache_byte_limit = peak / 3;
    s = start("kivi4g32", 4);
    for (int i = 0; i < 8; i++) few[i] = send_to(s, ask(prompts[i % N_PROMPTS], 300 + 20 * i, 12, true));
    for (int i = 0; i < 8; i++) {
        await_well(few[i]);
        assert_same(plenty[i], few[i]);
    }
    while (kvt_scheduler_n_busy(s) > 0) usleep(1000); /* an answer is there before the view says so */
    assert_int_equal(kvt_scheduler_view(s, &view), KVT_OK);
    assert_true(view.peak_bytes <= peak / 3);
    assert_true(view.prefix_evicted > 0);
    assert_int_equal(view.n_running, 0);
    assert_int_equal(view.counts.n_done, 8);
    kvt_view_finish(&view);
    stop(s);

    sessions.cache_byte_limit = 100000; /* not even one */
    s = start("kivi4g32", 2);
    struct kvt_request *r = send_to(s, ask(prompts[4], 600, 10, true));
    await(r);
    assert_int_equal(r->status, KVT_ERR_NOMEM);
    assert_non_null(strstr(r->err.text, "--kv-memory"));
    kvt_request_drop(r);
    stop(s);
}

static void who_is_gone_makes_room(void **state) {
    (void)state;
    struct kvt_scheduler *s = start("f16", 1);
    struct kvt_request *r = send_to(s, ask(prompts[0], 10, 1400, true)),
                       *waits = send_to(s, ask(prompts[1], 5, 3, true));
    assert_true(kvt_request_wait(r, 0, 0, 60)); /* it has begun */
    atomic_store(&r->gone, true);
    await(r);
    assert_int_equal(r->status, KVT_ERR_CANCELLED);
    assert_true(r->n_generated < 1400);
    await_well(waits);
    kvt_request_drop(r);
    kvt_request_drop(waits);
    stop(s);
}

static void queues_and_times_have_bounds(void **state) {
    (void)state;
    options.n_queue = 1;
    options.seconds = 0.3;
    struct kvt_scheduler *s = start("f16", 1);
    struct kvt_request *runs = send_to(s, ask(prompts[0], 10, 1400, true));
    assert_true(kvt_request_wait(runs, 0, 0, 60));
    struct kvt_request *waits = send_to(s, ask(prompts[1], 10, 1400, true)), *refused = ask(prompts[2], 10, 5, true);
    struct kvt_error err = {0};
    assert_int_equal(kvt_scheduler_submit(s, refused, &err), KVT_ERR_LIMIT);
    await(runs);
    await(waits);
    if (runs->status != KVT_OK) { /* on a machine that is not fast enough to do it in time */
        assert_int_equal(runs->status, KVT_ERR_CANCELLED);
        assert_non_null(strstr(runs->err.text, "0.3 s"));
    }
    kvt_request_drop(runs);
    kvt_request_drop(waits);
    kvt_request_drop(refused);
    stop(s);
}

/* Who is gone before the turn comes leaves the queue at once. */
static void who_is_gone_does_not_wait(void **state) {
    (void)state;
    options.n_queue = 1;
    struct kvt_scheduler *s = start("f16", 1);
    struct kvt_request *runs = send_to(s, ask(prompts[0], 10, 1400, true));
    assert_true(kvt_request_wait(runs, 0, 0, 60));
    struct kvt_request *waits = send_to(s, ask(prompts[1], 10, 5, true)), *next = ask(prompts[2], 10, 5, true);
    assert_int_equal(kvt_scheduler_submit(s, next, NULL), KVT_ERR_LIMIT);
    atomic_store(&waits->gone, true);
    await(waits);
    assert_int_equal(waits->status, KVT_ERR_CANCELLED);
    assert_int_equal(runs->state, KVT_REQUEST_RUNS);
    send_to(s, next);
    atomic_store(&runs->gone, true);
    await_well(next);
    await(runs);
    kvt_request_drop(runs);
    kvt_request_drop(waits);
    kvt_request_drop(next);
    stop(s);
}

static void stopping_ends_every_request(void **state) {
    (void)state;
    struct kvt_scheduler *s = start("f16", 1);
    struct kvt_request *runs = send_to(s, ask(prompts[0], 10, 40, true));
    assert_true(kvt_request_wait(runs, 0, 0, 60));
    struct kvt_request *waits = send_to(s, ask(prompts[1], 10, 5, true)), *late = ask(prompts[2], 10, 5, true);
    kvt_scheduler_stop(s, 60);
    await_well(runs);
    await(waits);
    assert_int_equal(waits->status, KVT_ERR_STATE);
    assert_int_equal(kvt_scheduler_submit(s, late, NULL), KVT_ERR_STATE);
    kvt_request_drop(runs);
    kvt_request_drop(waits);
    kvt_request_drop(late);
    stop(s);

    s = start("f16", 1); /* and at once */
    runs = send_to(s, ask(prompts[0], 10, 1400, true));
    assert_true(kvt_request_wait(runs, 0, 0, 60));
    kvt_scheduler_stop(s, 0);
    await(runs);
    assert_int_equal(runs->status, KVT_ERR_STATE);
    kvt_request_drop(runs);
    stop(s);
}

static void prefixes_outlive_the_server(void **state) {
    (void)state;
    options.kv_dir = dir;
    struct kvt_scheduler *s = start("kivi4g32", 1);
    struct kvt_request *before = send_to(s, ask(prompts[4], 650, 10, true));
    await_well(before);
    stop(s);

    options.kv_dir = dir;
    s = start("kivi4g32", 1);
    struct kvt_request *after = send_to(s, ask(prompts[4], 650, 10, true));
    await_well(after);
    assert_int_equal(after->n_cached, 640);
    assert_same(before, after);
    stop(s);

    options.kv_dir = dir; /* another cache does not find them */
    s = start("kivi8g32", 1);
    after = send_to(s, ask(prompts[4], 650, 10, true));
    await_well(after);
    assert_int_equal(after->n_cached, 0);
    kvt_request_drop(after);
    stop(s);
}

/* Damages every file in its last bytes: the head is read, the pages are not. */
static void damaged_files_are_passed_over(void **state) {
    (void)state;
    DIR *d = opendir(dir);
    for (const struct dirent *e; d && (e = readdir(d));) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "r+b");
        if (!f) continue;
        fseek(f, -100, SEEK_END);
        for (int i = 0; i < 100; i++) fputc(0x5A, f);
        fclose(f);
    }
    if (d) closedir(d);
    options.kv_dir = dir;
    struct kvt_scheduler *s = start("kivi4g32", 1);
    struct kvt_request *r = send_to(s, ask(prompts[4], 650, 10, true));
    await_well(r);
    assert_int_equal(r->n_cached, 0);
    kvt_request_drop(r);
    stop(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_the_same_alone_and_among_others),
        cmocka_unit_test(a_kept_prefix_changes_nothing),
        cmocka_unit_test(prompts_that_part_are_kept_where_they_do),
        cmocka_unit_test(a_prompt_can_be_asked_again),
        cmocka_unit_test(an_answer_can_be_gone_on_from),
        cmocka_unit_test(exact_prefixes_change_no_bit),
        cmocka_unit_test(a_prefix_says_how_much_of_it_is_exact),
        cmocka_unit_test(memory_bounds_everything),
        cmocka_unit_test(who_is_gone_makes_room),
        cmocka_unit_test(queues_and_times_have_bounds),
        cmocka_unit_test(who_is_gone_does_not_wait),
        cmocka_unit_test(stopping_ends_every_request),
        cmocka_unit_test(prefixes_outlive_the_server),
        cmocka_unit_test(damaged_files_are_passed_over),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
