/* SPDX-License-Identifier: Apache-2.0
 * The check at the start: it finds caches that spoil a model, and only those, in bounded time, and leaves nothing behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "fidelity/fidelity.h"
#include "fidelity/inside.h"

static struct kvt_model *load(const char *name) {
    char path[600];
    struct kvt_model *model = NULL;
    struct kvt_error err;
    snprintf(path, sizeof path, "%s/models/%s.gguf", KVT_ROOT, name);
    if (kvt_model_load(&model, path, NULL, &err) != KVT_OK) fail_msg("%s", err.text);
    return model;
}

static struct kvt_plan *plan_of(const struct kvt_model *model, const char *kv) {
    const struct kvt_shape shape = kvt_model_shape(model);
    const struct kvt_plan_options options = {.struct_size = sizeof options, .kv = kv};
    struct kvt_plan *plan = NULL;
    struct kvt_error err;
    if (kvt_plan_create(&plan, &shape, &options, NULL, &err) != KVT_OK) fail_msg("%s", err.text);
    return plan;
}

/* How many layers of a model a cache spoils. */
static int n_bad(const struct kvt_model *model, const char *kv) {
    struct kvt_plan *plan = plan_of(model, kv);
    const struct kvt_plan *const plans[] = {plan};
    const struct kvt_check_options options = {.plans = plans, .n_plans = 1, .seed = 1};
    struct kvt_check check;
    struct kvt_error err;
    if (kvt_check_run(&check, model, &options, &err) != KVT_OK) fail_msg("%s: %s", kv, err.text);
    const int n = kvt_check_n_bad(&check, 0);
    assert_int_equal(check.n_looked, check.n_layers);
    assert_int_equal(check.n_sampled, check.n_tokens);
    kvt_check_finish(&check);
    kvt_plan_destroy(plan);
    return n;
}

static void biased_keys_are_found(void **state) {
    (void)state;
    struct kvt_model *model = load("biased");
    assert_in_range(n_bad(model, "affine4g64"), 6, 8);
    assert_in_range(n_bad(model, "affine4g32"), 5, 8);
    assert_in_range(n_bad(model, "turbo4"), 5, 8);
    assert_int_equal(n_bad(model, "kivi4g32"), 0);
    assert_int_equal(n_bad(model, "kvt4"), 0);
    assert_int_equal(n_bad(model, "affine8g64"), 0);
    assert_int_equal(n_bad(model, "kivi4g32,affine4g64"), 0); /* it is the keys */
    assert_int_equal(n_bad(model, "f16"), 0);
    kvt_model_destroy(model);
}

static void even_keys_are_left_alone(void **state) {
    (void)state;
    struct kvt_model *model = load("plain");
    static const char *const quiet[] = {"affine4g64", "affine4g32", "kivi4g32", "kvt4", "kvt3", "q8_0", "kvarn4"};
    for (size_t i = 0; i < KVT_ARRAY_LEN(quiet); i++)
        if (n_bad(model, quiet[i]) != 0) fail_msg("%s", quiet[i]);
    assert_in_range(n_bad(model, "affine2g64"), 3, 8);
    kvt_model_destroy(model);
}

/* Others are tried where the first one fails; the first of them that does not is named. */
static void others_are_tried_where_it_matters(void **state) {
    (void)state;
    struct kvt_model *model = load("biased");
    static const char *const names[] = {"affine4g64:0=f16", "q4_0", "kvt4", "f16"};
    struct kvt_plan *made[KVT_ARRAY_LEN(names)];
    const struct kvt_plan *plans[KVT_ARRAY_LEN(names)];
    for (size_t i = 0; i < KVT_ARRAY_LEN(names); i++) plans[i] = made[i] = plan_of(model, names[i]);
    struct kvt_check_options options = {.plans = plans, .n_plans = (int)KVT_ARRAY_LEN(names), .seed = 3};
    struct kvt_check check;
    assert_int_equal(kvt_check_run(&check, model, &options, NULL), KVT_OK);
    assert_false(kvt_check_is_bad(kvt_check_at(&check, 0, 0))); /* that layer keeps 16 bits */
    assert_true(isnan(kvt_check_at(&check, 2, 0)->keys));
    assert_true(kvt_check_is_bad(kvt_check_at(&check, 0, 3)));
    assert_true(kvt_check_at(&check, 2, 3)->keys < 0.15);
    assert_true(kvt_check_n_bad(&check, 1) > 0);
    assert_int_equal(kvt_check_better(&check), 2);
    kvt_check_finish(&check);
    options.n_plans = 2; /* nothing better among them */
    assert_int_equal(kvt_check_run(&check, model, &options, NULL), KVT_OK);
    assert_int_equal(kvt_check_better(&check), 0);
    kvt_check_finish(&check);
    for (size_t i = 0; i < KVT_ARRAY_LEN(names); i++) kvt_plan_destroy(made[i]);
    kvt_model_destroy(model);
}

