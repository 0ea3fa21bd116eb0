/* SPDX-License-Identifier: Apache-2.0
 *
 * kq and vu in heads of 128, by kernels that know their widths.
 *
 * Keys whose channels have three widths (docs/formats.md, section 9): a warp takes both units of a tile one after the other. Before the first it
 * gathers the queries into the places of the channels, times the scales. Places come in four groups of 32, each of one class; a group's codes
 * lie in one plane, or in one and their top bits in another, and are put together in registers, a byte each. With n = 2^width - 1 of a channel, a score is
 *
 *     sum of q * middle + factor(row) * (sum of q * scale * code - sum of q * scale * n / 2)
 *
 * Scales and zeros of values are a byte each; they become f16 in the order of operands (attend_known.cuh), once a unit.
 */
#ifndef BACKEND_CUDA_ATTEND_CLASS_CUH
#define BACKEND_CUDA_ATTEND_CLASS_CUH

extern "C" {
#include "codec/class.h"
}

#include "backend/cuda/attend_known.cuh"

namespace kvt {

// ---- codes --------------------------------------------------------------------------------------------------------------

// Vectors are turned by their number, so that the four of an octet's 4-bit codes, or the two of 2-bit codes, meet no bank twice.
__device__ __forceinline__ uint32_t class_chunk(int vector, int chunk) {
    return vector * 128 + 16 * (chunk ^ 2 * (vector & 3));
}
// Where the chunk of the lane's octet lies: in the vectors of 32 terms, the first of which is `vector`.
template <int W> __device__ __forceinline__ uint32_t octet_chunk(int vector, int r, int c) {
    return class_chunk(vector + (W == 4 ? c : W == 2 ? c / 2 : 0), r);
}

// How many times 2 a code of an octet's second quad counts where unpack_octet leaves it. W: width in the first plane.
template <int W> constexpr int SECOND = W == 4 ? 0 : W;

// The codes of the lane's octet, a byte each. word: of the first plane; top: of the plane of single bits that are above, if TOP; TURNED: those are
// turned.
template <int W, bool TOP, bool TURNED>
__device__ __forceinline__ uint2 unpack_octet(uint32_t word, uint32_t top, int c) {
    constexpr uint32_t LOW = ((1u << W) - 1) * 0x01010101u, BIT = 0x01010101u << W;
    const uint32_t x = W == 4 ? word : word >> (W == 2 ? 4 * (c % 2) : 2 * c), y = W == 4 ? word >> 4 : x;
    uint32_t first = x & LOW, second = y & LOW << SECOND<W>;
    if (TOP) {
        const uint32_t up = __funnelshift_r(
                           top, top, 2 * c - W), // the first quad's lie where they should, the second's a bit higher
            other = W == 4 ? up >> 1 : up << 1;
        first = TURNED ? put_turned(up, BIT, first) : (up & BIT) | first;
        second = TURNED ? put_turned(other, BIT << SECOND<W>, second) : (other & BIT << SECOND<W>) | second;
    }
    return make_uint2(first, second);
}

// ---- keys ---------------------------------------------------------------------------------------------------------------

// A group of 32 places: widths as above, and the first of its vectors in either plane.
struct ClassGroup {
    int bits, width, vector, top_vector; // top_vector: -1 if there is no other plane
};
// Heads of 128, codes of BITS in the middle. Planes lie one after another in a block: of 1 bit, of 4, of 2.
template <int BITS> struct ClassLayout {
    static constexpr int VECTORS = 4 * BITS;
    static __device__ __forceinline__ constexpr ClassGroup group(int i) {
        if (BITS == 4)
            return i == 0 ? ClassGroup{5, 4, 2, 0} : i < 3 ? ClassGroup{4, 4, 2 + 4 * i, -1} : ClassGroup{3, 2, 14, 1};
        if (BITS == 3)
            return i == 0  ? ClassGroup{4, 4, 2, -1}
                   : i < 3 ? ClassGroup{3, 2, 4 + 2 * i, i - 1}
                           : ClassGroup{2, 2, 10, -1};
        return i == 0 ? ClassGroup{3, 2, 2, 0} : i < 3 ? ClassGroup{2, 2, 2 + 2 * i, -1} : ClassGroup{1, 1, 1, -1};
    }
    static constexpr int SCALES = 64, ZEROS = 192, FACTORS = 448; // in the tile, whose head these bytes are
    static constexpr int BLOCK = 128 * VECTORS, TILE = FACTORS + 128 + 4 * BLOCK;
    // A unit in its slot: codes of two blocks, the tile's head, the rows' factors. Then what the warp makes for both units: the channel of each
    // place; the queries at their places, for each octet and column two words of upper and two of lower bytes; by column what is added to scores; by two
    // columns where their sums begin; the logarithm of what one is worth in them.
    static constexpr int HEAD = 2 * BLOCK, ROWS = HEAD + FACTORS, CHANNELS = ROWS + 64, QUERIES = CHANNELS + 128,
                         MIDDLES = QUERIES + 2048, BEGIN = MIDDLES + 32, UNIT = BEGIN + 64, BYTES = UNIT + 32;
};

template <int BITS> struct ClassKeys : AnyCodes {
    static constexpr int CLASS_BITS = BITS, TILE = ClassLayout<BITS>::TILE;
};

template <int BITS>
__device__ __forceinline__ void fetch_class_keys(uint32_t slot, const char *tile, int half, bool fresh, int lane) {
    using L = ClassLayout<BITS>;
    const char *codes = tile + (half * L::HEAD + 16 * lane); // two blocks, one after the other
    copy_known<L::HEAD, 0, L::FACTORS + 128>(slot + class_chunk(lane / 8, lane % 8),
                                             slot + class_chunk(lane / 8, lane % 8), codes);
    if (fresh && lane < L::FACTORS / 16) copy16_at<L::HEAD, 0>(slot + 16 * lane, tile + 16 * lane);
    if (lane < 4) copy16_at<L::ROWS, L::FACTORS>(slot + 16 * lane, tile + (64 * half + 16 * lane));
}

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

// Writes where the channel of each place is among the queries, a byte: channel 4 l + j is at 32 j + l. Classes are counted in the bytes of a word.
__device__ __forceinline__ void put_channels(uint32_t to, uint32_t map, int lane) {
    const uint32_t classes = load_byte(map + lane) << 3;
    uint32_t shift[4], own = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) shift[j] = classes >> 2 * j & 24, own += 1u << shift[j];
    uint32_t sum = own;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const uint32_t below = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += below;
    }
    const uint32_t all = __shfl_sync(~0u, sum, 31);
    if (all != 0x00204020u) {
        const uint32_t places = places_of_damaged(map, lane);
        for (int j = 0; j < 4; j++) store_byte(to + (places >> 8 * j & 255), 32 * j + lane);
        return;
    }
    uint32_t next = sum - own + 0x00602000u; // places 0, 32, 96
