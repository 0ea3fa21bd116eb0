/* SPDX-License-Identifier: Apache-2.0
 *
 * kq: a block of threads takes a tile, a warp a channel, a thread every 32nd row of it. The arithmetic is that of src/codec/kq.c: sums of
 * whole numbers do not depend on their order, those of floats go over the lanes of a warp there too.
 */
#ifndef BACKEND_CUDA_ENCODE_KQ_CUH
#define BACKEND_CUDA_ENCODE_KQ_CUH

#include "backend/cuda/encode_unit.cuh"

enum {
    KQ_THREADS = 1024,
    KQ_PARTS = KVT_TILE_ROWS / KVT_WARP,
    KQ_CHANNELS = KVT_SLICE / (KQ_THREADS / KVT_WARP),
    KQ_FACTOR_MOST = 37
};
#define KQ_F16_MOST 65504.0f
#define KQ_LEAST    0x1p-100f
#define KQ_ALL      0xFFFFFFFFu

/* What a block shares. */
struct kq_shared {
    float lo[KVT_LATENT_MAX], range[KVT_LATENT_MAX], weight[KVT_LATENT_MAX], worth[KVT_LATENT_MAX];
    float step[KVT_SLICE];                         /* of the slice's channels */
    int part[KVT_SLICE];                           /* weights for the factors */
    int own[KVT_TILE_ROWS], shared[KVT_TILE_ROWS]; /* products by row, of the slice */
    float unit;                                    /* what those are worth */
    float most_f[KVT_CLASSES];                     /* largest scales */
    uint16_t rank[KVT_LATENT_MAX], place[KVT_LATENT_MAX];
    uint8_t classes[KVT_LATENT_MAX];
    uint16_t zero16[KVT_SLICE], channels[KVT_SLICE]; /* with feedback: zeros as they are stored, channels by rank */
    int any;
};
/* Where shared memory goes on with codes. */
enum { KQ_CODES_AT = (sizeof(struct kq_shared) + 15) / 16 * 16 };

struct kq_fit {
    float step;
    uint16_t zero16;
    int inverse, offset;
};

KVT_DEVICE float kq_clamp(float x, float lo, float hi) { return x < lo ? lo : x > hi ? hi : x; }

KVT_DEVICE float warp_max(float x) {
    for (int s = KVT_WARP / 2; s > 0; s /= 2) {
        const float o = __shfl_xor_sync(KQ_ALL, x, s);
        x = o > x ? o : x;
    }
    return x;
}

/* ---- survey -------------------------------------------------------------------------------------------------------------- */

/* Element i of row r of a tile of queries, rows of n elements. */
KVT_DEVICE float query_at(const unsigned char *bytes, int n, int i, int r) {
    const unsigned char *at = bytes + (size_t)(r / KVT_BLOCK_LANES * ((n + 7) / 8) + i / 8) * 8 * KVT_BLOCK_LANES +
                              r % KVT_BLOCK_LANES * 4 + i % 4;
    const int shift = i / 4 % 2 * 4;
    return kvt_f32_from_e5m2((at[0] >> shift & 15u) | (at[KVT_BLOCK_LANES * 4] >> shift & 15u) << 4);
}

/* Weights by channel: the sums of the squares of its queries, from the tile beside the rows: a channel is in every parts-th row there.
 * squares: room for d * 128 / parts floats. Ends with a wait. */
KVT_DEVICE void sum_queries(float *weight, float *squares, const void *queries, int d, int parts) {
    const int n = d / parts, n_rows = KVT_TILE_ROWS / parts;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < d * n_rows; i += (int)blockDim.x) {
        const int k = i / d, c = i - k * d;
        const float q = query_at(static_cast<const unsigned char *>(queries), n, c % n, c / n + k * parts);
        squares[i] = q * q;
    }
    __syncthreads();
    for (int c = (int)threadIdx.x; c < d; c += (int)blockDim.x) {
        float sum = 0;
#pragma unroll 16
        for (int k = 0; k < n_rows; k++) sum += squares[k * d + c];
        weight[c] = sum;
    }
    __syncthreads();
}

