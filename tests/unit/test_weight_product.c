/* SPDX-License-Identifier: Apache-2.0
 * Products have the bits of their contract (src/weight/type.h): at every level, for any number of rows, of tokens and of
 * threads, wherever the rows lie. Level ref may give many tokens to OpenBLAS: then they are near. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "base/arena.h"
#include "base/half.h"
#include "support/guard.h"
#include "support/threads.h"
#include "support/weight_data.h"
#include "weight/tile.h"
#include "weight/weight.h"

/* A matrix, tokens and results, each between pages that cannot be touched. */
struct scene {
    struct kvt_weight w;
    const struct weight_layout *layout;
    struct guard packed, strips, tokens, results;
    float *x, *dst;
    float *decoded, *want; /* the weights as floats; what a product must give, token after token */
    int n;
    ptrdiff_t ld_x, ld_dst;
};

static void run(struct scene *s, enum kvt_level level, int n_threads);
static void check_near(const struct scene *s);

/* The contract of src/weight/type.h for floats in its own words. */
static float contract(const float *w, const float *x, int64_t n_in) {
    float lane[32] = {0};
    for (int64_t i = 0; i < n_in + (32 - n_in % 32) % 32; i++)
        lane[i % 32] = fmaf(i < n_in ? w[i] : 0, i < n_in ? x[i] : 0, lane[i % 32]);
    for (int half = 16; half; half /= 2)
        for (int i = 0; i < half; i++) lane[i] = lane[i] + lane[i + half];
    return lane[0];
}

/* Blocks of 32 of ordinary numbers, zeros, numbers that are taken for that and just not, large ones, and ones whose codes are at ties. */
static void fill_tokens(struct scene *s) {
    struct kvt_rng rng = {(uint64_t)s->n};
    for (int t = 0; t < s->n; t++)
        for (int64_t i = 0; i < s->w.n_in; i++) {
            float *x = &s->x[t * s->ld_x + i];
            *x = kvt_rng_normal(&rng);
            switch ((t * 3 + i / 32) % 12) {
            case 3: *x = 0; break;
            case 5: *x *= 0x1p-105f; break;
            case 6: *x *= 0x1p-95f; break;
            case 7: *x *= 0x1p+12f; break;
            case 9: *x = i % 32 == 7 ? -32639 : roundf(*x * 999) + 0.5f; break;
            default: break;
            }
        }
}

/* Of a type of codes: level ref with the bytes of the file, token by token, which is near what doubles give. */
static void want_reference(struct scene *s) {
    struct scene one = *s;
    one.n = 1;
    for (int t = 0; t < s->n; t++) {
        one.x = s->x + t * s->ld_x;
        one.dst = s->want + t * s->w.n_out;
        run(&one, KVT_LEVEL_REF, 1);
        check_near(&one);
    }
}

/* place 0: buffers end at a guard page; 1: they start at one; 2: an odd byte further (the packed rows), which the file
 * format allows. */
