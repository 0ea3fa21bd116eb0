/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference level: every operation in plain C. (unpack's meaning is codec/tile.c; a test holds the two together.)
 */
#include <math.h>

#include "base/half.h"
#include "base/num.h"
#include "kernel/kernel.h"
#include "kernel/table.h"
#include "kernel/v32_ref.h"

void kvt_decode_ref(const struct kvt_tile *tile, float *rows, ptrdiff_t stride, const void *bytes, int first, int n) {
    kvt_tile_decode(tile, rows, stride, bytes, first, n);
}

#define NAME(op)                   kvt_##op##_ref
#define LOAD_F16_ROW(row, from, n) load_f16(row, from, n)
#include "kernel/fold.inc"
#include "kernel/unpack.inc"

float kvt_soften_ref(float *scores, int n, float *max, float *sum) {
    float m = *max;
    for (int i = 0; i < n; i++) m = scores[i] > m ? scores[i] : m;
    if (m == -INFINITY) {
        for (int i = 0; i < n; i++) scores[i] = 0;
        return 1;
    }
    for (int i = 0; i < n; i++) scores[i] = kvt_exp_negative(scores[i] - m);
    float lane[8] = {0};
    int i = 0;
    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++) lane[l] += scores[i + l];
    for (int l = 0; i < n; i++, l++) lane[l] += scores[i];
    const float total = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
    const float keep = kvt_exp_negative(*max - m);
    *sum = *sum * keep + total;
    *max = m;
    return keep;
}
