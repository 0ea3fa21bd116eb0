/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over tiles in the process's memory, as backend/cuda/attend.h asks for it: by its definition, in double precision.
 */
#include <math.h>
#include <stdlib.h>

#include "backend/cuda/prefill.h"
#include "base/check.h"
#include "base/half.h"
#include "cuda/host_device.h"

struct kvt_cuda_cut kvt_cuda_attend_cut(const struct kvt_cuda_page *body, const struct kvt_cuda_page *plain,
                                        int n_columns) {
    (void)body, (void)plain, (void)n_columns;
    return (struct kvt_cuda_cut){{KVT_CUDA_PLAIN_ROWS, KVT_CUDA_PLAIN_ROWS, KVT_CUDA_PLAIN_ROWS}, 1};
}

int kvt_cuda_attend_columns(const struct kvt_cuda_page *body, const struct kvt_cuda_page *plain, int longest) {
    (void)body, (void)plain;
    return longest <= KVT_CUDA_FEW_COLUMNS ? KVT_CUDA_FEW_COLUMNS : KVT_CUDA_COLUMNS;
}

static int k_size(const struct kvt_cuda_attend *a) { return kvt_tile_row_size(&a->plain.tile[KVT_SIDE_K]); }
static int v_size(const struct kvt_cuda_attend *a) { return kvt_tile_row_size(&a->plain.tile[KVT_SIDE_V]); }

/* One query vector over what it sees. */
struct query {
    const struct kvt_cuda_attend *a;
    const struct kvt_cuda_seq *seq;
    const struct kvt_cuda_visible *sees;
    int head; /* KV head */
    float x[KVT_LATENT_MAX];
    double sum, mix[KVT_LATENT_MAX];
    double max;
};

static void add_row(struct query *q, const float *k, const float *v) {
    const int d = v_size(q->a);
    double score = 0;
    for (int c = 0; c < k_size(q->a); c++) score += (double)q->x[c] * (double)k[c];
    score *= (double)q->a->scale;
    if (q->a->softcap > 0) score = (double)q->a->softcap * tanh(score / (double)q->a->softcap);
    if (score > q->max) {
        const double keep = exp(q->max - score);
        q->sum *= keep;
        for (int c = 0; c < d; c++) q->mix[c] *= keep;
        q->max = score;
    }
    const double weight = exp(score - q->max);
    q->sum += weight;
    for (int c = 0; c < d; c++) q->mix[c] += weight * (double)v[c];
}

static void add_region(struct query *q, int region, float *k, float *v) {
    const struct kvt_cuda_page *page = region == KVT_REGION_BODY ? &q->a->body : &q->a->plain;
    const int d = k_size(q->a), dv = v_size(q->a);
    for (int at = q->sees->first[region], n; at < q->sees->end[region]; at += n) {
        const int row = at % KVT_TILE_ROWS;
        const char *tiles = q->seq->pages[region][at / KVT_TILE_ROWS];
        const char *keys = tiles + (size_t)q->head * page->head_bytes;
        n = KVT_MIN(KVT_TILE_ROWS - row, q->sees->end[region] - at);
        kvt_tile_decode(&page->tile[KVT_SIDE_K], k, d, keys, row, n);
        kvt_tile_decode(&page->tile[KVT_SIDE_V], v, dv, keys + page->tile[KVT_SIDE_K].bytes, row, n);
        for (int r = 0; r < n; r++) add_row(q, k + r * d, v + r * dv);
    }
}

static float number_at(enum kvt_type type, const void *numbers, ptrdiff_t i) {
    if (type == KVT_TYPE_F32) return ((const float *)numbers)[i];
    const uint16_t half = ((const uint16_t *)numbers)[i];
    return type == KVT_TYPE_F16 ? kvt_f32_from_f16(half) : kvt_f32_from_bf16(half);
}

static void attend_one(const struct kvt_cuda_attend *a, const struct kvt_cuda_seq *seq, int row, int q_head, float *k,
                       float *v) {
    struct query q = {
        .a = a, .seq = seq, .sees = &a->visible[row], .head = q_head / a->group, .max = -(double)INFINITY};
    const ptrdiff_t at = row * a->q_row_stride + q_head * a->q_head_stride;
    for (int c = 0; c < k_size(a); c++) q.x[c] = number_at(a->q_type, a->q, at + c);
    for (int region = 0; region < KVT_REGION_COUNT; region++) add_region(&q, region, k, v);
    float *out = a->out + row * a->out_row_stride + q_head * a->out_head_stride;
    for (int c = 0; c < v_size(a); c++) out[c] = (float)(q.mix[c] / q.sum);
    if (a->lse) a->lse[row * a->n_q_heads + q_head] = (float)(q.max + log(q.sum));
}

enum kvt_status kvt_cuda_attend_launch(const struct kvt_cuda_attend *attend, void *stream, struct kvt_error *err) {
    (void)stream;
    KVT_TRY(host_device_call(err));
    const size_t floats = (size_t)KVT_TILE_ROWS * KVT_LATENT_MAX;
    float *k = malloc(2 * floats * sizeof *k);
    if (!k || attend->sinks) abort();
    const struct kvt_cuda_seq *seq = attend->seqs;
    int n_rows = 0;
    for (int i = 0; i < attend->n_blocks; i++) /* shares name all sequences */
        for (int s = i; s >= 0; s = attend->shares[s].next) {
            const struct kvt_cuda_seq *of = &attend->seqs[attend->shares[s].seq];
            n_rows = KVT_MAX(n_rows, of->row + of->n_rows);
        }
    for (int row = 0; row < n_rows; row++) {
        if (row == seq->row + seq->n_rows) seq++;
        for (int h = 0; h < attend->n_q_heads; h++) attend_one(attend, seq, row, h, k, k + floats);
    }
    free(k);
    return KVT_OK;
}

/* Prompts come as few rows do. */
int kvt_cuda_prefill_reads(const struct kvt_cuda_page *body, const struct kvt_cuda_page *plain) {
    (void)body, (void)plain;
    return 0;
}
enum kvt_status kvt_cuda_prefill_launch(const struct kvt_cuda_prefill *prefill, void *stream, struct kvt_error *err) {
    (void)prefill, (void)stream, (void)err;
    abort();
}
