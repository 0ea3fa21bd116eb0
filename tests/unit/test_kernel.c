/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels against their references: every codec, head size and level, with the tile against a guard page.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/rng.h"
#include "kernel/kernel.h"
#include "support/guard.h"

/* Random scales and codes; scales are finite. */
static void fill_tile(struct kvt_rng *rng, const struct kvt_tile *tile, unsigned char *bytes) {
    for (size_t i = 0; i < tile->bytes; i++) bytes[i] = (unsigned char)kvt_rng_u64(rng);
    for (size_t i = 1; i < tile->bytes; i += 2)
        if ((bytes[i] & 0x7C) == 0x7C) bytes[i] &= 0xBF; /* no f16 and few bf16, f32 of the largest exponent */
}

static bool same(float a, float b) { return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b)); }

static void check_unpack(kvt_unpack_fn fn, enum kvt_level level, const struct kvt_codec *codec, enum kvt_side side,
                         int d, struct kvt_rng *rng) {
    struct kvt_tile tile;
    struct guard in, out;
    kvt_codec_describe(codec, side, d, &tile);
    const size_t out_bytes = (size_t)tile.n_terms * KVT_LANES * sizeof(float);
    assert_true(guard_init(&in, tile.bytes) && guard_init(&out, out_bytes));
    unsigned char *bytes = guard_last(&in, tile.bytes);
    float *values = (float *)(void *)guard_last(&out, out_bytes);
    fill_tile(rng, &tile, bytes);
    for (int b = 0; b < kvt_tile_n_blocks(&tile); b++) {
        memset(values, 0xAA, out_bytes);
        fn(&tile, bytes, b, values);
        for (int t = 0; t < tile.n_terms; t++)
            for (int l = 0; l < KVT_LANES; l++) {
                const int lane = b * KVT_LANES + l, stored = kvt_tile_block(&tile, b).n_lanes;
                const float want = l >= stored ? 0 : lane < tile.n_lanes ? kvt_tile_get(&tile, bytes, t, lane) : NAN;
                if (lane < tile.n_lanes || l >= stored)
                    if (!same(values[t * KVT_LANES + l], want))
                        fail_msg("%s %s side %d d %d block %d term %d lane %d: %a, not %a", kvt_level_name(level),
                                 codec->info.name, side, d, b, t, l, (double)values[t * KVT_LANES + l], (double)want);
            }
    }
    guard_finish(&in);
    guard_finish(&out);
}

static void test_unpack(void **state) {
    (void)state;
    static const int sizes[] = {64, 128, 8, 72, 80, 192};
    struct kvt_rng rng = {5};
    for (int l = 0; l < KVT_LEVEL_COUNT; l++) {
        if (!kvt_unpack_table[l] || !kvt_level_runs((enum kvt_level)l)) continue;
        for (size_t i = 0; i < kvt_codec_count(); i++)
            for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
                for (int side = 0; side < KVT_SIDE_COUNT; side++)
                    check_unpack(kvt_unpack_table[l], (enum kvt_level)l, kvt_codec_at(i), (enum kvt_side)side, sizes[s],
                                 &rng);
    }
}

/* Ordinary rows and rows with all that hurts: constant, zero, signed zeros, an outlier, tiny, large. */
static void fill_rows(struct kvt_rng *rng, float *x, int n, int d, float limit) {
    for (int r = 0; r < n; r++) {
        const int kind = (int)kvt_rng_below(rng, 8);
        const float scale = kind == 3 ? limit / 8 : kind == 4 ? 1e-7f : 1;
        for (int c = 0; c < d; c++)
            x[r * d + c] = kind == 1   ? 0.75f
                           : kind == 2 ? (kvt_rng_below(rng, 2) ? 0.0f : -0.0f)
                           : kind == 6 ? (float)kvt_rng_below(rng, 16) / 2 /* ties */
                                       : scale * kvt_rng_normal(rng);
        if (kind == 5) x[r * d + (int)kvt_rng_below(rng, (uint64_t)d)] = kvt_rng_below(rng, 2) ? limit : -limit;
    }
}

