/* SPDX-License-Identifier: Apache-2.0
 *
 * kvarn: the published vectors of its record, and the rotation.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "codec/kvarn.h"
#include "kvtile/convert.h"

enum { N = 128 };

static uint64_t fnv(uint64_t h, const void *data, size_t n) {
    for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return h;
}
static const uint64_t fnv_start = 0xcbf29ce484222325u;

/* Rotated rows X[t][d] of the tiles A and M. */
static float *make_tile(char name) {
    float *x = malloc(N * N * sizeof *x);
    for (int t = 0; t < N; t++)
        for (int d = 0; d < N; d++) {
            const float u = (float)((37 * t + 101 * d + t * d % 61) % 257 - 128) / 16;
            float v = u;
            if (name == 'M') v = u * (float)(1 + d % 7) * (t % 32 == 3 ? 0.125f : 1) + (d % 13 == 0 ? 20 : 0);
            if (name == 'Z') v = 0;
            if (name == 'C') v = 1.5f;
            x[t * N + d] = kvt_f32_from_f16(kvt_f16_from_f32(v));
        }
    return x;
}

/* The record of a tile: codes as one bit stream by lines, then scales, zeros, factors. */
struct record {
    uint64_t codes, axes;
    uint32_t words[2];
    uint16_t scale0, zero0, scale3, factor0, factor3;
    float decoded[4]; /* [0][0] [0][1] [1][0] [127][127] of [t][d] */
};

static struct record encode(char name, enum kvt_side side, int bits, int iterations) {
    const struct kvt_codec *codec;
    char text[] = "kvarnX-parity";
    text[5] = (char)('0' + bits);
    assert_int_equal(kvt_codec_parse(&codec, text, NULL), KVT_OK);
    struct kvt_tile tile;
    kvt_codec_describe(codec, side, N, &tile);
    unsigned char *bytes = aligned_alloc(64, tile.bytes);
    memset(bytes, 0, tile.bytes);
    float *x = make_tile(name);
    kvt_kvarn_encode(&(struct kvt_kvarn_recipe){.iterations = iterations, .parity = true, .rotated = true}, &tile,
                     bytes, x, N);
    struct record out;
    const size_t stream_bytes = (size_t)(N * N * bits / 8);
    uint32_t *stream = malloc(stream_bytes);
    uint16_t axes[3][N];
    const struct kvt_kvarn_record record = {stream, axes[0]};
    assert_int_equal(kvt_kvarn_export(codec, side, N, &record, bytes, NULL), KVT_OK);
    out.codes = fnv(fnv_start, stream, stream_bytes);
    out.axes = fnv(fnv_start, axes, sizeof axes);
    memcpy(out.words, stream, sizeof out.words);
    out.scale0 = axes[0][0], out.zero0 = axes[1][0], out.scale3 = axes[0][3];
    out.factor0 = axes[2][0], out.factor3 = axes[2][3];
    unsigned char *again = aligned_alloc(64, tile.bytes);
    memset(again, 0, tile.bytes);
    assert_int_equal(kvt_kvarn_import(codec, side, N, again, &record, NULL), KVT_OK);
    assert_memory_equal(again, bytes, tile.bytes);
    static const int at[4][2] = {{0, 0}, {0, 1}, {1, 0}, {127, 127}};
    for (int i = 0; i < 4; i++)
        out.decoded[i] = side == KVT_SIDE_K ? kvt_tile_get(&tile, bytes, at[i][1], at[i][0])
                                            : kvt_tile_get(&tile, bytes, at[i][0], at[i][1]);
    free(x), free(bytes), free(stream), free(again);
    return out;
}

static void test_tiles_are_those_of_the_vectors(void **state) {
    (void)state;
    static const struct {
        char name;
        uint64_t hash;
    } tiles[] = {{'A', 0xc9eb18431d9b8657u}, {'M', 0x2458d14a2a0e8bc4u}};
    for (int i = 0; i < 2; i++) {
        float *x = make_tile(tiles[i].name);
        uint16_t half[N * N];
        for (int j = 0; j < N * N; j++) half[j] = kvt_f16_from_f32(x[j]);
        assert_true(fnv(fnv_start, half, sizeof half) == tiles[i].hash);
        free(x);
    }
}

