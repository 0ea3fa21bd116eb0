/* SPDX-License-Identifier: Apache-2.0
 * A mixed plan under a budget: what each layer's keys and values lose alone, codec by codec, and a choice among them. Layers differ by
 * more than codecs do, so that bits taken from one layer and given to another cut the loss at equal size. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "fidelity/inside.h"

enum { CODECS_MAX = 128, KV_BYTES_MAX = 1 << 20, ATTEMPTS = 24 };

/* The codecs that one side may have, f16 the last of them. */
struct side {
    const struct kvt_codec *codec[CODECS_MAX];
    double kl[CODECS_MAX];      /* on all layers */
    uint64_t bytes[CODECS_MAX]; /* of all layers */
    int n;
};

struct search {
    const struct kvt_model *model;
    const struct kvt_search_request *request;
    struct kvt_shape shape;
    struct kvt_allocator allocator;
    struct side sides[KVT_SIDE_COUNT];
    struct kvt_sensitivity *parts; /* [layer][side][codec of the side] */
    int n_parts;
};

static const struct kvt_codec *f16(void) {
    const struct kvt_codec *codec = NULL;
    return kvt_codec_parse(&codec, "f16", NULL) == KVT_OK ? codec : NULL;
}

/* ---- candidates ------------------------------------------------------------------------------------------------------- */

static void add_codec(struct side *side, const struct kvt_codec *codec) {
    for (int i = 0; i < side->n; i++)
        if (side->codec[i] == codec) return;
    if (side->n < CODECS_MAX) side->codec[side->n++] = codec;
}

static enum kvt_status find_codecs(struct search *s, struct kvt_error *err) {
    const struct kvt_fidelity_options *o = s->request->options;
    for (int i = 0; i < o->n_cases; i++) {
        const struct kvt_plan_options options = {.struct_size = sizeof options, .kv = o->cases[i].kv};
        struct kvt_plan *plan;
        KVT_TRY(kvt_plan_create(&plan, &s->shape, &options, &s->allocator, err));
        for (int l = 0; l < s->shape.n_layers; l++)
            for (int side = 0; side < KVT_SIDE_COUNT; side++)
                add_codec(&s->sides[side], kvt_plan_layer(plan, l)->codec[side]);
        kvt_plan_destroy(plan);
    }
    for (int side = 0; side < KVT_SIDE_COUNT; side++) add_codec(&s->sides[side], f16());
    return KVT_OK;
}

/* ---- measuring -------------------------------------------------------------------------------------------------------- */

/* A codec on one side of one layer, or of all (-1); all else in 16 bits. */
static enum kvt_status write_alone(struct kvt_buf *buf, int layer, enum kvt_side side, const struct kvt_codec *codec) {
    const char *name = kvt_codec_info(codec).name;
    if (layer >= 0) KVT_TRY(kvt_buf_addf(buf, "f16:%d=", layer));
    return side == KVT_SIDE_K ? kvt_buf_addf(buf, "%s,f16", name) : kvt_buf_addf(buf, "f16,%s", name);
}

/* Bytes of one side at the request's length, of one layer or of all. */
static enum kvt_status bytes_alone(uint64_t *out, const struct search *s, const char *kv, int layer, enum kvt_side side,
                                   struct kvt_error *err) {
    const struct kvt_plan_options options = {
        .struct_size = sizeof options, .kv = kv, .sink = s->request->sink, .tail = s->request->tail};
    struct kvt_plan *plan;
    KVT_TRY(kvt_plan_create(&plan, &s->shape, &options, &s->allocator, err));
    const struct kvt_usage usage = kvt_plan_usage(plan, layer, s->request->at);
    *out = 0;
    for (int region = 0; region < KVT_REGION_COUNT; region++) *out += usage.bytes[side][region];
    kvt_plan_destroy(plan);
    return KVT_OK;
}

