/* SPDX-License-Identifier: Apache-2.0
 *
 * kq with error feedback, for rows of at most 128: a cluster of blocks takes a tile. The arithmetic is that of src/codec/kq_feedback.c: each
 * sum is one thread's, which adds in the order of the codec. Moments are shared out by rank; their root each block finds for itself, as a
 * wait of a cluster for each of its steps takes longer; columns of its inverse are one warp's each, and so are rows, from the first
 * code to the last.
 */
#ifndef BACKEND_CUDA_ENCODE_KQ_FEEDBACK_CUH
#define BACKEND_CUDA_ENCODE_KQ_FEEDBACK_CUH

#include "backend/cuda/encode_kq.cuh"

enum {
    FEEDBACK_MOST = 128,                       /* channels */
    FEEDBACK_PARTS = FEEDBACK_MOST / KVT_WARP, /* a thread's of a column or row: every 32nd */
    FEEDBACK_PITCH = FEEDBACK_MOST + 1,        /* of `lower`, along whose columns threads walk */
    FEEDBACK_QUERIES = FEEDBACK_MOST + 2,      /* pitch of queries, which are read in pairs */
    FEEDBACK_ROWS = CLUSTER_SHARE + 4,         /* pitch of what the block's rows have, in quads */
    FEEDBACK_PANEL = 4                         /* rows of the root that are found at a time */
};
#define KQ_DAMPING 0.5f

/* A channel's fit: code 0, a step and what divides by it, the largest code. */
struct alignas(16) ranked_fit {
    float zero, step, inverse, top;
};
struct alignas(8) float_pair {
    float x, y;
};

/* By rank of channels. */
struct feedback {
    float c[FEEDBACK_MOST * FEEDBACK_MOST]; /* second moments, damped; symmetric */
    /* First the queries [row][rank]. Then R^T, on and below the diagonal; above it, at [i][j], what j makes up for of an error of i. */
    float lower[FEEDBACK_MOST * FEEDBACK_QUERIES];
    /* Of the block's rows, [rank][row]: elements less their middles, decoded ones less their middles, products of the former with C. */
    alignas(16) float u[FEEDBACK_MOST * FEEDBACK_ROWS], w[FEEDBACK_MOST * FEEDBACK_ROWS],
        y[FEEDBACK_MOST * FEEDBACK_ROWS];
    struct ranked_fit fits[FEEDBACK_MOST];
    uint16_t channels[FEEDBACK_MOST], places[FEEDBACK_MOST];
};
/* Where it lies. */
enum { FEEDBACK_AT = KQ_CODES_AT + KQ_SQUARES_BYTES };

/* ---- moments ------------------------------------------------------------------------------------------------------------- */

/* Queries by row and rank. A word has a half of each byte of eight neighbours. Ends with a wait. */
KVT_DEVICE void load_queries(struct feedback *f, const struct kq_shared *s, const void *queries, int d) {
    for (int e = (int)threadIdx.x; e < KVT_TILE_ROWS * d / 8; e += KQ_THREADS) {
        const int r = e % KVT_TILE_ROWS, o = e / KVT_TILE_ROWS;
        const uint32_t *at = static_cast<const uint32_t *>(queries) +
                             (r / KVT_BLOCK_LANES * (d / 8) + o) * 2 * KVT_BLOCK_LANES + r % KVT_BLOCK_LANES;
        const uint32_t low = at[0], high = at[KVT_BLOCK_LANES];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int shift = i % 4 * 8 + i / 4 * 4;
            f->lower[r * FEEDBACK_QUERIES + s->rank[8 * o + i]] =
                kvt_f32_from_e5m2((uint8_t)((low >> shift & 15) | (high >> shift & 15) << 4));
        }
    }
    __syncthreads();
}

