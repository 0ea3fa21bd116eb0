/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps on a device. An append sends one table of jobs, of all sequences and KV heads of a layer, and launches over it: new rows
 * to 16-bit pages (or, where no query ever sees a 16-bit row, encoded at once), then the groups that are complete from there to the
 * body. Numbers are checked on the way; what was wrong is looked at when rows came in the process's memory, which the append waits for
 * anyway, and else when the step ends.
 */
#include <math.h>
#include <string.h>

#include "backend/cuda/pool.h"
#include "backend/cuda/queries.h"
#include "base/attr.h"
#include "base/check.h"
#include "base/half.h"

enum { FEW_JOBS = 2048, MAX_LAUNCHES = 8 };

/* Of bad numbers, by layer: of rows that went to 16 bits, of rows that were encoded at once, of queries. */
enum { BAD_WIDE = 0, BAD_BODY = KVT_SIDE_COUNT, BAD_QUERIES = 2 * KVT_SIDE_COUNT, BAD_COUNT };

static size_t n_bad(const struct kvt_step *step) { return (size_t)step->pool->plan->n_layers * BAD_COUNT; }

/* Floats of queries that one row keeps, over all layers. */
static size_t query_floats(const struct kvt_plan *plan) {
    size_t most = 0;
    for (int l = 0; l < plan->n_layers; l++) {
        const struct kvt_layer *layer = &plan->layers[l];
        if (!layer->queries.bytes) continue;
        most = KVT_MAX(most, (size_t)layer->plan.shape.n_kv_heads *
                                 (size_t)(layer->plan.shape.k_size / layer->queries_parts));
    }
    return most;
}

/* ---- open and close ---------------------------------------------------------------------------------------------------- */

static enum kvt_status open_step(struct kvt_step *step, struct kvt_cuda_step *own, struct kvt_error *err) {
    const struct kvt_plan *plan = step->pool->plan;
    const struct kvt_cuda *on = &kvt_cuda_pool_of(step->pool)->on;
    const size_t floats = query_floats(plan) * (size_t)step->max_rows;
    KVT_TRY(kvt_cuda_take(on, &own->device, own->bytes, err));
    KVT_TRY(kvt_cuda_take(on, (void **)&own->bad, n_bad(step) * sizeof *own->bad, err));
    if (!floats) return KVT_OK;
    KVT_TRY(kvt_cuda_take(on, &own->wide_queries, floats * sizeof(float), err));
    return kvt_cuda_take(on, (void **)&own->positions, (size_t)step->max_rows * sizeof *own->positions, err);
}

enum kvt_status kvt_cuda_step_open(struct kvt_step *step, struct kvt_error *err) {
    const struct kvt_allocator *a = &step->pool->allocator;
    KVT_TRY(kvt_pool_check(step->pool, err));
    struct kvt_cuda_step *own = kvt_take_zero(a, 1, sizeof *own);
    if (!own) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for a step on a device");
    step->device = own;
    /* All rows of a side are one launch. */
    const size_t runs = (size_t)step->max_rows / KVT_TILE_ROWS + 2 * (size_t)step->max_seqs;
    const size_t jobs = KVT_MAX(runs * (size_t)step->pool->plan->max_heads, FEW_JOBS);
    own->bytes = KVT_MAX(jobs * sizeof(struct kvt_cuda_job), (size_t)step->max_rows * sizeof(int64_t));
    own->host = kvt_take(a, own->bytes, 1);
    own->bad_host = kvt_take(a, n_bad(step), sizeof *own->bad_host);
    if (!own->host || !own->bad_host)
        return kvt_fail(err, KVT_ERR_NOMEM, "no memory for a step of %d rows on a device", step->max_rows);
    struct kvt_error why;
    return kvt_cuda_done(step->pool, open_step(step, own, &why), &why, err);
}

