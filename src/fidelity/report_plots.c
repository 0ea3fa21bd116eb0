/* SPDX-License-Identifier: Apache-2.0
 * The plots of the HTML report: size against loss, loss by depth, by layer, and the tail of its distribution. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "fidelity/plot.h"
#include "fidelity/report.h"

enum { LABEL_BYTES = 96, TITLE_BYTES = 160, SERIES_MAX = KVT_PLOT_COLORS, LAYERS_MAX = 256 };

/* ---- names ------------------------------------------------------------------------------------------------------------ */

/* A cache's name, with leg, sink and tail where they differ from row to row. */
static void label_of(char out[LABEL_BYTES], const struct kvt_report *r, int i) {
    const struct kvt_fidelity_case *cases = r->about->cases, *c = &cases[i];
    bool regions = false;
    for (int k = 0; k < r->result->n_rows; k++)
        regions |= kvt_report_is(r, k, KVT_FIDELITY_SCHEME) &&
                   (cases[k].sink != cases[0].sink || cases[k].tail != cases[0].tail);
    int n = snprintf(out, LABEL_BYTES, "%.60s", r->result->rows[i].kv);
    if (regions) n += snprintf(out + n, LABEL_BYTES - (size_t)n, " %d/%d", c->sink, c->tail);
    if (c->leg == KVT_LEG_DECODE) snprintf(out + n, LABEL_BYTES - (size_t)n, ", decode");
}

static bool is_shown(const struct kvt_report *r, int i) {
    return kvt_report_is(r, i, KVT_FIDELITY_SCHEME) && r->about->cases[i].leg == r->about->cases[0].leg &&
           r->result->rows[i].kl.mean > 0;
}

/* A title, with the leg that is shown where there are others. */
static void title_of(char out[LABEL_BYTES], const struct kvt_report *r, const char *title) {
    const char *leg = kvt_report_names_legs(r) ? kvt_leg_name(r->about->cases[0].leg) : NULL;
    snprintf(out, LABEL_BYTES, "%s%s%s", title, leg ? ", " : "", leg ? leg : "");
}

/* Whether no other cache of its leg is as small and as close. */
static bool on_front(const struct kvt_report *r, int i) {
    const struct kvt_fidelity_row *rows = r->result->rows;
    if (r->about->sweep) return r->about->sweep->points[i].on_front;
    for (int j = 0; j < r->result->n_rows; j++) {
        if (!kvt_report_is(r, j, KVT_FIDELITY_SCHEME) || r->about->cases[i].leg != r->about->cases[j].leg) continue;
        const bool as_good = rows[j].bits_per_element <= rows[i].bits_per_element && rows[j].kl.mean <= rows[i].kl.mean;
        if (as_good && (rows[j].bits_per_element < rows[i].bits_per_element || rows[j].kl.mean < rows[i].kl.mean))
            return false;
    }
    return true;
}

/* Caches that have a line of their own, at most SERIES_MAX, on the first leg: all of them, or where there are more those of the front. */
static int choose_rows(int rows[SERIES_MAX], const struct kvt_report *r) {
    int n_all = 0, n = 0;
    for (int i = 0; i < r->result->n_rows; i++) n_all += is_shown(r, i);
    for (int i = 0; i < r->result->n_rows && n < SERIES_MAX; i++)
        if (is_shown(r, i) && (n_all <= SERIES_MAX || on_front(r, i))) rows[n++] = i;
    return n;
}

/* ---- size against loss ------------------------------------------------------------------------------------------------ */

/* All points of the plot, by row; then those of the front by size; then the plan's. */
struct pareto {
    int n, n_front, n_plan;
    double *x, *y, *front_x, *front_y, plan_x, plan_y;
    const char **labels;
    char (*names)[LABEL_BYTES];
    bool *shows, *others; /* whether a point is on the front; the rest of them */
};

