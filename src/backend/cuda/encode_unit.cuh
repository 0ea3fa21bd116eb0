/* SPDX-License-Identifier: Apache-2.0
 *
 * What encoding kernels share: a block of threads takes a unit, some rows and channels of a job's tile, into shared memory, rotates them
 * if the codec does, and packs the codes that were made of them.
 */
#ifndef BACKEND_CUDA_ENCODE_UNIT_CUH
#define BACKEND_CUDA_ENCODE_UNIT_CUH

#include "backend/cuda/simt.cuh"

#include "backend/cuda/encode.h"

/* LOADS: of a thread, that are on their way together. */
enum { UNIT_THREADS = 1024, LOADS = 4 };

/* What a launch gives its kernel. */
struct encode_args {
    struct kvt_tile tile;
    struct kvt_classes classes; /* CLASS */
    float table[16];            /* of the format, where it has one */
    struct kvt_cuda_source source;
    const struct kvt_cuda_job *jobs;
    uint64_t *bad;
    float limit;
    int unit_rows, unit_channels; /* of a unit at most: rows from a multiple of unit_rows on */
    int n_row_units;              /* of a job at most */
    float rotation;               /* what the rotation multiplies by at its end */
};

/* Terms and lanes of a unit, and which of them the job has. */
struct unit {
    int term0, n_terms, lane0, n_lanes;
    int term_from, term_end, lane_from, lane_end; /* within the unit */
    int pitch;                                    /* floats, or words of codes, from term, or quad, to the next: odd */
    int warps;                                    /* of the block */
};

/* The unit of this block of threads. False where the job has no rows in it. */
KVT_DEVICE bool find_unit(struct unit *u, const struct encode_args &a, const struct kvt_cuda_job &job) {
    const bool is_k = a.tile.side == KVT_SIDE_K;
    const int d = is_k ? a.tile.n_terms : a.tile.n_lanes;
    const int row0 = (job.first / a.unit_rows + (int)blockIdx.y % a.n_row_units) * a.unit_rows;
    const int channel0 = (int)blockIdx.y / a.n_row_units * a.unit_channels;
    const int from = KVT_MAX(job.first - row0, 0), end = KVT_MIN(job.first + job.n - row0, a.unit_rows);
    const int n_channels = d % a.unit_channels ? KVT_MIN(a.unit_channels, d - channel0) : a.unit_channels;
    if (from >= end) return false;
    if (is_k)
        *u = {channel0, n_channels, row0, a.unit_rows, 0, n_channels, from, end, 0, 0};
    else
        *u = {row0, a.unit_rows, channel0, n_channels, from, end, 0, n_channels, 0, 0};
    u->pitch = u->n_lanes | 1;
    u->warps = warps_of_block();
    return true;
}

KVT_DEVICE bool unit_has(const struct unit &u, int term, int lane) {
    return term >= u.term_from && term < u.term_end && lane >= u.lane_from && lane < u.lane_end;
}

/* ---- division -------------------------------------------------------------------------------------------------------------- */

/* v / by in one rounding, for both of a magnitude between 2^-60 and 2^60: what the compiler makes of a division, without a branch for other numbers, so
 * that several are on their way, and with what depends on `by` alone apart. */
#define EASY_LEAST 0x1p-60f
#define EASY_MOST  0x1p60f
struct divisor {
    float by, inverse;
};
KVT_DEVICE struct divisor divisor_of(float by) {
    float inverse = 0;
#if defined(__CUDA_ARCH__)
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(by));
    inverse = __fmaf_rn(inverse, __fmaf_rn(-by, inverse, 1), inverse);
#endif
    return {by, inverse};
}
KVT_DEVICE float easy_quotient(float v, const struct divisor &d) {
#if defined(__CUDA_ARCH__)
    const float near = __fmul_rn(v, d.inverse);
    return __fmaf_rn(d.inverse, __fmaf_rn(-d.by, near, v), near);
#else
    return v / d.by;
#endif
}
KVT_DEVICE bool is_easy(float x) { return fabsf(x) >= EASY_LEAST && fabsf(x) <= EASY_MOST; }

