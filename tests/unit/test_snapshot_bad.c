/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots that must be refused: cut, flipped, of another plan, made to deceive. Each with a sentence that says what is wrong, and
 * nothing half loaded.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"
#include "cache/snapshot.h"
#include "support/made_cache.h"
#include "support/reseal.h"

/* A page is 64 + 128 * (8 + 8) * 2 bytes in 16 bits. */
static const struct kvt_layer_shape tiny[] = {{1, 8, 8, 0}, {1, 8, 8, 0}};
static const struct kvt_plan_options plan = {.kv = "kivi4g32", .sink = 128, .tail = 9};

struct bad {
    struct made_cache cache;
    unsigned char *data, *copy;
    size_t bytes;
    struct kvt_error err;
};

static void open(struct bad *b, int n_rows) {
    made_cache_open(&b->cache, 2, tiny, plan);
    struct kvt_seq *seq = made_cache_seq(&b->cache);
    if (n_rows) made_cache_feed(&b->cache, seq, n_rows);
    b->data = made_cache_save(seq, "0123456789", 10, &b->bytes);
    b->copy = malloc(b->bytes + 64);
    assert_non_null(b->copy);
    memcpy(b->copy, b->data, b->bytes);
    kvt_seq_destroy(seq);
}

static void close(struct bad *b) {
    free(b->data);
    free(b->copy);
    made_cache_close(&b->cache);
}

/* Opens and loads `bytes` of the copy. A refusal leaves nothing. */
static enum kvt_status try_load(struct bad *b, size_t bytes, int64_t max_rows) {
    struct kvt_snapshot *snapshot = NULL;
    struct kvt_seq *seq = NULL;
    b->err = (struct kvt_error){KVT_OK, ""};
    /* A block of just these bytes, so that the sanitizer sees one too far. */
    unsigned char *exact = malloc(bytes ? bytes : 1);
    assert_non_null(exact);
    memcpy(exact, b->copy, bytes);
    enum kvt_status status = kvt_snapshot_open_memory(&snapshot, exact, bytes, &b->cache.allocator, &b->err);
    if (status == KVT_OK) status = kvt_seq_load(&seq, b->cache.pool, snapshot, max_rows, &b->err);
    if (status != KVT_OK) {
        assert_null(seq);
        assert_int_equal(b->err.code, status);
        assert_true(strlen(b->err.text) > 20);
        assert_int_equal(kvt_pool_bytes(b->cache.pool), 0);
    }
    kvt_snapshot_close(snapshot);
    kvt_seq_destroy(seq);
    free(exact);
    return status;
}

static void test_cut(void **state) {
    (void)state;
    struct bad b;
    open(&b, 300);
    for (size_t n = 0; n < b.bytes; n += n < 1200 ? 1 : 61) {
        assert_int_equal(try_load(&b, n, 300), KVT_ERR_FORMAT);
        if (n >= sizeof(struct kvt_snap_header)) assert_non_null(strstr(b.err.text, "is cut or padded: it has"));
    }
    memset(b.copy + b.bytes, 0, 64);
    assert_int_equal(try_load(&b, b.bytes + 64, 300), KVT_ERR_FORMAT);
    assert_int_equal(try_load(&b, b.bytes, 300), KVT_OK);
    close(&b);
}

/* One bit, anywhere. */
static void test_flipped(void **state) {
    (void)state;
    struct bad b;
    struct kvt_rng rng = {5};
    open(&b, 300);
    for (size_t i = 0; i < b.bytes; i++) {
        const unsigned char bit = (unsigned char)(1u << kvt_rng_below(&rng, 8));
        for (unsigned char try = i < 800 ? 1 : bit; try; try = i < 800 ? (unsigned char)(try << 1) : 0) {
            b.copy[i] ^= try;
            const enum kvt_status status = try_load(&b, b.bytes, 300);
            assert_true(status == KVT_ERR_FORMAT || (status == KVT_ERR_UNSUPPORTED && i >= 8 && i < 16));
            b.copy[i] ^= try;
        }
    }
    close(&b);
}

