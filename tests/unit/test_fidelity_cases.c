/* SPDX-License-Identifier: Apache-2.0
 * Legs, controls and attribution on the repository's models, and the cases they are made of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "fidelity/fidelity.h"
#include "support/threads.h"

enum { CHUNK = 160 };

/* ---- cases ------------------------------------------------------------------------------------------------------------ */

static const struct kvt_layer_shape layers[] = {{2, 64, 64, 0}, {1, 64, 64, 0}, {2, 64, 64, 0}};
static const struct kvt_shape shape = {3, layers};

static void cases_say_what_is_asked_for(void **state) {
    (void)state;
    const struct kvt_fidelity_scheme schemes[] = {{"kivi4,affine4:1=affine8", 128, 32}, {"f16", 128, 32}};
    const struct kvt_fidelity_request request = {.schemes = schemes,
                                                 .n_schemes = 2,
                                                 .legs = {true, true},
                                                 .numerics = true,
                                                 .attribute = KVT_ATTRIBUTE_KV | KVT_ATTRIBUTE_LAYERS |
                                                              KVT_ATTRIBUTE_HEADS | KVT_ATTRIBUTE_REGIONS};
    struct kvt_fidelity_cases cases;
    assert_int_equal(kvt_fidelity_cases_make(&cases, &shape, &request, NULL, NULL), KVT_OK);
    /* 4 caches, a control each; on the prefill leg 2 sides, 3 layers in 4 ways, 5 heads, 3 regions for each of 2 */
    assert_int_equal(cases.n, 4 + 4 + 2 * (2 + 12 + 5 + 3));
    int n_of_kind[KVT_FIDELITY_REGION + 1] = {0};
    for (int i = 0; i < cases.n; i++) {
        const struct kvt_fidelity_case *c = &cases.items[i];
        n_of_kind[c->kind]++;
        assert_int_equal(cases.items[c->of].kind, KVT_FIDELITY_SCHEME);
        assert_int_equal(c->leg, cases.items[c->of].leg);
        assert_string_equal(c->kv, cases.items[c->of].kv);
        if (c->kind == KVT_FIDELITY_REGION) assert_true(c->sink + c->tail > 160);
        if (c->kind == KVT_FIDELITY_HEAD) assert_in_range(c->head, 0, layers[c->layer].n_kv_heads - 1);
    }
    assert_int_equal(n_of_kind[KVT_FIDELITY_SCHEME], 4);
    assert_int_equal(n_of_kind[KVT_FIDELITY_LAYER], 2 * 9);
    assert_int_equal(cases.items[0].leg, KVT_LEG_PREFILL);
    assert_int_equal(cases.items[3].leg, KVT_LEG_DECODE);
    kvt_fidelity_cases_finish(&cases);
    kvt_fidelity_cases_finish(&cases);
}

static void memory_for_cases_may_run_out(void **state) {
    (void)state;
    const struct kvt_fidelity_scheme scheme = {"kivi4", 0, 0};
    const struct kvt_fidelity_request request = {
        .schemes = &scheme, .n_schemes = 1, .legs = {true}, .attribute = KVT_ATTRIBUTE_KV | KVT_ATTRIBUTE_REGIONS};
    enum kvt_status status = KVT_ERR_NOMEM;
    for (size_t n = 1; status != KVT_OK; n++) {
        struct kvt_alloc_counter counter = {.fail_at = n};
        const struct kvt_allocator a = kvt_allocator_counted(&counter);
        struct kvt_fidelity_cases cases = {.items = NULL};
        status = kvt_fidelity_cases_make(&cases, &shape, &request, &a, NULL);
        assert_true(status == KVT_OK || status == KVT_ERR_NOMEM);
        kvt_fidelity_cases_finish(&cases);
        assert_int_equal(counter.live_blocks, 0);
    }
}

/* ---- on a model ------------------------------------------------------------------------------------------------------- */

