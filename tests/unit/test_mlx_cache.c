/* SPDX-License-Identifier: Apache-2.0
 *
 * Prompt caches of mlx-lm: those that it wrote (tests/compare/prompt_cache.py) in both layouts, our own, and those that must be refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/half.h"
#include "cache/mlx.h"
#include "support/fail_each.h"
#include "support/made_cache.h"

#define GOLDEN(layout) KVT_ROOT "/tests/golden/mlx/" layout ".safetensors"
enum { ROWS = 130, HEADS = 2 };

static const struct kvt_layer_shape shapes[] = {{HEADS, 64, 32, 0}, {HEADS, 64, 32, 0}};
static const struct kvt_plan_options mixed = {.kv = "f16:1=affine4g32"};
static const struct kvt_mlx_entry entries[] = {{"model", "made \"up\""},
                                               {"tokenizer_config", "{\"a\": \"\u00e9\\n\"}\t"}};

static struct kvt_buf read_file(const char *path) {
    struct kvt_buf buf;
    kvt_buf_init(&buf, NULL, 1 << 24);
    assert_int_equal(kvt_file_read(&buf, path, NULL), KVT_OK);
    return buf;
}

static struct kvt_seq *load(struct made_cache *m, const char *path) {
    struct kvt_mlx_cache *file;
    struct kvt_seq *seq;
    assert_int_equal(kvt_mlx_cache_open(&file, path, NULL, NULL), KVT_OK);
    assert_int_equal(kvt_mlx_cache_load(&seq, m->pool, file, MADE_MAX_ROWS, 0, NULL), KVT_OK);
    kvt_mlx_cache_close(file);
    return seq;
}

static char *save(const struct kvt_seq *seq, enum kvt_mlx_layout layout) {
    static char path[] = "/tmp/kvtile-mlx-XXXXXX";
    memcpy(path + sizeof path - 7, "XXXXXX", 6);
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct kvt_error err;
    if (kvt_mlx_cache_save(seq, path, layout, 0, entries, 2, &err) != KVT_OK) fail_msg("%s", err.text);
    return path;
}

/* ---- what mlx-lm wrote ------------------------------------------------------------------------------------------------- */

static void test_golden(void **state) {
    (void)state;
    static const char *const paths[] = {GOLDEN("old"), GOLDEN("new")};
    struct made_cache m;
    struct kvt_seq *seqs[2];
    made_cache_open(&m, 2, shapes, mixed);
    for (int i = 0; i < 2; i++) {
        struct kvt_mlx_cache *file;
        struct kvt_layer_shape shape;
        assert_int_equal(kvt_mlx_cache_open(&file, paths[i], NULL, NULL), KVT_OK);
        assert_int_equal(kvt_mlx_cache_layout(file), i == 0 ? KVT_MLX_LAYOUT_OLD : KVT_MLX_LAYOUT_NEW);
        assert_int_equal(kvt_mlx_cache_n_rows(file), ROWS);
        assert_int_equal(kvt_mlx_cache_n_layers(file), 2);
        assert_string_equal(kvt_mlx_cache_layer(file, 0, NULL), "f16");
        assert_string_equal(kvt_mlx_cache_layer(file, 1, &shape), "affine4g32");
        assert_memory_equal(&shape, &shapes[1], sizeof shape);
        assert_null(kvt_mlx_cache_layer(file, 2, NULL));
        assert_string_equal(kvt_mlx_cache_entry(file, "model"), "made \"up\"");
        assert_string_equal(kvt_mlx_cache_entry(file, "tokenizer_config"), "{\"a\": \"\u00e9\\n\"}");
        assert_null(kvt_mlx_cache_entry(file, "tokens"));
        kvt_mlx_cache_close(file);
        seqs[i] = load(&m, paths[i]);
        assert_int_equal(kvt_seq_n_rows(seqs[i]), ROWS);
    }
    made_cache_same(seqs[0], seqs[1]);
    made_cache_feed(&m, seqs[0], 140); /* it goes on */
    for (int i = 0; i < 2; i++) kvt_seq_destroy(seqs[i]);
    made_cache_close(&m);
}

