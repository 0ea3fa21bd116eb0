/* SPDX-License-Identifier: Apache-2.0
 * What a user asks for, as cases to run. */
#include <string.h>

#include "base/check.h"
#include "fidelity/inside.h"

enum { SIDES = 2, REGIONS = 3, REGION_ROWS = KVT_TILE_ROWS };

struct maker {
    const struct kvt_shape *shape;
    const struct kvt_fidelity_request *request;
    struct kvt_fidelity_cases *cases;
    int of; /* the cache at work */
};

/* ---- cases ------------------------------------------------------------------------------------------------------------ */

/* Adds a case with a string of its own; NULL: no memory for it. */
static enum kvt_status add(struct maker *m, struct kvt_fidelity_case c, const char *kv, struct kvt_error *err) {
    c.kv = kvt_take_string(&m->cases->allocator, kv, strlen(kv));
    if (!c.kv) return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for the caches to measure");
    m->cases->items[m->cases->n++] = c;
    return KVT_OK;
}

/* A part of the cache at work, on its leg. */
static enum kvt_status add_part(struct maker *m, enum kvt_fidelity_kind kind, int layer, int head, int side,
                                struct kvt_error *err) {
    struct kvt_fidelity_case c = m->cases->items[m->of];
    c.kind = kind;
    c.of = m->of;
    c.layer = layer;
    c.head = head;
    c.side = side;
    return add(m, c, c.kv, err);
}

static enum kvt_status add_layers(struct maker *m, struct kvt_error *err) {
    for (int l = 0; l < m->shape->n_layers; l++) {
        for (int side = -1; side < SIDES; side++) KVT_TRY(add_part(m, KVT_FIDELITY_LAYER, l, -1, side, err));
        KVT_TRY(add_part(m, KVT_FIDELITY_KEPT, l, -1, -1, err));
    }
    return KVT_OK;
}

static enum kvt_status add_heads(struct maker *m, struct kvt_error *err) {
    for (int l = 0; l < m->shape->n_layers; l++)
        for (int h = 0; h < m->shape->layers[l].n_kv_heads; h++) KVT_TRY(add_part(m, KVT_FIDELITY_HEAD, l, h, -1, err));
    return KVT_OK;
}

static enum kvt_status add_regions(struct maker *m, struct kvt_error *err) {
    static const int more[REGIONS][2] = {{REGION_ROWS, 0}, {0, REGION_ROWS}, {REGION_ROWS, REGION_ROWS}};
    for (int i = 0; i < REGIONS; i++) {
        struct kvt_fidelity_case c = m->cases->items[m->of];
        c.kind = KVT_FIDELITY_REGION;
        c.of = m->of;
        c.sink += more[i][0];
        c.tail += more[i][1];
        KVT_TRY(add(m, c, c.kv, err));
    }
    return KVT_OK;
}

/* All that explains one cache on one leg. */
static enum kvt_status add_parts(struct maker *m, bool attributed, struct kvt_error *err) {
    const struct kvt_fidelity_request *r = m->request;
    const unsigned attribute = attributed ? r->attribute : 0;
    if (r->numerics) KVT_TRY(add_part(m, KVT_FIDELITY_CONTROL, -1, -1, -1, err));
    for (int side = 0; (attribute & KVT_ATTRIBUTE_KV) && side < SIDES; side++)
        KVT_TRY(add_part(m, KVT_FIDELITY_SIDE, -1, -1, side, err));
    if (attribute & KVT_ATTRIBUTE_LAYERS) KVT_TRY(add_layers(m, err));
    if (attribute & KVT_ATTRIBUTE_HEADS) KVT_TRY(add_heads(m, err));
    if (attribute & KVT_ATTRIBUTE_REGIONS) KVT_TRY(add_regions(m, err));
    return KVT_OK;
}

static int first_leg(const struct kvt_fidelity_request *r) {
    return r->legs[KVT_LEG_PREFILL] ? KVT_LEG_PREFILL : KVT_LEG_DECODE;
}

static enum kvt_status make_all(struct maker *m, struct kvt_error *err) {
    const struct kvt_fidelity_request *r = m->request;
    for (int leg = 0; leg < KVT_LEG_COUNT; leg++)
        for (int i = 0; r->legs[leg] && i < r->n_schemes; i++) {
            const struct kvt_fidelity_case c = {.sink = r->schemes[i].sink,
                                                .tail = r->schemes[i].tail,
                                                .start = r->start,
                                                .leg = (enum kvt_leg)leg,
                                                .of = m->cases->n,
                                                .side = -1,
                                                .layer = -1,
                                                .head = -1};
            KVT_TRY(add(m, c, r->schemes[i].kv, err));
        }
    const int n_schemes = m->cases->n;
    for (m->of = 0; m->of < n_schemes; m->of++)
        KVT_TRY(add_parts(m, (int)m->cases->items[m->of].leg == first_leg(r), err));
    return KVT_OK;
}

/* At most so many cases for each cache and leg. */
static size_t n_most(const struct kvt_shape *shape) {
    size_t n = 2 + SIDES + REGIONS + (size_t)shape->n_layers * (2 + SIDES);
    for (int l = 0; l < shape->n_layers; l++) n += (size_t)shape->layers[l].n_kv_heads;
    return n;
}

static size_t n_taken(const struct kvt_shape *shape, const struct kvt_fidelity_request *r) {
    return n_most(shape) * KVT_LEG_COUNT * (size_t)r->n_schemes;
}

enum kvt_status kvt_fidelity_cases_make(struct kvt_fidelity_cases *out, const struct kvt_shape *shape,
                                        const struct kvt_fidelity_request *request,
                                        const struct kvt_allocator *allocator, struct kvt_error *err) {
    struct kvt_fidelity_cases cases = {.allocator = kvt_allocator_or_default(allocator)};
    if (request->n_schemes < 1)
        return kvt_fail(err, KVT_ERR_ARG, "no cache to measure; name at least one, such as affine4g64");
    cases.n_taken = n_taken(shape, request);
    cases.items = kvt_take_zero(&cases.allocator, cases.n_taken, sizeof *cases.items);
    if (!cases.items) return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for the caches to measure");
    const enum kvt_status status = make_all(&(struct maker){shape, request, &cases, 0}, err);
    if (status == KVT_OK)
        *out = cases;
    else
        kvt_fidelity_cases_finish(&cases);
    return status;
}

void kvt_fidelity_cases_finish(struct kvt_fidelity_cases *cases) {
    for (int i = 0; i < cases->n; i++) {
        const char *kv = cases->items[i].kv;
        kvt_give(&cases->allocator, (char *)(uintptr_t)kv, strlen(kv) + 1, 1);
    }
    if (cases->items) kvt_give(&cases->allocator, cases->items, cases->n_taken, sizeof *cases->items);
    *cases = (struct kvt_fidelity_cases){.items = NULL};
}
