/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a prompt cache: the header, then layer after layer, its arrays one after another, through one buffer.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "cache/mlx.h"

enum { HEADER_MAX = 100 * 1000 * 1000, SCALAR = 4 };

static const char *const side_names[KVT_SIDE_COUNT] = {[KVT_SIDE_K] = "0", [KVT_SIDE_V] = "1"};

/* ---- the header -------------------------------------------------------------------------------------------------------- */

struct header {
    struct kvt_buf text;
    enum kvt_mlx_layout layout;
    int64_t n_rows, n_stored;
    int turned;
    uint64_t at; /* bytes of the arrays so far */
    enum kvt_status status;
    bool is_first;
};

static void add(struct header *h, const char *text, size_t len) {
    if (h->status == KVT_OK) h->status = kvt_buf_add(&h->text, text, len);
}

static void add_text(struct header *h, const char *text) { add(h, text, strlen(text)); }

/* A JSON string of two parts. */
static void add_string(struct header *h, const char *prefix, const char *text) {
    add_text(h, "\"");
    add_text(h, prefix);
    for (; *text; text++) {
        char escape[8];
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            snprintf(escape, sizeof escape, "\\%c", c);
        else if (c < 0x20)
            snprintf(escape, sizeof escape, "\\u%04x", c);
        else
            snprintf(escape, sizeof escape, "%c", c);
        add_text(h, escape);
    }
    add_text(h, "\"");
}

static void add_entry(struct header *h, const char *prefix, const char *key, const char *value) {
    if (!h->is_first) add_text(h, ",");
    h->is_first = false;
    add_string(h, prefix, key);
    add_text(h, ":");
    add_string(h, "", value);
}

static void add_array(struct header *h, const char *name, const char *type, const char *shape, uint64_t bytes) {
    char text[256];
    snprintf(text, sizeof text, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
             name, type, shape, h->at, h->at + bytes);
    add_text(h, text);
    h->at += bytes;
}

static const char *class_of(const struct kvt_codec *codec) {
    return kvt_mlx_is_plain(codec) ? KVT_MLX_PLAIN : KVT_MLX_QUANTIZED;
}

/* The numbers of a layer that are no arrays of rows. */
struct scalars {
    int n;
    int32_t value[3];
};

static struct scalars scalars_of(const struct kvt_codec *codec, int64_t n_rows) {
    if (kvt_mlx_is_plain(codec)) return (struct scalars){1, {(int32_t)n_rows}};
    return (struct scalars){3, {(int32_t)n_rows, codec->info.group, codec->info.bits}};
}

static void add_old_metadata(struct header *h, const struct kvt_plan *plan) {
    char key[64], value[32];
    for (int l = 0; l < plan->n_layers; l++) {
        const struct kvt_codec *codec = plan->layers[l].plan.codec[KVT_SIDE_K];
        const struct scalars s = scalars_of(codec, h->n_rows);
        snprintf(key, sizeof key, "0.%d", l);
        if (kvt_mlx_is_plain(codec)) add_entry(h, "", key, "");
        for (int i = 0; i < s.n && !kvt_mlx_is_plain(codec); i++) {
            snprintf(key, sizeof key, "0.%d.%d", l, i);
            snprintf(value, sizeof value, "%d", (int)s.value[i]);
            add_entry(h, "", key, value);
        }
        snprintf(key, sizeof key, "2.%d", l);
        add_entry(h, "", key, class_of(codec));
    }
}

static void add_new_metadata(struct header *h, const struct kvt_plan *plan) {
    char key[64], value[32];
    int k = 1;
    add_entry(h, "", "2.0", "");
    for (int l = 0; l < plan->n_layers; l++) {
        const struct kvt_codec *codec = plan->layers[l].plan.codec[KVT_SIDE_K];
        const struct scalars s = scalars_of(codec, h->n_rows);
        snprintf(key, sizeof key, "1.%d", l);
        add_entry(h, "", key, class_of(codec));
        for (int i = 0; i < s.n; i++, k++) {
            snprintf(key, sizeof key, "2.%d.0", k);
            snprintf(value, sizeof value, "%d.%d", l, 2 + i);
            add_entry(h, "", key, value);
            snprintf(key, sizeof key, "2.%d.1", k);
            add_entry(h, "", key, "scalar");
        }
    }
}

