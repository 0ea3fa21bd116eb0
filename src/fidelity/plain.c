/* SPDX-License-Identifier: Apache-2.0
 * The control: attention in plain 32-bit arithmetic over the rows that a codec gives back, so that what the codec costs and what the
 * cache's own arithmetic costs can be told apart. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/parallel.h"
#include "fidelity/inside.h"

enum { QUERIES_PER_JOB = 16 };

/* The rows of one KV head of one layer. Keys lie by channel, so that scores of neighbouring rows are computed side by side. */
struct kept {
    float *wide[KVT_SIDE_COUNT], *coded[KVT_SIDE_COUNT]; /* K: [k_size][n_ctx], V: [n_ctx][v_size] */
};

struct kvt_plain {
    struct kvt_allocator allocator;
    struct kvt_parallel parallel;
    const struct kvt_plan *plan; /* the caller's */
    int n_ctx;
    struct kvt_part part;
    int max_heads;
    struct kept *kept; /* [layer][max_heads] */
    float *rows;       /* by KV head: a tile of rows */
    char *tiles;       /* by KV head: a coded tile */
    float *weights;    /* by thread: n_ctx */
    size_t row_floats, tile_bytes;
    struct kvt_error *errors; /* by KV head */
    struct kvt_arena arena;
};

static int row_size(const struct kvt_layer_plan *layer, enum kvt_side side) {
    return side == KVT_SIDE_K ? layer->shape.k_size : layer->shape.v_size;
}

/* ---- memory ----------------------------------------------------------------------------------------------------------- */

static size_t kept_floats(const struct kvt_plain *p, const struct kvt_layer_plan *layer, enum kvt_side side) {
    return (size_t)p->n_ctx * (size_t)row_size(layer, side);
}

static void find_sizes(struct kvt_plain *p) {
    for (int l = 0; l < kvt_plan_n_layers(p->plan); l++) {
        const struct kvt_layer_plan *layer = kvt_plan_layer(p->plan, l);
        p->max_heads = KVT_MAX(p->max_heads, layer->shape.n_kv_heads);
        for (int i = 0; i < KVT_SIDE_COUNT; i++) {
            const enum kvt_side side = (enum kvt_side)i;
            const int d = row_size(layer, side);
            p->row_floats = KVT_MAX(p->row_floats, (size_t)KVT_TILE_ROWS * (size_t)d);
            p->tile_bytes = KVT_MAX(p->tile_bytes, kvt_codec_tile_bytes(layer->codec[side], side, d));
            p->tile_bytes = KVT_MAX(p->tile_bytes, kvt_codec_tile_bytes(layer->wide[side], side, d));
        }
    }
}

static size_t bytes_needed(const struct kvt_plain *p) {
    const size_t heads = (size_t)p->max_heads, n_kept = heads * (size_t)kvt_plan_n_layers(p->plan);
    size_t bytes = kvt_arena_need(n_kept, sizeof *p->kept) + kvt_arena_need(heads * p->row_floats, sizeof(float)) +
                   kvt_arena_need(heads * p->tile_bytes, 1) + kvt_arena_need(heads, sizeof *p->errors) +
                   kvt_arena_need((size_t)p->parallel.n_threads * (size_t)p->n_ctx, sizeof(float));
    for (int l = 0; l < kvt_plan_n_layers(p->plan); l++) {
        const struct kvt_layer_plan *layer = kvt_plan_layer(p->plan, l);
        for (int side = 0; side < KVT_SIDE_COUNT; side++)
            bytes += 2 * (size_t)layer->shape.n_kv_heads *
                     kvt_arena_need(kept_floats(p, layer, (enum kvt_side)side), sizeof(float));
    }
    return bytes;
}