static void scene_init(struct scene *s, const struct kvt_weight_type *type, int64_t n_in, int64_t n_out, int n,
                       int place) {
    const struct weight_layout *layout = weight_layout_find(kvt_weight_type_name(type));
    assert_non_null(layout);
    const int n_blocks = (int)(n_in / layout->block_len * n_out);
    const size_t bytes = (size_t)n_blocks * (size_t)layout->block_bytes;
    s->n = n;
    s->ld_x = n_in + (place == 2);
    s->ld_dst = n_out + (place == 2);
    const size_t x_bytes = (size_t)(s->ld_x * (n - 1) + n_in) * sizeof(float);
    const size_t dst_bytes = (size_t)(s->ld_dst * (n - 1) + n_out) * sizeof(float);
    assert_true(guard_init(&s->packed, bytes + 1) && guard_init(&s->tokens, x_bytes) &&
                guard_init(&s->results, dst_bytes));
    unsigned char *data = place == 0 ? guard_last(&s->packed, bytes) : guard_first(&s->packed) + (place == 2);
    s->x = (float *)(void *)(place == 0 ? guard_last(&s->tokens, x_bytes) : guard_first(&s->tokens));
    s->dst = (float *)(void *)(place == 0 ? guard_last(&s->results, dst_bytes) : guard_first(&s->results));
    weight_data_fill(data, layout, n_blocks, (uint64_t)(n_in * 31 + n_out));
    s->layout = layout;
    s->w = (struct kvt_weight){
        type, data, n_in, n_out, (size_t)(n_in / layout->block_len) * (size_t)layout->block_bytes, NULL};
    fill_tokens(s);
    s->decoded = malloc((size_t)(n_in * n_out) * sizeof(float));
    assert_non_null(s->decoded);
    s->want = malloc((size_t)(n * n_out) * sizeof(float));
    assert_non_null(s->want);
    for (int64_t o = 0; o < n_out; o++) {
        kvt_weight_row(&s->w, o, s->decoded + o * n_in, KVT_LEVEL_REF);
        for (int t = 0; t < n; t++) s->want[t * n_out + o] = contract(s->decoded + o * n_in, s->x + t * s->ld_x, n_in);
    }
    memset(&s->strips, 0, sizeof s->strips);
    if (layout->block_len == 1) return;
    want_reference(s);
    const size_t packed = kvt_weight_packed_bytes(&s->w);
    if (!packed) return;
    assert_true(guard_init(&s->strips, packed));
    unsigned char *strips = place == 0 ? guard_last(&s->strips, packed) : guard_first(&s->strips);
    const struct kvt_parallel parallel = test_parallel(1 + place);
    kvt_weight_pack(strips, &s->w, &parallel);
    s->w.packed = strips;
}

static void scene_finish(struct scene *s) {
    guard_finish(&s->packed);
    if (s->w.packed) guard_finish(&s->strips);
    guard_finish(&s->tokens);
    guard_finish(&s->results);
    free(s->decoded);
    free(s->want);
}

static void run(struct scene *s, enum kvt_level level, int n_threads) {
    for (int t = 0; t < s->n; t++) memset(s->dst + t * s->ld_dst, 0xAA, (size_t)s->w.n_out * sizeof(float));
    const struct kvt_parallel parallel = test_parallel(n_threads);
    const size_t bytes = kvt_weight_scratch_bytes(s->w.n_in, s->n, &parallel);
    struct kvt_arena scratch = {0};
    assert_true(bytes == 0 || kvt_arena_init(&scratch, NULL, bytes));
    kvt_weight_product(s->dst, s->ld_dst, &s->w, s->x, s->ld_x, s->n, level, &parallel, &scratch);
    assert_int_equal(scratch.used, 0);
    kvt_arena_finish(&scratch);
}

static void check_bits(const struct scene *s, const char *level) {
    for (int t = 0; t < s->n; t++)
        for (int64_t o = 0; o < s->w.n_out; o++) {
            const float want = s->want[t * s->w.n_out + o];
            const float got = s->dst[t * s->ld_dst + o];
            if (memcmp(&want, &got, sizeof got) != 0)
                print_error("%s at %s, %d x %d, %d tokens: row %d of token %d is %a, not %a\n",
                            kvt_weight_type_name(s->w.type), level, (int)s->w.n_in, (int)s->w.n_out, s->n, (int)o, t,
                            (double)got, (double)want);
            assert_memory_equal(&want, &got, sizeof got);
        }
}

/* The sum of |w| that rounding can work on: in types with minima what they cancel counts too. */
static double magnitude_of(const struct scene *s, int64_t o, int64_t i) {
    const double w = fabs((double)s->decoded[o * s->w.n_in + i]);
    if (s->layout->half[1] < 0) return w;
    const unsigned char *block =
        s->w.data + (size_t)o * s->w.row_bytes + (size_t)(i / s->layout->block_len * s->layout->block_bytes);
    double sum = w;
    for (int k = 0; k < 2; k++) {
        uint16_t h;
        memcpy(&h, block + s->layout->half[k], 2);
        sum += fabs((double)kvt_f32_from_f16(h)) * (k ? 1 : 31) * (s->layout->block_len == 256 ? 63 : 1);
    }
    return sum;
}

/* The rounding of a sum of n products in any order is below n * 2^-24 * sum |w x|, and that of tokens to 16 bits half a unit an
 * element; a mistake of ours is far above. */
