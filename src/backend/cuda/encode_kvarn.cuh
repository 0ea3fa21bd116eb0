/* SPDX-License-Identifier: Apache-2.0
 *
 * kvarn: a block of threads takes a slice. The arithmetic is that of src/codec/kvarn.c: lines are terms, columns lanes, and sums go one
 * element after another, so a thread sums a line or a column of quotients that all threads have made.
 */
#ifndef BACKEND_CUDA_ENCODE_KVARN_CUH
#define BACKEND_CUDA_ENCODE_KVARN_CUH

#include "backend/cuda/encode_groups.cuh"

/* A warp has every 16th line, a thread every 32nd column of it. A pitch of 4 more than 128 leaves lines aligned for loads of four, and
 * neither those nor loads of a column meet in a bank. */
enum {
    KVARN_THREADS = 512,
    KVARN_WARPS = KVARN_THREADS / KVT_WARP,
    KVARN_LINES = KVT_SLICE / KVARN_WARPS,
    KVARN_COLUMNS = KVT_SLICE / KVT_WARP,
    KVARN_PITCH = KVT_SLICE + 4,
    KVARN_LOADS = 16
};

struct kvarn_shared {
    float row[KVT_SLICE], column[KVT_SLICE];           /* current divisors */
    float best_row[KVT_SLICE], best_column[KVT_SLICE]; /* those of the most even iterate */
    float rows[KVT_SLICE], columns[KVT_SLICE];         /* deviations, or sums of squares */
    float rms;
    alignas(16) float v[KVT_SLICE * KVARN_PITCH]; /* elements */
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
    float v[KVARN_LINES][KVARN_COLUMNS]; /* this thread's elements, divided by rms */
    bool small;                          /* whether a division of one of them may need more than kvarn_quotient does */
};

KVT_DEVICE float kvarn_clamp(float x, float lo, float hi) { return x < lo ? lo : x > hi ? hi : x; }

/* v / by in one rounding, for by between 2^-4 and 2^64 and v between 2^-60 and 2^60 in magnitude: what the compiler makes of a division,
 * without a branch for other numbers, so that several are on their way. */
KVT_DEVICE float kvarn_quotient(float v, float by) {
#if defined(__CUDA_ARCH__)
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(by));
    inverse = __fmaf_rn(inverse, __fmaf_rn(-by, inverse, 1), inverse);
    const float near = __fmul_rn(v, inverse);
    return __fmaf_rn(inverse, __fmaf_rn(-by, near, v), near);
#else
    return v / by;
#endif
}

/* w of all elements. */
KVT_DEVICE void kvarn_divide(const struct kvarn_slice &k) {
    float column[KVARN_COLUMNS];
#pragma unroll
    for (int j = 0; j < KVARN_COLUMNS; j++) column[j] = k.s->column[j * KVT_WARP + thread_in_warp()];
#pragma unroll
    for (int i = 0; i < KVARN_LINES; i++) {
        const int r = i * KVARN_WARPS + warp_in_block();
        const float row = k.s->row[r];
        float w[KVARN_COLUMNS];
#pragma unroll
        for (int j = 0; j < KVARN_COLUMNS; j++) w[j] = kvarn_quotient(k.v[i][j], column[j] * row);
        if (k.small)
#pragma unroll
            for (int j = 0; j < KVARN_COLUMNS; j++) w[j] = k.v[i][j] / (column[j] * row);
#pragma unroll
        for (int j = 0; j < KVARN_COLUMNS; j++) k.w[r * KVARN_PITCH + j * KVT_WARP + thread_in_warp()] = w[j];
    }
    __syncthreads();
}

KVT_DEVICE float kvarn_deviation_of(float sum, float squares, int n) {
    const float mean = sum / (float)n, variance = (squares - (float)n * mean * mean) / (float)(n - 1);
    return sqrtf(variance > 0 ? variance : 0);
}

/* Of the n values of a line, in their order; n is a multiple of 4. */
KVT_DEVICE float kvarn_line_deviation(const float *x, int n) {
    float sum = 0, squares = 0;
#pragma unroll 8
    for (int i = 0; i < n; i += 4) {
        const float4 v = *reinterpret_cast<const float4 *>(x + i);
        sum += v.x, sum += v.y, sum += v.z, sum += v.w;
        squares += v.x * v.x, squares += v.y * v.y, squares += v.z * v.z, squares += v.w * v.w;
    }
    return kvarn_deviation_of(sum, squares, n);
}

/* Of the n values of a column. */
KVT_DEVICE float kvarn_column_deviation(const float *x, int n) {
    float sum = 0, squares = 0;
#pragma unroll 32
    for (int i = 0; i < n; i++) sum += x[i * KVARN_PITCH], squares += x[i * KVARN_PITCH] * x[i * KVARN_PITCH];
    return kvarn_deviation_of(sum, squares, n);
}

