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
    double kl;            /* KL(reference || test) over the whole vocabulary, nats */
    double nll_ref;       /* -log P_ref(next), nats */
    double nll;           /* -log P_test(next) */
    int32_t top_ref, top; /* the most probable tokens; the first of equals counts */
    float p_ref, p;       /* probabilities of top_ref: the reference's and the test's */
};
static inline bool kvt_score_flips(const struct kvt_score *score) { return score->top != score->top_ref; }

/* Two rows of n logits. In double; never smoothed: a term is 0 where P_ref is 0, infinite where P_test alone is 0. A NaN
 * among the logits gives NaN. Equal rows give exactly 0. */
struct kvt_score kvt_score_position(const float *ref, const float *test, int n, int32_t next);

/* How much of a distribution's values lies below each value of its tail. */
enum { KVT_TAIL_POINTS = 12 };
extern const double kvt_tail_ranks[KVT_TAIL_POINTS]; /* 0.5 ... 0.9999, 1 */

struct kvt_distribution {
    double mean, median, p99, p999, max;
    double tail[KVT_TAIL_POINTS]; /* values at kvt_tail_ranks */
};

/* Of n >= 1 values without NaN, which it sorts. Percentiles by linear interpolation between the two nearest ranks. */
struct kvt_distribution kvt_distribution_of(double *values, size_t n);

/* Standard error of the mean of n chunk means: their sample standard deviation / sqrt(n); 0 where n < 2. */
double kvt_standard_error(const double *means, size_t n);

/* An interval that holds the mean with 95 % probability, as far as n chunk means tell: 2000 times n of them are drawn with
 * replacement, always the same way, and 2.5 % of the draws' means lie on either side. NaN where n < 2. */
struct kvt_interval {
    double low, high;
};
struct kvt_interval kvt_bootstrap_mean(const double *means, size_t n);

/* ---- what is measured ------------------------------------------------------------------------------------------------- */

/* In what pieces the tokens are fed: many at once, as a prompt is; or one by one, as text is generated. */
enum kvt_leg { KVT_LEG_PREFILL, KVT_LEG_DECODE, KVT_LEG_COUNT };
const char *kvt_leg_name(enum kvt_leg leg); /* "prefill", "decode" */

enum kvt_fidelity_kind {
    KVT_FIDELITY_SCHEME,  /* a cache that was asked for */
    KVT_FIDELITY_CONTROL, /* its decoded rows, through plain attention in 32 bits; so are the parts: */
    KVT_FIDELITY_SIDE,    /* its keys or its values alone; the other side in 16 bits */
    KVT_FIDELITY_LAYER,   /* one layer alone: keys, values or both */
    KVT_FIDELITY_KEPT,    /* all layers but one */
    KVT_FIDELITY_HEAD,    /* one KV head of one layer alone */
    KVT_FIDELITY_REGION   /* the first rows, the newest, or both kept in 16 bits besides */
};

/* One cache on one leg. */
struct kvt_fidelity_case {
    const char *kv; /* a plan's string */
    int sink, tail;
    int64_t start; /* as in kvt_plan_options */
    enum kvt_leg leg;
    enum kvt_fidelity_kind kind;
    int of;          /* the case of kind SCHEME that it explains: an index */
    int side;        /* SIDE, LAYER: enum kvt_side, or -1 for both */
    int layer, head; /* LAYER, KEPT, HEAD */
};

/* Where the reference's outputs are kept between runs: files of this folder, one for each model, text and way of running it. */
struct kvt_fidelity_store {
    const char *folder;
    uint64_t model; /* kvt_hash of the model's file */
};

struct kvt_fidelity_options {
    const struct kvt_fidelity_case *cases;
    int n_cases;
    const char *reference; /* the cache they are held against; NULL: "f16" */
    const int32_t *ids;    /* the text */
    size_t n_ids;
    int chunk;    /* tokens a chunk, at least 2: the last one is only scored, so chunk - 1 positions */
    bool beyond;  /* a chunk may be longer than the model's context */
    int n_chunks; /* at most; 0: all that fit. The rest of the text is not used */
    int warmup;   /* positions at the start of each chunk that are fed but not scored */
    int first_id; /* -1, or the token that replaces the first one of every chunk, as llama.cpp's perplexity tool does */
    int prefill_chunk;                      /* tokens of a forward pass of the prefill leg; 0: 512 */
    const struct kvt_fidelity_store *store; /* NULL: the reference is made anew and not kept */
    struct kvt_place place;                 /* of the forward passes, the reference's too */
    const char *level;                      /* NULL: "auto" */
    const struct kvt_parallel *parallel;    /* NULL: the calling thread; results do not depend on it */
    const struct kvt_allocator *allocator;  /* NULL: the C library */
    const struct kvt_progress *progress;    /* NULL: silent */
};