static void check_near(const struct scene *s) {
    for (int t = 0; t < s->n; t++)
        for (int64_t o = 0; o < s->w.n_out; o++) {
            double sum = 0, magnitude = 0, rounding = 0, most = 0;
            for (int64_t i = 0; i < s->w.n_in; i++) {
                const float *x = s->x + t * s->ld_x;
                if (i % 32 == 0) most = 0;
                for (int64_t j = i; i % 32 == 0 && j < i + 32 && j < s->w.n_in; j++)
                    most = fmax(most, fabs((double)x[j]));
                const double w = (double)s->decoded[o * s->w.n_in + i], m = magnitude_of(s, o, i);
                sum += w * (double)x[i];
                magnitude += m * (fabs((double)x[i]) + 1e-4 * most);
                rounding += fabs(w) * most / 32639 / 2 * 1.001;
                if (most < 0x1p-99) rounding += fabs(w) * most;
            }
            const double bound =
                0x1p-24 * (double)(s->w.n_in + 2) * magnitude + (s->layout->block_len > 1 ? rounding : 0);
            const double error = fabs((double)s->dst[t * s->ld_dst + o] - sum);
            if (error > bound)
                print_error("%s, %d x %d: row %d of token %d is %g, not %g: off by %g, and may be by %g\n",
                            kvt_weight_type_name(s->w.type), (int)s->w.n_in, (int)s->w.n_out, (int)o, t,
                            (double)s->dst[t * s->ld_dst + o], sum, error, bound);
            assert_true(error <= bound);
        }
}

/* Whether a level runs here and does anything for a type that the level below does not. */
static bool is_own(const struct kvt_weight_type *type, int level) {
    const enum kvt_level l = (enum kvt_level)level, below = (enum kvt_level)(level - 1);
    if (!kvt_level_runs(l)) return false;
    return level == KVT_LEVEL_REF || kvt_weight_kernels_find(type, l) != kvt_weight_kernels_find(type, below) ||
           kvt_weight_tile_find(l) != kvt_weight_tile_find(below);
}

static void check_levels(struct scene *s, int n_threads) {
    for (int level = 0; level < KVT_LEVEL_COUNT; level++) {
        if (!is_own(s->w.type, level)) continue;
        run(s, (enum kvt_level)level, n_threads);
        if (level == KVT_LEVEL_REF && s->n >= 16)
            check_near(s);
        else
            check_bits(s, kvt_level_name((enum kvt_level)level));
    }
}

static void few_tokens(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{256, 1}, {256, 2}, {512, 3}, {768, 5}, {256, 131}};
    for (size_t i = 0; i < kvt_weight_type_count(); i++)
        for (size_t j = 0; j < KVT_ARRAY_LEN(shapes); j++)
            for (int n = 1; n <= 8; n += n < 5 ? 1 : 3)
                for (int place = 0; place < 3; place++) {
                    struct scene s;
                    scene_init(&s, kvt_weight_type_at(i), shapes[j][0], shapes[j][1], n, place);
                    check_levels(&s, 1 + place);
                    scene_finish(&s);
                }
}

/* Row lengths that are not whole numbers of 256, of 128, of 32. */
static void short_rows(void **state) {
    (void)state;
    static const int64_t lens[] = {32, 64, 96, 160, 576, 1, 7, 31, 33, 100};
    for (size_t i = 0; i < kvt_weight_type_count(); i++)
        for (size_t j = 0; j < KVT_ARRAY_LEN(lens); j++)
            for (int n = 1; n <= 5; n += 2) {
                const struct kvt_weight_type *type = kvt_weight_type_at(i);
                if (lens[j] % weight_layout_find(kvt_weight_type_name(type))->block_len) continue;
                struct scene s;
                scene_init(&s, type, lens[j], 7, n, n == 1 ? 0 : 2);
                check_levels(&s, 1);
                scene_finish(&s);
            }
}

/* More tokens than a tile, than a block of packed tokens; rows longer than what a tile works on at once. */
static void many_tokens(void **state) {
    (void)state;
    static const int shapes[][3] = {{256, 55, 23}, {256, 30, 49}, {3584, 5, 25}, {12800, 6, 3}};
    for (size_t i = 0; i < kvt_weight_type_count(); i++)
        for (size_t j = 0; j < KVT_ARRAY_LEN(shapes); j++) {
            struct scene s;
            scene_init(&s, kvt_weight_type_at(i), shapes[j][0], shapes[j][1], shapes[j][2], j == 1 ? 2 : 0);
            check_levels(&s, 3);
            scene_finish(&s);
        }
}

