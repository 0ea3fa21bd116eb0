/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles to units of f16: any codec's rows, rotated back to the basis they came in, as matrices that tensor cores read (wgmma.cuh). Keys are
 * matrices of 64 channels with a line for each row, values of 64 rows with a line for each channel: eight terms of a lane of a tile, as
 * they are unpacked, are a chunk of a line on both sides.
 */
#include "backend/cuda/unpack.cuh"

#include "backend/cuda/prefill_unpack.cuh"

extern "C" {
#include "base/check.h"
}

namespace {

enum { UNPACK_THREADS = 256, LINE_BYTES = 128, CHUNKS = LINE_BYTES / 16, ROWS = KVT_BLOCK_LANES };

struct unpack_args {
    struct packed_side side[2][KVT_SIDE_COUNT]; /* of the body, of sink and tail */
    uint32_t head_bytes[KVT_REGION_COUNT];
    const struct kvt_cuda_prompt *prompts;
    const struct kvt_cuda_prefill_head *heads;
    unsigned char *units;
    uint32_t unit_bytes, key_bytes;
    int d, unit_rows;
    float norm; /* what a rotation multiplies by */
};

/* One side of a unit: its matrices have so many lines each. */
struct unit_side {
    unsigned char *at;
    int n_lines;
};

struct alignas(16) chunk {
    uint32_t words[4];
};

KVT_DEVICE uint32_t half_of(float x) {
    x = fminf(fmaxf(x, -65504.f), 65504.f);
#if defined(__CUDA_ARCH__)
    return __half_as_ushort(__float2half_rn(x));
#else
    return kvt_f16_from_f32(x);
#endif
}

/* Stores a chunk: of terms 8 octet .. of a line. Finite whatever the numbers were: rows that nobody sees are multiplied by zero. */
KVT_DEVICE void put_octet(const unit_side &unit, int line, int octet, const float (&x)[OCTET]) {
    chunk c;
#pragma unroll
    for (int i = 0; i < 4; i++) c.words[i] = half_of(x[2 * i]) | half_of(x[2 * i + 1]) << 16;
    unsigned char *matrix = unit.at + (ptrdiff_t)(octet / CHUNKS * unit.n_lines + line) * LINE_BYTES;
    reinterpret_cast<chunk *>(matrix)[(octet ^ line) % CHUNKS] = c;
}

/* 32 rows of a tile, from row0 on, which are the unit's from `first` on. A warp takes an octet of terms of 32 lanes at a time: of keys lanes
 * are the rows, of values terms are. Rotated rows go to x[row * pitch + channel] first. */
KVT_DEVICE void unpack_lanes(const unit_side &unit, const packed_side &side, const unsigned char *tile, int row0,
                             int first, const float *table, float *x) {
    const bool is_k = side.tile.side == KVT_SIDE_K;
    const int per = ROWS / OCTET, pitch = side.d | 1, lane = thread_in_warp();
    const int n = is_k ? side.d / OCTET : side.n_blocks * per;
    for (int task = warp_in_block(); task < n; task += warps_of_block()) {
        const int octet = is_k ? task : task % per,
                  b = is_k ? 0 : task / per; /* octet: of the unit's 32 rows, or channels */
        const struct kvt_block &block = side.blocks[is_k ? row0 / ROWS : b];
        if (lane >= block.n_lanes) continue;
        float v[OCTET];
        const int terms = is_k ? octet : row0 / OCTET + octet;
        octet_values(v, side, tile, block, terms, table);
        if (!side.tile.format.rotated)
            put_octet(unit, is_k ? first + lane : b * KVT_BLOCK_LANES + lane, is_k ? octet : first / OCTET + octet, v);
        else
#pragma unroll
            for (int k = 0; k < OCTET; k++)
                x[is_k ? lane * pitch + octet * OCTET + k : (octet * OCTET + k) * pitch + b * KVT_BLOCK_LANES + lane] =
                    v[k];
    }
}

/* Rotates rows back, and brings them to their unit. */
KVT_DEVICE void put_rotated(const unit_side &unit, bool is_k, int d, int first, float norm, float *x) {
    const int pitch = d | 1, per = ROWS / OCTET;
    __syncthreads();
    const struct unit all = {0, ROWS, 0, d, 0, ROWS, 0, d, pitch};
    rotate_unit(x, all, false, norm, false);
    for (int i = (int)threadIdx.x; i < d * per; i += UNPACK_THREADS) {
        float v[OCTET];
        const int row = i % ROWS, octet = is_k ? i / ROWS : i / d, channel = i % d;
#pragma unroll
        for (int k = 0; k < OCTET; k++)
            v[k] = is_k ? x[row * pitch + octet * OCTET + k] : x[(octet * OCTET + k) * pitch + channel];
        put_octet(unit, is_k ? first + row : channel, is_k ? octet : first / OCTET + octet, v);
    }
}

/* Keys whose channels have three widths. */
KVT_DEVICE void unpack_class(const unit_side &unit, const packed_side &side, const unsigned char *tile, int row0,
                             int first, float *x) {
    const matrix rows = {x, (side.d + 31) / 32 * 32};
    uint16_t *channels = reinterpret_cast<uint16_t *>(x + ROWS * rows.pitch);
    if (warp_in_block() == 0) list_channels(channels, side, tile);
    __syncthreads();
    unpack_classes(rows, side, tile, row0, channels);
    __syncthreads();
    const int row = thread_in_warp();
    for (int octet = warp_in_block(); octet < side.d / OCTET; octet += warps_of_block()) {
        const float_quad a = *quad_of(rows, row, 2 * octet), b = *quad_of(rows, row, 2 * octet + 1);
        const float v[OCTET] = {a.at[0], a.at[1], a.at[2], a.at[3], b.at[0], b.at[1], b.at[2], b.at[3]};
        put_octet(unit, first + row, octet, v);
    }
}

/* A block of threads takes one side of a unit: blockIdx.x of all of a head's, blockIdx.y the head and the side. */
KVT_KERNEL_WITH(UNPACK_THREADS, 3) unpack_rows(KVT_ARGS struct unpack_args a) {
    KVT_OF_BLOCK float table[16];
    const struct kvt_cuda_prefill_head head = a.heads[blockIdx.y / KVT_SIDE_COUNT];
    const struct kvt_cuda_prompt &prompt = a.prompts[head.prompt];
    const int number = (int)blockIdx.x, which = (int)blockIdx.y % KVT_SIDE_COUNT;
    int u = number, region = KVT_REGION_BODY;
    if (u >= prompt.n_units[region]) u -= prompt.n_units[region], region = KVT_REGION_SINK;
    if (region == KVT_REGION_SINK && u >= prompt.n_units[region]) u -= prompt.n_units[region], region = KVT_REGION_TAIL;
    if (u >= prompt.n_units[region]) return;
    const int is_plain = region != KVT_REGION_BODY, row = (prompt.first_unit[region] + u) * a.unit_rows;
    const struct packed_side &side = a.side[is_plain][which];
    const unsigned char *tile = static_cast<const unsigned char *>(prompt.pages[region][row / KVT_TILE_ROWS]) +
                                (size_t)head.head * a.head_bytes[region] + side.offset;
    unsigned char *at =
        a.units + (size_t)(head.first + number) * a.unit_bytes + (which == KVT_SIDE_K ? 0 : a.key_bytes);
    const unit_side unit = {at, which == KVT_SIDE_K ? a.unit_rows : a.d};
    float *x = reinterpret_cast<float *>(kvt_shared);
    if (threadIdx.x < 16) table[threadIdx.x] = side.table[threadIdx.x];
    __syncthreads();
    for (int first = 0; first < a.unit_rows; first += ROWS) {
        const int row0 = row % KVT_TILE_ROWS + first;
        if (side.tile.kind == KVT_TILE_CLASS) {
            unpack_class(unit, side, tile, row0, first, x);
            __syncthreads(); /* before x is filled again */
            continue;
        }
        unpack_lanes(unit, side, tile, row0, first, table, x);
        if (!side.tile.format.rotated) continue;
        put_rotated(unit, which == KVT_SIDE_K, a.d, first, a.norm, x);
        __syncthreads();
    }
}

} /* namespace */

