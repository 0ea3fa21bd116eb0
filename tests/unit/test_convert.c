/* SPDX-License-Identifier: Apache-2.0
 *
 * Converters: MLX's arrays, held to the hashes of what MLX made of the same rows (tests/compare/codecs.py), and back; kvarn's record of
 * several slices (its vectors are in test_codec_kvarn); what is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "codec/kvarn.h"
#include "kvtile/convert.h"
#include "support/codec_rows.h"

enum { N_TILES = 2, N_ROWS = N_TILES * KVT_TILE_ROWS };

static const uint64_t start = 0xCBF29CE484222325u;

static uint64_t add(uint64_t hash, uint64_t word) { return (hash ^ word) * 0x100000001B3u; }

/* Of an array of numbers of `size` bytes: over each column, then over their hashes. */
static uint64_t array_hash(const void *array, size_t size, int n_rows, int n_columns) {
    uint64_t out = start;
    for (int c = 0; c < n_columns; c++) {
        uint64_t column = start;
        for (int r = 0; r < n_rows; r++) {
            const unsigned char *at = (const unsigned char *)array + (size_t)(r * n_columns + c) * size;
            uint64_t word = 0;
            for (size_t i = 0; i < size; i++) word |= (uint64_t)at[i] << 8 * i;
            column = add(column, word);
        }
        out = add(out, column);
    }
    return out;
}

/* Arrays of n rows, of exactly their size, so that a sanitizer sees what is past them. */
static struct kvt_mlx_arrays take_arrays(const struct kvt_codec *codec, int d, int n) {
    const size_t n_scales = (size_t)(n * (d / codec->info.group));
    const bool is_affine = codec->info.name[0] == 'a';
    return (struct kvt_mlx_arrays){.codes = malloc((size_t)(n * d * codec->info.bits / 8)),
                                   .scales = malloc(n_scales * (is_affine ? 2 : 1)),
                                   .biases = is_affine ? malloc(n_scales * 2) : NULL};
}

static void give_arrays(struct kvt_mlx_arrays *arrays) {
    free(arrays->codes), free(arrays->scales), free(arrays->biases);
}

/* The arrays from row `row` on. */
static struct kvt_mlx_arrays from_row(const struct kvt_mlx_arrays *arrays, const struct kvt_codec *codec, int d,
                                      int row) {
    const int n_groups = d / codec->info.group;
    return (struct kvt_mlx_arrays){arrays->codes + row * (d * codec->info.bits / 32),
                                   (char *)arrays->scales + row * n_groups * (arrays->biases ? 2 : 1),
                                   arrays->biases ? arrays->biases + row * n_groups : NULL};
}

static void *take_tile(const struct kvt_tile *tile, int byte) {
    void *bytes = aligned_alloc(64, tile->bytes);
    memset(bytes, byte, tile->bytes);
    return bytes;
}

/* Rows into a tile that holds others: these come out, and the others stay. */
static void check_part(const struct kvt_codec *codec, const struct kvt_tile *tile, int d,
                       const struct kvt_mlx_arrays *arrays) {
    enum { FIRST = 5, N = 9 };
    void *bytes = take_tile(tile, 0xA5), *before = take_tile(tile, 0xA5);
    const struct kvt_mlx_arrays part = from_row(arrays, codec, d, FIRST);
    struct kvt_mlx_arrays back = take_arrays(codec, d, N);
    assert_int_equal(kvt_mlx_import(codec, tile->side, d, bytes, &part, FIRST, N, NULL), KVT_OK);
    assert_int_equal(kvt_mlx_export(codec, tile->side, d, &back, bytes, FIRST, N, NULL), KVT_OK);
    assert_memory_equal(back.codes, part.codes, (size_t)(N * d * codec->info.bits / 8));
    assert_memory_equal(back.scales, part.scales, (size_t)(N * (d / codec->info.group)));
    for (int row = 0; row < KVT_TILE_ROWS; row++)
        for (int c = 0; c < d && (row < FIRST || row >= FIRST + N); c++) {
            const bool is_k = tile->side == KVT_SIDE_K;
            const int term = is_k ? c : row, lane = is_k ? row : c;
            assert_int_equal(kvt_tile_get_code(tile, bytes, term, lane), kvt_tile_get_code(tile, before, term, lane));
            assert_int_equal(kvt_tile_get_scale(tile, bytes, term, lane), kvt_tile_get_scale(tile, before, term, lane));
        }
    give_arrays(&back);
    free(bytes), free(before);
}

