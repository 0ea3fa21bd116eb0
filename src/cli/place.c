/* SPDX-License-Identifier: Apache-2.0
 * Where a model runs. */
#include "cli/place.h"

#include <stdio.h>

#include "base/check.h"

#define AT(field) offsetof(struct kvt_place_settings, field)

/* clang-format off */
const struct kvt_opt kvt_place_options[KVT_PLACE_N_OPTIONS] = {
    {KVT_OPT_GROUP, .name = "Place"},
    {KVT_OPT_TEXT, .name = "backend", .value = "NAME", .words = "cpu cuda", .at = AT(backend),
     .help = "where the cache is kept and the model runs: cpu, or cuda, where the weights are held as f16 beside the cache (kvtile version "
             "says what this build and machine have); cpu if absent"},
    {KVT_OPT_INT, .name = "device", .value = "N", .at = AT(device), .max = 1023, .help = "cuda: which of the devices"},
    {KVT_OPT_FLAG, .name = "backend-fallback", .at = AT(fallback),
     .help = "run on the processor, and say so, where the backend is not to be had or has too little memory for the weights; otherwise "
             "that is an error"},
};
/* clang-format on */

/* Ends in the processor, if that was asked for; a wrong call stays one. */
static enum kvt_status fall_back(struct kvt_place *place, const struct kvt_place_settings *s, enum kvt_status status,
                                 struct kvt_error *err) {
    const bool may = status == KVT_ERR_UNSUPPORTED || status == KVT_ERR_DEVICE || status == KVT_ERR_NOMEM;
    if (!s->fallback || !may) return status;
    fprintf(stderr, "kvtile: running on the processor: %s\n", err->text);
    *place = (struct kvt_place){NULL, 0};
    return KVT_OK;
}

enum kvt_status kvt_place_find(struct kvt_place *out, const struct kvt_place_settings *s, struct kvt_error *err) {
    struct kvt_error own, *why = err ? err : &own;
    if (!s->backend && s->device)
        return kvt_fail(err, KVT_ERR_ARG, "--device %d is one of the backend cuda: add --backend cuda, or leave it out",
                        (int)s->device);
    *out = (struct kvt_place){s->backend, (int)s->device};
    const enum kvt_status status = kvt_place_check(*out, why);
    return status == KVT_OK ? KVT_OK : fall_back(out, s, status, why);
}

enum kvt_status kvt_place_bring(struct kvt_place *place, struct kvt_place_info *info,
                                const struct kvt_place_settings *s, const struct kvt_model *model,
                                const struct kvt_parallel *parallel, const struct kvt_progress *progress,
                                struct kvt_error *err) {
    struct kvt_error own, *why = err ? err : &own;
    const enum kvt_status status = kvt_model_place(model, *place, parallel, progress, info, why);
    if (status == KVT_OK) return KVT_OK;
    *info = (struct kvt_place_info){.bytes = 0};
    return fall_back(place, s, status, why);
}
