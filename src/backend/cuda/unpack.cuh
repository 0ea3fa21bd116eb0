/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of any tile as f32 in shared memory: what kvt_tile_get gives, eight terms of a lane at a time.
 */
#ifndef BACKEND_CUDA_UNPACK_CUH
#define BACKEND_CUDA_UNPACK_CUH

#include "backend/cuda/stored.cuh"
#include "backend/cuda/tensor.cuh"

#include "backend/cuda/attend.h"

enum { OCTET = 8 };

/* One side of a page, where its tile lies from the head's first byte on, and what its codes mean. */
struct packed_side {
    struct kvt_tile tile;
    struct kvt_planes planes;
    struct kvt_classes classes; /* CLASS */
    float table[16];
    uint32_t offset;
    int d; /* of a row */
};

static inline struct packed_side packed_side_of(const struct kvt_cuda_page &page, enum kvt_side which) {
    struct packed_side side = {};
    side.tile = page.tile[which];
    side.d = kvt_tile_row_size(&side.tile);
    side.offset = which == KVT_SIDE_V ? (uint32_t)page.tile[KVT_SIDE_K].bytes : 0;
    side.planes = kvt_planes_of(side.tile.format.bits);
    if (side.tile.kind == KVT_TILE_CLASS) side.classes = kvt_classes_of(side.d, side.tile.format.bits);
    if (side.tile.kind != KVT_TILE_PLAIN && side.tile.format.meaning == KVT_MEANING_TABLE)
        memcpy(side.table, side.tile.format.table, sizeof(float) << side.tile.format.bits);
    side.tile.format.table = nullptr; /* the process's memory */
    return side;
}

/* Eight stored numbers of one kind, the first at entry i, a multiple of 8. */
KVT_DEVICE void load_scales(float (&to)[OCTET], enum kvt_scale kind, const unsigned char *from, int i) {
    union {
        uint64_t words[4];
        uint16_t halves[OCTET];
        float floats[OCTET];
        uint8_t bytes[OCTET];
    } x;
    const int n = kind == KVT_SCALE_F32 ? 4 : kind == KVT_SCALE_F16 ? 2 : 1; /* bytes of an entry */
    const uint64_t *words = reinterpret_cast<const uint64_t *>(from + (ptrdiff_t)i * n);
    x.words[0] = words[0];
    if (n > 1) x.words[1] = words[1];
    if (n > 2) x.words[2] = words[2], x.words[3] = words[3];
#pragma unroll
    for (int k = 0; k < OCTET; k++)
        to[k] = kind == KVT_SCALE_F16 ? load_number(KVT_NUMBER_F16, &x.halves[k], 0)
                : n == 4              ? x.floats[k]
                                      : stored_scale(kind, &x.bytes[k], 0);
}

/* Codes of terms 8 octet .. of a lane of the block. */
KVT_DEVICE void load_octet(uint32_t (&codes)[OCTET], const packed_side &side, const unsigned char *block, int n_lanes,
                           int octet, int lane) {
    const int quads = side.planes.step_quads, quad = 2 * octet, step = quad / quads, in_step = quad - step * quads;
    const int vector = n_lanes * 4;
    const unsigned char *at = block + step * quads * side.tile.format.bits * vector / 8 + lane * 4;
#pragma unroll
    for (int k = 0; k < OCTET; k++) codes[k] = 0;
    for (int p = 0, shift = 0; p < side.planes.n; p++) {
        const int width = side.planes.width[p], per = 8 / width;
        const uint32_t mask = (1u << width) - 1;
        const uint32_t first =
                           *reinterpret_cast<const uint32_t *>(at + in_step / per * vector) >> in_step % per * width,
                       second = first >> width;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            codes[k] |= (first >> 8 * k & mask) << shift;
            codes[4 + k] |= (second >> 8 * k & mask) << shift;
        }
        at += quads * width * vector / 8;
        shift += width;
    }
#pragma unroll
    for (int k = 0; k < OCTET; k++) codes[k] ^= side.tile.flip;
}

