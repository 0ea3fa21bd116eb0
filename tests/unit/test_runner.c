/* SPDX-License-Identifier: Apache-2.0
 * Runners: a session in a batch is as it would be alone, forks share pages and go their own ways, files bring sessions back. */
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
#include "base/file.h"
#include "kvtile/snapshot.h"
#include "model/model.h"
#include "support/fail_each.h"
#include "support/make_model.h"
#include "support/threads.h"

enum { N_CTX = 400, N_VOCAB = KVT_MADE_N_VOCAB, N_SESSIONS = 3 };

static struct kvt_model *model, *other_model;
static int32_t ids[N_SESSIONS][N_CTX];
static char path[64];

static struct kvt_model *made_model(const char *name) {
    char file[256];
    struct kvt_model *m = NULL;
    if (kvt_made_file(file, sizeof file, kvt_made_find(name)) != KVT_OK) return NULL;
    const enum kvt_status status = kvt_model_load(&m, file, NULL, NULL);
    remove(file);
    return status == KVT_OK ? m : NULL;
}

static int begin(void **state) {
    (void)state;
    model = made_model("llama-biased");
    other_model = made_model("llama");
    for (int i = 0; i < N_SESSIONS; i++) kvt_made_ids(ids[i], N_CTX, (uint64_t)(i + 5));
    snprintf(path, sizeof path, "/tmp/test_runner.%ld", (long)getpid());
    return model && other_model ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    remove(path);
    kvt_model_destroy(model);
    kvt_model_destroy(other_model);
    return 0;
}

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        struct kvt_error err_ = {0}, *const err = &err_;                                                               \
        if ((call) != KVT_OK) fail_msg("line %d: %s", __LINE__, err_.text);                                            \
    } while (0)

static struct kvt_runner *runner_of(const struct kvt_model *m, const char *kv, int tail) {
    struct kvt_runner *runner = NULL;
    MUST(kvt_runner_create(&runner, m,
                           &(struct kvt_session_options){.kv = kv, .tail = tail, .n_ctx = N_CTX, .n_batch = 128},
                           N_SESSIONS, err));
    return runner;
}

static struct kvt_session *open_in(struct kvt_runner *runner) {
    struct kvt_session *session = NULL;
    MUST(kvt_session_open(&session, runner, err));
    return session;
}

static void feed(struct kvt_session *session, int who, int n) {
    const int at = kvt_session_n_rows(session);
    MUST(kvt_session_eval(session, ids[who] + at, n, 1, NULL, err));
}

static void logits_of(struct kvt_session *session, float *dst) { MUST(kvt_session_logits(session, 0, 1, dst, err)); }

static void must_be(const char *what, const float *a, const float *b) {
    if (memcmp(a, b, N_VOCAB * sizeof *a) != 0) fail_msg("%s: other logits", what);
}

static const struct cache {
    const char *kv;
    int tail;
} caches[] = {{"f16", 0}, {"affine4g32", 0}, {"kivi4g32", 64}, {"kvt3", 128}, {"q8_0,turbo3", 16}};

/* Tokens of each session in each pass: prompts come in chunks while others generate, and each is alone for a while. */
static const int schedule[][N_SESSIONS] = {
    {100, 0, 0}, {1, 60, 0},  {1, 60, 1}, {1, 10, 90}, {1, 1, 1},
    {5, 1, 8},   {0, 1, 120}, {1, 1, 1},  {100, 1, 1}, {1, 1, 1},
};

static void check_batches(const struct cache *cache) {
    struct kvt_runner *together = runner_of(model, cache->kv, cache->tail);
    struct kvt_session *batched[N_SESSIONS], *alone[N_SESSIONS];
    for (int i = 0; i < N_SESSIONS; i++) {
        batched[i] = open_in(together);
        MUST(kvt_session_create(&alone[i], model,
                                &(struct kvt_session_options){.kv = cache->kv, .tail = cache->tail, .n_ctx = N_CTX},
                                err));
    }
    float a[N_VOCAB], b[N_VOCAB];
    for (size_t p = 0; p < KVT_ARRAY_LEN(schedule); p++) {
        struct kvt_feed feeds[N_SESSIONS];
        int n = 0;
        for (int i = 0; i < N_SESSIONS; i++) {
            const int rows = kvt_session_n_rows(batched[i]), take = schedule[p][i];
            /* A chunk of a prompt keeps nothing now and then. */
            if (take) feeds[n++] = (struct kvt_feed){batched[i], ids[i] + rows, take, take != 60};
        }
        MUST(kvt_runner_eval(together, feeds, n, err));
        for (int i = 0; i < n; i++) {
            int who = 0;
            while (batched[who] != feeds[i].session) who++;
            feed(alone[who], who, feeds[i].n);
            if (!feeds[i].keep) continue;
            logits_of(batched[who], a);
            logits_of(alone[who], b);
            must_be(cache->kv, a, b);
        }
    }
    for (int i = 0; i < N_SESSIONS; i++) {
        assert_memory_equal(kvt_session_ids(batched[i]), ids[i], (size_t)kvt_session_n_rows(batched[i]) * sizeof **ids);
        kvt_session_destroy(batched[i]);
        kvt_session_destroy(alone[i]);
    }
    assert_int_equal(kvt_runner_cache_bytes(together), 0);
    kvt_runner_destroy(together);
}

