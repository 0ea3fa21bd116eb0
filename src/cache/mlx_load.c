/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a prompt cache. Open finds out which layout it has and checks that each layer has all its parts and that their shapes agree; load
 * checks the numbers. A file may mix classes, and nothing but its metadata says which it is.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "cache/mlx.h"

/* ---- opening ----------------------------------------------------------------------------------------------------------- */

struct reader {
    struct kvt_mlx_cache *c;
    struct kvt_error *err;
    int layer;
    int n_used; /* arrays */
};

static enum kvt_status refuse(const struct reader *r, enum kvt_status code, const char *what) {
    return kvt_fail(r->err, code, "%s: layer %d %s", r->c->name, r->layer, what);
}

/* Which layout the metadata is of: in the new one 1.0 is a class and 2.0 empty, in the old one 2.0 is a class. */
static enum kvt_status find_layout(struct reader *r) {
    struct kvt_mlx_cache *c = r->c;
    const char *two = kvt_st_entry(&c->st, "2.0");
    c->layout = two && *two ? KVT_MLX_LAYOUT_OLD : KVT_MLX_LAYOUT_NEW;
    if (!two || (!*two && !kvt_st_entry(&c->st, "1.0")))
        return kvt_fail(r->err, KVT_ERR_FORMAT,
                        "%s is no prompt cache of mlx-lm: its metadata names no class of a layer", c->name);
    char key[32];
    const int at = c->layout == KVT_MLX_LAYOUT_OLD ? 2 : 1;
    do {
        snprintf(key, sizeof key, "%d.%d", at, ++c->n_layers);
    } while (c->n_layers < KVT_MAX_LAYERS && kvt_st_entry(&c->st, key));
    return KVT_OK;
}

static const struct kvt_st_array *take_array(struct reader *r, int a, int b) {
    char name[48];
    if (b < 0)
        snprintf(name, sizeof name, "%d.%d", r->layer, a);
    else
        snprintf(name, sizeof name, "%d.%d.%d", r->layer, a, b);
    const struct kvt_st_array *array = kvt_st_array(&r->c->st, name);
    r->n_used += array != NULL;
    return array;
}

/* Number i of those that are no arrays of rows (0: length, 1: group size, 2: bits); false if it is missing or no number. */
static bool read_scalar(struct reader *r, int i, int64_t *out) {
    if (r->c->layout == KVT_MLX_LAYOUT_NEW) {
        const struct kvt_st_array *array = take_array(r, 2 + i, -1);
        int32_t value;
        if (!array || array->type != KVT_ST_I32 || array->bytes != sizeof value) return false;
        memcpy(&value, array->data, sizeof value);
        *out = value;
        return value >= 0;
    }
    char key[48], *end;
    snprintf(key, sizeof key, "0.%d.%d", r->layer, i);
    const char *text = kvt_st_entry(&r->c->st, key);
    if (!text || *text < '0' || *text > '9') return false;
    *out = strtoll(text, &end, 10);
    return !*end && *out <= INT32_MAX;
}

/* Arrays of one side, [1, heads, rows, width], with the same heads and rows throughout the layer. */
static enum kvt_status check_array(struct reader *r, struct kvt_mlx_layer *layer, const struct kvt_st_array *array) {
    if (!array) return refuse(r, KVT_ERR_FORMAT, "lacks an array");
    if (array->n_dims != 4)
        return refuse(r, KVT_ERR_FORMAT, "has an array that is not of sequences, heads, rows and numbers");
    if (array->dims[0] != 1)
        return refuse(r, KVT_ERR_UNSUPPORTED, "holds several sequences, or none: only one can be read");
    if (array->dims[1] < 1 || array->dims[1] > 4096 || array->dims[3] < 1 || array->dims[3] > 4096)
        return refuse(r, KVT_ERR_FORMAT, "has an array of a shape that cannot be");
    if (layer->shape.n_kv_heads == 0) {
        layer->shape.n_kv_heads = (int)array->dims[1];
        layer->n_stored = array->dims[2];
    }
    if (array->dims[1] != layer->shape.n_kv_heads || array->dims[2] != layer->n_stored)
        return refuse(r, KVT_ERR_FORMAT, "has arrays of different numbers of heads or rows");
    return KVT_OK;
}

