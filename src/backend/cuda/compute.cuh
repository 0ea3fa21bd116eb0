/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels between attention and attention. Norms, biases, rotations and gates do what src/model/ops.c and rope.c do, operation by
 * operation, so their bits are the processor's.
 */
#ifndef BACKEND_CUDA_COMPUTE_CUH
#define BACKEND_CUDA_COMPUTE_CUH

#include "backend/cuda/simt.cuh"

extern "C" {
#include "backend/cuda/compute.h"
#include "base/num.h"
}

/* SUM_LANES: sums that kvt_rms_norm keeps apart. FEW_*: warps of a block, elements of a vector and of a warp's vectors. */
enum {
    ROW_THREADS = 256,
    HEAD_THREADS = 32,
    SUM_LANES = 16,
    FEW_WARPS = 4,
    FEW_VECTOR = 8,
    FEW_STEP = KVT_WARP * FEW_VECTOR
};

/* ---- norms --------------------------------------------------------------------------------------------------------------- */

/* What a row of n elements in shared memory is multiplied by; sums: SUM_LANES + 1 floats there. All threads of the block. */
KVT_DEVICE float norm_scale(const float *x, float *sums, int n, float eps) {
    const int lane = (int)threadIdx.x;
    if (lane < SUM_LANES) {
        float sum = 0;
#pragma unroll 8
        for (int i = lane; i < n / SUM_LANES * SUM_LANES; i += SUM_LANES) sum += x[i] * x[i];
        sums[lane] = sum;
    }
    __syncthreads();
    if (lane == 0) {
        double sum = 0;
        for (int j = 0; j < SUM_LANES; j++) sum += (double)sums[j];
        for (int i = n / SUM_LANES * SUM_LANES; i < n; i++) sum += (double)(x[i] * x[i]);
        sums[SUM_LANES] = (float)(1 / sqrt(sum / n + (double)eps));
    }
    __syncthreads();
    return sums[SUM_LANES];
}

/* A block is a row. */
KVT_KERNEL(ROW_THREADS) norm_rows(KVT_ARGS struct kvt_compute_norm a) {
    float *row = reinterpret_cast<float *>(kvt_shared), *sums = row + a.width;
    const float *x = a.x + (ptrdiff_t)blockIdx.x * a.width;
    float *dst = a.dst + (ptrdiff_t)blockIdx.x * a.width;
    for (int i = (int)threadIdx.x; i < a.width; i += ROW_THREADS) row[i] = x[i];
    __syncthreads();
    const float scale = norm_scale(row, sums, a.width, a.eps);
    for (int i = (int)threadIdx.x; i < a.width; i += ROW_THREADS) dst[i] = row[i] * scale * a.weight[i];
}

/* ---- heads --------------------------------------------------------------------------------------------------------------- */

/* A block is a head of a row: blockIdx.y counts the heads of all parts. */
KVT_KERNEL(HEAD_THREADS) finish_heads(KVT_ARGS struct kvt_compute_heads a) {
    int head = (int)blockIdx.y, which = 0;
    while (head >= a.parts[which].n_heads) head -= a.parts[which++].n_heads;
    const struct kvt_compute_part &p = a.parts[which];
    const int row = (int)blockIdx.x, size = p.size, lane = (int)threadIdx.x, half = a.n_rot / 2;
    float *x = p.x + ((ptrdiff_t)row * p.n_heads + head) * size;
    float *own = reinterpret_cast<float *>(kvt_shared), *sums = own + size;
    for (int i = lane; i < size; i += HEAD_THREADS) own[i] = p.bias ? x[i] + p.bias[head * size + i] : x[i];
    __syncthreads();
    if (p.norm) {
        const float scale = norm_scale(own, sums, size, a.eps);
        for (int i = lane; i < size; i += HEAD_THREADS) own[i] = own[i] * scale * p.norm[i];
        __syncthreads();
    }
    const float *cosine = a.tables + (ptrdiff_t)row * a.n_rot, *sine = cosine + half;
    for (int i = lane; p.turned && i < half; i += HEAD_THREADS) {
        float *first = own + (a.neighbours ? 2 * i : i), *second = first + (a.neighbours ? 1 : half);
        const float u = *first, v = *second;
        *first = u * cosine[i] - v * sine[i];
        *second = u * sine[i] + v * cosine[i];
    }
    __syncthreads();
    for (int i = lane; i < size; i += HEAD_THREADS) x[i] = own[i];
}

