/* SPDX-License-Identifier: Apache-2.0
 *
 * kvarn: a block of threads takes a slice. The arithmetic is that of src/codec/kvarn.c: lines are terms, columns lanes, and sums go one
 * element after another, so a thread sums a line or a column of quotients that all threads have made.
 */
#ifndef BACKEND_CUDA_ENCODE_KVARN_CUH
#define BACKEND_CUDA_ENCODE_KVARN_CUH

#include "backend/cuda/encode_groups.cuh"

enum { KVARN_THREADS = 512, KVARN_PITCH = KVT_SLICE + 1 };

struct kvarn_shared {
    float row[KVT_SLICE], column[KVT_SLICE];           /* current divisors */
    float best_row[KVT_SLICE], best_column[KVT_SLICE]; /* those of the most even iterate */
    float rows[KVT_SLICE], columns[KVT_SLICE];         /* deviations, or sums of squares */
    float rms;
    float v[KVT_SLICE * KVARN_PITCH]; /* elements, divided by rms */
};

/* Where shared memory goes on: codes, then w, through which rows pass first. */
enum {
    KVARN_CODES_AT = (sizeof(struct kvarn_shared) + 15) / 16 * 16,
    KVARN_CODES_BYTES = (KVT_SLICE * KVARN_PITCH + 15) / 16 * 16
};

struct kvarn_slice {
    struct kvarn_shared *s;
    float *w; /* elements, divided by all that divides them */
    int n_r, n_c;
};

KVT_DEVICE float kvarn_clamp(float x, float lo, float hi) { return x < lo ? lo : x > hi ? hi : x; }

/* w of all elements. */
KVT_DEVICE void kvarn_divide(const struct kvarn_slice &k) {
    for (int r = warp_in_block(); r < k.n_r; r += warps_of_block())
        for (int c = thread_in_warp(); c < k.n_c; c += KVT_WARP)
            k.w[r * KVARN_PITCH + c] = k.s->v[r * KVARN_PITCH + c] / (k.s->column[c] * k.s->row[r]);
    __syncthreads();
}

/* Of n values from x on, one every `step`. */
KVT_DEVICE float kvarn_deviation(const float *x, int step, int n) {
    float sum = 0, squares = 0;
#pragma unroll 8
    for (int i = 0; i < n; i++) sum += x[i * step], squares += x[i * step] * x[i * step];
    const float mean = sum / (float)n, variance = (squares - (float)n * mean * mean) / (float)(n - 1);
    return sqrtf(variance > 0 ? variance : 0);
}

/* Deviations of all lines, and of all columns if they are wanted. */
KVT_DEVICE void kvarn_measure(const struct kvarn_slice &k, bool columns) {
    const int i = (int)threadIdx.x, c = i - KVT_SLICE;
    kvarn_divide(k);
    if (i < k.n_r) k.s->rows[i] = kvarn_deviation(k.w + i * KVARN_PITCH, 1, k.n_c);
    if (columns && c >= 0 && c < k.n_c) k.s->columns[c] = kvarn_deviation(k.w + c, KVARN_PITCH, k.n_r);
    __syncthreads();
}

/* The largest of n numbers over the smallest; every warp finds it. */
KVT_DEVICE float kvarn_spread(const float *x, int n) {
    float lo = x[0], hi = x[0];
    for (int i = thread_in_warp(); i < n; i += KVT_WARP) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    for (int s = KVT_WARP / 2; s > 0; s /= 2) {
        const float l = __shfl_xor_sync(0xFFFFFFFFu, lo, s), h = __shfl_xor_sync(0xFFFFFFFFu, hi, s);
        lo = l < lo ? l : lo;
        hi = h > hi ? h : hi;
    }
    return hi / (lo > 1e-8f ? lo : 1e-8f);
}

