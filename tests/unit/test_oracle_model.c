/* SPDX-License-Identifier: Apache-2.0
 *
 * The oracle against an oracle: logits of the repository's models from a float64 pass in numpy on the dequantized weights,
 * with which llama.cpp agrees to 4e-6 (the project's reference data, logits.json, "exact"). Made models against
 * llama.cpp. Then identities between RoPE scalings, and that every option counts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/make_model.h"
#include "support/oracle_model.h"

struct golden {
    const char *name;
    int n_ids;
    int32_t ids[10];
    struct {
        int id;
        double logit;
    } top[10];
    double first[8], sum, rms, nll[9]; /* nll: of each next id */
};

static const struct golden goldens[] = {
    {"plain",
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
     {4.093808, 1.265475, 3.448301, 5.741487, 2.685808, 7.127237, 1.226623, 3.421143, 0.703299}},
    {"biased",
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
     {4.883646, 1.458257, 2.759919, 6.208917, 2.202674, 5.341575, 0.767213, 4.030163, 0.871516}},
};
static const struct golden smollm2 = {
    "SmolLM2-135M-Instruct.Q4_1",
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

static double nll(const double *logits, int n, int id) {
    double largest = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) largest = fmax(largest, logits[i]);
    for (int i = 0; i < n; i++) sum += exp(logits[i] - largest);
    return largest + log(sum) - logits[id];
}

static void near(double value, double wanted, double tolerance, const char *what) {
    if (!(fabs(value - wanted) <= tolerance)) fail_msg("%s is %.7f, wanted %.7f\n", what, value, wanted);
}

static void check_golden(const struct golden *g, const char *path) {
    struct kvt_error err;
    struct kvt_gguf *gguf;
    if (kvt_gguf_open(&gguf, path, NULL, &err) != KVT_OK) fail_msg("%s\n", err.text);
    const int n_vocab = kvt_oracle_n_vocab(gguf);
    const size_t n = (size_t)n_vocab * (size_t)g->n_ids;
    double *logits = kvt_take(&kvt_allocator_libc, n, sizeof *logits);
    assert_non_null(logits);
    if (kvt_oracle_logits(logits, gguf, g->ids, g->n_ids, &err) != KVT_OK) fail_msg("%s\n", err.text);
    for (int i = 0; i + 1 < g->n_ids; i++)
        near(nll(logits + (size_t)i * (size_t)n_vocab, n_vocab, g->ids[i + 1]), g->nll[i], 1.5e-6, "a next id's nll");
    const double *last = logits + n - n_vocab;
    double sum = 0, squares = 0;
    for (int i = 0; i < 10; i++) near(last[g->top[i].id], g->top[i].logit, 1.5e-6, "a top logit");
    for (int i = 0; i < 8; i++) near(last[i], g->first[i], 1.5e-6, "one of the first logits");
    for (int i = 0; i < n_vocab; i++) sum += last[i], squares += last[i] * last[i];
    near(sum, g->sum, 1.5e-4, "the sum");
    near(sqrt(squares / n_vocab), g->rms, 1.5e-6, "the root mean square");
    kvt_give(&kvt_allocator_libc, logits, n, sizeof *logits);
    kvt_gguf_close(gguf);
}

static void agrees_with_the_reference(void **state) {
    (void)state;
    for (size_t i = 0; i < KVT_ARRAY_LEN(goldens); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/models/%s.gguf", KVT_ROOT, goldens[i].name);
        check_golden(&goldens[i], path);
    }
}

static void agrees_on_smollm2(void **state) {
    (void)state;
    const char *path = getenv("KVT_SMOLLM2");
    if (!path) {
        print_message("KVT_SMOLLM2 does not name the file %s.gguf\n", smollm2.name);
        skip();
    }
    check_golden(&smollm2, path);
}

/* ---- made models ------------------------------------------------------------------------------------------------------ */

enum { N = 24, N_LOGITS = N * KVT_MADE_N_VOCAB };

static void run(double logits[N_LOGITS], const struct kvt_made *made) {
    int32_t ids[N];
    struct kvt_buf buf;
    struct kvt_gguf *gguf;
    struct kvt_error err;
    kvt_made_ids(ids, N, 99);
    kvt_buf_init(&buf, NULL, 1 << 24);
    assert_int_equal(kvt_made_write(&buf, made), KVT_OK);
    if (kvt_gguf_open_memory(&gguf, buf.data, buf.len, NULL, &err) != KVT_OK) fail_msg("%s\n", err.text);
    assert_int_equal(kvt_oracle_n_vocab(gguf), KVT_MADE_N_VOCAB);
    if (kvt_oracle_logits(logits, gguf, ids, N, &err) != KVT_OK) fail_msg("%s: %s\n", made->name, err.text);
    kvt_gguf_close(gguf);
    kvt_buf_finish(&buf);
}

/* The first logits after the last token, by llama.cpp (llama-cpp-python 0.3.36, f32 cache, no flash attention); its largest
 * distance from the oracle over all logits is 2.1e-5. */
