/* SPDX-License-Identifier: Apache-2.0
 * The measurement around a made-up engine: this file takes the place of src/model, so that every logit is known. A cache's
 * codec of b bits adds noise of 2^-b to them; 16 bits add none. The expected figures are computed here another way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "fidelity/fidelity.h"
#include "support/threads.h"

enum { VOCAB = 50, CONTEXT = 300, IDS = 100, WIDTH = 3 };

/* ---- the made-up engine ----------------------------------------------------------------------------------------------- */

struct kvt_model {
    int n_vocab;
    int nan_at; /* logits of this token are NaN; -1: none */
};

struct kvt_session {
    struct kvt_allocator allocator;
    const struct kvt_model *model;
    struct kvt_plan *plan;
    double noise;
    int n_rows, n_kept;
    int32_t *ids;
};

static const struct kvt_layer_shape layers[] = {{2, 64, 64, 0}, {2, 64, 128, 0}};
static int n_evals, n_logits, n_sessions;

static double noise_of(int i, int v) { return sin(i * 3.7 + v * 1.3); }
static double noise_bits(int bits) { return bits == 16 ? 0 : ldexp(1, -bits); }

static float logit(const struct kvt_model *model, double noise, int32_t id, int i, int v) {
    if (id == model->nan_at && v == 3 && noise > 0) return NAN;
    return (float)(4 * sin(id * 12.9898 + v * 78.233) + noise * noise_of(i, v));
}

struct kvt_model_info kvt_model_info(const struct kvt_model *model) {
    return (struct kvt_model_info){.n_vocab = model->n_vocab, .n_ctx_train = CONTEXT, .width = WIDTH};
}

struct kvt_shape kvt_model_shape(const struct kvt_model *model) {
    (void)model;
    return (struct kvt_shape){KVT_ARRAY_LEN(layers), layers};
}

enum kvt_status kvt_session_create(struct kvt_session **out, const struct kvt_model *model,
                                   const struct kvt_session_options *options, struct kvt_error *err) {
    const struct kvt_plan_options plan = {
        .struct_size = sizeof plan, .kv = options->kv, .sink = options->sink, .tail = options->tail};
    const struct kvt_shape shape = kvt_model_shape(model);
    struct kvt_session made = {kvt_allocator_or_default(options->allocator), model, .n_rows = 0};
    made.ids = kvt_take(&made.allocator, CONTEXT, sizeof *made.ids);
    struct kvt_session *session = kvt_take(&made.allocator, 1, sizeof *session);
    enum kvt_status status = KVT_ERR_NOMEM;
    if (made.ids && session) status = kvt_plan_create(&made.plan, &shape, &plan, options->allocator, err);
    if (status != KVT_OK) {
        kvt_give(&made.allocator, made.ids, CONTEXT, sizeof *made.ids);
        kvt_give(&made.allocator, session, 1, sizeof *session);
        return status;
    }
    made.noise = noise_bits(kvt_codec_info(kvt_plan_layer(made.plan, 0)->codec[KVT_SIDE_K]).bits);
    *session = made;
    *out = session;
    n_sessions++;
    return KVT_OK;
}

void kvt_session_destroy(struct kvt_session *session) {
    if (!session) return;
    const struct kvt_allocator allocator = session->allocator;
    kvt_plan_destroy(session->plan);
    kvt_give(&allocator, session->ids, CONTEXT, sizeof *session->ids);
    kvt_give(&allocator, session, 1, sizeof *session);
    n_sessions--;
}

enum kvt_status kvt_session_eval(struct kvt_session *session, const int32_t *ids, int n, int keep,
                                 const struct kvt_progress *progress, struct kvt_error *err) {
    assert_int_equal(keep, n);
    assert_true(session->n_rows + n <= CONTEXT);
    n_evals++;
    if (!kvt_progress_report(progress, "prompt", (uint64_t)n / 2, (uint64_t)n))
        return kvt_fail(err, KVT_ERR_CANCELLED, "cancelled");
    memcpy(session->ids + session->n_rows, ids, (size_t)n * sizeof *ids);
    session->n_rows += n;
    session->n_kept = n;
    return KVT_OK;
}

