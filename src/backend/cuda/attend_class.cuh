/* SPDX-License-Identifier: Apache-2.0
 *
 * kq and vu on the fast path. Keys whose channels have three widths (docs/formats.md, section 9): the warp gathers the queries into the places
 * of their channels and multiplies them by the scales, once for a unit, in the order of the planes of codes; a channel whose code lies in two
 * planes is there twice. Then each plane is a run of vectors, whatever class they belong to. With n = 2^width - 1 of a channel, a score is
 *
 *     sum of q * middle + factor(row) * (sum of q * scale * code - sum of q * scale * n / 2)
 *
 * Values with scales and zeros of a byte each become ones with f16 where they lie, and are then read like others.
 */
#ifndef BACKEND_CUDA_ATTEND_CLASS_CUH
#define BACKEND_CUDA_ATTEND_CLASS_CUH

extern "C" {
#include "codec/class.h"
}

#include "backend/cuda/attend_score.cuh"

namespace kvt {

// A unit of such keys in its slot: codes of two blocks, the tile's head with scales and zeros, the rows' factors; then what the warp makes: the
// queries at their places, eight columns of each, and the middles of all channels, in two f16 that add up to each.
template <int D, int NB> struct ClassSlot {
    __host__ __device__ static __forceinline__ uint32_t head(const Classes &k) { return 2 * k.block_bytes; }
    __host__ __device__ static __forceinline__ uint32_t factors(const Classes &k) { return head(k) + k.head_bytes; }
    __host__ __device__ static __forceinline__ uint32_t queries(const Classes &k) { return factors(k) + 64; }
    __host__ __device__ static __forceinline__ uint32_t middles(const Classes &k) {
        return queries(k) + NB * k.n_places * 16;
    }
    __host__ static size_t bytes(const Classes &k) { return middles(k) + 4 * D; }
};

// Vectors are turned by their number, so that the four of an octet's 4-bit codes, or the two of 2-bit codes, meet no bank twice.
__device__ __forceinline__ uint32_t class_chunk(int vector, int chunk) {
    return vector * 128 + 16 * (chunk ^ 2 * (vector & 3));
}
template <int D, int NB>
__device__ __forceinline__ void fetch_class_keys(uint32_t slot, const char *tile, const Side &k, int half, int lane) {
    using S = ClassSlot<D, NB>;
    const Classes &of = k.classes;
    const char *codes = tile + k.codes[2 * half] + 16 * lane; // two blocks, one after the other
    const uint32_t to = slot + class_chunk(lane / 8, lane % 8);
#pragma unroll
    for (int i = 0; i < D / 16; i++) // of 4 bits in the middle
        if (512 * i + 16 * lane < (int)(2 * of.block_bytes)) copy16(to + 512 * i, codes + 512 * i);
    for (int i = lane; i < (int)of.head_bytes / 16; i += 32) copy16(slot + S::head(of) + 16 * i, tile + 16 * i);
    if (lane < 4) copy16(slot + S::factors(of) + 16 * lane, tile + k.factors[2 * half] + 16 * lane);
}

// Where place p of the queries lies, so that the eight lines of a matrix that load_transposed takes meet no bank twice.
__device__ __forceinline__ int turned_place(int p) { return p ^ ((p >> 3 & 1) | (p >> 4 & 1) << 2); }

// Places of channels 4 lane .. 4 lane + 3, a byte each, of a map whose classes have other sizes than they should: kvt_class_read_map.
template <int D> __device__ __noinline__ uint32_t places_of_damaged(uint32_t map, int lane) {
    int next[KVT_CLASSES] = {0, D / 4, 3 * D / 4};
    uint32_t places = 0;
    for (int c = 0; c < D; c++) {
        int k = min((int)(load_byte(map + c / 4) >> c % 4 * 2 & 3), KVT_CLASSES - 1);
        const int end[KVT_CLASSES] = {D / 4, 3 * D / 4, D};
        while (next[k] == end[k]) k = (k + 1) % KVT_CLASSES;
        if (c / 4 == lane) places |= (uint32_t)next[k] << c % 4 * 8;
        next[k]++;
    }
    return places;
}

// The same of any map. Classes are counted over the lanes, two of them in the halves of a word.
template <int D> __device__ __forceinline__ uint32_t places_of(uint32_t map, int lane) {
    const uint32_t classes = load_byte(map + lane);
    uint32_t own = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint32_t k = classes >> 2 * j & 3;
        own += k == 0 ? 1 : k == 1 ? 0x10000 : 0;
    }
    uint32_t all = own;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const uint32_t other = __shfl_up_sync(~0u, all, d);
        if (lane >= d) all += other;
    }
    if (__shfl_sync(~0u, all, 31) != (D / 4 | D / 2 << 16)) return places_of_damaged<D>(map, lane);
    uint32_t before = all - own, places = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint32_t k = classes >> 2 * j & 3, n0 = before & 0xffff, n1 = before >> 16;
        places |= (k == 0 ? n0 : k == 1 ? D / 4 + n1 : 3 * D / 4 + (4 * lane + j - n0 - n1)) << 8 * j;
        before += k == 0 ? 1 : k == 1 ? 0x10000 : 0;
    }
    return places;
}

