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
#include "codec/class.h"
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
        for (int j = 0; j < per; j++)
            assert_int_equal(kvt_log8_sparse[per - 16 + j], kvt_log8_fractions[j * 128 / per]);
    }
    for (uint32_t fraction = 0, below = 0; fraction < 1 << 23; fraction++) {
        const uint32_t cell = kvt_log8_cells[fraction >> 15];
        if (below < 127 && fraction == kvt_log8_fractions[below + 1]) below++;
        if ((cell >> 16) + ((fraction & 0x7FFF) >= (cell & 0xFFFF)) != below) fail_msg("the cell of %#x", fraction);
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

static uint64_t hash_kq(const struct kvt_tile *tile, const void *bytes) {
    const unsigned char *at = bytes;
    const struct kvt_block block = kvt_tile_block(tile, 0);
    uint16_t channels[KVT_LATENT_MAX], half;
    uint64_t hash = 0xCBF29CE484222325u;
    const int d = tile->n_terms;
    for (int k = 0; k < KVT_CLASSES; k++) {
        memcpy(&half, at + (size_t)k * 2, sizeof half);
        add(&hash, half);
    }
    for (int c = 0; c < d; c++) add(&hash, at[KVT_CLASS_MAP + c / 4] >> c % 4 * 2 & 3);
    for (int i = 0; i < d; i++) {
        memcpy(&half, at + block.zeros + (size_t)i * 2, sizeof half);
        add(&hash, at[block.scales + (size_t)i]);
        add(&hash, half);
    }
    for (int r = 0; r < KVT_TILE_ROWS; r++) add(&hash, at[block.factors + (size_t)r]);
    for (int i = 0; i < d; i++)
        for (int r = 0; r < KVT_TILE_ROWS; r++) add(&hash, kvt_class_get_code(tile, bytes, i, r));
    kvt_class_read_map(tile, bytes, channels);
    for (int i = 1; i < d; i++) /* in a class places follow the channels */
        assert_true(channels[i] > channels[i - 1] || i == d / 4 || i == d / 4 + d / 2);
    return hash;
}

/* By channel the sums of squares of a tile of rows. */
static void sum_squares(float *out, const float *rows, int d) {
    for (int c = 0; c < d; c++) {
        out[c] = 0;
        for (int r = 0; r < KVT_TILE_ROWS; r++) out[c] += rows[r * d + c] * rows[r * d + c];
    }
}

/* Queries of a kind, as queries_of in kvt.py makes them. */
static void fill_queries(float *q, const char *kind, int d) {
    codec_rows_fill(q, KVT_TILE_ROWS, d, N_TILES);
    for (int r = KVT_TILE_ROWS - 1; r >= 0; r--) {
        float first[8];
        memcpy(first, q + r * d, sizeof first);
        for (int c = 0; c < d; c++) {
            float *x = &q[r * d + c];
            if (strcmp(kind, "equal") == 0) *x = q[c];
            if (strcmp(kind, "zero") == 0) *x = 0;
            if (strcmp(kind, "tiny") == 0) *x *= 0x1p-100f;
            if (strcmp(kind, "one") == 0 && c != d / 3) *x = 0;
            if (strcmp(kind, "few") == 0) *x = first[c % 8] + *x * 0.25f;
        }
    }
}

static void check_line(char *name, int d, const uint64_t want[N_TILES]) {
    char *plus = strchr(name, '+');
    if (plus) *plus = 0;
    const struct kvt_codec *codec = codec_of(name);
    const bool is_k = name[0] == 'k';
    struct kvt_tile tile;
    kvt_codec_describe(codec, is_k ? KVT_SIDE_K : KVT_SIDE_V, d, &tile);
    const size_t n = (size_t)(KVT_TILE_ROWS * d), room = kvt_codec_room(codec, d);
    float *rows = malloc(sizeof *rows * n), *given = malloc(sizeof *given * KVT_MAX(n, room)), sums[KVT_LATENT_MAX];
    void *bytes = aligned_alloc(64, tile.bytes);
    for (int t = 0; t < N_TILES; t++) {
        fill_queries(given, plus ? plus + 1 : "", d);
        sum_squares(sums, given, d);
        codec_rows_fill(rows, KVT_TILE_ROWS, d, t);
        for (size_t i = 0; i < n && room && t == 1; i++) rows[i] = fminf(fmaxf(rows[i], -8), 8);
        memset(bytes, 0, tile.bytes);
        codec->encoder->encode(&(struct kvt_encode_args){.codec = codec,
                                                         .tile = &tile,
                                                         .bytes = bytes,
                                                         .n = KVT_TILE_ROWS,
                                                         .rows = rows,
                                                         .stride = d,
                                                         .queries = plus ? sums : NULL,
                                                         .room = room ? given : NULL});
        if ((is_k ? hash_kq : hash_vu)(&tile, bytes) != want[t])
            fail_msg("%s%s%s, d %d: tile %d differs", name, plus ? " with queries: " : "", plus ? plus + 1 : "", d, t);
    }
    free(bytes);
    free(given);
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

/* One tile through the codec, on its side; queries: of keys, or null. */
static void pass_with(const char *name, int d, const float *rows, const float *queries, float *back) {
    const struct kvt_codec *codec = codec_of(name);
    struct kvt_tile tile;
    kvt_codec_describe(codec, name[0] == 'k' ? KVT_SIDE_K : KVT_SIDE_V, d, &tile);
    void *bytes = aligned_alloc(64, tile.bytes);
    memset(bytes, 0, tile.bytes);
    codec->encoder->encode(&(struct kvt_encode_args){.codec = codec,
                                                     .tile = &tile,
                                                     .bytes = bytes,
                                                     .n = KVT_TILE_ROWS,
                                                     .rows = rows,
                                                     .stride = d,
                                                     .queries = queries});
    kvt_tile_decode(&tile, back, d, bytes, 0, KVT_TILE_ROWS);
    free(bytes);
}

static void pass(const char *name, int d, const float *rows, float *back) { pass_with(name, d, rows, NULL, back); }

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

static const char *const keys[] = {"kq2", "kq3", "kq4"};

/* Queries decide which channels are precise, and decoded rows keep their product with the rows as queries see it. */
static void test_keys(void **state) {
    (void)state;
    enum { D = 64 };
    static float x[KVT_TILE_ROWS * D], y[KVT_TILE_ROWS * D];
    struct kvt_rng rng = {32};
    float queries[D];
    for (int c = 0; c < D; c++) queries[c] = c % 4 == 1 ? 9 : c % 4 == 3 ? 0.01f : 1;
    for (int j = 0; j < KVT_TILE_ROWS * D; j++) x[j] = 40 + kvt_rng_normal(&rng) * (j % 4 == 3 ? 4 : 1);
    for (size_t i = 0; i < KVT_ARRAY_LEN(keys); i++)
        for (int by_queries = 0; by_queries < 2; by_queries++) {
            double error[4] = {0};
            pass_with(keys[i], D, x, by_queries ? queries : NULL, y);
            for (int j = 0; j < KVT_TILE_ROWS * D; j++) error[j % 4] += pow((double)(x[j] - y[j]), 2);
            if (by_queries) {
                assert_true(error[1] < 0.5 * error[0] && error[1] < 0.5 * error[2]);
                assert_true(error[3] > 20 * error[0]);
            } else {
                assert_true(error[3] < 16 * 0.6 * error[0]); /* the widest range has the widest codes */
            }
        }
}

/* Zero queries are no queries; their size does not matter. */
static void test_queries(void **state) {
    (void)state;
    enum { D = 48 };
    static float x[KVT_TILE_ROWS * D], y[KVT_TILE_ROWS * D], z[KVT_TILE_ROWS * D];
    float zero[D] = {0}, some[D], large[D];
    codec_rows_fill(x, KVT_TILE_ROWS, D, 0);
    for (int c = 0; c < D; c++) some[c] = (float)(c * 7 % 11) / 8, large[c] = some[c] * 0x1p100f;
    for (size_t i = 0; i < KVT_ARRAY_LEN(keys); i++) {
        pass(keys[i], D, x, y);
        pass_with(keys[i], D, x, zero, z);
        assert_memory_equal(y, z, sizeof y);
        pass_with(keys[i], D, x, some, y);
        pass_with(keys[i], D, x, large, z);
        assert_memory_equal(y, z, sizeof y);
    }
}

/* Constant channels, one row far out, the ends of f16: finite, and what does not share the outlier's channel or row stays. */
static void test_odd_keys(void **state) {
    (void)state;
    enum { D = 32 };
    static float x[KVT_TILE_ROWS * D], y[KVT_TILE_ROWS * D];
    for (size_t i = 0; i < KVT_ARRAY_LEN(keys); i++) {
        memset(x, 0, sizeof x);
        pass(keys[i], D, x, y);
        for (int j = 0; j < KVT_TILE_ROWS * D; j++) assert_true(y[j] == 0);
        for (int j = 0; j < KVT_TILE_ROWS * D; j++) x[j] = (float)(j % D) * 17 - 200; /* in f16 */
        pass(keys[i], D, x, y);
        for (int j = 0; j < KVT_TILE_ROWS * D; j++) assert_true(y[j] == x[j]);
        x[5 * D + 3] = 65504;
        pass(keys[i], D, x, y);
        for (int j = 0; j < KVT_TILE_ROWS * D; j++)
            assert_true(isfinite(y[j]) && (j / D == 5 || j % D == 3 || fabsf(y[j] - x[j]) < 1e-3f));
        for (int j = 0; j < KVT_TILE_ROWS * D; j++) x[j] = (j / D + j) % 2 ? 65504.0f : -65504.0f;
        pass(keys[i], D, x, y);
        for (int j = 0; j < KVT_TILE_ROWS * D; j++) assert_true(isfinite(y[j]));
    }
}

/* Any map gives a permutation. */
static void test_any_map(void **state) {
    (void)state;
    struct kvt_rng rng = {33};
    for (int d = 16; d <= 576; d += 112) {
        struct kvt_tile tile;
        kvt_codec_describe(codec_of("kq3"), KVT_SIDE_K, d, &tile);
        unsigned char *bytes = aligned_alloc(64, tile.bytes);
        for (int rep = 0; rep < 20; rep++) {
            uint16_t channels[KVT_LATENT_MAX];
            bool seen[KVT_LATENT_MAX] = {false};
            for (size_t i = 0; i < tile.bytes; i++) bytes[i] = rep ? (unsigned char)kvt_rng_u64(&rng) : 0xFF;
            kvt_class_read_map(&tile, bytes, channels);
            for (int i = 0; i < d; i++) {
                assert_true(channels[i] < d && !seen[channels[i]]);
                seen[channels[i]] = true;
            }
        }
        free(bytes);
    }
}

static void test_sides(void **state) {
    (void)state;
    struct kvt_error err;
    assert_int_equal(kvt_codec_fits(codec_of("vu4"), KVT_SIDE_K, 64, &err), KVT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "vu4 is made for values alone"));
    assert_int_equal(kvt_codec_fits(codec_of("vu4"), KVT_SIDE_V, 64, &err), KVT_OK);
    assert_int_equal(kvt_codec_tile_bytes(codec_of("vu4"), KVT_SIDE_K, 64), 0);
    assert_int_equal(kvt_codec_fits(codec_of("kq4"), KVT_SIDE_V, 64, &err), KVT_ERR_UNSUPPORTED);
    assert_int_equal(kvt_codec_fits(codec_of("kq4"), KVT_SIDE_K, 72, &err), KVT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "a multiple of 16"));
}

