/* SPDX-License-Identifier: Apache-2.0
 * The report as JSON: docs/fidelity.schema.json. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "fidelity/report.h"
#include "json/json.h"

enum { TEXT_BYTES_MAX = 4096, CONTEXT_TOKENS = 24 };

static json_t *hash(uint64_t x) {
    char hex[17];
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)x);
    return json_string(hex);
}

static json_t *numbers(const double *x, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(list, kvt_json_number(x[i]));
    return list;
}

/* ---- positions -------------------------------------------------------------------------------------------------------- */

static json_t *token(const struct kvt_report *r, int32_t id) {
    struct kvt_buf buf;
    kvt_buf_init(&buf, NULL, TEXT_BYTES_MAX);
    json_t *value = kvt_report_token(&buf, r, id) == KVT_OK ? kvt_json_text(kvt_buf_text(&buf)) : json_null();
    kvt_buf_finish(&buf);
    return value;
}

static json_t *context(const struct kvt_report *r, const struct kvt_fidelity_position *at) {
    struct kvt_buf buf;
    kvt_buf_init(&buf, NULL, TEXT_BYTES_MAX);
    json_t *value = kvt_report_context(&buf, r, at, CONTEXT_TOKENS) ? kvt_json_text(kvt_buf_text(&buf)) : json_null();
    kvt_buf_finish(&buf);
    return value;
}

static json_t *worst(const struct kvt_report *r, const struct kvt_fidelity_row *row) {
    json_t *list = json_array();
    for (int i = 0; i < row->n_worst; i++) {
        const struct kvt_fidelity_position *at = &row->worst[i];
        const struct kvt_score *s = &at->score;
        json_array_append_new(list,
                              json_pack("{s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o}", "chunk", at->chunk, "position",
                                        at->position, "kl", kvt_json_number(s->kl), "top_ref", token(r, s->top_ref),
                                        "top", token(r, s->top), "p_ref", kvt_json_number((double)s->p_ref), "p",
                                        kvt_json_number((double)s->p), "context", context(r, at)));
    }
    return list;
}

/* ---- rows ------------------------------------------------------------------------------------------------------------- */

static json_t *kl(const struct kvt_fidelity_row *row) {
    const double ci[] = {row->kl_ci.low, row->kl_ci.high};
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "mean", kvt_json_number(row->kl.mean), "median",
                     kvt_json_number(row->kl.median), "p99", kvt_json_number(row->kl.p99), "p999",
                     kvt_json_number(row->kl.p999), "max", kvt_json_number(row->kl.max), "stderr",
                     kvt_json_number(row->kl_stderr), "ci95", numbers(ci, 2), "by_depth",
                     numbers(row->kl_depth, KVT_FIDELITY_DEPTHS), "tail", numbers(row->kl.tail, KVT_TAIL_POINTS));
}

/* The loss without the cache's own arithmetic, and what that adds; null where there was no control. */
static int add_control(json_t *object, const struct kvt_report *r, int i) {
    const int control = kvt_report_find(r, KVT_FIDELITY_CONTROL, i);
    const double all = r->result->rows[i].kl.mean, quantizer = control < 0 ? NAN : r->result->rows[control].kl.mean;
    return json_object_set_new(object, "quantizer", kvt_json_number(quantizer)) |
           json_object_set_new(object, "path", kvt_json_number(all - quantizer));
}

/* What a sweep adds to a cache's object. */
static int add_point(json_t *object, const struct kvt_report *r, int i) {
    const struct kvt_sweep *s = r->about->sweep;
    if (!s) return 0;
    return json_object_set_new(object, "sweep_bytes", json_integer((json_int_t)s->points[i].bytes)) |
           json_object_set_new(object, "sweep_bits", kvt_json_number(s->points[i].bits)) |
           json_object_set_new(object, "on_front", json_boolean(s->points[i].on_front));
}

static json_t *scheme(const struct kvt_report *r, int i) {
    const struct kvt_fidelity_row *row = &r->result->rows[i];
    const enum kvt_leg leg = r->about->cases[i].leg;
    json_t *object =
        json_pack("{s:o, s:s, s:i, s:i, s:o, s:I, s:o, s:o, s:{s:o, s:o}, s:o, s:o, s:s, s:o, s:o}", "kv",
                  kvt_json_text(row->kv), "leg", kvt_leg_name(leg), "sink", r->about->cases[i].sink, "tail",
                  r->about->cases[i].tail, "bits_per_element", kvt_json_number(row->bits_per_element), "cache_bytes",
                  (json_int_t)row->cache_bytes, "kl", kl(row), "flips", kvt_json_number(row->flips), "top1", "change",
                  kvt_json_number(row->top_change), "rms", kvt_json_number(row->top_rms), "ppl",
                  kvt_json_number(row->ppl), "ppl_ref", kvt_json_number(r->result->ppl_ref[leg]), "tier",
                  kvt_fidelity_tier(row), "seconds", kvt_json_number(row->seconds), "worst", worst(r, row));
    if (object && add_control(object, r, i) == 0 && add_point(object, r, i) == 0) return object;
    json_decref(object);
    return NULL;
}

