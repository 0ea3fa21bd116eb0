/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots: equal sequences give equal bytes, and a loaded sequence goes on as the one that was saved.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "cache/cache.h"
#include "support/fail_each.h"
#include "support/made_cache.h"

static struct kvt_seq *load(struct made_cache *m, const void *data, size_t bytes) {
    struct kvt_snapshot *snapshot;
    struct kvt_seq *seq = NULL;
    struct kvt_error err = {KVT_OK, ""};
    if (kvt_snapshot_open_memory(&snapshot, data, bytes, &m->allocator, &err) != KVT_OK ||
        kvt_seq_load(&seq, m->pool, snapshot, MADE_MAX_ROWS, &err) != KVT_OK)
        fail_msg("%s", err.text);
    kvt_snapshot_close(snapshot);
    return seq;
}

/* Two sequences that should be the same go on the same way. */
static void go_on(struct made_cache *m, struct kvt_seq *a, struct kvt_seq *b) {
    static const int chunks[] = {1, 37, 100};
    made_cache_same(a, b);
    for (size_t i = 0; i < KVT_ARRAY_LEN(chunks); i++)
        assert_int_equal(made_cache_attend(m, a, chunks[i]), made_cache_attend(m, b, chunks[i]));
    made_cache_same(a, b);
    bool exact[2] = {true, true}; /* a trim may pass a window: then it does for both */
    const int64_t to = kvt_seq_n_rows(a) - 60;
    assert_int_equal(kvt_seq_trim(a, to, &exact[0], NULL), kvt_seq_trim(b, to, &exact[1], NULL));
    assert_int_equal(exact[0], exact[1]);
    assert_int_equal(made_cache_attend(m, a, 50), made_cache_attend(m, b, 50));
    made_cache_same(a, b);
}

static void check_round_trip(struct kvt_plan_options options, const struct kvt_layer_shape *layers, int n_layers,
                             int n_rows) {
    struct made_cache m;
    made_cache_open(&m, n_layers, layers, options);
    struct kvt_seq *once = made_cache_seq(&m), *cut = made_cache_seq(&m);
    if (n_rows > 0) made_cache_feed(&m, once, n_rows);
    for (int left = n_rows, n = 1; left > 0; left -= n, n = n * 2 % 101) {
        n = n < left ? n : left;
        made_cache_feed(&m, cut, n);
    }
    made_cache_same(once, cut);
    size_t bytes;
    void *data = made_cache_save(cut, NULL, 0, &bytes);
    struct kvt_seq *loaded = load(&m, data, bytes);
    assert_int_equal(kvt_seq_n_rows(loaded), n_rows);
    assert_int_equal(kvt_pool_bytes(m.pool), 3 * kvt_plan_bytes(m.plan, n_rows));
    go_on(&m, once, loaded);
    free(data);
    kvt_seq_destroy(once);
    kvt_seq_destroy(cut);
    kvt_seq_destroy(loaded);
    made_cache_close(&m);
}

static const struct kvt_layer_shape small[] = {{2, 24, 40, 0}, {1, 32, 8, 0}};
static const struct kvt_layer_shape windowed[] = {{1, 16, 16, 0}, {1, 16, 24, 100}};

static void test_every_codec(void **state) {
    (void)state;
    for (size_t c = 0; c < kvt_codec_count(); c++) {
        const struct kvt_codec *codec = kvt_codec_at(c);
        const char *name = kvt_codec_info(codec).name;
        bool fits[KVT_SIDE_COUNT] = {true, true};
        for (int l = 0; l < 2; l++) {
            fits[0] &= kvt_codec_fits(codec, KVT_SIDE_K, small[l].k_size, NULL) == KVT_OK;
            fits[1] &= kvt_codec_fits(codec, KVT_SIDE_V, small[l].v_size, NULL) == KVT_OK;
        }
        char kv[80];
        snprintf(kv, sizeof kv, "%s,%s", fits[0] ? name : "f16", fits[1] ? name : "f16");
        check_round_trip((struct kvt_plan_options){.kv = kv, .sink = c % 2 ? 128 : 0, .tail = c % 3 ? 11 : 0}, small, 2,
                         170);
    }
}