static void test_no_iterations(void **state) {
    (void)state;
    static const struct {
        char name;
        enum kvt_side side;
        int bits;
        uint64_t codes, axes;
        uint32_t words[2];
        uint16_t scale0, zero0, scale3;
    } want[] = {
        {'A',
         KVT_SIDE_K,
         2,
         0x8cece7a63336880du,
         0x374142083db5e2e6u,
         {0x0e943a50, 0x54e953a5},
         0x4555,
         0xc800,
         0x4540},
        {'A',
         KVT_SIDE_K,
         3,
         0x726994c8617d5225u,
         0x384324403204c35cu,
         {0xd11ac688, 0x6b1a2358},
         0x4092,
         0xc800,
         0x4080},
        {'A',
         KVT_SIDE_K,
         4,
         0xfa7c3e9049a0b336u,
         0x8ae411f9ca2cd3cfu,
         {0x0db97420, 0x20db9742},
         0x3c44,
         0xc800,
         0x3c33},
        {'A',
         KVT_SIDE_K,
         5,
         0x3cb45e6ca09b2a3eu,
         0xa7be5b3fb9436121u,
         {0xed26a480, 0x79392506},
         0x3821,
         0xc800,
         0x3811},
        {'A',
         KVT_SIDE_K,
         6,
         0xe65398e2db2ebf09u,
         0x2de65feae05b2cf5u,
         {0xa46d2240, 0xc4ca037b},
         0x3410,
         0xc800,
         0x3400},
        {'A',
         KVT_SIDE_K,
         8,
         0x4bfe03ef9e5c818bu,
         0x278f888fa7883716u,
         {0x6f4a2500, 0x02ddb893},
         0x2c04,
         0xc800,
         0x2be8},
        {'A',
         KVT_SIDE_V,
         2,
         0x56c4a9609d4743f4u,
         0xaf71664e5c87a1a4u,
         {0xe2789e64, 0x649d2749},
         0x4540,
         0xc800,
         0x4555},
        {'A',
         KVT_SIDE_V,
         4,
         0x7c87a538deb7514bu,
         0x5d0a4ae9e314c46eu,
         {0xb5f93c60, 0xe82b5e82},
         0x3c33,
         0xc800,
         0x3c44},
        {'A',
         KVT_SIDE_V,
         6,
         0x40ef1d4e921e15d8u,
         0x341bc594a7e39a76u,
         {0xa5333640, 0xc8c9c17f},
         0x3400,
         0xc800,
         0x3410},
        {'M',
         KVT_SIDE_K,
         4,
         0x6379e45934315bfcu,
         0xb067968e64ac2c71u,
         {0x0db97420, 0x20db9742},
         0x3c44,
         0x4a00,
         0x4433},
        {'M',
         KVT_SIDE_V,
         3,
         0x7ec819ce0ca6226bu,
         0xc11174d2edb25d05u,
         {0x5a6b331c, 0xd6628cc5},
         0x4bd8,
         0xd16a,
         0x4467},
        {'M',
         KVT_SIDE_V,
         8,
         0x222b92f57f33ef78u,
         0xd20dd6f0e88c396eu,
         {0x35855d80, 0x6e40cd72},
         0x36e4,
         0xd16a,
         0x2fbd},
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        const struct record got = encode(want[i].name, want[i].side, want[i].bits, 0);
        assert_memory_equal(got.words, want[i].words, sizeof got.words);
        assert_int_equal(got.scale0, want[i].scale0);
        assert_int_equal(got.zero0, want[i].zero0);
        assert_int_equal(got.scale3, want[i].scale3);
        assert_true(got.codes == want[i].codes);
        assert_true(got.axes == want[i].axes);
    }
}

/* With iterations the axes may differ by a common factor between libraries, and decoded values by what f16 axes lose; codes of
 * up to six bits are the same. */
