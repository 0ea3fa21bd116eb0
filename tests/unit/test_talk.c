/* SPDX-License-Identifier: Apache-2.0
 * Conversations in a session: only what is new is fed, whatever is taken back; files bring them back whole or not at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/reuse.c"
#include "cli/talk.c"
#include "support/make_model.h"

enum { N_CTX = 2000, N_ANSWER = 20 };

static struct kvt_model *model;
static char path[64];

static int begin(void **state) {
    (void)state;
    char file[256];
    if (kvt_made_file(file, sizeof file, kvt_made_find("llama-biased")) != KVT_OK) return -1;
    const enum kvt_status status = kvt_model_load(&model, file, NULL, NULL);
    remove(file);
    snprintf(path, sizeof path, "/tmp/test_talk.%ld", (long)getpid());
    return status == KVT_OK ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    remove(path);
    kvt_model_destroy(model);
    return 0;
}

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        struct kvt_error err_ = {0}, *const err = &err_;                                                               \
        if ((call) != KVT_OK) fail_msg("line %d: %s", __LINE__, err_.text);                                            \
    } while (0)

struct room {
    struct kvt_session *session;
    struct kvt_sampler *sampler;
    struct kvt_talk talk;
    float logits[KVT_MADE_N_VOCAB];
};

static void open_room(struct room *r, const char *kv, int tail, const char *family) {
    const struct kvt_session_options o = {
        .kv = kv, .tail = tail, .n_ctx = N_CTX, .beyond = true, .n_batch = 64, .n_keep = 1};
    const struct kvt_sample_options sample = {.temp = 1, .top_p = 1, .seed = 3};
    MUST(kvt_session_create(&r->session, model, &o, err));
    MUST(kvt_sampler_create(&r->sampler, &sample, KVT_MADE_N_VOCAB, NULL, err));
    kvt_talk_init(&r->talk, model, r->session, kvt_chat_find(family), NULL);
}

static void close_room(struct room *r) {
    kvt_talk_finish(&r->talk);
    kvt_sampler_destroy(r->sampler);
    kvt_session_destroy(r->session);
}

/* As kvtile chat does it. */
static void answer(struct room *r) {
    struct kvt_buf piece;
    kvt_buf_init(&piece, NULL, 100);
    MUST(kvt_talk_prepare(&r->talk, err));
    MUST(kvt_talk_feed(&r->talk, NULL, err));
    MUST(kvt_talk_say(&r->talk, "", 0, err));
    for (int i = 0; i < N_ANSWER; i++) {
        MUST(kvt_session_logits(r->session, 0, 1, r->logits, err));
        const int id = kvt_sampler_pick(r->sampler, r->logits);
        if (kvt_text_is_end(r->talk.text, id)) break;
        piece.len = 0;
        assert_int_equal(kvt_text_decode(r->talk.text, id, false, &piece), KVT_OK);
        MUST(kvt_talk_hear(&r->talk, kvt_buf_text(&piece), piece.len, err));
        MUST(kvt_talk_feed_token(&r->talk, id, kvt_buf_text(&piece), piece.len, err));
    }
    kvt_buf_finish(&piece);
}

static void say(struct room *r, const char *text) {
    MUST(kvt_talk_say(&r->talk, text, strlen(text), err));
    answer(r);
}

