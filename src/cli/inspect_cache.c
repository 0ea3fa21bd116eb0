/* SPDX-License-Identifier: Apache-2.0
 * The cache of a GGUF file from its metadata, and what each codec makes of it. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "cli/inspect.h"
#include "model/model.h"

const int kvt_inspect_lengths[KVT_INSPECT_N_LENGTHS] = {4096, 32768, 131072};

enum { LAYERS_MAX = 4096, NUMBER_MAX = 1 << 24, ARCH_MAX = 60 };

/* Whether a word is in a list with ", " between. */
static bool lists(const char *list, const char *word) {
    const size_t n = strlen(word);
    for (const char *p = list; (p = strstr(p, word)) != NULL; p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == 0 || p[n] == ',')) return n > 0;
    return false;
}

/* "ARCH.key" of layer i, which may be one number for all layers or an array with one each. False: absent or not in
 * [0, NUMBER_MAX]. */
static bool number(const struct kvt_gguf *gguf, const char *arch, const char *key, uint64_t layer, int64_t *out) {
    char name[ARCH_MAX + 60];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    const struct kvt_gguf_value *value = kvt_gguf_find(gguf, name);
    if (!value || (value->kind == KVT_GGUF_ARRAY && layer >= value->count)) return false;
    int64_t n;
    if (!kvt_gguf_as_i64(value, value->kind == KVT_GGUF_ARRAY ? layer : 0, &n) || n < 0 || n > NUMBER_MAX) return false;
    *out = n;
    return true;
}

/* One layer's shape; false names the key that is missing or unusable. */
static bool layer_shape(const struct kvt_gguf *gguf, const char *arch, uint64_t layer, struct kvt_layer_shape *out,
                        const char **missing) {
    int64_t n_heads, n_kv_heads, width, k_size, v_size;
    *missing = "attention.head_count";
    if (!number(gguf, arch, "attention.head_count", layer, &n_heads)) return false;
    if (!number(gguf, arch, "attention.head_count_kv", layer, &n_kv_heads)) n_kv_heads = n_heads;
    *missing = "embedding_length";
    if (!number(gguf, arch, "attention.key_length", layer, &k_size)) {
        if (!number(gguf, arch, "embedding_length", layer, &width) || n_heads == 0) return n_kv_heads == 0;
        k_size = width / n_heads;
    }
    if (!number(gguf, arch, "attention.value_length", layer, &v_size)) v_size = k_size;
    *out = (struct kvt_layer_shape){(int)n_kv_heads, (int)k_size, (int)v_size, 0};
    return true;
}

static void find_caveat(struct kvt_inspect_cache *c, const struct kvt_gguf *gguf, const char *arch) {
    int64_t n;
    if (number(gguf, arch, "attention.sliding_window", 0, &n) && n > 0)
        snprintf(c->caveat, sizeof c->caveat, "Every layer is counted whole: the sliding window of %lld is left out.",
                 (long long)n);
    else if (number(gguf, arch, "attention.kv_lora_rank", 0, &n) && n > 0)
        snprintf(c->caveat, sizeof c->caveat,
                 "Rows are counted as the metadata gives them, not as latent rows of %lld.", (long long)n);
}

enum kvt_status kvt_inspect_cache_init(struct kvt_inspect_cache *out, const struct kvt_gguf *gguf,
                                       struct kvt_error *err) {
    struct kvt_inspect_cache c = {.caveat = ""};
    const struct kvt_gguf_value *value = kvt_gguf_find(gguf, "general.architecture");
    char arch[ARCH_MAX + 1] = "";
    if (value && value->kind == KVT_GGUF_STRING && value->text[0].len <= ARCH_MAX)
        memcpy(arch, value->text[0].data, value->text[0].len);
    for (char *p = arch; *p; p++)
        if (*p <= ' ' || *p > '~') *p = '?'; /* it is printed */
    c.arch_is_known = lists(kvt_arch_names(), arch);
    int64_t n_layers = 0;
    if (!number(gguf, arch, "block_count", 0, &n_layers) || n_layers < 1 || n_layers > LAYERS_MAX) {
        snprintf(c.why_not, sizeof c.why_not, "the file has no usable key '%s.block_count'", arch);
        *out = c;
        return KVT_OK;
    }
    c.n_layers_taken = (size_t)n_layers;
    c.layers = kvt_take(&kvt_allocator_libc, c.n_layers_taken, sizeof *c.layers);
    if (!c.layers) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the shape of %lld layers", (long long)n_layers);
    for (uint64_t i = 0; i < (uint64_t)n_layers && !c.why_not[0]; i++) {
        struct kvt_layer_shape layer = {0};
        const char *missing = NULL;
        if (!layer_shape(gguf, arch, i, &layer, &missing))
            snprintf(c.why_not, sizeof c.why_not, "the file has no usable key '%s.%s'", arch, missing);
        if (layer.n_kv_heads == 0) continue;
        c.n_elements += (uint64_t)layer.n_kv_heads * ((uint64_t)layer.k_size + (uint64_t)layer.v_size);
        c.layers[c.shape.n_layers++] = layer;
    }
    c.shape.layers = c.layers;
    if (!c.why_not[0] && c.n_elements == 0) snprintf(c.why_not, sizeof c.why_not, "no layer has KV heads");
    find_caveat(&c, gguf, arch);
    *out = c;
    return KVT_OK;
}

void kvt_inspect_cache_finish(struct kvt_inspect_cache *cache) {
    kvt_give(&kvt_allocator_libc, cache->layers, cache->n_layers_taken, sizeof *cache->layers);
    *cache = (struct kvt_inspect_cache){.caveat = ""};
}

struct kvt_inspect_cost kvt_inspect_cost(const struct kvt_inspect_cache *cache, const struct kvt_inspect_ask *ask) {
    struct kvt_inspect_cost cost = {.bits = 0};
    const struct kvt_plan_options options = {
        .struct_size = sizeof options, .kv = ask->kv, .sink = ask->sink, .tail = ask->tail};
    struct kvt_plan *plan = NULL;
    struct kvt_error err;
    if (kvt_plan_create(&plan, &cache->shape, &options, NULL, &err) != KVT_OK) {
        snprintf(cost.why_not, sizeof cost.why_not, "%.*s", (int)sizeof cost.why_not - 1, err.text);
        return cost;
    }
    for (int i = 0; i < KVT_INSPECT_N_LENGTHS; i++) cost.bytes[i] = kvt_plan_bytes(plan, kvt_inspect_lengths[i]);
    const int last = KVT_INSPECT_N_LENGTHS - 1;
    cost.token_bytes = (double)cost.bytes[last] / kvt_inspect_lengths[last];
    cost.bits = 8 * cost.token_bytes / (double)cache->n_elements;
    kvt_plan_destroy(plan);
    return cost;
}
