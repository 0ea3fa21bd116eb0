/* SPDX-License-Identifier: Apache-2.0
 *
 * kvarn: a cluster of blocks takes a slice. A block has 16 lines and 16 columns of it, so each element is twice there, and a warp has one of
 * both. The arithmetic is that of src/codec/kvarn.c: sums go one element after another, so a thread sums a line or a column of quotients, or of
 * their squares, that a warp has made, and tells all blocks what the deviation is. Divisors and the decision which are best every block
 * finds for itself.
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
    KVARN_MOST_ITERATIONS = 16,
    KVARN_JUDGE = 2 /* the warp that judges; those before it sum */

};

/* The two axes: what is done to one is done to the other. */
enum { KVARN_TOKENS, KVARN_CHANNELS, KVARN_AXES };

/* What comes by mail: elements of channels; deviations of both axes; those of lines, and first their sums of squares; codes. */
enum { KVARN_ELEMENTS, KVARN_BOTH, KVARN_LINES, KVARN_CODES, KVARN_BOXES };

struct kvarn_shared {
    struct mailbox boxes[KVARN_BOXES];
    alignas(16) float w[KVARN_AXES][2 * CLUSTER_SHARE *
                                    KVARN_PITCH]; /* elements of the block's tokens and channels, then their squares */
    float deviations[2][KVARN_AXES][KVT_SLICE];   /* from all blocks; of iterates in turns */
    alignas(16) float lines[KVT_SLICE];           /* the same, of lines alone, or sums of squares */
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
    bool small[KVARN_AXES]; /* whether one of those is too small for an easy division */
    float divisor[KVARN_AXES][KVARN_PARTS], own[KVARN_AXES]; /* at this thread's places, and this warp's */

    KVT_MEMBER int size(int axis) const { return axis == KVARN_TOKENS ? (int)KVT_TILE_ROWS : n_channels; }
};

KVT_DEVICE float kvarn_clamp(float x, float lo, float hi) { return x < lo ? lo : x > hi ? hi : x; }

KVT_DEVICE int kvarn_own_place() { return block_in_cluster() * CLUSTER_SHARE + warp_in_block(); }

/* What the warp's token or channel is now, and its squares. */
template <int axis, bool is_k>
KVT_DEVICE void kvarn_put(const struct kvarn_slice<is_k> &k, const float (&w)[KVARN_PARTS]) {
    float *to = k.s->w[axis] + warp_in_block() * KVARN_PITCH + thread_in_warp();
#pragma unroll
    for (int j = 0; j < KVARN_PARTS; j++) {
        to[j * KVT_WARP] = w[j];
        to[CLUSTER_SHARE * KVARN_PITCH + j * KVT_WARP] = w[j] * w[j];
    }
}

/* Divides it by all that divides it. */
template <int axis, bool is_k> KVT_DEVICE void kvarn_divide(const struct kvarn_slice<is_k> &k) {
    const int other = 1 - axis;
    float w[KVARN_PARTS];
#pragma unroll
    for (int j = 0; j < KVARN_PARTS; j++)
        w[j] = easy_quotient(k.v[axis][j], divisor_of(k.divisor[other][j] * k.own[axis]));
    if (k.small[axis])
#pragma unroll
        for (int j = 0; j < KVARN_PARTS; j++) w[j] = k.v[axis][j] / (k.divisor[other][j] * k.own[axis]);
    kvarn_put<axis>(k, w);
}

KVT_DEVICE float kvarn_deviation_of(float sum, float squares, int n) {
    const float mean = sum / (float)n, variance = (squares - (float)n * mean * mean) / (float)(n - 1);
    return sqrtf(variance > 0 ? variance : 0);
}

/* The sum of n values in their order; n is a multiple of 4, and most often 128. */
KVT_DEVICE float kvarn_sum(const float *x, int n) {
    float sum = 0;
    const auto add = [&](int i) {
        const float4 v = *reinterpret_cast<const float4 *>(x + i);
        sum += v.x, sum += v.y, sum += v.z, sum += v.w;
    };
    if (n == KVT_SLICE) {
#pragma unroll
        for (int i = 0; i < KVT_SLICE; i += 4) add(i);
    } else {
#pragma unroll 1
        for (int i = 0; i < n; i += 4) add(i);
    }
    return sum;
}

/* A warp's, of the block's lines along an axis: half of it sums elements, half squares; tells all the deviations, or the sums of squares. */
template <bool is_k>
KVT_DEVICE void kvarn_sum_lines(const struct kvarn_slice<is_k> &k, int axis, bool squares, struct mailbox *box,
                                float *to) {
    const int i = thread_in_warp(), n = k.size(1 - axis);
    const float own = kvarn_sum(k.s->w[axis] + i * KVARN_PITCH, n);
    const float of_squares = __shfl_sync(0xFFFFFFFFu, own, i % CLUSTER_SHARE + CLUSTER_SHARE),
                sum = __shfl_sync(0xFFFFFFFFu, own, i % CLUSTER_SHARE);
    const float x = squares          ? of_squares
                    : n == KVT_SLICE ? kvarn_deviation_of(sum, of_squares, KVT_SLICE)
                                     : kvarn_deviation_of(sum, of_squares, n);
    to += block_in_cluster() * CLUSTER_SHARE + i % CLUSTER_SHARE;
#pragma unroll
    for (int b = 0; b < CLUSTER; b += 2) mail(box, to, x, b + i / CLUSTER_SHARE);
}