static void check_mlx(const char *name, enum kvt_side side, int d, const uint64_t *want) {
    const struct kvt_codec *codec;
    struct kvt_tile tile;
    assert_int_equal(kvt_codec_parse(&codec, name, NULL), KVT_OK);
    kvt_codec_describe(codec, side, d, &tile);
    struct kvt_mlx_arrays all = take_arrays(codec, d, N_ROWS);
    float *rows = malloc((size_t)(KVT_TILE_ROWS * d) * sizeof *rows);
    for (int t = 0; t < N_TILES; t++) {
        codec_rows_fill(rows, KVT_TILE_ROWS, d, t);
        for (int i = 0; all.biases && i < KVT_TILE_ROWS * d; i++) rows[i] = kvt_f32_from_f16(kvt_f16_from_f32(rows[i]));
        void *bytes = take_tile(&tile, 0), *again = take_tile(&tile, 0);
        const struct kvt_mlx_arrays part = from_row(&all, codec, d, t * KVT_TILE_ROWS);
        assert_int_equal(kvt_codec_encode(codec, side, d, bytes, 0, KVT_TILE_ROWS, rows, d, NULL), KVT_OK);
        assert_int_equal(kvt_mlx_export(codec, side, d, &part, bytes, 0, KVT_TILE_ROWS, NULL), KVT_OK);
        assert_int_equal(kvt_mlx_import(codec, side, d, again, &part, 0, KVT_TILE_ROWS, NULL), KVT_OK);
        assert_memory_equal(again, bytes, tile.bytes);
        free(bytes), free(again);
    }
    const int n_groups = d / codec->info.group;
    const uint64_t got[3] = {array_hash(all.codes, 4, N_ROWS, d * codec->info.bits / 32),
                             array_hash(all.scales, all.biases ? 2 : 1, N_ROWS, n_groups),
                             all.biases ? array_hash(all.biases, 2, N_ROWS, n_groups) : start};
    for (int i = 0; i < 3; i++)
        if (got[i] != want[i]) fail_msg("%s, side %d, d %d: array %d differs from MLX's", name, (int)side, d, i);
    check_part(codec, &tile, d, &all);
    give_arrays(&all);
    free(rows);
}

static void test_arrays_are_those_of_mlx(void **state) {
    (void)state;
    FILE *f = fopen(KVT_ROOT "/tests/golden/codecs/mlx.txt", "r");
    assert_non_null(f);
    char line[200];
    int n_lines = 0;
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#') continue;
        char name[24];
        int d;
        unsigned long long hash[3];
        assert_int_equal(sscanf(line, "%23s %d %llx %llx %llx", name, &d, &hash[0], &hash[1], &hash[2]), 5);
        const uint64_t want[3] = {hash[0], hash[1], hash[2]};
        for (int side = 0; side < KVT_SIDE_COUNT; side++) check_mlx(name, (enum kvt_side)side, d, want);
        n_lines++;
    }
    fclose(f);
    assert_true(n_lines >= 20);
}

/* Slices lie one after another: that of each 128 channels is what these channels alone would give. */
static void test_kvarn_slices(void **state) {
    (void)state;
    enum { D = 384, N = KVT_SLICE, N_SLICES = D / N };
    const struct kvt_kvarn_recipe recipe = {.iterations = 2, .parity = true, .rotated = true};
    float *rows = malloc(sizeof *rows * N * D);
    for (int i = 0; i < N * D; i++) rows[i] = (float)((i * 37 + i / D * 11) % 251 - 125) / 16;
    for (int bits = 2; bits <= 8; bits += bits == 6 ? 2 : 1)
        for (int side = 0; side < KVT_SIDE_COUNT; side++) {
            const size_t n_words = (size_t)(N * N * bits / 32);
            const struct kvt_codec *codec;
            struct kvt_tile tile, one;
            char name[16];
            snprintf(name, sizeof name, "kvarn%d", bits);
            assert_int_equal(kvt_codec_parse(&codec, name, NULL), KVT_OK);
            kvt_codec_describe(codec, (enum kvt_side)side, D, &tile);
            kvt_codec_describe(codec, (enum kvt_side)side, N, &one);
            void *bytes = take_tile(&tile, 0), *again = take_tile(&tile, 0), *single = take_tile(&one, 0);
            uint32_t *words = malloc(n_words * (N_SLICES + 1) * sizeof *words);
            uint16_t axes[(N_SLICES + 1) * 3][N];
            const struct kvt_kvarn_record all = {words, axes[0]},
                                          last = {words + n_words * N_SLICES, axes[3 * N_SLICES]};
            kvt_kvarn_encode(&recipe, &tile, bytes, rows, D);
            assert_int_equal(kvt_kvarn_export(codec, (enum kvt_side)side, D, &all, bytes, NULL), KVT_OK);
            for (int s = 0; s < N_SLICES; s++) {
                kvt_kvarn_encode(&recipe, &one, single, rows + s * N, D);
                assert_int_equal(kvt_kvarn_export(codec, (enum kvt_side)side, N, &last, single, NULL), KVT_OK);
                assert_memory_equal(words + n_words * (size_t)s, last.codes, n_words * sizeof *words);
                assert_memory_equal(axes[3 * s], last.axes, sizeof axes[0] * 3);
            }
            assert_int_equal(kvt_kvarn_import(codec, (enum kvt_side)side, D, again, &all, NULL), KVT_OK);
            assert_memory_equal(again, bytes, tile.bytes);
            free(bytes), free(again), free(single), free(words);
        }
    free(rows);
}