static void a_batch_changes_no_bit(void **state) {
    (void)state;
    for (size_t i = 0; i < KVT_ARRAY_LEN(caches); i++) check_batches(&caches[i]);
}

static void forks_share_and_part(void **state) {
    (void)state;
    for (size_t i = 0; i < KVT_ARRAY_LEN(caches); i++) {
        struct kvt_runner *runner = runner_of(model, caches[i].kv, caches[i].tail);
        struct kvt_session *one = open_in(runner), *two = NULL, *fresh = open_in(runner);
        feed(one, 0, 100);
        feed(one, 0, 100);
        const uint64_t bytes = kvt_runner_cache_bytes(runner);
        MUST(kvt_session_fork(&two, one, err));
        assert_int_equal(kvt_runner_cache_bytes(runner), bytes);
        assert_memory_equal(kvt_session_ids(two), ids[0], 200 * sizeof **ids);
        float logits[N_VOCAB], wanted[N_VOCAB];
        struct kvt_error why = {0};
        assert_int_equal(kvt_session_logits(two, 0, 1, logits, &why), KVT_ERR_ARG);

        /* The fork goes on with another text; what it was forked from does not notice. */
        MUST(kvt_session_eval(two, ids[1], 70, 1, NULL, err));
        feed(one, 0, 70);
        logits_of(one, logits);
        feed(fresh, 0, 100);
        feed(fresh, 0, 100);
        feed(fresh, 0, 70);
        logits_of(fresh, wanted);
        must_be(caches[i].kv, logits, wanted);
        assert_memory_equal(kvt_session_ids(two) + 200, ids[1], 70 * sizeof **ids);
        kvt_session_destroy(one);
        kvt_session_destroy(two);
        kvt_session_destroy(fresh);
        assert_int_equal(kvt_runner_cache_bytes(runner), 0);
        kvt_runner_destroy(runner);
    }
}

static void trim_says_whether_it_was_exact(void **state) {
    (void)state;
    struct kvt_runner *runner = runner_of(model, "kivi4g32", 64);
    struct kvt_session *session = open_in(runner);
    feed(session, 0, 200);
    bool exact = false;
    MUST(kvt_session_trim(session, 195, &exact, err));
    assert_true(exact);
    MUST(kvt_session_trim(session, 90, &exact, err));
    assert_false(exact);
    assert_int_equal(kvt_session_n_rows(session), 90);
    kvt_session_destroy(session);
    kvt_runner_destroy(runner);
}

static void says(struct kvt_error err, enum kvt_status code, const char *text) {
    if (err.code != code || !strstr(err.text, text))
        fail_msg("wanted %s with \"%s\", got %s: %s", kvt_status_name(code), text, kvt_status_name(err.code), err.text);
}

static enum kvt_status ignore(void *ctx, const struct kvt_layer_rows *rows, struct kvt_error *err) {
    (void)ctx, (void)rows, (void)err;
    return KVT_OK;
}

