/* SPDX-License-Identifier: Apache-2.0
 * The JSON report against its published schema, docs/fidelity.schema.json, by a validator of the few keywords that the schema uses;
 * and the other forms of the report of the same result. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "fidelity/fidelity.h"

/* ---- a validator ------------------------------------------------------------------------------------------------------ */

static const json_t *schema_root;

static bool has_type(const json_t *value, const char *type) {
    if (strcmp(type, "object") == 0) return json_is_object(value);
    if (strcmp(type, "array") == 0) return json_is_array(value);
    if (strcmp(type, "string") == 0) return json_is_string(value);
    if (strcmp(type, "number") == 0) return json_is_number(value);
    if (strcmp(type, "integer") == 0) return json_is_integer(value);
    if (strcmp(type, "boolean") == 0) return json_is_boolean(value);
    assert_string_equal(type, "null");
    return json_is_null(value);
}

static bool is_one_of_types(const json_t *value, const json_t *type) {
    if (json_is_string(type)) return has_type(value, json_string_value(type));
    for (size_t i = 0; i < json_array_size(type); i++)
        if (has_type(value, json_string_value(json_array_get(type, i)))) return true;
    return false;
}

static bool is_valid(const json_t *value, const json_t *schema, const char *where);

static bool has_properties(const json_t *value, const json_t *schema, const char *where) {
    const json_t *known = json_object_get(schema, "properties"), *required = json_object_get(schema, "required");
    const char *key;
    json_t *inner;
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_object_get(value, json_string_value(json_array_get(required, i)))) {
            print_message("%s has no %s\n", where, json_string_value(json_array_get(required, i)));
            return false;
        }
    json_object_foreach((json_t *)(uintptr_t)value, key, inner) {
        const json_t *its = json_object_get(known, key);
        if (!its) print_message("%s has an unknown %s\n", where, key);
        if (!its || !is_valid(inner, its, key)) return false;
    }
    return true;
}

static bool is_in(const json_t *value, const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(value, json_array_get(list, i))) return true;
    return false;
}

static bool is_valid(const json_t *value, const json_t *schema, const char *where) {
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    const json_t *any = json_object_get(schema, "anyOf"), *items = json_object_get(schema, "items");
    if (ref) {
        assert_memory_equal(ref, "#/$defs/", 8);
        schema = json_object_get(json_object_get(schema_root, "$defs"), ref + 8);
        assert_non_null(schema);
        return is_valid(value, schema, where);
    }
    if (any) return is_valid(value, json_array_get(any, json_is_null(value) ? 0 : 1), where);
    const json_t *type = json_object_get(schema, "type"), *list = json_object_get(schema, "enum");
    assert_true(type || list);
    if ((type && !is_one_of_types(value, type)) || (list && !is_in(value, list))) {
        print_message("%s is not what it should be\n", where);
        return false;
    }
    for (size_t i = 0; items && i < json_array_size(value); i++)
        if (!is_valid(json_array_get(value, i), items, where)) return false;
    return !json_object_get(schema, "properties") || has_properties(value, schema, where);
}

/* ---- a result with everything ----------------------------------------------------------------------------------------- */

enum { N_ROWS = 9 };

static struct kvt_fidelity_case cases[N_ROWS] = {
    {.kv = "affine4g64", .sink = 128, .side = -1, .layer = -1, .head = -1},
    {.kv = "affine4g64", .sink = 128, .leg = KVT_LEG_DECODE, .of = 1, .side = -1, .layer = -1, .head = -1},
    {.kv = "affine4g64", .sink = 128, .kind = KVT_FIDELITY_CONTROL, .side = -1, .layer = -1, .head = -1},
    {.kv = "affine4g64,f16", .sink = 128, .kind = KVT_FIDELITY_SIDE, .side = KVT_SIDE_K, .layer = -1, .head = -1},
    {.kv = "f16:0=affine4g64,f16", .sink = 128, .kind = KVT_FIDELITY_LAYER, .side = KVT_SIDE_K, .head = -1},
    {.kv = "f16:0=f16,affine4g64", .sink = 128, .kind = KVT_FIDELITY_LAYER, .side = KVT_SIDE_V, .head = -1},
    {.kv = "affine4g64:0=f16", .sink = 128, .kind = KVT_FIDELITY_KEPT, .side = -1, .head = -1},
    {.kv = "affine4g64", .sink = 128, .kind = KVT_FIDELITY_HEAD, .side = -1, .head = 1},
    {.kv = "affine4g64", .sink = 256, .tail = 128, .kind = KVT_FIDELITY_REGION, .side = -1, .layer = -1, .head = -1},
};
static struct kvt_fidelity_row rows[N_ROWS], planned;
static struct kvt_sweep_point points[N_ROWS];
static char names[N_ROWS][32];