static struct kvt_fidelity_result measure(const char *name, const struct kvt_fidelity_case *cases, int n,
                                          int prefill_chunk) {
    char path[512];
    struct kvt_model *model;
    struct kvt_fidelity_result r;
    struct kvt_error err;
    int32_t ids[CHUNK];
    const struct kvt_parallel two = test_parallel(2);
    snprintf(path, sizeof path, "%s/models/%s.gguf", KVT_ROOT, name);
    if (kvt_model_load(&model, path, NULL, &err) != KVT_OK) fail_msg("%s", err.text);
    for (int i = 0; i < CHUNK; i++) ids[i] = i == 0 ? 0 : 300 + (i * 17 + i * i) % 900;
    const struct kvt_fidelity_options o = {.cases = cases,
                                           .n_cases = n,
                                           .ids = ids,
                                           .n_ids = CHUNK,
                                           .chunk = CHUNK,
                                           .first_id = -1,
                                           .prefill_chunk = prefill_chunk,
                                           .parallel = &two};
    if (kvt_fidelity_run(&r, model, &o, &err) != KVT_OK) fail_msg("%s", err.text);
    kvt_model_destroy(model);
    return r;
}

static struct kvt_fidelity_case all(const char *kv, enum kvt_leg leg, enum kvt_fidelity_kind kind) {
    return (struct kvt_fidelity_case){
        .kv = kv, .sink = 0, .tail = 10, .leg = leg, .kind = kind, .side = -1, .layer = -1, .head = -1};
}

/* Plain attention over decoded rows and the cache's own arithmetic differ by far less than the codec costs, on both legs, also with
 * per-channel groups, a tail and a start. With nothing encoded all that is left is rounding. */
static void a_control_agrees_with_the_cache(void **state) {
    (void)state;
    struct kvt_fidelity_case cases[12];
    static const char *const kv[] = {"f16", "affine4g64", "kivi4g32,affine4g64:2=f16"};
    for (int i = 0; i < 3; i++)
        for (int leg = 0; leg < KVT_LEG_COUNT; leg++)
            for (int control = 0; control < 2; control++) {
                struct kvt_fidelity_case *c = &cases[i * 4 + leg * 2 + control];
                *c = all(kv[i], (enum kvt_leg)leg, control ? KVT_FIDELITY_CONTROL : KVT_FIDELITY_SCHEME);
                if (i == 2) c->start = 70;
            }
    struct kvt_fidelity_result r = measure("plain", cases, 12, 0);
    for (int i = 0; i < 12; i += 2) {
        const double cache = r.rows[i].kl.mean, control = r.rows[i + 1].kl.mean;
        if (i < 4)
            assert_true(cache < 1e-6 && control < 1e-6);
        else if (!(cache > 1e-4 && fabs(cache - control) < 0.1 * cache))
            fail_msg("%s, %s: cache %g, control %g", r.rows[i].kv, kvt_leg_name(cases[i].leg), cache, control);
    }
    assert_true(fabs(r.ppl_ref[0] - r.ppl_ref[1]) < 1e-3 * r.ppl_ref[0]);
    kvt_fidelity_finish(&r);
}

/* Rows before the frontier of each query stay in 16 bits in the control too: positions before `start` lose nothing. */
static void a_control_knows_the_frontier(void **state) {
    (void)state;
    struct kvt_fidelity_case cases[] = {all("affine2g64", KVT_LEG_PREFILL, KVT_FIDELITY_CONTROL),
                                        all("affine2g64", KVT_LEG_PREFILL, KVT_FIDELITY_CONTROL)};
    cases[0].start = 100;
    cases[1].tail = CHUNK;
    struct kvt_fidelity_result r = measure("plain", cases, 2, 0);
    assert_true(r.rows[0].kl_depth[0] < 1e-6 && r.rows[0].kl_depth[4] < 1e-6 && r.rows[0].kl_depth[7] > 1e-2);
    assert_true(r.rows[1].kl.max < 1e-5);
    kvt_fidelity_finish(&r);
}