static const struct kvt_codec *codec_of(const char *name) {
    const struct kvt_codec *codec;
    assert_int_equal(kvt_codec_parse(&codec, name, NULL), KVT_OK);
    return codec;
}

static void test_refusals(void **state) {
    (void)state;
    enum { D = 64 };
    struct kvt_error err;
    uint32_t codes[D * 8 / 32] = {0};
    uint16_t scales[2] = {0}, biases[2] = {0};
    unsigned char tile[32768], before[32768];
    memset(tile, 0xA5, sizeof tile);
    memcpy(before, tile, sizeof tile);
    const struct kvt_mlx_arrays arrays = {codes, scales, biases}, two = {codes, scales, NULL};
    const struct kvt_codec *affine = codec_of("affine8g32");
    assert_int_equal(kvt_mlx_import(codec_of("kivi4g32"), KVT_SIDE_K, D, tile, &arrays, 0, 1, &err),
                     KVT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "kivi4g32"));
    assert_int_equal(kvt_mlx_import(affine, KVT_SIDE_K, 48, tile, &arrays, 0, 1, &err), KVT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "multiples of 32"));
    assert_int_equal(kvt_mlx_import(affine, KVT_SIDE_K, 60, tile, &arrays, 0, 1, &err), KVT_ERR_UNSUPPORTED);
    assert_int_equal(kvt_mlx_import(affine, KVT_SIDE_K, D, tile, &two, 0, 1, &err), KVT_ERR_ARG);
    assert_int_equal(kvt_mlx_import(codec_of("mxfp8"), KVT_SIDE_K, D, tile, &arrays, 0, 1, &err), KVT_ERR_ARG);
    assert_int_equal(kvt_mlx_import(affine, KVT_SIDE_V, D, tile, &arrays, 128, 1, &err), KVT_ERR_RANGE);
    assert_int_equal(kvt_mlx_export(affine, KVT_SIDE_V, D, &arrays, tile, -1, 1, &err), KVT_ERR_RANGE);
    biases[1] = 0x7C00;
    assert_int_equal(kvt_mlx_import(affine, KVT_SIDE_K, D, tile, &arrays, 0, 1, &err), KVT_ERR_RANGE);
    biases[1] = 0, scales[0] = 0xFE00;
    assert_int_equal(kvt_mlx_import(affine, KVT_SIDE_K, D, tile, &arrays, 0, 1, &err), KVT_ERR_RANGE);
    scales[0] = 0xFF;
    assert_int_equal(kvt_mlx_import(codec_of("mxfp4"), KVT_SIDE_K, D, tile, &two, 0, 1, &err), KVT_ERR_RANGE);
    scales[0] = 0x7F7F;
    assert_int_equal(kvt_mlx_import(codec_of("mxfp8"), KVT_SIDE_K, D, tile, &two, 0, 0, &err), KVT_OK);
    codes[15] = 0xFF000000u;
    assert_int_equal(kvt_mlx_import(codec_of("mxfp8"), KVT_SIDE_K, D, tile, &two, 0, 1, &err), KVT_ERR_RANGE);
    const struct kvt_kvarn_record record = {malloc(128 * 128 / 2), calloc(3 * 128, 2)};
    assert_int_equal(kvt_kvarn_import(affine, KVT_SIDE_K, 128, tile, &record, &err), KVT_ERR_UNSUPPORTED);
    assert_int_equal(kvt_kvarn_import(codec_of("kvarn4"), KVT_SIDE_K, D, tile, &record, &err), KVT_ERR_UNSUPPORTED);
    record.axes[383] = 0x7E00;
    assert_int_equal(kvt_kvarn_import(codec_of("kvarn4"), KVT_SIDE_K, 128, tile, &record, &err), KVT_ERR_RANGE);
    assert_non_null(strstr(err.text, "number 127 of axis 2"));
    free(record.codes), free(record.axes);
    assert_memory_equal(tile, before, sizeof tile);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arrays_are_those_of_mlx),
        cmocka_unit_test(test_kvarn_slices),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
