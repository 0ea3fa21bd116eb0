/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles back to rows: kvt_tile_decode.
 */
#ifndef BACKEND_CUDA_DECODE_CUH
#define BACKEND_CUDA_DECODE_CUH

#include "backend/cuda/stored.cuh"

struct decode_args {
    struct kvt_tile tile;
    struct kvt_classes classes; /* CLASS */
    float table[16];
    const struct kvt_cuda_decode_job *jobs;
    ptrdiff_t stride;
    int n_row_units;
    float rotation;
};

KVT_DEVICE uint32_t tile_code(const struct kvt_tile &tile, const struct kvt_block &block, const unsigned char *bytes,
                              int term, int lane) {
    const struct kvt_planes planes = kvt_planes_of(tile.format.bits);
    const int quad = term / 4, step = quad / planes.step_quads, in_step = quad % planes.step_quads;
    const size_t vector = (size_t)block.n_lanes * 4;
    size_t at = block.codes + (size_t)(step * planes.step_quads * tile.format.bits) * vector / 8;
    uint32_t code = 0;
    for (int p = 0, shift = 0; p < planes.n; shift += planes.width[p++]) {
        const int width = planes.width[p], per = 8 / width;
        const unsigned byte =
            bytes[at + (size_t)(in_step / per) * vector + (size_t)((lane - block.lane) * 4 + term % 4)];
        code |= (byte >> in_step % per * width & ((1u << width) - 1)) << shift;
        at += (size_t)(planes.step_quads * width) * vector / 8;
    }
    return code ^ tile.flip;
}

KVT_DEVICE float code_meaning(const struct decode_args &a, uint32_t code) {
    switch (a.tile.format.meaning) {
    case KVT_MEANING_TABLE: return a.table[code];
    case KVT_MEANING_E4M3: return kvt_f32_from_e4m3(code);
    case KVT_MEANING_E5M2: return kvt_f32_from_e5m2(code);
    default: return (float)((int)code - a.tile.format.offset);
    }
}

/* kvt_tile_get of coded and plain tiles. */
KVT_DEVICE float tile_value(const struct decode_args &a, const unsigned char *bytes, int term, int lane) {
    const struct kvt_tile &tile = a.tile;
    if (tile.kind == KVT_TILE_PLAIN)
        return load_number(tile.number, bytes, number_place(tile.n_terms, tile.n_lanes, term, lane));
    const struct kvt_block block = kvt_tile_block(&tile, lane / KVT_BLOCK_LANES);
    const struct scale_place at = find_scale(tile, term, lane);
    float value = code_meaning(a, tile_code(tile, block, bytes, term, lane)), scale = 1;
    if (tile.format.scale != KVT_SCALE_NONE) {
        scale = stored_scale(tile.format.scale, bytes + at.scales, at.index);
        value = scale * value;
    }
    if (tile.format.has_zero)
        value += tile.format.zero == KVT_SCALE_SHIFT
                     ? scale * kvt_zero_shift(tile.format.bits, (int8_t)bytes[at.zeros + (size_t)at.index])
                     : stored_scale(tile.format.zero, bytes + at.zeros, at.index);
    if (tile.n_slices) {
        const int slice = tile.n_slices > 1 ? term / KVT_SLICE : 0;
        value *= load_number(KVT_NUMBER_F16, bytes + block.factors, slice * KVT_BLOCK_LANES + lane % KVT_BLOCK_LANES);
    }
    return value;
}

/* Rows of a unit, before they are rotated back, to x[row * d + channel]. */
KVT_DEVICE void decode_unit(float *x, int pitch, const struct decode_args &a, const unsigned char *bytes, int row0,
                            int from, int end) {
    const bool is_k = a.tile.side == KVT_SIDE_K;
    const int d = is_k ? a.tile.n_terms : a.tile.n_lanes;
    if (is_k)
        for (int c = warp_in_block(); c < d; c += warps_of_block()) {
            const int r = thread_in_warp();
            if (r >= from && r < end) x[r * pitch + c] = tile_value(a, bytes, c, row0 + r);
        }
    else
        for (int r = from + warp_in_block(); r < end; r += warps_of_block())
            for (int c = thread_in_warp(); c < d; c += KVT_WARP) x[r * pitch + c] = tile_value(a, bytes, row0 + r, c);
}

