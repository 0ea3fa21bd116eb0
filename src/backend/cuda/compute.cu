/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches of the kernels between attention and attention.
 */
#include "backend/cuda/compute.cuh"

extern "C" {
#include "base/check.h"
}

namespace {

template <class Args>
enum kvt_status run(void (*kernel)(Args), int64_t blocks_x, int blocks_y, int threads, size_t shared_bytes,
                    void *stream, const Args &args, const char *what, struct kvt_error *err) {
    if (blocks_x <= 0) return KVT_OK;
    const char *fault = launch(kernel, (int)blocks_x, blocks_y, threads, shared_bytes, stream, args);
    return fault ? kvt_fail(err, KVT_ERR_DEVICE, "CUDA, %s: %s", what, fault) : KVT_OK;
}

size_t norm_bytes(int n) { return ((size_t)n + SUM_LANES + 1) * sizeof(float); }

} // namespace

enum kvt_status kvt_cuda_norm(const struct kvt_compute_norm *a, void *stream, struct kvt_error *err) {
    return run(norm_rows, a->n_rows, 1, ROW_THREADS, norm_bytes(a->width), stream, *a, "launching norms", err);
}

enum kvt_status kvt_cuda_heads(const struct kvt_compute_heads *a, void *stream, struct kvt_error *err) {
    int n_heads = 0, most = 0;
    for (int i = 0; i < a->n_parts; i++) {
        n_heads += a->parts[i].n_heads;
        most = KVT_MAX(most, a->parts[i].size);
    }
    return run(finish_heads, n_heads ? a->n_rows : 0, n_heads, HEAD_THREADS, norm_bytes(most), stream, *a,
               "launching rotations", err);
}

enum kvt_status kvt_cuda_add(const struct kvt_compute_add *a, void *stream, struct kvt_error *err) {
    return run(add_rows, kvt_div_up((int64_t)a->n_rows * a->width, ROW_THREADS), 1, ROW_THREADS, 0, stream, *a,
               "launching sums", err);
}

enum kvt_status kvt_cuda_gate(const struct kvt_compute_gate *a, void *stream, struct kvt_error *err) {
    return run(gate_numbers, kvt_div_up(a->n, ROW_THREADS), 1, ROW_THREADS, 0, stream, *a, "launching gates", err);
}

/* What was the fastest of eight ways on an H200, over the matrices of a layer of width 4096. */
template <int N, int ROWS, int STEPS>
static enum kvt_status few(const struct kvt_cuda_products *a, void *stream, struct kvt_error *err) {
    int64_t n_warps = 0;
    for (int i = 0; i < a->n_outputs; i++) n_warps += kvt_div_up(a->w[i].n_out, ROWS);
    return run(products_few<N, ROWS, STEPS>, kvt_div_up(n_warps, FEW_WARPS), 1, FEW_WARPS * KVT_WARP, 0, stream, *a,
               "launching products", err);
}

enum kvt_status kvt_cuda_products_few(const struct kvt_cuda_products *a, void *stream, struct kvt_error *err) {
    if (a->n_rows == 1) return few<1, 2, 2>(a, stream, err);
    if (a->n_rows == 2) return few<2, 4, 2>(a, stream, err);
    if (a->n_rows <= 4) return few<4, 2, 2>(a, stream, err);
    return few<KVT_CUDA_FEW_ROWS, 2, 1>(a, stream, err);
}

enum kvt_status kvt_cuda_round_rows(const struct kvt_cuda_round *a, void *stream, struct kvt_error *err) {
    return run(round_rows, a->n_rows, 1, ROW_THREADS, ROW_THREADS / KVT_WARP * sizeof(float), stream, *a,
               "launching roundings", err);
}

enum kvt_status kvt_cuda_restore_rows(const struct kvt_cuda_restore *a, void *stream, struct kvt_error *err) {
    return run(restore_rows, a->n_rows, 1, ROW_THREADS, 0, stream, *a, "launching factors", err);
}
