/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixing: a unit of values times the softmax weights of its rows, on tensor cores.
 *
 * Channels of a block of 32 that lane (r, c) has in its sums: encoded values, matrix t: 4 r + 2 t in the first two, 4 r + 2 t + 1 in the
 * others; plain values: 16 t + r and 16 t + 8 + r. Columns 2 c and 2 c + 1 of each 8.
 */
#ifndef BACKEND_CUDA_ATTEND_MIX_CUH
#define BACKEND_CUDA_ATTEND_MIX_CUH

#include "backend/cuda/attend_score.cuh"

namespace kvt {

// Sums of what was mixed. values: in units of 2^-24 while `coded`; side: rows 0 to 7 the zeros' share of group r % groups, in its own
// unit, rows 8 to 15 the sum of weights.
template <int D, int NB> struct Mixed {
    float values[D / 16][NB][4], side[NB][4];
    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int nb = 0; nb < NB; nb++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                side[nb][e] = 0;
#pragma unroll
                for (int i = 0; i < D / 16; i++) values[i][nb][e] = 0;
            }
    }
    __device__ __forceinline__ void scale(int nb, float even, float odd) {
#pragma unroll
        for (int i = 0; i < D / 16; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) values[i][nb][e] *= e % 2 ? odd : even;
#pragma unroll
        for (int e = 0; e < 4; e++) side[nb][e] *= e % 2 ? odd : even;
    }
};

// Weights of one octet of rows: pairs in natural order.
template <int NB> using Weights = Pairs<NB>;

// What values have beside scales: zeros, an offset of all codes, or zeros and a factor for each channel.
enum Beside { ZEROS, OFFSET, FACTORS };

// w: of the octets of both halves of the unit's 64 rows. Without a branch, so that loads can be far ahead of their use.
template <int D, int NB, Kind KIND, Beside BESIDE>
__device__ __forceinline__ void mix_coded(Mixed<D, NB> &mixed, uint32_t slot, const Side &v, const Weights<NB> (&w)[2],
                                          int lane) {
    const int r = lane / 4, c = lane % 4, own = r & (v.groups - 1); // own: the group whose zeros the lane has
    const LanePlanes<KIND> planes(v, r, c);
    const int bits = KIND == FOUR ? 4 : v.bits;
    const uint32_t ones = splat(1.f), zeros = slot + ValueSlot<D>::zeros(v, own) + c * 16;
    float unit[BESIDE == FACTORS ? NB : 1][4] = {}; // with factors: the zeros' share of this unit
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const uint4 z = BESIDE == OFFSET ? make_uint4(0, 0, 0, 0) : load4(zeros + j * 64);
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            float(&to)[4] = BESIDE == FACTORS ? unit[BESIDE == FACTORS ? nb : 0] : mixed.side[nb];
            mma(to, z.x, ones, z.y, ones, w[j].n[nb][0], w[j].n[nb][1]);
            mma(to, z.z, ones, z.w, ones, w[j].n[nb][2], w[j].n[nb][3]);
        }
    }
    // Less the offset: as a negative code, once for each group.
    const uint32_t first = 0x80008000u | (uint32_t)v.code_offset * 0x00010001u;
    const uint32_t second =
        0x80008000u | (uint32_t)(v.code_offset << (KIND == FOUR ? 4 : planes.low.width_)) * 0x00010001u;
    auto block = [&](int b, int j, float(&s0)[NB][4], float(&s1)[NB][4]) {
        const uint4 scale = load4(slot + ValueSlot<D>::scales(v, b >> v.per_log) + j * 64 + c * 16);
        Factors low[NB], high[NB];
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            uint32_t n[4];
#pragma unroll
            for (int i = 0; i < 4; i++) n[i] = mul2(w[j].n[nb][i], word_of(scale, i));
            low[nb].set(n, planes.down());
            if (KIND == TWO) {
#pragma unroll
                for (int i = 0; i < 4; i++) n[i] = mul2(n[i], planes.up);
                high[nb].set(n, planes.high.down_);
            }
            if (BESIDE == OFFSET) {
                const bool counts = (b & (v.per - 1)) == 0 && own == b >> v.per_log;
                mma(mixed.side[nb], counts ? first : 0, 0, counts ? second : 0, 0, low[nb].b02, low[nb].b46);
                mma(mixed.side[nb], counts ? first : 0, 0, counts ? second : 0, 0, low[nb].b13, low[nb].b57);
            }
        }
        const uint32_t at = slot + ValueSlot<D>::codes(bits, b) + j * 128 * bits;
        add_plane<KIND == FOUR, NB>(s0, s1, at, planes.low, low);
        if (KIND == TWO) add_plane<false, NB>(s0, s1, at, (const LanePlane<false> &)planes.high, high);
    };