/* Deviations of all lines, and of all columns if they are wanted. */
KVT_DEVICE void kvarn_measure(const struct kvarn_slice &k, bool columns) {
    const int i = (int)threadIdx.x, c = i - KVT_SLICE;
    kvarn_divide(k);
    if (i < k.n_r) k.s->rows[i] = kvarn_line_deviation(k.w + i * KVARN_PITCH, k.n_c);
    if (columns && c >= 0 && c < k.n_c) k.s->columns[c] = kvarn_column_deviation(k.w + c, k.n_r);
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

/* The slice's elements, rotated and rounded to f16, to v; 128 rows, or 32 of longer ones, at a time pass through x. */
KVT_DEVICE void kvarn_load(const struct kvarn_slice &k, float *x, const struct encode_args &a,
                           const struct kvt_cuda_job &job, int first) {
    const bool is_k = a.tile.side == KVT_SIDE_K;
    const int d = is_k ? a.tile.n_terms : a.tile.n_lanes, n = d > KVT_SLICE ? (int)KVT_BLOCK_LANES : (int)KVT_TILE_ROWS;
    const int n_inner = is_k ? n : k.n_c;
    for (int row0 = 0; row0 < KVT_TILE_ROWS; row0 += n) {
        struct unit u = {0, d, row0, n, 0, d, 0, n, n | 1, KVARN_WARPS};
        if (!is_k) u = {row0, n, 0, d, 0, n, 0, d, d | 1, KVARN_WARPS};
        load_unit<false, KVARN_LOADS>(x, u, a, job);
        __syncthreads();
        rotate_unit(x, u, is_k, a.rotation, true);
        for (int o = warp_in_block(); o < (is_k ? k.n_r : n); o += warps_of_block())
            for (int i = thread_in_warp(); i < n_inner; i += KVT_WARP) {
                if (is_k)
                    k.s->v[o * KVARN_PITCH + row0 + i] = x[(first + o) * u.pitch + i];
                else
                    k.s->v[(row0 + o) * KVARN_PITCH + i] = x[o * u.pitch + first + i];
            }
        __syncthreads();
    }
}

/* The thread's elements, divided by the root mean square of all, which it leaves in rms; `parity` leaves them as they are. */
KVT_DEVICE void kvarn_scale(struct kvarn_slice &k, bool parity) {
    const int i = (int)threadIdx.x;
    if (i < k.n_r) {
        float line = 0;
#pragma unroll 8
        for (int c = 0; c < k.n_c; c += 4) {
            const float4 v = *reinterpret_cast<const float4 *>(&k.s->v[i * KVARN_PITCH + c]);
            line += v.x * v.x, line += v.y * v.y, line += v.z * v.z, line += v.w * v.w;
        }
        k.s->rows[i] = line;
    }
    __syncthreads();
    if (i == 0) {
        float squares = 0;
#pragma unroll 32
        for (int r = 0; r < k.n_r; r++) squares += k.s->rows[r];
        const float rms = sqrtf(squares / (float)(k.n_r * k.n_c));
        k.s->rms = rms > 0 && !parity ? rms : 1;
    }
    __syncthreads();
    k.small = false;
#pragma unroll
    for (int i = 0; i < KVARN_LINES; i++)
#pragma unroll
        for (int j = 0; j < KVARN_COLUMNS; j++) {
            const int r = i * KVARN_WARPS + warp_in_block(), c = j * KVT_WARP + thread_in_warp();
            k.v[i][j] = r < k.n_r && c < k.n_c ? k.s->v[r * KVARN_PITCH + c] / k.s->rms : 1;
            k.small |= fabsf(k.v[i][j]) < 0x1p-60f;
        }
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
    const side_by_side both;
    const struct kvt_cuda_job job = a.jobs[blockIdx.x];
    const bool is_k = a.tile.side == KVT_SIDE_K;
    const int slice = (int)blockIdx.y, first = slice * KVT_SLICE;
    const int n = KVT_MIN(KVT_SLICE, (is_k ? a.tile.n_terms : a.tile.n_lanes) - first);
    char *bytes = static_cast<char *>(job.tile);
    struct kvarn_shared *s = reinterpret_cast<struct kvarn_shared *>(kvt_shared);
    uint8_t *codes = kvt_shared + KVARN_CODES_AT;
    float *w = reinterpret_cast<float *>(codes + KVARN_CODES_BYTES);
    struct kvarn_slice k;
    k.s = s, k.w = w, k.n_r = is_k ? n : KVT_TILE_ROWS, k.n_c = is_k ? KVT_TILE_ROWS : n;
    if (job.n != KVT_TILE_ROWS) return;
    kvarn_load(k, w, a, job, first);
    kvarn_scale(k, parity);
    kvarn_normalize(k, parity ? 16 : 8);
    kvarn_divide(k);
    struct unit u = {first, n, 0, KVT_TILE_ROWS, 0, n, 0, KVT_TILE_ROWS, KVARN_PITCH, KVARN_WARPS};
    if (!is_k) u = {0, KVT_TILE_ROWS, first, n, 0, KVT_TILE_ROWS, 0, n, KVARN_PITCH, KVARN_WARPS};
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
