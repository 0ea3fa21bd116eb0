/* SPDX-License-Identifier: Apache-2.0
 *
 * kvarn: a cluster of blocks takes a slice. A block has 16 lines and 16 columns of it, so each element is twice there, and a warp has one of
 * both. The arithmetic is that of src/codec/kvarn.c: sums go one element after another, so a thread sums a line or a column of quotients that a
 * warp has made, and tells all blocks what the deviation is. Divisors and the decision which are best every block finds for itself.
 */
#ifndef BACKEND_CUDA_ENCODE_KVARN_CUH
#define BACKEND_CUDA_ENCODE_KVARN_CUH

#include "backend/cuda/cluster.cuh"
#include "backend/cuda/encode_groups.cuh"

/* A pitch of 4 more than 128 leaves lines aligned for loads of four, of which neighbouring lines' meet in no bank. */
enum {
    KVARN_THREADS = CLUSTER_SHARE * KVT_WARP,
    KVARN_PARTS = KVT_SLICE / KVT_WARP, /* a thread's of a line: every 32nd */
    KVARN_PITCH = KVT_SLICE + 4,
    KVARN_MOST_ITERATIONS = 16
};

/* The two axes: what is done to one is done to the other. */
enum { KVARN_TOKENS, KVARN_CHANNELS, KVARN_AXES };

struct kvarn_shared {
    alignas(16) float w[KVARN_AXES][CLUSTER_SHARE * KVARN_PITCH];     /* elements of the block's tokens and channels */
    alignas(16) float deviations[KVARN_AXES][KVT_SLICE];              /* from all blocks */
    alignas(16) float lines[KVT_SLICE];                               /* the same, of lines alone, or sums of squares */
    float divisors[KVARN_MOST_ITERATIONS + 1][KVARN_AXES][KVT_SLICE]; /* of each iterate */
    int best;                                                         /* of those */
    alignas(4) uint8_t codes[CLUSTER_SHARE * KVARN_PITCH];            /* of the block's lines */
    alignas(4) uint8_t packed[KVT_SLICE * KVT_BLOCK_LANES]; /* of all lines, at the block's lanes; from all blocks */
};

/* Where shared memory goes on: with the block's tokens, all channels, in floats. */
enum { KVARN_ROWS_AT = (sizeof(struct kvarn_shared) + 15) / 16 * 16 };

