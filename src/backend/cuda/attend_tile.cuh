/* SPDX-License-Identifier: Apache-2.0
 *
 * What attention needs to know of a layer's tiles on the device, and how a warp fetches a unit of one into its slot of shared memory.
 */
#ifndef BACKEND_CUDA_ATTEND_TILE_CUH
#define BACKEND_CUDA_ATTEND_TILE_CUH

#include "backend/cuda/attend.h"
#include "backend/cuda/fragment.cuh"

namespace kvt {

enum { MAX_BLOCKS = 8 };

// How many planes codes have; FOUR: one, of codes of four bits.
enum Kind { FOUR, ONE, TWO };

// What a kernel knows of the keys and values of the body when it is compiled, if it is not all (attend_known.cuh): nothing; the middle one of three
// widths of keys; that both are tables or floats. A kernel for any is 1.3 times slower: its code is long.
struct AnyCodes {
    static constexpr bool KNOWN = false, LOGS = false, TABLED = false, BY_TOKEN = false, FACTOR = false;
    static constexpr int CLASS_BITS = 0;
};
struct Tables : AnyCodes {
    static constexpr bool TABLED = true;
};

// Codes that are 8-bit floats or index a table (attend_table.cuh): what they mean, and their scales.
struct Table {
    int meaning, scale, scale_bytes; // kvt_meaning, kvt_scale; of a stored scale
    int group_log;                   // of keys: of channels that share a scale, 31: all
    int n_lists;                     // of scales: groups of channels
    bool halves;                     // of values: groups are half a block of 32
    uint32_t low[4], high[4];        // the table's f16, their lower and upper bytes
};

// One side of a page: where its parts lie, from the head's first byte on.
struct Side {
    uint32_t scales[MAX_BLOCKS], codes[MAX_BLOCKS], factors[MAX_BLOCKS]; // by block of 32 lanes
    uint32_t scale_step, code_step;                                      // of keys: to what is two blocks on
    struct Plane planes[2];
    uint32_t turns;       // of the vectors of 32 terms: see copy_codes
    uint32_t scale_bytes; // from scales to zeros
    int bits;             // 0: plain f16
    int group;            // FOLD: lanes, LANE: terms that share a scale; 32, 64, ..
    int per, per_log;     // 32s of a group, and their logarithm
    int groups;           // of a row of values
    int code_offset;      // subtracted from codes
    uint32_t flip;
    bool lane, has_zero, has_factor;
    bool classed, logs; // keys of three widths; scales and zeros of values are a byte each
    bool tabled;        // codes are no whole numbers
    Table table;
};

struct Page {
    Side k, v;
    uint32_t head_bytes;
};

// What a launch is given.
struct Args {
    Page body, plain;
    bool rotated_k, rotated_v; // the body
    struct kvt_cuda_attend call;
    uint32_t sink_head_bytes;
    uint32_t key_slot, slots; // bytes of a warp's slot of keys; of both
};

// Defined in attend_launch.cuh; D is 64, 128 or 256, NB 1 or 2: eights of columns.
template <int D, int NB> cudaError_t launch(Args *args, cudaStream_t stream);
// There too: whether kernels for heads of 128 and 8 * NB columns know these codes.
template <int NB> bool knows_codes(const Args &args);

// A unit of keys in its slot: codes of two blocks, then scales and zeros of two blocks (or, where they share them, of both),
// then factors. Of values: codes of each block, then 64 scales and 64 zeros of each group, then factors.
template <int D> struct KeySlot {
    __device__ static __forceinline__ uint32_t codes(int bits, int block) { return (uint32_t)(block * 4 * D * bits); }
    __device__ static __forceinline__ uint32_t scales(const Side &k, int block) {
        return (uint32_t)(8 * D * k.bits) + (k.lane || k.group == 32 ? block : 0) * head(k);
    }
    __device__ static __forceinline__ uint32_t zeros(const Side &k, int block) {
        return scales(k, block) + k.scale_bytes;
    }
    __device__ static __forceinline__ uint32_t factors(const Side &k, int block) {
        return (uint32_t)(8 * D * k.bits) + 2 * head(k) + block * 64;
    }
    __host__ __device__ static __forceinline__ uint32_t head(const Side &k) {
        return k.scale_bytes * (k.has_zero ? 2 : 1);
    }
    __host__ static size_t bytes(const Side &k) {
        return k.bits ? 8 * D * k.bits + 2 * head(k) + (k.has_factor ? 128 : 0) : 64 * D;
    }
};
template <int D> struct ValueSlot {
    __device__ static __forceinline__ uint32_t codes(int bits, int block) { return (uint32_t)(block * 256 * bits); }
    __device__ static __forceinline__ uint32_t scales(const Side &v, int group) {
        return (uint32_t)(8 * D * v.bits + group * 256);
    }
    __device__ static __forceinline__ uint32_t zeros(const Side &v, int group) { return scales(v, group) + 128; }
    __device__ static __forceinline__ uint32_t factors(const Side &v, int block) {
        return (uint32_t)(8 * D * v.bits) + v.groups * 256 + block * 64;
    }
    __host__ static size_t bytes(const Side &v) {
        return v.bits ? 8 * D * v.bits + v.groups * (v.logs ? 384 : 256) + (v.has_factor ? 2 * D : 0) : 64 * D;
    }
};

template <int D, bool FOUR>
__device__ __forceinline__ void fetch_coded_keys(uint32_t slot, const char *tile, const Side &k, int half, int lane) {
    const uint32_t head = KeySlot<D>::head(k);
    const char *scales = tile + half * k.scale_step + 16 * lane, *codes = tile + half * k.code_step;
#pragma unroll
    for (int b = 0; b < 2; b++) {
        if (b == 0 || k.lane || k.group == 32) {
            const uint32_t to = slot + KeySlot<D>::scales(k, b) + 16 * lane;
            const char *from = scales + k.scales[b];
#pragma unroll
            for (int i = 0; i < (D + 127) / 128; i++)
                if (16u * lane + 512 * i < head) copy16(to + 512 * i, from + 512 * i);
        }
        copy_codes<FOUR, D>(slot + KeySlot<D>::codes(FOUR ? 4 : k.bits, b), codes + k.codes[b], k.bits, k.turns, lane);
    }
    if (k.has_factor && lane < 8)
        copy16(slot + KeySlot<D>::factors(k, lane / 4) + lane % 4 * 16,
               tile + k.factors[2 * half + lane / 4] + lane % 4 * 16);
}

template <int D, bool FOUR>
__device__ __forceinline__ void fetch_coded_values(uint32_t slot, const char *tile, const Side &v, int half, int lane) {
    const int bits = FOUR ? 4 : v.bits;
    const bool zero = lane & 8; // 8 lanes fetch scales of a group, 8 zeros
    const char *scales = tile + half * 128 + (zero ? v.scale_bytes : 0) + lane % 8 * 16,
               *codes = tile + half * 256 * bits;
    const uint32_t to = slot + ValueSlot<D>::scales(v, lane / 16) + lane % 16 * 16;
#pragma unroll
    for (int i = 0; i < D / 64; i++) // two groups at a time
        if (2 * i + lane / 16 < v.groups && (!zero || v.has_zero) && !v.logs)
            copy16(to + 512 * i, scales + v.scales[(2 * i + lane / 16) << v.per_log]);
#pragma unroll
    for (int b = 0; b < D / 32; b++)
        copy_codes<FOUR, 64>(slot + ValueSlot<D>::codes(bits, b), codes + v.codes[b], v.bits, v.turns, lane);
    if (v.has_factor)
        for (int i = lane; i < D / 8; i += 32)
            copy16(slot + ValueSlot<D>::factors(v, i / 4) + i % 4 * 16, tile + v.factors[i / 4] + i % 4 * 16);
}

// Plain keys: 32 rows are one block, [channel][32 rows]. Plain values: [row][32 channels] of each block. Chunks of a line are moved so that
// eight lines that a matrix is made of meet no bank twice.
template <int D>
__device__ __forceinline__ void fetch_plain_keys(uint32_t slot, const char *tile, const Side &k, int quarter,
                                                 int lane) {
    const char *from = tile + k.codes[quarter];
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
        const int term = 8 * i + lane / 4;
        copy16(slot + term * 64 + 16 * (lane % 4 ^ (term / 8) % 4), from + 512 * i + 16 * lane);
    }
}
template <int D>
__device__ __forceinline__ void fetch_plain_values(uint32_t slot, const char *tile, const Side &v, int quarter,
                                                   int lane) {
#pragma unroll
    for (int b = 0; b < D / 32; b++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = 8 * i + lane / 4;
            copy16(slot + b * 2048 + row * 64 + 16 * (lane % 4 ^ (row / 2) % 4),
                   tile + v.codes[b] + quarter * 2048 + 512 * i + 16 * lane);
        }
}

// A unit of the body, encoded.
template <int D>
__device__ __forceinline__ void fetch_keys(uint32_t slot, const char *tile, const Side &k, int part, int lane) {
    if (k.bits == 4) return fetch_coded_keys<D, true>(slot, tile, k, part, lane);
    fetch_coded_keys<D, false>(slot, tile, k, part, lane);
}
template <int D>
__device__ __forceinline__ void fetch_values(uint32_t slot, const char *tile, const Side &v, int part, int lane) {
    if (v.bits == 4) return fetch_coded_values<D, true>(slot, tile, v, part, lane);
    fetch_coded_values<D, false>(slot, tile, v, part, lane);
}

} // namespace kvt

#endif