/* Elements of a slice: x[j][k] is row 32 k + this thread's of the warp's channel c0 + 32 j + its place. All are on their way before one
 * is waited for. */
KVT_DEVICE void load_slice(float (&x)[KQ_CHANNELS][KQ_PARTS], const struct encode_args &a,
                           const struct kvt_cuda_job &job, int c0, int n) {
#pragma unroll
    for (int j = 0; j < KQ_CHANNELS; j++)
#pragma unroll
        for (int k = 0; k < KQ_PARTS; k++) {
            const int i = j * KVT_WARP + warp_in_block();
            if (i < n) x[j][k] = load_element(a, job, k * KVT_WARP + thread_in_warp(), c0 + i);
        }
}

/* Extremes of a channel; a zero is the first row's that has one. */
KVT_DEVICE void measure_channel(struct kq_shared *s, const float (&x)[KQ_PARTS], int c) {
    float hi = -INFINITY, lo = INFINITY;
#pragma unroll
    for (int k = 0; k < KQ_PARTS; k++) lo = x[k] < lo ? x[k] : lo, hi = x[k] > hi ? x[k] : hi;
    lo = -warp_max(-lo), hi = warp_max(hi);
    if (lo == 0)
#pragma unroll
        for (int k = KQ_PARTS - 1; k >= 0; k--) {
            const unsigned zeros = __ballot_sync(KQ_ALL, x[k] == 0);
            if (zeros) lo = __shfl_sync(KQ_ALL, x[k], __ffs((int)zeros) - 1);
        }
    if (thread_in_warp() == 0) s->lo[c] = lo, s->range[c] = hi - lo;
}

/* Extremes of all channels; x: the last slice's elements. */
KVT_DEVICE void measure(float (&x)[KQ_CHANNELS][KQ_PARTS], struct kq_shared *s, const struct encode_args &a,
                        const struct kvt_cuda_job &job, int d) {
    for (int c0 = 0; c0 < d; c0 += KVT_SLICE) {
        const int n = KVT_MIN(KVT_SLICE, d - c0);
        load_slice(x, a, job, c0, n);
#pragma unroll
        for (int j = 0; j < KQ_CHANNELS; j++)
            if (j * KVT_WARP + warp_in_block() < n) measure_channel(s, x[j], c0 + j * KVT_WARP + warp_in_block());
    }
}

/* Weights by channel, then what each channel is worth. */
KVT_DEVICE void weigh(struct kq_shared *s, const struct kvt_cuda_job &job, int d, int parts, float *squares) {
    if (job.queries)
        sum_queries(s->weight, squares, job.queries, d, parts);
    else
        __syncthreads();
    float most = 0;
    for (int c = thread_in_warp(); job.queries && c < d; c += KVT_WARP)
        most = s->weight[c] > most ? s->weight[c] : most;
    most = warp_max(most);
    __syncthreads();
    for (int c = (int)threadIdx.x; c < d; c += (int)blockDim.x) {
        s->weight[c] = most > 0 ? s->weight[c] / most : 1;
        s->worth[c] = s->range[c] * s->range[c] * s->weight[c];
    }
    __syncthreads();
}

/* Classes by rank, places by channel, and the head. */
KVT_DEVICE void sort_channels(struct kq_shared *s, const struct kvt_classes &classes, int d) {
    for (int c = warp_in_block(); c < d; c += warps_of_block()) {
        int rank = 0;
        for (int o = thread_in_warp(); o < d; o += KVT_WARP)
            rank += s->worth[o] > s->worth[c] || (s->worth[o] == s->worth[c] && o < c);
        rank = __reduce_add_sync(KQ_ALL, rank);
        if (thread_in_warp() == 0) {
            s->rank[c] = (uint16_t)rank;
            s->classes[c] = (uint8_t)kvt_class_of_place(&classes, rank);
        }
    }
    __syncthreads();
    for (int c = warp_in_block(); c < d; c += warps_of_block()) {
        int before = 0;
        for (int o = thread_in_warp(); o < c; o += KVT_WARP) before += s->classes[o] == s->classes[c];
        before = __reduce_add_sync(KQ_ALL, before);
        if (thread_in_warp() == 0) s->place[c] = (uint16_t)(classes.of[s->classes[c]].first + before);
    }
}

