/* SPDX-License-Identifier: Apache-2.0
 * Sessions: how a text is cut, how many threads there are and what was there before change nothing; nothing is allocated
 * but pages; what cannot be done is refused by name. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/attr.h"
#include "model/model.h"
#include "support/fail_each.h"
#include "support/make_model.h"
#include "support/threads.h"

enum { N_CTX = 300, N_VOCAB = KVT_MADE_N_VOCAB };

static struct kvt_model *model;
static int32_t ids[N_CTX + 1];

static int load_model(void **state) {
    (void)state;
    char path[256];
    const enum kvt_status made = kvt_made_file(path, sizeof path, kvt_made_find("llama-biased"));
    if (made != KVT_OK) return -1;
    const enum kvt_status status = kvt_model_load(&model, path, NULL, NULL);
    remove(path);
    kvt_made_ids(ids, N_CTX + 1, 5);
    return status == KVT_OK ? 0 : -1;
}

static int unload_model(void **state) {
    (void)state;
    kvt_model_destroy(model);
    return 0;
}

static struct kvt_session *open_session(const struct kvt_session_options *options) {
    struct kvt_session *session = NULL;
    struct kvt_error err = {0};
    if (kvt_session_create(&session, model, options, &err) != KVT_OK) fail_msg("%s", err.text);
    return session;
}

static void eval(struct kvt_session *session, int first, int n, int keep) {
    struct kvt_error err = {0};
    if (kvt_session_eval(session, ids + first, n, keep, NULL, &err) != KVT_OK) fail_msg("%s", err.text);
}

static void logits_of(struct kvt_session *session, int first, int n, float *dst) {
    struct kvt_error err = {0};
    if (kvt_session_logits(session, first, n, dst, &err) != KVT_OK) fail_msg("%s", err.text);
}

static double distance(const float *a, const float *b, size_t n) {
    double most = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

/* Logits of all tokens, fed in pieces of `piece`, by forward passes of at most n_batch. */
static float *all_logits(const char *kv, int tail, int piece, int n_batch, int n_threads) {
    const struct kvt_parallel parallel = test_parallel(n_threads);
    struct kvt_session *session = open_session(&(struct kvt_session_options){
        .kv = kv, .tail = tail, .n_ctx = N_CTX, .n_batch = n_batch, .parallel = &parallel});
    float *logits = malloc((size_t)N_CTX * N_VOCAB * sizeof *logits);
    for (int done = 0; done < N_CTX; done += piece) {
        const int n = KVT_MIN(piece, N_CTX - done);
        eval(session, done, n, n);
        logits_of(session, 0, n, logits + (size_t)done * N_VOCAB);
    }
    kvt_session_destroy(session);
    return logits;
}

static void cutting_changes_only_rounding(void **state) {
    (void)state;
    const size_t n = (size_t)N_CTX * N_VOCAB;
    const struct {
        const char *kv;
        int tail;
        double tolerance; /* where codes are made, a rounding can move one by a step */
    } caches[] = {{"f32", 0, 1e-3}, {"f16", 0, 0.02}, {"affine8g32", 128, 0.1}};
    for (size_t c = 0; c < KVT_ARRAY_LEN(caches); c++) {
        float *whole = all_logits(caches[c].kv, caches[c].tail, N_CTX, 512, 1);
        const int pieces[][2] = {{1, 512}, {2, 512}, {7, 512}, {64, 512}, {N_CTX, 33}, {150, 64}};
        for (size_t i = 0; i < KVT_ARRAY_LEN(pieces); i++) {
            float *cut = all_logits(caches[c].kv, caches[c].tail, pieces[i][0], pieces[i][1], 1);
            const double d = distance(whole, cut, n);
            if (!(d < caches[c].tolerance))
                fail_msg("%s in pieces of %d by %d: %.3g", caches[c].kv, pieces[i][0], pieces[i][1], d);
            free(cut);
        }
        free(whole);
    }
}

static void threads_change_no_bit(void **state) {
    (void)state;
    const size_t bytes = (size_t)N_CTX * N_VOCAB * sizeof(float);
    const int pieces[] = {1, 5, N_CTX};
    for (size_t i = 0; i < KVT_ARRAY_LEN(pieces); i++) {
        float *one = all_logits("affine4g32", 32, pieces[i], 128, 1);
        for (int n_threads = 2; n_threads <= 5; n_threads += 3) {
            float *many = all_logits("affine4g32", 32, pieces[i], 128, n_threads);
            assert_memory_equal(one, many, bytes);
            free(many);
        }
        free(one);
    }
}