enum { KVT_FIDELITY_DEPTHS = 8, KVT_FIDELITY_WORST = 10 };

struct kvt_fidelity_position {
    int chunk, position;
    struct kvt_score score;
};

/* What a case came to. */
struct kvt_fidelity_row {
    char *kv;                   /* as the plan writes it */
    double bits_per_element;    /* cache_bytes * 8 / the elements of the rows that are stored */
    uint64_t cache_bytes;       /* allocated at the end of a chunk */
    struct kvt_distribution kl; /* over all scored positions */
    double kl_stderr;           /* standard error of the mean, by chunk; 0 for one chunk */
    struct kvt_interval kl_ci;  /* of the mean, by chunk */
    double kl_depth
        [KVT_FIDELITY_DEPTHS]; /* mean over equal spans of the scored positions of a chunk; NaN: an empty span */
    double flips;              /* share of positions whose most probable token differs */
    double top_change,
        top_rms;    /* change of the probability of the reference's most probable token: mean, root mean square */
    double ppl;     /* exp of the mean negative log-likelihood */
    double seconds; /* of the test's forward passes */
    int n_worst;    /* positions of the largest KL, largest first */
    struct kvt_fidelity_position worst[KVT_FIDELITY_WORST];
};

/* What became of a stored reference. */
struct kvt_fidelity_stored {
    int n_read;        /* chunks that were read; the others were made anew */
    char trouble[232]; /* why it could not be read or written: a sentence, or empty */
};

struct kvt_fidelity_result {
    int n_rows;
    struct kvt_fidelity_row *rows; /* of each case */
    int n_chunks;                  /* all rows are over the same chunks */
    int64_t n_positions;           /* scored */
    double ppl_ref[KVT_LEG_COUNT]; /* NaN for a leg that no case has */
    struct kvt_fidelity_stored stored[KVT_LEG_COUNT];
    struct kvt_allocator allocator;
};

/* Whether cases and chunks make sense for a model, text aside: ARG where there is no case or one is unknown, UNSUPPORTED
 * where the model's rows do not fit it, RANGE for a chunk longer than the model's context. */
KVT_MUST_CHECK enum kvt_status kvt_fidelity_check(const struct kvt_model *model,
                                                  const struct kvt_fidelity_options *options, struct kvt_error *err);

/* Runs the measurement, chunk by chunk, every case on a chunk before the next chunk. Logits are held of a chunk at most.
 * What kvt_fidelity_check says; ARG where the text is shorter than a chunk; RANGE for an id outside the vocabulary; all found
 * before any work. RANGE too for logits that are no numbers. CANCELLED: *out holds the whole chunks done so far; where there
 * are none n_chunks is 0 and nothing needs to be finished. A store that cannot be read or written is no failure. */
KVT_MUST_CHECK enum kvt_status kvt_fidelity_run(struct kvt_fidelity_result *out, const struct kvt_model *model,
                                                const struct kvt_fidelity_options *options, struct kvt_error *err);
void kvt_fidelity_finish(struct kvt_fidelity_result *result); /* harmless on a zeroed result */

/* ---- cases from what a user asks for ---------------------------------------------------------------------------------- */

/* What a loss is taken apart by. */
enum kvt_attribute {
    KVT_ATTRIBUTE_KV = 1,      /* K alone, V alone */
    KVT_ATTRIBUTE_LAYERS = 2,  /* each layer alone: K, V, both; all layers but one */
    KVT_ATTRIBUTE_HEADS = 4,   /* each KV head of each layer alone */
    KVT_ATTRIBUTE_REGIONS = 8, /* 128 first rows, newest rows, both in 16 bits besides */
};

/* A cache that a user names. */
struct kvt_fidelity_scheme {
    const char *kv; /* a plan's string */
    int sink, tail;
};

struct kvt_fidelity_request {
    const struct kvt_fidelity_scheme *schemes;
    int n_schemes;
    int64_t start; /* of every one */
    bool legs[KVT_LEG_COUNT];
    bool numerics;      /* a control beside each cache */
    unsigned attribute; /* of enum kvt_attribute; on the first leg that is asked for */
};