/* Bytes and KL of n parts; layer -1: of all layers. */
static enum kvt_status run_parts(struct search *s, struct kvt_sensitivity *parts, const char *const *kv, int n,
                                 struct kvt_error *err) {
    struct kvt_fidelity_options o = *s->request->options;
    struct kvt_fidelity_result result;
    struct kvt_fidelity_case *cases = kvt_take_zero(&s->allocator, (size_t)n, sizeof *cases);
    if (!cases) return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory to measure %d parts", n);
    for (int i = 0; i < n; i++)
        cases[i] = (struct kvt_fidelity_case){.kv = kv[i],
                                              .sink = s->request->sink,
                                              .tail = s->request->tail,
                                              .leg = s->request->options->cases[0].leg,
                                              .of = i};
    o.cases = cases;
    o.n_cases = n;
    o.n_chunks = s->request->n_chunks;
    enum kvt_status status = kvt_fidelity_run(&result, s->model, &o, err);
    if (status == KVT_OK || status == KVT_ERR_CANCELLED) {
        for (int i = 0; i < n && status == KVT_OK; i++) {
            parts[i].kl = result.rows[i].kl.mean;
            status = bytes_alone(&parts[i].bytes, s, kv[i], parts[i].layer, parts[i].side, err);
        }
        kvt_fidelity_finish(&result);
    }
    kvt_give(&s->allocator, cases, (size_t)n, sizeof *cases);
    return status;
}

/* The same with strings made for the parts. */
static enum kvt_status measure_parts(struct search *s, struct kvt_sensitivity *parts, int n, struct kvt_error *err) {
    struct kvt_buf text;
    enum kvt_status status = KVT_OK;
    const char **kv = kvt_take(&s->allocator, (size_t)n, sizeof *kv);
    size_t *at = kvt_take(&s->allocator, (size_t)n, sizeof *at);
    kvt_buf_init(&text, &s->allocator, KV_BYTES_MAX);
    if (!kv || !at) status = KVT_ERR_NOMEM;
    for (int i = 0; i < n && status == KVT_OK; i++) {
        at[i] = text.len;
        status = write_alone(&text, parts[i].layer, parts[i].side, parts[i].codec);
        if (status == KVT_OK) status = kvt_buf_add(&text, "", 1);
    }
    if (status != KVT_OK) {
        kvt_fail(err, status, "not enough memory to measure %d parts", n);
    } else {
        for (int i = 0; i < n; i++) kv[i] = text.data + at[i];
        status = run_parts(s, parts, kv, n, err);
    }
    kvt_buf_finish(&text);
    kvt_give(&s->allocator, at, (size_t)n, sizeof *at);
    kvt_give(&s->allocator, kv, (size_t)n, sizeof *kv);
    return status;
}

/* ---- each side by itself ---------------------------------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b) {
    const struct kvt_sensitivity *x = a, *y = b;
    if (x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
    if (x->side != y->side) return x->side < y->side ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return (x->kl > y->kl) - (x->kl < y->kl);
}

/* Keeps of parts sorted by bytes those that lose less than all smaller ones; returns how many. */
static int keep_front(struct kvt_sensitivity *parts, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (kept == 0 || parts[i].kl < parts[kept - 1].kl) parts[kept++] = parts[i];
    return kept;
}

static enum kvt_status thin_out(struct search *s, struct kvt_error *err) {
    struct kvt_sensitivity parts[KVT_SIDE_COUNT * CODECS_MAX];
    int n = 0;
    for (int side = 0; side < KVT_SIDE_COUNT; side++)
        for (int i = 0; i < s->sides[side].n; i++)
            parts[n++] = (struct kvt_sensitivity){-1, (enum kvt_side)side, s->sides[side].codec[i], 0, 0};
    KVT_TRY(measure_parts(s, parts, n, err));
    struct kvt_sensitivity *at = parts;
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        struct side *kept = &s->sides[side];
        const int n_all = kept->n;
        qsort(at, (size_t)n_all, sizeof *at, by_bytes);
        kept->n = keep_front(at, n_all);
        for (int i = 0; i < kept->n; i++) kept->codec[i] = at[i].codec;
        at += n_all;
    }
    return KVT_OK;
}

