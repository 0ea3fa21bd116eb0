/* SPDX-License-Identifier: Apache-2.0
 *
 * kvtile's own codecs: their bytes are those that tests/compare/kvt.py, which shares no code with them, made of the same rows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/attr.h"
#include "base/rng.h"
#include "codec/codec.h"
#include "codec/log8.h"
#include "support/codec_rows.h"

enum { N_TILES = 2 };

static const struct kvt_codec *codec_of(const char *name) {
    const struct kvt_codec *codec = NULL;
    assert_int_equal(kvt_codec_parse(&codec, name, NULL), KVT_OK);
    return codec;
}

static void add(uint64_t *hash, uint64_t word) { *hash = (*hash ^ word) * 0x100000001B3u; }

/* ---- numbers of one byte ----------------------------------------------------------------------------------------------- */

static void test_log8(void **state) {
    (void)state;
    static const int pers[] = {16, 32, 64};
    for (int j = 0; j < 128; j++) assert_true(kvt_log8_value(j, 64) == (float)exp2(j / 64.0));
    for (size_t p = 0; p < KVT_ARRAY_LEN(pers); p++) {
        const int per = pers[p];
        for (int e = -40 * per; e <= 40 * per; e++) {
            const double value = exp2((double)e / per), half = exp2(0.5 / per);
            assert_true(kvt_log8_value(e, per) == (float)value);
            assert_int_equal(kvt_log8_nearest((float)value, per), e);
            assert_int_equal(kvt_log8_nearest((float)(value * half * (1 - 3e-7)), per), e);
            assert_int_equal(kvt_log8_nearest((float)(value * half * (1 + 3e-7)), per), e + 1);
        }
        assert_true(kvt_log8_nearest(0, per) <= -126 * per);
        assert_true(kvt_log8_nearest(1e-40f, per) <= -126 * per);
    }
}

/* ---- against the recipe in numpy --------------------------------------------------------------------------------------- */

static uint64_t hash_vu(const struct kvt_tile *tile, const void *bytes) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (int row = 0; row < KVT_TILE_ROWS; row++)
        for (int c0 = 0; c0 < tile->n_lanes; c0 += tile->format.group) {
            add(&hash, kvt_tile_get_scale(tile, bytes, row, c0));
            add(&hash, kvt_tile_get_zero(tile, bytes, row, c0));
            for (int c = c0; c < KVT_MIN(c0 + tile->format.group, tile->n_lanes); c++)
                add(&hash, kvt_tile_get_code(tile, bytes, row, c));
        }
    return hash;
}

static void check_line(const char *name, int d, const uint64_t want[N_TILES]) {
    const struct kvt_codec *codec = codec_of(name);
    const enum kvt_side side = KVT_SIDE_V;
    struct kvt_tile tile;
    kvt_codec_describe(codec, side, d, &tile);
    float *rows = malloc(sizeof *rows * (size_t)(KVT_TILE_ROWS * d));
    void *bytes = aligned_alloc(64, tile.bytes);
    for (int t = 0; t < N_TILES; t++) {
        codec_rows_fill(rows, KVT_TILE_ROWS, d, t);
        memset(bytes, 0, tile.bytes);
        assert_int_equal(kvt_codec_encode(codec, side, d, bytes, 0, KVT_TILE_ROWS, rows, d, NULL), KVT_OK);
        if (hash_vu(&tile, bytes) != want[t]) fail_msg("%s, d %d: tile %d differs", name, d, t);
    }
    free(bytes);
    free(rows);
}

static void test_golden(void **state) {
    (void)state;
    FILE *f = fopen(KVT_ROOT "/tests/golden/codecs/kvt.txt", "r");
    assert_non_null(f);
    char line[200], name[24];
    int d, n_lines = 0;
    unsigned long long a, b;
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#') continue;
        assert_int_equal(sscanf(line, "%23s %d %llx %llx", name, &d, &a, &b), 4);
        check_line(name, d, (const uint64_t[]){a, b});
        n_lines++;
    }
    fclose(f);
    assert_true(n_lines > 0);
}

/* ---- what the format promises ------------------------------------------------------------------------------------------ */

