/* SPDX-License-Identifier: Apache-2.0
 * Fidelity on the repository's models: what it measured once (tests/golden/fidelity.csv), and the texts it makes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "fidelity/fidelity.h"
#include "support/threads.h"

enum { CHUNK = 128, N_CHUNKS = 5 };

static struct kvt_model *load(const char *name) {
    char path[512];
    struct kvt_model *model;
    struct kvt_error err;
    snprintf(path, sizeof path, "%s/models/%s.gguf", KVT_ROOT, name);
    if (kvt_model_load(&model, path, NULL, &err) != KVT_OK) fail_msg("%s", err.text);
    return model;
}

static struct kvt_ids golden_text(const struct kvt_model *model) {
    struct kvt_buf file;
    struct kvt_ids ids;
    kvt_buf_init(&file, NULL, 1 << 20);
    kvt_ids_init(&ids, NULL);
    assert_int_equal(kvt_file_read(&file, KVT_ROOT "/tests/golden/fidelity.txt", NULL), KVT_OK);
    assert_int_equal(kvt_fidelity_read_text(&ids, file.data, file.len, model, NULL), KVT_OK);
    kvt_buf_finish(&file);
    return ids;
}

/* ---- golden figures --------------------------------------------------------------------------------------------------- */

struct golden {
    char model[16], kv[32];
    double kl, flips, ppl, ppl_ref;
};

static int read_golden(struct golden *rows, int max) {
    FILE *f = fopen(KVT_ROOT "/tests/golden/fidelity.csv", "r");
    char line[256];
    int n = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f) && n < max) {
        struct golden *g = &rows[n];
        if (sscanf(line, "%15[^;];%31[^;];%lf;%lf;%lf;%lf", g->model, g->kv, &g->kl, &g->flips, &g->ppl, &g->ppl_ref) ==
            6)
            n++;
    }
    fclose(f);
    return n;
}

static void within(const char *what, const struct golden *g, double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%s of %s on %s: got %.6g, golden %.6g +- %.2g", what, g->kv, g->model, got, want, tolerance);
}

/* Few positions: the last bit of a sum flips codes and moves a mean. From one level to another the means of the golden rows move by
 * at most 7 %, and four positions flip. */
static void check_model(const char *name, const struct golden *rows, int n) {
    struct kvt_model *model = load(name);
    struct kvt_ids ids = golden_text(model);
    struct kvt_fidelity_case kv[16] = {{.kv = NULL}};
    const struct golden *own[16];
    int n_kv = 0;
    for (int i = 0; i < n; i++)
        if (strcmp(rows[i].model, name) == 0) kv[n_kv].kv = rows[i].kv, own[n_kv++] = &rows[i];
    assert_true(n_kv >= 3);
    const struct kvt_fidelity_options o = {.cases = kv,
                                           .n_cases = n_kv,
                                           .ids = ids.data,
                                           .n_ids = ids.len,
                                           .chunk = CHUNK,
                                           .n_chunks = N_CHUNKS,
                                           .first_id = -1};
    struct kvt_fidelity_result r;
    struct kvt_error err;
    if (kvt_fidelity_run(&r, model, &o, &err) != KVT_OK) fail_msg("%s", err.text);
    assert_int_equal(r.n_positions, N_CHUNKS * (CHUNK - 1));
    for (int i = 0; i < n_kv; i++) {
        const struct kvt_fidelity_row *row = &r.rows[i];
        assert_string_equal(row->kv, kv[i].kv);
        within("reference perplexity", own[i], r.ppl_ref[KVT_LEG_PREFILL], own[i]->ppl_ref, 5e-3);
        within("KL", own[i], row->kl.mean, own[i]->kl, 0.08 * own[i]->kl);
        within("flips", own[i], row->flips, own[i]->flips, own[i]->kl > 0 ? 8.5 / (N_CHUNKS * (CHUNK - 1)) : 0);
        within("perplexity", own[i], row->ppl, own[i]->ppl, 5e-3 + 0.06 * sqrt(own[i]->kl) * own[i]->ppl);
    }
    kvt_fidelity_finish(&r);
    kvt_ids_finish(&ids);
    kvt_model_destroy(model);
}

