/* SPDX-License-Identifier: Apache-2.0
 *
 * A sequence: its lists of pages, forks, and reading rows back.
 */
#include <string.h>

#include "base/check.h"
#include "cache/cache.h"

/* A layer's pages in the table: the sink's, then those of body and tail for all tiles. */
static int64_t layer_len(const struct kvt_layer *layer, int64_t n_tiles) {
    return layer->plan.sink / KVT_TILE_ROWS + 2 * n_tiles;
}

size_t kvt_seq_table_len(const struct kvt_plan *plan, int64_t n_tiles) {
    int64_t n = 0;
    for (int l = 0; l < plan->n_layers; l++) n += layer_len(&plan->layers[l], n_tiles);
    return (size_t)n;
}

enum kvt_status kvt_seq_create(struct kvt_seq **out, struct kvt_pool *pool, int64_t max_rows, struct kvt_error *err) {
    if (max_rows < 1 || max_rows > KVT_SEQ_MAX_ROWS)
        return kvt_fail(err, KVT_ERR_ARG, "a sequence holds 1 to %lld rows, not %lld", (long long)KVT_SEQ_MAX_ROWS,
                        (long long)max_rows);
    const struct kvt_allocator *a = &pool->allocator;
    const int n_layers = pool->plan->n_layers;
    const int64_t n_tiles = kvt_div_up(max_rows, KVT_TILE_ROWS);
    struct kvt_seq *seq = kvt_take_zero(a, 1, sizeof *seq);
    struct kvt_seq_layer *layers = kvt_take_zero(a, (size_t)n_layers, sizeof *layers);
    struct kvt_page **table = kvt_take_zero(a, kvt_seq_table_len(pool->plan, n_tiles), sizeof *table);
    if (!seq || !layers || !table) {
        kvt_give(a, seq, 1, sizeof *seq);
        kvt_give(a, layers, (size_t)n_layers, sizeof *layers);
        kvt_give(a, table, kvt_seq_table_len(pool->plan, n_tiles), sizeof *table);
        return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the page table of %lld rows", (long long)max_rows);
    }
    *seq = (struct kvt_seq){.pool = pool, .max_rows = max_rows, .n_tiles = n_tiles, .layers = layers, .table = table};
    struct kvt_page **at = table;
    for (int l = 0; l < n_layers; l++) {
        const struct kvt_layer *layer = &pool->plan->layers[l];
        layers[l].list[KVT_REGION_BODY].pages = at;
        layers[l].list[KVT_REGION_TAIL].pages = at + n_tiles;
        layers[l].list[KVT_REGION_SINK].pages = at + 2 * n_tiles;
        layers[l].wide_from = layer->plan.sink;
        at += layer_len(layer, n_tiles);
    }
    atomic_fetch_add(&pool->n_users, 1);
    const enum kvt_status status = pool->ops->seq_open ? pool->ops->seq_open(seq, err) : KVT_OK;
    if (status != KVT_OK) {
        kvt_seq_destroy(seq);
        return status;
    }
    *out = seq;
    return KVT_OK;
}

void kvt_seq_destroy(struct kvt_seq *seq) {
    if (!seq) return;
    struct kvt_pool *pool = seq->pool;
    kvt_seq_clear(seq);
    if (pool->ops->seq_close) pool->ops->seq_close(seq);
    kvt_give(&pool->allocator, seq->table, kvt_seq_table_len(pool->plan, seq->n_tiles), sizeof(struct kvt_page *));
    kvt_give(&pool->allocator, seq->layers, (size_t)pool->plan->n_layers, sizeof *seq->layers);
    kvt_give(&pool->allocator, seq, 1, sizeof *seq);
    atomic_fetch_sub(&pool->n_users, 1);
}

int64_t kvt_seq_n_rows(const struct kvt_seq *seq) { return seq->n_rows; }

struct kvt_usage kvt_seq_usage(const struct kvt_seq *seq, int layer) {
    return kvt_plan_usage(seq->pool->plan, layer, seq->n_rows);
}