static void test_bytes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int d;
        size_t bytes;
    } want[] = {{"vu2", 128, 4096 + 256}, {"vu3", 128, 6144 + 256}, {"vu4", 128, 8192 + 256},
                {"vu4", 64, 4096 + 256},  {"vu4", 80, 5120 + 256},  {"vu2", 256, 2 * (4096 + 256)},
                {"kq4", 128, 8192 + 576}, {"kq3", 128, 6144 + 576}, {"kq2", 128, 4096 + 576},
                {"kq4", 64, 4096 + 384},  {"kq2", 64, 2048 + 384},  {"kq2", 256, 8192 + 1024}};
    for (size_t i = 0; i < KVT_ARRAY_LEN(want); i++)
        assert_int_equal(
            kvt_codec_tile_bytes(codec_of(want[i].name), want[i].name[0] == 'k' ? KVT_SIDE_K : KVT_SIDE_V, want[i].d),
            want[i].bytes);
}

/* ---- error feedback ---------------------------------------------------------------------------------------------------- */

enum { FEEDBACK_D = 64 };

/* Rows and queries that live in few directions, each in its own. */
static void make_keys(struct kvt_rng *rng, float *rows, float *queries) {
    enum { DIRECTIONS = 6 };
    float at[2][DIRECTIONS][FEEDBACK_D];
    for (int i = 0; i < 2 * DIRECTIONS * FEEDBACK_D; i++) (&at[0][0][0])[i] = kvt_rng_normal(rng);
    for (int m = 0; m < 2; m++)
        for (int r = 0; r < KVT_TILE_ROWS; r++) {
            float *x = (m ? queries : rows) + r * FEEDBACK_D;
            for (int c = 0; c < FEEDBACK_D; c++) x[c] = 0.3f * kvt_rng_normal(rng);
            for (int k = 0; k < DIRECTIONS; k++) {
                const float length = kvt_rng_normal(rng);
                for (int c = 0; c < FEEDBACK_D; c++) x[c] += length * at[m][k][c];
            }
        }
}

