/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on the device: choosing a kernel and launching it.
 */
#include "backend/cuda/attend_tile.cuh"
#include "backend/cuda/check.cuh"

extern "C" {
#include "base/half.h"
#include "codec/class.h"
}

namespace kvt {

static uint32_t halves(float x) { return kvt_f16_from_f32(x) * 0x00010001u; }

// Where octets lie in the planes of codes of `bits` bits: docs/formats.md, section 4.
static void set_planes(Side *side) {
    const struct kvt_planes planes = kvt_planes_of(side->bits);
    uint32_t flip = side->flip;
    int bit = 0;
    for (int p = 0; p < planes.n; p++) {
        Plane *plane = &side->planes[p];
        const int width = planes.width[p], in_vector = 4 / width; // octets in a vector
        const int octets = planes.step_quads / 2;                 // of a step
        plane->width = width;
        plane->mask = ((1u << width) - 1) * 0x00010001u;
        plane->flip = (flip & ((1u << width) - 1)) * 0x00010001u;
        plane->up = halves((float)(1 << bit));
        plane->down = halves(1.f / (float)(1 << width));
        for (int c = 0; c < 4; c++) {
            const int before = p ? octets * planes.width[0] / 4 : 0; // vectors of the first plane in a step
            const int vector = c / octets * (octets * side->bits / 4) + before + c % octets / in_vector;
            plane->vectors |= (uint32_t)vector << 4 * c;
            plane->shifts |= (uint32_t)(c % octets % in_vector * 2 * width) << 4 * c;
        }
        flip >>= width;
        bit += width;
    }
    for (int c = 0; c < 4; c++) // the chunks of one octet's vectors go where those of another's do not
        for (int p = 0; p < planes.n; p++) {
            const uint32_t v = side->planes[p].vectors >> 4 * c & 15;
            side->turns = (side->turns & ~(15u << 4 * v)) | (uint32_t)(2 * c) << 4 * v;
        }
}

static Table table_of(const struct kvt_tile *tile) {
    const struct kvt_format *f = &tile->format;
    const bool lane = tile->kind == KVT_TILE_LANE;
    const int d = kvt_tile_row_size(tile), group = lane ? tile->term_group : tile->lane_group;
    Table t = {};
    t.meaning = f->meaning, t.scale = f->scale;
    t.scale_bytes = f->scale == KVT_SCALE_NONE ? 0 : f->scale == KVT_SCALE_F32 ? 4 : f->scale == KVT_SCALE_F16 ? 2 : 1;
    t.n_lists = group < d ? d / group : 1;
    while (1 << t.group_log < group) t.group_log++;
    t.halves = !lane && group < KVT_BLOCK_LANES;
    for (int i = 0; f->meaning == KVT_MEANING_TABLE && i < 1 << f->bits; i++) {
        const uint32_t half = kvt_f16_from_f32(f->table[i]);
        t.low[i / 4] |= (half & 255) << i % 4 * 8;
        t.high[i / 4] |= half >> 8 << i % 4 * 8;
    }
    return t;
}

static Side side_of(const struct kvt_tile *tile, uint32_t offset) {
    Side side = {};
    const bool plain = tile->kind == KVT_TILE_PLAIN;
    for (int b = 0; b < kvt_tile_n_blocks(tile); b++) {
        const struct kvt_block block = kvt_tile_block(tile, b);
        side.scales[b] = offset + (uint32_t)block.scales;
        side.codes[b] = offset + (uint32_t)block.codes;
        side.factors[b] = offset + (uint32_t)block.factors;
    }
    side.scale_step = side.scales[2] - side.scales[0];
    side.code_step = side.codes[2] - side.codes[0];
    side.lane = tile->kind == KVT_TILE_LANE;
    side.scale_bytes = (uint32_t)tile->scale_bytes;
    side.bits = plain ? 0 : tile->format.bits;
    side.group = side.lane ? tile->term_group : tile->lane_group;
    side.per = side.group < 32 ? 1 : side.group / 32;
    while (1 << side.per_log < side.per) side.per_log++;
    side.groups = tile->n_lanes > side.group ? tile->n_lanes / side.group : 1;
    side.code_offset = plain ? 0 : tile->format.offset;
    side.flip = tile->flip;
    side.has_zero = !plain && tile->format.has_zero;
    side.has_factor = !plain && tile->n_slices > 0;
    side.tabled = !plain && tile->kind != KVT_TILE_CLASS && tile->format.meaning != KVT_MEANING_INTEGER;
    if (side.tabled) side.table = table_of(tile);
    side.classed = tile->kind == KVT_TILE_CLASS;
    side.logs = !plain && tile->format.scale == KVT_SCALE_LOG && !side.classed;
    if (!plain && !side.classed) set_planes(&side);
    return side;
}

static Page page_of(const struct kvt_cuda_page *page) {
    Page p;
    p.k = side_of(&page->tile[KVT_SIDE_K], 0);
    p.v = side_of(&page->tile[KVT_SIDE_V], (uint32_t)page->tile[KVT_SIDE_K].bytes);
    p.head_bytes = (uint32_t)page->head_bytes;
    return p;
}

// Whether a side's tiles are those of attend_tile.cuh: f16 rows, or whole numbers with f16 scales, for values also with scales of a byte.
static bool knows_side(const struct kvt_tile *tile, int d, int n_columns) {
    const struct kvt_format *f = &tile->format;
    if (tile->kind == KVT_TILE_PLAIN) return tile->number == KVT_NUMBER_F16;
    if (tile->kind == KVT_TILE_CLASS) return d == 128 && n_columns == KVT_CUDA_FEW_COLUMNS;
    if (f->meaning != KVT_MEANING_INTEGER || tile->n_slices > 1 || (tile->n_slices && f->offset)) return false;
    const int group = tile->kind == KVT_TILE_LANE ? tile->term_group : tile->lane_group;
    if (group < 32 || (group & (group - 1)) || (d % group != 0 && group < d)) return false;
    if (tile->side == KVT_SIDE_V && f->scale == KVT_SCALE_LOG) return f->zero == KVT_SCALE_SHIFT && group >= 128;
    if (f->scale != KVT_SCALE_F16 || (f->has_zero && f->zero != KVT_SCALE_F16)) return false;
    return !(tile->side == KVT_SIDE_K && tile->kind == KVT_TILE_FOLD && (f->offset || !f->has_zero));
}

// Whether both sides have codes that attend_table.cuh reads.
static bool knows_tables(const struct kvt_tile *k, const struct kvt_tile *v, int d, int n_columns) {
    if (k->kind != KVT_TILE_LANE || v->kind != KVT_TILE_FOLD || d != 128 || n_columns != KVT_CUDA_FEW_COLUMNS)
        return false;
    for (const struct kvt_tile *tile : {k, v}) {
        const struct kvt_format *f = &tile->format;
        const int group = tile->kind == KVT_TILE_LANE ? tile->term_group : tile->lane_group;
        const bool floats = f->meaning == KVT_MEANING_E4M3 || f->meaning == KVT_MEANING_E5M2;
        if (!(floats ? f->bits == 8 : f->meaning == KVT_MEANING_TABLE && f->bits <= 4)) return false;
        if (f->has_zero || tile->n_slices || group < 16 || (group & (group - 1)) || tile->flip) return false;
        if (f->scale == KVT_SCALE_LOG || f->scale == KVT_SCALE_SHIFT) return false;
    }
    return true;
}

// Whether the kernels of attend_kernel.cuh read these pages: keys and values both packed or both not.
static bool knows(const struct kvt_cuda_page *body, const struct kvt_cuda_page *plain, int n_columns) {
    const struct kvt_tile *k = &body->tile[KVT_SIDE_K], *v = &body->tile[KVT_SIDE_V];
    const int d = kvt_tile_row_size(k);
    if (d != kvt_tile_row_size(v) || (d != 64 && d != 128 && d != 256)) return false;
    if (knows_tables(k, v, d, n_columns))
        return plain->tile[KVT_SIDE_K].number == KVT_NUMBER_F16 && plain->tile[KVT_SIDE_V].number == KVT_NUMBER_F16;
    for (int side = 0; side < KVT_SIDE_COUNT; side++)
        if (!knows_side(&body->tile[side], d, n_columns) || !knows_side(&plain->tile[side], d, n_columns)) return false;
    if (k->kind == KVT_TILE_CLASS && (v->format.bits != k->format.bits || v->format.scale != KVT_SCALE_LOG))
        return false;
    return (k->kind == KVT_TILE_PLAIN) == (v->kind == KVT_TILE_PLAIN);
}

static Args args_of(const struct kvt_cuda_page *body, const struct kvt_cuda_page *plain) {
    Args args;
    args.body = page_of(body);
    args.plain = page_of(plain);
    args.rotated_k = body->tile[KVT_SIDE_K].format.rotated;
    args.rotated_v = body->tile[KVT_SIDE_V].format.rotated;
    return args;
}

} // namespace kvt