void kvt_cuda_step_close(struct kvt_step *step) {
    const struct kvt_allocator *a = &step->pool->allocator;
    const struct kvt_cuda *on = &kvt_cuda_pool_of(step->pool)->on;
    struct kvt_cuda_step *own = step->device;
    if (!own) return;
    for (int i = 0; i < KVT_CUDA_GIVEN; i++) kvt_cuda_give(on, own->rows[i]);
    kvt_cuda_give(on, own->device);
    kvt_cuda_give(on, own->bad);
    kvt_cuda_give(on, own->wide_queries);
    kvt_cuda_give(on, own->positions);
    kvt_cuda_attention_end(&own->attention, on, a);
    kvt_give(a, own->host, own->bytes, 1);
    kvt_give(a, own->bad_host, n_bad(step), sizeof *own->bad_host);
    kvt_give(a, own, 1, sizeof *own);
}

/* ---- begin: tables of pages -------------------------------------------------------------------------------------------- */

/* Sends the entries that were gathered, and has them written. */
static enum kvt_status send_entries(struct kvt_step *step, struct kvt_error *err) {
    struct kvt_cuda_step *own = step->device;
    const struct kvt_cuda *on = &kvt_cuda_pool_of(step->pool)->on;
    if (!own->filled) return KVT_OK;
    KVT_TRY(kvt_cuda_copy(on, own->device, own->host, own->filled, err));
    KVT_TRY(kvt_cuda_set_entries(on, own->device, (int)(own->filled / sizeof(struct kvt_cuda_entry)), err));
    own->filled = 0;
    return KVT_OK;
}

/* Brings one list's entries up to date. */
static enum kvt_status update_list(struct kvt_step *step, struct kvt_seq *seq, int layer, enum kvt_region region,
                                   struct kvt_error *err) {
    struct kvt_cuda_step *own = step->device;
    struct kvt_page_list *list = &seq->layers[layer].list[region];
    for (int64_t t = list->changed_first; t < list->changed_end; t++) {
        const struct kvt_cuda_entry entry = {kvt_cuda_list(seq, layer, region) + t,
                                             list->pages[t] ? list->pages[t]->tiles : NULL};
        if (own->filled + sizeof entry > own->bytes) KVT_TRY(send_entries(step, err));
        memcpy(own->host + own->filled, &entry, sizeof entry);
        own->filled += sizeof entry;
    }
    list->changed_first = list->changed_end = 0;
    return KVT_OK;
}

static enum kvt_status send_positions(struct kvt_step *step, struct kvt_error *err) {
    struct kvt_cuda_step *own = step->device;
    int64_t *positions = (int64_t *)(void *)own->host;
    for (int i = 0; i < step->n_seqs; i++)
        for (int r = 0; r < step->entries[i].n_rows; r++)
            positions[step->entries[i].first + r] = step->entries[i].n_before + r;
    return kvt_cuda_copy(&kvt_cuda_pool_of(step->pool)->on, own->positions, positions,
                         (size_t)step->n_rows * sizeof *positions, err);
}

static enum kvt_status begin(struct kvt_step *step, struct kvt_error *err) {
    struct kvt_cuda_step *own = step->device;
    own->filled = 0;
    for (int i = 0; i < step->n_seqs; i++)
        for (int l = 0; l < step->pool->plan->n_layers; l++)
            for (int region = 0; region < KVT_REGION_COUNT; region++)
                KVT_TRY(update_list(step, step->entries[i].seq, l, (enum kvt_region)region, err));
    KVT_TRY(send_entries(step, err));
    if (own->positions) KVT_TRY(send_positions(step, err));
    return kvt_cuda_fill(&kvt_cuda_pool_of(step->pool)->on, own->bad, 0xFF, n_bad(step) * sizeof *own->bad, err);
}

enum kvt_status kvt_cuda_step_begin(struct kvt_step *step, struct kvt_error *err) {
    struct kvt_error why;
    return kvt_cuda_done(step->pool, begin(step, &why), &why, err);
}

/* ---- bad numbers ------------------------------------------------------------------------------------------------------- */

