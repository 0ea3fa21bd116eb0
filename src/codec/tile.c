/* SPDX-License-Identifier: Apache-2.0
 *
 * The tile, byte by byte: where codes, scales and numbers lie, and what they mean, one element at a time.
 */
#include <string.h>

#include "base/attr.h"
#include "base/half.h"
#include "codec/class.h"

enum { VECTOR = 64, QUAD = 4 };

static size_t number_bytes(enum kvt_number number) { return number == KVT_NUMBER_F32 ? 4 : 2; }

static size_t round_vector(size_t bytes) { return (bytes + VECTOR - 1) / VECTOR * VECTOR; }

int kvt_tile_stored_terms(const struct kvt_tile *tile) {
    if (tile->kind == KVT_TILE_PLAIN) return tile->n_terms;
    return (int)kvt_round_up(tile->n_terms, kvt_planes_of(tile->format.bits).step_quads * QUAD);
}

/* Bytes of the codes or numbers of a block. */
static size_t payload_bytes(const struct kvt_tile *tile, int n_lanes) {
    const size_t elements = (size_t)kvt_tile_stored_terms(tile) * (size_t)n_lanes;
    if (tile->kind == KVT_TILE_PLAIN) return elements * number_bytes(tile->number);
    return elements * (size_t)tile->format.bits / 8;
}

static size_t scale_size(enum kvt_scale scale) {
    switch (scale) {
    case KVT_SCALE_F16: return 2;
    case KVT_SCALE_F32: return 4;
    case KVT_SCALE_E8M0:
    case KVT_SCALE_E4M3:
    case KVT_SCALE_LOG:
    case KVT_SCALE_SHIFT: return 1;
    default: return 0;
    }
}

static void set_bytes(struct kvt_tile *tile) {
    tile->factor_bytes = (size_t)tile->n_slices * KVT_BLOCK_LANES * sizeof(uint16_t);
    tile->block_bytes = tile->factor_bytes + payload_bytes(tile, KVT_BLOCK_LANES);
    const struct kvt_block last = kvt_tile_block(tile, kvt_tile_n_blocks(tile) - 1);
    tile->bytes = round_vector(last.codes + payload_bytes(tile, last.n_lanes));
}

void kvt_tile_init_plain(struct kvt_tile *tile, enum kvt_side side, int d, enum kvt_number number) {
    const bool is_k = side == KVT_SIDE_K;
    *tile = (struct kvt_tile){.kind = KVT_TILE_PLAIN,
                              .number = number,
                              .side = side,
                              .n_terms = is_k ? d : KVT_TILE_ROWS,
                              .n_lanes = is_k ? KVT_TILE_ROWS : d,
                              .lane_group = KVT_BLOCK_LANES};
    set_bytes(tile);
}

void kvt_tile_init(struct kvt_tile *tile, enum kvt_side side, int d, const struct kvt_format *format) {
    const bool is_k = side == KVT_SIDE_K, lane = is_k && format->per_token;
    const int group = format->group ? format->group : (int)kvt_round_up(d, lane ? 1 : KVT_BLOCK_LANES);
    *tile = (struct kvt_tile){.kind = lane ? KVT_TILE_LANE : KVT_TILE_FOLD,
                              .format = *format,
                              .side = side,
                              .flip = is_k || format->meaning != KVT_MEANING_INTEGER ? 0u : 1u << (format->bits - 1),
                              .n_terms = is_k ? d : KVT_TILE_ROWS,
                              .n_lanes = is_k ? KVT_TILE_ROWS : d,
                              .term_group = lane ? group : 1,
                              .lane_group = lane ? KVT_BLOCK_LANES : group};
    if (format->has_factor) tile->n_slices = is_k ? (int)kvt_div_up(d, KVT_SLICE) : 1;
    const int n_scales = lane ? (int)kvt_div_up(tile->n_terms, group) * KVT_BLOCK_LANES
                              : tile->n_terms * KVT_MAX(KVT_BLOCK_LANES / group, 1);
    tile->scale_bytes = round_vector((size_t)n_scales * scale_size(format->scale));
    tile->zero_bytes = format->has_zero ? round_vector((size_t)n_scales * scale_size(format->zero)) : 0;
    set_bytes(tile);
}

