/* SPDX-License-Identifier: Apache-2.0
 * Stop strings in a text that grows. */
#ifndef SERVE_STOP_H
#define SERVE_STOP_H

#include "base/buf.h"

enum { KVT_STOPS_MAX = 16, KVT_STOP_BYTES_MAX = 256 };

struct kvt_stop_set {
    int n;
    char *texts[KVT_STOPS_MAX]; /* not empty; owned */
};

/* ARG for one that is empty or too long, or one too many. */
KVT_MUST_CHECK enum kvt_status kvt_stop_add(struct kvt_stop_set *set, const char *text, struct kvt_error *err);
void kvt_stop_finish(struct kvt_stop_set *set);

/* Looks at a text of n bytes of which n_old have been looked at before. Where it holds one of the strings: true, and *out_len is where
 * the first begins. Otherwise *out_len is how many bytes can be shown: the rest may be the beginning of one. */
bool kvt_stop_find(const struct kvt_stop_set *set, const char *text, size_t n, size_t n_old, size_t *out_len);

#endif
