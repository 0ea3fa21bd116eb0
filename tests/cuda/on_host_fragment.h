/* SPDX-License-Identifier: Apache-2.0
 *
 * on_host.h for what is written for nvcc alone, backend/cuda/fragment.cuh and what includes it: CUDA's words and types, halves, the instructions of
 * tensor cores. A copy in the background is done at once.
 */
#ifndef TESTS_CUDA_ON_HOST_FRAGMENT_H
#define TESTS_CUDA_ON_HOST_FRAGMENT_H

#include "cuda/on_host.h"

#include <algorithm>

extern "C" {
#include "base/half.h"
}

#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)

typedef void *cudaStream_t;
enum cudaError_t { cudaSuccess, cudaErrorInvalidValue, cudaErrorInvalidConfiguration };

using std::max;
using std::min;

struct uint2 {
    uint32_t x, y;
};
struct uint4 {
    uint32_t x, y, z, w;
};
struct float2 {
    float x, y;
};
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline float __uint_as_float(uint32_t x) { return on_host::from_bits<float>(x); }
inline uint32_t __float_as_uint(float x) { return (uint32_t)on_host::to_bits(x); }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline float2 __ldcg(const float2 *from) { return *from; }
template <class T> T load_whole(const T *from) { return *from; }
inline float4 __ldcg(const float4 *from) { return *from; }
inline void __stcg(float4 *to, const float4 &x) { *to = x; }
inline bool __any_sync(unsigned mask, bool yes) { return __ballot_sync(mask, yes) != 0; }
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t places) {
    const uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t x = 0;
    for (int i = 0; i < 4; i++) x |= (uint32_t)(bytes >> 8 * (places >> 4 * i & 7) & 0xFF) << 8 * i;
    return x;
}
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, int n) {
    return (uint32_t)(((uint64_t)high << 32 | low) >> (n & 31));
}
template <class T> T __shfl_up_sync(unsigned mask, T x, int distance) {
    const int lane = (int)on_host::thread_index.x % 32, from = lane - distance;
    return on_host::from_bits<T>(on_host::with_warp(mask, on_host::to_bits(x))[from < 0 ? lane : from]);
}

/* ---- halves ------------------------------------------------------------------------------------------------------------ */

