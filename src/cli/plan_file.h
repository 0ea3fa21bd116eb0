/* SPDX-License-Identifier: Apache-2.0
 *
 * Plan files: a cache that was found for a model, as JSON. `--kv @plan.json` names one wherever a cache is named.
 */
#ifndef CLI_PLAN_FILE_H
#define CLI_PLAN_FILE_H

#include "cli/kv_options.h"
#include "model/model.h"

struct kvt_plan_file {
    char kv[KVT_KV_TEXT_MAX]; /* a plan's string */
    int sink, tail;
};

/* Reads what `kv` names, "@FILE", or takes kv as it is. A sink or tail that is not 0 was asked for and goes before the file's. FORMAT for
 * a file that is no plan; UNSUPPORTED where it was made for another model: the sentence names both. */
KVT_MUST_CHECK enum kvt_status kvt_plan_file_resolve(struct kvt_plan_file *out, const char *kv, int64_t sink,
                                                     int64_t tail, const struct kvt_model *model,
                                                     struct kvt_error *err);

/* Whether `kv` names a plan whose layers may differ, by a file or by layers ("kivi4g32:0-1=f16"): not for who looks at one layer. */
bool kvt_plan_file_differs(const char *kv);

/* What is known of a plan besides: for people. */
struct kvt_plan_file_about {
    const char *text; /* that it was measured on */
    uint64_t cache_bytes, at;
    double kl;
};
KVT_MUST_CHECK enum kvt_status kvt_plan_file_write(const char *path, const struct kvt_plan_file *plan,
                                                   const struct kvt_model *model,
                                                   const struct kvt_plan_file_about *about, struct kvt_error *err);

#endif