static void test_lengths_and_plans(void **state) {
    (void)state;
    static const struct kvt_plan_options plans[] = {
        {.kv = "kivi4g32", .sink = 128, .tail = 20},
        {.kv = "affine4"},
        {.kv = "f16,kivi2g64", .tail = 130},
        {.kv = "kivi4g32", .tail = 16, .start = 200},
        {.kv = "affine3", .sink = 128, .tail = 3, .rolling = 280},
    };
    static const int lengths[] = {0, 1, 127, 128, 129, 200, 275, 384, 500};
    for (size_t p = 0; p < KVT_ARRAY_LEN(plans); p++)
        for (size_t i = 0; i < KVT_ARRAY_LEN(lengths); i++) check_round_trip(plans[p], windowed, 2, lengths[i]);
}

/* A step of n rows that is given up after all its rows were written. */
static void abandon(struct made_cache *m, struct kvt_seq *seq, int n) {
    static const float ones[64] = {1, 1, 1, 1, 1, 1, 1, 1};
    const struct kvt_rows rows = {ones, KVT_TYPE_F32, 0, 0};
    assert_int_equal(kvt_step_begin(m->step, &seq, &n, 1, NULL), KVT_OK);
    for (int l = 0; l < kvt_plan_n_layers(m->plan); l++)
        assert_int_equal(kvt_step_append(m->step, l, &rows, &rows, NULL, 0, NULL), KVT_OK);
    kvt_step_abandon(m->step);
}

/* Bytes that do not belong to the sequence must not show: what an abandoned step, a trim or a longer life left in pages. */
static void test_what_is_past_the_end_is_not_saved(void **state) {
    (void)state;
    static const char *const kvs[] = {"kivi4g32", "affine5", "f16"};
    for (size_t i = 0; i < KVT_ARRAY_LEN(kvs); i++) {
        struct made_cache m;
        made_cache_open(&m, 2, small, (struct kvt_plan_options){.kv = kvs[i], .tail = 40});
        struct kvt_seq *plain = made_cache_seq(&m), *used = made_cache_seq(&m);
        bool exact = false;
        made_cache_feed(&m, plain, 296);
        made_cache_feed(&m, used, 310);
        assert_int_equal(kvt_seq_trim(used, 296, &exact, NULL), KVT_OK);
        assert_true(exact);
        made_cache_same(plain, used);
        abandon(&m, used, 120);
        made_cache_same(plain, used);
        kvt_seq_destroy(plain);
        kvt_seq_destroy(used);
        made_cache_close(&m);
    }
}

/* Nor what lies in a page of the tail before the first row that is really there. */
static void test_what_is_before_the_tail_is_not_saved(void **state) {
    (void)state;
    static const float ones[64] = {1, 1, 1};
    struct made_cache m;
    made_cache_open(&m, 2, small, (struct kvt_plan_options){.kv = "kivi4g32"});
    struct kvt_seq *plain = made_cache_seq(&m), *dirty = made_cache_seq(&m);
    for (int i = 0; i < 2; i++) {
        made_cache_feed(&m, i ? dirty : plain, 160); /* a whole number of groups: no tail */
        made_cache_feed(&m, i ? dirty : plain, 5);
    }
    const struct kvt_page_shape *shape = &m.pool->plan->layers[1].page[KVT_REGION_TAIL];
    const struct kvt_page *page = dirty->layers[1].list[KVT_REGION_TAIL].pages[1];
    assert_int_equal(dirty->layers[1].wide_from, 160);
    kvt_tile_put_numbers(&shape->tile[KVT_SIDE_K], kvt_page_tile(page, shape, 0, KVT_SIDE_K), 159 - 128, ones);
    made_cache_same(plain, dirty);
    kvt_tile_put_numbers(&shape->tile[KVT_SIDE_K], kvt_page_tile(page, shape, 0, KVT_SIDE_K), 160 - 128, ones);
    size_t n;
    unsigned char *a = made_cache_save(plain, NULL, 0, &n), *b = made_cache_save(dirty, NULL, 0, &n);
    assert_memory_not_equal(a, b, n);
    free(a);
    free(b);
    kvt_seq_destroy(plain);
    kvt_seq_destroy(dirty);
    made_cache_close(&m);
}

