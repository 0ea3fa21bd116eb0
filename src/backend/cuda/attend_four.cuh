/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies of four bits with zeros in heads of 128, whose layout is known when the kernel is compiled: half the instructions of a kernel for any.
 *
 * A code's byte is its term's place in a quad, so the words of an octet's operand are the pairs (0 2) (1 3) of its first quad and (4 6)
 * (5 7) of its second, whose codes count 16 times. Scales and zeros lie in natural order. They are turned in their slot, once for all
 * columns and rows that use them, and the second quads' scales divided by 16 there; queries are prepared in the same order.
 */
#ifndef BACKEND_CUDA_ATTEND_FOUR_CUH
#define BACKEND_CUDA_ATTEND_FOUR_CUH

#include "backend/cuda/attend_mix.cuh"

namespace kvt {

template <Keys K> constexpr bool IS_FOUR = K == FOLD_FOUR_32 || K == FOLD_FOUR_64 || K == LANE_FOUR_64;
template <Keys K> constexpr bool BY_TOKEN = K == LANE_FOUR_64;
template <Keys K> constexpr int KEY_GROUP = K == FOLD_FOUR_32 ? 32 : 64;
template <Values V> constexpr bool IS_FOUR_V = V == FOUR_32 || V == FOUR_64;
template <Values V> constexpr int VALUE_GROUP = V == FOUR_32 ? 32 : 64;

// A unit of keys, in the tile and in its slot: heads (scales, then zeros) of its two blocks or, where they share them, of both; codes.
template <bool LANE, int GROUP> struct FourKeys {
    static constexpr bool ONE_HEAD = !LANE && GROUP > 32;
    static constexpr int HEAD = LANE ? 128 / GROUP * 128 : 512, CODES = 2048; // bytes, of a block
    static constexpr int BLOCK = ONE_HEAD ? CODES : HEAD + CODES;             // from block to block
    static constexpr int HALF = ONE_HEAD ? HEAD + 2 * CODES : 2 * BLOCK;      // from unit to unit
    static constexpr int HEADS = ONE_HEAD ? HEAD : 2 * HEAD;                  // in the slot
    static constexpr int BYTES = HEADS + 2 * CODES;
    static_assert(GROUP <= 64, "a group of 128 is of two units");
};
// A unit of values: heads (64 scales, 64 zeros) of each group; 1024 bytes of codes of each block of 32 channels.
template <int GROUP> struct FourValues {
    static constexpr int GROUPS = 128 / GROUP, IN_GROUP = GROUP / 32; // blocks
    static constexpr int STRIDE = 512 + IN_GROUP * 2048;              // from group to group in the tile
    static constexpr int HEADS = GROUPS * 256;                        // in the slot
    static constexpr int BYTES = HEADS + 4096;
};

// Of a tile of keys: where the one of values begins.
template <Keys K> constexpr int FOUR_KEY_BYTES = 2 * FourKeys<BY_TOKEN<K>, KEY_GROUP<K>>::HALF;

// Where a lane copies its 16 bytes of 512 of codes to, and where it reads the chunk of its rows and octet: no bank is met twice.
__device__ __forceinline__ uint32_t four_codes_to(int lane) { return lane / 8 * 128 + 16 * (lane % 8 ^ lane / 8 * 2); }
__device__ __forceinline__ uint32_t four_codes_at(int lane) { return lane % 4 * 128 + 16 * (lane / 4 ^ lane % 4 * 2); }

template <bool LANE, int GROUP>
__device__ __forceinline__ void fetch_four_keys(uint32_t slot, const char *tile, int half, int lane) {
    using F = FourKeys<LANE, GROUP>;
    const char *from = tile + half * F::HALF + 16 * lane;
    if constexpr (F::HEAD == 512) {
#pragma unroll
        for (int b = 0; b < F::HEADS / 512; b++) copy16(slot + 16 * lane + 512 * b, from + b * F::BLOCK);
    } else { // both blocks' at once
        constexpr int IN_HEAD = F::HEAD / 16;
        if (lane < 2 * IN_HEAD) copy16(slot + 16 * lane, from + lane / IN_HEAD * (F::BLOCK - F::HEAD));
    }
    const uint32_t to = slot + F::HEADS + four_codes_to(lane);
#pragma unroll
    for (int b = 0; b < 2; b++)
#pragma unroll
        for (int i = 0; i < 4; i++) copy16(to + b * F::CODES + 512 * i, from + F::HEAD + b * F::BLOCK + 512 * i);
}

template <int GROUP>
__device__ __forceinline__ void fetch_four_values(uint32_t slot, const char *tile, int half, int lane) {
    using F = FourValues<GROUP>;
    const char *from = tile + half * 128 + lane / 16 * F::STRIDE + (lane & 8) * 32 + lane % 8 * 16;
#pragma unroll
    for (int i = 0; i < F::GROUPS / 2; i++) copy16(slot + 16 * lane + 512 * i, from + 2 * i * F::STRIDE);
    const uint32_t to = slot + F::HEADS + four_codes_to(lane);
    from = tile + half * 1024 + 16 * lane;
#pragma unroll
    for (int b = 0; b < 4; b++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            copy16(to + b * 1024 + 512 * i,
                   from + b / F::IN_GROUP * F::STRIDE + 512 + b % F::IN_GROUP * 2048 + 512 * i);
}

// Eight numbers from natural order to that of operands; those of the second quad times `times`.
__device__ __forceinline__ uint4 turned(const uint4 &v, uint32_t times) {
    return make_uint4(lows(v.x, v.y), highs(v.x, v.y), mul2(lows(v.z, v.w), times), mul2(highs(v.z, v.w), times));
}
constexpr uint32_t SIXTEENTHS = 0x2c002c00u, ONES = 0x3c003c00u;

__device__ __forceinline__ void turn_four_keys(uint32_t heads, int n, int lane) {
    const uint32_t times = lane < 16 ? SIXTEENTHS : ONES;
#pragma unroll
    for (int i = 0; i < n; i++) {
        const uint32_t at = heads + 512 * i + 16 * lane;
        store4(at, turned(load4(at), times));
    }
}
// And gives the largest |scale| that the lane saw, twice.
template <int GROUP> __device__ __forceinline__ uint32_t turn_four_values(uint32_t heads, int lane) {
    uint32_t most = 0;
    const bool zeros = lane & 8;
#pragma unroll
    for (int i = 0; i < FourValues<GROUP>::GROUPS / 2; i++) {
        const uint32_t at = heads + 512 * i + 16 * lane;
        const uint4 v = load4(at);
        store4(at, turned(v, zeros ? ONES : SIXTEENTHS));
        const __half2 a = __hmax2(__habs2(halves_of(v.x)), __habs2(halves_of(v.y))),
                      b = __hmax2(__habs2(halves_of(v.z)), __habs2(halves_of(v.w)));
        most = bits_of(__hmax2(halves_of(most), __hmax2(a, b)));
    }
    return zeros ? 0 : most;
}

// Four rows of one octet, from the 16 bytes at `at`, times B.
template <int NB>
__device__ __forceinline__ void add_four(float (&s0)[NB][4], float (&s1)[NB][4], uint32_t at, uint32_t flip,
                                         const uint4 (&b)[NB]) {
    const uint4 chunk = load4(at);
    uint32_t a[4][4]; // of rows: pairs 02, 46, 13, 57
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t low = 0x000f000fu, high = 0x00f000f0u, x = word_of(chunk, i), y = x >> 8;
        a[i][0] = (x & low) ^ flip, a[i][1] = (x & high) ^ flip << 4;
        a[i][2] = (y & low) ^ flip, a[i][3] = (y & high) ^ flip << 4;
    }
#pragma unroll
    for (int nb = 0; nb < NB; nb++) {
        mma(s0[nb], a[0][0], a[1][0], a[0][1], a[1][1], b[nb].x, b[nb].z);
        mma(s1[nb], a[2][0], a[3][0], a[2][1], a[3][1], b[nb].x, b[nb].z);
        mma(s0[nb], a[0][2], a[1][2], a[0][3], a[1][3], b[nb].y, b[nb].w);
        mma(s1[nb], a[2][2], a[3][2], a[2][3], a[3][3], b[nb].y, b[nb].w);
    }
}

// Keys by channel. `queries`: of column 0, in the order of operands.
template <int NB, int GROUP>
__device__ __forceinline__ void score_four_fold(Sums<NB> &x, uint32_t slot, uint32_t queries, int lane) {
    using F = FourKeys<false, GROUP>;
    const int r = lane / 4, c = lane % 4;
    const uint32_t heads = slot + c * 16, codes = slot + F::HEADS + four_codes_at(lane),
                   zeros = heads + 256 + (F::ONE_HEAD ? 0 : r % 2 * 512),
                   q = queries + r * Queries<128, NB>::STRIDE + c * 16;
    float z[NB][4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint4 qn[NB];
        const uint4 zz = load4(zeros + i * 64);
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            qn[nb] = load4(q + nb * 8 * Queries<128, NB>::STRIDE + i * 64);
            mma(z[nb], zz.x, 0, zz.y, 0, qn[nb].x, qn[nb].y);
            mma(z[nb], zz.z, 0, zz.w, 0, qn[nb].z, qn[nb].w);
        }
#pragma unroll
        for (int b = 0; b < 2; b++) {
            const uint4 s = load4(heads + (F::ONE_HEAD ? 0 : b * 512) + i * 64);
            uint4 p[NB];
#pragma unroll
            for (int nb = 0; nb < NB; nb++)
                p[nb] = make_uint4(mul2(qn[nb].x, s.x), mul2(qn[nb].y, s.y), mul2(qn[nb].z, s.z), mul2(qn[nb].w, s.w));
            add_four<NB>(x[b][0], x[b][1], codes + b * F::CODES + i * 512, 0, p);
        }
    }
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

// Keys by token. The queries of second quads are divided by 16; sums: of what is multiplied, by group and column.
template <int NB, int GROUP>
__device__ __forceinline__ void score_four_lane(Sums<NB> &x, uint32_t slot, uint32_t queries, uint32_t sums, int lane) {
    using F = FourKeys<true, GROUP>;
    const int r = lane / 4, c = lane % 4;
    const uint32_t codes = slot + F::HEADS + four_codes_at(lane), q = queries + r * Queries<128, NB>::STRIDE + c * 16;
#pragma unroll
    for (int g = 0; g < 128 / GROUP; g++) {
        Sums<NB> s = {};
#pragma unroll
        for (int i = g * GROUP / 32; i < (g + 1) * GROUP / 32; i++) {
            uint4 p[NB];
#pragma unroll
            for (int nb = 0; nb < NB; nb++) p[nb] = load4(q + nb * 8 * Queries<128, NB>::STRIDE + i * 64);
#pragma unroll
            for (int b = 0; b < 2; b++) add_four<NB>(s[b][0], s[b][1], codes + b * F::CODES + i * 512, 0, p);
        }
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            const uint2 u = load2(sums + ((g * NB + nb) * 8 + 2 * c) * 4);
            const float q0 = __uint_as_float(u.x), q1 = __uint_as_float(u.y);
#pragma unroll
            for (int b = 0; b < 2; b++) {
                const uint32_t at = slot + b * F::HEAD + g * 64 + r * 8;
                const uint2 scales = load2(at), zeros = load2(at + F::HEAD / 2);
#pragma unroll
                for (int t = 0; t < 2; t++) {
                    const float2 scale = __half22float2(halves_of(t ? scales.y : scales.x)),
                                 zero = __half22float2(halves_of(t ? zeros.y : zeros.x));
                    const float s0 = scale.x * SUBNORMALS, s1 = scale.y * SUBNORMALS;
                    float(&y)[4] = x[b][t][nb], (&d)[4] = s[b][t][nb];
                    y[0] = fmaf(d[0], s0, fmaf(zero.x, q0, y[0]));
                    y[1] = fmaf(d[1], s0, fmaf(zero.x, q1, y[1]));
                    y[2] = fmaf(d[2], s1, fmaf(zero.y, q0, y[2]));
                    y[3] = fmaf(d[3], s1, fmaf(zero.y, q1, y[3]));
                }
            }
        }
    }
}

