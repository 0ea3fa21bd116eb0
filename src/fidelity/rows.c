/* SPDX-License-Identifier: Apache-2.0
 * What codecs lose on rows: of the rows themselves, and of what attention makes of them. */
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/half.h"
#include "base/parallel.h"
#include "codec/codec.h"
#include "fidelity/fidelity.h"

enum { N_QUERIES = 64 }; /* of each query head */
_Static_assert(KVT_TILE_ROWS % N_QUERIES == 0, "queries are spread evenly");

struct kvt_codec_errors kvt_codec_errors_of(const struct kvt_error_sums *sums) {
    struct kvt_codec_errors e;
    for (int side = 0; side < KVT_SIDE_COUNT; side++)
        e.row[side] = sums->row[side] > 0 ? sqrt(sums->row_error[side] / sums->row[side]) : 0;
    for (int i = 0; i < KVT_DECODED_COUNT; i++)
        e.attention[i] = sums->mix > 0 ? sqrt(sums->mix_error[i] / sums->mix) : 0;
    return e;
}

/* ---- one KV head ------------------------------------------------------------------------------------------------------ */

/* Work on one KV head. Keys lie by channel, [k_size][n], so that scores of neighbouring rows are computed side by side. */
struct head {
    const struct kvt_measured_rows *rows;
    int index, q_group;     /* KV head; query heads that share it */
    float *k, *v;           /* as they came: [k_size][n], [n][v_size] */
    float *k_back, *v_back; /* decoded */
    float *row;             /* n rows of the larger size */
    float *room;            /* of encoders that use the queries themselves; null: there is none */
    void *tile;
    double *weights; /* of the exact attention: [query][n] */
    double *mixes;   /* [query][v_size] */
    double *w, *mix; /* at work: n; KVT_DECODED_COUNT * v_size */
    double mix_squares;
    struct kvt_arena arena;
};

static const float *row_at(const struct kvt_rows *rows, int head, int row) {
    return (const float *)rows->data + row * rows->row_stride + head * rows->head_stride;
}

static size_t n_queries(const struct head *h) { return (size_t)h->q_group * N_QUERIES; }

static bool head_open(struct head *h, const struct kvt_codec_pair *pairs, int n_pairs,
                      const struct kvt_allocator *allocator) {
    const struct kvt_layer_shape *shape = &h->rows->shape;
    const size_t n = (size_t)h->rows->n, dk = (size_t)shape->k_size, dv = (size_t)shape->v_size;
    size_t tile = 0, room = 0;
    for (int i = 0; i < n_pairs; i++) {
        room = KVT_MAX(room, kvt_codec_room(pairs[i].codec[KVT_SIDE_K], shape->k_size));
        for (int side = 0; side < KVT_SIDE_COUNT; side++) {
            const int d = side == KVT_SIDE_K ? shape->k_size : shape->v_size;
            const size_t bytes = kvt_codec_tile_bytes(pairs[i].codec[side], (enum kvt_side)side, d);
            tile = KVT_MAX(tile, bytes);
        }
    }
    const size_t floats = 2 * (kvt_arena_need(n * dk, sizeof(float)) + kvt_arena_need(n * dv, sizeof(float))) +
                          kvt_arena_need(n * KVT_MAX(dk, dv), sizeof(float)) + kvt_arena_need(room, sizeof(float));
    const size_t doubles = kvt_arena_need(n_queries(h) * n, sizeof(double)) +
                           kvt_arena_need(n_queries(h) * dv, sizeof(double)) + kvt_arena_need(n, sizeof(double)) +
                           kvt_arena_need(KVT_DECODED_COUNT * dv, sizeof(double));
    if (!kvt_arena_init(&h->arena, allocator, floats + doubles + kvt_arena_need(tile, 1))) return false;
    h->k = kvt_arena_take(&h->arena, n * dk, sizeof(float));
    h->v = kvt_arena_take(&h->arena, n * dv, sizeof(float));
    h->k_back = kvt_arena_take(&h->arena, n * dk, sizeof(float));
    h->v_back = kvt_arena_take(&h->arena, n * dv, sizeof(float));
    h->row = kvt_arena_take(&h->arena, n * KVT_MAX(dk, dv), sizeof(float));
    h->weights = kvt_arena_take(&h->arena, n_queries(h) * n, sizeof(double));
    h->mixes = kvt_arena_take(&h->arena, n_queries(h) * dv, sizeof(double));
    h->w = kvt_arena_take(&h->arena, n, sizeof(double));
    h->mix = kvt_arena_take(&h->arena, KVT_DECODED_COUNT * dv, sizeof(double));
    h->room = room ? kvt_arena_take(&h->arena, room, sizeof(float)) : NULL;
    h->tile = kvt_arena_take(&h->arena, tile, 1);
    return true;
}