/* Forks share pages; a trim deep into the body leaves rows that only this sequence has. Both are saved whole. */
static void test_forks_and_deep_trims(void **state) {
    (void)state;
    struct made_cache m;
    made_cache_open(&m, 2, small, (struct kvt_plan_options){.kv = "kivi4g32", .tail = 70});
    struct kvt_seq *seq = made_cache_seq(&m), *fork;
    bool exact;
    made_cache_feed(&m, seq, 360);
    assert_int_equal(kvt_seq_fork(&fork, seq, NULL), KVT_OK);
    assert_int_equal(kvt_seq_trim(fork, 290, &exact, NULL), KVT_OK);
    assert_false(exact);
    const uint64_t shared = kvt_pool_bytes(m.pool);
    size_t bytes;
    void *data = made_cache_save(fork, NULL, 0, &bytes);
    assert_int_equal(kvt_pool_bytes(m.pool), shared);
    struct kvt_seq *loaded = load(&m, data, bytes);
    assert_int_equal(kvt_pool_bytes(m.pool), shared + kvt_plan_bytes(m.plan, 290));
    go_on(&m, fork, loaded);
    assert_int_equal(kvt_seq_n_rows(seq), 360);
    free(data);
    kvt_seq_destroy(seq);
    kvt_seq_destroy(fork);
    kvt_seq_destroy(loaded);
    made_cache_close(&m);
}

static void test_blob(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 1000};
    struct made_cache m;
    made_cache_open(&m, 1, small, (struct kvt_plan_options){.kv = "affine4"});
    struct kvt_seq *seq = made_cache_seq(&m);
    made_cache_feed(&m, seq, 5);
    for (size_t i = 0; i < KVT_ARRAY_LEN(sizes); i++) {
        unsigned char blob[1000];
        struct kvt_snapshot *snapshot;
        struct kvt_error err;
        size_t bytes;
        for (size_t k = 0; k < sizes[i]; k++) blob[k] = (unsigned char)(k * 7 + 1);
        unsigned char *data = made_cache_save(seq, sizes[i] ? blob : NULL, sizes[i], &bytes);
        assert_int_equal(bytes % 64, 0);
        assert_int_equal(kvt_snapshot_open_memory(&snapshot, data, bytes, NULL, &err), KVT_OK);
        const struct kvt_snapshot_info info = kvt_snapshot_info(snapshot);
        assert_int_equal(info.n_rows, 5);
        assert_int_equal(info.n_layers, 1);
        assert_int_equal(info.bytes, bytes);
        assert_string_equal(info.kv, "affine4g64");
        assert_int_equal(info.blob_bytes, sizes[i]);
        if (sizes[i]) assert_memory_equal(info.blob, blob, sizes[i]);
        kvt_snapshot_close(snapshot);
        free(data);
    }
    struct kvt_error err;
    char few[100];
    assert_int_equal(kvt_seq_save_memory(seq, few, sizeof few, NULL, 0, &err), KVT_ERR_ARG);
    assert_int_equal(kvt_seq_save_memory(seq, few, sizeof few, NULL, 5, &err), KVT_ERR_ARG);
    kvt_seq_destroy(seq);
    made_cache_close(&m);
}

/* ---- files ------------------------------------------------------------------------------------------------------------- */

static const char path[] = "test_snapshot.kvt";

static const uint64_t golden_rows = 0xc5c1090e2a88092a; /* of the rows of tests/golden/snapshot/v1.kvt */

static uint64_t file_hash(void) {
    struct kvt_map map;
    assert_int_equal(kvt_map_open(&map, path, NULL), KVT_OK);
    const uint64_t hash = kvt_hash(map.data, map.bytes);
    kvt_map_close(&map);
    return hash;
}

