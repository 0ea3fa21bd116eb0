/* SPDX-License-Identifier: Apache-2.0
 *
 * test_attend without a GPU: the kernels of attention run on the processor (on_host.h), over the memory of host_device.c. Of prefill
 * what is before its products does: what these would read is read here, one number after another.
 */
#undef _FORTIFY_SOURCE /* it takes the change of a thread for a mistake */
#include "cuda/on_host_fragment.h"

extern "C" {
#include "base/check.h"
}

static inline enum kvt_status kvt_cuda_status(cudaError_t status, const char *what, struct kvt_error *err) {
    if (status == cudaSuccess) return KVT_OK;
    return kvt_fail(err, KVT_ERR_DEVICE, "%s: error %d of this test", what, (int)status);
}
#define BACKEND_CUDA_CHECK_CUH /* its place is taken */

#include "backend/cuda/attend_any.cu"
#include "backend/cuda/prefill_unpack.cu"

#include "backend/cuda/attend_launch.cuh"

namespace kvt {
template <int D, int NB, class K, class V> cudaError_t launch_one(Args *args, cudaStream_t) {
    const int n_warps = warps_in<D, NB, K>(args, on_host::MOST_SHARED);
    if (n_warps == 0) return cudaErrorInvalidConfiguration;
    on_host::run_grid(attend_kernel<D, NB, K, V>, args->call.n_blocks, 1, 32 * n_warps, *args);
    return cudaSuccess;
}
} /* namespace kvt */

#include "backend/cuda/attend.cu"

/* ---- prefill ------------------------------------------------------------------------------------------------------------- */

int kvt_cuda_prefill_reads(const struct kvt_cuda_page *body, const struct kvt_cuda_page *plain) {
    for (int side = 0; side < KVT_SIDE_COUNT; side++)
        if (plain->tile[side].number != KVT_NUMBER_F16 || body->tile[side].kind == KVT_TILE_PLAIN) return 0;
    return kvt_tile_row_size(&body->tile[0]) == kvt_tile_row_size(&body->tile[1]);
}

static float unit_number(const unsigned char *matrices, int n_lines, int line, int term) {
    const unsigned char *from = matrices + (term / 64 * n_lines + line) * LINE_BYTES;
    return kvt_f32_from_f16(
        reinterpret_cast<const uint16_t *>(from)[(term / OCTET ^ line) % CHUNKS * OCTET + term % OCTET]);
}

/* One query vector over the units of its head. */
static void attend_units(const struct kvt_cuda_prefill &a, const struct kvt_cuda_prefill_block &head, int row,
                         int q_head) {
    const struct kvt_cuda_prompt &prompt = a.prompts[head.prompt];
    const int d = kvt_tile_row_size(&a.call.body.tile[0]), rows = kvt_cuda_prefill_unit_rows(d);
    const struct kvt_cuda_visible v = kvt_cuda_see(&a.sight, prompt.n_before + row + 1);
    const float *q =
        static_cast<const float *>(a.call.q) + (prompt.row + row) * a.call.q_row_stride + q_head * a.call.q_head_stride;
    const unsigned char *unit =
        static_cast<const unsigned char *>(a.units) + (size_t)head.first * kvt_cuda_prefill_unit_bytes(d);
    double sum = a.call.sinks ? exp((double)a.call.sinks[q_head]) : 0, mixed[256] = {};
    const int order[] = {KVT_REGION_BODY, KVT_REGION_SINK, KVT_REGION_TAIL};
    for (const int region : order)
        for (int u = 0; u < prompt.n_units[region]; u++, unit += kvt_cuda_prefill_unit_bytes(d))
            for (int r = 0; r < rows; r++) {
                const int position = (prompt.first_unit[region] + u) * rows + r;
                if (position < v.first[region] || position >= v.end[region]) continue;
                double score = 0;
                for (int c = 0; c < d; c++) score += (double)q[c] * (double)unit_number(unit, rows, r, c);
                score *= (double)a.call.scale;
                if (a.call.softcap > 0) score = (double)a.call.softcap * tanh(score / (double)a.call.softcap);
                const double w = exp(score);
                const unsigned char *values = unit + (d + 63) / 64 * rows * LINE_BYTES;
                for (int c = 0; c < d; c++) mixed[c] += w * (double)unit_number(values, d, c, r);
                sum += w;
            }
    float *out = a.call.out + (prompt.row + row) * a.call.out_row_stride + q_head * a.call.out_head_stride;
    for (int c = 0; c < d; c++) out[c] = (float)(mixed[c] / sum);
    if (a.call.lse) a.call.lse[(prompt.row + row) * a.call.n_q_heads + q_head] = (float)log(sum);
}

enum kvt_status kvt_cuda_prefill_launch(const struct kvt_cuda_prefill *prefill, void *stream, struct kvt_error *err) {
    const struct kvt_cuda_prefill &a = *prefill;
    const enum kvt_status status = kvt_cuda_prefill_unpack(prefill, stream, err);
    for (int b = 0; b < a.n_blocks; b++) {
        const struct kvt_cuda_prefill_block &head = a.blocks[b];
        const int column = head.column, end = a.prompts[head.prompt].n_rows * a.call.group;
        for (int i = column; i < KVT_MIN(column + KVT_CUDA_PREFILL_COLUMNS, end); i++)
            attend_units(a, head, i / a.call.group, head.head * a.call.group + i % a.call.group);
    }
    return status;
}