KVT_DEVICE void put_head(struct kq_shared *s, const struct encode_args &a, unsigned char *bytes, int d) {
    const int k = warp_in_block();
    if (k < KVT_CLASSES) {
        float most = 0;
        for (int c = thread_in_warp(); c < d; c += KVT_WARP)
            if (s->classes[c] == k) most = KVT_MAX(s->range[c], most);
        most = warp_max(most);
        const float step = most / (float)((1 << a.classes.of[k].bits) - 1), wanted = KVT_MIN(step, KQ_F16_MOST);
        uint16_t stored = kvt_f16_from_f32(wanted);
        if (kvt_f32_from_f16(stored) < wanted) stored++;
        if (thread_in_warp() == 0) {
            s->most_f[k] = kvt_f32_from_f16(stored);
            reinterpret_cast<uint16_t *>(bytes)[k] = stored;
        }
    }
    for (int i = 2 * KVT_CLASSES + (int)threadIdx.x; i < (int)a.tile.head_bytes; i += (int)blockDim.x) {
        const int c = (i - KVT_CLASS_MAP) * 4;
        unsigned byte = 0;
        for (int j = 0; i >= KVT_CLASS_MAP && j < 4; j++)
            if (c + j < d) byte |= (unsigned)s->classes[c + j] << 2 * j;
        bytes[i] = (unsigned char)byte;
    }
}

/* ---- one channel --------------------------------------------------------------------------------------------------------- */

/* Over a channel's rows: of first codes, of their squares, of elements, of the products of both. */
struct kq_sums {
    int codes, squares, total, products;
};

/* A warp's: its elements in parts of its range, and their sums. */
KVT_DEVICE struct kq_sums sum_channel(int (&t)[KQ_PARTS], const float (&x)[KQ_PARTS], const struct kq_shared *s,
                                      const struct encode_args &a, int c) {
    const float range = s->range[c], lo = s->lo[c];
    const float per_range = range >= KQ_LEAST ? KVT_WHOLE_MOST / range : 0;
    const int bits = a.tile.format.bits, k_class = s->classes[c], top = (1 << a.classes.of[k_class].bits) - 1;
    const struct kvt_class_first first = kvt_class_first_of(top, bits);
    int sum = 0, squares = 0, total = 0, products = 0;
#pragma unroll
    for (int k = 0; k < KQ_PARTS; k++) {
        t[k] = kvt_whole_cut((int)rintf((x[k] - lo) * per_range));
        int code = kvt_whole_part(t[k], first.inverse);
        if (first.offset) code = KVT_MIN(KVT_MAX((int)kvt_whole_part(code + first.offset, first.round), 0), top);
        sum += code, squares += code * code;
        total += t[k], products += code * t[k];
    }
    return {__reduce_add_sync(KQ_ALL, sum), __reduce_add_sync(KQ_ALL, squares), __reduce_add_sync(KQ_ALL, total),
            __reduce_add_sync(KQ_ALL, products)};
}