static void test_file(void **state) {
    (void)state;
    struct made_cache m;
    struct kvt_error err;
    struct kvt_snapshot *snapshot = NULL;
    made_cache_open(&m, 2, small, (struct kvt_plan_options){.kv = "kivi4g32", .sink = 128, .tail = 5});
    struct kvt_seq *seq = made_cache_seq(&m), *loaded;
    unlink(path);
    assert_int_equal(kvt_snapshot_open(&snapshot, path, NULL, &err), KVT_ERR_IO);
    assert_non_null(strstr(err.text, path));
    made_cache_feed(&m, seq, 250);
    assert_int_equal(kvt_seq_save(seq, path, "hello", 5, &err), KVT_OK);
    size_t bytes;
    void *data = made_cache_save(seq, "hello", 5, &bytes);
    assert_int_equal(file_hash(), kvt_hash(data, bytes));
    free(data);
    assert_int_equal(kvt_snapshot_open(&snapshot, path, &m.allocator, &err), KVT_OK);
    assert_memory_equal(kvt_snapshot_info(snapshot).blob, "hello", 5);
    /* An open snapshot stays what it was when its file is replaced. */
    made_cache_feed(&m, seq, 30);
    assert_int_equal(kvt_seq_save(seq, path, NULL, 0, &err), KVT_OK);
    assert_int_equal(kvt_seq_load(&loaded, m.pool, snapshot, MADE_MAX_ROWS, &err), KVT_OK);
    assert_int_equal(kvt_seq_n_rows(loaded), 250);
    made_cache_feed(&m, loaded, 30);
    made_cache_same(seq, loaded);
    kvt_snapshot_close(snapshot);
    assert_int_equal(kvt_seq_save(seq, "no/such/folder/x.kvt", NULL, 0, &err), KVT_ERR_IO);
    assert_non_null(strstr(err.text, "no/such/folder"));
    unlink(path);
    kvt_seq_destroy(seq);
    kvt_seq_destroy(loaded);
    made_cache_close(&m);
}

