/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention for few query rows over tiles of any kind, any two of them together, and rows of any size: the kernel for all that
 * attend_kernel.cuh does not read. A block of threads takes a unit of 32 rows at a time into shared memory as f32 and multiplies it at the
 * precision of f32 (tensor.cuh), so that it is right for codes of any width, tables, floats and biased keys alike. It computes more for a
 * byte than kernels that multiply codes do.
 */
#ifndef BACKEND_CUDA_ATTEND_ANY_CUH
#define BACKEND_CUDA_ATTEND_ANY_CUH

#include "backend/cuda/unpack.cuh"

#include "backend/cuda/attend.h"

/* A tile of lanes is what a warp multiplies at once. Scores: two tiles of rows, the terms of each in four parts, a warp for each of these. */
enum {
    ANY_THREADS = 256,
    ANY_WARPS = ANY_THREADS / KVT_WARP,
    ANY_ROWS = KVT_CUDA_PLAIN_ROWS,
    TILE_LANES = 16,
    ROW_TILES = ANY_ROWS / TILE_LANES,
    TERM_PARTS = ANY_WARPS / ROW_TILES,
    MOST_TILES = KVT_HEAD_MAX / TILE_LANES / ANY_WARPS /* of values, that a warp keeps sums of */
};
#define ANY_NOTHING -1e30f
#define ANY_LOG2E   1.4426950408889634f

/* Where everything lies in shared memory, in floats. */
struct any_room {
    int keys, values, high, low, weights, rest, scores, states, keeps, tables, channels, end;
    int key_pitch;
};

struct any_args {
    struct packed_side side[2][KVT_SIDE_COUNT]; /* of the body, of sink and tail */
    uint32_t head_bytes[KVT_REGION_COUNT];
    struct any_room room;
    float norm[KVT_SIDE_COUNT]; /* what a rotation multiplies by */
    struct kvt_cuda_attend call;
};

static inline struct any_room any_room_of(int k_size, int v_size, int n_columns) {
    const int key_pitch = (int)kvt_round_up(k_size, 32);
    struct any_room room = {};
    room.key_pitch = key_pitch;
    room.values = room.keys + ANY_ROWS * key_pitch;
    room.high = room.values + (int)kvt_round_up(v_size, 32) * ANY_ROWS;
    room.low = room.high + n_columns * key_pitch;
    room.weights = room.low + n_columns * key_pitch;
    room.rest = room.weights + n_columns * ANY_ROWS;
    room.scores = room.rest + n_columns * ANY_ROWS;
    room.states = room.scores + TERM_PARTS * n_columns * ANY_ROWS;
    room.keeps = room.states + 2 * n_columns;
    room.tables = room.keeps + n_columns;
    room.channels = room.tables + 2 * 16;
    room.end = room.channels + k_size / 2 + 1;
    return room;
}