/* The session is what feeding its tokens once would have made it. */
static void check_as_if_fed_once(const struct room *r, const char *kv, int tail) {
    struct room once;
    float logits[KVT_MADE_N_VOCAB], expected[KVT_MADE_N_VOCAB];
    const int32_t more = 'x';
    struct kvt_session *fork = NULL;
    open_room(&once, kv, tail, "chatml");
    const int32_t *ids = kvt_session_ids(r->session);
    for (int i = 0; i < kvt_session_n_rows(r->session); i++)
        MUST(kvt_session_eval(once.session, ids + i, 1, 1, NULL, err));
    MUST(kvt_session_fork(&fork, r->session, err));
    MUST(kvt_session_eval(fork, &more, 1, 1, NULL, err));
    MUST(kvt_session_logits(fork, 0, 1, logits, err));
    MUST(kvt_session_eval(once.session, &more, 1, 1, NULL, err));
    MUST(kvt_session_logits(once.session, 0, 1, expected, err));
    double off = 0, all = 0;
    for (int i = 0; i < KVT_MADE_N_VOCAB; i++) {
        off += (double)((logits[i] - expected[i]) * (logits[i] - expected[i]));
        all += (double)(expected[i] * expected[i]);
    }
    /* Batches round differently, and codes on an edge tip over. */
    if (!(off < all * (strcmp(kv, "f16") == 0 ? 1e-9 : 0.002)))
        fail_msg("%s: logits are off by %g of %g", kv, off, all);
    kvt_session_destroy(fork);
    close_room(&once);
}

/* ---- reuse -------------------------------------------------------------------------------------------------------------- */

static void only_what_is_new_is_fed(void **state) {
    (void)state;
    static const char *const families[] = {"chatml", "llama2", "mistral-v3", "gemma", "llama3", "phi3-first", "zephyr"};
    for (size_t f = 0; f < KVT_ARRAY_LEN(families); f++) {
        struct room r;
        open_room(&r, "f16", 0, families[f]);
        MUST(kvt_talk_set_system(&r.talk, "", 0, err));
        say(&r, "Hello there");
        for (int turn = 1; turn < 4; turn++) {
            const int held = kvt_session_n_rows(r.session);
            say(&r, "And then?");
            /* gemma, mistral-v3, llama2 and llama3 trim what was said: then the end of an answer may be fed again. */
            const int lost = held - r.talk.reuse.n_kept;
            assert_in_range(lost, 0, f == 0 || f == 5 || f == 6 ? 0 : N_ANSWER);
            assert_true(r.talk.exact);
        }
        assert_int_equal(r.talk.n_messages, 8);
        close_room(&r);
    }
}

/* A conversation that went other ways before is the same, token by token, as one that did not. */
static void what_is_taken_back_leaves_no_trace(void **state) {
    (void)state;
    struct room straight, winding;
    open_room(&straight, "f16", 0, "chatml");
    open_room(&winding, "f16", 0, "chatml");
    MUST(kvt_talk_set_system(&straight.talk, "Be brief.", 9, err));
    MUST(kvt_talk_set_system(&winding.talk, "Be long.", 8, err));
    say(&winding, "Something else");
    say(&winding, "And else");
    for (int i = 0; i < 4; i++) kvt_talk_drop(&winding.talk);
    MUST(kvt_talk_set_system(&winding.talk, "Be brief.", 9, err));
    assert_null(kvt_talk_last(&winding.talk));
    kvt_sampler_set_state(winding.sampler, kvt_sampler_state(straight.sampler));
    const char *turns[] = {"One", "Two <|im_end|>", "Three\n\nlines"};
    for (size_t i = 0; i < KVT_ARRAY_LEN(turns); i++) {
        say(&straight, turns[i]);
        say(&winding, turns[i]);
        assert_string_equal(kvt_talk_last(&winding.talk), kvt_talk_last(&straight.talk));
    }
    const int n = kvt_session_n_rows(straight.session);
    assert_int_equal(kvt_session_n_rows(winding.session), n);
    assert_memory_equal(kvt_session_ids(winding.session), kvt_session_ids(straight.session), (size_t)n * 4);
    close_room(&straight);
    close_room(&winding);
}

static void an_answer_may_be_given_again(void **state) {
    (void)state;
    struct room r;
    char first[400];
    open_room(&r, "f16", 0, "chatml");
    say(&r, "Hello");
    const uint64_t before = kvt_sampler_state(r.sampler);
    say(&r, "Go on");
    snprintf(first, sizeof first, "%s", kvt_talk_last(&r.talk));
    kvt_sampler_set_state(r.sampler, before);
    kvt_talk_drop(&r.talk);
    answer(&r);
    assert_string_equal(kvt_talk_last(&r.talk), first);
    kvt_talk_drop(&r.talk);
    answer(&r);
    assert_string_not_equal(kvt_talk_last(&r.talk), first); /* the draws went on */
    close_room(&r);
}

