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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/rng.h"
#include "codec/class.h"
#include "kernel/kernel.h"
#include "support/guard.h"
#include "support/share.h"

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
    unsigned n_cases = 0;
    for (int l = 0; l < KVT_LEVEL_COUNT; l++) {
        if (!kvt_unpack_table[l] || !kvt_level_runs((enum kvt_level)l)) continue;
        for (size_t i = 0; i < kvt_codec_count(); i++)
            for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
                for (int side = 0; side < KVT_SIDE_COUNT; side++)
                    if (kvt_codec_fits(kvt_codec_at(i), (enum kvt_side)side, sizes[s], NULL) == KVT_OK &&
                        share_takes(&n_cases))
                        check_unpack(kvt_unpack_table[l], (enum kvt_level)l, kvt_codec_at(i), (enum kvt_side)side,
                                     sizes[s], &rng);
    }
}

static void check_decode(kvt_decode_fn fn, enum kvt_level level, const struct kvt_codec *codec, enum kvt_side side,
                         int d, struct kvt_rng *rng) {
    struct kvt_tile tile;
    struct guard in, out;
    kvt_codec_describe(codec, side, d, &tile);
    const int n = 1 + (int)kvt_rng_below(rng, kvt_rng_below(rng, 2) ? 8 : KVT_TILE_ROWS);
    const int first = (int)kvt_rng_below(rng, (uint64_t)(KVT_TILE_ROWS - n + 1)),
              stride = d + (int)kvt_rng_below(rng, 3);
    const size_t len = (size_t)((n - 1) * stride + d), out_bytes = len * sizeof(float);
    assert_true(guard_init(&in, tile.bytes) && guard_init(&out, out_bytes));
    unsigned char *bytes = guard_last(&in, tile.bytes);
    float *got = (float *)(void *)guard_last(&out, out_bytes), *want = malloc(out_bytes);
    fill_tile(rng, &tile, bytes);
    memset(got, 0xAA, out_bytes);
    memset(want, 0xAA, out_bytes);
    fn(&tile, got, stride, bytes, first, n);
    kvt_tile_decode(&tile, want, stride, bytes, first, n);
    for (size_t i = 0; i < len; i++)
        if (!same(got[i], want[i]))
            fail_msg("%s %s side %d d %d rows %d+%d, element %zu: %a, not %a", kvt_level_name(level), codec->info.name,
                     (int)side, d, first, n, i, (double)got[i], (double)want[i]);
    free(want);
    guard_finish(&in);
    guard_finish(&out);
}

static void test_decode(void **state) {
    (void)state;
    static const int sizes[] = {8, 64, 72, 80, 96, 128, 576};
    struct kvt_rng rng = {9};
    unsigned n_cases = 0;
    for (int l = 0; l < KVT_LEVEL_COUNT; l++) {
        if (!kvt_decode_table[l] || !kvt_level_runs((enum kvt_level)l)) continue;
        for (size_t i = 0; i < kvt_codec_count(); i++)
            for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
                for (int side = 0; side < KVT_SIDE_COUNT; side++)
                    if (kvt_codec_fits(kvt_codec_at(i), (enum kvt_side)side, sizes[s], NULL) == KVT_OK &&
                        share_takes(&n_cases))
                        check_decode(kvt_decode_table[l], (enum kvt_level)l, kvt_codec_at(i), (enum kvt_side)side,
                                     sizes[s], &rng);
    }
}

/* Ordinary rows and rows with all that hurts. */
static void fill_rows(struct kvt_rng *rng, float *x, int n, int d, ptrdiff_t stride, float limit) {
    for (int r = 0; r < n; r++, x += stride) {
        const int kind = (int)kvt_rng_below(rng, 12);
        const float scale = kind == 0 ? limit / 8 : kind == 1 ? 1e-7f : kind == 2 ? 1e-39f : 1;
        for (int c = 0; c < d; c++) {
            const float normal = kvt_rng_normal(rng), sign = kvt_rng_below(rng, 2) ? 1 : -1;
            switch (kind) {
            case 3: x[c] = 0.75f; break;
            case 4: x[c] = 0 * sign; break;
            case 5:
                x[c] = kvt_rng_below(rng, 2) ? fabsf(normal) : 0 * sign;
                break;                                               /* the smallest is a zero of some sign */
            case 6: x[c] = (float)kvt_rng_below(rng, 16) / 2; break; /* ties */
            case 7: x[c] = sign * 1.5f; break;                       /* equal magnitudes */
            case 8: x[c] = 300 + normal / 64; break;                 /* a bias that f16 does not hold */
            case 9: x[c] = sign * (float)(2 * kvt_rng_below(rng, 256) + 1) / 2; break; /* halves of many codes */
            default: x[c] = fmaxf(-limit, fminf(limit, scale * normal));
            }
        }
        if (kind >= 10) x[(int)kvt_rng_below(rng, (uint64_t)d)] = kvt_rng_below(rng, 2) ? limit : -limit;
    }
}

