/* SPDX-License-Identifier: Apache-2.0
 * Choosing a cache, in kvtile's words and in those of others. */
#include "cli/kv_options.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "kvtile/kvtile.h"

#define AT(field) offsetof(struct kvt_kv_settings, field)

/* clang-format off */
const struct kvt_opt kvt_kv_options[KVT_KV_N_OPTIONS] = {
    {KVT_OPT_GROUP, .name = "Cache"},
    {KVT_OPT_TEXT, .name = "kv", .value = "K[,V]", .at = AT(kv),
     .help = "codec of the keys and of the values, or one for both; layers that differ follow, as in kivi4g32:0-1=f16; "
             "@FILE: a plan that kvtile sweep wrote; auto: f16 if its bytes fit the memory, else the best that does. auto if none is "
             "named",
     .not_with = "cache-type-k cache-type-v kv-bits kv-quant-scheme"},
    {KVT_OPT_BYTES, .name = "kv-memory", .value = "SIZE", .at = AT(memory),
     .help = "memory that the cache may take at a full context: auto chooses by it, a cache that is named and needs more is "
             "refused at the start; if absent, what the machine has left beside the weights, for auto alone"},
    {KVT_OPT_INT, .name = "sink", .value = "N", .at = AT(sink), .max = 1 << 30,
     .help = "keep the first N rows in 16 bits (a multiple of 128)"},
    {KVT_OPT_INT, .name = "tail", .also = "kv-tail-tokens", .value = "N", .at = AT(tail), .max = 1 << 30,
     .help = "keep the newest N rows in 16 bits"},
    {KVT_OPT_FLAG, .name = "kv-hold-last", .at = AT(hold_last),
     .help = "keep the last layer in 16 bits, where there are more than two"},
    {KVT_OPT_FLAG, .name = "kv-strict", .at = AT(strict),
     .help = "fail where a layer cannot store its rows in what was asked for; otherwise such layers keep 16 bits, and the [kv] "
             "lines say so"},
    {KVT_OPT_FLAG, .name = "no-kv-check", .at = AT(no_check),
     .help = "do not try the cache on rows of this model at the start (it takes up to 2 seconds, none with f16)"},
    {KVT_OPT_INT, .name = "quantized-kv-start", .value = "N", .at = AT(start), .max = 1 << 30,
     .help = "keep all rows in 16 bits while there are fewer than N; mlx-lm's own default is 5000, here it is 0"},
    {KVT_OPT_INT, .name = "max-kv-size", .value = "N", .at = AT(rolling), .max = 1 << 30,
     .help = "forget old rows: keep the sink and the newest rows, N together; 0: keep all"},
    {KVT_OPT_BYTES, .name = "cache-limit", .value = "SIZE", .at = AT(limit),
     .help = "end with an error where the cache would need more than SIZE (300M, 2G)"},
    {KVT_OPT_TEXT, .name = "cache-type-k", .brief = "ctk", .value = "TYPE", .at = AT(type_k),
     .help = "type of the keys, as llama.cpp says it: q8_0 to q4_0 and iq4_nl are rotated where llama.cpp rotates them (--kv q8_0 "
             "is not); f16 if only the other one is given", .not_with = "kv-bits kv-quant-scheme"},
    {KVT_OPT_TEXT, .name = "cache-type-v", .brief = "ctv", .value = "TYPE", .at = AT(type_v),
     .help = "type of the values, likewise", .not_with = "kv-bits kv-quant-scheme"},
    {KVT_OPT_TEXT, .name = "kv-bits", .value = "B", .at = AT(bits),
     .help = "affine codes of B bits, as mlx-lm says it; kXvY: kvarn codes of X bits for keys and Y for values, as gmlx says it"},
    {KVT_OPT_INT, .name = "kv-group-size", .value = "G", .at = AT(group), .min = 1, .max = 512,
     .help = "elements that share a scale, with --kv-bits", .needs = "kv-bits"},
    {KVT_OPT_TEXT, .name = "kv-quant-scheme", .value = "NAME", .words = "uniform kvarn auto", .at = AT(scheme),
     .help = "as gmlx says it, which keeps the last layer in 16 bits: uniform for affine codes; kvarn (of 6 bits if --kv-bits is "
             "absent) with a sink of 128 and a tail of 1024 rows; auto for the one that it would choose"},
};
/* clang-format on */

/* ---- gmlx and mlx-lm -------------------------------------------------------------------------------------------------- */

enum { GMLX_SINK = 128, GMLX_TAIL = 1024, GMLX_ROWS = 128, GMLX_GROUP = 64, GMLX_WIDTH = 6 };

/* Widths of keys and values; 0: not given. */
struct widths {
    int k, v;
    bool split; /* written as kXvY */
};

static bool is_width(int bits) { return bits >= 2 && bits <= 8 && bits != 7; }