/* What logits are made of: the token, its position, the noise. */
enum kvt_status kvt_session_outputs(const struct kvt_session *session, int first, int n, float *dst,
                                    struct kvt_error *err) {
    (void)err;
    assert_true(first >= 0 && n >= 1 && first + n <= session->n_kept);
    for (int i = session->n_rows - session->n_kept + first; n > 0; i++, n--) {
        *dst++ = (float)session->ids[i];
        *dst++ = (float)i;
        *dst++ = (float)session->noise;
    }
    return KVT_OK;
}

enum kvt_status kvt_session_logits_of(struct kvt_session *session, const float *outputs, int n, float *dst,
                                      struct kvt_error *err) {
    (void)err;
    n_logits += n;
    for (int i = 0; i < n; i++, outputs += WIDTH)
        for (int v = 0; v < session->model->n_vocab; v++, dst++) /* a larger vocabulary repeats itself */
            *dst = v < VOCAB ? logit(session->model, (double)outputs[2], (int32_t)outputs[0], (int)outputs[1], v)
                             : dst[-VOCAB];
    return KVT_OK;
}

const char *kvt_model_blas_name(void) { return "made up"; }
void kvt_session_clear(struct kvt_session *session) { session->n_rows = session->n_kept = 0; }
int kvt_session_n_rows(const struct kvt_session *session) { return session->n_rows; }
const struct kvt_plan *kvt_session_plan(const struct kvt_session *session) { return session->plan; }
struct kvt_usage kvt_session_usage(const struct kvt_session *session) {
    return kvt_plan_usage(session->plan, -1, session->n_rows);
}

/* ---- what it should say ----------------------------------------------------------------------------------------------- */

static const struct kvt_model model = {VOCAB, -1};
static int32_t text[IDS];

static void make_text(void) {
    for (int i = 0; i < IDS; i++) text[i] = (int32_t)((i * 17 + i * i) % VOCAB);
}

static struct kvt_fidelity_case asked[4];

static struct kvt_fidelity_options usual(const char *const *kv, int n_kv) {
    make_text();
    for (int i = 0; i < n_kv; i++) asked[i] = (struct kvt_fidelity_case){.kv = kv[i], .of = i};
    return (struct kvt_fidelity_options){
        .cases = asked, .n_cases = n_kv, .ids = text, .n_ids = IDS, .chunk = 30, .first_id = -1};
}

static void log_softmax(double *out, double noise, int32_t id, int i) {
    double sum = 0;
    for (int v = 0; v < VOCAB; v++) sum += exp((double)logit(&model, noise, id, i, v));
    for (int v = 0; v < VOCAB; v++) out[v] = (double)logit(&model, noise, id, i, v) - log(sum);
}

struct expected {
    double kl, nll, nll_ref, worst;
};

/* Means over one chunk. */
static struct expected expect(double noise, const int32_t *ids, int n) {
    struct expected e = {0};
    for (int i = 0; i < n; i++) {
        double p[VOCAB], q[VOCAB], kl = 0;
        log_softmax(p, 0, ids[i], i);
        log_softmax(q, noise, ids[i], i);
        for (int v = 0; v < VOCAB; v++) kl += exp(p[v]) * (p[v] - q[v]);
        e.kl += kl / n;
        e.nll -= q[ids[i + 1]] / n;
        e.nll_ref -= p[ids[i + 1]] / n;
        e.worst = fmax(e.worst, kl);
    }
    return e;
}

static void near(double got, double want) {
    if (!(fabs(got - want) <= 1e-12 + 1e-9 * fabs(want))) fail_msg("got %.12g, want %.12g", got, want);
}

/* ---- tests ------------------------------------------------------------------------------------------------------------ */