/* One drawn call of a kernel and of its codec's own encoder. */
struct trial {
    const struct kvt_codec *codec;
    struct kvt_tile tile;
    int first, n, heads;
    ptrdiff_t stride, rows_step;
    size_t bytes_step, bytes; /* from head to head; of all */
    struct guard gx, gt;
    float *x;
    unsigned char *got, *want;
    bool by_queries;
    float queries[KVT_LATENT_MAX];
};

/* A kernel's call, or one head of it for the codec's encoder. */
static struct kvt_encode_args trial_args(const struct trial *t, unsigned char *bytes, int head, int heads) {
    return (struct kvt_encode_args){
        .codec = t->codec,
        .tile = &t->tile,
        .bytes = bytes + (size_t)head * t->bytes_step,
        .first = t->first,
        .n = t->n,
        .rows = t->x + head * t->rows_step,
        .stride = t->stride,
        .n_more = heads - 1,
        .bytes_step = t->bytes_step,
        .rows_step = t->rows_step,
        .queries = t->by_queries ? t->queries : NULL,
    };
}

static void trial_init(struct trial *t, const struct kvt_codec *codec, enum kvt_side side, int d, struct kvt_rng *rng) {
    static const int heads[8] = {1, 2, 3, 9, 1, 1, 1, 1}; /* one row of up to 8 is encoded together */
    const int g = codec->info.granularity, most = KVT_TILE_ROWS / g;
    t->codec = codec;
    kvt_codec_describe(codec, side, d, &t->tile);
    t->n = g * (1 + (int)kvt_rng_below(rng, (uint64_t)most));
    if (kvt_rng_below(rng, 4) == 0) t->n = g; /* as tokens come */
    t->first = g * (int)kvt_rng_below(rng, (uint64_t)((KVT_TILE_ROWS - t->n) / g + 1));
    if (kvt_rng_below(rng, 3) == 0) t->first = 0, t->n = KVT_TILE_ROWS;
    t->stride = d + (int)kvt_rng_below(rng, 3);
    t->heads = heads[kvt_rng_below(rng, t->n == 1 ? 4 : 8)];
    t->bytes_step = t->tile.bytes + 64 * kvt_rng_below(rng, 2);
    t->bytes = (size_t)(t->heads - 1) * t->bytes_step + t->tile.bytes;
    const ptrdiff_t len = (t->n - 1) * t->stride + d;
    t->rows_step = len + (ptrdiff_t)kvt_rng_below(rng, 3);
    const size_t bytes = (size_t)((t->heads - 1) * t->rows_step + len) * sizeof(float);
    assert_true(guard_init(&t->gx, bytes) && guard_init(&t->gt, t->bytes));
    t->x = (float *)(void *)(kvt_rng_below(rng, 2) ? guard_first(&t->gx) : guard_last(&t->gx, bytes));
    t->got = kvt_rng_below(rng, 2) ? guard_first(&t->gt) : guard_last(&t->gt, t->bytes);
    t->want = aligned_alloc(64, t->bytes);
    assert_non_null(t->want);
    for (int h = 0; h < t->heads; h++)
        fill_rows(rng, t->x + h * t->rows_step, t->n, d, t->stride, kvt_codec_limit(codec, side, d));
    t->by_queries = codec->info.queries && t->heads == 1 && kvt_rng_below(rng, 2);
    const float scale = kvt_rng_below(rng, 4) ? 1 : 0;
    for (int c = 0; c < d; c++) t->queries[c] = scale * (float)kvt_rng_below(rng, 100);
}

static void trial_finish(struct trial *t) {
    free(t->want);
    guard_finish(&t->gx), guard_finish(&t->gt);
}