static void test_says_what_is_damaged(void **state) {
    (void)state;
    struct bad b;
    open(&b, 300);
    const size_t header = sizeof(struct kvt_snap_header) + 2 * sizeof(struct kvt_snap_layer);
    static const struct {
        size_t at; /* past the header */
        const char *says;
    } cases[] = {{3, "its blob has checksum"},
                 {20, "past its blob, is not 0"},
                 {64 + 2, "begins no page of layer 0, sink, tile 0"},
                 {64 + 64 + 5, "the page of layer 0, sink, tile 0 has checksum"}};
    for (size_t i = 0; i < KVT_ARRAY_LEN(cases); i++) {
        b.copy[header + cases[i].at] ^= 1;
        assert_int_equal(try_load(&b, b.bytes, 300), KVT_ERR_FORMAT);
        if (!strstr(b.err.text, cases[i].says)) fail_msg("%s", b.err.text);
        b.copy[header + cases[i].at] ^= 1;
    }
    b.copy[100] ^= 1;
    assert_int_equal(try_load(&b, b.bytes, 300), KVT_ERR_FORMAT);
    assert_non_null(strstr(b.err.text, "its header has checksum"));
    close(&b);
}

static void test_other_plans(void **state) {
    (void)state;
    struct bad b;
    open(&b, 300);
    static const struct kvt_layer_shape wide[] = {{1, 8, 8, 0}, {1, 16, 8, 0}}, heads[] = {{2, 8, 8, 0}, {1, 8, 8, 0}},
                                        window[] = {{1, 8, 8, 0}, {1, 8, 8, 99}},
                                        tall[] = {{1, 8, 8, 0}, {1, 8, 24, 0}};
    static const struct {
        int n_layers;
        const struct kvt_layer_shape *layers;
        struct kvt_plan_options options;
        const char *says;
    } cases[] = {
        {1, tiny, {.kv = "kivi4g32", .sink = 128, .tail = 9}, "it has 2 layers, this cache has 1"},
        {2, heads, {.kv = "kivi4g32", .sink = 128, .tail = 9}, "layer 0 has 1 KV heads, this cache has 2"},
        {2, wide, {.kv = "kivi4g32", .sink = 128, .tail = 9}, "layer 1 has 8 elements in a K row, this cache has 16"},
        {2, tall, {.kv = "kivi4g32", .sink = 128, .tail = 9}, "layer 1 has 8 elements in a V row, this cache has 24"},
        {2, window, {.kv = "kivi4g32", .sink = 128, .tail = 9}, "layer 1 has 0 rows in its window, this cache has 99"},
        {2,
         tiny,
         {.kv = "f16,kivi4g32", .sink = 128, .tail = 9},
         "layer 0 has keys in kivi4g32, this cache has them in f16"},
        {2,
         tiny,
         {.kv = "kivi4g32,kivi4g64", .sink = 128, .tail = 9},
         "values in kivi4g32, this cache has them in kivi4g64"},
        {2, tiny, {.kv = "kivi4g32", .tail = 9}, "layer 0 has 128 rows of sink, this cache has 0"},
        {2, tiny, {.kv = "kivi4g32", .sink = 128, .tail = 8}, "layer 0 has 9 rows of tail, this cache has 8"},
        {2,
         tiny,
         {.kv = "kivi4g32", .sink = 128, .tail = 9, .start = 7},
         "layer 0 has 0 rows before encoding starts, this cache has 7"},
        {2,
         tiny,
         {.kv = "kivi4g32", .sink = 128, .tail = 9, .rolling = 500},
         "layer 0 has 0 rows that a query sees past the sink, this cache has 372"},
    };
    for (size_t i = 0; i < KVT_ARRAY_LEN(cases); i++) {
        struct made_cache other;
        struct kvt_snapshot *snapshot;
        struct kvt_seq *seq = NULL;
        made_cache_open(&other, cases[i].n_layers, cases[i].layers, cases[i].options);
        assert_int_equal(kvt_snapshot_open_memory(&snapshot, b.data, b.bytes, NULL, NULL), KVT_OK);
        assert_int_equal(kvt_seq_load(&seq, other.pool, snapshot, 300, &b.err), KVT_ERR_ARG);
        assert_null(seq);
        if (!strstr(b.err.text, cases[i].says)) fail_msg("%s", b.err.text);
        kvt_snapshot_close(snapshot);
        made_cache_close(&other);
    }
    close(&b);
}

