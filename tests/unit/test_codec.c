/* SPDX-License-Identifier: Apache-2.0
 *
 * Codecs: known vectors, promises that hold for every codec of the registry, names.
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

#include "base/half.h"
#include "base/rng.h"
#include "codec/codec.h"

/* ---- MLX ----------------------------------------------------------------------------------------------------------------- */

static float input_a(int i) { return (float)(i - 12) / 4; }
static float input_b(int i) { return -(10 + (float)i / 8); }
static float input_n(int i) { return -input_a(i); }
static float input_sub(int i) { return (float)i * 0x1p-24f; }
static float input_subn(int i) { return -(float)(i + 1) * 0x1p-24f; }
static float input_big(int i) { return i == 0 ? 65504 : i == 31 ? -65504 : (float)(i - 16) * 1000; }
static float input_ovf(int i) { return i % 2 ? 65504 : -65504; }
static float input_tie(int i) {
    return i == 0 ? 15 : i == 1 ? -0.0f : i < 17 ? (float)(i - 2) + 0.5f : (float)(i - 17);
}
static float input_up(int i) { return (void)i, 1.5f; }
static float input_down(int i) { return (void)i, -1.5f; }
static float input_zero(int i) { return (void)i, 0.0f; }

/* MLX, group 32, f16: scale and zero as bits, codes as it packs them. CPU was run, METAL is what its kernels' source says. */
enum { CPU = 1, METAL = 2, BOTH = 3 };
static const struct {
    int backends;
    float (*input)(int i);
    int bits;
    uint16_t scale, zero;
    uint32_t words[8];
} mlx[] = {
    {BOTH, input_a, 2, 0xc0c0, 0x44c0, {0xaaaaffff, 0x00155556}},
    {BOTH, input_a, 3, 0xbcc0, 0x44c0, {0x2db6edb7, 0x26db7249, 0x00124949}},
    {BOTH, input_a, 4, 0xb839, 0x44c0, {0xbccddeef, 0x88999aab, 0x44556677, 0x00112233}},
    {BOTH, input_a, 5, 0xb400, 0x44c0, {0x75be77df, 0x3a56d7c6, 0x35cf8465, 0xc74254b6, 0x00443214}},
    {BOTH, input_a, 6, 0xafcb, 0x44c0, {0x77e7cfbf, 0xbb6fc73d, 0x863967a6, 0x5765b75f, 0xa30e4125, 0x00210620}},
    {BOTH,
     input_a,
     8,
     0xa7cb,
     0x44c0,
     {0xe6eef6ff, 0xc5cdd5de, 0xa4acb5bd, 0x838c949c, 0x636b737b, 0x424a525a, 0x21293139, 0x00081019}},
    {CPU, input_n, 3, 0x3cc0, 0xc4c0, {0x2db6edb7, 0x26db7249, 0x00124949}},
    {CPU, input_n, 4, 0x3839, 0xc4c0, {0xbccddeef, 0x88999aab, 0x44556677, 0x00112233}},
    {CPU, input_b, 2, 0x3d0c, 0xcaf0, {0xaaaaafff, 0x00055555}},
    {CPU, input_b, 4, 0x341c, 0xcaf0, {0xccddeeff, 0x8899aabb, 0x44556677, 0x00112233}},
    {CPU,
     input_b,
     8,
     0x23c8,
     0xcaf0,
     {0xe6eff7ff, 0xc5ced6de, 0xa5adb5bd, 0x848c949c, 0x636b737b, 0x424a525a, 0x2129313a, 0x00081019}},
    {BOTH, input_zero, 4, 0x8002, 0x0000, {0}},
    {BOTH, input_up, 4, 0x8002, 0x3e00, {0}},
    {CPU, input_down, 8, 0x8002, 0xbe00, {0}},
    {BOTH, input_sub, 4, 0x8002, 0x001f, {0xccddeeff, 0x8899aabb, 0x44556677, 0x00112233}},
    {BOTH,
     input_sub,
     8,
     0x8002,
     0x001f,
     {0x10111112, 0x0e0f0f10, 0x0c0c0d0d, 0x090a0a0b, 0x07080809, 0x05050606, 0x02030304, 0x00010102}},
    {BOTH, input_subn, 4, 0x0002, 0x8020, {0xbccddeef, 0x78899aab, 0x44556677, 0x00112233}},
    {BOTH, input_big, 4, 0xefff, 0x7bff, {0x9999aaa0, 0x88889999, 0x77788888, 0xf6677777}},
    {BOTH,
     input_big,
     8,
     0xdfff,
     0x7bff,
     {0x999b9d00, 0x92949597, 0x8a8c8e90, 0x82848688, 0x7a7c7e80, 0x72747678, 0x6b6c6e70, 0xff656769}},
    {CPU, input_ovf, 2, 0xf7ff, 0x7bff, {0x33333333, 0x33333333}},
    {CPU, input_tie, 4, 0xbc00, 0x4b80, {0xaacceef0, 0x22446688, 0x9abcdef0, 0x12345678}},
    {METAL, input_b, 2, 0x44a0, 0xcaf0, {0x01555555, 0x00000000}},
    {METAL, input_b, 4, 0x3b66, 0xcaf0, {0x33444444, 0x22233333, 0x11112222, 0x00001111}},
    {METAL,
     input_b,
     8,
     0x2af7,
     0xcaf0,
     {0x40434547, 0x37393c3e, 0x2e303335, 0x2527292c, 0x1c1e2022, 0x12151719, 0x090b0e10, 0x00020507}},
    {METAL, input_down, 4, 0x2e66, 0xbe00, {0}},
    {METAL, input_down, 8, 0x1e06, 0xbe00, {0}},
    {METAL, input_tie, 4, 0xbc00, 0x4b80, {0xabcdeff0, 0x23456789, 0x9abcdef1, 0x12345678}},
};

