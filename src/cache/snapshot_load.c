/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a snapshot. Open checks header and blob; load checks the plan and every page, then takes memory.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "cache/snapshot.h"

/* ---- opening ----------------------------------------------------------------------------------------------------------- */

/* How far a header can be trusted before anything else of it is looked at. */
static enum kvt_status check_kind(const struct kvt_snapshot *s, struct kvt_error *err) {
    const struct kvt_snap_header *h = &s->header;
    if (memcmp(h->magic, KVT_SNAP_MAGIC, sizeof h->magic) != 0)
        return kvt_fail(err, KVT_ERR_FORMAT, "%s is no snapshot of a cache: it begins with other bytes", s->name);
    if (h->version != KVT_SNAP_VERSION)
        return kvt_fail(err, KVT_ERR_UNSUPPORTED, "%s is a snapshot of version %u: this library reads version %d",
                        s->name, (unsigned)h->version, KVT_SNAP_VERSION);
    if (h->file_bytes != s->bytes)
        return kvt_fail(err, KVT_ERR_FORMAT, "%s is cut or padded: it has %zu bytes, its header says %llu", s->name,
                        s->bytes, (unsigned long long)h->file_bytes);
    const uint64_t need = sizeof *h + (uint64_t)h->n_layers * sizeof(struct kvt_snap_layer);
    if (h->n_layers < 1 || h->n_layers > KVT_MAX_LAYERS || h->header_bytes != need || need > s->bytes)
        return kvt_fail(err, KVT_ERR_FORMAT, "%s is damaged: a header of %llu bytes for %u layers", s->name,
                        (unsigned long long)h->header_bytes, (unsigned)h->n_layers);
    const uint64_t hash = kvt_hash(s->data + KVT_SNAP_HASHED, (size_t)need - KVT_SNAP_HASHED);
    if (hash != h->hash)
        return kvt_fail(err, KVT_ERR_FORMAT, "%s is damaged: its header has checksum %016llx, not %016llx", s->name,
                        (unsigned long long)hash, (unsigned long long)h->hash);
    if (h->tile_version != KVT_TILE_VERSION)
        return kvt_fail(err, KVT_ERR_UNSUPPORTED, "%s has tiles of version %u: this library reads version %d", s->name,
                        (unsigned)h->tile_version, KVT_TILE_VERSION);
    return KVT_OK;
}

/* Numbers with a checksum may still be a fool's. */
static enum kvt_status check_header(struct kvt_snapshot *s, struct kvt_error *err) {
    KVT_TRY(check_kind(s, err));
    const struct kvt_snap_header *h = &s->header;
    const size_t rest = s->bytes - (size_t)h->header_bytes;
    if (h->n_rows < 0 || h->n_rows > KVT_SEQ_MAX_ROWS)
        return kvt_fail(err, KVT_ERR_FORMAT, "%s has %lld rows: a sequence has 0 to %lld", s->name,
                        (long long)h->n_rows, (long long)KVT_SEQ_MAX_ROWS);
    if (!memchr(h->kv, 0, sizeof h->kv))
        return kvt_fail(err, KVT_ERR_FORMAT, "%s has a plan whose name does not end", s->name);
    if (h->blob_bytes > rest || (uint64_t)kvt_round_up((int64_t)h->blob_bytes, KVT_SNAP_ALIGN) > rest)
        return kvt_fail(err, KVT_ERR_FORMAT, "%s has a blob of %llu bytes: only %zu are left", s->name,
                        (unsigned long long)h->blob_bytes, rest);
    s->blob_at = (size_t)h->header_bytes;
    s->pages_at = s->blob_at + (size_t)kvt_round_up((int64_t)h->blob_bytes, KVT_SNAP_ALIGN);
    const uint64_t hash = kvt_hash(s->data + s->blob_at, (size_t)h->blob_bytes);
    if (hash != h->blob_hash)
        return kvt_fail(err, KVT_ERR_FORMAT, "%s is damaged: its blob has checksum %016llx, not %016llx", s->name,
                        (unsigned long long)hash, (unsigned long long)h->blob_hash);
    for (size_t i = s->blob_at + (size_t)h->blob_bytes; i < s->pages_at; i++)
        if (s->data[i] != 0)
            return kvt_fail(err, KVT_ERR_FORMAT, "%s is damaged: byte %zu, past its blob, is not 0", s->name, i);
    return KVT_OK;
}