static bool take_memory(struct kvt_plain *p) {
    const size_t heads = (size_t)p->max_heads, n_kept = heads * (size_t)kvt_plan_n_layers(p->plan);
    if (!kvt_arena_init(&p->arena, &p->allocator, bytes_needed(p))) return false;
    p->kept = kvt_arena_take(&p->arena, n_kept, sizeof *p->kept);
    p->rows = kvt_arena_take(&p->arena, heads * p->row_floats, sizeof(float));
    p->tiles = kvt_arena_take(&p->arena, heads * p->tile_bytes, 1);
    p->errors = kvt_arena_take(&p->arena, heads, sizeof *p->errors);
    p->weights = kvt_arena_take(&p->arena, (size_t)p->parallel.n_threads * (size_t)p->n_ctx, sizeof(float));
    for (int l = 0; l < kvt_plan_n_layers(p->plan); l++) {
        const struct kvt_layer_plan *layer = kvt_plan_layer(p->plan, l);
        for (int h = 0; h < layer->shape.n_kv_heads; h++)
            for (int side = 0; side < KVT_SIDE_COUNT; side++) {
                struct kept *kept = &p->kept[l * p->max_heads + h];
                const size_t n = kept_floats(p, layer, (enum kvt_side)side);
                kept->wide[side] = kvt_arena_take(&p->arena, n, sizeof(float));
                kept->coded[side] = kvt_arena_take(&p->arena, n, sizeof(float));
            }
    }
    return true;
}

enum kvt_status kvt_plain_create(struct kvt_plain **out, const struct kvt_plan *plan, int n_ctx,
                                 const struct kvt_part *part, const struct kvt_parallel *parallel,
                                 const struct kvt_allocator *allocator, struct kvt_error *err) {
    const struct kvt_allocator a = kvt_allocator_or_default(allocator);
    struct kvt_plain *p = kvt_take_zero(&a, 1, sizeof *p);
    if (!p) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the control");
    p->allocator = a;
    p->parallel = parallel ? *parallel : (struct kvt_parallel){1, NULL, NULL};
    p->plan = plan;
    p->n_ctx = n_ctx;
    p->part = *part;
    find_sizes(p);
    if (!take_memory(p)) {
        kvt_plain_destroy(p);
        return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory to keep %d decoded rows for the control", n_ctx);
    }
    *out = p;
    return KVT_OK;
}

void kvt_plain_destroy(struct kvt_plain *p) {
    if (!p) return;
    const struct kvt_allocator a = p->allocator;
    kvt_arena_finish(&p->arena);
    kvt_give(&a, p, 1, sizeof *p);
}

/* ---- new rows --------------------------------------------------------------------------------------------------------- */

struct append {
    struct kvt_plain *p;
    const struct kvt_layer_rows *rows;
    const struct kvt_layer_plan *layer;
};

/* n rows of one side to where they are kept, from row `at` on. */
static void keep(const struct kvt_plain *p, float *to, const float *rows, enum kvt_side side, int d, int64_t at,
                 int n) {
    if (side == KVT_SIDE_V) {
        memcpy(to + at * d, rows, (size_t)n * (size_t)d * sizeof *rows);
        return;
    }
    for (int r = 0; r < n; r++)
        for (int c = 0; c < d; c++) to[(ptrdiff_t)c * p->n_ctx + at + r] = rows[r * d + c];
}

static void fetch(const struct kvt_plain *p, float *rows, const float *from, enum kvt_side side, int d, int64_t at,
                  int n) {
    if (side == KVT_SIDE_V) {
        memcpy(rows, from + at * d, (size_t)n * (size_t)d * sizeof *rows);
        return;
    }
    for (int r = 0; r < n; r++)
        for (int c = 0; c < d; c++) rows[r * d + c] = from[(ptrdiff_t)c * p->n_ctx + at + r];
}

/* rows become what a codec gives back of them; `first` is their place in the tile. */
static enum kvt_status there_and_back(char *tile, const struct kvt_codec *codec, enum kvt_side side, int d, float *rows,
                                      int first, int n, struct kvt_error *err) {
    memset(tile, 0, kvt_codec_tile_bytes(codec, side, d));
    KVT_TRY(kvt_codec_encode(codec, side, d, tile, first, n, rows, d, err));
    return kvt_codec_decode(codec, side, d, rows, d, tile, first, n, err);
}