static void figures_are_those_of_the_chunks(void **state) {
    (void)state;
    const char *const kv[] = {"f16", "affine2g64", "affine4"};
    const struct kvt_fidelity_options o = usual(kv, 3);
    struct kvt_fidelity_result r;
    assert_int_equal(kvt_fidelity_run(&r, &model, &o, NULL), KVT_OK);
    assert_int_equal(r.n_rows, 3);
    assert_int_equal(r.n_chunks, 3); /* 100 ids, 30 a chunk: the last 10 are not used */
    assert_int_equal(r.n_positions, 3 * 29);
    assert_int_equal(n_sessions, 0);

    struct expected chunk[3], mean = {0};
    for (int c = 0; c < 3; c++) {
        chunk[c] = expect(0.25, text + 30 * c, 29);
        mean.kl += chunk[c].kl / 3;
        mean.nll += chunk[c].nll / 3;
        mean.nll_ref += chunk[c].nll_ref / 3;
        mean.worst = fmax(mean.worst, chunk[c].worst);
    }
    double squares = 0;
    for (int c = 0; c < 3; c++) squares += pow(chunk[c].kl - mean.kl, 2);
    near(r.rows[1].kl.mean, mean.kl);
    near(r.rows[1].kl.max, mean.worst);
    near(r.rows[1].kl_stderr, sqrt(squares / 2 / 3));
    near(r.rows[1].ppl, exp(mean.nll));
    near(r.ppl_ref[0], exp(mean.nll_ref));
    assert_true(r.rows[1].flips > 0);

    assert_string_equal(r.rows[0].kv, "f16");
    assert_true(r.rows[0].kl.mean == 0 && r.rows[0].kl.max == 0 && r.rows[0].flips == 0);
    assert_true(r.rows[0].ppl == r.ppl_ref[0]);
    assert_string_equal(r.rows[2].kv, "affine4g64");
    assert_true(r.rows[2].kl.mean < r.rows[1].kl.mean / 8);
    kvt_fidelity_finish(&r);
    kvt_fidelity_finish(&r);
}

/* Eight spans of 29 positions: edges 0 3 7 10 14 18 21 25 29, as numpy's linspace cut to integers. */
static void depth_is_by_equal_spans(void **state) {
    (void)state;
    static const int edges[] = {0, 3, 7, 10, 14, 18, 21, 25, 29};
    const char *const kv[] = {"affine2g64"};
    struct kvt_fidelity_options o = usual(kv, 1);
    o.n_chunks = 1;
    struct kvt_fidelity_result r;
    assert_int_equal(kvt_fidelity_run(&r, &model, &o, NULL), KVT_OK);
    assert_int_equal(r.n_positions, 29);
    assert_true(r.rows[0].kl_stderr == 0);
    for (int k = 0; k < KVT_FIDELITY_DEPTHS; k++) {
        const struct expected to_last = expect(0.25, text, edges[k + 1]);
        const struct expected to_first = k > 0 ? expect(0.25, text, edges[k]) : (struct expected){0};
        const double sum = to_last.kl * edges[k + 1] - to_first.kl * edges[k];
        near(r.rows[0].kl_depth[k], sum / (edges[k + 1] - edges[k]));
    }
    kvt_fidelity_finish(&r);
}

static void the_first_id_can_be_replaced(void **state) {
    (void)state;
    const char *const kv[] = {"affine2g64"};
    struct kvt_fidelity_options o = usual(kv, 1);
    o.n_chunks = 1;
    o.first_id = 41;
    struct kvt_fidelity_result r;
    assert_int_equal(kvt_fidelity_run(&r, &model, &o, NULL), KVT_OK);
    text[0] = 41;
    near(r.rows[0].kl.mean, expect(0.25, text, 29).kl);
    kvt_fidelity_finish(&r);
}

struct stopper {
    int n_reports, stop_after;
    uint64_t last, total;
};

static bool stop(void *ctx, const char *what, uint64_t done, uint64_t total) {
    struct stopper *s = ctx;
    (void)what;
    assert_true(done >= s->last && done <= total);
    s->last = done;
    s->total = total;
    return ++s->n_reports != s->stop_after;
}

