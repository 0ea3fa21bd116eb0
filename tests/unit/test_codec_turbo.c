/* SPDX-License-Identifier: Apache-2.0
 *
 * turbo: its levels computed anew, its error on Gaussian rows as the theory has it, the length of decoded rows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "codec/codec.h"

static const struct kvt_codec *codec_of(int bits) {
    const struct kvt_codec *codec;
    char name[] = "turboN";
    name[5] = (char)('0' + bits);
    assert_int_equal(kvt_codec_parse(&codec, name, NULL), KVT_OK);
    return codec;
}

static double density(double x) { return exp(-x * x / 2) / sqrt(2 * 3.14159265358979323846); }
static double below(double x) { return erfc(-x / sqrt(2)) / 2; }

/* Lloyd's iteration on the unit Gaussian to a fixed point: boundaries halfway between levels, levels at the mean of what lies between
 * boundaries. Returns the mean squared error. */
static double lloyd_max(double *levels, int n) {
    double edges[17], change = 1, error = 1;
    for (int i = 0; i < n; i++) levels[i] = 4.0 * (i + 0.5) / n - 2;
    edges[0] = -40;
    edges[n] = 40;
    while (change > 1e-12) {
        for (int i = 1; i < n; i++) edges[i] = (levels[i - 1] + levels[i]) / 2;
        change = 0;
        for (int i = 0; i < n; i++) {
            const double mass = below(edges[i + 1]) - below(edges[i]);
            const double mean = (density(edges[i]) - density(edges[i + 1])) / mass;
            change = fmax(change, fabs(mean - levels[i]));
            levels[i] = mean;
        }
    }
    for (int i = 0; i < n; i++) error -= levels[i] * levels[i] * (below(edges[i + 1]) - below(edges[i]));
    return error;
}

static void test_levels(void **state) {
    (void)state;
    for (int bits = 2; bits <= 4; bits++) {
        struct kvt_tile tile;
        double levels[16];
        kvt_codec_describe(codec_of(bits), KVT_SIDE_V, 128, &tile);
        lloyd_max(levels, 1 << bits);
        for (int i = 0; i < 1 << bits; i++) assert_true(fabs(levels[i] - (double)tile.format.table[i]) < 1e-6);
    }
}

/* One tile of rows through the codec, in memory of the caller's. */
static void pass(int bits, enum kvt_side side, int d, const float *rows, float *back) {
    const struct kvt_codec *codec = codec_of(bits);
    const size_t bytes = kvt_codec_tile_bytes(codec, side, d);
    void *tile = aligned_alloc(64, bytes);
    memset(tile, 0, bytes);
    assert_int_equal(kvt_codec_encode(codec, side, d, tile, 0, KVT_TILE_ROWS, rows, d, NULL), KVT_OK);
    assert_int_equal(kvt_codec_decode(codec, side, d, back, d, tile, 0, KVT_TILE_ROWS, NULL), KVT_OK);
    free(tile);
}

static double dot(const float *a, const float *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static void test_rows(void **state) {
    (void)state;
    static const int sizes[] = {64, 80, 128, 256, 512};
    static float x[KVT_TILE_ROWS * 512], y[KVT_TILE_ROWS * 512];
    struct kvt_rng rng = {11};
    for (int bits = 2; bits <= 4; bits++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
            for (int side = 0; side < KVT_SIDE_COUNT; side++) {
                const int d = sizes[s], n = KVT_TILE_ROWS * d;
                double noise = 0, power = 0, levels[16];
                for (int i = 0; i < n; i++) x[i] = ldexpf(kvt_rng_normal(&rng), i / d % 16 - 8);
                pass(bits, (enum kvt_side)side, d, x, y);
                for (int r = 0; r < KVT_TILE_ROWS; r++) {
                    const float *a = x + r * d, *b = y + r * d;
                    const double square = dot(a, a, d);
                    assert_true(fabs(dot(b, b, d) / square - 1) < 0x1p-9);
                    noise += (square - 2 * dot(a, b, d) + dot(b, b, d)) / square;
                    power += 1;
                }
                /* Of unit rows and codes that are centroids, the cosine is the square root of 1 - error. Elements of short rows
                 * have thinner tails than the Gaussian. */
                const double error = lloyd_max(levels, 1 << bits), want = 2 - 2 * sqrt(1 - error);
                if (fabs(noise / power / want - 1) > 0.1)
                    fail_msg("%d bits, side %d, d %d: squared error %g, not %g", bits, side, d, noise / power, want);
            }
}

/* Nothing, and a row that rotates into one spike. */
static void test_odd_rows(void **state) {
    (void)state;
    static float x[KVT_TILE_ROWS * 128], y[KVT_TILE_ROWS * 128];
    for (int i = 0; i < 128; i++) x[128 + i] = 3;
    for (int bits = 2; bits <= 4; bits++) {
        pass(bits, KVT_SIDE_K, 128, x, y);
        for (int i = 0; i < 128; i++) assert_true(y[i] == 0);
        assert_true(fabs(dot(y + 128, y + 128, 128) / (9 * 128) - 1) < 0x1p-9);
        assert_true(dot(x + 128, y + 128, 128) > 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_levels), cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_odd_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
