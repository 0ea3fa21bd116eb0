/* SPDX-License-Identifier: Apache-2.0
 *
 * Fused kernels against double precision on the decoded tile: every codec that they take, head size, number of vectors and level,
 * with the tile against a guard page. test_attention holds them to the rule on whole attention outputs.
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
#include "base/rng.h"
#include "codec/class.h"
#include "kernel/kernel.h"
#include "support/guard.h"
#include "support/share.h"

enum { MOST = 16 };

struct trial {
    struct kvt_tile tile;
    struct guard guard;
    unsigned char *bytes;
    int n;
    float *rows, *values, *x, *y, *before; /* rows: as they were encoded; values: decoded, [term][lane] */
    ptrdiff_t ld_x, ld_y;
    struct kvt_noise noise[MOST];
    struct kvt_rounded rounded;
    char *rounded_memory;
};

static float *take(size_t n) {
    float *x = aligned_alloc(64, (n * sizeof *x + 63) / 64 * 64);
    assert_non_null(x);
    return x;
}

/* All values of a tile: once, since they are slow to read one by one. */
static void get_values(float *values, const struct kvt_tile *tile, const void *bytes) {
    for (int l = 0; l < tile->n_lanes; l++) {
        float row[KVT_LATENT_MAX];
        if (tile->kind == KVT_TILE_CLASS) kvt_class_decode_row(tile, row, bytes, l);
        for (int i = 0; i < tile->n_terms; i++)
            values[i * tile->n_lanes + l] = tile->kind == KVT_TILE_CLASS ? row[i] : kvt_tile_get(tile, bytes, i, l);
    }
}

/* Rows with a bias in some channels and an outlier in one; queries, or weights of which some are 0 and one may hold nearly all. */
static void trial_init(struct trial *t, const struct kvt_codec *codec, enum kvt_side side, int d, struct kvt_rng *rng) {
    *t = (struct trial){.n = 1 + (int)kvt_rng_below(rng, MOST)};
    kvt_codec_describe(codec, side, d, &t->tile);
    assert_true(guard_init(&t->guard, t->tile.bytes));
    t->bytes = guard_last(&t->guard, t->tile.bytes);
    memset(t->bytes, 0, t->tile.bytes);
    float *rows = t->rows = take((size_t)(KVT_TILE_ROWS * d));
    const int outlier = (int)kvt_rng_below(rng, (uint64_t)d);
    for (int i = 0; i < KVT_TILE_ROWS * d; i++)
        rows[i] = kvt_rng_normal(rng) * (i % d == outlier ? 30 : 1) + (i % d % 16 == 3 ? 5 : 0);
    const struct kvt_encode_args args = {
        .codec = codec, .tile = &t->tile, .bytes = t->bytes, .n = KVT_TILE_ROWS, .rows = rows, .stride = d};
    codec->encoder->encode(&args);
    for (int r = 0; t->tile.format.rotated && r < KVT_TILE_ROWS; r++) kvt_rotate(rows + r * d, d);
    t->values = take((size_t)(t->tile.n_terms * t->tile.n_lanes));
    get_values(t->values, &t->tile, t->bytes);
    t->ld_x = kvt_round_up(t->tile.n_terms, 16) + 16 * (ptrdiff_t)kvt_rng_below(rng, 2);
    t->ld_y = kvt_round_up(t->tile.n_lanes, KVT_LANES) + 16 * (ptrdiff_t)kvt_rng_below(rng, 2);
    t->x = take((size_t)(MOST * t->ld_x));
    t->y = take((size_t)(MOST * t->ld_y));
    t->before = take((size_t)(MOST * t->ld_y));
    memset(t->x, 0, (size_t)(MOST * t->ld_x) * sizeof *t->x);
    const bool peaked = kvt_rng_below(rng, 2);
    for (int v = 0; v < t->n; v++)
        for (int i = 0; i < t->tile.n_terms; i++)
            t->x[v * t->ld_x + i] = side == KVT_SIDE_K           ? kvt_rng_normal(rng)
                                    : peaked && i == 17          ? 1.0f
                                    : kvt_rng_below(rng, 4) == 0 ? 0.0f
                                                                 : (float)kvt_rng_unit(rng) * 0.1f;
    for (int i = 0; i < MOST * t->ld_y; i++) t->y[i] = t->before[i] = kvt_rng_normal(rng);
    if (kvt_fused_rounds(&t->tile)) {
        struct kvt_rounded none;
        t->rounded_memory = aligned_alloc(64, kvt_rounded_init(&none, &t->tile, t->n, NULL));
        kvt_rounded_init(&t->rounded, &t->tile, t->n, t->rounded_memory);
    }
}