#pragma unroll
    for (int b = 0; b < D / 32; b++) {
        if constexpr (BESIDE != FACTORS) {
            block(b, 0, mixed.values[2 * b], mixed.values[2 * b + 1]);
            block(b, 1, mixed.values[2 * b], mixed.values[2 * b + 1]);
        } else {
            float s[2][NB][4] = {};
            block(b, 0, s[0], s[1]);
            block(b, 1, s[0], s[1]);
            const uint2 f = load2(slot + ValueSlot<D>::factors(v, b) + r * 8);
            const float2 f01 = __half22float2(halves_of(f.x)), f23 = __half22float2(halves_of(f.y));
#pragma unroll
            for (int nb = 0; nb < NB; nb++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const float zero = __shfl_sync(~0u, unit[nb][e % 2], 4 * (b >> v.per_log) + c);
                    float(&a0)[4] = mixed.values[2 * b][nb], (&a1)[4] = mixed.values[2 * b + 1][nb];
                    a0[e] = fmaf(fmaf(s[0][nb][e], SUBNORMALS, zero), e < 2 ? f01.x : f01.y, a0[e]);
                    a1[e] = fmaf(fmaf(s[1][nb][e], SUBNORMALS, zero), e < 2 ? f23.x : f23.y, a1[e]);
                }
        }
    }
    if constexpr (BESIDE == FACTORS)
#pragma unroll
        for (int nb = 0; nb < NB; nb++) mixed.side[nb][2] += unit[nb][2], mixed.side[nb][3] += unit[nb][3];
}

// 32 rows of f16. high, low: weights of the pairs of rows 8 i + 2 c, and what f16 lost of them.
template <int D, int NB>
__device__ __forceinline__ void mix_plain(Mixed<D, NB> &mixed, uint32_t slot, const Pairs<NB> &high,
                                          const Pairs<NB> &low, int lane) {
    const uint32_t ones = splat(1.f);
#pragma unroll
    for (int s = 0; s < 2; s++) {
        const int row = 16 * s + 8 * (lane / 16) + lane % 8;
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            mma(mixed.side[nb], 0, ones, 0, ones, high.n[nb][2 * s], high.n[nb][2 * s + 1]);
            mma(mixed.side[nb], 0, ones, 0, ones, low.n[nb][2 * s], low.n[nb][2 * s + 1]);
        }
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            const int chunk = 2 * (i % 2) + lane / 8 % 2;
            const uint4 m = load_transposed(slot + i / 2 * 2048 + row * 64 + 16 * (chunk ^ (row / 2) % 4));
#pragma unroll
            for (int nb = 0; nb < NB; nb++) {
                mma(mixed.values[i][nb], m.x, m.y, m.z, m.w, high.n[nb][2 * s], high.n[nb][2 * s + 1]);
                mma(mixed.values[i][nb], m.x, m.y, m.z, m.w, low.n[nb][2 * s], low.n[nb][2 * s + 1]);
            }
        }
    }
}

template <int D, int NB, Kind KIND>
__device__ __forceinline__ void mix_kind(Mixed<D, NB> &mixed, uint32_t slot, const Side &v, const Weights<NB> (&w)[2],
                                         int lane) {
    if (v.has_factor) return mix_coded<D, NB, KIND, FACTORS>(mixed, slot, v, w, lane);
    v.has_zero ? mix_coded<D, NB, KIND, ZEROS>(mixed, slot, v, w, lane)
               : mix_coded<D, NB, KIND, OFFSET>(mixed, slot, v, w, lane);
}