/* Code i of a little-endian bit stream. */
static unsigned stream_code(const uint32_t *words, int bits, int i) {
    unsigned code = 0;
    for (int b = 0; b < bits; b++) code |= (words[(i * bits + b) / 32] >> (i * bits + b) % 32 & 1u) << b;
    return code;
}

static void check_mlx(size_t t, enum kvt_side side, bool metal) {
    const bool k = side == KVT_SIDE_K;
    const int row = 77;
    const struct kvt_codec *codec;
    struct kvt_tile tile;
    char name[24];
    snprintf(name, sizeof name, "affine%dg32%s", mlx[t].bits, metal ? "-metal" : "");
    assert_int_equal(kvt_codec_parse(&codec, name, NULL), KVT_OK);
    kvt_codec_describe(codec, side, 32, &tile);
    unsigned char *bytes = aligned_alloc(64, tile.bytes);
    memset(bytes, 0, tile.bytes);
    float x[32];
    for (int i = 0; i < 32; i++) x[i] = mlx[t].input(i);
    assert_int_equal(kvt_codec_encode(codec, side, 32, bytes, row, 1, x, 32, NULL), KVT_OK);
    assert_int_equal(kvt_tile_get_scale(&tile, bytes, k ? 0 : row, k ? row : 0), mlx[t].scale);
    assert_int_equal(kvt_tile_get_zero(&tile, bytes, k ? 0 : row, k ? row : 0) & (mlx[t].zero ? 0xFFFF : 0x7FFF),
                     mlx[t].zero);
    for (int i = 0; i < 32; i++)
        assert_int_equal(kvt_tile_get_code(&tile, bytes, k ? i : row, k ? row : i),
                         stream_code(mlx[t].words, mlx[t].bits, i));
    free(bytes);
}

static void test_affine_equals_mlx(void **state) {
    (void)state;
    for (size_t t = 0; t < sizeof mlx / sizeof mlx[0]; t++)
        for (int side = 0; side < KVT_SIDE_COUNT; side++) {
            if (mlx[t].backends & CPU) check_mlx(t, (enum kvt_side)side, false);
            if (mlx[t].backends & METAL) check_mlx(t, (enum kvt_side)side, true);
        }
}

/* ---- kivi ---------------------------------------------------------------------------------------------------------------- */

