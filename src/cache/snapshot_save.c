/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing a snapshot: page after page through one buffer, to a file or to memory.
 */
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "cache/snapshot.h"

/* Where the bytes go: one of the two. */
struct out {
    struct kvt_writer *file;
    char *memory;
};

static void put(struct out *out, const void *data, size_t bytes) {
    if (out->file) {
        kvt_writer_add(out->file, data, bytes);
    } else if (bytes > 0) {
        memcpy(out->memory, data, bytes);
        out->memory += bytes;
    }
}

struct blob {
    const void *data;
    size_t bytes;
};

/* ---- rows that are not part of a sequence ------------------------------------------------------------------------------- */

/* Makes row r of a tile what it is in a fresh one: all zero. Its scales and factors go with it: those that it shares with other rows
 * of its group are to be cleared too. A V tile's factors belong to all its rows, and stay. */
static void clear_row(const struct kvt_tile *tile, void *bytes, int r) {
    static const float zeros[KVT_LATENT_MAX];
    const bool is_k = tile->side == KVT_SIDE_K;
    const uint8_t code = (uint8_t)tile->flip; /* stored as 0 */
    if (tile->kind == KVT_TILE_CLASS) return; /* such tiles are whole */
    if (tile->kind == KVT_TILE_PLAIN) {
        kvt_tile_put_numbers(tile, bytes, r, zeros);
        return;
    }
    for (int c = 0; c < kvt_tile_row_size(tile); c++) {
        const int term = is_k ? c : r, lane = is_k ? r : c;
        kvt_tile_put_codes(tile, bytes, term, lane, 0, 0, &code, 1);
        kvt_tile_put_scale(tile, bytes, term, lane, 0);
        if (tile->format.has_zero) kvt_tile_put_zero(tile, bytes, term, lane, 0);
    }
    for (int slice = 0; is_k && slice < tile->n_slices; slice++) kvt_tile_put_factor(tile, bytes, slice, r, 0);
}

/* Clears what is outside [first, end) in the tiles of a page, rows counted from its first. */
static void clear_outside(const struct kvt_page_shape *shape, int n_heads, char *tiles, int64_t first, int64_t end) {
    for (int r = 0; r < KVT_TILE_ROWS; r++) {
        if (r >= first && r < end) continue;
        for (int head = 0; head < n_heads; head++)
            for (int side = 0; side < KVT_SIDE_COUNT; side++)
                clear_row(&shape->tile[side], tiles + kvt_page_offset(shape, head, (enum kvt_side)side), r);
    }
}

static void clear_unused(const struct kvt_seq *seq, const struct kvt_snap_walk *at, char *tiles) {
    const struct kvt_layer *layer = &seq->pool->plan->layers[at->layer];
    const struct kvt_page_shape *shape = &layer->page[at->region];
    const int n_heads = layer->plan.shape.n_kv_heads;
    const int64_t origin = at->tile * KVT_TILE_ROWS;
    int64_t first = 0, end = seq->n_rows - origin;
    if (at->region == KVT_REGION_BODY) end = kvt_layer_body_end(layer, seq->n_rows) - origin;
    if (at->region == KVT_REGION_TAIL) first = seq->layers[at->layer].wide_from - origin;
    clear_outside(shape, n_heads, tiles, first, end);
    for (int head = 0; head < n_heads && at->region == KVT_REGION_TAIL && layer->queries.bytes; head++)
        for (int r = 0; r < KVT_TILE_ROWS; r++)
            if (r < first || r >= end) clear_row(&layer->queries, tiles + kvt_queries_offset(shape, head), r);
}

/* ---- the file ---------------------------------------------------------------------------------------------------------- */

static size_t header_bytes(const struct kvt_plan *plan) {
    return sizeof(struct kvt_snap_header) + (size_t)plan->n_layers * sizeof(struct kvt_snap_layer);
}

static size_t padding(size_t bytes) { return (KVT_SNAP_ALIGN - bytes % KVT_SNAP_ALIGN) % KVT_SNAP_ALIGN; }

uint64_t kvt_seq_save_bytes(const struct kvt_seq *seq, size_t blob_bytes) {
    const struct kvt_plan *plan = seq->pool->plan;
    return header_bytes(plan) + blob_bytes + padding(blob_bytes) + kvt_plan_bytes(plan, seq->n_rows);
}

/* Bytes of the buffer that header and pages go through. */
static size_t buffer_bytes(const struct kvt_plan *plan) {
    size_t most = header_bytes(plan);
    for (int l = 0; l < plan->n_layers; l++)
        for (int region = 0; region < KVT_REGION_COUNT; region++)
            most = KVT_MAX(most, plan->layers[l].page[region].bytes);
    return most;
}