/* Encodes rows with their queries, as `codec` takes them; queries NULL: not known. */
static void encode_keys(const struct kvt_codec *codec, const float *rows, const float *queries, void *bytes) {
    const int d = FEEDBACK_D;
    struct kvt_tile tile;
    kvt_codec_describe(codec, KVT_SIDE_K, d, &tile);
    float sums[FEEDBACK_D] = {0}, *room = NULL;
    for (int i = 0; queries && i < KVT_TILE_ROWS * d; i++) sums[i % d] += queries[i] * queries[i];
    if (codec->query_rows) {
        room = malloc(kvt_codec_room(codec, d) * sizeof *room);
        assert_non_null(room);
        if (queries) memcpy(room, queries, (size_t)(KVT_TILE_ROWS * d) * sizeof *room);
    }
    memset(bytes, 0, tile.bytes);
    codec->encoder->encode(&(struct kvt_encode_args){.codec = codec,
                                                     .tile = &tile,
                                                     .bytes = bytes,
                                                     .n = KVT_TILE_ROWS,
                                                     .rows = rows,
                                                     .stride = d,
                                                     .queries = queries ? sums : NULL,
                                                     .room = queries ? room : NULL});
    free(room);
}

/* The squared error of all scores. */
static double score_error(const struct kvt_codec *codec, const void *bytes, const float *rows, const float *queries) {
    static float decoded[KVT_TILE_ROWS * FEEDBACK_D];
    struct kvt_tile tile;
    kvt_codec_describe(codec, KVT_SIDE_K, FEEDBACK_D, &tile);
    kvt_tile_decode(&tile, decoded, FEEDBACK_D, bytes, 0, KVT_TILE_ROWS);
    double error = 0;
    for (int q = 0; q < KVT_TILE_ROWS; q++)
        for (int r = 0; r < KVT_TILE_ROWS; r++) {
            double e = 0;
            for (int c = 0; c < FEEDBACK_D; c++)
                e += (double)queries[q * FEEDBACK_D + c] *
                     ((double)decoded[r * FEEDBACK_D + c] - (double)rows[r * FEEDBACK_D + c]);
            error += e * e;
        }
    return error;
}