void kvt_tile_init_class(struct kvt_tile *tile, int d, const struct kvt_format *format) {
    const size_t n = (size_t)d;
    *tile = (struct kvt_tile){.kind = KVT_TILE_CLASS,
                              .format = *format,
                              .side = KVT_SIDE_K,
                              .n_terms = d,
                              .n_lanes = KVT_TILE_ROWS,
                              .term_group = 1,
                              .lane_group = KVT_TILE_ROWS,
                              .head_bytes = round_vector(KVT_CLASS_MAP + n / 4),
                              .scale_bytes = round_vector(n),
                              .zero_bytes = round_vector(2 * n),
                              .factor_bytes = KVT_TILE_ROWS,
                              .block_bytes = kvt_classes_of(d, format->bits).bytes};
    tile->bytes = kvt_tile_block(tile, kvt_tile_n_blocks(tile)).codes;
}

/* ---- codes ------------------------------------------------------------------------------------------------------------- */

/* Byte and first bit of one plane's part of a code. A block is a sequence of steps; in a step the planes follow each other,
 * each in vectors of one 32-bit word a lane; the byte of a word is the term's place in its quad. */
struct place {
    size_t byte;
    int bit;
};

static struct place code_place(const struct kvt_tile *tile, const struct kvt_block *block,
                               const struct kvt_planes *planes, int plane, int term, int lane) {
    const int quad = term / QUAD, step = quad / planes->step_quads, in_step = quad % planes->step_quads;
    const int width = planes->width[plane], per_vector = 8 / width;
    const size_t vector = (size_t)block->n_lanes * QUAD;
    size_t byte = block->codes + (size_t)(step * planes->step_quads * tile->format.bits) * vector / 8;
    if (plane == 1) byte += (size_t)(planes->step_quads * planes->width[0]) * vector / 8;
    byte += (size_t)(in_step / per_vector) * vector + (size_t)((lane - block->lane) * QUAD + term % QUAD);
    return (struct place){byte, in_step % per_vector * width};
}

void kvt_tile_put_codes(const struct kvt_tile *tile, void *bytes, int term, int lane, int d_term, int d_lane,
                        const uint8_t *codes, int n) {
    const struct kvt_planes planes = kvt_planes_of(tile->format.bits);
    struct kvt_block block = kvt_tile_block(tile, lane / KVT_BLOCK_LANES);
    for (int i = 0; i < n; i++, term += d_term, lane += d_lane) {
        if (lane - block.lane >= KVT_BLOCK_LANES) block = kvt_tile_block(tile, lane / KVT_BLOCK_LANES);
        unsigned rest = codes[i] ^ tile->flip;
        for (int p = 0; p < planes.n; p++) {
            const struct place at = code_place(tile, &block, &planes, p, term, lane);
            const unsigned mask = (1u << planes.width[p]) - 1;
            unsigned char *byte = (unsigned char *)bytes + at.byte;
            *byte = (unsigned char)((*byte & ~(mask << at.bit)) | (rest & mask) << at.bit);
            rest >>= planes.width[p];
        }
    }
}

unsigned kvt_tile_get_code(const struct kvt_tile *tile, const void *bytes, int term, int lane) {
    const struct kvt_planes planes = kvt_planes_of(tile->format.bits);
    const struct kvt_block block = kvt_tile_block(tile, lane / KVT_BLOCK_LANES);
    unsigned code = 0;
    int shift = 0;
    for (int p = 0; p < planes.n; p++) {
        const struct place at = code_place(tile, &block, &planes, p, term, lane);
        const unsigned mask = (1u << planes.width[p]) - 1;
        code |= (((const unsigned char *)bytes)[at.byte] >> at.bit & mask) << shift;
        shift += planes.width[p];
    }
    return code ^ tile->flip;
}

/* ---- scales ------------------------------------------------------------------------------------------------------------ */

int kvt_tile_scale_index(const struct kvt_tile *tile, int term, int lane) {
    if (tile->kind == KVT_TILE_LANE) return term / tile->term_group * KVT_BLOCK_LANES + lane % KVT_BLOCK_LANES;
    const bool second_half = tile->lane_group < KVT_BLOCK_LANES && lane % KVT_BLOCK_LANES >= tile->lane_group;
    return second_half ? tile->n_terms + term : term;
}

static char *at_index(const void *bytes, size_t offset, int i, size_t size) {
    return (char *)(uintptr_t)bytes + offset + (size_t)i * size;
}

static char *scale_at(const struct kvt_tile *tile, const void *bytes, int term, int lane) {
    const struct kvt_block block = kvt_tile_block(tile, lane / KVT_BLOCK_LANES);
    return at_index(bytes, block.scales, kvt_tile_scale_index(tile, term, lane), scale_size(tile->format.scale));
}

