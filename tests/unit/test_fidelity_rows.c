/* SPDX-License-Identifier: Apache-2.0
 * What codecs lose on rows: errors held against a computation of our own, and where the rows come from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/half.h"
#include "base/rng.h"
#include "codec/codec.h"
#include "fidelity/fidelity.h"
#include "support/fail_each.h"
#include "support/threads.h"

static struct kvt_codec_pair pair_of(const char *k, const char *v) {
    struct kvt_codec_pair pair;
    assert_int_equal(kvt_codec_parse(&pair.codec[KVT_SIDE_K], k, NULL), KVT_OK);
    assert_int_equal(kvt_codec_parse(&pair.codec[KVT_SIDE_V], v, NULL), KVT_OK);
    return pair;
}

/* ---- a layer of made rows --------------------------------------------------------------------------------------------- */

enum { N = 256, HEADS = 2, Q_HEADS = 4, DK = 24, DV = 16 };

struct layer {
    float k[N][HEADS][DK], v[N][HEADS][DV], q[N][Q_HEADS][DK];
    struct kvt_measured_rows rows;
};

static struct layer *layer_make(int window) {
    struct layer *l = malloc(sizeof *l);
    struct kvt_rng rng = {7};
    assert_non_null(l);
    for (int i = 0; i < N * HEADS * DK; i++) (&l->k[0][0][0])[i] = kvt_rng_normal(&rng);
    for (int i = 0; i < N * HEADS * DV; i++) (&l->v[0][0][0])[i] = kvt_rng_normal(&rng);
    for (int i = 0; i < N * Q_HEADS * DK; i++) (&l->q[0][0][0])[i] = 2 * kvt_rng_normal(&rng);
    l->rows = (struct kvt_measured_rows){
        .shape = {.n_kv_heads = HEADS, .k_size = DK, .v_size = DV, .window = window},
        .n = N,
        .n_q_heads = Q_HEADS,
        .scale = 0.2f,
        .q = {l->q, KVT_TYPE_F32, Q_HEADS * DK, DK},
        .k = {l->k, KVT_TYPE_F32, HEADS * DK, DK},
        .v = {l->v, KVT_TYPE_F32, HEADS * DV, DV},
    };
    return l;
}

static struct kvt_error_sums measured(const struct layer *l, const char *k, const char *v,
                                      const struct kvt_parallel *parallel) {
    const struct kvt_codec_pair pair = pair_of(k, v);
    struct kvt_error_sums sums = {0};
    assert_int_equal(kvt_measure_rows(&sums, &pair, 1, &l->rows, parallel, NULL, NULL), KVT_OK);
    return sums;
}

/* ---- the same, plainly ------------------------------------------------------------------------------------------------ */

/* The layer as a codec gives it back. */
static struct layer *decoded(const struct layer *l, const struct kvt_codec_pair *pair) {
    struct layer *back = malloc(sizeof *back);
    assert_non_null(back);
    memcpy(back, l, sizeof *back);
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        const int d = side == KVT_SIDE_K ? DK : DV;
        const size_t bytes = kvt_codec_tile_bytes(pair->codec[side], (enum kvt_side)side, d);
        void *tile = aligned_alloc(64, bytes);
        for (int h = 0; h < HEADS; h++)
            for (int r = 0; r < N; r += KVT_TILE_ROWS) {
                float *rows = side == KVT_SIDE_K ? back->k[r][h] : back->v[r][h];
                const ptrdiff_t stride = HEADS * d;
                for (int i = 0; i < KVT_TILE_ROWS; i++)
                    for (int c = 0; c < d; c++)
                        rows[i * stride + c] = kvt_f32_from_f16(kvt_f16_from_f32(rows[i * stride + c]));
                memset(tile, 0, bytes);
                assert_int_equal(kvt_codec_encode(pair->codec[side], (enum kvt_side)side, d, tile, 0, KVT_TILE_ROWS,
                                                  rows, stride, NULL),
                                 KVT_OK);
                assert_int_equal(kvt_codec_decode(pair->codec[side], (enum kvt_side)side, d, rows, stride, tile, 0,
                                                  KVT_TILE_ROWS, NULL),
                                 KVT_OK);
            }
        free(tile);
    }
    return back;
}

