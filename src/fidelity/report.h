/* SPDX-License-Identifier: Apache-2.0
 * What the forms of the report share. */
#ifndef FIDELITY_REPORT_H
#define FIDELITY_REPORT_H

#include "fidelity/fidelity.h"

/* The limits of a tier, inclusive; all three must hold. */
struct kvt_tier {
    const char *name;
    double mean, p99, flips;
};
enum { KVT_TIERS = 2 };
extern const struct kvt_tier kvt_tiers[KVT_TIERS];

/* A result with what its report says. */
struct kvt_report {
    const struct kvt_fidelity_result *result;
    const struct kvt_fidelity_about *about;
};

static inline bool kvt_report_is(const struct kvt_report *r, int i, enum kvt_fidelity_kind kind) {
    return r->about->cases[i].kind == kind;
}
/* Rows of a kind that explain a cache, one after another: the first with i = -1; -1 after the last. */
int kvt_report_next(const struct kvt_report *r, enum kvt_fidelity_kind kind, int of, int i);
/* The first of them, or -1. */
static inline int kvt_report_find(const struct kvt_report *r, enum kvt_fidelity_kind kind, int of) {
    return kvt_report_next(r, kind, of, -1);
}
/* Whether any row is of a kind. */
bool kvt_report_has(const struct kvt_report *r, enum kvt_fidelity_kind kind);
/* Whether rows say on which leg they are: where there are both, or only the decode leg. */
bool kvt_report_names_legs(const struct kvt_report *r);

/* The cache after `last`, of a sweep by bytes and then by KL: the first with last = -1; -1 after the last. */
int kvt_report_next_cache(const struct kvt_report *r, int last);
/* Whether row i is a part of cache `of`. */
bool kvt_report_is_part(const struct kvt_report *r, int i, int of);

/* Appends what was run, a line each. */
KVT_MUST_CHECK enum kvt_status kvt_report_head(struct kvt_buf *out, const struct kvt_report *r);

/* The tables that Markdown and HTML have alike: heads and cells but for the first, a cache's or a part's name. */
enum { KVT_CELLS_MAX = 16, KVT_CELL_BYTES = 40 };
struct kvt_report_cells {
    char text[KVT_CELLS_MAX][KVT_CELL_BYTES];
    int n;
};
void kvt_report_cache_heads(struct kvt_report_cells *out, const struct kvt_report *r);
void kvt_report_cache_cells(struct kvt_report_cells *out, const struct kvt_report *r,
                            int i); /* the last one is its tier */
void kvt_report_control_heads(struct kvt_report_cells *out, const struct kvt_report *r);
/* False where the cache has no control. */
bool kvt_report_control_cells(struct kvt_report_cells *out, const struct kvt_report *r, int i);
void kvt_report_part_heads(struct kvt_report_cells *out);
void kvt_report_part_cells(struct kvt_report_cells *out, const struct kvt_report *r, int i);

/* What they say below the caches, of quantizer and path, and of a plan that was found: a paragraph each. */
KVT_MUST_CHECK enum kvt_status kvt_report_notes(struct kvt_buf *out, const struct kvt_report *r);
extern const char kvt_report_control_note[];
KVT_MUST_CHECK enum kvt_status kvt_report_plan(struct kvt_buf *out, const struct kvt_report *r);

/* What a part of a cache is called: "K alone", "layer 3, V", "without layer 3", "layer 3, head 1", "128 first rows kept". */
enum { KVT_PART_BYTES = 48 };
void kvt_report_part(char out[KVT_PART_BYTES], const struct kvt_report *r, int i);

/* Appends the text around a position: what was read before it, and the token that follows; of `max` tokens before at most. A line's
 * end becomes \\n. False where the report knows no text. */
bool kvt_report_context(struct kvt_buf *out, const struct kvt_report *r, const struct kvt_fidelity_position *at,
                        int max);
/* Appends one token's text, in one line. */
KVT_MUST_CHECK enum kvt_status kvt_report_token(struct kvt_buf *out, const struct kvt_report *r, int32_t id);

/* The plots of the HTML report; one that has nothing to show appends nothing. */
KVT_MUST_CHECK enum kvt_status kvt_report_pareto(struct kvt_buf *out, const struct kvt_report *r);
KVT_MUST_CHECK enum kvt_status kvt_report_depth(struct kvt_buf *out, const struct kvt_report *r);
KVT_MUST_CHECK enum kvt_status kvt_report_layers(struct kvt_buf *out, const struct kvt_report *r);
KVT_MUST_CHECK enum kvt_status kvt_report_tail(struct kvt_buf *out, const struct kvt_report *r);

#endif
