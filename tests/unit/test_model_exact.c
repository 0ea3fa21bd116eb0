/* SPDX-License-Identifier: Apache-2.0
 * Logits of the repository's models, and of SmolLM2-135M-Instruct where KVT_SMOLLM2 names its file, against a forward pass
 * in double on the dequantized weights with nothing rounded (recorded from another implementation, which agrees with
 * llama.cpp on the same weights as F32 within 2e-5). The prompt is "It was the best of times, it was". */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/attr.h"
#include "model/model.h"
#include "support/threads.h"

enum { MAX_IDS = 10, N_TOP = 10, N_FIRST = 8 };

struct golden {
    const char *path;
    int n_ids;
    int32_t ids[MAX_IDS];
    struct {
        int id;
        double logit;
    } top[N_TOP];
    double first[N_FIRST], sum, rms;
    double nll[MAX_IDS - 1]; /* of each next id of the prompt */
};

static const struct golden plain = {
    KVT_ROOT "/models/plain.gguf",
    10,
    {0, 902, 322, 261, 1198, 278, 1553, 12, 324, 322},
    {{261, 7.981482},
     {259, 7.443164},
     {351, 7.015154},
     {12, 6.735035},
     {1269, 6.48199},
     {278, 6.227524},
     {384, 6.194849},
     {398, 6.165798},
     {605, 6.07666},
     {289, 6.024603}},
    {-5.128018, 1.798336, -1.83562, -7.106459, -7.249844, -10.415592, -7.768025, -2.670616},
    -11758.7118,
    4.530151,
    {4.093808, 1.265475, 3.448301, 5.741487, 2.685808, 7.127237, 1.226623, 3.421143, 0.703299},
};

static const struct golden biased = {
    KVT_ROOT "/models/biased.gguf",
    10,
    {0, 902, 322, 261, 1198, 278, 1553, 12, 324, 322},
    {{261, 8.112645},
     {259, 7.547526},
     {351, 6.772874},
     {384, 6.122511},
     {281, 6.056079},
     {644, 5.896258},
     {398, 5.74907},
     {605, 5.483737},
     {1269, 5.335594},
     {289, 5.333199}},
    {-0.745496, 2.141705, -2.197572, -1.96185, -3.735386, -6.38657, -5.46952, -2.850867},
    -11161.9775,
    4.346866,
    {4.883646, 1.458257, 2.759919, 6.208917, 2.202674, 5.341575, 0.767213, 4.030163, 0.871516},
};

static const struct golden smollm2 = {
    NULL,
    9,
    {1589, 436, 260, 1450, 282, 1711, 28, 357, 436},
    {{260, 25.845223},
     {253, 22.465368},
     {441, 22.167354},
     {597, 21.991869},
     {915, 21.237552},
     {787, 20.595979},
     {2093, 20.442516},
     {805, 20.433082},
     {13321, 20.352783},
     {511, 20.200166}},
    {7.133835, 1.285617, 5.166373, -1.454877, -1.490823, -0.302166, 0.921826, -0.300817},
    332903.1126,
    7.568465,
    {5.25493, 2.925731, 6.83754, 2.998379, 4.287932, 1.197896, 4.553962, 0.773093},
};

static void near(const char *what, int i, double found, double exact, double tolerance) {
    if (!(fabs(found - exact) <= tolerance))
        fail_msg("%s %d: %.6f is not within %g of %.6f", what, i, found, tolerance, exact);
}

static double nll_of(const float *logits, int n, int id) {
    double max = (double)logits[0], sum = 0;
    for (int i = 1; i < n; i++) max = fmax(max, (double)logits[i]);
    for (int i = 0; i < n; i++) sum += exp((double)logits[i] - max);
    return max + log(sum) - (double)logits[id];
}

static void check_last(const struct golden *g, const float *logits, int n_vocab, double tolerance) {
    double sum = 0, squares = 0;
    for (int i = 0; i < n_vocab; i++) {
        sum += (double)logits[i];
        squares += (double)logits[i] * (double)logits[i];
    }
    for (int i = 0; i < N_TOP; i++)
        near("logit", g->top[i].id, (double)logits[g->top[i].id], g->top[i].logit, tolerance);
    for (int i = 0; i < N_FIRST; i++) near("logit", i, (double)logits[i], g->first[i], tolerance);
    near("mean of logits", n_vocab, sum / n_vocab, g->sum / n_vocab, tolerance);
    near("rms of logits", n_vocab, sqrt(squares / n_vocab), g->rms, tolerance);
}

/* The prompt in one piece and token by token, by one thread and by three. */
static void check(const char *path, const struct golden *g, const char *kv, double tolerance) {
    struct kvt_error err = {0};
    struct kvt_model *model = NULL;
    if (kvt_model_load(&model, path, NULL, &err) != KVT_OK) fail_msg("%s", err.text);
    const int n_vocab = kvt_model_info(model).n_vocab;
    float *logits = malloc((size_t)g->n_ids * (size_t)n_vocab * sizeof *logits);
    for (int run = 0; run < 4; run++) {
        const struct kvt_parallel parallel = test_parallel(run % 2 ? 3 : 1);
        const struct kvt_session_options options = {
            .kv = kv, .n_ctx = 16, .n_batch = run < 2 ? 16 : 1, .parallel = &parallel};
        struct kvt_session *session = NULL;
        if (kvt_session_create(&session, model, &options, &err) != KVT_OK ||
            kvt_session_eval(session, g->ids, g->n_ids, g->n_ids, NULL, &err) != KVT_OK ||
            kvt_session_logits(session, 0, g->n_ids, logits, &err) != KVT_OK)
            fail_msg("%s", err.text);
        for (int i = 0; i + 1 < g->n_ids; i++)
            near("nll", i, nll_of(logits + (size_t)i * (size_t)n_vocab, n_vocab, g->ids[i + 1]), g->nll[i], tolerance);
        check_last(g, logits + (size_t)(g->n_ids - 1) * (size_t)n_vocab, n_vocab, tolerance);
        kvt_session_destroy(session);
    }
    free(logits);
    kvt_model_destroy(model);
}

static void plain_is_exact(void **state) {
    (void)state;
    check(plain.path, &plain, "f32", 1e-3);
    check(plain.path, &plain, "f16", 0.03);
}

static void biased_is_exact(void **state) {
    (void)state;
    check(biased.path, &biased, "f32", 1e-3);
    check(biased.path, &biased, "f16", 0.03);
}

static void smollm2_is_exact(void **state) {
    (void)state;
    const char *path = getenv("KVT_SMOLLM2");
    if (!path) {
        print_message("skipped: KVT_SMOLLM2 does not name SmolLM2-135M-Instruct.Q4_1.gguf\n");
        skip();
    }
    check(path, &smollm2, "f32", 1e-3);
    check(path, &smollm2, "f16", 0.03);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_is_exact),
        cmocka_unit_test(biased_is_exact),
        cmocka_unit_test(smollm2_is_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