static void check_encode(kvt_encode_fn fn, enum kvt_level level, const struct kvt_codec *codec, enum kvt_side side,
                         int d, struct kvt_rng *rng) {
    struct kvt_tile tile;
    struct guard gx, gt;
    kvt_codec_describe(codec, side, d, &tile);
    const int g = codec->info.granularity, n = g * (1 + (int)kvt_rng_below(rng, (uint64_t)(KVT_TILE_ROWS / g)));
    const int first = g * (int)kvt_rng_below(rng, (uint64_t)((KVT_TILE_ROWS - n) / g + 1));
    const size_t row_bytes = (size_t)(n * d) * sizeof(float);
    assert_true(guard_init(&gx, row_bytes) && guard_init(&gt, tile.bytes));
    float *x = (float *)(void *)guard_last(&gx, row_bytes);
    unsigned char *got = guard_last(&gt, tile.bytes), *want = aligned_alloc(64, tile.bytes);
    fill_rows(rng, x, n, d, kvt_codec_limit(codec, side, d));
    const struct kvt_encode_args to_got = {codec, &tile, got, first, n, x, d},
                                 to_want = {codec, &tile, want, first, n, x, d};
    for (size_t i = 0; i < tile.bytes; i++) got[i] = want[i] = (unsigned char)kvt_rng_u64(rng);
    fn(&to_got);
    codec->encoder->encode(&to_want);
    for (int t = 0; t < tile.n_terms; t++) /* padding of terms may differ where it was noise */
        for (int l = 0; l < tile.n_lanes; l++) {
            const float a = kvt_tile_get(&tile, got, t, l), b = kvt_tile_get(&tile, want, t, l);
            if (!same(a, b))
                fail_msg("%s %s side %d d %d rows %d+%d term %d lane %d: %a, not %a", kvt_level_name(level),
                         codec->info.name, (int)side, d, first, n, t, l, (double)a, (double)b);
        }
    memset(got, 0, tile.bytes);
    memset(want, 0, tile.bytes);
    fn(&to_got);
    codec->encoder->encode(&to_want);
    assert_memory_equal(got, want, tile.bytes);
    free(want);
    guard_finish(&gx), guard_finish(&gt);
}

static void test_encode(void **state) {
    (void)state;
    static const int sizes[] = {64, 128, 8, 72, 80, 192, 512};
    struct kvt_rng rng = {8};
    for (int l = 0; l < KVT_LEVEL_COUNT; l++)
        for (size_t i = 0; i < kvt_codec_count(); i++) {
            const kvt_encode_fn fn = kvt_encode_kernel(kvt_codec_at(i), (enum kvt_level)l);
            if (!fn || !kvt_level_runs((enum kvt_level)l)) continue;
            for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
                for (int side = 0; side < KVT_SIDE_COUNT; side++)
                    for (int rep = 0; rep < 3; rep++)
                        check_encode(fn, (enum kvt_level)l, kvt_codec_at(i), (enum kvt_side)side, sizes[s], &rng);
        }
}

static void check_fold(kvt_fold_fn fn, struct kvt_rng *rng) {
    const int n = 1 + (int)kvt_rng_below(rng, 9), terms = 1 + (int)kvt_rng_below(rng, 160);
    const int ld_x = terms + (int)kvt_rng_below(rng, 5), ld_y = KVT_LANES + (int)kvt_rng_below(rng, 5);
    const size_t nx = (size_t)(n * ld_x), ny = (size_t)((n - 1) * ld_y + KVT_LANES), nb = (size_t)(terms * KVT_LANES);
    struct guard gx, gy, gb;
    assert_true(guard_init(&gx, nx * 4) && guard_init(&gy, ny * 4) && guard_init(&gb, nb * 4));
    float *x = (float *)(void *)guard_last(&gx, nx * 4), *y = (float *)(void *)guard_last(&gy, ny * 4);
    float *b = (float *)(void *)guard_last(&gb, nb * 4), *before = malloc(ny * sizeof *before);
    for (size_t i = 0; i < nx; i++) x[i] = kvt_rng_normal(rng);
    for (size_t i = 0; i < ny; i++) y[i] = before[i] = kvt_rng_normal(rng);
    for (size_t i = 0; i < nb; i++) b[i] = kvt_rng_normal(rng);
    fn(y, ld_y, x, ld_x, n, b, terms);
    for (size_t i = 0; i < ny; i++) {
        const size_t v = i / (size_t)ld_y, l = i % (size_t)ld_y;
        if (l >= KVT_LANES) {
            assert_true(same(y[i], before[i]));
            continue;
        }
        double sum = (double)before[i], size = fabs(sum);
        for (int t = 0; t < terms; t++) {
            const double term = (double)x[v * (size_t)ld_x + (size_t)t] * (double)b[(size_t)t * KVT_LANES + l];
            sum += term;
            size += fabs(term);
        }
        assert_true(fabs((double)y[i] - sum) <= size * 0x1p-24 * (terms + 1));
    }
    free(before);
    guard_finish(&gx), guard_finish(&gy), guard_finish(&gb);
}

