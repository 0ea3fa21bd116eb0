/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of a warpgroup (four warps) on Hopper's tensor cores, and copies in the background that count on a barrier.
 *
 * d += A B: 64 rows, 16 terms, N columns. Operands in shared memory are matrices of 64 terms of f16, 128 bytes a line, whose lines follow each
 * other; the 16-byte chunks of a line are at chunk ^ line % 8 (the 128-byte swizzle), and matrices begin at multiples of 1024. Of d, lane
 * (r, c) of warp w has rows 16 w + r (elements 4 j and 4 j + 1) and 16 w + r + 8 (4 j + 2 and 4 j + 3), columns 8 j + 2 c and 8 j + 2 c + 1.
 */
#ifndef BACKEND_CUDA_WGMMA_CUH
#define BACKEND_CUDA_WGMMA_CUH

#include <stdint.h>

namespace kvt {

// A matrix in shared memory, from the 16 terms at `address` on.
__device__ __forceinline__ uint64_t matrix_at(uint32_t address) {
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

// Before the first product, and after registers that one uses were written.
__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_begun() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until N groups are on their way.
template <int N> __device__ __forceinline__ void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// Keeps what reads or writes registers on its side of a wait.
template <int N> __device__ __forceinline__ void hold(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

#define KVT_D8(d, i)                                                                                                   \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]),        \
        "+f"(d[i + 7])
#define KVT_D16(d, i) KVT_D8(d, i), KVT_D8(d, i + 8)
#define KVT_D32(d, i) KVT_D16(d, i), KVT_D16(d, i + 16)
#define KVT_R32                                                                                                        \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"   \
    "%30,%31"
#define KVT_R48 KVT_R32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define KVT_R64 KVT_R48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

// A and B from shared memory; `add` 0: d is written over.
__device__ __forceinline__ void product(float (&d)[32], uint64_t a, uint64_t b, int add) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" KVT_R32 "}, %32, %33, p, 1, 1, 0, 0;}"
                 : KVT_D32(d, 0)
                 : "l"(a), "l"(b), "r"(add));
}
__device__ __forceinline__ void product(float (&d)[64], uint64_t a, uint64_t b, int add) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" KVT_R64 "}, %64, %65, p, 1, 1, 0, 0;}"
                 : KVT_D32(d, 0), KVT_D32(d, 32)
                 : "l"(a), "l"(b), "r"(add));
}
// A from registers, in pairs of terms: row r, terms 2 c; row r + 8; row r, terms 2 c + 8; row r + 8.
__device__ __forceinline__ void product(float (&d)[32], const uint32_t *a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" KVT_R32 "}, {%32,%33,%34,%35}, %36, 1, 1, 1, 0;"
                 : KVT_D32(d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void product(float (&d)[48], const uint32_t *a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" KVT_R48 "}, {%48,%49,%50,%51}, %52, 1, 1, 1, 0;"
                 : KVT_D32(d, 0), KVT_D16(d, 32)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void product(float (&d)[64], const uint32_t *a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" KVT_R64
                 "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 0;"
                 : KVT_D32(d, 0), KVT_D32(d, 32)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#undef KVT_D8
#undef KVT_D16
#undef KVT_D32
#undef KVT_R32
#undef KVT_R48
#undef KVT_R64

// Barriers in shared memory.
__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile("{.reg .pred p;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@!p bra again;}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}
// Copies that are counted by a barrier, which one thread has told how much comes.
__device__ __forceinline__ void copy_in(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}
// What this thread wrote to shared memory is seen by products and copies.
__device__ __forceinline__ void show_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

} // namespace kvt

#endif