static void trial_finish(struct trial *t) {
    guard_finish(&t->guard);
    free(t->rows);
    free(t->values);
    free(t->x);
    free(t->y);
    free(t->before);
    free(t->rounded_memory);
}

/* Whether the kernel adds at most half of what the codec adds, and rounding in 32 bits. (The rule, a fifth, is for whole outputs: one tile may be worse.) */
static bool trial_passes(struct trial *t, kvt_fused_fn fn, kvt_round_fn round, double *share) {
    if (kvt_fused_rounds(&t->tile)) round(&t->tile, t->x, t->ld_x, &t->rounded);
    fn(&(struct kvt_fused){&t->tile, t->bytes, t->bytes, t->n, t->x, t->ld_x, t->y, t->ld_y, &t->rounded, t->noise, 0});
    const bool is_k = t->tile.side == KVT_SIDE_K;
    const int d = kvt_tile_row_size(&t->tile);
    double error = 0, size = 0, codec = 0;
    for (int v = 0; v < MOST; v++)
        for (int l = 0; l < t->tile.n_lanes; l++) {
            const ptrdiff_t at = v * t->ld_y + l;
            double want = v >= t->n || !is_k ? (double)t->before[at] : 0, noise = 0;
            for (int i = 0; i < t->tile.n_terms && v < t->n; i++) {
                const double x = (double)t->x[v * t->ld_x + i];
                const double value = (double)t->values[i * t->tile.n_lanes + l];
                want += x * value;
                noise += x * (value - (double)(is_k ? t->rows[l * d + i] : t->rows[i * d + l]));
                size += x * x * value * value;
            }
            error += pow((double)t->y[at] - want, 2);
            codec += noise * noise;
        }
    *share = sqrt(error / codec);
    return error <= 0.5 * 0.5 * codec + 1e-10 * size;
}

static void test_fused(void **state) {
    (void)state;
    static const int sizes[] = {8, 64, 72, 80, 128, 192, 256, 576};
    struct kvt_rng rng = {11};
    unsigned n_cases = 0;
    for (int l = 0; l < KVT_LEVEL_COUNT; l++) {
        if (!kvt_fused_table[l] || !kvt_level_runs((enum kvt_level)l)) continue;
        for (size_t i = 0; i < kvt_codec_count(); i++)
            for (size_t s = 0; s < KVT_ARRAY_LEN(sizes); s++)
                for (int side = 0; side < KVT_SIDE_COUNT; side++) {
                    const struct kvt_codec *codec = kvt_codec_at(i);
                    struct trial t;
                    if (sizes[s] > KVT_HEAD_MAX && side == KVT_SIDE_V) continue;
                    if (kvt_codec_fits(codec, (enum kvt_side)side, sizes[s], NULL) != KVT_OK || !share_takes(&n_cases))
                        continue;
                    trial_init(&t, codec, (enum kvt_side)side, sizes[s], &rng);
                    if (kvt_fused_takes(&t.tile)) {
                        double share;
                        if (!trial_passes(&t, kvt_fused_table[l], kvt_round_table[l], &share))
                            fail_msg("%s %s side %d d %d, %d vectors: error %g of the codec's own",
                                     kvt_level_name((enum kvt_level)l), codec->info.name, side, sizes[s], t.n, share);
                    }
                    trial_finish(&t);
                }
    }
}

/* ---- company ----------------------------------------------------------------------------------------------------------- */

/* What n vectors of a trial give. */
static void give(float *y, const struct trial *t, kvt_fused_fn fn, int n) {
    struct kvt_noise noise[MOST] = {{0, 0}};
    memcpy(y, t->before, (size_t)(MOST * t->ld_y) * sizeof *y);
    fn(&(struct kvt_fused){&t->tile, t->bytes, t->bytes, n, t->x, t->ld_x, y, t->ld_y, NULL, noise, 0});
}