/* What codes mean before their scale. `table` is in shared memory. */
KVT_DEVICE void to_meanings(float (&x)[OCTET], const uint32_t (&codes)[OCTET], const packed_side &side,
                            const float *table) {
    const struct kvt_format &format = side.tile.format;
    if (format.meaning == KVT_MEANING_INTEGER) {
#pragma unroll
        for (int k = 0; k < OCTET; k++) /* 2^23 and the code, less 2^23: exact, and faster than a conversion */
            x[k] = kvt_f32_from_bits(0x4B000000u | codes[k]) - (0x1p23f + (float)format.offset);
    } else {
#pragma unroll
        for (int k = 0; k < OCTET; k++)
            x[k] = format.meaning == KVT_MEANING_TABLE  ? table[codes[k]]
                   : format.meaning == KVT_MEANING_E4M3 ? kvt_f32_from_e4m3(codes[k])
                                                        : kvt_f32_from_e5m2(codes[k]);
    }
}

/* Scales, zeros and factors of an octet of terms of a lane. */
KVT_DEVICE void apply_scales(float (&x)[OCTET], const packed_side &side, const unsigned char *bytes,
                             const struct kvt_block &block, int octet, int lane) {
    const struct kvt_tile &tile = side.tile;
    const struct kvt_format &format = tile.format;
    const int term = OCTET * octet;
    const struct scale_place at = find_scale(tile, term, block.lane + lane);
    const bool by_lane = tile.kind == KVT_TILE_LANE, is_shift = format.zero == KVT_SCALE_SHIFT;
    float scale[OCTET], zero[OCTET] = {};
    if (format.scale != KVT_SCALE_NONE) {
        if (by_lane)
            scale[0] = stored_scale(format.scale, bytes + at.scales, at.index);
        else
            load_scales(scale, format.scale, bytes + at.scales, at.index);
#pragma unroll
        for (int k = 0; k < OCTET; k++) x[k] *= scale[k] = by_lane ? scale[0] : scale[k];
    }
    if (format.has_zero) {
        if (by_lane)
            zero[0] = stored_scale(format.zero, bytes + at.zeros, at.index);
        else if (!is_shift)
            load_scales(zero, format.zero, bytes + at.zeros, at.index);
#pragma unroll
        for (int k = 0; k < OCTET; k++)
            x[k] += is_shift  ? scale[k] * kvt_zero_shift(format.bits, (int8_t)bytes[at.zeros + (size_t)(at.index + k)])
                    : by_lane ? zero[0]
                              : zero[k];
    }
    if (tile.n_slices) {
        const int slice = tile.n_slices > 1 ? term / KVT_SLICE : 0;
        const float factor = load_number(KVT_NUMBER_F16, bytes + block.factors, slice * KVT_BLOCK_LANES + lane);
#pragma unroll
        for (int k = 0; k < OCTET; k++) x[k] *= factor;
    }
}

/* Terms 8 octet .. of the thread's lane of a block. */
KVT_DEVICE void octet_values(float (&x)[OCTET], const packed_side &side, const unsigned char *bytes,
                             const struct kvt_block &block, int octet, const float *table) {
    const int lane = thread_in_warp();
    if (side.tile.kind == KVT_TILE_PLAIN) {
        const unsigned char *numbers = bytes + block.codes;
#pragma unroll
        for (int k = 0; k < OCTET; k++)
            x[k] = load_number(side.tile.number, numbers, (OCTET * octet + k) * block.n_lanes + lane);
        return;
    }
    uint32_t codes[OCTET];
    load_octet(codes, side, bytes + block.codes, block.n_lanes, octet, lane);
    to_meanings(x, codes, side, table);
    apply_scales(x, side, bytes, block, octet, lane);
}

/* Those of block b, to quads `quad` and quad + 1 of line `line`. */
KVT_DEVICE void unpack_octet(const matrix &to, int line, int quad, const packed_side &side, const unsigned char *bytes,
                             int b, int octet, const float *table) {
    const struct kvt_block block = kvt_tile_block(&side.tile, b);
    if (thread_in_warp() >= block.n_lanes) return;
    float x[OCTET];
    octet_values(x, side, bytes, block, octet, table);
    *quad_of(to, line, quad) = {x[0], x[1], x[2], x[3]};
    *quad_of(to, line, quad + 1) = {x[4], x[5], x[6], x[7]};
}

/* ---- CLASS tiles --------------------------------------------------------------------------------------------------------- */