/* ---- pages ------------------------------------------------------------------------------------------------------------- */

static void mark_changed(struct kvt_page_list *list, int64_t first, int64_t end) {
    const bool is_first = list->changed_first == list->changed_end;
    list->changed_first = is_first ? first : KVT_MIN(list->changed_first, first);
    list->changed_end = is_first ? end : KVT_MAX(list->changed_end, end);
}

enum kvt_status kvt_seq_own_page(struct kvt_seq *seq, int layer, enum kvt_region region, int64_t t, int n_friends,
                                 struct kvt_error *err) {
    struct kvt_pool *pool = seq->pool;
    struct kvt_page_list *list = &seq->layers[layer].list[region];
    struct kvt_kept_page *kept = &seq->layers[layer].kept[region];
    const size_t bytes = pool->plan->layers[layer].page[region].bytes;
    struct kvt_page *old = list->pages[t];
    if (old && atomic_load(&old->n_owners) <= 1 + n_friends) return KVT_OK;
    KVT_TRY(kvt_page_take(pool, bytes, &list->pages[t], err));
    if (old) {
        KVT_ASSERT(!kept->page);
        pool->ops->copy(pool, list->pages[t], old, bytes);
        *kept = (struct kvt_kept_page){old, t};
    }
    mark_changed(list, t, t + 1);
    const bool is_first = list->first == list->end;
    list->first = is_first ? t : KVT_MIN(list->first, t);
    list->end = is_first ? t + 1 : KVT_MAX(list->end, t + 1);
    return KVT_OK;
}

static void drop_kept(struct kvt_seq *seq, bool put_back) {
    const struct kvt_plan *plan = seq->pool->plan;
    for (int l = 0; l < plan->n_layers; l++)
        for (int region = 0; region < KVT_REGION_COUNT; region++) {
            struct kvt_kept_page *kept = &seq->layers[l].kept[region];
            if (!kept->page) continue;
            struct kvt_page **slot = &seq->layers[l].list[region].pages[kept->tile], *left = kept->page;
            if (put_back) {
                left = *slot;
                *slot = kept->page;
                mark_changed(&seq->layers[l].list[region], kept->tile, kept->tile + 1);
            }
            kvt_page_leave(seq->pool, left, plan->layers[l].page[region].bytes);
            kept->page = NULL;
        }
}

void kvt_seq_settle(struct kvt_seq *seq) { drop_kept(seq, false); }

void kvt_seq_undo(struct kvt_seq *seq) {
    drop_kept(seq, true);
    kvt_seq_fit(seq, seq->n_rows);
}

/* Leaves the pages of a list that are outside [first, end). */
static void fit_list(struct kvt_pool *pool, struct kvt_page_list *list, size_t bytes, int64_t first, int64_t end) {
    for (int64_t t = list->first; t < list->end; t++) {
        if (t >= first && t < end) continue;
        kvt_page_leave(pool, list->pages[t], bytes);
        list->pages[t] = NULL;
        mark_changed(list, t, t + 1);
    }
    list->first = KVT_MAX(list->first, first);
    list->end = KVT_MAX(KVT_MIN(list->end, end), list->first);
}

void kvt_seq_fit(struct kvt_seq *seq, int64_t n_rows) {
    struct kvt_pool *pool = seq->pool;
    for (int l = 0; l < pool->plan->n_layers; l++) {
        const struct kvt_layer *layer = &pool->plan->layers[l];
        const struct kvt_page_sets sets = kvt_layer_pages(layer, n_rows);
        struct kvt_seq_layer *mine = &seq->layers[l];
        for (int region = 0; region < KVT_REGION_COUNT; region++)
            fit_list(pool, &mine->list[region], layer->page[region].bytes, sets.first[region], sets.end[region]);
        const int64_t sink = layer->plan.sink, first = sets.first[KVT_REGION_TAIL];
        const int64_t oldest = first < sets.end[KVT_REGION_TAIL] ? first * KVT_TILE_ROWS : n_rows;
        mine->wide_from = KVT_MAX(KVT_MAX(mine->wide_from, oldest), sink);
        mine->wide_from = KVT_MIN(mine->wide_from, KVT_MAX(n_rows, sink));
    }
}