/* The block's lines of C, in patches of 2 x 2, to all blocks. Ends with a wait of the cluster. */
KVT_DEVICE void find_moments(struct feedback *f, int d) {
    const int lines = d / CLUSTER, pairs = d / 2;
    for (int p = (int)threadIdx.x; p < lines / 2 * pairs; p += KQ_THREADS) {
        const int i = block_in_cluster() * lines + p / pairs * 2, j = p % pairs * 2;
        float_pair of_i = {0, 0}, of_next = {0, 0};
#pragma unroll 8
        for (int r = 0; r < KVT_TILE_ROWS; r++) {
            const float *q = f->lower + r * FEEDBACK_QUERIES;
            const float_pair a = *reinterpret_cast<const float_pair *>(q + i),
                             b = *reinterpret_cast<const float_pair *>(q + j);
            of_i.x += a.x * b.x, of_i.y += a.x * b.y;
            of_next.x += a.y * b.x, of_next.y += a.y * b.y;
        }
#pragma unroll
        for (int b = 0; b < CLUSTER; b++) {
            float *to = in_block(f->c, b) + i * FEEDBACK_MOST + j;
            *reinterpret_cast<float_pair *>(to) = of_i;
            *reinterpret_cast<float_pair *>(to + FEEDBACK_MOST) = of_next;
        }
    }
    cluster_sync();
}

/* ---- the root ------------------------------------------------------------------------------------------------------------ */

/* Damps c, and copies it to lower; returns the mean of its diagonal. Ends with a wait. */
KVT_DEVICE float damp(struct feedback *f, int d) {
    float mean = 0;
#pragma unroll 16
    for (int k = 0; k < d; k++) mean += f->c[k * (FEEDBACK_MOST + 1)]; /* each thread its own */
    mean /= (float)d;
    __syncthreads();
    if ((int)threadIdx.x < d) f->c[threadIdx.x * (FEEDBACK_MOST + 1)] += KQ_DAMPING * mean;
    __syncthreads();
    for (int i = warp_in_block(); i < d; i += KQ_WARPS)
        for (int j = thread_in_warp(); j <= i; j += KVT_WARP)
            f->lower[i * FEEDBACK_PITCH + j] = f->c[i * FEEDBACK_MOST + j];
    __syncthreads();
    return mean;
}

/* x[q] of column m += those of the rows of a panel that is done times its elements, from the last row on. */
KVT_DEVICE void take_panel(float (&x)[FEEDBACK_PANEL], const float (&by)[FEEDBACK_PANEL][FEEDBACK_PANEL],
                           const float (&v)[FEEDBACK_PANEL]) {
#pragma unroll
    for (int p = FEEDBACK_PANEL - 1; p >= 0; p--)
#pragma unroll
        for (int q = 0; q < FEEDBACK_PANEL; q++) x[q] += -by[p][q] * v[p];
}

/* Rows [k, k + PANEL) of R^T; the panel after them is done, and what is further was taken off. Each of the first threads has a column and, like all, the
 * square on the diagonal. A wait of the block is between what it reads and what it writes. */
KVT_DEVICE void find_panel(struct feedback *f, int k, int d, float mean) {
    const int m = (int)threadIdx.x, n = FEEDBACK_PANEL;
    float *at = f->lower + k * FEEDBACK_PITCH;
    float x[FEEDBACK_PANEL], square[FEEDBACK_PANEL][FEEDBACK_PANEL]; /* [column][row] */
#pragma unroll
    for (int q = 0; q < n; q++) {
        x[q] = at[q * FEEDBACK_PITCH + m];
#pragma unroll
        for (int p = 0; p < n; p++) square[p][q] = p <= q ? at[q * FEEDBACK_PITCH + k + p] : 0;
    }
    if (k + n < d) {
        float by[FEEDBACK_PANEL][FEEDBACK_PANEL], v[FEEDBACK_PANEL];
#pragma unroll
        for (int p = 0; p < n; p++) {
            v[p] = at[(n + p) * FEEDBACK_PITCH + m];
#pragma unroll
            for (int q = 0; q < n; q++) by[p][q] = at[(n + p) * FEEDBACK_PITCH + k + q];
        }
        take_panel(x, by, v);
#pragma unroll
        for (int c = 0; c < n; c++) {
            float column[FEEDBACK_PANEL];
#pragma unroll
            for (int p = 0; p < n; p++) column[p] = by[p][c];
            take_panel(square[c], by, column);
        }
    }
    __syncthreads();
#pragma unroll
    for (int p = n - 1; p >= 0; p--) {
        const float own = square[p][p], root = sqrtf(own > 0 ? own : mean > 0 ? mean : 1);
        x[p] = m == k + p ? root : x[p] / root;
#pragma unroll
        for (int c = 0; c < p; c++) square[c][p] /= root;
#pragma unroll
        for (int q = 0; q < p; q++) {
            x[q] += -square[q][p] * x[p];
#pragma unroll
            for (int c = 0; c <= q; c++) square[c][q] += -square[q][p] * square[c][p];
        }
    }
#pragma unroll
    for (int q = 0; q < n; q++)
        if (m <= k + q) at[q * FEEDBACK_PITCH + m] = x[q];
}