static struct kvt_fidelity_result make_result(void) {
    for (int i = 0; i < N_ROWS; i++) {
        snprintf(names[i], sizeof names[i], "%s", cases[i].kv);
        rows[i] = (struct kvt_fidelity_row){.kv = names[i], .bits_per_element = 4.5, .cache_bytes = 1000, .n_worst = 1};
        rows[i].kl.mean = 0.01 * (i + 1);
        rows[i].kl.max = i == 1 ? INFINITY : 1;
        rows[i].kl_ci = (struct kvt_interval){i ? NAN : 0.01, i ? NAN : 0.02};
        rows[i].kl_depth[3] = NAN;
        rows[i].worst[0] = (struct kvt_fidelity_position){2, 17, {.kl = 1, .top_ref = 3, .top = 4}};
        points[i] = (struct kvt_sweep_point){1000, 4.5, i == 0};
    }
    planned = rows[0];
    return (struct kvt_fidelity_result){.n_rows = N_ROWS,
                                        .rows = rows,
                                        .n_chunks = 3,
                                        .n_positions = 300,
                                        .ppl_ref = {20, 20.5},
                                        .allocator = kvt_allocator_or_default(NULL)};
}

static struct kvt_sensitivity part = {.layer = 1, .side = KVT_SIDE_V, .kl = 0.5, .bytes = 77};
static char found[] = "f16:1=kivi4g32";
static const struct kvt_search search = {.kv = found, .bytes = 900, .expected_kl = 0.1, .parts = &part, .n_parts = 1};
static const struct kvt_sweep sweep = {
    .at = 4096, .points = points, .search = &search, .budget = 950, .plan = &planned, .best = 0, .search_chunks = 2};

static struct kvt_fidelity_about make_about(bool sweeps) {
    part.codec = kvt_codec_at(0);
    return (struct kvt_fidelity_about){.model = "<m>.gguf",
                                       .text = "a & b",
                                       .reference = "f16",
                                       .chunk = 101,
                                       .cases = cases,
                                       .command = "kvtile fidelity '<m>.gguf'",
                                       .level = "avx2",
                                       .blas = "none",
                                       .n_threads = 2,
                                       .sweep = sweeps ? &sweep : NULL};
}

static json_t *report(bool sweeps) {
    const struct kvt_fidelity_result result = make_result();
    const struct kvt_fidelity_about about = make_about(sweeps);
    struct kvt_buf out;
    kvt_buf_init(&out, NULL, 1 << 20);
    assert_int_equal(kvt_fidelity_json(&out, &result, &about), KVT_OK);
    json_t *root = json_loads(kvt_buf_text(&out), 0, NULL);
    assert_non_null(root);
    kvt_buf_finish(&out);
    return root;
}

/* ---- tests ------------------------------------------------------------------------------------------------------------ */

static int load_schema(void **state) {
    (void)state;
    schema_root = json_load_file(KVT_ROOT "/docs/fidelity.schema.json", 0, NULL);
    return schema_root ? 0 : -1;
}

static void reports_are_what_the_schema_says(void **state) {
    (void)state;
    for (int sweeps = 0; sweeps < 2; sweeps++) {
        json_t *root = report(sweeps);
        assert_true(is_valid(root, schema_root, "the report"));
        assert_int_equal(json_array_size(json_object_get(root, "schemes")), 2);
        assert_int_equal(json_array_size(json_object_get(root, "attribution")), 6);
        json_decref(root);
    }
}

