/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill on the device: choosing a kernel and launching it.
 */
#include "backend/cuda/check.cuh"
#include "backend/cuda/prefill_kernel.cuh"
#include "backend/cuda/prefill_unpack.cuh"

extern "C" int kvt_cuda_prefill_reads(const struct kvt_cuda_page *body, const struct kvt_cuda_page *plain) {
    const int head_size = kvt_tile_row_size(&body->tile[KVT_SIDE_K]);
    if (head_size != kvt_tile_row_size(&body->tile[KVT_SIDE_V])) return 0;
    if (head_size != 64 && head_size != 96 && head_size != 128 && head_size != 256) return 0;
    for (int side = 0; side < KVT_SIDE_COUNT; side++)
        for (const struct kvt_cuda_page *page : {body, plain})
            if (page->tile[side].kind == KVT_TILE_PLAIN && page->tile[side].number != KVT_NUMBER_F16) return 0;
    return 1;
}

template <int D, bool WIDE> static cudaError_t launch_one(const struct kvt_cuda_prefill &a, cudaStream_t stream) {
    using P = kvt::Prefill<D, WIDE>;
    const cudaError_t error =
        cudaFuncSetAttribute(kvt::prefill_kernel<D, WIDE>, cudaFuncAttributeMaxDynamicSharedMemorySize, P::SHARED);
    if (error != cudaSuccess) return error;
    kvt::prefill_kernel<D, WIDE><<<a.n_blocks, kvt::THREADS, P::SHARED, stream>>>(a);
    return cudaGetLastError();
}

static cudaError_t launch(const struct kvt_cuda_prefill &a, cudaStream_t stream) {
    const bool wide =
        a.call.body.tile[KVT_SIDE_K].kind == KVT_TILE_PLAIN && a.call.body.tile[KVT_SIDE_V].kind == KVT_TILE_PLAIN;
    switch (kvt_tile_row_size(&a.call.body.tile[KVT_SIDE_K])) {
    case 64: return wide ? launch_one<64, true>(a, stream) : launch_one<64, false>(a, stream);
    case 96: return wide ? launch_one<96, true>(a, stream) : launch_one<96, false>(a, stream);
    case 128: return wide ? launch_one<128, true>(a, stream) : launch_one<128, false>(a, stream);
    case 256: return wide ? launch_one<256, true>(a, stream) : launch_one<256, false>(a, stream);
    default: return cudaErrorInvalidValue;
    }
}

extern "C" enum kvt_status kvt_cuda_prefill_launch(const struct kvt_cuda_prefill *prefill, void *stream,
                                                   struct kvt_error *err) {
    KVT_TRY(kvt_cuda_prefill_unpack(prefill, stream, err));
    return kvt_cuda_status(launch(*prefill, static_cast<cudaStream_t>(stream)), "launching prefill", err);
}