/* ---- layer by layer --------------------------------------------------------------------------------------------------- */

static enum kvt_status measure_layers(struct search *s, struct kvt_error *err) {
    s->n_parts = s->shape.n_layers * (s->sides[KVT_SIDE_K].n + s->sides[KVT_SIDE_V].n);
    s->parts = kvt_take_zero(&s->allocator, (size_t)s->n_parts, sizeof *s->parts);
    if (!s->parts) return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for %d parts", s->n_parts);
    int n = 0;
    for (int l = 0; l < s->shape.n_layers; l++)
        for (int side = 0; side < KVT_SIDE_COUNT; side++)
            for (int i = 0; i < s->sides[side].n; i++)
                s->parts[n++] = (struct kvt_sensitivity){l, (enum kvt_side)side, s->sides[side].codec[i], 0, 0};
    KVT_TRY(measure_parts(s, s->parts, s->n_parts, err));
    qsort(s->parts, (size_t)s->n_parts, sizeof *s->parts, by_bytes);
    return KVT_OK;
}

/* ---- the choice ------------------------------------------------------------------------------------------------------- */

/* Of each layer and side the parts to choose among, as an item. */
struct items {
    struct kvt_choice_option *options; /* n_parts of them */
    int *part;                         /* of each option */
    const struct kvt_choice_option **list;
    int *n_options, *chosen, *first; /* by item; `first` its first option */
    int n;
};

static void fill_items(struct items *it, const struct search *s) {
    int n_options = 0;
    it->n = 0;
    for (int i = 0; i < s->n_parts; i++) {
        const struct kvt_sensitivity *part = &s->parts[i];
        if (i == 0 || part->layer != s->parts[i - 1].layer || part->side != s->parts[i - 1].side) {
            it->first[it->n] = n_options;
            it->list[it->n] = it->options + n_options;
            it->n_options[it->n++] = 0;
        }
        const bool better = it->n_options[it->n - 1] == 0 || part->kl < it->options[n_options - 1].cost;
        if (!better) continue;
        it->options[n_options] = (struct kvt_choice_option){part->bytes, KVT_MAX(part->kl, 0)};
        it->part[n_options++] = i;
        it->n_options[it->n - 1]++;
    }
}

/* The plan's string: of each layer its keys' codec, then its values'. */
static char *write_choice(const struct items *it, const struct search *s) {
    struct kvt_buf text;
    char *kv = NULL;
    enum kvt_status status;
    kvt_buf_init(&text, &s->allocator, KV_BYTES_MAX);
    KVT_TRY_OUT(kvt_buf_addf(&text, "f16"));
    for (int i = 0; i < it->n; i++) {
        const struct kvt_sensitivity *part = &s->parts[it->part[it->first[i] + it->chosen[i]]];
        const char *name = kvt_codec_info(part->codec).name;
        if (part->side == KVT_SIDE_K) KVT_TRY_OUT(kvt_buf_addf(&text, ":%d=%s", part->layer, name));
        if (part->side == KVT_SIDE_V) KVT_TRY_OUT(kvt_buf_addf(&text, ",%s", name));
    }
    kv = kvt_take_string(&s->allocator, kvt_buf_text(&text), text.len);
out:
    kvt_buf_finish(&text);
    (void)status;
    return kv;
}

static enum kvt_status real_bytes(struct kvt_search *out, const struct search *s, const char *kv,
                                  struct kvt_error *err) {
    const struct kvt_plan_options options = {
        .struct_size = sizeof options, .kv = kv, .sink = s->request->sink, .tail = s->request->tail};
    struct kvt_plan *plan;
    KVT_TRY(kvt_plan_create(&plan, &s->shape, &options, &s->allocator, err));
    out->bytes = kvt_plan_bytes(plan, s->request->at);
    out->kv = kvt_take_string(&s->allocator, kvt_plan_kv(plan), strlen(kvt_plan_kv(plan)));
    kvt_plan_destroy(plan);
    return out->kv ? KVT_OK : kvt_fail(err, KVT_ERR_NOMEM, "no memory for the plan");
}

