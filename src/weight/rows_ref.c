/* SPDX-License-Identifier: Apache-2.0
 * The reference of the numeric contract in type.h. */
#include <math.h>

#include "weight/type.h"

enum { CHUNK = 256 }; /* a multiple of every block length and of the lanes */

static float tree_sum(float lane[KVT_WEIGHT_LANES]) {
    for (int half = KVT_WEIGHT_LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

static float dot(const struct kvt_weight_type *type, const unsigned char *row, const float *x, int64_t n_in) {
    float lane[KVT_WEIGHT_LANES] = {0}, w[CHUNK];
    for (int64_t i = 0; i < n_in; i += CHUNK) {
        const int n = (int)KVT_MIN(n_in - i, CHUNK);
        type->decode(w, row + (size_t)(i / type->block_len) * type->block_bytes, n);
        for (int j = 0; j < n; j++) lane[j % KVT_WEIGHT_LANES] = fmaf(w[j], x[i + j], lane[j % KVT_WEIGHT_LANES]);
        for (int j = n; j % KVT_WEIGHT_LANES; j++) lane[j % KVT_WEIGHT_LANES] = fmaf(0, 0, lane[j % KVT_WEIGHT_LANES]);
    }
    return tree_sum(lane);
}

void kvt_weight_rows_ref(float *dst, const struct kvt_weight_type *type, const unsigned char *rows, size_t row_bytes,
                         int64_t n_rows, const float *x, int64_t n_in) {
    for (int64_t r = 0; r < n_rows; r++) dst[r] = dot(type, rows + (size_t)r * row_bytes, x, n_in);
}