static enum kvt_status read_widths(struct widths *out, const char *text, struct kvt_error *err) {
    *out = (struct widths){0, 0, false};
    if (!text) return KVT_OK;
    char word[8] = "";
    for (size_t i = 0; i < sizeof word - 1 && text[i]; i++) word[i] = (char)tolower((unsigned char)text[i]);
    const bool fits = strlen(text) < sizeof word;
    if (fits && isdigit((unsigned char)word[0]) && !word[1]) out->k = out->v = word[0] - '0';
    if (fits && strlen(word) == 4 && word[0] == 'k' && word[2] == 'v')
        *out = (struct widths){word[1] - '0', word[3] - '0', true};
    if (!is_width(out->k) || !is_width(out->v))
        return kvt_fail(err, KVT_ERR_ARG,
                        "--kv-bits takes a width of 2, 3, 4, 5, 6 or 8, or kXvY such as k6v5, not '%.40s'", text);
    return KVT_OK;
}

static void set_affine(struct kvt_kv_wish *out, const struct widths *w, int64_t group) {
    snprintf(out->kv, sizeof out->kv, "affine%dg%lld", w->k, (long long)group);
}

/* gmlx's records begin after a sink and have a tail. */
static void set_kvarn(struct kvt_kv_wish *out, const struct widths *w) {
    const int k = w->k ? w->k : GMLX_WIDTH, v = w->v ? w->v : GMLX_WIDTH;
    if (k == v)
        snprintf(out->kv, sizeof out->kv, "kvarn%d", k);
    else
        snprintf(out->kv, sizeof out->kv, "kvarn%d,kvarn%d", k, v);
    if (out->sink < 0) out->sink = GMLX_SINK;
    if (out->tail < 0) out->tail = GMLX_TAIL;
}

/* Whether gmlx's kvarn takes the model, so that its auto may choose it: heads of some layer, and the window of --max-kv-size, which is
 * to hold the sink, the tail and a group more. */
static bool kvarn_can(const struct kvt_kv_settings *s, const struct kvt_shape *shape) {
    const int64_t tail = s->tail >= 0 ? s->tail : GMLX_TAIL;
    bool fits = !shape;
    for (int l = 0; shape && l < shape->n_layers; l++) {
        const int k = shape->layers[l].k_size, v = shape->layers[l].v_size;
        fits |= k == v && (k == 128 || k == 256 || k == 512);
    }
    return fits && (!s->rolling || s->rolling >= GMLX_SINK + KVT_MAX(tail, GMLX_ROWS) + GMLX_ROWS);
}

/* Whether some layers have windows of their own beside others that see all. */
static bool has_both(const struct kvt_shape *shape, int n_windows) {
    return shape && n_windows > 0 && n_windows < shape->n_layers;
}

static int count_windows(const struct kvt_shape *shape) {
    int n = 0;
    for (int l = 0; shape && l < shape->n_layers; l++) n += shape->layers[l].window != 0;
    return n;
}

/* gmlx's order: what only kvarn has, what only affine has, then the shape. A model with windows of its own makes its own cache there, so
 * that --max-kv-size does not count. */
static enum kvt_status choose_as_gmlx(struct kvt_kv_wish *out, const struct kvt_kv_settings *s, const struct widths *w,
                                      const struct kvt_shape *shape, struct kvt_error *err) {
    const int n_windows = count_windows(shape);
    const bool can = kvarn_can(s, shape), drops = has_both(shape, n_windows) || (s->rolling && n_windows == 0);
    const bool only_kvarn = w->split || w->k == 5 || (s->tail >= 0 && s->tail != GMLX_TAIL);
    const bool only_affine = s->start > 0 || s->group != GMLX_GROUP;
    if (only_kvarn && !can && (w->split || w->k == 5))
        return kvt_fail(err, KVT_ERR_ARG,
                        "--kv-bits %.8s needs kvarn, which gmlx has for heads of 128, 256 or 512 and windows that hold "
                        "sink, tail and 128 rows more; name --kv-quant-scheme kvarn to have it here",
                        s->bits);
    const bool kvarn = can && (only_kvarn || (!only_affine && drops));
    const char *why = only_kvarn                ? "for a width or a tail that only kvarn has"
                      : only_affine             ? "for a start or a group that only affine has"
                      : drops                   ? "old rows are dropped"
                      : n_windows || s->rolling ? "no layer grows"
                                                : "all layers see the whole context";
    snprintf(out->why, sizeof out->why, "gmlx's auto picked %s: %s%s", kvarn ? "kvarn" : "affine", why,
             !can && (only_kvarn || drops) ? ", but gmlx has no kvarn for this model's heads or window" : "");
    if (kvarn)
        set_kvarn(out, w);
    else
        set_affine(out, w, s->group);
    return KVT_OK;
}