static enum kvt_status open_plain(struct reader *r, struct kvt_mlx_layer *layer, int64_t *n_rows) {
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        const struct kvt_st_array *array = layer->parts[side][0] = take_array(r, side, -1);
        KVT_TRY(check_array(r, layer, array));
        if (array->type != layer->parts[0][0]->type)
            return refuse(r, KVT_ERR_UNSUPPORTED, "has keys and values of two types");
        if (array->type != KVT_ST_F16 && array->type != KVT_ST_BF16)
            return refuse(r, KVT_ERR_UNSUPPORTED, "has rows that are neither f16 nor bf16");
        *(side == KVT_SIDE_K ? &layer->shape.k_size : &layer->shape.v_size) = (int)array->dims[3];
    }
    *n_rows = layer->n_stored;
    if (r->c->layout == KVT_MLX_LAYOUT_NEW && !read_scalar(r, 0, n_rows))
        return refuse(r, KVT_ERR_FORMAT, "lacks its length");
    return kvt_codec_parse(&layer->codec, layer->parts[0][0]->type == KVT_ST_F16 ? "f16" : "bf16", r->err);
}

static enum kvt_status open_quantized(struct reader *r, struct kvt_mlx_layer *layer, int64_t *n_rows) {
    int64_t group, bits;
    char name[32];
    layer->is_quantized = true;
    if (!read_scalar(r, 0, n_rows) || !read_scalar(r, 1, &group) || !read_scalar(r, 2, &bits))
        return refuse(r, KVT_ERR_FORMAT, "lacks its length, its group size or its bits");
    snprintf(name, sizeof name, "affine%dg%d", (int)bits, (int)group);
    if (kvt_codec_parse(&layer->codec, name, NULL) != KVT_OK || strcmp(layer->codec->info.name, name) != 0)
        return kvt_fail(r->err, KVT_ERR_UNSUPPORTED, "%s: layer %d has %lld bits and groups of %lld, which MLX has not",
                        r->c->name, r->layer, (long long)bits, (long long)group);
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        const struct kvt_st_array **parts = layer->parts[side];
        for (int part = 0; part < KVT_MLX_PARTS; part++) {
            parts[part] = take_array(r, side, part);
            KVT_TRY(check_array(r, layer, parts[part]));
        }
        const int64_t d = parts[1]->dims[3] * group;
        if (parts[0]->type != KVT_ST_U32 || parts[0]->dims[3] * 32 != d * bits ||
            parts[2]->dims[3] != parts[1]->dims[3])
            return refuse(r, KVT_ERR_FORMAT, "has codes, scales and biases that its bits and group size contradict");
        if (parts[1]->type != parts[2]->type || (parts[1]->type != KVT_ST_F16 && parts[1]->type != KVT_ST_BF16))
            return refuse(r, KVT_ERR_UNSUPPORTED, "has scales and biases that are neither f16 nor bf16");
        *(side == KVT_SIDE_K ? &layer->shape.k_size : &layer->shape.v_size) = (int)KVT_MIN(d, INT32_MAX);
    }
    return KVT_OK;
}