/* Takes the panel after rows [k, k + PANEL) off the rows before them, by warps from `first` on. The same wait. */
KVT_DEVICE void take_panel_off(struct feedback *f, int k, int d, int first) {
    __syncthreads();
    if (k + FEEDBACK_PANEL == d) return;
    const float *panel = f->lower + (k + FEEDBACK_PANEL) * FEEDBACK_PITCH;
    float v[FEEDBACK_PANEL][FEEDBACK_PARTS];
#pragma unroll
    for (int p = 0; p < FEEDBACK_PANEL; p++)
#pragma unroll
        for (int e = 0; e < FEEDBACK_PARTS; e++) v[p][e] = panel[p * FEEDBACK_PITCH + e * KVT_WARP + thread_in_warp()];
    for (int i = warp_in_block() - first; i < k; i += KQ_WARPS - first) {
        float by[FEEDBACK_PANEL], *row = f->lower + i * FEEDBACK_PITCH;
#pragma unroll
        for (int p = 0; p < FEEDBACK_PANEL; p++) by[p] = panel[p * FEEDBACK_PITCH + i];
#pragma unroll
        for (int e = 0; e < FEEDBACK_PARTS; e++) {
            const int m = e * KVT_WARP + thread_in_warp();
            if (m > i) continue;
            float x = row[m];
#pragma unroll
            for (int p = FEEDBACK_PANEL - 1; p >= 0; p--) x += -by[p] * v[p][e];
            row[m] = x;
        }
    }
}

/* lower = R^T, and so in every block. Ends with a wait. */
KVT_DEVICE void find_root(struct feedback *f, int d, float mean) {
    for (int k = d - FEEDBACK_PANEL; k >= 0; k -= FEEDBACK_PANEL) {
        if (warp_in_block() < FEEDBACK_PARTS)
            find_panel(f, k, d, mean);
        else
            take_panel_off(f, k, d, FEEDBACK_PARTS);
        __syncthreads();
    }
}

/* A warp's: column m of the inverse, and then from it what each rank makes up for of an error of m, to all blocks. */
KVT_DEVICE void invert_column(struct feedback *f, int d, int m) {
    float sum[FEEDBACK_PARTS] = {}, own[FEEDBACK_PARTS] = {};
#pragma unroll
    for (int e0 = 0; e0 < FEEDBACK_PARTS; e0++)
        for (int k = KVT_MAX(m, e0 * KVT_WARP); k < KVT_MIN(d, (e0 + 1) * KVT_WARP); k++) {
            const float left = __shfl_sync(KQ_ALL, sum[e0], k % KVT_WARP);
            const float x = (k == m ? 1 : left) / f->lower[k * FEEDBACK_PITCH + k];
            if (thread_in_warp() == k % KVT_WARP) own[e0] = x;
#pragma unroll
            for (int e = e0; e < FEEDBACK_PARTS; e++) { /* what is not behind k is done with */
                const int j = KVT_MIN(e * KVT_WARP + thread_in_warp(), d - 1);
                sum[e] += -f->lower[j * FEEDBACK_PITCH + k] * x;
            }
        }
    float diagonal = 0;
#pragma unroll
    for (int e = 0; e < FEEDBACK_PARTS; e++) {
        const float x = __shfl_sync(KQ_ALL, own[e], m % KVT_WARP);
        if (e == m / KVT_WARP) diagonal = x;
    }
#pragma unroll
    for (int e = 0; e < FEEDBACK_PARTS; e++) own[e] = -own[e] / diagonal;
    for (int b = 0; b < CLUSTER; b++) {
        float *to = in_block(f->lower, b) + m * FEEDBACK_PITCH;
#pragma unroll
        for (int e = 0; e < FEEDBACK_PARTS; e++) {
            const int j = e * KVT_WARP + thread_in_warp();
            if (j > m && j < d) to[j] = own[e];
        }
    }
}

