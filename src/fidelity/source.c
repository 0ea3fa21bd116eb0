/* SPDX-License-Identifier: Apache-2.0
 * Where the rows come from that codecs are measured on: a model over a text, or a generator. */
#include "base/check.h"
#include "base/rng.h"
#include "fidelity/fidelity.h"

/* ---- a model ---------------------------------------------------------------------------------------------------------- */

struct capture {
    const struct kvt_model *model;
    const struct kvt_fidelity_options *options;
    struct kvt_allocator allocator;
    struct kvt_error_sums *sums;
    struct kvt_codec_pair *pairs; /* [layer][scheme] */
    int n_layers, n_rows, n_chunks, chunk;
};

static bool report(const struct capture *c, int layer) {
    const uint64_t done = (uint64_t)(c->chunk * c->n_layers + layer);
    return kvt_progress_report(c->options->progress, "rows", done, (uint64_t)(c->n_chunks * c->n_layers));
}

static enum kvt_status look(void *ctx, const struct kvt_layer_rows *rows, struct kvt_error *err) {
    const struct capture *c = ctx;
    const struct kvt_measured_rows measured = {
        .shape = kvt_model_shape(c->model).layers[rows->layer],
        .n = rows->n,
        .n_q_heads = rows->n_q_heads,
        .scale = rows->scale,
        .q = rows->q,
        .k = rows->k,
        .v = rows->v,
    };
    if (!report(c, rows->layer)) return kvt_fail(err, KVT_ERR_CANCELLED, "cancelled");
    const enum kvt_status status =
        kvt_measure_rows(c->sums, c->pairs + rows->layer * c->options->n_cases, c->options->n_cases, &measured,
                         c->options->parallel, &c->allocator, err);
    if (status == KVT_OK || status == KVT_ERR_NOMEM) return status;
    struct kvt_error why = err ? *err : (struct kvt_error){.text = ""};
    return kvt_fail(err, status, "layer %d: %.180s", rows->layer, why.text);
}

/* The codecs that each scheme's plan has for each layer. */
static enum kvt_status find_pairs(struct capture *c, struct kvt_error *err) {
    const struct kvt_fidelity_options *o = c->options;
    const struct kvt_shape shape = kvt_model_shape(c->model);
    for (int i = 0; i < o->n_cases; i++) {
        const struct kvt_plan_options options = {.struct_size = sizeof options, .kv = o->cases[i].kv};
        struct kvt_plan *plan;
        KVT_TRY(kvt_plan_create(&plan, &shape, &options, &c->allocator, err));
        for (int layer = 0; layer < c->n_layers; layer++)
            for (int side = 0; side < KVT_SIDE_COUNT; side++)
                c->pairs[layer * o->n_cases + i].codec[side] = kvt_plan_layer(plan, layer)->codec[side];
        kvt_plan_destroy(plan);
    }
    return KVT_OK;
}

static enum kvt_status run_chunks(struct capture *c, struct kvt_error *err) {
    const struct kvt_fidelity_options *o = c->options;
    const struct kvt_session_options options = {
        .kv = "f32", /* what one layer does to its rows must not touch those of the next */
        .n_ctx = c->n_rows,
        .n_batch = c->n_rows, /* all rows of a layer at once */
        .n_keep = 1,
        .level = o->level,
        .parallel = o->parallel,
        .allocator = o->allocator,
        .tap = {.look = look, .ctx = c},
    };
    struct kvt_session *session;
    enum kvt_status status = KVT_OK;
    KVT_TRY(kvt_session_create(&session, c->model, &options, err));
    for (c->chunk = 0; c->chunk < c->n_chunks && status == KVT_OK; c->chunk++) {
        kvt_session_clear(session);
        status = kvt_session_eval(session, o->ids + (size_t)c->chunk * (size_t)o->chunk, c->n_rows, 1, NULL, err);
    }
    kvt_session_destroy(session);
    return status;
}