static enum kvt_status open_bytes(struct kvt_snapshot *s, struct kvt_error *err) {
    if (s->bytes < sizeof s->header)
        return kvt_fail(err, KVT_ERR_FORMAT, "%s is no snapshot of a cache: it has %zu bytes of at least %zu", s->name,
                        s->bytes, sizeof s->header);
    memcpy(&s->header, s->data, sizeof s->header);
    return check_header(s, err);
}

static struct kvt_snapshot *take(const struct kvt_allocator *allocator, struct kvt_error *err) {
    const struct kvt_allocator a = kvt_allocator_or_default(allocator);
    struct kvt_snapshot *s = kvt_take_zero(&a, 1, sizeof *s);
    if (s)
        s->allocator = a;
    else
        kvt_fail(err, KVT_ERR_NOMEM, "no memory to open a snapshot");
    return s;
}

enum kvt_status kvt_snapshot_open(struct kvt_snapshot **out, const char *path, const struct kvt_allocator *allocator,
                                  struct kvt_error *err) {
    struct kvt_snapshot *s = take(allocator, err);
    if (!s) return KVT_ERR_NOMEM;
    snprintf(s->name, sizeof s->name, "'%.120s'", path);
    enum kvt_status status = kvt_map_open(&s->map, path, err);
    if (status == KVT_OK) {
        s->data = s->map.data;
        s->bytes = s->map.bytes;
        status = open_bytes(s, err);
    }
    if (status != KVT_OK)
        kvt_snapshot_close(s);
    else
        *out = s;
    return status;
}

enum kvt_status kvt_snapshot_open_memory(struct kvt_snapshot **out, const void *data, size_t bytes,
                                         const struct kvt_allocator *allocator, struct kvt_error *err) {
    struct kvt_snapshot *s = take(allocator, err);
    if (!s) return KVT_ERR_NOMEM;
    snprintf(s->name, sizeof s->name, "the snapshot");
    s->data = data;
    s->bytes = bytes;
    const enum kvt_status status = open_bytes(s, err);
    if (status != KVT_OK)
        kvt_snapshot_close(s);
    else
        *out = s;
    return status;
}

void kvt_snapshot_close(struct kvt_snapshot *s) {
    if (!s) return;
    const struct kvt_allocator a = s->allocator;
    kvt_map_close(&s->map);
    kvt_give(&a, s, 1, sizeof *s);
}

struct kvt_snapshot_info kvt_snapshot_info(const struct kvt_snapshot *s) {
    return (struct kvt_snapshot_info){.n_rows = s->header.n_rows,
                                      .n_layers = (int)s->header.n_layers,
                                      .kv = s->header.kv,
                                      .blob = s->data + s->blob_at,
                                      .blob_bytes = (size_t)s->header.blob_bytes,
                                      .bytes = s->bytes};
}

/* ---- loading ----------------------------------------------------------------------------------------------------------- */

static struct kvt_snap_layer file_layer(const struct kvt_snapshot *s, int l) {
    struct kvt_snap_layer layer;
    memcpy(&layer, s->data + sizeof s->header + (size_t)l * sizeof layer, sizeof layer);
    return layer;
}