struct kvt_fidelity_cases {
    struct kvt_fidelity_case *items;
    size_t n_taken;
    int n;
    struct kvt_allocator allocator;
};

/* The caches come first, leg by leg, in the order of the request; their strings are looked at by kvt_fidelity_check. */
KVT_MUST_CHECK enum kvt_status kvt_fidelity_cases_make(struct kvt_fidelity_cases *out, const struct kvt_shape *shape,
                                                       const struct kvt_fidelity_request *request,
                                                       const struct kvt_allocator *allocator, struct kvt_error *err);
void kvt_fidelity_cases_finish(struct kvt_fidelity_cases *cases); /* harmless on a zeroed one */

/* ---- sweeps ----------------------------------------------------------------------------------------------------------- */

/* What a cache costs at some length, and whether it is on the front: no other is as small and as close, and one of them better. */
struct kvt_sweep_point {
    uint64_t bytes;
    double bits; /* an element of the rows stored */
    bool on_front;
};

/* Fills one point for each row of a result, of caches of `at` rows. Rows of other kinds than SCHEME are on no front. */
KVT_MUST_CHECK enum kvt_status kvt_sweep_points(struct kvt_sweep_point *points, const struct kvt_shape *shape,
                                                const struct kvt_fidelity_case *cases,
                                                const struct kvt_fidelity_result *result, int64_t at,
                                                struct kvt_error *err);

/* What one codec on one side of one layer alone costs. */
struct kvt_sensitivity {
    int layer;
    enum kvt_side side;
    const struct kvt_codec *codec;
    double kl;
    uint64_t bytes; /* of that side of that layer */
};

struct kvt_search_request {
    /* Text, and how it is run; the cases are those whose codecs may be used. */
    const struct kvt_fidelity_options *options;
    int n_chunks; /* that the search looks at, of the options' */
    int sink, tail;
    int64_t at; /* rows */
    uint64_t budget;
};

/* A mixed plan under a budget. */
struct kvt_search {
    char *kv;
    uint64_t bytes;                /* at `at` rows, at most the budget */
    double expected_kl;            /* the sum of its parts */
    struct kvt_sensitivity *parts; /* by layer, side and bytes */
    int n_parts, n_taken;
    struct kvt_allocator allocator;
};

/* Measures first each codec on one side of all layers, then those that are on that side's front on each layer alone, and chooses for each
 * layer and side so that the sum of the losses is small and the bytes fit. RANGE where nothing fits. Failures of kvt_fidelity_run,
 * CANCELLED too: nothing is found then. */
KVT_MUST_CHECK enum kvt_status kvt_sweep_search(struct kvt_search *out, const struct kvt_model *model,
                                                const struct kvt_search_request *request, struct kvt_error *err);
void kvt_search_finish(struct kvt_search *search); /* harmless on a zeroed one */

/* A choice of one option for each item, so that the sum of costs is small and that of bytes at most the budget: greedily along the
 * lower hulls, then into what is left. options: n_items lists, each by rising bytes and falling cost, list i of n_options[i];
 * chosen[i] becomes an index. False where not even the smallest fit. */
struct kvt_choice_option {
    uint64_t bytes;
    double cost;
};
bool kvt_choose(int *chosen, const struct kvt_choice_option *const *options, const int *n_options, int n_items,
                uint64_t budget);

/* ---- planted facts ---------------------------------------------------------------------------------------------------- */

/* Whether a model still answers: facts planted in a long text ("Remember this: the code of Maria is 48213.") and asked for at its end,
 * with each of several caches. The first is what the others are held against. */
struct kvt_needle_options {
    const struct kvt_fidelity_scheme *schemes;
    int n_schemes;
    const int *lengths; /* tokens of a text with its questions, at most */
    int n_lengths;
    int n_depths; /* facts in a text, evenly spread from its beginning to its end */
    int n_trials; /* texts of each length */
    int n_agree;  /* tokens that are continued greedily after each text; 0: none */
    uint64_t seed;
    const char *filler; /* what the facts are planted in; it is gone round if it is short */
    size_t filler_len;
    struct kvt_place place;
    const char *level;
    const struct kvt_parallel *parallel;
    const struct kvt_allocator *allocator;
    const struct kvt_progress *progress;
};

struct kvt_needle_cell {
    int n, n_right; /* right: every token of the answer was the most probable one */
    int n_lost;     /* of those that the first cache answered right */
};

