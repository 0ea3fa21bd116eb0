/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "model/bind_text.h"
#include "model/pack.h"
#include "model/place.h"

static struct kvt_slice text_of(const struct kvt_gguf *gguf, const char *key) {
    struct kvt_slice text = {NULL, 0};
    if (kvt_gguf_get_text(gguf, key, &text, NULL) != KVT_OK) text.data = NULL;
    return text;
}

/* NULL for NULL; the arena has room by arena_bytes. */
static const char *keep_text(struct kvt_model *m, struct kvt_slice text) {
    char *copy = text.data ? kvt_arena_take(&m->arena, text.len + 1, 1) : NULL;
    if (!copy) return NULL;
    memcpy(copy, text.data, text.len);
    copy[text.len] = 0;
    return copy;
}

static size_t arena_bytes(const struct kvt_model *m) {
    const size_t n_layers = (size_t)m->config.n_layers;
    size_t bytes = kvt_arena_need(n_layers, sizeof *m->layers) + kvt_arena_need(n_layers, sizeof *m->shapes) +
                   kvt_arena_need((size_t)m->config.rope.n_rot / 2, sizeof(double)) +
                   kvt_arena_need(text_of(m->gguf, "general.name").len + 1, 1) +
                   kvt_arena_need(text_of(m->gguf, "tokenizer.chat_template").len + 1, 1);
    for (size_t i = 0; i < kvt_gguf_n_tensors(m->gguf); i++) {
        const struct kvt_gguf_tensor *t = kvt_gguf_tensor(m->gguf, i);
        if (t->n_dims == 1) bytes += kvt_arena_need((size_t)t->dims[0], sizeof(float));
    }
    return bytes;
}

static void fill_layers(struct kvt_model *m) {
    memset(m->layers, 0, (size_t)m->config.n_layers * sizeof *m->layers);
    for (int i = 0; i < m->config.n_layers; i++) {
        const struct kvt_layer_config *c = &m->config.layers[i];
        m->layers[i].config = *c;
        m->shapes[i] = (struct kvt_layer_shape){c->n_kv_heads, m->config.k_size, m->config.v_size, c->window};
    }
}

/* "Q4_1, F32, Q8_0": most tensors first. */
static void describe_types(struct kvt_model *m) {
    enum { MAX_TYPES = 16 };
    const struct kvt_gguf_type *types[MAX_TYPES];
    int count[MAX_TYPES] = {0}, n = 0;
    for (size_t i = 0; i < kvt_gguf_n_tensors(m->gguf); i++) {
        const struct kvt_gguf_type *type = kvt_gguf_tensor(m->gguf, i)->type;
        int j = 0;
        while (j < n && types[j] != type) j++;
        if (j == MAX_TYPES) continue;
        if (j == n) types[n++] = type;
        count[j]++;
    }
    size_t len = 0;
    for (int rank = 0; rank < n; rank++) {
        int best = 0;
        for (int j = 1; j < n; j++)
            if (count[j] > count[best]) best = j;
        const int added = snprintf(m->types + len, sizeof m->types - len, "%s%s", rank ? ", " : "", types[best]->name);
        if (added < 0 || (size_t)added >= sizeof m->types - len) break;
        len += (size_t)added;
        count[best] = -1;
    }
}

static void describe(struct kvt_model *m) {
    const struct kvt_config *c = &m->config;
    const char *name = keep_text(m, text_of(m->gguf, "general.name"));
    uint64_t n_params = 0;
    for (size_t i = 0; i < kvt_gguf_n_tensors(m->gguf); i++) {
        const int64_t *d = kvt_gguf_tensor(m->gguf, i)->dims;
        n_params += (uint64_t)(d[0] * d[1] * d[2] * d[3]);
    }
    describe_types(m);
    m->info = (struct kvt_model_info){
        .name = name && *name ? name : m->arch->name,
        .arch = m->arch->name,
        .types = m->types,
        .file_bytes = kvt_gguf_bytes(m->gguf),
        .n_params = n_params,
        .n_layers = c->n_layers,
        .width = c->width,
        .n_q_heads = c->layers[0].n_q_heads,
        .n_kv_heads = c->layers[0].n_kv_heads,
        .k_size = c->k_size,
        .v_size = c->v_size,
        .n_vocab = c->n_vocab,
        .n_ctx_train = c->n_ctx_train,
        .chat_template = keep_text(m, text_of(m->gguf, "tokenizer.chat_template")),
    };
}