/* Going back into encoded rows goes to where whole groups end, if there is no tail. */
static void going_back_is_exact_where_it_can_be(void **state) {
    (void)state;
    static const struct {
        const char *kv;
        int tail;
        bool exact;
    } cases[] = {
        {"f16", 0, true}, {"affine4g32", 0, true}, {"kivi4g32", 0, true}, {"kvarn4", 0, true}, {"kivi4g32", 40, false}};
    for (size_t i = 0; i < KVT_ARRAY_LEN(cases); i++) {
        struct room r;
        open_room(&r, cases[i].kv, cases[i].tail, "chatml");
        say(&r, "Tell me about the old house at the end of the road, where nobody has lived for years, "
                "and about the hounds that bark there every night.");
        for (int turn = 0; turn < 5; turn++) say(&r, "And what came then, after all of that?");
        for (int k = 0; k < 6; k++) kvt_talk_drop(&r.talk);
        say(&r, "No. What came before?");
        assert_int_equal(r.talk.exact, cases[i].exact);
        assert_true(r.talk.reuse.n_common - r.talk.reuse.n_kept < 128);
        if (cases[i].exact) check_as_if_fed_once(&r, cases[i].kv, cases[i].tail);
        kvt_talk_clear(&r.talk);
        assert_true(r.talk.exact);
        say(&r, "A new beginning");
        check_as_if_fed_once(&r, cases[i].kv, cases[i].tail);
        close_room(&r);
    }
}

static bool stop_second(void *ctx, const char *what, uint64_t done, uint64_t total) {
    (void)what, (void)done, (void)total;
    return (*(int *)ctx)++ < 1;
}

/* What was fed before Ctrl-C is used the next time. */
static void an_interrupted_feed_is_no_loss(void **state) {
    (void)state;
    struct room r;
    int n = 0;
    const struct kvt_progress progress = {stop_second, &n};
    open_room(&r, "kivi4g32", 0, "chatml");
    say(&r, "Hello");
    MUST(kvt_talk_say(&r.talk, "A message that is far longer than a batch of tokens is, since batches hold sixty-four",
                      85, err));
    MUST(kvt_talk_prepare(&r.talk, err));
    const int held = kvt_session_n_rows(r.session);
    assert_int_equal(kvt_talk_feed(&r.talk, &progress, NULL), KVT_ERR_CANCELLED);
    assert_int_equal(kvt_session_n_rows(r.session), held + 64);
    uint64_t sampler = 0;
    MUST(kvt_talk_save(&r.talk, 0, path, err));
    MUST(kvt_talk_load(&r.talk, &sampler, path, err));
    answer(&r);
    assert_int_equal(r.talk.reuse.n_kept, held + 64);
    check_as_if_fed_once(&r, "kivi4g32", 0);
    close_room(&r);
}

/* ---- files -------------------------------------------------------------------------------------------------------------- */

static void a_resumed_conversation_goes_on_as_if_never_closed(void **state) {
    (void)state;
    static const char *const kvs[] = {"f16", "affine4g32", "kivi4g32,affine4g32", "kvt4"};
    for (size_t i = 0; i < KVT_ARRAY_LEN(kvs); i++) {
        struct room a, b;
        uint64_t sampler = 0;
        open_room(&a, kvs[i], 30, "chatml");
        open_room(&b, kvs[i], 30, "chatml");
        MUST(kvt_talk_set_system(&a.talk, "Be brief.", 9, err));
        for (int turn = 0; turn < 3; turn++) say(&a, "Hello, old house");
        MUST(kvt_talk_save(&a.talk, kvt_sampler_state(a.sampler), path, err));
        say(&b, "What is here goes");
        MUST(kvt_talk_load(&b.talk, &sampler, path, err));
        kvt_sampler_set_state(b.sampler, sampler);
        assert_int_equal(b.talk.n_messages, 6);
        for (int turn = 0; turn < 3; turn++) {
            const int held = kvt_session_n_rows(b.session);
            say(&a, "And then?");
            say(&b, "And then?");
            assert_int_equal(b.talk.reuse.n_kept, held);
            assert_string_equal(kvt_talk_last(&a.talk), kvt_talk_last(&b.talk));
        }
        close_room(&a);
        close_room(&b);
    }
}

