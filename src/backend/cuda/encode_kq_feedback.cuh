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
    struct divisor diagonal[FEEDBACK_MOST]; /* of R^T */
    uint16_t channels[FEEDBACK_MOST], places[FEEDBACK_MOST];
    float mean; /* of the diagonal of C before it is damped */
};
/* Where it lies. */
enum { FEEDBACK_AT = KQ_CODES_AT + KQ_SQUARES_BYTES };

/* ---- moments ------------------------------------------------------------------------------------------------------------- */

/* Queries of a thread, as they are stored: a word has a half of each byte of eight neighbours. */
struct stored_queries {
    enum { N = KVT_TILE_ROWS * FEEDBACK_MOST / 8 / KQ_THREADS };
    uint32_t low[N], high[N];

    KVT_MEMBER int row(int k) const { return (k * KQ_THREADS + (int)threadIdx.x) % KVT_TILE_ROWS; }
    KVT_MEMBER int octet(int k) const { return (k * KQ_THREADS + (int)threadIdx.x) / KVT_TILE_ROWS; }
    KVT_MEMBER void load(const void *queries, int d) {
#pragma unroll
        for (int k = 0; k < N; k++) {
            const uint32_t *at =
                static_cast<const uint32_t *>(queries) +
                (row(k) / KVT_BLOCK_LANES * (d / 8) + KVT_MIN(octet(k), d / 8 - 1)) * 2 * KVT_BLOCK_LANES +
                row(k) % KVT_BLOCK_LANES;
            low[k] = at[0], high[k] = at[KVT_BLOCK_LANES];
        }
    }
    /* By row and rank. */
    KVT_MEMBER void put(struct feedback *f, const struct kq_shared *s, int d) const {
#pragma unroll
        for (int k = 0; k < N; k++)
            if (octet(k) < d / 8)
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const int shift = i % 4 * 8 + i / 4 * 4;
                    f->lower[row(k) * FEEDBACK_QUERIES + s->rank[8 * octet(k) + i]] =
                        kvt_f32_from_e5m2((uint8_t)((low[k] >> shift & 15) | (high[k] >> shift & 15) << 4));
                }
    }
};