static enum kvt_status append_wide(const struct append *a, int head, enum kvt_side side, struct kvt_error *err) {
    struct kvt_plain *p = a->p;
    const struct kvt_rows *from = side == KVT_SIDE_K ? &a->rows->k : &a->rows->v;
    struct kept *kept = &p->kept[a->rows->layer * p->max_heads + head];
    const int d = row_size(a->layer, side);
    float *rows = p->rows + (size_t)head * p->row_floats;
    for (int done = 0, n; done < a->rows->n; done += n) {
        const int64_t at = a->rows->position + done;
        n = KVT_MIN(KVT_TILE_ROWS - (int)(at % KVT_TILE_ROWS), a->rows->n - done);
        for (int i = 0; i < n; i++)
            memcpy(rows + i * d, (const float *)from->data + (done + i) * from->row_stride + head * from->head_stride,
                   (size_t)d * sizeof *rows);
        KVT_TRY(there_and_back(p->tiles + (size_t)head * p->tile_bytes, a->layer->wide[side], side, d, rows,
                               (int)(at % KVT_TILE_ROWS), n, err));
        keep(p, kept->wide[side], rows, side, d, at, n);
    }
    return KVT_OK;
}

static bool is_in(const struct kvt_part *part, int layer, int head, enum kvt_side side) {
    const bool in_layer = part->layer < 0 || (part->layer == layer) != part->inverted;
    return in_layer && (part->head < 0 || part->head == head) && (part->side < 0 || part->side == (int)side);
}

/* The whole groups that end among the new rows; rows of the sink are in none. */
static enum kvt_status append_coded(const struct append *a, int head, enum kvt_side side, struct kvt_error *err) {
    struct kvt_plain *p = a->p;
    struct kept *kept = &p->kept[a->rows->layer * p->max_heads + head];
    const int d = row_size(a->layer, side), g = a->layer->granularity, sink = a->layer->sink;
    const bool coded = is_in(&p->part, a->rows->layer, head, side);
    float *rows = p->rows + (size_t)head * p->row_floats;
    const int64_t end = a->rows->position + a->rows->n;
    int64_t at = KVT_MAX(a->rows->position / g * g, (int64_t)sink);
    for (; at + g <= end; at += g) {
        fetch(p, rows, kept->wide[side], side, d, at, g);
        if (coded && !kvt_codec_info(a->layer->codec[side]).plain)
            KVT_TRY(there_and_back(p->tiles + (size_t)head * p->tile_bytes, a->layer->codec[side], side, d, rows,
                                   (int)(at % KVT_TILE_ROWS), g, err));
        keep(p, kept->coded[side], rows, side, d, at, g);
    }
    return KVT_OK;
}

static void append_job(void *arg, int head, int thread) {
    (void)thread;
    const struct append *a = arg;
    struct kvt_error *err = &a->p->errors[head];
    enum kvt_status status = KVT_OK;
    for (int i = 0; i < KVT_SIDE_COUNT && status == KVT_OK; i++) {
        status = append_wide(a, head, (enum kvt_side)i, err);
        if (status == KVT_OK) status = append_coded(a, head, (enum kvt_side)i, err);
    }
    err->code = status;
}

static enum kvt_status look(void *ctx, const struct kvt_layer_rows *rows, struct kvt_error *err) {
    struct kvt_plain *p = ctx;
    struct append a = {p, rows, kvt_plan_layer(p->plan, rows->layer)};
    KVT_ASSERT(rows->position + rows->n <= p->n_ctx);
    kvt_parallel_run(&p->parallel, a.layer->shape.n_kv_heads, append_job, &a);
    for (int h = 0; h < a.layer->shape.n_kv_heads; h++)
        if (p->errors[h].code != KVT_OK)
            return kvt_fail(err, p->errors[h].code, "layer %d: %s", rows->layer, p->errors[h].text);
    return KVT_OK;
}

/* ---- attention -------------------------------------------------------------------------------------------------------- */

/* Rows [first, end) as one version has them. */
struct span {
    bool coded;
    int64_t first, end;
};

