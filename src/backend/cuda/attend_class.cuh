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

// What a class of channels has in codes of BITS in the middle: the widths of the two parts of its codes, and where its queries begin for each.
struct ClassOf {
    int first, bits; // place of its first channel; of its codes
    int width[2], place[2];
};
// Heads of 128. Planes lie one after another in a block: of 1 bit, of 4, of 2; queries are laid out for those of 4 bits, of 2, of 1.
template <int BITS> struct ClassLayout {
    static constexpr int STEPS_4 = BITS == 4   ? 3
                                   : BITS == 3 ? 1
                                               : 0,
                         STEPS_2 = BITS == 4 ? 1 : 3, STEPS_1 = 2; // 32s of places
    static constexpr int VECTOR_1 = 0, VECTOR_4 = 2, VECTOR_2 = 2 + 4 * STEPS_4, VECTORS = 4 * BITS;
    static constexpr int PLACE_4 = 0, PLACE_2 = 32 * STEPS_4, PLACE_1 = PLACE_2 + 32 * STEPS_2, PLACES = PLACE_1 + 64;
    static __device__ __forceinline__ constexpr ClassOf of(int k) {
        if (BITS == 4)
            return k == 0   ? ClassOf{0, 5, {4, 1}, {PLACE_4, PLACE_1}}
                   : k == 1 ? ClassOf{32, 4, {4, 0}, {PLACE_4 + 32, 0}}
                            : ClassOf{96, 3, {2, 1}, {PLACE_2, PLACE_1 + 32}};
        if (BITS == 3)
            return k == 0   ? ClassOf{0, 4, {4, 0}, {PLACE_4, 0}}
                   : k == 1 ? ClassOf{32, 3, {2, 1}, {PLACE_2, PLACE_1}}
                            : ClassOf{96, 2, {2, 0}, {PLACE_2 + 64, 0}};
        return k == 0   ? ClassOf{0, 3, {2, 1}, {PLACE_2, PLACE_1}}
               : k == 1 ? ClassOf{32, 2, {2, 0}, {PLACE_2 + 32, 0}}
                        : ClassOf{96, 1, {1, 0}, {PLACE_1 + 32, 0}};
    }
    // A unit in its slot: codes of two blocks, the tile's head with scales and zeros, the rows' factors; then what the warp makes: the queries at
    // their places, eight columns of each, and the middles of all channels, in two f16 that add up to each.
    static constexpr int SCALES = 64, ZEROS = 192, FACTORS = 448; // in the tile, whose head these bytes are
    static constexpr int BLOCK = 128 * VECTORS, HEAD = 2 * BLOCK, ROWS = HEAD + FACTORS, QUERIES = ROWS + 64,
                         MIDDLES = QUERIES + 16 * PLACES, BYTES = MIDDLES + 512;
};

// Vectors are turned by their number, so that the four of an octet's 4-bit codes, or the two of 2-bit codes, meet no bank twice.
__device__ __forceinline__ uint32_t class_chunk(int vector, int chunk) {
    return vector * 128 + 16 * (chunk ^ 2 * (vector & 3));
}
template <int BITS>
__device__ __forceinline__ void fetch_class_keys(uint32_t slot, const char *tile, int half, int lane) {
    using L = ClassLayout<BITS>;
    const char *codes = tile + L::FACTORS + 128 + half * L::HEAD + 16 * lane; // two blocks, one after the other
    const uint32_t to = slot + class_chunk(lane / 8, lane % 8);
#pragma unroll
    for (int i = 0; i < L::HEAD / 512; i++) copy16(to + 512 * i, codes + 512 * i);
    if (lane < L::FACTORS / 16) copy16(slot + L::HEAD + 16 * lane, tile + 16 * lane);
    if (lane < 4) copy16(slot + L::ROWS + 16 * lane, tile + L::FACTORS + 64 * half + 16 * lane);
}

// Where place p of the queries lies, so that the eight lines of a matrix that load_transposed takes meet no bank twice.
__device__ __forceinline__ int turned_place(int p) { return p ^ ((p >> 3 & 1) | (p >> 4 & 1) << 2); }