/* Rows [0, ROWS) of an array of any number of rows are equal, and the rest of the first is zero. */
static void check_array(const struct kvt_st_array *ours, const struct kvt_st_array *theirs) {
    assert_int_equal(ours->type, theirs->type);
    const size_t row = ours->bytes / (size_t)(HEADS * ours->dims[2]);
    assert_int_equal(row, theirs->bytes / (size_t)(HEADS * theirs->dims[2]));
    for (int head = 0; head < HEADS; head++) {
        const unsigned char *a = ours->data + (size_t)(head * ours->dims[2]) * row;
        const unsigned char *b = theirs->data + (size_t)(head * theirs->dims[2]) * row;
        assert_memory_equal(a, b, ROWS * row);
        for (size_t i = ROWS * row; i < (size_t)ours->dims[2] * row; i++) assert_int_equal(a[i], 0);
    }
}

static struct kvt_seq *load_turned(struct made_cache *m, const char *path, int turned) {
    struct kvt_mlx_cache *file;
    struct kvt_seq *seq;
    assert_int_equal(kvt_mlx_cache_open(&file, path, NULL, NULL), KVT_OK);
    assert_int_equal(kvt_mlx_cache_load(&seq, m->pool, file, MADE_MAX_ROWS, turned, NULL), KVT_OK);
    kvt_mlx_cache_close(file);
    return seq;
}

/* Neighbours of a key become halves in the file, values and all numbers stay; and back. */
static void test_order(void **state) {
    (void)state;
    enum { TURNED = 32 };
    struct made_cache m;
    struct kvt_error err = {KVT_OK, ""};
    static char path[] = "/tmp/kvtile-mlx-order-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    made_cache_open(&m, 2, shapes, mixed);
    struct kvt_seq *seq = load(&m, GOLDEN("new"));
    assert_int_equal(kvt_mlx_cache_save(seq, path, KVT_MLX_LAYOUT_OLD, TURNED, NULL, 0, NULL), KVT_OK);
    struct kvt_seq *back = load_turned(&m, path, TURNED), *file = load_turned(&m, path, 0);
    made_cache_same(seq, back);
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < HEADS * KVT_SIDE_COUNT; i++) {
            const enum kvt_side side = i % 2 ? KVT_SIDE_V : KVT_SIDE_K;
            const int d = side == KVT_SIDE_K ? shapes[l].k_size : shapes[l].v_size;
            static float ours[ROWS * 64], theirs[ROWS * 64];
            assert_int_equal(kvt_seq_read(seq, l, side, i / 2, 0, ROWS, ours, d, NULL), KVT_OK);
            assert_int_equal(kvt_seq_read(file, l, side, i / 2, 0, ROWS, theirs, d, NULL), KVT_OK);
            for (int k = 0; k < ROWS * d; k++) {
                const int c = k % d, turned = side == KVT_SIDE_K && c < TURNED;
                const int from = !turned ? c : c < TURNED / 2 ? 2 * c : 2 * c - TURNED + 1;
                assert_true(theirs[k] == ours[k - c + from]);
            }
        }
    unlink(path);
    static const int odd[] = {-2, 3, 66};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(kvt_mlx_cache_save(seq, path, KVT_MLX_LAYOUT_OLD, odd[i], NULL, 0, NULL), KVT_ERR_ARG);
    assert_int_equal(kvt_mlx_cache_save(seq, path, KVT_MLX_LAYOUT_OLD, 64, NULL, 0, &err), KVT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "layer 1"));
    assert_non_null(strstr(err.text, "groups of 32"));
    kvt_seq_destroy(seq), kvt_seq_destroy(back), kvt_seq_destroy(file);
    made_cache_close(&m);
}

