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

/* One side of a page, where its tile lies from the head's first byte on, and what its codes mean. What a thread would divide for is
 * found once, here: where blocks lie, and logarithms of what are powers of two. */
struct packed_side {
    struct kvt_tile tile;
    struct kvt_block blocks[KVT_LATENT_MAX / KVT_BLOCK_LANES];
    struct kvt_classes classes; /* CLASS */
    float table[16];
    uint32_t offset;
    int d; /* of a row */
    int n_blocks;
    int n_planes, width[2], step_log; /* of codes; quads of a step */
    int group_log;                    /* LANE: terms that share a scale; the whole row may be less than a power */
    int scale_log, zero_log;          /* bytes of a number; -1: none */
};

static inline int log_of(int n) { /* of the least power of two that is no less */
    int log = 0;
    while (1 << log < n) log++;
    return log;
}
static inline int stored_log(enum kvt_scale kind) {
    return kind == KVT_SCALE_NONE ? -1 : kind == KVT_SCALE_F32 ? 2 : kind == KVT_SCALE_F16 ? 1 : 0;
}
static inline struct packed_side packed_side_of(const struct kvt_cuda_page &page, enum kvt_side which) {
    struct packed_side side = {};
    side.tile = page.tile[which];
    side.d = kvt_tile_row_size(&side.tile);
    side.offset = which == KVT_SIDE_V ? (uint32_t)page.tile[KVT_SIDE_K].bytes : 0;
    side.n_blocks = kvt_tile_n_blocks(&side.tile);
    for (int b = 0; b < side.n_blocks; b++) side.blocks[b] = kvt_tile_block(&side.tile, b);
    if (side.tile.kind == KVT_TILE_PLAIN) return side;
    const struct kvt_format &format = side.tile.format;
    const struct kvt_planes planes = kvt_planes_of(format.bits);
    side.n_planes = planes.n, side.width[0] = planes.width[0], side.width[1] = planes.width[1];
    side.step_log = log_of(planes.step_quads);
    side.group_log = log_of(side.tile.term_group);
    side.scale_log = stored_log(format.scale);
    side.zero_log = format.has_zero ? stored_log(format.zero) : -1;
    if (side.tile.kind == KVT_TILE_CLASS) side.classes = kvt_classes_of(side.d, format.bits);
    if (format.meaning == KVT_MEANING_TABLE) memcpy(side.table, format.table, sizeof(float) << format.bits);
    side.tile.format.table = nullptr; /* the process's memory */
    return side;
}

/* ---- what is stored, as it is ---------------------------------------------------------------------------------------------- */

/* Eight numbers of 1, 2 or 4 bytes, or one in the first. */
struct stored_eight {
    uint64_t words[4];
};
static KVT_MEMBER void load_eight(stored_eight &to, const unsigned char *from, int log) {
    const uint64_t *words = reinterpret_cast<const uint64_t *>(from);
    to.words[0] = words[0];
    if (log > 0) to.words[1] = words[1];
    if (log > 1) to.words[2] = words[2], to.words[3] = words[3];
}
static KVT_MEMBER void load_one(stored_eight &to, const unsigned char *from, int log) {
    to.words[0] = log == 0   ? *from
                  : log == 1 ? *reinterpret_cast<const uint16_t *>(from)
                             : *reinterpret_cast<const uint32_t *>(from);
}
/* Number k, of so many bytes each, in the lowest bits. */
template <int bytes> KVT_DEVICE uint32_t stored_at(const stored_eight &x, int k) {
    return (uint32_t)(x.words[k * bytes / 8] >> k * bytes % 8 * 8);
}

/* An octet of terms of a lane: a word of each plane, scales, zeros, the factor. */
struct stored_octet {
    uint32_t planes[2];
    int shift; /* of the first quad's code in the first plane's word, in quads */
    stored_eight scales, zeros;
    float factor;
};

/* All on its way before anything is looked at. */
static KVT_MEMBER void load_octet(stored_octet &x, const packed_side &side, const unsigned char *bytes,
                                  const struct kvt_block &block, int octet, int lane) {
    const int quad = 2 * octet, step = quad >> side.step_log, in_step = quad & ((1 << side.step_log) - 1);
    const int vector = block.n_lanes * 4;
    const unsigned char *at =
        bytes + block.codes + (step << side.step_log) * side.tile.format.bits * vector / 8 + lane * 4;
    x.shift = in_step;
#pragma unroll
    for (int p = 0; p < 2; p++) {
        if (p >= side.n_planes) break;
        const int per_log = side.width[p] == 4 ? 1 : side.width[p] == 2 ? 2 : 3; /* quads in a word */
        x.planes[p] = *reinterpret_cast<const uint32_t *>(at + (in_step >> per_log) * vector);
        at += ((vector * side.width[p]) << side.step_log) / 8;
    }
    const struct kvt_tile &tile = side.tile;
    if (tile.kind == KVT_TILE_LANE) {
        const int i = (OCTET * octet >> side.group_log) * KVT_BLOCK_LANES + lane;
        if (side.scale_log >= 0) load_one(x.scales, bytes + block.scales + (i << side.scale_log), side.scale_log);
        if (side.zero_log >= 0) load_one(x.zeros, bytes + block.zeros + (i << side.zero_log), side.zero_log);
    } else {
        const int i = OCTET * octet + (lane >= tile.lane_group ? tile.n_terms : 0); /* groups of half a block */
        if (side.scale_log >= 0) load_eight(x.scales, bytes + block.scales + (i << side.scale_log), side.scale_log);
        if (side.zero_log >= 0) load_eight(x.zeros, bytes + block.zeros + (i << side.zero_log), side.zero_log);
    }
    if (tile.n_slices) {
        const int slice = tile.n_slices > 1 ? OCTET * octet / KVT_SLICE : 0;
        x.factor = load_number(KVT_NUMBER_F16, bytes + block.factors, slice * KVT_BLOCK_LANES + lane);
    }
}

