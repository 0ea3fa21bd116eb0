/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan's string: the codecs of all layers, then those of layers that differ: "kivi4g32,affine4g64:0-1=f16:7=kivi8g32".
 */
#include "cache/plan_text.h"

#include <ctype.h>
#include <string.h>

#include "base/attr.h"
#include "base/buf.h"
#include "base/check.h"
#include "codec/codec.h"
#include "kvtile/cache.h"

enum { NAME_MAX_BYTES = 39, TEXT_BYTES_MAX = 1 << 20 };

/* Names of two codecs of one design: on a side it means that side's. */
static const struct {
    const char *name, *codec[KVT_SIDE_COUNT];
} pairs[] = {{"kvt2", {"kq2", "vu2"}},
             {"kvt3", {"kq3", "vu3"}},
             {"kvt4", {"kq4", "vu4"}},
             {"kvt2-feedback", {"kq2-feedback", "vu2"}},
             {"kvt3-feedback", {"kq3-feedback", "vu3"}},
             {"kvt4-feedback", {"kq4-feedback", "vu4"}}};

static const char *pair_at(size_t i) { return i < KVT_ARRAY_LEN(pairs) ? pairs[i].name : NULL; }

const char *kvt_kv_at(size_t i) {
    for (size_t c = 0; c < kvt_codec_count(); c++) {
        const struct kvt_codec_info info = kvt_codec_info(kvt_codec_at(c));
        if (info.sides == KVT_SIDES_BOTH && i-- == 0) return info.name;
    }
    return pair_at(i);
}

/* ---- reading ---------------------------------------------------------------------------------------------------------- */

static enum kvt_status parse_codec(struct kvt_kv_pair *out, enum kvt_side side, const char *name, size_t len,
                                   struct kvt_error *err) {
    char text[NAME_MAX_BYTES + 1];
    memcpy(text, name, len);
    text[len] = 0;
    for (size_t i = 0; i < KVT_ARRAY_LEN(pairs); i++)
        if (strcmp(text, pairs[i].name) == 0) return kvt_codec_parse(&out->codec[side], pairs[i].codec[side], err);
    if (kvt_codec_parse(&out->codec[side], text, NULL) == KVT_OK) return KVT_OK;
    return kvt_codec_unknown(text, ", kvt{2,3,4}[-feedback]", pair_at, err);
}

/* "K" or "K,V", `len` bytes. */
static enum kvt_status parse_pair(struct kvt_kv_pair *out, const char *text, size_t len, struct kvt_error *err) {
    const char *comma = memchr(text, ',', len);
    const size_t k_len = comma ? (size_t)(comma - text) : len, v_len = comma ? len - k_len - 1 : len;
    const char *v = comma ? comma + 1 : text;
    if (k_len < 1 || k_len > NAME_MAX_BYTES || v_len < 1 || v_len > NAME_MAX_BYTES || memchr(v, ',', v_len))
        return kvt_fail(err, KVT_ERR_ARG, "'%.*s' is no cache: write K or K,V, each the name of a codec",
                        (int)KVT_MIN(len, (size_t)60), text);
    KVT_TRY(parse_codec(out, KVT_SIDE_K, text, k_len, err));
    return parse_codec(out, KVT_SIDE_V, v, v_len, err);
}

static bool read_number(const char **text, int *out) {
    int n = 0;
    if (!isdigit((unsigned char)**text)) return false;
    for (; isdigit((unsigned char)**text); ++*text)
        if (n < 1 << 20) n = n * 10 + (**text - '0');
    *out = n;
    return true;
}

