/* SPDX-License-Identifier: Apache-2.0
 *
 * What fused kernels share at all levels: the rule by which a group takes 16 bits, and how a table becomes integers.
 */
#ifndef KERNEL_FUSED_H
#define KERNEL_FUSED_H

#include <math.h>

#include "base/attr.h"
#include "base/num.h"
#include "kernel/kernel.h"

enum {
    KVT_SEGMENT = 128,    /* terms whose products have one factor, at most: 128 * 255 * 32767 < 2^31 */
    KVT_WIDE_TOP = 32767, /* largest rounded number in 16 bits */
    KVT_QUERY_TOP = 127,
    KVT_NARROW_BITS = 4 /* widest codes that meet the rule with 8-bit numbers */
};

/* Rounding noise that numbers of 8 bits may add, as a share of the codec's own noise in the same sum: for queries in each group,
 * for weights over all that was mixed so far. And never more than KVT_NATS in a score: where scores are far larger than 1
 * the codec's own attention error saturates, and a share of its score error would be too much. */
#define KVT_SHARE_K 0.16f
#define KVT_SHARE_V 0.2f
#define KVT_NATS    0.1f
/* Times the share that noise may be in a group whose scales are smaller than those of the tile's others. */
#define KVT_SPREAD 1.5f

/* A table of values as 8-bit integers times a unit: exact where all are multiples of a half, else to 1/254 of the largest. */
struct kvt_codebook {
    _Alignas(16) int8_t entry[16];
    float unit;
};

static inline struct kvt_codebook kvt_codebook_of(const struct kvt_format *format) {
    struct kvt_codebook book = {.unit = 1};
    if (format->meaning != KVT_MEANING_TABLE) return book;
    const int n = 1 << format->bits;
    float top = 0;
    bool halves = true;
    for (int i = 0; i < n; i++) {
        const float v = 2 * format->table[i];
        top = fabsf(v) > top ? fabsf(v) : top;
        halves = halves && v == rintf(v) && fabsf(v) <= 127;
    }
    book.unit = halves ? 0.5f : top / 254;
    for (int i = 0; i < n; i++) book.entry[i] = (int8_t)rintf(format->table[i] / book.unit);
    return book;
}

/* The middle of the codes, which are taken less this. K codes are unsigned; V codes are signed by
 * their flipped top bit. A table's values are what they are. */
static inline float kvt_code_middle(const struct kvt_tile *tile) {
    if (tile->format.meaning == KVT_MEANING_TABLE) return 0;
    const int n = 1 << tile->format.bits;
    return tile->side == KVT_SIDE_K ? (float)(n - 1) / 2 : (float)(n / 2);
}

#endif