/* ---- rows ---------------------------------------------------------------------------------------------------------------- */

/* A warp's: the codes of its row, x the elements by rank, the error of each made up for by those after it; then u and w. */
KVT_DEVICE void find_codes(struct feedback *f, float (&x)[FEEDBACK_PARTS], int d, uint8_t *codes) {
    const int r = warp_in_block();
    float u[FEEDBACK_PARTS];
#pragma unroll
    for (int e = 0; e < FEEDBACK_PARTS; e++) {
        const struct ranked_fit fit = f->fits[KVT_MIN(e * KVT_WARP + thread_in_warp(), d - 1)];
        u[e] = x[e] - (fit.zero + fit.step * (fit.top / 2));
    }
#pragma unroll
    for (int e0 = 0; e0 < FEEDBACK_PARTS; e0++)
#pragma unroll 4
        for (int i = e0 * KVT_WARP; i < KVT_MIN(d, (e0 + 1) * KVT_WARP); i++) {
            const struct ranked_fit fit = f->fits[i];
            const float w = __shfl_sync(KQ_ALL, x[e0], i % KVT_WARP);
            float code = rintf((w - fit.zero) * fit.inverse);
            code = code > 0 ? code < fit.top ? code : fit.top : 0;
            const float error = w - (fit.zero + fit.step * code);
            codes[code_place(CLUSTER_SHARE, f->places[i], r)] = (uint8_t)code;
#pragma unroll
            for (int e = e0; e < FEEDBACK_PARTS; e++) /* what is not behind i is done with */
                x[e] += f->lower[i * FEEDBACK_PITCH + e * KVT_WARP + thread_in_warp()] * error;
        }
    __syncwarp();
#pragma unroll
    for (int e = 0; e < FEEDBACK_PARTS; e++) {
        const int j = e * KVT_WARP + thread_in_warp();
        if (j >= d) continue;
        const struct ranked_fit fit = f->fits[j];
        f->u[j * FEEDBACK_ROWS + r] = u[e];
        f->w[j * FEEDBACK_ROWS + r] =
            fit.step * ((float)codes[code_place(CLUSTER_SHARE, f->places[j], r)] - fit.top / 2);
    }
}

/* y; a warp has a quad of rows and 32 ranks of it. Between waits. */
KVT_DEVICE void multiply_rows(struct feedback *f, int d) {
    const int quads = CLUSTER_SHARE / 4, r = warp_in_block() % quads * 4,
              i = warp_in_block() / quads * KVT_WARP + thread_in_warp();
    float4 y = {0, 0, 0, 0};
    if (i >= d) return;
#pragma unroll 8
    for (int j = 0; j < d; j++) {
        const float c = f->c[j * FEEDBACK_MOST + i];
        const float4 u = *reinterpret_cast<const float4 *>(f->u + j * FEEDBACK_ROWS + r);
        y.x += c * u.x, y.y += c * u.y, y.z += c * u.z, y.w += c * u.w;
    }
    *reinterpret_cast<float4 *>(f->y + i * FEEDBACK_ROWS + r) = y;
}