/* A layer's arrays, in the order in which fill_layer has them. */
static void add_layer(struct header *h, const struct kvt_layer_plan *p, int l) {
    static const char *const quantized[KVT_MLX_PARTS] = {"U32", "F16", "F16"};
    char name[40], shape[96];
    const struct kvt_codec *codec = p->codec[KVT_SIDE_K];
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        const struct kvt_mlx_widths w =
            kvt_mlx_widths_of(codec, side == KVT_SIDE_K ? p->shape.k_size : p->shape.v_size);
        for (int part = 0; part < KVT_MLX_PARTS && w.width[part]; part++) {
            const char *type = codec->info.name[0] == 'b' ? "BF16" : kvt_mlx_is_plain(codec) ? "F16" : quantized[part];
            snprintf(shape, sizeof shape, "1,%d,%" PRId64 ",%zu", p->shape.n_kv_heads, h->n_stored, w.width[part]);
            if (kvt_mlx_is_plain(codec))
                snprintf(name, sizeof name, "%d.%s", l, side_names[side]);
            else
                snprintf(name, sizeof name, "%d.%s.%d", l, side_names[side], part);
            add_array(h, name, type, shape,
                      (uint64_t)p->shape.n_kv_heads * (uint64_t)h->n_stored * w.width[part] * w.bytes[part]);
        }
    }
    for (int i = 0; i < scalars_of(codec, 0).n && h->layout == KVT_MLX_LAYOUT_NEW; i++) {
        snprintf(name, sizeof name, "%d.%d", l, 2 + i);
        add_array(h, name, "I32", "", SCALAR);
    }
}

static enum kvt_status make_header(struct header *h, const struct kvt_plan *plan, const struct kvt_mlx_entry *entries,
                                   int n_entries, struct kvt_error *err) {
    add_text(h, "{\"__metadata__\":{");
    for (int i = 0; i < n_entries; i++)
        add_entry(h, h->layout == KVT_MLX_LAYOUT_NEW ? "0." : "1.", entries[i].key, entries[i].value);
    if (h->layout == KVT_MLX_LAYOUT_NEW)
        add_new_metadata(h, plan);
    else
        add_old_metadata(h, plan);
    add_text(h, "}");
    for (int l = 0; l < plan->n_layers; l++) add_layer(h, &plan->layers[l].plan, l);
    add_text(h, "}");
    while (h->status == KVT_OK && h->text.len % 8) add_text(h, " "); /* arrays begin at a multiple of 8 */
    if (h->status != KVT_OK) return kvt_fail(err, h->status, "no memory for the header of a prompt cache");
    return KVT_OK;
}

/* ---- the arrays -------------------------------------------------------------------------------------------------------- */

/* A layer's part of the file, and a page. */
struct buffer {
    unsigned char *layer, *page;
    size_t layer_bytes, page_bytes;
};

static size_t layer_bytes(const struct kvt_layer_plan *p, const struct header *h) {
    size_t bytes = 0;
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        const struct kvt_mlx_widths w =
            kvt_mlx_widths_of(p->codec[side], side == KVT_SIDE_K ? p->shape.k_size : p->shape.v_size);
        for (int part = 0; part < KVT_MLX_PARTS; part++) bytes += w.width[part] * w.bytes[part];
    }
    bytes *= (size_t)p->shape.n_kv_heads * (size_t)h->n_stored;
    return bytes + (h->layout == KVT_MLX_LAYOUT_NEW ? (size_t)scalars_of(p->codec[0], 0).n * SCALAR : 0);
}