static const struct {
    const char *name;
    double first[4];
} by_llama_cpp[] = {
    {"llama", {-1.12114, -1.73598, 4.50964, 1.13062}},
    {"llama-factors", {1.10138, 0.52649, 1.09951, 6.97334}},
    {"llama-linear", {-0.88685, 5.22278, 7.88876, 1.16806}},
    {"llama-old-linear", {0.19589, -1.30499, 2.10044, 4.36399}},
    {"llama-none", {4.80811, -7.99776, 3.30070, -0.50740}},
    {"llama-yarn", {-1.81972, -3.68742, -3.98206, 0.02075}},
    {"qwen2", {-4.27010, -5.69018, 9.96742, -2.23727}},
    {"qwen3", {2.74441, 5.52691, -1.07095, 6.43572}},
    {"qwen3-linear", {4.35911, 0.17721, 2.03549, -2.49421}},
};

static void agrees_with_llama_cpp_on_made_models(void **state) {
    (void)state;
    static double logits[N_LOGITS];
    for (size_t i = 0; i < KVT_ARRAY_LEN(by_llama_cpp); i++) {
        run(logits, kvt_made_find(by_llama_cpp[i].name));
        for (int k = 0; k < 4; k++)
            near(logits[N_LOGITS - KVT_MADE_N_VOCAB + k], by_llama_cpp[i].first[k], 1e-4, by_llama_cpp[i].name);
    }
}

static double distance(const struct kvt_made *a, const struct kvt_made *b) {
    static double x[N_LOGITS], y[N_LOGITS];
    double largest = 0;
    run(x, a);
    run(y, b);
    for (int i = 0; i < N_LOGITS; i++) largest = fmax(largest, fabs(x[i] - y[i]));
    return largest;
}

static void made_models_are_lively(void **state) {
    (void)state;
    static double logits[N_LOGITS];
    for (size_t i = 0; i < kvt_made_count; i++) {
        run(logits, &kvt_made_list[i]);
        double squares = 0;
        for (int k = 0; k < N_LOGITS; k++) squares += logits[k] * logits[k];
        const double rms = sqrt(squares / N_LOGITS);
        if (!(rms > 0.5 && rms < 20)) fail_msg("%s: logits of size %g\n", kvt_made_list[i].name, rms);
    }
}

static void scalings_that_are_the_same(void **state) {
    (void)state;
    struct kvt_made a = *kvt_made_find("llama"), b = a;
    b.scaling = "none";
    b.scaling_factor = 4;
    assert_true(distance(&a, &b) == 0);
    b.scaling = "yarn"; /* a factor of 1 stretches nothing */
    b.scaling_factor = 1;
    b.n_ctx_orig = 512;
    assert_true(distance(&a, &b) < 1e-9);
    a.scaling_factor = 4; /* the old key, and the new one */
    b = a;
    b.scaling = "linear";
    assert_true(distance(&a, &b) == 0);
    a.scaling = "none"; /* an original context so long that no pair is stretched: only the rows grow */
    a.attn_factor = (float)(1 + 0.1 * log(4));
    b.scaling = "yarn";
    b.n_ctx_orig = 4000000;
    assert_true(distance(&a, &b) < 1e-5);
    b.attn_factor = 1;
    assert_true(distance(&a, &b) < 1e-5);
}

static void every_option_counts(void **state) {
    (void)state;
    const struct kvt_made base = *kvt_made_find("llama-yarn"), *neox = kvt_made_find("qwen2-yarn");
    struct kvt_made changed[8];
    int n = 0;
#define CHANGE(field, value) (changed[n] = base, changed[n].field = (value), n++)
    CHANGE(scaling, "linear");
    CHANGE(scaling, "none");
    CHANGE(scaling_factor, 8);
    CHANGE(n_ctx_orig, 128);
    CHANGE(attn_factor, 0.9f);
    CHANGE(rope_base, 5000);
    CHANGE(freq_factors, true);
    CHANGE(type, 8);
#undef CHANGE
    for (int i = 0; i < n; i++)
        if (!(distance(&base, &changed[i]) > 1e-3)) fail_msg("change %d does nothing\n", i);
    struct kvt_made pairs = *neox; /* the same tensors under the other pairing */
    pairs.arch = "llama";
    assert_true(distance(neox, &pairs) > 1e-2);
}

static void refuses_what_it_cannot_do(void **state) {
    (void)state;
    struct kvt_made made = *kvt_made_find("llama");
    made.scaling = "longrope";
    struct kvt_buf buf;
    struct kvt_gguf *gguf;
    struct kvt_error err;
    double none;
    const int32_t id = 0;
    kvt_buf_init(&buf, NULL, 1 << 24);
    assert_int_equal(kvt_made_write(&buf, &made), KVT_OK);
    assert_int_equal(kvt_gguf_open_memory(&gguf, buf.data, buf.len, NULL, &err), KVT_OK);
    assert_int_equal(kvt_oracle_logits(&none, gguf, &id, 1, &err), KVT_ERR_UNSUPPORTED);
    assert_string_equal(err.text, "RoPE scaling 'longrope'");
    kvt_gguf_close(gguf);
    kvt_buf_finish(&buf);
    made.type = 12; /* Q4_K needs a callback */
    assert_int_equal(kvt_made_write(&buf, &made), KVT_ERR_UNSUPPORTED);
    kvt_buf_finish(&buf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_reference),
        cmocka_unit_test(agrees_on_smollm2),
        cmocka_unit_test(agrees_with_llama_cpp_on_made_models),
        cmocka_unit_test(made_models_are_lively),
        cmocka_unit_test(scalings_that_are_the_same),
        cmocka_unit_test(every_option_counts),
        cmocka_unit_test(refuses_what_it_cannot_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
