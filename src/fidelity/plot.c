/* SPDX-License-Identifier: Apache-2.0
 * Plots as inline SVG: axes, lines, marks, labels that keep out of each other's way. */
#include "fidelity/plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

enum {
    WIDTH = 520,
    HEIGHT = 340,
    LEFT = 62,
    RIGHT = 16,
    TOP = 14,
    BOTTOM = 46,
    BOXES_MAX = 512,
    MARKS_MAX = BOXES_MAX - 64,
    MARK = 5,
    LETTER = 7,
    LINE = 14,
    TITLE = 26
};

/* ---- text ------------------------------------------------------------------------------------------------------------- */

/* Bytes of the well-formed UTF-8 character at text, 0 if there is none. */
static size_t utf8_len(const unsigned char *text, size_t len) {
    const size_t n = *text < 0x80 ? 1 : *text >> 5 == 6 ? 2 : *text >> 4 == 14 ? 3 : *text >> 3 == 30 ? 4 : 0;
    if (n == 0 || n > len || *text == 0xC0 || *text == 0xC1 || *text > 0xF4) return 0;
    for (size_t i = 1; i < n; i++)
        if (text[i] >> 6 != 2) return 0;
    return n;
}

enum kvt_status kvt_html_text(struct kvt_buf *out, const char *text, size_t len) {
    for (size_t at = 0; at < len;) {
        const size_t n = utf8_len((const unsigned char *)text + at, len - at);
        if (n == 0)
            KVT_TRY(kvt_buf_addf(out, "&#xFFFD;"));
        else if (strchr("&<>\"", text[at]) && text[at])
            KVT_TRY(kvt_buf_addf(out, "&#%d;", text[at]));
        else if ((unsigned char)text[at] >= ' ')
            KVT_TRY(kvt_buf_add(out, text + at, n));
        at += n ? n : 1;
    }
    return KVT_OK;
}

static enum kvt_status add_text(struct kvt_buf *out, const char *text) {
    return kvt_html_text(out, text, strlen(text));
}

/* ---- axes ------------------------------------------------------------------------------------------------------------- */

struct axis {
    bool log;
    double low, high; /* of the axis; logarithms where it has them */
    int from, to;     /* places on the page */
};

static void reach(double *low, double *high, double x, bool is_log) {
    if (!isfinite(x) || (is_log && x <= 0)) return;
    if (is_log) x = log10(x);
    *low = fmin(*low, x);
    *high = fmax(*high, x);
}

static struct axis make_axis(const struct kvt_plot *plot, bool vertical) {
    struct axis a = {.log = vertical ? plot->log_y : plot->log_x, .low = INFINITY, .high = -INFINITY};
    a.from = vertical ? HEIGHT - BOTTOM : LEFT;
    a.to = vertical ? TOP : WIDTH - RIGHT;
    for (int s = 0; s < plot->n_series; s++)
        for (int i = 0; i < plot->series[s].n; i++)
            reach(&a.low, &a.high, (vertical ? plot->series[s].y : plot->series[s].x)[i], a.log);
    if (!(a.low <= a.high)) a.low = 0, a.high = 1;
    const double room = fmax(0.06 * (a.high - a.low), a.high > a.low ? 0 : 0.5);
    a.low -= room;
    a.high += room;
    return a;
}

static double place(const struct axis *a, double x) {
    const double value = a->log ? (x > 0 ? log10(x) : a->low) : x;
    const double part = (value - a->low) / (a->high - a->low);
    return a->from + fmin(fmax(part, 0), 1) * (a->to - a->from);
}

