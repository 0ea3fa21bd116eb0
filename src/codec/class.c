/* SPDX-License-Identifier: Apache-2.0
 *
 * CLASS tiles, one element at a time.
 */
#include "codec/class.h"

#include <string.h>

#include "base/attr.h"

enum { VECTOR = KVT_BLOCK_LANES * 4 };

static const unsigned char *at(const void *bytes, size_t offset) { return (const unsigned char *)bytes + offset; }

static float load_half(const unsigned char *from) {
    uint16_t half;
    memcpy(&half, from, sizeof half);
    return kvt_f32_from_f16(half);
}

void kvt_class_read_map(const struct kvt_tile *tile, const void *bytes, uint16_t *channels) {
    const struct kvt_classes classes = kvt_classes_of(tile->n_terms, tile->format.bits);
    const unsigned char *map = at(bytes, KVT_CLASS_MAP);
    int next[KVT_CLASSES];
    for (int i = 0; i < KVT_CLASSES; i++) next[i] = classes.of[i].first;
    for (int c = 0; c < tile->n_terms; c++) {
        int class = KVT_MIN(map[c / 4] >> c % 4 * 2 & 3, KVT_CLASSES - 1);
        while (next[class] == classes.of[class].end) class = (class + 1) % KVT_CLASSES;
        channels[next[class]++] = (uint16_t)c;
    }
}

static struct kvt_class_place get_place(const struct kvt_tile *tile, const void *bytes,
                                        const struct kvt_classes *classes, int place) {
    const struct kvt_block block = kvt_tile_block(tile, 0);
    const int class = kvt_class_of_place(classes, place);
    const float most = load_half(at(bytes, (size_t) class * 2)),
                zero = load_half(at(bytes, block.zeros + (size_t)place * 2));
    return kvt_class_place_of(kvt_class_scale(most, *at(bytes, block.scales + (size_t)place)), zero,
                              classes->of[class].bits);
}

/* Of one part of the code of a place and row: the byte, and the first bit in it. */
static size_t part_at(const struct kvt_tile *tile, const struct kvt_classes *classes, const struct kvt_class *class,
                      int part, int place, int row, int *bit) {
    const int width = class->part[part].width, i = class->part[part].at + place - class->first;
    const int quad = i / 4, per_vector = 8 / width;
    *bit = quad % per_vector * width;
    return kvt_tile_block(tile, row / KVT_BLOCK_LANES).codes + classes->plane[width] +
           (size_t)(quad / per_vector * VECTOR + row % KVT_BLOCK_LANES * 4 + i % 4);
}

static unsigned get_code(const struct kvt_tile *tile, const void *bytes, const struct kvt_classes *classes, int place,
                         int row) {
    const struct kvt_class *class = &classes->of[kvt_class_of_place(classes, place)];
    unsigned code = 0;
    for (int p = 0, shift = 0, bit; p < class->n_parts; shift += class->part[p++].width) {
        const unsigned byte = *at(bytes, part_at(tile, classes, class, p, place, row, &bit));
        code |= (byte >> bit & ((1u << class->part[p].width) - 1)) << shift;
    }
    return code;
}

unsigned kvt_class_get_code(const struct kvt_tile *tile, const void *bytes, int place, int row) {
    const struct kvt_classes classes = kvt_classes_of(tile->n_terms, tile->format.bits);
    return get_code(tile, bytes, &classes, place, row);
}

void kvt_class_decode_row(const struct kvt_tile *tile, float *x, const void *bytes, int row) {
    const struct kvt_classes classes = kvt_classes_of(tile->n_terms, tile->format.bits);
    const float factor = kvt_class_factor(((const int8_t *)bytes)[kvt_tile_block(tile, 0).factors + (size_t)row]);
    uint16_t channels[KVT_LATENT_MAX];
    kvt_class_read_map(tile, bytes, channels);
    for (int i = 0; i < tile->n_terms; i++) {
        const struct kvt_class_place place = get_place(tile, bytes, &classes, i);
        x[channels[i]] = kvt_class_value(&place, factor, get_code(tile, bytes, &classes, i, row));
    }
}

void kvt_class_put_head(const struct kvt_tile *tile, void *bytes, const uint16_t most[KVT_CLASSES],
                        const uint8_t *classes) {
    unsigned char *head = bytes;
    memset(head, 0, tile->head_bytes);
    memcpy(head, most, KVT_CLASSES * sizeof *most);
    for (int c = 0; c < tile->n_terms; c += 4)
        head[KVT_CLASS_MAP + c / 4] =
            (unsigned char)(classes[c] | classes[c + 1] << 2 | classes[c + 2] << 4 | classes[c + 3] << 6);
}

void kvt_class_put_place(const struct kvt_tile *tile, void *bytes, int place, uint8_t scale, uint16_t zero,
                         const uint8_t codes[KVT_TILE_ROWS]) {
    const struct kvt_classes classes = kvt_classes_of(tile->n_terms, tile->format.bits);
    const struct kvt_class *class = &classes.of[kvt_class_of_place(&classes, place)];
    const struct kvt_block block = kvt_tile_block(tile, 0);
    unsigned char *to = bytes;
    to[block.scales + (size_t)place] = scale;
    memcpy(to + block.zeros + (size_t)place * 2, &zero, sizeof zero);
    for (int p = 0, shift = 0; p < class->n_parts; shift += class->part[p++].width) {
        const unsigned mask = (1u << class->part[p].width) - 1;
        for (int row = 0; row < KVT_TILE_ROWS; row++) {
            int bit;
            unsigned char *byte = to + part_at(tile, &classes, class, p, place, row, &bit);
            *byte = (unsigned char)((*byte & ~(mask << bit)) | (codes[row] >> shift & mask) << bit);
        }
    }
}

void kvt_class_put_factors(const struct kvt_tile *tile, void *bytes, const int8_t factors[KVT_TILE_ROWS]) {
    memcpy((char *)bytes + kvt_tile_block(tile, 0).factors, factors, KVT_TILE_ROWS);
}
