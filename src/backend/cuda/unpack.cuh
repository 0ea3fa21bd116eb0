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
    /* Of codes: logarithms of quads in a step and in a vector of each plane, vectors of a step and of its first plane. */
    int step_log, per_log[2], step_words, plane_words;
    int group_log; /* LANE: of terms that share a scale; 31: all do */
    int n_blocks, last_lanes;
    struct {
        uint32_t scales, zeros, factors, codes;
    } blocks[KVT_HEAD_MAX / KVT_BLOCK_LANES];
};

/* kvt_tile_block, without a division. */
KVT_DEVICE struct kvt_block block_of(const packed_side &side, int b) {
    struct kvt_block block;
    block.lane = b * KVT_BLOCK_LANES;
    block.n_lanes = b == side.n_blocks - 1 ? side.last_lanes : (int)KVT_BLOCK_LANES;
    block.scales = side.blocks[b].scales, block.zeros = side.blocks[b].zeros;
    block.factors = side.blocks[b].factors, block.codes = side.blocks[b].codes;
    return block;
}

static inline struct packed_side packed_side_of(const struct kvt_cuda_page &page, enum kvt_side which) {
    struct packed_side side = {};
    side.tile = page.tile[which];
    side.d = kvt_tile_row_size(&side.tile);
    side.offset = which == KVT_SIDE_V ? (uint32_t)page.tile[KVT_SIDE_K].bytes : 0;
    side.planes = kvt_planes_of(side.tile.format.bits);
    while (1 << side.step_log < side.planes.step_quads) side.step_log++;
    for (int p = 0; p < side.planes.n; p++)
        while (side.planes.width[p] << side.per_log[p] < 8) side.per_log[p]++;
    side.step_words = side.planes.step_quads * side.tile.format.bits / 8;
    side.plane_words = side.planes.step_quads * side.planes.width[0] / 8;
    side.n_blocks = kvt_tile_n_blocks(&side.tile);
    for (int b = 0; b < side.n_blocks; b++) {
        const struct kvt_block block = kvt_tile_block(&side.tile, b);
        side.last_lanes = block.n_lanes;
        side.blocks[b] = {(uint32_t)block.scales, (uint32_t)block.zeros, (uint32_t)block.factors,
                          (uint32_t)block.codes};
    }
    while (side.group_log < 31 && 1 << side.group_log < side.tile.term_group) side.group_log++;
    if (side.tile.term_group >= side.tile.n_terms) side.group_log = 31;
    if (side.tile.kind == KVT_TILE_CLASS) side.classes = kvt_classes_of(side.d, side.tile.format.bits);
    if (side.tile.kind != KVT_TILE_PLAIN && side.tile.format.meaning == KVT_MEANING_TABLE)
        memcpy(side.table, side.tile.format.table, sizeof(float) << side.tile.format.bits);
    side.tile.format.table = nullptr; /* the process's memory */
    return side;
}

/* ---- octets -------------------------------------------------------------------------------------------------------------- */

/* What an octet of a lane is made of, as it lies in the tile: all of it is on its way before any is waited for. PLAIN: eight numbers. Else a word of
 * each plane of codes, then four words of scales and four of zeros: of the terms, or one number of the lane in the first of them. */
enum { SCALE_WORDS = 2, ZERO_WORDS = 6 };
struct stored_octet {
    uint32_t words[10];
    uint16_t factor;
};

KVT_DEVICE uint32_t word_at(const unsigned char *at) { return __ldg(reinterpret_cast<const uint32_t *>(at)); }
KVT_DEVICE uint32_t half_at(const unsigned char *at) { return __ldg(reinterpret_cast<const uint16_t *>(at)); }

/* A number of a kind from its bits. */
KVT_DEVICE float stored_number(enum kvt_scale kind, uint32_t bits) {
    const uint16_t half = (uint16_t)bits;
    switch (kind) {
    case KVT_SCALE_F16: return load_number(KVT_NUMBER_F16, &half, 0);
    case KVT_SCALE_F32: return kvt_f32_from_bits(bits);
    case KVT_SCALE_E8M0: return kvt_f32_from_e8m0((uint8_t)bits);
    case KVT_SCALE_E4M3: return kvt_f32_from_e4m3(bits & 255);
    case KVT_SCALE_LOG: return kvt_scale_from_log((uint8_t)bits);
    default: return 1;
    }
}
KVT_DEVICE int stored_bytes(enum kvt_scale kind) {
    return kind == KVT_SCALE_NONE ? 0 : kind == KVT_SCALE_F32 ? 4 : kind == KVT_SCALE_F16 ? 2 : 1;
}

