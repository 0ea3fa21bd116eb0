/* SPDX-License-Identifier: Apache-2.0
 *
 * What kernels need of their compiler: nvcc, or a C++ compiler after tests/cuda/on_host.h, which runs a block's threads in turns.
 * Exact kernels are compiled with -fmad=false: one rounding an operation, as in C.
 */
#ifndef BACKEND_CUDA_SIMT_CUH
#define BACKEND_CUDA_SIMT_CUH

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#endif

/* The codecs' own headers are C. */
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#pragma GCC diagnostic ignored "-Wshadow"
#endif
extern "C" {
#include "base/half.h"
#if defined(__CUDA_ARCH__)
/* The machine's own conversions give the same bits, but for those of a NaN. */
static __host__ __device__ inline uint16_t own_f16_from_f32(float x) { return __half_as_ushort(__float2half_rn(x)); }
static __host__ __device__ inline float own_f32_from_f16(uint16_t h) { return __half2float(__ushort_as_half(h)); }
#define kvt_f16_from_f32 own_f16_from_f32
#define kvt_f32_from_f16 own_f32_from_f16
#endif
#include "codec/affine.h"
#include "codec/class.h"
#include "codec/codec.h"
#include "codec/kivi.h"
#include "codec/log8.h"
#include "codec/whole.h"
}
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

#if defined(__CUDACC__)
#define KVT_DEVICE                       static __device__ inline
#define KVT_KERNEL(threads)              static __global__ void __launch_bounds__(threads)
#define KVT_KERNEL_WITH(threads, blocks) static __global__ void __launch_bounds__(threads, blocks)
#define KVT_MEMBER                       __device__ __forceinline__
#define KVT_OF_BLOCK                     __shared__
#define KVT_ARGS                         const __grid_constant__
extern __shared__ __align__(16) unsigned char kvt_shared[];
#else
#define KVT_DEVICE                       static inline
#define KVT_KERNEL(threads)              static void
#define KVT_KERNEL_WITH(threads, blocks) static void
#define KVT_MEMBER                       inline
#define KVT_OF_BLOCK                     static /* blocks run one after another */
#define KVT_ARGS                         const
#endif

enum { KVT_WARP = 32 };

KVT_DEVICE int thread_in_warp() { return (int)threadIdx.x % KVT_WARP; }
KVT_DEVICE int warp_in_block() { return (int)threadIdx.x / KVT_WARP; }
KVT_DEVICE int warps_of_block() { return (int)blockDim.x / KVT_WARP; }

/* Asks for the 128 bytes at p to be brought near. */
KVT_DEVICE void ask_for(const void *p) {
#if defined(__CUDA_ARCH__)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#else
    (void)p;
#endif
}

/* A kernel that has one of these from beginning to end lets the next launch begin beside it, where that was asked for (`beside`), and
 * ends after the one before. */
struct side_by_side {
    __device__ side_by_side() {
#if defined(__CUDA_ARCH__)
        asm volatile("griddepcontrol.launch_dependents;");
#endif
    }
    __device__ ~side_by_side() {
#if defined(__CUDA_ARCH__)
        asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    }
};

/* What a launch came to. beside: it may run at the same time as the launch before it, of which it needs nothing. cluster: blocks along y that
 * work together (cluster.cuh). */
#if defined(__CUDACC__)
template <class Args>
static inline const char *launch(void (*kernel)(Args), int blocks_x, int blocks_y, int threads, size_t shared_bytes,
                                 void *stream, const Args &args, bool beside = false, int cluster = 1) {
    cudaError_t status = cudaSuccess;
    if (shared_bytes > 48 * 1024)
        status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
    cudaLaunchAttribute attributes[2] = {};
    int n = 0;
    if (beside) {
        attributes[n].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[n++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
        attributes[n].id = cudaLaunchAttributeClusterDimension;
        attributes[n].val.clusterDim.x = attributes[n].val.clusterDim.z = 1;
        attributes[n++].val.clusterDim.y = (unsigned)cluster;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks_x, (unsigned)blocks_y), config.blockDim = (unsigned)threads;
    config.dynamicSmemBytes = shared_bytes, config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = attributes, config.numAttrs = (unsigned)n;
    if (status == cudaSuccess) status = cudaLaunchKernelEx(&config, kernel, args);
    return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}
#endif

#endif