static void put_header(const struct kvt_seq *seq, struct out *out, const struct blob *blob, char *buffer) {
    const struct kvt_plan *plan = seq->pool->plan;
    const size_t bytes = header_bytes(plan);
    struct kvt_snap_header h = {
        .magic = KVT_SNAP_MAGIC,
        .version = KVT_SNAP_VERSION,
        .tile_version = KVT_TILE_VERSION,
        .header_bytes = bytes,
        .file_bytes = kvt_seq_save_bytes(seq, blob->bytes),
        .blob_bytes = blob->bytes,
        .blob_hash = kvt_hash(blob->data, blob->bytes),
        .n_rows = seq->n_rows,
        .n_layers = (uint32_t)plan->n_layers,
    };
    for (struct kvt_snap_walk walk = {0}; kvt_snap_next(&walk, plan, seq->n_rows);) h.n_pages++;
    memcpy(h.kv, plan->kv, KVT_MIN(strlen(plan->kv), sizeof h.kv - 1)); /* cut where it is long */
    memcpy(buffer, &h, sizeof h);
    for (int l = 0; l < plan->n_layers; l++) {
        struct kvt_snap_layer layer = kvt_snap_describe(&plan->layers[l]);
        layer.wide_from = seq->layers[l].wide_from;
        if (layer.queries && seq->queries == KVT_QUERIES_GIVEN) layer.queries = KVT_SNAP_QUERIES;
        KVT_ASSERT(kvt_snap_wide_from_fits(&plan->layers[l], seq->n_rows, layer.wide_from));
        memcpy(buffer + sizeof h + (size_t)l * sizeof layer, &layer, sizeof layer);
    }
    h.hash = kvt_hash(buffer + KVT_SNAP_HASHED, bytes - KVT_SNAP_HASHED);
    memcpy(buffer, &h, sizeof h);
    put(out, buffer, bytes);
}

static void put_page(const struct kvt_seq *seq, struct out *out, const struct kvt_snap_walk *at, char *buffer) {
    struct kvt_pool *pool = seq->pool;
    const size_t bytes = pool->plan->layers[at->layer].page[at->region].bytes;
    const struct kvt_page *page = seq->layers[at->layer].list[at->region].pages[at->tile];
    struct kvt_snap_page head = {
        .layer = (uint32_t)at->layer, .region = (uint32_t)at->region, .tile = at->tile, .bytes = bytes - sizeof head};
    char *tiles = buffer + sizeof head;
    pool->ops->read(pool, tiles, page, bytes);
    clear_unused(seq, at, tiles);
    head.hash = kvt_hash(tiles, bytes - sizeof head);
    memcpy(buffer, &head, sizeof head);
    put(out, buffer, bytes);
}

static enum kvt_status save(const struct kvt_seq *seq, struct out *out, const struct blob *blob,
                            struct kvt_error *err) {
    static const char zeros[KVT_SNAP_ALIGN];
    const struct kvt_plan *plan = seq->pool->plan;
    const size_t bytes = buffer_bytes(plan);
    char *buffer = kvt_take(&seq->pool->allocator, bytes, 1);
    if (!buffer) return kvt_fail(err, KVT_ERR_NOMEM, "no memory to save a sequence: %zu bytes", bytes);
    kvt_enter(kvt_seq_busy(seq));
    put_header(seq, out, blob, buffer);
    put(out, blob->data, blob->bytes);
    put(out, zeros, padding(blob->bytes));
    for (struct kvt_snap_walk walk = {0}; kvt_snap_next(&walk, plan, seq->n_rows);) put_page(seq, out, &walk, buffer);
    kvt_exit(kvt_seq_busy(seq));
    kvt_give(&seq->pool->allocator, buffer, bytes, 1);
    return kvt_pool_check(seq->pool, err);
}

static enum kvt_status check(const struct kvt_seq *seq, const struct blob *blob, struct kvt_error *err) {
    if (seq->step) return kvt_fail(err, KVT_ERR_STATE, "cannot save a sequence that is in a step");
    if (!blob->data && blob->bytes > 0) return kvt_fail(err, KVT_ERR_ARG, "a blob of %zu bytes is NULL", blob->bytes);
    return KVT_OK;
}

enum kvt_status kvt_seq_save(const struct kvt_seq *seq, const char *path, const void *blob, size_t blob_bytes,
                             struct kvt_error *err) {
    const struct blob b = {blob, blob_bytes};
    struct kvt_writer file;
    KVT_TRY(check(seq, &b, err));
    KVT_TRY(kvt_writer_open(&file, path, &seq->pool->allocator, err));
    const enum kvt_status status = save(seq, &(struct out){.file = &file}, &b, err);
    if (status == KVT_OK) return kvt_writer_commit(&file, err);
    kvt_writer_abandon(&file);
    return status;
}

enum kvt_status kvt_seq_save_memory(const struct kvt_seq *seq, void *out, size_t bytes, const void *blob,
                                    size_t blob_bytes, struct kvt_error *err) {
    const struct blob b = {blob, blob_bytes};
    KVT_TRY(check(seq, &b, err));
    const uint64_t need = kvt_seq_save_bytes(seq, blob_bytes);
    if (bytes < need)
        return kvt_fail(err, KVT_ERR_ARG, "a snapshot of %llu bytes does not fit in %zu", (unsigned long long)need,
                        bytes);
    return save(seq, &(struct out){.memory = out}, &b, err);
}
