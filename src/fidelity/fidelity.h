/* SPDX-License-Identifier: Apache-2.0
 *
 * Door of fidelity: what a cache costs in quality, measured in pairs: the same model, the same tokens, a 16-bit cache and
 * the cache under test, teacher-forced. Every definition is in docs/fidelity.md.
 */
#ifndef FIDELITY_FIDELITY_H
#define FIDELITY_FIDELITY_H

#include "base/buf.h"
#include "model/model.h"

/* ---- the numbers ------------------------------------------------------------------------------------------------------ */

/* One position: the reference's logits, the test's, and the token that came next. */
struct kvt_score {
    double kl;      /* KL(reference || test) over the whole vocabulary, nats */
    double nll_ref; /* -log P_ref(next), nats */
    double nll;     /* -log P_test(next) */
    bool flip;      /* the most probable token differs; the first of equals counts */
};

/* Two rows of n logits. In double; never smoothed: a term is 0 where P_ref is 0, infinite where P_test alone is 0. A NaN
 * among the logits gives NaN. Equal rows give exactly 0. */
struct kvt_score kvt_score_position(const float *ref, const float *test, int n, int32_t next);

struct kvt_distribution {
    double mean, median, p99, max;
};

/* Of n >= 1 values without NaN, which it sorts. Percentiles by linear interpolation between the two nearest ranks. */
struct kvt_distribution kvt_distribution_of(double *values, size_t n);

/* Standard error of the mean of n chunk means: their sample standard deviation / sqrt(n); 0 where n < 2. */
double kvt_standard_error(const double *means, size_t n);

/* ---- the measurement -------------------------------------------------------------------------------------------------- */

struct kvt_fidelity_options {
    const char *const *kv; /* the schemes under test, each "K" or "K,V" */
    int n_kv;
    const char *reference; /* the cache they are held against; NULL: "f16" */
    int sink, tail;        /* 16-bit rows of every scheme but the reference */
    const int32_t *ids;    /* the text */
    size_t n_ids;
    int chunk;    /* tokens a chunk, at least 2: the last one is only scored, so chunk - 1 positions */
    int n_chunks; /* at most; 0: all that fit. The rest of the text is not used */
    int first_id; /* -1, or the token that replaces the first one of every chunk, as llama.cpp's perplexity tool does */
    const char *level;                     /* NULL: "auto" */
    const struct kvt_parallel *parallel;   /* NULL: the calling thread; results do not depend on it */
    const struct kvt_allocator *allocator; /* NULL: the C library */
    const struct kvt_progress *progress;   /* NULL: silent */
};

enum { KVT_FIDELITY_DEPTHS = 8 };

struct kvt_fidelity_row {
    char *kv;                   /* as the plan writes it */
    double bits_per_element;    /* cache_bytes * 8 / the elements of the rows that are stored */
    uint64_t cache_bytes;       /* allocated at the end of a chunk */
    struct kvt_distribution kl; /* over all positions */
    double kl_stderr;           /* standard error of the mean, by chunk; 0 for one chunk */
    double
        kl_depth[KVT_FIDELITY_DEPTHS]; /* mean over equal spans of the position in its chunk; NaN for an empty span */
    double flips;                      /* share of positions whose most probable token differs */
    double ppl;                        /* exp of the mean negative log-likelihood */
    double seconds;                    /* of the test's forward passes */
};

struct kvt_fidelity_result {
    int n_rows;
    struct kvt_fidelity_row *rows; /* in the order of options.kv */
    int n_chunks;                  /* all rows are over the same chunks */
    int64_t n_positions;
    double ppl_ref;
    struct kvt_allocator allocator;
};

/* Whether the schemes and chunks make sense for a model, text aside: ARG where there is no scheme or one is unknown, UNSUPPORTED
 * where the model's rows do not fit it, RANGE for a chunk longer than the model's context. */