static void refuses_bad_passes(void **state) {
    (void)state;
    struct kvt_runner *runner = runner_of(model, "f16", 0), *other = runner_of(model, "f16", 0);
    struct kvt_session *a = open_in(runner), *b = open_in(runner), *stranger = open_in(other);
    const struct {
        struct kvt_feed feeds[4];
        int n;
        const char *text;
    } bad[] = {
        {{{a, ids[0], 1, 1}}, 0, "0 sessions"},
        {{{a, ids[0], 1, 1}}, 4, "1 to 3"},
        {{{a, ids[0], 0, 0}}, 1, "no token"},
        {{{a, ids[0], 2, 3}}, 1, "3 of 2"},
        {{{a, ids[0], 100, 1}, {b, ids[1], 29, 1}}, 2, "takes 128"},
        {{{a, ids[0], 1, 1}, {stranger, ids[1], 1, 1}}, 2, "another runner"},
        {{{a, ids[0], 1, 1}, {a, ids[1], 1, 1}}, 2, ""},
        {{{a, (const int32_t[]){N_VOCAB}, 1, 1}}, 1, "outside the vocabulary"},
    };
    for (size_t i = 0; i < KVT_ARRAY_LEN(bad); i++) {
        struct kvt_error err = {0};
        assert_int_equal(kvt_runner_eval(runner, bad[i].feeds, bad[i].n, &err), KVT_ERR_ARG);
        says(err, KVT_ERR_ARG, bad[i].text);
        assert_int_equal(kvt_session_n_rows(a), 0);
        assert_int_equal(kvt_session_n_rows(b), 0);
    }
    struct kvt_session *sessions[] = {a, b, stranger};
    for (size_t i = 0; i < 3; i++) kvt_session_destroy(sessions[i]);
    kvt_runner_destroy(runner);
    kvt_runner_destroy(other);

    MUST(kvt_runner_create(&runner, model, &(struct kvt_session_options){.tap = {.look = ignore}}, 2, err));
    a = open_in(runner);
    b = open_in(runner);
    struct kvt_error err = {0};
    const struct kvt_feed both[] = {{a, ids[0], 1, 1}, {b, ids[1], 1, 1}};
    assert_int_equal(kvt_runner_eval(runner, both, 2, &err), KVT_ERR_ARG);
    says(err, KVT_ERR_ARG, "tap");
    assert_int_equal(kvt_runner_eval(runner, both, 1, &err), KVT_OK);
    kvt_session_destroy(a);
    kvt_session_destroy(b);
    kvt_runner_destroy(runner);
    assert_int_equal(kvt_runner_create(&runner, model, NULL, 0, &err), KVT_ERR_ARG);
}

/* ---- files ------------------------------------------------------------------------------------------------------------ */

static void files_bring_sessions_back(void **state) {
    (void)state;
    for (size_t i = 0; i < KVT_ARRAY_LEN(caches); i++) {
        struct kvt_runner *runner = runner_of(model, caches[i].kv, caches[i].tail);
        struct kvt_session *saved = open_in(runner), *loaded = open_in(runner);
        feed(saved, 0, 100);
        feed(saved, 0, 77);
        feed(loaded, 1, 30); /* it is replaced */
        MUST(kvt_session_save(saved, path, "hello", 5, err));
        struct kvt_buf extra;
        kvt_buf_init(&extra, NULL, 100);
        MUST(kvt_session_load(loaded, path, &extra, err));
        assert_int_equal(extra.len, 5);
        assert_memory_equal(extra.data, "hello", 5);
        kvt_buf_finish(&extra);
        assert_int_equal(kvt_session_n_rows(loaded), 177);
        assert_memory_equal(kvt_session_ids(loaded), ids[0], 177 * sizeof **ids);
        float a[N_VOCAB], b[N_VOCAB];
        feed(saved, 0, 40);
        logits_of(saved, a);
        feed(loaded, 0, 40);
        logits_of(loaded, b);
        must_be(caches[i].kv, a, b);
        kvt_session_destroy(saved);
        kvt_session_destroy(loaded);
        kvt_runner_destroy(runner);
    }
}

/* Loading into a session of 7 tokens fails with the text and changes nothing. */
static void must_refuse(const struct kvt_model *m, const char *kv, int n_ctx, enum kvt_status code, const char *text) {
    struct kvt_session *session = NULL;
    MUST(kvt_session_create(&session, m, &(struct kvt_session_options){.kv = kv, .n_ctx = n_ctx}, err));
    feed(session, 1, 7);
    const uint64_t bytes = kvt_session_usage(session).total_bytes;
    struct kvt_error err = {0};
    assert_int_equal(kvt_session_load(session, path, NULL, &err), code);
    says(err, code, text);
    assert_int_equal(kvt_session_n_rows(session), 7);
    assert_int_equal(kvt_session_usage(session).total_bytes, bytes);
    kvt_session_destroy(session);
}

static void refuses_files_of_others(void **state) {
    (void)state;
    struct kvt_runner *runner = runner_of(model, "affine4g32", 0);
    struct kvt_session *session = open_in(runner);
    feed(session, 0, 100);
    MUST(kvt_session_save(session, path, NULL, 0, err));
    must_refuse(other_model, "affine4g32", N_CTX, KVT_ERR_ARG, "another model");
    must_refuse(model, "affine8g32", N_CTX, KVT_ERR_ARG, "affine4g32");
    must_refuse(model, "affine4g32", 99, KVT_ERR_LIMIT, "100 tokens");
    kvt_session_destroy(session);
    kvt_runner_destroy(runner);

    assert_int_equal(truncate(path, 4096), 0);
    must_refuse(model, "affine4g32", N_CTX, KVT_ERR_FORMAT, "");
    remove(path);
    must_refuse(model, "affine4g32", N_CTX, KVT_ERR_IO, "");
}

