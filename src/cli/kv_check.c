/* SPDX-License-Identifier: Apache-2.0
 * Trying a cache on a model at the start, and saying what came of it. */
#include "cli/kv_check.h"

#include <stdio.h>

#include "base/check.h"

static const double seconds = 1.9;

static enum kvt_status make_others(struct kvt_kv_check *c, const struct kvt_model *model, const char *const *others,
                                   int n_others, struct kvt_error *err) {
    const struct kvt_shape shape = kvt_model_shape(model);
    for (int i = 0; i < n_others && c->n_others < KVT_KV_CHECK_MAX; i++) {
        const struct kvt_plan_options options = {.struct_size = sizeof options, .kv = others[i]};
        const enum kvt_status status = kvt_plan_create(&c->plans[c->n_others], &shape, &options, NULL, err);
        if (status == KVT_ERR_UNSUPPORTED) continue;
        if (status != KVT_OK) return status;
        c->names[c->n_others++] = others[i];
    }
    return KVT_OK;
}

enum kvt_status kvt_kv_check_run(struct kvt_kv_check *out, struct kvt_engine *engine, const struct kvt_plan *plan,
                                 const char *const *others, int n_others, const char *level, struct kvt_error *err) {
    const struct kvt_plan *all[KVT_KV_CHECK_MAX + 1] = {plan};
    *out = (struct kvt_kv_check){.plan = plan};
    KVT_TRY(make_others(out, engine->model, others, n_others, err));
    for (int i = 0; i < out->n_others; i++) all[i + 1] = out->plans[i];
    const struct kvt_check_options options = {.plans = all,
                                              .n_plans = out->n_others + 1,
                                              .seconds = seconds,
                                              .seed = 1,
                                              .level = level,
                                              .parallel = &engine->parallel,
                                              .progress = &engine->progress.progress};
    const enum kvt_status status = kvt_check_run(&out->found, engine->model, &options, err);
    kvt_term_progress_erase(&engine->progress);
    out->done = status == KVT_OK;
    return status;
}

void kvt_kv_check_finish(struct kvt_kv_check *check) {
    for (int i = 0; i < check->n_others; i++) kvt_plan_destroy(check->plans[i]);
    if (check->done) kvt_check_finish(&check->found);
    *check = (struct kvt_kv_check){.done = false};
}

bool kvt_kv_check_is_bad(const struct kvt_kv_check *check) {
    return check->done && kvt_check_n_bad(&check->found, 0) > 0;
}

static bool is_part(const struct kvt_kv_check *check) {
    return check->done && check->found.n_looked < check->found.n_layers;
}

const char *kvt_kv_check_better(const struct kvt_kv_check *check) {
    const int better = check->done ? kvt_check_better(&check->found) : 0;
    return better ? check->names[better - 1] : NULL;
}

/* ---- words ------------------------------------------------------------------------------------------------------------ */

static bool is_too_much(const struct kvt_check_layer *layer, enum kvt_side side) {
    return side == KVT_SIDE_K ? layer->keys > layer->keys_max : layer->values > KVT_CHECK_VALUES_MAX;
}

static double loss_of(const struct kvt_check_layer *layer, enum kvt_side side) {
    return side == KVT_SIDE_K ? layer->keys : layer->values;
}

/* Keys, unless values alone are spoiled. */
static enum kvt_side bad_side(const struct kvt_check *found) {
    for (int l = 0; l < found->n_reached; l++)
        if (is_too_much(kvt_check_at(found, 0, l), KVT_SIDE_K)) return KVT_SIDE_K;
    return KVT_SIDE_V;
}