#pragma unroll
    for (int j = 0; j < 4; j++) {
        store_byte(to + (next >> shift[j] & 255), 32 * j + lane);
        next += 1u << shift[j];
    }
}

// 2^23 and byte `place` of x.
__device__ __forceinline__ float from_byte(uint32_t x, int place) {
    return __uint_as_float(__byte_perm(x, 0x4b000000u, 0x7540 | place));
}

// Sums of whole numbers begin here, so that their bits are those of a float, the sum and 3 * 2^22.
constexpr uint32_t WHOLE = 0x4b400000u;

// Where a column's words of octet o lie among the queries: lanes that write or read them meet few banks twice.
__device__ __forceinline__ uint32_t class_words(int o, int column) { return o * 128 + (column ^ (o & 7)) * 16; }

// What the warp makes of a tile's head for both units: a lane has the quad of places 4 lane ... by_channel: see prepare_class_queries; few: only four columns
// are there. Products of queries, below 1/2, and scales, below 2^(e + 1), are kept as whole numbers of 16 bits, in units of 2^(e - 14).
template <int BITS>
__device__ __forceinline__ void prepare_class(uint32_t slot, uint32_t by_channel, bool few, int lane) {
    using L = ClassLayout<BITS>;
    const uint32_t head = slot + L::HEAD;
    const int c = lane % 4, k = lane < 8 ? 0 : lane < 24 ? 1 : 2, octet = lane / 2;
    put_channels(slot + L::CHANNELS, head + KVT_CLASS_MAP, lane);
    const uint2 words = load2(head), zeros = load2(head + L::ZEROS + 8 * lane);
    const uint32_t scales = load_word(head + L::SCALES + 4 * lane);
    const float2 m01 = __half22float2(halves_of(words.x)), m2 = __half22float2(halves_of(words.y)),
                 z01 = __half22float2(halves_of(zeros.x)), z23 = __half22float2(halves_of(zeros.y));
    const float own = k == 0 ? m01.x : k == 1 ? m01.y : m2.x, half_top = 0.5f * (float)((2 << (BITS - k)) - 1);
    const float most = fmaxf(fmaxf(fabsf(m01.x), fabsf(m01.y)), fabsf(m2.x));
    const int e = max((int)(__float_as_uint(most) >> 23), 64) - 127;
    const float up = __uint_as_float((uint32_t)(127 + 14 - e) << 23);
    constexpr ClassGroup g0 = L::group(0), g1 = L::group(1), g3 = L::group(3);
    constexpr float D0 = 1.f / (1 << SECOND<g0.width>), D1 = 1.f / (1 << SECOND<g1.width>),
                    D2 = 1.f / (1 << SECOND<g3.width>);
    const float times = lane % 2 ? up * (k == 0 ? D0 : k == 1 ? D1 : D2) : up;
    float scale[4], middle[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        scale[i] = own * exp2_of(fmaf(from_byte(scales, i), -1.f / KVT_CLASS_SCALE_PER, 0x1p23f / KVT_CLASS_SCALE_PER));
        middle[i] = fmaf(scale[i], half_top, i == 0 ? z01.x : i == 1 ? z01.y : i == 2 ? z23.x : z23.y);
        scale[i] *= times;
    }
    __syncwarp();
    const uint32_t channels = load_word(slot + L::CHANNELS + 4 * lane);
    for (int first = 0; first < (few ? 4 : 8); first += 4) {
        uint32_t t[4][4]; // column, place: the product in the low 16 bits, and 128
        float z[4] = {};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint4 q = load4(by_channel + first * 512 + 16 * (channels >> 8 * i & 255));
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const float x = __uint_as_float(word_of(q, n));
                t[n][i] = __float_as_uint(fmaf(x, scale[i], 0x1.8p23f + 128.f));
                z[n] = fmaf(x, middle[i], z[n]);
            }
        }
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const uint32_t x = __byte_perm(t[n][0], t[n][1], 0x5140), y = __byte_perm(t[n][2], t[n][3], 0x5140);
            const uint32_t to = slot + L::QUERIES + class_words(octet, first + n) + lane % 2 * 4;
            store_word(to, highs(x, y));
            store_word(to + 8, lows(x, y) ^ 0x80808080u);
        }
        // The sum of four columns over the warp: column lane / 8 in the end.
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const float other = __shfl_xor_sync(~0u, lane & 16 ? z[n] : z[2 + n], 16);
            z[n] = (lane & 16 ? z[2 + n] : z[n]) + other;
        }
        const float other = __shfl_xor_sync(~0u, lane & 8 ? z[0] : z[1], 8);
        float sum = (lane & 8 ? z[1] : z[0]) + other;
