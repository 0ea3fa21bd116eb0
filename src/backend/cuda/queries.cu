/* SPDX-License-Identifier: Apache-2.0
 *
 * Of each row and KV head the roots of the mean squares over its query heads, of the part of the channels whose turn it is; or the query
 * of the head whose turn it is. Sums in the order of the CPU's, without fused multiply-add.
 */
#include "backend/cuda/queries.h"

#include "backend/cuda/check.cuh"
#include "backend/cuda/encode_unit.cuh"

namespace {

__global__ void keep_queries(const __grid_constant__ struct kvt_cuda_queries a) {
    const int row = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
    const int64_t at = a.positions[row];
    if (at < a.from) return;
    const int n = a.d / a.parts, part = static_cast<int>(at % a.parts) * n, turn = static_cast<int>(at % a.group);
    float *out = a.out + (static_cast<ptrdiff_t>(row) * a.n_heads + head) * n;
    for (int c = static_cast<int>(threadIdx.x); c < a.d; c += static_cast<int>(blockDim.x)) {
        float sum = 0, one = 0;
        for (int g = 0; g < a.group; g++) {
            const int q_head = head * a.group + g;
            const float x = load_number(a.number, a.data, row * a.row_stride + q_head * a.head_stride + c);
            if (!(fabsf(x) <= 65504.0f))
                atomicMin(reinterpret_cast<unsigned long long *>(a.bad), static_cast<unsigned long long>(row) << 32 |
                                                                             static_cast<unsigned>(q_head) << 16 |
                                                                             static_cast<unsigned>(c));
            sum += x * x;
            if (g == turn) one = x;
        }
        if (c >= part && c < part + n) out[c - part] = a.parts == 1 ? one : sqrtf(sum / static_cast<float>(a.group));
    }
}

} // namespace

enum kvt_status kvt_cuda_keep_queries(const struct kvt_cuda_queries *args, void *stream, struct kvt_error *err) {
    const dim3 blocks(static_cast<unsigned>(args->n_rows), static_cast<unsigned>(args->n_heads));
    keep_queries<<<blocks, 128, 0, static_cast<cudaStream_t>(stream)>>>(*args);
    return kvt_cuda_launched("keeping queries", err);
}