/* Where the disk is full at any point, the old file stays and no other is left. */
static void test_full_disk(void **state) {
    (void)state;
    struct made_cache m;
    struct rlimit old;
    made_cache_open(&m, 2, small, (struct kvt_plan_options){.kv = "f16"});
    struct kvt_seq *seq = made_cache_seq(&m);
    made_cache_feed(&m, seq, 100);
    assert_int_equal(kvt_seq_save(seq, path, NULL, 0, NULL), KVT_OK);
    const uint64_t hash = file_hash();
    made_cache_feed(&m, seq, 300);
    const uint64_t bytes = kvt_seq_save_bytes(seq, 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    for (uint64_t limit = 0; limit < bytes; limit = limit * 3 + 50) {
        struct kvt_error err;
        const struct rlimit small_limit = {(rlim_t)limit, old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small_limit), 0);
        const enum kvt_status status = kvt_seq_save(seq, path, NULL, 0, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(status, KVT_ERR_IO);
        assert_non_null(strstr(err.text, "the old file, if any, is unchanged"));
        assert_int_equal(file_hash(), hash);
    }
    signal(SIGXFSZ, handler);
    assert_int_equal(kvt_seq_save(seq, path, NULL, 0, NULL), KVT_OK);
    assert_true(file_hash() != hash);
    unlink(path);
    kvt_seq_destroy(seq);
    made_cache_close(&m);
}

/* A file of version 1 that was written once must always load, and decode to the same. KVT_RECORD=1 writes it anew: a change of the
 * format needs a new version and a new file beside this one. */
static void test_old_file(void **state) {
    (void)state;
    static const char golden[] = KVT_ROOT "/tests/golden/snapshot/v1.kvt";
    static const struct kvt_layer_shape layers[] = {{1, 8, 16, 0}, {2, 16, 8, 60}};
    struct made_cache m;
    struct kvt_error err = {KVT_OK, ""};
    struct kvt_snapshot *snapshot;
    struct kvt_seq *seq;
    made_cache_open(&m, 2, layers, (struct kvt_plan_options){.kv = "kivi4g32,affine3g32", .sink = 128, .tail = 5});
    if (getenv("KVT_RECORD")) {
        seq = made_cache_seq(&m);
        made_cache_feed(&m, seq, 209);
        assert_int_equal(kvt_seq_save(seq, golden, "version 1", 9, NULL), KVT_OK);
        kvt_seq_destroy(seq);
    }
    if (kvt_snapshot_open(&snapshot, golden, NULL, &err) != KVT_OK ||
        kvt_seq_load(&seq, m.pool, snapshot, 300, &err) != KVT_OK)
        fail_msg("%s", err.text);
    assert_int_equal(kvt_seq_n_rows(seq), 209);
    assert_memory_equal(kvt_snapshot_info(snapshot).blob, "version 1", 9);
    uint64_t hash = 0;
    for (int l = 0; l < 2; l++)
        for (int side = 0; side < KVT_SIDE_COUNT; side++) {
            float x[209 * 16] = {0};
            const int64_t first = l ? 209 - 60 : 0;
            assert_int_equal(kvt_seq_read(seq, l, (enum kvt_side)side, l, first, 209 - first, x, 16, NULL), KVT_OK);
            hash = hash * 31 + kvt_hash(x, sizeof x);
        }
    if (hash != golden_rows) fail_msg("the rows of %s have hash %#llx", golden, (unsigned long long)hash);
    kvt_snapshot_close(snapshot);
    kvt_seq_destroy(seq);
    made_cache_close(&m);
}

/* Save, open and load, each want of memory in turn. */
static enum kvt_status save_and_load(void *ctx, const struct kvt_allocator *allocator) {
    static char data[400000];
    const struct kvt_plan *plan = ctx;
    const struct kvt_pool_options po = {.struct_size = sizeof po, .allocator = allocator};
    struct kvt_pool *pool = NULL;
    struct kvt_step *step = NULL;
    struct kvt_seq *seq = NULL, *loaded = NULL;
    struct kvt_snapshot *snapshot = NULL;
    static const float zeros[64];
    const struct kvt_rows rows = {zeros, KVT_TYPE_F32, 0, 0};
    enum kvt_status status = kvt_pool_create(&pool, plan, &po, NULL);
    if (status == KVT_OK) status = kvt_step_create(&step, pool, 1, 300, NULL);
    if (status == KVT_OK) status = kvt_seq_create(&seq, pool, 300, NULL);
    if (status == KVT_OK) status = kvt_step_begin(step, &seq, &(int){300}, 1, NULL);
    if (status == KVT_OK) {
        for (int l = 0; l < 2; l++) assert_int_equal(kvt_step_append(step, l, &rows, &rows, NULL, 0, NULL), KVT_OK);
        assert_int_equal(kvt_step_end(step, NULL), KVT_OK);
        status = kvt_seq_save_memory(seq, data, sizeof data, NULL, 0, NULL);
    }
    if (status == KVT_OK) status = kvt_seq_save(seq, path, NULL, 0, NULL);
    const size_t bytes = seq ? (size_t)kvt_seq_save_bytes(seq, 0) : 0;
    if (status == KVT_OK) status = kvt_snapshot_open_memory(&snapshot, data, bytes, allocator, NULL);
    const uint64_t before = pool ? kvt_pool_bytes(pool) : 0;
    if (status == KVT_OK) {
        status = kvt_seq_load(&loaded, pool, snapshot, 300, NULL);
        if (status != KVT_OK) {
            assert_null(loaded);
            assert_int_equal(kvt_pool_bytes(pool), before);
        }
    }
    kvt_snapshot_close(snapshot);
    kvt_seq_destroy(loaded);
    kvt_seq_destroy(seq);
    kvt_step_destroy(step);
    kvt_pool_destroy(pool);
    unlink(path);
    return status;
}

static void test_no_memory(void **state) {
    (void)state;
    struct kvt_plan *plan;
    const struct kvt_plan_options options = {.struct_size = sizeof options, .kv = "kivi4g32", .tail = 20};
    assert_int_equal(kvt_plan_create(&plan, &(struct kvt_shape){2, small}, &options, NULL, NULL), KVT_OK);
    assert_true(kvt_fail_each(save_and_load, plan) > 20);
    kvt_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_codec),
        cmocka_unit_test(test_lengths_and_plans),
        cmocka_unit_test(test_what_is_past_the_end_is_not_saved),
        cmocka_unit_test(test_what_is_before_the_tail_is_not_saved),
        cmocka_unit_test(test_forks_and_deep_trims),
        cmocka_unit_test(test_blob),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_old_file),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
