/* SPDX-License-Identifier: Apache-2.0
 *
 * Codes, scales and zeros are those of other libraries, to the bit and on both sides: tests/compare/codecs.py made the hashes in
 * tests/golden/codecs from the same rows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/attr.h"
#include "base/half.h"
#include "codec/codec.h"
#include "support/codec_rows.h"

enum { N_TILES = 2 };

static void add(uint64_t *hash, uint64_t word) { *hash = (*hash ^ word) * 0x100000001B3u; }

/* A zero of either sign is one number. */
static uint32_t canonical(enum kvt_scale type, uint32_t scale) {
    return (type == KVT_SCALE_F16 && scale == 0x8000) || (type == KVT_SCALE_F32 && scale == 0x80000000u) ? 0 : scale;
}

/* Row by row and group by group what the tile holds: scale, zero, codes. */
static void hash_tile(uint64_t *hashes, const struct kvt_tile *tile, const void *bytes) {
    const bool is_k = tile->side == KVT_SIDE_K;
    const int d = kvt_tile_row_size(tile), group = tile->format.group ? tile->format.group : d;
    for (int row = 0; row < KVT_TILE_ROWS; row++) {
        uint64_t *hash = &hashes[row % CODEC_ROWS_KINDS];
        for (int c0 = 0; c0 < d; c0 += group) {
            const int term = is_k ? c0 : row, lane = is_k ? row : c0;
            const bool has_scale = tile->format.scale != KVT_SCALE_NONE;
            add(hash, has_scale ? canonical(tile->format.scale, kvt_tile_get_scale(tile, bytes, term, lane)) : 0);
            add(hash, tile->format.has_zero ? canonical(KVT_SCALE_F16, kvt_tile_get_zero(tile, bytes, term, lane)) : 0);
            for (int c = c0; c < KVT_MIN(c0 + group, d); c++)
                add(hash, kvt_tile_get_code(tile, bytes, is_k ? c : row, is_k ? row : c));
        }
    }
}

/* MLX gives affine's scales the type of the rows: these are compared from f16 rows. */
static void round_f16(float *x, int n) {
    for (int i = 0; i < n; i++) x[i] = kvt_f32_from_f16(kvt_f16_from_f32(x[i]));
}

static void check_line(const char *name, int d, const uint64_t *want) {
    const struct kvt_codec *codec;
    assert_int_equal(kvt_codec_parse(&codec, name, NULL), KVT_OK);
    float *rows = malloc(sizeof *rows * (size_t)(KVT_TILE_ROWS * d));
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        struct kvt_tile tile;
        kvt_codec_describe(codec, (enum kvt_side)side, d, &tile);
        void *bytes = aligned_alloc(64, tile.bytes);
        uint64_t hashes[CODEC_ROWS_KINDS];
        for (int k = 0; k < CODEC_ROWS_KINDS; k++) hashes[k] = 0xCBF29CE484222325u;
        for (int t = 0; t < N_TILES; t++) {
            codec_rows_fill(rows, KVT_TILE_ROWS, d, t);
            if (strncmp(name, "affine", 6) == 0) round_f16(rows, KVT_TILE_ROWS * d);
            memset(bytes, 0, tile.bytes);
            assert_int_equal(kvt_codec_encode(codec, (enum kvt_side)side, d, bytes, 0, KVT_TILE_ROWS, rows, d, NULL),
                             KVT_OK);
            hash_tile(hashes, &tile, bytes);
        }
        for (int k = 0; k < CODEC_ROWS_KINDS; k++)
            if (hashes[k] != want[k]) fail_msg("%s, side %d, d %d: rows of kind %d differ", name, side, d, k);
        free(bytes);
    }
    free(rows);
}

static void test_golden(void **state) {
    (void)state;
    FILE *f = fopen(KVT_ROOT "/tests/golden/codecs/codes.txt", "r");
    assert_non_null(f);
    char line[400];
    int n_lines = 0;
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#') continue;
        char name[24];
        uint64_t want[CODEC_ROWS_KINDS];
        int d, at = 0;
        assert_int_equal(sscanf(line, "%23s %d%n", name, &d, &at), 2);
        for (int i = 0; i < CODEC_ROWS_KINDS; i++) {
            unsigned long long hash;
            int used = 0;
            assert_int_equal(sscanf(line + at, "%llx%n", &hash, &used), 1);
            want[i] = hash;
            at += used;
        }
        check_line(name, d, want);
        n_lines++;
    }
    fclose(f);
    assert_true(n_lines > 0);
}

/* Bits an element with all that is stored, in thousandths; heads of 128. */
static void test_bits(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int milli;
    } want[] = {{"q8_0", 8500},        {"q5_1", 6000},     {"q5_0", 5500},   {"q4_1", 5000},       {"q4_0", 4500},
                {"q8_0-rot", 8500},    {"q4_1-rot", 5000}, {"iq4_nl", 4500}, {"iq4_nl-rot", 4500}, {"fp8e4m3", 8000},
                {"fp8e5m2-row", 8250}, {"mxfp8", 8250},    {"mxfp4", 4250},  {"nvfp4", 4500},      {"turbo2", 2125},
                {"turbo3", 3125},      {"turbo4", 4125}};
    for (size_t i = 0; i < KVT_ARRAY_LEN(want); i++)
        for (int side = 0; side < KVT_SIDE_COUNT; side++) {
            const struct kvt_codec *codec;
            assert_int_equal(kvt_codec_parse(&codec, want[i].name, NULL), KVT_OK);
            const size_t bytes = kvt_codec_tile_bytes(codec, (enum kvt_side)side, 128);
            assert_int_equal(bytes * 8 * 1000 / (128 * 128), want[i].milli);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
