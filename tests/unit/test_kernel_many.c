/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of many vectors on matrix units against double precision: a few tiles one after another, each vector with its own rows.
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
#include "base/num.h"
#include "base/rng.h"
#include "kernel/kernel.h"
#include "support/guard.h"

enum { MOST = 70, SIZE = 576, TILES = 3, ROWS = KVT_TILE_ROWS };

/* A side of one tile: what is multiplied, row by row, and as limbs. */
struct side {
    struct kvt_tile tile;
    float *rows; /* [row][size] */
    char *blocks;
};

/* In the precision that the tile stores; of codes any numbers, keys with a channel of large ones. */
static float draw(struct kvt_rng *rng, const struct kvt_tile *tile, int channel) {
    const float x = kvt_rng_normal(rng) + (tile->side == KVT_SIDE_K && channel == 3 ? 20 : 0);
    if (tile->kind != KVT_TILE_PLAIN) return x;
    return tile->number == KVT_NUMBER_F16 ? kvt_f32_from_f16(kvt_f16_from_f32(x))
                                          : kvt_f32_from_bf16(kvt_bf16_from_f32(x));
}

/* Fills a tile; rows outside [first, end) are no numbers. */
static void fill(struct side *s, enum kvt_side side, int size, const char *kv, const struct kvt_kernels *k,
                 struct kvt_rng *rng, int first, int end) {
    const struct kvt_codec *codec;
    assert_int_equal(kvt_codec_parse(&codec, kv, NULL), KVT_OK);
    kvt_codec_describe(codec, side, size, &s->tile);
    static _Alignas(64) float block[SIZE * KVT_LANES];
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < size; c++) s->rows[r * size + c] = r >= first && r < end ? draw(rng, &s->tile, c) : NAN;
    const int n_terms = s->tile.n_terms;
    for (int b = 0; b < kvt_tile_n_blocks(&s->tile); b++) {
        for (int t = 0; t < n_terms; t++)
            for (int l = 0; l < KVT_LANES; l++) {
                const int lane = b * KVT_LANES + l, row = side == KVT_SIDE_K ? lane : t,
                          c = side == KVT_SIDE_K ? t : lane;
                block[t * KVT_LANES + l] = c < size ? s->rows[row * size + c] : 0;
            }
        k->spread(block, n_terms, side == KVT_SIDE_K ? 0 : first, side == KVT_SIDE_K ? n_terms : end,
                  s->blocks + (size_t)b * kvt_spread_bytes(n_terms));
    }
}

/* What one vector should get, over all tiles so far. */
struct exact {
    double max, sum, values[SIZE];
};

static void add_exact(struct exact *e, const float *q, const struct side s[2], int k_size, int v_size, int first,
                      int end, float cap) {
    for (int r = first; r < end; r++) {
        double score = 0;
        for (int c = 0; c < k_size; c++) score += (double)q[c] * (double)s[0].rows[r * k_size + c];
        if (cap > 0) score = (double)cap * tanh(score / (double)cap);
        const double max = fmax(e->max, score), keep = exp(e->max - max), w = exp(score - max);
        e->max = max;
        e->sum = e->sum * keep + w;
        for (int c = 0; c < v_size; c++) e->values[c] = e->values[c] * keep + w * (double)s[1].rows[r * v_size + c];
    }
}

/* Root mean square of the difference of results over their own. */
static double error_of(const struct exact *e, const float *y, float max, float sum, int v_size) {
    double wrong = 0, all = 0;
    for (int c = 0; c < v_size; c++) {
        const double want = e->values[c] / e->sum, got = (double)y[c] / (double)sum;
        wrong += (got - want) * (got - want), all += want * want;
    }
    const double lse = log(e->sum) + e->max - log((double)sum) - (double)max;
    return sqrt(wrong / all) + fabs(lse);
}