void kvt_seq_clear(struct kvt_seq *seq) {
    KVT_ASSERT(!seq->step);
    kvt_enter(&seq->busy);
    seq->n_rows = 0;
    kvt_seq_fit(seq, 0);
    kvt_exit(&seq->busy);
}

/* ---- forks ------------------------------------------------------------------------------------------------------------- */

/* Gives `to`, whose lists are empty, the pages and rows of `from`. */
static void adopt(struct kvt_seq *to, const struct kvt_seq *from) {
    for (int l = 0; l < from->pool->plan->n_layers; l++) {
        for (int region = 0; region < KVT_REGION_COUNT; region++) {
            const struct kvt_page_list *theirs = &from->layers[l].list[region];
            struct kvt_page_list *mine = &to->layers[l].list[region];
            for (int64_t t = theirs->first; t < theirs->end; t++) {
                mine->pages[t] = theirs->pages[t];
                if (mine->pages[t]) atomic_fetch_add(&mine->pages[t]->n_owners, 1);
            }
            mine->first = theirs->first;
            mine->end = theirs->end;
            if (mine->first < mine->end) mark_changed(mine, mine->first, mine->end);
        }
        to->layers[l].wide_from = from->layers[l].wide_from;
    }
    to->n_rows = from->n_rows;
    to->queries = from->queries;
}

enum kvt_status kvt_seq_fork(struct kvt_seq **out, const struct kvt_seq *seq, struct kvt_error *err) {
    if (seq->step) return kvt_fail(err, KVT_ERR_STATE, "cannot fork a sequence that is in a step");
    KVT_TRY(kvt_pool_check(seq->pool, err));
    struct kvt_seq *fork;
    KVT_TRY(kvt_seq_create(&fork, seq->pool, seq->max_rows, err));
    kvt_enter(kvt_seq_busy(seq));
    adopt(fork, seq);
    kvt_exit(kvt_seq_busy(seq));
    *out = fork;
    return KVT_OK;
}

static enum kvt_status check_permute(struct kvt_seq *const *seqs, const int *parents, int n, struct kvt_error *err) {
    for (int i = 0; i < n; i++) {
        if (parents[i] < 0 || parents[i] >= n)
            return kvt_fail(err, KVT_ERR_ARG, "sequence %d of %d has no parent %d", i, n, parents[i]);
        if (seqs[i]->pool != seqs[0]->pool)
            return kvt_fail(err, KVT_ERR_ARG, "sequences %d and 0 belong to different pools", i);
        if (seqs[i]->step) return kvt_fail(err, KVT_ERR_STATE, "sequence %d is in a step", i);
        if (seqs[parents[i]]->n_rows > seqs[i]->max_rows)
            return kvt_fail(err, KVT_ERR_LIMIT, "sequence %d holds %lld rows, its parent %d has %lld", i,
                            (long long)seqs[i]->max_rows, parents[i], (long long)seqs[parents[i]]->n_rows);
        for (int j = 0; j < i; j++)
            if (seqs[j] == seqs[i]) return kvt_fail(err, KVT_ERR_ARG, "sequences %d and %d are the same", j, i);
    }
    return KVT_OK;
}

enum kvt_status kvt_seq_permute(struct kvt_seq *const *seqs, const int *parents, int n, struct kvt_error *err) {
    if (n < 1) return kvt_fail(err, KVT_ERR_ARG, "%d sequences to reorder: at least 1", n);
    KVT_TRY(check_permute(seqs, parents, n, err));
    const struct kvt_allocator *a = &seqs[0]->pool->allocator;
    struct kvt_seq **old = kvt_take_zero(a, (size_t)n, sizeof(struct kvt_seq *));
    if (!old) return kvt_fail(err, KVT_ERR_NOMEM, "no memory to reorder %d sequences", n);
    enum kvt_status status = KVT_OK;
    for (int i = 0; i < n && status == KVT_OK; i++)
        if (parents[i] != i) status = kvt_seq_fork(&old[i], seqs[parents[i]], err);
    for (int i = 0; i < n && status == KVT_OK; i++)
        if (old[i]) {
            kvt_seq_clear(seqs[i]);
            adopt(seqs[i], old[i]);
        }
    for (int i = 0; i < n; i++) kvt_seq_destroy(old[i]);
    kvt_give(a, old, (size_t)n, sizeof(struct kvt_seq *));
    return status;
}