static void trial_run(struct trial *t, kvt_encode_fn fn) {
    const struct kvt_encode_args args = trial_args(t, t->got, 0, t->heads);
    fn(&args);
    for (int h = 0; h < t->heads; h++) {
        const struct kvt_encode_args one = trial_args(t, t->want, h, 1);
        t->codec->encoder->encode(&one);
    }
}

/* A row in the tile's own basis. */
static void get_row(float *x, const struct kvt_tile *tile, const void *bytes, int row) {
    const bool is_k = tile->side == KVT_SIDE_K;
    if (tile->kind == KVT_TILE_CLASS)
        kvt_class_decode_row(tile, x, bytes, row);
    else
        for (int c = 0; c < kvt_tile_row_size(tile); c++)
            x[c] = kvt_tile_get(tile, bytes, is_k ? c : row, is_k ? row : c);
}

/* Whether the kernel differs from the codec: over noise in every value, of the rows and of those around them (padding may
 * differ where it was noise), and over zeros in every byte. Equal bytes are equal values, which are slow to read. */
static bool trial_differs(struct trial *t, kvt_encode_fn fn, struct kvt_rng *rng, char *what, size_t what_bytes) {
    const struct kvt_tile *tile = &t->tile;
    for (size_t i = 0; i < t->bytes; i += sizeof(uint64_t)) { /* a tile's bytes are a multiple of 64 */
        const uint64_t noise = kvt_rng_u64(rng);
        memcpy(t->got + i, &noise, sizeof noise), memcpy(t->want + i, &noise, sizeof noise);
    }
    trial_run(t, fn);
    const bool equal = memcmp(t->got, t->want, t->bytes) == 0;
    for (int head = 0; head < t->heads && !equal; head++)
        for (int row = 0; row < KVT_TILE_ROWS; row++) {
            const size_t at = (size_t)head * t->bytes_step;
            float a[KVT_LATENT_MAX], b[KVT_LATENT_MAX];
            get_row(a, tile, t->got + at, row), get_row(b, tile, t->want + at, row);
            for (int c = 0; c < kvt_tile_row_size(tile); c++) {
                if (same(a[c], b[c])) continue;
                snprintf(what, what_bytes, "head %d row %d channel %d is %a, not %a", head, row, c, (double)a[c],
                         (double)b[c]);
                return true;
            }
        }
    memset(t->got, 0, t->bytes);
    memset(t->want, 0, t->bytes);
    trial_run(t, fn);
    for (size_t i = 0; i < t->bytes; i++)
        if (t->got[i] != t->want[i]) {
            snprintf(what, what_bytes, "byte %zu is %02x, not %02x", i, t->got[i], t->want[i]);
            return true;
        }
    return false;
}

static const int encode_sizes[] = {8, 64, 72, 80, 96, 128, 192, 512, 576};

static void test_encode(void **state) {
    (void)state;
    struct kvt_rng rng = {8};
    unsigned n_cases = 0;
    for (int l = 0; l < KVT_LEVEL_COUNT; l++)
        for (size_t i = 0; i < kvt_codec_count(); i++) {
            const struct kvt_codec *codec = kvt_codec_at(i);
            const kvt_encode_fn fn = kvt_encode_kernel(codec, (enum kvt_level)l);
            if (!fn || !kvt_level_runs((enum kvt_level)l)) continue;
            for (size_t s = 0; s < sizeof encode_sizes / sizeof encode_sizes[0]; s++)
                for (int side = 0; side < KVT_SIDE_COUNT; side++)
                    for (int rep = 0; rep < (encode_sizes[s] < 200 ? 5 : 1); rep++) {
                        const int d = encode_sizes[s];
                        struct trial t;
                        char what[100];
                        if (kvt_codec_fits(codec, (enum kvt_side)side, d, NULL) != KVT_OK || !share_takes(&n_cases))
                            continue;
                        trial_init(&t, codec, (enum kvt_side)side, d, &rng);
                        if (trial_differs(&t, fn, &rng, what, sizeof what))
                            fail_msg("%s %s %c d %d rows %d+%d of %d heads: %s", kvt_level_name((enum kvt_level)l),
                                     codec->info.name, "KV"[side], d, t.first, t.n, t.heads, what);
                        trial_finish(&t);
                    }
        }
}

/* ---- kernels with one fault each, which the trials must find ----------------------------------------------------------- */