/* ---- rows ---------------------------------------------------------------------------------------------------------------- */

KVT_DEVICE float load_number(enum kvt_number number, const void *numbers, ptrdiff_t i) {
    if (number == KVT_NUMBER_F32) return static_cast<const float *>(numbers)[i];
    const uint16_t half = static_cast<const uint16_t *>(numbers)[i];
    if (number == KVT_NUMBER_BF16) return kvt_f32_from_bf16(half);
#if defined(__CUDA_ARCH__)
    return __half2float(__ushort_as_half(half));
#else
    return kvt_f32_from_f16(half);
#endif
}

KVT_DEVICE float round_number(enum kvt_number number, float x) {
    if (number == KVT_NUMBER_F16) return kvt_f32_from_f16(kvt_f16_from_f32(x));
    if (number == KVT_NUMBER_BF16) return kvt_f32_from_bf16(kvt_bf16_from_f32(x));
    return x;
}

/* Of (term, lane) in a plain tile of n_terms x n_lanes. */
KVT_DEVICE ptrdiff_t number_place(int n_terms, int n_lanes, int term, int lane) {
    const int block = lane / KVT_BLOCK_LANES, left = n_lanes - block * KVT_BLOCK_LANES;
    const int stored = left > KVT_BLOCK_LANES / 2 ? KVT_BLOCK_LANES : KVT_BLOCK_LANES / 2;
    return (ptrdiff_t)block * n_terms * KVT_BLOCK_LANES + term * stored + lane % KVT_BLOCK_LANES;
}

/* Element `channel` of row `row` of the tile, from wherever rows come. */
KVT_DEVICE float load_element(const struct encode_args &a, const struct kvt_cuda_job &job, int row, int channel) {
    const bool is_k = a.tile.side == KVT_SIDE_K;
    if (a.source.is_tile)
        return load_number(a.source.number, job.rows,
                           number_place(a.tile.n_terms, a.tile.n_lanes, is_k ? channel : row, is_k ? row : channel));
    const float x = load_number(a.source.number, job.rows, (row - job.first) * a.source.stride + channel);
    if (!(fabsf(x) <= a.limit) && a.bad)
        atomicMin(reinterpret_cast<unsigned long long *>(a.bad),
                  (unsigned long long)blockIdx.x << 32 | (unsigned)row << 16 | (unsigned)channel);
    return round_number(a.source.round, x);
}

/* Elements of n places, all on their way before one is waited for; at(k): the row and channel of the k-th. */
struct row_channel {
    int row, channel;
};
template <int n, class At>
KVT_DEVICE void load_elements(float (&x)[n], const struct encode_args &a, const struct kvt_cuda_job &job,
                              const At &at) {
    if (a.source.is_tile && a.source.number == KVT_NUMBER_F16) { /* the usual: no branch is between the loads */
        const bool is_k = a.tile.side == KVT_SIDE_K;
        uint16_t half[n];
#pragma unroll
        for (int k = 0; k < n; k++) {
            const struct row_channel p = at(k);
            half[k] = static_cast<const uint16_t *>(job.rows)[number_place(
                a.tile.n_terms, a.tile.n_lanes, is_k ? p.channel : p.row, is_k ? p.row : p.channel)];
        }
#pragma unroll
        for (int k = 0; k < n; k++) x[k] = kvt_f32_from_f16(half[k]);
        return;
    }
#pragma unroll
    for (int k = 0; k < n; k++) {
        const struct row_channel p = at(k);
        x[k] = load_element(a, job, p.row, p.channel);
    }
}

