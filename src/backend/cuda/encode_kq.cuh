/* SPDX-License-Identifier: Apache-2.0
 *
 * kq: a cluster of blocks takes a tile. Of each slice a warp has a channel, a thread every 32nd row of it; in the end a block has 16 rows of all
 * channels, whose codes it packs. What is decided over all channels every block decides for itself. The arithmetic is that of src/codec/kq.c:
 * sums of whole numbers do not depend on their order, those of floats go over the lanes of a warp there too.
 */
#ifndef BACKEND_CUDA_ENCODE_KQ_CUH
#define BACKEND_CUDA_ENCODE_KQ_CUH

#include "backend/cuda/cluster.cuh"
#include "backend/cuda/encode_unit.cuh"

enum {
    KQ_THREADS = CLUSTER_SHARE * KVT_WARP,
    KQ_WARPS = KQ_THREADS / KVT_WARP,
    KQ_PARTS = KVT_TILE_ROWS / KVT_WARP,
    KQ_RANKERS = KQ_THREADS / KVT_SLICE, /* threads that find a channel's rank */
    KQ_FACTOR_MOST = 37
};
#define KQ_F16_MOST 65504.0f
#define KQ_LEAST    0x1p-100f
#define KQ_ALL      0xFFFFFFFFu

/* A row's products with itself and with what is decoded. */
enum { KQ_OWN, KQ_SHARED, KQ_PRODUCTS };

/* What a block shares. Of all channels, but for lo: of this block's. */
struct kq_shared {
    float range[KVT_LATENT_MAX], squares[KVT_LATENT_MAX]; /* from all blocks; squares: sums over the queries */
    float lo[KVT_LATENT_MAX], weight[KVT_LATENT_MAX], worth[KVT_LATENT_MAX];
    float step[KVT_SLICE];                          /* of the slice's channels, from all blocks */
    int products[KQ_PRODUCTS][KVT_TILE_ROWS];       /* of this block's channels of the slice */
    int parts[CLUSTER][KQ_PRODUCTS][CLUSTER_SHARE]; /* of this block's rows, from all blocks */
    uint16_t rank[KVT_LATENT_MAX];
    uint8_t classes[KVT_LATENT_MAX];
};
/* Where shared memory goes on, first with the squares of a warp's queries, then with codes of the block's rows. */
enum { KQ_CODES_AT = (sizeof(struct kq_shared) + 15) / 16 * 16, KQ_SQUARES_BYTES = KQ_WARPS * KVT_TILE_ROWS * 4 };

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

/* The sum of the squares of a channel's queries, by a warp, from the tile beside the rows: a channel is in every parts-th row there. room: for
 * 128 / parts floats. */
KVT_DEVICE float sum_queries(float *room, const void *queries, int d, int parts, int c) {
    const int n = d / parts, n_rows = KVT_TILE_ROWS / parts;
    for (int k = thread_in_warp(); k < n_rows; k += KVT_WARP) {
        const float q = query_at(static_cast<const unsigned char *>(queries), n, c % n, c / n + k * parts);
        room[k] = q * q;
    }
    __syncwarp();
    float sum = 0;
#pragma unroll 32
    for (int k = 0; k < n_rows; k++) sum += room[k];
    __syncwarp();
    return sum;
}

/* This warp's channel of the slice from channel c0 on, if it is below d. */
KVT_DEVICE int own_channel(int c0) { return c0 + block_in_cluster() * CLUSTER_SHARE + warp_in_block(); }

/* x[k]: row 32 k + this thread's of a channel. */
KVT_DEVICE void load_channel(float (&x)[KQ_PARTS], const struct encode_args &a, const struct kvt_cuda_job &job, int c) {
    load_elements(x, a, job, [&](int k) { return row_channel{k * KVT_WARP + thread_in_warp(), c}; });
}

/* Extremes of a channel; a zero is the first row's that has one. Tells all the range. */
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
    if (thread_in_warp() == 0) s->lo[c] = lo;
    tell_all(&s->range[c], hi - lo);
}

/* Extremes of all channels, and sums of their queries, everywhere; x: of this warp's channel in the last slice. room: as sum_queries wants
 * it, for each warp. */
KVT_DEVICE void measure(float (&x)[KQ_PARTS], struct kq_shared *s, const struct encode_args &a,
                        const struct kvt_cuda_job &job, int d, int parts, float *room) {
    cluster_arrive();
    bool all_run = false;
    for (int c0 = 0; c0 < d; c0 += KVT_SLICE) {
        const int c = own_channel(c0);
        if (c < d) load_channel(x, a, job, c);
        const float sum =
            c < d && job.queries ? sum_queries(room + warp_in_block() * KVT_TILE_ROWS, job.queries, d, parts, c) : 0;
        if (!all_run) cluster_wait();
        all_run = true;
        if (c >= d) continue;
        measure_channel(s, x, c);
        tell_all(&s->squares[c], sum);
    }
    cluster_sync();
}

