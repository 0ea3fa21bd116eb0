/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies whose codes are 8-bit floats or index a table of at most 16 entries, in heads of 128: keys with a scale for each row and group of
 * channels, values with one for each row and group of channels too. Codes become f16 in registers, times their scale, and are multiplied
 * like f16 rows. Rows were f16 when they were encoded, so that what a code means with its scale is within f16 and as fine as f16 was.
 */
#ifndef BACKEND_CUDA_ATTEND_TABLE_CUH
#define BACKEND_CUDA_ATTEND_TABLE_CUH

#include "backend/cuda/attend_mix.cuh"

namespace kvt {

// A unit of such keys in its slot: codes of two blocks, scales as they are stored (up to 256 bytes of each block), and as f16 [block][group][32
// rows]. Of values: codes of four blocks of 32 channels; scales as they are stored (512 bytes), and as f16 [list][64 rows]: a list for each group
// of channels.
struct TableSlot {
    __host__ __device__ static __forceinline__ uint32_t stored(int bits) { return 1024 * bits; }
    __host__ __device__ static __forceinline__ uint32_t scales(int bits) { return 1024 * bits + 512; }
    __host__ static size_t bytes(const Side &side) { return scales(side.bits) + side.table.n_lists * 128; }
};

__device__ __forceinline__ void fetch_table_keys(uint32_t slot, const char *tile, const Side &k, int half, int lane) {
#pragma unroll
    for (int b = 0; b < 2; b++)
        copy_codes<false, 128>(slot + 512 * b * k.bits, tile + k.codes[2 * half + b], k.bits, k.turns, lane);
    const int b = lane / 16, at = 16 * (lane % 16);
    if (at < (int)k.scale_bytes)
        copy16(slot + TableSlot::stored(k.bits) + 256 * b + at, tile + k.scales[2 * half + b] + at);
}
__device__ __forceinline__ void fetch_table_values(uint32_t slot, const char *tile, const Side &v, int half, int lane) {
#pragma unroll
    for (int b = 0; b < 4; b++)
        copy_codes<false, 64>(slot + 256 * b * v.bits, tile + half * 256 * v.bits + v.codes[b], v.bits, v.turns, lane);
    const Table &t = v.table;
    if (t.scale_bytes == 0) return;
    const int list = lane / (4 * t.scale_bytes), part = lane % (4 * t.scale_bytes);
    const int block = t.halves ? list / 2 : list << v.per_log, second = t.halves ? list % 2 : 0;
    if (list < t.n_lists)
        copy16(slot + TableSlot::stored(v.bits) + 16 * lane,
               tile + v.scales[block] + (128 * second + 64 * half) * t.scale_bytes + 16 * part);
}

// Stored scales to f16: of keys [block][group][32 rows], which is their order in the tile, of values [list][64 rows]. Two of a lane at a time.
__device__ __forceinline__ float table_scale(const Table &t, uint32_t address) {
    switch (t.scale) {
    case KVT_SCALE_F32: return __uint_as_float(load_word(address));
    case KVT_SCALE_F16: return __half22float2(halves_of(load_half(address))).x;
    case KVT_SCALE_E4M3: return kvt_f32_from_e4m3(load_byte(address));
    case KVT_SCALE_E8M0: return kvt_f32_from_e8m0((uint8_t)load_byte(address));
    default: return 1;
    }
}
__device__ __forceinline__ void unpack_table_scales(uint32_t slot, const Side &side, bool keys, int lane) {
    const Table &t = side.table;
    for (int i = 2 * lane; i < t.n_lists * 64; i += 64) {
        // Keys: of 2 * n_groups lines of 32, half of them of the second block.
        const int from =
            keys ? i % (32 * t.n_lists) * t.scale_bytes + (i >= 32 * t.n_lists ? 256 : 0) : i * t.scale_bytes;
        const uint32_t at = slot + TableSlot::stored(side.bits) + from;
        store_word(slot + TableSlot::scales(side.bits) + 2 * i,
                   pack(table_scale(t, at), table_scale(t, at + t.scale_bytes)));
    }
    __syncwarp();
}

// Octets as pairs of f16. Floats: terms 01, 23, 45, 67; entries of a table: 04, 15, 26, 37.
template <bool FLOATS> __device__ __forceinline__ uint32_t ordered(const uint32_t (&n)[4], int i) {
    if (FLOATS) return n[i];
    return i % 2 ? highs(n[i / 2], n[i / 2 + 2]) : lows(n[i / 2], n[i / 2 + 2]);
}

// Bytes of a table of 16, by the four nibbles of x.
__device__ __forceinline__ uint32_t look_up(const uint32_t (&bytes)[4], uint32_t x, uint32_t above) {
    const uint32_t low = __byte_perm(bytes[0], bytes[1], x & 0x7777),
                   high = __byte_perm(bytes[2], bytes[3], x & 0x7777);
    return (low & ~above) | (high & above);
}
template <bool FLOATS>
__device__ __forceinline__ void read_codes(uint32_t (&a)[4], uint32_t first, uint32_t second, const Side &side) {
    const Table &t = side.table;
    if constexpr (FLOATS) {
        const uint32_t low = 0x0f0f0f0fu, q0 = (first & low) | (second & low) << 4,
                       q1 = (first >> 4 & low) | (second & ~low);
        if (t.meaning == KVT_MEANING_E5M2) {
            a[0] = __byte_perm(q0, 0, 0x1404), a[1] = __byte_perm(q0, 0, 0x3424);
            a[2] = __byte_perm(q1, 0, 0x1404), a[3] = __byte_perm(q1, 0, 0x3424);
        } else {
            a[0] = halves_of_e4m3(q0), a[1] = halves_of_e4m3(q0 >> 16);
            a[2] = halves_of_e4m3(q1), a[3] = halves_of_e4m3(q1 >> 16);
        }
    } else {
        uint32_t x = first; // a nibble for each: of a byte the lower one is of the first quad
        if (side.bits < 4) x = (first & 0x03030303u) | (first & 0x0c0c0c0cu) << 2;
        if (side.bits == 3) x |= (second & 0x01010101u) << 2 | (second & 0x02020202u) << 5;
#pragma unroll
        for (int i = 0; i < 2; i++, x >>= 16) {
            const uint32_t above = __byte_perm(0xff00u, 0, x >> 3 & 0x1111);
            const uint32_t l = look_up(t.low, x, above), h = look_up(t.high, x, above);
            a[2 * i] = __byte_perm(l, h, 0x5140), a[2 * i + 1] = __byte_perm(l, h, 0x7362);
        }
    }
}

// The planes of a side's codes for a lane, and the words of its four lines.
struct TablePlanes {
    LanePlane<false> low, high;
    bool two;
    __device__ __forceinline__ TablePlanes(const Side &side, int r, int c)
        : low(side.planes[0], side.turns, r, c), high(side.planes[1], side.turns, r, c), two(side.planes[1].width) {}
};
template <bool FLOATS, int NB>
__device__ __forceinline__ void add_table(float (&s0)[NB][4], float (&s1)[NB][4], uint32_t at, const Side &side,
                                          const TablePlanes &planes, const uint32_t (&times)[4][4],
                                          const uint32_t (&b)[NB][4]) {
    const uint4 first = load4(at + planes.low.place);
    const uint4 second = planes.two ? load4(at + planes.high.place) : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int t = 0; t < 2; t++) {
        uint32_t a[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            read_codes<FLOATS>(a[i], word_of(first, 2 * t + i) >> planes.low.shift_,
                               word_of(second, 2 * t + i) >> planes.high.shift_, side);
#pragma unroll
            for (int p = 0; p < 4; p++) a[i][p] = mul2(a[i][p], times[2 * t + i][p]);
        }
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            float(&s)[4] = t ? s1[nb] : s0[nb];
            mma(s, a[0][0], a[1][0], a[0][1], a[1][1], b[nb][0], b[nb][1]);
            mma(s, a[0][2], a[1][2], a[0][3], a[1][3], b[nb][2], b[nb][3]);
        }
    }
}