static enum kvt_status open_layer(struct reader *r) {
    struct kvt_mlx_cache *c = r->c;
    struct kvt_mlx_layer *layer = &c->layers[r->layer];
    char key[32];
    int64_t n_rows = 0;
    snprintf(key, sizeof key, "%d.%d", c->layout == KVT_MLX_LAYOUT_OLD ? 2 : 1, r->layer);
    const char *class = kvt_st_entry(&c->st, key);
    if (strcmp(class, KVT_MLX_PLAIN) == 0)
        KVT_TRY(open_plain(r, layer, &n_rows));
    else if (strcmp(class, KVT_MLX_QUANTIZED) == 0)
        KVT_TRY(open_quantized(r, layer, &n_rows));
    else
        return kvt_fail(r->err, KVT_ERR_UNSUPPORTED,
                        "%s: layer %d is a %.60s: " KVT_MLX_PLAIN " and " KVT_MLX_QUANTIZED " can be read", c->name,
                        r->layer, class);
    if (n_rows < 1 || n_rows > layer->n_stored)
        return kvt_fail(r->err, KVT_ERR_FORMAT, "%s: layer %d has %lld rows of which %lld are there", c->name, r->layer,
                        (long long)n_rows, (long long)layer->n_stored);
    if (r->layer > 0 && n_rows != c->n_rows)
        return kvt_fail(r->err, KVT_ERR_UNSUPPORTED, "%s: layer %d has %lld rows, layer 0 has %lld", c->name, r->layer,
                        (long long)n_rows, (long long)c->n_rows);
    c->n_rows = n_rows;
    for (int side = 0; side < KVT_SIDE_COUNT; side++)
        KVT_TRY(kvt_codec_fits(layer->codec, (enum kvt_side)side,
                               side == KVT_SIDE_K ? layer->shape.k_size : layer->shape.v_size, r->err));
    return KVT_OK;
}

static enum kvt_status open_bytes(struct kvt_mlx_cache *c, const unsigned char *data, size_t bytes,
                                  struct kvt_error *err) {
    struct reader r = {.c = c, .err = err};
    KVT_TRY(kvt_st_read(&c->st, data, bytes, c->name, &c->allocator, err));
    KVT_TRY(find_layout(&r));
    c->layers = kvt_take_zero(&c->allocator, (size_t)c->n_layers, sizeof *c->layers);
    if (!c->layers) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for %d layers of %s", c->n_layers, c->name);
    for (r.layer = 0; r.layer < c->n_layers; r.layer++) KVT_TRY(open_layer(&r));
    if (r.n_used != c->st.n_arrays)
        return kvt_fail(err, KVT_ERR_FORMAT, "%s has %d arrays, of which its layers are %d", c->name, c->st.n_arrays,
                        r.n_used);
    return KVT_OK;
}

static struct kvt_mlx_cache *take(const struct kvt_allocator *allocator, struct kvt_error *err) {
    const struct kvt_allocator a = kvt_allocator_or_default(allocator);
    struct kvt_mlx_cache *c = kvt_take_zero(&a, 1, sizeof *c);
    if (c)
        c->allocator = a;
    else
        kvt_fail(err, KVT_ERR_NOMEM, "no memory to open a prompt cache");
    return c;
}

static enum kvt_status finish_open(struct kvt_mlx_cache **out, struct kvt_mlx_cache *c, enum kvt_status status) {
    if (status != KVT_OK)
        kvt_mlx_cache_close(c);
    else
        *out = c;
    return status;
}

enum kvt_status kvt_mlx_cache_open(struct kvt_mlx_cache **out, const char *path, const struct kvt_allocator *allocator,
                                   struct kvt_error *err) {
    struct kvt_mlx_cache *c = take(allocator, err);
    if (!c) return KVT_ERR_NOMEM;
    snprintf(c->name, sizeof c->name, "'%.120s'", path);
    enum kvt_status status = kvt_map_open(&c->map, path, err);
    if (status == KVT_OK) status = open_bytes(c, c->map.data, c->map.bytes, err);
    return finish_open(out, c, status);
}

enum kvt_status kvt_mlx_cache_open_memory(struct kvt_mlx_cache **out, const void *data, size_t bytes,
                                          const struct kvt_allocator *allocator, struct kvt_error *err) {
    struct kvt_mlx_cache *c = take(allocator, err);
    if (!c) return KVT_ERR_NOMEM;
    snprintf(c->name, sizeof c->name, "the prompt cache");
    return finish_open(out, c, open_bytes(c, data, bytes, err));
}