/* What each channel is worth. Ends with a wait. */
KVT_DEVICE void weigh(struct kq_shared *s, int d) {
    float most = 0;
    for (int c = thread_in_warp(); c < d; c += KVT_WARP) most = s->squares[c] > most ? s->squares[c] : most;
    most = warp_max(most);
    for (int c = (int)threadIdx.x; c < d; c += KQ_THREADS) {
        s->weight[c] = most > 0 ? s->squares[c] / most : 1;
        s->worth[c] = s->range[c] * s->range[c] * s->weight[c];
    }
    __syncthreads();
}

/* Classes by rank. Ends with a wait. */
KVT_DEVICE void rank_channels(struct kq_shared *s, const struct kvt_classes &classes, int d) {
    for (int c = (int)threadIdx.x / KQ_RANKERS; c < d; c += KVT_SLICE) {
        const float worth = s->worth[c];
        int rank = 0;
#pragma unroll 8
        for (int o = (int)threadIdx.x % KQ_RANKERS; o < d; o += KQ_RANKERS)
            rank += s->worth[o] > worth || (s->worth[o] == worth && o < c);
        for (int k = 1; k < KQ_RANKERS; k *= 2) rank += __shfl_xor_sync(KQ_ALL, rank, k);
        if (threadIdx.x % KQ_RANKERS == 0) {
            s->rank[c] = (uint16_t)rank;
            s->classes[c] = (uint8_t)kvt_class_of_place(&classes, rank);
        }
    }
    __syncthreads();
}

/* The place of a channel, by a warp. */
KVT_DEVICE int find_place(const struct kq_shared *s, const struct kvt_classes &classes, int c) {
    int before = 0;
    for (int o = thread_in_warp(); o < c; o += KVT_WARP) before += s->classes[o] == s->classes[c];
    return classes.of[s->classes[c]].first + __reduce_add_sync(KQ_ALL, before);
}

/* The largest scale of a class, as it is stored, by a warp. */
KVT_DEVICE uint16_t find_most(const struct kq_shared *s, const struct kvt_classes &classes, int k, int d) {
    float most = 0;
    for (int c = thread_in_warp(); c < d; c += KVT_WARP)
        if (s->classes[c] == k) most = KVT_MAX(s->range[c], most);
    most = warp_max(most);
    const float step = most / (float)((1 << classes.of[k].bits) - 1), wanted = KVT_MIN(step, KQ_F16_MOST);
    const uint16_t stored = kvt_f16_from_f32(wanted);
    return (uint16_t)(stored + (kvt_f32_from_f16(stored) < wanted));
}

KVT_DEVICE void put_head(const struct kq_shared *s, const struct encode_args &a, unsigned char *bytes, int d) {
    if (warp_in_block() < KVT_CLASSES) {
        const uint16_t stored = find_most(s, a.classes, warp_in_block(), d);
        if (thread_in_warp() == 0) reinterpret_cast<uint16_t *>(bytes)[warp_in_block()] = stored;
    }
    for (int i = 2 * KVT_CLASSES + (int)threadIdx.x; i < (int)a.tile.head_bytes; i += KQ_THREADS) {
        const int c = (i - KVT_CLASS_MAP) * 4;
        unsigned byte = 0;
        for (int j = 0; i >= KVT_CLASS_MAP && j < 4; j++)
            if (c + j < d) byte |= (unsigned)s->classes[c + j] << 2 * j;
        bytes[i] = (unsigned char)byte;
    }
}