/* Rows [at, at + n) of one entry and KV head, in one tile and region, as an append walks them. */
struct walk {
    const struct kvt_step *step;
    const struct kvt_layer *layer;
    bool body; /* the rows that go straight to the body, else the others */
    int i, head, n;
    int64_t at, next;
    enum kvt_region region;
};

static struct walk walk_from(const struct kvt_step *step, int layer, bool body) {
    return (struct walk){
        .step = step, .layer = &step->pool->plan->layers[layer], .body = body, .next = step->entries[0].n_before};
}

static bool walk_next(struct walk *w) {
    while (w->i < w->step->n_seqs) {
        const struct kvt_step_entry *entry = &w->step->entries[w->i];
        const int64_t end = entry->n_before + entry->n_rows;
        while (w->next < end) {
            w->at = w->next;
            w->n = (int)KVT_MIN(KVT_TILE_ROWS - w->at % KVT_TILE_ROWS, end - w->at);
            w->next += w->n;
            w->region = w->at < w->layer->plan.sink ? KVT_REGION_SINK
                        : w->layer->direct          ? KVT_REGION_BODY
                                                    : KVT_REGION_TAIL;
            if ((w->region == KVT_REGION_BODY) == w->body) return true;
        }
        if (++w->head == w->layer->plan.shape.n_kv_heads) {
            w->head = 0;
            w->i++;
        }
        if (w->i < w->step->n_seqs) w->next = w->step->entries[w->i].n_before;
    }
    return false;
}

/* A number of the rows that a layer was given, wherever they are. */
static enum kvt_status read_number(struct kvt_step *step, const struct kvt_rows *rows, int64_t row, int head,
                                   int channel, float *out, struct kvt_error *err) {
    const struct kvt_cuda *on = &kvt_cuda_pool_of(step->pool)->on;
    const size_t size = rows->type == KVT_TYPE_F32 ? 4 : 2;
    const ptrdiff_t at = (ptrdiff_t)row * rows->row_stride + head * rows->head_stride + channel;
    uint32_t bits = 0;
    KVT_TRY(kvt_cuda_copy(on, &bits, (const char *)rows->data + at * (ptrdiff_t)size, size, err));
    KVT_TRY(kvt_cuda_wait(on, err));
    if (rows->type == KVT_TYPE_F32)
        *out = kvt_f32_from_bits(bits);
    else
        *out = rows->type == KVT_TYPE_F16 ? kvt_f32_from_f16((uint16_t)bits) : kvt_f32_from_bf16((uint16_t)bits);
    return KVT_OK;
}

/* The sentence; `given` are the layer's rows, or NULL where they may be gone by now. */
static enum kvt_status say_bad(struct kvt_step *step, int layer, int head, struct kvt_bad_number *bad, int64_t row,
                               const struct kvt_rows *given, struct kvt_error *err) {
    const int which = bad->is_query ? KVT_CUDA_Q : bad->side == KVT_SIDE_K ? KVT_CUDA_K : KVT_CUDA_V;
    const int its_head = bad->is_query ? bad->head : head;
    if (given) {
        KVT_TRY(read_number(step, &given[which], row, its_head, bad->channel, &bad->value, err));
        return kvt_bad_number_fail(step, layer, head, bad, err);
    }
    return kvt_fail(
        err, KVT_ERR_RANGE,
        "layer %d, %s head %d, position %lld, channel %d was not finite, or above %g in magnitude, when it was "
        "appended",
        layer,
        bad->is_query             ? "query"
        : bad->side == KVT_SIDE_K ? "K, KV"
                                  : "V, KV",
        its_head, (long long)bad->position, bad->channel,
        bad->is_query ? 65504.0 : (double)step->pool->plan->layers[layer].limit[bad->side]);
}

