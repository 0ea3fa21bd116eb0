/* SPDX-License-Identifier: Apache-2.0
 * The numbers and the reports of fidelity, without a model. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fidelity/fidelity.h"

static void near(double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance)) fail_msg("got %.12g, want %.12g", got, want);
}

/* ---- one position ----------------------------------------------------------------------------------------------------- */

static void logs(float *out, const double *p, int n) {
    for (int i = 0; i < n; i++) out[i] = (float)log(p[i]);
}

/* .6 ln 3 + .3 ln .6 + .1 ln (1/3), and back: the order of the two is the whole difference. */
static void kl_has_a_direction(void **state) {
    (void)state;
    const double p[] = {0.6, 0.3, 0.1}, q[] = {0.2, 0.5, 0.3};
    float a[3], b[3];
    logs(a, p, 3);
    logs(b, q, 3);
    const struct kvt_score forth = kvt_score_position(a, b, 3, 1), back = kvt_score_position(b, a, 3, 1);
    near(forth.kl, 0.39606, 5e-6);
    near(back.kl, 0.36527, 5e-6);
    near(forth.nll_ref, -log(0.3), 1e-6);
    near(forth.nll, -log(0.5), 1e-6);
    assert_true(kvt_score_flips(&forth));
    near((double)forth.p_ref, 0.6, 1e-6);
    near((double)forth.p, 0.2, 1e-6);
}

static void kl_of_hand_values(void **state) {
    (void)state;
    const float even[] = {0, 0}, odds[] = {logf(3), 0}, none[] = {0, -INFINITY};
    near(kvt_score_position(even, odds, 2, 0).kl, 0.5 * log(4.0 / 3), 1e-7); /* .5 ln (.5 / .75) + .5 ln (.5 / .25) */
    near(kvt_score_position(none, even, 2, 0).kl, log(2), 1e-12);            /* a term is 0 where P_ref is 0 */
    assert_true(isinf(kvt_score_position(even, none, 2, 0).kl));             /* and never smoothed */
    const float far[] = {30, 0, 0}, other[] = {0, 0, 30};
    near(kvt_score_position(far, other, 3, 0).kl, 30, 1e-9);
    near(kvt_score_position(far, other, 3, 0).nll, 30, 1e-9);
}

/* Two logits d apart and two equal ones: KL is d^2 / 8 up to terms of d^4. Float log-softmax would lose it. */
static void kl_is_not_lost_near_zero(void **state) {
    (void)state;
    const float even[] = {7, 7}, tilted[] = {7, 7.0009765625f};
    const double d = 0.0009765625;
    near(kvt_score_position(even, tilted, 2, 0).kl / (d * d / 8), 1, 1e-6);
}

static void kl_ignores_a_common_offset(void **state) {
    (void)state;
    const float a[] = {1, 2, 3}, b[] = {3, 1, 2}, a_up[] = {1025, 1026, 1027}, b_down[] = {-2045, -2047, -2046};
    near(kvt_score_position(a_up, b_down, 3, 2).kl, kvt_score_position(a, b, 3, 2).kl, 1e-12);
    near(kvt_score_position(a_up, b_down, 3, 2).nll, kvt_score_position(a, b, 3, 2).nll, 1e-12);
}

static void equal_rows_are_exactly_equal(void **state) {
    (void)state;
    float logits[1000];
    for (int i = 0; i < 1000; i++) logits[i] = sinf((float)i * 1.7f) * 9;
    const struct kvt_score s = kvt_score_position(logits, logits, 1000, 3);
    assert_true(s.kl == 0);
    assert_true(s.nll == s.nll_ref);
    assert_false(kvt_score_flips(&s));
    assert_true(s.p == s.p_ref);
}

static void the_first_of_equals_counts(void **state) {
    (void)state;
    const float tie[] = {1, 5, 5}, first[] = {1, 5, 4}, second[] = {1, 4, 5};
    struct kvt_score s = kvt_score_position(tie, first, 3, 0);
    assert_false(kvt_score_flips(&s));
    s = kvt_score_position(tie, second, 3, 0);
    assert_true(kvt_score_flips(&s));
    assert_int_equal(s.top_ref, 1);
    assert_int_equal(s.top, 2);
    s = kvt_score_position(second, tie, 3, 0);
    assert_true(kvt_score_flips(&s));
}

static void what_is_no_number_stays_none(void **state) {
    (void)state;
    const float good[] = {0, 1}, bad[] = {0, NAN}, infinite[] = {0, INFINITY};
    assert_true(isnan(kvt_score_position(good, bad, 2, 0).kl));
    assert_true(isnan(kvt_score_position(bad, good, 2, 0).kl));
    assert_true(isnan(kvt_score_position(good, infinite, 2, 0).kl));
}

/* ---- many positions --------------------------------------------------------------------------------------------------- */

