/* SPDX-License-Identifier: Apache-2.0
 *
 * kivi's parity encoder: codes and decoded values are those of KIVI's eight operations in numpy and in MLX, to the bit, in the
 * configurations that tests/compare/kivi.py drew.
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
#include "base/half.h"
#include "base/rng.h"
#include "codec/codec.h"

enum { MAX_SIZE = 160 };

struct config {
    enum kvt_side side;
    int bits, group, n, d, kind;
    uint64_t seed, codes, values;
};

/* Row r, channel c; u: its random word. */
static float element(const struct config *config, const uint64_t *head, int r, int c, uint64_t u) {
    const bool is_k = config->side == KVT_SIDE_K;
    const int at = (is_k ? r : c) % config->group, line = is_k ? c : r, top = (1 << config->bits) - 1;
    const int offset = (int)(head[1] % 8001) - 4000;
    const int half_steps = at == 0 ? 0 : at == 1 ? 2 * top : (int)(u % (uint64_t)(2 * top + 1));
    if (config->kind == 0) return (float)(half_steps + offset) * ldexpf(1, (int)(head[0] % 10) - 6);
    if (config->kind == 1) return (float)half_steps * 0.1f + (float)offset;
    const float z = (float)(u >> 40) * 0x1p-23f - 1;
    switch (line % 4) {
    case 0: return z;
    case 1: return z * 100 + 300.1f;
    case 2: return -2.3f;
    default: return z * 1e-9f;
    }
}

/* The rows, the last one repeated up to a whole group. */
static void fill(const struct config *config, float *rows) {
    struct kvt_rng rng = {config->seed};
    const uint64_t head[2] = {kvt_rng_u64(&rng), kvt_rng_u64(&rng)};
    const int d = config->d;
    for (int r = 0; r < config->n; r++)
        for (int c = 0; c < d; c++) rows[r * d + c] = element(config, head, r, c, kvt_rng_u64(&rng));
    for (int r = config->n; r % config->group; r++)
        memcpy(rows + r * d, rows + (config->n - 1) * d, (size_t)d * sizeof *rows);
}

static uint64_t add(uint64_t hash, uint64_t word) { return (hash ^ word) * 0x100000001B3u; }

static void check(const struct config *config) {
    const uint64_t start = 0xCBF29CE484222325u;
    const bool is_k = config->side == KVT_SIDE_K;
    const int n = (int)kvt_round_up(config->n, config->group), d = config->d;
    const struct kvt_codec *codec;
    char name[32];
    snprintf(name, sizeof name, "kivi%dg%d-parity", config->bits, config->group);
    assert_int_equal(kvt_codec_parse(&codec, name, NULL), KVT_OK);
    float *rows = malloc((size_t)(2 * KVT_TILE_ROWS * d) * sizeof *rows), *back = rows + KVT_TILE_ROWS * d;
    fill(config, rows);
    struct kvt_tile tile;
    kvt_codec_describe(codec, config->side, d, &tile);
    void *bytes = aligned_alloc(64, tile.bytes);
    memset(bytes, 0, tile.bytes);
    assert_int_equal(kvt_codec_encode(codec, config->side, d, bytes, 0, n, rows, d, NULL), KVT_OK);
    assert_int_equal(kvt_codec_decode(codec, config->side, d, back, d, bytes, 0, config->n, NULL), KVT_OK);
    uint64_t codes = start, values = start;
    for (int c = 0; c < d; c++) {
        uint64_t code = start, value = start;
        for (int r = 0; r < config->n; r++) {
            code = add(code, kvt_tile_get_code(&tile, bytes, is_k ? c : r, is_k ? r : c));
            value = add(value, kvt_f32_bits(back[r * d + c]));
        }
        codes = add(codes, code);
        values = add(values, value);
    }
    if (codes != config->codes || values != config->values)
        fail_msg("%s, %s, %d rows of %d, kind %d: %s differ", name, is_k ? "K" : "V", config->n, d, config->kind,
                 codes != config->codes ? "codes" : "values");
    free(bytes);
    free(rows);
}

static void test_drawn_configurations(void **state) {
    (void)state;
    FILE *f = fopen(KVT_ROOT "/tests/golden/codecs/kivi-parity.txt", "r");
    assert_non_null(f);
    char line[200];
    int count = 0;
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#') continue;
        struct config config;
        char side;
        unsigned long long seed, codes, values;
        assert_int_equal(sscanf(line, "%c %d %d %d %d %d %llu %llx %llx", &side, &config.bits, &config.group, &config.n,
                                &config.d, &config.kind, &seed, &codes, &values),
                         9);
        assert_in_range(config.n, 1, KVT_TILE_ROWS);
        assert_in_range(config.d, 1, MAX_SIZE);
        config.side = side == 'K' ? KVT_SIDE_K : KVT_SIDE_V;
        config.seed = seed, config.codes = codes, config.values = values;
        check(&config);
        count++;
    }
    fclose(f);
    assert_true(count >= 300);
}

/* 16-bit scales and zeros are half of f32 ones. */
static void test_sizes(void **state) {
    (void)state;
    const struct kvt_codec *codec;
    assert_int_equal(kvt_codec_parse(&codec, "kivi4g32-parity", NULL), KVT_OK);
    for (int side = 0; side < KVT_SIDE_COUNT; side++)
        assert_int_equal(kvt_codec_tile_bytes(codec, (enum kvt_side)side, 128), 128 * 128 * 6 / 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_drawn_configurations), cmocka_unit_test(test_sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