/* The unit's elements to x[term * pitch + lane]. masked: by a walk over the whole unit, whose size may be known when it is compiled. */
template <bool masked = false, int loads = LOADS>
KVT_DEVICE void load_unit(float *x, const struct unit &u, const struct encode_args &a, const struct kvt_cuda_job &job) {
    const bool is_k = a.tile.side == KVT_SIDE_K;
    const bool by_lane = a.source.is_tile || !is_k; /* neighbours in memory are neighbouring lanes */
    const int term_from = masked ? 0 : u.term_from, term_end = masked ? u.n_terms : u.term_end;
    const int lane_from = masked ? 0 : u.lane_from, lane_end = masked ? u.n_lanes : u.lane_end;
    const int n_inner = by_lane ? lane_end - lane_from : term_end - term_from;
    const int n_outer = by_lane ? term_end - term_from : lane_end - lane_from;
    const int n_tasks = n_outer * ((n_inner + KVT_WARP - 1) / KVT_WARP);
    for (int task0 = warp_in_block(); task0 < n_tasks; task0 += loads * u.warps) {
        float v[loads];
        int at[loads];
#pragma unroll
        for (int k = 0; k < loads; k++) { /* all on their way before one is waited for */
            const int task = task0 + k * u.warps, chunk = task / n_outer, o = task - chunk * n_outer;
            const int i = chunk * KVT_WARP + thread_in_warp();
            const int term = term_from + (by_lane ? o : i), lane = lane_from + (by_lane ? i : o);
            const int row = is_k ? u.lane0 + lane : u.term0 + term, channel = is_k ? u.term0 + term : u.lane0 + lane;
            const bool has = i < n_inner && task < n_tasks && (!masked || unit_has(u, term, lane));
            at[k] = has ? term * u.pitch + lane : -1;
            if (at[k] >= 0) v[k] = load_element(a, job, row, channel);
        }
#pragma unroll
        for (int k = 0; k < loads; k++)
            if (at[k] >= 0) x[at[k]] = v[k];
    }
}

/* Rotates the rows of a unit of 8, 16, 32 or 128 rows and all channels; `round`: then to f16, kvt_rotate_f16. Between waits of the block. */
KVT_DEVICE void rotate_unit(float *x, const struct unit &u, bool is_k, float by, bool round) {
    const int d = is_k ? u.n_terms : u.n_lanes, n = d & -d;
    const int row_step = is_k ? 1 : u.pitch, channel_step = is_k ? u.pitch : 1;
    const int n_rows = is_k ? u.n_lanes : u.n_terms, row = (int)threadIdx.x & (n_rows - 1);
    const int first = (int)threadIdx.x / n_rows, step = (int)blockDim.x / n_rows;
    for (int stride = 1; stride < n; stride *= 2) {
        for (int pair = first; pair < d / 2; pair += step) {
            const int j = (pair & ~(stride - 1)) << 1 | (pair & (stride - 1));
            float *at = x + row * row_step + j * channel_step;
            const float p = at[0], q = at[stride * channel_step];
            at[0] = p + q;
            at[stride * channel_step] = p - q;
        }
        __syncthreads();
    }
    for (int c = first; c < d; c += step) {
        float *at = x + row * row_step + c * channel_step;
        const float v = *at * by;
        *at = round ? kvt_f32_from_f16(kvt_f16_from_f32(v)) : v;
    }
    __syncthreads();
}

/* ---- numbers of a byte ------------------------------------------------------------------------------------------------------ */

/* kvt_log8_nearest: an approximate logarithm, which misses by one at most, and the two middles beside it. */
template <int per> KVT_DEVICE int nearest_log8(float x) {
    const uint32_t bits = kvt_f32_bits(x), fraction = bits & 0x7FFFFF;
    const float one_to_two = kvt_f32_from_bits(fraction | 0x3F800000);
#if defined(__CUDA_ARCH__)
    const int near = (int)(__log2f(one_to_two) * per + 0.5f);
#else
    const int near = (int)(log2f(one_to_two) * per + 0.5f);
#endif
    const auto middle = [](int i) { return kvt_log8_fraction((2 * i + 1) * (64 / per)); };
    const bool is_below = near > 0 && fraction < middle(near - 1), is_above = near < per && fraction >= middle(near);
    return ((int)(bits >> 23) - 127) * per + near - is_below + is_above;
}

/* ---- codes --------------------------------------------------------------------------------------------------------------- */

/* The byte of a code in shared memory: words of a quad by lane, as a tile has them. */
KVT_DEVICE int code_place(int pitch, int term, int lane) { return ((term >> 2) * pitch + lane) * 4 + (term & 3); }