static double bits_of(const struct kvt_report *r, int i) {
    return r->about->sweep ? r->about->sweep->points[i].bits : r->result->rows[i].bits_per_element;
}

static void add_front_point(struct pareto *p, double x, double y) {
    int at = p->n_front++;
    for (; at > 0 && p->front_x[at - 1] > x; at--) {
        p->front_x[at] = p->front_x[at - 1];
        p->front_y[at] = p->front_y[at - 1];
    }
    p->front_x[at] = x;
    p->front_y[at] = y;
}

static void fill_pareto(struct pareto *p, const struct kvt_report *r) {
    for (int i = 0; i < r->result->n_rows; i++) {
        if (!kvt_report_is(r, i, KVT_FIDELITY_SCHEME)) continue;
        p->x[p->n] = bits_of(r, i);
        p->y[p->n] = r->result->rows[i].kl.mean;
        label_of(p->names[p->n], r, i);
        p->labels[p->n] = p->names[p->n];
        p->shows[p->n] = on_front(r, i);
        p->others[p->n] = !p->shows[p->n];
        if (p->shows[p->n] && r->about->cases[i].leg == r->about->cases[0].leg && p->y[p->n] > 0)
            add_front_point(p, p->x[p->n], p->y[p->n]);
        p->n++;
    }
    const struct kvt_sweep *s = r->about->sweep;
    if (!s || !s->search || s->points[0].bytes == 0) return;
    p->n_plan = 1; /* bits go with bytes, as elements are the same */
    p->plan_x = s->points[0].bits * (double)s->search->bytes / (double)s->points[0].bytes;
    p->plan_y = s->plan->kl.mean;
}

/* In a page, or as a file of its own, where nobody can point at marks: so all have names there that find room. */
static enum kvt_status write_pareto(struct kvt_buf *out, const struct kvt_report *r, const struct pareto *p,
                                    bool alone) {
    static const char *const plan_label[] = {"the plan"};
    static const bool yes[] = {true};
    char x_label[80];
    const struct kvt_plot_series all[] = {
        {.name = "caches",
         .labels = p->labels,
         .shows = p->shows,
         .x = p->x,
         .y = p->y,
         .n = p->n,
         .color = 7,
         .marks = true},
        {.name = "the front",
         .x = p->front_x,
         .y = p->front_y,
         .n = p->n_front,
         .color = 0,
         .line = true,
         .marks = true},
        {.name = "the plan",
         .labels = plan_label,
         .shows = yes,
         .x = &p->plan_x,
         .y = &p->plan_y,
         .n = p->n_plan,
         .color = 1,
         .marks = true},
        {.labels = p->labels, .shows = p->others, .x = p->x, .y = p->y, .n = p->n},
    };
    if (r->about->sweep)
        snprintf(x_label, sizeof x_label, "bits an element, at %lld rows", (long long)r->about->sweep->at);
    else
        snprintf(x_label, sizeof x_label, "bits an element, at the end of a chunk of %d", r->about->chunk);
    const struct kvt_plot plot = {.id = "pareto",
                                  .title = "Size against loss",
                                  .x_label = x_label,
                                  .y_label = "KL mean (nats)",
                                  .log_y = true,
                                  .series = all,
                                  .n_series = alone ? 4 : 2 + p->n_plan};
    if (!alone) return kvt_plot_write(out, &plot);
    char title[TITLE_BYTES];
    const char *slash = strrchr(r->about->model, '/');
    snprintf(title, sizeof title, "%s: what caches lose, by their size", slash ? slash + 1 : r->about->model);
    return kvt_plot_write_file(out, &plot, title);
}