static json_t *schemes(const struct kvt_report *r) {
    json_t *list = json_array();
    for (int i = 0; i < r->result->n_rows; i++)
        if (kvt_report_is(r, i, KVT_FIDELITY_SCHEME) && json_array_append_new(list, scheme(r, i)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static const char *const kind_names[] = {
    [KVT_FIDELITY_SIDE] = "side", [KVT_FIDELITY_LAYER] = "layer",   [KVT_FIDELITY_KEPT] = "kept",
    [KVT_FIDELITY_HEAD] = "head", [KVT_FIDELITY_REGION] = "region",
};

static json_t *place(bool there, int i) { return there ? json_integer(i) : json_null(); }

static json_t *part(const struct kvt_report *r, int i) {
    const struct kvt_fidelity_case *c = &r->about->cases[i], *of = &r->about->cases[c->of];
    const bool has_side = (c->kind == KVT_FIDELITY_SIDE || c->kind == KVT_FIDELITY_LAYER) && c->side >= 0;
    json_t *side = has_side ? json_string(c->side == KVT_SIDE_K ? "K" : "V") : json_null();
    return json_pack("{s:o, s:s, s:s, s:o, s:o, s:o, s:i, s:i, s:o, s:o}", "of",
                     kvt_json_text(r->result->rows[c->of].kv), "leg", kvt_leg_name(c->leg), "kind", kind_names[c->kind],
                     "side", side, "layer", place(c->layer >= 0, c->layer), "head",
                     place(c->kind == KVT_FIDELITY_HEAD, c->head), "more_sink", c->sink - of->sink, "more_tail",
                     c->tail - of->tail, "kl_mean", kvt_json_number(r->result->rows[i].kl.mean), "flips",
                     kvt_json_number(r->result->rows[i].flips));
}

static json_t *attribution(const struct kvt_report *r) {
    json_t *list = json_array();
    for (int i = 0; i < r->result->n_rows; i++)
        if (kind_names[r->about->cases[i].kind] && json_array_append_new(list, part(r, i)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* ---- the whole -------------------------------------------------------------------------------------------------------- */

static json_t *sensitivities(const struct kvt_search *search) {
    json_t *list = json_array();
    for (int i = 0; i < search->n_parts; i++) {
        const struct kvt_sensitivity *part = &search->parts[i];
        json_array_append_new(list,
                              json_pack("{s:i, s:s, s:s, s:o, s:I}", "layer", part->layer, "side",
                                        part->side == KVT_SIDE_K ? "K" : "V", "codec", kvt_codec_info(part->codec).name,
                                        "kl_mean", kvt_json_number(part->kl), "bytes", (json_int_t)part->bytes));
    }
    return list;
}

static json_t *plan(const struct kvt_sweep *s) {
    if (!s || !s->search) return json_null();
    return json_pack("{s:o, s:i, s:i, s:I, s:I, s:o, s:o, s:o, s:o}", "kv", kvt_json_text(s->search->kv), "sink",
                     s->sink, "tail", s->tail, "cache_bytes", (json_int_t)s->search->bytes, "budget",
                     (json_int_t)s->budget, "kl", kl(s->plan), "flips", kvt_json_number(s->plan->flips), "expected_kl",
                     kvt_json_number(s->search->expected_kl), "parts", sensitivities(s->search));
}

static json_t *rerun(const struct kvt_fidelity_about *a) {
    return json_pack("{s:s, s:o, s:o, s:o, s:i, s:o, s:o}", "version", kvt_version(), "command",
                     kvt_json_text(a->command), "level", kvt_json_text(a->level), "blas", kvt_json_text(a->blas),
                     "threads", a->n_threads, "model_hash", hash(a->model_hash), "text_hash", hash(a->text_hash));
}

static json_t *make_object(const struct kvt_fidelity_result *result, const struct kvt_fidelity_about *a) {
    const struct kvt_report r = {result, a};
    return json_pack(
        "{s:i, s:o, s:o, s:s, s:i, s:i, s:I, s:i, s:i, s:i, s:I, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o}", "schema", 1,
        "model", kvt_json_text(a->model), "text", kvt_json_text(a->text), "reference", a->reference, "chunk", a->chunk,
        "chunks", result->n_chunks, "positions", (json_int_t)result->n_positions, "warmup", a->warmup, "sink", a->sink,
        "tail", a->tail, "start", (json_int_t)a->start, "prefill_chunk", a->prefill_chunk, "n_ctx_train",
        a->n_ctx_train, "schemes", schemes(&r), "attribution", attribution(&r), "tail_ranks",
        numbers(kvt_tail_ranks, KVT_TAIL_POINTS), "sweep_rows",
        a->sweep ? json_integer((json_int_t)a->sweep->at) : json_null(), "plan", plan(a->sweep), "rerun", rerun(a));
}

enum kvt_status kvt_fidelity_json(struct kvt_buf *out, const struct kvt_fidelity_result *result,
                                  const struct kvt_fidelity_about *about) {
    return kvt_json_dump(out, make_object(result, about), true, 12);
}