/* A whole snapshot whose blob is not a session's, or one that does not fit. */
static void refuses_other_blobs(void **state) {
    (void)state;
    struct kvt_plan *plan = NULL;
    struct kvt_pool *pool = NULL;
    struct kvt_seq *seq = NULL;
    const struct kvt_shape shape = kvt_model_shape(model);
    MUST(kvt_plan_create(&plan, &shape, &(struct kvt_plan_options){.struct_size = sizeof(struct kvt_plan_options)},
                         NULL, err));
    MUST(kvt_pool_create(&pool, plan, NULL, err));
    MUST(kvt_seq_create(&seq, pool, 10, err));
    unsigned char blob[36] = "KVTSESS";
    const uint32_t version = 1, n_ids = 1, later = 9;
    const uint64_t fingerprint = kvt_model_fingerprint(model);
    MUST(kvt_seq_save(seq, path, "nothing", 7, err));
    must_refuse(model, "f16", N_CTX, KVT_ERR_FORMAT, "does not name its tokens");
    memcpy(blob + 8, &later, 4);
    MUST(kvt_seq_save(seq, path, blob, sizeof blob, err));
    must_refuse(model, "f16", N_CTX, KVT_ERR_UNSUPPORTED, "version 9");
    memcpy(blob + 8, &version, 4);
    memcpy(blob + 12, &n_ids, 4);
    memcpy(blob + 16, &fingerprint, 8);
    MUST(kvt_seq_save(seq, path, blob, sizeof blob, err));
    must_refuse(model, "f16", N_CTX, KVT_ERR_FORMAT, "1 tokens for 0 rows");
    kvt_seq_destroy(seq);
    kvt_pool_destroy(pool);
    kvt_plan_destroy(plan);
}

static void fingerprints_tell_models_apart(void **state) {
    (void)state;
    struct kvt_model *again = made_model("llama-biased");
    assert_non_null(again);
    assert_int_equal(kvt_model_fingerprint(model), kvt_model_fingerprint(again));
    assert_int_not_equal(kvt_model_fingerprint(model), kvt_model_fingerprint(other_model));
    kvt_model_destroy(again);
}

static enum kvt_status scenario(void *ctx, const struct kvt_allocator *allocator) {
    (void)ctx;
    struct kvt_runner *runner = NULL;
    struct kvt_session *a = NULL, *b = NULL;
    const struct kvt_session_options options = {.kv = "kivi4g32", .tail = 32, .n_ctx = 64, .allocator = allocator};
    enum kvt_status status = kvt_runner_create(&runner, model, &options, 2, NULL);
    if (status == KVT_OK) status = kvt_session_open(&a, runner, NULL);
    if (status == KVT_OK) status = kvt_session_eval(a, ids[0], 40, 1, NULL, NULL);
    if (status == KVT_OK) status = kvt_session_fork(&b, a, NULL);
    const struct kvt_feed feeds[] = {{a, ids[0], 1, 1}, {b, ids[1], 2, 1}};
    if (status == KVT_OK) {
        status = kvt_runner_eval(runner, feeds, 2, NULL);
        if (status != KVT_OK) assert_int_equal(kvt_session_n_rows(a) + kvt_session_n_rows(b), 80);
    }
    if (status == KVT_OK) status = kvt_session_save(b, path, "x", 1, NULL);
    if (status == KVT_OK) {
        status = kvt_session_load(a, path, NULL, NULL);
        if (status != KVT_OK) assert_int_equal(kvt_session_n_rows(a), 41);
    }
    kvt_session_destroy(a);
    kvt_session_destroy(b);
    kvt_runner_destroy(runner);
    return status;
}

static void survives_lack_of_memory(void **state) {
    (void)state;
    assert_true(kvt_fail_each(scenario, NULL) > 15);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_changes_no_bit),
        cmocka_unit_test(forks_share_and_part),
        cmocka_unit_test(trim_says_whether_it_was_exact),
        cmocka_unit_test(refuses_bad_passes),
        cmocka_unit_test(files_bring_sessions_back),
        cmocka_unit_test(refuses_files_of_others),
        cmocka_unit_test(refuses_other_blobs),
        cmocka_unit_test(fingerprints_tell_models_apart),
        cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