#pragma unroll
        for (int d = 4; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
        if (lane % 8 == 0) store_word(slot + L::MIDDLES + 4 * (first + lane / 8), __float_as_uint(sum));
    }
    if (lane == 0) store_word(slot + L::UNIT, __float_as_uint((float)(e - 14)));
    __syncwarp();
    // Half the sum of what is multiplied with all codes at their largest.
    uint32_t high[4] = {}, low[4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        constexpr ClassGroup g[4] = {L::group(0), L::group(1), L::group(2), L::group(3)};
        const uint32_t top = ((1u << g[i].bits) - 1) * 0x01010101u, second = top << (g[i].width == 4 ? 0 : g[i].width);
        const uint4 b = load4(slot + L::QUERIES + class_words(4 * i + c, lane / 4));
        mma_bytes(high, top, top, second, second, b.x, b.y);
        mma_bytes(low, top, top, second, second, b.z, b.w);
    }
    uint32_t begin[4];
#pragma unroll
    for (int n = 0; n < 2; n++) {
        begin[n] = WHOLE - (uint32_t)((int)high[n] >> 1);
        begin[2 + n] = WHOLE - (high[n] & 1) * 128 - (uint32_t)((int)low[n] >> 1);
    }
    if (lane < 4) store4(slot + L::BEGIN + 16 * lane, make_uint4(begin[0], begin[1], begin[2], begin[3]));
    __syncwarp();
}

