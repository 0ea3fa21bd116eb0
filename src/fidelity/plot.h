/* SPDX-License-Identifier: Apache-2.0
 * Plots as inline SVG. Colours and fonts are the page's: a mark has class cN of its series. */
#ifndef FIDELITY_PLOT_H
#define FIDELITY_PLOT_H

#include "base/buf.h"

enum { KVT_PLOT_COLORS = 8 };

struct kvt_plot_series {
    const char *name;          /* of the legend and of marks; NULL: in no legend */
    const char *const *labels; /* of each point: for who points at it, and beside it where `shows` has it; NULL: none */
    const bool *shows;
    const double *x, *y;
    int n, color;
    bool line, marks, dashed;
};

struct kvt_plot {
    const char *id, *title, *x_label, *y_label;
    bool log_x, log_y; /* what is not above 0 lies on the axis */
    bool whole_x;      /* x are whole numbers: one tick each */
    const struct kvt_plot_series *series;
    int n_series;
};

/* Appends a figure: the plot and its legend. */
KVT_MUST_CHECK enum kvt_status kvt_plot_write(struct kvt_buf *out, const struct kvt_plot *plot);

/* Appends text for HTML: markup escaped, what is no UTF-8 replaced. */
KVT_MUST_CHECK enum kvt_status kvt_html_text(struct kvt_buf *out, const char *text, size_t len);

#endif
