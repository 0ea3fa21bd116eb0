/* SPDX-License-Identifier: Apache-2.0
 * Private to `kvtile plan`: what it found, and the forms of its report. */
#ifndef CLI_PLAN_REPORT_H
#define CLI_PLAN_REPORT_H

#include "base/buf.h"
#include "cli/choice.h"

/* One cache, at the context that was asked for. */
struct kvt_plan_row {
    const char *name;
    int sink, tail;
    struct kvt_plan *plan; /* NULL: `why_not` */
    char why_not[232];
    uint64_t bytes;   /* of all sequences */
    int64_t longest;  /* rows of a sequence whose cache fits the memory, all shorter ones too */
    double kl, flips; /* NaN where they were not measured */
};

struct kvt_plan_report {
    const char *path;
    const struct kvt_model *model;
    int64_t n_ctx, n_seqs;
    uint64_t memory, weights, computation; /* memory 0: only that of the cache was asked for, or is known */
    uint64_t cache_memory;                 /* 0: unknown */
    bool is_asked;                         /* somebody named the memory; otherwise it is what the machine has left */
    struct kvt_plan_row *rows;
    int n_rows;
    int n_tokens, n_scored;       /* of the text that KL was measured on, the last of them that count; 0: it was not */
    const struct kvt_choice *use; /* NULL: */
    char why_none[232];
};

/* For people; one JSON object. */
KVT_MUST_CHECK enum kvt_status kvt_plan_report_table(struct kvt_buf *out, const struct kvt_plan_report *report);
KVT_MUST_CHECK enum kvt_status kvt_plan_report_json(struct kvt_buf *out, const struct kvt_plan_report *report);

#endif
