/* SPDX-License-Identifier: Apache-2.0
 *
 * kq with error feedback, for rows of at most 128: a block of threads takes a tile, whose matrices lie in its shared memory. The arithmetic is that of
 * src/codec/kq_feedback.c. Each element of a matrix is one thread's at a time, which adds to it in the order of the codec, so sums are those of
 * the codec however the threads share the elements.
 */
#ifndef BACKEND_CUDA_ENCODE_KQ_FEEDBACK_CUH
#define BACKEND_CUDA_ENCODE_KQ_FEEDBACK_CUH

#include "backend/cuda/encode_kq.cuh"

enum {
    FEEDBACK_MOST = 128, /* channels */
    FEEDBACK_LINES = KQ_THREADS / KVT_TILE_ROWS,
    FEEDBACK_PATCH = 4, /* a thread's of a matrix, each way */
    FEEDBACK_Y_BYTES = FEEDBACK_LINES * FEEDBACK_PATCH * KVT_TILE_ROWS * 4
};
#define KQ_DAMPING 0.5f

/* Matrices by rank of their channels, as in the codec; of `lower` only what is not above the diagonal counts. */
struct feedback {
    struct kq_shared *s;
    int d;
    float *w;     /* [rank][row]; at first [row][rank] of the queries */
    float *c;     /* [rank][rank] */
    float *lower; /* [rank][rank], in the end [rank][row] of u */
    float *y;     /* [32][row], where codes were, which take no more */
};

/* Second moments of the queries in w. */
KVT_DEVICE void find_moments(const struct feedback &f) {
    const int d = f.d, patches = d / FEEDBACK_PATCH;
    for (int p = (int)threadIdx.x; p < patches * patches; p += (int)blockDim.x) {
        const int i0 = p / patches * FEEDBACK_PATCH, j0 = p % patches * FEEDBACK_PATCH;
        float sum[FEEDBACK_PATCH][FEEDBACK_PATCH] = {};
        for (int r = 0; r < KVT_TILE_ROWS; r++) {
            const float *q = f.w + r * d;
#pragma unroll
            for (int i = 0; i < FEEDBACK_PATCH; i++)
#pragma unroll
                for (int j = 0; j < FEEDBACK_PATCH; j++) sum[i][j] += q[i0 + i] * q[j0 + j];
        }
        for (int i = 0; i < FEEDBACK_PATCH; i++)
            for (int j = 0; j < FEEDBACK_PATCH; j++) f.c[(i0 + i) * d + j0 + j] = sum[i][j];
    }
    __syncthreads();
}

/* Damps c; lower = R^T. */
KVT_DEVICE void find_root(const struct feedback &f) {
    const int d = f.d, i = (int)threadIdx.x;
    float *l = f.lower, mean = 0;
    for (int k = 0; k < d; k++) mean += f.c[k * d + k]; /* each thread its own */
    mean /= (float)d;
    __syncthreads();
    if (i < d) f.c[i * d + i] += KQ_DAMPING * mean;
    __syncthreads();
    for (int e = i; e < d * d; e += (int)blockDim.x) l[e] = f.c[e];
    __syncthreads();
    for (int k = d - 1; k >= 0; k--) {
        float *row = l + k * d;
        const float root = sqrtf(row[k] > 0 ? row[k] : mean > 0 ? mean : 1);
        __syncthreads();
        if (i < k) row[i] /= root;
        if (i == k) row[k] = root;
        __syncthreads();
        for (int j = warp_in_block(); j < k; j += warps_of_block()) {
            const float by = -row[j];
            for (int m = thread_in_warp(); m <= j; m += KVT_WARP) l[j * d + m] += by * row[m];
        }
        __syncthreads();
    }
}

/* lower becomes its inverse. Of row j, what is left of the diagonal becomes the codec's sums from column 0 on, as rows above are done. */
KVT_DEVICE void invert(const struct feedback &f) {
    const int d = f.d, i = (int)threadIdx.x;
    float *l = f.lower;
    for (int k = 0; k < d; k++) {
        float *row = l + k * d;
        const float root = row[k];
        __syncthreads();
        if (i < k) row[i] = row[i] / root;
        if (i == k) row[k] = 1 / root;
        __syncthreads();
        for (int j = k + 1 + warp_in_block(); j < d; j += warps_of_block()) {
            const float by = -l[j * d + k];
            __syncwarp();
            for (int m = thread_in_warp(); m <= k; m += KVT_WARP)
                l[j * d + m] = (m < k ? l[j * d + m] : 0) + by * row[m];
        }
        __syncthreads();
    }
}

/* The error of channel i, in codes of the ranks before it, made up for: codes, and w less the middles. */
KVT_DEVICE void find_codes(const struct feedback &f, const struct encode_args &a, const uint16_t *channels,
                           const float *steps, const uint16_t *zeros, uint8_t *codes) {
    const int d = f.d, r = (int)threadIdx.x % KVT_TILE_ROWS, line = (int)threadIdx.x / KVT_TILE_ROWS;
    for (int e = (int)threadIdx.x; e < d * d; e += (int)blockDim.x) {
        const int j = e / d, i = e % d;
        if (i < j) f.lower[e] = -f.lower[e] / f.lower[i * d + i];
    }
    __syncthreads();
    for (int i = 0; i < d; i++) {
        const int c = channels[i], top = (1 << a.classes.of[f.s->classes[c]].bits) - 1;
        const float zero = kvt_f32_from_f16(zeros[c]), step = steps[c], inverse = step > 0 ? 1 / step : 0;
        const float w = f.w[i * KVT_TILE_ROWS + r];
        float code = rintf((w - zero) * inverse);
        code = code > 0 ? code < (float)top ? code : (float)top : 0;
        const float error = w - (zero + step * code);
        for (int j = i + 1 + line; j < d; j += FEEDBACK_LINES) f.w[j * KVT_TILE_ROWS + r] += f.lower[j * d + i] * error;
        __syncthreads(); /* all have read row i */
        if (line == 0) {
            codes[code_place(KVT_TILE_ROWS, f.s->place[c], r)] = (uint8_t)code;
            f.w[i * KVT_TILE_ROWS + r] = step * (code - (float)top / 2);
        }
    }
    __syncthreads();
}