// Values; w: weights of the octets of both halves of the unit's rows, in the order of operands.
template <int NB, int GROUP>
__device__ __forceinline__ void mix_four(Mixed<128, NB> &mixed, uint32_t slot, const uint4 (&w)[2][NB], int lane) {
    using F = FourValues<GROUP>;
    const int r = lane / 4, c = lane % 4;
    const uint32_t heads = slot + c * 16, codes = slot + F::HEADS + four_codes_at(lane),
                   zeros = heads + r % F::GROUPS * 256 + 128;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const uint4 z = load4(zeros + j * 64);
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            mma(mixed.side[nb], z.x, ONES, z.y, ONES, w[j][nb].x, w[j][nb].y);
            mma(mixed.side[nb], z.z, ONES, z.w, ONES, w[j][nb].z, w[j][nb].w);
        }
#pragma unroll
        for (int g = 0; g < F::GROUPS; g++) {
            const uint4 s = load4(heads + g * 256 + j * 64);
            uint4 p[NB];
#pragma unroll
            for (int nb = 0; nb < NB; nb++)
                p[nb] = make_uint4(mul2(w[j][nb].x, s.x), mul2(w[j][nb].y, s.y), mul2(w[j][nb].z, s.z),
                                   mul2(w[j][nb].w, s.w));
#pragma unroll
            for (int b = g * F::IN_GROUP; b < (g + 1) * F::IN_GROUP; b++)
                add_four<NB>(mixed.values[2 * b], mixed.values[2 * b + 1], codes + b * 1024 + j * 512, 0x00080008u, p);
        }
    }
}

