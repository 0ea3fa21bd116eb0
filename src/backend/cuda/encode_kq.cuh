/* SPDX-License-Identifier: Apache-2.0
 *
 * kq: a cluster of blocks takes a tile. Of each slice a warp has a channel, a thread four rows of it; in the end a block has 16 rows of all
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

    KQ_FACTOR_MOST = 37
};
#define KQ_F16_MOST 65504.0f
#define KQ_LEAST    0x1p-100f
#define KQ_ALL      0xFFFFFFFFu

/* A row's products with itself and with what is decoded. */
enum { KQ_OWN, KQ_SHARED, KQ_PRODUCTS };

/* What is first known of a channel: its range, and the sum of the squares of its queries. */
struct alignas(8) kq_seen {
    float range, squares;
};

/* What comes by mail: of all channels what is seen and their ranks, of a slice steps, of a slice what belongs to the block's rows. */
enum { KQ_SEEN, KQ_RANKS, KQ_STEPS, KQ_ROWS, KQ_BOXES };

/* What a block shares. */
struct kq_shared {
    struct mailbox boxes[KQ_BOXES];
    struct kq_seen seen[KVT_LATENT_MAX]; /* from all blocks */
    float lo[KVT_LATENT_MAX];            /* of this block's channels */
    float weight[KVT_LATENT_MAX], worth[KVT_LATENT_MAX];
    float step[KVT_SLICE]; /* of the slice's channels, from all blocks */
    int products[KQ_PRODUCTS][KQ_PARTS]
                [KVT_WARP]; /* of this block's channels of the slice; as rows are shared out to threads */
    int parts[CLUSTER][KQ_PRODUCTS][CLUSTER_SHARE]; /* of this block's rows, from all blocks */
    int rank[KVT_LATENT_MAX];                       /* from all blocks */
};
/* Where shared memory goes on, first with the squares of a warp's queries, then with codes of the block's rows, [place][row]. */
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

/* A warp's, of the queries of a channel, in the tile beside the rows: a channel is in every parts-th row there. As they are stored, half by half. */
template <int parts> struct kq_queries {
    static constexpr int n = KQ_PARTS / parts;
    uint8_t low[n], high[n];

    KVT_MEMBER void load(const void *queries, int d, int c) {
        const int size = d / parts; /* of a row */
        const int first = parts == 1 ? 0 : (c >= size) + (c >= 2 * size) + (c >= 3 * size), i = c - first * size;
#pragma unroll
        for (int k = 0; k < n; k++) {
            const int row = first + (k * KVT_WARP + thread_in_warp()) * parts;
            const uint8_t *at = static_cast<const uint8_t *>(queries) +
                                (row / KVT_BLOCK_LANES * ((size + 7) / 8) + i / 8) * 8 * KVT_BLOCK_LANES +
                                row % KVT_BLOCK_LANES * 4 + i % 4;
            low[k] = at[0], high[k] = at[KVT_BLOCK_LANES * 4];
        }
    }
    /* The sum of their squares, in the order of rows. room: for as many floats. */
    KVT_MEMBER float sum_squares(float *room, int d, int c) const {
        const int shift = c % (d / parts) / 4 % 2 * 4;
#pragma unroll
        for (int k = 0; k < n; k++) {
            const float q = kvt_f32_from_e5m2((uint8_t)((low[k] >> shift & 15) | (high[k] >> shift & 15) << 4));
            room[k * KVT_WARP + thread_in_warp()] = q * q;
        }
        __syncwarp();
        float sum = 0;
#pragma unroll
        for (int k = 0; k < n * KVT_WARP; k += 4) {
            const float4 v = *reinterpret_cast<const float4 *>(room + k);
            sum += v.x, sum += v.y, sum += v.z, sum += v.w;
        }
        __syncwarp();
        return sum;
    }
};

/* This warp's channel of the slice from channel c0 on, if it is below d. */
KVT_DEVICE int own_channel(int c0) { return c0 + block_in_cluster() * CLUSTER_SHARE + warp_in_block(); }

/* x[k]: row 4 i + k of a channel, of thread i. */
KVT_DEVICE void load_channel(float (&x)[KQ_PARTS], const struct encode_args &a, const struct kvt_cuda_job &job, int c) {
    load_elements(x, a, job, [&](int k) { return row_channel{KQ_PARTS * thread_in_warp() + k, c}; });
}

