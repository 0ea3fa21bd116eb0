/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores: a unit of keys times the query vectors of a share, on tensor cores.
 *
 * Rows of a block of 32 that lane (r, c) has in its sums: encoded keys, matrix t: 4 r + 2 t in the first two, 4 r + 2 t + 1 in the
 * others; plain keys: 16 t + r and 16 t + 8 + r. Columns 2 c and 2 c + 1 of each 8.
 */
#ifndef BACKEND_CUDA_ATTEND_SCORE_CUH
#define BACKEND_CUDA_ATTEND_SCORE_CUH

#include "backend/cuda/attend_tile.cuh"

namespace kvt {

// Query vectors in shared memory, as f16 in natural order: below 1/2 in magnitude, and what f16 lost of them.
template <int D, int NB> struct Queries {
    enum { STRIDE = 2 * D + 64, BYTES = 8 * NB * STRIDE };
    uint32_t high, low; // shared addresses of column 0
    uint32_t sums;      // floats [group of terms][column]: sums of what is multiplied
    __device__ __forceinline__ uint4 high_octet(int nb, int i, int r, int c) const {
        return load4(high + (nb * 8 + r) * STRIDE + i * 64 + c * 16);
    }
    __device__ __forceinline__ uint4 low_octet(int nb, int i, int r, int c) const {
        return load4(low + (nb * 8 + r) * STRIDE + i * 64 + c * 16);
    }
};

template <int NB> using Sums = float[2][2][NB][4]; // [block][matrix][eight columns]

// What an octet of terms is multiplied with, for each eight columns: pairs in natural order.
template <int NB> struct Pairs {
    uint32_t n[NB][4];
    __device__ __forceinline__ void set(int nb, const uint4 &v) {
        n[nb][0] = v.x, n[nb][1] = v.y, n[nb][2] = v.z, n[nb][3] = v.w;
    }
};

// The four rows in a chunk of a plane, one octet of terms.
template <bool IS_FOUR, int NB>
__device__ __forceinline__ void add_plane(float (&s0)[NB][4], float (&s1)[NB][4], uint32_t at,
                                          const LanePlane<IS_FOUR> &plane, const Factors (&b)[NB]) {
    const uint4 chunk = load4(at + plane.place);
    const Octet o0(chunk.x, plane), o1(chunk.y, plane), o2(chunk.z, plane), o3(chunk.w, plane);
#pragma unroll
    for (int nb = 0; nb < NB; nb++) {
        mma_octet(s0[nb], o0, o1, b[nb]);
        mma_octet(s1[nb], o2, o3, b[nb]);
    }
}

// All planes of a side's codes, for the lane.
template <Kind KIND> struct LanePlanes {
    LanePlane<KIND == FOUR> low, high;
    uint32_t up; // of the second plane
    __device__ __forceinline__ LanePlanes(const Side &side, int r, int c)
        : low(side.planes[0], side.turns, r, c), high(side.planes[1], side.turns, r, c), up(side.planes[1].up) {}
    __device__ __forceinline__ uint32_t down() const { return KIND == FOUR ? 0x2c002c00u : low.down_; } // 1/16
};

template <Kind KIND, int NB>
__device__ __forceinline__ void add_codes(float (&s)[2][NB][4], uint32_t at, const LanePlanes<KIND> &planes,
                                          const Pairs<NB> &p) {
    Factors b[NB];
#pragma unroll
    for (int nb = 0; nb < NB; nb++) b[nb].set(p.n[nb], planes.down());
    add_plane<KIND == FOUR, NB>(s[0], s[1], at, planes.low, b);
    if constexpr (KIND == TWO) {
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            uint32_t n[4];
#pragma unroll
            for (int i = 0; i < 4; i++) n[i] = mul2(p.n[nb][i], planes.up);
            b[nb].set(n, planes.high.down_);
        }
        add_plane<false, NB>(s[0], s[1], at, planes.high, b);
    }
}

// Whether products of a query and a scale are kept to more than f16: wide codes are finer than its rounding.
__device__ __forceinline__ bool keeps_rest(const Side &k) { return k.bits >= 6; }

// Sums of codes to scores: z has the zeros' share, of block b in row b.
template <int NB> __device__ __forceinline__ void add_zeros(Sums<NB> &x, const float (&z)[NB][4], int c) {
#pragma unroll
    for (int nb = 0; nb < NB; nb++)
#pragma unroll
        for (int b = 0; b < 2; b++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float zero = __shfl_sync(~0u, z[nb][e], 4 * b + c); // row b of the product
#pragma unroll
                for (int t = 0; t < 2; t++) {
                    x[b][t][nb][e] = fmaf(x[b][t][nb][e], SUBNORMALS, zero);
                    x[b][t][nb][e + 2] = fmaf(x[b][t][nb][e + 2], SUBNORMALS, zero);
                }
            }
}