static void skips_last_group(const struct kvt_encode_args *a) {
    struct kvt_encode_args fewer = *a;
    fewer.n -= a->codec->info.granularity;
    if (fewer.n > 0) kvt_encode_ref(&fewer);
}

static void skips_last_head(const struct kvt_encode_args *a) {
    struct kvt_encode_args fewer = *a;
    fewer.n_more--;
    kvt_encode_ref(&fewer);
}

/* Works on rows that are off by less than half a unit of f16. */
static void rounds_rows(const struct kvt_encode_args *a) {
    const int d = kvt_tile_row_size(a->tile);
    struct kvt_encode_args other = *a;
    float *x = malloc((size_t)((a->n_more + 1) * a->n * d) * sizeof *x), *to = x;
    assert_non_null(x);
    for (int h = 0; h <= a->n_more; h++)
        for (int r = 0; r < a->n; r++)
            for (int c = 0; c < d; c++) *to++ = a->rows[h * a->rows_step + r * a->stride + c] * 0.9997f;
    other.rows = x, other.stride = d, other.rows_step = a->n * d;
    kvt_encode_ref(&other);
    free(x);
}

static void touches_last_byte(const struct kvt_encode_args *a) {
    kvt_encode_ref(a);
    ((unsigned char *)a->bytes)[a->tile->bytes - 1] ^= 1;
}

static void touches_first_scale(const struct kvt_encode_args *a) {
    kvt_encode_ref(a);
    *(unsigned char *)a->bytes ^= 1;
}

static void test_broken_encoders(void **state) {
    (void)state;
    static const kvt_encode_fn broken[] = {skips_last_group, skips_last_head, rounds_rows, touches_last_byte,
                                           touches_first_scale};
    struct kvt_rng rng = {10};
    unsigned n_cases = 0;
    for (size_t b = 0; b < sizeof broken / sizeof broken[0]; b++)
        for (size_t i = 0; i < kvt_codec_count(); i++) {
            bool found = false;
            if (!share_takes(&n_cases)) continue;
            for (int rep = 0; rep < 32 && !found; rep++) {
                struct trial t;
                char what[100];
                if (!kvt_codec_takes(kvt_codec_at(i), (enum kvt_side)(rep % 2))) continue;
                trial_init(&t, kvt_codec_at(i), (enum kvt_side)(rep % 2), 64, &rng);
                found = trial_differs(&t, broken[b], &rng, what, sizeof what);
                trial_finish(&t);
            }
            if (!found) fail_msg("fault %zu of %s was not found", b, kvt_codec_at(i)->info.name);
        }
}

/* ---- quotients by a product and its residual (vf_quotient), which affine's kernels take ------------------------------------- */

static float quotient(float v, float scale, float inverse) {
    const float q = v * inverse;
    return fmaf(fmaf(-q, scale, v), inverse, q);
}

/* Whether v / scale rounds to another integer by that way; u: ulps that the inverse is off. */
static bool parts(float v, float scale, int u) {
    float inverse = 1 / scale;
    int32_t bits;
    memcpy(&bits, &inverse, sizeof bits);
    bits += u;
    memcpy(&inverse, &bits, sizeof inverse);
    return rintf(quotient(v, scale, inverse)) != rintf(v / scale);
}

/* Counts the quotients v / scale that lie within 64 * 2^-24 ulps of the middle between a half h = k + 0.5 and a float next to it, and how many
 * of them part. With M / 2 the middle and S the scale, both as integers, v is (S M + n) / 2^x for a small n: so S is -n / M modulo 2^x. */
static long count_quotients(float h, int u, long *n_parting) {
    int exponent;
    const uint64_t half = (uint64_t)ldexpf(frexpf(h, &exponent), 24);
    long count = 0;
    for (uint64_t m = 2 * half - 1; m <= 2 * half + 1; m += 2) {
        uint64_t inverse = m; /* modulo 2^64, by Newton's iteration */
        for (int i = 0; i < 6; i++) inverse *= 2 - m * inverse;
        for (int x = 22; x <= 27; x++)
            for (int n = -64; n <= 64; n++)
                for (uint64_t s = (0 - inverse * (uint64_t)(int64_t)n) & ((1u << x) - 1); s < 1u << 24; s += 1u << x) {
                    const uint64_t v = (s * m + (uint64_t)(int64_t)n) >> x;
                    if (n == 0 || s < 1u << 23 || v < 1u << 23 || v >= 1u << 24) continue;
                    count++;
                    *n_parting += parts(ldexpf((float)v, x + exponent - 25), (float)s, u);
                }
    }
    return count;
}