/* How long greedy continuations stay the same as with the first cache. */
struct kvt_agreement {
    int n, n_whole;      /* texts; those that never diverged */
    double mean, median; /* tokens before the first that differs */
};

struct kvt_needle_row {
    char *kv;
    int sink, tail;
    uint64_t cache_bytes;          /* at the largest length */
    struct kvt_needle_cell *cells; /* [length][depth] */
    struct kvt_needle_cell all;
    struct kvt_agreement agreement;
};

struct kvt_needle_result {
    int n_rows, n_lengths, n_depths, n_trials, n_agree;
    int *lengths;
    struct kvt_needle_row *rows;
    struct kvt_allocator allocator;
};

/* Whether the schemes and lengths make sense for a model, the filler aside: what kvt_needle_run says of them. */
KVT_MUST_CHECK enum kvt_status kvt_needle_check(const struct kvt_model *model, const struct kvt_needle_options *options,
                                                struct kvt_error *err);

/* ARG for a length that holds no text, RANGE for one past the model's context. CANCELLED: nothing is found. */
KVT_MUST_CHECK enum kvt_status kvt_needle_run(struct kvt_needle_result *out, const struct kvt_model *model,
                                              const struct kvt_needle_options *options, struct kvt_error *err);
void kvt_needle_finish(struct kvt_needle_result *result); /* harmless on a zeroed one */

/* Appends a grid for each cache; one JSON object. */
KVT_MUST_CHECK enum kvt_status kvt_needle_table(struct kvt_buf *out, const struct kvt_needle_result *result,
                                                const char *model, const char *text);
KVT_MUST_CHECK enum kvt_status kvt_needle_json(struct kvt_buf *out, const struct kvt_needle_result *result,
                                               const char *model, const char *text);

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

/* Encodes and decodes all rows with each of n_pairs codecs, keys with the queries at their rows, and adds what is lost to sums[pair].
 * Rows are rounded to 16 bits first, as a cache does for every codec that is no plain one; errors are against the f32 rows. Attention is
 * computed in double for 64 queries of each head, evenly spread, each over all rows up to its own position: none is kept in 16 bits.
 * RANGE for rows that a codec does not take. */
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

/* ---- the check at the start ------------------------------------------------------------------------------------------ */

/* What attention over one layer's rows loses, relative, with the keys or the values decoded; NaN where that was not tried. Keys that share
 * scales by token, or are rotated, have a lower limit: biases of keys are their ruin. docs/policy.md has how the limits were found. */
struct kvt_check_layer {
    double keys, values;
    double keys_max;
};
#define KVT_CHECK_KEYS_MAX       0.40
#define KVT_CHECK_TOKEN_KEYS_MAX 0.30
#define KVT_CHECK_VALUES_MAX     0.60
/* Whether the layer spoils the text. */
static inline bool kvt_check_is_bad(const struct kvt_check_layer *layer) {
    return layer->keys > layer->keys_max || layer->values > KVT_CHECK_VALUES_MAX;
}

struct kvt_check_options {
    const struct kvt_plan *const *plans; /* the first is tried on every layer, the others where that one spoils it */
    int n_plans;
    double seconds; /* that it may take; at least one token is written and one layer looked at. 0: whatever it needs */
    uint64_t seed;
    const char *level;
    const struct kvt_parallel *parallel;
    const struct kvt_allocator *allocator;
    const struct kvt_progress *progress;
};

struct kvt_check {
    int n_plans, n_layers;
    int n_looked, n_reached; /* layers that were tried in time, and the last of them + 1: all, or spread evenly */
    int n_tokens, n_sampled; /* of the text: those that the model wrote in time, gone round to n_tokens */
    struct kvt_check_layer *layers; /* [plan][layer] */
    struct kvt_allocator allocator;
};

/* Lets the model write a short text, and tries each plan's codecs on the rows of every layer; nothing else is touched. CANCELLED: nothing
 * is found. */
KVT_MUST_CHECK enum kvt_status kvt_check_run(struct kvt_check *out, const struct kvt_model *model,
                                             const struct kvt_check_options *options, struct kvt_error *err);