/* keep says how many logits there are, not what they are. */
static void keep_changes_only_rounding(void **state) {
    (void)state;
    float *whole = all_logits("f32", 0, N_CTX, 64, 1), some[3 * N_VOCAB];
    struct kvt_session *session =
        open_session(&(struct kvt_session_options){.kv = "f32", .n_ctx = N_CTX, .n_batch = 64});
    const int keeps[] = {1, 15, 17, 64, 65, 200};
    for (size_t i = 0; i < KVT_ARRAY_LEN(keeps); i++) {
        const int n = 201, first = n - keeps[i], last_kept = keeps[i] - 1;
        kvt_session_clear(session);
        eval(session, 0, n, keeps[i]);
        logits_of(session, 0, 1, some);
        logits_of(session, last_kept, 1, some + N_VOCAB);
        assert_true(distance(some, whole + (size_t)first * N_VOCAB, N_VOCAB) < 1e-4);
        assert_true(distance(some + N_VOCAB, whole + (size_t)(n - 1) * N_VOCAB, N_VOCAB) < 1e-4);
        assert_int_equal(kvt_session_logits(session, keeps[i], 1, some, NULL), KVT_ERR_ARG);
        assert_int_equal(kvt_session_logits(session, -1, 1, some, NULL), KVT_ERR_ARG);
        assert_int_equal(kvt_session_logits(session, 1, keeps[i], some, NULL), KVT_ERR_ARG);
    }
    kvt_session_destroy(session);
    free(whole);
}

/* After a trim inside 16-bit rows the same tokens give the same bits as they did at first. */
static void trim_goes_back(void **state) {
    (void)state;
    const struct {
        const char *kv;
        int tail;
    } caches[] = {{"f32", 0}, {"f16", 0}, {"affine4g32", 200}};
    for (size_t c = 0; c < KVT_ARRAY_LEN(caches); c++) {
        const struct kvt_session_options options = {.kv = caches[c].kv, .tail = caches[c].tail, .n_ctx = N_CTX};
        struct kvt_session *session = open_session(&options);
        float first[N_VOCAB], again[N_VOCAB];
        eval(session, 0, 180, 1);
        for (int i = 180; i < 200; i++) eval(session, i, 1, 1);
        logits_of(session, 0, 1, first);
        assert_int_equal(kvt_session_trim(session, 180, NULL, NULL), KVT_OK);
        assert_int_equal(kvt_session_n_rows(session), 180);
        assert_int_equal(kvt_session_logits(session, 0, 1, again, NULL), KVT_ERR_ARG);
        for (int i = 180; i < 200; i++) eval(session, i, 1, 1);
        logits_of(session, 0, 1, again);
        assert_memory_equal(first, again, sizeof first);
        assert_int_equal(kvt_session_trim(session, 201, NULL, NULL), KVT_ERR_RANGE);
        assert_int_equal(kvt_session_trim(session, -1, NULL, NULL), KVT_ERR_RANGE);

        kvt_session_clear(session);
        assert_int_equal(kvt_session_n_rows(session), 0);
        assert_int_equal(kvt_session_usage(session).total_bytes, 0);
        assert_true(kvt_session_peak_cache_bytes(session) > 0);
        eval(session, 0, 180, 1);
        for (int i = 180; i < 200; i++) eval(session, i, 1, 1);
        logits_of(session, 0, 1, again);
        assert_memory_equal(first, again, sizeof first);
        kvt_session_destroy(session);
    }
}

/* 50 tokens within a page: no take. Over all of the context: as many as there are pages. */
static void tokens_allocate_only_pages(void **state) {
    (void)state;
    struct kvt_alloc_counter counter = {0};
    const struct kvt_allocator allocator = kvt_allocator_counted(&counter);
    struct kvt_session *session = open_session(&(struct kvt_session_options){.n_ctx = N_CTX, .allocator = &allocator});
    float logits[N_VOCAB];
    eval(session, 0, 69, 1);
    eval(session, 69, 1, 1); /* attention's scratch is taken once for each shape of step */
    const size_t before = counter.n_takes;
    for (int i = 70; i < 120; i++) {
        eval(session, i, 1, 1);
        logits_of(session, 0, 1, logits);
    }
    assert_int_equal(counter.n_takes, before);
    for (int i = 120; i < N_CTX; i++) eval(session, i, 1, 1);
    const int n_pages = (N_CTX - 1) / 128, n_layers = kvt_model_info(model).n_layers;
    assert_in_range(counter.n_takes - before, 1, (size_t)(n_pages * n_layers));
    kvt_session_destroy(session);
    assert_int_equal(counter.live_blocks, 0);
}