static void take_rows(struct head *h) {
    const struct kvt_layer_shape *shape = &h->rows->shape;
    for (int r = 0; r < h->rows->n; r++) {
        const float *k = row_at(&h->rows->k, h->index, r), *v = row_at(&h->rows->v, h->index, r);
        for (int c = 0; c < shape->k_size; c++) h->k[c * h->rows->n + r] = k[c];
        memcpy(h->v + r * shape->v_size, v, (size_t)shape->v_size * sizeof *v);
    }
}

/* ---- attention in double ---------------------------------------------------------------------------------------------- */

struct query {
    const float *q;
    int first, end; /* rows that it sees */
};

/* Query i of the KV head: those of one query head stand at evenly spread positions, the last one at the last row. */
static struct query query_at(const struct head *h, int i) {
    const int position = (i % N_QUERIES + 1) * (h->rows->n / N_QUERIES) - 1, window = h->rows->shape.window;
    const int head = h->index * h->q_group + i / N_QUERIES;
    return (struct query){row_at(&h->rows->q, head, position), window ? KVT_MAX(0, position + 1 - window) : 0,
                          position + 1};
}

/* Softmax weights w[first .. end) of a query over keys by channel. */
static void weigh(double *w, const struct head *h, const struct query *query, const float *k) {
    const int n = h->rows->n;
    for (int r = query->first; r < query->end; r++) w[r] = 0;
    for (int c = 0; c < h->rows->shape.k_size; c++) {
        const double q = (double)query->q[c] * h->rows->scale;
        for (int r = query->first; r < query->end; r++) w[r] += q * k[c * n + r];
    }
    double max = w[query->first], sum = 0;
    for (int r = query->first; r < query->end; r++) max = KVT_MAX(max, w[r]);
    for (int r = query->first; r < query->end; r++) sum += w[r] = exp(w[r] - max);
    for (int r = query->first; r < query->end; r++) w[r] /= sum;
}

static void mix(double *out, const double *w, const float *v, const struct query *query, int d) {
    for (int c = 0; c < d; c++) out[c] = 0;
    for (int r = query->first; r < query->end; r++)
        for (int c = 0; c < d; c++) out[c] += w[r] * v[r * d + c];
}

static void attend_exactly(struct head *h) {
    const int n = h->rows->n, d = h->rows->shape.v_size;
    for (int i = 0; i < (int)n_queries(h); i++) {
        const struct query query = query_at(h, i);
        double *w = h->weights + (ptrdiff_t)i * n, *out = h->mixes + (ptrdiff_t)i * d;
        weigh(w, h, &query, h->k);
        mix(out, w, h->v, &query, d);
        for (int c = 0; c < d; c++) h->mix_squares += out[c] * out[c];
    }
}

static void compare_attention(struct kvt_error_sums *sums, const struct head *h) {
    const int n = h->rows->n, d = h->rows->shape.v_size;
    for (int i = 0; i < (int)n_queries(h); i++) {
        const struct query query = query_at(h, i);
        const double *exact_w = h->weights + (ptrdiff_t)i * n, *exact = h->mixes + (ptrdiff_t)i * d;
        weigh(h->w, h, &query, h->k_back);
        mix(h->mix + KVT_DECODED_K * d, h->w, h->v, &query, d);
        mix(h->mix + KVT_DECODED_V * d, exact_w, h->v_back, &query, d);
        mix(h->mix + KVT_DECODED_BOTH * d, h->w, h->v_back, &query, d);
        for (int side = 0; side < KVT_DECODED_COUNT; side++)
            for (int c = 0; c < d; c++) {
                const double e = h->mix[side * d + c] - exact[c];
                sums->mix_error[side] += e * e;
            }
    }
    sums->mix += h->mix_squares;
}