/* By row, products of u with C u and with C (decoded - middle). u lies where lower was, C is symmetric. */
KVT_DEVICE void find_products(const struct feedback &f, float *own, float *shared) {
    const int d = f.d, r = (int)threadIdx.x % KVT_TILE_ROWS, line = (int)threadIdx.x / KVT_TILE_ROWS;
    *own = *shared = 0;
    for (int i0 = 0; i0 < d; i0 += FEEDBACK_LINES * FEEDBACK_PATCH) {
        const int i = i0 + line * FEEDBACK_PATCH;
        if (i < d) {
            float y[FEEDBACK_PATCH] = {};
            for (int j = 0; j < d; j++) {
                const float u = f.lower[j * KVT_TILE_ROWS + r];
#pragma unroll
                for (int k = 0; k < FEEDBACK_PATCH; k++) y[k] += f.c[j * d + i + k] * u;
            }
            for (int k = 0; k < FEEDBACK_PATCH; k++) f.y[(line * FEEDBACK_PATCH + k) * KVT_TILE_ROWS + r] = y[k];
        }
        __syncthreads();
        for (int k = 0; line == 0 && k < FEEDBACK_LINES * FEEDBACK_PATCH && i0 + k < d; k++) {
            const float y = f.y[k * KVT_TILE_ROWS + r];
            *own += f.lower[(i0 + k) * KVT_TILE_ROWS + r] * y;
            *shared += f.w[(i0 + k) * KVT_TILE_ROWS + r] * y;
        }
        __syncthreads();
    }
}

/* Whether any query is not zero. */
KVT_DEVICE bool has_queries(const struct feedback &f, const struct kvt_cuda_job &job) {
    const unsigned char *bytes = static_cast<const unsigned char *>(job.queries);
    if (threadIdx.x == 0) f.s->any = 0;
    __syncthreads();
    for (int e = (int)threadIdx.x; bytes && e < f.d * KVT_TILE_ROWS; e += (int)blockDim.x)
        if (query_at(bytes, f.d, e % f.d, e / f.d) != 0) f.s->any = 1;
    __syncthreads();
    return f.s->any != 0;
}

KVT_KERNEL(KQ_THREADS) encode_kq_feedback(KVT_ARGS struct encode_args a) {
    const side_by_side both;
    const struct kvt_cuda_job job = a.jobs[blockIdx.x];
    const int d = a.tile.n_terms, n_rows = KVT_TILE_ROWS;
    struct kq_shared *s = reinterpret_cast<struct kq_shared *>(kvt_shared);
    uint8_t *codes = kvt_shared + KQ_CODES_AT;
    float *w = reinterpret_cast<float *>(codes + FEEDBACK_Y_BYTES);
    const struct feedback f = {s, d, w, w + d * n_rows, w + d * n_rows + d * d, reinterpret_cast<float *>(codes)};
    unsigned char *bytes = static_cast<unsigned char *>(job.tile);
    if (job.n != n_rows) return;
    if (!has_queries(f, job)) {
        encode_kq_tile(a, job, 1, s, codes);
        return;
    }
    float x[KQ_CHANNELS][KQ_PARTS];
    kq_survey(x, s, a, job, d, 1, f.w, bytes);
    for (int e = (int)threadIdx.x; e < d * n_rows; e += (int)blockDim.x)
        f.w[e / d * d + s->rank[e % d]] = query_at(static_cast<const unsigned char *>(job.queries), d, e % d, e / d);
    __syncthreads();
    find_moments(f);
    find_root(f);
    invert(f);

    /* Of the survey only classes, ranks and places are needed once channels have their fits, which take the place of extremes. */
    int t[KQ_PARTS];
    load_slice(x, a, job, 0, d);
    for (int j = 0; j < KQ_CHANNELS; j++) {
        const int c = j * KVT_WARP + warp_in_block();
        if (c >= d) continue;
        const struct kq_fit fit = fit_channel(t, x[j], s, a, c, bytes);
        if (thread_in_warp() == 0)
            s->step[c] = fit.step, s->zero16[c] = fit.zero16, s->channels[s->rank[c]] = (uint16_t)c;
        for (int k = 0; k < KQ_PARTS; k++) f.w[s->rank[c] * n_rows + k * KVT_WARP + thread_in_warp()] = x[j][k];
    }
    __syncthreads();
    find_codes(f, a, s->channels, s->step, s->zero16, codes);
    pack_classes(a, bytes, codes);
    load_slice(x, a, job, 0, d);
    for (int j = 0; j < KQ_CHANNELS; j++) {
        const int c = j * KVT_WARP + warp_in_block();
        if (c >= d) continue;
        const float half = (float)((1 << a.classes.of[s->classes[c]].bits) - 1) / 2;
        const float middle = kvt_f32_from_f16(s->zero16[c]) + s->step[c] * half;
        for (int k = 0; k < KQ_PARTS; k++)
            f.lower[s->rank[c] * n_rows + k * KVT_WARP + thread_in_warp()] = x[j][k] - middle;
    }
    __syncthreads();
    float own, shared;
    find_products(f, &own, &shared);
    if ((int)threadIdx.x < n_rows) put_factor(a, bytes, (int)threadIdx.x, own, shared);
}

#endif