// 2^n as f16, twice.
__device__ __forceinline__ uint32_t power2(int n) { return (uint32_t)(15 + n) * 0x04000400u; }

// Queries to their places, times the scales, and middles to their channels. by_channel: queries, see QueriesByChannel.
template <int D, int NB>
__device__ __forceinline__ void prepare_class(uint32_t slot, const Classes &of, uint32_t by_channel, int lane) {
    static_assert(D == 128, "a lane takes four channels");
    using S = ClassSlot<D, NB>;
    const uint32_t head = slot + S::head(of), places = places_of<D>(head + KVT_CLASS_MAP, lane);
    const uint2 words = load2(head);
    const float2 most01 = __half22float2(halves_of(words.x)), most2 = __half22float2(halves_of(words.y));
    uint32_t high[2], low[2];
    float before = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int place = places >> 8 * j & 255, k = place < D / 4 ? 0 : place < 3 * D / 4 ? 1 : 2;
        const uint32_t its = k == 0 ? of.of[0] : k == 1 ? of.of[1] : of.of[2];
        const int rank = place - (k == 0   ? 0
                                  : k == 1 ? D / 4
                                           : 3 * D / 4),
                  odd = rank >> 2 & 1; // its quad in the octet
        const int width0 = its >> 20 & 7, width1 = its >> 23 & 7, bits = its >> 26;
        const float scale = (k == 0   ? most01.x
                             : k == 1 ? most01.y
                                      : most2.x) *
                            exp2_of((float)load_byte(head + of.scales + place) * (-1.f / KVT_CLASS_SCALE_PER));
        const float zero = __half22float2(halves_of(load_half(head + of.zeros + 2 * place))).x;
        const float middle = fmaf(scale, 0.5f * (float)((1 << bits) - 1), zero);
        if (j % 2) {
            const float2 f = __half22float2(halves_of(high[j / 2] = pack(before, middle)));
            low[j / 2] = pack(before - f.x, middle - f.y);
        }
        before = middle;
        const uint32_t times = splat(scale), down0 = power2(odd ? -width0 : 0),
                       up1 = power2(width0 - (odd ? width1 : 0));
        const uint32_t to = slot + S::queries(of);
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            uint4 q = load4(by_channel + ((nb * 4 + j) * 32 + lane) * 16);
            q.x = mul2(q.x, times), q.y = mul2(q.y, times), q.z = mul2(q.z, times), q.w = mul2(q.w, times);
            store4(to + (nb * of.n_places + turned_place((its & 1023) + rank)) * 16,
                   make_uint4(mul2(q.x, down0), mul2(q.y, down0), mul2(q.z, down0), mul2(q.w, down0)));
            if (width1)
                store4(to + (nb * of.n_places + turned_place((its >> 10 & 1023) + rank)) * 16,
                       make_uint4(mul2(q.x, up1), mul2(q.y, up1), mul2(q.z, up1), mul2(q.w, up1)));
        }
    }
    const uint32_t middles = slot + S::middles(of) + 8 * lane;
    store2(middles, make_uint2(high[0], high[1]));
    store2(middles + 2 * D, make_uint2(low[0], low[1]));
}

// All 32s of places of the plane of codes of W bits. h: the sum of what is multiplied with all codes at their largest.
template <int D, int NB, int W>
__device__ __forceinline__ void add_class_plane(Sums<NB> &s, float (&h)[NB][4], uint32_t slot, const Classes &of,
                                                const ClassPlane &plane, int lane) {
    using S = ClassSlot<D, NB>;
    const int r = lane / 4, c = lane % 4, shift = W == 4 ? 0 : W == 2 ? 4 * (c % 2) : 2 * c;
    const uint32_t mask = ((1u << W) - 1) * 0x00010001u, high = mask << W;
    // Line lane % 8 of matrices 0 to 3: terms 0 and 2, 4 and 6, 1 and 3, 5 and 7 of octets 0 to 3.
    const int line = lane % 8, matrix = lane / 8;
    const int term = 8 * (line / 2) + 4 * (matrix % 2) + matrix / 2 + 2 * (line % 2);
    uint32_t from = slot + S::queries(of) + (plane.place + turned_place(term)) * 16;
    int vector = plane.vector + (W == 4 ? c : W == 2 ? c / 2 : 0);
    const int next = of.block_bytes / 128;
#pragma unroll 1
    for (int i = 0; i < plane.steps; i++, vector += W, from += 32 * 16) {
        uint4 b[NB];
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            b[nb] = load_transposed(from + nb * of.n_places * 16);
            mma(h[nb], mask, 0, high, 0, b[nb].x, b[nb].y);
            mma(h[nb], mask, 0, high, 0, b[nb].z, b[nb].w);
        }
#pragma unroll
        for (int block = 0; block < 2; block++) {
            const uint4 chunk = load4(slot + class_chunk(vector + block * next, r));
#pragma unroll
            for (int t = 0; t < 2; t++) {
                const uint32_t x = word_of(chunk, 2 * t) >> shift, y = word_of(chunk, 2 * t + 1) >> shift;
#pragma unroll
                for (int nb = 0; nb < NB; nb++) {
                    mma(s[block][t][nb], x & mask, y & mask, x & high, y & high, b[nb].x, b[nb].y);
                    mma(s[block][t][nb], x >> 8 & mask, y >> 8 & mask, x >> 8 & high, y >> 8 & high, b[nb].z, b[nb].w);
                }
            }
        }
    }
}