/* Channels by rank, and at y what the diagonal of C is going to be. */
KVT_DEVICE void turn_ranks(struct feedback *f, const struct kq_shared *s, int d) {
    for (int c = (int)threadIdx.x; c < d; c += KQ_THREADS) {
        f->channels[s->rank[c]] = (uint16_t)c;
        f->y[s->rank[c]] = s->seen[c].squares;
    }
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

/* Damps c, and copies it to lower; returns the mean of its diagonal, which is at y. Ends with a wait. */
KVT_DEVICE float damp(struct feedback *f, int d) {
    if (warp_in_block() == 0) {
        float sum = 0;
#pragma unroll 16
        for (int k = 0; k < d; k += 4) {
            const float4 v = *reinterpret_cast<const float4 *>(f->y + k);
            sum += v.x, sum += v.y, sum += v.z, sum += v.w;
        }
        f->mean = sum / (float)d;
    }
    __syncthreads();
    const float mean = f->mean;
    for (int i = warp_in_block(); i < d; i += KQ_WARPS)
#pragma unroll
        for (int e = 0; e < FEEDBACK_PARTS; e++) {
            const int j = e * KVT_WARP + thread_in_warp();
            if (j > i) continue;
            float x = f->c[i * FEEDBACK_MOST + j];
            if (j == i) x += KQ_DAMPING * mean, f->c[i * FEEDBACK_MOST + j] = x;
            f->lower[i * FEEDBACK_PITCH + j] = x;
        }
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
        const struct divisor by_root = divisor_of(root);
        const float of_column = x[p];
        float of_square[FEEDBACK_PANEL];
        bool easy = is_easy(root) && (m >= k + p || is_easy(of_column));
        x[p] = easy_quotient(of_column, by_root);
#pragma unroll
        for (int c = 0; c < p; c++) {
            of_square[c] = square[c][p];
            easy &= is_easy(of_square[c]);
            square[c][p] = easy_quotient(of_square[c], by_root);
        }
        if (!easy) {
            x[p] = of_column / root;
#pragma unroll
            for (int c = 0; c < p; c++) square[c][p] = of_square[c] / root;
        }
        if (m == k + p) x[p] = root;
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
#pragma unroll
    for (int last = 0; last < FEEDBACK_PARTS; last++) /* the part that the diagonal is in */
        for (int i = last * KVT_WARP + warp_in_block() - first; i < KVT_MIN(k, (last + 1) * KVT_WARP);
             i += KQ_WARPS - first) {
            float by[FEEDBACK_PANEL], x[FEEDBACK_PARTS], *row = f->lower + i * FEEDBACK_PITCH + thread_in_warp();
#pragma unroll
            for (int p = 0; p < FEEDBACK_PANEL; p++) by[p] = panel[p * FEEDBACK_PITCH + i];
#pragma unroll
            for (int e = 0; e <= last; e++) x[e] = row[e * KVT_WARP];
#pragma unroll
            for (int p = FEEDBACK_PANEL - 1; p >= 0; p--)
#pragma unroll
                for (int e = 0; e <= last; e++) x[e] += -by[p] * v[p][e];
#pragma unroll
            for (int e = 0; e <= last; e++)
                if (e * KVT_WARP + thread_in_warp() <= i) row[e * KVT_WARP] = x[e];
        }
}

/* lower = R^T, and so in every block; and its diagonal. Ends with a wait. */
KVT_DEVICE void find_root(struct feedback *f, int d, float mean) {
    for (int k = d - FEEDBACK_PANEL; k >= 0; k -= FEEDBACK_PANEL) {
        if (warp_in_block() < FEEDBACK_PARTS)
            find_panel(f, k, d, mean);
        else
            take_panel_off(f, k, d, FEEDBACK_PARTS);
        __syncthreads();
    }
    for (int k = (int)threadIdx.x; k < d; k += KQ_THREADS)
        f->diagonal[k] = divisor_of(f->lower[k * FEEDBACK_PITCH + k]);
    __syncthreads();
}

/* A warp's: column m of the inverse, and then from it what each rank makes up for of an error of m, to all blocks. */
KVT_DEVICE void invert_column(struct feedback *f, int d, int m) {
    float sum[FEEDBACK_PARTS] = {}, own[FEEDBACK_PARTS] = {}, l[FEEDBACK_PARTS];
    struct divisor diagonal = f->diagonal[m];
    /* Column k, before it is needed; what is not behind k is done with. */
    const auto load = [&](int k) {
#pragma unroll
        for (int e = 0; e < FEEDBACK_PARTS; e++)
            l[e] = -f->lower[KVT_MIN(e * KVT_WARP + thread_in_warp(), d - 1) * FEEDBACK_PITCH + k];
        diagonal = f->diagonal[k];
    };
    load(m);
#pragma unroll
    for (int e0 = 0; e0 < FEEDBACK_PARTS; e0++)
        for (int k = KVT_MAX(m, e0 * KVT_WARP); k < KVT_MIN(d, (e0 + 1) * KVT_WARP); k++) {
            const float left = __shfl_sync(KQ_ALL, sum[e0], k % KVT_WARP), sum_of_k = k == m ? 1 : left;
            float x = easy_quotient(sum_of_k, diagonal);
            if (!is_easy(sum_of_k) || !is_easy(diagonal.by)) x = sum_of_k / diagonal.by;
            if (thread_in_warp() == k % KVT_WARP) own[e0] = x;
#pragma unroll
            for (int e = e0; e < FEEDBACK_PARTS; e++) sum[e] += l[e] * x;
            load(KVT_MIN(k + 1, d - 1));
        }
    float first = 0;
#pragma unroll
    for (int e = 0; e < FEEDBACK_PARTS; e++) {
        const float x = __shfl_sync(KQ_ALL, own[e], m % KVT_WARP);
        if (e == m / KVT_WARP) first = x;
    }
#pragma unroll
    for (int e = 0; e < FEEDBACK_PARTS; e++) own[e] = -own[e] / first;
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
    float l[FEEDBACK_PARTS];
    struct ranked_fit fit = f->fits[0];
    /* What an error of i is made up for by, before it is needed; what is not behind i is done with. */
    const auto load = [&](int i) {
#pragma unroll
        for (int e = 0; e < FEEDBACK_PARTS; e++) l[e] = f->lower[i * FEEDBACK_PITCH + e * KVT_WARP + thread_in_warp()];
        fit = f->fits[i];
    };
    load(0);
#pragma unroll
    for (int e0 = 0; e0 < FEEDBACK_PARTS; e0++)
#pragma unroll 2
        for (int i = e0 * KVT_WARP; i < KVT_MIN(d, (e0 + 1) * KVT_WARP); i++) {
            const float w = __shfl_sync(KQ_ALL, x[e0], i % KVT_WARP);
            float code = rintf((w - fit.zero) * fit.inverse);
            code = code > 0 ? code < fit.top ? code : fit.top : 0;
            const float error = w - (fit.zero + fit.step * code);
#pragma unroll
            for (int e = e0; e < FEEDBACK_PARTS; e++) x[e] += l[e] * error;
            load(KVT_MIN(i + 1, d - 1));
            f->w[i * FEEDBACK_ROWS + r] = code;
        }
    __syncwarp();
#pragma unroll
    for (int e = 0; e < FEEDBACK_PARTS; e++) {
        const int j = e * KVT_WARP + thread_in_warp();
        if (j >= d) continue;
        const struct ranked_fit fit = f->fits[j];
        const float code = f->w[j * FEEDBACK_ROWS + r];
        codes[f->places[j] * CLUSTER_SHARE + r] = (uint8_t)code;
        f->u[j * FEEDBACK_ROWS + r] = u[e];
        f->w[j * FEEDBACK_ROWS + r] = fit.step * (code - fit.top / 2);
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

/* A warp's: by row, products of u with C u and with C (decoded - middle), of which half of it has one each; to places u and w of rank 0. */
KVT_DEVICE void sum_products(struct feedback *f, int d) {
    const int r = thread_in_warp() % CLUSTER_SHARE;
    float *x = thread_in_warp() < CLUSTER_SHARE ? f->u : f->w;
    float sum = 0;
#pragma unroll 16
    for (int i = 0; i < d; i++) sum += x[i * FEEDBACK_ROWS + r] * f->y[i * FEEDBACK_ROWS + r];
    __syncwarp();
    x[r] = sum;
}

/* ---- the kernel ---------------------------------------------------------------------------------------------------------- */

/* Whether any query is not zero, by a warp. */
KVT_DEVICE bool has_queries(const struct kq_shared *s, int d) {
    bool any = false;
    for (int c = thread_in_warp(); c < d; c += KVT_WARP) any |= s->seen[c].squares != 0;
    return __ballot_sync(KQ_ALL, any) != 0;
}

/* Fits the warp's channel, and tells all. */
KVT_DEVICE void rank_fit(struct feedback *f, const float (&x)[KQ_PARTS], const struct kq_shared *s,
                         const struct encode_args &a, int c, unsigned char *bytes) {
    int t[KQ_PARTS];
    const int place = find_place(s, a.classes, c), rank = s->rank[c];
    const struct kq_fit fit = fit_channel(t, x, s, a, c, place, bytes);
    const float top = (float)top_of_class(a.tile.format.bits, class_of(s, a.classes, c));
    if (thread_in_warp() >= CLUSTER) return;
    struct feedback *its = in_block(f, thread_in_warp());
    its->fits[rank] = {kvt_f32_from_f16(fit.zero16), fit.step, fit.step > 0 ? 1 / fit.step : 0, top};
    its->places[rank] = (uint16_t)place;
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
    kq_open(s, d);
    if (job.n != KVT_TILE_ROWS) return;
    kq_survey<1>(x, s, a, job, d, reinterpret_cast<float *>(codes));
    if (!has_queries(s, d)) {
        encode_kq_tile(x, a, job, s, codes, bytes);
        return;
    }
    struct stored_queries queries;
    queries.load(job.queries, d);
    turn_ranks(f, s, d);
    if (own_channel(0) < d) rank_fit(f, x, s, a, own_channel(0), bytes);
    if (block_in_cluster() == 0) put_head(s, a, bytes, d);
    queries.put(f, s, d);
    __syncthreads();
    float row[FEEDBACK_PARTS];
    load_elements(row, a, job, [&](int e) {
        return row_channel{block_in_cluster() * CLUSTER_SHARE + warp_in_block(),
                           f->channels[KVT_MIN(e * KVT_WARP + thread_in_warp(), d - 1)]};
    });
    find_moments(f, d);
    find_root(f, d, damp(f, d));
    for (int m = warp_in_block() * CLUSTER + block_in_cluster(); m < d; m += KQ_WARPS * CLUSTER) invert_column(f, d, m);
    cluster_sync();
    find_codes(f, row, d, codes);
    __syncthreads();
    pack_classes(a, bytes, codes);
    multiply_rows(f, d);
    __syncthreads();
    if (warp_in_block() == 0) sum_products(f, d);
    __syncthreads();
    put_factor(a, bytes, block_in_cluster() * CLUSTER_SHARE + warp_in_block(), f->u[warp_in_block()],
               f->w[warp_in_block()]);
}

#endif
