/* SPDX-License-Identifier: Apache-2.0
 *
 * The one rotation of all codecs that rotate (the numbers are those of KVarN's caches and of MLX's transform).
 */
#include <math.h>

#include "base/half.h"
#include "codec/codec.h"

static void transform(float *x, int n) {
    for (int stride = 1; stride < n; stride *= 2)
        for (int i = 0; i < n; i += 2 * stride)
            for (int j = i; j < i + stride; j++) {
                const float a = x[j], b = x[j + stride];
                x[j] = a + b;
                x[j + stride] = a - b;
            }
    const float scale = (float)(1.0 / sqrt((double)n));
    for (int i = 0; i < n; i++) x[i] *= scale;
}

void kvt_rotate(float *x, int d) {
    const int n = d & -d;
    for (int i = 0; i < d; i += n) transform(x + i, n);
}

void kvt_rotate_f16(float *x, int d) {
    kvt_rotate(x, d);
    for (int i = 0; i < d; i++) x[i] = kvt_f32_from_f16(kvt_f16_from_f32(x[i]));
}