template <int D, int NB>
__device__ __forceinline__ void mix(Mixed<D, NB> &mixed, uint32_t slot, const Side &v, const Weights<NB> (&w)[2],
                                    int lane) {
    if (v.bits == 4) {
        mix_kind<D, NB, FOUR>(mixed, slot, v, w, lane);
    } else {
        v.planes[1].width ? mix_kind<D, NB, TWO>(mixed, slot, v, w, lane)
                          : mix_kind<D, NB, ONE>(mixed, slot, v, w, lane);
    }
}

// From sums of encoded values to what they mean, and from their channels' places to those of plain ones.
template <int D, int NB>
__device__ __forceinline__ void settle(Mixed<D, NB> &mixed, const Side &v, bool rotated, int lane) {
    const int c = lane % 4, r = lane / 4;
    if (!v.has_factor && !v.tabled) {
        const float unit = v.code_offset ? SUBNORMALS : 1.f;
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            const float s0 = mixed.side[nb][0] * unit, s1 = mixed.side[nb][1] * unit;
#pragma unroll
            for (int i = 0; i < D / 16; i++) {
                const int g = i / 2 >> v.per_log;
                const float z0 = __shfl_sync(~0u, s0, 4 * g + c), z1 = __shfl_sync(~0u, s1, 4 * g + c);
#pragma unroll
                for (int e = 0; e < 4; e++)
                    mixed.values[i][nb][e] = fmaf(mixed.values[i][nb][e], SUBNORMALS, e % 2 ? z1 : z0);
            }
            mixed.side[nb][0] = mixed.side[nb][1] = 0;
        }
    }
    // Channel 32 b + 4 r + 2 t + h to 32 b + 8 (2 t' + h') + r'.
#pragma unroll
    for (int b = 0; b < D / 32; b++)
#pragma unroll
        for (int nb = 0; nb < NB; nb++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float from[4] = {mixed.values[2 * b][nb][e], mixed.values[2 * b][nb][e + 2],
                                 mixed.values[2 * b + 1][nb][e], mixed.values[2 * b + 1][nb][e + 2]};
                float to[4];
#pragma unroll
                for (int chunk = 0; chunk < 4; chunk++) {
                    const int source = 4 * (2 * chunk + r / 4) + c; // the lane that has channel 8 chunk + r
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const float x = __shfl_sync(~0u, from[i], source);
                        if (i == 0 || r % 4 == i) to[chunk] = x;
                    }
                }
                mixed.values[2 * b][nb][e] = to[0], mixed.values[2 * b][nb][e + 2] = to[1];
                mixed.values[2 * b + 1][nb][e] = to[2], mixed.values[2 * b + 1][nb][e + 2] = to[3];
            }
    if (!rotated) return;
        // The Walsh-Hadamard transform over channels 16 i + 8 h + r: in lanes, then in registers.
#pragma unroll
    for (int nb = 0; nb < NB; nb++) {
#pragma unroll
        for (int stride = 4; stride < 32; stride *= 2)
#pragma unroll
            for (int i = 0; i < D / 16; i++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const float other = __shfl_xor_sync(~0u, mixed.values[i][nb][e], stride);
                    mixed.values[i][nb][e] =
                        lane & stride ? other - mixed.values[i][nb][e] : mixed.values[i][nb][e] + other;
                }
#pragma unroll
        for (int i = 0; i < D / 16; i++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float a = mixed.values[i][nb][e], b = mixed.values[i][nb][e + 2];
                mixed.values[i][nb][e] = a + b, mixed.values[i][nb][e + 2] = a - b;
            }
#pragma unroll
        for (int stride = 1; stride < (D & -D) / 16; stride *= 2)
#pragma unroll
            for (int i = 0; i < D / 16; i++)
                if (!(i & stride))
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        const float a = mixed.values[i][nb][e], b = mixed.values[i + stride][nb][e];
                        mixed.values[i][nb][e] = a + b, mixed.values[i + stride][nb][e] = a - b;
                    }
        const float norm = rsqrtf((float)(D & -D));
        for (int i = 0; i < D / 16; i++)
            for (int e = 0; e < 4; e++) mixed.values[i][nb][e] *= norm;
    }
}

} // namespace kvt

#endif