/* ---- what it means --------------------------------------------------------------------------------------------------------- */

/* Codes of an octet of terms, a byte each. */
struct octet_codes {
    uint32_t quads[2];
};
KVT_DEVICE uint32_t code_of(const octet_codes &codes, int k) { return codes.quads[k / 4] >> 8 * (k % 4) & 255; }

static KVT_MEMBER octet_codes codes_of(const stored_octet &x, const packed_side &side) {
    const uint32_t flip = side.tile.flip * 0x01010101u;
    octet_codes codes = {{flip, flip}};
    int shift = 0;
#pragma unroll
    for (int p = 0; p < 2; p++) {
        if (p >= side.n_planes) break;
        const int width = side.width[p], per = width == 4 ? 2 : width == 2 ? 4 : 8;
        const uint32_t mask = ((1u << width) - 1) * 0x01010101u, word = x.planes[p] >> (x.shift & (per - 1)) * width;
        codes.quads[0] ^= (word & mask) << shift;
        codes.quads[1] ^= (word >> width & mask) << shift;
        shift += width;
    }
    return codes;
}

/* What codes mean before their scale. `table` is in shared memory. */
static KVT_MEMBER void to_meanings(float (&x)[OCTET], const octet_codes &codes, const packed_side &side,
                                   const float *table) {
    const struct kvt_format &format = side.tile.format;
    switch (format.meaning) {
    case KVT_MEANING_INTEGER: {
        const float base = 0x1p23f + (float)format.offset;
#pragma unroll
        for (int k = 0; k < OCTET; k++) /* 2^23 and the code, less 2^23: exact, and faster than a conversion */
            x[k] = kvt_f32_from_bits(0x4B000000u | code_of(codes, k)) - base;
        return;
    }
    case KVT_MEANING_TABLE:
#pragma unroll
        for (int k = 0; k < OCTET; k++) x[k] = table[code_of(codes, k)];
        return;
    case KVT_MEANING_E4M3:
#pragma unroll
        for (int k = 0; k < OCTET; k++) x[k] = kvt_f32_from_e4m3(code_of(codes, k));
        return;
    default:
#pragma unroll
        for (int k = 0; k < OCTET; k++) x[k] = kvt_f32_from_e5m2(code_of(codes, k));
    }
}

template <enum kvt_scale kind> static KVT_MEMBER void to_eight(float (&to)[OCTET], const stored_eight &x, int n) {
#pragma unroll
    for (int k = 0; k < OCTET; k++) {
        if (k >= n) break;
        const uint32_t bits = stored_at < kind == KVT_SCALE_F32 ? 4 : kind == KVT_SCALE_F16 ? 2 : 1 > (x, k);
        to[k] = stored_scale(kind, reinterpret_cast<const unsigned char *>(&bits), 0);
    }
}
/* The first n of eight numbers of a kind. */
static KVT_MEMBER void to_floats(float (&to)[OCTET], enum kvt_scale kind, const stored_eight &x, int n) {
    switch (kind) {
    case KVT_SCALE_F16: return to_eight<KVT_SCALE_F16>(to, x, n);
    case KVT_SCALE_F32: return to_eight<KVT_SCALE_F32>(to, x, n);
    case KVT_SCALE_E8M0: return to_eight<KVT_SCALE_E8M0>(to, x, n);
    case KVT_SCALE_E4M3: return to_eight<KVT_SCALE_E4M3>(to, x, n);
    case KVT_SCALE_LOG: return to_eight<KVT_SCALE_LOG>(to, x, n);
    default: return to_eight<KVT_SCALE_NONE>(to, x, n);
    }
}