enum kvt_status kvt_measure_model_rows(struct kvt_error_sums *sums, const struct kvt_model *model,
                                       const struct kvt_fidelity_options *o, struct kvt_error *err) {
    struct capture c = {
        .model = model,
        .options = o,
        .allocator = kvt_allocator_or_default(o->allocator),
        .sums = sums,
        .n_layers = kvt_model_shape(model).n_layers,
        .n_rows = o->chunk / KVT_TILE_ROWS * KVT_TILE_ROWS,
    };
    KVT_TRY(kvt_fidelity_check(model, o, err));
    if (c.n_rows == 0)
        return kvt_fail(err, KVT_ERR_ARG, "a chunk of %d tokens fills no tile; %d is the least", o->chunk,
                        KVT_TILE_ROWS);
    const size_t fit = o->n_ids / (size_t)o->chunk, n_pairs = (size_t)c.n_layers * (size_t)o->n_cases;
    c.n_chunks = (int)KVT_MIN(fit, o->n_chunks ? (size_t)o->n_chunks : (size_t)INT32_MAX);
    if (c.n_chunks == 0)
        return kvt_fail(err, KVT_ERR_ARG, "the text has %zu tokens, less than one chunk of %d", o->n_ids, o->chunk);
    c.pairs = kvt_take(&c.allocator, n_pairs, sizeof *c.pairs);
    if (!c.pairs) return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for %zu codecs", n_pairs);
    enum kvt_status status = find_pairs(&c, err);
    if (status == KVT_OK) status = run_chunks(&c, err);
    kvt_give(&c.allocator, c.pairs, n_pairs, sizeof *c.pairs);
    return status;
}

/* ---- a generator ------------------------------------------------------------------------------------------------------ */

enum { MADE_ROWS = 512, MADE_SIZE = 128, MADE_Q_HEADS = 4, OUTLIER_STEP = MADE_SIZE / 4 };

static void fill(float *x, int n, float scale, struct kvt_rng *rng) {
    for (int i = 0; i < n; i++) x[i] = scale * kvt_rng_normal(rng);
}

/* Channels 9, 41, 73 and 105: each in another group of 32, of either sign. */
static void add_outliers(float *k) {
    for (int r = 0; r < MADE_ROWS; r++)
        for (int c = 9; c < MADE_SIZE; c += OUTLIER_STEP) k[r * MADE_SIZE + c] += c / OUTLIER_STEP % 2 ? -8.0f : 8.0f;
}

static struct kvt_rows dense(const float *data, int n_heads) {
    return (struct kvt_rows){data, KVT_TYPE_F32, (ptrdiff_t)n_heads * MADE_SIZE, MADE_SIZE};
}

enum kvt_status kvt_measure_made_rows(struct kvt_error_sums *sums, const struct kvt_codec_pair *pairs, int n_pairs,
                                      enum kvt_made_rows kind, const struct kvt_parallel *parallel,
                                      const struct kvt_allocator *allocator, struct kvt_error *err) {
    enum { N = MADE_ROWS * MADE_SIZE };
    const struct kvt_allocator a = kvt_allocator_or_default(allocator);
    const size_t n_floats = N * (MADE_Q_HEADS + 2);
    struct kvt_rng rng = {1};
    float *k = kvt_take(&a, n_floats, sizeof *k);
    if (!k) return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for %d rows", MADE_ROWS);
    float *v = k + N, *q = v + N;
    fill(k, N, 1, &rng);
    fill(v, N, 1, &rng);
    fill(q, N * MADE_Q_HEADS, 2, &rng); /* scores of variance 4: neither flat nor one row alone */
    if (kind == KVT_MADE_OUTLIERS) add_outliers(k);
    const struct kvt_measured_rows rows = {
        .shape = {.n_kv_heads = 1, .k_size = MADE_SIZE, .v_size = MADE_SIZE},
        .n = MADE_ROWS,
        .n_q_heads = MADE_Q_HEADS,
        .scale = 0.08838835f, /* 1 / sqrt(128) */
        .q = dense(q, MADE_Q_HEADS),
        .k = dense(k, 1),
        .v = dense(v, 1),
    };
    const enum kvt_status status = kvt_measure_rows(sums, pairs, n_pairs, &rows, parallel, &a, err);
    kvt_give(&a, k, n_floats, sizeof *k);
    return status;
}
