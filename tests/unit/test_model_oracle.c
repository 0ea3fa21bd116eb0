/* SPDX-License-Identifier: Apache-2.0
 * Every made model against the double-precision oracle: each architecture, biases, scalings of RoPE, frequency factors,
 * tied and untied, 1 to 4 query heads a KV head. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "model/model.h"
#include "support/make_model.h"
#include "support/oracle_model.h"

enum { N_IDS = 150 };

/* Root mean square of the difference over that of the truth. */
static double relative_error(const float *found, const double *exact, size_t n) {
    double wrong = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        wrong += ((double)found[i] - exact[i]) * ((double)found[i] - exact[i]);
        all += exact[i] * exact[i];
    }
    return sqrt(wrong / all);
}

static void run(float *logits, const struct kvt_model *model, const int32_t *ids, const char *kv, int n_batch) {
    struct kvt_error err = {0};
    struct kvt_session *session = NULL;
    const struct kvt_session_options options = {.kv = kv, .n_batch = n_batch};
    if (kvt_session_create(&session, model, &options, &err) != KVT_OK ||
        kvt_session_eval(session, ids, N_IDS, N_IDS, NULL, &err) != KVT_OK ||
        kvt_session_logits(session, 0, N_IDS, logits, &err) != KVT_OK)
        fail_msg("%s", err.text);
    kvt_session_destroy(session);
}

static void agrees(void **state) {
    const struct kvt_made *made = *state;
    char path[256];
    int32_t ids[N_IDS];
    struct kvt_error err = {0};
    struct kvt_gguf *gguf = NULL;
    struct kvt_model *model = NULL;
    assert_int_equal(kvt_made_file(path, sizeof path, made), KVT_OK);
    kvt_made_ids(ids, N_IDS, made->seed);
    if (kvt_gguf_open(&gguf, path, NULL, &err) != KVT_OK || kvt_model_load(&model, path, NULL, &err) != KVT_OK)
        fail_msg("%s", err.text);
    remove(path);
    const size_t n = (size_t)N_IDS * (size_t)kvt_model_info(model).n_vocab;
    double *exact = malloc(n * sizeof *exact);
    float *logits = malloc(n * sizeof *logits);
    if (kvt_oracle_logits(exact, gguf, ids, N_IDS, &err) != KVT_OK) fail_msg("%s", err.text);
    const struct {
        const char *kv;
        int n_batch;
        double tolerance;
    } runs[] = {{"f32", 512, 1e-4}, {"f32", 1, 1e-4}, {"f32", 13, 1e-4}, {"f16", 512, 5e-3}};
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        run(logits, model, ids, runs[i].kv, runs[i].n_batch);
        const double error = relative_error(logits, exact, n);
        if (!(error < runs[i].tolerance))
            fail_msg("%s, %s by %d: relative error %.3g", made->name, runs[i].kv, runs[i].n_batch, error);
    }
    free(exact);
    free(logits);
    kvt_model_destroy(model);
    kvt_gguf_close(gguf);
}

int main(void) {
    struct CMUnitTest tests[64] = {{0}};
    size_t n = 0;
    for (; n < kvt_made_count && n < 64; n++)
        tests[n] = (struct CMUnitTest){kvt_made_list[n].name, agrees, NULL, NULL, (void *)&kvt_made_list[n]};
    return _cmocka_run_group_tests("test_model_oracle", tests, n, NULL, NULL);
}