/* What a tile needs of all channels, and its head. x, parts, room: as for measure. */
KVT_DEVICE void kq_survey(float (&x)[KQ_PARTS], struct kq_shared *s, const struct encode_args &a,
                          const struct kvt_cuda_job &job, int d, int parts, float *room, unsigned char *bytes) {
    measure(x, s, a, job, d, parts, room);
    weigh(s, d);
    rank_channels(s, a.classes, d);
    if (block_in_cluster() == 0) put_head(s, a, bytes, d);
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

/* A warp's: the scale and zero of its channel, which are stored. t: its elements in parts of its range. */
KVT_DEVICE struct kq_fit fit_channel(int (&t)[KQ_PARTS], const float (&x)[KQ_PARTS], const struct kq_shared *s,
                                     const struct encode_args &a, int c, int place, unsigned char *bytes) {
    const struct kq_sums sums = sum_channel(t, x, s, a, c);
    const float range = s->range[c], lo = s->lo[c];
    const int bits = a.tile.format.bits, sum = sums.codes;
    const float spread = (float)(KVT_TILE_ROWS * sums.squares - sum * sum), mean = (float)sums.total / KVT_TILE_ROWS,
                mean_code = (float)sum / KVT_TILE_ROWS;
    const float slope = spread > 0 ? ((float)sums.products - mean * (float)sum) * KVT_TILE_ROWS / spread : 0;
    const float start = mean - slope * mean_code, unit = range * (1.0f / KVT_WHOLE_MOST);

    const float most = kvt_f32_from_f16(find_most(s, a.classes, s->classes[c], a.tile.n_terms)), step = slope * unit;
    const int below = most > 0 ? -kvt_log8_nearest(step / most, KVT_CLASS_SCALE_PER) : 0;
    const uint8_t scale = (uint8_t)KVT_MIN(KVT_MAX(below, 0), 255);
    const float zero = kq_clamp(start * unit + lo, -KQ_F16_MOST, KQ_F16_MOST);
    uint16_t zero16 = kvt_f16_from_f32(zero);
    if (kvt_f32_from_f16(zero16) > zero) zero16 = (uint16_t)(zero16 >> 15 ? zero16 + 1 : zero16 - 1);
    if (thread_in_warp() == 0) {
        const struct kvt_block block = kvt_tile_block(&a.tile, 0);
        bytes[block.scales + (size_t)place] = scale;
        reinterpret_cast<uint16_t *>(bytes + block.zeros)[place] = zero16;
    }
    struct kq_fit f;
    f.zero16 = zero16;
    f.step = kvt_class_scale(most, scale);
    const float per = f.step > 0 ? (float)kvt_class_parts(bits) / f.step : 0;
    f.inverse = (int16_t)rintf(KVT_MIN(unit * per * 32768, (float)KVT_WHOLE_MOST));
    f.offset = (int16_t)rintf(kq_clamp((lo - kvt_f32_from_f16(zero16)) * per, -KVT_WHOLE_MOST, KVT_WHOLE_MOST));
    return f;
}

/* A warp's: what the weights for the factors of a slice of n channels add up to, and in part that of channel i, as a whole number. */
KVT_DEVICE float weigh_steps(const struct kq_shared *s, int c0, int n, int i, int *part) {
    const auto worth_of = [&](int k) { return s->weight[c0 + k] * (s->step[k] * s->step[k]); };
    float sum = 0;
#pragma unroll
    for (int k = 0; k < KVT_SLICE / KVT_WARP; k++)
        if (k * KVT_WARP + thread_in_warp() < n) sum += worth_of(k * KVT_WARP + thread_in_warp());
    for (int d = KVT_WARP / 2; d > 0; d /= 2) sum += __shfl_xor_sync(KQ_ALL, sum, d);
    const float per = sum >= KQ_LEAST ? KVT_WHOLE_MOST / sum : 0;
    *part = i < n ? (int16_t)rintf(worth_of(i) * per) : 0;
    return sum;
}

/* ---- codes ----------------------------------------------------------------------------------------------------------------- */

/* Planes of the block's rows, a vector's part of them 16 threads. codes: the byte of a place and row at code_place(CLUSTER_SHARE, place, row). */
KVT_DEVICE void pack_classes(const struct encode_args &a, unsigned char *bytes, const uint8_t *codes) {
    const uint32_t *quads = reinterpret_cast<const uint32_t *>(codes);
    const struct kvt_block first = kvt_tile_block(&a.tile, 0);
    const int n_vectors = (int)(a.tile.block_bytes / (KVT_BLOCK_LANES * 4));
    for (int task = (int)threadIdx.x; task < n_vectors * CLUSTER_SHARE; task += KQ_THREADS) {
        const int v = task / CLUSTER_SHARE, r = task % CLUSTER_SHARE, row = block_in_cluster() * CLUSTER_SHARE + r;
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
                    word |= (quads[quad * CLUSTER_SHARE + r] >> shift & m) << k * width;
                    mask |= m << k * width;
                }
            }
        uint32_t *to = reinterpret_cast<uint32_t *>(bytes + first.codes +
                                                    (size_t)(row / KVT_BLOCK_LANES) * a.tile.block_bytes + (size_t)at) +
                       row % KVT_BLOCK_LANES;
        if (mask) *to = ~mask ? (*to & ~mask) | word : word;
    }
}