extern "C" int kvt_cuda_attend_columns(const struct kvt_cuda_page *body, const struct kvt_cuda_page *plain,
                                       int longest) {
    if (longest <= KVT_CUDA_FEW_COLUMNS) return KVT_CUDA_FEW_COLUMNS;
    const bool narrow = kvt::knows(body, plain, KVT_CUDA_FEW_COLUMNS), wide = kvt::knows(body, plain, KVT_CUDA_COLUMNS);
    if (!narrow) return KVT_CUDA_COLUMNS;
    if (!wide) return KVT_CUDA_FEW_COLUMNS;
    const bool is_usual_size = kvt_tile_row_size(&body->tile[KVT_SIDE_K]) == 128;
    const kvt::Args args = kvt::args_of(body, plain);
    return is_usual_size && kvt::knows_codes<1>(args) && !kvt::knows_codes<2>(args) ? KVT_CUDA_FEW_COLUMNS
                                                                                    : KVT_CUDA_COLUMNS;
}

extern "C" struct kvt_cuda_cut kvt_cuda_attend_cut(const struct kvt_cuda_page *body, const struct kvt_cuda_page *plain,
                                                   int n_columns) {
    const bool known = kvt::knows(body, plain, n_columns);
    struct kvt_cuda_cut cut = {{KVT_CUDA_PLAIN_ROWS, KVT_CUDA_PLAIN_ROWS, KVT_CUDA_PLAIN_ROWS},
                               known ? 1 : kvt_cuda_attend_any_blocks(body, n_columns)};
    if (known && body->tile[KVT_SIDE_K].kind != KVT_TILE_PLAIN) cut.rows[KVT_REGION_BODY] = KVT_CUDA_CODED_ROWS;
    return cut;
}

static cudaError_t launch(kvt::Args *args, cudaStream_t on) {
    const bool one = args->call.n_columns == 8;
    switch (kvt_tile_row_size(&args->call.body.tile[KVT_SIDE_K])) {
    case 64: return one ? kvt::launch<64, 1>(args, on) : kvt::launch<64, 2>(args, on);
    case 128: return one ? kvt::launch<128, 1>(args, on) : kvt::launch<128, 2>(args, on);
    case 256: return one ? kvt::launch<256, 1>(args, on) : kvt::launch<256, 2>(args, on);
    default: return cudaErrorInvalidValue;
    }
}

extern "C" enum kvt_status kvt_cuda_attend_launch(const struct kvt_cuda_attend *attend, void *stream,
                                                  struct kvt_error *err) {
    if (!kvt::knows(&attend->body, &attend->plain, attend->n_columns))
        return kvt_cuda_attend_any_launch(attend, stream, err);
    kvt::Args args = kvt::args_of(&attend->body, &attend->plain);
    args.sink_head_bytes = (uint32_t)attend->sink_head_bytes;
    args.call = *attend;
    return kvt_cuda_status(launch(&args, static_cast<cudaStream_t>(stream)), "launching attention", err);
}