KVT_MUST_CHECK enum kvt_status kvt_fidelity_check(const struct kvt_model *model,
                                                  const struct kvt_fidelity_options *options, struct kvt_error *err);

/* Runs the measurement, chunk by chunk, every scheme on a chunk before the next chunk. Two sessions live at a time.
 * What kvt_fidelity_check says; ARG where the text is shorter than a chunk; RANGE for an id outside the vocabulary; all found
 * before any work. RANGE too for logits that are no numbers. CANCELLED: *out holds the whole chunks done so far; where there
 * are none n_chunks is 0 and nothing needs to be finished. */
KVT_MUST_CHECK enum kvt_status kvt_fidelity_run(struct kvt_fidelity_result *out, const struct kvt_model *model,
                                                const struct kvt_fidelity_options *options, struct kvt_error *err);
void kvt_fidelity_finish(struct kvt_fidelity_result *result); /* harmless on a zeroed result */

/* ---- codecs on rows -------------------------------------------------------------------------------------------------- */

/* Which side was decoded where attention is compared; the other one keeps its rows. */
enum kvt_decoded { KVT_DECODED_K, KVT_DECODED_V, KVT_DECODED_BOTH, KVT_DECODED_COUNT };

/* Sums of squares, to be added up over heads, layers and chunks: of rows, by side, and of attention's outputs. */
struct kvt_error_sums {
    double row_error[KVT_SIDE_COUNT], row[KVT_SIDE_COUNT];
    double mix_error[KVT_DECODED_COUNT], mix;
};

/* Relative errors: roots of the ratios of those sums. */
struct kvt_codec_errors {
    double row[KVT_SIDE_COUNT];
    double attention[KVT_DECODED_COUNT];
};
struct kvt_codec_errors kvt_codec_errors_of(const struct kvt_error_sums *sums);

struct kvt_codec_pair {
    const struct kvt_codec *codec[KVT_SIDE_COUNT];
};

/* Rows of one layer, f32: q, k and v of the same n positions from 0 on; n is a multiple of 128. */
struct kvt_measured_rows {
    struct kvt_layer_shape shape;
    int n, n_q_heads;
    float scale;
    struct kvt_rows q, k, v;
};

/* Encodes and decodes all rows with each of n_pairs codecs and adds what is lost to sums[pair]. Rows are rounded to 16 bits
 * first, as a cache does for every codec that is no plain one; errors are against the f32 rows. Attention is computed in double for
 * 64 queries of each head, evenly spread, each over all rows up to its own position: none is kept in 16 bits. RANGE for rows that a
 * codec does not take. */
KVT_MUST_CHECK enum kvt_status kvt_measure_rows(struct kvt_error_sums *sums, const struct kvt_codec_pair *pairs,
                                                int n_pairs, const struct kvt_measured_rows *rows,
                                                const struct kvt_parallel *parallel,
                                                const struct kvt_allocator *allocator, struct kvt_error *err);

/* The rows of a model over a text: of the options' chunks the whole tiles, every layer, with an f32 cache behind them. The options are
 * those of kvt_fidelity_run; sums has one entry for each scheme. What kvt_fidelity_check says; ARG for chunks of less than 128 tokens. */
KVT_MUST_CHECK enum kvt_status kvt_measure_model_rows(struct kvt_error_sums *sums, const struct kvt_model *model,
                                                      const struct kvt_fidelity_options *options,
                                                      struct kvt_error *err);

/* Rows that need no model: 512 of 128 elements, one KV head with four query heads, normal numbers; with OUTLIERS four channels of the
 * keys lie around 8 or -8, as biased keys do. */
enum kvt_made_rows { KVT_MADE_NORMAL, KVT_MADE_OUTLIERS, KVT_MADE_COUNT };
KVT_MUST_CHECK enum kvt_status kvt_measure_made_rows(struct kvt_error_sums *sums, const struct kvt_codec_pair *pairs,
                                                     int n_pairs, enum kvt_made_rows kind,
                                                     const struct kvt_parallel *parallel,
                                                     const struct kvt_allocator *allocator, struct kvt_error *err);