void kvt_mlx_cache_close(struct kvt_mlx_cache *c) {
    if (!c) return;
    const struct kvt_allocator a = c->allocator;
    kvt_give(&a, c->layers, (size_t)c->n_layers, sizeof *c->layers);
    kvt_st_finish(&c->st);
    kvt_map_close(&c->map);
    kvt_give(&a, c, 1, sizeof *c);
}

enum kvt_mlx_layout kvt_mlx_cache_layout(const struct kvt_mlx_cache *c) { return c->layout; }

int kvt_mlx_cache_n_layers(const struct kvt_mlx_cache *c) { return c->n_layers; }

int64_t kvt_mlx_cache_n_rows(const struct kvt_mlx_cache *c) { return c->n_rows; }

const char *kvt_mlx_cache_entry(const struct kvt_mlx_cache *c, const char *key) {
    const char *prefix = c->layout == KVT_MLX_LAYOUT_NEW ? "0." : "1.";
    for (int i = 0; i < c->st.n_entries; i++)
        if (strncmp(c->st.entries[i].key, prefix, 2) == 0 && strcmp(c->st.entries[i].key + 2, key) == 0)
            return c->st.entries[i].value;
    return NULL;
}

const char *kvt_mlx_cache_layer(const struct kvt_mlx_cache *c, int l, struct kvt_layer_shape *shape) {
    if (l < 0 || l >= c->n_layers) return NULL;
    if (shape) *shape = c->layers[l].shape;
    return c->layers[l].codec->info.name;
}

/* ---- loading ----------------------------------------------------------------------------------------------------------- */

static enum kvt_status check_plan(const struct kvt_mlx_cache *c, const struct kvt_plan *plan, int turned,
                                  struct kvt_error *err) {
    if (plan->n_layers != c->n_layers)
        return kvt_fail(err, KVT_ERR_ARG, "%s has %d layers, this cache has %d", c->name, c->n_layers, plan->n_layers);
    for (int l = 0; l < c->n_layers; l++) {
        const struct kvt_layer_plan *p = &plan->layers[l].plan;
        const struct kvt_codec *theirs = c->layers[l].codec, *ours = p->codec[KVT_SIDE_K];
        const struct kvt_layer_shape *shape = &c->layers[l].shape;
        if (shape->n_kv_heads != p->shape.n_kv_heads || shape->k_size != p->shape.k_size ||
            shape->v_size != p->shape.v_size)
            return kvt_fail(err, KVT_ERR_ARG,
                            "%s: layer %d has %d KV heads of %d and %d elements, that of this cache %d of %d and %d",
                            c->name, l, shape->n_kv_heads, shape->k_size, shape->v_size, p->shape.n_kv_heads,
                            p->shape.k_size, p->shape.v_size);
        KVT_TRY(kvt_mlx_check_layer(plan, l, err));
        KVT_TRY(kvt_mlx_check_order(plan, l, turned, err));
        const bool same_form = !kvt_mlx_is_plain(ours) && !kvt_mlx_is_plain(theirs) &&
                               ours->info.bits == theirs->info.bits &&
                               ours->info.group == theirs->info.group; /* whichever arithmetic it encodes with */
        if (ours != theirs && !same_form)
            return kvt_fail(err, KVT_ERR_ARG, "%s: layer %d is %s, that of this cache %s", c->name, l,
                            theirs->info.name, ours->info.name);
    }
    return KVT_OK;
}

/* A page, and the rows of one head and tile as arrays of their own. */
struct scratch {
    int turned;
    unsigned char *page;
    size_t page_bytes;
    uint32_t codes[KVT_TILE_ROWS * KVT_LATENT_MAX / 4];
    uint16_t numbers[2][KVT_TILE_ROWS * KVT_LATENT_MAX / 32];
    uint16_t plain[KVT_LATENT_MAX];
    float row[KVT_LATENT_MAX];
};