static void test_fold(void **state) {
    (void)state;
    struct kvt_rng rng = {6};
    for (int l = 0; l < KVT_LEVEL_COUNT; l++)
        if (kvt_fold_table[l] && kvt_level_runs((enum kvt_level)l))
            for (int i = 0; i < 300; i++) check_fold(kvt_fold_table[l], &rng);
}

static void check_soften(kvt_soften_fn fn, struct kvt_rng *rng) {
    const int n = 1 + (int)kvt_rng_below(rng, 128);
    float scores[128], copy[128], max = -INFINITY, sum = 0;
    double exact_max = -INFINITY, exact_sum = 0;
    for (int step = 0; step < 3; step++) {
        const float spread = kvt_rng_below(rng, 2) ? 1 : 30;
        for (int i = 0; i < n; i++)
            copy[i] = scores[i] = kvt_rng_below(rng, 4) ? spread * kvt_rng_normal(rng) : -INFINITY;
        if (kvt_rng_below(rng, 5) == 0)
            for (int i = 0; i < n; i++) copy[i] = scores[i] = -INFINITY;
        const double old = exact_max;
        for (int i = 0; i < n; i++) exact_max = fmax(exact_max, (double)copy[i]);
        const float keep = fn(scores, n, &max, &sum);
        if (exact_max == -INFINITY) {
            assert_true(keep == 1 && sum == 0 && max == -INFINITY);
            for (int i = 0; i < n; i++) assert_true(scores[i] == 0);
            continue;
        }
        assert_true((double)max == exact_max);
        assert_true(fabs((double)keep - exp(old - exact_max)) < 3e-7);
        exact_sum *= exp(old - exact_max);
        for (int i = 0; i < n; i++) {
            const double want = exp((double)(copy[i] - max)); /* the difference is rounded once */
            exact_sum += want;
            assert_true(fabs((double)scores[i] - want) <= want * 3e-7 + 1e-37);
        }
        assert_true(fabs((double)sum - exact_sum) <= exact_sum * 5e-6);
    }
}

static void test_soften(void **state) {
    (void)state;
    struct kvt_rng rng = {7};
    for (int l = 0; l < KVT_LEVEL_COUNT; l++)
        if (kvt_soften_table[l] && kvt_level_runs((enum kvt_level)l))
            for (int i = 0; i < 2000; i++) check_soften(kvt_soften_table[l], &rng);
}

static void test_exp(void **state) {
    (void)state;
    for (int i = 0; i <= 870000; i++) {
        const float x = -(float)i * 1e-4f;
        const double want = exp((double)x);
        assert_true(fabs((double)kvt_exp_negative(x) - want) <= want * 0x1p-22);
    }
    assert_true(kvt_exp_negative(-INFINITY) == 0 && kvt_exp_negative(-1e30f) == 0 && kvt_exp_negative(0) == 1);
}

static void test_select(void **state) {
    (void)state;
    const struct kvt_kernels ref = kvt_kernels_select(KVT_LEVEL_REF), best = kvt_kernels_select(kvt_level_best());
    assert_ptr_equal(ref.unpack, kvt_unpack_table[KVT_LEVEL_REF]);
    assert_non_null(best.unpack);
    assert_non_null(best.fold);
    assert_non_null(best.soften);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unpack), cmocka_unit_test(test_encode), cmocka_unit_test(test_fold),
        cmocka_unit_test(test_soften), cmocka_unit_test(test_exp),    cmocka_unit_test(test_select),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