/* Attention of one query over the keys of one layer and the values of another. */
static void attend(double out[DV], const struct layer *queries, const struct layer *keys, const struct layer *values,
                   int position, int q_head) {
    const int h = q_head / (Q_HEADS / HEADS), window = queries->rows.shape.window;
    double sum = 0;
    memset(out, 0, DV * sizeof *out);
    for (int r = window && position >= window ? position - window + 1 : 0; r <= position; r++) {
        double score = 0;
        for (int c = 0; c < DK; c++) score += (double)queries->q[position][q_head][c] * keys->k[r][h][c];
        const double weight = exp(score * queries->rows.scale);
        sum += weight;
        for (int c = 0; c < DV; c++) out[c] += weight * values->v[r][h][c];
    }
    for (int c = 0; c < DV; c++) out[c] /= sum;
}

/* The relative error over 64 queries of each head, the last at the last row. */
static double attention_error(const struct layer *l, const struct layer *keys, const struct layer *values) {
    double error = 0, all = 0;
    for (int head = 0; head < Q_HEADS; head++)
        for (int position = N / 64 - 1; position < N; position += N / 64) {
            double exact[DV], got[DV];
            attend(exact, l, l, l, position, head);
            attend(got, l, keys, values, position, head);
            for (int c = 0; c < DV; c++) {
                error += (got[c] - exact[c]) * (got[c] - exact[c]);
                all += exact[c] * exact[c];
            }
        }
    return sqrt(error / all);
}

static void near(double got, double want) {
    if (!(fabs(got - want) <= 1e-9 * fabs(want))) fail_msg("got %.12g, want %.12g", got, want);
}

static void check_against_plain(const char *k, const char *v, int window) {
    const struct kvt_codec_pair pair = pair_of(k, v);
    struct layer *l = layer_make(window), *back = decoded(l, &pair);
    const struct kvt_error_sums sums = measured(l, k, v, NULL);
    const struct kvt_codec_errors e = kvt_codec_errors_of(&sums);
    near(e.attention[KVT_DECODED_K], attention_error(l, back, l));
    near(e.attention[KVT_DECODED_V], attention_error(l, l, back));
    near(e.attention[KVT_DECODED_BOTH], attention_error(l, back, back));
    double error = 0, all = 0;
    for (int i = 0; i < N * HEADS * DK; i++) {
        const double x = (&l->k[0][0][0])[i], y = (&back->k[0][0][0])[i];
        error += (y - x) * (y - x);
        all += x * x;
    }
    near(e.row[KVT_SIDE_K], sqrt(error / all));
    free(back);
    free(l);
}

static void errors_are_those_of_a_plain_computation(void **state) {
    (void)state;
    check_against_plain("affine4g32", "affine4g32", 0);
    check_against_plain("kivi2g32", "turbo3", 0);
    check_against_plain("kvarn3", "q8_0", 40);
}

/* ---- what must hold --------------------------------------------------------------------------------------------------- */

static void plain_rows_lose_what_rounding_loses(void **state) {
    (void)state;
    struct layer *l = layer_make(0);
    const struct kvt_error_sums f32 = measured(l, "f32", "f32", NULL), f16 = measured(l, "f16", "f16", NULL);
    const struct kvt_codec_errors e = kvt_codec_errors_of(&f16);
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        assert_true(f32.row_error[side] == 0 && f32.row[side] > 0);
        assert_true(e.row[side] > 1e-4 && e.row[side] < 0x1p-11);
    }
    for (int i = 0; i < KVT_DECODED_COUNT; i++) assert_true(f32.mix_error[i] == 0);
    assert_true(f32.mix > 0);
    free(l);
}