/* ---- element by element -------------------------------------------------------------------------------------------------- */

KVT_DEVICE int64_t element_of_thread() { return (int64_t)blockIdx.x * ROW_THREADS + (int)threadIdx.x; }

KVT_KERNEL(ROW_THREADS) add_rows(KVT_ARGS struct kvt_compute_add a) {
    const int64_t i = element_of_thread();
    if (i >= (int64_t)a.n_rows * a.width) return;
    a.x[i] += a.bias ? a.h[i] + a.bias[i % a.width] : a.h[i];
}

KVT_KERNEL(ROW_THREADS) gate_numbers(KVT_ARGS struct kvt_compute_gate a) {
    const int64_t i = element_of_thread();
    if (i < a.n) a.gate[i] = a.gate[i] / (1.0f + kvt_exp(-a.gate[i])) * a.up[i];
}

/* ---- products of few rows ------------------------------------------------------------------------------------------------ */

KVT_DEVICE float half_number(uint32_t half) {
#if defined(__CUDA_ARCH__)
    return __half2float(__ushort_as_half((unsigned short)half));
#else
    return kvt_f32_from_f16((uint16_t)half);
#endif
}

struct words4 {
    uint32_t w[4];
};

/* 16 bytes that are read once. */
KVT_DEVICE struct words4 load_words(const uint16_t *from) {
#if defined(__CUDA_ARCH__)
    const uint4 v = __ldcs(reinterpret_cast<const uint4 *>(from));
    return {{v.x, v.y, v.z, v.w}};
#else
    struct words4 v;
    memcpy(&v, from, sizeof v);
    return v;
#endif
}

/* Elements [at, at + FEW_VECTOR) of a row, zero past its end. */
KVT_DEVICE void load_inputs(float (&to)[FEW_VECTOR], const float *row, int64_t at, int64_t n) {
    for (int e = 0; e < FEW_VECTOR; e++) to[e] = at + e < n ? row[at + e] : 0.0f;
}
/* The same where rows are whole vectors. */
KVT_DEVICE void load_whole_inputs(float (&to)[FEW_VECTOR], const float *from) {
#if defined(__CUDA_ARCH__)
    const float4 a = reinterpret_cast<const float4 *>(from)[0], b = reinterpret_cast<const float4 *>(from)[1];
    to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w, to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
#else
    memcpy(to, from, sizeof to);
#endif
}

/* Where a warp's rows are: of which matrix, from which on. False: it has none. Matrices follow each other in whole steps of rows. */
KVT_DEVICE bool find_rows(const struct kvt_cuda_products &a, int step, int *which, int64_t *first) {
    int64_t at = ((int64_t)blockIdx.x * FEW_WARPS + warp_in_block()) * step;
    for (int i = 0; i < a.n_outputs; i++) {
        const int64_t end = kvt_round_up(a.w[i].n_out, step);
        if (at < end) {
            *which = i;
            *first = at;
            return true;
        }
        at -= end;
    }
    return false;
}

/* A warp takes ROWS rows of a matrix with all N inputs; its lanes take vectors in turn, and are added at the end. The vectors of STEPS
 * turns are on their way together: that, and not arithmetic, decides the speed. */