static enum kvt_status add_pareto(struct kvt_buf *out, const struct kvt_report *r, bool alone) {
    const size_t n = (size_t)r->result->n_rows;
    struct kvt_arena arena;
    struct pareto p = {.n = 0};
    if (!kvt_arena_init(&arena, &r->result->allocator,
                        4 * kvt_arena_need(n, sizeof(double)) + kvt_arena_need(n, sizeof *p.labels) +
                            kvt_arena_need(n, sizeof *p.names) + 2 * kvt_arena_need(n, sizeof *p.shows)))
        return KVT_ERR_NOMEM;
    p.x = kvt_arena_take(&arena, n, sizeof(double));
    p.y = kvt_arena_take(&arena, n, sizeof(double));
    p.front_x = kvt_arena_take(&arena, n, sizeof(double));
    p.front_y = kvt_arena_take(&arena, n, sizeof(double));
    p.labels = kvt_arena_take(&arena, n, sizeof *p.labels);
    p.names = kvt_arena_take(&arena, n, sizeof *p.names);
    p.shows = kvt_arena_take(&arena, n, sizeof *p.shows);
    p.others = kvt_arena_take(&arena, n, sizeof *p.others);
    fill_pareto(&p, r);
    const enum kvt_status status = write_pareto(out, r, &p, alone);
    kvt_arena_finish(&arena);
    return status;
}

enum kvt_status kvt_report_pareto(struct kvt_buf *out, const struct kvt_report *r) { return add_pareto(out, r, false); }

enum kvt_status kvt_fidelity_svg(struct kvt_buf *out, const struct kvt_fidelity_result *result,
                                 const struct kvt_fidelity_about *about) {
    return add_pareto(out, &(struct kvt_report){result, about}, true);
}

/* ---- lines, one a cache ----------------------------------------------------------------------------------------------- */

struct lines {
    char names[SERIES_MAX][LABEL_BYTES];
    struct kvt_plot_series series[SERIES_MAX];
    int n;
};

static void add_series(struct lines *l, const char *name, const double *x, const double *y, int n) {
    snprintf(l->names[l->n], LABEL_BYTES, "%s", name);
    l->series[l->n] = (struct kvt_plot_series){
        .name = l->names[l->n], .x = x, .y = y, .n = n, .color = l->n, .line = true, .marks = true};
    l->n++;
}

enum kvt_status kvt_report_depth(struct kvt_buf *out, const struct kvt_report *r) {
    const struct kvt_fidelity_about *a = r->about;
    const int first = a->warmup, n = a->chunk - 1 - a->warmup;
    double x[KVT_FIDELITY_DEPTHS];
    int rows[SERIES_MAX];
    char title[LABEL_BYTES];
    struct lines lines = {.n = 0};
    title_of(title, r, "Loss by depth");
    for (int k = 0; k < KVT_FIDELITY_DEPTHS; k++) x[k] = first + n * (k + 0.5) / KVT_FIDELITY_DEPTHS;
    const int n_rows = choose_rows(rows, r);
    for (int i = 0; i < n_rows; i++) {
        char name[LABEL_BYTES];
        label_of(name, r, rows[i]);
        add_series(&lines, name, x, r->result->rows[rows[i]].kl_depth, KVT_FIDELITY_DEPTHS);
    }
    const struct kvt_plot plot = {.id = "depth",
                                  .title = title,
                                  .x_label = "position in the chunk",
                                  .y_label = "KL mean (nats)",
                                  .log_y = true,
                                  .series = lines.series,
                                  .n_series = lines.n};
    return lines.n ? kvt_plot_write(out, &plot) : KVT_OK;
}

/* How many of n positions lie above each value of the tail: one in x. */
enum kvt_status kvt_report_tail(struct kvt_buf *out, const struct kvt_report *r) {
    double x[KVT_TAIL_POINTS];
    int rows[SERIES_MAX], n = 0;
    char title[LABEL_BYTES];
    struct lines lines = {.n = 0};
    title_of(title, r, "The worst positions");
    while (n < KVT_TAIL_POINTS - 1 && 1 / (1 - kvt_tail_ranks[n]) < (double)r->result->n_positions) {
        x[n] = 1 / (1 - kvt_tail_ranks[n]);
        n++;
    }
    const int n_rows = choose_rows(rows, r);
    for (int i = 0; i < n_rows; i++) {
        char name[LABEL_BYTES];
        label_of(name, r, rows[i]);
        add_series(&lines, name, x, r->result->rows[rows[i]].kl.tail, n);
    }
    const struct kvt_plot plot = {.id = "tail",
                                  .title = title,
                                  .x_label = "one position in ... loses more",
                                  .y_label = "KL (nats)",
                                  .log_x = true,
                                  .log_y = true,
                                  .series = lines.series,
                                  .n_series = lines.n};
    return lines.n ? kvt_plot_write(out, &plot) : KVT_OK;
}

