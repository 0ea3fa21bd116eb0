/* SPDX-License-Identifier: Apache-2.0
 * /metrics for Prometheus, and /cache for the page: the same figures. */
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "json/json.h"
#include "serve/server.h"

static const char *const sides[KVT_SIDE_COUNT] = {[KVT_SIDE_K] = "k", [KVT_SIDE_V] = "v"};
static const char *const regions[KVT_REGION_COUNT] = {
    [KVT_REGION_SINK] = "sink", [KVT_REGION_BODY] = "body", [KVT_REGION_TAIL] = "tail"};

/* All sessions as if nothing were shared, and what f16 would be. */
struct sum {
    uint64_t bytes[KVT_SIDE_COUNT][KVT_REGION_COUNT];
    uint64_t total, f16;
};

static struct sum sum_of(const struct kvt_server *server, const struct kvt_view *view) {
    const struct kvt_plan *plan = kvt_scheduler_plan(server->scheduler);
    struct sum sum = {.total = 0};
    for (int i = 0; i < view->n_sessions; i++) {
        const struct kvt_usage usage = kvt_plan_usage(plan, -1, view->sessions[i].n_rows);
        for (int side = 0; side < KVT_SIDE_COUNT; side++)
            for (int region = 0; region < KVT_REGION_COUNT; region++)
                sum.bytes[side][region] += usage.bytes[side][region];
        sum.total += usage.total_bytes;
        sum.f16 += kvt_plan_bytes(server->f16, view->sessions[i].n_rows);
    }
    return sum;
}

static uint64_t shared_bytes(const struct sum *sum, const struct kvt_view *view) {
    return sum->total > view->cache_bytes ? sum->total - view->cache_bytes : 0;
}

/* ---- Prometheus ------------------------------------------------------------------------------------------------------- */

static enum kvt_status add_metric(struct kvt_buf *out, const char *name, const char *type, const char *help,
                                  double value) {
    return kvt_buf_addf(out, "# HELP kvtile_%s %s\n# TYPE kvtile_%s %s\nkvtile_%s %.17g\n", name, help, name, type,
                        name, value);
}

static enum kvt_status add_cache(struct kvt_buf *out, const struct sum *sum) {
    KVT_TRY(kvt_buf_addf(
        out, "# HELP kvtile_cache_bytes Bytes of all sessions by side and region, as if no page were shared.\n"
             "# TYPE kvtile_cache_bytes gauge\n"));
    for (int side = 0; side < KVT_SIDE_COUNT; side++)
        for (int region = 0; region < KVT_REGION_COUNT; region++)
            KVT_TRY(kvt_buf_addf(out, "kvtile_cache_bytes{side=\"%s\",region=\"%s\"} %llu\n", sides[side],
                                 regions[region], (unsigned long long)sum->bytes[side][region]));
    return KVT_OK;
}

static enum kvt_status add_requests(struct kvt_buf *out, const struct kvt_counts *c) {
    return kvt_buf_addf(
        out,
        "# HELP kvtile_requests_total Requests that ended, by how.\n# TYPE kvtile_requests_total counter\n"
        "kvtile_requests_total{status=\"ok\"} %llu\nkvtile_requests_total{status=\"cancelled\"} %llu\n"
        "kvtile_requests_total{status=\"failed\"} %llu\nkvtile_requests_total{status=\"refused\"} %llu\n",
        (unsigned long long)c->n_done, (unsigned long long)c->n_cancelled, (unsigned long long)c->n_failed,
        (unsigned long long)c->n_refused);
}