/* ---- there and back --------------------------------------------------------------------------------------------------- */

static void round_row(float *x, int d) {
    for (int c = 0; c < d; c++) x[c] = kvt_f32_from_f16(kvt_f16_from_f32(x[c]));
}

/* What a cache keeps of the queries at a tile's rows, but not rounded: by channel the sum of squares of all that look at this head; if asked,
 * one of each row, of the heads in turn. */
static void take_queries(float *sums, float *each, const struct head *h, int first) {
    const int d = h->rows->shape.k_size;
    for (int c = 0; c < d; c++) sums[c] = 0;
    for (int r = first; r < first + KVT_TILE_ROWS; r++)
        for (int g = 0; g < h->q_group; g++) {
            const float *q = row_at(&h->rows->q, h->index * h->q_group + g, r);
            for (int c = 0; c < d; c++) sums[c] += q[c] * q[c];
            if (each && g == r % h->q_group) memcpy(each + (r - first) * d, q, (size_t)d * sizeof *q);
        }
}

/* A tile of keys whose codec is helped by queries. */
static void encode_with_queries(struct head *h, const struct kvt_codec *codec, int d, const float *rows, int first) {
    struct kvt_tile tile;
    float sums[KVT_LATENT_MAX], *room = codec->query_rows ? h->room : NULL;
    take_queries(sums, room, h, first);
    kvt_codec_describe(codec, KVT_SIDE_K, d, &tile);
    memset(h->tile, 0, tile.bytes);
    codec->encoder->encode(&(struct kvt_encode_args){.codec = codec,
                                                     .tile = &tile,
                                                     .bytes = h->tile,
                                                     .n = KVT_TILE_ROWS,
                                                     .rows = rows,
                                                     .stride = d,
                                                     .queries = sums,
                                                     .room = room});
}

/* h->row becomes what the codec gives back. */
static enum kvt_status there_and_back(struct head *h, const struct kvt_codec *codec, enum kvt_side side, int d,
                                      struct kvt_error *err) {
    const struct kvt_rows *from = side == KVT_SIDE_K ? &h->rows->k : &h->rows->v;
    for (int r = 0; r < h->rows->n; r++) {
        memcpy(h->row + r * d, row_at(from, h->index, r), (size_t)d * sizeof(float));
        if (!codec->info.plain) round_row(h->row + r * d, d);
    }
    for (int r = 0; r < h->rows->n; r += KVT_TILE_ROWS) {
        float *rows = h->row + r * d;
        memset(h->tile, 0, kvt_codec_tile_bytes(codec, side, d));
        KVT_TRY(kvt_codec_encode(codec, side, d, h->tile, 0, KVT_TILE_ROWS, rows, d, err)); /* rows are checked there */
        if (side == KVT_SIDE_K && codec->info.queries) encode_with_queries(h, codec, d, rows, r);
        KVT_TRY(kvt_codec_decode(codec, side, d, rows, d, h->tile, 0, KVT_TILE_ROWS, err));
    }
    return KVT_OK;
}

static void compare_rows(struct kvt_error_sums *sums, const struct head *h, enum kvt_side side, int d) {
    const struct kvt_rows *from = side == KVT_SIDE_K ? &h->rows->k : &h->rows->v;
    for (int r = 0; r < h->rows->n; r++) {
        const float *x = row_at(from, h->index, r), *y = h->row + r * d;
        for (int c = 0; c < d; c++) {
            const double e = (double)y[c] - x[c];
            sums->row_error[side] += e * e;
            sums->row[side] += (double)x[c] * x[c];
        }
    }
}

