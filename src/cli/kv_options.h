/* SPDX-License-Identifier: Apache-2.0
 *
 * The options that choose a cache: kvtile's own, and those of mlx-lm, gmlx and llama.cpp with their own meanings. A command
 * embeds a struct kvt_kv_settings and lists kvt_kv_options among its shared tables; cli/choice.h makes a cache of them.
 */
#ifndef CLI_KV_OPTIONS_H
#define CLI_KV_OPTIONS_H

#include "cli/opt.h"
#include "kvtile/cache.h"

struct kvt_kv_settings {
    const char *kv, *type_k, *type_v, *scheme, *bits;
    int64_t group, sink, tail; /* sink and tail: -1 where nothing is said */
    int64_t start, rolling;    /* as in kvt_plan_options */
    uint64_t limit, memory;
    bool hold_last, strict, no_check;
};

#define KVT_KV_DEFAULTS                                                                                                \
    { .group = 64, .sink = -1, .tail = -1 }

enum { KVT_KV_N_OPTIONS = 16, KVT_KV_TEXT_MAX = 4096, KVT_KV_WHY_MAX = 160 };
extern const struct kvt_opt kvt_kv_options[KVT_KV_N_OPTIONS];

/* What the settings come to on rows of a shape. */
struct kvt_kv_wish {
    char kv[KVT_KV_TEXT_MAX]; /* a plan's string ("affine4g64,f16"), "@FILE", or "auto" */
    bool named;               /* whether the user named a cache in any tool's words */
    int64_t sink, tail;       /* -1: nothing is said */
    bool hold_last;
    char why[KVT_KV_WHY_MAX]; /* why another tool's `auto` came to this; or empty */
};

/* ARG for nonsense and for what another tool would refuse too; a codec's name is looked at later, when the plan is made. Without a shape
 * (NULL) only nonsense is found. */
KVT_MUST_CHECK enum kvt_status kvt_kv_resolve(struct kvt_kv_wish *out, const struct kvt_kv_settings *s,
                                              const struct kvt_shape *shape, struct kvt_error *err);

#endif