/* Extremes of a channel; a zero is the first row's that has one. Returns the range. */
KVT_DEVICE float measure_channel(struct kq_shared *s, const float (&x)[KQ_PARTS], int c) {
    float hi = -INFINITY, lo = INFINITY, zero = 1;
#pragma unroll
    for (int k = KQ_PARTS - 1; k >= 0; k--) zero = x[k] == 0 ? x[k] : zero;
#pragma unroll
    for (int k = 0; k < KQ_PARTS; k++) lo = x[k] < lo ? x[k] : lo, hi = x[k] > hi ? x[k] : hi;
    lo = -warp_max(-lo), hi = warp_max(hi);
    const unsigned zeros = __ballot_sync(KQ_ALL, zero == 0);
    if (lo == 0) lo = __shfl_sync(KQ_ALL, zero, __ffs((int)zeros) - 1);
    if (thread_in_warp() == 0) s->lo[c] = lo;
    return hi - lo;
}

/* Extremes of all channels, and sums of their queries, everywhere; x: of this warp's channel in the last slice. room: as sum_squares wants it,
 * for each warp. */
template <int parts>
KVT_DEVICE void measure(float (&x)[KQ_PARTS], struct kq_shared *s, const struct encode_args &a,
                        const struct kvt_cuda_job &job, int d, float *room) {
    bool begun = false;
    for (int c0 = 0; c0 < d; c0 += KVT_SLICE) {
        const int c = own_channel(c0);
        struct kq_seen seen = {0, 0};
        if (c < d) {
            struct kq_queries<parts> queries;
            if (job.queries) queries.load(job.queries, d, c);
            load_channel(x, a, job, c);
            if (job.queries) seen.squares = queries.sum_squares(room + warp_in_block() * KVT_TILE_ROWS, d, c);
            seen.range = measure_channel(s, x, c);
        }
        if (!begun) cluster_begun();
        begun = true;
        if (c < d) mail_all(&s->boxes[KQ_SEEN], &s->seen[c], seen);
    }
    mailbox_wait(&s->boxes[KQ_SEEN], 0);
}

/* What each channel is worth. Ends with a wait. */
KVT_DEVICE void weigh(struct kq_shared *s, int d) {
    float most = 0;
    for (int c = thread_in_warp(); c < d; c += KVT_WARP) most = s->seen[c].squares > most ? s->seen[c].squares : most;
    most = warp_max(most);
    for (int c = (int)threadIdx.x; c < d; c += KQ_THREADS) {
        const struct kq_seen seen = s->seen[c];
        s->weight[c] = most > 0 ? seen.squares / most : 1;
        s->worth[c] = seen.range * seen.range * s->weight[c];
    }
    __syncthreads();
}

/* Ranks of all channels, everywhere: each warp finds those of its own. */
KVT_DEVICE void rank_channels(struct kq_shared *s, int d) {
    for (int c = own_channel(0); c < d; c += KVT_SLICE) {
        const float worth = s->worth[c];
        int rank = 0;
#pragma unroll 4
        for (int o = thread_in_warp(); o < d; o += KVT_WARP)
            rank += s->worth[o] > worth || (s->worth[o] == worth && o < c);
        rank = __reduce_add_sync(KQ_ALL, rank);
        mail_all(&s->boxes[KQ_RANKS], &s->rank[c], rank);
    }
    mailbox_wait(&s->boxes[KQ_RANKS], 0);
}

KVT_DEVICE int class_of(const struct kq_shared *s, const struct kvt_classes &classes, int c) {
    return kvt_class_of_place(&classes, s->rank[c]);
}
/* A class's largest code, with `bits` in the middle. */
KVT_DEVICE int top_of_class(int bits, int k) { return (2 << (bits - k)) - 1; }

/* The place of a channel, by a warp. */
KVT_DEVICE int find_place(const struct kq_shared *s, const struct kvt_classes &classes, int c) {
    const int k = class_of(s, classes, c);
    int before = 0;
#pragma unroll 4
    for (int o = thread_in_warp(); o < c; o += KVT_WARP) before += class_of(s, classes, o) == k;
    return (k == 0 ? 0 : k == 1 ? classes.of[1].first : classes.of[2].first) + __reduce_add_sync(KQ_ALL, before);
}

