/* SPDX-License-Identifier: Apache-2.0
 * The report of `kvtile codecs --json`. */
#include <stdio.h>

#include "base/check.h"
#include "cli/codecs.h"
#include "json/json.h"

/* What adds one by one is checked by `ok`. */

static json_t *axis(const struct kvt_codec_axis *a) {
    return json_pack("{s:b, s:s, s:i, s:b, s:b}", "scale", a->has_scale, "per", a->per_channel ? "channel" : "token",
                     "group", a->group, "factor", a->has_factor, "rotated", a->rotated);
}

static json_t *spread(const struct kvt_spread *s) {
    return json_pack("{s:o, s:o, s:o}", "median", kvt_json_number(kvt_codecs_ns(s->median)), "low",
                     kvt_json_number(kvt_codecs_ns(s->low)), "high", kvt_json_number(kvt_codecs_ns(s->high)));
}

static json_t *times(const struct kvt_codec_times *t, const struct kvt_codecs_report *r, bool *ok) {
    json_t *object = json_object();
    for (int l = 0; l < r->n_levels; l++) {
        const enum kvt_level level = r->levels[l];
        json_t *both =
            json_pack("{s:o, s:o}", "encode", spread(&t->encode[level]), "decode", spread(&t->decode[level]));
        *ok &= json_object_set_new(object, kvt_level_name(level), both) == 0;
    }
    *ok &= json_object_set_new(object, "copy", spread(&t->copy)) == 0;
    return object;
}

static json_t *loss(const struct kvt_codecs_source *s, int i) {
    const struct kvt_codec_errors e = kvt_codec_errors_of(&s->sums[i]);
    json_t *object =
        json_pack("{s:o, s:{s:o, s:o}, s:{s:o, s:o, s:o}}", "on", kvt_json_text(s->name), "row", "k",
                  kvt_json_number(e.row[KVT_SIDE_K]), "v", kvt_json_number(e.row[KVT_SIDE_V]), "attention", "k",
                  kvt_json_number(e.attention[KVT_DECODED_K]), "v", kvt_json_number(e.attention[KVT_DECODED_V]), "both",
                  kvt_json_number(e.attention[KVT_DECODED_BOTH]));
    if (!s->is_model) return object;
    const struct kvt_fidelity_row *row = &s->kl.rows[i];
    json_t *kl = json_pack("{s:o, s:o, s:o, s:o}", "mean", kvt_json_number(row->kl.mean), "stderr",
                           kvt_json_number(row->kl_stderr), "p99", kvt_json_number(row->kl.p99), "max",
                           kvt_json_number(row->kl.max));
    if (json_object_set_new(object, "kl", kl) == 0 &&
        json_object_set_new(object, "flips", kvt_json_number(row->flips)) == 0)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *codec(const struct kvt_codecs_report *r, int i, bool *ok) {
    const struct kvt_codecs_row *row = &r->rows[i];
    json_t *bits = json_object(), *losses = json_array();
    for (int k = 0; k < KVT_CODECS_N_SIZES; k++) {
        char size[16];
        snprintf(size, sizeof size, "%d", kvt_codecs_sizes[k]);
        *ok &= json_object_set_new(bits, size, kvt_json_number(row->bits[k])) == 0;
    }
    for (int s = 0; s < r->n_sources; s++) *ok &= json_array_append_new(losses, loss(&r->sources[s], i)) == 0;
    return json_pack("{s:s, s:i, s:o, s:o, s:o, s:o, s:{s:o, s:o}}", "kv", row->kv, "granularity", row->granularity,
                     "k", axis(&row->axis[KVT_SIDE_K]), "v", axis(&row->axis[KVT_SIDE_V]), "bits", bits, "loses",
                     losses, "nanoseconds", "k", times(&row->times[KVT_SIDE_K], r, ok), "v",
                     times(&row->times[KVT_SIDE_V], r, ok));
}

static json_t *models(const struct kvt_codecs_report *r, bool *ok) {
    json_t *list = json_array();
    for (int s = 0; s < r->n_sources; s++) {
        const struct kvt_codecs_source *source = &r->sources[s];
        if (!source->is_model) continue;
        json_t *model = json_pack("{s:o, s:o, s:i, s:i, s:i, s:i}", "model", kvt_json_text(source->name), "text",
                                  kvt_json_text(source->text), "chunk", r->chunk, "chunks", source->kl.n_chunks, "sink",
                                  r->sink, "tail", r->tail);
        *ok &= json_array_append_new(list, model) == 0;
    }
    return list;
}

enum kvt_status kvt_codecs_json(struct kvt_buf *out, const struct kvt_codecs_report *r) {
    bool ok = true;
    json_t *codecs = json_array();
    for (int i = 0; i < r->n_rows; i++) ok &= json_array_append_new(codecs, codec(r, i, &ok)) == 0;
    json_t *root = json_pack("{s:o, s:o}", "models", models(r, &ok), "codecs", codecs);
    return kvt_json_dump(out, root, ok, 12);
}