/* A thread's: the scale and zero of a channel, which it stores if it is to. */
KVT_DEVICE struct kq_fit fit_sums(const struct kq_sums &sums, const struct kq_shared *s, const struct encode_args &a,
                                  int c, unsigned char *bytes, bool stores) {
    const float range = s->range[c], lo = s->lo[c];
    const int bits = a.tile.format.bits, k_class = s->classes[c];
    const int sum = sums.codes, squares = sums.squares, total = sums.total, products = sums.products;
    const float spread = (float)(KVT_TILE_ROWS * squares - sum * sum), mean = (float)total / KVT_TILE_ROWS,
                mean_code = (float)sum / KVT_TILE_ROWS;
    const float slope = spread > 0 ? ((float)products - mean * (float)sum) * KVT_TILE_ROWS / spread : 0;
    const float start = mean - slope * mean_code, unit = range * (1.0f / KVT_WHOLE_MOST);

    const float most = s->most_f[k_class], step = slope * unit;
    const int below = most > 0 ? -kvt_log8_nearest(step / most, KVT_CLASS_SCALE_PER) : 0;
    const uint8_t scale = (uint8_t)KVT_MIN(KVT_MAX(below, 0), 255);
    const float zero = kq_clamp(start * unit + lo, -KQ_F16_MOST, KQ_F16_MOST);
    uint16_t zero16 = kvt_f16_from_f32(zero);
    if (kvt_f32_from_f16(zero16) > zero) zero16 = (uint16_t)(zero16 >> 15 ? zero16 + 1 : zero16 - 1);
    if (stores) {
        const struct kvt_block block = kvt_tile_block(&a.tile, 0);
        bytes[block.scales + s->place[c]] = scale;
        reinterpret_cast<uint16_t *>(bytes + block.zeros)[s->place[c]] = zero16;
    }
    struct kq_fit f;
    f.zero16 = zero16;
    f.step = kvt_class_scale(most, scale);
    const float per = f.step > 0 ? (float)kvt_class_parts(bits) / f.step : 0;
    f.inverse = (int16_t)rintf(KVT_MIN(unit * per * 32768, (float)KVT_WHOLE_MOST));
    f.offset = (int16_t)rintf(kq_clamp((lo - kvt_f32_from_f16(zero16)) * per, -KVT_WHOLE_MOST, KVT_WHOLE_MOST));
    return f;
}

KVT_DEVICE struct kq_fit fit_channel(int (&t)[KQ_PARTS], const float (&x)[KQ_PARTS], const struct kq_shared *s,
                                     const struct encode_args &a, int c, unsigned char *bytes) {
    return fit_sums(sum_channel(t, x, s, a, c), s, a, c, bytes, thread_in_warp() == 0);
}

/* A warp's channels of a slice of n; a thread fits one of them. */
KVT_DEVICE void fit_channels(struct kq_fit (&fits)[KQ_CHANNELS], int (&t)[KQ_CHANNELS][KQ_PARTS],
                             const float (&x)[KQ_CHANNELS][KQ_PARTS], struct kq_shared *s, const struct encode_args &a,
                             int c0, int n, unsigned char *bytes) {
    struct kq_sums own = {0, 0, 0, 0};
    struct kq_fit fit = {0, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < KQ_CHANNELS; j++) {
        const int i = j * KVT_WARP + warp_in_block();
        if (i >= n) continue;
        const struct kq_sums sums = sum_channel(t[j], x[j], s, a, c0 + i);
        if (thread_in_warp() == j) own = sums;
    }
    const int i = thread_in_warp() * KVT_WARP + warp_in_block();
    if (thread_in_warp() < KQ_CHANNELS && i < n) {
        fit = fit_sums(own, s, a, c0 + i, bytes, true);
        s->step[i] = fit.step;
    }
#pragma unroll
    for (int j = 0; j < KQ_CHANNELS; j++) {
        fits[j].inverse = __shfl_sync(KQ_ALL, fit.inverse, j);
        fits[j].offset = __shfl_sync(KQ_ALL, fit.offset, j);
    }
}