/* Positions before the warm-up's end are fed and not scored; the last of ten worst positions is worse than all others. */
static void warmup_and_the_worst_positions(void **state) {
    (void)state;
    const char *const kv[] = {"affine2g64"};
    struct kvt_fidelity_options o = usual(kv, 1);
    struct kvt_fidelity_result r;
    o.n_chunks = 1;
    o.warmup = 9;
    assert_int_equal(kvt_fidelity_run(&r, &model, &o, NULL), KVT_OK);
    assert_int_equal(r.n_positions, 20);
    const double sum = 29 * expect(0.25, text, 29).kl - 9 * expect(0.25, text, 9).kl;
    near(r.rows[0].kl.mean, sum / 20);
    assert_int_equal(r.rows[0].n_worst, KVT_FIDELITY_WORST);
    near(r.rows[0].worst[0].score.kl, r.rows[0].kl.max);
    for (int i = 0; i < KVT_FIDELITY_WORST; i++) {
        const struct kvt_fidelity_position *at = &r.rows[0].worst[i];
        assert_in_range(at->position, 9, 28);
        const struct expected to = expect(0.25, text, at->position + 1), before = expect(0.25, text, at->position);
        near(at->score.kl, to.kl * (at->position + 1) - (at->position ? before.kl * at->position : 0));
        if (i > 0) assert_true(at->score.kl <= at[-1].score.kl);
    }
    kvt_fidelity_finish(&r);
}

/* Token by token each leg has a reference of its own; the made-up engine gives the same logits on both. */
static void the_decode_leg_feeds_token_by_token(void **state) {
    (void)state;
    const char *const kv[] = {"affine2g64", "affine2g64"};
    struct kvt_fidelity_options o = usual(kv, 2);
    struct kvt_fidelity_result r;
    asked[1].leg = KVT_LEG_DECODE;
    o.n_chunks = 1;
    n_evals = 0;
    assert_int_equal(kvt_fidelity_run(&r, &model, &o, NULL), KVT_OK);
    assert_int_equal(n_evals, 2 + 2 * 29);
    near(r.rows[0].kl.mean, expect(0.25, text, 29).kl);
    near(r.rows[1].kl.mean, expect(0.25, text, 29).kl);
    near(r.ppl_ref[KVT_LEG_DECODE], r.ppl_ref[KVT_LEG_PREFILL]);
    kvt_fidelity_finish(&r);
}