/* Each head alone costs something, less than all together; a head of a layer that is in 16 bits costs nothing. */
static void heads_are_parts_of_the_whole(void **state) {
    (void)state;
    struct kvt_fidelity_case cases[4];
    for (int i = 0; i < 4; i++) {
        cases[i] = all("affine4g64:5=f16", KVT_LEG_PREFILL, i ? KVT_FIDELITY_HEAD : KVT_FIDELITY_CONTROL);
        cases[i].layer = i == 3 ? 5 : 1;
        cases[i].head = i == 1;
    }
    struct kvt_fidelity_result r = measure("biased", cases, 4, 0);
    assert_true(r.rows[1].kl.mean > 1e-6 && r.rows[1].kl.mean < r.rows[0].kl.mean);
    assert_true(r.rows[2].kl.mean > 1e-6 && r.rows[2].kl.mean < r.rows[0].kl.mean);
    assert_true(r.rows[1].kl.mean != r.rows[2].kl.mean);
    assert_true(r.rows[3].kl.mean < 1e-6);
    kvt_fidelity_finish(&r);
}

/* Parts are behind the same frontier as the whole: values that are encoded row by row when alone wait for their keys' groups. Keys and
 * values of a layer, all layers but one: what they leave out stays in 16 bits. */
static void parts_are_what_they_say(void **state) {
    (void)state;
    struct kvt_fidelity_case cases[6];
    for (int i = 0; i < 6; i++) cases[i] = all("f16:3=kivi2g32,affine2g64", KVT_LEG_PREFILL, KVT_FIDELITY_SIDE);
    cases[0].kind = KVT_FIDELITY_CONTROL;
    cases[1].side = KVT_SIDE_V;
    cases[2].kind = KVT_FIDELITY_LAYER;
    cases[2].layer = 3;
    cases[2].side = KVT_SIDE_V;
    cases[3].kind = KVT_FIDELITY_LAYER;
    cases[3].layer = 2;
    cases[4].kind = KVT_FIDELITY_KEPT;
    cases[4].layer = 3;
    cases[5].kv = "f16:3=f16,affine2g64"; /* alone it is another cache */
    cases[5].kind = KVT_FIDELITY_CONTROL;
    struct kvt_fidelity_result r = measure("plain", cases, 6, 0);
    assert_true(r.rows[1].kl.mean > 1e-5 && r.rows[1].kl.mean < r.rows[0].kl.mean);
    assert_true(r.rows[2].kl.mean == r.rows[1].kl.mean);
    assert_true(r.rows[3].kl.mean < 1e-6 && r.rows[4].kl.mean < 1e-6);
    assert_true(r.rows[5].kl.mean > 2 * r.rows[1].kl.mean);
    kvt_fidelity_finish(&r);
}

/* A chunked prompt gives what one forward pass gives, up to rounding: codes may flip, the mean hardly moves. */
static void chunks_of_a_prompt_change_little(void **state) {
    (void)state;
    const struct kvt_fidelity_case c = all("kivi4g32", KVT_LEG_PREFILL, KVT_FIDELITY_SCHEME);
    struct kvt_fidelity_result a = measure("plain", &c, 1, 0), b = measure("plain", &c, 1, 24);
    assert_true(a.rows[0].kl.mean > 1e-5);
    assert_true(fabs(a.rows[0].kl.mean - b.rows[0].kl.mean) < 0.05 * a.rows[0].kl.mean);
    kvt_fidelity_finish(&a);
    kvt_fidelity_finish(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases_say_what_is_asked_for),     cmocka_unit_test(memory_for_cases_may_run_out),
        cmocka_unit_test(a_control_agrees_with_the_cache), cmocka_unit_test(a_control_knows_the_frontier),
        cmocka_unit_test(heads_are_parts_of_the_whole),    cmocka_unit_test(chunks_of_a_prompt_change_little),
        cmocka_unit_test(parts_are_what_they_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
