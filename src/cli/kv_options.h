/* SPDX-License-Identifier: Apache-2.0
 *
 * The options that choose a cache: kvtile's own, and those of mlx-lm, gmlx and llama.cpp with their own meanings. A command
 * embeds a struct kvt_kv_settings and lists kvt_kv_options among its shared tables.
 */
#ifndef CLI_KV_OPTIONS_H
#define CLI_KV_OPTIONS_H

#include "cli/opt.h"

struct kvt_kv_settings {
    const char *kv, *type_k, *type_v, *scheme;
    int64_t bits, group;
    int64_t sink, tail, start, rolling; /* as in kvt_plan_options */
    uint64_t limit;
};

#define KVT_KV_DEFAULTS                                                                                                \
    { .group = 64 }

enum { KVT_KV_N_OPTIONS = 12, KVT_KV_TEXT_MAX = 4096 };
extern const struct kvt_opt kvt_kv_options[KVT_KV_N_OPTIONS];

/* Writes the codecs that the settings ask for as a plan's string ("affine4g64,f16"), or as the "@FILE" that was asked for. ARG for nonsense; a codec's name is
 * checked later, when the plan is made. */
KVT_MUST_CHECK enum kvt_status kvt_kv_resolve(char kv[KVT_KV_TEXT_MAX], const struct kvt_kv_settings *s,
                                              struct kvt_error *err);

#endif