/* Loaded from one layout and saved in the other, arrays are mlx-lm's, and ours alone load again. */
static void test_save(void **state) {
    (void)state;
    struct made_cache m;
    made_cache_open(&m, 2, shapes, mixed);
    for (int layout = 0; layout < 2; layout++) {
        struct kvt_seq *seq = load(&m, layout ? GOLDEN("old") : GOLDEN("new"));
        char *path = save(seq, (enum kvt_mlx_layout)layout);
        struct kvt_buf ours = read_file(path), theirs = read_file(layout ? GOLDEN("new") : GOLDEN("old"));
        struct kvt_st a, b;
        assert_int_equal(kvt_st_read(&a, (unsigned char *)ours.data, ours.len, "ours", NULL, NULL), KVT_OK);
        assert_int_equal(kvt_st_read(&b, (unsigned char *)theirs.data, theirs.len, "theirs", NULL, NULL), KVT_OK);
        assert_int_equal(a.n_arrays, b.n_arrays);
        assert_int_equal(a.n_entries, b.n_entries);
        for (int i = 0; i < a.n_arrays; i++) {
            assert_string_equal(a.arrays[i].name, b.arrays[i].name);
            assert_int_equal(a.arrays[i].n_dims, b.arrays[i].n_dims);
            assert_memory_equal(a.arrays[i].dims, b.arrays[i].dims, sizeof a.arrays[i].dims);
            if (a.arrays[i].n_dims)
                check_array(&a.arrays[i], &b.arrays[i]);
            else
                assert_memory_equal(a.arrays[i].data, b.arrays[i].data, 4);
        }
        for (int i = 0; i < a.n_entries; i++) {
            assert_string_equal(a.entries[i].key, b.entries[i].key);
            if (!strstr(a.entries[i].key, "tokenizer")) assert_string_equal(a.entries[i].value, b.entries[i].value);
        }
        kvt_st_finish(&a), kvt_st_finish(&b);
        kvt_buf_finish(&ours), kvt_buf_finish(&theirs);
        struct kvt_seq *again = load(&m, path);
        made_cache_same(seq, again);
        kvt_seq_destroy(seq), kvt_seq_destroy(again);
        unlink(path);
    }
    made_cache_close(&m);
}

/* Every width and group, head sizes that differ, lengths about a tile's and a buffer's end. */
static void test_round_trips(void **state) {
    (void)state;
    static const char *const kv[] = {"f16",         "bf16",       "affine2g64",      "affine3g32",
                                     "affine5g128", "affine6g64", "affine8g32-metal"};
    static const int rows[] = {1, 127, 128, 255, 256, 257};
    static const struct kvt_layer_shape shape[] = {{1, 128, 256, 0}, {3, 256, 128, 0}};
    for (size_t i = 0; i < KVT_ARRAY_LEN(kv); i++) {
        struct made_cache m;
        made_cache_open(&m, 2, shape, (struct kvt_plan_options){.kv = kv[i]});
        for (size_t r = 0; r < 2 * KVT_ARRAY_LEN(rows); r++) {
            struct kvt_seq *seq = made_cache_seq(&m);
            made_cache_feed(&m, seq, rows[r / 2]);
            char *path = save(seq, (enum kvt_mlx_layout)(r % 2));
            struct kvt_seq *again = load(&m, path);
            made_cache_same(seq, again);
            kvt_seq_destroy(seq), kvt_seq_destroy(again);
            unlink(path);
        }
        made_cache_close(&m);
    }
}

/* ---- what is refused --------------------------------------------------------------------------------------------------- */

/* Opens and loads bytes in a block of just their size. A refusal says something and leaves nothing. */
static enum kvt_status try_bytes(struct made_cache *m, const char *data, size_t bytes, struct kvt_error *err) {
    struct kvt_mlx_cache *file = NULL;
    struct kvt_seq *seq = NULL;
    void *exact = malloc(bytes ? bytes : 1);
    assert_non_null(exact);
    memcpy(exact, data, bytes);
    *err = (struct kvt_error){KVT_OK, ""};
    enum kvt_status status = kvt_mlx_cache_open_memory(&file, exact, bytes, &m->allocator, err);
    if (status == KVT_OK) status = kvt_mlx_cache_load(&seq, m->pool, file, MADE_MAX_ROWS, 0, err);
    if (status != KVT_OK) {
        assert_null(seq);
        assert_true(strlen(err->text) > 0);
        assert_int_equal(kvt_pool_bytes(m->pool), 0);
    }
    kvt_seq_destroy(seq);
    kvt_mlx_cache_close(file);
    free(exact);
    return status;
}

static size_t header_end(const struct kvt_buf *file) {
    return 8 + (size_t)((unsigned char)file->data[0] | (unsigned char)file->data[1] << 8);
}

static void test_cut_and_flipped(void **state) {
    (void)state;
    static const char *const paths[] = {GOLDEN("old"), GOLDEN("new")};
    struct made_cache m;
    struct kvt_error err;
    made_cache_open(&m, 2, shapes, mixed);
    for (int i = 0; i < 2; i++) {
        struct kvt_buf file = read_file(paths[i]);
        const size_t end = header_end(&file);
        for (size_t n = 0; n < file.len; n += n < end ? 1 : 997)
            assert_int_not_equal(try_bytes(&m, file.data, n, &err), KVT_OK);
        for (size_t at = 0; at < end; at++) {
            const char kept = file.data[at];
            static const char marks[] = "\"{}[],:\\0 9";
            for (const char *mark = marks; *mark; mark++) {
                file.data[at] = *mark;
                (void)try_bytes(&m, file.data, file.len, &err);
            }
            file.data[at] = kept;
        }
        assert_int_equal(try_bytes(&m, file.data, file.len, &err), KVT_OK);
        kvt_buf_finish(&file);
    }
    made_cache_close(&m);
}