static void percentiles_interpolate(void **state) {
    (void)state;
    double odd[] = {5, 1, 4, 2, 3}, even[] = {4, 1, 3, 2}, one[] = {7}, endless[] = {1, INFINITY, 2};
    struct kvt_distribution d = kvt_distribution_of(odd, 5);
    near(d.mean, 3, 0);
    near(d.median, 3, 0);
    near(d.p99, 4.96, 1e-12); /* rank .99 * 4 = 3.96: between 4 and 5 */
    near(d.p999, 4.996, 1e-12);
    near(d.max, 5, 0);
    for (int i = 0; i < KVT_TAIL_POINTS; i++) near(d.tail[i], 1 + 4 * kvt_tail_ranks[i], 1e-12);
    d = kvt_distribution_of(even, 4);
    near(d.median, 2.5, 0);
    near(d.p99, 3.97, 1e-12);
    d = kvt_distribution_of(one, 1);
    near(d.median, 7, 0);
    near(d.p99, 7, 0);
    d = kvt_distribution_of(endless, 3);
    near(d.median, 2, 0);
    assert_true(isinf(d.p99) && isinf(d.max) && isinf(d.mean));
}

static void standard_error_by_hand(void **state) {
    (void)state;
    const double means[] = {1, 2, 3, 4}; /* squares 5, / 3, / 4 */
    near(kvt_standard_error(means, 4), sqrt(5.0 / 12), 1e-12);
    near(kvt_standard_error(means, 1), 0, 0);
}

/* Of 200 means spread evenly over [0, 1] the interval is about mean +- 1.96 sqrt(1/12 / 200); it is the same each time. */
static void the_bootstrap_finds_the_interval(void **state) {
    (void)state;
    double means[200];
    for (int i = 0; i < 200; i++) means[i] = (i * 77 % 200 + 0.5) / 200;
    const struct kvt_interval a = kvt_bootstrap_mean(means, 200), b = kvt_bootstrap_mean(means, 200);
    near(a.low, 0.5 - 0.0400, 0.004);
    near(a.high, 0.5 + 0.0400, 0.004);
    assert_true(a.low == b.low && a.high == b.high);
    const double two[] = {1, 3};
    near(kvt_bootstrap_mean(two, 2).low, 1, 1e-12);
    near(kvt_bootstrap_mean(two, 2).high, 3, 1e-12);
    assert_true(isnan(kvt_bootstrap_mean(two, 1).low));
}

static void tiers_are_inclusive(void **state) {
    (void)state;
    struct kvt_fidelity_row row = {.kl = {.mean = 0.01, .p99 = 0.1}, .flips = 0.01};
    assert_string_equal(kvt_fidelity_tier(&row), "good");
    row.flips = 0.011;
    assert_string_equal(kvt_fidelity_tier(&row), "marginal");
    row.kl.p99 = 1.01;
    assert_string_equal(kvt_fidelity_tier(&row), "bad");
    row = (struct kvt_fidelity_row){.kl = {.mean = NAN}};
    assert_string_equal(kvt_fidelity_tier(&row), "bad");
}

/* ---- ids -------------------------------------------------------------------------------------------------------------- */

static enum kvt_status read_ids(struct kvt_ids *ids, const char *text, struct kvt_error *err) {
    return kvt_fidelity_read_ids(ids, text, strlen(text), "some.ids", 4096, err);
}

static void ids_are_read(void **state) {
    (void)state;
    struct kvt_ids ids;
    kvt_ids_init(&ids, NULL);
    assert_int_equal(read_ids(&ids, "# made by hand\n0\n 67 \r\n\n4095 # the last", NULL), KVT_OK);
    assert_int_equal(ids.len, 3);
    assert_int_equal(ids.data[0], 0);
    assert_int_equal(ids.data[1], 67);
    assert_int_equal(ids.data[2], 4095);
    kvt_ids_finish(&ids);
}

static void bad_ids_name_their_line(void **state) {
    (void)state;
    static const struct {
        const char *text, *sentence;
        enum kvt_status status;
    } cases[] = {
        {"1\n2\n4096\n", "line 3", KVT_ERR_RANGE},
        {"1\n-2\n", "line 2", KVT_ERR_FORMAT},
        {"1 2\n", "line 1", KVT_ERR_FORMAT},
        {"7\n\nx", "line 3", KVT_ERR_FORMAT},
        {"99999999999999999999", "0 to 4095", KVT_ERR_RANGE},
        {"3.5\n", "whole numbers", KVT_ERR_FORMAT},
    };
    for (size_t i = 0; i < KVT_ARRAY_LEN(cases); i++) {
        struct kvt_ids ids;
        struct kvt_error err = {0};
        kvt_ids_init(&ids, NULL);
        assert_int_equal(kvt_ids_add(&ids, 5), KVT_OK);
        assert_int_equal(read_ids(&ids, cases[i].text, &err), cases[i].status);
        assert_non_null(strstr(err.text, cases[i].sentence));
        assert_non_null(strstr(err.text, "some.ids"));
        assert_int_equal(ids.len, 1);
        kvt_ids_finish(&ids);
    }
}

