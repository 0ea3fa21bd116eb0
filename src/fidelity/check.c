/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a cache spoils a model, in a second or two: the model writes a tile of text, and each layer's rows are encoded, decoded
 * and attended to. Time is bounded: a slow model writes less, and not all of its layers are looked at: as many as there is time for,
 * spread over all, or, where even the pass through them takes too long, the first ones.
 */
#include <math.h>

#include "base/check.h"
#include "base/clock.h"
#include "fidelity/fidelity.h"
#include "fidelity/inside.h"

enum { N_TOKENS = KVT_TILE_ROWS };

static const double sampling_share = 0.3; /* of the time */
#define BEFORE_ROWS 0.15                  /* of the pass through a layer: what comes before its rows are there */

struct look {
    const struct kvt_check_options *options;
    struct kvt_check *check;
    struct kvt_shape shape;
    struct kvt_codec_pair *pairs; /* [layer][plan] */
    struct kvt_error_sums *sums;  /* [plan] */
    double start, end;            /* of the pass */
    double looking;               /* seconds of all looks so far */
    int next;                     /* layer to look at */
    bool out_of_time;
};

int kvt_check_next(int layer, int n_layers, double left, double pass_seconds, double look_seconds) {
    const int rest = n_layers - 1 - layer;
    const double spare = left - rest * pass_seconds;
    if (rest < 1 || spare <= 0 || spare >= rest * look_seconds) return layer + 1;
    const int n_looks = KVT_MAX((int)(spare / look_seconds), 1);
    return layer + KVT_MAX((2 * rest + n_looks) / (2 * n_looks), 1); /* rounded to the nearest: even in the long run */
}

static double keys_max(const struct kvt_codec_pair *pair, const struct kvt_layer_shape *shape) {
    const struct kvt_codec_axis axis = kvt_codec_axis(pair->codec[KVT_SIDE_K], KVT_SIDE_K, shape->k_size);
    return axis.per_channel && !axis.rotated ? KVT_CHECK_KEYS_MAX : KVT_CHECK_TOKEN_KEYS_MAX;
}

static enum kvt_status try_plans(struct look *l, const struct kvt_measured_rows *rows, int layer, int first, int n,
                                 struct kvt_error *err) {
    const struct kvt_codec_pair *pairs = l->pairs + (ptrdiff_t)layer * l->check->n_plans + first;
    for (int i = 0; i < n; i++) l->sums[i] = (struct kvt_error_sums){.mix = 0};
    KVT_TRY(kvt_measure_rows(l->sums, pairs, n, rows, l->options->parallel, &l->check->allocator, err));
    for (int i = 0; i < n; i++) {
        const struct kvt_codec_errors errors = kvt_codec_errors_of(&l->sums[i]);
        l->check->layers[(first + i) * l->check->n_layers + layer] = (struct kvt_check_layer){
            errors.attention[KVT_DECODED_K], errors.attention[KVT_DECODED_V], keys_max(&pairs[i], &rows->shape)};
    }
    return KVT_OK;
}

/* What a look takes, by those so far. */
static double look_seconds(const struct look *l) { return l->check->n_looked ? l->looking / l->check->n_looked : 0; }

static enum kvt_status look(void *ctx, const struct kvt_layer_rows *rows, struct kvt_error *err) {
    struct look *l = ctx;
    const struct kvt_measured_rows measured = {.shape = l->shape.layers[rows->layer],
                                               .n = rows->n,
                                               .n_q_heads = rows->n_q_heads,
                                               .scale = rows->scale,
                                               .q = rows->q,
                                               .k = rows->k,
                                               .v = rows->v};
    if (!kvt_progress_report(l->options->progress, "checking", (uint64_t)rows->layer, (uint64_t)l->shape.n_layers))
        return kvt_fail(err, KVT_ERR_CANCELLED, "cancelled");
    const double before = kvt_clock_seconds(), pass = (before - l->start - l->looking) / (rows->layer + BEFORE_ROWS);
    if (rows->layer < l->next && before + pass + look_seconds(l) <= l->end) return KVT_OK;
    KVT_TRY(try_plans(l, &measured, rows->layer, 0, 1, err));
    if (kvt_check_is_bad(kvt_check_at(l->check, 0, rows->layer)) && l->check->n_plans > 1)
        KVT_TRY(try_plans(l, &measured, rows->layer, 1, l->check->n_plans - 1, err));
    const double now = kvt_clock_seconds();
    l->looking += now - before;
    l->check->n_looked++;
    l->check->n_reached = rows->layer + 1;
    l->next = kvt_check_next(rows->layer, l->check->n_layers, l->end - now, pass, look_seconds(l));
    l->out_of_time = l->check->n_reached < l->check->n_layers && now + pass + look_seconds(l) > l->end;
    return l->out_of_time ? kvt_fail(err, KVT_ERR_CANCELLED, "out of time") : KVT_OK;
}

