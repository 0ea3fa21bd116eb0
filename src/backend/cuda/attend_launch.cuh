/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching the kernel of one head size. Each head size has a file of its own that makes both of its kernels: they take long to compile.
 */
#ifndef BACKEND_CUDA_ATTEND_LAUNCH_CUH
#define BACKEND_CUDA_ATTEND_LAUNCH_CUH

#include "backend/cuda/attend_kernel.cuh"

namespace kvt {

template <int D, int NB> static void set_slots(Args *args) {
    size_t keys = KeySlot<D>::bytes(args->body.k), values = ValueSlot<D>::bytes(args->body.v);
    const size_t plain = KeySlot<D>::bytes(args->plain.k);
    if (keys < plain) keys = plain;
    if (values < plain) values = plain;
    args->key_slot = (uint32_t)((keys + 127) / 128 * 128);
    args->slots = args->key_slot + (uint32_t)((values + 127) / 128 * 128);
}

// As many warps as have room for their slots.
template <int D, int NB> cudaError_t launch(Args *args, cudaStream_t stream) {
    using S = Shape<D, NB>;
    int device, most;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error != cudaSuccess) return error;
    set_slots<D, NB>(args);
    int n_warps = (most - 64 - S::BESIDE) / (int)args->slots / 2 * 2;
    n_warps = n_warps < S::MOST_WARPS ? n_warps : S::MOST_WARPS;
    if (n_warps < S::LEAST_WARPS) return cudaErrorInvalidConfiguration;
    const int bytes = n_warps * (int)args->slots + S::BESIDE;
    error = cudaFuncSetAttribute(attend_kernel<D, NB>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    attend_kernel<D, NB><<<args->call.n_blocks, 32 * n_warps, bytes, stream>>>(*args);
    return cudaGetLastError();
}

} // namespace kvt

#define KVT_CUDA_ATTEND_SIZE(d)                                                                                        \
    template cudaError_t kvt::launch<d, 1>(kvt::Args *, cudaStream_t);                                                 \
    template cudaError_t kvt::launch<d, 2>(kvt::Args *, cudaStream_t);

#endif
