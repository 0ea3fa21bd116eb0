/* SPDX-License-Identifier: Apache-2.0
 * The sampler against its definition, worked out slowly: sort everything, cut, and compare what is drawn and how often. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "model/model.h"

enum { SMALL = 50, LARGE = 40000 };

static float *random_logits(int n, uint64_t seed, float spread) {
    struct kvt_rng rng = {seed};
    float *logits = malloc((size_t)n * sizeof *logits);
    for (int i = 0; i < n; i++) logits[i] = spread * kvt_rng_normal(&rng);
    return logits;
}

static struct kvt_sampler *make(struct kvt_sample_options options, int n) {
    struct kvt_sampler *sampler = NULL;
    struct kvt_error err;
    assert_int_equal(kvt_sampler_create(&sampler, &options, n, NULL, &err), KVT_OK);
    return sampler;
}

struct entry {
    double logit;
    int id;
};

static int by_logit(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id - y->id;
}

/* The definition: probabilities of all tokens, 0 for those that are cut. */
static void define(double *probability, const float *logits, int n, struct kvt_sample_options o) {
    struct entry *e = malloc((size_t)n * sizeof *e);
    for (int i = 0; i < n; i++) {
        e[i] = (struct entry){(double)logits[i], i};
        probability[i] = 0;
    }
    qsort(e, (size_t)n, sizeof *e, by_logit);
    int kept = o.top_k > 0 && o.top_k < n ? o.top_k : n;
    double mass = 0, sum = 0;
    for (int i = 0; i < kept; i++) mass += exp(e[i].logit - e[0].logit);
    if (o.top_p < 1) {
        int i = 0;
        while (i < kept && sum < (double)o.top_p * mass) sum += exp(e[i++].logit - e[0].logit);
        kept = i;
    }
    while (kept > 1 && exp(e[kept - 1].logit - e[0].logit) < (double)o.min_p) kept--;
    mass = 0;
    for (int i = 0; i < kept; i++) mass += exp((e[i].logit - e[0].logit) / (double)o.temp);
    for (int i = 0; i < kept; i++) probability[e[i].id] = exp((e[i].logit - e[0].logit) / (double)o.temp) / mass;
    free(e);
}

static const struct kvt_sample_options cases[] = {
    {.temp = 1, .top_p = 1},
    {.temp = 0.7f, .top_p = 1},
    {.temp = 1, .top_k = 5, .top_p = 1},
    {.temp = 1.5f, .top_p = 0.8f},
    {.temp = 1, .top_p = 1, .min_p = 0.1f},
    {.temp = 2, .top_k = 20, .top_p = 0.9f, .min_p = 0.02f},
    {.temp = 0.5f, .top_k = 3, .top_p = 0.5f},
    {.temp = 1, .top_k = 1000, .top_p = 0.01f},
};

/* Frequencies of 20,000 draws stay within 5 standard deviations; what is cut is never drawn. */
static void follows_the_definition(void **state) {
    (void)state;
    enum { DRAWS = 20000 };
    float *logits = random_logits(SMALL, 1, 2);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        double probability[SMALL];
        int count[SMALL] = {0};
        define(probability, logits, SMALL, cases[c]);
        struct kvt_sampler *sampler = make(cases[c], SMALL);
        for (int i = 0; i < DRAWS; i++) count[kvt_sampler_pick(sampler, logits)]++;
        for (int i = 0; i < SMALL; i++) {
            const double expected = DRAWS * probability[i], sigma = sqrt(expected * (1 - probability[i]));
            if (probability[i] == 0) assert_int_equal(count[i], 0);
            if (fabs(count[i] - expected) > 5 * sigma + 1)
                fail_msg("case %zu token %d: %d draws, expected %.1f +- %.1f", c, i, count[i], expected, sigma);
        }
        kvt_sampler_destroy(sampler);
    }
    free(logits);
}

/* A large vocabulary: everything drawn is something the definition allows, at every spread from flat to peaked. */
static void cuts_large_vocabularies(void **state) {
    (void)state;
    double *probability = malloc(LARGE * sizeof *probability);
    const float spreads[] = {0.0f, 0.01f, 3.0f};
    for (size_t k = 0; k < 3; k++) {
        float *logits = random_logits(LARGE, 7 + k, spreads[k]);
        for (size_t c = 2; c < sizeof cases / sizeof cases[0]; c++) {
            define(probability, logits, LARGE, cases[c]);
            struct kvt_sampler *sampler = make(cases[c], LARGE);
            for (int i = 0; i < 20; i++) {
                const int id = kvt_sampler_pick(sampler, logits);
                if (!(probability[id] > 0)) fail_msg("spread %zu case %zu: token %d was cut", k, c, id);
            }
            kvt_sampler_destroy(sampler);
        }
        free(logits);
    }
    free(probability);
}

static void greedy_takes_the_first_largest(void **state) {
    (void)state;
    float logits[40];
    for (int i = 0; i < 40; i++) logits[i] = -1;
    logits[0] = NAN;
    logits[7] = logits[23] = logits[39] = 3;
    struct kvt_sampler *sampler = make((struct kvt_sample_options){.top_p = 1, .top_k = 3}, 40);
    assert_int_equal(kvt_sampler_pick(sampler, logits), 7);
    logits[7] = -INFINITY;
    assert_int_equal(kvt_sampler_pick(sampler, logits), 23);
    for (int i = 0; i < 40; i++) logits[i] = NAN;
    assert_int_equal(kvt_sampler_pick(sampler, logits), 0);
    kvt_sampler_destroy(sampler);
}