static enum kvt_status write_text(struct kvt_ids *ids, struct look *l, const struct kvt_model *model,
                                  struct kvt_error *err) {
    const struct kvt_check_options *o = l->options;
    const struct kvt_self_options self = {.n = N_TOKENS,
                                          .chunk = N_TOKENS,
                                          .beyond = true,
                                          .seconds = o->seconds * sampling_share,
                                          .seed = o->seed,
                                          .level = o->level,
                                          .parallel = o->parallel,
                                          .allocator = o->allocator,
                                          .progress = o->progress};
    KVT_TRY(kvt_fidelity_sample(ids, model, &self, err));
    l->check->n_sampled = (int)ids->len;
    while (ids->len < N_TOKENS)
        if (kvt_ids_add(ids, ids->data[ids->len - (size_t)l->check->n_sampled]) != KVT_OK)
            return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for %d ids", N_TOKENS);
    l->check->n_tokens = N_TOKENS;
    return KVT_OK;
}

static enum kvt_status feed(struct look *l, const struct kvt_model *model, const struct kvt_ids *ids,
                            struct kvt_error *err) {
    const struct kvt_session_options options = {.kv = "f32", /* no layer's loss is to be that of those below it */
                                                .n_ctx = N_TOKENS,
                                                .beyond = true,
                                                .n_batch = N_TOKENS,
                                                .n_keep = 1,
                                                .level = l->options->level,
                                                .parallel = l->options->parallel,
                                                .allocator = l->options->allocator,
                                                .tap = {.look = look, .ctx = l}};
    struct kvt_session *session;
    KVT_TRY(kvt_session_create(&session, model, &options, err));
    l->start = kvt_clock_seconds();
    enum kvt_status status = kvt_session_eval(session, ids->data, N_TOKENS, 1, NULL, err);
    if (status == KVT_ERR_CANCELLED && l->out_of_time) status = KVT_OK;
    kvt_session_destroy(session);
    return status;
}

static void find_pairs(struct look *l) {
    const int n_plans = l->check->n_plans;
    for (int p = 0; p < n_plans; p++)
        for (int layer = 0; layer < l->shape.n_layers; layer++) {
            const struct kvt_layer_plan *plan = kvt_plan_layer(l->options->plans[p], layer);
            for (int side = 0; side < KVT_SIDE_COUNT; side++)
                l->pairs[layer * n_plans + p].codec[side] = plan->codec[side];
        }
}

enum kvt_status kvt_check_run(struct kvt_check *out, const struct kvt_model *model,
                              const struct kvt_check_options *options, struct kvt_error *err) {
    const double start = kvt_clock_seconds();
    struct kvt_check check = {.n_plans = options->n_plans,
                              .n_layers = kvt_model_shape(model).n_layers,
                              .allocator = kvt_allocator_or_default(options->allocator)};
    struct look l = {.options = options,
                     .check = &check,
                     .shape = kvt_model_shape(model),
                     .end = options->seconds > 0 ? start + options->seconds : INFINITY};
    const size_t n_plans = (size_t)check.n_plans, n = n_plans * (size_t)check.n_layers;
    struct kvt_ids ids;
    enum kvt_status status;
    kvt_ids_init(&ids, &check.allocator);
    check.layers = kvt_take(&check.allocator, n, sizeof *check.layers);
    l.pairs = kvt_take(&check.allocator, n, sizeof *l.pairs);
    l.sums = kvt_take(&check.allocator, n_plans, sizeof *l.sums);
    if (!check.layers || !l.pairs || !l.sums)
        KVT_TRY_OUT(kvt_fail(err, KVT_ERR_NOMEM, "not enough memory to try %d caches", check.n_plans));
    for (size_t i = 0; i < n; i++) check.layers[i] = (struct kvt_check_layer){NAN, NAN, NAN};
    find_pairs(&l);
    KVT_TRY_OUT(write_text(&ids, &l, model, err));
    KVT_TRY_OUT(feed(&l, model, &ids, err));
out:
    kvt_ids_finish(&ids);
    kvt_give(&check.allocator, l.sums, n_plans, sizeof *l.sums);
    kvt_give(&check.allocator, l.pairs, n, sizeof *l.pairs);
    if (status == KVT_OK)
        *out = check;
    else
        kvt_check_finish(&check);
    return status;
}

void kvt_check_finish(struct kvt_check *check) {
    const size_t n = (size_t)check->n_plans * (size_t)check->n_layers;
    kvt_give(&check->allocator, check->layers, n, sizeof *check->layers);
    check->layers = NULL;
}

int kvt_check_n_bad(const struct kvt_check *check, int plan) {
    int n = 0;
    for (int l = 0; l < check->n_reached; l++) n += kvt_check_is_bad(kvt_check_at(check, plan, l));
    return n;
}

int kvt_check_better(const struct kvt_check *check) {
    for (int p = 1; p < check->n_plans; p++)
        if (kvt_check_n_bad(check, p) == 0) return p;
    return 0;
}
