/* SPDX-License-Identifier: Apache-2.0
 *
 * Putting attention's parts together: the warps of a block through shared memory, the blocks of a head through global memory, both in an
 * order of their own that depends on nothing else.
 */
#ifndef BACKEND_CUDA_ATTEND_MERGE_CUH
#define BACKEND_CUDA_ATTEND_MERGE_CUH

#include "backend/cuda/attend_known.cuh"

namespace kvt {

constexpr float LOG2E = 1.4426950408889634f, SLACK = 4.f, NOTHING = -1e30f;
constexpr int MOST_UP = 11; // weights are at most 2^SLACK, and 2^(SLACK + MOST_UP) is within f16

template <int D, int NB> struct Shape {
    static constexpr int MOST_WARPS = D == 256 ? 4 : NB == 1 ? 12 : 8, LEAST_WARPS = D == 256 ? 4 : 6;
    static constexpr int COLUMNS = 8 * NB;
    static constexpr int LINE = D + 4;                        // floats of a column when warps hand in their sums
    static constexpr int AT_ONCE = NB == 1 ? 4 : 2;           // warps that do so at once
    static constexpr int QUERIES = 4 * Queries<D, NB>::BYTES; // plain, then those for the body if it is rotated
    static constexpr int TERM_SUMS = D / 32 * COLUMNS * 4;
    static constexpr int FACTORS = 2 * COLUMNS * 4;
    static constexpr int HANDED = AT_ONCE * COLUMNS * LINE * 4;
    static constexpr int STATES = MOST_WARPS * COLUMNS * 4;
    static constexpr int BESIDE =
        QUERIES + TERM_SUMS + FACTORS + HANDED + STATES; // bytes of shared memory beside the slots
};

// The output of a query vector from its state: largest score, sum of weights, some mixed values.
template <int N>
__device__ __forceinline__ void finish(const Args &a, int q_head, int row, bool first, float most, float sum,
                                       float (&values)[N]) {
    if (a.call.sinks) {
        const float sink = a.call.sinks[q_head] * LOG2E, top = fmaxf(most, sink), keep = exp2_of(most - top);
#pragma unroll
        for (int i = 0; i < N; i++) values[i] *= keep;
        sum = fmaf(sum, keep, exp2_of(sink - top));
        most = top;
    }
    if (first && a.call.lse) a.call.lse[(ptrdiff_t)row * a.call.n_q_heads + q_head] = (most + log2f(sum)) / LOG2E;
#pragma unroll
    for (int i = 0; i < N; i++) values[i] /= sum;
}

// Channels [channel, channel + N) of a query vector's output.
template <int D, int NB, int N>
__device__ __forceinline__ void put_out(const Args &a, const kvt_cuda_share &share, int column, int channel, float most,
                                        float sum, float (&values)[N]) {
    const int vector = share.column + column, row = share.row + vector / a.call.group;
    const int q_head = share.head * a.call.group + vector % a.call.group;
    finish(a, q_head, row, channel == 0, most, sum, values);
    float *to = a.call.out + row * a.call.out_row_stride + q_head * a.call.out_head_stride + channel;
#pragma unroll
    for (int i = 0; i < N; i++) to[i] = values[i];
}

// The parts of a head in their order: by the block that was last to leave its own.
template <int D, int NB> __device__ void merge_parts(const Args &a, const kvt_cuda_share &share) {
    constexpr int COLUMNS = 8 * NB, AHEAD = 16;
    const size_t part = (size_t)COLUMNS * (D + 2);
    const float *parts = a.call.parts + share.first_slot * part;
    const int n = min(COLUMNS, share.n_rows * a.call.group - share.column);
    for (int x = 2 * threadIdx.x; x < n * D; x += 2 * blockDim.x) {
        const int column = x / D;
        float most = NOTHING, sum = 0, values[2] = {};
        for (int k0 = 0; k0 < share.n_parts; k0 += AHEAD) {
            float2 state[AHEAD], v[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                const float *p = parts + (k0 + k) * part;
                const bool in = k0 + k < share.n_parts;
                state[k] = in ? __ldcg((const float2 *)p + column) : make_float2(NOTHING, 0.f);
                v[k] = in ? __ldcg((const float2 *)(p + 2 * COLUMNS + x)) : make_float2(0.f, 0.f);
            }
            float top = most;
#pragma unroll
            for (int k = 0; k < AHEAD; k++) top = fmaxf(top, state[k].x);
            const float keep = exp2_of(most - top);
            sum *= keep, values[0] *= keep, values[1] *= keep, most = top;
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                const float f = exp2_of(state[k].x - most);
                sum = fmaf(f, state[k].y, sum);
                values[0] = fmaf(f, v[k].x, values[0]), values[1] = fmaf(f, v[k].y, values[1]);
            }
        }
        put_out<D, NB>(a, share, column, x % D, most, sum, values);
    }
}