static const struct {
    bool is_new;
    const char *from, *to; /* as long */
    enum kvt_status status;
    const char *says;
} changes[] = {
    {false, "\"QuantizedKVCache\"", "\"RotatingKVCaches\"", KVT_ERR_UNSUPPORTED, "layer 1 is a RotatingKVCaches"},
    {true, "\"1.0\":\"KVCache\"", "\"1.0\":\"KVCachX\"", KVT_ERR_UNSUPPORTED, "layer 0 is a KVCachX"},
    {false, "\"2.0\":\"KVCache\"", "\"3.0\":\"KVCache\"", KVT_ERR_FORMAT, "no prompt cache of mlx-lm"},
    {false, "\"0.1.0\":\"130\"", "\"0.1.0\":\"131\"", KVT_ERR_FORMAT, "has 131 rows of which 130 are there"},
    {false, "\"0.1.0\":\"130\"", "\"0.1.0\":\"129\"", KVT_ERR_UNSUPPORTED, "layer 1 has 129 rows, layer 0 has 130"},
    {false, "\"0.1.0\":\"130\"", "\"0.1.0\":\"1x0\"", KVT_ERR_FORMAT, "lacks its length"},
    {false, "\"0.1.1\":\"32\"", "\"0.1.1\":\"64\"", KVT_ERR_FORMAT, "that its bits and group size contradict"},
    {false, "\"0.1.1\":\"32\"", "\"0.1.1\":\"33\"", KVT_ERR_UNSUPPORTED, "groups of 33, which MLX has not"},
    {false, "\"0.1.2\":\"4\"", "\"0.1.2\":\"8\"", KVT_ERR_FORMAT, "that its bits and group size contradict"},
    {true, "\"1.4\":", "\"1.9\":", KVT_ERR_FORMAT, "lacks its length, its group size or its bits"},
    {true, "\"0.1\":{", "\"7.1\":{", KVT_ERR_FORMAT, "layer 0 lacks an array"},
    {false, "\"dtype\":\"F16\"", "\"dtype\":\"I16\"", KVT_ERR_UNSUPPORTED, "neither f16 nor bf16"},
    {false, "\"dtype\":\"F16\"", "\"dtype\":\"X16\"", KVT_ERR_FORMAT, "unknown type X16"},
    {false, "\"dtype\":\"U32\"", "\"dtype\":\"F32\"", KVT_ERR_FORMAT, "contradict"},
    {false, "[1,2,130,64]", "[2,1,130,64]", KVT_ERR_UNSUPPORTED, "several sequences"},
    {false, "[1,2,130,64]", "[1,2,130,65]", KVT_ERR_FORMAT, "its shape needs"},
};

static void test_changed(void **state) {
    (void)state;
    for (size_t i = 0; i < KVT_ARRAY_LEN(changes); i++) {
        struct made_cache m;
        struct kvt_error err;
        struct kvt_buf file = read_file(changes[i].is_new ? GOLDEN("new") : GOLDEN("old"));
        const size_t n = strlen(changes[i].from), end = header_end(&file);
        size_t at = 8;
        assert_int_equal(n, strlen(changes[i].to));
        while (at < end && memcmp(file.data + at, changes[i].from, n) != 0) at++;
        if (at == end) fail_msg("the file has no %s", changes[i].from);
        memcpy(file.data + at, changes[i].to, n);
        made_cache_open(&m, 2, shapes, mixed);
        assert_int_equal(try_bytes(&m, file.data, file.len, &err), changes[i].status);
        if (!strstr(err.text, changes[i].says)) fail_msg("'%s' does not say '%s'", err.text, changes[i].says);
        made_cache_close(&m);
        kvt_buf_finish(&file);
    }
}