/* Ties at the cut go to smaller ids; -0 and 0 are equal. */
static void ties_go_to_smaller_ids(void **state) {
    (void)state;
    float logits[SMALL];
    int seen[SMALL] = {0};
    for (int i = 0; i < SMALL; i++) logits[i] = i % 2 ? 0.0f : -0.0f;
    struct kvt_sampler *sampler = make((struct kvt_sample_options){.temp = 1, .top_p = 1, .top_k = 4}, SMALL);
    for (int i = 0; i < 300; i++) seen[kvt_sampler_pick(sampler, logits)]++;
    for (int i = 0; i < SMALL; i++) assert_int_equal(seen[i] > 0, i < 4);
    kvt_sampler_destroy(sampler);
}

/* Tokens a little above and a little below a tenth of the first's probability, which lie in one bucket. */
static void min_p_cuts_exactly(void **state) {
    (void)state;
    float logits[SMALL];
    for (int i = 0; i < SMALL; i++) logits[i] = -2.302585f + (i % 2 ? 0.001f : -0.001f);
    logits[0] = 0;
    for (int top_k = 0; top_k <= SMALL; top_k += SMALL) {
        int seen[SMALL] = {0};
        struct kvt_sampler *sampler =
            make((struct kvt_sample_options){.temp = 1, .top_p = 1, .top_k = top_k, .min_p = 0.1f}, SMALL);
        for (int i = 0; i < 2000; i++) seen[kvt_sampler_pick(sampler, logits)]++;
        for (int i = 1; i < SMALL; i++) assert_int_equal(seen[i] > 0, i % 2);
        kvt_sampler_destroy(sampler);
    }
}

static void never_draws_masked_tokens(void **state) {
    (void)state;
    float logits[SMALL];
    for (int i = 0; i < SMALL; i++) logits[i] = i % 5 == 0 ? NAN : i % 5 == 1 ? -INFINITY : 0.1f * (float)i;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct kvt_sampler *sampler = make(cases[c], SMALL);
        for (int i = 0; i < 200; i++) assert_true(kvt_sampler_pick(sampler, logits) % 5 > 1);
        kvt_sampler_destroy(sampler);
    }
}

static void seeds_decide(void **state) {
    (void)state;
    float *logits = random_logits(SMALL, 3, 1);
    int n_different = 0;
    struct kvt_sample_options o = {.temp = 1, .top_p = 0.95f, .seed = 11};
    struct kvt_sampler *a = make(o, SMALL), *b = make(o, SMALL);
    o.seed = 12;
    struct kvt_sampler *c = make(o, SMALL);
    for (int i = 0; i < 100; i++) {
        const int id = kvt_sampler_pick(a, logits);
        assert_int_equal(kvt_sampler_pick(b, logits), id);
        n_different += kvt_sampler_pick(c, logits) != id;
    }
    assert_true(n_different > 50);
    kvt_sampler_destroy(a);
    kvt_sampler_destroy(b);
    kvt_sampler_destroy(c);
    free(logits);
}

static void refuses_numbers_out_of_range(void **state) {
    (void)state;
    const struct {
        struct kvt_sample_options options;
        const char *names;
    } bad[] = {
        {{.temp = -1, .top_p = 1}, "temperature"},       {{.temp = NAN, .top_p = 1}, "temperature"},
        {{.temp = 1, .top_p = 1, .top_k = -1}, "top-k"}, {{.temp = 1, .top_p = 0}, "top-p"},
        {{.temp = 1, .top_p = 1.01f}, "top-p"},          {{.temp = 1, .top_p = 1, .min_p = -0.1f}, "min-p"},
        {{.temp = 1, .top_p = 1, .min_p = 2}, "min-p"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kvt_sampler *sampler = NULL;
        struct kvt_error err;
        assert_int_equal(kvt_sampler_create(&sampler, &bad[i].options, 10, NULL, &err), KVT_ERR_ARG);
        assert_null(sampler);
        assert_non_null(strstr(err.text, bad[i].names));
    }
}

static void survives_lack_of_memory(void **state) {
    (void)state;
    const struct kvt_sample_options o = {.temp = 1, .top_p = 1};
    for (size_t at = 1;; at++) {
        struct kvt_alloc_counter counter = {.fail_at = at};
        const struct kvt_allocator a = kvt_allocator_counted(&counter);
        struct kvt_sampler *sampler = NULL;
        const enum kvt_status status = kvt_sampler_create(&sampler, &o, 100, &a, NULL);
        kvt_sampler_destroy(sampler);
        assert_int_equal(counter.live_blocks, 0);
        if (status == KVT_OK) {
            assert_true(at > 1);
            break;
        }
        assert_int_equal(status, KVT_ERR_NOMEM);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_the_definition),
        cmocka_unit_test(cuts_large_vocabularies),
        cmocka_unit_test(greedy_takes_the_first_largest),
        cmocka_unit_test(ties_go_to_smaller_ids),
        cmocka_unit_test(min_p_cuts_exactly),
        cmocka_unit_test(never_draws_masked_tokens),
        cmocka_unit_test(seeds_decide),
        cmocka_unit_test(refuses_numbers_out_of_range),
        cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