/* A block's work on a share of 8 EIGHTS columns, where a warp has at most TILES tiles of values. */
template <int EIGHTS, int TILES> struct any_walk {
    const any_args &a;
    const kvt_cuda_share &share;
    const kvt_cuda_seq &seq;
    int n_tiles;
    float values[TILES][EIGHTS][4];  /* lanes as mma_tf32 has them */
    float most[EIGHTS], sum[EIGHTS]; /* of columns that the warp has: its number, and 8 more */
    static constexpr int n_columns = 8 * EIGHTS;

    KVT_MEMBER any_walk(const any_args &args, const kvt_cuda_share &its)
        : a(args), share(its), seq(args.call.seqs[its.seq]),
          n_tiles((args.side[0][KVT_SIDE_V].d + TILE_LANES - 1) / TILE_LANES) {
#pragma unroll
        for (int n = 0; n < EIGHTS; n++) {
            most[n] = ANY_NOTHING, sum[n] = 0;
#pragma unroll
            for (int i = 0; i < TILES; i++)
#pragma unroll
                for (int e = 0; e < 4; e++) values[i][n][e] = 0;
        }
    }

    KVT_MEMBER float *room(int at) const { return reinterpret_cast<float *>(kvt_shared) + at; }
    KVT_MEMBER matrix keys() const { return {room(a.room.keys), a.room.key_pitch}; }
    KVT_MEMBER matrix mixed_rows() const { return {room(a.room.values), ANY_ROWS}; }
    KVT_MEMBER uint16_t *channels() const { return reinterpret_cast<uint16_t *>(room(a.room.channels)); }
    KVT_MEMBER int query_row(int column) const { return (share.column + column) / a.call.group; }
    KVT_MEMBER int query_head(int column) const {
        return share.head * a.call.group + (share.column + column) % a.call.group;
    }

    /* The query vectors of the share, split, turned where keys are. A warp takes a column. */
    KVT_MEMBER void prepare_queries(bool rotated) {
        const matrix high = {room(a.room.high), a.room.key_pitch}, low = {room(a.room.low), a.room.key_pitch};
        const int d = a.side[0][KVT_SIDE_K].d, lane = thread_in_warp();
        for (int column = warp_in_block(); column < n_columns; column += ANY_WARPS) {
            const bool is_row = query_row(column) < seq.n_rows;
            const ptrdiff_t from =
                (seq.row + query_row(column)) * a.call.q_row_stride + query_head(column) * a.call.q_head_stride;
            for (int c = lane; c < a.room.key_pitch; c += KVT_WARP)
                element_of(high, column, c) = c < d && is_row
                                                  ? load_number(a.call.q_type == KVT_TYPE_F32    ? KVT_NUMBER_F32
                                                                : a.call.q_type == KVT_TYPE_BF16 ? KVT_NUMBER_BF16
                                                                                                 : KVT_NUMBER_F16,
                                                                a.call.q, from + c)
                                                  : 0;
            __syncwarp();
            for (int stride = 1; rotated && stride < (d & -d); stride *= 2) {
                for (int pair = lane; pair < d / 2; pair += KVT_WARP) {
                    const int j = (pair & ~(stride - 1)) << 1 | (pair & (stride - 1));
                    float &x = element_of(high, column, j), &y = element_of(high, column, j + stride);
                    const float p = x, q = y;
                    x = p + q, y = p - q;
                }
                __syncwarp();
            }
            for (int quad = lane; quad < a.room.key_pitch / 4; quad += KVT_WARP) {
                float_quad x = *quad_of(high, column, quad);
                for (int i = 0; i < 4; i++) x.at[i] *= rotated ? a.norm[KVT_SIDE_K] : 1.f;
                const split_quad s = split(x);
                *quad_of(high, column, quad) = s.high;
                *quad_of(low, column, quad) = s.low;
            }
        }
    }

    /* Scores of a unit, in parts: [part][column][row]. */
    KVT_MEMBER void score() {
        const int lane = thread_in_warp(), r = lane / 4, c = lane % 4;
        const int tile = warp_in_block() % ROW_TILES, part = warp_in_block() / ROW_TILES;
        const matrix high = {room(a.room.high), a.room.key_pitch}, low = {room(a.room.low), a.room.key_pitch};
        product sums[EIGHTS] = {};
        for (int step = part; step < (a.side[0][KVT_SIDE_K].d + 15) / 16; step += TERM_PARTS)
            multiply(sums, keys(), tile * TILE_LANES, high, low, step);
#pragma unroll
        for (int n = 0; n < EIGHTS; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                room(a.room.scores)[(part * n_columns + 8 * n + 2 * c + e % 2) * ANY_ROWS + tile * TILE_LANES +
                                    e / 2 * 8 + r] = sums[n].large[e] + sums[n].small[e];
    }

    /* From scores to weights: a warp takes a column, a thread a row. */
    KVT_MEMBER void weigh(int region, int row0) {
        const int lane = thread_in_warp(), row = row0 + lane;
        const matrix high = {room(a.room.weights), ANY_ROWS}, low = {room(a.room.rest), ANY_ROWS};
#pragma unroll
        for (int n = 0; n < EIGHTS; n++) {
            const int column = warp_in_block() + ANY_WARPS * n;
            float x = 0;
#pragma unroll
            for (int part = 0; part < TERM_PARTS; part++)
                x += room(a.room.scores)[(part * n_columns + column) * ANY_ROWS + lane];
            x *= a.call.scale;
            if (a.call.softcap > 0) x = a.call.softcap * tanhf(x / a.call.softcap);
            x *= ANY_LOG2E;
            const kvt_cuda_visible &seen = a.call.visible[seq.row + KVT_MIN(query_row(column), seq.n_rows - 1)];
            if (row < seen.first[region] || row >= seen.end[region]) x = -INFINITY;
            float top = x;
            for (int s = 1; s < KVT_WARP; s *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, s));
            top = fmaxf(top, most[n]);
            const float keep = exp2_near(most[n] - top), w = exp2_near(x - top);
            float all = w;
            for (int s = 1; s < KVT_WARP; s *= 2) all += __shfl_xor_sync(~0u, all, s);
            sum[n] = sum[n] * keep + all;
            most[n] = top;
            const float in_high = tf32_of(w);
            element_of(high, column, lane) = in_high;
            element_of(low, column, lane) = w - in_high;
            if (lane == 0) room(a.room.keeps)[column] = keep;
        }
    }

    /* Adds the unit's values. */
    KVT_MEMBER void mix() {
        const matrix high = {room(a.room.weights), ANY_ROWS}, low = {room(a.room.rest), ANY_ROWS};
        const int c = thread_in_warp() % 4;
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const int tile = warp_in_block() + ANY_WARPS * i;
            if (tile >= n_tiles) continue;
            product sums[EIGHTS] = {};
            for (int step = 0; step < ANY_ROWS / 16; step++)
                multiply(sums, mixed_rows(), tile * TILE_LANES, high, low, step);
#pragma unroll
            for (int n = 0; n < EIGHTS; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    values[i][n][e] = values[i][n][e] * room(a.room.keeps)[8 * n + 2 * c + e % 2] +
                                      (sums[n].large[e] + sums[n].small[e]);
        }
    }

    /* Calls f(value, column, channel) for every sum that the thread has. */
    template <class F> KVT_MEMBER void each(F f) {
        const int r = thread_in_warp() / 4, c = thread_in_warp() % 4;
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int n = 0; n < EIGHTS; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int channel = (warp_in_block() + ANY_WARPS * i) * TILE_LANES + e / 2 * 8 + r;
                    if (channel < a.side[0][KVT_SIDE_V].d) f(values[i][n][e], 8 * n + 2 * c + e % 2, channel);
                }
    }

    /* Turns the sums of rotated values back: over the room of values. Between waits of the block. */
    KVT_MEMBER void turn_back() {
        const int d = a.side[0][KVT_SIDE_V].d;
        float *x = room(a.room.values);
        each([=](float &value, int column, int channel) { x[column * d + channel] = value; });
        __syncthreads();
        for (int stride = 1; stride < (d & -d); stride *= 2) {
            for (int pair = (int)threadIdx.x; pair < n_columns * (d / 2); pair += ANY_THREADS) {
                const int j = (pair & ~(stride - 1)) << 1 | (pair & (stride - 1));
                const float p = x[j], q = x[j + stride];
                x[j] = p + q, x[j + stride] = p - q;
            }
            __syncthreads();
        }
        const float norm = a.norm[KVT_SIDE_V];
        each([=](float &value, int column, int channel) { value = x[column * d + channel] * norm; });
        __syncthreads();
    }

    /* The output of a query vector, one channel of it. */
    KVT_MEMBER void put(int column, int channel, float top, float total, float value) const {
        const int row = seq.row + query_row(column), head = query_head(column);
        if (query_row(column) >= seq.n_rows) return;
        if (a.call.sinks) {
            const float sink = a.call.sinks[head] * ANY_LOG2E, above = fmaxf(top, sink), keep = exp2_near(top - above);
            value *= keep;
            total = total * keep + exp2_near(sink - above);
            top = above;
        }
        if (channel == 0 && a.call.lse)
            a.call.lse[(ptrdiff_t)row * a.call.n_q_heads + head] = (top + log2f(total)) / ANY_LOG2E;
        a.call.out[row * a.call.out_row_stride + head * a.call.out_head_stride + channel] = value / total;
    }

    /* The parts of a head in their order. */
    KVT_MEMBER void merge() const {
        const int d = a.side[0][KVT_SIDE_V].d, n = KVT_MIN(n_columns, seq.n_rows * a.call.group - share.column);
        const size_t part = kvt_cuda_part_floats(d, n_columns);
        const float *parts = a.call.parts + (size_t)share.first_slot * part;
        for (int x = (int)threadIdx.x; x < n * d; x += ANY_THREADS) {
            const int column = x / d;
            float top = ANY_NOTHING, total = 0, value = 0;
#pragma unroll 8
            for (int k = 0; k < share.n_parts; k++) top = fmaxf(top, __ldcg(parts + k * part + 2 * column));
#pragma unroll 8
            for (int k = 0; k < share.n_parts; k++) {
                const float *p = parts + k * part, f = exp2_near(__ldcg(p + 2 * column) - top);
                total += f * __ldcg(p + 2 * column + 1);
                value += f * __ldcg(p + 2 * n_columns + x);
            }
            put(column, x % d, top, total, value);
        }
    }

    /* Gives the sums to the output or to a part. */
    KVT_MEMBER void hand_in(int *is_last) {
        const int d = a.side[0][KVT_SIDE_V].d, columns = n_columns;
        float *states = room(a.room.states);
#pragma unroll
        for (int n = 0; n < EIGHTS; n++) {
            const int column = warp_in_block() + ANY_WARPS * n;
            if (thread_in_warp() == 0) states[2 * column] = most[n], states[2 * column + 1] = sum[n];
        }
        __syncthreads();
        if (share.n_parts == 1) {
            each([=](float &value, int column, int channel) {
                put(column, channel, states[2 * column], states[2 * column + 1], value);
            });
            return;
        }
        float *part = a.call.parts + (size_t)share.slot * kvt_cuda_part_floats(d, n_columns);
        each([=](float &value, int column, int channel) { part[2 * columns + column * d + channel] = value; });
        for (int i = (int)threadIdx.x; i < 2 * columns; i += ANY_THREADS) part[i] = states[i];
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            *is_last = atomicAdd(a.call.done + share.counter, 1) == share.n_parts - 1;
            if (*is_last) a.call.done[share.counter] = 0;
        }
        __syncthreads();
        __threadfence();
        if (*is_last) merge();
    }

    /* Asks for a part of the head's next tile; `left`: units from this one to the end of the share in its region. A tile's units are taken one
     * after another, so the whole is on its way before its turn. */
    KVT_MEMBER void ask_ahead(int region, int row, int left) const {
        constexpr int units = KVT_TILE_ROWS / ANY_ROWS;
        const int unit = row % KVT_TILE_ROWS / ANY_ROWS, bytes = (int)a.head_bytes[region];
        if (units - unit >= left) return;
        const unsigned char *next = static_cast<const unsigned char *>(seq.pages[region][row / KVT_TILE_ROWS + 1]) +
                                    (size_t)share.head * a.head_bytes[region];
        for (int at = (unit * ANY_THREADS + (int)threadIdx.x) * 128; at < bytes; at += units * ANY_THREADS * 128)
            ask_for(next + at);
    }

    KVT_MEMBER void run(int *is_last) {
        const int n_body = seq.n_units[KVT_REGION_BODY], n_sink = seq.n_units[KVT_REGION_SINK];
        int where = -1;      /* 0: in the body, 1: past it */
        int64_t mapped = -1; /* the tile whose channels are listed */
        for (int u = share.first; u < share.end; u++) {
            const int region = u < n_body ? KVT_REGION_BODY : u < n_body + n_sink ? KVT_REGION_SINK : KVT_REGION_TAIL;
            const int before = region == KVT_REGION_BODY ? 0 : region == KVT_REGION_SINK ? n_body : n_body + n_sink;
            const int row = (seq.first_unit[region] + u - before) * ANY_ROWS, plain = region != KVT_REGION_BODY;
            ask_ahead(region, row, KVT_MIN(share.end, before + seq.n_units[region]) - u);
            const packed_side &k = a.side[plain][KVT_SIDE_K], &v = a.side[plain][KVT_SIDE_V];
            if (where != plain) {
                if (where == 0 && a.side[0][KVT_SIDE_V].tile.format.rotated) turn_back();
                where = plain;
                prepare_queries(k.tile.format.rotated);
                for (int i = (int)threadIdx.x; i < 32; i += ANY_THREADS)
                    room(a.room.tables)[i] = (i < 16 ? k : v).table[i % 16];
                __syncthreads();
            }
            const unsigned char *head = static_cast<const unsigned char *>(seq.pages[region][row / KVT_TILE_ROWS]) +
                                        (size_t)share.head * a.head_bytes[region];
            if (k.tile.kind == KVT_TILE_CLASS && mapped != row / KVT_TILE_ROWS) {
                mapped = row / KVT_TILE_ROWS;
                if (warp_in_block() == 0) list_channels(channels(), k, head);
                __syncthreads();
            }
            unpack_unit(keys(), mixed_rows(), a.side[plain], head, row % KVT_TILE_ROWS, channels(),
                        room(a.room.tables));
            __syncthreads();
            score();
            __syncthreads();
            weigh(region, row);
            __syncthreads();
            mix();
            __syncthreads();
        }
        if (where == 0 && a.side[0][KVT_SIDE_V].tile.format.rotated) turn_back();
        hand_in(is_last);
        __syncthreads();
    }
};

/* Blocks that a multiprocessor has room for, as far as registers go. */
constexpr int any_blocks_of(int eights, int tiles) { return eights * tiles == 1 ? 3 : 2; }

template <int EIGHTS, int TILES>
KVT_KERNEL_WITH(ANY_THREADS, any_blocks_of(EIGHTS, TILES))
attend_any(KVT_ARGS struct any_args a) {
    KVT_OF_BLOCK int is_last;
    for (int index = (int)blockIdx.x; index >= 0; index = a.call.shares[index].next) {
        any_walk<EIGHTS, TILES> walk(a, a.call.shares[index]);
        walk.run(&is_last);
    }
}

#endif
