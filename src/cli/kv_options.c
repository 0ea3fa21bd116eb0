/* SPDX-License-Identifier: Apache-2.0
 * Choosing a cache, in kvtile's words and in those of others. */
#include "cli/kv_options.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"

#define AT(field) offsetof(struct kvt_kv_settings, field)

/* clang-format off */
const struct kvt_opt kvt_kv_options[KVT_KV_N_OPTIONS] = {
    {KVT_OPT_GROUP, .name = "Cache"},
    {KVT_OPT_TEXT, .name = "kv", .value = "K[,V]", .at = AT(kv),
     .help = "codec of the keys and of the values, or one for both; layers that differ follow, as in kivi4g32:0-1=f16; "
             "@FILE: a plan that kvtile sweep wrote. f16 if none is named",
     .not_with = "cache-type-k cache-type-v kv-bits kv-quant-scheme"},
    {KVT_OPT_INT, .name = "sink", .value = "N", .at = AT(sink), .max = 1 << 30,
     .help = "keep the first N rows in 16 bits (a multiple of 128)"},
    {KVT_OPT_INT, .name = "tail", .also = "kv-tail-tokens", .value = "N", .at = AT(tail), .max = 1 << 30,
     .help = "keep the newest N rows in 16 bits"},
    {KVT_OPT_INT, .name = "quantized-kv-start", .value = "N", .at = AT(start), .max = 1 << 30,
     .help = "keep all rows in 16 bits while there are fewer than N; mlx-lm's own default is 5000, here it is 0"},
    {KVT_OPT_INT, .name = "max-kv-size", .value = "N", .at = AT(rolling), .max = 1 << 30,
     .help = "forget old rows: keep the sink and the newest rows, N together; 0: keep all"},
    {KVT_OPT_BYTES, .name = "cache-limit", .value = "SIZE", .at = AT(limit),
     .help = "end with an error where the cache would need more than SIZE (300M, 2G)"},
    {KVT_OPT_TEXT, .name = "cache-type-k", .brief = "ctk", .value = "TYPE", .at = AT(type_k),
     .help = "codec of the keys, as llama.cpp says it", .not_with = "kv-bits kv-quant-scheme"},
    {KVT_OPT_TEXT, .name = "cache-type-v", .brief = "ctv", .value = "TYPE", .at = AT(type_v),
     .help = "codec of the values, as llama.cpp says it", .not_with = "kv-bits kv-quant-scheme"},
    {KVT_OPT_INT, .name = "kv-bits", .value = "B", .at = AT(bits), .min = 2, .max = 8,
     .help = "affine codes of B bits, as mlx-lm says it"},
    {KVT_OPT_INT, .name = "kv-group-size", .value = "G", .at = AT(group), .min = 1, .max = 512,
     .help = "elements that share a scale, with --kv-bits", .needs = "kv-bits"},
    {KVT_OPT_TEXT, .name = "kv-quant-scheme", .value = "NAME", .at = AT(scheme),
     .help = "auto or uniform for affine codes, kvarn (of 6 bits if --kv-bits is absent), as gmlx says it"},
};
/* clang-format on */

static enum kvt_status from_bits(char kv[KVT_KV_TEXT_MAX], const struct kvt_kv_settings *s, struct kvt_error *err) {
    const char *scheme = s->scheme ? s->scheme : "auto";
    const bool is_kvarn = strcmp(scheme, "kvarn") == 0;
    if (!is_kvarn && strcmp(scheme, "auto") != 0 && strcmp(scheme, "uniform") != 0)
        return kvt_fail(err, KVT_ERR_ARG, "--kv-quant-scheme takes auto, uniform or kvarn, not '%s'", scheme);
    if (!is_kvarn && s->bits == 0) return kvt_fail(err, KVT_ERR_ARG, "--kv-quant-scheme %s needs --kv-bits", scheme);
    if (is_kvarn)
        snprintf(kv, KVT_KV_TEXT_MAX, "kvarn%lld", (long long)(s->bits ? s->bits : 6));
    else
        snprintf(kv, KVT_KV_TEXT_MAX, "affine%lldg%lld", (long long)s->bits, (long long)s->group);
    return KVT_OK;
}

enum kvt_status kvt_kv_resolve(char kv[KVT_KV_TEXT_MAX], const struct kvt_kv_settings *s, struct kvt_error *err) {
    if (s->bits != 0 || s->scheme) return from_bits(kv, s, err);
    const char *k = s->kv ? s->kv : "f16", *comma = "", *v = "";
    if (s->type_k || s->type_v) {
        k = s->type_k ? s->type_k : "f16";
        comma = ",";
        v = s->type_v ? s->type_v : "f16";
    }
    char text[KVT_KV_TEXT_MAX];
    const int n = snprintf(text, sizeof text, "%s%s%s", k, comma, v);
    if (n >= KVT_KV_TEXT_MAX)
        return kvt_fail(err, KVT_ERR_ARG, "the names of the codecs are longer than %d bytes", KVT_KV_TEXT_MAX - 1);
    memcpy(kv, text, (size_t)n + 1);
    return KVT_OK;
}