static void test_feedback(void **state) {
    (void)state;
    static const char *const names[][2] = {{"kq2", "kq2-feedback"}, {"kq3", "kq3-feedback"}, {"kq4", "kq4-feedback"}};
    static float rows[KVT_TILE_ROWS * FEEDBACK_D], queries[KVT_TILE_ROWS * FEEDBACK_D];
    struct kvt_rng rng = {91};
    make_keys(&rng, rows, queries);
    for (size_t i = 0; i < KVT_ARRAY_LEN(names); i++) {
        const struct kvt_codec *plain = codec_of(names[i][0]), *feedback = codec_of(names[i][1]);
        const size_t bytes = kvt_codec_tile_bytes(plain, KVT_SIDE_K, FEEDBACK_D);
        assert_int_equal(kvt_codec_tile_bytes(feedback, KVT_SIDE_K, FEEDBACK_D), bytes);
        void *a = aligned_alloc(64, bytes), *b = aligned_alloc(64, bytes);
        encode_keys(plain, rows, queries, a);
        encode_keys(feedback, rows, queries, b);
        const double without = score_error(plain, a, rows, queries), with = score_error(feedback, b, rows, queries);
        if (!(with < 0.5 * without))
            fail_msg("%s: %g of the squared error of %s", names[i][1], with / without, names[i][0]);

        /* Without queries, or with zeros, it is the other encoder. */
        encode_keys(plain, rows, NULL, a);
        encode_keys(feedback, rows, NULL, b);
        assert_memory_equal(a, b, bytes);
        static const float zeros[KVT_TILE_ROWS * FEEDBACK_D];
        encode_keys(feedback, rows, zeros, b);
        assert_memory_equal(a, b, bytes);
        free(a), free(b);
    }
}

