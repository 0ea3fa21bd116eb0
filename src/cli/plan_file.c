/* SPDX-License-Identifier: Apache-2.0
 * Plan files. Which model one was made for is known by the shape of its layers, its size and its name. */
#include "cli/plan_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "json/json.h"

enum { FILE_BYTES_MAX = 1 << 20, VERSION = 1 };

/* ---- the model -------------------------------------------------------------------------------------------------------- */

static json_t *layers_of(const struct kvt_model *model) {
    const struct kvt_shape shape = kvt_model_shape(model);
    json_t *list = json_array();
    for (int l = 0; l < shape.n_layers; l++) {
        const struct kvt_layer_shape *s = &shape.layers[l];
        json_array_append_new(list, json_pack("{s:i, s:i, s:i, s:i}", "n_kv_heads", s->n_kv_heads, "k_size", s->k_size,
                                              "v_size", s->v_size, "window", s->window));
    }
    return list;
}

static json_t *model_of(const struct kvt_model *model) {
    const struct kvt_model_info info = kvt_model_info(model);
    return json_pack("{s:s*, s:s, s:I, s:I, s:o}", "name", info.name, "arch", info.arch, "n_params",
                     (json_int_t)info.n_params, "file_bytes", (json_int_t)info.file_bytes, "layers", layers_of(model));
}

static enum kvt_status check_model(const json_t *root, const char *path, const struct kvt_model *model,
                                   struct kvt_error *err) {
    const json_t *there = json_object_get(root, "model");
    json_t *here = model_of(model);
    const bool same = here && json_equal(there, here);
    json_decref(here);
    if (same) return KVT_OK;
    const char *name = json_string_value(json_object_get(there, "name"));
    const json_int_t bytes = json_integer_value(json_object_get(there, "file_bytes"));
    const struct kvt_model_info info = kvt_model_info(model);
    return kvt_fail(
        err, KVT_ERR_UNSUPPORTED,
        "%.60s is a plan for '%.40s' (%lld bytes), not for this model, '%.40s' (%llu bytes); a plan's \"kv\" "
        "can be given as it is",
        path, name ? name : "?", (long long)bytes, info.name, (unsigned long long)info.file_bytes);
}

/* ---- reading ---------------------------------------------------------------------------------------------------------- */

static enum kvt_status take_plan(struct kvt_plan_file *out, const json_t *root, const char *path,
                                 const struct kvt_model *model, struct kvt_error *err) {
    const char *kv = json_string_value(json_object_get(root, "kv"));
    const json_int_t version = json_integer_value(json_object_get(root, "kvtile_plan"));
    const json_t *sink = json_object_get(root, "sink"), *tail = json_object_get(root, "tail");
    if (version == 0 || !kv || !json_is_integer(sink) || !json_is_integer(tail))
        return kvt_fail(err, KVT_ERR_FORMAT, "%s is no plan: it needs kvtile_plan, kv, sink, tail and model", path);
    if (version != VERSION)
        return kvt_fail(err, KVT_ERR_FORMAT, "%s is a plan of version %lld; this program knows %d", path,
                        (long long)version, VERSION);
    if (strlen(kv) >= sizeof out->kv)
        return kvt_fail(err, KVT_ERR_FORMAT, "%s: its kv is longer than %zu bytes", path, sizeof out->kv - 1);
    KVT_TRY(check_model(root, path, model, err));
    memcpy(out->kv, kv, strlen(kv) + 1);
    out->sink = (int)KVT_MIN(KVT_MAX(json_integer_value(sink), -1), 1 << 30); /* what is wrong the plan says */
    out->tail = (int)KVT_MIN(KVT_MAX(json_integer_value(tail), -1), 1 << 30);
    return KVT_OK;
}

static enum kvt_status read_plan(struct kvt_plan_file *out, const char *path, const struct kvt_model *model,
                                 struct kvt_error *err) {
    struct kvt_buf file;
    json_error_t why;
    if (!path[0]) return kvt_fail(err, KVT_ERR_ARG, "'@' is to be followed by a plan's file, as in @plan.json");
    kvt_buf_init(&file, NULL, FILE_BYTES_MAX);
    enum kvt_status status = kvt_file_read(&file, path, err);
    if (status == KVT_OK) {
        json_t *root = json_loadb(kvt_buf_text(&file), file.len, 0, &why);
        status = root ? take_plan(out, root, path, model, err)
                      : kvt_fail(err, KVT_ERR_FORMAT, "%.100s is no JSON: line %d: %.100s", path, why.line, why.text);
        json_decref(root);
    }
    kvt_buf_finish(&file);
    return status;
}

static enum kvt_status take_name(struct kvt_plan_file *out, const char *kv, struct kvt_error *err) {
    if (strlen(kv) >= sizeof out->kv)
        return kvt_fail(err, KVT_ERR_ARG, "a cache's name is longer than %zu bytes", sizeof out->kv - 1);
    memcpy(out->kv, kv, strlen(kv) + 1);
    out->sink = out->tail = 0;
    return KVT_OK;
}

enum kvt_status kvt_plan_file_resolve(struct kvt_plan_file *out, const char *kv, int64_t sink, int64_t tail,
                                      const struct kvt_model *model, struct kvt_error *err) {
    KVT_TRY(kv[0] == '@' ? read_plan(out, kv + 1, model, err) : take_name(out, kv, err));
    if (sink) out->sink = (int)sink;
    if (tail) out->tail = (int)tail;
    return KVT_OK;
}

bool kvt_plan_file_differs(const char *kv) { return kv[0] == '@' || strchr(kv, ':'); }

/* ---- writing ---------------------------------------------------------------------------------------------------------- */

enum kvt_status kvt_plan_file_write(const char *path, const struct kvt_plan_file *plan, const struct kvt_model *model,
                                    const struct kvt_plan_file_about *about, struct kvt_error *err) {
    struct kvt_buf out;
    json_t *root = json_pack("{s:i, s:s, s:i, s:i, s:{s:s, s:o, s:I, s:I, s:f}, s:o}", "kvtile_plan", VERSION, "kv",
                             plan->kv, "sink", plan->sink, "tail", plan->tail, "measured", "version", kvt_version(),
                             "text", kvt_json_text(about->text), "rows", (json_int_t)about->at, "cache_bytes",
                             (json_int_t)about->cache_bytes, "kl", isfinite(about->kl) ? about->kl : -1.0, "model",
                             model_of(model));
    kvt_buf_init(&out, NULL, FILE_BYTES_MAX);
    enum kvt_status status = kvt_json_dump(&out, root, true, 9);
    if (status != KVT_OK)
        kvt_fail(err, status, "not enough memory for the plan's file");
    else
        status = kvt_file_write(path, out.data, out.len, err);
    kvt_buf_finish(&out);
    return status;
}