/* A channel's codes, to the blocks that have the rows, and what they add to the rows' products. */
KVT_DEVICE void finish_channel(struct kq_shared *s, const int (&t)[KQ_PARTS], const struct kq_fit &f, int part, int top,
                               int parts, uint8_t *codes, int place) {
    const int half = top * parts / 2;
#pragma unroll
    for (int k = 0; k < KQ_PARTS; k++) {
        const int row = k * KVT_WARP + thread_in_warp();
        const int fine = kvt_whole_cut(kvt_whole_part(t[k], f.inverse) + f.offset);
        const int code = KVT_MIN(KVT_MAX((int)kvt_whole_part(fine, 32768 / parts), 0), top);
        const int u = kvt_whole_cut(fine - half), weighted = kvt_whole_part(u, part);
        *in_block(codes + code_place(CLUSTER_SHARE, place, row % CLUSTER_SHARE), row / CLUSTER_SHARE) = (uint8_t)code;
        atomicAdd(&s->products[KQ_OWN][row], weighted * u);
        atomicAdd(&s->products[KQ_SHARED][row], weighted * (code * parts - half));
    }
}

/* The block's products of all rows to the blocks that have these. Ends with a wait of the cluster. */
KVT_DEVICE void send_products(struct kq_shared *s) {
    const int i = (int)threadIdx.x, row = i % KVT_TILE_ROWS, which = i / KVT_TILE_ROWS;
    __syncthreads();
    if (which < KQ_PRODUCTS)
        *in_block(&s->parts[block_in_cluster()][which][row % CLUSTER_SHARE], row / CLUSTER_SHARE) =
            s->products[which][row];
    cluster_sync();
}

KVT_DEVICE int take_product(const struct kq_shared *s, int which, int r) {
    int sum = 0;
#pragma unroll
    for (int b = 0; b < CLUSTER; b++) sum += s->parts[b][which][r];
    return sum;
}

KVT_DEVICE void put_factor(const struct encode_args &a, unsigned char *bytes, int row, float own, float shared) {
    const bool is_known = own > 0 && shared > 0;
    const int e = is_known ? kvt_log8_nearest(own / shared, KVT_CLASS_FACTOR_PER) : 0;
    bytes[kvt_tile_block(&a.tile, 0).factors + (size_t)row] =
        (unsigned char)(int8_t)KVT_MIN(KVT_MAX(e, -KQ_FACTOR_MOST), KQ_FACTOR_MOST);
}

/* After kq_survey. */
KVT_DEVICE void encode_kq_tile(float (&x)[KQ_PARTS], const struct encode_args &a, const struct kvt_cuda_job &job,
                               struct kq_shared *s, uint8_t *codes, unsigned char *bytes) {
    const int d = a.tile.n_terms, r = (int)threadIdx.x, bits = a.tile.format.bits;
    float own = 0, shared = 0; /* of the block's row threadIdx.x */
    for (int c0 = 0; c0 < d; c0 += KVT_SLICE) {
        const int n = KVT_MIN(KVT_SLICE, d - c0), c = own_channel(c0);
        int t[KQ_PARTS], place = 0, part;
        struct kq_fit fit = {0, 0, 0, 0};
        if (c < d) {
            if (d > KVT_SLICE) load_channel(x, a, job, c);
            place = find_place(s, a.classes, c);
            fit = fit_channel(t, x, s, a, c, place, bytes);
            tell_all(&s->step[c - c0], fit.step);
        }
        if (r < KVT_TILE_ROWS) s->products[KQ_OWN][r] = s->products[KQ_SHARED][r] = 0;
        cluster_sync();
        const float unit = weigh_steps(s, c0, n, c - c0, &part);
        if (c < d)
            finish_channel(s, t, fit, part, (1 << a.classes.of[s->classes[c]].bits) - 1, kvt_class_parts(bits), codes,
                           place);
        send_products(s);
        if (r < CLUSTER_SHARE) {
            own += (float)take_product(s, KQ_OWN, r) * unit;
            shared += (float)take_product(s, KQ_SHARED, r) * unit;
        }
    }
    if (r < CLUSTER_SHARE) put_factor(a, bytes, block_in_cluster() * CLUSTER_SHARE + r, own, shared);
    pack_classes(a, bytes, codes);
}

KVT_KERNEL_WITH(KQ_THREADS, 1) encode_kq(KVT_ARGS struct encode_args a) {
    const side_by_side both;
    const struct kvt_cuda_job job = a.jobs[blockIdx.x];
    struct kq_shared *s = reinterpret_cast<struct kq_shared *>(kvt_shared);
    uint8_t *codes = kvt_shared + KQ_CODES_AT;
    unsigned char *bytes = static_cast<unsigned char *>(job.tile);
    float x[KQ_PARTS];
    if (job.n != KVT_TILE_ROWS) return;
    kq_survey(x, s, a, job, a.tile.n_terms, 4, reinterpret_cast<float *>(codes), bytes);
    encode_kq_tile(x, a, job, s, codes, bytes);
}

#endif