/* "layers 0-3, 7", as many runs as there is room for. */
static void say_layers(char *text, size_t size, const struct kvt_check *found, enum kvt_side side) {
    const int n = found->n_reached;
    size_t at = 0;
    int n_bad = 0;
    for (int l = 0; l < n; l++) n_bad += is_too_much(kvt_check_at(found, 0, l), side);
    at += (size_t)snprintf(text, size, "layer%s", n_bad == 1 ? "" : "s");
    for (int first = 0, end, runs = 0; first < n; first = end + 1) {
        for (end = first; end < n && is_too_much(kvt_check_at(found, 0, end), side);) end++;
        if (end == first) continue;
        if (at + 24 > size) {
            snprintf(text + at, size - at, " ...");
            return;
        }
        const char *comma = runs++ ? "," : "";
        if (end - first == 1)
            at += (size_t)snprintf(text + at, size - at, "%s %d", comma, first);
        else
            at += (size_t)snprintf(text + at, size - at, "%s %d-%d", comma, first, end - 1);
    }
}

/* The largest loss of a plan on a side of the layers that the first one spoils. */
static double worst(const struct kvt_check *found, int plan, enum kvt_side side) {
    double most = 0;
    for (int l = 0; l < found->n_reached; l++)
        if (kvt_check_is_bad(kvt_check_at(found, 0, l)))
            most = KVT_MAX(most, loss_of(kvt_check_at(found, plan, l), side));
    return most;
}

/* The limit that the first of them passed. */
static double limit_of(const struct kvt_check *found, enum kvt_side side) {
    for (int l = 0; side == KVT_SIDE_K && l < found->n_reached; l++)
        if (is_too_much(kvt_check_at(found, 0, l), side)) return kvt_check_at(found, 0, l)->keys_max;
    return KVT_CHECK_VALUES_MAX;
}

/* "17 of 30 layers could be tried in time, the last one too" */
static void say_part(char text[KVT_KV_CHECK_TEXT_MAX], const struct kvt_check *found) {
    const int n = snprintf(text, KVT_KV_CHECK_TEXT_MAX, "%d of %d layers could be tried in time, ", found->n_looked,
                           found->n_layers);
    if (found->n_reached == found->n_layers)
        snprintf(text + n, KVT_KV_CHECK_TEXT_MAX - (size_t)n, "spread over all");
    else
        snprintf(text + n, KVT_KV_CHECK_TEXT_MAX - (size_t)n, "none past layer %d", found->n_reached - 1);
}

void kvt_kv_check_say(char text[KVT_KV_CHECK_TEXT_MAX], const struct kvt_kv_check *check) {
    const enum kvt_side side = bad_side(&check->found);
    char layers[80];
    say_layers(layers, sizeof layers, &check->found, side);
    snprintf(text, KVT_KV_CHECK_TEXT_MAX, "%s of %s lose up to %.2f of their attention",
             side == KVT_SIDE_K ? "keys" : "values", layers, worst(&check->found, 0, side));
}

static void warn(const struct kvt_kv_check *check, const char *label) {
    const enum kvt_side side = bad_side(&check->found);
    const int better = kvt_check_better(&check->found);
    char what[KVT_KV_CHECK_TEXT_MAX], part[KVT_KV_CHECK_TEXT_MAX];
    kvt_kv_check_say(what, check);
    fprintf(stderr, "[kv] %swarning: %.80s spoils this model: %s, where %.2f is too much", label,
            kvt_plan_kv(check->plan), what, limit_of(&check->found, side));
    if (is_part(check)) {
        say_part(part, &check->found);
        fprintf(stderr, " (%s)", part);
    }
    if (better)
        fprintf(stderr, "; %s would do: %.2f\n", check->names[better - 1], worst(&check->found, better, side));
    else
        fprintf(stderr, "; f16 would do\n");
}

void kvt_kv_check_tell(const struct kvt_kv_check *check, const char *label) {
    char part[KVT_KV_CHECK_TEXT_MAX];
    if (kvt_kv_check_is_bad(check)) {
        warn(check, label);
    } else if (is_part(check)) {
        say_part(part, &check->found);
        fprintf(stderr, "[kv] %sno layer is spoiled of those looked at: %s\n", label, part);
    }
}