static void time_is_bounded(void **state) {
    (void)state;
    struct kvt_model *model = load("plain");
    struct kvt_plan *plan = plan_of(model, "affine4");
    const struct kvt_plan *const plans[] = {plan};
    const struct kvt_check_options options = {.plans = plans, .n_plans = 1, .seconds = 1e-9, .seed = 1};
    struct kvt_check check;
    assert_int_equal(kvt_check_run(&check, model, &options, NULL), KVT_OK);
    assert_int_equal(check.n_looked, 1);
    assert_int_equal(check.n_sampled, 1);
    assert_true(kvt_check_at(&check, 0, 0)->keys > 0);
    assert_true(isnan(kvt_check_at(&check, 0, 3)->keys));
    kvt_check_finish(&check);
    kvt_plan_destroy(plan);
    kvt_model_destroy(model);
}

/* Walks through the layers as a check does whose estimates are right. */
static int n_looks(int n_layers, double seconds, double pass, double look, int *last, int *widest) {
    int n = 0, next = 0;
    double left = seconds;
    *widest = 1;
    for (int l = 0; l < n_layers; l++) {
        if (l == next) {
            left -= look;
            n++;
            next = kvt_check_next(l, n_layers, left, pass, look);
            if (next < n_layers) *widest = KVT_MAX(*widest, next - l);
            *last = l;
        }
        if (left < pass) break;
        left -= pass;
    }
    return n;
}

static void looks_are_spread_over_what_time_there_is(void **state) {
    (void)state;
    int last = 0, widest = 0;
    assert_int_equal(n_looks(30, 1.6, 0.02, 0.03, &last, &widest), 30); /* for all */
    assert_true(last == 29 && widest == 1);
    assert_in_range(n_looks(30, 1.2, 0.02, 0.03, &last, &widest), 19, 21); /* 0.6 s for looks of 0.03 */
    assert_true(last == 29 && widest == 2);
    assert_in_range(n_looks(30, 0.66, 0.02, 0.03, &last, &widest), 2, 3);
    assert_true(last == 29);
    assert_int_equal(n_looks(30, 0.5, 0.02, 0.03, &last, &widest), 10); /* the end is out of reach: the first ones */
    assert_true(last == 9 && widest == 1);
    assert_int_equal(n_looks(30, 1e-9, 0.02, 0.03, &last, &widest), 1);
    assert_int_equal(kvt_check_next(0, 30, INFINITY, 0.02, 0.03), 1);
    assert_int_equal(kvt_check_next(29, 30, 1, 0.02, 0.03), 30);
    assert_int_equal(kvt_check_next(0, 1000000, 1, 0, 1e-9), 1);
}

static bool stop_at(void *ctx, const char *what, uint64_t done, uint64_t total) {
    (void)total;
    return !(strcmp(what, ctx) == 0 && done == 3);
}

static void it_can_be_cancelled(void **state) {
    (void)state;
    struct kvt_model *model = load("plain");
    struct kvt_plan *plan = plan_of(model, "affine4");
    const struct kvt_plan *const plans[] = {plan};
    char *const stages[] = {"sampling", "checking"};
    for (size_t i = 0; i < KVT_ARRAY_LEN(stages); i++) {
        struct kvt_alloc_counter counter = {0};
        const struct kvt_allocator allocator = kvt_allocator_counted(&counter);
        const struct kvt_progress progress = {stop_at, stages[i]};
        const struct kvt_check_options options = {
            .plans = plans, .n_plans = 1, .seed = 1, .allocator = &allocator, .progress = &progress};
        struct kvt_check check;
        assert_int_equal(kvt_check_run(&check, model, &options, NULL), KVT_ERR_CANCELLED);
        assert_int_equal(counter.live_blocks, 0);
    }
    kvt_plan_destroy(plan);
    kvt_model_destroy(model);
}

static void memory_may_run_out(void **state) {
    (void)state;
    struct kvt_model *model = load("plain");
    struct kvt_plan *plan = plan_of(model, "affine4");
    const struct kvt_plan *const plans[] = {plan};
    for (size_t n = 1;; n += 1 + n / 3) {
        struct kvt_alloc_counter counter = {.fail_at = n};
        const struct kvt_allocator allocator = kvt_allocator_counted(&counter);
        const struct kvt_check_options options = {
            .plans = plans, .n_plans = 1, .seconds = 1e-9, .seed = 1, .allocator = &allocator};
        struct kvt_check check;
        const enum kvt_status status = kvt_check_run(&check, model, &options, NULL);
        if (status == KVT_OK) kvt_check_finish(&check);
        assert_int_equal(counter.live_blocks, 0);
        if (status == KVT_OK) break;
        assert_int_equal(status, KVT_ERR_NOMEM);
    }
    kvt_plan_destroy(plan);
    kvt_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(biased_keys_are_found),
        cmocka_unit_test(even_keys_are_left_alone),
        cmocka_unit_test(others_are_tried_where_it_matters),
        cmocka_unit_test(time_is_bounded),
        cmocka_unit_test(looks_are_spread_over_what_time_there_is),
        cmocka_unit_test(it_can_be_cancelled),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