static void free_string(const struct search *s, char *text) {
    if (text) kvt_give(&s->allocator, text, strlen(text) + 1, 1);
}

/* Two codecs of one layer share a frontier, so that a plan may need a page more than its parts: then with less. */
static enum kvt_status choose(struct kvt_search *out, struct items *it, const struct search *s, struct kvt_error *err) {
    uint64_t budget = s->request->budget;
    for (int i = 0; i < ATTEMPTS; i++) {
        if (!kvt_choose(it->chosen, it->list, it->n_options, it->n, budget)) break;
        char *kv = write_choice(it, s);
        if (!kv) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the plan");
        const enum kvt_status status = real_bytes(out, s, kv, err);
        free_string(s, kv);
        KVT_TRY(status);
        out->expected_kl = 0;
        for (int k = 0; k < it->n; k++) out->expected_kl += it->list[k][it->chosen[k]].cost;
        if (out->bytes <= s->request->budget) return KVT_OK;
        const uint64_t over = out->bytes - s->request->budget;
        free_string(s, out->kv);
        out->kv = NULL;
        if (over >= budget) break;
        budget -= over;
    }
    return kvt_fail(err, KVT_ERR_RANGE,
                    "no plan of these caches fits into %llu bytes at %lld rows; sweep smaller ones, or allow more",
                    (unsigned long long)s->request->budget, (long long)s->request->at);
}

static enum kvt_status choose_all(struct kvt_search *out, const struct search *s, struct kvt_error *err) {
    const size_t n = (size_t)s->n_parts;
    struct kvt_arena arena;
    struct items it = {.n = 0};
    if (!kvt_arena_init(&arena, &s->allocator,
                        kvt_arena_need(n, sizeof *it.options) + kvt_arena_need(n, sizeof *it.list) +
                            4 * kvt_arena_need(n, sizeof(int))))
        return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory to choose among %zu parts", n);
    it.options = kvt_arena_take(&arena, n, sizeof *it.options);
    it.list = kvt_arena_take(&arena, n, sizeof *it.list);
    it.part = kvt_arena_take(&arena, n, sizeof(int));
    it.n_options = kvt_arena_take(&arena, n, sizeof(int));
    it.chosen = kvt_arena_take(&arena, n, sizeof(int));
    it.first = kvt_arena_take(&arena, n, sizeof(int));
    fill_items(&it, s);
    const enum kvt_status status = choose(out, &it, s, err);
    kvt_arena_finish(&arena);
    return status;
}

enum kvt_status kvt_sweep_search(struct kvt_search *out, const struct kvt_model *model,
                                 const struct kvt_search_request *request, struct kvt_error *err) {
    struct search s = {.model = model,
                       .request = request,
                       .shape = kvt_model_shape(model),
                       .allocator = kvt_allocator_or_default(request->options->allocator)};
    struct kvt_search found = {.allocator = s.allocator};
    enum kvt_status status = find_codecs(&s, err);
    if (status == KVT_OK) status = thin_out(&s, err);
    if (status == KVT_OK) status = measure_layers(&s, err);
    if (status == KVT_OK) status = choose_all(&found, &s, err);
    found.parts = s.parts;
    found.n_parts = found.n_taken = s.n_parts;
    if (status == KVT_OK)
        *out = found;
    else
        kvt_search_finish(&found);
    return status;
}

void kvt_search_finish(struct kvt_search *search) {
    if (search->kv) kvt_give(&search->allocator, search->kv, strlen(search->kv) + 1, 1);
    if (search->parts) kvt_give(&search->allocator, search->parts, (size_t)search->n_taken, sizeof *search->parts);
    *search = (struct kvt_search){.kv = NULL};
}