static void test_kivi_by_hand(void **state) {
    (void)state;
    const struct kvt_codec *codec;
    assert_int_equal(kvt_codec_parse(&codec, "kivi2g32", NULL), KVT_OK);
    float rows[32 * 8] = {0}, back[32 * 8];
    /* Channel 0: ties go to even. Channel 1: a constant. Channel 2: a large bias, whose f16 rounding the codes absorb. */
    static const float ties[] = {0, 0.5f, 1.5f, 3}, expected[] = {0, 0, 2, 3};
    for (int r = 0; r < 32; r++) {
        rows[r * 8] = ties[r % 4];
        rows[r * 8 + 1] = -2;
        rows[r * 8 + 2] = 300.1f + (float)(r % 4);
    }
    const size_t n = kvt_codec_tile_bytes(codec, KVT_SIDE_K, 8);
    void *tile = aligned_alloc(64, n);
    memset(tile, 0, n);
    assert_int_equal(kvt_codec_encode(codec, KVT_SIDE_K, 8, tile, 32, 32, rows, 8, NULL), KVT_OK);
    assert_int_equal(kvt_codec_decode(codec, KVT_SIDE_K, 8, back, 8, tile, 32, 32, NULL), KVT_OK);
    for (int r = 0; r < 32; r++) {
        assert_true(back[r * 8] == expected[r % 4]);
        assert_true(back[r * 8 + 1] == -2);
        assert_true(fabsf(back[r * 8 + 2] - rows[r * 8 + 2]) < 0.13f);
    }
    free(tile);
}

/* ---- promises of every codec --------------------------------------------------------------------------------------------- */

/* Rows with all that hurts: ordinary, constant, zero, an outlier, large, tiny. */
static void fill(struct kvt_rng *rng, float *rows, int n, int d, float outlier) {
    for (int r = 0; r < n; r++) {
        const int kind = (int)kvt_rng_below(rng, 6);
        const float scale = kind == 3 ? 200.0f : kind == 4 ? 1e-4f : 1.0f;
        for (int c = 0; c < d; c++) rows[r * d + c] = kind == 1 ? 0.75f : kind == 2 ? 0 : scale * kvt_rng_normal(rng);
        if (kind == 5) rows[r * d + (int)kvt_rng_below(rng, (uint64_t)d)] = outlier;
    }
}

/* Of what codes stand for: the largest magnitude, and the widest gap between neighbours. */
struct meaning {
    float largest, gap;
};

