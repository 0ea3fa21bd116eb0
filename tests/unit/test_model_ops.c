/* SPDX-License-Identifier: Apache-2.0
 * The engine's small vector operations and its rotary frequencies against their definitions in double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/attr.h"
#include "base/rng.h"
#include "model/ops.h"
#include "model/rope.h"

enum { MAX = 100 };

static const int lengths[] = {1, 2, 15, 16, 17, 64, 99};

static void fill(float *x, int n, struct kvt_rng *rng, float scale) {
    for (int i = 0; i < n; i++) x[i] = scale * kvt_rng_normal(rng);
}

static void assert_near(double found, double exact, double tolerance) {
    if (!(fabs(found - exact) <= tolerance)) fail_msg("%.9g is not within %.2g of %.9g", found, tolerance, exact);
}

static void rms_norm_is_near(void **state) {
    (void)state;
    struct kvt_rng rng = {1};
    for (size_t l = 0; l < KVT_ARRAY_LEN(lengths); l++) {
        const int n = lengths[l];
        float x[MAX], w[MAX], y[MAX + 1];
        fill(x, n, &rng, 30);
        fill(w, n, &rng, 1);
        y[n] = 123;
        kvt_rms_norm(y, x, w, n, 1e-5f);
        double sum = 0;
        for (int i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
        for (int i = 0; i < n; i++) {
            const double exact = (double)x[i] / sqrt(sum / n + 1e-5) * (double)w[i];
            assert_near((double)y[i], exact, 1e-6 * (fabs(exact) + 1e-3));
        }
        assert_true(y[n] == 123);
        kvt_rms_norm(x, x, w, n, 1e-5f); /* in place */
        assert_memory_equal(x, y, (size_t)n * sizeof *x);
    }
}

static void swiglu_is_near(void **state) {
    (void)state;
    struct kvt_rng rng = {2};
    const float edges[] = {0, -0.0f, 1e-20f, -1e-20f, 50, -50, 88, -88, 200, -200, 1e30f, -1e30f};
    for (int round = 0; round < 200; round++) {
        float gate[MAX], up[MAX], before[MAX];
        fill(gate, MAX, &rng, 8);
        fill(up, MAX, &rng, 3);
        for (size_t i = 0; round == 0 && i < KVT_ARRAY_LEN(edges); i++) gate[i] = edges[i];
        for (int i = 0; i < MAX; i++) before[i] = gate[i];
        kvt_swiglu(gate, up, MAX);
        for (int i = 0; i < MAX; i++) {
            const double g = (double)before[i], exact = g / (1 + exp(-g)) * (double)up[i];
            assert_near((double)gate[i], exact, 5e-7 * fabs(exact) + 1e-35 + (g < -87 ? 1e-5 : 0));
        }
    }
}

static void exp_is_near(void **state) {
    (void)state;
    double worst = 0;
    for (int i = 0; i < 200000; i++) {
        float x = 10 - 0.00043f * (float)i, y;
        kvt_exp_below(&y, &x, 1, 10, 0.9f);
        const double exact = exp((double)((x - 10) * 0.9f));
        worst = fmax(worst, fabs((double)y - exact) / exact);
    }
    assert_near(worst, 0, 3e-7);
    float x[] = {-INFINITY, NAN, -500, 1}, y[4];
    kvt_exp_below(y, x, 4, 1, 1);
    assert_true(y[0] == 0 && y[1] == 0 && y[2] == 0 && y[3] == 1);
}

static struct kvt_rope_config plain_rope(int n_rot) {
    return (struct kvt_rope_config){.n_rot = n_rot,
                                    .base = 10000,
                                    .factor = 1,
                                    .attn_factor = 1,
                                    .n_ctx_original = 4096,
                                    .ext_factor = 1,
                                    .beta_fast = 32,
                                    .beta_slow = 1};
}

