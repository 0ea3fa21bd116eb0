/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows as numbers: f32, f16, bf16.
 */
#ifndef BACKEND_CUDA_ENCODE_PLAIN_CUH
#define BACKEND_CUDA_ENCODE_PLAIN_CUH

#include "backend/cuda/encode_unit.cuh"

KVT_DEVICE void store_number(enum kvt_number number, void *numbers, ptrdiff_t i, float x) {
    if (number == KVT_NUMBER_F32)
        static_cast<float *>(numbers)[i] = x;
    else
        static_cast<uint16_t *>(numbers)[i] = number == KVT_NUMBER_F16 ? kvt_f16_from_f32(x) : kvt_bf16_from_f32(x);
}

KVT_KERNEL(UNIT_THREADS) encode_plain(KVT_ARGS struct encode_args a) {
    const side_by_side both;
    const struct kvt_cuda_job job = a.jobs[blockIdx.x];
    struct unit u;
    if (!find_unit(&u, a, job)) return;
    float *x = reinterpret_cast<float *>(kvt_shared);
    load_unit(x, u, a, job);
    __syncthreads();
    const int n_lanes = u.lane_end - u.lane_from;
    for (int t = u.term_from + warp_in_block(); t < u.term_end; t += warps_of_block())
        for (int i = thread_in_warp(); i < n_lanes; i += KVT_WARP) {
            const int lane = u.lane_from + i;
            store_number(a.tile.number, job.tile,
                         number_place(a.tile.n_terms, a.tile.n_lanes, u.term0 + t, u.lane0 + lane),
                         x[t * u.pitch + lane]);
        }
}

#endif