/* The order of the sums depends on the shape alone, in OpenBLAS too, which many threads enter at once. */
static void threads(void **state) {
    (void)state;
    const struct kvt_weight_type *type = kvt_weight_type_find(8);
    assert_non_null(type);
    for (int n = 1; n <= 301; n += 60)
        for (int level = 0; level < KVT_LEVEL_COUNT; level++) {
            if (!is_own(type, level)) continue;
            struct scene s;
            scene_init(&s, type, 128, 576, n, 0);
            const size_t bytes = (size_t)(s.ld_dst * n) * sizeof(float);
            float *one = malloc(bytes);
            assert_non_null(one);
            run(&s, (enum kvt_level)level, 1);
            memcpy(one, s.dst, bytes);
            for (int n_threads = 2; n_threads <= 5; n_threads++) {
                run(&s, (enum kvt_level)level, n_threads);
                assert_memory_equal(one, s.dst, bytes);
            }
            free(one);
            scene_finish(&s);
        }
}

/* Matrices of different types and sizes together give what each gives alone. */
static void several(void **state) {
    (void)state;
    static const uint32_t types[] = {8, 14, 0};
    static const int n_outs[] = {300, 70, 1};
    for (int n = 1; n <= 30; n += 29)
        for (int level = 0; level < KVT_LEVEL_COUNT; level++) {
            if (!is_own(kvt_weight_type_find(types[0]), level)) continue;
            struct scene s[3];
            struct kvt_weight_output outputs[3];
            for (int i = 0; i < 3; i++) {
                const struct kvt_weight_type *type = kvt_weight_type_find(types[i]);
                assert_non_null(type);
                scene_init(&s[i], type, 512, n_outs[i], n, 0);
                outputs[i] = (struct kvt_weight_output){s[i].dst, s[i].ld_dst, &s[i].w};
            }
            const struct kvt_parallel parallel = test_parallel(2);
            const size_t bytes = kvt_weight_scratch_bytes(512, n, &parallel);
            struct kvt_arena scratch = {0};
            assert_true(bytes == 0 || kvt_arena_init(&scratch, NULL, bytes));
            kvt_weight_products(outputs, 3, s[0].x, s[0].ld_x, n, (enum kvt_level)level, &parallel, &scratch);
            kvt_arena_finish(&scratch);
            for (int i = 0; i < 3; i++) {
                if (level == KVT_LEVEL_REF && n >= 16)
                    check_near(&s[i]);
                else
                    check_bits(&s[i], kvt_level_name((enum kvt_level)level));
                scene_finish(&s[i]);
            }
        }
}

/* A token that is not finite gives no number, and leaves its neighbours alone. */
static void not_finite(void **state) {
    (void)state;
    const float bad[] = {INFINITY, -INFINITY, NAN};
    for (size_t i = 0; i < kvt_weight_type_count(); i++)
        for (size_t j = 0; j < KVT_ARRAY_LEN(bad); j++)
            for (int level = 0; level < KVT_LEVEL_COUNT; level++) {
                if (!kvt_level_runs((enum kvt_level)level)) continue;
                struct scene s;
                scene_init(&s, kvt_weight_type_at(i), 512, 20, 3, 0);
                s.x[s.ld_x + 300] = bad[j];
                run(&s, (enum kvt_level)level, 1);
                for (int64_t o = 0; o < s.w.n_out; o++)
                    assert_true(!isfinite(s.dst[s.ld_dst + o]) || s.layout->block_len == 1);
                for (int t = 0; t < 3; t += 2)
                    assert_memory_equal(s.dst + t * s.ld_dst, s.want + t * s.w.n_out,
                                        (size_t)s.w.n_out * sizeof(float));
                scene_finish(&s);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(few_tokens),  cmocka_unit_test(short_rows),
                                       cmocka_unit_test(many_tokens), cmocka_unit_test(threads),
                                       cmocka_unit_test(several),     cmocka_unit_test(not_finite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
