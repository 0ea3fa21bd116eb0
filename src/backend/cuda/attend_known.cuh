/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies in heads of 128 whose codes and layout are known when the kernel is compiled: half the instructions of a kernel for any.
 *
 * A code's byte is its term's place in a quad, so the words of an octet's operand are the pairs (0 2) (1 3) of its first quad and (4 6)
 * (5 7) of its second, whose codes count 2^bits times where they lie above the first one's in the same byte. Scales and zeros lie in natural
 * order. They are turned in their slot, once for all columns and rows that use them, and the second quads' scales divided by 2^bits there;
 * queries are prepared in the same order.
 */
#ifndef BACKEND_CUDA_ATTEND_KNOWN_CUH
#define BACKEND_CUDA_ATTEND_KNOWN_CUH

#include "backend/cuda/attend_mix.cuh"

namespace kvt {

// What a kernel knows. BITS: 2, 4 or 8; GROUP: lanes or, BY_TOKEN, terms that share a scale; ZERO: and a zero, otherwise an offset of all
// codes; FACTOR: another multiplier for each lane, and rows that are turned.
template <int BITS_, int GROUP_, bool BY_TOKEN_, bool ZERO_, bool FACTOR_> struct KnownKeys {
    static constexpr bool KNOWN = true, TABLED = false, BY_TOKEN = BY_TOKEN_, ZERO = ZERO_, FACTOR = FACTOR_,
                          REST = BITS_ == 8;
    static constexpr int BITS = BITS_, GROUP = GROUP_, OFFSET = 1 << (BITS - 1),
                         CLASS_BITS = 0; // OFFSET: without zeros
    // A unit in the tile: heads (scales, then zeros), factors and codes of its two blocks; blocks that share scales have one head.
    static constexpr bool ONE_HEAD = !BY_TOKEN && GROUP > 32;
    static constexpr int SCALES = BY_TOKEN ? 128 / GROUP * 64 : 256, HEAD = SCALES * (ZERO ? 2 : 1); // bytes
    static constexpr int CODES = 512 * BITS, PAYLOAD = CODES + (FACTOR ? 64 : 0);                    // of a block
    static constexpr int BLOCK = ONE_HEAD ? PAYLOAD : HEAD + PAYLOAD;                                // block to block
    static constexpr int UNIT = 2 * BLOCK + (ONE_HEAD && GROUP == 64 ? HEAD : 0);                    // unit to unit
    static constexpr int TILE = 2 * UNIT + (ONE_HEAD && GROUP == 128 ? HEAD : 0);
    // In the slot: heads, factors, codes.
    static constexpr int HEADS = ONE_HEAD ? HEAD : 2 * HEAD, TO_CODES = HEADS + (FACTOR ? 128 : 0),
                         SLOT = TO_CODES + 2 * CODES;
};
// Values: groups are of channels.
template <int BITS_, int GROUP_, bool ZERO_, bool FACTOR_> struct KnownValues {
    static constexpr bool KNOWN = true, LOGS = false, TABLED = false, ZERO = ZERO_, FACTOR = FACTOR_;
    static constexpr int BITS = BITS_, GROUP = GROUP_, OFFSET = 1 << (BITS - 1);
    static constexpr int GROUPS = 128 / GROUP, IN_GROUP = GROUP / 32; // blocks
    static constexpr int HEAD = ZERO ? 512 : 256, CODES = 512 * BITS, PAYLOAD = CODES + (FACTOR ? 64 : 0);
    static constexpr int STRIDE = HEAD + IN_GROUP * PAYLOAD; // from group to group
    // In the slot: 64 scales and 64 zeros of each group, factors, codes.
    static constexpr int HEADS = GROUPS * (ZERO ? 256 : 128), TO_CODES = HEADS + (FACTOR ? 256 : 0),
                         SLOT = TO_CODES + 4 * CODES / 2;
    static_assert(!FACTOR || GROUP == 128, "one group has the factors of all channels");
};
// ---- into the slot ------------------------------------------------------------------------------------------------------

// Copies N bytes of codes, from FROM bytes after `from`, to TO bytes after `to`, where chunks of 16 bytes are moved within their vector so that lanes
// that read theirs meet no bank twice. `even`, `odd`: where the lane's chunks of 512 bytes go.
template <int N, int TO, int FROM>
__device__ __forceinline__ void copy_known(uint32_t even, uint32_t odd, const char *from) {
    if constexpr (N > 0) {
        copy16_at<TO, FROM>(even, from);
        copy_known<N - 512, TO + 512, FROM + 512>(odd, even, from);
    }
}
template <int BITS> __device__ __forceinline__ uint32_t known_to(uint32_t codes, int lane) {
    const int v = lane / 8, turn = BITS == 8 ? v / 2 * 2 : v * 2;
    return codes + v * 128 + 16 * (lane % 8 ^ turn);
}
// Where the lane's chunk of octet c of the first 32 terms is, and how far the next 32 are.
template <int BITS> __device__ __forceinline__ uint32_t known_at(int lane) {
    const int r = lane / 4, c = lane % 4;
    return BITS == 2 ? c / 2 * 128 + 16 * (r ^ c / 2 * 2) : c * (BITS / 4) * 128 + 16 * (r ^ c * 2);
}
template <int BITS> __device__ __forceinline__ uint32_t known_at(uint32_t base, int i) {
    return BITS == 2 ? (base + 256 * i) ^ (i % 2 * 64) : base + 128 * BITS * i;
}

template <class K>
__device__ __forceinline__ void fetch_known_keys(uint32_t slot, const char *tile, int half, int lane) {
    constexpr int IN_HEAD = K::HEAD / 16, CODES = K::HEAD + (K::FACTOR ? 64 : 0);
    const char *unit = tile + (half * K::UNIT + 16 * lane);
    const char *heads = (K::ONE_HEAD && K::GROUP == 128 ? tile + 16 * lane : unit) +
                        (IN_HEAD < 32 ? lane / IN_HEAD * (K::BLOCK - K::HEAD) : 0);
    copy16_at<0, 0>(slot + 16 * lane, heads);
    if constexpr (K::HEADS > 512) copy16_at<512, K::BLOCK>(slot + 16 * lane, heads);
    static_assert(K::HEADS == 512 || (K::HEADS == 1024 && IN_HEAD == 32), "one copy of every lane for 512 bytes");
    if (K::FACTOR && lane < 8) copy16_at<K::HEADS, K::HEAD>(slot + 16 * lane, unit + lane / 4 * (K::BLOCK - 64));
    const uint32_t to = known_to<K::BITS>(slot, lane), odd = K::BITS == 8 ? to ^ 64 : to;
    copy_known<K::CODES, K::TO_CODES, CODES>(to, odd, unit);
    copy_known<K::CODES, K::TO_CODES + K::CODES, CODES + K::BLOCK>(to, odd, unit);
}

template <class V>
__device__ __forceinline__ void fetch_known_values(uint32_t slot, const char *tile, int half, int lane) {
    constexpr int EACH = V::ZERO ? 16 : 8; // chunks of a group's head
    const char *heads = tile + (half * 128 + lane / EACH * V::STRIDE + lane % EACH / 8 * 256 + lane % 8 * 16);
    if (V::HEADS >= 512 || lane < V::HEADS / 16) copy16_at<0, 0>(slot + 16 * lane, heads);
    if constexpr (V::HEADS > 512) copy16_at<512, 32 / EACH * V::STRIDE>(slot + 16 * lane, heads);
    static_assert(V::HEADS <= 1024, "two copies");
    if (V::FACTOR && lane < 16)
        copy16_at<V::HEADS, V::HEAD>(slot + 16 * lane, tile + (lane / 4 * V::PAYLOAD + lane % 4 * 16));
    constexpr int CODES = V::HEAD + (V::FACTOR ? 64 : 0), N = V::CODES / 2, TO = V::TO_CODES,
                  IN = V::IN_GROUP; // of a half of a block
    const char *from = tile + (half * N + 16 * lane);
    const uint32_t to = known_to<V::BITS>(slot, lane), odd = V::BITS == 8 ? to ^ 64 : to;
    copy_known<N, TO, CODES>(to, odd, from);
    copy_known<N, TO + N, CODES + 1 / IN * V::STRIDE + 1 % IN * V::PAYLOAD>(to, odd, from);
    copy_known<N, TO + 2 * N, CODES + 2 / IN * V::STRIDE + 2 % IN * V::PAYLOAD>(to, odd, from);
    copy_known<N, TO + 3 * N, CODES + 3 / IN * V::STRIDE + 3 % IN * V::PAYLOAD>(to, odd, from);
}

// ---- in the slot --------------------------------------------------------------------------------------------------------

constexpr uint32_t ONES = 0x3c003c00u;
// f16, twice: 1 / 2^bits; what second quads' scales are multiplied by.
template <int BITS> constexpr uint32_t DOWN = BITS == 4 ? 0x2c002c00u : BITS == 2 ? 0x34003400u : ONES;
// What the scales of an octet's two quads are multiplied by. Of 2 bits, every second octet lies four bits further up.
struct Powers {
    uint32_t first, second;
};
template <int BITS> __device__ __forceinline__ Powers powers_of(int octet) {
    if (BITS == 2 && octet % 2) return {0x2c002c00u, 0x24002400u};
    return {ONES, DOWN<BITS>};
}

// Eight numbers from natural order to that of operands, pairs 02, 46, 13, 57, times powers of two. So stored, four words are an operand A
// whose upper rows meet the first quad and whose lower rows meet the second, beside a query's pairs 02, 13 or 46, 57.
template <int BITS> __device__ __forceinline__ uint4 turned(const uint4 &v, const Powers &times) {
    uint4 x = make_uint4(lows(v.x, v.y), mul2(lows(v.z, v.w), times.second), highs(v.x, v.y),
                         mul2(highs(v.z, v.w), times.second));
    if (BITS == 2) x.x = mul2(x.x, times.first), x.z = mul2(x.z, times.first);
    return x;
}
// The same in the order of queries and weights: pairs 02, 13, 46, 57.
__device__ __forceinline__ uint4 load_turned(uint32_t at) {
    const uint4 v = load4(at);
    return make_uint4(v.x, v.z, v.y, v.w);
}
// Heads of keys by channel.
template <class K> __device__ __forceinline__ void turn_known_keys(uint32_t heads, int lane) {
    static_assert(K::HEAD == 512 || K::BY_TOKEN, "half a warp for scales, half for zeros");
    const Powers times = lane < 16 ? powers_of<K::BITS>(lane) : Powers{ONES, ONES};
#pragma unroll
    for (int x = 0; x < K::HEADS; x += 512) {
        const uint32_t at = heads + x + 16 * lane;
        store4(at, turned<K::BITS>(load4(at), times));
    }
}
// Heads of values. Gives the largest |scale| that the lane saw, twice.
template <class V> __device__ __forceinline__ uint32_t turn_known_values(uint32_t heads, int lane) {
    uint32_t most = 0;
    const bool zeros = V::ZERO && (lane & 8);
#pragma unroll
    for (int x = 0; x < V::HEADS; x += 512) {
        if (x + 512 > V::HEADS && lane >= V::HEADS % 512 / 16) break;
        const uint32_t at = heads + x + 16 * lane;
        const uint4 v = load4(at);
        store4(at, turned<V::BITS>(v, zeros ? Powers{ONES, ONES} : powers_of<V::BITS>(lane)));
        const __half2 a = __hmax2(__habs2(halves_of(v.x)), __habs2(halves_of(v.y))),
                      b = __hmax2(__habs2(halves_of(v.z)), __habs2(halves_of(v.w)));
        most = bits_of(__hmax2(halves_of(most), __hmax2(a, b)));
    }
    return zeros ? 0 : most;
}

// ---- products -----------------------------------------------------------------------------------------------------------

// Which bits of a word, and of the same 8 bits on, are a lane's codes of first and second quads, and what turns the top bits of values' codes: of 8
// bits, in the word of high halves. From the launch's arguments, as a logical operation takes one constant: a second one would cost a
// second operation.
struct Taken {
    uint32_t first, second, flip_first, flip_second;
};
template <int BITS> __device__ __forceinline__ Taken taken_by(int lane) {
    const uint32_t low = BITS == 4 ? 0x000f000fu : 0x00030003u << lane % 2 * 4;
    return {low, low << BITS % 8, 0, 0};
}
template <int BITS> __device__ __forceinline__ Taken taken_by(int lane, const Side &v) {
    Taken taken = taken_by<BITS>(lane);
    taken.flip_first = BITS == 8 ? 0x88888888u : BITS == 4 ? v.planes[0].flip : v.planes[0].flip << lane % 2 * 4;
    taken.flip_second = taken.flip_first << BITS % 8;
    return taken;
}

// Operand A of an octet: pairs 02, 46, 13, 57 of a word of codes, or of one of their low halves and one of the high ones.
template <int BITS>
__device__ __forceinline__ void octet_of(uint32_t (&a)[4], uint32_t word, uint32_t high, const Taken &taken) {
    if constexpr (BITS == 8) {
        high ^= taken.flip_first; // of both quads
        const uint32_t first = (word & 0x0f0f0f0fu) | (high << 4 & 0xf0f0f0f0u),
                       second = (word >> 4 & 0x0f0f0f0fu) | (high & 0xf0f0f0f0u);
        a[0] = __byte_perm(first, 0, 0x4240), a[2] = __byte_perm(first, 0, 0x4341);
        a[1] = __byte_perm(second, 0, 0x4240), a[3] = __byte_perm(second, 0, 0x4341);
    } else {
        const uint32_t next = word >> 8;
        a[0] = (word & taken.first) ^ taken.flip_first, a[1] = (word & taken.second) ^ taken.flip_second;
        a[2] = (next & taken.first) ^ taken.flip_first, a[3] = (next & taken.second) ^ taken.flip_second;
    }
}

// Four rows of one octet, from the 16 bytes at `at`, times B; N: how many B.
template <int BITS, int NB, int N>
__device__ __forceinline__ void add_known(float (&s0)[NB][4], float (&s1)[NB][4], uint32_t at, const uint4 (&b)[N][NB],
                                          const Taken &taken) {
    const uint4 words = load4(at), highs = BITS == 8 ? load4(at + 128) : make_uint4(0, 0, 0, 0);
    uint32_t a[4][4];
#pragma unroll
    for (int i = 0; i < 4; i++) octet_of<BITS>(a[i], word_of(words, i), word_of(highs, i), taken);
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            mma(s0[nb], a[0][0], a[1][0], a[0][1], a[1][1], b[n][nb].x, b[n][nb].z);
            mma(s1[nb], a[2][0], a[3][0], a[2][1], a[3][1], b[n][nb].x, b[n][nb].z);
            mma(s0[nb], a[0][2], a[1][2], a[0][3], a[1][3], b[n][nb].y, b[n][nb].w);
            mma(s1[nb], a[2][2], a[3][2], a[2][3], a[3][3], b[n][nb].y, b[n][nb].w);
        }
}