/* n numbers of scales or biases as f16; false if one is bf16 and no f16. */
static bool to_f16(uint16_t *x, size_t n, enum kvt_st_type type) {
    for (size_t i = 0; i < n && type == KVT_ST_BF16; i++) {
        const float value = kvt_f32_from_bf16(x[i]);
        x[i] = kvt_f16_from_f32(value);
        if (kvt_f32_from_f16(x[i]) != value) return false;
    }
    return true;
}

/* Where n rows are put, and which they are. */
struct place {
    enum kvt_side side;
    int head, n;
    int64_t first;
    void *tile;
};

static const unsigned char *rows_at(const struct kvt_mlx_layer *layer, const struct place *at, int part,
                                    size_t row_bytes) {
    return layer->parts[at->side][part]->data + (size_t)(at->head * layer->n_stored + at->first) * row_bytes;
}

static enum kvt_status get_quantized(const struct kvt_mlx_layer *layer, const struct kvt_codec *codec, int d,
                                     const struct place *at, struct scratch *s, struct kvt_error *err) {
    const struct kvt_mlx_widths w = kvt_mlx_widths_of(codec, d);
    const size_t n = (size_t)at->n, words = w.width[0] * 4;
    memcpy(s->codes, rows_at(layer, at, 0, words), n * words);
    for (int part = 1; part < KVT_MLX_PARTS; part++) {
        uint16_t *numbers = s->numbers[part - 1];
        memcpy(numbers, rows_at(layer, at, part, 2 * w.width[part]), n * 2 * w.width[part]);
        if (!to_f16(numbers, n * w.width[part], layer->parts[at->side][part]->type))
            return kvt_fail(err, KVT_ERR_RANGE, "a scale or bias is bf16 and has no equal in f16");
    }
    for (size_t r = 0; r < n && s->turned && at->side == KVT_SIDE_K; r++)
        kvt_mlx_turn_codes(s->codes + r * w.width[0], codec->info.bits, d, s->turned, false);
    return kvt_mlx_import(codec, at->side, d, at->tile,
                          &(struct kvt_mlx_arrays){s->codes, s->numbers[0], s->numbers[1]}, 0, at->n, err);
}

static enum kvt_status get_plain(const struct kvt_mlx_layer *layer, const struct kvt_codec *codec, int d, float limit,
                                 const struct place *at, struct scratch *s, struct kvt_error *err) {
    const size_t bytes = (size_t)d * 2;
    const unsigned char *rows = rows_at(layer, at, 0, bytes);
    const bool bf16 = layer->parts[at->side][0]->type == KVT_ST_BF16;
    const int turned = at->side == KVT_SIDE_K ? s->turned : 0;
    for (int r = 0; r < at->n; r++) {
        memcpy(s->plain, rows + (size_t)r * bytes, bytes);
        for (int c = 0; c < d; c++) {
            const float x = bf16 ? kvt_f32_from_bf16(s->plain[c]) : kvt_f32_from_f16(s->plain[c]);
            if (!(fabsf(x) <= limit))
                return kvt_fail(err, KVT_ERR_RANGE, "position %lld, channel %d is %g", (long long)(at->first + r), c,
                                (double)x);
            s->row[kvt_mlx_from_file(c, turned)] = x;
        }
        KVT_TRY(kvt_codec_encode(codec, at->side, d, at->tile, r, 1, s->row, d, err));
    }
    return KVT_OK;
}