static void test_numbers(void **state) {
    (void)state;
    static const struct {
        const char *array, *says;
    } bad[] = {{"0.0", "layer 0, K, KV head 0: position 1, channel 0 is nan"},
               {"1.1.1", "layer 1, V, KV head 0: row 64 of the arrays holds a number that is infinite or NaN"}};
    for (size_t i = 0; i < KVT_ARRAY_LEN(bad); i++) {
        struct made_cache m;
        struct kvt_error err;
        struct kvt_st st;
        struct kvt_buf file = read_file(GOLDEN("old"));
        assert_int_equal(kvt_st_read(&st, (unsigned char *)file.data, file.len, "it", NULL, NULL), KVT_OK);
        const size_t at = (size_t)(kvt_st_array(&st, bad[i].array)->data - (unsigned char *)file.data);
        kvt_st_finish(&st);
        memcpy(file.data + at + 128, "\x00\x7e", 2);
        made_cache_open(&m, 2, shapes, mixed);
        assert_int_equal(try_bytes(&m, file.data, file.len, &err), KVT_ERR_RANGE);
        if (!strstr(err.text, bad[i].says)) fail_msg("'%s' does not say '%s'", err.text, bad[i].says);
        made_cache_close(&m);
        kvt_buf_finish(&file);
    }
}

/* Scales in bf16 are taken where f16 has them. */
static void test_bf16_scales(void **state) {
    (void)state;
    struct made_cache m;
    struct kvt_error err;
    struct kvt_st st;
    struct kvt_buf file = read_file(GOLDEN("old"));
    made_cache_open(&m, 2, shapes, mixed);
    assert_int_equal(kvt_st_read(&st, (unsigned char *)file.data, file.len, "it", NULL, NULL), KVT_OK);
    struct kvt_mlx_cache *c;
    assert_int_equal(kvt_mlx_cache_open_memory(&c, file.data, file.len, NULL, NULL), KVT_OK);
    struct kvt_seq *seq;
    unsigned char *scales =
        (unsigned char *)file.data + (kvt_st_array(&st, "1.0.1")->data - (unsigned char *)file.data);
    for (int part = 1; part < 3; part++) { /* as if the file had said so: its header has no room for a letter more */
        struct kvt_st_array *array = (struct kvt_st_array *)(uintptr_t)c->layers[1].parts[KVT_SIDE_K][part];
        array->type = KVT_ST_BF16;
        const uint16_t x = kvt_bf16_from_f32(part == 1 ? 0.375f : -3);
        unsigned char *numbers = (unsigned char *)file.data + (array->data - (unsigned char *)file.data);
        for (size_t at = 0; at < array->bytes; at += sizeof x) memcpy(numbers + at, &x, sizeof x);
    }
    assert_int_equal(kvt_mlx_cache_load(&seq, m.pool, c, MADE_MAX_ROWS, 0, NULL), KVT_OK);
    float row[64];
    assert_int_equal(kvt_seq_read(seq, 1, KVT_SIDE_K, 1, 129, 1, row, 64, NULL), KVT_OK);
    for (int i = 0; i < 64; i++) assert_true((row[i] + 3) / 0.375f == (float)(int)((row[i] + 3) / 0.375f));
    kvt_seq_destroy(seq);
    const uint16_t large = kvt_bf16_from_f32(1e6f);
    memcpy(scales, &large, 2);
    assert_int_equal(kvt_mlx_cache_load(&seq, m.pool, c, MADE_MAX_ROWS, 0, &err), KVT_ERR_RANGE);
    assert_non_null(strstr(err.text, "is bf16 and has no equal in f16"));
    kvt_mlx_cache_close(c);
    kvt_st_finish(&st);
    made_cache_close(&m);
    kvt_buf_finish(&file);
}

static void expect_save(const struct kvt_plan_options *o, int n_rows, enum kvt_status status, const char *says) {
    struct made_cache m;
    struct kvt_error err = {KVT_OK, ""};
    made_cache_open(&m, 2, shapes, *o);
    struct kvt_seq *seq = made_cache_seq(&m);
    if (n_rows) made_cache_feed(&m, seq, n_rows);
    assert_int_equal(kvt_mlx_cache_save(seq, "/tmp/kvtile-no-such-folder/x", KVT_MLX_LAYOUT_NEW, 0, NULL, 0, &err),
                     status);
    if (!strstr(err.text, says)) fail_msg("'%s' does not say '%s'", err.text, says);
    kvt_seq_destroy(seq);
    made_cache_close(&m);
}

