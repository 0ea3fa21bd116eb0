/* SPDX-License-Identifier: Apache-2.0
 *
 * Accounting: what a plan says that a length costs is what the allocator gives for it, to the byte, for every codec, head size and
 * length, by layer, side and region.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "cache/cache.h"

enum { MAX_ROWS = 420 };

/* Bytes do not depend on what rows hold, so nothing is encoded here. */
static void encode_nothing(struct kvt_pool *pool, const struct kvt_encode_args *args) { (void)pool, (void)args; }
static void decode_nothing(struct kvt_pool *pool, const struct kvt_tile *tile, float *rows, ptrdiff_t stride,
                           const void *bytes, int first, int n) {
    (void)pool, (void)tile, (void)rows, (void)stride, (void)bytes, (void)first, (void)n;
}

struct fixture {
    struct kvt_alloc_counter counter;
    struct kvt_page_ops ops;
    struct kvt_plan *plan;
    struct kvt_pool *pool;
    struct kvt_step *step;
    struct kvt_seq *seq;
    size_t fixed; /* bytes without pages */
};

static void open(struct fixture *f, const struct kvt_shape *shape, const struct kvt_plan_options *options) {
    struct kvt_error err = {KVT_OK, ""};
    memset(f, 0, sizeof *f);
    const struct kvt_allocator a = kvt_allocator_counted(&f->counter);
    const struct kvt_pool_options po = {.struct_size = sizeof po, .allocator = &a};
    if (kvt_plan_create(&f->plan, shape, options, &a, &err) != KVT_OK) fail_msg("%s", err.text);
    assert_int_equal(kvt_pool_create(&f->pool, f->plan, &po, NULL), KVT_OK);
    f->ops = *f->pool->ops;
    f->ops.encode = encode_nothing;
    f->ops.decode = decode_nothing;
    f->pool->ops = &f->ops;
    assert_int_equal(kvt_step_create(&f->step, f->pool, 1, MAX_ROWS, NULL), KVT_OK);
    assert_int_equal(kvt_seq_create(&f->seq, f->pool, MAX_ROWS, NULL), KVT_OK);
    f->fixed = f->counter.live_bytes;
}

static void close(struct fixture *f) {
    kvt_seq_destroy(f->seq);
    kvt_step_destroy(f->step);
    kvt_pool_destroy(f->pool);
    kvt_plan_destroy(f->plan);
    assert_int_equal(f->counter.live_bytes, 0);
}

static void grow(struct fixture *f, int n) {
    static const float zeros[KVT_LATENT_MAX];
    const struct kvt_rows rows = {zeros, KVT_TYPE_F32, 0, 0};
    assert_int_equal(kvt_step_begin(f->step, &f->seq, &n, 1, NULL), KVT_OK);
    for (int l = 0; l < kvt_plan_n_layers(f->plan); l++)
        assert_int_equal(kvt_step_append(f->step, l, &rows, &rows, NULL, 0, NULL), KVT_OK);
    assert_int_equal(kvt_step_end(f->step, NULL), KVT_OK);
}

/* Pages of a region that are there: their bytes without V tiles, and of V tiles. */
static void count_pages(const struct fixture *f, int layer, int region, uint64_t bytes[KVT_SIDE_COUNT]) {
    const struct kvt_page_list *list = &f->seq->layers[layer].list[region];
    const struct kvt_layer_shape *shape = &kvt_plan_layer(f->plan, layer)->shape;
    const struct kvt_layer_plan *plan = kvt_plan_layer(f->plan, layer);
    const struct kvt_codec *const *codec = region == KVT_REGION_BODY ? plan->codec : plan->wide;
    size_t k = kvt_codec_tile_bytes(codec[KVT_SIDE_K], KVT_SIDE_K, shape->k_size);
    if (region == KVT_REGION_TAIL) k += f->plan->layers[layer].queries.bytes; /* 0 where none wait */
    const size_t v = kvt_codec_tile_bytes(codec[KVT_SIDE_V], KVT_SIDE_V, shape->v_size);
    for (int64_t t = list->first; t < list->end; t++) {
        assert_non_null(list->pages[t]);
        bytes[KVT_SIDE_K] += KVT_PAGE_HEADER + (size_t)shape->n_kv_heads * k;
        bytes[KVT_SIDE_V] += (size_t)shape->n_kv_heads * v;
    }
}

static void check(const struct fixture *f) {
    const int64_t n = kvt_seq_n_rows(f->seq);
    uint64_t total = 0;
    for (int l = 0; l < kvt_plan_n_layers(f->plan); l++) {
        const struct kvt_usage u = kvt_seq_usage(f->seq, l);
        uint64_t sum = 0;
        for (int region = 0; region < KVT_REGION_COUNT; region++) {
            uint64_t bytes[KVT_SIDE_COUNT] = {0, 0};
            count_pages(f, l, region, bytes);
            for (int side = 0; side < KVT_SIDE_COUNT; side++) {
                assert_int_equal(u.bytes[side][region], bytes[side]);
                sum += bytes[side];
            }
        }
        assert_int_equal(u.total_bytes, sum);
        total += sum;
        const struct kvt_layer_plan *plan = kvt_plan_layer(f->plan, l);
        const int64_t seen = plan->window && n - plan->sink > plan->window ? plan->sink + plan->window : n;
        assert_int_equal(u.rows[KVT_REGION_SINK] + u.rows[KVT_REGION_BODY] + u.rows[KVT_REGION_TAIL], seen);
        /* Rows in 16 bits past the sink: `tail` to tail + granularity - 1 of them, once there are so many. */
        if (n >= plan->start && n >= plan->sink + plan->tail + plan->granularity && !plan->window) {
            assert_true(u.rows[KVT_REGION_TAIL] >= plan->tail);
            assert_true(u.rows[KVT_REGION_TAIL] < plan->tail + plan->granularity);
        }
    }
    assert_int_equal(kvt_plan_bytes(f->plan, n), total);
    assert_int_equal(kvt_seq_usage(f->seq, -1).total_bytes, total);
    assert_int_equal(kvt_pool_bytes(f->pool), total);
    assert_int_equal(f->counter.live_bytes - f->fixed, total);
}