static enum kvt_status add_all(struct kvt_buf *out, const struct kvt_server *server, const struct kvt_view *v) {
    const struct kvt_counts *c = &v->counts;
    const struct sum sum = sum_of(server, v);
    const struct {
        const char *name, *type, *help;
        double value;
    } all[] = {
        {"cache_pool_bytes", "gauge", "Bytes of pages, those that sessions share counted once.",
         (double)v->cache_bytes},
        {"cache_pool_peak_bytes", "gauge", "The most of them so far.", (double)v->peak_bytes},
        {"cache_shared_bytes", "gauge", "Bytes that sharing pages saves now.", (double)shared_bytes(&sum, v)},
        {"cache_f16_bytes", "gauge", "What the same rows would take in an f16 cache without sharing.", (double)sum.f16},
        {"cache_limit_bytes", "gauge", "The most that pages may take; 0: no limit.",
         (double)server->options.sessions->cache_byte_limit},
        {"prefix_hits_total", "counter", "Requests that began with a kept prefix.", (double)v->prefix_hits},
        {"prefix_misses_total", "counter", "Requests that found none.", (double)v->prefix_misses},
        {"prefix_evicted_total", "counter", "Kept sessions whose pages were taken back.", (double)v->prefix_evicted},
        {"prefix_sessions", "gauge", "Kept sessions in memory.", v->n_kept},
        {"prefix_files", "gauge", "Kept sessions in files.", v->n_files},
        {"prefix_file_bytes", "gauge", "Bytes of those files.", (double)v->file_bytes},
        {"requests_running", "gauge", "Requests that run.", v->n_running},
        {"requests_waiting", "gauge", "Requests in the queue.", v->n_waiting},
        {"connections", "gauge", "Open connections.", atomic_load(&server->n_connections)},
        {"prompt_tokens_total", "counter", "Tokens of prompts that were computed.", (double)c->prompt_tokens},
        {"cached_tokens_total", "counter", "Tokens of prompts that were kept from before.", (double)c->cached_tokens},
        {"generated_tokens_total", "counter", "Tokens that were written.", (double)c->generated_tokens},
        {"generated_tokens_per_second", "gauge", "Tokens written a second, over the last nine.", v->recent},
        {"passes_total", "counter", "Forward passes.", (double)c->n_passes},
        {"pass_seconds_total", "counter", "Seconds in them.", c->pass_seconds},
        {"queue_seconds_total", "counter", "Seconds that requests waited.", c->wait_seconds},
        {"first_token_seconds_total", "counter", "Seconds from there to their first tokens.", c->prompt_seconds},
        {"uptime_seconds", "gauge", "Seconds since the start.", kvt_clock_seconds() - server->started},
    };
    KVT_TRY(add_cache(out, &sum));
    KVT_TRY(add_requests(out, c));
    for (size_t i = 0; i < KVT_ARRAY_LEN(all); i++)
        KVT_TRY(add_metric(out, all[i].name, all[i].type, all[i].help, all[i].value));
    return KVT_OK;
}

void kvt_serve_metrics(struct kvt_server *server, struct kvt_call *call) {
    struct kvt_view view;
    enum kvt_status status = kvt_scheduler_view(server->scheduler, &view);
    if (status == KVT_OK) {
        status = add_all(&call->reply, server, &view);
        kvt_view_finish(&view);
    }
    call->type = "text/plain; version=0.0.4; charset=utf-8";
    if (status != KVT_OK) kvt_call_fail(call, status, "no memory for the metrics");
}

/* ---- the page's view -------------------------------------------------------------------------------------------------- */

static json_t *usage_object(const struct kvt_server *server, int64_t n_rows) {
    const struct kvt_usage u = kvt_plan_usage(kvt_scheduler_plan(server->scheduler), -1, n_rows);
    json_t *object = json_pack("{s:I, s:I}", "total", (json_int_t)u.total_bytes, "f16",
                               (json_int_t)kvt_plan_bytes(server->f16, n_rows));
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        json_t *by_region = json_object();
        for (int region = 0; region < KVT_REGION_COUNT; region++)
            json_object_set_new(by_region, regions[region], json_integer((json_int_t)u.bytes[side][region]));
        json_object_set_new(object, sides[side], by_region);
    }
    return object;
}