static char *zero_at(const struct kvt_tile *tile, const void *bytes, int term, int lane) {
    const struct kvt_block block = kvt_tile_block(tile, lane / KVT_BLOCK_LANES);
    return at_index(bytes, block.zeros, kvt_tile_scale_index(tile, term, lane), scale_size(tile->format.zero));
}

static char *factor_at(const struct kvt_tile *tile, const void *bytes, int slice, int lane) {
    const struct kvt_block block = kvt_tile_block(tile, lane / KVT_BLOCK_LANES);
    return at_index(bytes, block.factors, slice * KVT_BLOCK_LANES + lane % KVT_BLOCK_LANES, sizeof(uint16_t));
}

/* Little-endian, in as many bytes as the type has. */
static void put_bits(char *to, size_t size, uint32_t bits) {
    for (size_t i = 0; i < size; i++) to[i] = (char)(bits >> 8 * i);
}

static uint32_t get_bits(const char *from, size_t size) {
    uint32_t bits = 0;
    for (size_t i = 0; i < size; i++) bits |= (uint32_t)(unsigned char)from[i] << 8 * i;
    return bits;
}

void kvt_tile_put_scale(const struct kvt_tile *tile, void *bytes, int term, int lane, uint32_t bits) {
    put_bits(scale_at(tile, bytes, term, lane), scale_size(tile->format.scale), bits);
}

uint32_t kvt_tile_get_scale(const struct kvt_tile *tile, const void *bytes, int term, int lane) {
    return get_bits(scale_at(tile, bytes, term, lane), scale_size(tile->format.scale));
}

void kvt_tile_put_zero(const struct kvt_tile *tile, void *bytes, int term, int lane, uint32_t bits) {
    put_bits(zero_at(tile, bytes, term, lane), scale_size(tile->format.zero), bits);
}

uint32_t kvt_tile_get_zero(const struct kvt_tile *tile, const void *bytes, int term, int lane) {
    return get_bits(zero_at(tile, bytes, term, lane), scale_size(tile->format.zero));
}

void kvt_tile_put_factor(const struct kvt_tile *tile, void *bytes, int slice, int lane, uint16_t f16) {
    memcpy(factor_at(tile, bytes, slice, lane), &f16, sizeof f16);
}

uint16_t kvt_tile_get_factor(const struct kvt_tile *tile, const void *bytes, int slice, int lane) {
    uint16_t f16;
    memcpy(&f16, factor_at(tile, bytes, slice, lane), sizeof f16);
    return f16;
}

float kvt_scale_get(enum kvt_scale scale, const void *scales, int i) {
    uint16_t half;
    float value;
    switch (scale) {
    case KVT_SCALE_F16: memcpy(&half, (const char *)scales + 2 * i, sizeof half); return kvt_f32_from_f16(half);
    case KVT_SCALE_F32: memcpy(&value, (const char *)scales + 4 * i, sizeof value); return value;
    case KVT_SCALE_E8M0: return kvt_f32_from_e8m0(((const uint8_t *)scales)[i]);
    case KVT_SCALE_E4M3: return kvt_f32_from_e4m3(((const uint8_t *)scales)[i]);
    case KVT_SCALE_LOG: return kvt_scale_from_log(((const uint8_t *)scales)[i]);
    default: return 1;
    }
}

float kvt_zero_get(const struct kvt_format *format, const void *zeros, int i, float scale) {
    if (format->zero != KVT_SCALE_SHIFT) return kvt_scale_get(format->zero, zeros, i);
    return scale * kvt_zero_shift(format->bits, ((const int8_t *)zeros)[i]);
}

float kvt_code_value(const struct kvt_format *format, unsigned code) {
    switch (format->meaning) {
    case KVT_MEANING_TABLE: return format->table[code];
    case KVT_MEANING_E4M3: return kvt_f32_from_e4m3((uint8_t)code);
    case KVT_MEANING_E5M2: return kvt_f32_from_e5m2((uint8_t)code);
    default: return (float)((int)code - format->offset);
    }
}

/* ---- numbers ----------------------------------------------------------------------------------------------------------- */

/* Row r of a PLAIN tile: element c is at first + c * step, unless it starts another block of lanes. */
struct number_row {
    size_t first, step, block_step;
};