/* "7=K,V" or "0-3=K,V". */
static enum kvt_status parse_exception(struct kvt_kv_pair *layers, int n_layers, const char *text, size_t len,
                                       struct kvt_error *err) {
    const char *at = text;
    int first = 0, last = 0;
    bool good = read_number(&at, &first);
    last = first;
    if (good && *at == '-') {
        at++;
        good = read_number(&at, &last);
    }
    if (!good || *at != '=' || last < first)
        return kvt_fail(err, KVT_ERR_ARG, "'%.*s' is no part of a plan: write LAYER=K[,V] or FIRST-LAST=K[,V]",
                        (int)KVT_MIN(len, (size_t)60), text);
    if (last >= n_layers)
        return kvt_fail(err, KVT_ERR_ARG, "the plan names layer %d; the model has layers 0 to %d", last, n_layers - 1);
    at++;
    struct kvt_kv_pair pair;
    KVT_TRY(parse_pair(&pair, at, (size_t)(text + len - at), err));
    for (int l = first; l <= last; l++) layers[l] = pair;
    return KVT_OK;
}

enum kvt_status kvt_plan_parse(struct kvt_kv_pair *layers, int n_layers, const char *kv, struct kvt_error *err) {
    size_t len = strcspn(kv, ":");
    struct kvt_kv_pair base;
    KVT_TRY(parse_pair(&base, kv, len, err));
    for (int l = 0; l < n_layers; l++) layers[l] = base;
    while (kv[len] == ':') {
        kv += len + 1;
        len = strcspn(kv, ":");
        KVT_TRY(parse_exception(layers, n_layers, kv, len, err));
    }
    return KVT_OK;
}

/* ---- writing ---------------------------------------------------------------------------------------------------------- */

static bool same(const struct kvt_kv_pair *a, const struct kvt_kv_pair *b) {
    return a->codec[KVT_SIDE_K] == b->codec[KVT_SIDE_K] && a->codec[KVT_SIDE_V] == b->codec[KVT_SIDE_V];
}

/* The pair of the most layers, the first of equals. */
static const struct kvt_kv_pair *most_frequent(const struct kvt_kv_pair *layers, int n_layers) {
    int best = 0, most = 0;
    for (int i = 0; i < n_layers; i++) {
        int n = 0;
        for (int l = 0; l < n_layers; l++) n += same(&layers[l], &layers[i]);
        if (n > most) most = n, best = i;
    }
    return &layers[best];
}

static enum kvt_status add_pair(struct kvt_buf *buf, const struct kvt_kv_pair *pair) {
    const char *k = kvt_codec_info(pair->codec[KVT_SIDE_K]).name, *v = kvt_codec_info(pair->codec[KVT_SIDE_V]).name;
    for (size_t i = 0; i < KVT_ARRAY_LEN(pairs); i++)
        if (strcmp(k, pairs[i].codec[KVT_SIDE_K]) == 0 && strcmp(v, pairs[i].codec[KVT_SIDE_V]) == 0)
            return kvt_buf_addf(buf, "%s", pairs[i].name);
    return strcmp(k, v) == 0 ? kvt_buf_addf(buf, "%s", k) : kvt_buf_addf(buf, "%s,%s", k, v);
}

static enum kvt_status add_all(struct kvt_buf *buf, const struct kvt_kv_pair *layers, int n_layers) {
    const struct kvt_kv_pair *base = most_frequent(layers, n_layers);
    KVT_TRY(add_pair(buf, base));
    for (int first = 0, end; first < n_layers; first = end) {
        for (end = first + 1; end < n_layers && same(&layers[end], &layers[first]);) end++;
        if (same(&layers[first], base)) continue;
        KVT_TRY(kvt_buf_addf(buf, end - first > 1 ? ":%d-%d=" : ":%d=", first, end - 1));
        KVT_TRY(add_pair(buf, &layers[first]));
    }
    return KVT_OK;
}

char *kvt_plan_write(const struct kvt_kv_pair *layers, int n_layers, const struct kvt_allocator *allocator) {
    struct kvt_buf buf;
    char *text = NULL;
    kvt_buf_init(&buf, allocator, TEXT_BYTES_MAX);
    if (add_all(&buf, layers, n_layers) == KVT_OK) text = kvt_take_string(allocator, kvt_buf_text(&buf), buf.len);
    kvt_buf_finish(&buf);
    return text;
}