void kvt_check_finish(struct kvt_check *check); /* harmless on a zeroed one */
/* What a plan did to a layer. */
static inline const struct kvt_check_layer *kvt_check_at(const struct kvt_check *check, int plan, int layer) {
    return &check->layers[plan * check->n_layers + layer];
}
/* How many of the layers that it was tried on a plan spoils. */
int kvt_check_n_bad(const struct kvt_check *check, int plan);
/* The first of the other plans that spoils none of those that the first one spoils; 0: there is none. */
int kvt_check_better(const struct kvt_check *check);

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
 * has the rows that it needs, those of up to 8 heads together; decoded at once to rows as they came. copy is memcpy of the rows. Each
 * round takes one of every kind in turn. A level that has no kernel of its own uses the next lower one. */
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
    int n;          /* tokens to make */
    int chunk;      /* each chunk of them is a text of its own, so that a chunk is what the model says after nothing */
    bool beyond;    /* a chunk may be longer than the model's context */
    double seconds; /* after these it ends with the tokens that it has, one at least; 0: all n */
    uint64_t seed;
    const char *level;
    const struct kvt_parallel *parallel;
    const struct kvt_allocator *allocator;
    const struct kvt_progress *progress;
};

/* Appends n tokens, or those of the seconds, that the model itself writes at temperature 1 with a 16-bit cache. A text begins with BOS (or the end
 * token of a model that has no BOS) and begins again after a token that ends it. */
KVT_MUST_CHECK enum kvt_status kvt_fidelity_sample(struct kvt_ids *out, const struct kvt_model *model,
                                                   const struct kvt_self_options *options, struct kvt_error *err);

/* ---- the report ------------------------------------------------------------------------------------------------------- */

/* "good", "marginal" or "bad": the tiers of mlx-quant-fidelity's KV probe. They say nothing about any task. */
const char *kvt_fidelity_tier(const struct kvt_fidelity_row *row);

/* What a sweep adds to a report. */
struct kvt_sweep {
    int64_t at;                           /* rows */
    const struct kvt_sweep_point *points; /* of each row of the result */
    const struct kvt_search *search;      /* NULL: there was no budget; otherwise also: */
    uint64_t budget;
    int sink, tail;                      /* of the plan */
    const struct kvt_fidelity_row *plan; /* measured on the same chunks as the rows */
    int best;                            /* the row with the least KL among those of no more bytes; -1: none */
    int search_chunks;
};

/* What a report says besides the numbers. */
struct kvt_fidelity_about {
    const char *model, *text; /* how the user named them */
    const char *reference;    /* "f16" */
    int chunk, warmup, sink, tail, prefill_chunk;
    int n_ctx_train; /* of the model; said where a chunk is longer */
    int64_t start;
    const struct kvt_fidelity_case *cases; /* of the result's rows */
    /* To run it again; NULL or 0 where a report is not to say it. */
    const char *command, *level, *blas;
    int n_threads;
    uint64_t model_hash, text_hash;
    const struct kvt_sweep *sweep; /* NULL: none */
    /* To show the worst positions' texts; NULL: without. */
    const struct kvt_text *tokenizer;
    const int32_t *ids;
};

/* Appends a table for people, 80 to 110 columns; then what controls and attribution say. */
KVT_MUST_CHECK enum kvt_status kvt_fidelity_table(struct kvt_buf *out, const struct kvt_fidelity_result *result,
                                                  const struct kvt_fidelity_about *about);
/* Appends the caches of a sweep by size, and its plan; about->sweep is needed. */
KVT_MUST_CHECK enum kvt_status kvt_fidelity_sweep_table(struct kvt_buf *out, const struct kvt_fidelity_result *result,
                                                        const struct kvt_fidelity_about *about);
/* Appends one JSON object, as docs/fidelity.schema.json has it. What is infinite or missing is null. */
KVT_MUST_CHECK enum kvt_status kvt_fidelity_json(struct kvt_buf *out, const struct kvt_fidelity_result *result,
                                                 const struct kvt_fidelity_about *about);

/* Appends the report as Markdown; as one HTML page with plots that needs nothing from elsewhere; its first plot alone, size against loss, as an
 * SVG file. */
KVT_MUST_CHECK enum kvt_status kvt_fidelity_markdown(struct kvt_buf *out, const struct kvt_fidelity_result *result,
                                                     const struct kvt_fidelity_about *about);
KVT_MUST_CHECK enum kvt_status kvt_fidelity_html(struct kvt_buf *out, const struct kvt_fidelity_result *result,
                                                 const struct kvt_fidelity_about *about);
KVT_MUST_CHECK enum kvt_status kvt_fidelity_svg(struct kvt_buf *out, const struct kvt_fidelity_result *result,
                                                const struct kvt_fidelity_about *about);

#endif