/* With scales for each term, what a vector gives does not depend on one of zeros beside it. 4 and 8 vectors may have a function that knows
 * their shape, where 3 and 7 have none. */
static void test_company(void **state) {
    (void)state;
    static const char *const names[] = {"kivi2g32",   "kivi4g32", "kivi4g64", "kivi8g32",
                                        "affine4g64", "kvarn4",   "kvarn2"};
    struct kvt_rng rng = {13};
    for (int l = 0; l < KVT_LEVEL_COUNT; l++) {
        if (!kvt_fused_table[l] || !kvt_level_runs((enum kvt_level)l)) continue;
        for (size_t i = 0; i < 2 * KVT_ARRAY_LEN(names); i++)
            for (int side = 0; side < KVT_SIDE_COUNT; side++) {
                const struct kvt_codec *codec;
                struct trial t;
                assert_int_equal(kvt_codec_parse(&codec, names[i / 2], NULL), KVT_OK);
                do {
                    trial_init(&t, codec, (enum kvt_side)side, i % 2 ? 256 : 128, &rng);
                    if (t.n == MOST) break;
                    trial_finish(&t);
                } while (true);
                float *few = take((size_t)(MOST * t.ld_y)), *many = take((size_t)(MOST * t.ld_y));
                for (int n = 4; t.tile.kind == KVT_TILE_FOLD && n <= MOST; n += 4) {
                    memset(t.x + (n - 1) * t.ld_x, 0, (size_t)t.tile.n_terms * sizeof *t.x);
                    give(many, &t, kvt_fused_table[l], n);
                    give(few, &t, kvt_fused_table[l], n - 1);
                    for (int v = 0; v < n - 1; v++)
                        assert_memory_equal(many + v * t.ld_y, few + v * t.ld_y, (size_t)t.tile.n_lanes * sizeof *few);
                }
                free(few);
                free(many);
                trial_finish(&t);
            }
    }
}

/* ---- kernels with one fault each, which the trials must find ----------------------------------------------------------- */

static kvt_fused_fn best(void) { return kvt_kernels_select(kvt_level_best()).fused; }

static void forgets_a_vector(const struct kvt_fused *a) {
    struct kvt_fused less = *a;
    less.n--;
    best()(&less);
}

static void swaps_lanes(const struct kvt_fused *a) {
    best()(a);
    for (int v = 0; v < a->n; v++) {
        const float first = a->y[v * a->ld_y];
        a->y[v * a->ld_y] = a->y[v * a->ld_y + 1];
        a->y[v * a->ld_y + 1] = first;
    }
}

static void misses_a_step(const struct kvt_fused *a) {
    best()(a);
    for (int v = 0; v < a->n; v++)
        for (int l = 0; l < a->tile->n_lanes; l++)
            for (int i = 16; i < 32; i++)
                a->y[v * a->ld_y + l] -= a->x[v * a->ld_x + i] * kvt_tile_get(a->tile, a->bytes, i, l);
}

static void test_broken(void **state) {
    (void)state;
    static const kvt_fused_fn broken[] = {forgets_a_vector, swaps_lanes, misses_a_step};
    static const char *const names[] = {"f16", "kivi4g32", "affine8g64", "kvarn3", "q4_0", "turbo4"};
    const struct kvt_kernels k = kvt_kernels_select(kvt_level_best());
    struct kvt_rng rng = {12};
    if (!k.fused) skip();
    for (size_t b = 0; b < KVT_ARRAY_LEN(broken); b++)
        for (size_t i = 0; i < KVT_ARRAY_LEN(names); i++)
            for (int side = 0; side < KVT_SIDE_COUNT; side++) {
                const struct kvt_codec *codec;
                struct trial t;
                bool found = false;
                double share;
                assert_int_equal(kvt_codec_parse(&codec, names[i], NULL), KVT_OK);
                for (int rep = 0; rep < 8 && !found; rep++) { /* a weight may be small */
                    trial_init(&t, codec, (enum kvt_side)side, 64, &rng);
                    found = !trial_passes(&t, broken[b], k.round, &share);
                    trial_finish(&t);
                }
                if (!found) fail_msg("fault %zu of %s was not found", b, names[i]);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fused), cmocka_unit_test(test_company),
                                       cmocka_unit_test(test_broken)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
