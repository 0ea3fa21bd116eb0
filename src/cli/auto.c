/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of the caches is that of their mean KL on the models that they were measured on (docs/policy.md): f16, then kvtile's
 * own by width, each before the per-channel codec of as many bits, which takes rows of any head size.
 */
#include "cli/auto.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "cli/term.h"

static const char *const order[] = {"f16", "kvt4", "kivi4g32", "kvt3", "kivi3g32", "kvt2", "kivi2g32"};

enum { AUTO_SINK = 128, AUTO_TAIL = 128 };

const char *kvt_auto_at(size_t i) { return i < KVT_ARRAY_LEN(order) ? order[i] : NULL; }

uint64_t kvt_auto_memory(const struct kvt_kv_settings *s, const struct kvt_engine *engine) {
    if (s->memory) return s->memory;
    if (engine->placed.bytes) return KVT_MAX(engine->placed.free_bytes / 10 * 9, 1);
    const uint64_t left = kvt_term_free_bytes(), packed = engine->placed.packed_bytes;
    const uint64_t file = kvt_model_info(engine->model).file_bytes, weights = file > packed ? file - packed : 0;
    if (left == 0) return 0;
    return left > weights ? (left - weights) / 10 * 9 : 1; /* a tenth for what else happens on the machine */
}

/* The most bytes of any length up to n_rows. They grow with the rows, but for the last rows, where a page of the tail is becoming one
 * of the body, and where encoding begins. */
static uint64_t most_bytes(const struct kvt_plan *plan, int64_t n_rows) {
    const int64_t start = kvt_plan_layer(plan, 0)->start;
    uint64_t most = start > 0 && n_rows >= start ? kvt_plan_bytes(plan, start - 1) : 0;
    for (int64_t n = n_rows; n >= 0 && n > n_rows - 2 * KVT_TILE_ROWS; n--)
        most = KVT_MAX(most, kvt_plan_bytes(plan, n));
    return most;
}

int64_t kvt_auto_longest(const struct kvt_plan *plan, uint64_t bytes, int64_t most) {
    int64_t low = 0, high = most;
    while (low < high) {
        const int64_t middle = low + (high - low + 1) / 2;
        if (most_bytes(plan, middle) <= bytes)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static bool is_spoken_against(const struct kvt_auto_request *r, const char *kv) {
    for (int i = 0; i < r->n_not; i++)
        if (strcmp(r->not [i], kv) == 0) return true;
    return false;
}

static void set_regions(struct kvt_auto_pick *pick, const char *kv, const struct kvt_kv_wish *wish) {
    const bool plain = strcmp(kv, "f16") == 0;
    *pick = (struct kvt_auto_pick){.kv = kv, .sink = plain ? 0 : AUTO_SINK, .tail = plain ? 0 : AUTO_TAIL};
    if (wish->sink >= 0) pick->sink = (int)wish->sink;
    if (wish->tail >= 0) pick->tail = (int)wish->tail;
}

/* A candidate's plan: UNSUPPORTED where a layer cannot be stored in it. */
static enum kvt_status try_plan(struct kvt_plan **plan, struct kvt_auto_pick *pick, const struct kvt_model *model,
                                const char *kv, const struct kvt_auto_request *r, struct kvt_error *err) {
    const struct kvt_shape shape = kvt_model_shape(model);
    set_regions(pick, kv, r->wish);
    const struct kvt_plan_options options = {.struct_size = sizeof options,
                                             .kv = kv,
                                             .sink = pick->sink,
                                             .tail = pick->tail,
                                             .start = r->start,
                                             .rolling = r->rolling,
                                             .hold_last = r->wish->hold_last};
    KVT_TRY(kvt_plan_create(plan, &shape, &options, NULL, err));
    const enum kvt_status status = kvt_place_takes(r->place, *plan, err);
    if (status != KVT_OK) {
        kvt_plan_destroy(*plan);
        return status;
    }
    pick->bytes = (uint64_t)r->n_sessions * kvt_plan_bytes(*plan, r->n_ctx);
    return KVT_OK;
}

static void say_why(struct kvt_auto_pick *pick, const struct kvt_auto_request *r, uint64_t f16_bytes) {
    char f16[KVT_TERM_BYTES_MAX], has[KVT_TERM_BYTES_MAX];
    const bool fits = f16_bytes <= r->memory || r->memory == 0;
    if (strcmp(pick->kv, "f16") == 0 && !r->wish->named) return;
    if (strcmp(pick->kv, "f16") == 0)
        snprintf(pick->why, sizeof pick->why, "auto picked f16: %s of %s", kvt_term_bytes(f16, f16_bytes),
                 r->memory ? kvt_term_bytes(has, r->memory) : "unlimited memory");
    else
        snprintf(pick->why, sizeof pick->why, "auto picked %s: f16 would take %s%s%s", pick->kv,
                 kvt_term_bytes(f16, f16_bytes), fits ? "" : " of ", fits ? "" : kvt_term_bytes(has, r->memory));
}

static enum kvt_status nothing_fits(const struct kvt_auto_request *r, const struct kvt_auto_pick *least,
                                    int64_t longest, struct kvt_error *err) {
    char need[KVT_TERM_BYTES_MAX], has[KVT_TERM_BYTES_MAX], most[64] = "";
    if (longest > 0) snprintf(most, sizeof most, "; %lld tokens would fit", (long long)longest);
    return kvt_fail(err, KVT_ERR_LIMIT,
                    "no cache for %lld tokens fits %s: even %s needs %s%s; ask for fewer with -c, or name a cache with "
                    "--kv to try it all the same",
                    (long long)r->n_ctx, kvt_term_bytes(has, r->memory), least->kv, kvt_term_bytes(need, least->bytes),
                    most);
}

enum kvt_status kvt_auto_choose(struct kvt_auto_pick *out, const struct kvt_model *model,
                                const struct kvt_auto_request *r, struct kvt_error *err) {
    struct kvt_auto_pick least = {.kv = NULL};
    int64_t longest = 0;
    uint64_t f16_bytes = 0;
    for (size_t i = 0; i < KVT_ARRAY_LEN(order); i++) {
        struct kvt_plan *plan = NULL;
        struct kvt_auto_pick pick;
        const enum kvt_status status = try_plan(&plan, &pick, model, order[i], r, err);
        if (status == KVT_ERR_UNSUPPORTED && i > 0) continue;
        if (status != KVT_OK) return status;
        const int64_t fits = kvt_auto_longest(plan, r->memory / (uint64_t)r->n_sessions, r->n_ctx);
        kvt_plan_destroy(plan);
        if (i == 0) f16_bytes = pick.bytes;
        if (is_spoken_against(r, order[i])) continue;
        if (r->memory == 0 || pick.bytes <= r->memory) {
            *out = pick;
            say_why(out, r, f16_bytes);
            return KVT_OK;
        }
        if (!least.kv || pick.bytes < least.bytes) least = pick;
        longest = KVT_MAX(longest, fits);
    }
    return nothing_fits(r, &least, longest, err);
}

int kvt_auto_fitting(const char **names, int most, const struct kvt_model *model, const struct kvt_auto_request *r) {
    int n = 0;
    for (size_t i = 0; i < KVT_ARRAY_LEN(order) && n < most; i++) {
        struct kvt_plan *plan = NULL;
        struct kvt_auto_pick pick;
        if (try_plan(&plan, &pick, model, order[i], r, NULL) != KVT_OK) continue;
        kvt_plan_destroy(plan);
        if (!is_spoken_against(r, order[i]) && (r->memory == 0 || pick.bytes <= r->memory)) names[n++] = order[i];
    }
    return n;
}