// Scores of a unit of such keys.
template <int D, int NB>
__device__ __forceinline__ void score_class(Sums<NB> &x, uint32_t slot, const Classes &of, const Queries<D, NB> &q,
                                            int lane) {
    using S = ClassSlot<D, NB>;
    const int r = lane / 4, c = lane % 4;
    prepare_class<D, NB>(slot, of, q.high + 2 * Queries<D, NB>::BYTES, lane);
    __syncwarp();
    float h[NB][4] = {}, z[NB][4] = {};
    const uint32_t middles = slot + S::middles(of) + (r % 2) * 2 * D + c * 16; // even lines have the larger part
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        const uint4 m = load4(middles + i * 64);
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            const uint4 qh = q.high_octet(nb, i, r, c), ql = q.low_octet(nb, i, r, c);
            mma(z[nb], m.x, 0, m.y, 0, qh.x, qh.y);
            mma(z[nb], m.z, 0, m.w, 0, qh.z, qh.w);
            mma(z[nb], m.x, 0, m.y, 0, ql.x, ql.y);
            mma(z[nb], m.z, 0, m.w, 0, ql.z, ql.w);
        }
    }
    add_class_plane<D, NB, 4>(x, h, slot, of, of.plane[0], lane);
    add_class_plane<D, NB, 2>(x, h, slot, of, of.plane[1], lane);
    add_class_plane<D, NB, 1>(x, h, slot, of, of.plane[2], lane);
#pragma unroll
    for (int block = 0; block < 2; block++) {
        const uint32_t stored = load_word(slot + S::factors(of) + 32 * block + 4 * r);
        float factor[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            factor[i] = exp2_of((float)(int8_t)(stored >> 8 * i) * (1.f / KVT_CLASS_FACTOR_PER)) * SUBNORMALS;
#pragma unroll
        for (int nb = 0; nb < NB; nb++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float middle = z[nb][e % 2] + __shfl_xor_sync(~0u, z[nb][e % 2], 4), less = -0.5f * h[nb][e % 2];
                x[block][0][nb][e] = fmaf(factor[e / 2], x[block][0][nb][e] + less, middle);
                x[block][1][nb][e] = fmaf(factor[2 + e / 2], x[block][1][nb][e] + less, middle);
            }
    }
}

// Scales and zeros of a byte, of a unit of values: fetched behind the room of f16 ones, 64 scales and 64 zeros of each group.
template <int D>
__device__ __forceinline__ void fetch_log_scales(uint32_t slot, const char *tile, const Side &v, int half, int lane) {
    const int g = lane / 8, part = lane % 8; // D is at most 256, two groups
    if (g < v.groups)
        copy16(slot + ValueSlot<D>::factors(v, 0) + 16 * lane,
               tile + v.scales[g << v.per_log] + (part / 4 ? v.scale_bytes : 0) + half * 64 + part % 4 * 16);
}
template <int D, Values V>
__device__ __forceinline__ void fetch_body_values(uint32_t slot, const char *tile, const Side &v, int half, int lane) {
    fetch_values<D, V>(slot, tile, v, half, lane);
    if (v.logs) fetch_log_scales<D>(slot, tile, v, half, lane);
}
template <int D> __device__ __forceinline__ void unpack_log_scales(uint32_t slot, const Side &v, int lane) {
    const float unit = (float)((1 << v.bits) - 1) / KVT_SHIFT_UNIT;
#pragma unroll
    for (int g = 0; g < (D + 127) / 128; g++) { // two rows of a lane
        const uint32_t from = slot + ValueSlot<D>::factors(v, 0) + 128 * g + 2 * lane;
        const uint32_t c = load_half(from), r = load_half(from + 64);
        const float s0 = exp2_of((float)((int)(c & 255) - KVT_LOG_BIAS) * (1.f / KVT_LOG_PER)),
                    s1 = exp2_of((float)((int)(c >> 8) - KVT_LOG_BIAS) * (1.f / KVT_LOG_PER));
        const float z0 = s0 * (unit * (float)((int8_t)r - KVT_SHIFT_UNIT / 2)),
                    z1 = s1 * (unit * (float)((int8_t)(r >> 8) - KVT_SHIFT_UNIT / 2));
        store_word(slot + ValueSlot<D>::scales(v, g) + 4 * lane, pack(s0, s1));
        store_word(slot + ValueSlot<D>::zeros(v, g) + 4 * lane, pack(z0, z1));
    }
    __syncwarp();
}

} // namespace kvt

#endif
