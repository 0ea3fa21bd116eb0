/* SPDX-License-Identifier: Apache-2.0
 * One way of running a chunk: a cache, and the pieces in which the tokens are fed. */
#include "base/check.h"
#include "fidelity/inside.h"

const char *kvt_leg_name(enum kvt_leg leg) {
    static const char *const names[] = {"prefill", "decode"};
    return names[leg];
}

/* Parts go through plain attention, where what is not encoded is behind the same frontiers as in the whole. */
static bool is_plain(const struct kvt_fidelity_case *c) {
    return c->kind != KVT_FIDELITY_SCHEME && c->kind != KVT_FIDELITY_REGION;
}

static struct kvt_part part_of(const struct kvt_fidelity_case *c) {
    struct kvt_part part = kvt_part_all;
    if (c->kind == KVT_FIDELITY_SIDE || c->kind == KVT_FIDELITY_LAYER) part.side = c->side;
    if (c->kind == KVT_FIDELITY_LAYER || c->kind == KVT_FIDELITY_KEPT || c->kind == KVT_FIDELITY_HEAD)
        part.layer = c->layer;
    if (c->kind == KVT_FIDELITY_HEAD) part.head = c->head;
    part.inverted = c->kind == KVT_FIDELITY_KEPT;
    return part;
}

static enum kvt_status open_plain(struct kvt_lane *lane, const struct kvt_lane_options *o, struct kvt_error *err) {
    const struct kvt_part part = part_of(o->of);
    if (!is_plain(o->of)) return KVT_OK;
    return kvt_plain_create(&lane->plain, lane->plan, o->n_ctx, &part, o->parallel, o->allocator, err);
}

static enum kvt_status open_lane(struct kvt_lane *lane, const struct kvt_model *model, const struct kvt_lane_options *o,
                                 struct kvt_error *err) {
    const struct kvt_fidelity_case *c = o->of;
    const struct kvt_shape shape = kvt_model_shape(model);
    const struct kvt_plan_options plan = {
        .struct_size = sizeof plan, .kv = c->kv, .sink = c->sink, .tail = c->tail, .start = c->start};
    KVT_TRY(kvt_plan_create(&lane->plan, &shape, &plan, o->allocator, err));
    KVT_TRY(open_plain(lane, o, err));
    struct kvt_session_options session = {
        .kv = c->kv,
        .sink = c->sink,
        .tail = c->tail,
        .start = c->start,
        .n_ctx = o->n_ctx,
        .beyond = o->beyond,
        .n_batch = c->leg == KVT_LEG_DECODE ? 1 : o->n_batch,
        .n_keep = c->leg == KVT_LEG_DECODE ? 1 : o->n_ctx,
        .place = o->place,
        .level = o->level,
        .parallel = o->parallel,
        .allocator = o->allocator,
    };
    if (lane->plain) { /* its own cache is not read */
        session.kv = "f16";
        session.sink = session.tail = 0;
        session.start = 0;
        session.tap = kvt_plain_tap(lane->plain);
    }
    return kvt_session_create(&lane->session, model, &session, err);
}

enum kvt_status kvt_lane_open(struct kvt_lane *out, const struct kvt_model *model,
                              const struct kvt_lane_options *options, struct kvt_error *err) {
    struct kvt_lane lane = {.leg = options->of->leg, .width = kvt_model_info(model).width};
    const enum kvt_status status = open_lane(&lane, model, options, err);
    if (status == KVT_OK)
        *out = lane;
    else
        kvt_lane_close(&lane);
    return status;
}

void kvt_lane_close(struct kvt_lane *lane) {
    kvt_session_destroy(lane->session);
    kvt_plain_destroy(lane->plain);
    kvt_plan_destroy(lane->plan);
    *lane = (struct kvt_lane){.session = NULL};
}

enum kvt_status kvt_lane_run(struct kvt_lane *lane, const int32_t *ids, int n, float *outputs,
                             const struct kvt_progress *progress, struct kvt_error *err) {
    kvt_session_clear(lane->session);
    if (lane->leg == KVT_LEG_PREFILL) {
        KVT_TRY(kvt_session_eval(lane->session, ids, n, n, progress, err));
        return kvt_session_outputs(lane->session, 0, n, outputs, err);
    }
    for (int i = 0; i < n; i++) {
        if (!kvt_progress_report(progress, "prompt", (uint64_t)i, (uint64_t)n))
            return kvt_fail(err, KVT_ERR_CANCELLED, "cancelled");
        KVT_TRY(kvt_session_eval(lane->session, ids + i, 1, 1, NULL, err));
        KVT_TRY(kvt_session_outputs(lane->session, 0, 1, outputs + (ptrdiff_t)i * lane->width, err));
    }
    return KVT_OK;
}