/* Reads the mapped weights once, so that the wait for the disk is seen here and not in the first forward pass. */
static enum kvt_status read_ahead(const struct kvt_model *m, const struct kvt_progress *progress,
                                  struct kvt_error *err) {
    enum { PAGE = 4096 };
    const uint64_t total = kvt_gguf_bytes(m->gguf);
    uint64_t done = 0;
    unsigned sum = 0;
    for (size_t i = 0; i < kvt_gguf_n_tensors(m->gguf); i++) {
        const struct kvt_gguf_tensor *t = kvt_gguf_tensor(m->gguf, i);
        if (!kvt_progress_report(progress, "load", done, total))
            return kvt_fail(err, KVT_ERR_CANCELLED, "loading was cancelled");
        for (size_t at = 0; at < t->bytes; at += PAGE) sum += *(const volatile unsigned char *)(t->data + at);
        done += t->bytes;
    }
    (void)sum;
    if (!kvt_progress_report(progress, "load", total, total))
        return kvt_fail(err, KVT_ERR_CANCELLED, "loading was cancelled");
    return KVT_OK;
}

static enum kvt_status check_rope_factors(const struct kvt_model *m, struct kvt_error *err) {
    for (int i = 0; m->rope_factors && i < m->config.rope.n_rot / 2; i++) {
        const float factor = m->rope_factors[i];
        if (factor > 0 && isfinite(factor)) continue;
        return kvt_fail(err, KVT_ERR_FORMAT, "tensor rope_freqs.weight: element %d is %g, not a positive factor", i,
                        (double)factor);
    }
    return KVT_OK;
}

static enum kvt_status load(struct kvt_model *m, const char *path, const struct kvt_progress *progress,
                            struct kvt_error *err) {
    m->places = kvt_take_zero(&m->allocator, 1, sizeof *m->places);
    if (!m->places) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for a model");
    pthread_mutex_init(&m->places->lock, NULL);
    m->places->output = &m->output;
    KVT_TRY(kvt_gguf_open(&m->gguf, path, &m->allocator, err));
    KVT_TRY(kvt_arch_find(&m->arch, m->gguf, err));
    KVT_TRY(kvt_config_read(&m->config, m->gguf, m->arch->name, &m->allocator, err));
    KVT_TRY(kvt_bind_text(&m->text, m->gguf, &m->allocator, err));
    m->config.n_vocab = kvt_text_n_tokens(m->text);

    const size_t n_layers = (size_t)m->config.n_layers;
    if (!kvt_arena_init(&m->arena, &m->allocator, arena_bytes(m)))
        return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the tables of %d layers", m->config.n_layers);
    m->layers = kvt_arena_take(&m->arena, n_layers, sizeof *m->layers);
    m->shapes = kvt_arena_take(&m->arena, n_layers, sizeof *m->shapes);
    double *freq = kvt_arena_take(&m->arena, (size_t)m->config.rope.n_rot / 2, sizeof *freq);
    fill_layers(m);
    KVT_TRY(kvt_model_bind(m, err));
    KVT_TRY(check_rope_factors(m, err));
    m->rope = kvt_rope_of(&m->config.rope, m->arch->pairing, m->rope_factors, freq);
    describe(m);
    return progress ? read_ahead(m, progress, err) : KVT_OK;
}

enum kvt_status kvt_model_load(struct kvt_model **out, const char *path, const struct kvt_model_options *options,
                               struct kvt_error *err) {
    const struct kvt_allocator allocator = kvt_allocator_or_default(options ? options->allocator : NULL);
    struct kvt_model *m = kvt_take_zero(&allocator, 1, sizeof *m);
    if (!m) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for a model");
    m->allocator = allocator;
    const enum kvt_status status = load(m, path, options ? options->progress : NULL, err);
    if (status != KVT_OK) {
        kvt_model_destroy(m);
        return status;
    }
    *out = m;
    return KVT_OK;
}

void kvt_model_destroy(struct kvt_model *m) {
    if (!m) return;
    if (m->places) {
        kvt_placed_destroy(m);
        kvt_model_unpack(m);
        pthread_mutex_destroy(&m->places->lock);
        kvt_give(&m->allocator, m->places, 1, sizeof *m->places);
    }
    kvt_text_destroy(m->text);
    kvt_config_finish(&m->config);
    kvt_arena_finish(&m->arena);
    kvt_gguf_close(m->gguf);
    kvt_give(&m->allocator, m, 1, sizeof *m);
}

struct kvt_model_info kvt_model_info(const struct kvt_model *m) {
    return m->info;
}

const struct kvt_text *kvt_model_text(const struct kvt_model *m) { return m->text; }

struct kvt_shape kvt_model_shape(const struct kvt_model *m) {
    return (struct kvt_shape){m->config.n_layers, m->shapes};
}
