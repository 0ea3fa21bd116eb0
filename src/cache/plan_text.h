/* SPDX-License-Identifier: Apache-2.0
 * A plan's string, read and written. */
#ifndef CACHE_PLAN_TEXT_H
#define CACHE_PLAN_TEXT_H

#include "base/alloc.h"
#include "kvtile/codec.h"

/* The codecs of one layer. */
struct kvt_kv_pair {
    const struct kvt_codec *codec[KVT_SIDE_COUNT];
};

/* Fills n_layers pairs. ARG: the sentence names the part that makes no sense. */
KVT_MUST_CHECK enum kvt_status kvt_plan_parse(struct kvt_kv_pair *layers, int n_layers, const char *kv,
                                              struct kvt_error *err);

/* The shortest string of them: the most frequent pair, then the layers that differ. Free as a string; NULL: no memory. */
char *kvt_plan_write(const struct kvt_kv_pair *layers, int n_layers, const struct kvt_allocator *allocator);

#endif
