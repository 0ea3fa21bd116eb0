/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference level: every operation in plain C. (unpack's meaning is codec/tile.c; a test holds the two together.)
 */
#include <float.h>
#include <math.h>

#include "base/half.h"
#include "base/num.h"
#include "kernel/kernel.h"
#include "kernel/table.h"
#include "kernel/v32_ref.h"

void kvt_decode_ref(const struct kvt_tile *tile, float *rows, ptrdiff_t stride, const void *bytes, int first, int n) {
    kvt_tile_decode(tile, rows, stride, bytes, first, n);
}

void kvt_encode_ref(const struct kvt_encode_args *args) {
    struct kvt_encode_args head = *args;
    for (int h = 0; h <= args->n_more; h++) {
        args->codec->encoder->encode(&head);
        head.bytes = (char *)head.bytes + args->bytes_step;
        head.rows += args->rows_step;
    }
}

#define NAME(op)                   kvt_##op##_ref
#define LOAD_F16_ROW(row, from, n) load_f16(row, from, n)
#include "kernel/fold.inc"
#include "kernel/unpack.inc"

static void soften(float *scores, float *max, float *sum, float *keep) {
    float m = *max;
    for (int i = 0; i < KVT_TILE_ROWS; i++) m = scores[i] > m ? scores[i] : m;
    const float base = m > -FLT_MAX ? m : -FLT_MAX; /* where nothing was seen yet all weights are exp(-inf) */
    for (int i = 0; i < KVT_TILE_ROWS; i++) scores[i] = kvt_exp_negative(scores[i] - base);
    float lane[8] = {0};
    for (int i = 0; i < KVT_TILE_ROWS; i++) lane[i % 8] += scores[i];
    const float total = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
    *keep = kvt_exp_negative(*max - base);
    *sum = *sum * *keep + total;
    *max = m;
}

void kvt_soften_ref(float *scores, int n, float *max, float *sum, float *keep) {
    for (int v = 0; v < n; v++) soften(scores + v * KVT_TILE_ROWS, max + v, sum + v, keep + v);
}