static void the_validator_finds_faults(void **state) {
    (void)state;
    json_t *root = report(true);
    json_t *scheme = json_array_get(json_object_get(root, "schemes"), 0), *kl = json_object_get(scheme, "kl");
    json_t *mean = json_incref(json_object_get(kl, "mean"));
    json_object_del(kl, "mean");
    assert_false(is_valid(root, schema_root, "the report"));
    json_object_set_new(kl, "mean", json_string("0.01"));
    assert_false(is_valid(root, schema_root, "the report"));
    json_object_set_new(kl, "mean", mean);
    assert_true(is_valid(root, schema_root, "the report"));
    json_object_set_new(scheme, "more", json_true());
    assert_false(is_valid(root, schema_root, "the report"));
    json_object_del(scheme, "more");
    json_object_set_new(scheme, "leg", json_string("sideways"));
    assert_false(is_valid(root, schema_root, "the report"));
    json_decref(root);
}

static void old_keys_are_there(void **state) {
    (void)state;
    static const char *const top[] = {"model", "text", "reference", "chunk", "chunks", "positions", "sink", "tail"};
    static const char *const own[] = {"kv", "bits_per_element", "cache_bytes", "flips", "ppl", "ppl_ref", "tier"};
    static const char *const kl[] = {"mean", "median", "p99", "max", "stderr", "by_depth"};
    json_t *root = report(true);
    const json_t *scheme = json_array_get(json_object_get(root, "schemes"), 0);
    for (size_t i = 0; i < KVT_ARRAY_LEN(top); i++) assert_non_null(json_object_get(root, top[i]));
    for (size_t i = 0; i < KVT_ARRAY_LEN(own); i++) assert_non_null(json_object_get(scheme, own[i]));
    for (size_t i = 0; i < KVT_ARRAY_LEN(kl); i++)
        assert_non_null(json_object_get(json_object_get(scheme, "kl"), kl[i]));
    const json_t *plan = json_object_get(root, "plan");
    assert_string_equal(json_string_value(json_object_get(plan, "kv")), "f16:1=kivi4g32");
    assert_int_equal(json_integer_value(json_object_get(plan, "cache_bytes")), 900);
    json_decref(root);
}

static size_t count(const char *text, const char *what) {
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++) n++;
    return n;
}

static void the_page_holds_together(void **state) {
    (void)state;
    const struct kvt_fidelity_result result = make_result();
    for (int sweeps = 0; sweeps < 2; sweeps++) {
        const struct kvt_fidelity_about about = make_about(sweeps);
        struct kvt_buf out;
        kvt_buf_init(&out, NULL, 1 << 20);
        assert_int_equal(kvt_fidelity_html(&out, &result, &about), KVT_OK);
        const char *page = kvt_buf_text(&out);
        static const char *const pairs[][2] = {{"<tr>", "</tr>"},         {"<table>", "</table>"}, {"<svg ", "</svg>"},
                                               {"<figure ", "</figure>"}, {"<td", "</td>"},        {"<li ", "</li>"}};
        for (size_t i = 0; i < KVT_ARRAY_LEN(pairs); i++)
            assert_int_equal(count(page, pairs[i][0]), count(page, pairs[i][1]));
        assert_int_equal(count(page, "<svg "), 4);
        assert_null(strstr(page, "<m>"));
        assert_null(strstr(page, "nan"));
        assert_null(strstr(page, "a & b"));
        assert_null(strstr(page, "http"));
        assert_non_null(strstr(page, "layer 0, head 1"));
        out.len = 0;
        assert_int_equal(kvt_fidelity_svg(&out, &result, &about), KVT_OK);
        page = kvt_buf_text(&out);
        assert_int_equal(count(page, "<svg "), 1);
        assert_int_equal(count(page, "<text"), count(page, "</text>"));
        assert_int_equal(count(page, "<circle"), count(page, "</circle>"));
        assert_null(strstr(page, "<m>"));
        assert_null(strstr(page, "nan"));
        assert_null(strstr(page, "<figure"));
        out.len = 0;
        assert_int_equal(kvt_fidelity_markdown(&out, &result, &about), KVT_OK);
        assert_non_null(strstr(kvt_buf_text(&out), "| affine4g64 | decode |")
                            ?: strstr(kvt_buf_text(&out), "decode | 128 / 0 |"));
        kvt_buf_finish(&out);
    }
}