/* The largest scale of a class, as it is stored, by a warp. */
KVT_DEVICE uint16_t find_most(const struct kq_shared *s, const struct encode_args &a, int k, int d) {
    float most = 0;
#pragma unroll 4
    for (int c = thread_in_warp(); c < d; c += KVT_WARP)
        if (class_of(s, a.classes, c) == k) most = KVT_MAX(s->seen[c].range, most);
    most = warp_max(most);
    const float step = most / (float)top_of_class(a.tile.format.bits, k), wanted = KVT_MIN(step, KQ_F16_MOST);
    const uint16_t stored = kvt_f16_from_f32(wanted);
    return (uint16_t)(stored + (kvt_f32_from_f16(stored) < wanted));
}

KVT_DEVICE void put_head(const struct kq_shared *s, const struct encode_args &a, unsigned char *bytes, int d) {
    if (warp_in_block() < KVT_CLASSES) {
        const uint16_t stored = find_most(s, a, warp_in_block(), d);
        if (thread_in_warp() == 0) reinterpret_cast<uint16_t *>(bytes)[warp_in_block()] = stored;
    }
    for (int i = 2 * KVT_CLASSES + (int)threadIdx.x; i < (int)a.tile.head_bytes; i += KQ_THREADS) {
        const int c = (i - KVT_CLASS_MAP) * 4;
        unsigned byte = 0;
        for (int j = 0; i >= KVT_CLASS_MAP && j < 4; j++)
            if (c + j < d) byte |= (unsigned)class_of(s, a.classes, c + j) << 2 * j;
        bytes[i] = (unsigned char)byte;
    }
}

/* Before anything else, while the block waits for its job. */
KVT_DEVICE void kq_open(struct kq_shared *s, int d) {
    if ((int)threadIdx.x < KQ_PRODUCTS * KVT_TILE_ROWS) (&s->products[0][0][0])[threadIdx.x] = 0;
    if (threadIdx.x > 0) return;
    for (int i = 0; i < KQ_BOXES; i++) mailbox_open(&s->boxes[i]);
    mailbox_expect(&s->boxes[KQ_SEEN], d * (int)sizeof(struct kq_seen));
    mailbox_expect(&s->boxes[KQ_RANKS], d * (int)sizeof s->rank[0]);
}

/* What a tile needs of all channels. x, room: as for measure. */
template <int parts>
KVT_DEVICE void kq_survey(float (&x)[KQ_PARTS], struct kq_shared *s, const struct encode_args &a,
                          const struct kvt_cuda_job &job, int d, float *room) {
    cluster_begin();
    measure<parts>(x, s, a, job, d, room);
    weigh(s, d);
    rank_channels(s, d);
}

/* ---- one channel --------------------------------------------------------------------------------------------------------- */

/* Over a channel's rows: of first codes, of their squares, of elements, of the products of both. */
struct kq_sums {
    int codes, squares, total, products;
};

