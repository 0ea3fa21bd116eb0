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

/* What a launch came to. */
#if defined(__CUDACC__)
template <class Args>
static inline const char *launch(void (*kernel)(Args), int blocks_x, int blocks_y, int threads, size_t shared_bytes,
                                 void *stream, const Args &args) {
    cudaError_t status = cudaSuccess;
    if (shared_bytes > 48 * 1024)
        status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
    if (status == cudaSuccess) {
        kernel<<<dim3((unsigned)blocks_x, (unsigned)blocks_y), (unsigned)threads, shared_bytes,
                 static_cast<cudaStream_t>(stream)>>>(args);
        status = cudaGetLastError();
    }
    return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}
#endif

#endif