enum kvt_status kvt_cuda_prefill_unpack(const struct kvt_cuda_prefill *prefill, void *stream, struct kvt_error *err) {
    const int d = kvt_tile_row_size(&prefill->call.body.tile[KVT_SIDE_K]), unit_rows = kvt_cuda_prefill_unit_rows(d);
    struct unpack_args a = {};
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        a.side[0][side] = packed_side_of(prefill->call.body, (enum kvt_side)side);
        a.side[1][side] = packed_side_of(prefill->call.plain, (enum kvt_side)side);
    }
    for (int region = 0; region < KVT_REGION_COUNT; region++)
        a.head_bytes[region] = (uint32_t)prefill->head_bytes[region];
    a.prompts = prefill->prompts;
    a.heads = prefill->heads;
    a.units = static_cast<unsigned char *>(prefill->units);
    a.unit_bytes = (uint32_t)kvt_cuda_prefill_unit_bytes(d);
    a.key_bytes = (uint32_t)(unit_rows * ((d + 63) / 64) * LINE_BYTES);
    a.d = d;
    a.unit_rows = unit_rows;
    a.norm = (float)(1.0 / sqrt((double)(d & -d)));
    const bool room = a.side[0][0].tile.format.rotated || a.side[0][1].tile.format.rotated ||
                      a.side[0][0].tile.kind == KVT_TILE_CLASS;
    const size_t shared = room ? (size_t)ROWS * (size_t)(d + 32) * sizeof(float) + (size_t)d * sizeof(uint16_t) : 0;
    const char *fault =
        launch(unpack_rows, prefill->most_units, prefill->n_heads * KVT_SIDE_COUNT, UNPACK_THREADS, shared, stream, a);
    if (!fault) return KVT_OK;
    return kvt_fail(err, KVT_ERR_DEVICE, "CUDA, unpacking a prompt's rows: %s", fault);
}