/* Deviations of all lines and columns, of the iterate of that number. */
template <bool is_k> KVT_DEVICE void kvarn_measure(const struct kvarn_slice<is_k> &k, int iterate) {
    struct mailbox *box = &k.s->boxes[KVARN_BOTH];
    if (threadIdx.x == 0) mailbox_expect(box, (int)sizeof k.s->deviations[0]);
    kvarn_divide<KVARN_TOKENS>(k);
    kvarn_divide<KVARN_CHANNELS>(k);
    __syncthreads();
    if (warp_in_block() < KVARN_AXES)
        kvarn_sum_lines(k, warp_in_block(), false, box, k.s->deviations[iterate % 2][warp_in_block()]);
    mailbox_wait(box, iterate);
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

/* Whether iterate i is the most even so far, by a warp. */
template <bool is_k> KVT_DEVICE void kvarn_judge(const struct kvarn_slice<is_k> &k, int i, float *best) {
    const float(*deviations)[KVT_SLICE] = k.s->deviations[i % 2];
    const float now =
        kvarn_spread(deviations[k.column], k.size(k.column)) + kvarn_spread(deviations[k.line], k.size(k.line));
    if (i > 0 && now > *best) return;
    *best = now;
    if (thread_in_warp() == 0) k.s->best = i;
}

/* Leaves the divisors of the most even iterate. One warp judges, while the first one sums. time: how often lines were measured before. */
template <bool is_k> KVT_DEVICE void kvarn_normalize(struct kvarn_slice<is_k> &k, int iterations, int time) {
    struct mailbox *box = &k.s->boxes[KVARN_LINES];
    float best = 0;
#pragma unroll
    for (int axis = 0; axis < KVARN_AXES; axis++) {
        k.own[axis] = 1;
#pragma unroll
        for (int j = 0; j < KVARN_PARTS; j++) k.divisor[axis][j] = 1;
    }
    for (int i = 0;; i++) {
        if (warp_in_block() == KVARN_JUDGE) kvarn_keep(k, i);
        kvarn_measure(k, i);
        if (i == iterations) break;
        if (threadIdx.x == 0) mailbox_expect(box, (int)sizeof k.s->lines);
        kvarn_update_all<k.column>(k, k.s->deviations[i % 2][k.column]);
        kvarn_divide<k.line>(k);
        __syncthreads();
        if (warp_in_block() == 0) kvarn_sum_lines(k, k.line, false, box, k.s->lines);
        if (warp_in_block() == KVARN_JUDGE) kvarn_judge(k, i, &best);
        mailbox_wait(box, time + i);
        kvarn_update_all<k.line>(k, k.s->lines);
    }
    if (warp_in_block() == KVARN_JUDGE) kvarn_judge(k, iterations, &best);
    __syncthreads();
    const float(*divisors)[KVT_SLICE] = k.s->divisors[k.s->best];
#pragma unroll
    for (int axis = 0; axis < KVARN_AXES; axis++) {
        k.own[axis] = divisors[axis][kvarn_own_place()];
#pragma unroll
        for (int j = 0; j < KVARN_PARTS; j++) k.divisor[axis][j] = divisors[axis][j * KVT_WARP + thread_in_warp()];
    }
}

/* A warp's: rotates a token of 128 channels, and rounds it to f16. */
KVT_DEVICE void kvarn_rotate(float *x, float by) {
    float v[KVARN_PARTS];
#pragma unroll
    for (int j = 0; j < KVARN_PARTS; j++) v[j] = x[j * KVT_WARP + thread_in_warp()];
#pragma unroll
    for (int stride = 1; stride < KVT_WARP; stride *= 2)
#pragma unroll
        for (int j = 0; j < KVARN_PARTS; j++) {
            const float other = __shfl_xor_sync(0xFFFFFFFFu, v[j], stride);
            v[j] = thread_in_warp() & stride ? other - v[j] : v[j] + other;
        }
#pragma unroll
    for (int stride = 1; stride < KVARN_PARTS; stride *= 2)
#pragma unroll
        for (int j = 0; j < KVARN_PARTS; j++)
            if (!(j & stride)) {
                const float p = v[j], q = v[j + stride];
                v[j] = p + q, v[j + stride] = p - q;
            }
#pragma unroll
    for (int j = 0; j < KVARN_PARTS; j++)
        x[j * KVT_WARP + thread_in_warp()] = kvt_f32_from_f16(kvt_f16_from_f32(v[j] * by));
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
    if (d == KVT_SLICE) {
        kvarn_rotate(x + warp_in_block() * u.pitch, a.rotation);
        __syncthreads();
    } else
        rotate_unit(x, u, false, a.rotation, true);
}

/* How many of n places are this block's. */
KVT_DEVICE int kvarn_share_of(int n) {
    return KVT_MIN(KVT_MAX(n - block_in_cluster() * CLUSTER_SHARE, 0), (int)CLUSTER_SHARE);
}

/* Each warp's token and channel: x has the block's tokens, of which the slice's channels begin at `first`. */
template <bool is_k> KVT_DEVICE void kvarn_deal(struct kvarn_slice<is_k> &k, const float *x, int d, int first) {
    const int t = warp_in_block();
    struct mailbox *box = &k.s->boxes[KVARN_ELEMENTS];
#pragma unroll
    for (int j = 0; j < KVARN_PARTS; j++) {
        const int c = j * KVT_WARP + thread_in_warp();
        if (c < k.n_channels) k.s->w[KVARN_TOKENS][t * KVARN_PITCH + c] = x[t * (d | 1) + first + c];
    }
    for (int e = (int)threadIdx.x; e < k.n_channels * CLUSTER_SHARE; e += KVARN_THREADS) {
        const int r = e % CLUSTER_SHARE, c = e / CLUSTER_SHARE;
        mail(box, &k.s->w[KVARN_CHANNELS][c % CLUSTER_SHARE * KVARN_PITCH + block_in_cluster() * CLUSTER_SHARE + r],
             x[r * (d | 1) + first + c], c / CLUSTER_SHARE);
    }
    mailbox_wait(box, 0);
    __syncwarp();
}

/* What the warp has of its token and channel. */
template <bool is_k> KVT_DEVICE void kvarn_take(struct kvarn_slice<is_k> &k) {
#pragma unroll
    for (int axis = 0; axis < KVARN_AXES; axis++) {
        const bool has_line = kvarn_own_place() < k.size(axis);
#pragma unroll
        for (int j = 0; j < KVARN_PARTS; j++) {
            const int i = j * KVT_WARP + thread_in_warp();
            const bool has = has_line && i < k.size(1 - axis);
            k.v[axis][j] = has ? k.s->w[axis][warp_in_block() * KVARN_PITCH + i] : 1;
        }
    }
}

/* The root mean square of all elements; `parity` leaves them as they are. */
template <bool is_k> KVT_DEVICE float kvarn_root_mean_square(const struct kvarn_slice<is_k> &k, bool parity) {
    if (parity) return 1;
    struct mailbox *box = &k.s->boxes[KVARN_LINES];
    const int n = k.size(k.line);
    if (threadIdx.x == 0) mailbox_expect(box, (int)sizeof k.s->lines);
    kvarn_put<k.line>(k, k.v[k.line]);
    __syncthreads();
    if (warp_in_block() == 0) kvarn_sum_lines(k, k.line, true, box, k.s->lines);
    mailbox_wait(box, 0);
    const float squares = kvarn_sum(k.s->lines, n), rms = sqrtf(squares / (float)(n * k.size(k.column)));
    return rms > 0 ? rms : 1;
}

template <bool is_k> KVT_DEVICE void kvarn_scale(struct kvarn_slice<is_k> &k) {
#pragma unroll
    for (int axis = 0; axis < KVARN_AXES; axis++) {
        k.small[axis] = false;
#pragma unroll
        for (int j = 0; j < KVARN_PARTS; j++) {
            if (k.rms != 1) k.v[axis][j] /= k.rms;
            k.small[axis] |= fabsf(k.v[axis][j]) < EASY_LEAST;
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
    const int quad = (int)threadIdx.x / KVT_SLICE, lane = (int)threadIdx.x % KVT_SLICE;
    if (lane < n_columns)
        mail(&k.s->boxes[KVARN_CODES], packed + (own0 / 4 + quad) * KVT_BLOCK_LANES + lane % KVT_BLOCK_LANES,
             quads[quad * KVARN_PITCH + lane], lane / CLUSTER_SHARE);
    mailbox_wait(&k.s->boxes[KVARN_CODES], 0);
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
    if (threadIdx.x == 0) {
        for (int i = 0; i < KVARN_BOXES; i++) mailbox_open(&k.s->boxes[i]);
        mailbox_expect(&k.s->boxes[KVARN_ELEMENTS],
                       kvarn_share_of(k.n_channels) * (int)(KVT_TILE_ROWS * sizeof(float)));
        mailbox_expect(&k.s->boxes[KVARN_CODES], kvarn_share_of(k.size(k.column)) * (int)KVT_SLICE);
    }
    if (job.n != KVT_TILE_ROWS) return;
    cluster_begin();
    kvarn_load(x, a, job, d);
    cluster_begun();
    kvarn_deal(k, x, d, first);
    kvarn_take(k);
    k.rms = kvarn_root_mean_square(k, parity);
    kvarn_scale(k);
    kvarn_normalize(k, parity ? 16 : 8, parity ? 0 : 1);
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