static void test_quotient(void **state) {
    (void)state;
    long count = 0, parting = 0, parting_if_near = 0;
    for (int k = 0; k < 512; k++) {
        count += count_quotients((float)k + 0.5f, 0, &parting);
        count_quotients((float)k + 0.5f, 1, &parting_if_near);
    }
    assert_true(count > 40000);
    assert_int_equal(parting, 0);
    assert_true(parting_if_near > 0); /* an inverse that is one ulp off would not do */
    struct kvt_rng rng = {12};
    for (int i = 0; i < 1000000; i++) {
        const float scale = (float)(1 + kvt_rng_below(&rng, 1u << 24));
        const float v = scale * ((float)kvt_rng_below(&rng, 256) + 0.5f);
        assert_false(parts(nextafterf(v, kvt_rng_below(&rng, 2) ? INFINITY : 0), scale, 0));
        assert_false(parts(v, scale, 0));
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

/* n vectors, three steps each, held against exp in double. */
static void check_soften(kvt_soften_fn fn, struct kvt_rng *rng) {
    enum { ROWS = KVT_TILE_ROWS, MOST = 9 };
    const int n = 1 + (int)kvt_rng_below(rng, MOST);
    static _Alignas(64) float scores[MOST * ROWS], copy[MOST * ROWS];
    float max[MOST + 1], sum[MOST + 1], keep[MOST + 1];
    double exact_max[MOST], exact_sum[MOST];
    for (int v = 0; v < n; v++) max[v] = -INFINITY, sum[v] = 0, exact_max[v] = -INFINITY, exact_sum[v] = 0;
    max[n] = sum[n] = keep[n] = 77; /* not ours */
    for (int step = 0; step < 3; step++) {
        for (int v = 0; v < n; v++) {
            const float spread = kvt_rng_below(rng, 2) ? 1 : 30;
            const bool none = kvt_rng_below(rng, 5) == 0;
            for (int i = v * ROWS; i < (v + 1) * ROWS; i++)
                copy[i] = scores[i] = !none && kvt_rng_below(rng, 4) ? spread * kvt_rng_normal(rng) : -INFINITY;
        }
        fn(scores, n, max, sum, keep);
        for (int v = 0; v < n; v++) {
            const double old = exact_max[v];
            for (int i = 0; i < ROWS; i++) exact_max[v] = fmax(exact_max[v], (double)copy[v * ROWS + i]);
            if (exact_max[v] == -INFINITY) {
                assert_true(keep[v] == 0 && sum[v] == 0 && max[v] == -INFINITY);
                for (int i = 0; i < ROWS; i++) assert_true(scores[v * ROWS + i] == 0);
                continue;
            }
            assert_true((double)max[v] == exact_max[v]);
            assert_true(fabs((double)keep[v] - exp(old - exact_max[v])) < 3e-7);
            exact_sum[v] *= exp(old - exact_max[v]);
            for (int i = v * ROWS; i < (v + 1) * ROWS; i++) {
                const double want = exp((double)(copy[i] - max[v])); /* the difference is rounded once */
                exact_sum[v] += want;
                assert_true(fabs((double)scores[i] - want) <= want * 3e-7 + 1e-37);
            }
            assert_true(fabs((double)sum[v] - exact_sum[v]) <= exact_sum[v] * 5e-6);
        }
        assert_true(max[n] == 77 && sum[n] == 77 && keep[n] == 77);
    }
}

static void test_soften(void **state) {
    (void)state;
    struct kvt_rng rng = {7};
    for (int l = 0; l < KVT_LEVEL_COUNT; l++)
        if (kvt_soften_table[l] && kvt_level_runs((enum kvt_level)l))
            for (int i = 0; i < 500; i++) check_soften(kvt_soften_table[l], &rng);
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
        cmocka_unit_test(test_unpack), cmocka_unit_test(test_encode), cmocka_unit_test(test_broken_encoders),
        cmocka_unit_test(test_decode), cmocka_unit_test(test_fold),   cmocka_unit_test(test_soften),
        cmocka_unit_test(test_exp),    cmocka_unit_test(test_select), cmocka_unit_test(test_quotient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