static void test_save_refused(void **state) {
    (void)state;
    static const struct {
        struct kvt_plan_options o;
        int n_rows;
        enum kvt_status status;
        const char *says;
    } cases[] = {
        {{.kv = "kivi4g32"}, 9, KVT_ERR_UNSUPPORTED, "layer 0 is kivi4g32: mlx-lm's caches are f16, bf16 or affine"},
        {{.kv = "f16:1=f32"}, 9, KVT_ERR_UNSUPPORTED, "layer 1 is f32"},
        {{.kv = "affine4,affine8"}, 9, KVT_ERR_UNSUPPORTED, "keys in affine4g64 and values in affine8g64"},
        {{.kv = "affine4g32", .tail = 5}, 9, KVT_ERR_UNSUPPORTED, "a sink, a tail, a start or a window"},
        {{.kv = "affine4g32", .sink = 128}, 9, KVT_ERR_UNSUPPORTED, "a sink, a tail, a start or a window"},
        {{.kv = "f16", .rolling = 256}, 9, KVT_ERR_UNSUPPORTED, "a sink, a tail, a start or a window"},
        {{.kv = "f16"}, 0, KVT_ERR_STATE, "an empty sequence"},
        {{.kv = "f16"}, 9, KVT_ERR_IO, "/tmp/kvtile-no-such-folder/x"},
    };
    for (size_t i = 0; i < KVT_ARRAY_LEN(cases); i++)
        expect_save(&cases[i].o, cases[i].n_rows, cases[i].status, cases[i].says);
}

static void test_other_plan(void **state) {
    (void)state;
    static const struct {
        const char *kv, *says;
        struct kvt_layer_shape shape;
    } cases[] = {
        {"f16", "layer 1 is affine4g32, that of this cache f16", {HEADS, 64, 32, 0}},
        {"f16:1=affine8g32", "layer 1 is affine4g32, that of this cache affine8g32", {HEADS, 64, 32, 0}},
        {"f16:1=affine4g32", "2 KV heads of 64 and 32 elements, that of this cache 2 of 64 and 64", {HEADS, 64, 64, 0}},
    };
    struct kvt_buf file = read_file(GOLDEN("new"));
    for (size_t i = 0; i < KVT_ARRAY_LEN(cases); i++) {
        struct made_cache m;
        struct kvt_error err;
        made_cache_open(&m, 2, (struct kvt_layer_shape[]){shapes[0], cases[i].shape},
                        (struct kvt_plan_options){.kv = cases[i].kv});
        assert_int_equal(try_bytes(&m, file.data, file.len, &err), KVT_ERR_ARG);
        if (!strstr(err.text, cases[i].says)) fail_msg("'%s' does not say '%s'", err.text, cases[i].says);
        made_cache_close(&m);
    }
    kvt_buf_finish(&file);
}

static enum kvt_status out_of_memory(void *ctx, const struct kvt_allocator *a) {
    const struct kvt_plan_options options = {.struct_size = sizeof options, .kv = mixed.kv};
    const struct kvt_pool_options po = {.struct_size = sizeof po, .allocator = a};
    struct kvt_plan *plan = NULL;
    struct kvt_pool *pool = NULL;
    struct kvt_mlx_cache *file = NULL;
    struct kvt_seq *seq = NULL;
    enum kvt_status status = kvt_plan_create(&plan, &(struct kvt_shape){2, shapes}, &options, a, NULL);
    if (status == KVT_OK) status = kvt_pool_create(&pool, plan, &po, NULL);
    if (status == KVT_OK) status = kvt_mlx_cache_open(&file, GOLDEN("new"), a, NULL);
    if (status == KVT_OK) status = kvt_mlx_cache_load(&seq, pool, file, ROWS, 0, NULL);
    if (status == KVT_OK) status = kvt_mlx_cache_save(seq, ctx, KVT_MLX_LAYOUT_OLD, 0, entries, 2, NULL);
    kvt_seq_destroy(seq);
    kvt_mlx_cache_close(file);
    kvt_pool_destroy(pool);
    kvt_plan_destroy(plan);
    return status;
}

static void test_no_memory(void **state) {
    (void)state;
    char path[] = "/tmp/kvtile-mlx-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_true(kvt_fail_each(out_of_memory, path) > 8);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),          cmocka_unit_test(test_save),
        cmocka_unit_test(test_order),           cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_cut_and_flipped), cmocka_unit_test(test_changed),
        cmocka_unit_test(test_numbers),         cmocka_unit_test(test_bf16_scales),
        cmocka_unit_test(test_save_refused),    cmocka_unit_test(test_other_plan),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