template <bool is_k> struct kvarn_slice {
    static constexpr int line = is_k ? KVARN_CHANNELS : KVARN_TOKENS, column = 1 - line;
    struct kvarn_shared *s;
    int n_channels;
    float rms;
    /* Of this warp's token and of its channel: elements, divided by rms, at every 32nd place of the other axis. */
    float v[KVARN_AXES][KVARN_PARTS];
    bool small[KVARN_AXES]; /* whether a division of one of those may need more than kvarn_quotient does */
    float divisor[KVARN_AXES][KVARN_PARTS], own[KVARN_AXES]; /* at this thread's places, and this warp's */

    KVT_MEMBER int size(int axis) const { return axis == KVARN_TOKENS ? (int)KVT_TILE_ROWS : n_channels; }
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

KVT_DEVICE int kvarn_own_place() { return block_in_cluster() * CLUSTER_SHARE + warp_in_block(); }

/* The warp's token or channel, divided by all that divides it. */
template <int axis, bool is_k> KVT_DEVICE void kvarn_divide(const struct kvarn_slice<is_k> &k) {
    const int other = 1 - axis;
    float w[KVARN_PARTS];
#pragma unroll
    for (int j = 0; j < KVARN_PARTS; j++) w[j] = kvarn_quotient(k.v[axis][j], k.divisor[other][j] * k.own[axis]);
    if (k.small[axis])
#pragma unroll
        for (int j = 0; j < KVARN_PARTS; j++) w[j] = k.v[axis][j] / (k.divisor[other][j] * k.own[axis]);
#pragma unroll
    for (int j = 0; j < KVARN_PARTS; j++)
        k.s->w[axis][warp_in_block() * KVARN_PITCH + j * KVT_WARP + thread_in_warp()] = w[j];
}

KVT_DEVICE float kvarn_deviation_of(float sum, float squares, int n) {
    const float mean = sum / (float)n, variance = (squares - (float)n * mean * mean) / (float)(n - 1);
    return sqrtf(variance > 0 ? variance : 0);
}

/* Sum and squares of n values in their order; n is a multiple of 4. */
struct kvarn_sums {
    float sum, squares;
};
KVT_DEVICE struct kvarn_sums kvarn_sum(const float *x, int n) {
    struct kvarn_sums s = {0, 0};
#pragma unroll 8
    for (int i = 0; i < n; i += 4) {
        const float4 v = *reinterpret_cast<const float4 *>(x + i);
        s.sum += v.x, s.sum += v.y, s.sum += v.z, s.sum += v.w;
        s.squares += v.x * v.x, s.squares += v.y * v.y, s.squares += v.z * v.z, s.squares += v.w * v.w;
    }
    return s;
}

/* x to a place of all blocks, by one thread. */
KVT_DEVICE void kvarn_tell(float *place, float x) {
#pragma unroll
    for (int b = 0; b < CLUSTER; b++) *in_block(place, b) = x;
}

/* Deviations of all lines and columns. Ends with a wait of the cluster. */
template <bool is_k> KVT_DEVICE void kvarn_measure(const struct kvarn_slice<is_k> &k) {
    kvarn_divide<KVARN_TOKENS>(k);
    kvarn_divide<KVARN_CHANNELS>(k);
    __syncthreads();
    if (warp_in_block() == 0) {
        const int i = thread_in_warp() % CLUSTER_SHARE, axis = thread_in_warp() / CLUSTER_SHARE, n = k.size(1 - axis);
        const struct kvarn_sums sums = kvarn_sum(k.s->w[axis] + i * KVARN_PITCH, n);
        kvarn_tell(&k.s->deviations[axis][block_in_cluster() * CLUSTER_SHARE + i],
                   kvarn_deviation_of(sums.sum, sums.squares, n));
    }
    cluster_sync();
}

/* The same of lines alone; or the sums of their squares. */
template <bool is_k> KVT_DEVICE void kvarn_measure_lines(const struct kvarn_slice<is_k> &k, bool squares) {
    const int i = (int)threadIdx.x, n = k.size(k.column);
    __syncthreads();
    if (i < CLUSTER_SHARE) {
        const struct kvarn_sums sums = kvarn_sum(k.s->w[k.line] + i * KVARN_PITCH, n);
        kvarn_tell(&k.s->lines[block_in_cluster() * CLUSTER_SHARE + i],
                   squares ? sums.squares : kvarn_deviation_of(sums.sum, sums.squares, n));
    }
    cluster_sync();
}

/* The largest of n numbers over the smallest, by a warp. */
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

/* New divisors along an axis, from its deviations. */
template <int axis, bool is_k> KVT_DEVICE void kvarn_update_all(struct kvarn_slice<is_k> &k, const float *deviations) {
#pragma unroll
    for (int j = 0; j < KVARN_PARTS; j++)
        k.divisor[axis][j] = kvarn_update(k.divisor[axis][j], deviations[j * KVT_WARP + thread_in_warp()]);
    k.own[axis] = kvarn_update(k.own[axis], deviations[kvarn_own_place()]);
}

/* Keeps divisors as those of iterate i, by a warp. */
template <bool is_k> KVT_DEVICE void kvarn_keep(const struct kvarn_slice<is_k> &k, int i) {
#pragma unroll
    for (int axis = 0; axis < KVARN_AXES; axis++)
#pragma unroll
        for (int j = 0; j < KVARN_PARTS; j++)
            k.s->divisors[i][axis][j * KVT_WARP + thread_in_warp()] = k.divisor[axis][j];
}

/* Leaves the divisors of the most even iterate. One warp judges, while the first one sums. */
template <bool is_k> KVT_DEVICE void kvarn_normalize(struct kvarn_slice<is_k> &k, int iterations) {
    float best = 0;
#pragma unroll
    for (int axis = 0; axis < KVARN_AXES; axis++) {
        k.own[axis] = 1;
#pragma unroll
        for (int j = 0; j < KVARN_PARTS; j++) k.divisor[axis][j] = 1;
    }
    for (int i = 0;; i++) {
        kvarn_measure(k);
        if (warp_in_block() == 1) {
            const float now = kvarn_spread(k.s->deviations[k.column], k.size(k.column)) +
                              kvarn_spread(k.s->deviations[k.line], k.size(k.line));
            kvarn_keep(k, i);
            if (i == 0 || !(now > best)) {
                best = now;
                if (thread_in_warp() == 0) k.s->best = i;
            }
        }
        if (i == iterations) break;
        kvarn_update_all<k.column>(k, k.s->deviations[k.column]);
        kvarn_divide<k.line>(k);
        kvarn_measure_lines(k, false);
        kvarn_update_all<k.line>(k, k.s->lines);
    }
    __syncthreads();
    const float(*divisors)[KVT_SLICE] = k.s->divisors[k.s->best];
#pragma unroll
    for (int axis = 0; axis < KVARN_AXES; axis++) {
        k.own[axis] = divisors[axis][kvarn_own_place()];
#pragma unroll
        for (int j = 0; j < KVARN_PARTS; j++) k.divisor[axis][j] = divisors[axis][j * KVT_WARP + thread_in_warp()];
    }
}

/* The block's tokens to x, rotated and rounded to f16. Ends with a wait. */
KVT_DEVICE void kvarn_load(float *x, const struct encode_args &a, const struct kvt_cuda_job &job, int d) {
    const bool by_token = !a.source.is_tile || a.tile.side == KVT_SIDE_V; /* neighbours in memory are of one token */
    const struct unit u = {0, CLUSTER_SHARE, 0, d, 0, CLUSTER_SHARE, 0, d, d | 1, CLUSTER_SHARE};
    const int i = (int)threadIdx.x;
    for (int k0 = 0; k0 * KVT_WARP < d; k0 += LOADS) {
        float v[LOADS];
        const auto place = [&](int k) {
            return by_token ? row_channel{i / KVT_WARP, (k0 + k) * KVT_WARP + i % KVT_WARP}
                            : row_channel{i % CLUSTER_SHARE, (k0 + k) * KVT_WARP + i / CLUSTER_SHARE};
        };
        load_elements(v, a, job, [&](int k) {
            const struct row_channel p = place(k);
            return row_channel{block_in_cluster() * CLUSTER_SHARE + p.row, KVT_MIN(p.channel, d - 1)};
        });
#pragma unroll
        for (int k = 0; k < LOADS; k++)
            if (place(k).channel < d) x[place(k).row * u.pitch + place(k).channel] = v[k];
    }
    __syncthreads();
    rotate_unit(x, u, false, a.rotation, true);
}

/* Each warp's token and channel: x has the block's tokens, of which the slice's channels begin at `first`. */
template <bool is_k> KVT_DEVICE void kvarn_deal(struct kvarn_slice<is_k> &k, const float *x, int d, int first) {
    const int t = warp_in_block();
    cluster_wait(); /* all blocks run */
#pragma unroll
    for (int j = 0; j < KVARN_PARTS; j++) {
        const int c = j * KVT_WARP + thread_in_warp();
        if (c < k.n_channels) k.s->w[KVARN_TOKENS][t * KVARN_PITCH + c] = x[t * (d | 1) + first + c];
    }
    for (int e = (int)threadIdx.x; e < k.n_channels * CLUSTER_SHARE; e += KVARN_THREADS) {
        const int r = e % CLUSTER_SHARE, c = e / CLUSTER_SHARE;
        *in_block(&k.s->w[KVARN_CHANNELS][c % CLUSTER_SHARE * KVARN_PITCH + block_in_cluster() * CLUSTER_SHARE + r],
                  c / CLUSTER_SHARE) = x[r * (d | 1) + first + c];
    }
    cluster_sync();
}

/* The root mean square of all elements; `parity` leaves them as they are. */
template <bool is_k> KVT_DEVICE float kvarn_root_mean_square(const struct kvarn_slice<is_k> &k, bool parity) {
    if (parity) return 1;
    kvarn_measure_lines(k, true);
    const int n = k.size(k.line);
    float squares = 0;
#pragma unroll 32
    for (int r = 0; r < n; r++) squares += k.s->lines[r];
    const float rms = sqrtf(squares / (float)(n * k.size(k.column)));
    return rms > 0 ? rms : 1;
}

/* What the warp has of its token and channel, divided by rms. */
template <bool is_k> KVT_DEVICE void kvarn_take(struct kvarn_slice<is_k> &k) {
#pragma unroll
    for (int axis = 0; axis < KVARN_AXES; axis++) {
        const bool has_line = kvarn_own_place() < k.size(axis);
        k.small[axis] = false;
#pragma unroll
        for (int j = 0; j < KVARN_PARTS; j++) {
            const int i = j * KVT_WARP + thread_in_warp();
            const bool has = has_line && i < k.size(1 - axis);
            k.v[axis][j] = has ? k.s->w[axis][warp_in_block() * KVARN_PITCH + i] / k.rms : 1;
            k.small[axis] |= fabsf(k.v[axis][j]) < 0x1p-60f;
        }
    }
}

/* Codes of the warp's line, its scale and zero. */
template <bool is_k>
KVT_DEVICE void kvarn_line(const struct kvarn_slice<is_k> &k, bool parity, const struct encode_args &a, char *bytes,
                           int term, int lane) {
    const float top = (float)((1 << a.tile.format.bits) - 1);
    struct group g = {};
    g.x = k.s->w[k.line] + warp_in_block() * KVARN_PITCH, g.step = 1, g.n = k.size(k.column);
    g.lane = thread_in_warp(), g.width = KVT_WARP, g.mask = 0xFFFFFFFFu;
    g.args = &a, g.bytes = bytes;
    g.codes = k.s->codes, g.pitch = KVARN_PITCH, g.term = warp_in_block(), g.along_lanes = true;
    float lo, hi;
    extremes(g, &lo, &hi);
    const float range = (hi - lo) / top, step = range > 1e-10f ? range : 1e-10f;
    FOR_ELEMENTS(i, g) {
        const float x = (g.x[i] - lo) / step;
        put_code(g, i, (uint8_t)kvarn_clamp(parity ? floorf(x + 0.5f) : rintf(x), 0, top));
    }
    const struct scale_place at = find_scale(a.tile, term, lane);
    const float scale = k.own[k.line] * step, zero = k.own[k.line] * lo;
    put_scale(g, at, kvt_f16_from_f32(scale * k.rms));
    put_zero(g, at, kvt_f16_from_f32(zero * k.rms));
}

/* Codes of the block's lines to the blocks that have their lanes, and from there to the tile. */
template <bool is_k>
KVT_DEVICE void kvarn_pack(const struct kvarn_slice<is_k> &k, const struct encode_args &a, char *bytes, int first) {
    const uint32_t *quads = reinterpret_cast<const uint32_t *>(k.s->codes);
    uint32_t *packed = reinterpret_cast<uint32_t *>(k.s->packed);
    const int n_lines = k.size(k.line), n_columns = k.size(k.column), own0 = block_in_cluster() * CLUSTER_SHARE;
    __syncthreads();
    for (int e = (int)threadIdx.x; e < CLUSTER_SHARE / 4 * n_columns; e += KVARN_THREADS) {
        const int quad = e / n_columns, lane = e % n_columns;
        *in_block(packed + (own0 / 4 + quad) * KVT_BLOCK_LANES + lane % KVT_BLOCK_LANES, lane / CLUSTER_SHARE) =
            quads[quad * KVARN_PITCH + lane];
    }
    cluster_sync();
    const int lane0 = own0 / KVT_BLOCK_LANES * KVT_BLOCK_LANES, from = own0 - lane0,
              end = KVT_MIN(from + CLUSTER_SHARE, n_columns - lane0);
    const struct unit u = {is_k ? first : 0,
                           n_lines,
                           (is_k ? 0 : first) + lane0,
                           KVT_BLOCK_LANES,
                           0,
                           n_lines,
                           from,
                           end,
                           KVT_BLOCK_LANES,
                           KVARN_THREADS / KVT_WARP};
    pack_unit(a.tile, bytes, k.s->packed, u);
}

template <bool parity, bool is_k> KVT_KERNEL_WITH(KVARN_THREADS, 2) encode_kvarn(KVT_ARGS struct encode_args a) {
    const side_by_side both;
    const struct kvt_cuda_job job = a.jobs[blockIdx.x];
    const int slice = (int)blockIdx.y / CLUSTER, first = slice * KVT_SLICE;
    const int d = is_k ? a.tile.n_terms : a.tile.n_lanes;
    char *bytes = static_cast<char *>(job.tile);
    float *x = reinterpret_cast<float *>(kvt_shared + KVARN_ROWS_AT);
    struct kvarn_slice<is_k> k;
    k.s = reinterpret_cast<struct kvarn_shared *>(kvt_shared), k.n_channels = KVT_MIN(KVT_SLICE, d - first);
    if (job.n != KVT_TILE_ROWS) return;
    cluster_arrive();
    kvarn_load(x, a, job, d);
    kvarn_deal(k, x, d, first);
    k.rms = kvarn_root_mean_square(k, parity);
    kvarn_take(k);
    kvarn_normalize(k, parity ? 16 : 8);
    kvarn_divide<k.line>(k);
    __syncwarp();
    const int own = kvarn_own_place();
    if (own < k.size(k.line)) kvarn_line(k, parity, a, bytes, is_k ? first + own : own, is_k ? 0 : first);
    if (thread_in_warp() == 0 && own < k.size(k.column)) {
        const int lane = is_k ? own : first + own;
        reinterpret_cast<uint16_t *>(bytes +
                                     kvt_tile_block(&a.tile, lane / KVT_BLOCK_LANES)
                                         .factors)[(is_k ? slice : 0) * KVT_BLOCK_LANES + lane % KVT_BLOCK_LANES] =
            kvt_f16_from_f32(k.own[k.column]);
    }
    kvarn_pack(k, a, bytes, first);
}

#endif
