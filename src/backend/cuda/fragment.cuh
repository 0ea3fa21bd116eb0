/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix fragments: what mma.sync m16n8k16 wants of each lane, and how codes become its operands without being converted.
 *
 * A lane of a warp is r = lane / 4, c = lane % 4. Operand A has 16 rows (r and r + 8), operand B 8 columns (r), and of the 16 terms of
 * a step a lane holds two pairs. Which terms those are is free as long as both operands agree. Here lane c holds octet c of every 32
 * terms, whatever the width of a code, so that B never depends on it.
 *
 * A code that lies in the low bits of a 16-bit half is an f16 already, a subnormal: exactly code * 2^-24, and tensor cores take
 * subnormals at full speed. A code that lies w bits further up counts 2^w times, which B makes good.
 */
#ifndef BACKEND_CUDA_FRAGMENT_CUH
#define BACKEND_CUDA_FRAGMENT_CUH

#include <stdint.h>
#if defined(__CUDACC__)
#include <cuda_fp16.h>
#endif

namespace kvt {

constexpr float SUBNORMALS = 16777216.f; // 2^24: what one is worth in units of f16's smallest subnormal

__device__ __forceinline__ uint32_t bits_of(__half2 h) { return *reinterpret_cast<uint32_t *>(&h); }
__device__ __forceinline__ __half2 halves_of(uint32_t x) { return *reinterpret_cast<__half2 *>(&x); }
__device__ __forceinline__ uint32_t pack(float lo, float hi) { return bits_of(__floats2half2_rn(lo, hi)); }
__device__ __forceinline__ uint32_t splat(float x) { return pack(x, x); }
__device__ __forceinline__ uint32_t mul2(uint32_t a, uint32_t b) {
    return bits_of(__hmul2(halves_of(a), halves_of(b)));
}
__device__ __forceinline__ uint32_t fma2(uint32_t a, uint32_t b, uint32_t c) {
    return bits_of(__hfma2(halves_of(a), halves_of(b), halves_of(c)));
}
__device__ __forceinline__ uint32_t neg2(uint32_t a) { return a ^ 0x80008000u; }
__device__ __forceinline__ uint32_t lows(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x5410); }
__device__ __forceinline__ uint32_t highs(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x7632); }
__device__ __forceinline__ uint32_t word_of(const uint4 &v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
// Instructions; tests/cuda/on_host.h has them for a processor.
#if defined(__CUDACC__)
__device__ __forceinline__ float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// d += A B, 16 rows x 16 terms x 8 columns. a0, a1: rows r, r + 8 of the lane's first pair of terms; a2, a3 of its second.
__device__ __forceinline__ void mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                    uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// d += A B of whole numbers, 16 rows x 32 terms x 8 columns; A of bytes without a sign, B of bytes with one. a0, a1: rows r, r + 8 of terms 4 c ..,
// a2, a3: of terms 16 + 4 c ...
__device__ __forceinline__ void mma_bytes(uint32_t (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                          uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ uint32_t transpose8x8(uint32_t a) {
    uint32_t d;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(a));
    return d;
}
// Four 8 x 8 matrices from shared memory, transposed: lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ uint4 load_transposed(uint32_t address) {
    uint4 m;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m.x), "=r"(m.y), "=r"(m.z), "=r"(m.w)
                 : "r"(address)
                 : "memory");
    return m;
}

__device__ __forceinline__ uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
// volatile keeps them behind the waits and barriers that they need
__device__ __forceinline__ uint4 load4(uint32_t address) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}
__device__ __forceinline__ uint2 load2(uint32_t address) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address) : "memory");
    return v;
}
__device__ __forceinline__ uint32_t load_word(uint32_t address) {
    uint32_t x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
    return x;
}
__device__ __forceinline__ uint32_t load_half(uint32_t address) {
    uint32_t x;
    asm volatile("ld.shared.u16 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
    return x;
}
__device__ __forceinline__ uint32_t load_byte(uint32_t address) {
    uint32_t x;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
    return x;
}
__device__ __forceinline__ void store4(uint32_t address, const uint4 &v) {
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}
__device__ __forceinline__ void store2(uint32_t address, const uint2 &v) {
    asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(address), "r"(v.x), "r"(v.y) : "memory");
}
__device__ __forceinline__ void store_word(uint32_t address, uint32_t x) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}
__device__ __forceinline__ void store_half(uint32_t address, uint32_t x) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"((uint16_t)x) : "memory");
}
__device__ __forceinline__ void store_byte(uint32_t address, uint32_t x) {
    asm volatile("st.shared.u8 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}
// A struct that lies in whole 16 bytes and that nobody writes: all of it is on its way at once.
template <class T> __device__ __forceinline__ T load_whole(const T *from) {
    static_assert(sizeof(T) % 16 == 0);
    uint4 words[sizeof(T) / 16];
#pragma unroll
    for (int i = 0; i < (int)(sizeof(T) / 16); i++)
        asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(words[i].x), "=r"(words[i].y), "=r"(words[i].z), "=r"(words[i].w)
                     : "l"((const uint4 *)from + i));
    T whole;
    memcpy(&whole, words, sizeof whole);
    return whole;
}
// What createpolicy.fractional.L2::evict_first gives: tiles are read once, and leave the second-level cache before tables and parts do.
constexpr uint64_t READ_ONCE = 0x12f0000000000000u;
// 16 bytes from global to shared memory, in the background
__device__ __forceinline__ void copy16(uint32_t to, const void *from) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "l"(READ_ONCE)
                 : "memory");
}
// The same at offsets that the instruction holds.
template <int TO, int FROM> __device__ __forceinline__ void copy16_at(uint32_t to, const void *from) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0+%2], [%1+%3], 16, %4;" ::"r"(to), "l"(from),
                 "n"(TO), "n"(FROM), "l"(READ_ONCE)
                 : "memory");
}
// (~x & mask) | rest, of which the compiler makes more than one operation.
__device__ __forceinline__ uint32_t put_turned(uint32_t x, uint32_t mask, uint32_t rest) {
    uint32_t y;
    asm("lop3.b32 %0, %1, %2, %3, 0xae;" : "=r"(y) : "r"(x), "r"(mask), "r"(rest));
    return y;
}
__device__ __forceinline__ void copies_begun() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wait_for_copies() { // until N groups are on their way
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
// Two e4m3 as two f16.
__device__ __forceinline__ uint32_t halves_of_e4m3(uint32_t bytes) {
    uint32_t x;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(x) : "h"((uint16_t)bytes));
    return x;
}
// Adds to a number of the device's memory: what this thread wrote before is seen by whoever sees the sum. Returns what it was.
__device__ __forceinline__ int add_in_order(int32_t *to, int x) {
    int before;
    asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;" : "=r"(before) : "l"(to), "r"(x) : "memory");
    return before;
}
#endif