template <int N, int ROWS, int STEPS>
KVT_KERNEL(FEW_WARPS *KVT_WARP)
products_few(KVT_ARGS struct kvt_cuda_products a) {
    int which;
    int64_t first;
    if (!find_rows(a, ROWS, &which, &first)) return;
    const struct kvt_compute_matrix &w = a.w[which];
    const int lane = thread_in_warp();
    const bool whole = w.n_in % FEW_VECTOR == 0;
    const uint16_t *rows[ROWS];
    float sums[ROWS][N] = {};
#pragma unroll
    for (int r = 0; r < ROWS; r++) rows[r] = w.halves + KVT_MIN(first + r, w.n_out - 1) * w.ld;
    for (int64_t begin = lane * FEW_VECTOR; begin < w.n_in; begin += STEPS * FEW_STEP) {
        struct words4 words[STEPS][ROWS] = {};
#pragma unroll
        for (int s = 0; s < STEPS; s++)
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                if (begin + s * FEW_STEP < w.n_in) words[s][r] = load_words(rows[r] + begin + s * FEW_STEP);
#pragma unroll
        for (int s = 0; s < STEPS; s++)
#pragma unroll
            for (int t = 0; t < N; t++) {
                const int64_t at = begin + s * FEW_STEP;
                const float *x = a.x + KVT_MIN(t, a.n_rows - 1) * w.n_in;
                float in[FEW_VECTOR] = {};
                if (whole && at < w.n_in)
                    load_whole_inputs(in, x + at);
                else
                    load_inputs(in, x, at, w.n_in);
#pragma unroll
                for (int r = 0; r < ROWS; r++)
#pragma unroll
                    for (int e = 0; e < FEW_VECTOR; e++)
                        sums[r][t] =
                            fmaf(half_number(words[s][r].w[e / 2] >> 16 * (e % 2) & 0xFFFF), in[e], sums[r][t]);
            }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int t = 0; t < N; t++) {
            float sum = sums[r][t];
            for (int d = KVT_WARP / 2; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
            if (lane == 0 && t < a.n_rows && first + r < w.n_out) a.dst[which][t * w.n_out + first + r] = sum * w.scale;
        }
}

/* ---- many rows: before and after cuBLAS ---------------------------------------------------------------------------------- */

/* The power of two that brings a row into f16's best range, 1 where it is there. */
KVT_DEVICE float row_factor(float most) {
    if (!(most > 0 && most <= 3.4e38f) || (most < 32768.0f && most >= 0.0625f)) return 1.0f;
    const int exponent = (int)(kvt_f32_bits(most) >> 23) - 127; /* subnormal numbers count as 2^-127 */
    const int up = exponent - 14;
    return kvt_f32_from_bits((uint32_t)(up < -126 ? 1 : up + 127) << 23);
}

/* A block is a row. */
KVT_KERNEL(ROW_THREADS) round_rows(KVT_ARGS struct kvt_cuda_round a) {
    float *most = reinterpret_cast<float *>(kvt_shared);
    const float *x = a.x + (ptrdiff_t)blockIdx.x * a.n_in;
    uint16_t *to = a.halves + (ptrdiff_t)blockIdx.x * a.ld;
    float own = 0;
    for (int64_t i = (int)threadIdx.x; i < a.n_in; i += ROW_THREADS) own = fmaxf(own, fabsf(x[i]));
    for (int d = KVT_WARP / 2; d > 0; d /= 2) own = fmaxf(own, __shfl_xor_sync(~0u, own, d));
    if (thread_in_warp() == 0) most[warp_in_block()] = own;
    __syncthreads();
    for (int i = 0; i < ROW_THREADS / KVT_WARP; i++) own = fmaxf(own, most[i]);
    const float factor = row_factor(own), down = 1.0f / factor;
    if (threadIdx.x == 0) a.factors[blockIdx.x] = factor;
    for (int64_t i = (int)threadIdx.x; i < a.ld; i += ROW_THREADS)
        to[i] = i < a.n_in ? kvt_f16_from_f32(x[i] * down) : 0;
}

KVT_KERNEL(ROW_THREADS) restore_rows(KVT_ARGS struct kvt_cuda_restore a) {
    const float factor = a.factors[blockIdx.x];
    float *x = a.x + (ptrdiff_t)blockIdx.x * a.width;
    if (factor == 1.0f) return;
    for (int64_t i = (int)threadIdx.x; i < a.width; i += ROW_THREADS) x[i] *= factor;
}

#endif