static int by_value(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static struct meaning meaning_of(const struct kvt_format *format) {
    float values[256];
    const int n = 1 << format->bits;
    for (int i = 0; i < n; i++) values[i] = kvt_code_value(format, (unsigned)i);
    qsort(values, (size_t)n, sizeof values[0], by_value);
    struct meaning m = {fmaxf(-values[0], values[n - 1]), 0};
    for (int i = 1; i < n; i++) m.gap = fmaxf(m.gap, values[i] - values[i - 1]);
    return m;
}

static float limited(float x, float limit) { return fminf(fmaxf(x, -limit), limit); }

/* The largest magnitude that a format stores: what is larger saturates. */
static float range_of(const struct kvt_format *format, const struct meaning *m) {
    return format->scale == KVT_SCALE_NONE ? m->largest : format->scale == KVT_SCALE_E4M3 ? 448 * m->largest : INFINITY;
}

/* The largest error in a group with extremes lo and hi. With a zero, a step: affine's nudged scale can clip the far end. Without
 * one, the widest gap where the largest code meets the largest element; a whole row of table codes, and steps that have a
 * largest, may miss a spike by all of it.
 * Then what scales and zeros lose. */
static float bound(const struct kvt_format *format, const struct meaning *m, float lo, float hi) {
    const float most = fmaxf(fabsf(lo), fabsf(hi)), top = (float)((1 << format->bits) - 1);
    if (format->scale == KVT_SCALE_LOG) return most + (hi - lo) + 1e-3f; /* which the golden bytes make sharp */
    if (format->has_zero)
        return 1.01f * (hi - lo) / top + most * 0x1p-10f + (hi - lo) * 0x1p-11f + 1e-6f + top * 0x1p-24f;
    const float unit = format->scale == KVT_SCALE_NONE || format->scale == KVT_SCALE_E4M3 ? 0x1p-10f : 0x1p-25f;
    if (format->group == 0 && format->meaning == KVT_MEANING_TABLE) return most + unit * m->largest;
    return 1.01f * most * m->gap / m->largest + most * 0x1p-11f + unit * m->largest;
}

static float plain_bound(const struct kvt_codec_info *info, float x) {
    return info->bits == 32 ? 0 : info->name[0] == 'b' ? fabsf(x) * 0x1p-8f : fabsf(x) * 0x1p-11f + 0x1p-25f;
}

/* One group of n elements that share a scale, `step` apart: x as stored, y as it came back. */
static void check_group(const struct kvt_codec_info *info, const struct kvt_format *format, const struct meaning *m,
                        const float *x, const float *y, int n, int step, float slack) {
    const float range = info->plain ? INFINITY : range_of(format, m);
    float lo = INFINITY, hi = -INFINITY;
    for (int i = 0; i < n; i++) {
        const float v = limited(x[i * step], range);
        lo = v < lo ? v : lo;
        hi = v > hi ? v : hi;
    }
    const float shared = info->plain ? 0 : bound(format, m, lo, hi);
    for (int i = 0; i < n; i++) {
        const float e = fabsf(limited(x[i * step], range) - y[i * step]);
        const float most = fmaxf(info->plain ? plain_bound(info, x[i * step]) : shared, slack);
        if (!(e <= most))
            fail_msg("%s, element %d of a group of %d: %g became %g, bound %g", info->name, i, n, (double)x[i * step],
                     (double)y[i * step], (double)most);
    }
}

/* Rows as they are stored, x, and as they come back, y, both in the codec's basis. */
static void check_errors(const struct kvt_codec *codec, enum kvt_side side, int d, const float *x, const float *y) {
    const struct kvt_codec_info info = kvt_codec_info(codec);
    struct kvt_tile tile;
    kvt_codec_describe(codec, side, d, &tile);
    const bool per_token = side == KVT_SIDE_V || tile.kind == KVT_TILE_LANE || info.plain;
    const int group = info.plain ? 1 : tile.format.group ? tile.format.group : d;
    const struct meaning m = info.plain ? (struct meaning){0, 0} : meaning_of(&tile.format);
    const int n_lines = per_token ? KVT_TILE_ROWS : d, line_len = per_token ? d : KVT_TILE_ROWS;
    for (int line = 0; line < n_lines; line++) {
        float slack = 0; /* a rotated row is rotated forth and back */
        for (int i = 0; tile.format.rotated && i < line_len; i++)
            slack = fmaxf(slack, fabsf(y[per_token ? line * d + i : i * d + line]) * 0x1p-20f);
        for (int from = 0; from < line_len; from += group) {
            const int at = per_token ? line * d + from : from * d + line;
            check_group(&info, &tile.format, &m, x + at, y + at, line_len - from < group ? line_len - from : group,
                        per_token ? 1 : d, slack);
        }
    }
}

/* On Gaussian rows every codec of as many bits is about as good. */
static void check_rms(const struct kvt_codec *codec, enum kvt_side side, int d, struct kvt_rng *rng, void *tile) {
    static const double most[] = {
        [2] = 0.7, [3] = 0.36, [4] = 0.18, [5] = 0.09, [6] = 0.05, [8] = 0.07, [16] = 0.003, [32] = 0};
    float *x = malloc((size_t)(2 * KVT_TILE_ROWS * d) * sizeof *x), *y = x + KVT_TILE_ROWS * d;
    double noise = 0, power = 0;
    for (int i = 0; i < KVT_TILE_ROWS * d; i++) x[i] = kvt_rng_normal(rng);
    assert_int_equal(kvt_codec_encode(codec, side, d, tile, 0, KVT_TILE_ROWS, x, d, NULL), KVT_OK);
    assert_int_equal(kvt_codec_decode(codec, side, d, y, d, tile, 0, KVT_TILE_ROWS, NULL), KVT_OK);
    for (int i = 0; i < KVT_TILE_ROWS * d; i++) {
        noise += pow((double)(x[i] - y[i]), 2);
        power += pow((double)x[i], 2);
    }
    if (!(sqrt(noise / power) <= most[codec->info.bits]))
        fail_msg("%s, side %d, d %d: relative error %g on Gaussian rows", codec->info.name, (int)side, d,
                 sqrt(noise / power));
    free(x);
}

/* Turns rows into a rotated codec's basis. */
static void to_basis(const struct kvt_codec *codec, enum kvt_side side, int d, float *x, float *y) {
    struct kvt_tile tile;
    kvt_codec_describe(codec, side, d, &tile);
    for (int r = 0; tile.format.rotated && r < KVT_TILE_ROWS; r++) {
        kvt_rotate_f16(x + r * d, d);
        kvt_rotate(y + r * d, d);
    }
}

static void check_codec(const struct kvt_codec *codec, enum kvt_side side, int d, struct kvt_rng *rng) {
    const size_t bytes = kvt_codec_tile_bytes(codec, side, d), n = (size_t)(KVT_TILE_ROWS * d);
    const int g = kvt_codec_info(codec).granularity;
    assert_int_equal(bytes % 64, 0);
    float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y), *z = malloc(n * sizeof *z);
    unsigned char *whole = aligned_alloc(64, bytes), *parts = aligned_alloc(64, bytes),
                  *noise = aligned_alloc(64, bytes);
    struct kvt_tile tile;
    kvt_codec_describe(codec, side, d, &tile);
    check_rms(codec, side, d, rng, whole);
    fill(rng, x, KVT_TILE_ROWS, d, fminf(60000, 0.9f * kvt_codec_limit(codec, side, d)));
    memset(whole, 0, bytes);
    memset(parts, 0, bytes);
    assert_int_equal(kvt_codec_encode(codec, side, d, whole, 0, KVT_TILE_ROWS, x, d, NULL), KVT_OK);
    assert_int_equal(kvt_codec_decode(codec, side, d, y, d, whole, 0, KVT_TILE_ROWS, NULL), KVT_OK);
    if (tile.n_slices == 0) {
        memcpy(z, x, n * sizeof *z);
        to_basis(codec, side, d, z, y);
        check_errors(codec, side, d, z, y);
    }
    for (size_t i = 0; i < n; i++) assert_true(isfinite(y[i]));

    /* Rows in any order of pieces, and over other rows, give the same bytes. */
    for (int r = KVT_TILE_ROWS - g; r >= 0; r -= g)
        assert_int_equal(kvt_codec_encode(codec, side, d, parts, r, g, x + (KVT_TILE_ROWS - g - r) * d, d, NULL),
                         KVT_OK);
    for (int r = 0; r < KVT_TILE_ROWS; r += g)
        assert_int_equal(kvt_codec_encode(codec, side, d, parts, r, g, x + r * d, d, NULL), KVT_OK);
    assert_memory_equal(whole, parts, bytes);

    /* Any bytes decode within bounds, one row at a time as all at once. */
    for (size_t i = 0; i < bytes; i++) noise[i] = (unsigned char)kvt_rng_u64(rng);
    assert_int_equal(kvt_codec_decode(codec, side, d, y, d, noise, 0, KVT_TILE_ROWS, NULL), KVT_OK);
    for (int r = 0; r < KVT_TILE_ROWS; r++)
        assert_int_equal(kvt_codec_decode(codec, side, d, z + r * d, d, noise, r, 1, NULL), KVT_OK);
    assert_memory_equal(y, z, n * sizeof *y);
    free(x), free(y), free(z), free(whole), free(parts), free(noise);
}