static void one_side_alone_is_that_side_alone(void **state) {
    (void)state;
    struct layer *l = layer_make(0);
    const struct kvt_error_sums keys = measured(l, "affine4g32", "f32", NULL);
    assert_true(keys.mix_error[KVT_DECODED_V] == 0 && keys.row_error[KVT_SIDE_V] == 0);
    assert_true(keys.mix_error[KVT_DECODED_K] > 0);
    assert_true(keys.mix_error[KVT_DECODED_K] == keys.mix_error[KVT_DECODED_BOTH]);
    free(l);
}

static void made(struct kvt_error_sums *sums, const char *const *names, int n, enum kvt_made_rows kind) {
    struct kvt_codec_pair pairs[8];
    for (int i = 0; i < n; i++) pairs[i] = pair_of(names[i], names[i]);
    memset(sums, 0, (size_t)n * sizeof *sums);
    assert_int_equal(kvt_measure_made_rows(sums, pairs, n, kind, NULL, NULL, NULL), KVT_OK);
}

static void more_bits_lose_less(void **state) {
    (void)state;
    static const char *const names[] = {"affine2", "affine4", "affine6", "affine8"};
    struct kvt_error_sums sums[4];
    for (int kind = 0; kind < KVT_MADE_COUNT; kind++) {
        made(sums, names, 4, (enum kvt_made_rows)kind);
        for (int i = 1; i < 4; i++) {
            for (int side = 0; side < KVT_SIDE_COUNT; side++)
                assert_true(sums[i].row_error[side] < sums[i - 1].row_error[side]);
            for (int k = 0; k < KVT_DECODED_COUNT; k++) assert_true(sums[i].mix_error[k] < sums[i - 1].mix_error[k]);
        }
    }
}

/* Outliers of a channel spoil a group of channels, and nothing of a group of rows. */
static void outlier_channels_spoil_per_token_keys(void **state) {
    (void)state;
    static const char *const names[] = {"affine4g32", "kivi4g32"};
    struct kvt_error_sums plain[2], outliers[2];
    made(plain, names, 2, KVT_MADE_NORMAL);
    made(outliers, names, 2, KVT_MADE_OUTLIERS);
    assert_true(outliers[0].mix_error[KVT_DECODED_K] > 4 * plain[0].mix_error[KVT_DECODED_K]);
    assert_true(outliers[1].mix_error[KVT_DECODED_K] < 1.2 * plain[1].mix_error[KVT_DECODED_K]);
}

static void threads_change_nothing(void **state) {
    (void)state;
    struct layer *l = layer_make(0);
    const struct kvt_parallel two = test_parallel(2);
    const struct kvt_error_sums a = measured(l, "kivi4g32", "turbo4", NULL),
                                b = measured(l, "kivi4g32", "turbo4", &two);
    assert_memory_equal(&a, &b, sizeof a);
    free(l);
}

static void a_bad_row_is_refused(void **state) {
    (void)state;
    struct layer *l = layer_make(0);
    const struct kvt_codec_pair pair = pair_of("affine4g32", "affine4g32");
    struct kvt_error_sums sums = {.mix = 3};
    struct kvt_error err;
    l->v[200][1][5] = INFINITY;
    assert_int_equal(kvt_measure_rows(&sums, &pair, 1, &l->rows, NULL, NULL, &err), KVT_ERR_RANGE);
    assert_true(strlen(err.text) > 0);
    assert_true(sums.mix == 3 && sums.row[KVT_SIDE_K] == 0);
    free(l);
}

/* ---- keys with their queries ------------------------------------------------------------------------------------------ */

enum { KEYS_D = 32, KEYS_HEADS = 2 };