static void golden_figures_hold(void **state) {
    (void)state;
    struct golden rows[32];
    const int n = read_golden(rows, 32);
    check_model("plain", rows, n);
    check_model("biased", rows, n);
}

static void threads_change_nothing(void **state) {
    (void)state;
    struct kvt_model *model = load("biased");
    struct kvt_ids ids = golden_text(model);
    const struct kvt_fidelity_case kv[] = {{.kv = "affine4g64"}};
    const struct kvt_parallel two = test_parallel(2);
    struct kvt_fidelity_options o = {
        .cases = kv, .n_cases = 1, .ids = ids.data, .n_ids = ids.len, .chunk = 64, .n_chunks = 1, .first_id = -1};
    struct kvt_fidelity_result a, b;
    assert_int_equal(kvt_fidelity_run(&a, model, &o, NULL), KVT_OK);
    o.parallel = &two;
    assert_int_equal(kvt_fidelity_run(&b, model, &o, NULL), KVT_OK);
    assert_true(a.rows[0].kl.mean > 0);
    assert_memory_equal(&a.rows[0].kl, &b.rows[0].kl, sizeof a.rows[0].kl);
    assert_true(a.rows[0].ppl == b.rows[0].ppl && a.ppl_ref[0] == b.ppl_ref[0]);
    kvt_fidelity_finish(&a);
    kvt_fidelity_finish(&b);
    kvt_ids_finish(&ids);
    kvt_model_destroy(model);
}

/* ---- texts ------------------------------------------------------------------------------------------------------------ */

static void a_text_begins_with_bos_and_stays_text(void **state) {
    (void)state;
    struct kvt_model *model = load("plain");
    struct kvt_ids ids;
    const char text[] = "Call me <|endoftext|>.";
    kvt_ids_init(&ids, NULL);
    assert_int_equal(kvt_fidelity_read_text(&ids, text, sizeof text - 1, model, NULL), KVT_OK);
    assert_true(ids.len > 6);
    assert_int_equal(ids.data[0], 0);
    for (size_t i = 1; i < ids.len; i++) assert_int_not_equal(ids.data[i], 0);
    kvt_ids_finish(&ids);
    kvt_model_destroy(model);
}

static struct kvt_ids sample(const struct kvt_model *model, uint64_t seed) {
    const struct kvt_self_options o = {.n = 40, .chunk = 16, .seed = seed};
    struct kvt_ids ids;
    kvt_ids_init(&ids, NULL);
    assert_int_equal(kvt_fidelity_sample(&ids, model, &o, NULL), KVT_OK);
    assert_int_equal(ids.len, 40);
    return ids;
}

static void the_model_writes_its_own_text(void **state) {
    (void)state;
    struct kvt_model *model = load("plain");
    struct kvt_ids a = sample(model, 1), again = sample(model, 1), b = sample(model, 2);
    assert_memory_equal(a.data, again.data, 40 * sizeof *a.data);
    assert_memory_not_equal(a.data, b.data, 40 * sizeof *a.data);
    for (int i = 0; i < 40; i++) assert_in_range(a.data[i], 0, kvt_model_info(model).n_vocab - 1);
    for (int i = 0; i < 40; i += 16) assert_int_equal(a.data[i], 0); /* each chunk is a text of its own */
    assert_memory_not_equal(a.data, a.data + 16, 16 * sizeof *a.data);
    kvt_ids_finish(&a);
    kvt_ids_finish(&again);
    kvt_ids_finish(&b);
    kvt_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_figures_hold),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(a_text_begins_with_bos_and_stays_text),
        cmocka_unit_test(the_model_writes_its_own_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