static void rope_turns_pairs(void **state) {
    (void)state;
    enum { N_ROT = 24, SIZE = 32, HEADS = 3, POSITION = 12345 };
    struct kvt_rng rng = {3};
    for (int pairing = 0; pairing < 2; pairing++) {
        const struct kvt_rope_config config = plain_rope(N_ROT);
        double freq[N_ROT / 2];
        float table[N_ROT], heads[HEADS * SIZE], before[HEADS * SIZE];
        const struct kvt_rope rope = kvt_rope_of(&config, (enum kvt_rope_pairing)pairing, NULL, freq);
        kvt_rope_table(table, &rope, POSITION);
        fill(heads, HEADS * SIZE, &rng, 1);
        for (int i = 0; i < HEADS * SIZE; i++) before[i] = heads[i];
        kvt_rope_turn(heads, HEADS, SIZE, &rope, table);
        for (int h = 0; h < HEADS; h++) {
            for (int i = 0; i < N_ROT / 2; i++) {
                const int a = h * SIZE + (pairing == KVT_ROPE_NEIGHBOURS ? 2 * i : i);
                const int b = h * SIZE + (pairing == KVT_ROPE_NEIGHBOURS ? 2 * i + 1 : i + N_ROT / 2);
                const double angle = POSITION * pow(10000, -2.0 * i / N_ROT);
                const double x = (double)before[a], y = (double)before[b];
                assert_near((double)heads[a], x * cos(angle) - y * sin(angle), 1e-6);
                assert_near((double)heads[b], x * sin(angle) + y * cos(angle), 1e-6);
            }
            for (int i = N_ROT; i < SIZE; i++) assert_true(heads[h * SIZE + i] == before[h * SIZE + i]);
        }
    }
}

static void rope_scales_frequencies(void **state) {
    (void)state;
    double plain[32], scaled[32];
    float factors[32];
    struct kvt_rope_config config = plain_rope(64);
    kvt_rope_of(&config, KVT_ROPE_HALVES, NULL, plain);
    config.scaling = KVT_ROPE_SCALING_LINEAR;
    config.factor = 4;
    config.attn_factor = 1.5;
    for (int i = 0; i < 32; i++) factors[i] = 1 + (float)i;
    const struct kvt_rope rope = kvt_rope_of(&config, KVT_ROPE_HALVES, factors, scaled);
    assert_near(rope.scale, 1.5, 0);
    for (int i = 0; i < 32; i++) assert_near(scaled[i], plain[i] / 4 / (1 + i), 1e-15 * plain[i]);
}

/* YaRN, with the corner pairs worked out by hand: base 10000, 64 dimensions, 4096 positions. A pair makes
 * 4096 / (2 pi 10000^(i/32)) turns: 32 of them at i = 10.47, 1 at i = 22.52; the ramp is from 10 to 23. */
static void rope_yarn_ramps(void **state) {
    (void)state;
    double plain[32], scaled[32];
    struct kvt_rope_config config = plain_rope(64);
    kvt_rope_of(&config, KVT_ROPE_HALVES, NULL, plain);
    config.scaling = KVT_ROPE_SCALING_YARN;
    config.factor = 4;
    const struct kvt_rope rope = kvt_rope_of(&config, KVT_ROPE_HALVES, NULL, scaled);
    assert_near(rope.scale, 1.138629436, 1e-9); /* 1 + 0.1 ln 4 */
    for (int i = 0; i <= 10; i++) assert_near(scaled[i] / plain[i], 1, 1e-12);
    for (int i = 11; i < 23; i++) {
        const double share = (i - 10) / 13.0;
        assert_near(scaled[i] / plain[i], share / 4 + (1 - share), 1e-12);
    }
    for (int i = 23; i < 32; i++) assert_near(scaled[i] / plain[i], 0.25, 1e-12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rms_norm_is_near),
        cmocka_unit_test(swiglu_is_near),
        cmocka_unit_test(exp_is_near),
        cmocka_unit_test(rope_turns_pairs),
        cmocka_unit_test(rope_scales_frequencies),
        cmocka_unit_test(rope_yarn_ramps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