// Puts the query vectors of a share into shared memory as prepare_queries does; those for the body as floats, four columns of a channel side by
// side. `first`: of column `warp`, read before.
__device__ __forceinline__ void prepare_class_queries(const Args &a, const kvt_cuda_share &share, char *queries,
                                                      float *factors, const uint4 &first, int warp, int n_warps,
                                                      int lane) {
    constexpr int STRIDE = Queries<128, 1>::STRIDE, BYTES = Queries<128, 1>::BYTES;
    static_assert(2 * BYTES >= 4096, "room for eight columns");
    for (int column = warp; column < 8; column += n_warps) {
        const uint4 stored = column == warp ? first : load_query(a.call, share, column, lane);
        float q[4];
#pragma unroll
        for (int i = 0; i < 4; i++) q[i] = query_of(word_of(stored, i), a.call.q_type);
        uint2 high, low;
        const float power = halve(high, low, q), down = __uint_as_float(0x7f000000u - __float_as_uint(power));
        char *to = queries + column * STRIDE + 8 * lane;
        *(uint2 *)to = high;
        *(uint2 *)(to + BYTES) = low;
        float *by_channel = (float *)(queries + 2 * BYTES) + column / 4 * 512 + column % 4;
#pragma unroll
        for (int j = 0; j < 4; j++) by_channel[(32 * j + lane) * 4] = q[j] * down;
        if (lane == 0) factors[column] = power * a.call.scale;
    }
}

// A group of 32 places of both blocks; b: words of the lane's octet. FEW: for the upper and the lower bytes of a column side by side, and `low` is not
// used; otherwise for the upper ones of eight columns, then for their lower ones.
template <int BITS, int I, bool FEW>
__device__ __forceinline__ void add_class_group(uint32_t (&high)[2][2][4], uint32_t (&low)[2][2][4], uint32_t slot,
                                                const uint4 &b, int r, int c) {
    using L = ClassLayout<BITS>;
    constexpr ClassGroup g = L::group(I);
    constexpr bool TOP = g.top_vector >= 0;
#pragma unroll
    for (int block = 0; block < 2; block++) {
        const uint4 words = load4(slot + octet_chunk<g.width>(g.vector + block * L::VECTORS, r, c)),
                    tops = TOP ? load4(slot + class_chunk(g.top_vector + block * L::VECTORS, r)) : words;
#pragma unroll
        for (int t = 0; t < 2; t++) {
            const uint2 x = unpack_octet<g.width, TOP, false>(word_of(words, 2 * t), word_of(tops, 2 * t), c),
                        y = unpack_octet<g.width, TOP, false>(word_of(words, 2 * t + 1), word_of(tops, 2 * t + 1), c);
            mma_bytes(high[block][t], x.x, y.x, x.y, y.y, b.x, b.y);
            if (!FEW) mma_bytes(low[block][t], x.x, y.x, x.y, y.y, b.z, b.w);
        }
    }
}