static void test_limits(void **state) {
    (void)state;
    struct bad b;
    open(&b, 300);
    assert_int_equal(try_load(&b, b.bytes, 299), KVT_ERR_LIMIT);
    assert_non_null(strstr(b.err.text, "has 300 rows: they do not fit in a sequence of 299"));
    assert_int_equal(try_load(&b, b.bytes, INT64_MAX), KVT_ERR_ARG);
    b.cache.pool->byte_limit = kvt_plan_bytes(b.cache.plan, 300) - 1;
    assert_int_equal(try_load(&b, b.bytes, 300), KVT_ERR_LIMIT);
    b.cache.pool->byte_limit++;
    assert_int_equal(try_load(&b, b.bytes, 300), KVT_OK);
    close(&b);
    open(&b, 0);
    assert_int_equal(try_load(&b, b.bytes, 1), KVT_OK);
    close(&b);
}

/* Right checksums over wrong numbers. */
static void test_deceiving(void **state) {
    (void)state;
    struct bad b;
    open(&b, 300);
    static const struct {
        size_t at, bytes;
        uint64_t value;
        const char *says;
    } cases[] = {
        {offsetof(struct kvt_snap_header, n_layers), 4, 0, "for 0 layers"},
        {offsetof(struct kvt_snap_header, n_layers), 4, 0xFFFFFFFF, "for 4294967295 layers"},
        {offsetof(struct kvt_snap_header, header_bytes), 8, 192, "a header of 192 bytes for 2 layers"},
        {offsetof(struct kvt_snap_header, n_rows), 8, UINT64_MAX, "has -1 rows"},
        {offsetof(struct kvt_snap_header, n_rows), 8, UINT64_C(1) << 62, "has 4611686018427387904 rows"},
        {offsetof(struct kvt_snap_header, n_rows), 8, 301, NULL}, /* its pages are there */
        {offsetof(struct kvt_snap_header, n_rows), 8, 400, "16 bits from row"},
        {offsetof(struct kvt_snap_header, n_rows), 8, 100, "16 bits from row"},
        {offsetof(struct kvt_snap_header, n_pages), 8, 1, "says that it has 1 pages: its 300 rows have 8"},
        {offsetof(struct kvt_snap_header, blob_bytes), 8, UINT64_MAX, "a blob of 18446744073709551615 bytes"},
        {offsetof(struct kvt_snap_header, blob_bytes), 8, UINT64_C(1) << 63, "a blob of 9223372036854775808 bytes"},
        {offsetof(struct kvt_snap_header, version), 4, 2, "of version 2: this library reads version 1"},
        {offsetof(struct kvt_snap_header, tile_version), 4, 9, "tiles of version 9"},
        {offsetof(struct kvt_snap_header, kv), 8, 0, NULL}, /* names the plan for people, no more */
        {192 + offsetof(struct kvt_snap_layer, wide_from), 8, 0, "16 bits from row 0 on"},
        {192 + offsetof(struct kvt_snap_layer, wide_from), 8, 289, "16 bits from row 289 on"},
        {192 + offsetof(struct kvt_snap_layer, wide_from), 8, 255, "16 bits from row 255 on"},
        {192 + offsetof(struct kvt_snap_layer, wide_from), 8, UINT64_C(1) << 63,
         "16 bits from row -9223372036854775808 on"},
        {192 + offsetof(struct kvt_snap_layer, k_basis), 4, 1, "layer 0 has 1 rotations of K rows"},
        {192 + offsetof(struct kvt_snap_layer, k_tile), 4, 7, "layer 0 has 7 bytes in a K tile"},
        {576 + 64 + offsetof(struct kvt_snap_page, bytes), 8, UINT64_MAX, "begins no page"},
        {576 + 64 + offsetof(struct kvt_snap_page, bytes), 8, 64, "begins no page"},
        {576 + 64 + offsetof(struct kvt_snap_page, tile), 8, 1, "begins no page"},
    };
    for (size_t i = 0; i < KVT_ARRAY_LEN(cases); i++) {
        memcpy(b.copy, b.data, b.bytes);
        memcpy(b.copy + cases[i].at, &cases[i].value, cases[i].bytes);
        kvt_reseal(b.copy, b.bytes);
        const enum kvt_status status = try_load(&b, b.bytes, 1000);
        if ((status == KVT_OK) != !cases[i].says || (cases[i].says && !strstr(b.err.text, cases[i].says)))
            fail_msg("case %zu: %s", i, b.err.text);
    }
    /* A NaN in a row that will be encoded later: the tail of layer 1 is the last page, its first tile [channel][32 rows]. */
    memcpy(b.copy, b.data, b.bytes);
    const struct kvt_page_shape *last = &b.cache.pool->plan->layers[1].page[KVT_REGION_TAIL];
    const size_t tail = b.bytes - last->head_bytes, block = 8 * 32 * 2, row = 290 - 256, channel = 5;
    memcpy(b.copy + tail + row / 32 * block + (channel * 32 + row % 32) * 2, &(uint16_t){0x7E00}, 2);
    kvt_reseal(b.copy, b.bytes);
    assert_int_equal(try_load(&b, b.bytes, 300), KVT_ERR_FORMAT);
    if (!strstr(b.err.text, "nan in layer 1, K, KV head 0, position 290, channel 5")) fail_msg("%s", b.err.text);
    /* A plan's name that never ends. */
    memcpy(b.copy, b.data, b.bytes);
    memset(b.copy + offsetof(struct kvt_snap_header, kv), 'x', 80);
    kvt_reseal(b.copy, b.bytes);
    assert_int_equal(try_load(&b, b.bytes, 300), KVT_ERR_FORMAT);
    assert_non_null(strstr(b.err.text, "name does not end"));
    /* Pages that end early, and a page too many. */
    memcpy(b.copy, b.data, b.bytes);
    kvt_reseal(b.copy, b.bytes - 64);
    assert_int_equal(try_load(&b, b.bytes - 64, 300), KVT_ERR_FORMAT);
    assert_non_null(strstr(b.err.text, "ends within the page of layer 1, tail, tile 2"));
    memcpy(b.copy, b.data, b.bytes);
    memset(b.copy + b.bytes, 0, 64);
    kvt_reseal(b.copy, b.bytes + 64);
    assert_int_equal(try_load(&b, b.bytes + 64, 300), KVT_ERR_FORMAT);
    assert_non_null(strstr(b.err.text, "has 64 bytes past its last page"));
    close(&b);
}

static void test_in_a_step(void **state) {
    (void)state;
    struct made_cache m;
    struct kvt_error err;
    char few[8];
    made_cache_open(&m, 2, tiny, plan);
    struct kvt_seq *seq = made_cache_seq(&m), *fork = NULL;
    assert_int_equal(kvt_step_begin(m.step, &seq, &(int){3}, 1, NULL), KVT_OK);
    assert_int_equal(kvt_seq_save_memory(seq, few, sizeof few, NULL, 0, &err), KVT_ERR_STATE);
    assert_int_equal(kvt_seq_fork(&fork, seq, &err), KVT_ERR_STATE);
    assert_int_equal(kvt_seq_trim(seq, 0, NULL, &err), KVT_ERR_STATE);
    kvt_step_abandon(m.step);
    kvt_seq_destroy(seq);
    made_cache_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut),         cmocka_unit_test(test_flipped),
        cmocka_unit_test(test_other_plans), cmocka_unit_test(test_says_what_is_damaged),
        cmocka_unit_test(test_limits),      cmocka_unit_test(test_deceiving),
        cmocka_unit_test(test_in_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
