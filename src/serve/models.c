/* SPDX-License-Identifier: Apache-2.0
 * /v1/models and /health: what is served, and the cache that is really in force. */
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "json/json.h"
#include "serve/server.h"

static bool is_wide(const struct kvt_layer_plan *layer) {
    return kvt_codec_info(layer->codec[KVT_SIDE_K]).plain && kvt_codec_info(layer->codec[KVT_SIDE_V]).plain;
}

/* The layer that the figures are of: the first that is quantized; NULL: none is. */
static const struct kvt_layer_plan *first_quantized(const struct kvt_plan *plan, int *n) {
    const struct kvt_layer_plan *first = NULL;
    *n = 0;
    for (int l = 0; l < kvt_plan_n_layers(plan); l++) {
        const struct kvt_layer_plan *layer = kvt_plan_layer(plan, l);
        if (is_wide(layer)) continue;
        if (!first) first = layer;
        ++*n;
    }
    return first;
}

/* Why some layers keep 16 bits; null where none does. */
static json_t *reason_of(const struct kvt_plan *plan) {
    for (int l = 0; l < kvt_plan_n_layers(plan); l++)
        if (kvt_plan_layer(plan, l)->kept != KVT_KEPT_NOT) return kvt_json_text(kvt_plan_layer(plan, l)->reason);
    return json_null();
}

/* gmlx's kv_quant, with kvtile's own names where it has no word: scheme "uniform" is its name for affine codes. Batches change nothing
 * here, so both verdicts are one. */
static json_t *kv_quant(const struct kvt_server *server) {
    const struct kvt_plan *plan = kvt_scheduler_plan(server->scheduler);
    const char *why = server->options.kv_why && server->options.kv_why[0] ? server->options.kv_why : NULL;
    int n;
    const int n_layers = kvt_plan_n_layers(plan);
    const struct kvt_layer_plan *layer = first_quantized(plan, &n);
    if (!layer)
        return json_pack("{s:n, s:s, s:i, s:i, s:s, s:s, s:o, s:o}", "scheme", "kv", kvt_plan_kv(plan),
                         "layers_quantized", 0, "layers_fp16", n_layers, "verdict", "off", "verdict_batched", "off",
                         "reason", reason_of(plan), "auto", kvt_json_text(why));
    const struct kvt_codec_info k = kvt_codec_info(layer->codec[KVT_SIDE_K]),
                                v = kvt_codec_info(layer->codec[KVT_SIDE_V]);
    char scheme[64];
    size_t len = strcspn(k.name, "0123456789_");
    if (len >= sizeof scheme) len = sizeof scheme - 1;
    memcpy(scheme, k.name, len);
    scheme[len] = 0;
    const bool kvarn = strcmp(scheme, "kvarn") == 0, affine = strcmp(scheme, "affine") == 0;
    const char *verdict =
        n == n_layers || (n == n_layers - 1 && n_layers > 2 && is_wide(kvt_plan_layer(plan, n_layers - 1))) ? "full"
                                                                                                            : "partial";
    return json_pack(
        "{s:s, s:i, s:o, s:i, s:i, s:s, s:s, s:i, s:i, s:i, s:s, s:o, s:o}", "scheme", affine ? "uniform" : scheme,
        "bits", k.bits, "group_size", kvarn ? json_null() : json_integer(k.group), "layers_quantized", n, "layers_fp16",
        n_layers - n, "verdict", verdict, "verdict_batched", verdict, "value_bits", v.bits, "tail_tokens", layer->tail,
        "sink_tokens", layer->sink, "kv", kvt_plan_kv(plan), "reason", reason_of(plan), "auto", kvt_json_text(why));
}

static json_t *model_object(const struct kvt_server *server) {
    const struct kvt_model_info info = kvt_model_info(server->model);
    return json_pack("{s:o, s:s, s:I, s:s, s:i, s:o, s:{s:o, s:o, s:I, s:i, s:i, s:b, s:b}}", "id",
                     kvt_json_text(server->name), "object", "model", "created", (json_int_t)server->created, "owned_by",
                     "kvtile", "max_model_len", kvt_scheduler_n_ctx(server->scheduler), "kv_quant", kv_quant(server),
                     "meta", "arch", kvt_json_text(info.arch), "types", kvt_json_text(info.types), "n_params",
                     (json_int_t)info.n_params, "n_layers", info.n_layers, "n_ctx_train", info.n_ctx_train, "chat",
                     server->options.chat != NULL, "fidelity", server->figures != NULL);
}

void kvt_serve_models(struct kvt_server *server, struct kvt_call *call) {
    kvt_call_reply(call, json_pack("{s:s, s:[o]}", "object", "list", "data", model_object(server)));
}

void kvt_serve_model(struct kvt_server *server, struct kvt_call *call) {
    const char *name = call->path + strlen("/v1/models/");
    struct kvt_error err;
    if (strcmp(name, server->name) == 0) {
        kvt_call_reply(call, model_object(server));
        return;
    }
    kvt_fail(&err, KVT_ERR_NOTFOUND, "there is no model '%.100s'; this server has '%.100s'", name, server->name);
    kvt_call_fail(call, err.code, err.text);
}

void kvt_serve_health(struct kvt_server *server, struct kvt_call *call) {
    const bool stopping = kvt_scheduler_stopping(server->scheduler);
    kvt_call_reply(call, json_pack("{s:s, s:i, s:f}", "status", stopping ? "stopping" : "ok", "busy",
                                   kvt_scheduler_n_busy(server->scheduler), "seconds",
                                   kvt_clock_seconds() - server->started));
    if (stopping) call->http_status = 503;
}