// Sums of the lane's columns: those of Sums or, FEW, of few_to_powers.
template <int BITS, bool FEW> __device__ __forceinline__ void sum_class(Sums<1> &x, uint32_t slot, int r, int c) {
    using L = ClassLayout<BITS>;
    constexpr int N = FEW ? 1 : 2; // columns of a lane
    uint32_t begin[4];             // of the elements of a product, or of those of upper and of lower bytes
    float middle[N];
    if (FEW) {
        const uint32_t from = slot + L::BEGIN + c / 2 * 16 + c % 2 * 4;
        begin[0] = load_word(from), begin[1] = load_word(from + 8);
        middle[0] = __uint_as_float(load_word(slot + L::MIDDLES + 4 * c));
    } else {
        const uint4 v = load4(slot + L::BEGIN + 16 * c);
        const uint2 m = load2(slot + L::MIDDLES + 8 * c);
        begin[0] = v.x, begin[1] = v.y, begin[2] = v.z, begin[3] = v.w;
        middle[0] = __uint_as_float(m.x), middle[N - 1] = __uint_as_float(m.y);
    }
    const float unit = __uint_as_float(load_word(slot + L::UNIT));
    uint32_t high[2][2][4], low[2][2][4];
#pragma unroll
    for (int block = 0; block < 2; block++)
#pragma unroll
        for (int t = 0; t < 2; t++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                high[block][t][e] = begin[e % 2];
                if (!FEW) low[block][t][e] = begin[2 + e % 2];
            }
    auto words = [&](int group) {
        const uint32_t from = slot + L::QUERIES + class_words(c, FEW ? r / 2 : r) + (FEW ? r % 2 * 8 : 0);
        const uint32_t at = (group % 2 ? from ^ 64 : from) + 512 * group; // octet 4 group + c
        if (!FEW) return load4(at);
        const uint2 v = load2(at);
        return make_uint4(v.x, v.y, 0, 0);
    };
    static_assert(L::QUERIES % 128 == 0, "slots begin at multiples of 128 bytes");
    add_class_group<BITS, 0, FEW>(high, low, slot, words(0), r, c);
    add_class_group<BITS, 1, FEW>(high, low, slot, words(1), r, c);
    add_class_group<BITS, 2, FEW>(high, low, slot, words(2), r, c);
    add_class_group<BITS, 3, FEW>(high, low, slot, words(3), r, c);
#pragma unroll
    for (int block = 0; block < 2; block++) {
        const uint32_t stored = load_word(slot + L::ROWS + 32 * block + 4 * r) ^ 0x80808080u;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int t = i / 2, h = i % 2;
            const float factor = exp2_of(fmaf(from_byte(stored, i), 1.f / KVT_CLASS_FACTOR_PER,
                                              unit - (0x1p23f + 128.f) / KVT_CLASS_FACTOR_PER));
#pragma unroll
            for (int n = 0; n < N; n++) {
                const float upper = __uint_as_float(high[block][t][2 * h + n]),
                            lower = __uint_as_float(FEW ? high[block][t][2 * h + 1] : low[block][t][2 * h + n]);
                x[block][t][0][N * h + n] = fmaf(factor, fmaf(upper, 256.f, -257.f * 0x1.8p23f) + lower, middle[n]);
            }
        }
    }
}

// Scores of a unit of such keys. fresh: what the warp makes of the tile is not there yet.
template <int BITS>
__device__ __forceinline__ void score_class(Sums<1> &x, uint32_t slot, uint32_t by_channel, bool fresh, bool few,
                                            int lane) {
    if (fresh) prepare_class<BITS>(slot, by_channel, few, lane);
    few ? sum_class<BITS, true>(x, slot, lane / 4, lane % 4) : sum_class<BITS, false>(x, slot, lane / 4, lane % 4);
}

// ---- values -------------------------------------------------------------------------------------------------------------

// Values of BITS bits with scales and zeros of a byte, one group. A unit in its slot: 64 scales and 64 zeros as f16, codes, and both as they are stored.
template <int BITS_> struct LogValues {
    static constexpr bool KNOWN = true, LOGS = true, TABLED = false, ZERO = true, FACTOR = false;
    static constexpr int BITS = BITS_, GROUP = 128, OFFSET = 0, GROUPS = 1, IN_GROUP = 4; // see KnownValues
    static constexpr int HEAD = 256, CODES = 512 * BITS, HEADS = 256, TO_CODES = HEADS;
    static constexpr int STORED = TO_CODES + 2 * CODES;
};

template <class V>
__device__ __forceinline__ void fetch_log_values(uint32_t slot, const char *tile, int half, int lane) {
    constexpr int N = V::CODES / 2, TO = V::TO_CODES; // bytes of a block's half
    if (lane < 8) copy16_at<V::STORED, 0>(slot + 16 * lane, tile + (lane / 4 * 128 + half * 64 + lane % 4 * 16));
    const char *from = tile + (half * N + 16 * lane);
    if constexpr (V::BITS == 3) { // three copies of all lanes are two blocks
        const char *beside = from + lane / 16 * N;
        const uint32_t to = slot + class_chunk(lane / 8, lane % 8);
        copy16_at<TO, V::HEAD>(to, from);
        copy16_at<TO + 512, V::HEAD + 512>(to, beside);
        copy16_at<TO + 1024, V::HEAD + 1024 + N>(to, from);
        copy16_at<TO + 2 * N, V::HEAD + 4 * N>(to, from);
        copy16_at<TO + 2 * N + 512, V::HEAD + 4 * N + 512>(to, beside);
        copy16_at<TO + 2 * N + 1024, V::HEAD + 4 * N + 1024 + N>(to, from);
    } else {
        const uint32_t to = known_to<V::BITS>(slot, lane);
        copy_known<N, TO, V::HEAD>(to, to, from);
        copy_known<N, TO + N, V::HEAD + 2 * N>(to, to, from);
        copy_known<N, TO + 2 * N, V::HEAD + 4 * N>(to, to, from);
        copy_known<N, TO + 3 * N, V::HEAD + 6 * N>(to, to, from);
    }
}