KVT_DEVICE float kvarn_update(float s, float d) {
    return kvarn_clamp(s * kvarn_clamp(d, 1e-3f, 1e3f), 0.7408182f, 22026.466f);
}

/* Leaves the divisors of the most even iterate in row and column. Begins and ends with a wait. */
KVT_DEVICE void kvarn_normalize(const struct kvarn_slice &k, int iterations) {
    const int i = (int)threadIdx.x;
    float best = 0;
    if (i < KVT_SLICE) k.s->row[i] = k.s->column[i] = 1;
    __syncthreads();
    for (int n = 0;; n++) {
        kvarn_measure(k, true);
        const float now = kvarn_spread(k.s->columns, k.n_c) + kvarn_spread(k.s->rows, k.n_r);
        if (n == 0 || !(now > best)) {
            best = now;
            if (i < KVT_SLICE) k.s->best_row[i] = k.s->row[i], k.s->best_column[i] = k.s->column[i];
        }
        if (n == iterations) break;
        if (i < k.n_c) k.s->column[i] = kvarn_update(k.s->column[i], k.s->columns[i]);
        __syncthreads();
        kvarn_measure(k, false);
        if (i < k.n_r) k.s->row[i] = kvarn_update(k.s->row[i], k.s->rows[i]);
        __syncthreads();
    }
    if (i < KVT_SLICE) k.s->row[i] = k.s->best_row[i], k.s->column[i] = k.s->best_column[i];
    __syncthreads();
}

/* The slice's elements, rotated and rounded to f16, to v; 32 rows at a time pass through x. */
KVT_DEVICE void kvarn_load(const struct kvarn_slice &k, float *x, const struct encode_args &a,
                           const struct kvt_cuda_job &job, int first) {
    const bool is_k = a.tile.side == KVT_SIDE_K;
    const int d = is_k ? a.tile.n_terms : a.tile.n_lanes, n_inner = is_k ? KVT_BLOCK_LANES : k.n_c;
    for (int row0 = 0; row0 < KVT_TILE_ROWS; row0 += KVT_BLOCK_LANES) {
        struct unit u = {0, d, row0, KVT_BLOCK_LANES, 0, d, 0, KVT_BLOCK_LANES, KVT_BLOCK_LANES | 1};
        if (!is_k) u = {row0, KVT_BLOCK_LANES, 0, d, 0, KVT_BLOCK_LANES, 0, d, d | 1};
        load_unit(x, u, a, job);
        __syncthreads();
        rotate_unit(x, u, is_k, a.rotation, true);
        for (int o = warp_in_block(); o < (is_k ? k.n_r : KVT_BLOCK_LANES); o += warps_of_block())
            for (int i = thread_in_warp(); i < n_inner; i += KVT_WARP) {
                if (is_k)
                    k.s->v[o * KVARN_PITCH + row0 + i] = x[(first + o) * u.pitch + i];
                else
                    k.s->v[(row0 + o) * KVARN_PITCH + i] = x[o * u.pitch + first + i];
            }
        __syncthreads();
    }
}

/* Divides v by its root mean square, which it leaves in rms; `parity` leaves v as it is. */
KVT_DEVICE void kvarn_scale(const struct kvarn_slice &k, bool parity) {
    const int i = (int)threadIdx.x;
    if (i < k.n_r) {
        float line = 0;
#pragma unroll 8
        for (int c = 0; c < k.n_c; c++) line += k.s->v[i * KVARN_PITCH + c] * k.s->v[i * KVARN_PITCH + c];
        k.s->rows[i] = line;
    }
    __syncthreads();
    if (i == 0) {
        float squares = 0;
        for (int r = 0; r < k.n_r; r++) squares += k.s->rows[r];
        const float rms = sqrtf(squares / (float)(k.n_r * k.n_c));
        k.s->rms = rms > 0 && !parity ? rms : 1;
    }
    __syncthreads();
    for (int r = warp_in_block(); r < k.n_r; r += warps_of_block())
        for (int c = thread_in_warp(); c < k.n_c; c += KVT_WARP) k.s->v[r * KVARN_PITCH + c] /= k.s->rms;
    __syncthreads();
}

