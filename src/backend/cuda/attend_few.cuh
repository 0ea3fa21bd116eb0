/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax of a share of at most four columns whose scores came as upper and lower bytes (attend_class.cuh): a lane has one column, c, of rows
 * 4 r .. 4 r + 3 of both blocks, row 2 t + h in x[block][t][0][h], half as many as in Walk, which has the references of two columns.
 */
#ifndef BACKEND_CUDA_ATTEND_FEW_CUH
#define BACKEND_CUDA_ATTEND_FEW_CUH

#include "backend/cuda/attend_merge.cuh"

namespace kvt {

template <class F> __device__ __forceinline__ void each_few(Sums<1> &x, const F &f) {
#pragma unroll
    for (int b = 0; b < 2; b++)
#pragma unroll
        for (int i = 0; i < 4; i++) f(x[b][i / 2][0][i % 2], 32 * b + i);
}

template <class W> __device__ __forceinline__ void few_to_powers(const W &walk, Sums<1> &x, const float *factors) {
    const float times = factors[walk.c] * LOG2E, most = walk.a.call.softcap * LOG2E;
    each_few(x, [&](float &y, int) { y *= times; });
    if (most > 0) each_few(x, [&](float &y, int) { y = W::template capped<2>(y, most); });
}

template <class W>
__device__ void few_mask(const W &walk, Sums<1> &x, const kvt_cuda_share &share, const kvt_cuda_seq &seq, int region,
                         int row) {
    const int q_row = (share.column + walk.c) / walk.a.call.group;
    const kvt_cuda_visible &v = walk.a.call.visible[seq.row + min(q_row, seq.n_rows - 1)];
    const int first = v.first[region], end = v.end[region];
    each_few(x, [&](float &y, int in_unit) {
        const int at = row + in_unit + 4 * walk.r;
        if (at < first || at >= end) y = -INFINITY;
    });
}

// Gives the reference of column c, moved where a score passes it by SLACK. Columns 4 to 7 have those of 0 to 3.
template <class W> __device__ __forceinline__ float few_refer(W &walk, Sums<1> &x) {
    const int first = walk.lane & ~3;
    const float even = __shfl_sync(~0u, walk.reference[0][0], first | walk.c / 2),
                odd = __shfl_sync(~0u, walk.reference[0][1], first | walk.c / 2);
    float reference = walk.c % 2 ? odd : even, most = NOTHING;
    each_few(x, [&](float &y, int) { most = fmaxf(most, y); });
    if (!__any_sync(~0u, most > reference + SLACK)) return reference;
    reference = fmaxf(most, reference);
#pragma unroll
    for (int d = 4; d < 32; d *= 2) reference = fmaxf(reference, __shfl_xor_sync(~0u, reference, d));
    float keep[2];
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const float next = __shfl_sync(~0u, reference, first | (2 * walk.c + e) % 4);
        keep[e] = exp2_of(walk.reference[0][e] - next);
        walk.reference[0][e] = next;
    }
    walk.mixed.scale(0, keep[0], keep[1]);
    return reference;
}

// Weights in the order of operands (attend_known.cuh), of columns 0 to 3 and of the same again.
template <class W>
__device__ __forceinline__ void few_weigh(const W &walk, uint4 (&w)[2][1][1], const Sums<1> &x, float reference) {
    const float up = walk.up - reference;
    const int from = 8 * walk.c + walk.r % 4; // the lane that has the first quad of octet c
#pragma unroll
    for (int b = 0; b < 2; b++) {
        const uint32_t even = pack(exp2_of(x[b][0][0][0] + up), exp2_of(x[b][1][0][0] + up)),
                       odd = pack(exp2_of(x[b][0][0][1] + up), exp2_of(x[b][1][0][1] + up));
        w[b][0][0] = make_uint4(__shfl_sync(~0u, even, from), __shfl_sync(~0u, odd, from),
                                __shfl_sync(~0u, even, from + 4), __shfl_sync(~0u, odd, from + 4));
    }
}

} // namespace kvt

#endif