// Scores times the rows' factors, which are 32 of each block at `factors`.
template <int NB> __device__ __forceinline__ void times_factors(Sums<NB> &x, uint32_t factors, int r) {
#pragma unroll
    for (int b = 0; b < 2; b++) {
        const uint2 f = load2(factors + b * 64 + r * 8);
        const float2 f01 = __half22float2(halves_of(f.x)), f23 = __half22float2(halves_of(f.y));
#pragma unroll
        for (int nb = 0; nb < NB; nb++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                x[b][0][nb][e] *= e < 2 ? f01.x : f01.y;
                x[b][1][nb][e] *= e < 2 ? f23.x : f23.y;
            }
    }
}

// Keys with a scale and a zero for each channel and group of rows. x: scores in units of what q was divided by.
template <int D, int NB, Kind KIND>
__device__ __forceinline__ void score_fold(Sums<NB> &x, uint32_t slot, const Side &k, const Queries<D, NB> &q,
                                           int lane) {
    const int r = lane / 4, c = lane % 4;
    const bool two = k.group == 32, rest = KIND == TWO && keeps_rest(k); // two: groups in the unit
    const LanePlanes<KIND> planes(k, r, c);
    const int bits = KIND == FOUR ? 4 : k.bits;
    const uint32_t codes = slot, scales = slot + KeySlot<D>::scales(k, 0), step = two ? KeySlot<D>::head(k) : 0;
    const uint32_t zeros = scales + k.scale_bytes + (r % 2 ? step : 0);
    float z[NB][4] = {};
#pragma unroll(KIND == FOUR ? D / 32 : 2)
    for (int i = 0; i < D / 32; i++) {
        uint4 qn[NB];
        const uint4 zz = load4(zeros + i * 64 + c * 16);
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            qn[nb] = q.high_octet(nb, i, r, c);
            mma(z[nb], zz.x, 0, zz.y, 0, qn[nb].x, qn[nb].y);
            mma(z[nb], zz.z, 0, zz.w, 0, qn[nb].z, qn[nb].w);
        }
#pragma unroll
        for (int b = 0; b < 2; b++) {
            const uint4 scale = load4(scales + b * step + i * 64 + c * 16);
            const uint32_t at = codes + KeySlot<D>::codes(bits, b) + i * 128 * bits;
            Pairs<NB> p;
#pragma unroll
            for (int nb = 0; nb < NB; nb++)
#pragma unroll
                for (int w = 0; w < 4; w++) p.n[nb][w] = mul2(word_of(qn[nb], w), word_of(scale, w));
            add_codes<KIND, NB>(x[b], at, planes, p);
            if (rest) {
#pragma unroll
                for (int nb = 0; nb < NB; nb++) {
                    const uint4 ql = q.low_octet(nb, i, r, c);
#pragma unroll
                    for (int w = 0; w < 4; w++)
                        p.n[nb][w] = fma2(word_of(ql, w), word_of(scale, w),
                                          fma2(word_of(qn[nb], w), word_of(scale, w), neg2(p.n[nb][w])));
                }
                add_codes<KIND, NB>(x[b], at, planes, p);
            }
        }
        if (rest) {
#pragma unroll
            for (int nb = 0; nb < NB; nb++) {
                const uint4 ql = q.low_octet(nb, i, r, c);
                mma(z[nb], zz.x, 0, zz.y, 0, ql.x, ql.y);
                mma(z[nb], zz.z, 0, zz.w, 0, ql.z, ql.w);
            }
        }
    }
    add_zeros<NB>(x, z, c);
    if (k.has_factor) times_factors<NB>(x, slot + KeySlot<D>::factors(k, 0), r);
}