/* A warp's: by row, products of u with C u and with C (decoded - middle), of which half of it has one each; and the factors. */
KVT_DEVICE void put_factors(const struct feedback *f, const struct encode_args &a, int d, unsigned char *bytes) {
    const int r = thread_in_warp() % CLUSTER_SHARE;
    const float *x = thread_in_warp() < CLUSTER_SHARE ? f->u : f->w;
    float sum = 0;
#pragma unroll 16
    for (int i = 0; i < d; i++) sum += x[i * FEEDBACK_ROWS + r] * f->y[i * FEEDBACK_ROWS + r];
    const float other = __shfl_xor_sync(KQ_ALL, sum, CLUSTER_SHARE);
    if (thread_in_warp() < CLUSTER_SHARE) put_factor(a, bytes, block_in_cluster() * CLUSTER_SHARE + r, sum, other);
}

/* ---- the kernel ---------------------------------------------------------------------------------------------------------- */

/* Whether any query is not zero, by a warp. */
KVT_DEVICE bool has_queries(const struct kq_shared *s, int d) {
    bool any = false;
    for (int c = thread_in_warp(); c < d; c += KVT_WARP) any |= s->squares[c] != 0;
    return __ballot_sync(KQ_ALL, any) != 0;
}

/* Fits the warp's channel, and tells all. */
KVT_DEVICE void rank_fit(struct feedback *f, const float (&x)[KQ_PARTS], const struct kq_shared *s,
                         const struct encode_args &a, int c, unsigned char *bytes) {
    int t[KQ_PARTS];
    const int place = find_place(s, a.classes, c), rank = s->rank[c];
    const struct kq_fit fit = fit_channel(t, x, s, a, c, place, bytes);
    const float top = (float)((1 << a.classes.of[s->classes[c]].bits) - 1);
    tell_all(&f->fits[rank], ranked_fit{kvt_f32_from_f16(fit.zero16), fit.step, fit.step > 0 ? 1 / fit.step : 0, top});
    tell_all(&f->channels[rank], (uint16_t)c);
    tell_all(&f->places[rank], (uint16_t)place);
}

KVT_KERNEL_WITH(KQ_THREADS, 1) encode_kq_feedback(KVT_ARGS struct encode_args a) {
    const side_by_side both;
    const struct kvt_cuda_job job = a.jobs[blockIdx.x];
    const int d = a.tile.n_terms;
    struct kq_shared *s = reinterpret_cast<struct kq_shared *>(kvt_shared);
    struct feedback *f = reinterpret_cast<struct feedback *>(kvt_shared + FEEDBACK_AT);
    uint8_t *codes = kvt_shared + KQ_CODES_AT;
    unsigned char *bytes = static_cast<unsigned char *>(job.tile);
    float x[KQ_PARTS];
    if (job.n != KVT_TILE_ROWS) return;
    kq_survey(x, s, a, job, d, 1, reinterpret_cast<float *>(codes), bytes);
    if (!has_queries(s, d)) {
        encode_kq_tile(x, a, job, s, codes, bytes);
        return;
    }
    if (own_channel(0) < d) rank_fit(f, x, s, a, own_channel(0), bytes);
    load_queries(f, s, job.queries, d);
    find_moments(f, d);

    float row[FEEDBACK_PARTS];
    load_elements(row, a, job, [&](int e) {
        return row_channel{block_in_cluster() * CLUSTER_SHARE + warp_in_block(),
                           f->channels[KVT_MIN(e * KVT_WARP + thread_in_warp(), d - 1)]};
    });
    find_root(f, d, damp(f, d));
    for (int m = warp_in_block() * CLUSTER + block_in_cluster(); m < d; m += KQ_WARPS * CLUSTER) invert_column(f, d, m);
    cluster_sync();
    find_codes(f, row, d, codes);
    __syncthreads();
    pack_classes(a, bytes, codes);
    multiply_rows(f, d);
    __syncthreads();
    if (warp_in_block() == 0) put_factors(f, a, d, bytes);
}

#endif