static enum kvt_status check_plan(const struct kvt_snapshot *s, const struct kvt_plan *plan, struct kvt_error *err) {
    if (s->header.n_layers != (uint32_t)plan->n_layers)
        return kvt_fail(err, KVT_ERR_ARG, "%s was made with another plan: it has %u layers, this cache has %d", s->name,
                        (unsigned)s->header.n_layers, plan->n_layers);
    for (int l = 0; l < plan->n_layers; l++) {
        const struct kvt_snap_layer file = file_layer(s, l), mine = kvt_snap_describe(&plan->layers[l]);
        KVT_TRY(kvt_snap_compare(&file, &mine, l, s->name, err));
        const bool has_room = mine.queries != KVT_SNAP_QUERIES_NO;
        if (file.queries < has_room || file.queries > (has_room ? KVT_SNAP_QUERIES : KVT_SNAP_QUERIES_NO))
            return kvt_fail(err, KVT_ERR_FORMAT, "%s is damaged: layer %d has queries of kind %d", s->name, l,
                            (int)file.queries);
        if (!kvt_snap_wide_from_fits(&plan->layers[l], s->header.n_rows, file.wide_from))
            return kvt_fail(err, KVT_ERR_FORMAT, "%s has layer %d in 16 bits from row %lld on, which %lld rows cannot",
                            s->name, l, (long long)file.wide_from, (long long)s->header.n_rows);
    }
    return KVT_OK;
}

/* The page of a walk, at `at` in the file. */
static enum kvt_status check_page(const struct kvt_snapshot *s, const struct kvt_snap_walk *walk, size_t at,
                                  size_t bytes, struct kvt_error *err) {
    static const char *const regions[] = {"sink", "body", "tail"};
    struct kvt_snap_page head;
    if (bytes > s->bytes - at)
        return kvt_fail(err, KVT_ERR_FORMAT, "%s ends within the page of layer %d, %s, tile %lld", s->name, walk->layer,
                        regions[walk->region], (long long)walk->tile);
    memcpy(&head, s->data + at, sizeof head);
    const struct kvt_snap_page expected = {.layer = (uint32_t)walk->layer,
                                           .region = (uint32_t)walk->region,
                                           .tile = walk->tile,
                                           .bytes = bytes - sizeof head,
                                           .hash = head.hash};
    if (memcmp(&head, &expected, sizeof head) != 0)
        return kvt_fail(err, KVT_ERR_FORMAT, "%s is damaged: at byte %zu begins no page of layer %d, %s, tile %lld",
                        s->name, at, walk->layer, regions[walk->region], (long long)walk->tile);
    const uint64_t hash = kvt_hash(s->data + at + sizeof head, bytes - sizeof head);
    if (hash != head.hash)
        return kvt_fail(err, KVT_ERR_FORMAT,
                        "%s is damaged: the page of layer %d, %s, tile %lld has checksum %016llx, not %016llx", s->name,
                        walk->layer, regions[walk->region], (long long)walk->tile, (unsigned long long)hash,
                        (unsigned long long)head.hash);
    return KVT_OK;
}

static enum kvt_status check_pages(const struct kvt_snapshot *s, const struct kvt_plan *plan, struct kvt_error *err) {
    size_t at = s->pages_at;
    uint64_t n_pages = 0;
    for (struct kvt_snap_walk walk = {0}; kvt_snap_next(&walk, plan, s->header.n_rows); n_pages++) {
        const size_t bytes = plan->layers[walk.layer].page[walk.region].bytes;
        KVT_TRY(check_page(s, &walk, at, bytes, err));
        at += bytes;
    }
    if (at != s->bytes)
        return kvt_fail(err, KVT_ERR_FORMAT, "%s has %zu bytes past its last page", s->name, s->bytes - at);
    if (n_pages != s->header.n_pages)
        return kvt_fail(err, KVT_ERR_FORMAT, "%s says that it has %llu pages: its %lld rows have %llu", s->name,
                        (unsigned long long)s->header.n_pages, (long long)s->header.n_rows,
                        (unsigned long long)n_pages);
    return KVT_OK;
}