static void test_promises(void **state) {
    (void)state;
    static const int sizes[] = {64, 128, 8, 72, 80, 256};
    struct kvt_rng rng = {20};
    for (size_t i = 0; i < kvt_codec_count(); i++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
            for (int side = 0; side < KVT_SIDE_COUNT; side++)
                if (kvt_codec_fits(kvt_codec_at(i), (enum kvt_side)side, sizes[s], NULL) == KVT_OK)
                    check_codec(kvt_codec_at(i), (enum kvt_side)side, sizes[s], &rng);
}

static void test_sizes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        enum kvt_side side;
        int d;
        size_t bytes;
    } sizes[] = {
        {"f16", KVT_SIDE_K, 128, 32768},       {"f32", KVT_SIDE_V, 64, 32768},
        {"affine4g64", KVT_SIDE_K, 128, 9216}, {"affine4g64", KVT_SIDE_V, 128, 9216},
        {"affine8g64", KVT_SIDE_V, 64, 8704},  {"kivi4g32", KVT_SIDE_K, 128, 10240},
        {"kivi2g32", KVT_SIDE_V, 128, 6144},   {"kivi3g32", KVT_SIDE_K, 128, 8192},
        {"kivi4g32", KVT_SIDE_V, 80, 6656},    {"affine5g32", KVT_SIDE_K, 64, 6144},
        {"kivi6g64", KVT_SIDE_V, 512, 53248},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const struct kvt_codec *codec;
        assert_int_equal(kvt_codec_parse(&codec, sizes[i].name, NULL), KVT_OK);
        assert_int_equal(kvt_codec_tile_bytes(codec, sizes[i].side, sizes[i].d), sizes[i].bytes);
    }
}

