/* SPDX-License-Identifier: Apache-2.0
 * From options to a cache: names, plan files and auto become a plan, which is told and tried. */
#include "cli/choice.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "cli/auto.h"
#include "cli/kv_check.h"
#include "cli/plan_file.h"

enum { LABEL_MAX = 80 };

/* ---- the plan --------------------------------------------------------------------------------------------------------- */

static void drop_plan(struct kvt_choice *c) {
    if (c->kv) kvt_give(&kvt_allocator_libc, c->kv, strlen(c->kv) + 1, 1);
    kvt_plan_destroy(c->plan);
    c->kv = NULL;
    c->plan = NULL;
}

static enum kvt_status make_plan(struct kvt_choice *c, const struct kvt_model *model, const char *kv,
                                 struct kvt_error *err) {
    const struct kvt_shape shape = kvt_model_shape(model);
    const struct kvt_plan_options options = {.struct_size = sizeof options,
                                             .kv = kv,
                                             .sink = c->sink,
                                             .tail = c->tail,
                                             .start = c->start,
                                             .rolling = c->rolling,
                                             .hold_last = c->hold_last,
                                             .fallback = c->fallback};
    drop_plan(c);
    c->kv = kvt_take_string(&kvt_allocator_libc, kv, strlen(kv));
    if (!c->kv) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for a cache's name");
    return kvt_plan_create(&c->plan, &shape, &options, NULL, err);
}

/* A cache by name: a plan's string or a file. */
static enum kvt_status from_name(struct kvt_choice *c, const struct kvt_kv_wish *wish, const struct kvt_model *model,
                                 struct kvt_error *err) {
    struct kvt_plan_file file;
    KVT_TRY(kvt_plan_file_resolve(&file, wish->kv, 0, 0, model, err));
    c->sink = wish->sink >= 0 ? (int)wish->sink : file.sink;
    c->tail = wish->tail >= 0 ? (int)wish->tail : file.tail;
    snprintf(c->why, sizeof c->why, "%s", wish->why);
    return make_plan(c, model, file.kv, err);
}

/* The plan of what auto picks, but for what the model's rows speak against. */
static enum kvt_status pick(struct kvt_choice *c, const struct kvt_auto_request *ask, const struct kvt_model *model,
                            struct kvt_error *err) {
    struct kvt_auto_pick picked;
    KVT_TRY(kvt_auto_choose(&picked, model, ask, err));
    c->picked = picked.kv;
    c->sink = picked.sink;
    c->tail = picked.tail;
    snprintf(c->why, sizeof c->why, "%s", picked.why);
    return make_plan(c, model, picked.kv, err);
}

/* Tries the plan. What keeps it from being tried is no reason not to run: it is said, and only Ctrl-C ends all. */
static enum kvt_status try_plan(struct kvt_choice *c, struct kvt_engine *engine, const char *const *others,
                                int n_others, const struct kvt_choice_request *request, struct kvt_error *err) {
    struct kvt_error why = {.text = ""};
    const enum kvt_status status = kvt_kv_check_run(&c->check, engine, c->plan, others, n_others, request->level, &why);
    if (status == KVT_ERR_CANCELLED) return kvt_fail(err, status, "%s", why.text);
    if (status != KVT_OK && !request->quiet) fprintf(stderr, "[kv] the cache could not be tried: %s\n", why.text);
    return KVT_OK;
}

/* What fits the memory is tried on the model's rows; where nothing else does, the first stays and tell warns of it. */
static enum kvt_status from_auto(struct kvt_choice *c, const struct kvt_kv_wish *wish,
                                 const struct kvt_choice_request *request, struct kvt_engine *engine,
                                 struct kvt_error *err) {
    struct kvt_auto_request ask = {
        .wish = wish,
        .start = request->kv->start,
        .rolling = request->kv->rolling,
        .n_ctx = request->n_ctx,
        .n_sessions = KVT_MAX(request->n_sessions, 1),
        .place = engine->place,
        .memory = kvt_auto_memory(request->kv, engine),
    };
    const char *fits[KVT_KV_CHECK_MAX];
    KVT_TRY(pick(c, &ask, engine->model, err));
    if (request->kv->no_check || kvt_plan_n_encoded(c->plan) == 0) return KVT_OK;
    const int n_fits = kvt_auto_fitting(fits, KVT_KV_CHECK_MAX, engine->model, &ask);
    KVT_TRY(try_plan(c, engine, fits + 1, n_fits - 1, request, err));
    const char *better = kvt_kv_check_better(&c->check);
    if (!kvt_kv_check_is_bad(&c->check) || !better) return KVT_OK;
    char spoils[KVT_KV_CHECK_TEXT_MAX];
    kvt_kv_check_say(spoils, &c->check);
    kvt_kv_check_finish(&c->check);
    ask.not = fits;
    while (strcmp(fits[ask.n_not], better) != 0) ask.n_not++;
    KVT_TRY(pick(c, &ask, engine->model, err));
    snprintf(c->why, sizeof c->why, "auto picked %s: with %s %s", better, fits[0], spoils);
    return KVT_OK;
}