/* Rows in 16 bits will be encoded some day, and must be such as append takes. `rows` has room for a tile. */
static enum kvt_status check_numbers(const struct kvt_seq *seq, const struct kvt_snapshot *s, int l, float *rows,
                                     struct kvt_error *err) {
    struct kvt_pool *pool = seq->pool;
    const struct kvt_layer *layer = &pool->plan->layers[l];
    const struct kvt_page_shape *shape = &layer->page[KVT_REGION_TAIL];
    const struct kvt_page_list *tail = &seq->layers[l].list[KVT_REGION_TAIL];
    for (int64_t at = seq->layers[l].wide_from; at < seq->n_rows; at = (at / KVT_TILE_ROWS + 1) * KVT_TILE_ROWS) {
        const int first = (int)(at % KVT_TILE_ROWS), n = (int)KVT_MIN(KVT_TILE_ROWS - first, seq->n_rows - at);
        for (int i = 0; i < layer->plan.shape.n_kv_heads * KVT_SIDE_COUNT; i++) {
            const enum kvt_side side = i % KVT_SIDE_COUNT ? KVT_SIDE_V : KVT_SIDE_K;
            const int d = kvt_tile_row_size(&shape->tile[side]), head = i / KVT_SIDE_COUNT;
            const void *tile = kvt_page_tile(tail->pages[at / KVT_TILE_ROWS], shape, head, side);
            pool->ops->decode(pool, &shape->tile[side], rows, d, tile, first, n);
            for (int k = 0; k < n * d; k++)
                if (!(fabsf(rows[k]) <= layer->limit[side]))
                    return kvt_fail(err, KVT_ERR_FORMAT,
                                    "%s has %g in layer %d, %s, KV head %d, position %lld, channel %d", s->name,
                                    (double)rows[k], l, side == KVT_SIDE_K ? "K" : "V", head, (long long)at + k / d,
                                    k % d);
        }
    }
    return KVT_OK;
}

/* Pages that have been checked. */
static enum kvt_status fill(struct kvt_seq *seq, const struct kvt_snapshot *s, struct kvt_error *err) {
    struct kvt_pool *pool = seq->pool;
    size_t at = s->pages_at;
    for (struct kvt_snap_walk walk = {0}; kvt_snap_next(&walk, pool->plan, s->header.n_rows);) {
        const size_t bytes = pool->plan->layers[walk.layer].page[walk.region].bytes;
        KVT_TRY(kvt_seq_own_page(seq, walk.layer, (enum kvt_region)walk.region, walk.tile, 0, err));
        pool->ops->write(pool, seq->layers[walk.layer].list[walk.region].pages[walk.tile],
                         s->data + at + sizeof(struct kvt_snap_page), bytes);
        at += bytes;
    }
    for (int l = 0; l < pool->plan->n_layers; l++) {
        const struct kvt_snap_layer file = file_layer(s, l);
        seq->layers[l].wide_from = file.wide_from;
        if (file.queries) seq->queries = file.queries == KVT_SNAP_QUERIES ? KVT_QUERIES_GIVEN : KVT_QUERIES_NONE;
    }
    seq->n_rows = s->header.n_rows;
    const size_t n_floats = (size_t)KVT_TILE_ROWS * (size_t)pool->plan->max_row;
    float *rows = kvt_take(&pool->allocator, n_floats, sizeof *rows);
    if (!rows) return kvt_fail(err, KVT_ERR_NOMEM, "no memory to load %s", s->name);
    enum kvt_status status = KVT_OK;
    for (int l = 0; l < pool->plan->n_layers && status == KVT_OK; l++) status = check_numbers(seq, s, l, rows, err);
    if (atomic_load(&pool->lost)) status = kvt_pool_check(pool, err);
    kvt_give(&pool->allocator, rows, n_floats, sizeof *rows);
    return status;
}

enum kvt_status kvt_seq_load(struct kvt_seq **out, struct kvt_pool *pool, const struct kvt_snapshot *s,
                             int64_t max_rows, struct kvt_error *err) {
    struct kvt_seq *seq;
    KVT_TRY(check_plan(s, pool->plan, err));
    if (s->header.n_rows > max_rows)
        return kvt_fail(err, KVT_ERR_LIMIT, "%s has %lld rows: they do not fit in a sequence of %lld", s->name,
                        (long long)s->header.n_rows, (long long)max_rows);
    KVT_TRY(check_pages(s, pool->plan, err));
    KVT_TRY(kvt_seq_create(&seq, pool, max_rows, err));
    const enum kvt_status status = fill(seq, s, err);
    if (status != KVT_OK)
        kvt_seq_destroy(seq);
    else
        *out = seq;
    return status;
}