/* What was found in a layer's rows, if anything was: job << 32 | row of the tile << 16 | channel. */
static enum kvt_status check_layer(struct kvt_step *step, int layer, const struct kvt_rows *given,
                                   struct kvt_error *err) {
    const struct kvt_cuda_step *own = step->device;
    for (int slot = 0; slot < BAD_COUNT; slot++) {
        const uint64_t found = own->bad_host[layer * BAD_COUNT + slot];
        if (found == UINT64_MAX) continue;
        struct kvt_bad_number bad = {.found = true, .channel = (int)(found & 0xFFFF)};
        if (slot == BAD_QUERIES) {
            const int row = (int)(found >> 32);
            int i = 0;
            while (i + 1 < step->n_seqs && step->entries[i + 1].first <= row) i++;
            bad.is_query = true;
            bad.head = (int)(found >> 16 & 0xFFFF);
            bad.position = step->entries[i].n_before + row - step->entries[i].first;
            return say_bad(step, layer, 0, &bad, row, given, err);
        }
        struct walk w = walk_from(step, layer, slot >= BAD_BODY);
        for (uint64_t job = 0; walk_next(&w) && job < found >> 32; job++) {
        }
        const struct kvt_step_entry *entry = &step->entries[KVT_MIN(w.i, step->n_seqs - 1)];
        bad.side = slot % KVT_SIDE_COUNT ? KVT_SIDE_V : KVT_SIDE_K;
        bad.position = w.at + ((int64_t)(found >> 16 & 0xFFFF) - w.at % KVT_TILE_ROWS);
        return say_bad(step, layer, w.head, &bad, entry->first + (bad.position - entry->n_before), given, err);
    }
    return KVT_OK;
}

/* Waits, and looks at the numbers of n layers; given: of one whose rows are still there. */
static enum kvt_status check_numbers(struct kvt_step *step, int layer, int n, const struct kvt_rows *given,
                                     struct kvt_error *err) {
    const struct kvt_cuda_step *own = step->device;
    const struct kvt_cuda *on = &kvt_cuda_pool_of(step->pool)->on;
    const size_t first = (size_t)layer * BAD_COUNT;
    KVT_TRY(kvt_cuda_copy(on, own->bad_host + first, own->bad + first, (size_t)n * BAD_COUNT * sizeof *own->bad, err));
    KVT_TRY(kvt_cuda_wait(on, err));
    for (int l = layer; l < layer + n; l++) KVT_TRY(check_layer(step, l, given, err));
    return KVT_OK;
}

enum kvt_status kvt_cuda_step_end(struct kvt_step *step, struct kvt_error *err) {
    struct kvt_error why;
    return kvt_cuda_done(step->pool, check_numbers(step, 0, step->pool->plan->n_layers, NULL, &why), &why, err);
}

/* ---- append ------------------------------------------------------------------------------------------------------------ */

/* Jobs that are gathered, and the launches over them. */
struct gather {
    struct kvt_step *step;
    struct kvt_cuda_step *own;
    const struct kvt_layer *layer;
    int layer_index;
    struct kvt_cuda_encode_args launch[MAX_LAUNCHES];
    int n;
};

static enum kvt_status send(struct gather *g, struct kvt_error *err) {
    const struct kvt_cuda *on = &kvt_cuda_pool_of(g->step->pool)->on;
    if (g->own->filled) KVT_TRY(kvt_cuda_copy(on, g->own->device, g->own->host, g->own->filled, err));
    for (int i = 0; i < g->n; i++) KVT_TRY(kvt_cuda_encode(&g->launch[i], on->stream, err));
    g->own->filled = 0;
    g->n = 0;
    return KVT_OK;
}

/* Begins a launch; there is room for n_jobs of it. */
static enum kvt_status begin_launch(struct gather *g, const struct kvt_cuda_encode_args *args, size_t n_jobs,
                                    struct kvt_error *err) {
    if (g->n == MAX_LAUNCHES || g->own->filled + n_jobs * sizeof(struct kvt_cuda_job) > g->own->bytes)
        KVT_TRY(send(g, err));
    struct kvt_cuda_encode_args *launch = &g->launch[g->n++];
    *launch = *args;
    launch->jobs = (const struct kvt_cuda_job *)(const void *)((char *)g->own->device + g->own->filled);
    launch->n_jobs = launch->most_rows = 0;
    return KVT_OK;
}