/* What a cache of f16 takes; 0 if that cannot be said. */
static uint64_t f16_bytes(const struct kvt_model *model, const struct kvt_choice_request *request) {
    const struct kvt_shape shape = kvt_model_shape(model);
    const struct kvt_plan_options options = {.struct_size = sizeof options, .rolling = request->kv->rolling};
    struct kvt_plan *plan = NULL;
    if (kvt_plan_create(&plan, &shape, &options, NULL, NULL) != KVT_OK) return 0;
    const uint64_t bytes = kvt_plan_bytes(plan, request->n_ctx);
    kvt_plan_destroy(plan);
    return bytes;
}

/* ---- the lines -------------------------------------------------------------------------------------------------------- */

static bool uses_queries(const struct kvt_plan *plan) {
    bool uses = false;
    for (int l = 0; l < kvt_plan_n_layers(plan); l++)
        uses |= kvt_codec_info(kvt_plan_layer(plan, l)->codec[KVT_SIDE_K]).queries;
    return uses;
}

/* Whether a full context ever has an encoded row. */
static bool ever_encodes(const struct kvt_plan *plan, int n_ctx) {
    for (int l = 0; l < kvt_plan_n_layers(plan); l++) {
        const struct kvt_layer_plan *layer = kvt_plan_layer(plan, l);
        const bool plain =
            kvt_codec_info(layer->codec[KVT_SIDE_K]).plain && kvt_codec_info(layer->codec[KVT_SIDE_V]).plain;
        if (!plain && kvt_plan_body_end(plan, l, n_ctx) > layer->sink) return true;
    }
    return false;
}

static void print_sizes(const struct kvt_choice *c, const struct kvt_choice_request *r) {
    char size[KVT_TERM_BYTES_MAX];
    fprintf(stderr, "; %s at %d tokens", kvt_term_bytes(size, c->bytes), r->n_ctx);
    if (r->n_sessions > 1) fprintf(stderr, " of %d sessions", r->n_sessions);
    if (c->f16_bytes > 0 && c->f16_bytes != c->bytes)
        fprintf(stderr, ", %.3f of f16", (double)c->bytes / (double)c->f16_bytes);
}

static void print_line(const struct kvt_choice *c, const struct kvt_choice_request *r, const char *label) {
    const int n = kvt_plan_n_layers(c->plan), n_encoded = kvt_plan_n_encoded(c->plan);
    fprintf(stderr, "[kv] %s%.120s", label, kvt_plan_kv(c->plan));
    if (c->sink) fprintf(stderr, " sink=%d", c->sink);
    if (c->tail) fprintf(stderr, " tail=%d", c->tail);
    if (c->start) fprintf(stderr, " start=%lld", (long long)c->start);
    if (c->rolling) fprintf(stderr, " window=%lld", (long long)c->rolling);
    fprintf(stderr, " -> quantized %d/%d layers", n_encoded, n);
    print_sizes(c, r);
    if (uses_queries(c->plan)) fprintf(stderr, "; classes of keys by queries");
    if (n_encoded > 0 && !ever_encodes(c->plan, r->n_ctx))
        fprintf(stderr, "; so short a context stays in 16 bits: sink, tail and an unfinished group hold all of it");
    fputc('\n', stderr);
}

/* Layers that keep 16 bits although they were asked to encode, each reason once for neighbours. */
static void print_kept(const struct kvt_plan *plan, const char *label) {
    const int n = kvt_plan_n_layers(plan);
    for (int first = 0, end; first < n; first = end) {
        const struct kvt_layer_plan *layer = kvt_plan_layer(plan, first);
        for (end = first + 1; end < n && strcmp(kvt_plan_layer(plan, end)->reason, layer->reason) == 0;) end++;
        if (layer->kept == KVT_KEPT_NOT) continue;
        if (end - first > 1)
            fprintf(stderr, "[kv] %slayers %d-%d in 16 bits: %s\n", label, first, end - 1, layer->reason);
        else
            fprintf(stderr, "[kv] %slayer %d in 16 bits: %s\n", label, first, layer->reason);
    }
}