static struct number_row number_row(const struct kvt_tile *tile, int row) {
    const size_t size = number_bytes(tile->number);
    if (tile->side == KVT_SIDE_K) {
        const struct kvt_block block = kvt_tile_block(tile, row / KVT_BLOCK_LANES);
        return (struct number_row){block.codes + (size_t)(row - block.lane) * size, (size_t)block.n_lanes * size, 0};
    }
    return (struct number_row){0, size, payload_bytes(tile, KVT_BLOCK_LANES)};
}

static size_t number_place(const struct kvt_tile *tile, const struct number_row *at, int row, int c) {
    if (tile->side == KVT_SIDE_K) return at->first + (size_t)c * at->step;
    const int block = c / KVT_BLOCK_LANES;
    return (size_t)block * at->block_step +
           (size_t)(row * kvt_block_lanes(tile, block) + c % KVT_BLOCK_LANES) * at->step;
}

void kvt_tile_put_numbers(const struct kvt_tile *tile, void *bytes, int row, const float *x) {
    const struct number_row at = number_row(tile, row);
    const int d = kvt_tile_row_size(tile);
    for (int c = 0; c < d; c++) {
        char *to = (char *)bytes + number_place(tile, &at, row, c);
        if (tile->number == KVT_NUMBER_F32) {
            memcpy(to, &x[c], sizeof x[c]);
        } else {
            const uint16_t half = tile->number == KVT_NUMBER_F16 ? kvt_f16_from_f32(x[c]) : kvt_bf16_from_f32(x[c]);
            memcpy(to, &half, sizeof half);
        }
    }
}

static float get_number(const struct kvt_tile *tile, const void *bytes, size_t place) {
    const char *from = (const char *)bytes + place;
    float value;
    uint16_t half;
    if (tile->number == KVT_NUMBER_F32) {
        memcpy(&value, from, sizeof value);
        return value;
    }
    memcpy(&half, from, sizeof half);
    return tile->number == KVT_NUMBER_F16 ? kvt_f32_from_f16(half) : kvt_f32_from_bf16(half);
}

float kvt_tile_get(const struct kvt_tile *tile, const void *bytes, int term, int lane) {
    if (tile->kind == KVT_TILE_CLASS) {
        float x[KVT_LATENT_MAX];
        kvt_class_decode_row(tile, x, bytes, lane);
        return x[term];
    }
    if (tile->kind == KVT_TILE_PLAIN) {
        const bool is_k = tile->side == KVT_SIDE_K;
        const int row = is_k ? lane : term;
        const struct number_row at = number_row(tile, row);
        return get_number(tile, bytes, number_place(tile, &at, row, is_k ? term : lane));
    }
    const struct kvt_block block = kvt_tile_block(tile, lane / KVT_BLOCK_LANES);
    const int i = kvt_tile_scale_index(tile, term, lane);
    float value = kvt_code_value(&tile->format, kvt_tile_get_code(tile, bytes, term, lane)), scale = 1;
    if (tile->format.scale != KVT_SCALE_NONE) {
        scale = kvt_scale_get(tile->format.scale, (const char *)bytes + block.scales, i);
        value = scale * value;
    }
    if (tile->format.has_zero) value += kvt_zero_get(&tile->format, (const char *)bytes + block.zeros, i, scale);
    if (tile->n_slices)
        value *= kvt_f32_from_f16(kvt_tile_get_factor(tile, bytes, tile->n_slices > 1 ? term / KVT_SLICE : 0, lane));
    return value;
}

static void decode_numbers(const struct kvt_tile *tile, float *x, const void *bytes, int row) {
    const struct number_row at = number_row(tile, row);
    const int d = kvt_tile_row_size(tile);
    for (int c = 0; c < d; c++) x[c] = get_number(tile, bytes, number_place(tile, &at, row, c));
}

void kvt_tile_decode(const struct kvt_tile *tile, float *rows, ptrdiff_t stride, const void *bytes, int first, int n) {
    const bool is_k = tile->side == KVT_SIDE_K;
    const int d = kvt_tile_row_size(tile);
    for (int r = 0; r < n; r++) {
        float *x = rows + r * stride;
        const int row = first + r;
        if (tile->kind == KVT_TILE_PLAIN)
            decode_numbers(tile, x, bytes, row);
        else if (tile->kind == KVT_TILE_CLASS)
            kvt_class_decode_row(tile, x, bytes, row);
        else
            for (int c = 0; c < d; c++)
                x[c] = is_k ? kvt_tile_get(tile, bytes, c, row) : kvt_tile_get(tile, bytes, row, c);
        if (tile->format.rotated) kvt_rotate(x, d);
    }
}
