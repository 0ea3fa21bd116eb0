/* SPDX-License-Identifier: Apache-2.0
 *
 * CLASS tiles (docs/formats.md, section 9): keys whose channels have three widths. Channels have places: those of the first class in their
 * own order, then the second's and the third's; all that is stored of a channel is stored at its place.
 */
#ifndef CODEC_CLASS_H
#define CODEC_CLASS_H

#include "codec/codec.h"
#include "codec/log8.h"

enum {
    KVT_CLASSES = 3,
    KVT_CLASS_STEP = 16,      /* row sizes are multiples of it, so that a quad has one class */
    KVT_CLASS_SCALE_PER = 32, /* steps of a scale in an octave */
    KVT_CLASS_FACTOR_PER = 64,
    KVT_CLASS_MAP = 8 /* offset of the class map */
};

/* A class: its places [first, end), the width of its codes, and where those lie: in one plane or in two, low bits first. `at` is the place in
 * the plane of the class's first code. */
struct kvt_class {
    int first, end, bits, n_parts;
    struct {
        int width, at;
    } part[2];
};

struct kvt_classes {
    struct kvt_class of[KVT_CLASSES];
    size_t plane[5]; /* by width, 1, 4, 2 in this order: offset in a block's codes */
    size_t bytes;    /* of a block's codes */
};

/* Bytes of n codes of a plane for 32 rows: a vector has a word of a quad for each row, 8 / width quads in its words. */
KVT_INLINE size_t kvt_class_plane_bytes(int n, int width) {
    return (size_t)((n * width + 31) / 32) * KVT_BLOCK_LANES * 4;
}

/* Those of rows of d elements, b bits in the middle. */
KVT_INLINE struct kvt_classes kvt_classes_of(int d, int b) {
    struct kvt_classes c = {.bytes = 0};
    int filled[5] = {0}, first = 0;
    for (int i = 0; i < KVT_CLASSES; i++) {
        struct kvt_class *k = &c.of[i];
        k->first = first;
        first = k->end = first + (i == 1 ? d / 2 : d / 4);
        k->bits = b + 1 - i;
        for (int rest = k->bits, width; rest > 0; rest -= width) {
            width = rest >= 4 ? 4 : rest >= 2 ? 2 : 1;
            k->part[k->n_parts].width = width;
            k->part[k->n_parts++].at = filled[width];
            filled[width] += k->end - k->first;
        }
    }
    const int order[] = {1, 4, 2};
    for (int i = 0; i < 3; i++) {
        c.plane[order[i]] = c.bytes;
        c.bytes += kvt_class_plane_bytes(filled[order[i]], order[i]);
    }
    return c;
}

/* The class of a place. */
KVT_INLINE int kvt_class_of_place(const struct kvt_classes *classes, int place) {
    return place < classes->of[1].first ? 0 : place < classes->of[2].first ? 1 : 2;
}

/* Fills channels[place] for all places. Any bytes give a permutation: a channel whose class is full goes to the next that is not. */
void kvt_class_read_map(const struct kvt_tile *tile, const void *bytes, uint16_t *channels);

/* What one place's codes mean: middle + factor(row) * (step * (code - half)), one rounding an operation. */
struct kvt_class_place {
    float step, middle, half;
};
KVT_INLINE struct kvt_class_place kvt_class_place_of(float step, float zero, int bits) {
    const float half = (float)((1 << bits) - 1) / 2;
    return (struct kvt_class_place){step, zero + step * half, half};
}
KVT_INLINE float kvt_class_value(const struct kvt_class_place *p, float factor, unsigned code) {
    return p->middle + factor * (p->step * ((float)code - p->half));
}
KVT_INLINE float kvt_class_factor(int8_t stored) { return kvt_log8_value(stored, KVT_CLASS_FACTOR_PER); }
/* A stored scale: `most` is its class's largest. */
KVT_INLINE float kvt_class_scale(float most, uint8_t stored) {
    return most * kvt_log8_value(-(int)stored, KVT_CLASS_SCALE_PER);
}

/* Encoders compute codes before they are rounded in parts of a step, with `bits` in the middle: the largest take half of 16 bits. */
KVT_INLINE int kvt_class_parts(int bits) { return 1 << (13 - bits); }

/* How elements, in parts of 2^15 of their channel's range, become the first codes: their product with inverse / 2^15, then, unless offset is 0,
 * offset added, the product with round / 2^15, and cut to 0 .. top. With 2 and 3 bits these codes span nine tenths of the range. */
struct kvt_class_first {
    int inverse, offset, round;
};
KVT_INLINE struct kvt_class_first kvt_class_first_of(int top, int bits) {
    const int fine = top * kvt_class_parts(bits), inverse = (fine * 10 + 4) / 9;
    if (bits == 4) return (struct kvt_class_first){top, 0, 0};
    return (struct kvt_class_first){inverse, (fine - inverse) / 2, 4 << bits /* 2^15 / kvt_class_parts(bits) */};
}

/* What an encoder writes: the head, with the class of each channel; all of a place; the factors of all rows. */
void kvt_class_put_head(const struct kvt_tile *tile, void *bytes, const uint16_t most[KVT_CLASSES],
                        const uint8_t *classes);
void kvt_class_put_place(const struct kvt_tile *tile, void *bytes, int place, uint8_t scale, uint16_t zero,
                         const uint8_t codes[KVT_TILE_ROWS]);
void kvt_class_put_factors(const struct kvt_tile *tile, void *bytes, const int8_t factors[KVT_TILE_ROWS]);
/* A row's elements, by channel. */
void kvt_class_decode_row(const struct kvt_tile *tile, float *x, const void *bytes, int row);
/* A stored code. */
unsigned kvt_class_get_code(const struct kvt_tile *tile, const void *bytes, int place, int row);

#endif