/* Queries that say nothing, or far too much: codes are what they are, but decoded numbers are finite. */
static void test_odd_feedback(void **state) {
    (void)state;
    static float rows[KVT_TILE_ROWS * FEEDBACK_D], queries[KVT_TILE_ROWS * FEEDBACK_D], x[KVT_TILE_ROWS * FEEDBACK_D];
    const struct kvt_codec *codec = codec_of("kq2-feedback");
    struct kvt_tile tile;
    struct kvt_rng rng = {92};
    kvt_codec_describe(codec, KVT_SIDE_K, FEEDBACK_D, &tile);
    void *bytes = aligned_alloc(64, tile.bytes);
    for (int kind = 0; kind < 5; kind++) {
        for (int i = 0; i < KVT_TILE_ROWS * FEEDBACK_D; i++) {
            const bool one = i % FEEDBACK_D == 7;
            rows[i] =
                kind == 4 ? (i / FEEDBACK_D == 100 ? 65504.0f : 0) : 65504.0f * (kvt_rng_normal(&rng) > 0 ? 1 : -1);
            queries[i] = kind == 0   ? (float)one * 57344
                         : kind == 1 ? 57344
                         : kind == 2 ? 0x1p-16f
                         : kind == 3 ? (i == 5 ? 1 : 0)
                                     : kvt_rng_normal(&rng);
        }
        encode_keys(codec, rows, queries, bytes);
        kvt_tile_decode(&tile, x, FEEDBACK_D, bytes, 0, KVT_TILE_ROWS);
        for (int i = 0; i < KVT_TILE_ROWS * FEEDBACK_D; i++)
            if (!isfinite(x[i])) fail_msg("queries of kind %d: element %d is %g", kind, i, (double)x[i]);
    }
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log8),       cmocka_unit_test(test_golden),   cmocka_unit_test(test_values),
        cmocka_unit_test(test_odd_values), cmocka_unit_test(test_sides),    cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_keys),       cmocka_unit_test(test_queries),  cmocka_unit_test(test_odd_keys),
        cmocka_unit_test(test_any_map),    cmocka_unit_test(test_feedback), cmocka_unit_test(test_odd_feedback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