/* Words of codes that a unit takes; terms are whole steps. */
KVT_INLINE int code_quads(int n_terms) { return (n_terms + 31) / 32 * 8; }

/* 0xff in the bytes of those of a quad's terms that are within [from, end). */
KVT_DEVICE uint32_t quad_mask(int quad, int from, int end) {
    const int skip = KVT_MIN(KVT_MAX(from - 4 * quad, 0), 4), take = KVT_MIN(KVT_MAX(end - 4 * quad, 0), 4);
    if (take <= skip) return 0;
    return (0xFFFFFFFFu >> 8 * (4 - take)) & 0xFFFFFFFFu << 8 * skip;
}

/* Packs the codes of a unit: vector by vector, a warp each. What the job does not have stays. */
KVT_DEVICE void pack_unit(const struct kvt_tile &tile, void *bytes, const uint8_t *codes, const struct unit &u) {
    const struct kvt_planes planes = kvt_planes_of(tile.format.bits);
    const uint32_t *quads = reinterpret_cast<const uint32_t *>(codes);
    const int low = planes.step_quads * planes.width[0] / 8, per_step = planes.step_quads * tile.format.bits / 8;
    const int step_terms = planes.step_quads * 4, n_steps = (u.n_terms + step_terms - 1) / step_terms;
    const int n_blocks = (u.n_lanes + KVT_BLOCK_LANES - 1) / KVT_BLOCK_LANES, n_vectors = n_steps * per_step;
    for (int task = warp_in_block(); task < n_blocks * n_vectors; task += u.warps) {
        const int b = task / n_vectors, v = task - b * n_vectors, step = v / per_step, i = v - step * per_step;
        const bool is_high = i >= low;
        const int width = is_high ? planes.width[1] : planes.width[0], shift = is_high ? planes.width[0] : 0;
        const int per_word = 8 >> width / 2 /* 8 / width */,
                  quad0 = step * planes.step_quads + (is_high ? i - low : i) * per_word;
        const int lane = b * KVT_BLOCK_LANES + thread_in_warp();
        if (lane < u.lane_from || lane >= u.lane_end) continue;
        const struct kvt_block block = kvt_tile_block(&tile, u.lane0 / KVT_BLOCK_LANES + b);
        uint32_t word = 0, mask = 0;
        for (int k = 0; k < per_word; k++) {
            const uint32_t m = quad_mask(quad0 + k, u.term_from, u.term_end) & 0x01010101u * ((1u << width) - 1);
            word |= (quads[(quad0 + k) * u.pitch + lane] >> shift & m) << k * width;
            mask |= m << k * width;
        }
        const int vector = (u.term0 / step_terms) * per_step + v;
        uint32_t *to = reinterpret_cast<uint32_t *>(static_cast<char *>(bytes) + block.codes) +
                       (ptrdiff_t)vector * block.n_lanes + thread_in_warp();
        if (mask) *to = ~mask ? (*to & ~mask) | word : word;
    }
}

/* Where the scale and zero of a group lie, that has (term, lane). */
struct scale_place {
    size_t scales, zeros;
    int index;
};
KVT_DEVICE struct scale_place find_scale(const struct kvt_tile &tile, int term, int lane) {
    const struct kvt_block block = kvt_tile_block(&tile, lane / KVT_BLOCK_LANES);
    int index = term;
    if (tile.kind == KVT_TILE_LANE)
        index = term / tile.term_group * KVT_BLOCK_LANES + lane % KVT_BLOCK_LANES;
    else if (tile.lane_group < KVT_BLOCK_LANES && lane % KVT_BLOCK_LANES >= tile.lane_group)
        index += tile.n_terms;
    return {block.scales, block.zeros, index};
}
KVT_DEVICE void store_scale(enum kvt_scale kind, char *at, int index, uint32_t bits) {
    if (kind == KVT_SCALE_F32)
        reinterpret_cast<uint32_t *>(at)[index] = bits;
    else if (kind == KVT_SCALE_F16)
        reinterpret_cast<uint16_t *>(at)[index] = (uint16_t)bits;
    else if (kind != KVT_SCALE_NONE)
        at[index] = (char)bits;
}

#endif
