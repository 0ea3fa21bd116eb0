/* SPDX-License-Identifier: Apache-2.0
 * Which caches are worth having, and a choice under a budget. */
#include <stdlib.h>

#include "base/check.h"
#include "fidelity/inside.h"

/* ---- the front -------------------------------------------------------------------------------------------------------- */

static double n_elements(const struct kvt_plan *plan, int64_t n_rows) {
    double n = 0;
    for (int l = 0; l < kvt_plan_n_layers(plan); l++) {
        const struct kvt_layer_shape *shape = &kvt_plan_layer(plan, l)->shape;
        const struct kvt_usage usage = kvt_plan_usage(plan, l, n_rows);
        for (int region = 0; region < KVT_REGION_COUNT; region++)
            n += (double)usage.rows[region] * shape->n_kv_heads * (shape->k_size + shape->v_size);
    }
    return n;
}

static bool is_better(const struct kvt_sweep_point *a, double kl_a, const struct kvt_sweep_point *b, double kl_b) {
    return a->bytes <= b->bytes && kl_a <= kl_b && (a->bytes < b->bytes || kl_a < kl_b);
}

static void find_front(struct kvt_sweep_point *points, const struct kvt_fidelity_case *cases,
                       const struct kvt_fidelity_result *result) {
    for (int i = 0; i < result->n_rows; i++) {
        points[i].on_front = cases[i].kind == KVT_FIDELITY_SCHEME;
        for (int j = 0; j < result->n_rows && points[i].on_front; j++)
            points[i].on_front = cases[j].kind != KVT_FIDELITY_SCHEME || cases[j].leg != cases[i].leg ||
                                 !is_better(&points[j], result->rows[j].kl.mean, &points[i], result->rows[i].kl.mean);
    }
}

enum kvt_status kvt_sweep_points(struct kvt_sweep_point *points, const struct kvt_shape *shape,
                                 const struct kvt_fidelity_case *cases, const struct kvt_fidelity_result *result,
                                 int64_t at, struct kvt_error *err) {
    for (int i = 0; i < result->n_rows; i++) {
        const struct kvt_fidelity_case *c = &cases[i];
        const struct kvt_plan_options options = {
            .struct_size = sizeof options, .kv = c->kv, .sink = c->sink, .tail = c->tail, .start = c->start};
        struct kvt_plan *plan;
        KVT_TRY(kvt_plan_create(&plan, shape, &options, &result->allocator, err));
        points[i].bytes = kvt_plan_bytes(plan, at);
        points[i].bits = (double)points[i].bytes * 8 / n_elements(plan, at);
        kvt_plan_destroy(plan);
    }
    find_front(points, cases, result);
    return KVT_OK;
}

/* ---- a choice --------------------------------------------------------------------------------------------------------- */

/* The next option after `from` on the lower hull: the one of the steepest fall; -1 after the last. */
static int next_on_hull(const struct kvt_choice_option *options, int n, int from, double *out_slope) {
    int best = -1;
    double most = 0;
    for (int i = from + 1; i < n; i++) {
        const double bytes = (double)(options[i].bytes - options[from].bytes);
        const double slope = (options[from].cost - options[i].cost) / (bytes > 0 ? bytes : 0.5);
        if (slope > most) most = slope, best = i;
    }
    *out_slope = most;
    return best;
}

/* The best step that fits into what is left: along the hulls, or any. False: none. */
static bool take_step(int *chosen, const struct kvt_choice_option *const *options, const int *n_options, int n_items,
                      uint64_t *left) {
    int item = -1, to = -1;
    double most = 0;
    for (int i = 0; i < n_items; i++) {
        const struct kvt_choice_option *o = options[i];
        double slope;
        int next = next_on_hull(o, n_options[i], chosen[i], &slope);
        while (next >= 0 && o[next].bytes - o[chosen[i]].bytes > *left) /* too large: what lies before it? */
            next = next_on_hull(o, next, chosen[i], &slope);
        if (next >= 0 && slope > most) most = slope, item = i, to = next;
    }
    if (item < 0) return false;
    *left -= options[item][to].bytes - options[item][chosen[item]].bytes;
    chosen[item] = to;
    return true;
}

bool kvt_choose(int *chosen, const struct kvt_choice_option *const *options, const int *n_options, int n_items,
                uint64_t budget) {
    uint64_t least = 0;
    for (int i = 0; i < n_items; i++) {
        chosen[i] = 0;
        least += options[i][0].bytes;
    }
    if (least > budget) return false;
    uint64_t left = budget - least;
    while (take_step(chosen, options, n_options, n_items, &left)) {
    }
    return true;
}