/* Every length up to MAX_ROWS, one row at a time and in one step, and back down. */
static void check_lengths(const struct kvt_shape *shape, const struct kvt_plan_options *options) {
    struct fixture f;
    open(&f, shape, options);
    check(&f);
    for (int n = 1; n <= MAX_ROWS; n++) {
        grow(&f, 1);
        check(&f);
    }
    assert_true(kvt_pool_peak_bytes(f.pool) >= kvt_pool_bytes(f.pool));
    while (kvt_seq_n_rows(f.seq) > 0 && kvt_seq_trim(f.seq, kvt_seq_n_rows(f.seq) - 1, NULL, NULL) == KVT_OK) check(&f);
    kvt_seq_clear(f.seq);
    check(&f);
    grow(&f, MAX_ROWS);
    check(&f);
    close(&f);
}

static void test_every_codec_size_and_length(void **state) {
    (void)state;
    static const int sizes[] = {64, 80, 96, 128, 192, 256, 512};
    int n_plans = 0;
    for (size_t c = 0; c < kvt_codec_count(); c++)
        for (size_t i = 0; i < KVT_ARRAY_LEN(sizes); i++) {
            const struct kvt_codec *codec = kvt_codec_at(c);
            const struct kvt_layer_shape layers[] = {{2, sizes[i], sizes[i], 0}, {1, sizes[i], sizes[i], 100}};
            const char *name = kvt_codec_info(codec).name;
            const bool k = kvt_codec_fits(codec, KVT_SIDE_K, sizes[i], NULL) == KVT_OK;
            const bool v = kvt_codec_fits(codec, KVT_SIDE_V, sizes[i], NULL) == KVT_OK;
            char kv[80];
            snprintf(kv, sizeof kv, "%s,%s", k ? name : "f16", v ? name : "f16");
            const struct kvt_plan_options options = {
                .struct_size = sizeof options, .kv = kv, .sink = c % 2 ? 128 : 0, .tail = i % 2 ? 10 : 0};
            check_lengths(&(struct kvt_shape){2, layers}, &options);
            n_plans++;
        }
    print_message("%d plans, %d lengths each\n", n_plans, MAX_ROWS);
}

static void test_late_and_rolling(void **state) {
    (void)state;
    static const struct kvt_layer_shape layers[] = {{3, 72, 64, 0}, {1, 64, 128, 33}, {1, 576, 512, 0}};
    static const struct kvt_plan_options plans[] = {
        {.kv = "kivi4g32,affine4g64", .sink = 128, .tail = 64, .rolling = 330},
        {.kv = "kivi4g32", .tail = 200, .start = 300},
        {.kv = "affine4", .start = 129},
        {.kv = "bf16,affine8", .sink = 256, .rolling = 384},
        {.kv = "f32"},
    };
    for (size_t i = 0; i < KVT_ARRAY_LEN(plans); i++) {
        struct kvt_plan_options options = plans[i];
        options.struct_size = sizeof options;
        check_lengths(&(struct kvt_shape){3, layers}, &options);
    }
}

/* f16 and 4-bit rows cost what they should: a wrong tile size would be wrong on both sides of the tests above. */
static void test_known_sizes(void **state) {
    (void)state;
    static const struct kvt_layer_shape layer = {8, 128, 128, 0};
    static const struct {
        const char *kv;
        uint64_t bytes; /* of 1024 rows */
    } known[] = {
        {"f16", 8 * (64 + 8 * 2 * 128 * 128 * 2)},
        {"f32", 8 * (64 + 8 * 2 * 128 * 128 * 4)},
        {"affine4g64", 8 * (64 + 8 * 2 * 128 * (64 + 2 * 4))},
        {"kivi2g32", 8 * (64 + 8 * 2 * 128 * (32 + 4 * 4))},
        {"affine8g32,affine3g128", 8 * (64 + 8 * 128 * (128 + 4 * 4 + 48 + 4))},
    };
    for (size_t i = 0; i < KVT_ARRAY_LEN(known); i++) {
        const struct kvt_plan_options options = {.struct_size = sizeof options, .kv = known[i].kv};
        struct kvt_plan *plan;
        assert_int_equal(kvt_plan_create(&plan, &(struct kvt_shape){1, &layer}, &options, NULL, NULL), KVT_OK);
        assert_int_equal(kvt_plan_bytes(plan, 1024), known[i].bytes);
        assert_int_equal(kvt_plan_bytes(plan, 0), 0);
        assert_int_equal(kvt_plan_bytes(plan, -5), 0);
        assert_int_equal(kvt_plan_usage(plan, 1, 1024).total_bytes, 0);
        assert_int_equal(kvt_plan_body_end(plan, 1, 1024), 0);
        kvt_plan_destroy(plan);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_codec_size_and_length),
        cmocka_unit_test(test_late_and_rolling),
        cmocka_unit_test(test_known_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