/* What the query at position p sees, in up to three spans. */
static int spans_of(struct span spans[3], const struct kvt_plan *plan, int layer, int64_t p) {
    const struct kvt_layer_plan *l = kvt_plan_layer(plan, layer);
    const int64_t end = kvt_plan_body_end(plan, layer, p + 1), sink = KVT_MIN(l->sink, p + 1);
    const int64_t first = l->window ? KVT_MAX(sink, p + 1 - l->window) : sink;
    const struct span all[] = {{false, 0, sink}, {true, first, end}, {false, KVT_MAX(first, end), p + 1}};
    int n = 0;
    for (int i = 0; i < 3; i++)
        if (all[i].first < all[i].end) spans[n++] = all[i];
    return n;
}

static void add_scores(float *w, const float *k, int n_ctx, const float *q, int d, float scale,
                       const struct span *span) {
    for (int64_t r = span->first; r < span->end; r++) w[r] = 0;
    for (int c = 0; c < d; c++) {
        const float x = q[c] * scale, *channel = k + (ptrdiff_t)c * n_ctx;
        for (int64_t r = span->first; r < span->end; r++) w[r] += x * channel[r];
    }
}

static void attend_query(const struct kvt_plain *p, const struct kvt_layer_rows *rows, const struct kept *kept,
                         float *w, const float *q, float *out, int64_t position) {
    const struct kvt_layer_plan *layer = kvt_plan_layer(p->plan, rows->layer);
    const int dv = layer->shape.v_size;
    struct span spans[3];
    const int n = spans_of(spans, p->plan, rows->layer, position);
    float max = -INFINITY;
    double sum = 0;
    for (int i = 0; i < n; i++) {
        const float *k = spans[i].coded ? kept->coded[KVT_SIDE_K] : kept->wide[KVT_SIDE_K];
        add_scores(w, k, p->n_ctx, q, layer->shape.k_size, rows->scale, &spans[i]);
        for (int64_t r = spans[i].first; r < spans[i].end; r++) max = KVT_MAX(max, w[r]);
    }
    for (int c = 0; c < dv; c++) out[c] = 0;
    for (int i = 0; i < n; i++) {
        const float *v = spans[i].coded ? kept->coded[KVT_SIDE_V] : kept->wide[KVT_SIDE_V];
        for (int64_t r = spans[i].first; r < spans[i].end; r++) {
            const float weight = expf(w[r] - max);
            sum += weight;
            for (int c = 0; c < dv; c++) out[c] += weight * v[r * dv + c];
        }
    }
    for (int c = 0; c < dv; c++) out[c] = (float)(out[c] / sum);
}

struct attend {
    const struct kvt_plain *p;
    const struct kvt_layer_rows *rows;
    int n_blocks;
    float *out;
};

/* Job i: a query head and a block of query rows. */
static void attend_job(void *arg, int i, int thread) {
    const struct attend *a = arg;
    const struct kvt_plain *p = a->p;
    const struct kvt_layer_rows *rows = a->rows;
    const struct kvt_layer_shape *shape = &kvt_plan_layer(p->plan, rows->layer)->shape;
    const int head = i / a->n_blocks, first = i % a->n_blocks * QUERIES_PER_JOB;
    const struct kept *kept = &p->kept[rows->layer * p->max_heads + head / (rows->n_q_heads / shape->n_kv_heads)];
    for (int r = first; r < KVT_MIN(first + QUERIES_PER_JOB, rows->n); r++) {
        const float *q = (const float *)rows->q.data + r * rows->q.row_stride + head * rows->q.head_stride;
        float *out = a->out + ((ptrdiff_t)r * rows->n_q_heads + head) * shape->v_size;
        attend_query(p, rows, kept, p->weights + (ptrdiff_t)thread * p->n_ctx, q, out, rows->position + r);
    }
}

static enum kvt_status attend(void *ctx, const struct kvt_layer_rows *rows, float *out, struct kvt_error *err) {
    struct kvt_plain *p = ctx;
    struct attend a = {p, rows, (int)kvt_div_up(rows->n, QUERIES_PER_JOB), out};
    (void)err;
    kvt_parallel_run(&p->parallel, a.n_blocks * rows->n_q_heads, attend_job, &a);
    return KVT_OK;
}

struct kvt_tap kvt_plain_tap(struct kvt_plain *plain) {
    return (struct kvt_tap){look, attend, plain};
}
