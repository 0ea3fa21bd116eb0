/* SPDX-License-Identifier: Apache-2.0 */
#include "support/codec_rows.h"

#include <math.h>

#include "base/half.h"
#include "base/rng.h"

enum { SEED = 20250807, MAX_SIZE = 576 };

/* Kinds 2 and 3: the extreme and the grid. */
static const float grids[][2] = {{-8, 0.25f}, {16, 0.25f},  {127, 0.5f}, {6, 0.125f},
                                 {448, 1},    {-127, 0.5f}, {15, 0.25f}, {31, 0.5f}};

static void fill_row(float *x, const uint64_t *k, int d, int row) {
    const int turn = row / CODEC_ROWS_KINDS;
    const float top = grids[turn % 8][0], step = grids[turn % 8][1];
    const uint64_t m = (uint64_t)(fabsf(top) / step);
    for (int c = 0; c < d; c++) switch (row % CODEC_ROWS_KINDS) {
        case 1: x[c] *= 200; break;
        case 2: x[c] = c % 16 == 0 ? top : (float)((int64_t)(k[c] % (2 * m + 1)) - (int64_t)m) * step; break;
        case 3: x[c] = c % 16 == 0 ? -3 : c % 16 == 1 ? fabsf(top) - 3 : (float)(k[c] % (m + 1)) * step - 3; break;
        case 4:
            if (turn % 4 == 0)
                x[c] = k[c] & 1 ? -0.0f : 0;
            else
                x[c] = turn % 4 == 3 ? x[c] * 1e-20f : turn % 4 == 1 ? 0.75f : -3.1f;
            break;
        case 5: x[c] = c == (int)(k[0] % (uint64_t)d) ? 5000 : x[c]; break;
        case 6: x[c] *= 1e-4f; break;
        case 7: x[c] = kvt_f32_from_f16(kvt_f16_from_f32(x[c] * 3)) + (c % 16 == 3 ? 100.0f : 0); break;
        default: break;
        }
}

void codec_rows_fill(float *rows, int n, int d, int tile) {
    struct kvt_rng rng = {SEED + (uint64_t)tile};
    uint64_t k[MAX_SIZE];
    for (int r = 0; r < n; r++) {
        for (int c = 0; c < d; c++) {
            rows[r * d + c] = kvt_rng_normal(&rng);
            k[c] = kvt_rng_u64(&rng);
        }
        fill_row(rows + r * d, k, d, r);
    }
}