// Makes scales and zeros f16, scales divided as turn_known_values has them; gives the larger of the two scales that the
// lane made. Word l: of octet l / 4 rows 0 2, 4 6, 1 3 or 5 7.
template <class V> __device__ __forceinline__ float unpack_log_values(uint32_t slot, int lane) {
    constexpr float UNIT = (float)((1 << V::BITS) - 1) / KVT_SHIFT_UNIT, LESS = V::BITS == 4 ? 1.f / 16 : 1.f / 4;
    const uint32_t from = slot + V::STORED + lane / 4 * 8 + lane % 2 * 4;
    const int odd = lane % 4 / 2 * 8;
    const uint32_t s = load_word(from) >> odd, z = (load_word(from + 64) ^ 0x80808080u) >> odd;
    float scale[2], zero[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        scale[i] = exp2_of(fmaf(from_byte(s, 2 * i), 1.f / KVT_LOG_PER, -(0x1p23f + KVT_LOG_BIAS) / KVT_LOG_PER));
        zero[i] = scale[i] * (UNIT * (from_byte(z, 2 * i) - (0x1p23f + 128.f + KVT_SHIFT_UNIT / 2)));
    }
    const float less = (lane % 2 ? LESS : 1.f) * (V::BITS == 2 && lane / 4 % 2 ? 1.f / 16 : 1.f);
    store_word(slot + 4 * lane, pack(scale[0] * less, scale[1] * less));
    store_word(slot + 128 + 4 * lane, pack(zero[0], zero[1]));
    return fmaxf(scale[0], scale[1]);
}

// Bytes as halves.
__device__ __forceinline__ uint32_t bytes_02(uint32_t x) { return __byte_perm(x, 0, 0x4240); }
__device__ __forceinline__ uint32_t bytes_13(uint32_t x) { return __byte_perm(x, 0, 0x4341); }

// Values of 3 bits; w as mix_known has it, which mixes the others.
template <class V, int NB>
__device__ __forceinline__ void mix_three(Mixed<128, NB> &mixed, uint32_t slot, const uint4 (&w)[2][1][NB], int lane) {
    const int r = lane / 4, c = lane % 4;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const uint4 s = load_turned(slot + j * 64 + c * 16), z = load_turned(slot + 128 + j * 64 + c * 16);
        uint4 p[NB];
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            mma(mixed.side[nb], z.x, ONES, z.y, ONES, w[j][0][nb].x, w[j][0][nb].y);
            mma(mixed.side[nb], z.z, ONES, z.w, ONES, w[j][0][nb].z, w[j][0][nb].w);
            p[nb] = product_of(w[j][0][nb], s);
        }
#pragma unroll
        for (int b = 0; b < 4; b++) {
            const int vector = 6 * b + 3 * j; // two of 2 bits, one of top bits
            const uint4 words = load4(slot + V::TO_CODES + octet_chunk<2>(vector, r, c)),
                        tops = load4(slot + V::TO_CODES + class_chunk(vector + 2, r));
            uint2 bytes[4];
#pragma unroll
            for (int i = 0; i < 4; i++) bytes[i] = unpack_octet<2, true, true>(word_of(words, i), word_of(tops, i), c);
#pragma unroll
            for (int nb = 0; nb < NB; nb++)
#pragma unroll
                for (int t = 0; t < 2; t++) {
                    const uint2 x = bytes[2 * t], y = bytes[2 * t + 1];
                    float(&to)[4] = mixed.values[2 * b + t][nb];
                    mma(to, bytes_02(x.x), bytes_02(y.x), bytes_02(x.y), bytes_02(y.y), p[nb].x, p[nb].z);
                    mma(to, bytes_13(x.x), bytes_13(y.x), bytes_13(x.y), bytes_13(y.y), p[nb].y, p[nb].w);
                }
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
template <int D>
__device__ __forceinline__ void fetch_body_values(uint32_t slot, const char *tile, const Side &v, int half, int lane) {
    fetch_values<D>(slot, tile, v, half, lane);
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