// Places of channels 4 lane .. 4 lane + 3, a byte each, of a map whose classes have other sizes than they should: kvt_class_read_map.
static __device__ __noinline__ uint32_t places_of_damaged(uint32_t map, int lane) {
    int next[KVT_CLASSES] = {0, 32, 96};
    uint32_t places = 0;
    for (int c = 0; c < 128; c++) {
        int k = min((int)(load_byte(map + c / 4) >> c % 4 * 2 & 3), KVT_CLASSES - 1);
        const int end[KVT_CLASSES] = {32, 96, 128};
        while (next[k] == end[k]) k = (k + 1) % KVT_CLASSES;
        if (c / 4 == lane) places |= (uint32_t)next[k] << c % 4 * 8;
        next[k]++;
    }
    return places;
}

// The same of any map: a channel is behind those of its class in lower lanes, and in its own before it.
__device__ __forceinline__ uint32_t places_of(uint32_t map, int lane) {
    const uint32_t classes = load_byte(map + lane), below = (1u << lane) - 1;
    int n0 = 0, n1 = 0, all0 = 0, all1 = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint32_t k = classes >> 2 * j & 3, of0 = __ballot_sync(~0u, k == 0), of1 = __ballot_sync(~0u, k == 1);
        n0 += __popc(of0 & below), n1 += __popc(of1 & below);
        all0 += __popc(of0), all1 += __popc(of1);
    }
    if (all0 != 32 || all1 != 64) return places_of_damaged(map, lane);
    uint32_t places = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint32_t k = classes >> 2 * j & 3;
        places |= (k == 0 ? n0 : k == 1 ? 32 + n1 : 96 + (4 * lane + j - n0 - n1)) << 8 * j;
        n0 += k == 0, n1 += k == 1;
    }
    return places;
}

// 2^n as f16, twice.
__device__ __forceinline__ uint32_t power2(int n) { return (uint32_t)(15 + n) * 0x04000400u; }

// Queries to their places, times the scales, and middles to their channels. by_channel: see put_by_channel.
template <int NB, int BITS>
__device__ __forceinline__ void prepare_class(uint32_t slot, uint32_t by_channel, int lane) {
    static_assert(NB == 1, "a place has room for eight columns");
    using L = ClassLayout<BITS>;
    const uint32_t head = slot + L::HEAD, places = places_of(head + KVT_CLASS_MAP, lane);
    const uint2 words = load2(head);
    const float2 most01 = __half22float2(halves_of(words.x)), most2 = __half22float2(halves_of(words.y));
    uint32_t scales[4], zeros[4];
    uint4 q[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int place = places >> 8 * j & 255;
        scales[j] = load_byte(head + L::SCALES + place), zeros[j] = load_half(head + L::ZEROS + 2 * place);
        q[j] = load4(by_channel + (j * 32 + lane) * 16);
    }
    float middle[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int place = places >> 8 * j & 255, k = place < 32 ? 0 : place < 96 ? 1 : 2;
        const ClassOf c0 = L::of(0), c1 = L::of(1), c2 = L::of(2);
#define OF(field) (k == 0 ? c0.field : k == 1 ? c1.field : c2.field)
        const int rank = place - OF(first), odd = rank >> 2 & 1; // its quad in the octet
        const float scale = (k == 0   ? most01.x
                             : k == 1 ? most01.y
                                      : most2.x) *
                            exp2_of((float)scales[j] * (-1.f / KVT_CLASS_SCALE_PER));
        middle[j] = fmaf(scale, 0.5f * (float)((1 << OF(bits)) - 1), __half22float2(halves_of(zeros[j])).x);
        const int width0 = OF(width[0]), width1 = OF(width[1]);
        const uint32_t times = splat(scale), down0 = power2(odd ? -width0 : 0),
                       up1 = power2(width0 - (odd ? width1 : 0)), to = slot + L::QUERIES;
        uint4 x = q[j];
        x.x = mul2(x.x, times), x.y = mul2(x.y, times), x.z = mul2(x.z, times), x.w = mul2(x.w, times);
        store4(to + turned_place(OF(place[0]) + rank) * 16,
               make_uint4(mul2(x.x, down0), mul2(x.y, down0), mul2(x.z, down0), mul2(x.w, down0)));
        if (width1)
            store4(to + turned_place(OF(place[1]) + rank) * 16,
                   make_uint4(mul2(x.x, up1), mul2(x.y, up1), mul2(x.z, up1), mul2(x.w, up1)));
#undef OF
    }
    const uint32_t high0 = pack(middle[0], middle[1]), high1 = pack(middle[2], middle[3]);
    const float2 f0 = __half22float2(halves_of(high0)), f1 = __half22float2(halves_of(high1));
    const uint32_t middles = slot + L::MIDDLES + 8 * lane;
    store2(middles, make_uint2(high0, high1));
    store2(middles + 256,
           make_uint2(pack(middle[0] - f0.x, middle[1] - f0.y), pack(middle[2] - f1.x, middle[3] - f1.y)));
}