static enum kvt_status add_job(struct gather *g, const struct kvt_cuda_job *job, struct kvt_error *err) {
    if (g->own->filled + sizeof *job > g->own->bytes) {
        const struct kvt_cuda_encode_args again = g->launch[g->n - 1];
        KVT_TRY(send(g, err));
        KVT_TRY(begin_launch(g, &again, 1, err));
    }
    struct kvt_cuda_encode_args *launch = &g->launch[g->n - 1];
    memcpy(g->own->host + g->own->filled, job, sizeof *job);
    g->own->filled += sizeof *job;
    launch->n_jobs++;
    launch->most_rows = KVT_MAX(launch->most_rows, job->n);
    return KVT_OK;
}

static enum kvt_number number_of(enum kvt_type type) {
    return type == KVT_TYPE_F32 ? KVT_NUMBER_F32 : type == KVT_TYPE_F16 ? KVT_NUMBER_F16 : KVT_NUMBER_BF16;
}

static const char *element(const struct kvt_rows *rows, int64_t row, int head) {
    const ptrdiff_t size = rows->type == KVT_TYPE_F32 ? 4 : 2;
    return (const char *)rows->data + ((ptrdiff_t)row * rows->row_stride + head * rows->head_stride) * size;
}

/* New rows of one side: to 16-bit pages, or straight to the body. */
static enum kvt_status write_rows(struct gather *g, enum kvt_side side, bool body, const struct kvt_rows *rows,
                                  struct kvt_error *err) {
    const struct kvt_layer *layer = g->layer;
    const struct kvt_tile *wide = &layer->page[KVT_REGION_TAIL].tile[side];
    const struct kvt_cuda_encode_args args = {
        .codec = body ? layer->plan.codec[side] : layer->plan.wide[side],
        .side = side,
        .d = kvt_tile_row_size(wide),
        .source = {.number = number_of(rows->type), .stride = rows->row_stride, .round = wide->number},
        .bad = g->own->bad + g->layer_index * BAD_COUNT + (body ? BAD_BODY : BAD_WIDE) + side,
        .limit = layer->limit[side],
        .beside = true, /* what rows are written to, no other launch of an append reads before its flush */
    };
    struct walk w = walk_from(g->step, g->layer_index, body);
    const size_t runs = (size_t)g->step->n_rows / KVT_TILE_ROWS + 2 * (size_t)g->step->n_seqs;
    KVT_TRY(begin_launch(g, &args, runs * (size_t)layer->plan.shape.n_kv_heads, err));
    while (walk_next(&w)) {
        const struct kvt_step_entry *entry = &g->step->entries[w.i];
        const struct kvt_page *page = entry->seq->layers[g->layer_index].list[w.region].pages[w.at / KVT_TILE_ROWS];
        const struct kvt_cuda_job job = {
            .tile = kvt_page_tile(page, &layer->page[w.region], w.head, side),
            .rows = element(rows, entry->first + (w.at - entry->n_before), w.head),
            .first = (int)(w.at % KVT_TILE_ROWS),
            .n = w.n,
        };
        KVT_TRY(add_job(g, &job, err));
    }
    return KVT_OK;
}