static void test_sixteen_iterations(void **state) {
    (void)state;
    static const struct {
        char name;
        enum kvt_side side;
        uint64_t codes[3]; /* of 2, 4 and 6 bits */
    } want[] = {
        {'A', KVT_SIDE_K, {0x268cc6a4badf2313u, 0xe887e8bce5ca185cu, 0xc88e19975aa18490u}},
        {'A', KVT_SIDE_V, {0xd3e34dc22ef581c0u, 0x6e7a9b3f5151d8b8u, 0xe7d1f4a38b3af183u}},
        {'M', KVT_SIDE_K, {0x11e45e693a6e973au, 0x5ea47f337dffe26fu, 0xb916d4ddf9aed9d5u}},
        {'M', KVT_SIDE_V, {0xeaa25ae1f23b6f2bu, 0x3ea3b9fac0cd4634u, 0x723750ea7e5cf8c1u}},
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        for (int b = 0; b < 3; b++) {
            const struct record got = encode(want[i].name, want[i].side, 2 * b + 2, 16);
            assert_true(got.codes == want[i].codes[b]);
        }
    static const float k[4] = {-8, -1.46191406f, -5.84765625f, -3.65429688f},
                       v[4] = {-8.0390625f, -1.66210938f, -6.1875f, -3.53515625f};
    const struct record rk = encode('A', KVT_SIDE_K, 4, 16), rv = encode('A', KVT_SIDE_V, 4, 16);
    for (int i = 0; i < 4; i++) {
        assert_true(fabsf(rk.decoded[i] - k[i]) <= 0.0025f * 8);
        assert_true(fabsf(rv.decoded[i] - v[i]) <= 0.0025f * 8);
    }
}

static void test_flat_tiles(void **state) {
    (void)state;
    const struct record z = encode('Z', KVT_SIDE_K, 4, 16), c = encode('C', KVT_SIDE_V, 4, 16),
                        c0 = encode('C', KVT_SIDE_V, 4, 0);
    assert_true(z.scale0 == 0 && z.zero0 == 0 && z.factor0 == 0x39ed && z.words[0] == 0);
    assert_true(c.scale0 == 0 && c.zero0 == 0x400d && c.factor0 == 0x39ed && c.words[0] == 0);
    assert_true(c0.scale0 == 0 && c0.zero0 == 0x3e00 && c0.factor0 == 0x3c00);
}

static void test_rotation(void **state) {
    (void)state;
    static const struct {
        int d;
        uint16_t first[6], last;
        uint64_t f16, f32;
    } want[] = {
        {128, {0x2fc7, 0xba47, 0x3f34, 0xb79a, 0x3e52, 0xbe7f}, 0xc00b, 0x568f012f38313db9u, 0x818874def5e498a8u},
        {256, {0xa600, 0xb830, 0xb890, 0xb240, 0x4064, 0xbaf0}, 0xbdb8, 0x0709c7b1ceb524d8u, 0x7514e99ec20ac822u},
        {512, {0xb411, 0xb6e5, 0xb203, 0xb46b, 0xb603, 0xb86b}, 0xc164, 0x2db6da9cc83b1dfeu, 0x835cce9aa8949712u},
    };
    for (int i = 0; i < 3; i++) {
        float x[512];
        uint16_t half[512];
        for (int d = 0; d < want[i].d; d++) x[d] = (float)((3 * d * d + 29 * d + 3) % 61 - 30) / 8;
        kvt_rotate(x, want[i].d);
        for (int d = 0; d < want[i].d; d++) half[d] = kvt_f16_from_f32(x[d]);
        assert_memory_equal(half, want[i].first, sizeof want[i].first);
        assert_int_equal(half[want[i].d - 1], want[i].last);
        assert_true(fnv(fnv_start, half, (size_t)want[i].d * 2) == want[i].f16);
        assert_true(fnv(fnv_start, x, (size_t)want[i].d * 4) == want[i].f32);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles_are_those_of_the_vectors),
        cmocka_unit_test(test_no_iterations),
        cmocka_unit_test(test_sixteen_iterations),
        cmocka_unit_test(test_flat_tiles),
        cmocka_unit_test(test_rotation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