static void print_choice(const struct kvt_choice *c, const struct kvt_choice_request *r, const char *label) {
    if (c->why[0]) fprintf(stderr, "[kv] %s%s\n", label, c->why);
    print_line(c, r, label);
    print_kept(c->plan, label);
}

/* ---- all -------------------------------------------------------------------------------------------------------------- */

static enum kvt_status check_fit(const struct kvt_choice *c, const struct kvt_choice_request *r,
                                 struct kvt_error *err) {
    char need[KVT_TERM_BYTES_MAX], has[KVT_TERM_BYTES_MAX];
    const uint64_t memory = r->kv->memory;
    if (memory == 0 || c->bytes <= memory) return KVT_OK;
    return kvt_fail(
        err, KVT_ERR_LIMIT,
        "%.60s needs %s for %d tokens, --kv-memory allows %s; ask for fewer tokens with -c, or for --kv auto",
        kvt_plan_kv(c->plan), kvt_term_bytes(need, c->bytes), r->n_ctx, kvt_term_bytes(has, memory));
}

/* Strict: nothing that was asked for may come to 16 bits. Plans fail by themselves but for windows and held layers, which are rules. */
static enum kvt_status check_strict(const struct kvt_choice *c, const struct kvt_choice_request *r,
                                    struct kvt_error *err) {
    if (!r->kv->strict || kvt_plan_n_encoded(c->plan) > 0) return KVT_OK;
    for (int l = 0; l < kvt_plan_n_layers(c->plan); l++)
        if (kvt_plan_layer(c->plan, l)->kept != KVT_KEPT_NOT)
            return kvt_fail(err, KVT_ERR_UNSUPPORTED, "no layer can be quantized as asked: layer %d: %.180s", l,
                            kvt_plan_layer(c->plan, l)->reason);
    return KVT_OK;
}

enum kvt_status kvt_choice_make(struct kvt_choice *out, struct kvt_engine *engine,
                                const struct kvt_choice_request *request, struct kvt_error *err) {
    const struct kvt_shape shape = kvt_model_shape(engine->model);
    const struct kvt_kv_settings *s = request->kv;
    struct kvt_kv_wish wish;
    *out = (struct kvt_choice){.start = s->start, .rolling = s->rolling, .limit = s->limit};
    KVT_TRY(kvt_kv_resolve(&wish, s, &shape, err));
    out->hold_last = wish.hold_last;
    out->fallback = !s->strict;
    if (strcmp(wish.kv, "auto") == 0)
        KVT_TRY(from_auto(out, &wish, request, engine, err));
    else
        KVT_TRY(from_name(out, &wish, engine->model, err));
    KVT_TRY(kvt_place_takes(engine->place, out->plan, err));
    const uint64_t n_sessions = (uint64_t)KVT_MAX(request->n_sessions, 1);
    out->bytes = n_sessions * kvt_plan_bytes(out->plan, request->n_ctx);
    out->f16_bytes = n_sessions * f16_bytes(engine->model, request);
    KVT_TRY(check_strict(out, request, err));
    return check_fit(out, request, err);
}

static enum kvt_status check(struct kvt_choice *c, struct kvt_engine *engine, const struct kvt_choice_request *r,
                             struct kvt_error *err) {
    static const char *const others[] = {"kvt4", "kivi4g32", "q8_0"};
    if (r->quiet || r->kv->no_check || c->check.done || !ever_encodes(c->plan, r->n_ctx)) return KVT_OK;
    return try_plan(c, engine, others, (int)KVT_ARRAY_LEN(others), r, err);
}

enum kvt_status kvt_choice_tell(struct kvt_choice *choice, struct kvt_engine *engine,
                                const struct kvt_choice_request *request, struct kvt_error *err) {
    char label[LABEL_MAX] = "";
    if (request->label) snprintf(label, sizeof label, "%.70s: ", request->label);
    if (!request->quiet) print_choice(choice, request, label);
    KVT_TRY(check(choice, engine, request, err));
    if (!request->quiet) kvt_kv_check_tell(&choice->check, label);
    return KVT_OK;
}

void kvt_choice_finish(struct kvt_choice *choice) {
    kvt_kv_check_finish(&choice->check);
    drop_plan(choice);
}

void kvt_choice_apply(struct kvt_session_options *options, const struct kvt_choice *choice) {
    options->kv = choice->kv;
    options->sink = choice->sink;
    options->tail = choice->tail;
    options->start = choice->start;
    options->rolling = choice->rolling;
    options->hold_last = choice->hold_last;
    options->fallback = choice->fallback;
    options->cache_byte_limit = choice->limit;
}
