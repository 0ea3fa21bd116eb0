/* SPDX-License-Identifier: Apache-2.0
 * Private to `kvtile inspect`: what a file's cache would cost, and the two forms of its report. */
#ifndef CLI_INSPECT_H
#define CLI_INSPECT_H

#include "base/buf.h"
#include "gguf/gguf.h"
#include "kvtile/kvtile.h"

/* The cache of a file, from its metadata alone: the architecture need not be one that the engine knows. */
struct kvt_inspect_cache {
    char why_not[200]; /* no shape: the sentence that says why; else empty */
    char caveat[200];  /* what the figures leave out; else empty */
    bool arch_is_known;
    struct kvt_shape shape; /* layers without KV heads are left out */
    struct kvt_layer_shape *layers;
    size_t n_layers_taken;
    uint64_t n_elements; /* of one token, keys and values of all layers */
};

enum { KVT_INSPECT_N_LENGTHS = 3 };
extern const int kvt_inspect_lengths[KVT_INSPECT_N_LENGTHS]; /* 4096, 32768, 131072 */

/* A cache whose cost is asked for. */
struct kvt_inspect_ask {
    const char *name, *kv; /* kv: a plan's string */
    int sink, tail;
};

/* What it takes. */
struct kvt_inspect_cost {
    char why_not[200]; /* the rule that it breaks; else empty */
    double bits;       /* an element, all overhead counted */
    double token_bytes;
    uint64_t bytes[KVT_INSPECT_N_LENGTHS];
};

/* NOMEM only. finish is harmless on a zeroed one. */
KVT_MUST_CHECK enum kvt_status kvt_inspect_cache_init(struct kvt_inspect_cache *out, const struct kvt_gguf *gguf,
                                                      struct kvt_error *err);
void kvt_inspect_cache_finish(struct kvt_inspect_cache *cache);
struct kvt_inspect_cost kvt_inspect_cost(const struct kvt_inspect_cache *cache, const struct kvt_inspect_ask *ask);

/* Bytes as printable text: control characters and broken UTF-8 as \n, \t, \xNN; cut after about max characters with "..." */
KVT_MUST_CHECK enum kvt_status kvt_inspect_escape(struct kvt_buf *out, const char *data, size_t len, size_t max);

KVT_MUST_CHECK enum kvt_status kvt_inspect_json(struct kvt_buf *out, const char *path, const struct kvt_gguf *gguf,
                                                const struct kvt_inspect_cache *cache,
                                                const struct kvt_inspect_ask *asks, int n_asks);

#endif