/* ---- codecs by themselves --------------------------------------------------------------------------------------------- */

/* Along which axis elements share a scale. */
struct kvt_codec_axis {
    bool has_scale, per_channel; /* per channel: rows of one channel; else channels of one row */
    int group;                   /* how many; 0: the whole row */
    bool has_factor;             /* a second multiplier along the other axis */
    bool rotated;
};
struct kvt_codec_axis kvt_codec_axis(const struct kvt_codec *codec, enum kvt_side side, int d);

/* Of repeated times: half of them lie between low and high. */
struct kvt_spread {
    double median, low, high;
};

/* Seconds for a tile of 128 rows of d elements, one thread, everything in cache: encoded as generation does it, as soon as a codec
 * has the rows that it needs; decoded at once to rows as they came. copy is memcpy of the rows. Each round takes one of every
 * kind in turn. A level that has no kernel of its own uses the next lower one. */
struct kvt_codec_times {
    struct kvt_spread copy, encode[KVT_LEVEL_COUNT], decode[KVT_LEVEL_COUNT];
};
KVT_MUST_CHECK enum kvt_status kvt_measure_times(struct kvt_codec_times *out, const struct kvt_codec *codec,
                                                 enum kvt_side side, int d, const enum kvt_level *levels, int n_levels,
                                                 const struct kvt_allocator *allocator, struct kvt_error *err);

/* ---- the text --------------------------------------------------------------------------------------------------------- */

/* Appends ids written one per line ('#' begins a comment, blank lines are skipped). FORMAT or RANGE name the line; `name` is
 * what the sentence calls the file. */
KVT_MUST_CHECK enum kvt_status kvt_fidelity_read_ids(struct kvt_ids *out, const char *text, size_t len,
                                                     const char *name, int n_vocab, struct kvt_error *err);

/* Appends a plain text's tokens, after BOS where the model's prompts begin with it. */
KVT_MUST_CHECK enum kvt_status kvt_fidelity_read_text(struct kvt_ids *out, const char *text, size_t len,
                                                      const struct kvt_model *model, struct kvt_error *err);

struct kvt_self_options {
    int n;     /* tokens to make */
    int chunk; /* each chunk of them is a text of its own, so that a chunk is what the model says after nothing */
    uint64_t seed;
    const char *level;
    const struct kvt_parallel *parallel;
    const struct kvt_allocator *allocator;
    const struct kvt_progress *progress;
};

/* Appends n tokens that the model itself writes at temperature 1 with a 16-bit cache. A text begins with BOS (or the end
 * token of a model that has no BOS) and begins again after a token that ends it. */
KVT_MUST_CHECK enum kvt_status kvt_fidelity_sample(struct kvt_ids *out, const struct kvt_model *model,
                                                   const struct kvt_self_options *options, struct kvt_error *err);

/* ---- the report ------------------------------------------------------------------------------------------------------- */

/* "good", "marginal" or "bad": the tiers of mlx-quant-fidelity's KV probe. They say nothing about any task. */
const char *kvt_fidelity_tier(const struct kvt_fidelity_row *row);

/* What a report says besides the numbers. */
struct kvt_fidelity_about {
    const char *model, *text; /* how the user named them */
    const char *reference;    /* "f16" */
    int chunk, sink, tail;
};

/* Appends a table for people, 80 to 110 columns. */
KVT_MUST_CHECK enum kvt_status kvt_fidelity_table(struct kvt_buf *out, const struct kvt_fidelity_result *result,
                                                  const struct kvt_fidelity_about *about);
/* Appends one JSON object. Infinity is written as null. */
KVT_MUST_CHECK enum kvt_status kvt_fidelity_json(struct kvt_buf *out, const struct kvt_fidelity_result *result,
                                                 const struct kvt_fidelity_about *about);

#endif