__device__ __forceinline__ uint4 product_of(const uint4 &a, const uint4 &b) {
    return make_uint4(mul2(a.x, b.x), mul2(a.y, b.y), mul2(a.z, b.z), mul2(a.w, b.w));
}
// What f16 lost of `product` = a b, and low b.
__device__ __forceinline__ uint32_t rest_of(uint32_t a, uint32_t low, uint32_t b, uint32_t product) {
    return fma2(low, b, fma2(a, b, neg2(product)));
}
__device__ __forceinline__ uint4 rest_of(const uint4 &a, const uint4 &low, const uint4 &b, const uint4 &product) {
    return make_uint4(rest_of(a.x, low.x, b.x, product.x), rest_of(a.y, low.y, b.y, product.y),
                      rest_of(a.z, low.z, b.z, product.z), rest_of(a.w, low.w, b.w, product.w));
}

// Keys by channel. q: high and, for REST, low halves in the order of operands.
template <class K, int NB>
__device__ __forceinline__ void score_known_fold(Sums<NB> &x, uint32_t slot, const Queries<128, NB> &q, int lane) {
    constexpr int N = K::REST ? 2 : 1;
    const int r = lane / 4, c = lane % 4;
    const uint32_t heads = slot + c * 16, codes = slot + K::TO_CODES + known_at<K::BITS>(lane),
                   zeros = heads + 256 + (K::ONE_HEAD ? 0 : r % 2 * 512);
    const Taken taken = taken_by<K::BITS>(lane);
    float z[NB][4] = {}, second[NB][4] = {}; // the first two of one, the last two of the other count
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint4 qn[N][NB];
        const uint4 zz = load4(zeros + i * 64);
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            qn[0][nb] = q.high_octet(nb, i, r, c);
            if (K::REST) qn[N - 1][nb] = q.low_octet(nb, i, r, c);
#pragma unroll
            for (int n = 0; n < N; n++) {
                mma(z[nb], zz.x, zz.y, zz.z, zz.w, qn[n][nb].x, qn[n][nb].y);
                mma(second[nb], zz.x, zz.y, zz.z, zz.w, qn[n][nb].z, qn[n][nb].w);
            }
        }