/* The queries of new rows past the sink, beside them. */
static enum kvt_status write_queries(struct gather *g, const struct kvt_rows *q, int n_q_heads, struct kvt_error *err) {
    const struct kvt_layer *layer = g->layer;
    const struct kvt_page_shape *shape = &layer->page[KVT_REGION_TAIL];
    const int n_heads = layer->plan.shape.n_kv_heads, n = layer->plan.shape.k_size / layer->queries_parts;
    const struct kvt_cuda_queries args = {
        .data = q->data,
        .number = number_of(q->type),
        .row_stride = q->row_stride,
        .head_stride = q->head_stride,
        .positions = g->own->positions,
        .from = layer->plan.sink,
        .n_rows = g->step->n_rows,
        .n_heads = n_heads,
        .group = n_q_heads / n_heads,
        .d = layer->plan.shape.k_size,
        .parts = layer->queries_parts,
        .out = g->own->wide_queries,
        .bad = g->own->bad + g->layer_index * BAD_COUNT + BAD_QUERIES,
    };
    KVT_TRY(kvt_cuda_keep_queries(&args, kvt_cuda_pool_of(g->step->pool)->on.stream, err));
    const struct kvt_cuda_encode_args encode = {
        .codec = layer->queries_codec,
        .side = KVT_SIDE_K,
        .d = n,
        .source = {.number = KVT_NUMBER_F32, .stride = (ptrdiff_t)n_heads * n, .round = KVT_NUMBER_F32},
    };
    KVT_TRY(begin_launch(g, &encode, 1, err));
    for (struct walk w = walk_from(g->step, g->layer_index, false); walk_next(&w);) {
        if (w.region == KVT_REGION_SINK) continue;
        const struct kvt_step_entry *entry = &g->step->entries[w.i];
        const ptrdiff_t row = entry->first + (ptrdiff_t)(w.at - entry->n_before);
        const struct kvt_page *page =
            entry->seq->layers[g->layer_index].list[KVT_REGION_TAIL].pages[w.at / KVT_TILE_ROWS];
        const struct kvt_cuda_job job = {
            .tile = (char *)page->tiles + kvt_queries_offset(shape, w.head),
            .rows = (const float *)g->own->wide_queries + (row * n_heads + w.head) * n,
            .first = (int)(w.at % KVT_TILE_ROWS),
            .n = w.n,
        };
        KVT_TRY(add_job(g, &job, err));
    }
    return KVT_OK;
}

/* Groups that this step completes, from their 16-bit rows. */
static enum kvt_status encode_body(struct gather *g, enum kvt_side side, bool by_queries, struct kvt_error *err) {
    const struct kvt_layer *layer = g->layer;
    const struct kvt_page_shape *wide = &layer->page[KVT_REGION_TAIL], *body = &layer->page[KVT_REGION_BODY];
    const struct kvt_cuda_encode_args args = {
        .codec = layer->plan.codec[side],
        .side = side,
        .d = kvt_tile_row_size(&wide->tile[side]),
        .source = {.is_tile = true, .number = wide->tile[side].number},
        .beside = side == KVT_SIDE_V, /* of the flush of K */
    };
    KVT_TRY(begin_launch(g, &args, 1, err));
    for (int i = 0; i < g->step->n_seqs; i++) {
        const struct kvt_step_entry *entry = &g->step->entries[i];
        const struct kvt_page_list *lists = entry->seq->layers[g->layer_index].list;
        const int64_t end = kvt_entry_body_end(layer, entry);
        for (int64_t at = kvt_layer_encode_from(layer, entry->n_before), n; at < end; at += n) {
            n = KVT_MIN(KVT_TILE_ROWS - at % KVT_TILE_ROWS, end - at);
            const struct kvt_page *from = lists[KVT_REGION_TAIL].pages[at / KVT_TILE_ROWS];
            const struct kvt_page *to = lists[KVT_REGION_BODY].pages[at / KVT_TILE_ROWS];
            for (int head = 0; head < layer->plan.shape.n_kv_heads; head++) {
                const struct kvt_cuda_job job = {
                    .tile = kvt_page_tile(to, body, head, side),
                    .rows = kvt_page_tile(from, wide, head, side),
                    .queries = by_queries ? (const char *)from->tiles + kvt_queries_offset(wide, head) : NULL,
                    .first = (int)(at % KVT_TILE_ROWS),
                    .n = (int)n,
                };
                KVT_TRY(add_job(g, &job, err));
            }
        }
    }
    return KVT_OK;
}