/* Codes of line r, its scale and zero. */
KVT_DEVICE void kvarn_line(const struct kvarn_slice &k, int r, bool parity, const struct encode_args &a, char *bytes,
                           int term, int lane, uint8_t *codes, int pitch) {
    const float top = (float)((1 << a.tile.format.bits) - 1);
    struct group g = {};
    g.x = k.w + r * KVARN_PITCH, g.step = 1, g.n = k.n_c;
    g.lane = thread_in_warp(), g.width = KVT_WARP, g.mask = 0xFFFFFFFFu;
    g.args = &a, g.bytes = bytes;
    g.codes = codes, g.pitch = pitch, g.term = r, g.along_lanes = true;
    float lo, hi;
    extremes(g, &lo, &hi);
    const float range = (hi - lo) / top, step = range > 1e-10f ? range : 1e-10f;
    FOR_ELEMENTS(i, g) {
        const float x = (g.x[i] - lo) / step;
        put_code(g, i, (uint8_t)kvarn_clamp(parity ? floorf(x + 0.5f) : rintf(x), 0, top));
    }
    const struct scale_place at = find_scale(a.tile, term, lane);
    const float scale = k.s->row[r] * step, zero = k.s->row[r] * lo;
    put_scale(g, at, kvt_f16_from_f32(scale * k.s->rms));
    put_zero(g, at, kvt_f16_from_f32(zero * k.s->rms));
}

template <bool parity> KVT_KERNEL(KVARN_THREADS) encode_kvarn(KVT_ARGS struct encode_args a) {
    const struct kvt_cuda_job job = a.jobs[blockIdx.x];
    const bool is_k = a.tile.side == KVT_SIDE_K;
    const int slice = (int)blockIdx.y, first = slice * KVT_SLICE;
    const int n = KVT_MIN(KVT_SLICE, (is_k ? a.tile.n_terms : a.tile.n_lanes) - first);
    char *bytes = static_cast<char *>(job.tile);
    struct kvarn_shared *s = reinterpret_cast<struct kvarn_shared *>(kvt_shared);
    uint8_t *codes = kvt_shared + KVARN_CODES_AT;
    float *w = reinterpret_cast<float *>(codes + KVARN_CODES_BYTES);
    const struct kvarn_slice k = {s, w, is_k ? n : KVT_TILE_ROWS, is_k ? KVT_TILE_ROWS : n};
    if (job.n != KVT_TILE_ROWS) return;
    kvarn_load(k, w, a, job, first);
    kvarn_scale(k, parity);
    kvarn_normalize(k, parity ? 16 : 8);
    kvarn_divide(k);
    struct unit u = {first, n, 0, KVT_TILE_ROWS, 0, n, 0, KVT_TILE_ROWS, KVARN_PITCH};
    if (!is_k) u = {0, KVT_TILE_ROWS, first, n, 0, KVT_TILE_ROWS, 0, n, KVARN_PITCH};
    for (int r = warp_in_block(); r < k.n_r; r += warps_of_block())
        kvarn_line(k, r, parity, a, bytes, u.term0 + r, u.lane0, codes, u.pitch);
    for (int c = (int)threadIdx.x; c < k.n_c; c += (int)blockDim.x) {
        const int lane = u.lane0 + c;
        reinterpret_cast<uint16_t *>(bytes +
                                     kvt_tile_block(&a.tile, lane / KVT_BLOCK_LANES)
                                         .factors)[(is_k ? slice : 0) * KVT_BLOCK_LANES + lane % KVT_BLOCK_LANES] =
            kvt_f16_from_f32(s->column[c]);
    }
    __syncthreads();
    pack_unit(a.tile, bytes, codes, u);
}

#endif