#pragma unroll
        for (int b = 0; b < 2; b++) {
            const uint4 s = load_turned(heads + (K::ONE_HEAD ? 0 : b * 512) + i * 64);
            uint4 p[N][NB];
#pragma unroll
            for (int nb = 0; nb < NB; nb++) {
                p[0][nb] = product_of(qn[0][nb], s);
                if (K::REST) p[N - 1][nb] = rest_of(qn[0][nb], qn[N - 1][nb], s, p[0][nb]);
            }
            add_known<K::BITS, NB, N>(x[b][0], x[b][1], known_at<K::BITS>(codes + b * K::CODES, i), p, taken);
        }
    }
#pragma unroll
    for (int nb = 0; nb < NB; nb++) z[nb][0] += second[nb][2], z[nb][1] += second[nb][3];
    add_zeros<NB>(x, z, c);
    if (K::FACTOR) times_factors<NB>(x, slot + K::HEADS, r);
}

// Keys by token. The queries of second quads are divided by 2^bits; q.sums: of what is multiplied.
template <class K, int NB>
__device__ __forceinline__ void score_known_lane(Sums<NB> &x, uint32_t slot, const Queries<128, NB> &q, int lane) {
    constexpr int N = K::REST ? 2 : 1;
    const int r = lane / 4, c = lane % 4;
    const uint32_t codes = slot + K::TO_CODES + known_at<K::BITS>(lane);
    const Taken taken = taken_by<K::BITS>(lane);
    static_assert(K::BITS != 2, "queries would be multiplied by the powers of octets");
#pragma unroll
    for (int g = 0; g < 128 / K::GROUP; g++) {
        Sums<NB> s = {};
#pragma unroll
        for (int i = g * K::GROUP / 32; i < (g + 1) * K::GROUP / 32; i++) {
            uint4 p[N][NB];
#pragma unroll
            for (int nb = 0; nb < NB; nb++) {
                p[0][nb] = q.high_octet(nb, i, r, c);
                if (K::REST) p[N - 1][nb] = q.low_octet(nb, i, r, c);
            }
#pragma unroll
            for (int b = 0; b < 2; b++)
                add_known<K::BITS, NB, N>(s[b][0], s[b][1], known_at<K::BITS>(codes + b * K::CODES, i), p, taken);
        }
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            const uint2 u = load2(q.sums + ((g * NB + nb) * 8 + 2 * c) * 4);
            const float q0 = __uint_as_float(u.x), q1 = __uint_as_float(u.y);
#pragma unroll
            for (int b = 0; b < 2; b++) {
                const uint32_t at = slot + b * K::HEAD + g * 64 + r * 8;
                const uint2 scales = load2(at), zeros = K::ZERO ? load2(at + K::SCALES) : make_uint2(0, 0);
#pragma unroll
                for (int t = 0; t < 2; t++) {
                    const float2 scale = __half22float2(halves_of(t ? scales.y : scales.x));
                    float2 zero = __half22float2(halves_of(t ? zeros.y : zeros.x));
                    if (!K::ZERO) zero = make_float2(scale.x * -K::OFFSET, scale.y * -K::OFFSET);
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

// The sums of a block of 32 channels, and the zeros' of the unit, times the channels' factors.
template <class V, int NB>
__device__ __forceinline__ void add_with_factors(Mixed<128, NB> &mixed, const float (&s)[2][NB][4],
                                                 const float (&unit)[NB][4], uint32_t slot, int b, int lane) {
    const int r = lane / 4, c = lane % 4;
    const uint2 f = load2(slot + V::HEADS + b * 64 + r * 8);
    const float2 f01 = __half22float2(halves_of(f.x)), f23 = __half22float2(halves_of(f.y));
#pragma unroll
    for (int nb = 0; nb < NB; nb++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float zero = __shfl_sync(~0u, unit[nb][e % 2], 4 * (b / V::IN_GROUP) + c);
            float(&a0)[4] = mixed.values[2 * b][nb], (&a1)[4] = mixed.values[2 * b + 1][nb];
            a0[e] = fmaf(fmaf(s[0][nb][e], SUBNORMALS, zero), e < 2 ? f01.x : f01.y, a0[e]);
            a1[e] = fmaf(fmaf(s[1][nb][e], SUBNORMALS, zero), e < 2 ? f23.x : f23.y, a1[e]);
        }
}

// Values; w: weights of the octets of both halves of the unit's rows, in the order of operands.
template <class V, int NB>
__device__ __forceinline__ void mix_known(Mixed<128, NB> &mixed, uint32_t slot, const uint4 (&w)[2][1][NB],
                                          const Taken &taken, int lane) {
    const int r = lane / 4, c = lane % 4, own = r % V::GROUPS;
    constexpr int EACH = V::ZERO ? 256 : 128;
    const uint32_t heads = slot + c * 16, codes = slot + V::TO_CODES + known_at<V::BITS>(lane),
                   zeros = heads + own * EACH + 128;
    // Without zeros: the offset, as negative codes.
    static_assert(V::ZERO || V::BITS != 2, "every second octet counts more");
    constexpr uint32_t FIRST = 0x80008000u | V::OFFSET * 0x00010001u,
                       SECOND = 0x80008000u | (V::BITS == 8 ? V::OFFSET : V::OFFSET << V::BITS) * 0x00010001u;
    float unit[NB][4] = {}; // with factors: the zeros' share of this unit, and its weights
    float(&side)[NB][4] = V::FACTOR ? unit : mixed.side;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const uint4 z = V::ZERO ? load_turned(zeros + j * 64) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            mma(side[nb], z.x, ONES, z.y, ONES, w[j][0][nb].x, w[j][0][nb].y);
            mma(side[nb], z.z, ONES, z.w, ONES, w[j][0][nb].z, w[j][0][nb].w);
        }
    }
    auto weights = [&](uint4(&p)[1][NB], int g, int j) {
        const uint4 s = load_turned(heads + g * EACH + j * 64);
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            p[0][nb] = product_of(w[j][0][nb], s);
            if (!V::ZERO) {
                const uint32_t first = own == g ? FIRST : 0, second = own == g ? SECOND : 0;
                mma(mixed.side[nb], first, 0, second, 0, p[0][nb].x, p[0][nb].z);
                mma(mixed.side[nb], first, 0, second, 0, p[0][nb].y, p[0][nb].w);
            }
        }
    };
    if constexpr (V::FACTOR) {
        uint4 p[2][1][NB];
        weights(p[0], 0, 0), weights(p[1], 0, 1);
#pragma unroll
        for (int b = 0; b < 4; b++) {
            float s[2][NB][4] = {};
#pragma unroll
            for (int j = 0; j < 2; j++)
                add_known<V::BITS, NB, 1>(s[0], s[1], known_at<V::BITS>(codes + b * (V::CODES / 2), j), p[j], taken);
            add_with_factors<V, NB>(mixed, s, unit, slot, b, lane);
        }
    } else {
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int g = 0; g < V::GROUPS; g++) {
                uint4 p[1][NB];
                weights(p, g, j);
#pragma unroll
                for (int b = g * V::IN_GROUP; b < (g + 1) * V::IN_GROUP; b++)
                    add_known<V::BITS, NB, 1>(mixed.values[2 * b], mixed.values[2 * b + 1],
                                              known_at<V::BITS>(codes + b * (V::CODES / 2), j), p, taken);
            }
    }
    if (V::FACTOR)
#pragma unroll
        for (int nb = 0; nb < NB; nb++) mixed.side[nb][2] += unit[nb][2], mixed.side[nb][3] += unit[nb][3];
}