// Puts the sums of a block's warps together, to the output or to a part. `area` has room for lines of `at_once` warps. CODED: sums are as encoded
// values with zeros left them, see settle.
template <int D, int NB, bool CODED>
__device__ void hand_in(const Args &a, const Mixed<D, NB> &mixed, const float (&reference)[NB][2], float up,
                        const kvt_cuda_share &share, float *area, int at_once, float *states, int warp, int n_warps,
                        int *last) {
    using S = Shape<D, NB>;
    const int r = threadIdx.x % 32 / 4, c = threadIdx.x % 4,
              n_columns = min(S::COLUMNS, share.n_rows * a.call.group - share.column);
    if (r == 0)
#pragma unroll
        for (int nb = 0; nb < NB; nb++)
            ((float2 *)states)[warp * 4 * NB + nb * 4 + c] = make_float2(reference[nb][0], reference[nb][1]);
    __syncthreads();
    float most[NB][2], down[NB][2]; // of the block; of the warp's sums, to that
#pragma unroll
    for (int nb = 0; nb < NB; nb++) {
        most[nb][0] = most[nb][1] = NOTHING;
#pragma unroll
        for (int w = 0; w < S::MOST_WARPS; w++) {
            const float2 m = ((const float2 *)states)[min(w, n_warps - 1) * 4 * NB + nb * 4 + c];
            most[nb][0] = fmaxf(most[nb][0], m.x), most[nb][1] = fmaxf(most[nb][1], m.y);
        }
#pragma unroll
        for (int e = 0; e < 2; e++) down[nb][e] = exp2_of(reference[nb][e] - most[nb][e] - up);
    }
    constexpr int EACH = (S::COLUMNS * D / 4 + 32 * S::LEAST_WARPS - 1) / (32 * S::LEAST_WARPS);
    float sums[EACH][4] = {}, sum[EACH] = {}, top[EACH];
    for (int w0 = 0; w0 < n_warps; w0 += at_once) {
        if (w0) __syncthreads();
        const float unit = a.body.v.code_offset ? SUBNORMALS : 1.f; // of the zeros' share
        if (warp >= w0 && warp < w0 + at_once)
#pragma unroll
            for (int nb = 0; nb < NB; nb++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const int column = nb * 8 + 2 * c + e;
                    float *line = area + ((warp - w0) * n_columns + column) * S::LINE;
                    if (CODED) {
                        const float times = SUBNORMALS * down[nb][e], zeros = mixed.side[nb][e] * down[nb][e] * unit;
#pragma unroll
                        for (int b = 0; b < D / 32; b++) {
                            const float zero = __shfl_sync(~0u, zeros, 4 * (b >> a.body.v.per_log) + c);
                            const float4 v = make_float4(fmaf(mixed.values[2 * b][nb][e], times, zero),
                                                         fmaf(mixed.values[2 * b][nb][e + 2], times, zero),
                                                         fmaf(mixed.values[2 * b + 1][nb][e], times, zero),
                                                         fmaf(mixed.values[2 * b + 1][nb][e + 2], times, zero));
                            if (column < n_columns) *(float4 *)(line + 32 * b + 4 * r) = v;
                        }
                    }
                    if (column >= n_columns) continue;
                    if (!CODED)
#pragma unroll
                        for (int i = 0; i < D / 16; i++)
#pragma unroll
                            for (int h = 0; h < 2; h++)
                                line[16 * i + 8 * h + r] = mixed.values[i][nb][2 * h + e] * down[nb][e];
                    if (r == 0) line[D] = mixed.side[nb][2 + e] * down[nb][e], line[D + 1] = most[nb][e];
                }
        __syncthreads();
        const int n = min(at_once, n_warps - w0);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int x = 4 * (threadIdx.x + j * 32 * n_warps);
            if (x >= n_columns * D) break;
            const float *line = area + x / D * S::LINE;
            top[j] = line[D + 1];
#pragma unroll 4
            for (int w = 0; w < n; w++, line += n_columns * S::LINE) {
                const float4 v = *(const float4 *)(line + x % D);
                sums[j][0] += v.x, sums[j][1] += v.y, sums[j][2] += v.z, sums[j][3] += v.w, sum[j] += line[D];
            }
        }
    }
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const int x = 4 * (threadIdx.x + j * 32 * n_warps), column = x / D, channel = x % D;
        if (x >= n_columns * D) break;
        if constexpr (CODED && D == 128)
            if (a.rotated_v) turn(sums[j], threadIdx.x % 32); // a column is a warp's
        if (share.n_parts == 1) {
            put_out<D, NB>(a, share, column, channel, top[j], sum[j], sums[j]);
        } else {
            float *part = a.call.parts + (size_t)share.slot * S::COLUMNS * (D + 2);
            *(float2 *)(part + 2 * S::COLUMNS + x) = make_float2(sums[j][0], sums[j][1]);
            *(float2 *)(part + 2 * S::COLUMNS + x + 2) = make_float2(sums[j][2], sums[j][3]);
            if (channel == 0) ((float2 *)part)[column] = make_float2(top[j], sum[j]);
        }
    }
    __syncthreads();
    if (share.n_parts == 1) return;
    if (threadIdx.x == 0) {
        *last = add_in_order(a.call.done + share.counter, 1) == share.n_parts - 1;
        if (*last) a.call.done[share.counter] = 0;
    }
    __syncthreads();
    if (*last) merge_parts<D, NB>(a, share);
}

} // namespace kvt

#endif