/* ---- by layer --------------------------------------------------------------------------------------------------------- */

struct layers {
    double x[SERIES_MAX][LAYERS_MAX], y[SERIES_MAX][LAYERS_MAX];
    struct lines lines;
};

/* One side of one cache, from its attribution. */
static void add_attributed(struct layers *l, const struct kvt_report *r, int of, enum kvt_side side) {
    char name[LABEL_BYTES], cache[LABEL_BYTES];
    const int s = l->lines.n;
    int n = 0;
    if (s == SERIES_MAX) return;
    for (int i = -1; (i = kvt_report_next(r, KVT_FIDELITY_LAYER, of, i)) >= 0;) {
        if (r->about->cases[i].side != (int)side || n == LAYERS_MAX) continue;
        l->x[s][n] = r->about->cases[i].layer;
        l->y[s][n++] = r->result->rows[i].kl.mean;
    }
    label_of(cache, r, of);
    snprintf(name, sizeof name, "%s: %.80s", side == KVT_SIDE_K ? "K" : "V", cache);
    if (n > 0) add_series(&l->lines, name, l->x[s], l->y[s], n);
}

/* The smallest codec of one side, as a search measured it. */
static void add_searched(struct layers *l, const struct kvt_search *search, enum kvt_side side) {
    char name[LABEL_BYTES];
    const int s = l->lines.n;
    const struct kvt_codec *codec = NULL;
    int n = 0;
    for (int i = 0; i < search->n_parts && n < LAYERS_MAX; i++) {
        const struct kvt_sensitivity *part = &search->parts[i];
        if (part->side != side) continue;
        if (!codec) codec = part->codec;
        if (part->codec != codec) continue;
        l->x[s][n] = part->layer;
        l->y[s][n++] = part->kl;
    }
    if (!codec) return;
    snprintf(name, sizeof name, "%s: %s", side == KVT_SIDE_K ? "K" : "V", kvt_codec_info(codec).name);
    add_series(&l->lines, name, l->x[s], l->y[s], n);
}

enum kvt_status kvt_report_layers(struct kvt_buf *out, const struct kvt_report *r) {
    const struct kvt_sweep *sweep = r->about->sweep;
    struct layers *l = kvt_take_zero(&r->result->allocator, 1, sizeof *l);
    if (!l) return KVT_ERR_NOMEM;
    for (int i = 0; i < r->result->n_rows; i++)
        for (int side = 0; kvt_report_is(r, i, KVT_FIDELITY_SCHEME) && side < KVT_SIDE_COUNT; side++)
            add_attributed(l, r, i, (enum kvt_side)side);
    for (int side = 0; sweep && sweep->search && side < KVT_SIDE_COUNT; side++)
        add_searched(l, sweep->search, (enum kvt_side)side);
    const struct kvt_plot plot = {.id = "layers",
                                  .title = "Loss of each layer alone",
                                  .x_label = "layer",
                                  .y_label = "KL mean (nats)",
                                  .log_y = true,
                                  .whole_x = true,
                                  .series = l->lines.series,
                                  .n_series = l->lines.n};
    const enum kvt_status status = l->lines.n ? kvt_plot_write(out, &plot) : KVT_OK;
    kvt_give(&r->result->allocator, l, 1, sizeof *l);
    return status;
}