/* ---- reading ----------------------------------------------------------------------------------------------------------- */

/* The region of a row that is there. */
static enum kvt_region region_of(const struct kvt_layer *layer, int64_t n_rows, int64_t row) {
    if (row < layer->plan.sink) return KVT_REGION_SINK;
    return row < kvt_layer_body_end(layer, n_rows) ? KVT_REGION_BODY : KVT_REGION_TAIL;
}

int kvt_seq_run(const struct kvt_seq *seq, int layer, int64_t first, int64_t n) {
    const struct kvt_layer *l = &seq->pool->plan->layers[layer];
    int64_t stop = KVT_MIN(first + n, (first / KVT_TILE_ROWS + 1) * KVT_TILE_ROWS);
    if (region_of(l, seq->n_rows, first) == KVT_REGION_BODY) stop = KVT_MIN(stop, kvt_layer_body_end(l, seq->n_rows));
    return (int)(stop - first);
}

void kvt_seq_read_run(const struct kvt_seq *seq, int layer, enum kvt_side side, int head, int64_t first, int n,
                      float *rows, ptrdiff_t stride) {
    struct kvt_pool *pool = seq->pool;
    const struct kvt_layer *l = &pool->plan->layers[layer];
    const enum kvt_region region = region_of(l, seq->n_rows, first);
    const struct kvt_page *page = seq->layers[layer].list[region].pages[first / KVT_TILE_ROWS];
    KVT_ASSERT(page != NULL);
    pool->ops->decode(pool, &l->page[region].tile[side], rows, stride,
                      kvt_page_tile(page, &l->page[region], head, side), (int)(first % KVT_TILE_ROWS), n);
}

enum kvt_status kvt_seq_read(const struct kvt_seq *seq, int layer, enum kvt_side side, int head, int64_t first,
                             int64_t n, float *rows, ptrdiff_t stride, struct kvt_error *err) {
    const struct kvt_plan *plan = seq->pool->plan;
    if (layer < 0 || layer >= plan->n_layers || head < 0 || head >= plan->layers[layer].plan.shape.n_kv_heads)
        return kvt_fail(err, KVT_ERR_ARG, "there is no layer %d with a KV head %d", layer, head);
    if (side != KVT_SIDE_K && side != KVT_SIDE_V) return kvt_fail(err, KVT_ERR_ARG, "there is no side %d", (int)side);
    if (first < 0 || n < 0 || first > seq->n_rows || n > seq->n_rows - first)
        return kvt_fail(err, KVT_ERR_RANGE, "%lld rows from row %lld are not in a sequence of %lld", (long long)n,
                        (long long)first, (long long)seq->n_rows);
    const int64_t oldest = kvt_layer_first_row(&plan->layers[layer], seq->n_rows), sink = plan->layers[layer].plan.sink;
    if (oldest > sink && first < oldest && first + n > sink)
        return kvt_fail(err, KVT_ERR_RANGE, "rows before %lld have been dropped from layer %d", (long long)oldest,
                        layer);
    kvt_enter(kvt_seq_busy(seq));
    while (n > 0) {
        const int len = kvt_seq_run(seq, layer, first, n);
        kvt_seq_read_run(seq, layer, side, head, first, len, rows, stride);
        first += len;
        n -= len;
        rows += len * stride;
    }
    kvt_exit(kvt_seq_busy(seq));
    return kvt_pool_check(seq->pool, err);
}