/* Rows as the device can read them: as they are, or a packed copy of those in the process's memory. */
static enum kvt_status place_rows(struct kvt_step *step, enum kvt_cuda_given which, const struct kvt_rows *rows,
                                  int n_heads, int d, struct kvt_rows *out, bool *copied, struct kvt_error *err) {
    struct kvt_cuda_step *own = step->device;
    const struct kvt_cuda *on = &kvt_cuda_pool_of(step->pool)->on;
    const size_t size = rows->type == KVT_TYPE_F32 ? 4 : 2, row_bytes = (size_t)d * size;
    const size_t need = (size_t)step->max_rows * (size_t)n_heads * row_bytes;
    int is_device;
    *out = *rows;
    KVT_TRY(kvt_cuda_is_device(on, rows->data, &is_device, err));
    if (is_device) return KVT_OK;
    if (own->rows_bytes[which] < need) {
        kvt_cuda_give(on, own->rows[which]);
        own->rows[which] = NULL;
        own->rows_bytes[which] = 0;
        KVT_TRY(kvt_cuda_take(on, &own->rows[which], need, err));
        own->rows_bytes[which] = need;
    }
    *out = (struct kvt_rows){own->rows[which], rows->type, (ptrdiff_t)n_heads * d, d};
    *copied = true;
    if (rows->head_stride == d)
        return kvt_cuda_pack(on, own->rows[which], rows->data, (size_t)n_heads * row_bytes,
                             rows->row_stride * (ptrdiff_t)size, (size_t)step->n_rows, err);
    out->row_stride = d; /* head by head */
    out->head_stride = (ptrdiff_t)step->n_rows * d;
    for (int h = 0; h < n_heads; h++)
        KVT_TRY(kvt_cuda_pack(on, (char *)own->rows[which] + (size_t)h * (size_t)step->n_rows * row_bytes,
                              element(rows, 0, h), row_bytes, rows->row_stride * (ptrdiff_t)size, (size_t)step->n_rows,
                              err));
    return KVT_OK;
}

static enum kvt_status append(struct kvt_step *step, int index, const struct kvt_append *given, struct kvt_error *err) {
    struct kvt_cuda_step *own = step->device;
    const struct kvt_layer *layer = &step->pool->plan->layers[index];
    const struct kvt_layer_shape *shape = &layer->plan.shape;
    const bool by_queries = layer->queries.bytes && given->queries;
    struct kvt_rows rows[KVT_CUDA_GIVEN];
    struct gather g = {.step = step, .own = own, .layer = layer, .layer_index = index};
    bool copied = false;
    own->filled = 0;
    for (int side = 0; side < KVT_SIDE_COUNT; side++)
        KVT_TRY(place_rows(step, side == KVT_SIDE_K ? KVT_CUDA_K : KVT_CUDA_V, given->rows[side], shape->n_kv_heads,
                           side == KVT_SIDE_K ? shape->k_size : shape->v_size, &rows[side], &copied, err));
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        KVT_TRY(write_rows(&g, (enum kvt_side)side, false, &rows[side], err));
        if (layer->direct) KVT_TRY(write_rows(&g, (enum kvt_side)side, true, &rows[side], err));
    }
    if (by_queries) {
        KVT_TRY(place_rows(step, KVT_CUDA_Q, given->queries, given->n_q_heads, shape->k_size, &rows[KVT_CUDA_Q],
                           &copied, err));
        KVT_TRY(write_queries(&g, &rows[KVT_CUDA_Q], given->n_q_heads, err));
    }
    for (int side = 0; side < KVT_SIDE_COUNT && !layer->direct; side++)
        KVT_TRY(encode_body(&g, (enum kvt_side)side, by_queries && side == KVT_SIDE_K, err));
    KVT_TRY(send(&g, err));
    return copied ? check_numbers(step, index, 1, rows, err) : KVT_OK;
}

enum kvt_status kvt_cuda_step_append(struct kvt_step *step, int layer, const struct kvt_append *given,
                                     struct kvt_error *err) {
    int before;
    struct kvt_error why;
    enum kvt_status status = kvt_cuda_enter(&kvt_cuda_pool_of(step->pool)->on, &before, &why);
    if (status == KVT_OK) {
        status = append(step, layer, given, &why);
        kvt_cuda_leave(before);
    }
    return kvt_cuda_done(step->pool, status, &why, err);
}
