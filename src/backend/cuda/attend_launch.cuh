/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching the kernel of one head size. Each head size has a file of its own that makes both of its kernels: they take long to compile.
 */
#ifndef BACKEND_CUDA_ATTEND_LAUNCH_CUH
#define BACKEND_CUDA_ATTEND_LAUNCH_CUH

#include "backend/cuda/attend_kernel.cuh"
#include <stdlib.h>

namespace kvt {

template <int D, int NB> static void set_slots(Args *args) {
    const Side &k = args->body.k, &v = args->body.v;
    size_t keys = k.tabled    ? TableSlot::bytes(k)
                  : k.classed ? (k.bits == 4   ? ClassLayout<4>::BYTES
                                 : k.bits == 3 ? ClassLayout<3>::BYTES
                                               : ClassLayout<2>::BYTES)
                              : KeySlot<D>::bytes(k);
    size_t values = v.tabled ? TableSlot::bytes(v) : ValueSlot<D>::bytes(v);
    const size_t plain = KeySlot<D>::bytes(args->plain.k);
    if (keys < plain) keys = plain;
    if (values < plain) values = plain;
    args->key_slot = (uint32_t)((keys + 127) / 128 * 128);
    args->slots = args->key_slot + (uint32_t)((values + 127) / 128 * 128);
}

// As many warps as have room for their slots in so many bytes; 0: too few.
template <int D, int NB, class K> int warps_in(Args *args, int most) {
    using S = Shape<D, NB>;
    set_slots<D, NB>(args);
    const int n = (most - S::FIXED - S::BESIDE) / (int)args->slots / 2 * 2;
    if (n < S::LEAST_WARPS) return 0;
    return n < (MOST_WARPS<D, NB, K>) ? n : MOST_WARPS<D, NB, K>;
}

#if defined(__CUDACC__)
template <int D, int NB, class K, class V> cudaError_t launch_one(Args *args, cudaStream_t stream) {
    using S = Shape<D, NB>;
    int device, most;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error != cudaSuccess) return error;
    const int n_warps = warps_in<D, NB, K>(args, most);
    if (n_warps == 0) return cudaErrorInvalidConfiguration;
    const int bytes = n_warps * (int)args->slots + S::BESIDE;
    error = cudaFuncSetAttribute(attend_kernel<D, NB, K, V>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    attend_kernel<D, NB, K, V><<<args->call.n_blocks, 32 * n_warps, bytes, stream>>>(*args);
    return cudaGetLastError();
}
#else
template <int D, int NB, class K, class V> cudaError_t launch_one(Args *args, cudaStream_t stream);
#endif

// What kernels know: kivi, affine, kvarn, q8_0 and q4_0 of these bits and groups.
using Kivi4g32K = KnownKeys<4, 32, false, true, false>;
using Kivi4g32V = KnownValues<4, 32, true, false>;
using Kivi4g64K = KnownKeys<4, 64, false, true, false>;
using Affine4g64K = KnownKeys<4, 64, true, true, false>;
using Affine4g64V = KnownValues<4, 64, true, false>;
using Kivi2g32K = KnownKeys<2, 32, false, true, false>;
using Kivi2g32V = KnownValues<2, 32, true, false>;
using Kivi8g32K = KnownKeys<8, 32, false, true, false>;
using Kivi8g32V = KnownValues<8, 32, true, false>;
using Affine8g64K = KnownKeys<8, 64, true, true, false>;
using Affine8g64V = KnownValues<8, 64, true, false>;
using Q8K = KnownKeys<8, 32, true, false, false>;
using Q8V = KnownValues<8, 32, false, false>;
using Q4K = KnownKeys<4, 32, true, false, false>;
using Q4V = KnownValues<4, 32, false, false>;
using Kvarn4K = KnownKeys<4, 128, false, true, true>;
using Kvarn4V = KnownValues<4, 128, true, true>;

// Kernels for 16 columns, in attend_known_wide.cu; those and more for 8, in attend_known.cu.
#define KVT_CUDA_KNOWN_WIDE(X)                                                                                         \
    X(Kivi4g32K, Kivi4g32V)                                                                                            \
    X(Kivi4g64K, Affine4g64V)                                                                                          \
    X(Affine4g64K, Affine4g64V)
#define KVT_CUDA_KNOWN(X)                                                                                              \
    KVT_CUDA_KNOWN_WIDE(X)                                                                                             \
    X(Kivi2g32K, Kivi2g32V)                                                                                            \
    X(Kivi8g32K, Kivi8g32V)                                                                                            \
    X(Affine8g64K, Affine8g64V)                                                                                        \
    X(Q8K, Q8V)                                                                                                        \
    X(Q4K, Q4V)                                                                                                        \
    X(Kvarn4K, Kvarn4V)                                                                                                \
    X(ClassKeys<4>, LogValues<4>)                                                                                      \
    X(ClassKeys<3>, LogValues<3>)                                                                                      \
    X(ClassKeys<2>, LogValues<2>)                                                                                      \
    X(Tables, Tables)
#if defined(__CUDACC__)
#define X(K, V) extern template cudaError_t launch_one<128, 1, K, V>(Args *, cudaStream_t);
KVT_CUDA_KNOWN(X)
#undef X
#define X(K, V) extern template cudaError_t launch_one<128, 2, K, V>(Args *, cudaStream_t);
KVT_CUDA_KNOWN_WIDE(X)
#undef X
#endif

template <class T> bool is_known(const Side &side, bool rotated) {
    return side.bits == T::BITS && side.group == T::GROUP && side.has_zero == T::ZERO && side.has_factor == T::FACTOR &&
           side.code_offset == (T::ZERO ? 0 : T::OFFSET) && !side.classed && !side.logs && !side.tabled &&
           rotated == T::FACTOR;
}
template <class K, class V> bool is_known(const Args &args) {
    if constexpr (K::TABLED)
        return args.body.k.tabled && args.body.v.tabled;
    else if constexpr (K::CLASS_BITS != 0)
        return args.body.k.classed && args.body.k.bits == K::CLASS_BITS && args.body.v.bits == V::BITS;
    else
        return args.body.k.lane == K::BY_TOKEN && is_known<K>(args.body.k, args.rotated_k) &&
               is_known<V>(args.body.v, args.rotated_v);
}

template <int NB> bool knows_codes(const Args &args) {
#define X(K, V)                                                                                                        \
    if (is_known<K, V>(args)) return true;
    if constexpr (NB == 1) {
        KVT_CUDA_KNOWN(X)
    } else {
        KVT_CUDA_KNOWN_WIDE(X)
    }
#undef X
    return false;
}

template <int D, int NB> cudaError_t launch(Args *args, cudaStream_t stream) {
#define X(K, V)                                                                                                        \
    if (is_known<K, V>(*args)) return launch_one<D, NB, K, V>(args, stream);
    if constexpr (D == 128 && NB == 1) {
        KVT_CUDA_KNOWN(X)
    } else if constexpr (D == 128 && NB == 2) {
        KVT_CUDA_KNOWN_WIDE(X)
    }
#undef X
    return launch_one<D, NB, AnyCodes, AnyCodes>(args, stream);
}

} // namespace kvt

#define KVT_CUDA_ATTEND_SIZE(d)                                                                                        \
    template cudaError_t kvt::launch<d, 1>(kvt::Args *, cudaStream_t);                                                 \
    template cudaError_t kvt::launch<d, 2>(kvt::Args *, cudaStream_t);

#endif
