/* SPDX-License-Identifier: Apache-2.0
 *
 * Queries beside rows that wait to be encoded: the bytes of a tile depend on its own rows and queries alone, and calls that give some and not
 * others are refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/attr.h"
#include "base/half.h"
#include "cache/cache.h"
#include "kvtile/snapshot.h"
#include "support/made_cache.h"

enum { HEADS = 2, GROUP = 3, D = 32, LAYERS = 2 };

static const struct kvt_layer_shape layers[LAYERS] = {{HEADS, D, D, 0}, {HEADS, D, 16, 0}};
static const struct kvt_plan_options options = {.kv = "kq3,vu2", .sink = 128, .tail = 40};

/* Rows of queries: channels are used unevenly, so that classes are not those of the ranges. */
static void query_row(int layer, int head, int64_t row, float *x) {
    made_cache_row(layer, KVT_SIDE_COUNT, head, row, D, x);
    for (int c = 0; c < D; c++) x[c] *= (float)(1 + c * 5 % 7);
}

static enum kvt_status append(struct made_cache *m, int l, int64_t first, int n, bool with, int n_q_heads,
                              struct kvt_error *err) {
    const int v_size = layers[l].v_size, q_heads = HEADS * GROUP;
    float *k = calloc((size_t)(n * HEADS * D), sizeof *k), *v = calloc((size_t)(n * HEADS * v_size), sizeof *v),
          *q = calloc((size_t)(n * q_heads * D), sizeof *q);
    for (int r = 0; r < n; r++) {
        for (int h = 0; h < HEADS; h++) {
            made_cache_row(l, KVT_SIDE_K, h, first + r, D, k + (r * HEADS + h) * D);
            made_cache_row(l, KVT_SIDE_V, h, first + r, v_size, v + (r * HEADS + h) * v_size);
        }
        for (int h = 0; h < q_heads; h++) query_row(l, h, first + r, q + (r * q_heads + h) * D);
    }
    const struct kvt_rows ks = {k, KVT_TYPE_F32, HEADS * D, D}, vs = {v, KVT_TYPE_F32, HEADS * v_size, v_size},
                          qs = {q, KVT_TYPE_F32, q_heads * D, D};
    const enum kvt_status status = kvt_step_append(m->step, l, &ks, &vs, with ? &qs : NULL, n_q_heads, err);
    free(k), free(v), free(q);
    return status;
}

static void feed(struct made_cache *m, struct kvt_seq *seq, int n, bool with) {
    const int64_t first = kvt_seq_n_rows(seq);
    assert_int_equal(kvt_step_begin(m->step, &seq, &n, 1, NULL), KVT_OK);
    for (int l = 0; l < LAYERS; l++) assert_int_equal(append(m, l, first, n, with, HEADS * GROUP, NULL), KVT_OK);
    assert_int_equal(kvt_step_end(m->step, NULL), KVT_OK);
}