// Reads the query vectors of a share into shared memory, each below 1/2: as prepare_queries does, but those for the body high alone and in the order
// of operands. LANE: with second quads divided by 16, and their sums by group.
template <int NB, bool LANE, int GROUP>
__device__ void prepare_four(const Args &a, const kvt_cuda_share &share, char *queries, float *term_sums,
                             float *factors, int warp, int n_warps, int lane) {
    constexpr int STRIDE = Queries<128, NB>::STRIDE, BYTES = Queries<128, NB>::BYTES;
    const kvt_cuda_attend &call = a.call;
    for (int column = warp; column < 8 * NB; column += n_warps) {
        const int vector = share.column + column, row = vector / call.group;
        float q[4] = {};
        if (row < share.n_rows) {
            const ptrdiff_t at = (share.row + row) * call.q_row_stride +
                                 (share.head * call.group + vector % call.group) * call.q_head_stride + 4 * lane;
#pragma unroll
            for (int i = 0; i < 4; i++)
                q[i] = call.q_type == KVT_TYPE_F32 ? ((const float *)call.q)[at + i]
                       : call.q_type == KVT_TYPE_F16
                           ? __half2float(((const __half *)call.q)[at + i])
                           : __uint_as_float((uint32_t)((const uint16_t *)call.q)[at + i] << 16);
        }
        float most = fmaxf(fmaxf(fabsf(q[0]), fabsf(q[1])), fmaxf(fabsf(q[2]), fabsf(q[3])));
#pragma unroll
        for (int d = 1; d < 32; d *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
        const int exponent = (int)(__float_as_uint(most) >> 23) - 125; // most < 2^(exponent - 1)
        const int e = most > 0 ? max(-100, min(100, exponent)) : 0;
        const float down = __uint_as_float((uint32_t)(127 - e) << 23);
        if (lane == 0) factors[column] = __uint_as_float((uint32_t)(127 + e) << 23) * call.scale;
#pragma unroll
        for (int i = 0; i < 4; i++) q[i] *= down;
        const uint32_t q01 = pack(q[0], q[1]), q23 = pack(q[2], q[3]);
        const float2 f01 = __half22float2(halves_of(q01)), f23 = __half22float2(halves_of(q23));
        char *to = queries + column * STRIDE + 8 * lane;
        *(uint2 *)to = make_uint2(q01, q23);
        *(uint2 *)(to + BYTES) = make_uint2(pack(q[0] - f01.x, q[1] - f01.y), pack(q[2] - f23.x, q[3] - f23.y));
        const uint32_t times = LANE && lane % 2 ? SIXTEENTHS : ONES;
        *(uint2 *)(to + 2 * BYTES) = make_uint2(mul2(lows(q01, q23), times), mul2(highs(q01, q23), times));
        if (LANE) {
            float sum = f01.x + f01.y + f23.x + f23.y;
#pragma unroll
            for (int d = 1; d < GROUP / 4; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
            if (lane % (GROUP / 4) == 0) term_sums[lane / (GROUP / 4) * 8 * NB + column] = sum;
        }
    }
}

} // namespace kvt

#endif