static enum kvt_status take_buffer(struct buffer *b, const struct kvt_seq *seq, const struct header *h,
                                   struct kvt_error *err) {
    const struct kvt_plan *plan = seq->pool->plan;
    for (int l = 0; l < plan->n_layers; l++) {
        b->layer_bytes = KVT_MAX(b->layer_bytes, layer_bytes(&plan->layers[l].plan, h));
        b->page_bytes = KVT_MAX(b->page_bytes, plan->layers[l].page[KVT_REGION_BODY].bytes);
    }
    b->layer = kvt_take(&seq->pool->allocator, b->layer_bytes, 1);
    b->page = kvt_take(&seq->pool->allocator, b->page_bytes, 1);
    if (b->layer && b->page) return KVT_OK;
    return kvt_fail(err, KVT_ERR_NOMEM, "no memory to save a prompt cache: %zu bytes", b->layer_bytes + b->page_bytes);
}

/* Where a side's arrays begin in a layer's part. */
struct arrays {
    unsigned char *at[KVT_MLX_PARTS];
    struct kvt_mlx_widths widths;
};

static void plain_rows(uint16_t *out, const struct kvt_codec *codec, const float *rows, size_t n) {
    const bool bf16 = codec->info.name[0] == 'b';
    for (size_t i = 0; i < n; i++) out[i] = bf16 ? kvt_bf16_from_f32(rows[i]) : kvt_f16_from_f32(rows[i]);
}

/* n rows of one head and tile: those from `row` on in the arrays. `turned` elements of each are put in mlx-lm's order. */
static enum kvt_status put_rows(const struct kvt_layer_plan *p, enum kvt_side side, const struct arrays *arrays,
                                size_t row, const unsigned char *tile_bytes, int n, int turned, struct kvt_error *err) {
    const struct kvt_codec *codec = p->codec[side];
    const int d = side == KVT_SIDE_K ? p->shape.k_size : p->shape.v_size;
    const struct kvt_mlx_widths *w = &arrays->widths;
    void *at[KVT_MLX_PARTS] = {0};
    for (int part = 0; part < KVT_MLX_PARTS && w->width[part]; part++)
        at[part] = arrays->at[part] + row * w->width[part] * w->bytes[part];
    if (!kvt_mlx_is_plain(codec)) {
        KVT_TRY(kvt_mlx_export(codec, side, d, &(struct kvt_mlx_arrays){at[0], at[1], at[2]}, tile_bytes, 0, n, err));
        for (int r = 0; r < n && turned; r++)
            kvt_mlx_turn_codes((uint32_t *)at[0] + (size_t)r * w->width[0], codec->info.bits, d, turned, true);
        return KVT_OK;
    }
    float stored[KVT_LATENT_MAX], rows[KVT_LATENT_MAX];
    for (int r = 0; r < n; r++) {
        KVT_TRY(kvt_codec_decode(codec, side, d, stored, d, tile_bytes, r, 1, err));
        for (int c = 0; c < d; c++) rows[c] = stored[kvt_mlx_from_file(c, turned)];
        plain_rows((uint16_t *)at[0] + (size_t)r * (size_t)d, codec, rows, (size_t)d);
    }
    return KVT_OK;
}

static enum kvt_status put_tile(const struct kvt_seq *seq, const struct header *h, int l, int64_t t,
                                const struct buffer *b, const struct arrays *arrays, struct kvt_error *err) {
    struct kvt_pool *pool = seq->pool;
    const struct kvt_layer *layer = &pool->plan->layers[l];
    const struct kvt_page_shape *shape = &layer->page[KVT_REGION_BODY];
    const int n = (int)KVT_MIN(h->n_rows - t * KVT_TILE_ROWS, KVT_TILE_ROWS);
    pool->ops->read(pool, b->page, seq->layers[l].list[KVT_REGION_BODY].pages[t], shape->bytes);
    for (int i = 0; i < layer->plan.shape.n_kv_heads * KVT_SIDE_COUNT; i++) {
        const enum kvt_side side = i % KVT_SIDE_COUNT ? KVT_SIDE_V : KVT_SIDE_K;
        const int head = i / KVT_SIDE_COUNT;
        KVT_TRY(put_rows(&layer->plan, side, &arrays[side], (size_t)(head * h->n_stored + t * KVT_TILE_ROWS),
                         b->page + kvt_page_offset(shape, head, side), n, side == KVT_SIDE_K ? h->turned : 0, err));
    }
    return KVT_OK;
}