// ---- queries ------------------------------------------------------------------------------------------------------------

// Four channels of a query vector, made less than 1/2 in magnitude by a power of two, as f16 and what f16 lost: pairs 01 and 23. Gives the power.
__device__ __forceinline__ float halve(uint2 &high, uint2 &low, const float (&q)[4]) {
    float most = fmaxf(fmaxf(fabsf(q[0]), fabsf(q[1])), fmaxf(fabsf(q[2]), fabsf(q[3])));
#pragma unroll
    for (int d = 1; d < 32; d *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    const int exponent = (int)(__float_as_uint(most) >> 23) - 125; // most < 2^(exponent - 1)
    const int e = most > 0 ? max(-100, min(100, exponent)) : 0;
    const float down = __uint_as_float((uint32_t)(127 - e) << 23);
    high = make_uint2(pack(q[0] * down, q[1] * down), pack(q[2] * down, q[3] * down));
    const float2 f01 = __half22float2(halves_of(high.x)), f23 = __half22float2(halves_of(high.y));
    low = make_uint2(pack(fmaf(q[0], down, -f01.x), fmaf(q[1], down, -f01.y)),
                     pack(fmaf(q[2], down, -f23.x), fmaf(q[3], down, -f23.y)));
    return __uint_as_float((uint32_t)(127 + e) << 23);
}
// The Walsh-Hadamard transform of a vector whose channel 4 l + i is in lane l.
__device__ __forceinline__ void turn(float (&q)[4], int lane) {
#pragma unroll
    for (int stride = 1; stride < 4; stride *= 2)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (!(i & stride)) {
                const float a = q[i], b = q[i + stride];
                q[i] = a + b, q[i + stride] = a - b;
            }
#pragma unroll
    for (int stride = 1; stride < 32; stride *= 2)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float other = __shfl_xor_sync(~0u, q[i], stride);
            q[i] = lane & stride ? other - q[i] : q[i] + other;
        }
#pragma unroll
    for (int i = 0; i < 4; i++) q[i] *= rsqrtf(128.f);
}