static enum kvt_status add_tick(struct kvt_buf *out, const struct axis *a, double x, bool vertical) {
    const double at = place(a, x);
    char label[32];
    if (x != 0 && (fabs(x) < 1e-3 || fabs(x) >= 1e5)) {
        const int e = (int)floor(log10(fabs(x)) + 1e-9);
        snprintf(label, sizeof label, "%.0fe%d", x / pow(10, e), e);
    } else {
        snprintf(label, sizeof label, "%g", x);
    }
    if (vertical)
        return kvt_buf_addf(out,
                            "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"tick\" "
                            "x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                            LEFT, WIDTH - RIGHT, at, at, LEFT - 6, at + 4, label);
    return kvt_buf_addf(out,
                        "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/><text class=\"tick\" "
                        "x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                        at, at, TOP, HEIGHT - BOTTOM, at, HEIGHT - BOTTOM + 16, label);
}

/* 1, 2 or 5 times a power of ten, so that at most `most` steps fit. */
static double nice_step(double span, int most) {
    const double raw = span / most, ten = pow(10, floor(log10(raw)));
    return raw <= ten ? ten : raw <= 2 * ten ? 2 * ten : raw <= 5 * ten ? 5 * ten : 10 * ten;
}

/* Powers of ten; between them 2 and 5 where there are few. */
static enum kvt_status add_log_ticks(struct kvt_buf *out, const struct axis *a, bool vertical) {
    static const double between[] = {1, 2, 5};
    const double span = a->high - a->low;
    const int n = span < 1.6 ? 3 : 1, step = span > 9 ? 2 : 1;
    for (int e = (int)floor(a->low); e <= (int)ceil(a->high); e += step)
        for (int i = 0; i < n; i++) {
            const double x = between[i] * pow(10, e);
            if (log10(x) >= a->low && log10(x) <= a->high) KVT_TRY(add_tick(out, a, x, vertical));
        }
    return KVT_OK;
}

static enum kvt_status add_ticks(struct kvt_buf *out, const struct axis *a, bool vertical, bool whole) {
    if (a->log) return add_log_ticks(out, a, vertical);
    double step = nice_step(a->high - a->low, vertical ? 6 : 9);
    if (whole) step = fmax(1, step);
    for (double x = ceil(a->low / step) * step; x <= a->high; x += step)
        KVT_TRY(add_tick(out, a, fabs(x) < step / 1e6 ? 0 : x, vertical));
    return KVT_OK;
}

static enum kvt_status add_axes(struct kvt_buf *out, const struct kvt_plot *plot, const struct axis *x,
                                const struct axis *y) {
    KVT_TRY(add_ticks(out, x, false, plot->whole_x));
    KVT_TRY(add_ticks(out, y, true, false));
    KVT_TRY(
        kvt_buf_addf(out, "<path class=\"axis\" d=\"M%d %dV%dH%d\"/>\n", LEFT, TOP, HEIGHT - BOTTOM, WIDTH - RIGHT));
    KVT_TRY(kvt_buf_addf(out, "<text class=\"name\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">",
                         (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8));
    KVT_TRY(add_text(out, plot->x_label));
    KVT_TRY(kvt_buf_addf(out,
                         "</text>\n<text class=\"name\" transform=\"translate(14 %d) rotate(-90)\" "
                         "text-anchor=\"middle\">",
                         (TOP + HEIGHT - BOTTOM) / 2));
    KVT_TRY(add_text(out, plot->y_label));
    return kvt_buf_addf(out, "</text>\n");
}

/* ---- marks ------------------------------------------------------------------------------------------------------------ */

static enum kvt_status add_line(struct kvt_buf *out, const struct kvt_plot_series *s, const struct axis *x,
                                const struct axis *y) {
    bool down = false;
    KVT_TRY(kvt_buf_addf(out, "<path class=\"line c%d%s\" d=\"", s->color, s->dashed ? " dashed" : ""));
    for (int i = 0; i < s->n; i++) {
        const bool there = isfinite(s->x[i]) && isfinite(s->y[i]) && (!y->log || s->y[i] > 0);
        if (there) KVT_TRY(kvt_buf_addf(out, "%c%.1f %.1f", down ? 'L' : 'M', place(x, s->x[i]), place(y, s->y[i])));
        down = there;
    }
    return kvt_buf_addf(out, "\"/>\n");
}

static enum kvt_status add_marks(struct kvt_buf *out, const struct kvt_plot_series *s, const struct axis *x,
                                 const struct axis *y) {
    for (int i = 0; i < s->n; i++) {
        if (!isfinite(s->x[i]) || !isfinite(s->y[i])) continue;
        KVT_TRY(kvt_buf_addf(out, "<circle class=\"mark c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"><title>", s->color,
                             place(x, s->x[i]), place(y, s->y[i]), s->line ? "2.6" : "4"));
        const char *name = s->labels ? s->labels[i] : s->name;
        if (name) KVT_TRY(add_text(out, name));
        KVT_TRY(kvt_buf_addf(out, ": %.4g, %.3g</title></circle>\n", s->x[i], s->y[i]));
    }
    return KVT_OK;
}

/* What labels keep away from: each other, and marks that have labels. */
struct labels {
    struct box {
        double x, y, width;
    } box[BOXES_MAX];
    int n;
};

/* As a box of text around it. */
static void add_mark_box(struct labels *l, double x, double y) {
    if (l->n < MARKS_MAX) l->box[l->n++] = (struct box){x - MARK, y + MARK, 2 * MARK};
}

static bool is_free(const struct labels *l, double x, double y, double width) {
    if (x < LEFT + 2 || x + width > WIDTH - 2 || y < TOP || y > HEIGHT - BOTTOM - 2) return false;
    for (int i = 0; i < l->n; i++)
        if (fabs(y - l->box[i].y) < LINE - 1 && x < l->box[i].x + l->box[i].width && l->box[i].x < x + width)
            return false;
    return l->n < BOXES_MAX;
}

/* Beside its mark, where there is room; nowhere where there is none. */
static enum kvt_status add_label(struct kvt_buf *out, struct labels *l, const char *text, double x, double y) {
    const double width = (double)strlen(text) * LETTER;
    const double at[][2] = {{x + 7, y - 5},         {x + 7, y + 13},         {x - 7 - width, y + 13},
                            {x - 7 - width, y - 5}, {x - width / 2, y - 10}, {x - width / 2, y + 20}};
    for (size_t i = 0; i < KVT_ARRAY_LEN(at); i++) {
        if (!is_free(l, at[i][0], at[i][1], width)) continue;
        l->box[l->n++] = (struct box){at[i][0], at[i][1], width};
        KVT_TRY(kvt_buf_addf(out, "<text class=\"label\" x=\"%.1f\" y=\"%.1f\">", at[i][0], at[i][1]));
        KVT_TRY(add_text(out, text));
        return kvt_buf_addf(out, "</text>\n");
    }
    return KVT_OK;
}

static enum kvt_status add_labels(struct kvt_buf *out, const struct kvt_plot *plot, const struct axis *x,
                                  const struct axis *y) {
    struct labels labels = {.n = 0};
    for (int k = 0; k < plot->n_series; k++)
        for (int i = 0; plot->series[k].shows && i < plot->series[k].n; i++)
            add_mark_box(&labels, place(x, plot->series[k].x[i]), place(y, plot->series[k].y[i]));
    for (int k = 0; k < plot->n_series; k++) {
        const struct kvt_plot_series *s = &plot->series[k];
        for (int i = 0; s->shows && i < s->n; i++)
            if (s->shows[i]) KVT_TRY(add_label(out, &labels, s->labels[i], place(x, s->x[i]), place(y, s->y[i])));
    }
    return KVT_OK;
}

static enum kvt_status add_legend(struct kvt_buf *out, const struct kvt_plot *plot) {
    KVT_TRY(kvt_buf_addf(out, "<ul class=\"legend\">"));
    for (int k = 0; k < plot->n_series; k++) {
        if (!plot->series[k].name) continue;
        KVT_TRY(kvt_buf_addf(out, "<li class=\"c%d\"><span>", plot->series[k].color));
        KVT_TRY(add_text(out, plot->series[k].name));
        KVT_TRY(kvt_buf_addf(out, "</span></li>"));
    }
    return kvt_buf_addf(out, "</ul>\n");
}

/* All that is inside the axes, and they. */
static enum kvt_status add_drawing(struct kvt_buf *out, const struct kvt_plot *plot) {
    const struct axis x = make_axis(plot, false), y = make_axis(plot, true);
    KVT_TRY(add_axes(out, plot, &x, &y));
    for (int k = 0; k < plot->n_series; k++) {
        if (plot->series[k].line) KVT_TRY(add_line(out, &plot->series[k], &x, &y));
        if (plot->series[k].marks) KVT_TRY(add_marks(out, &plot->series[k], &x, &y));
    }
    return add_labels(out, plot, &x, &y);
}

enum kvt_status kvt_plot_write(struct kvt_buf *out, const struct kvt_plot *plot) {
    KVT_TRY(kvt_buf_addf(out, "<figure id=\"%s\"><figcaption>", plot->id));
    KVT_TRY(add_text(out, plot->title));
    KVT_TRY(kvt_buf_addf(out, "</figcaption>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, HEIGHT));
    KVT_TRY(add_text(out, plot->title));
    KVT_TRY(kvt_buf_addf(out, "\">\n"));
    KVT_TRY(add_drawing(out, plot));
    KVT_TRY(kvt_buf_addf(out, "</svg>\n"));
    KVT_TRY(add_legend(out, plot));
    return kvt_buf_addf(out, "</figure>\n");
}

enum kvt_status kvt_plot_write_file(struct kvt_buf *out, const struct kvt_plot *plot, const char *title) {
    KVT_TRY(
        kvt_buf_addf(out,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 %d %d %d\" width=\"%d\" height=\"%d\">\n"
                     "<style>:root{" KVT_PLOT_LIGHT "}\n"
                     "@media(prefers-color-scheme:dark){:root{" KVT_PLOT_DARK "}}\n" KVT_PLOT_STYLE
                     "</style>\n<rect y=\"%d\" width=\"%d\" height=\"%d\" rx=\"8\" fill=\"var(--panel)\"/>\n"
                     "<text class=\"label\" x=\"%d\" y=\"-4\">",
                     -TITLE, WIDTH, HEIGHT + TITLE, WIDTH, HEIGHT + TITLE, -TITLE, WIDTH, HEIGHT + TITLE, LEFT));
    KVT_TRY(add_text(out, title));
    KVT_TRY(kvt_buf_addf(out, "</text>\n"));
    KVT_TRY(add_drawing(out, plot));
    return kvt_buf_addf(out, "</svg>\n");
}