static double check_many(const struct kvt_kernels *k, const char *kv, int k_size, int v_size, int n, float cap,
                         struct kvt_rng *rng) {
    struct side s[2];
    const int padded = (int)kvt_round_up(n, KVT_MANY_VECTORS), ld = (int)kvt_round_up(v_size, KVT_LANES);
    struct guard g[4]; /* queries as limbs, mixed values, blocks of keys and of values */
    const size_t bytes[] = {kvt_split_bytes(n, k_size), (size_t)(padded * ld) * sizeof(float),
                            ROWS / KVT_LANES * kvt_spread_bytes(k_size),
                            (size_t)(ld / KVT_LANES) * kvt_spread_bytes(ROWS)};
    for (int i = 0; i < 4; i++) assert_true(guard_init(&g[i], bytes[i]));
    float *q = malloc((size_t)(n * k_size) * sizeof *q), *y = (float *)(void *)guard_last(&g[1], bytes[1]);
    for (int i = 0; i < 2; i++) {
        s[i].rows = malloc((size_t)(ROWS * (i ? v_size : k_size)) * sizeof(float));
        s[i].blocks = (char *)guard_last(&g[2 + i], bytes[2 + i]);
    }
    struct exact *e = calloc((size_t)n, sizeof *e);
    for (int i = 0; i < n * k_size; i++) q[i] = kvt_rng_normal(rng) / sqrtf((float)k_size);
    k->split(q, k_size, n, k_size, guard_last(&g[0], bytes[0]));
    float max[MOST], sum[MOST];
    memset(y, 0, bytes[1]);
    for (int v = 0; v < n; v++) max[v] = -INFINITY, sum[v] = 0, e[v].max = -INFINITY;
    for (int t = 0; t < TILES; t++) {
        int first[MOST], end[MOST], from = ROWS, to = 0;
        for (int v = 0; v < n; v++) {
            first[v] = t ? (int)kvt_rng_below(rng, 40) : 0;
            end[v] = t ? (int)kvt_rng_below(rng, ROWS + 1) : v % 5 == 4 ? 0 : ROWS / 2; /* some see nothing at first */
            if (first[v] < end[v]) from = KVT_MIN(from, first[v]), to = KVT_MAX(to, end[v]);
        }
        fill(&s[0], KVT_SIDE_K, k_size, kv, k, rng, from, to);
        fill(&s[1], KVT_SIDE_V, v_size, kv, k, rng, from, to);
        k->many(&(struct kvt_many){.keys = &s[0].tile,
                                   .values = &s[1].tile,
                                   .queries = guard_last(&g[0], bytes[0]),
                                   .key_blocks = s[0].blocks,
                                   .value_blocks = s[1].blocks,
                                   .n = n,
                                   .first = first,
                                   .end = end,
                                   .softcap = cap,
                                   .max = max,
                                   .sum = sum,
                                   .y = y,
                                   .ld_y = ld});
        for (int v = 0; v < n; v++) add_exact(&e[v], q + v * k_size, s, k_size, v_size, first[v], end[v], cap);
    }
    double worst = 0;
    for (int v = 0; v < n; v++) {
        const double error = e[v].sum > 0 ? error_of(&e[v], y + v * ld, max[v], sum[v], v_size) : 0;
        if (!(error <= worst)) worst = isnan(error) ? INFINITY : error;
    }
    for (int i = n * ld; i < padded * ld; i++) assert_true(y[i] == 0);
    for (int i = 0; i < 4; i++) guard_finish(&g[i]);
    free(q), free(s[0].rows), free(s[1].rows), free(e);
    return worst;
}

static void test_many(void **state) {
    (void)state;
    static const struct {
        const char *kv;
        double most;
    } kinds[] = {{"affine8g64", 4e-4}, {"affine4g64", 4e-2}, {"f16", 4e-6}, {"bf16", 4e-6}};
    static const struct {
        int k_size, v_size, n;
        float cap;
    } shapes[] = {{64, 64, 32, 0}, {128, 128, 70, 0}, {80, 80, 9, 0},
                  {8, 72, 33, 0},  {96, 96, 64, 5},   {SIZE, 512, 17, 0}};
    struct kvt_rng rng = {8};
    for (int l = 0; l < KVT_LEVEL_COUNT; l++) {
        if (!kvt_many_table[l] || !kvt_level_runs((enum kvt_level)l)) continue;
        const struct kvt_kernels k = kvt_kernels_select((enum kvt_level)l);
        for (size_t i = 0; i < KVT_ARRAY_LEN(kinds); i++)
            for (size_t j = 0; j < KVT_ARRAY_LEN(shapes); j++) {
                const double error =
                    check_many(&k, kinds[i].kv, shapes[j].k_size, shapes[j].v_size, shapes[j].n, shapes[j].cap, &rng);
                if (getenv("KVT_SHOW"))
                    print_message("%s %d %d: %.1e\n", kinds[i].kv, shapes[j].k_size, shapes[j].n, error);
                if (!(error <= kinds[i].most)) fail_msg("%s %d: error %g", kinds[i].kv, shapes[j].k_size, error);
            }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