/* kvt_class_read_map, by a warp. */
KVT_DEVICE void list_channels(uint16_t *channels, const packed_side &side, const unsigned char *bytes) {
    const int lane = thread_in_warp();
    int next[KVT_CLASSES];
    for (int k = 0; k < KVT_CLASSES; k++) next[k] = side.classes.of[k].first;
    for (int c0 = 0; c0 < side.d; c0 += KVT_WARP) {
        const int c = c0 + lane, map = c < side.d ? bytes[KVT_CLASS_MAP + c / 4] >> c % 4 * 2 & 3 : -1;
        for (int k = 0; k < KVT_CLASSES; k++) {
            const bool own = map == k || (k == KVT_CLASSES - 1 && map > k);
            const unsigned all = __ballot_sync(~0u, own);
            const int place = next[k] + __popc(all & ((1u << lane) - 1));
            if (own && place < side.classes.of[k].end) channels[place] = (uint16_t)c;
            next[k] += __popc(all);
        }
    }
    bool whole = true;
    for (int k = 0; k < KVT_CLASSES; k++) whole = whole && next[k] == side.classes.of[k].end;
    __syncwarp();
    if (whole || lane != 0) return;
    read_map(channels, side.classes, bytes, side.d); /* a damaged map */
}

/* Places 4 quad .. of the thread's lane of block b, to their channels in line `line`. */
KVT_DEVICE void unpack_places(const matrix &to, int line, int quad, const packed_side &side, const unsigned char *bytes,
                              int b, const uint16_t *channels) {
    const int lane = thread_in_warp(), place = 4 * quad, of = kvt_class_of_place(&side.classes, place);
    const struct kvt_block block = kvt_tile_block(&side.tile, b);
    const struct kvt_class &k = side.classes.of[of];
    uint32_t codes[4] = {0, 0, 0, 0};
    for (int i = 0, shift = 0; i < k.n_parts; shift += k.part[i++].width) {
        const int width = k.part[i].width, q = (k.part[i].at + place - k.first) / 4, per = 8 / width;
        const uint32_t word = *reinterpret_cast<const uint32_t *>(bytes + block.codes + side.classes.plane[width] +
                                                                  (q / per * KVT_BLOCK_LANES + lane) * 4) >>
                              q % per * width;
#pragma unroll
        for (int n = 0; n < 4; n++) codes[n] |= (word >> 8 * n & ((1u << width) - 1)) << shift;
    }
    const float most = load_number(KVT_NUMBER_F16, bytes, of);
    const float factor = kvt_class_factor((int8_t)bytes[block.factors + (size_t)lane]);
#pragma unroll
    for (int n = 0; n < 4; n++) {
        const struct kvt_class_place p =
            kvt_class_place_of(kvt_class_scale(most, bytes[block.scales + (size_t)(place + n)]),
                               load_number(KVT_NUMBER_F16, bytes + block.zeros, place + n), k.bits);
        element_of(to, line, channels[place + n]) = kvt_class_value(&p, factor, codes[n]);
    }
}

/* ---- units --------------------------------------------------------------------------------------------------------------- */

/* 32 rows of keys from row0 on, a multiple of 32: x[row][channel], zeros up to a multiple of 16 channels. */
KVT_DEVICE void unpack_keys(const matrix &x, const packed_side &k, const unsigned char *bytes, int row0,
                            const uint16_t *channels, const float *table) {
    const int block = row0 / KVT_BLOCK_LANES, row = thread_in_warp();
    if (k.tile.kind == KVT_TILE_CLASS) {
        for (int quad = warp_in_block(); quad < k.d / 4; quad += warps_of_block())
            unpack_places(x, row, quad, k, bytes, block, channels);
        return;
    }
    for (int octet = warp_in_block(); octet < (k.d + 15) / 16 * 2; octet += warps_of_block())
        if (octet < k.d / OCTET)
            unpack_octet(x, row, 2 * octet, k, bytes, block, octet, table);
        else
            *quad_of(x, row, 2 * octet) = *quad_of(x, row, 2 * octet + 1) = {0, 0, 0, 0};
}

/* 32 rows of values: x[channel][row]. */
KVT_DEVICE void unpack_values(const matrix &x, const packed_side &v, const unsigned char *bytes, int row0,
                              const float *table) {
    const int n = kvt_tile_n_blocks(&v.tile) * (KVT_BLOCK_LANES / OCTET);
    for (int task = warp_in_block(); task < n; task += warps_of_block()) {
        const int block = task / (KVT_BLOCK_LANES / OCTET), octet = task % (KVT_BLOCK_LANES / OCTET);
        unpack_octet(x, block * KVT_BLOCK_LANES + thread_in_warp(), 2 * octet, v, bytes, block, row0 / OCTET + octet,
                     table);
    }
}

#endif
