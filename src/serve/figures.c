/* SPDX-License-Identifier: Apache-2.0
 * /fidelity: what caches cost this model, out of a report of kvtile fidelity or kvtile sweep. */
#include <string.h>

#include "base/check.h"
#include "serve/server.h"

/* The figures of one cache that the page shows; NULL where the report has none of it. */
static json_t *cache_of(const json_t *scheme) {
    json_t *kl = json_object_get(scheme, "kl"), *kv = json_object_get(scheme, "kv");
    if (!json_is_string(kv) || !json_is_object(kl)) return NULL;
    return json_pack("{s:O, s:O?, s:O?, s:O?, s:O?, s:O?, s:O?}", "kv", kv, "leg", json_object_get(scheme, "leg"),
                     "bits", json_object_get(scheme, "bits_per_element"), "bytes",
                     json_object_get(scheme, "cache_bytes"), "kl", json_object_get(kl, "mean"), "kl_p99",
                     json_object_get(kl, "p99"), "flips", json_object_get(scheme, "flips"));
}

enum kvt_status kvt_figures_read(json_t **out, const char *report, struct kvt_error *err) {
    json_error_t where;
    json_t *root = json_loads(report, 0, &where), *caches = json_array();
    const json_t *schemes = json_object_get(root, "schemes");
    for (size_t i = 0; i < json_array_size(schemes); i++) {
        json_t *cache = cache_of(json_array_get(schemes, i));
        if (cache) json_array_append_new(caches, cache);
    }
    const size_t n = json_array_size(caches);
    json_t *figures =
        json_pack("{s:O?, s:O?, s:O?, s:o}", "model", json_object_get(root, "model"), "text",
                  json_object_get(root, "text"), "positions", json_object_get(root, "positions"), "caches", caches);
    const bool is_json = root != NULL;
    json_decref(root);
    if (figures && n > 0) {
        *out = figures;
        return KVT_OK;
    }
    json_decref(figures);
    if (!is_json)
        return kvt_fail(err, KVT_ERR_FORMAT, "the report of --fidelity is no JSON: line %d: %.100s", where.line,
                        where.text);
    return kvt_fail(err, KVT_ERR_FORMAT,
                    "the report of --fidelity has no caches; kvtile fidelity --json writes one that does");
}

void kvt_serve_fidelity(struct kvt_server *server, struct kvt_call *call) {
    if (server->figures)
        kvt_call_reply(call, json_deep_copy(server->figures)); /* counts of shared values are not for many threads */
    else
        kvt_call_fail(call, KVT_ERR_NOTFOUND,
                      "there are no figures; start the server with --fidelity FILE, a report of kvtile "
                      "fidelity --json");
}