// The plane of codes of W bits: STEPS times 32 places, from a vector and from a place of the queries on. h: the sum of what is multiplied with
// all codes at their largest.
template <int NB, int BITS, int W, int STEPS, int VECTOR, int PLACE>
__device__ __forceinline__ void add_class_plane(Sums<NB> &s, float (&h)[NB][4], uint32_t slot, int lane) {
    using L = ClassLayout<BITS>;
    const int r = lane / 4, c = lane % 4, shift = W == 4 ? 0 : W == 2 ? 4 * (c % 2) : 2 * c;
    const uint32_t mask = ((1u << W) - 1) * 0x00010001u, high = mask << W;
    // Line lane % 8 of matrices 0 to 3: terms 0 and 2, 4 and 6, 1 and 3, 5 and 7 of octets 0 to 3.
    const int line = lane % 8, matrix = lane / 8;
    const int term = 8 * (line / 2) + 4 * (matrix % 2) + matrix / 2 + 2 * (line % 2);
    const uint32_t from = slot + L::QUERIES + (PLACE + turned_place(term)) * 16;
    const int vector = VECTOR + (W == 4 ? c : W == 2 ? c / 2 : 0);
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
        const uint4 b = load_transposed(from + 512 * i);
        mma(h[0], mask, 0, high, 0, b.x, b.y);
        mma(h[0], mask, 0, high, 0, b.z, b.w);
#pragma unroll
        for (int block = 0; block < 2; block++) {
            const uint4 chunk = load4(slot + class_chunk(vector + W * i + block * L::VECTORS, r));
#pragma unroll
            for (int t = 0; t < 2; t++) {
                const uint32_t x = word_of(chunk, 2 * t) >> shift, y = word_of(chunk, 2 * t + 1) >> shift;
                mma(s[block][t][0], x & mask, y & mask, x & high, y & high, b.x, b.y);
                mma(s[block][t][0], x >> 8 & mask, y >> 8 & mask, x >> 8 & high, y >> 8 & high, b.z, b.w);
            }
        }
    }
}

// Scores of a unit of such keys.
template <int NB, int BITS>
__device__ __forceinline__ void score_class(Sums<NB> &x, uint32_t slot, const Queries<128, NB> &q, int lane) {
    using L = ClassLayout<BITS>;
    const int r = lane / 4, c = lane % 4;
    prepare_class<NB, BITS>(slot, q.high + 2 * Queries<128, NB>::BYTES, lane);
    __syncwarp();
    float h[NB][4] = {}, z[4] = {};
    const uint32_t middles = slot + L::MIDDLES + (r % 2) * 256 + c * 16; // even lines have the larger part
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint4 m = load4(middles + i * 64), qh = q.high_octet(0, i, r, c), ql = q.low_octet(0, i, r, c);
        mma(z, m.x, 0, m.y, 0, qh.x, qh.y);
        mma(z, m.z, 0, m.w, 0, qh.z, qh.w);
        mma(z, m.x, 0, m.y, 0, ql.x, ql.y);
        mma(z, m.z, 0, m.w, 0, ql.z, ql.w);
    }
    add_class_plane<NB, BITS, 4, L::STEPS_4, L::VECTOR_4, L::PLACE_4>(x, h, slot, lane);
    add_class_plane<NB, BITS, 2, L::STEPS_2, L::VECTOR_2, L::PLACE_2>(x, h, slot, lane);
    add_class_plane<NB, BITS, 1, L::STEPS_1, L::VECTOR_1, L::PLACE_1>(x, h, slot, lane);
    float middle[2], less[2];
#pragma unroll
    for (int e = 0; e < 2; e++) middle[e] = z[e] + __shfl_xor_sync(~0u, z[e], 4), less[e] = -0.5f * h[0][e];
#pragma unroll
    for (int block = 0; block < 2; block++) {
        const uint32_t stored = load_word(slot + L::ROWS + 32 * block + 4 * r);
        float factor[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            factor[i] = exp2_of((float)(int8_t)(stored >> 8 * i) * (1.f / KVT_CLASS_FACTOR_PER)) * SUBNORMALS;
#pragma unroll
        for (int t = 0; t < 2; t++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                x[block][t][0][e] = fmaf(factor[2 * t + e / 2], x[block][t][0][e] + less[e % 2], middle[e % 2]);
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
template <int D, class V>
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