static enum kvt_status session_scenario(void *ctx, const struct kvt_allocator *allocator) {
    (void)ctx;
    struct kvt_session *session = NULL;
    enum kvt_status status =
        kvt_session_create(&session, model, &(struct kvt_session_options){.n_ctx = 64, .allocator = allocator}, NULL);
    if (status != KVT_OK) return status;
    status = kvt_session_eval(session, ids, 20, 1, NULL, NULL);
    if (status != KVT_OK) assert_int_equal(kvt_session_n_rows(session), 0);
    kvt_session_destroy(session);
    return status;
}

static void survives_lack_of_memory(void **state) {
    (void)state;
    assert_true(kvt_fail_each(session_scenario, NULL) > 5);
}

static void says_the_text_has(struct kvt_error err, enum kvt_status code, const char *a, const char *b) {
    if (err.code != code || !strstr(err.text, a) || !strstr(err.text, b))
        fail_msg("wanted %s with \"%s\" and \"%s\", got %s: %s", kvt_status_name(code), a, b, kvt_status_name(err.code),
                 err.text);
}

static void refuses_bad_options(void **state) {
    (void)state;
    const struct {
        struct kvt_session_options options;
        enum kvt_status code;
        const char *a, *b;
    } bad[] = {
        {{.n_ctx = 513}, KVT_ERR_RANGE, "513", "512"},
        {{.n_ctx = -1}, KVT_ERR_ARG, "n_ctx -1", "negative"},
        {{.n_batch = -2}, KVT_ERR_ARG, "n_batch -2", "negative"},
        {{.n_keep = -3}, KVT_ERR_ARG, "n_keep -3", "negative"},
        {{.kv = "affine9"}, KVT_ERR_ARG, "affine9", ""},
        {{.level = "sse"}, KVT_ERR_ARG, "sse", ""},
    };
    for (size_t i = 0; i < KVT_ARRAY_LEN(bad); i++) {
        struct kvt_session *session = NULL;
        struct kvt_error err = {0};
        assert_int_equal(kvt_session_create(&session, model, &bad[i].options, &err), bad[i].code);
        assert_null(session);
        says_the_text_has(err, bad[i].code, bad[i].a, bad[i].b);
    }
}

static void refuses_bad_tokens(void **state) {
    (void)state;
    struct kvt_session *session = open_session(&(struct kvt_session_options){.n_ctx = 30, .n_keep = 5});
    struct kvt_error err = {0};
    const int32_t outside[] = {1, 2, N_VOCAB, 3}, negative[] = {-1};
    assert_int_equal(kvt_session_eval(session, outside, 4, 1, NULL, &err), KVT_ERR_ARG);
    says_the_text_has(err, KVT_ERR_ARG, "token 2", "outside the vocabulary");
    assert_int_equal(kvt_session_eval(session, negative, 1, 1, NULL, &err), KVT_ERR_ARG);
    assert_int_equal(kvt_session_eval(session, ids, 0, 1, NULL, &err), KVT_ERR_ARG);
    assert_int_equal(kvt_session_eval(session, ids, 10, 0, NULL, &err), KVT_ERR_ARG);
    assert_int_equal(kvt_session_eval(session, ids, 3, 4, NULL, &err), KVT_ERR_ARG);
    assert_int_equal(kvt_session_eval(session, ids, 10, 6, NULL, &err), KVT_ERR_ARG);
    says_the_text_has(err, KVT_ERR_ARG, "6 of 10", "1 to 5");
    assert_int_equal(kvt_session_n_rows(session), 0);
    eval(session, 0, 25, 5);
    assert_int_equal(kvt_session_eval(session, ids, 6, 1, NULL, &err), KVT_ERR_LIMIT);
    says_the_text_has(err, KVT_ERR_LIMIT, "6 more tokens", "context of 30");
    assert_int_equal(kvt_session_n_rows(session), 25);
    float logits[N_VOCAB];
    logits_of(session, 4, 1, logits); /* a refused eval leaves the last one's logits */
    eval(session, 25, 5, 1);
    kvt_session_destroy(session);
}