/* A warp's: its elements in parts of its range, and their sums. */
KVT_DEVICE struct kq_sums sum_channel(int (&t)[KQ_PARTS], const float (&x)[KQ_PARTS], const struct kq_shared *s,
                                      const struct encode_args &a, int c) {
    const float range = s->seen[c].range, lo = s->lo[c];
    const float per_range = range >= KQ_LEAST ? KVT_WHOLE_MOST / range : 0;
    const int bits = a.tile.format.bits, top = top_of_class(bits, class_of(s, a.classes, c));
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
    const float range = s->seen[c].range, lo = s->lo[c];
    const int bits = a.tile.format.bits, sum = sums.codes;
    const float spread = (float)(KVT_TILE_ROWS * sums.squares - sum * sum), mean = (float)sums.total / KVT_TILE_ROWS,
                mean_code = (float)sum / KVT_TILE_ROWS;
    const float slope = spread > 0 ? ((float)sums.products - mean * (float)sum) * KVT_TILE_ROWS / spread : 0;
    const float start = mean - slope * mean_code, unit = range * (1.0f / KVT_WHOLE_MOST);

    const float most = kvt_f32_from_f16(find_most(s, a, class_of(s, a.classes, c), a.tile.n_terms)),
                step = slope * unit;
    const int below = most > 0 ? -nearest_log8<KVT_CLASS_SCALE_PER>(step / most) : 0;
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

/* Planes of the block's rows, a vector's part of them 16 threads. codes: [place][row]. */
KVT_DEVICE void pack_classes(const struct encode_args &a, unsigned char *bytes, const uint8_t *codes) {
    const struct kvt_block first = kvt_tile_block(&a.tile, 0);
    const int n_vectors = (int)(a.tile.block_bytes / (KVT_BLOCK_LANES * 4));
    for (int task = (int)threadIdx.x; task < n_vectors * CLUSTER_SHARE; task += KQ_THREADS) {
        const int v = task / CLUSTER_SHARE, r = task % CLUSTER_SHARE, row = block_in_cluster() * CLUSTER_SHARE + r;
        /* Planes lie in the order 1, 4, 2: the last that begins at or before the vector and is not empty. */
        const int at = v * KVT_BLOCK_LANES * 4, four = (int)a.classes.plane[4], two = (int)a.classes.plane[2];
        const int width = two <= at ? 2 : four <= at ? 4 : 1, plane = width == 2 ? two : width == 4 ? four : 0;
        const int per = 8 / width, quad0 = (at - plane) / (KVT_BLOCK_LANES * 4) * per;
        uint32_t word = 0, mask = 0;
#pragma unroll 2
        for (int k = 0; k < per; k++) {
            int quad = -1,
                shift = 0; /* what is at this place of the plane; all is known where the classes lie in the arguments */
#pragma unroll
            for (int i = 0; i < KVT_CLASSES; i++)
#pragma unroll
                for (int p = 0; p < 2; p++) {
                    const struct kvt_class &of = a.classes.of[i];
                    const int j = quad0 + k - of.part[p].at / 4;
                    if (p < of.n_parts && of.part[p].width == width && j >= 0 && j < (of.end - of.first) / 4)
                        quad = of.first / 4 + j, shift = p * of.part[0].width;
                }
            if (quad < 0) continue;
            const uint8_t *code = codes + 4 * quad * CLUSTER_SHARE + r;
            const uint32_t four_codes = code[0] | (uint32_t)code[CLUSTER_SHARE] << 8 |
                                        (uint32_t)code[2 * CLUSTER_SHARE] << 16 |
                                        (uint32_t)code[3 * CLUSTER_SHARE] << 24;
            const uint32_t m = 0x01010101u * ((1u << width) - 1);
            word |= (four_codes >> shift & m) << k * width;
            mask |= m << k * width;
        }
        uint32_t *to = reinterpret_cast<uint32_t *>(bytes + first.codes +
                                                    (size_t)(row / KVT_BLOCK_LANES) * a.tile.block_bytes + (size_t)at) +
                       row % KVT_BLOCK_LANES;
        if (mask) *to = ~mask ? (*to & ~mask) | word : word;
    }
}

/* A channel's codes, to the blocks that have the rows, and what they add to the rows' products. */
KVT_DEVICE void finish_channel(struct kq_shared *s, const int (&t)[KQ_PARTS], const struct kq_fit &f, int part, int top,
                               int bits, uint8_t *codes, int place) {
    const int parts = kvt_class_parts(bits), half = top * parts / 2, to_code = 4 << bits; /* 32768 / parts */
    uint32_t word = 0;
#pragma unroll
    for (int k = 0; k < KQ_PARTS; k++) {
        const int fine = kvt_whole_cut(kvt_whole_part(t[k], f.inverse) + f.offset);
        const int code = KVT_MIN(KVT_MAX((int)kvt_whole_part(fine, to_code), 0), top);
        const int u = kvt_whole_cut(fine - half), weighted = kvt_whole_part(u, part);
        word |= (uint32_t)code << 8 * k;
        atomicAdd(&s->products[KQ_OWN][k][thread_in_warp()], weighted * u);
        atomicAdd(&s->products[KQ_SHARED][k][thread_in_warp()], weighted * (code * parts - half));
    }
    const int first = KQ_PARTS * thread_in_warp();
    mail(&s->boxes[KQ_ROWS], reinterpret_cast<uint32_t *>(codes + place * CLUSTER_SHARE + first % CLUSTER_SHARE), word,
         first / CLUSTER_SHARE);
}

/* The block's products of all rows to the blocks that have these, and none are left. Begins with a wait. */
KVT_DEVICE void send_products(struct kq_shared *s) {
    const int which = warp_in_block() / KQ_PARTS, k = warp_in_block() % KQ_PARTS, i = thread_in_warp(),
              row = KQ_PARTS * i + k;
    __syncthreads();
    if (which >= KQ_PRODUCTS) return;
    mail(&s->boxes[KQ_ROWS], &s->parts[block_in_cluster()][which][row % CLUSTER_SHARE], s->products[which][k][i],
         row / CLUSTER_SHARE);
    s->products[which][k][i] = 0;
}

KVT_DEVICE float take_product(const struct kq_shared *s, int which, int r) {
    int sum = 0;
#pragma unroll
    for (int b = 0; b < CLUSTER; b++) sum += s->parts[b][which][r];
    return (float)sum;
}

/* By a warp. */
KVT_DEVICE void put_factor(const struct encode_args &a, unsigned char *bytes, int row, float own, float shared) {
    const bool is_known = own > 0 && shared > 0;
    const int e = is_known ? nearest_log8<KVT_CLASS_FACTOR_PER>(own / shared) : 0;
    if (thread_in_warp() == 0)
        bytes[kvt_tile_block(&a.tile, 0).factors + (size_t)row] =
            (unsigned char)(int8_t)KVT_MIN(KVT_MAX(e, -KQ_FACTOR_MOST), KQ_FACTOR_MOST);
}

/* After kq_survey. All warps tell steps, those without a channel too: so no block gets a slice ahead of another. */
KVT_DEVICE void encode_kq_tile(float (&x)[KQ_PARTS], const struct encode_args &a, const struct kvt_cuda_job &job,
                               struct kq_shared *s, uint8_t *codes, unsigned char *bytes) {
    const int d = a.tile.n_terms, r = warp_in_block(), bits = a.tile.format.bits;
    float own = 0, shared = 0; /* of the block's row r */
    for (int c0 = 0; c0 < d; c0 += KVT_SLICE) {
        const int n = KVT_MIN(KVT_SLICE, d - c0), c = own_channel(c0), phase = c0 / KVT_SLICE;
        int t[KQ_PARTS], place = 0, part;
        struct kq_fit fit = {0, 0, 0, 0};
        if (threadIdx.x == 0) {
            mailbox_expect(&s->boxes[KQ_STEPS], (int)sizeof s->step);
            mailbox_expect(&s->boxes[KQ_ROWS], n * CLUSTER_SHARE + (int)sizeof s->parts);
        }
        if (c < d) {
            if (d > KVT_SLICE) load_channel(x, a, job, c);
            place = find_place(s, a.classes, c);
            fit = fit_channel(t, x, s, a, c, place, bytes);
        }
        mail_all(&s->boxes[KQ_STEPS], &s->step[c - c0], fit.step);
        if (c0 == 0 && block_in_cluster() == 0) put_head(s, a, bytes, d);
        mailbox_wait(&s->boxes[KQ_STEPS], phase);
        const float unit = weigh_steps(s, c0, n, c - c0, &part);
        if (c < d) finish_channel(s, t, fit, part, top_of_class(bits, class_of(s, a.classes, c)), bits, codes, place);
        send_products(s);
        mailbox_wait(&s->boxes[KQ_ROWS], phase);
        own += take_product(s, KQ_OWN, r) * unit;
        shared += take_product(s, KQ_SHARED, r) * unit;
        if (n == KVT_SLICE && d > KVT_SLICE) __syncthreads(); /* products are those of the next slice */
    }
    put_factor(a, bytes, block_in_cluster() * CLUSTER_SHARE + r, own, shared);
    pack_classes(a, bytes, codes);
}

KVT_KERNEL_WITH(KQ_THREADS, 1) encode_kq(KVT_ARGS struct encode_args a) {
    const side_by_side both;
    const struct kvt_cuda_job job = a.jobs[blockIdx.x];
    struct kq_shared *s = reinterpret_cast<struct kq_shared *>(kvt_shared);
    uint8_t *codes = kvt_shared + KQ_CODES_AT;
    unsigned char *bytes = static_cast<unsigned char *>(job.tile);
    float x[KQ_PARTS];
    kq_open(s, a.tile.n_terms);
    if (job.n != KVT_TILE_ROWS) return;
    kq_survey<4>(x, s, a, job, a.tile.n_terms, reinterpret_cast<float *>(codes));
    encode_kq_tile(x, a, job, s, codes, bytes);
}

#endif