/* The same of a CLASS tile. `channels` has room for all places. */
KVT_DEVICE void decode_class_unit(float *x, int pitch, const struct decode_args &a, const unsigned char *bytes,
                                  int row0, int from, int end, uint16_t *channels) {
    const int d = a.tile.n_terms, lane = row0 + thread_in_warp();
    const struct kvt_block first = kvt_tile_block(&a.tile, 0), block = kvt_tile_block(&a.tile, row0 / KVT_BLOCK_LANES);
    if (threadIdx.x == 0) read_map(channels, a.classes, bytes, d);
    __syncthreads();
    const float factor = kvt_class_factor((int8_t)bytes[first.factors + (size_t)lane]);
    for (int place = warp_in_block(); place < d; place += warps_of_block()) {
        const int of = kvt_class_of_place(&a.classes, place);
        const struct kvt_class &k = a.classes.of[of];
        const float most = load_number(KVT_NUMBER_F16, bytes, of);
        const struct kvt_class_place p =
            kvt_class_place_of(kvt_class_scale(most, bytes[first.scales + (size_t)place]),
                               load_number(KVT_NUMBER_F16, bytes + first.zeros, place), k.bits);
        unsigned code = 0;
        for (int i = 0, shift = 0; i < k.n_parts; shift += k.part[i++].width) {
            const int width = k.part[i].width, at = k.part[i].at + place - k.first, quad = at / 4, per = 8 / width;
            const unsigned byte = bytes[block.codes + a.classes.plane[width] +
                                        (size_t)(quad / per * KVT_BLOCK_LANES * 4 + thread_in_warp() * 4 + at % 4)];
            code |= (byte >> quad % per * width & ((1u << width) - 1)) << shift;
        }
        if (thread_in_warp() >= from && thread_in_warp() < end)
            x[thread_in_warp() * pitch + channels[place]] = kvt_class_value(&p, factor, code);
    }
}

enum { DECODE_THREADS = 256 };

KVT_KERNEL(DECODE_THREADS) decode_rows(KVT_ARGS struct decode_args a) {
    const struct kvt_cuda_decode_job job = a.jobs[blockIdx.x];
    const int d = a.tile.side == KVT_SIDE_K ? a.tile.n_terms : a.tile.n_lanes, pitch = d | 1;
    const int row0 = (job.first / KVT_BLOCK_LANES + (int)blockIdx.y) * KVT_BLOCK_LANES;
    const int from = KVT_MAX(job.first - row0, 0), end = KVT_MIN(job.first + job.n - row0, KVT_BLOCK_LANES);
    const unsigned char *bytes = static_cast<const unsigned char *>(job.tile);
    float *x = reinterpret_cast<float *>(kvt_shared);
    if (from >= end) return;
    if (a.tile.kind == KVT_TILE_CLASS)
        decode_class_unit(x, pitch, a, bytes, row0, from, end,
                          reinterpret_cast<uint16_t *>(x + KVT_BLOCK_LANES * pitch));
    else
        decode_unit(x, pitch, a, bytes, row0, from, end);
    __syncthreads();
    if (a.tile.format.rotated) {
        const struct unit u = {0, KVT_BLOCK_LANES, 0, d, 0, KVT_BLOCK_LANES, 0, d, pitch, warps_of_block()};
        rotate_unit(x, u, false, a.rotation, false);
    }
    for (int r = from + warp_in_block(); r < end; r += warps_of_block())
        for (int c = thread_in_warp(); c < d; c += KVT_WARP)
            job.rows[(row0 + r - job.first) * a.stride + c] = x[r * pitch + c];
}

#endif
