/* SPDX-License-Identifier: Apache-2.0
 * What the two encoders of kq have in common: classes, scales and zeros. */
#ifndef CODEC_KQ_H
#define CODEC_KQ_H

#include "codec/class.h"

/* What a tile needs of all channels before codes are computed. */
struct kvt_kq_survey {
    float lo[KVT_LATENT_MAX], range[KVT_LATENT_MAX];
    float weight[KVT_LATENT_MAX]; /* of queries, at most 1 */
    float worth[KVT_LATENT_MAX];
    int rank[KVT_LATENT_MAX]; /* 0: of the largest worth */
    uint8_t classes[KVT_LATENT_MAX];
    int place[KVT_LATENT_MAX];
    uint16_t most[KVT_CLASSES];
};

/* What is stored of a channel, and what makes codes of its elements. */
struct kvt_kq_fit {
    uint8_t scale;
    uint16_t zero16;
    float step;
    int16_t inverse, offset; /* to codes before they are rounded, in parts of a step */
};

/* Surveys the 128 rows of a->rows with the sums of squares of their queries; null: not known. */
void kvt_kq_survey(struct kvt_kq_survey *s, const struct kvt_encode_args *a, const float *queries,
                   const struct kvt_classes *classes);
/* The elements of a channel in parts of its range. */
void kvt_kq_take_channel(int16_t t[KVT_TILE_ROWS], const struct kvt_encode_args *a, const struct kvt_kq_survey *s,
                         int c);
/* Its scale and zero; top: its largest code; bits: in the middle. */
void kvt_kq_fit_channel(struct kvt_kq_fit *f, const int16_t t[KVT_TILE_ROWS], const struct kvt_kq_survey *s, int c,
                        int top, int bits);
/* A factor of each row from two products. */
void kvt_kq_put_factors(const struct kvt_encode_args *a, const float own[KVT_TILE_ROWS],
                        const float shared[KVT_TILE_ROWS]);

/* Floats of kvt_encode_args.room. */
size_t kvt_kq_room(int d);
void kvt_kq_describe(const struct kvt_codec *codec, enum kvt_side side, int d, struct kvt_tile *out);

/* The row of a codec of b bits in the middle. */
#define KVT_KQ_ROW(b, ending, text, rows_of_queries, who)                                                              \
    {                                                                                                                  \
        .info = {.name = "kq" #b ending,                                                                               \
                 .about = text,                                                                                        \
                 .source = "kvtile's own",                                                                             \
                 .bits = b,                                                                                            \
                 .group = KVT_TILE_ROWS,                                                                               \
                 .granularity = KVT_TILE_ROWS,                                                                         \
                 .sides = KVT_SIDES_K,                                                                                 \
                 .queries = true},                                                                                     \
        .encoder = &who, .row_step = KVT_CLASS_STEP, .query_rows = rows_of_queries, .format = {                        \
            .bits = b,                                                                                                 \
            .scale = KVT_SCALE_LOG,                                                                                    \
            .has_zero = true,                                                                                          \
            .group = KVT_TILE_ROWS,                                                                                    \
            .has_factor = true                                                                                         \
        }                                                                                                              \
    }

#endif