/* The squared error of a tile of keys that a codec encodes with the queries of two heads: their squares, and one of them in turn. */
static double keys_error(const struct kvt_codec *codec, float k[][KEYS_D], float q[][KEYS_HEADS][KEYS_D]) {
    static float rows[KVT_TILE_ROWS][KEYS_D], back[KVT_TILE_ROWS][KEYS_D];
    struct kvt_tile tile;
    float sums[KEYS_D] = {0}, *room = calloc(kvt_codec_room(codec, KEYS_D) + 1, sizeof *room);
    for (int r = 0; r < KVT_TILE_ROWS; r++)
        for (int c = 0; c < KEYS_D; c++) {
            rows[r][c] = kvt_f32_from_f16(kvt_f16_from_f32(k[r][c]));
            for (int h = 0; h < KEYS_HEADS; h++) sums[c] += q[r][h][c] * q[r][h][c];
            if (codec->query_rows) room[r * KEYS_D + c] = q[r][r % KEYS_HEADS][c];
        }
    kvt_codec_describe(codec, KVT_SIDE_K, KEYS_D, &tile);
    void *bytes = aligned_alloc(64, tile.bytes);
    memset(bytes, 0, tile.bytes);
    codec->encoder->encode(&(struct kvt_encode_args){.codec = codec,
                                                     .tile = &tile,
                                                     .bytes = bytes,
                                                     .n = KVT_TILE_ROWS,
                                                     .rows = rows[0],
                                                     .stride = KEYS_D,
                                                     .queries = sums,
                                                     .room = codec->query_rows ? room : NULL});
    kvt_tile_decode(&tile, back[0], KEYS_D, bytes, 0, KVT_TILE_ROWS);
    double error = 0;
    for (int i = 0; i < KVT_TILE_ROWS * KEYS_D; i++) {
        const double e = (double)(&back[0][0])[i] - (&k[0][0])[i];
        error += e * e;
    }
    free(bytes);
    free(room);
    return error;
}

static void keys_come_with_their_queries(void **state) {
    (void)state;
    static const char *const names[] = {"kq2", "kq3", "kq4", "kq2-feedback"};
    static float k[KVT_TILE_ROWS][KEYS_D], q[KVT_TILE_ROWS][KEYS_HEADS][KEYS_D];
    struct kvt_rng rng = {11};
    for (int i = 0; i < KVT_TILE_ROWS * KEYS_D; i++) (&k[0][0])[i] = kvt_rng_normal(&rng);
    for (int i = 0; i < KVT_TILE_ROWS * KEYS_HEADS * KEYS_D; i++)
        (&q[0][0][0])[i] = kvt_rng_normal(&rng) * (float)(1 + i * 7 % KEYS_D);
    const struct kvt_rows keys = {k, KVT_TYPE_F32, KEYS_D, KEYS_D};
    const struct kvt_measured_rows rows = {
        .shape = {.n_kv_heads = 1, .k_size = KEYS_D, .v_size = KEYS_D},
        .n = KVT_TILE_ROWS,
        .n_q_heads = KEYS_HEADS,
        .scale = 0.1f,
        .q = {q, KVT_TYPE_F32, KEYS_HEADS * KEYS_D, KEYS_D},
        .k = keys,
        .v = keys,
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct kvt_codec_pair pair = pair_of(names[i], "f16");
        struct kvt_error_sums sums = {0};
        assert_int_equal(kvt_measure_rows(&sums, &pair, 1, &rows, NULL, NULL, NULL), KVT_OK);
        near(sums.row_error[KVT_SIDE_K], keys_error(pair.codec[KVT_SIDE_K], k, q));
    }
}

/* ---- codecs by themselves --------------------------------------------------------------------------------------------- */

static struct kvt_codec_axis axis_of(const char *name, enum kvt_side side) {
    const struct kvt_codec_pair pair = pair_of(name, name);
    return kvt_codec_axis(pair.codec[side], side, 128);
}

