/* SPDX-License-Identifier: Apache-2.0
 * base: half precision, random numbers, levels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/rng.h"
#include "kvtile/runtime.h"

/* What the 16 bits mean, from the definition: sign, five bits of exponent, ten of fraction. */
static double f16_value(unsigned h) {
    const int e = (int)(h >> 10 & 31), m = (int)(h & 1023);
    const double sign = h & 0x8000 ? -1 : 1;
    if (e == 31) return m ? NAN : sign * INFINITY;
    return sign * (e ? ldexp(1024 + m, e - 25) : ldexp(m, -24));
}

static void every_f16_goes_to_f32_and_back(void **state) {
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        const float x = kvt_f32_from_f16((uint16_t)h);
        const double want = f16_value(h);
        if (isnan(want)) {
            assert_true(isnan(x));
            /* A NaN stays one, with its sign and payload, and is quiet. */
            assert_int_equal(kvt_f16_from_f32(x), h | 0x200);
            continue;
        }
        assert_true((double)x == want);
        assert_int_equal(signbit(x) != 0, h >> 15);
        assert_int_equal(kvt_f16_from_f32(x), h);
    }
}

static float next_up(float x) { return kvt_f32_from_bits(kvt_f32_bits(x) + 1); } /* of a positive number */
static float next_down(float x) { return kvt_f32_from_bits(kvt_f32_bits(x) - 1); }

/* Between each two neighbours: the middle goes to the even one, its neighbours in f32 to the nearer one. Together with
 * monotony that is the whole of rounding. */
static void f32_to_f16_rounds_to_nearest_even(void **state) {
    (void)state;
    for (unsigned h = 0; h < 0x7C00; h++) {
        /* Past the largest number the next would be 65536: from 65520 on the result is infinite. */
        const double low = f16_value(h), high = h == 0x7BFF ? 65536 : f16_value(h + 1);
        const float middle = (float)((low + high) / 2);
        assert_true((double)middle == (low + high) / 2);
        assert_int_equal(kvt_f16_from_f32(middle), h & 1 ? h + 1 : h);
        assert_int_equal(kvt_f16_from_f32(next_down(middle)), h);
        assert_int_equal(kvt_f16_from_f32(next_up(middle)), h + 1);
        assert_int_equal(kvt_f16_from_f32(-next_up(middle)), (h + 1) | 0x8000);
    }
    assert_int_equal(kvt_f16_from_f32(65536), 0x7C00);
    assert_int_equal(kvt_f16_from_f32(3e38f), 0x7C00);
    assert_int_equal(kvt_f16_from_f32(-INFINITY), 0xFC00);
    assert_int_equal(kvt_f16_from_f32(1e-45f), 0);
    assert_int_equal(kvt_f16_from_f32(-1e-45f), 0x8000);
    assert_int_equal(kvt_f16_from_f32(kvt_f32_from_bits(0x7F800001u)) & 0x7E00, 0x7E00);
}

static void bf16_rounds_to_nearest_even(void **state) {
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        const float x = kvt_f32_from_bf16((uint16_t)h);
        if (isnan(x)) {
            assert_int_equal(kvt_bf16_from_f32(x), h | 0x40);
            continue;
        }
        assert_int_equal(kvt_bf16_from_f32(x), h);
        if (isinf(x)) continue;
        const float middle = kvt_f32_from_bits(h << 16 | 0x8000u);
        assert_int_equal(kvt_bf16_from_f32(middle), h & 1 ? h + 1 : h);
        assert_int_equal(kvt_bf16_from_f32(next_down(middle)), h);
        assert_int_equal(kvt_bf16_from_f32(next_up(middle)), h + 1);
    }
    /* All payload in the low bits: still a NaN. */
    assert_true(isnan(kvt_f32_from_bf16(kvt_bf16_from_f32(kvt_f32_from_bits(0x7F800001u)))));
}

static void random_numbers_are_the_published_ones(void **state) {
    (void)state;
    /* splitmix64 from seed 1234567, as its authors' reference code prints them. */
    static const uint64_t want[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                    4593380528125082431u, 16408922859458223821u};
    struct kvt_rng rng = {1234567};
    for (int i = 0; i < 5; i++) assert_int_equal(kvt_rng_u64(&rng), want[i]);
}

static void random_numbers_have_their_distributions(void **state) {
    (void)state;
    enum { N = 200000 };
    struct kvt_rng rng = {1};
    double sum = 0, sum2 = 0, units = 0;
    int count[7] = {0};
    for (int i = 0; i < N; i++) {
        const double x = kvt_rng_normal(&rng), u = kvt_rng_unit(&rng);
        assert_true(u >= 0 && u < 1);
        sum += x;
        sum2 += x * x;
        units += u;
        count[kvt_rng_below(&rng, 7)]++;
    }
    /* Five standard errors each. */
    assert_true(fabs(sum / N) < 5 / sqrt(N));
    assert_true(fabs(sum2 / N - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(units / N - 0.5) < 5 * sqrt(1.0 / 12 / N));
    for (int i = 0; i < 7; i++) assert_true(fabs(count[i] - N / 7.0) < 5 * sqrt(N / 7.0));
}

static void levels_have_names_and_are_parsed(void **state) {
    (void)state;
    struct kvt_error err;
    enum kvt_level level = KVT_LEVEL_COUNT;
    assert_int_equal(kvt_level_parse(&level, "ref", &err), KVT_OK);
    assert_int_equal(level, KVT_LEVEL_REF);
    assert_int_equal(kvt_level_parse(&level, "auto", &err), KVT_OK);
    assert_int_equal(level, kvt_level_best());
    assert_true(kvt_level_runs(KVT_LEVEL_REF));
    assert_true(kvt_level_runs(kvt_level_best()));
    for (int i = 0; i < KVT_LEVEL_COUNT; i++) {
        const enum kvt_level l = (enum kvt_level)i;
        const enum kvt_status status = kvt_level_parse(&level, kvt_level_name(l), &err);
        if (kvt_level_runs(l)) {
            assert_int_equal(status, KVT_OK);
            assert_int_equal(level, l);
            assert_true(l <= kvt_level_best());
        } else {
            assert_int_equal(status, KVT_ERR_UNSUPPORTED);
            assert_non_null(strstr(err.text, kvt_level_name(kvt_level_best())));
        }
    }
    level = KVT_LEVEL_REF;
    assert_int_equal(kvt_level_parse(&level, "AVX9", &err), KVT_ERR_ARG);
    assert_string_equal(err.text, "unknown level 'AVX9'; known: auto, ref, neon, avx2, avx512, amx");
    assert_int_equal(kvt_level_parse(&level, NULL, &err), KVT_ERR_ARG);
    assert_int_equal(level, KVT_LEVEL_REF);
    assert_string_equal(kvt_level_name(KVT_LEVEL_COUNT), "unknown");
    assert_string_equal(kvt_level_name((enum kvt_level) - 1), "unknown");
    assert_false(kvt_level_runs(KVT_LEVEL_COUNT));
#if defined(__x86_64__)
    assert_false(kvt_level_runs(KVT_LEVEL_NEON));
#elif defined(__aarch64__)
    assert_int_equal(kvt_level_best(), KVT_LEVEL_NEON);
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_f16_goes_to_f32_and_back),
        cmocka_unit_test(f32_to_f16_rounds_to_nearest_even),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(random_numbers_are_the_published_ones),
        cmocka_unit_test(random_numbers_have_their_distributions),
        cmocka_unit_test(levels_have_names_and_are_parsed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
