/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching the kernel of one head size. Each head size has a file of its own that makes both of its kernels: they take long to compile.
 */
#ifndef BACKEND_CUDA_ATTEND_LAUNCH_CUH
#define BACKEND_CUDA_ATTEND_LAUNCH_CUH

#include "backend/cuda/attend_kernel.cuh"

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
template <int D, int NB, Keys K> int warps_in(Args *args, int most) {
    using S = Shape<D, NB>;
    set_slots<D, NB>(args);
    const int n = (most - 64 - S::BESIDE) / (int)args->slots / 2 * 2;
    if (n < S::LEAST_WARPS) return 0;
    return n < (MOST_WARPS<D, NB, K>) ? n : MOST_WARPS<D, NB, K>;
}

#if defined(__CUDACC__)
template <int D, int NB, Keys K, Values V> cudaError_t launch_one(Args *args, cudaStream_t stream) {
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
template <int D, int NB, Keys K, Values V> cudaError_t launch_one(Args *args, cudaStream_t stream);
#endif

// Kernels that know their codes: for heads of 128 and up to 8 columns, in attend_known.cu.
#define KVT_CUDA_KNOWN(X)                                                                                              \
    KVT_CUDA_KNOWN_WIDE(X)                                                                                             \
    X(FOLD_TWO, TWO_ZEROS)                                                                                             \
    X(LANE_TWO, TWO_ZEROS)                                                                                             \
    X(LANE_TWO, TWO_OFFSET)                                                                                            \
    X(CLASS_4, FOUR_ZEROS)                                                                                             \
    X(CLASS_3, TWO_ZEROS)                                                                                              \
    X(CLASS_2, ONE_ZEROS)                                                                                              \
    X(TABLE, TABLED)
// And for 16 columns.
#define KVT_CUDA_KNOWN_WIDE(X)                                                                                         \
    X(FOLD_FOUR_32, FOUR_32)                                                                                           \
    X(FOLD_FOUR_64, FOUR_64)                                                                                           \
    X(LANE_FOUR_64, FOUR_64)
#if defined(__CUDACC__)
#define X(keys, values) extern template cudaError_t launch_one<128, 1, keys, values>(Args *, cudaStream_t);
KVT_CUDA_KNOWN(X)
#undef X
#define X(keys, values) extern template cudaError_t launch_one<128, 2, keys, values>(Args *, cudaStream_t);
KVT_CUDA_KNOWN_WIDE(X)
#undef X
#endif

static inline Keys keys_of(const Side &k) {
    if (k.classed) return k.bits == 4 ? CLASS_4 : k.bits == 3 ? CLASS_3 : CLASS_2;
    if (k.tabled) return TABLE;
    if (k.bits == 0 || k.has_factor) return ANY_KEYS;
    if (k.bits == 4) {
        if (!k.has_zero || k.code_offset) return ANY_KEYS;
        if (k.lane) return k.group == 64 ? LANE_FOUR_64 : ANY_KEYS;
        return k.group == 32 ? FOLD_FOUR_32 : k.group == 64 ? FOLD_FOUR_64 : ANY_KEYS;
    }
    return k.planes[1].width ? k.lane ? LANE_TWO : FOLD_TWO : ANY_KEYS;
}
static inline Values values_of(const Side &v) {
    if (v.tabled) return TABLED;
    if (v.bits == 0 || v.has_factor) return ANY_VALUES;
    if (v.bits == 4) {
        if (!v.has_zero || v.code_offset || v.logs) return ANY_VALUES;
        return v.group == 32 ? FOUR_32 : v.group == 64 ? FOUR_64 : ANY_VALUES;
    }
    return v.planes[1].width ? v.has_zero ? TWO_ZEROS : TWO_OFFSET : ANY_VALUES;
}

// Beside keys of three widths: those of fewer kinds.
static inline Values class_values_of(const Side &v) {
    return v.bits == 4 ? FOUR_ZEROS : v.bits == 2 ? ONE_ZEROS : TWO_ZEROS;
}

template <int D, int NB> cudaError_t launch(Args *args, cudaStream_t stream) {
    if constexpr (D == 128 && NB == 1) {
        const Keys k = keys_of(args->body.k);
        const Values v = args->body.k.classed ? class_values_of(args->body.v) : values_of(args->body.v);
#define X(keys, values)                                                                                                \
    if ((k == TABLE || !args->rotated_k) && (args->body.k.classed || k == TABLE || !args->rotated_v) && k == keys &&   \
        v == values)                                                                                                   \
        return launch_one<D, NB, keys, values>(args, stream);
        KVT_CUDA_KNOWN(X)
#undef X
    }
    if constexpr (D == 128 && NB == 2) {
#define X(keys, values)                                                                                                \
    if (!args->rotated_k && !args->rotated_v && keys_of(args->body.k) == keys && values_of(args->body.v) == values)    \
        return launch_one<D, NB, keys, values>(args, stream);
        KVT_CUDA_KNOWN_WIDE(X)
#undef X
    }
    return launch_one<D, NB, ANY_KEYS, ANY_VALUES>(args, stream);
}

} // namespace kvt

#define KVT_CUDA_ATTEND_SIZE(d)                                                                                        \
    template cudaError_t kvt::launch<d, 1>(kvt::Args *, cudaStream_t);                                                 \
    template cudaError_t kvt::launch<d, 2>(kvt::Args *, cudaStream_t);

#endif