/* A warp's: the slice's weights for the factors, as whole numbers, and what their sum is worth. */
KVT_DEVICE void weigh_steps(struct kq_shared *s, int c0, int n) {
    float worth[KVT_SLICE / KVT_WARP], sum = 0;
#pragma unroll
    for (int k = 0; k < KVT_SLICE / KVT_WARP; k++) {
        const int i = k * KVT_WARP + thread_in_warp();
        if (i < n) {
            worth[k] = s->weight[c0 + i] * (s->step[i] * s->step[i]);
            sum += worth[k];
        }
    }
    for (int d = KVT_WARP / 2; d > 0; d /= 2) sum += __shfl_xor_sync(KQ_ALL, sum, d);
    const float per = sum >= KQ_LEAST ? KVT_WHOLE_MOST / sum : 0;
#pragma unroll
    for (int k = 0; k < KVT_SLICE / KVT_WARP; k++) {
        const int i = k * KVT_WARP + thread_in_warp();
        if (i < n) s->part[i] = (int16_t)rintf(worth[k] * per);
    }
    if (thread_in_warp() == 0) s->unit = sum;
}

/* ---- codes ----------------------------------------------------------------------------------------------------------------- */

/* Planes of all blocks, a vector each warp. codes: the byte of a place and row at code_place(KVT_TILE_ROWS, place, row). */
KVT_DEVICE void pack_classes(const struct encode_args &a, unsigned char *bytes, const uint8_t *codes) {
    const uint32_t *quads = reinterpret_cast<const uint32_t *>(codes);
    const struct kvt_block first = kvt_tile_block(&a.tile, 0);
    const int n_vectors = (int)(a.tile.block_bytes / (KVT_BLOCK_LANES * 4)), lane = thread_in_warp();
    for (int task = warp_in_block(); task < n_vectors * KQ_PARTS; task += warps_of_block()) {
        const int v = task % n_vectors, b = task / n_vectors;
        /* Planes lie in the order 1, 4, 2: the last that begins at or before the vector and is not empty. */
        const int at = v * KVT_BLOCK_LANES * 4;
        int width = 1;
        if (a.classes.plane[4] <= (size_t)at) width = 4;
        if (a.classes.plane[2] <= (size_t)at) width = 2;
        const int per = 8 / width, quad0 = (at - (int)a.classes.plane[width]) / (KVT_BLOCK_LANES * 4) * per;
        uint32_t word = 0, mask = 0;
        for (int i = 0; i < KVT_CLASSES; i++)
            for (int p = 0, shift = 0; p < a.classes.of[i].n_parts; shift += a.classes.of[i].part[p++].width) {
                const struct kvt_class &of = a.classes.of[i];
                if (of.part[p].width != width) continue;
                const int from = of.part[p].at / 4, end = from + (of.end - of.first) / 4;
                for (int k = 0; k < per; k++) {
                    if (quad0 + k < from || quad0 + k >= end) continue;
                    const int quad = of.first / 4 + quad0 + k - from;
                    const uint32_t m = 0x01010101u * ((1u << width) - 1);
                    word |= (quads[quad * KVT_TILE_ROWS + b * KVT_BLOCK_LANES + lane] >> shift & m) << k * width;
                    mask |= m << k * width;
                }
            }
        uint32_t *to =
            reinterpret_cast<uint32_t *>(bytes + first.codes + (size_t)b * a.tile.block_bytes + (size_t)at) + lane;
        if (mask) *to = ~mask ? (*to & ~mask) | word : word;
    }
}

/* A channel's codes, and what they add to the products of this thread's rows. */
KVT_DEVICE void finish_channel(int (&own)[KQ_PARTS], int (&shared)[KQ_PARTS], const int (&t)[KQ_PARTS],
                               const struct kq_fit &f, int part, int top, int parts, uint8_t *codes, int place) {
    const int half = top * parts / 2;
#pragma unroll
    for (int k = 0; k < KQ_PARTS; k++) {
        const int fine = kvt_whole_cut(kvt_whole_part(t[k], f.inverse) + f.offset);
        const int code = KVT_MIN(KVT_MAX((int)kvt_whole_part(fine, 32768 / parts), 0), top);
        const int u = kvt_whole_cut(fine - half), weighted = kvt_whole_part(u, part);
        codes[code_place(KVT_TILE_ROWS, place, k * KVT_WARP + thread_in_warp())] = (uint8_t)code;
        own[k] += weighted * u;
        shared[k] += weighted * (code * parts - half);
    }
}