static void axes(void **state) {
    (void)state;
    struct kvt_codec_axis a = axis_of("kivi4g32", KVT_SIDE_K);
    assert_true(a.has_scale && a.per_channel && a.group == 32 && !a.rotated && !a.has_factor);
    a = axis_of("kivi4g32", KVT_SIDE_V);
    assert_true(a.has_scale && !a.per_channel && a.group == 32);
    a = axis_of("kvarn4", KVT_SIDE_K);
    assert_true(a.has_scale && a.per_channel && a.group == 128 && a.rotated && a.has_factor);
    a = axis_of("affine4g64", KVT_SIDE_K);
    assert_true(a.has_scale && !a.per_channel && a.group == 64 && !a.rotated);
    assert_false(axis_of("f16", KVT_SIDE_V).has_scale);
    assert_false(axis_of("fp8e4m3", KVT_SIDE_K).has_scale);
}

static void in_order(const struct kvt_spread *s) {
    assert_true(s->low > 0 && s->low <= s->median && s->median <= s->high && s->high < 1);
}

static void times_are_times(void **state) {
    (void)state;
    const struct kvt_codec_pair pair = pair_of("kivi4g32", "kivi4g32");
    const enum kvt_level level = KVT_LEVEL_REF;
    struct kvt_codec_times t;
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        assert_int_equal(kvt_measure_times(&t, pair.codec[side], (enum kvt_side)side, 64, &level, 1, NULL, NULL),
                         KVT_OK);
        in_order(&t.copy);
        in_order(&t.encode[level]);
        in_order(&t.decode[level]);
        assert_true(t.copy.median < t.encode[level].median);
    }
    assert_int_equal(kvt_measure_times(&t, pair.codec[0], KVT_SIDE_K, 12, &level, 1, NULL, NULL), KVT_ERR_UNSUPPORTED);
    struct kvt_codec_times feedback; /* more than half as long again: without queries it would be the other encoder */
    const struct kvt_codec_pair keys = pair_of("kq2", "f16"), slow = pair_of("kq2-feedback", "f16");
    assert_int_equal(kvt_measure_times(&t, keys.codec[0], KVT_SIDE_K, 128, &level, 1, NULL, NULL), KVT_OK);
    assert_int_equal(kvt_measure_times(&feedback, slow.codec[0], KVT_SIDE_K, 128, &level, 1, NULL, NULL), KVT_OK);
    assert_true(feedback.encode[level].low > 1.5 * t.encode[level].low);
}

static enum kvt_status measure_all(void *ctx, const struct kvt_allocator *allocator) {
    const struct kvt_codec_pair *pair = ctx;
    const enum kvt_level level = KVT_LEVEL_REF;
    struct kvt_error_sums sums = {.mix = 0};
    struct kvt_codec_times times;
    enum kvt_status status = kvt_measure_made_rows(&sums, pair, 1, KVT_MADE_NORMAL, NULL, allocator, NULL);
    if (status == KVT_OK) status = kvt_measure_times(&times, pair->codec[0], KVT_SIDE_K, 8, &level, 1, allocator, NULL);
    return status;
}

static void memory_may_run_out(void **state) {
    (void)state;
    struct kvt_codec_pair pair = pair_of("f16", "affine4");
    assert_int_equal(kvt_fail_each(measure_all, &pair), 5);
}

/* ---- a model's rows --------------------------------------------------------------------------------------------------- */

static struct kvt_model *load(const char *name) {
    char path[512];
    struct kvt_model *model;
    struct kvt_error err;
    snprintf(path, sizeof path, "%s/models/%s.gguf", KVT_ROOT, name);
    if (kvt_model_load(&model, path, NULL, &err) != KVT_OK) fail_msg("%s", err.text);
    return model;
}

/* Counts what it sees, and fails at one layer. */
struct seen {
    int n_layers, fail_at;
    int64_t position;
    double squares;
};