static enum kvt_status measure_pair(struct kvt_error_sums *sums, struct head *h, const struct kvt_codec_pair *pair,
                                    struct kvt_error *err) {
    const int n = h->rows->n, dk = h->rows->shape.k_size, dv = h->rows->shape.v_size;
    KVT_TRY(there_and_back(h, pair->codec[KVT_SIDE_K], KVT_SIDE_K, dk, err));
    compare_rows(sums, h, KVT_SIDE_K, dk);
    for (int r = 0; r < n; r++)
        for (int c = 0; c < dk; c++) h->k_back[c * n + r] = h->row[r * dk + c];
    KVT_TRY(there_and_back(h, pair->codec[KVT_SIDE_V], KVT_SIDE_V, dv, err));
    compare_rows(sums, h, KVT_SIDE_V, dv);
    memcpy(h->v_back, h->row, (size_t)n * (size_t)dv * sizeof(float));
    compare_attention(sums, h);
    return KVT_OK;
}

/* ---- all heads -------------------------------------------------------------------------------------------------------- */

struct job {
    const struct kvt_codec_pair *pairs;
    int n_pairs;
    const struct kvt_measured_rows *rows;
    struct kvt_allocator allocator;
    struct kvt_error_sums *sums; /* [head][pair]: added up in order, so that the figures do not depend on threads */
    struct kvt_error *errors;    /* by head */
};

static void measure_head(void *arg, int i, int thread) {
    (void)thread;
    const struct job *job = arg;
    const struct kvt_layer_shape *shape = &job->rows->shape;
    struct head h = {.rows = job->rows, .index = i, .q_group = job->rows->n_q_heads / shape->n_kv_heads};
    struct kvt_error *err = &job->errors[i];
    enum kvt_status status = KVT_OK;
    err->code = KVT_OK;
    if (!head_open(&h, job->pairs, job->n_pairs, &job->allocator)) {
        err->code = kvt_fail(err, KVT_ERR_NOMEM, "not enough memory to measure %d rows", job->rows->n);
        return;
    }
    take_rows(&h);
    attend_exactly(&h);
    for (int p = 0; p < job->n_pairs && status == KVT_OK; p++)
        status = measure_pair(&job->sums[i * job->n_pairs + p], &h, &job->pairs[p], err);
    kvt_arena_finish(&h.arena);
}

static void add_sums(struct kvt_error_sums *to, const struct kvt_error_sums *from) {
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        to->row_error[side] += from->row_error[side];
        to->row[side] += from->row[side];
    }
    for (int i = 0; i < KVT_DECODED_COUNT; i++) to->mix_error[i] += from->mix_error[i];
    to->mix += from->mix;
}

enum kvt_status kvt_measure_rows(struct kvt_error_sums *sums, const struct kvt_codec_pair *pairs, int n_pairs,
                                 const struct kvt_measured_rows *rows, const struct kvt_parallel *parallel,
                                 const struct kvt_allocator *allocator, struct kvt_error *err) {
    const int n_heads = rows->shape.n_kv_heads;
    KVT_ASSERT(rows->n > 0 && rows->n % KVT_TILE_ROWS == 0 && n_pairs > 0 && n_heads > 0);
    const size_t n_sums = (size_t)n_heads * (size_t)n_pairs;
    struct job job = {pairs, n_pairs, rows, kvt_allocator_or_default(allocator), NULL, NULL};
    enum kvt_status status = KVT_OK;
    job.sums = kvt_take_zero(&job.allocator, n_sums, sizeof *job.sums);
    job.errors = kvt_take_zero(&job.allocator, (size_t)n_heads, sizeof *job.errors);
    if (!job.sums || !job.errors)
        KVT_TRY_OUT(kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for the errors of %d codecs", n_pairs));
    kvt_parallel_run(parallel, n_heads, measure_head, &job);
    for (int i = 0; i < n_heads; i++)
        if (job.errors[i].code != KVT_OK) KVT_TRY_OUT(kvt_fail(err, job.errors[i].code, "%s", job.errors[i].text));
    for (size_t i = 0; i < n_sums; i++) add_sums(&sums[i % (size_t)n_pairs], &job.sums[i]);
out:
    kvt_give(&job.allocator, job.sums, n_sums, sizeof *job.sums);
    kvt_give(&job.allocator, job.errors, (size_t)n_heads, sizeof *job.errors);
    return status;
}