static enum kvt_status from_bits(struct kvt_kv_wish *out, const struct kvt_kv_settings *s,
                                 const struct kvt_shape *shape, struct kvt_error *err) {
    struct widths w;
    KVT_TRY(read_widths(&w, s->bits, err));
    out->hold_last |= s->scheme != NULL;
    const char *scheme = s->scheme ? s->scheme : w.split ? "kvarn" : "uniform";
    if (strcmp(scheme, "kvarn") == 0) {
        if (s->group != GMLX_GROUP)
            return kvt_fail(err, KVT_ERR_ARG, "kvarn has groups of 128; leave --kv-group-size %lld out",
                            (long long)s->group);
        set_kvarn(out, &w);
        return KVT_OK;
    }
    const bool is_auto = strcmp(scheme, "auto") == 0;
    if (!is_auto && strcmp(scheme, "uniform") != 0)
        return kvt_fail(err, KVT_ERR_ARG, "--kv-quant-scheme takes auto, uniform or kvarn, not '%.40s'", scheme);
    if (w.k == 0) return kvt_fail(err, KVT_ERR_ARG, "--kv-quant-scheme %s needs --kv-bits", scheme);
    if (is_auto) return choose_as_gmlx(out, s, &w, shape, err);
    if (w.split)
        return kvt_fail(
            err, KVT_ERR_ARG,
            "--kv-bits %.8s: uniform has one width for both in gmlx; write --kv affine%dg%lld,affine%dg%lld", s->bits,
            w.k, (long long)s->group, w.v, (long long)s->group);
    set_affine(out, &w, s->group);
    return KVT_OK;
}

/* ---- llama.cpp -------------------------------------------------------------------------------------------------------- */

/* llama.cpp rotates both sides of a quantized cache where heads are multiples of 64 and alike in all layers. */
static bool llama_rotates(const struct kvt_shape *shape, enum kvt_side side) {
    for (int l = 0; shape && l < shape->n_layers; l++) {
        const struct kvt_layer_shape *s = &shape->layers[l], *first = &shape->layers[0];
        if ((side == KVT_SIDE_K ? s->k_size : s->v_size) % 64 != 0) return false;
        if (s->k_size != first->k_size || s->v_size != first->v_size) return false;
    }
    return shape != NULL;
}

/* Writes a type's codec: its rotated kind where there is one and llama.cpp would take it. */
static void add_type(char *out, size_t size, const char *type, const struct kvt_shape *shape, enum kvt_side side) {
    const struct kvt_codec *codec;
    char name[40];
    const int n = snprintf(name, sizeof name, "%s-rot", type);
    const bool rotated =
        n > 0 && n < (int)sizeof name && llama_rotates(shape, side) && kvt_codec_parse(&codec, name, NULL) == KVT_OK;
    snprintf(out, size, "%s", rotated ? name : type);
}

static enum kvt_status from_types(struct kvt_kv_wish *out, const struct kvt_kv_settings *s,
                                  const struct kvt_shape *shape, struct kvt_error *err) {
    const char *k = s->type_k ? s->type_k : "f16", *v = s->type_v ? s->type_v : "f16";
    if (strlen(k) + strlen(v) + 12 > sizeof out->kv)
        return kvt_fail(err, KVT_ERR_ARG, "the names of the codecs are longer than %d bytes", KVT_KV_TEXT_MAX - 12);
    add_type(out->kv, sizeof out->kv, k, shape, KVT_SIDE_K);
    const size_t n = strlen(out->kv);
    out->kv[n] = ',';
    add_type(out->kv + n + 1, sizeof out->kv - n - 1, v, shape, KVT_SIDE_V);
    return KVT_OK;
}

/* ---- all -------------------------------------------------------------------------------------------------------------- */

static enum kvt_status from_name(struct kvt_kv_wish *out, const struct kvt_kv_settings *s, struct kvt_error *err) {
    const char *kv = s->kv ? s->kv : "auto";
    if (strlen(kv) >= sizeof out->kv)
        return kvt_fail(err, KVT_ERR_ARG, "the names of the codecs are longer than %d bytes", KVT_KV_TEXT_MAX - 1);
    memcpy(out->kv, kv, strlen(kv) + 1);
    return KVT_OK;
}

enum kvt_status kvt_kv_resolve(struct kvt_kv_wish *out, const struct kvt_kv_settings *s, const struct kvt_shape *shape,
                               struct kvt_error *err) {
    out->named = s->kv || s->type_k || s->type_v || s->bits || s->scheme;
    out->sink = s->sink;
    out->tail = s->tail;
    out->hold_last = s->hold_last;
    out->why[0] = 0;
    if (s->bits || s->scheme) return from_bits(out, s, shape, err);
    if (s->type_k || s->type_v) return from_types(out, s, shape, err);
    return from_name(out, s, err);
}