/* A second run reads the reference and gives the same figures; a stopped one keeps whole chunks. */
static void a_reference_is_kept(void **state) {
    (void)state;
    const char *const kv[] = {"affine2g64"};
    char folder[] = "/tmp/kvtile-run-XXXXXX", command[64];
    assert_non_null(mkdtemp(folder));
    const struct kvt_fidelity_store store = {folder, 99};
    struct kvt_fidelity_options o = usual(kv, 1);
    struct kvt_fidelity_result stopped, first, second;
    struct stopper stopper = {.stop_after = 8};
    const struct kvt_progress progress = {stop, &stopper};
    o.store = &store;
    o.progress = &progress;
    assert_int_equal(kvt_fidelity_run(&stopped, &model, &o, NULL), KVT_ERR_CANCELLED);
    assert_true(stopped.n_chunks > 0 && stopped.n_chunks < 3);
    o.progress = NULL;
    assert_int_equal(kvt_fidelity_run(&first, &model, &o, NULL), KVT_OK);
    assert_in_range(first.stored[0].n_read, 1, 2);
    n_evals = 0;
    assert_int_equal(kvt_fidelity_run(&second, &model, &o, NULL), KVT_OK);
    assert_int_equal(n_evals, 3);
    assert_int_equal(second.stored[0].n_read, 3);
    assert_string_equal(second.stored[0].trouble, "");
    assert_memory_equal(&second.rows[0].kl, &first.rows[0].kl, sizeof first.rows[0].kl);
    assert_true(second.ppl_ref[0] == first.ppl_ref[0]);
    kvt_fidelity_finish(&stopped);
    kvt_fidelity_finish(&first);
    kvt_fidelity_finish(&second);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* In the made-up engine all loss is that of layer 0's keys: the plan gives them what the budget has, and the rest the least. */
static void a_search_gives_bits_to_whom_they_serve(void **state) {
    (void)state;
    const char *const kv[] = {"affine4g64", "affine2g64", "affine8g64"}, *want = "affine8g64,affine2g64:1=affine2g64";
    const struct kvt_fidelity_options o = usual(kv, 3);
    const struct kvt_shape shape = kvt_model_shape(&model);
    const struct kvt_plan_options options = {.struct_size = sizeof options, .kv = want};
    struct kvt_search_request request = {.options = &o, .n_chunks = 1, .at = 1280};
    struct kvt_search found;
    struct kvt_plan *plan;
    assert_int_equal(kvt_plan_create(&plan, &shape, &options, NULL, NULL), KVT_OK);
    request.budget = kvt_plan_bytes(plan, request.at);
    assert_int_equal(kvt_sweep_search(&found, &model, &request, NULL), KVT_OK);
    assert_string_equal(found.kv, want);
    assert_int_equal(found.bytes, request.budget);
    near(found.expected_kl, expect(noise_bits(8), text, 29).kl);
    for (int i = 0; i < found.n_parts; i++)
        if (found.parts[i].layer != 0 || found.parts[i].side != KVT_SIDE_K) assert_true(found.parts[i].kl == 0);
    kvt_search_finish(&found);
    kvt_search_finish(&found);
    request.budget--; /* a byte less: the next smaller codec */
    assert_int_equal(kvt_sweep_search(&found, &model, &request, NULL), KVT_OK);
    assert_string_equal(found.kv, "affine4g64,affine2g64:1=affine2g64");
    kvt_search_finish(&found);
    request.budget = 1000;
    struct kvt_error err;
    assert_int_equal(kvt_sweep_search(&found, &model, &request, &err), KVT_ERR_RANGE);
    assert_non_null(strstr(err.text, "1000 bytes at 1280 rows"));
    kvt_plan_destroy(plan);
    assert_int_equal(n_sessions, 0);
}

/* Keys in groups make the values of their layer wait, which takes a page that neither shows alone: the search makes room for it. */
static void a_plan_keeps_to_its_budget(void **state) {
    (void)state;
    const char *const kv[] = {"affine2g64", "kivi4g32,affine2g64"};
    const struct kvt_fidelity_options o = usual(kv, 2);
    const struct kvt_shape shape = kvt_model_shape(&model);
    struct kvt_plan *least, *most;
    struct kvt_plan_options options = {.struct_size = sizeof options, .kv = kv[0]};
    assert_int_equal(kvt_plan_create(&least, &shape, &options, NULL, NULL), KVT_OK);
    options.kv = kv[1];
    assert_int_equal(kvt_plan_create(&most, &shape, &options, NULL, NULL), KVT_OK);
    struct kvt_search_request request = {.options = &o, .n_chunks = 1, .at = 1290};
    const uint64_t low = kvt_plan_bytes(least, request.at), high = kvt_plan_bytes(most, request.at);
    for (request.budget = low; request.budget <= high; request.budget += (high - low) / 8) {
        struct kvt_search found;
        assert_int_equal(kvt_sweep_search(&found, &model, &request, NULL), KVT_OK);
        assert_true(found.bytes <= request.budget);
        kvt_search_finish(&found);
    }
    kvt_plan_destroy(least);
    kvt_plan_destroy(most);
}

static void memory_for_a_search_may_run_out(void **state) {
    (void)state;
    const char *const kv[] = {"affine4g64", "affine2g64"};
    struct kvt_fidelity_options o = usual(kv, 2);
    enum kvt_status status = KVT_ERR_NOMEM;
    o.chunk = 8;
    for (size_t n = 1; status != KVT_OK; n += n < 40 ? 1 : 7) {
        struct kvt_alloc_counter counter = {.fail_at = n};
        const struct kvt_allocator allocator = kvt_allocator_counted(&counter);
        const struct kvt_search_request request = {.options = &o, .n_chunks = 1, .at = 1280, .budget = 400000};
        struct kvt_search found = {.kv = NULL};
        o.allocator = &allocator;
        status = kvt_sweep_search(&found, &model, &request, NULL);
        assert_true(status == KVT_OK || status == KVT_ERR_NOMEM);
        kvt_search_finish(&found);
        assert_int_equal(counter.live_blocks, 0);
    }
}

static void bits_come_from_allocated_bytes(void **state) {
    (void)state;
    const char *const kv[] = {"f16", "affine4g64"};
    struct kvt_fidelity_options o = usual(kv, 2);
    struct kvt_fidelity_result r;
    assert_int_equal(kvt_fidelity_run(&r, &model, &o, NULL), KVT_OK);
    const double elements = 29 * (2 * (64 + 64) + 2 * (64 + 128));
    const double bits[] = {16, 4.5};
    for (int i = 0; i < 2; i++) {
        const double tiles = elements * bits[i] / 8 * 128 / 29; /* 29 rows take tiles of 128; a page adds a few bytes */
        assert_true((double)r.rows[i].cache_bytes >= tiles && (double)r.rows[i].cache_bytes <= tiles * 1.01);
        near(r.rows[i].bits_per_element, (double)r.rows[i].cache_bytes * 8 / elements);
    }
    kvt_fidelity_finish(&r);
}

/* Logits of 89 positions: in one block; in several blocks, the reference's kept (71 MB); made again for each scheme (142 MB).
 * A larger vocabulary repeats a smaller one, so each distribution is the same with its tokens cut into equal parts. */
static void a_large_vocabulary_gives_the_same(void **state) {
    (void)state;
    const struct kvt_model models[] = {{VOCAB, -1}, {200000, -1}, {400000, -1}};
    const int expected_logits[] = {3 * 89, 3 * 89, 4 * 89};
    const char *const kv[] = {"f16", "affine4g64"};
    const struct kvt_parallel parallel = test_parallel(2);
    struct kvt_fidelity_options o = usual(kv, 2);
    double kl = 0;
    o.parallel = &parallel;
    o.chunk = 90;
    for (int i = 0; i < 3; i++) {
        struct kvt_fidelity_result r;
        n_logits = 0;
        assert_int_equal(kvt_fidelity_run(&r, &models[i], &o, NULL), KVT_OK);
        assert_int_equal(n_logits, expected_logits[i]);
        assert_true(r.rows[0].kl.max == 0 && r.rows[1].kl.mean > 0);
        if (i == 0) kl = r.rows[1].kl.mean;
        near(r.rows[1].kl.mean, kl);
        kvt_fidelity_finish(&r);
    }
}

/* Wherever it is stopped, what comes back is the whole chunks before, as if only they had been asked for. */
static void stopping_keeps_whole_chunks(void **state) {
    (void)state;
    const char *const kv[] = {"affine4g64", "affine2g64"};
    struct kvt_fidelity_options o = usual(kv, 2);
    struct kvt_fidelity_result whole[4] = {{0}}, r;
    for (int n = 1; n <= 3; n++) {
        o.n_chunks = n;
        assert_int_equal(kvt_fidelity_run(&whole[n], &model, &o, NULL), KVT_OK);
    }
    bool seen[4] = {false};
    enum kvt_status status = KVT_ERR_CANCELLED;
    for (int after = 1; status == KVT_ERR_CANCELLED; after++) {
        struct stopper stopper = {.stop_after = after};
        const struct kvt_progress progress = {stop, &stopper};
        o.progress = &progress;
        status = kvt_fidelity_run(&r, &model, &o, NULL);
        assert_true(status == KVT_OK ? stopper.last == stopper.total : status == KVT_ERR_CANCELLED);
        assert_int_equal(n_sessions, 0);
        seen[r.n_chunks] = true;
        if (r.n_chunks == 0) {
            assert_null(r.rows);
            continue;
        }
        for (int i = 0; i < 2; i++) {
            assert_true(r.rows[i].kl.mean == whole[r.n_chunks].rows[i].kl.mean);
            assert_true(r.rows[i].kl.p99 == whole[r.n_chunks].rows[i].kl.p99);
            assert_true(r.rows[i].ppl == whole[r.n_chunks].rows[i].ppl);
            assert_true(r.rows[i].flips == whole[r.n_chunks].rows[i].flips);
        }
        assert_true(r.ppl_ref[0] == whole[r.n_chunks].ppl_ref[0]);
        kvt_fidelity_finish(&r);
    }
    assert_int_equal(status, KVT_OK);
    assert_true(seen[0] && seen[1] && seen[2] && seen[3]);
    for (int n = 1; n <= 3; n++) kvt_fidelity_finish(&whole[n]);
}

static void bad_input_is_refused_before_work(void **state) {
    (void)state;
    const char *const good[] = {"affine4g64"};
    const struct kvt_fidelity_case bad[] = {{.kv = "affine4g64"}, {.kv = "affin4"}},
                                   odd_sink[] = {{.kv = "affine4g64", .sink = 100}};
    const struct kvt_fidelity_options o = usual(good, 1);
    struct {
        struct kvt_fidelity_options o;
        enum kvt_status status;
        const char *sentence;
    } cases[] = {
        {o, KVT_ERR_ARG, "100 tokens"},   {o, KVT_ERR_RANGE, "context of 300"},
        {o, KVT_ERR_ARG, "affin4"},       {o, KVT_ERR_RANGE, "number 7"},
        {o, KVT_ERR_ARG, "1 token"},      {o, KVT_ERR_RANGE, "first id 50"},
        {o, KVT_ERR_ARG, "at least one"}, {o, KVT_ERR_ARG, "sink"},
        {o, KVT_ERR_ARG, "nonsense"},     {o, KVT_ERR_ARG, "none to score"},
    };
    cases[0].o.chunk = 101;
    cases[1].o.chunk = 301;
    cases[2].o.cases = bad;
    cases[2].o.n_cases = 2;
    int32_t ids[IDS] = {0};
    ids[7] = VOCAB;
    cases[3].o.ids = ids;
    cases[4].o.chunk = 1;
    cases[5].o.first_id = VOCAB;
    cases[6].o.n_cases = 0;
    cases[7].o.cases = odd_sink;
    cases[8].o.reference = "nonsense";
    cases[9].o.warmup = 29;
    n_evals = 0;
    for (size_t i = 0; i < KVT_ARRAY_LEN(cases); i++) {
        struct kvt_fidelity_result r = {.n_chunks = 77};
        struct kvt_error err = {.text = ""};
        assert_int_equal(kvt_fidelity_run(&r, &model, &cases[i].o, &err), cases[i].status);
        if (!strstr(err.text, cases[i].sentence)) fail_msg("'%s' has no '%s'", err.text, cases[i].sentence);
        assert_int_equal(r.n_chunks, 77);
    }
    assert_int_equal(n_evals, 0);
    assert_int_equal(n_sessions, 0);
}

static void logits_that_are_no_numbers_are_an_error(void **state) {
    (void)state;
    make_text();
    const struct kvt_model broken = {VOCAB, text[35]};
    const char *const kv[] = {"affine4g64"};
    const struct kvt_fidelity_options o = usual(kv, 1);
    struct kvt_fidelity_result r = {.n_chunks = 77};
    struct kvt_error err = {.text = ""};
    assert_int_equal(kvt_fidelity_run(&r, &broken, &o, &err), KVT_ERR_RANGE);
    assert_non_null(strstr(err.text, "affine4g64"));
    assert_int_equal(r.n_chunks, 77);
    assert_int_equal(n_sessions, 0);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    const char *const kv[] = {"affine4g64", "affine2g64"};
    struct kvt_fidelity_options o = usual(kv, 2);
    enum kvt_status status = KVT_ERR_NOMEM;
    size_t n = 0;
    while (status == KVT_ERR_NOMEM) {
        struct kvt_alloc_counter counter = {.fail_at = ++n};
        const struct kvt_allocator allocator = kvt_allocator_counted(&counter);
        struct kvt_fidelity_result r = {0};
        o.allocator = &allocator;
        status = kvt_fidelity_run(&r, &model, &o, NULL);
        if (status == KVT_OK) kvt_fidelity_finish(&r);
        assert_int_equal(counter.live_blocks, 0);
    }
    assert_int_equal(status, KVT_OK);
    assert_true(n > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_those_of_the_chunks),
        cmocka_unit_test(depth_is_by_equal_spans),
        cmocka_unit_test(the_first_id_can_be_replaced),
        cmocka_unit_test(bits_come_from_allocated_bytes),
        cmocka_unit_test(a_large_vocabulary_gives_the_same),
        cmocka_unit_test(stopping_keeps_whole_chunks),
        cmocka_unit_test(bad_input_is_refused_before_work),
        cmocka_unit_test(logits_that_are_no_numbers_are_an_error),
        cmocka_unit_test(a_search_gives_bits_to_whom_they_serve),
        cmocka_unit_test(memory_for_a_search_may_run_out),
        cmocka_unit_test(a_plan_keeps_to_its_budget),
        cmocka_unit_test(warmup_and_the_worst_positions),
        cmocka_unit_test(the_decode_leg_feeds_token_by_token),
        cmocka_unit_test(a_reference_is_kept),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