/* A byte limit that the second batch passes: the first stays. */
static void pages_run_out(void **state) {
    (void)state;
    struct kvt_session *probe = open_session(&(struct kvt_session_options){.n_ctx = N_CTX});
    const uint64_t one_page = kvt_plan_bytes(kvt_session_plan(probe), 1);
    kvt_session_destroy(probe);
    struct kvt_session *session =
        open_session(&(struct kvt_session_options){.n_ctx = N_CTX, .n_batch = 100, .cache_byte_limit = one_page});
    struct kvt_error err = {0};
    float logits[N_VOCAB];
    assert_int_equal(kvt_session_eval(session, ids, 200, 1, NULL, &err), KVT_ERR_LIMIT);
    assert_int_equal(kvt_session_n_rows(session), 100);
    assert_int_equal(kvt_session_logits(session, 0, 1, logits, NULL), KVT_ERR_ARG);
    eval(session, 100, 28, 1);
    logits_of(session, 0, 1, logits);
    kvt_session_destroy(session);
}

struct watch {
    int n_reports, cancel_at;
    uint64_t last_done;
};

static bool report(void *ctx, const char *what, uint64_t done, uint64_t total) {
    struct watch *watch = ctx;
    assert_string_equal(what, "prompt");
    assert_int_equal(total, 100);
    assert_true(done >= watch->last_done);
    watch->last_done = done;
    return watch->n_reports++ != watch->cancel_at;
}

static void progress_reports_and_cancels(void **state) {
    (void)state;
    struct kvt_session *session = open_session(&(struct kvt_session_options){.n_ctx = N_CTX, .n_batch = 30});
    struct watch watch = {.cancel_at = -1};
    struct kvt_error err = {0};
    const struct kvt_progress progress = {report, &watch};
    assert_int_equal(kvt_session_eval(session, ids, 100, 1, &progress, &err), KVT_OK);
    assert_int_equal(watch.n_reports, 5);
    assert_int_equal(watch.last_done, 100);
    kvt_session_clear(session);
    watch = (struct watch){.cancel_at = 2};
    assert_int_equal(kvt_session_eval(session, ids, 100, 1, &progress, &err), KVT_ERR_CANCELLED);
    says_the_text_has(err, KVT_ERR_CANCELLED, "60", "100");
    assert_int_equal(kvt_session_n_rows(session), 60);
    kvt_session_destroy(session);
}

static void *generate(void *arg) {
    float *logits = arg;
    struct kvt_session *session = NULL;
    if (kvt_session_create(&session, model, &(struct kvt_session_options){.n_ctx = 100}, NULL) != KVT_OK) return NULL;
    bool ok = true;
    for (int i = 0; i < 60 && ok; i += 3) ok = kvt_session_eval(session, ids + i, 3, 1, NULL, NULL) == KVT_OK;
    ok = ok && kvt_session_logits(session, 0, 1, logits, NULL) == KVT_OK;
    kvt_session_destroy(session);
    return ok ? logits : NULL;
}

static void sessions_share_a_model(void **state) {
    (void)state;
    enum { N = 3 };
    static float logits[N + 1][N_VOCAB];
    pthread_t threads[N];
    for (int i = 0; i < N; i++) assert_int_equal(pthread_create(&threads[i], NULL, generate, logits[i]), 0);
    assert_non_null(generate(logits[N]));
    for (int i = 0; i < N; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_non_null(result);
        assert_memory_equal(logits[i], logits[N], sizeof logits[N]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cutting_changes_only_rounding),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(keep_changes_only_rounding),
        cmocka_unit_test(trim_goes_back),
        cmocka_unit_test(tokens_allocate_only_pages),
        cmocka_unit_test(survives_lack_of_memory),
        cmocka_unit_test(refuses_bad_options),
        cmocka_unit_test(refuses_bad_tokens),
        cmocka_unit_test(pages_run_out),
        cmocka_unit_test(progress_reports_and_cancels),
        cmocka_unit_test(sessions_share_a_model),
    };
    return cmocka_run_group_tests(tests, load_model, unload_model);
}