/* One tile of values through the codec. */
static void pass(const char *name, int d, const float *rows, float *back) {
    const struct kvt_codec *codec = codec_of(name);
    const size_t bytes = kvt_codec_tile_bytes(codec, KVT_SIDE_V, d);
    void *tile = aligned_alloc(64, bytes);
    memset(tile, 0, bytes);
    assert_int_equal(kvt_codec_encode(codec, KVT_SIDE_V, d, tile, 0, KVT_TILE_ROWS, rows, d, NULL), KVT_OK);
    assert_int_equal(kvt_codec_decode(codec, KVT_SIDE_V, d, back, d, tile, 0, KVT_TILE_ROWS, NULL), KVT_OK);
    free(tile);
}

/* On Gaussian rows the error is that of the simulation, and decoded rows keep their product with the rows. */
static void test_values(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double error; /* squared, over the rows' */
    } cases[] = {{"vu2", 0.133}, {"vu3", 0.0345}, {"vu4", 0.0091}};
    enum { D = 128 };
    static float x[KVT_TILE_ROWS * D], y[KVT_TILE_ROWS * D];
    struct kvt_rng rng = {31};
    for (size_t i = 0; i < KVT_ARRAY_LEN(cases); i++) {
        double noise = 0, power = 0, shared = 0;
        for (int j = 0; j < KVT_TILE_ROWS * D; j++) x[j] = kvt_rng_normal(&rng);
        pass(cases[i].name, D, x, y);
        for (int j = 0; j < KVT_TILE_ROWS * D; j++) {
            noise += pow((double)(x[j] - y[j]), 2);
            power += pow((double)x[j], 2);
            shared += (double)x[j] * (double)y[j];
        }
        if (fabs(noise / power / cases[i].error - 1) > 0.06)
            fail_msg("%s: squared error %g, not %g", cases[i].name, noise / power, cases[i].error);
        assert_true(fabs(shared / power - 1) < 0.01);
    }
}

/* Rows of zeros come back as they are; a row whose steps would be longer than the format's longest is cut, not lost. */
static void test_odd_values(void **state) {
    (void)state;
    enum { D = 64 };
    static const char *const names[] = {"vu2", "vu3", "vu4"};
    static float x[KVT_TILE_ROWS * D], y[KVT_TILE_ROWS * D];
    for (int c = 0; c < D; c++) x[D + c] = c == 5 ? 8000.0f : 0;
    for (size_t i = 0; i < KVT_ARRAY_LEN(names); i++) {
        pass(names[i], D, x, y);
        for (int c = 0; c < D; c++) assert_true(y[c] == 0);
        for (int c = 0; c < D; c++) assert_true(isfinite(y[D + c]) && fabsf(y[D + c]) <= 8000);
        assert_true(y[D + 5] > 100);
    }
}

static void test_sides(void **state) {
    (void)state;
    struct kvt_error err;
    assert_int_equal(kvt_codec_fits(codec_of("vu4"), KVT_SIDE_K, 64, &err), KVT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "vu4 is made for values alone"));
    assert_int_equal(kvt_codec_fits(codec_of("vu4"), KVT_SIDE_V, 64, &err), KVT_OK);
    assert_int_equal(kvt_codec_tile_bytes(codec_of("vu4"), KVT_SIDE_K, 64), 0);
}

static void test_bytes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int d;
        size_t bytes;
    } want[] = {{"vu2", 128, 4096 + 256}, {"vu3", 128, 6144 + 256}, {"vu4", 128, 8192 + 256},
                {"vu4", 64, 4096 + 256},  {"vu4", 80, 5120 + 256},  {"vu2", 256, 2 * (4096 + 256)}};
    for (size_t i = 0; i < KVT_ARRAY_LEN(want); i++)
        assert_int_equal(kvt_codec_tile_bytes(codec_of(want[i].name), KVT_SIDE_V, want[i].d), want[i].bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log8),       cmocka_unit_test(test_golden), cmocka_unit_test(test_values),
        cmocka_unit_test(test_odd_values), cmocka_unit_test(test_sides),  cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