/* Of a layer: what it is, which does not change. */
static json_t *layer_object(const struct kvt_plan *plan, int l) {
    const struct kvt_layer_plan *p = kvt_plan_layer(plan, l);
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:I, s:i, s:s}", "k", kvt_codec_info(p->codec[KVT_SIDE_K]).name, "v",
                     kvt_codec_info(p->codec[KVT_SIDE_V]).name, "sink", p->sink, "tail", p->tail, "granularity",
                     p->granularity, "window", (json_int_t)p->window, "n_kv_heads", p->shape.n_kv_heads, "reason",
                     p->reason);
}

/* Of a session: its rows, and of each layer where sink and body end, and the bytes. */
static json_t *session_object(const struct kvt_server *server, const struct kvt_view_session *s) {
    const struct kvt_plan *plan = kvt_scheduler_plan(server->scheduler);
    json_t *layers = json_array();
    for (int l = 0; l < kvt_plan_n_layers(plan); l++) {
        const struct kvt_layer_plan *p = kvt_plan_layer(plan, l);
        const int64_t end = kvt_plan_body_end(plan, l, s->n_rows);
        const uint64_t bytes = kvt_plan_usage(plan, l, s->n_rows).total_bytes;
        json_array_append_new(layers, json_pack("[I, I, I]", (json_int_t)KVT_MIN(p->sink, s->n_rows),
                                                (json_int_t)KVT_MIN(end, s->n_rows), (json_int_t)bytes));
    }
    return json_pack("{s:s, s:b, s:i, s:i, s:i, s:i, s:i, s:o, s:o}", "id", s->id, "kept", s->id[0] == 0, "rows",
                     s->n_rows, "prompt", s->n_prompt, "cached", s->n_cached, "generated", s->n_generated, "hits",
                     s->n_hits, "bytes", usage_object(server, s->n_rows), "layers", layers);
}

static json_t *cache_object(const struct kvt_server *server, const struct kvt_view *v) {
    const struct kvt_plan *plan = kvt_scheduler_plan(server->scheduler);
    const struct sum sum = sum_of(server, v);
    json_t *layers = json_array(), *sessions = json_array();
    for (int l = 0; l < kvt_plan_n_layers(plan); l++) json_array_append_new(layers, layer_object(plan, l));
    for (int i = 0; i < v->n_sessions; i++) json_array_append_new(sessions, session_object(server, &v->sessions[i]));
    const struct kvt_counts *c = &v->counts;
    return json_pack(
        "{s:s, s:i, s:o, s:o, s:{s:I, s:I, s:I, s:I, s:I, s:I}, s:{s:I, s:I, s:I, s:i, s:i}, s:{s:i, s:i, s:I, s:I, s:I, s:f}}",
        "kv", kvt_plan_kv(plan), "n_ctx", kvt_scheduler_n_ctx(server->scheduler), "layers", layers, "sessions",
        sessions, "pool", "bytes", (json_int_t)v->cache_bytes, "peak", (json_int_t)v->peak_bytes, "limit",
        (json_int_t)server->options.sessions->cache_byte_limit, "unshared", (json_int_t)sum.total, "shared",
        (json_int_t)shared_bytes(&sum, v), "f16", (json_int_t)sum.f16, "prefixes", "hits", (json_int_t)v->prefix_hits,
        "misses", (json_int_t)v->prefix_misses, "evicted", (json_int_t)v->prefix_evicted, "kept", v->n_kept, "files",
        v->n_files, "work", "running", v->n_running, "waiting", v->n_waiting, "prompt_tokens",
        (json_int_t)c->prompt_tokens, "cached_tokens", (json_int_t)c->cached_tokens, "generated_tokens",
        (json_int_t)c->generated_tokens, "per_second", v->recent);
}

void kvt_serve_cache(struct kvt_server *server, struct kvt_call *call) {
    struct kvt_view view;
    if (kvt_scheduler_view(server->scheduler, &view) != KVT_OK) {
        kvt_call_fail(call, KVT_ERR_NOMEM, "no memory for the view of the cache");
        return;
    }
    kvt_call_reply(call, cache_object(server, &view));
    kvt_view_finish(&view);
}