/* What a tile needs of all channels, and its head; a wait at the end. x: the last slice's elements. parts: rows in which a row of queries
 * comes. squares: as sum_queries wants it. */
KVT_DEVICE void kq_survey(float (&x)[KQ_CHANNELS][KQ_PARTS], struct kq_shared *s, const struct encode_args &a,
                          const struct kvt_cuda_job &job, int d, int parts, float *squares, unsigned char *bytes) {
    measure(x, s, a, job, d);
    weigh(s, job, d, parts, squares);
    sort_channels(s, a.classes, d);
    put_head(s, a, bytes, d);
    __syncthreads();
}

KVT_DEVICE void put_factor(const struct encode_args &a, unsigned char *bytes, int row, float own, float shared) {
    const bool is_known = own > 0 && shared > 0;
    const int e = is_known ? kvt_log8_nearest(own / shared, KVT_CLASS_FACTOR_PER) : 0;
    bytes[kvt_tile_block(&a.tile, 0).factors + (size_t)row] =
        (unsigned char)(int8_t)KVT_MIN(KVT_MAX(e, -KQ_FACTOR_MOST), KQ_FACTOR_MOST);
}

KVT_DEVICE void encode_kq_tile(const struct encode_args &a, const struct kvt_cuda_job &job, int parts,
                               struct kq_shared *s, uint8_t *codes) {
    const int d = a.tile.n_terms, row = (int)threadIdx.x;
    unsigned char *bytes = static_cast<unsigned char *>(job.tile);
    float x[KQ_CHANNELS][KQ_PARTS];
    kq_survey(x, s, a, job, d, parts, reinterpret_cast<float *>(codes), bytes);
    float own_sum = 0, shared_sum = 0; /* of row threadIdx.x */
    for (int c0 = 0; c0 < d; c0 += KVT_SLICE) {
        const int n = KVT_MIN(KVT_SLICE, d - c0);
        int t[KQ_CHANNELS][KQ_PARTS], own[KQ_PARTS] = {0}, shared[KQ_PARTS] = {0};
        struct kq_fit fits[KQ_CHANNELS];
        if (d > KVT_SLICE) load_slice(x, a, job, c0, n);
        if (row < KVT_TILE_ROWS) s->own[row] = s->shared[row] = 0;
        fit_channels(fits, t, x, s, a, c0, n, bytes);
        __syncthreads();
        if (warp_in_block() == 0) weigh_steps(s, c0, n);
        __syncthreads();
#pragma unroll
        for (int j = 0; j < KQ_CHANNELS; j++) {
            const int i = j * KVT_WARP + warp_in_block();
            if (i >= n) continue;
            finish_channel(own, shared, t[j], fits[j], s->part[i], (1 << a.classes.of[s->classes[c0 + i]].bits) - 1,
                           kvt_class_parts(a.tile.format.bits), codes, s->place[c0 + i]);
        }
#pragma unroll
        for (int k = 0; k < KQ_PARTS; k++) {
            atomicAdd(&s->own[k * KVT_WARP + thread_in_warp()], own[k]);
            atomicAdd(&s->shared[k * KVT_WARP + thread_in_warp()], shared[k]);
        }
        __syncthreads();
        if (row < KVT_TILE_ROWS) {
            own_sum += (float)s->own[row] * s->unit;
            shared_sum += (float)s->shared[row] * s->unit;
        }
        __syncthreads();
    }
    if (row < KVT_TILE_ROWS) put_factor(a, bytes, row, own_sum, shared_sum);
    pack_classes(a, bytes, codes);
}

KVT_KERNEL(KQ_THREADS) encode_kq(KVT_ARGS struct encode_args a) {
    const side_by_side both;
    const struct kvt_cuda_job job = a.jobs[blockIdx.x];
    if (job.n != KVT_TILE_ROWS) return;
    encode_kq_tile(a, job, 4, reinterpret_cast<struct kq_shared *>(kvt_shared), kvt_shared + KQ_CODES_AT);
}

#endif