/* ---- reports ---------------------------------------------------------------------------------------------------------- */

static struct kvt_fidelity_row rows[] = {
    {.kv = "f16", .bits_per_element = 16.03, .cache_bytes = 4194304, .ppl = 24.6006},
    {.kv = "affine4g64,affine8g128",
     .bits_per_element = 4.51,
     .cache_bytes = 1179648,
     .kl = {0.3566, 0.2261, 2.336, 3.5, INFINITY, {0.2261}},
     .kl_stderr = 0.016,
     .kl_depth = {0.1, 0.2, NAN},
     .flips = 0.3438,
     .ppl = 30.2174,
     .seconds = 1.5},
};
static const struct kvt_fidelity_case cases[] = {{.kv = "f16"}, {.kv = "affine4g64,affine8g128", .of = 1}};
static const struct kvt_fidelity_result result = {
    .n_rows = 2, .rows = rows, .n_chunks = 10, .n_positions = 5110, .ppl_ref = {24.6006, NAN}};

static void the_table_reads_well(void **state) {
    (void)state;
    const struct kvt_fidelity_about about = {
        .model = "biased.gguf", .text = "hound.ids", .reference = "f16", .chunk = 512, .cases = cases};
    struct kvt_buf out;
    kvt_buf_init(&out, NULL, 1 << 16);
    assert_int_equal(kvt_fidelity_table(&out, &result, &about), KVT_OK);
    assert_non_null(strstr(out.data, "10 chunks of 512 tokens, 5110 positions"));
    assert_non_null(strstr(out.data, "0.357"));
    assert_non_null(strstr(out.data, "34.38"));
    assert_non_null(strstr(out.data, "+5.6168"));
    assert_null(strstr(out.data, "16 bits"));
    size_t widest = 0;
    for (const char *line = out.data; *line;) {
        const size_t len = strcspn(line, "\n");
        widest = len > widest ? len : widest;
        line += len + (line[len] == '\n');
    }
    assert_in_range(widest, 80, 130);
    kvt_buf_finish(&out);
}

static double number_at(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) fail_msg("%s is no number", key);
    return json_number_value(value);
}

static void the_json_has_its_keys(void **state) {
    (void)state;
    const struct kvt_fidelity_about about = {.model = "m.gguf",
                                             .text = "\"quoted\" \xff.txt",
                                             .reference = "f16",
                                             .chunk = 512,
                                             .sink = 128,
                                             .tail = 64,
                                             .cases = cases};
    struct kvt_buf out;
    kvt_buf_init(&out, NULL, 1 << 16);
    assert_int_equal(kvt_fidelity_json(&out, &result, &about), KVT_OK);
    json_t *root = json_loads(out.data, 0, NULL);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "model")), "m.gguf");
    assert_string_equal(json_string_value(json_object_get(root, "text")), "\"quoted\" ?.txt");
    near(number_at(root, "positions"), 5110, 0);
    near(number_at(root, "sink"), 128, 0);
    const json_t *scheme = json_array_get(json_object_get(root, "schemes"), 1);
    const json_t *kl = json_object_get(scheme, "kl");
    assert_string_equal(json_string_value(json_object_get(scheme, "kv")), "affine4g64,affine8g128");
    near(number_at(scheme, "bits_per_element"), 4.51, 1e-9);
    near(number_at(scheme, "cache_bytes"), 1179648, 0);
    near(number_at(kl, "mean"), 0.3566, 1e-9);
    near(number_at(kl, "median"), 0.2261, 1e-9);
    near(number_at(kl, "p99"), 2.336, 1e-9);
    assert_true(json_is_null(json_object_get(kl, "max")));
    near(number_at(scheme, "flips"), 0.3438, 1e-9);
    near(number_at(scheme, "ppl"), 30.2174, 1e-9);
    near(number_at(scheme, "ppl_ref"), 24.6006, 1e-9);
    json_decref(root);
    kvt_buf_finish(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kl_has_a_direction),           cmocka_unit_test(kl_of_hand_values),
        cmocka_unit_test(kl_is_not_lost_near_zero),     cmocka_unit_test(kl_ignores_a_common_offset),
        cmocka_unit_test(equal_rows_are_exactly_equal), cmocka_unit_test(the_first_of_equals_counts),
        cmocka_unit_test(what_is_no_number_stays_none), cmocka_unit_test(percentiles_interpolate),
        cmocka_unit_test(standard_error_by_hand),       cmocka_unit_test(the_bootstrap_finds_the_interval),
        cmocka_unit_test(tiers_are_inclusive),          cmocka_unit_test(ids_are_read),
        cmocka_unit_test(bad_ids_name_their_line),      cmocka_unit_test(the_table_reads_well),
        cmocka_unit_test(the_json_has_its_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