static enum kvt_status look(void *ctx, const struct kvt_layer_rows *rows, struct kvt_error *err) {
    struct seen *seen = ctx;
    (void)err;
    if (rows->layer == seen->fail_at) return KVT_ERR_RANGE;
    assert_int_equal(rows->layer, seen->n_layers % 8);
    assert_int_equal(rows->position, seen->position);
    assert_int_equal(rows->n_q_heads, 4);
    for (int h = 0; h < 2; h++)
        for (int c = 0; c < 128; c++) {
            const float *k = rows->k.data, x = k[(rows->n - 1) * rows->k.row_stride + h * rows->k.head_stride + c];
            seen->squares += (double)x * x;
        }
    seen->n_layers++;
    return KVT_OK;
}

static void a_tap_sees_every_layer(void **state) {
    (void)state;
    struct kvt_model *model = load("plain");
    struct seen seen = {.fail_at = -1};
    const struct kvt_session_options o = {.n_ctx = 16, .n_batch = 4, .tap = {.look = look, .ctx = &seen}};
    const int32_t ids[] = {0, 20, 30, 40, 50, 60};
    struct kvt_session *session;
    assert_int_equal(kvt_session_create(&session, model, &o, NULL), KVT_OK);
    assert_int_equal(kvt_session_eval(session, ids, 4, 1, NULL, NULL), KVT_OK);
    seen.position = 4;
    assert_int_equal(kvt_session_eval(session, ids + 4, 1, 1, NULL, NULL), KVT_OK);
    assert_int_equal(seen.n_layers, 16);
    assert_true(seen.squares > 1);
    seen.position = 5;
    seen.fail_at = 3;
    assert_int_equal(kvt_session_eval(session, ids + 5, 1, 1, NULL, NULL), KVT_ERR_RANGE);
    assert_int_equal(kvt_session_n_rows(session), 5);
    kvt_session_destroy(session);
    kvt_model_destroy(model);
}

/* On rows of a model with biased keys a per-channel codec loses far less than a per-token one. */
static void a_model_with_biased_keys(void **state) {
    (void)state;
    static const struct kvt_fidelity_case kv[] = {{.kv = "f32"}, {.kv = "affine4g32"}, {.kv = "kivi4g32"}};
    struct kvt_model *model = load("biased");
    int32_t ids[140];
    for (int i = 0; i < 140; i++) ids[i] = i == 0 ? 0 : 300 + i * 17 % 900;
    struct kvt_fidelity_options o = {.cases = kv, .n_cases = 3, .ids = ids, .n_ids = 140, .chunk = 140, .first_id = -1};
    struct kvt_error_sums sums[3];
    struct kvt_error err;
    memset(sums, 0, sizeof sums);
    if (kvt_measure_model_rows(sums, model, &o, &err) != KVT_OK) fail_msg("%s", err.text);
    assert_true(sums[0].row_error[KVT_SIDE_K] == 0 && sums[0].mix_error[KVT_DECODED_BOTH] == 0);
    assert_true(sums[0].row[KVT_SIDE_K] > 0 && sums[0].mix > 0);
    assert_true(sums[1].mix_error[KVT_DECODED_K] > 9 * sums[2].mix_error[KVT_DECODED_K]);
    o.chunk = 127;
    assert_int_equal(kvt_measure_model_rows(sums, model, &o, &err), KVT_ERR_ARG);
    o.chunk = 141;
    assert_int_equal(kvt_measure_model_rows(sums, model, &o, &err), KVT_ERR_ARG);
    kvt_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_those_of_a_plain_computation),
        cmocka_unit_test(plain_rows_lose_what_rounding_loses),
        cmocka_unit_test(one_side_alone_is_that_side_alone),
        cmocka_unit_test(more_bits_lose_less),
        cmocka_unit_test(outlier_channels_spoil_per_token_keys),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(keys_come_with_their_queries),
        cmocka_unit_test(a_bad_row_is_refused),
        cmocka_unit_test(axes),
        cmocka_unit_test(times_are_times),
        cmocka_unit_test(memory_may_run_out),
        cmocka_unit_test(a_tap_sees_every_layer),
        cmocka_unit_test(a_model_with_biased_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