static void check_pieces(const char *kv) {
    struct kvt_plan_options o = options;
    struct made_cache m;
    o.kv = kv;
    made_cache_open(&m, LAYERS, layers, o);
    struct kvt_seq *once = made_cache_seq(&m), *pieces = made_cache_seq(&m), *none = made_cache_seq(&m), *fork = NULL;
    static const int sizes[] = {1, 127, 40, 3, 200, 1, 1, 130};
    feed(&m, once, 660, true);
    feed(&m, none, 660, false);
    for (int i = 0, n; kvt_seq_n_rows(pieces) < 660; i++) {
        bool exact = false;
        n = KVT_MIN(sizes[i % (int)KVT_ARRAY_LEN(sizes)], 660 - (int)kvt_seq_n_rows(pieces));
        feed(&m, pieces, n + 5, true); /* five too many, which go again */
        assert_int_equal(kvt_seq_trim(pieces, kvt_seq_n_rows(pieces) - 5, &exact, NULL), KVT_OK);
        if (!exact) { /* the extra rows completed a tile: it does not come back as it was */
            kvt_seq_destroy(pieces);
            pieces = made_cache_seq(&m);
            feed(&m, pieces, i + 1, true);
        }
    }
    made_cache_same(once, pieces);
    assert_int_equal(kvt_seq_fork(&fork, once, NULL), KVT_OK);
    feed(&m, fork, 200, true);
    feed(&m, once, 150, true);
    feed(&m, once, 50, true);
    made_cache_same(once, fork);
    float a[D], b[D];
    bool differ = false;
    for (int r = 128; r < 500; r++) {
        assert_int_equal(kvt_seq_read(once, 0, KVT_SIDE_K, 1, r, 1, a, D, NULL), KVT_OK);
        assert_int_equal(kvt_seq_read(none, 0, KVT_SIDE_K, 1, r, 1, b, D, NULL), KVT_OK);
        differ |= memcmp(a, b, sizeof a) != 0;
    }
    assert_true(differ);
    kvt_seq_destroy(once), kvt_seq_destroy(pieces), kvt_seq_destroy(none), kvt_seq_destroy(fork);
    made_cache_close(&m);
}

static void test_pieces(void **state) {
    (void)state;
    check_pieces("kq3,vu2");
    check_pieces("kq3-feedback,vu2");
}

/* What the encoder was given, made anew. */
static void test_what_is_encoded(void **state) {
    (void)state;
    struct made_cache m;
    made_cache_open(&m, LAYERS, layers, options);
    struct kvt_seq *seq = made_cache_seq(&m);
    for (int i = 0; i < 6; i++) feed(&m, seq, 60, true);
    const struct kvt_layer *layer = &m.plan->layers[1];
    const struct kvt_page_shape *shape = &layer->page[KVT_REGION_BODY];
    const struct kvt_tile *tile = &shape->tile[KVT_SIDE_K];
    static float rows[KVT_TILE_ROWS * D];
    void *want = aligned_alloc(64, tile->bytes);
    for (int head = 0; head < HEADS; head++) {
        float sums[D] = {0}, x[D];
        for (int r = 0; r < KVT_TILE_ROWS; r++) {
            float squares[D] = {0};
            made_cache_row(1, KVT_SIDE_K, head, 128 + r, D, rows + r * D);
            for (int g = 0; g < GROUP; g++) {
                query_row(1, head * GROUP + g, 128 + r, x);
                for (int c = 0; c < D; c++) squares[c] += x[c] * x[c];
            }
            for (int c = 0; c < D; c++) {
                const float kept = kvt_f32_from_e5m2(kvt_e5m2_from_f32(sqrtf(squares[c] / GROUP)));
                if (c / (D / 4) == r % 4) sums[c] += kept * kept;
                rows[r * D + c] = kvt_f32_from_f16(kvt_f16_from_f32(rows[r * D + c]));
            }
        }
        memset(want, 0, tile->bytes);
        layer->plan.codec[KVT_SIDE_K]->encoder->encode(&(struct kvt_encode_args){.codec = layer->plan.codec[KVT_SIDE_K],
                                                                                 .tile = tile,
                                                                                 .bytes = want,
                                                                                 .n = KVT_TILE_ROWS,
                                                                                 .rows = rows,
                                                                                 .stride = D,
                                                                                 .queries = sums});
        const struct kvt_page *page = seq->layers[1].list[KVT_REGION_BODY].pages[1];
        assert_memory_equal(kvt_page_tile(page, shape, head, KVT_SIDE_K), want, tile->bytes);
    }
    free(want);
    kvt_seq_destroy(seq);
    made_cache_close(&m);
}

static struct kvt_seq *load(struct made_cache *m, const void *data, size_t bytes) {
    struct kvt_snapshot *snapshot = NULL;
    struct kvt_seq *seq = NULL;
    assert_int_equal(kvt_snapshot_open_memory(&snapshot, data, bytes, &m->allocator, NULL), KVT_OK);
    assert_int_equal(kvt_seq_load(&seq, m->pool, snapshot, MADE_MAX_ROWS, NULL), KVT_OK);
    kvt_snapshot_close(snapshot);
    return seq;
}