/* ---- names and bad calls ------------------------------------------------------------------------------------------------- */

static void test_names(void **state) {
    (void)state;
    const struct kvt_codec *codec = NULL;
    struct kvt_error err;
    for (size_t i = 0; i < kvt_codec_count(); i++) {
        assert_int_equal(kvt_codec_parse(&codec, kvt_codec_info(kvt_codec_at(i)).name, &err), KVT_OK);
        assert_ptr_equal(codec, kvt_codec_at(i));
    }
    assert_null(kvt_codec_at(kvt_codec_count()));
    assert_int_equal(kvt_codec_parse(&codec, "affine4", &err), KVT_OK);
    assert_string_equal(kvt_codec_info(codec).name, "affine4g64");
    assert_int_equal(kvt_codec_parse(&codec, "kivi2", &err), KVT_OK);
    assert_string_equal(kvt_codec_info(codec).name, "kivi2g32");
    assert_int_equal(kvt_codec_parse(&codec, "kivi2-parity", &err), KVT_OK);
    assert_string_equal(kvt_codec_info(codec).name, "kivi2g32-parity");
    static const char *const wrong[] = {"",         "a",    "affine", "affine7",   "affine4g",    "affine4g6",    "f",
                                        "kivi4g48", "f16 ", "kivi4-", "kivi4-par", "kivi-parity", "kivi4g-parity"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(kvt_codec_parse(&codec, wrong[i], &err), KVT_ERR_ARG);
    assert_int_equal(kvt_codec_parse(&codec, "afine4g64", &err), KVT_ERR_ARG);
    assert_non_null(strstr(err.text, "nearest is 'affine4g64'"));
    assert_non_null(strstr(err.text, "kivi{2,3,4,5,6,8}g{32,64,128}"));
    char longest[300];
    memset(longest, 'k', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(kvt_codec_parse(&codec, longest, &err), KVT_ERR_ARG);
}

static void test_bad_calls(void **state) {
    (void)state;
    const struct kvt_codec *codec;
    struct kvt_error err;
    assert_int_equal(kvt_codec_parse(&codec, "kivi4g32", &err), KVT_OK);
    assert_int_equal(kvt_codec_fits(codec, KVT_SIDE_K, 60, &err), KVT_ERR_UNSUPPORTED);
    assert_int_equal(kvt_codec_fits(codec, KVT_SIDE_V, 520, &err), KVT_ERR_UNSUPPORTED);
    assert_int_equal(kvt_codec_tile_bytes(codec, KVT_SIDE_V, 0), 0);
    float rows[32 * 8] = {0};
    unsigned char tile[8192] = {0}, clean[8192] = {0};
    assert_int_equal(kvt_codec_encode(codec, KVT_SIDE_K, 8, tile, 1, 32, rows, 8, &err), KVT_ERR_ARG);
    assert_int_equal(kvt_codec_encode(codec, KVT_SIDE_K, 8, tile, 0, 31, rows, 8, &err), KVT_ERR_ARG);
    assert_int_equal(kvt_codec_encode(codec, KVT_SIDE_K, 8, tile, 128, 32, rows, 8, &err), KVT_ERR_RANGE);
    assert_int_equal(kvt_codec_decode(codec, KVT_SIDE_K, 8, rows, 8, tile, -1, 2, &err), KVT_ERR_RANGE);
    static const float bad[] = {NAN, INFINITY, -INFINITY, 65520};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rows[9] = bad[i];
        assert_int_equal(kvt_codec_encode(codec, KVT_SIDE_K, 8, tile, 0, 32, rows, 8, &err), KVT_ERR_RANGE);
        assert_non_null(strstr(err.text, "row 1, channel 1"));
        assert_memory_equal(tile, clean, sizeof tile);
    }
    assert_int_equal(kvt_codec_parse(&codec, "bf16", &err), KVT_OK);
    rows[9] = 1e30f;
    assert_int_equal(kvt_codec_encode(codec, KVT_SIDE_K, 8, tile, 0, 32, rows, 8, &err), KVT_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_affine_equals_mlx),
        cmocka_unit_test(test_kivi_by_hand),
        cmocka_unit_test(test_promises),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_bad_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