// Scores of a unit of such keys. x: as encoded keys have them.
template <int NB, bool FLOATS>
__device__ __forceinline__ void score_table(Sums<NB> &x, uint32_t slot, const Side &k, const Queries<128, NB> &q,
                                            int lane) {
    const int r = lane / 4, c = lane % 4;
    const TablePlanes planes(k, r, c);
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
        uint32_t b[NB][4];
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            const uint4 v = q.high_octet(nb, i, r, c);
            const uint32_t n[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int p = 0; p < 4; p++) b[nb][p] = ordered<FLOATS>(n, p);
        }
        const int group = (32 * i + 8 * c) >> k.table.group_log;
#pragma unroll
        for (int block = 0; block < 2; block++) {
            const uint2 s = load2(slot + TableSlot::scales(k.bits) + (block * k.table.n_lists + group) * 64 + r * 8);
            uint32_t times[4][4];
#pragma unroll
            for (int p = 0; p < 4; p++) {
                times[0][p] = lows(s.x, s.x), times[1][p] = highs(s.x, s.x);
                times[2][p] = lows(s.y, s.y), times[3][p] = highs(s.y, s.y);
            }
            add_table<FLOATS, NB>(x[block][0], x[block][1], slot + (512 * block + 128 * i) * k.bits, k, planes, times,
                                  b);
        }
    }
}

// Mixes a unit of such values; sums are in units of 1. w: of the octets of both halves of the unit's 64 rows.
template <int NB, bool FLOATS>
__device__ __forceinline__ void mix_table(Mixed<128, NB> &mixed, uint32_t slot, const Side &v,
                                          const Weights<NB> (&w)[2], int lane) {
    const int r = lane / 4, c = lane % 4;
    const TablePlanes planes(v, r, c);
    const uint32_t ones = splat(1.f);
#pragma unroll
    for (int j = 0; j < 2; j++) {
        uint32_t b[NB][4];
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            mma(mixed.side[nb], 0, ones, 0, ones, w[j].n[nb][0], w[j].n[nb][1]);
            mma(mixed.side[nb], 0, ones, 0, ones, w[j].n[nb][2], w[j].n[nb][3]);
#pragma unroll
            for (int p = 0; p < 4; p++) b[nb][p] = ordered<FLOATS>(w[j].n[nb], p);
        }
#pragma unroll
        for (int block = 0; block < 4; block++) {
            const int list = v.table.halves ? 2 * block + r / 4 : block >> v.per_log;
            const uint4 s = load4(slot + TableSlot::scales(v.bits) + list * 128 + j * 64 + c * 16);
            const uint32_t n[4] = {s.x, s.y, s.z, s.w};
            uint32_t times[4][4];
#pragma unroll
            for (int p = 0; p < 4; p++) times[0][p] = times[1][p] = times[2][p] = times[3][p] = ordered<FLOATS>(n, p);
            add_table<FLOATS, NB>(mixed.values[2 * block], mixed.values[2 * block + 1],
                                  slot + (256 * block + 128 * j) * v.bits, v, planes, times, b);
        }
    }
}

} // namespace kvt

#endif
