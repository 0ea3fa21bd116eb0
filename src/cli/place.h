/* SPDX-License-Identifier: Apache-2.0
 *
 * The options that choose where a model runs. A command embeds a struct kvt_place_settings and lists kvt_place_options among its shared
 * tables; kvt_engine_load does what they say.
 */
#ifndef CLI_PLACE_H
#define CLI_PLACE_H

#include "cli/opt.h"
#include "model/model.h"

struct kvt_place_settings {
    const char *backend; /* NULL: "cpu" */
    int64_t device;
    bool fallback;
};

enum { KVT_PLACE_N_OPTIONS = 4 };
extern const struct kvt_opt kvt_place_options[KVT_PLACE_N_OPTIONS];

/* Where the settings say that the model runs, before any work. ARG for a device without a backend; what kvt_place_check says where there
 * is no such place: then it is the processor, with a note on standard error, if the settings ask for that. */
KVT_MUST_CHECK enum kvt_status kvt_place_find(struct kvt_place *out, const struct kvt_place_settings *s,
                                              struct kvt_error *err);
/* Brings a model there, likewise; and says so unless it is quiet. */
KVT_MUST_CHECK enum kvt_status kvt_place_bring(struct kvt_place *place, struct kvt_place_info *info,
                                               const struct kvt_place_settings *s, const struct kvt_model *model,
                                               const struct kvt_parallel *parallel, const struct kvt_progress *progress,
                                               struct kvt_error *err);

#endif