/* Entry `index` of scales or zeros, or, unless by_lane, eight entries from there on; those of f32 stay where they are. */
KVT_DEVICE void fetch_scales(uint32_t *to, enum kvt_scale kind, bool by_lane, const unsigned char *from, int index) {
    const int n = stored_bytes(kind);
    const unsigned char *at = from + index * n;
    if (by_lane) {
        to[0] = n == 4 ? word_at(at) : n == 2 ? half_at(at) : n == 1 ? __ldg(at) : 0;
    } else if (n == 1 || n == 2) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (i < 2 * n) to[i] = word_at(at + 4 * i);
    }
}
/* The number of term k among them. */
KVT_DEVICE float take_scale(const uint32_t *words, enum kvt_scale kind, bool by_lane, const unsigned char *from,
                            int index, int k) {
    if (by_lane) return stored_number(kind, words[0]);
    if (kind == KVT_SCALE_F32) return kvt_f32_from_bits(word_at(from + (index + k) * 4));
    return kind == KVT_SCALE_F16 ? stored_number(kind, words[k / 2] >> k % 2 * 16)
                                 : stored_number(kind, words[k / 4] >> k % 4 * 8 & 255);
}

/* Where the scale of a lane's octet is among those of its block. */
KVT_DEVICE int scale_entry(const packed_side &side, int term, int lane) {
    if (side.tile.kind == KVT_TILE_LANE) return (term >> side.group_log) * KVT_BLOCK_LANES + lane;
    return term + (lane >= side.tile.lane_group ? side.tile.n_terms : 0);
}

/* Terms 8 octet .. of the thread's lane of a block. */
KVT_DEVICE stored_octet fetch_octet(const packed_side &side, const unsigned char *bytes, const struct kvt_block &block,
                                    int octet) {
    const struct kvt_tile &tile = side.tile;
    const struct kvt_format &format = tile.format;
    const int lane = thread_in_warp(), term = OCTET * octet;
    stored_octet s;
    if (tile.kind == KVT_TILE_PLAIN) {
#pragma unroll
        for (int k = 0; k < OCTET; k++) {
            const int i = (term + k) * block.n_lanes + lane;
            s.words[k] = tile.number == KVT_NUMBER_F32 ? word_at(bytes + block.codes + 4 * i)
                                                       : half_at(bytes + block.codes + 2 * i);
        }
        return s;
    }
    const int vector = block.n_lanes * 4, quads = side.planes.step_quads;
    const int step = 2 * octet >> side.step_log, in_step = 2 * octet & (quads - 1);
    const unsigned char *at = bytes + block.codes + step * side.step_words * vector + lane * 4;
    s.words[0] = word_at(at + (in_step >> side.per_log[0]) * vector);
    if (side.planes.n > 1) s.words[1] = word_at(at + (side.plane_words + (in_step >> side.per_log[1])) * vector);
    const bool by_lane = tile.kind == KVT_TILE_LANE;
    const int entry = scale_entry(side, term, lane);
    fetch_scales(s.words + SCALE_WORDS, format.scale, by_lane, bytes + block.scales, entry);
    if (format.has_zero) fetch_scales(s.words + ZERO_WORDS, format.zero, by_lane, bytes + block.zeros, entry);
    if (tile.n_slices)
        s.factor = (uint16_t)half_at(bytes + block.factors +
                                     2 * ((tile.n_slices > 1 ? term / KVT_SLICE : 0) * KVT_BLOCK_LANES + lane));
    return s;
}

/* The codes of a quad, a byte each: quad 0 or 1 of the octet. */
KVT_DEVICE uint32_t quad_codes(const stored_octet &s, const packed_side &side, int octet, int quad) {
    const int in_step = 2 * octet & (side.planes.step_quads - 1);
    uint32_t codes = 0;
    int up = 0;
#pragma unroll
    for (int p = 0; p < 2; p++) {
        if (p >= side.planes.n) continue;
        const int width = side.planes.width[p], first = (in_step & ((1 << side.per_log[p]) - 1)) + quad;
        codes |= (s.words[p] >> first * width & ((1u << width) - 1) * 0x01010101u) << up;
        up += width;
    }
    return codes ^ side.tile.flip * 0x01010101u;
}

/* What a code means before its scale. `table` is in shared memory. */
KVT_DEVICE float code_meaning(uint32_t code, const packed_side &side, const float *table) {
    const struct kvt_format &format = side.tile.format;
    switch (format.meaning) {
    case KVT_MEANING_TABLE: return table[code];
    case KVT_MEANING_E4M3: return kvt_f32_from_e4m3(code);
    case KVT_MEANING_E5M2: return kvt_f32_from_e5m2(code);
    default: /* 2^23 and the code, less 2^23: exact, and faster than a conversion */
        return kvt_f32_from_bits(0x4B000000u | code) - (0x1p23f + (float)format.offset);
    }
}