static enum kvt_status put_layer(const struct kvt_seq *seq, const struct header *h, int l, const struct buffer *b,
                                 struct kvt_writer *file, struct kvt_error *err) {
    const struct kvt_layer_plan *p = &seq->pool->plan->layers[l].plan;
    const size_t bytes = layer_bytes(p, h);
    struct arrays arrays[KVT_SIDE_COUNT];
    unsigned char *at = b->layer;
    memset(b->layer, 0, bytes);
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        const struct kvt_mlx_widths w =
            kvt_mlx_widths_of(p->codec[side], side == KVT_SIDE_K ? p->shape.k_size : p->shape.v_size);
        arrays[side].widths = w;
        for (int part = 0; part < KVT_MLX_PARTS; part++) {
            arrays[side].at[part] = at;
            at += (size_t)(p->shape.n_kv_heads * h->n_stored) * w.width[part] * w.bytes[part];
        }
    }
    const struct scalars s = scalars_of(p->codec[0], h->n_rows);
    if (h->layout == KVT_MLX_LAYOUT_NEW) memcpy(at, s.value, (size_t)s.n * SCALAR);
    for (int64_t t = 0; t * KVT_TILE_ROWS < h->n_rows; t++) KVT_TRY(put_tile(seq, h, l, t, b, arrays, err));
    kvt_writer_add(file, b->layer, bytes);
    return KVT_OK;
}

static enum kvt_status put_all(const struct kvt_seq *seq, const char *path, struct header *h, struct buffer *b,
                               struct kvt_error *err) {
    const struct kvt_plan *plan = seq->pool->plan;
    struct kvt_writer file;
    const uint64_t header_bytes = h->text.len;
    enum kvt_status status = KVT_OK;
    KVT_TRY(take_buffer(b, seq, h, err));
    KVT_TRY(kvt_writer_open(&file, path, &seq->pool->allocator, err));
    kvt_writer_add(&file, &header_bytes, sizeof header_bytes); /* little-endian, as we are */
    kvt_writer_add(&file, h->text.data, h->text.len);
    for (int l = 0; l < plan->n_layers && status == KVT_OK; l++) status = put_layer(seq, h, l, b, &file, err);
    if (status == KVT_OK) return kvt_writer_commit(&file, err);
    kvt_writer_abandon(&file);
    return status;
}

enum kvt_status kvt_mlx_cache_save(const struct kvt_seq *seq, const char *path, enum kvt_mlx_layout layout, int turned,
                                   const struct kvt_mlx_entry *entries, int n_entries, struct kvt_error *err) {
    const struct kvt_plan *plan = seq->pool->plan;
    const struct kvt_allocator *a = &seq->pool->allocator;
    if (seq->step) return kvt_fail(err, KVT_ERR_STATE, "cannot save a sequence that is in a step");
    if (seq->n_rows == 0) return kvt_fail(err, KVT_ERR_STATE, "an empty sequence has no arrays for a prompt cache");
    if (seq->n_rows > INT32_MAX - KVT_MLX_STEP)
        return kvt_fail(err, KVT_ERR_LIMIT, "mlx-lm counts rows in 32 bits: %lld are too many", (long long)seq->n_rows);
    for (int l = 0; l < plan->n_layers; l++) {
        KVT_TRY(kvt_mlx_check_layer(plan, l, err));
        KVT_TRY(kvt_mlx_check_order(plan, l, turned, err));
    }
    struct header h = {
        .layout = layout, .n_rows = seq->n_rows, .n_stored = seq->n_rows, .turned = turned, .is_first = true};
    if (layout == KVT_MLX_LAYOUT_NEW) h.n_stored = kvt_round_up(seq->n_rows, KVT_MLX_STEP);
    struct buffer b = {0};
    kvt_buf_init(&h.text, a, HEADER_MAX);
    kvt_enter(kvt_seq_busy(seq));
    enum kvt_status status = make_header(&h, plan, entries, n_entries, err);
    if (status == KVT_OK) status = put_all(seq, path, &h, &b, err);
    kvt_exit(kvt_seq_busy(seq));
    kvt_give(a, b.layer, b.layer_bytes, 1);
    kvt_give(a, b.page, b.page_bytes, 1);
    kvt_buf_finish(&h.text);
    return status;
}
