/* SPDX-License-Identifier: Apache-2.0
 *
 * kvarn's encoder with its choices open: for the codecs and for the published vectors.
 */
#ifndef CODEC_KVARN_H
#define CODEC_KVARN_H

#include "codec/codec.h"

struct kvt_kvarn_recipe {
    int iterations;
    bool parity;  /* the arithmetic of other libraries' encoders */
    bool rotated; /* the rows are rotated, and rounded to f16, already */
};

/* Encodes a whole tile of 128 rows. */
void kvt_kvarn_encode(const struct kvt_kvarn_recipe *recipe, const struct kvt_tile *tile, void *bytes,
                      const float *rows, ptrdiff_t stride);

#endif