/* Scales, zeros and factors of an octet. */
static KVT_MEMBER void apply_scales(float (&x)[OCTET], const stored_octet &stored, const packed_side &side) {
    const struct kvt_format &format = side.tile.format;
    const bool by_lane = side.tile.kind == KVT_TILE_LANE;
    const int n = by_lane ? 1 : OCTET;
    float scale[OCTET], zero[OCTET] = {};
    to_floats(scale, format.scale, stored.scales, n);
    if (side.zero_log >= 0 && format.zero == KVT_SCALE_SHIFT) {
#pragma unroll
        for (int k = 0; k < OCTET; k++)
            zero[k] = scale[k] * kvt_zero_shift(format.bits, (int8_t)stored_at<1>(stored.zeros, k));
    } else if (side.zero_log >= 0) {
        to_floats(zero, format.zero, stored.zeros, n);
    }
#pragma unroll
    for (int k = 0; k < OCTET; k++) x[k] = x[k] * (by_lane ? scale[0] : scale[k]) + (by_lane ? zero[0] : zero[k]);
    if (side.tile.n_slices) {
#pragma unroll
        for (int k = 0; k < OCTET; k++) x[k] *= stored.factor;
    }
}

/* Eight numbers `stride` apart. */
static KVT_MEMBER void load_numbers(float (&to)[OCTET], enum kvt_number number, const unsigned char *from, int first,
                                    int stride) {
    if (number == KVT_NUMBER_F32) {
#pragma unroll
        for (int k = 0; k < OCTET; k++) to[k] = reinterpret_cast<const float *>(from)[first + k * stride];
        return;
    }
    uint16_t halves[OCTET];
#pragma unroll
    for (int k = 0; k < OCTET; k++) halves[k] = reinterpret_cast<const uint16_t *>(from)[first + k * stride];
#pragma unroll
    for (int k = 0; k < OCTET; k++)
        to[k] = number == KVT_NUMBER_F16 ? load_number(KVT_NUMBER_F16, halves, k) : kvt_f32_from_bf16(halves[k]);
}

/* Terms 8 octet .. of the thread's lane of a block. */
static KVT_MEMBER void octet_values(float (&x)[OCTET], const packed_side &side, const unsigned char *bytes,
                                    const struct kvt_block &block, int octet, const float *table) {
    const int lane = thread_in_warp();
    if (side.tile.kind == KVT_TILE_PLAIN) {
        load_numbers(x, side.tile.number, bytes + block.codes, OCTET * octet * block.n_lanes + lane, block.n_lanes);
        return;
    }
    stored_octet stored;
    load_octet(stored, side, bytes, block, octet, lane);
    to_meanings(x, codes_of(stored, side), side, table);
    apply_scales(x, stored, side);
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
    const struct kvt_block &block = side.blocks[b];
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

/* 32 rows of CLASS keys from row0 on, a multiple of 32: x[row][channel]. */
KVT_DEVICE void unpack_classes(const matrix &x, const packed_side &k, const unsigned char *bytes, int row0,
                               const uint16_t *channels) {
    for (int quad = warp_in_block(); quad < k.d / 4; quad += warps_of_block())
        unpack_places(x, thread_in_warp(), quad, k, bytes, row0 / KVT_BLOCK_LANES, channels);
}

/* 32 rows of both sides: keys[row][channel], zeros up to a multiple of 16 channels, and values[channel][row]. tables: of keys, 16 entries on of
 * values. A warp takes an octet of 32 lanes of either side: one loop, for the code of all kinds of sides is long. */
KVT_DEVICE void unpack_unit(const matrix &keys, const matrix &values, const packed_side (&sides)[KVT_SIDE_COUNT],
                            const unsigned char *bytes, int row0, const uint16_t *channels, const float *tables) {
    constexpr int per = KVT_BLOCK_LANES / OCTET; /* of values: octets of the unit */
    const int lane = thread_in_warp(), d = sides[KVT_SIDE_K].d;
    const int n_keys = sides[KVT_SIDE_K].tile.kind == KVT_TILE_CLASS ? 0 : (d + 15) / 16 * 2;
    if (n_keys == 0) unpack_classes(keys, sides[KVT_SIDE_K], bytes, row0, channels);
    for (int task = warp_in_block(); task < n_keys + sides[KVT_SIDE_V].n_blocks * per; task += warps_of_block()) {
        const bool is_k = task < n_keys;
        const struct packed_side &side = sides[is_k ? KVT_SIDE_K : KVT_SIDE_V];
        const int i = is_k ? task : task - n_keys, b = is_k ? row0 / KVT_BLOCK_LANES : i / per,
                  octet = is_k ? i : i % per;
        const struct kvt_block &block = side.blocks[b];
        if (lane >= block.n_lanes) continue;
        const matrix to = {is_k ? keys.at : values.at, is_k ? keys.pitch : values.pitch};
        const int line = is_k ? lane : block.lane + lane;
        float x[OCTET] = {};
        if (!is_k || octet < d / OCTET)
            octet_values(x, side, bytes + side.offset, block, is_k ? octet : row0 / OCTET + octet,
                         tables + (is_k ? 0 : 16));
        *quad_of(to, line, 2 * octet) = {x[0], x[1], x[2], x[3]};
        *quad_of(to, line, 2 * octet + 1) = {x[4], x[5], x[6], x[7]};
    }
}

#endif
