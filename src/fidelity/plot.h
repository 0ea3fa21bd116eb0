/* SPDX-License-Identifier: Apache-2.0
 * Plots as inline SVG. Colours and fonts are the page's: a mark has class cN of its series. */
#ifndef FIDELITY_PLOT_H
#define FIDELITY_PLOT_H

#include "base/buf.h"

enum { KVT_PLOT_COLORS = 8 };

/* Colours, light and dark, and how what is drawn looks: for the style of the page or file that holds it. */
#define KVT_PLOT_LIGHT                                                                                                 \
    "--fg:#1b1e23;--soft:#5c6470;--rule:#d9dde3;--panel:#f6f7f9;"                                                      \
    "--c0:#0b62c4;--c1:#d9480f;--c2:#2b8a3e;--c3:#9c36b5;--c4:#a67c00;--c5:#0c8599;--c6:#c2255c;--c7:#5c6470"
#define KVT_PLOT_DARK                                                                                                  \
    "--fg:#e6e9ee;--soft:#9aa4b2;--rule:#323943;--panel:#1c2127;"                                                      \
    "--c0:#6cb0ff;--c1:#ff9a62;--c2:#7bd389;--c3:#d9a1ec;--c4:#e3c050;--c5:#62d0e0;--c6:#ff8ab3;--c7:#aab4c2"
#define KVT_PLOT_STYLE                                                                                                 \
    "svg text{fill:var(--soft);font:13px system-ui,sans-serif}"                                                        \
    "svg .label{fill:var(--fg);font-size:12px;paint-order:stroke;stroke:var(--panel);stroke-width:3px}"                \
    ".grid{stroke:var(--rule);stroke-width:1}.axis{fill:none;stroke:var(--soft);stroke-width:1}"                       \
    ".line{fill:none;stroke-width:1.8}.dashed{stroke-dasharray:5 4}\n"                                                 \
    ".c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}.c5{--c:var(--c5)}"     \
    ".c6{--c:var(--c6)}.c7{--c:var(--c7)}.line{stroke:var(--c)}.mark{fill:var(--c)}"

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

/* Appends the plot as an SVG file of its own, without a legend, `title` above it. */
KVT_MUST_CHECK enum kvt_status kvt_plot_write_file(struct kvt_buf *out, const struct kvt_plot *plot, const char *title);

/* Appends text for HTML: markup escaped, what is no UTF-8 replaced. */
KVT_MUST_CHECK enum kvt_status kvt_html_text(struct kvt_buf *out, const char *text, size_t len);

#endif