struct __half {
    uint16_t bits;
};
struct __half2 {
    __half x, y;
};
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline float __half2float(__half h) { return kvt_f32_from_f16(h.bits); }
inline __half __float2half_rn(float x) { return {kvt_f16_from_f32(x)}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
inline float2 __half22float2(__half2 h) { return {__half2float(h.x), __half2float(h.y)}; }
inline __half2 __hmul2(__half2 a, __half2 b) {
    return __floats2half2_rn(__half2float(a.x) * __half2float(b.x), __half2float(a.y) * __half2float(b.y));
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
    return __floats2half2_rn(fmaf(__half2float(a.x), __half2float(b.x), __half2float(c.x)),
                             fmaf(__half2float(a.y), __half2float(b.y), __half2float(c.y)));
}
inline __half2 __hmax2(__half2 a, __half2 b) {
    return __floats2half2_rn(fmaxf(__half2float(a.x), __half2float(b.x)), fmaxf(__half2float(a.y), __half2float(b.y)));
}
inline __half2 __habs2(__half2 a) { return {{(uint16_t)(a.x.bits & 0x7FFF)}, {(uint16_t)(a.y.bits & 0x7FFF)}}; }

/* ---- instructions ------------------------------------------------------------------------------------------------------ */

namespace kvt {

/* What each thread of the warp gives, for all to read. */
template <class T> struct of_warp {
    T all[32];
    explicit of_warp(const T &own) {
        const uint64_t *given = on_host::with_warp(~0u, (uint64_t)(uintptr_t)&own);
        for (int i = 0; i < 32; i++) all[i] = *reinterpret_cast<const T *>((uintptr_t)given[i]);
        on_host::with_warp(~0u, 0);
    }
};

inline int its_lane() { return (int)on_host::thread_index.x % 32; }
inline float exp2_of(float x) { return exp2f(x); }
inline float half_at(const uint32_t *words, int i) { return kvt_f32_from_f16((uint16_t)(words[i / 2] >> i % 2 * 16)); }

inline void mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    struct operands {
        uint32_t a[4], b[2];
    };
    const of_warp<operands> given({{a0, a1, a2, a3}, {b0, b1}});
    const int r = its_lane() / 4, c = its_lane() % 4;
    for (int e = 0; e < 4; e++) {
        double sum = d[e];
        for (int k = 0; k < 16; k++) {
            const operands &row = given.all[r * 4 + k % 8 / 2], &column = given.all[(2 * c + e % 2) * 4 + k % 8 / 2];
            sum += (double)half_at(&row.a[k / 8 * 2 + e / 2], k % 2) * (double)half_at(&column.b[k / 8], k % 2);
        }
        d[e] = (float)sum;
    }
}
inline void mma_bytes(uint32_t (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    struct operands {
        uint32_t a[4], b[2];
    };
    const of_warp<operands> given({{a0, a1, a2, a3}, {b0, b1}});
    const int r = its_lane() / 4, c = its_lane() % 4;
    for (int e = 0; e < 4; e++)
        for (int k = 0; k < 32; k++) {
            const operands &row = given.all[r * 4 + k % 16 / 4], &column = given.all[(2 * c + e % 2) * 4 + k % 16 / 4];
            const int code = (uint8_t)(row.a[k / 16 * 2 + e / 2] >> k % 4 * 8),
                      x = (int8_t)(column.b[k / 16] >> k % 4 * 8);
            d[e] += (uint32_t)(code * x);
        }
}
inline uint32_t transpose8x8(uint32_t a) {
    const of_warp<uint32_t> given(a);
    const int r = its_lane() / 4, c = its_lane() % 4;
    uint32_t x = 0;
    for (int i = 0; i < 2; i++) x |= (given.all[(2 * c + i) * 4 + r / 2] >> r % 2 * 16 & 0xFFFF) << 16 * i;
    return x;
}
inline uint32_t shared_address(const void *p) {
    return (uint32_t)(static_cast<const unsigned char *>(p) - on_host::the_block->shared);
}
template <class T> T load_shared(uint32_t address) {
    T x;
    if (address % sizeof x || address + sizeof x > on_host::MOST_SHARED) {
        fprintf(stderr, "on_host: %zu bytes of shared memory at %u\n", sizeof x, address);
        abort();
    }
    memcpy(&x, on_host::the_block->shared + address, sizeof x);
    return x;
}
inline uint32_t put_turned(uint32_t x, uint32_t mask, uint32_t rest) { return (~x & mask) | rest; }
inline uint4 load4(uint32_t address) { return load_shared<uint4>(address); }
inline uint2 load2(uint32_t address) { return load_shared<uint2>(address); }
inline uint32_t load_word(uint32_t address) { return load_shared<uint32_t>(address); }
inline uint32_t load_half(uint32_t address) { return load_shared<uint16_t>(address); }
inline uint32_t load_byte(uint32_t address) { return load_shared<uint8_t>(address); }
template <class T> void store_shared(uint32_t address, const T &x) {
    (void)load_shared<T>(address); /* it is there */
    memcpy(on_host::the_block->shared + address, &x, sizeof x);
}
inline void store4(uint32_t address, const uint4 &v) { store_shared(address, v); }
inline void store2(uint32_t address, const uint2 &v) { store_shared(address, v); }
inline void store_word(uint32_t address, uint32_t x) { store_shared(address, x); }
inline void store_half(uint32_t address, uint32_t x) { store_shared(address, (uint16_t)x); }
inline void store_byte(uint32_t address, uint32_t x) { store_shared(address, (uint8_t)x); }
inline uint4 load_transposed(uint32_t address) {
    const of_warp<uint4> given(load4(address));
    const int r = its_lane() / 4, c = its_lane() % 4;
    uint32_t to[4] = {};
    for (int m = 0; m < 4; m++)
        for (int i = 0; i < 2; i++) {
            const uint4 &row = given.all[8 * m + 2 * c + i];
            const uint32_t words[4] = {row.x, row.y, row.z, row.w};
            to[m] |= (words[r / 2] >> r % 2 * 16 & 0xFFFF) << 16 * i;
        }
    return {to[0], to[1], to[2], to[3]};
}
inline void copy16(uint32_t to, const void *from) {
    if (to % 16 || (uintptr_t)from % 16 || to + 16 > on_host::MOST_SHARED) {
        fprintf(stderr, "on_host: a copy of 16 bytes from %p to %u\n", from, to);
        abort();
    }
    memcpy(on_host::the_block->shared + to, from, 16);
}
inline uint32_t halves_of_e4m3(uint32_t bytes) {
    return (uint32_t)kvt_f16_from_f32(kvt_f32_from_e4m3(bytes >> 8 & 255)) << 16 |
           kvt_f16_from_f32(kvt_f32_from_e4m3(bytes & 255));
}
template <int TO, int FROM> void copy16_at(uint32_t to, const void *from) {
    copy16(to + TO, static_cast<const char *>(from) + FROM);
}
inline void copies_begun() {}
template <int N> void wait_for_copies() { __syncwarp(); }
inline int add_in_order(int32_t *to, int x) { return atomicAdd(to, x); }

} /* namespace kvt */

#endif