/* ---- the front and the choice ----------------------------------------------------------------------------------------- */

static void the_front_is_what_nothing_beats(void **state) {
    (void)state;
    static const struct kvt_layer_shape layer = {1, 64, 64, 0};
    static const struct kvt_shape shape = {1, &layer};
    static const struct kvt_fidelity_case swept[] = {
        {.kv = "affine2g64"}, {.kv = "affine8g64"}, {.kv = "kivi4g64"}, {.kv = "affine2g64"}, {.kv = "f16"}};
    static const double kl[] = {0.3, 0.1, 0.1, 0.3, 0}; /* the second is as close as the third, and larger */
    static const bool on_front[] = {true, false, true, true, true}; /* equals do not beat each other */
    struct kvt_fidelity_row its[5] = {{.kv = NULL}};
    struct kvt_fidelity_result result = {.n_rows = 5, .rows = its, .allocator = kvt_allocator_or_default(NULL)};
    struct kvt_sweep_point got[5];
    for (int i = 0; i < 5; i++) its[i].kl.mean = kl[i];
    assert_int_equal(kvt_sweep_points(got, &shape, swept, &result, 1280, NULL), KVT_OK);
    assert_true(got[0].bytes < got[1].bytes && got[1].bytes < got[4].bytes);
    for (int i = 0; i < 5; i++) assert_int_equal(got[i].on_front, on_front[i]);
    assert_true(fabs(got[4].bits - 16) < 0.1);
}

/* All choices of three items of three options, by hand. */
static void a_choice_is_near_the_best(void **state) {
    (void)state;
    static const struct kvt_choice_option a[] = {{10, 9}, {20, 4}, {40, 1}}, b[] = {{10, 90}, {20, 3}, {40, 2}},
                                          c[] = {{5, 1}, {50, 0.5}, {60, 0}};
    const struct kvt_choice_option *const lists[] = {a, b, c};
    static const int n[] = {3, 3, 3};
    for (uint64_t budget = 20; budget < 150; budget += 5) {
        int chosen[3] = {0}, best[3] = {0};
        double least = INFINITY, cost = 0;
        uint64_t bytes = 0;
        for (int i = 0; i < 27; i++) {
            const int at[] = {i % 3, i / 3 % 3, i / 9};
            const uint64_t sum = a[at[0]].bytes + b[at[1]].bytes + c[at[2]].bytes;
            const double its = a[at[0]].cost + b[at[1]].cost + c[at[2]].cost;
            if (sum <= budget && its < least) least = its, memcpy(best, at, sizeof best);
        }
        const bool any = kvt_choose(chosen, lists, n, 3, budget);
        assert_int_equal(any, budget >= 25);
        for (int i = 0; any && i < 3; i++) {
            bytes += lists[i][chosen[i]].bytes;
            cost += lists[i][chosen[i]].cost;
        }
        assert_true(bytes <= budget);
        if (any && cost > least + 2.5) fail_msg("budget %d: cost %g, best %g", (int)budget, cost, least);
    }
}

static int free_schema(void **state) {
    (void)state;
    json_decref((json_t *)(uintptr_t)schema_root);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_are_what_the_schema_says),
        cmocka_unit_test(the_validator_finds_faults),
        cmocka_unit_test(old_keys_are_there),
        cmocka_unit_test(the_page_holds_together),
        cmocka_unit_test(the_front_is_what_nothing_beats),
        cmocka_unit_test(a_choice_is_near_the_best),
    };
    return cmocka_run_group_tests(tests, load_schema, free_schema);
}