// Keys with a scale (and zero) for each row and group of channels.
template <int D, int NB, Kind KIND>
__device__ __forceinline__ void score_lane(Sums<NB> &x, uint32_t slot, const Side &k, const Queries<D, NB> &q,
                                           int lane) {
    const int r = lane / 4, c = lane % 4, bits = KIND == FOUR ? 4 : k.bits;
    const bool rest = KIND == TWO && keeps_rest(k);
    const LanePlanes<KIND> planes(k, r, c);
    Sums<NB> s = {};
#pragma unroll(KIND == FOUR ? D / 32 : 2)
    for (int i = 0; i < D / 32; i++) {
        Pairs<NB> p;
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            p.set(nb, q.high_octet(nb, i, r, c));
        }
#pragma unroll
        for (int b = 0; b < 2; b++)
            add_codes<KIND, NB>(s[b], slot + KeySlot<D>::codes(bits, b) + i * 128 * bits, planes, p);
        if (rest) {
#pragma unroll
            for (int nb = 0; nb < NB; nb++) {
                p.set(nb, q.low_octet(nb, i, r, c));
            }
#pragma unroll
            for (int b = 0; b < 2; b++)
                add_codes<KIND, NB>(s[b], slot + KeySlot<D>::codes(bits, b) + i * 128 * bits, planes, p);
        }
        if (((i + 1) & (k.per - 1)) != 0 && i + 1 != D / 32) continue;
        const int g = i >> k.per_log;
#pragma unroll
        for (int b = 0; b < 2; b++) {
            const uint32_t at = slot + KeySlot<D>::scales(k, b) + g * 64 + r * 8;
            const uint2 sc = load2(at), zr = k.has_zero ? load2(at + k.scale_bytes) : make_uint2(0, 0);
#pragma unroll
            for (int t = 0; t < 2; t++) {
                const float2 scale = __half22float2(halves_of(t ? sc.y : sc.x)),
                             zero = __half22float2(halves_of(t ? zr.y : zr.x));
                const float off0 = fmaf(scale.x, -(float)k.code_offset, zero.x),
                            off1 = fmaf(scale.y, -(float)k.code_offset, zero.y);
                const float s0 = scale.x * SUBNORMALS, s1 = scale.y * SUBNORMALS;
#pragma unroll
                for (int nb = 0; nb < NB; nb++) {
                    const uint2 u = load2(q.sums + ((g * NB + nb) * 8 + 2 * c) * 4);
                    const float q0 = __uint_as_float(u.x), q1 = __uint_as_float(u.y);
                    float(&y)[4] = x[b][t][nb], (&d)[4] = s[b][t][nb];
                    y[0] = fmaf(d[0], s0, fmaf(off0, q0, y[0]));
                    y[1] = fmaf(d[1], s0, fmaf(off0, q1, y[1]));
                    y[2] = fmaf(d[2], s1, fmaf(off1, q0, y[2]));
                    y[3] = fmaf(d[3], s1, fmaf(off1, q1, y[3]));
                    d[0] = d[1] = d[2] = d[3] = 0;
                }
            }
        }
    }
}

// 32 rows of f16: x[0].
template <int D, int NB>
__device__ __forceinline__ void score_plain(Sums<NB> &x, uint32_t slot, const Queries<D, NB> &q, int lane) {
    const int r = lane / 4, c = lane % 4;
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        uint4 qh[NB], ql[NB];
#pragma unroll
        for (int nb = 0; nb < NB; nb++) qh[nb] = q.high_octet(nb, i, r, c), ql[nb] = q.low_octet(nb, i, r, c);
#pragma unroll
        for (int step = 0; step < 2; step++) {
            const int term = 32 * i + 8 * (lane % 8 / 2) + 2 * (2 * step + lane / 16) + lane % 2;
#pragma unroll
            for (int t = 0; t < 2; t++) {
                const int chunk = 2 * t + lane / 8 % 2;
                const uint4 m = load_transposed(slot + term * 64 + 16 * (chunk ^ (term / 8) % 4));
#pragma unroll
                for (int nb = 0; nb < NB; nb++) {
                    mma(x[0][t][nb], m.x, m.y, m.z, m.w, word_of(qh[nb], 2 * step), word_of(qh[nb], 2 * step + 1));
                    mma(x[0][t][nb], m.x, m.y, m.z, m.w, word_of(ql[nb], 2 * step), word_of(ql[nb], 2 * step + 1));
                }
            }
        }
    }
}

// A unit of encoded keys.
template <int D, int NB>
__device__ __forceinline__ void score(Sums<NB> &x, uint32_t slot, const Side &k, const Queries<D, NB> &q, int lane) {
    if (k.bits == 4) {
        k.lane ? score_lane<D, NB, FOUR>(x, slot, k, q, lane) : score_fold<D, NB, FOUR>(x, slot, k, q, lane);
    } else if (k.planes[1].width) {
        k.lane ? score_lane<D, NB, TWO>(x, slot, k, q, lane) : score_fold<D, NB, TWO>(x, slot, k, q, lane);
    } else {
        k.lane ? score_lane<D, NB, ONE>(x, slot, k, q, lane) : score_fold<D, NB, ONE>(x, slot, k, q, lane);
    }
}

} // namespace kvt

#endif