static enum kvt_status load_tile(struct kvt_seq *seq, const struct kvt_mlx_cache *c, int l, int64_t t,
                                 struct scratch *s, struct kvt_error *err) {
    struct kvt_pool *pool = seq->pool;
    const struct kvt_layer *layer = &pool->plan->layers[l];
    const struct kvt_page_shape *shape = &layer->page[KVT_REGION_BODY];
    KVT_TRY(kvt_seq_own_page(seq, l, KVT_REGION_BODY, t, 0, err));
    memset(s->page, 0, shape->bytes);
    for (int i = 0; i < layer->plan.shape.n_kv_heads * KVT_SIDE_COUNT; i++) {
        const enum kvt_side side = i % KVT_SIDE_COUNT ? KVT_SIDE_V : KVT_SIDE_K;
        const int head = i / KVT_SIDE_COUNT, d = kvt_tile_row_size(&shape->tile[side]);
        const struct place at = {.side = side,
                                 .head = head,
                                 .n = (int)KVT_MIN(c->n_rows - t * KVT_TILE_ROWS, KVT_TILE_ROWS),
                                 .first = t * KVT_TILE_ROWS,
                                 .tile = s->page + kvt_page_offset(shape, head, side)};
        const struct kvt_codec *codec = layer->plan.codec[side];
        struct kvt_error why = {0};
        const enum kvt_status status = c->layers[l].is_quantized
                                           ? get_quantized(&c->layers[l], codec, d, &at, s, &why)
                                           : get_plain(&c->layers[l], codec, d, layer->limit[side], &at, s, &why);
        if (status != KVT_OK)
            return kvt_fail(err, status, "%s: layer %d, %s, KV head %d: %s", c->name, l, side == KVT_SIDE_K ? "K" : "V",
                            head, why.text);
    }
    pool->ops->write(pool, seq->layers[l].list[KVT_REGION_BODY].pages[t], s->page, shape->bytes);
    return KVT_OK;
}

static enum kvt_status fill(struct kvt_seq *seq, const struct kvt_mlx_cache *c, struct scratch *s,
                            struct kvt_error *err) {
    const struct kvt_plan *plan = seq->pool->plan;
    for (int l = 0; l < plan->n_layers; l++)
        s->page_bytes = KVT_MAX(s->page_bytes, plan->layers[l].page[KVT_REGION_BODY].bytes);
    s->page = kvt_take(&seq->pool->allocator, s->page_bytes, 1);
    if (!s->page) return kvt_fail(err, KVT_ERR_NOMEM, "no memory to load %s", c->name);
    enum kvt_status status = KVT_OK;
    for (int l = 0; l < plan->n_layers && status == KVT_OK; l++) {
        for (int64_t t = 0; t * KVT_TILE_ROWS < c->n_rows && status == KVT_OK; t++)
            status = load_tile(seq, c, l, t, s, err);
        seq->layers[l].wide_from = c->n_rows;
    }
    seq->n_rows = c->n_rows;
    kvt_give(&seq->pool->allocator, s->page, s->page_bytes, 1);
    return status;
}

enum kvt_status kvt_mlx_cache_load(struct kvt_seq **out, struct kvt_pool *pool, const struct kvt_mlx_cache *c,
                                   int64_t max_rows, int turned, struct kvt_error *err) {
    struct kvt_seq *seq;
    KVT_TRY(check_plan(c, pool->plan, turned, err));
    if (c->n_rows > max_rows)
        return kvt_fail(err, KVT_ERR_LIMIT, "%s has %lld rows: they do not fit in a sequence of %lld", c->name,
                        (long long)c->n_rows, (long long)max_rows);
    struct scratch *scratch = kvt_take_zero(&pool->allocator, 1, sizeof *scratch);
    if (!scratch) return kvt_fail(err, KVT_ERR_NOMEM, "no memory to load %s", c->name);
    scratch->turned = turned;
    enum kvt_status status = kvt_seq_create(&seq, pool, max_rows, err);
    if (status == KVT_OK) {
        status = fill(seq, c, scratch, err);
        if (status != KVT_OK)
            kvt_seq_destroy(seq);
        else
            *out = seq;
    }
    kvt_give(&pool->allocator, scratch, 1, sizeof *scratch);
    return status;
}