/* Whatever the bytes beside the session are, they are refused or make a conversation that goes on. */
static void damaged_conversations_are_refused(void **state) {
    (void)state;
    struct room a, b;
    struct kvt_buf bytes;
    uint64_t sampler = 0;
    int n_refused = 0;
    kvt_buf_init(&bytes, NULL, 1 << 20);
    open_room(&a, "f16", 0, "chatml");
    open_room(&b, "f16", 0, "chatml");
    say(&a, "Hello");
    say(&a, "And then?");
    assert_int_equal(write_bytes(&a.talk, 7, &bytes), KVT_OK);
    for (size_t i = 0; i <= bytes.len; i += i < 80 ? 1 : 11) {
        const bool flips = i < bytes.len;
        if (flips) bytes.data[i] ^= 0x41;
        MUST(kvt_session_save(a.session, path, bytes.data, flips && i % 3 ? bytes.len : i, err));
        if (flips) bytes.data[i] ^= 0x41;
        struct kvt_error err = {KVT_OK, ""};
        const enum kvt_status status = kvt_talk_load(&b.talk, &sampler, path, &err);
        if (status != KVT_OK) {
            assert_true(status == KVT_ERR_FORMAT || status == KVT_ERR_UNSUPPORTED);
            assert_non_null(strstr(err.text, path));
            n_refused++;
        }
        if (b.talk.n_messages % 2) kvt_talk_drop(&b.talk);
        if (i % 7 == 0) say(&b, "x");
        if (i % 14 == 0) kvt_talk_clear(&b.talk);
    }
    assert_true(n_refused > 40);
    MUST(kvt_session_save(a.session, path, NULL, 0, err));
    assert_int_equal(kvt_talk_load(&b.talk, &sampler, path, NULL), KVT_ERR_FORMAT);
    kvt_buf_finish(&bytes);
    close_room(&a);
    close_room(&b);
}

static void messages_hold_no_zero_bytes(void **state) {
    (void)state;
    struct room r;
    open_room(&r, "f16", 0, "mistral");
    assert_int_equal(kvt_talk_say(&r.talk, "a\0b", 3, NULL), KVT_ERR_ARG);
    assert_int_equal(kvt_talk_set_system(&r.talk, "a\0b", 3, NULL), KVT_ERR_ARG);
    assert_int_equal(r.talk.n_messages, 0);
    MUST(kvt_talk_set_system(&r.talk, "Be brief.", 9, err)); /* this template has no place for it */
    MUST(kvt_talk_say(&r.talk, "Hello", 5, err));
    struct kvt_error refusal = {KVT_OK, ""};
    assert_int_equal(kvt_talk_prepare(&r.talk, &refusal), KVT_ERR_ARG);
    assert_non_null(strstr(refusal.text, "system"));
    MUST(kvt_talk_set_system(&r.talk, "", 0, err));
    answer(&r);
    close_room(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_is_new_is_fed),
        cmocka_unit_test(what_is_taken_back_leaves_no_trace),
        cmocka_unit_test(an_answer_may_be_given_again),
        cmocka_unit_test(going_back_is_exact_where_it_can_be),
        cmocka_unit_test(an_interrupted_feed_is_no_loss),
        cmocka_unit_test(a_resumed_conversation_goes_on_as_if_never_closed),
        cmocka_unit_test(damaged_conversations_are_refused),
        cmocka_unit_test(messages_hold_no_zero_bytes),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