// A plane of a tile's codes: 2 or 1 of them make a code (docs/formats.md, section 4). Made by the host.
struct Plane {
    uint32_t mask;    // of a code in each half of a word
    uint32_t flip;    // what is turned in it, likewise
    uint32_t vectors; // by octet, four bits each: its vector among those of 32 terms
    uint32_t shifts;  // likewise: how far up in its bytes it lies
    uint32_t up;      // f16, twice: what a code of this plane counts
    uint32_t down;    // f16, twice: 1 / 2^width
    int width;        // 0: there is no such plane
};

// The same for the lane that reads it. FOUR: the codes are of four bits, all of which is known then.
template <bool FOUR> struct LanePlane {
    uint32_t mask_, flip_, down_;
    int width_, shift_;
    uint32_t place; // of its chunk, from the first of 32 terms on
    __device__ __forceinline__ LanePlane(const Plane &p, uint32_t turns, int r, int c)
        : mask_(p.mask), flip_(p.flip), down_(p.down), width_(p.width), shift_(p.shifts >> 4 * c & 15) {
        const uint32_t v = FOUR ? c : p.vectors >> 4 * c & 15;
        place = v * 128 + 16 * (r ^ (FOUR ? 2 * c : turns >> 4 * v & 15));
    }
    __device__ __forceinline__ uint32_t mask() const { return FOUR ? 0x000f000fu : mask_; }
    __device__ __forceinline__ uint32_t high_mask() const { return FOUR ? 0x00f000f0u : mask_ << width_; }
    __device__ __forceinline__ uint32_t high_flip() const { return FOUR ? flip_ << 4 : flip_ << width_; }
    __device__ __forceinline__ int shift() const { return FOUR ? 0 : shift_; }
};

// The octet that a lane has in a word: its two quads lie in the lowest bits of each byte once it is shifted down.
struct Octet {
    uint32_t a02, a46, a13, a57; // pairs of terms; those of the second quad count 2^width times
    template <bool FOUR> __device__ __forceinline__ Octet(uint32_t word, const LanePlane<FOUR> &p) {
        const uint32_t x = word >> p.shift(), y = x >> 8;
        a02 = (x & p.mask()) ^ p.flip_, a46 = (x & p.high_mask()) ^ p.high_flip();
        a13 = (y & p.mask()) ^ p.flip_, a57 = (y & p.high_mask()) ^ p.high_flip();
    }
};

// Operand B of an octet, from four pairs in natural order; the second quad's divided by 2^width.
struct Factors {
    uint32_t b02, b46, b13, b57;
    __device__ __forceinline__ void set(const uint32_t (&n)[4], uint32_t down) {
        b02 = lows(n[0], n[1]), b13 = highs(n[0], n[1]);
        b46 = mul2(lows(n[2], n[3]), down), b57 = mul2(highs(n[2], n[3]), down);
    }
};

__device__ __forceinline__ void mma_octet(float (&d)[4], const Octet &lower, const Octet &upper, const Factors &b) {
    mma(d, lower.a02, upper.a02, lower.a46, upper.a46, b.b02, b.b46);
    mma(d, lower.a13, upper.a13, lower.a57, upper.a57, b.b13, b.b57);
}

// The codes of a block of 32 lanes: 32 terms are `bits` vectors of 128 bytes, and a 16-byte chunk of a vector is four lanes. In shared memory
// chunks are moved within their vector (by its four bits of `turns`) so that the lanes of a warp, which read chunk r of the vectors of
// octet c, meet no bank twice. Copies n chunks, a multiple of 8; FOUR as above.
template <bool FOUR, int N>
__device__ __forceinline__ void copy_codes(uint32_t to, const char *from, int bits, uint32_t turns, int lane) {
    int v = lane / 8;
    if (FOUR) {
        to += v * 128 + 16 * (lane % 8 ^ 2 * v), from += 16 * lane;
#pragma unroll
        for (int k = 0; k < N / 32; k++) copy16(to + 512 * k, from + 512 * k);
        if (N % 32 && lane < N % 32) copy16(to + N / 32 * 512, from + N / 32 * 512);
        return;
    }
    if (bits == 2) v &= 1;
    if (v >= bits) v -= bits;
    for (int k = lane; k < N * bits / 4; k += 32) {
        copy16(to + k / 8 * 128 + 16 * (lane % 8 ^ (turns >> 4 * v & 15)), from + 16 * k);
        v += 4;
        if (v >= bits) v -= bits;
        if (v >= bits) v -= bits;
    }
}

} // namespace kvt

#endif