/* A sequence goes on from a file as if it had never stopped, with queries or without. */
static void test_snapshots(void **state) {
    (void)state;
    for (int with = 0; with < 2; with++) {
        struct made_cache m;
        made_cache_open(&m, LAYERS, layers, options);
        struct kvt_seq *seq = made_cache_seq(&m);
        size_t bytes;
        feed(&m, seq, 350, with);
        void *data = made_cache_save(seq, NULL, 0, &bytes);
        struct kvt_seq *loaded = load(&m, data, bytes);
        made_cache_same(seq, loaded);
        feed(&m, seq, 200, with);
        feed(&m, loaded, 200, with);
        made_cache_same(seq, loaded);
        free(data);
        kvt_seq_destroy(seq), kvt_seq_destroy(loaded);
        made_cache_close(&m);
    }
}

static void test_refusals(void **state) {
    (void)state;
    struct made_cache m;
    struct kvt_error err;
    int n = 10;
    made_cache_open(&m, LAYERS, layers, options);
    struct kvt_seq *seq = made_cache_seq(&m);
    assert_int_equal(kvt_step_begin(m.step, &seq, &n, 1, NULL), KVT_OK);
    assert_int_equal(append(&m, 0, 0, n, true, 3, &err), KVT_ERR_ARG);
    assert_string_equal(err.text, "layer 0: 3 query heads are not a multiple of 2 KV heads");
    assert_int_equal(append(&m, 0, 0, n, true, 6, &err), KVT_OK);
    assert_int_equal(append(&m, 1, 0, n, false, 0, &err), KVT_ERR_ARG);
    assert_non_null(strstr(err.text, "layer 1 comes without queries"));
    kvt_step_abandon(m.step);
    feed(&m, seq, 10, false); /* what was abandoned does not count */
    assert_int_equal(kvt_step_begin(m.step, &seq, &n, 1, NULL), KVT_OK);
    assert_int_equal(append(&m, 0, 10, n, true, 6, &err), KVT_ERR_ARG);
    assert_non_null(strstr(err.text, "rows from 10 on of sequence 0 come with queries"));
    kvt_step_abandon(m.step);
    kvt_seq_clear(seq);
    feed(&m, seq, 10, true);
    kvt_seq_destroy(seq);
    made_cache_close(&m);
}

/* A number that is none is named like one of a row; in the sink, whose rows are never encoded, queries are not looked at. */
static void test_bad_numbers(void **state) {
    (void)state;
    struct made_cache m;
    struct kvt_error err;
    static float k[HEADS * D], q[HEADS * GROUP * D];
    const struct kvt_rows rows = {k, KVT_TYPE_F32, 0, D}, queries = {q, KVT_TYPE_F32, 0, D};
    made_cache_open(&m, LAYERS, layers, options);
    struct kvt_seq *seq = made_cache_seq(&m);
    feed(&m, seq, 127, true);
    q[4 * D + 7] = NAN;
    for (int at = 127; at < 129; at++) {
        int n = 1;
        assert_int_equal(kvt_step_begin(m.step, &seq, &n, 1, NULL), KVT_OK);
        for (int l = 0; l < LAYERS; l++) {
            const enum kvt_status status = kvt_step_append(m.step, l, &rows, &rows, &queries, HEADS * GROUP, &err);
            assert_int_equal(status, at < 128 ? KVT_OK : KVT_ERR_RANGE);
            if (status != KVT_OK) assert_non_null(strstr(err.text, "query head 4, position 128, channel 7 is nan"));
        }
        if (at < 128)
            assert_int_equal(kvt_step_end(m.step, NULL), KVT_OK);
        else
            kvt_step_abandon(m.step);
    }
    kvt_seq_destroy(seq);
    made_cache_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),   cmocka_unit_test(test_what_is_encoded), cmocka_unit_test(test_snapshots),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_bad_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
