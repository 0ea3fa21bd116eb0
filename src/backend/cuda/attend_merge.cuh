/* SPDX-License-Identifier: Apache-2.0
 *
 * Putting attention's parts together: the warps of a block through shared memory, the blocks of a head through global memory, both in an
 * order of their own that depends on nothing else. From a block's sums on a column is one warp's, which waits for no other. All of this runs once: the
 * machine fetches its instructions as it goes, so it is short.
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
    static constexpr int LINE = D + 8; // floats of a column of a warp's sums: values, state, zeros of four groups
    static constexpr int STATE = D, ZEROS = D + 4;
    static constexpr int AT_ONCE = NB == 1 ? 5 : 2;           // warps whose lines have room beside the slots
    static constexpr int QUERIES = 4 * Queries<D, NB>::BYTES; // plain, then those for the body if it is rotated
    static constexpr int TERM_SUMS = D / 32 * COLUMNS * 4;
    static constexpr int FACTORS = 2 * COLUMNS * 4;
    static constexpr int HANDED = AT_ONCE * COLUMNS * LINE * 4;
    static constexpr int BESIDE = QUERIES + TERM_SUMS + FACTORS + HANDED; // bytes of shared memory beside the slots
    static constexpr int FIXED = 2 * (sizeof(kvt_cuda_share) + sizeof(kvt_cuda_seq)); // and of known size
    static_assert(COLUMNS * LINE * 4 <= 128 * D, "a warp's lines have room in its slots");
    static_assert(MOST_WARPS * 128 * D + BESIDE + FIXED <= 227 * 1024, "all warps have room for units of f16");
};

// Channels 4 lane .. of a query vector, or of a part of one: sums of values and of weights, both times 2^top.
struct Summed {
    float top, sum, values[4];
};

// The first of them; of heads of 64 half the lanes have none.
template <int D> __device__ __forceinline__ int first_channel(int lane) { return 4 * lane < D ? 4 * lane : 0; }

// The sum of n of them. state(k): top and sum; values(k): of the lane's channels.
template <class State, class Values>
__device__ __forceinline__ Summed sum_of(int n, const State &state, const Values &values, int lane) {
    constexpr int AHEAD = 16;
    Summed all = {NOTHING, 0, {}};
#pragma unroll 1
    for (int k0 = 0; k0 < n; k0 += AHEAD) {
        const int own = k0 + lane % AHEAD;
        const float2 of = own < n ? state(own) : make_float2(NOTHING, 0.f);
        float4 v[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) v[k] = values(min(k0 + k, n - 1));
        float top = of.x;
#pragma unroll
        for (int d = 1; d < AHEAD; d *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
        top = fmaxf(top, all.top);
        const float keep = exp2_of(all.top - top), times = exp2_of(of.x - top);
        float sum = times * of.y;
#pragma unroll
        for (int d = 1; d < AHEAD; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
        all.top = top, all.sum = fmaf(all.sum, keep, sum);
#pragma unroll
        for (int i = 0; i < 4; i++) all.values[i] *= keep;
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const float f = __shfl_sync(~0u, times, k);
            all.values[0] = fmaf(f, v[k].x, all.values[0]), all.values[1] = fmaf(f, v[k].y, all.values[1]);
            all.values[2] = fmaf(f, v[k].z, all.values[2]), all.values[3] = fmaf(f, v[k].w, all.values[3]);
        }
    }
    return all;
}

// Writes the lane's channels of a query vector's output.
__device__ __forceinline__ void put_out(const Args &a, const kvt_cuda_share &share, int column, int channel, Summed x) {
    const int vector = share.column + column, row = share.row + vector / a.call.group;
    const int q_head = share.head * a.call.group + vector % a.call.group;
    float keep = 1;
    if (a.call.sinks) {
        const float sink = a.call.sinks[q_head] * LOG2E, top = fmaxf(x.top, sink);
        keep = exp2_of(x.top - top);
        x.sum = fmaf(x.sum, keep, exp2_of(sink - top));
        x.top = top;
    }
    if (channel == 0 && a.call.lse)
        a.call.lse[(ptrdiff_t)row * a.call.n_q_heads + q_head] = (x.top + log2f(x.sum)) / LOG2E;
    keep /= x.sum;
    float *to = a.call.out + row * a.call.out_row_stride + q_head * a.call.out_head_stride + channel;
#pragma unroll
    for (int i = 0; i < 4; i++) to[i] = x.values[i] * keep;
}

// Puts a warp's sums into lines, one for each column, or adds them to what is there. CODED: they are as encoded values with zeros left them, see settle.
template <int D, int NB, bool CODED, bool ADDS>
__device__ __forceinline__ void put_lines(const Args &a, const Mixed<D, NB> &mixed, const float (&reference)[NB][2],
                                          float up, float *lines, int n_columns, int lane) {
    using S = Shape<D, NB>;
    const int r = lane / 4, c = lane % 4;
    constexpr float UNIT = CODED ? 1 / SUBNORMALS : 1.f; // of sums of weights, where values count one
    const float zero_unit = a.body.v.code_offset ? 1.f : UNIT;
#pragma unroll
    for (int nb = 0; nb < NB; nb++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int column = nb * 8 + 2 * c + e;
            float *line = lines + column * S::LINE;
            const float own = reference[nb][e] - up + (CODED ? 24 : 0);
            float2 before = make_float2(NOTHING, 0.f);
            if (ADDS) {
                if (column < n_columns) before = *(const float2 *)(line + S::STATE);
                __syncwarp();
            }
            const float top = ADDS ? fmaxf(own, before.x) : own, keep = ADDS ? exp2_of(before.x - top) : 0.f,
                        times = ADDS ? exp2_of(own - top) : 1.f;
            if (column >= n_columns) continue;
            auto put = [&](float *at, float x) { *at = ADDS ? fmaf(*at, keep, x * times) : x; };
            if (CODED) {
#pragma unroll
                for (int b = 0; b < D / 32; b++) {
                    float4 *at = (float4 *)(line + 32 * b + 4 * r), v = ADDS ? *at : make_float4(0, 0, 0, 0);
                    const float(&x)[4] = mixed.values[2 * b][nb], (&y)[4] = mixed.values[2 * b + 1][nb];
                    *at = ADDS ? make_float4(fmaf(v.x, keep, x[e] * times), fmaf(v.y, keep, x[e + 2] * times),
                                             fmaf(v.z, keep, y[e] * times), fmaf(v.w, keep, y[e + 2] * times))
                               : make_float4(x[e], x[e + 2], y[e], y[e + 2]);
                }
            } else {
#pragma unroll
                for (int i = 0; i < D / 16; i++)
#pragma unroll
                    for (int h = 0; h < 2; h++) put(line + 16 * i + 8 * h + r, mixed.values[i][nb][2 * h + e]);
            }
            if (r < 4) put(line + S::ZEROS + r, CODED ? mixed.side[nb][e] * zero_unit : 0.f);
            if (r == 0)
                *(float2 *)(line + S::STATE) =
                    make_float2(top, fmaf(before.y, keep, mixed.side[nb][2 + e] * UNIT * times));
        }
}

// Where a block's warps have their lines: the first one's, and floats to the next one's.
struct Lines {
    float *first;
    int step, at_once; // warps that have their own
};

template <int D, int NB, bool CODED>
__device__ __forceinline__ void put_all_lines(const Args &a, const Mixed<D, NB> &mixed, const float (&reference)[NB][2],
                                              float up, const Lines &lines, int n_columns, int warp, int n_warps,
                                              int lane) {
    float *own = lines.first + warp % lines.at_once * lines.step;
    if (warp < lines.at_once) put_lines<D, NB, CODED, false>(a, mixed, reference, up, own, n_columns, lane);
#pragma unroll 1
    for (int w = lines.at_once; w < n_warps; w += lines.at_once) {
        __syncthreads();
        if (warp >= w && warp < w + lines.at_once)
            put_lines<D, NB, CODED, true>(a, mixed, reference, up, own, n_columns, lane);
    }
    __syncthreads();
}

// The parts of a head in their order. columns: bit i: of the warp's i-th column the last part came from here.
template <int D, int NB>
__device__ __forceinline__ void merge_parts(const Args &a, const kvt_cuda_share &share, uint32_t columns, int warp,
                                            int n_warps, int lane) {
    constexpr int COLUMNS = 8 * NB;
    constexpr size_t PART = (size_t)COLUMNS * (D + 2);
    const float *parts = a.call.parts + share.first_slot * PART;
#pragma unroll 1
    for (int column = warp; columns; column += n_warps, columns >>= 1) {
        if (!(columns & 1)) continue;
#pragma unroll 1
        for (int channel = first_channel<D>(lane); channel < D; channel += 128) {
            const Summed x = sum_of(
                share.n_parts, [&](int k) { return __ldcg((const float2 *)(parts + k * PART) + column); },
                [&](int k) { return __ldcg((const float4 *)(parts + k * PART + 2 * COLUMNS + column * D + channel)); },
                lane);
            if (4 * lane < D) put_out(a, share, column, channel, x);
        }
    }
}

// Puts the lines of a block's warps together, to the output or to a part. turns: values are to be turned back.
template <int D, int NB>
__device__ __forceinline__ void hand_in(const Args &a, const kvt_cuda_share &share, const Lines &lines, bool turns,
                                        int n_columns, int warp, int n_warps, int lane) {
    using S = Shape<D, NB>;
    float *part = a.call.parts + (size_t)share.slot * S::COLUMNS * (D + 2);
#pragma unroll 1
    for (int column = warp; column < n_columns; column += n_warps)
#pragma unroll 1
        for (int channel = first_channel<D>(lane); channel < D; channel += 128) {
            const float *line = lines.first + column * S::LINE;
            const int zero = S::ZEROS + (channel / 32 >> a.body.v.per_log) % 4;
            Summed x = sum_of(
                min(lines.at_once, n_warps), [&](int w) { return *(const float2 *)(line + w * lines.step + S::STATE); },
                [&](int w) {
                    const float4 v = *(const float4 *)(line + w * lines.step + channel);
                    const float z = line[w * lines.step + zero];
                    return make_float4(v.x + z, v.y + z, v.z + z, v.w + z);
                },
                lane);
            if (D == 128 && turns) turn(x.values, lane);
            if (4 * lane >= D) continue;
            if (share.n_parts == 1) {
                put_out(a, share, column, channel, x);
                continue;
            }
            __stcg((float4 *)(part + 2 * S::COLUMNS + column * D + channel),
                   make_float4(x.values[0], x.values[1], x.values[2], x.values[3]));
            if (channel == 0) ((float2 *)part)[column] = make_float2(x.top, x.sum);
        }
    if (share.n_parts == 1) return;
    __syncwarp();
    bool last = false;
    if (warp + lane * n_warps < n_columns) {
        int32_t *done = a.call.done + share.counter * S::COLUMNS + warp + lane * n_warps;
        last = add_in_order(done, 1) == share.n_parts - 1;
        if (last) *done = 0;
    }
    const uint32_t columns = __ballot_sync(~0u, last);
    __syncwarp();
    if (columns) merge_parts<D, NB>(a, share, columns, warp, n_warps, lane);
}

} // namespace kvt

#endif
