/* SPDX-License-Identifier: Apache-2.0
 * Private to `kvtile codecs`: what it found, and the forms of its report. */
#ifndef CLI_CODECS_H
#define CLI_CODECS_H

#include "base/buf.h"
#include "fidelity/fidelity.h"

enum { KVT_CODECS_N_SIZES = 3, KVT_CODECS_SOURCES_MAX = KVT_MADE_COUNT + 2, KVT_CODECS_TIME_SIZE = 128 };
extern const int kvt_codecs_sizes[KVT_CODECS_N_SIZES]; /* head sizes that bits are given for: 64, 128, 256 */

/* A codec, or one for keys and one for values. */
struct kvt_codecs_row {
    char kv[80];
    struct kvt_codec_pair pair;
    int granularity;
    double bits[KVT_CODECS_N_SIZES]; /* an element of full tiles, K and V together */
    struct kvt_codec_axis axis[KVT_SIDE_COUNT];
    struct kvt_codec_times times[KVT_SIDE_COUNT]; /* of rows of KVT_CODECS_TIME_SIZE elements */
};

/* Rows that codecs were tried on. */
struct kvt_codecs_source {
    const char *name;            /* of the model's file, or of made rows */
    struct kvt_error_sums *sums; /* one for each row of the report */
    bool is_model;               /* then also: */
    char text[300];
    struct kvt_fidelity_result kl;
};

struct kvt_codecs_report {
    struct kvt_codecs_row *rows;
    int n_rows;
    struct kvt_codecs_source sources[KVT_CODECS_SOURCES_MAX];
    int n_sources;
    enum kvt_level levels[2]; /* that were timed: ref and, if there is one, a better one */
    int n_levels;
    int chunk, sink, tail; /* of KL */
};

/* For people, in columns with a legend, or as the tables of docs/codecs.md, which has the legend. */
KVT_MUST_CHECK enum kvt_status kvt_codecs_table(struct kvt_buf *out, const struct kvt_codecs_report *report,
                                                bool markdown);
KVT_MUST_CHECK enum kvt_status kvt_codecs_json(struct kvt_buf *out, const struct kvt_codecs_report *report);

/* Nanoseconds for 1024 values from seconds for a tile. */
static inline double kvt_codecs_ns(double seconds) {
    return seconds * 1e9 * 1024 / (KVT_TILE_ROWS * KVT_CODECS_TIME_SIZE);
}

#endif