// Four channels of a column's query vector as they are stored, or zeros.
__device__ __forceinline__ uint4 load_query(const kvt_cuda_attend &call, const kvt_cuda_share &share, int column,
                                            int lane) {
    const int vector = share.column + column, row = vector / call.group;
    if (row >= share.n_rows) return make_uint4(0, 0, 0, 0);
    const ptrdiff_t at = (share.row + row) * call.q_row_stride +
                         (share.head * call.group + vector % call.group) * call.q_head_stride + 4 * lane;
    if (call.q_type == KVT_TYPE_F32) {
        const uint32_t *q = (const uint32_t *)call.q + at;
        return make_uint4(q[0], q[1], q[2], q[3]);
    }
    const uint16_t *q = (const uint16_t *)call.q + at;
    return make_uint4(q[0], q[1], q[2], q[3]);
}
__device__ __forceinline__ float query_of(uint32_t stored, enum kvt_type type) {
    return type == KVT_TYPE_F32   ? __uint_as_float(stored)
           : type == KVT_TYPE_F16 ? __half2float(__ushort_as_half((unsigned short)stored))
                                  : __uint_as_float(stored << 16);
}

// Puts the query vectors of a share into shared memory as prepare_queries does, but those for the body in the order of operands. BY_TOKEN:
// with second quads divided by 2^bits, and their sums by group. `first`: of columns `warp` and, of two eights, `warp` + n_warps, read before.
template <class K, int NB>
__device__ void prepare_known(const Args &a, const kvt_cuda_share &share, char *queries, float *term_sums,
                              float *factors, const uint4 (&first)[NB], int warp, int n_warps, int lane) {
    constexpr int STRIDE = Queries<128, NB>::STRIDE, BYTES = Queries<128, NB>::BYTES, IN_GROUP = K::GROUP / 4; // lanes
    for (int column = warp; column < 8 * NB; column += n_warps) {
        const uint4 stored = column == warp                        ? first[0]
                             : NB == 2 && column == warp + n_warps ? first[NB - 1]
                                                                   : load_query(a.call, share, column, lane);
        float q[4];
#pragma unroll
        for (int i = 0; i < 4; i++) q[i] = query_of(word_of(stored, i), a.call.q_type);
        uint2 high, low;
        float power = halve(high, low, q);
        char *to = queries + column * STRIDE + 8 * lane;
        *(uint2 *)to = high;
        *(uint2 *)(to + BYTES) = low;
        if (lane == 0) factors[column] = power * a.call.scale;
        if (K::FACTOR) {
            turn(q, lane);
            power = halve(high, low, q);
            if (lane == 0) factors[8 * NB + column] = power * a.call.scale;
        }
        const uint32_t times = K::BY_TOKEN && lane % 2 ? DOWN<K::BITS> : ONES;
        *(uint2 *)(to + 2 * BYTES) = make_uint2(mul2(lows(high.x, high.y), times), mul2(highs(high.x, high.y), times));
        if (K::REST)
            *(uint2 *)(to + 3 * BYTES) = make_uint2(mul2(lows(low.x, low.y), times), mul2(highs(low.x, low.y), times));
        if (K::BY_TOKEN) {
            const float2 h0 = __half22float2(halves_of(high.x)), h1 = __half22float2(halves_of(high.y)),
                         l0 = __half22float2(halves_of(low.x)), l1 = __half22float2(halves_of(low.y));
            float sum = h0.x + h0.y + h1.x + h1.y + (K::REST ? l0.x + l0.y + l1.x + l1.y : 0);
#pragma unroll
            for (int d = 1; d < IN_GROUP; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
            if (lane % IN_GROUP == 0) term_sums[lane / IN_GROUP * 8 * NB + column] = sum;
        }
    }
}

} // namespace kvt

#endif