/* What it means. */
KVT_DEVICE void read_octet(float (&x)[OCTET], const stored_octet &s, const packed_side &side,
                           const unsigned char *bytes, const struct kvt_block &block, int octet, const float *table) {
    const struct kvt_tile &tile = side.tile;
    const struct kvt_format &format = tile.format;
    if (tile.kind == KVT_TILE_PLAIN) {
#pragma unroll
        for (int k = 0; k < OCTET; k++) {
            const uint16_t half = (uint16_t)s.words[k];
            x[k] = tile.number == KVT_NUMBER_F32 ? kvt_f32_from_bits(s.words[k]) : load_number(tile.number, &half, 0);
        }
        return;
    }
    const uint32_t codes[2] = {quad_codes(s, side, octet, 0), quad_codes(s, side, octet, 1)};
    const bool by_lane = tile.kind == KVT_TILE_LANE, has_scale = format.scale != KVT_SCALE_NONE;
    const int entry = scale_entry(side, OCTET * octet, thread_in_warp());
#pragma unroll
    for (int k = 0; k < OCTET; k++) {
        x[k] = code_meaning(codes[k / 4] >> k % 4 * 8 & 255, side, table);
        const float scale =
            has_scale ? take_scale(s.words + SCALE_WORDS, format.scale, by_lane, bytes + block.scales, entry, k) : 1;
        if (has_scale) x[k] *= scale;
        if (format.has_zero)
            x[k] += format.zero == KVT_SCALE_SHIFT
                        ? scale * kvt_zero_shift(format.bits, (int8_t)(s.words[ZERO_WORDS + k / 4] >> k % 4 * 8))
                        : take_scale(s.words + ZERO_WORDS, format.zero, by_lane, bytes + block.zeros, entry, k);
    }
    if (tile.n_slices) {
        const float factor = load_number(KVT_NUMBER_F16, &s.factor, 0);
#pragma unroll
        for (int k = 0; k < OCTET; k++) x[k] *= factor;
    }
}

/* The same at once. */
KVT_DEVICE void octet_values(float (&x)[OCTET], const packed_side &side, const unsigned char *bytes,
                             const struct kvt_block &block, int octet, const float *table) {
    const stored_octet s = fetch_octet(side, bytes, block, octet);
    read_octet(x, s, side, bytes, block, octet, table);
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
    const struct kvt_block block = block_of(side, b);
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

enum { AT_ONCE = 1 }; /* octets that a warp has on their way */

/* 32 rows of keys and values from row0 on, a multiple of 32: k[row][channel], with zeros up to a multiple of 16 channels, v[channel][row]. A warp takes
 * an octet of a block of lanes at a time. */
struct unit_of_rows {
    const packed_side *sides;
    const unsigned char *bytes; /* of the keys' tile; that of values lies sides[KVT_SIDE_V].offset further on */
    int row0;
    bool no_keys;
    const float *tables; /* 16 entries of keys', 16 of values' */
};
KVT_DEVICE void unpack_unit(const matrix &k, const matrix &v, const unit_of_rows &u) {
    enum { PER = KVT_BLOCK_LANES / OCTET };
    const int lane = thread_in_warp(), n_k = u.no_keys ? 0 : (u.sides[KVT_SIDE_K].d + 15) / 16 * 2;
    const int n = n_k + u.sides[KVT_SIDE_V].n_blocks * PER;
    for (int first = warp_in_block(); first < n; first += AT_ONCE * warps_of_block()) {
        stored_octet stored[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int task = first + i * warps_of_block(), at = task - n_k;
            const bool is_k = task < n_k;
            const packed_side &side = u.sides[is_k ? KVT_SIDE_K : KVT_SIDE_V];
            if (task >= n || (is_k && task >= side.d / OCTET)) continue;
            const struct kvt_block block = block_of(side, is_k ? u.row0 / KVT_BLOCK_LANES : at / PER);
            if (lane < block.n_lanes)
                stored[i] = fetch_octet(side, u.bytes + side.offset, block, is_k ? task : u.row0 / OCTET + at % PER);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int task = first + i * warps_of_block(), at = task - n_k;
            const bool is_k = task < n_k;
            if (task >= n) continue;
            const packed_side &side = u.sides[is_k ? KVT_SIDE_K : KVT_SIDE_V];
            const struct kvt_block block = block_of(side, is_k ? u.row0 / KVT_BLOCK_LANES : at / PER);
            const int line = is_k ? lane : at / PER * KVT_BLOCK_LANES + lane, quad = 2 * (is_k ? task : at % PER);
            float x[OCTET] = {};
            if (lane >= block.n_lanes) continue;
            if (!is_k || task < side.d / OCTET)
                read_octet(x, stored[i], side, u.bytes + side.offset, block, is_k ? task : u.row0 / OCTET + at % PER,
                           u.tables + (is_k ? 0 : 16));
            const matrix &to = is_k ? k : v;
            *quad_of(to, line, quad) = {x[0], x[1], x[2], x[3]};
            *quad_of(to, line, quad + 1) = {x[4], x[5], x[6], x[7]};
        }
    }
}

/* 32 rows of keys whose channels have three widths: x[row][channel]. */
KVT_DEVICE void unpack_class_keys(const matrix &x, const packed_side &k, const unsigned char *bytes, int row0,
                                  const uint16_t *channels) {
    for (int quad = warp_in_block(); quad < k.d / 4; quad += warps_of_block())
        unpack_places(x, thread_in_warp(), quad, k, bytes, row0 / KVT_BLOCK_LANES, channels);
}

#endif
