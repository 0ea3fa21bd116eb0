/* SPDX-License-Identifier: Apache-2.0
 *
 * Small floats: every code of the 8-bit formats and every boundary between two; known vectors of MLX's modes.
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
#include "codec/codec.h"

/* ---- conversions ----------------------------------------------------------------------------------------------------------- */

static void check_codes(uint8_t (*encode)(float), float (*decode)(uint32_t), int top) {
    for (int c = 0; c <= top; c++) {
        const float x = decode((uint8_t)c);
        assert_int_equal(encode(x), c);
        assert_int_equal(encode(-x), c | 0x80);
        if (c == top) break;
        const float next = decode((uint8_t)(c + 1)), middle = x / 2 + next / 2;
        assert_true(next > x);
        assert_int_equal(encode(middle), c % 2 ? c + 1 : c);
        assert_int_equal(encode(nextafterf(middle, 0)), c);
        assert_int_equal(encode(-nextafterf(middle, INFINITY)), (c + 1) | 0x80);
    }
    static const float beyond[] = {65504, 1e30f, INFINITY, NAN};
    for (size_t i = 0; i < KVT_ARRAY_LEN(beyond); i++) assert_int_equal(encode(beyond[i]) & 0x7F, top);
    assert_int_equal(encode(-1e30f), top | 0x80);
    assert_int_equal(encode(1e-40f), 0);
}

static void test_fp8(void **state) {
    (void)state;
    check_codes(kvt_e4m3_from_f32, kvt_f32_from_e4m3, 0x7E);
    check_codes(kvt_e5m2_from_f32, kvt_f32_from_e5m2, 0x7B);
    assert_true(kvt_f32_from_e4m3(0x7E) == 448 && kvt_f32_from_e5m2(0x7B) == 57344);
}

static void test_e8m0(void **state) {
    (void)state;
    for (int c = 0; c < 255; c++) {
        const float x = kvt_f32_from_e8m0((uint8_t)c);
        assert_true(x == ldexpf(1, c - 127));
        assert_int_equal(kvt_e8m0_above_f32(x), c);
        assert_int_equal(kvt_e8m0_above_f32(nextafterf(x, 0)), c);
        if (c < 254) assert_int_equal(kvt_e8m0_above_f32(nextafterf(x, INFINITY)), c + 1);
    }
    assert_int_equal(kvt_e8m0_above_f32(0), 0);
}

/* ---- MLX ------------------------------------------------------------------------------------------------------------------- */

static float input_a(int i) { return (float)(i - 12) / 4; }
static float input_ties(int i) {
    static const float t[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, 6};
    return i / 8 % 2 ? -t[i % 8] : t[i % 8];
}
static float input_sat(int i) {
    static const float t[] = {6.1f, 7, 7.9f, 8, -12.1f};
    return i < 5 ? t[i] : 1;
}
static float input_e(int i) {
    static const float t[] = {448,     447, 440, 400, 0x1p-9f, 0x1p-10f, 0.0009765624f,
                              0.0014f, 17,  19,  -17, 1.0625f, 1.1875f};
    return i < 13 ? t[i] : 0;
}
static float input_zero(int i) { return (void)i, 0.0f; }

/* Run on MLX 0.32.4, CPU: scales, and codes as MLX packs them. */
static const struct {
    const char *name;
    float (*input)(int i);
    uint8_t scales[2];
    uint32_t words[8];
} mlx[] = {
    {"mxfp4", input_a, {0x7f}, {0xabbcccdd, 0x1100099a, 0x54443322, 0x66666555}},
    {"mxfp8",
     input_a,
     {0x79},
     {0xf1f2f3f4, 0xeaeceef0, 0xd8e0e4e8, 0x64605800, 0x6e6c6a68, 0x73727170, 0x77767574, 0x7a797878}},
    {"nvfp4", input_a, {0x30, 0x35}, {0xcddeeeff, 0x32109abc, 0x55544432, 0x77766666}},
    {"mxfp4", input_ties, {0x7f}, {0x76543210, 0xfedcba90, 0x76543210, 0xfedcba90}},
    {"mxfp4", input_sat, {0x81}, {0x000d4433, 0, 0, 0}},
    {"mxfp8",
     input_sat,
     {0x7a},
     {0x78787674, 0x606060fc, 0x60606060, 0x60606060, 0x60606060, 0x60606060, 0x60606060, 0x60606060}},
    {"nvfp4", input_sat, {0x40, 0x23}, {0x111f6655, 0x11111111, 0x77777777, 0x77777777}},
    {"mxfp8", input_e, {0x7f}, {0x7c7e7e7e, 0x01000001, 0x38d85a58, 0x0000003a}},
    {"mxfp4", input_zero, {0x7f}, {0}},
    {"nvfp4", input_zero, {0}, {0}},
};

static void test_mlx(void **state) {
    (void)state;
    for (size_t t = 0; t < KVT_ARRAY_LEN(mlx); t++)
        for (int side = 0; side < KVT_SIDE_COUNT; side++) {
            const bool k = side == KVT_SIDE_K;
            const int row = 3;
            const struct kvt_codec *codec;
            struct kvt_tile tile;
            float x[32];
            for (int i = 0; i < 32; i++) x[i] = mlx[t].input(i);
            assert_int_equal(kvt_codec_parse(&codec, mlx[t].name, NULL), KVT_OK);
            kvt_codec_describe(codec, (enum kvt_side)side, 32, &tile);
            void *bytes = aligned_alloc(64, tile.bytes);
            memset(bytes, 0, tile.bytes);
            assert_int_equal(kvt_codec_encode(codec, (enum kvt_side)side, 32, bytes, row, 1, x, 32, NULL), KVT_OK);
            for (int i = 0; i < 32; i++) {
                const int term = k ? i : row, lane = k ? row : i, bits = tile.format.bits;
                assert_int_equal(kvt_tile_get_scale(&tile, bytes, term, lane), mlx[t].scales[i / tile.format.group]);
                assert_int_equal(kvt_tile_get_code(&tile, bytes, term, lane),
                                 mlx[t].words[i * bits / 32] >> i * bits % 32 & ((1u << bits) - 1));
            }
            free(bytes);
        }
}

/* What is beyond the largest number is cut, with scale 1; with a scale of its own a row keeps all. */
static void test_saturation(void **state) {
    (void)state;
    static const struct {
        const char *name;
        float becomes;
    } cases[] = {{"fp8e4m3", 448}, {"fp8e5m2", 57344}, {"fp8e4m3-row", 60000}, {"fp8e5m2-row", 60000}};
    for (size_t i = 0; i < KVT_ARRAY_LEN(cases); i++) {
        const struct kvt_codec *codec;
        float x[8] = {60000, 1, -2}, y[8];
        assert_int_equal(kvt_codec_parse(&codec, cases[i].name, NULL), KVT_OK);
        void *bytes = aligned_alloc(64, kvt_codec_tile_bytes(codec, KVT_SIDE_K, 8));
        memset(bytes, 0, kvt_codec_tile_bytes(codec, KVT_SIDE_K, 8));
        assert_int_equal(kvt_codec_encode(codec, KVT_SIDE_K, 8, bytes, 0, 1, x, 8, NULL), KVT_OK);
        assert_int_equal(kvt_codec_decode(codec, KVT_SIDE_K, 8, y, 8, bytes, 0, 1, NULL), KVT_OK);
        assert_true(fabsf(y[0] - cases[i].becomes) < 0.01f);
        free(bytes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fp8), cmocka_unit_test(test_e8m0),
                                       cmocka_unit_test(test_mlx), cmocka_unit_test(test_saturation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
