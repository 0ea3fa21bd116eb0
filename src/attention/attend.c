/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over a step. The work is cut into jobs that depend on shapes alone: a sequence, a few KV heads, a block of query rows,
 * and for few rows a span of the context. A job walks the pages and in each the heads, as they lie in memory; each tile is read once
 * for all its query vectors (rows times heads of the group). A tile at the frontier is walked twice, once through its encoded rows and once through its 16-bit rows,
 * each query masking what is not yet, or no longer, its own.
 */
#include "attention/attention.h"

#include <math.h>
#include <string.h>

#include "attention/state.h"
#include "base/attr.h"
#include "base/check.h"
#include "base/parallel.h"

enum {
    MAX_VECTORS =
        128, /* query vectors of a job, unless one row has more: unpacking a tile is a small part of its use */
    MANY_VECTORS = 512,  /* the same where matrix units multiply, which makes unpacking a larger part */
    MANY_SIZE = 1 << 16, /* those vectors' elements, at most: they stay in the nearer caches */
    MAX_HEADS = 4,       /* KV heads of a job */
    FETCH_TILES =
        2, /* how far ahead tiles are fetched: all scales of a tile are read first, so it must be there by then */
    MANY_JOBS = 32,  /* jobs that keep the threads busy: heads are put together only where there are more */
    SPLIT_ROWS = 8,  /* query rows up to which the context is split */
    SPAN_TILES = 16, /* tiles of one span */
    PAD = 16         /* floats: rows of scratch are whole vectors of any level, aligned to 64 bytes */
};

/* What all jobs share. */
struct run {
    struct kvt_step *step;
    const struct kvt_layer *layer;
    int layer_index;
    const struct kvt_attend *attend;
    int group;          /* query heads per KV head */
    int block_rows;     /* query rows of a job */
    int n_vectors;      /* group * block_rows */
    int many_rows;      /* query rows of a job that matrix units multiply, at most; 0: the level has none */
    int k_size, v_size; /* of a row */
    int ld_k;           /* k_size in whole vectors */
    int ld_v;           /* v_size in whole blocks of lanes */
    bool rotated_k, rotated_v;
    bool fused;           /* the level has kernels that read packed bytes */
    size_t rounded_bytes; /* of rounded queries */
    char *scratch;        /* per thread */
    size_t scratch_bytes;
    float *parts; /* states of spans: see part() */
};

/* One job. */
struct job {
    const struct kvt_step_entry *entry;
    int first_head, n_heads;
    int first_row, n_rows; /* query rows of the entry */
    int n;                 /* vectors of a head */
    int span, n_spans;
    int64_t first_tile, end_tile;
    size_t part; /* of its first vector */
    bool fused; /* few query rows: each tile is multiplied as it is packed. Many: it is unpacked once for all of them */
    bool many;  /* and multiplied on matrix units */
};

/* What is kept for the vectors of one KV head. */
struct head {
    float *queries, *rotated_queries; /* the second in the basis of rotated keys, where there are any */
    float *values, *rotated_values;   /* the second in the basis of rotated values */
    float *max, *sum;                 /* of the softmax */
    struct kvt_noise *noise;          /* of rounded weights */
    struct kvt_rounded rounded;       /* queries for per-token keys */
    void *split, *rotated_split;      /* queries for matrix units */
};

struct scratch {
    float *queries, *rotated_queries, *values, *rotated_values, *max, *sum; /* of all heads of the job */
    struct kvt_noise *noise;
    char *rounded;
    float *scores, *keep, *block;                         /* of the head whose turn it is */
    int *first, *end;                                     /* rows of the tile that each of its vectors sees */
    char *split, *rotated_split, *spread[KVT_SIDE_COUNT]; /* of the one head that jobs of matrix units have */
    struct head head[MAX_HEADS];
};

/* ---- cutting the work -------------------------------------------------------------------------------------------------- */

static int n_spans(const struct kvt_step_entry *entry) {
    if (entry->n_rows > SPLIT_ROWS) return 1;
    return (int)kvt_div_up(entry->n_before + entry->n_rows, (int64_t)SPAN_TILES * KVT_TILE_ROWS);
}

/* Query rows of a job. On matrix units the more the better, while there are jobs enough. */
static int block_rows(const struct run *run, const struct kvt_step_entry *entry) {
    if (entry->n_rows <= SPLIT_ROWS) return run->block_rows;
    int rows = KVT_MAX(run->many_rows, run->block_rows);
    while (rows / 2 >= run->block_rows &&
           run->layer->plan.shape.n_kv_heads * kvt_div_up(entry->n_rows, rows) < MANY_JOBS)
        rows /= 2;
    return rows;
}

static int n_blocks(const struct run *run, const struct kvt_step_entry *entry) {
    return (int)kvt_div_up(entry->n_rows, block_rows(run, entry));
}

/* KV heads of a job: as many as its vectors allow while there are jobs enough. */
static int heads_of(const struct run *run, const struct kvt_step_entry *entry) {
    const int n_heads = run->layer->plan.shape.n_kv_heads;
    if (entry->n_rows > SPLIT_ROWS) return 1;
    int heads = 1;
    while (heads < MAX_HEADS && 2 * heads * entry->n_rows * run->group <= run->n_vectors &&
           n_heads * n_spans(entry) >= 2 * heads * MANY_JOBS)
        heads *= 2;
    return heads;
}

/* Query vectors of a job, at most. */
static int job_vectors(const struct run *run, const struct kvt_step_entry *entry) {
    return heads_of(run, entry) * KVT_MIN(entry->n_rows, block_rows(run, entry)) * run->group;
}

static int entry_jobs(const struct run *run, const struct kvt_step_entry *entry) {
    const int groups = (int)kvt_div_up(run->layer->plan.shape.n_kv_heads, heads_of(run, entry));
    return groups * n_blocks(run, entry) * n_spans(entry);
}

static int n_jobs(const struct run *run) {
    int n = 0;
    for (int i = 0; i < run->step->n_seqs; i++) n += entry_jobs(run, &run->step->entries[i]);
    return n;
}

/* Job i. Spans that belong together are neighbours. */
static struct job find_job(const struct run *run, int i) {
    const int n_heads = run->layer->plan.shape.n_kv_heads;
    const struct kvt_step_entry *entry = run->step->entries;
    size_t part = 0;
    for (;; entry++) {
        const int n = entry_jobs(run, entry);
        if (i < n) break;
        i -= n;
        part += (size_t)n * (size_t)job_vectors(run, entry);
    }
    struct job job = {.entry = entry, .n_spans = n_spans(entry), .part = part + (size_t)(i * job_vectors(run, entry))};
    const int blocks = n_blocks(run, entry), block = i / job.n_spans % blocks, heads = heads_of(run, entry);
    job.span = i % job.n_spans;
    job.first_head = i / job.n_spans / blocks * heads;
    job.n_heads = KVT_MIN(heads, n_heads - job.first_head);
    job.first_row = block * block_rows(run, entry);
    job.n_rows = KVT_MIN(block_rows(run, entry), entry->n_rows - job.first_row);
    job.n = job.n_rows * run->group;
    job.fused = run->fused && entry->n_rows <= SPLIT_ROWS;
    job.many = run->many_rows && entry->n_rows > SPLIT_ROWS;
    const int64_t rows = entry->n_before + job.first_row + job.n_rows;
    job.first_tile = (int64_t)job.span * SPAN_TILES;
    job.end_tile = kvt_div_up(rows, KVT_TILE_ROWS);
    if (job.n_spans > 1) job.end_tile = KVT_MIN(job.end_tile, job.first_tile + SPAN_TILES);
    return job;
}

/* The state of a span's vector: max, sum, then ld_v values. */
static float *part(const struct run *run, size_t i) { return run->parts + i * (size_t)(run->ld_v + 2); }

/* ---- one pass over a tile ---------------------------------------------------------------------------------------------- */

/* Rows [*first, *end) of a region that the query at position p sees. */
static void visible(const struct run *run, enum kvt_region region, int64_t p, int64_t *first, int64_t *end) {
    const int64_t sink = run->layer->plan.sink, body_end = kvt_layer_body_end(run->layer, p + 1);
    if (region == KVT_REGION_SINK) {
        *first = 0;
        *end = KVT_MIN(sink, p + 1);
        return;
    }
    const int64_t oldest = kvt_layer_first_row(run->layer, p + 1);
    *first = region == KVT_REGION_BODY ? oldest : KVT_MAX(body_end, oldest);
    *end = region == KVT_REGION_BODY ? body_end : p + 1;
}

/* The same within tile t, per vector; returns the union, empty if first >= end. */
static void tile_ranges(const struct run *run, const struct job *job, enum kvt_region region, int64_t tile,
                        const struct scratch *s, int *first, int *end) {
    *first = KVT_TILE_ROWS;
    *end = 0;
    for (int r = 0; r < job->n_rows; r++) {
        int64_t a, b;
        visible(run, region, job->entry->n_before + job->first_row + r, &a, &b);
        a = KVT_MIN(KVT_MAX(a - tile * KVT_TILE_ROWS, 0), KVT_TILE_ROWS);
        b = KVT_MIN(KVT_MAX(b - tile * KVT_TILE_ROWS, 0), KVT_TILE_ROWS);
        for (int g = 0; g < run->group; g++) {
            s->first[r * run->group + g] = (int)a;
            s->end[r * run->group + g] = (int)b;
        }
        if (a < b) {
            *first = KVT_MIN(*first, (int)a);
            *end = KVT_MAX(*end, (int)b);
        }
    }
}

/* One tile in a walk, and a later one that is fetched meanwhile. */
struct place {
    const struct kvt_tile *tile;
    const void *bytes, *next;
};

static void multiply_fused(const struct run *run, const struct place *at, int n, const struct head *h, const float *x,
                           ptrdiff_t ld_x, float *y, ptrdiff_t ld_y, int n_lanes) {
    run->step->pool->kernels.fused(&(struct kvt_fused){.tile = at->tile,
                                                       .bytes = at->bytes,
                                                       .next = at->next,
                                                       .n = n,
                                                       .x = x,
                                                       .ld_x = ld_x,
                                                       .y = y,
                                                       .ld_y = ld_y,
                                                       .rounded = &h->rounded,
                                                       .noise = h->noise,
                                                       .n_lanes = n_lanes});
}

/* Scores of a K tile, of which rows [first, end) are needed; what a vector does not see becomes -inf. */
static void score_tile(const struct run *run, const struct job *job, const struct place *at, const struct head *h,
                       const struct scratch *s, int first, int end) {
    const struct kvt_kernels *k = &run->step->pool->kernels;
    const float *queries = at->tile->format.rotated ? h->rotated_queries : h->queries;
    const int n = job->n, first_lane = first / KVT_LANES * KVT_LANES;
    if (job->fused && kvt_fused_takes(at->tile)) {
        multiply_fused(run, at, n, h, queries, run->ld_k, s->scores, KVT_TILE_ROWS, end);
    } else {
        for (int lane = first_lane; lane < end; lane += KVT_LANES) {
            k->unpack(at->tile, at->bytes, lane / KVT_LANES, s->block);
            for (int v = 0; v < n; v++) memset(s->scores + v * KVT_TILE_ROWS + lane, 0, KVT_LANES * sizeof *s->scores);
            k->fold(s->scores + lane, KVT_TILE_ROWS, queries, run->ld_k, n, s->block, run->k_size);
        }
    }
    for (int v = 0; v < n; v++) {
        float *scores = s->scores + v * KVT_TILE_ROWS;
        if (run->attend->softcap > 0)
            for (int r = s->first[v]; r < s->end[v]; r++)
                scores[r] = run->attend->softcap * tanhf(scores[r] / run->attend->softcap);
        for (int r = 0; r < s->first[v]; r++) scores[r] = -INFINITY;
        for (int r = KVT_MAX(s->first[v], s->end[v]); r < KVT_TILE_ROWS; r++) scores[r] = -INFINITY;
    }
}

/* Softmax of the scores; what was mixed so far is rescaled. */
static void soften_tile(const struct run *run, int n, const struct head *h, const struct scratch *s) {
    run->step->pool->kernels.soften(s->scores, n, h->max, h->sum, s->keep);
    for (int v = 0; v < n; v++) {
        const float keep = s->keep[v];
        if (keep == 1) continue;
        h->noise[v].spent *= keep * keep;
        h->noise[v].allowed *= keep * keep;
        for (int i = 0; i < run->ld_v; i++) h->values[v * run->ld_v + i] *= keep;
        for (int i = 0; run->rotated_v && i < run->ld_v; i++) h->rotated_values[v * run->ld_v + i] *= keep;
    }
}

/* Mixes the values of rows [first, end) of a V tile by the weights. */
static void mix_tile(const struct run *run, const struct job *job, const struct place *at, const struct head *h,
                     const struct scratch *s, int first, int end) {
    const struct kvt_kernels *k = &run->step->pool->kernels;
    float *values = at->tile->format.rotated ? h->rotated_values : h->values;
    if (job->fused && kvt_fused_takes(at->tile)) {
        multiply_fused(run, at, job->n, h, s->scores, KVT_TILE_ROWS, values, run->ld_v, 0);
        return;
    }
    for (int b = 0; b < kvt_tile_n_blocks(at->tile); b++) {
        k->unpack(at->tile, at->bytes, b, s->block);
        k->fold(values + b * KVT_LANES, run->ld_v, s->scores + first, KVT_TILE_ROWS, job->n,
                s->block + first * KVT_LANES, end - first);
    }
}

/* Blocks [from, to) of a tile for matrix units; terms [first, end) are needed. */
static const char *spread_tile(const struct run *run, const struct place *at, const struct scratch *s, char *out,
                               int from, int to, int first, int end) {
    const struct kvt_kernels *k = &run->step->pool->kernels;
    const int n_terms = at->tile->n_terms;
    for (int b = from; b < to; b++) {
        k->unpack(at->tile, at->bytes, b, s->block);
        k->spread(s->block, n_terms, first, end, out + (size_t)b * kvt_spread_bytes(n_terms));
    }
    return out;
}

/* Scores, softmax and mix of a tile's rows [first, end) on matrix units. */
static void attend_many(const struct run *run, const struct job *job, const struct place at[KVT_SIDE_COUNT],
                        const struct head *h, const struct scratch *s, int first, int end) {
    const struct place *k = &at[KVT_SIDE_K], *v = &at[KVT_SIDE_V];
    float *values[2] = {h->values, run->rotated_v ? h->rotated_values : NULL};
    run->step->pool->kernels.many(&(struct kvt_many){
        .keys = k->tile,
        .values = v->tile,
        .queries = k->tile->format.rotated ? h->rotated_split : h->split,
        .key_blocks = spread_tile(run, k, s, s->spread[KVT_SIDE_K], first / KVT_LANES, (int)kvt_div_up(end, KVT_LANES),
                                  0, k->tile->n_terms),
        .value_blocks = spread_tile(run, v, s, s->spread[KVT_SIDE_V], 0, kvt_tile_n_blocks(v->tile), first, end),
        .n = job->n,
        .first = s->first,
        .end = s->end,
        .softcap = run->attend->softcap,
        .max = h->max,
        .sum = h->sum,
        .y = values[v->tile->format.rotated],
        .other = values[!v->tile->format.rotated],
        .ld_y = run->ld_v});
}

/* The tile of `side` that is walked `steps` after that of the job's head i on page t: heads of a page first, then pages. Near the end
 * an earlier one. */
static const void *tile_ahead(const struct job *job, const struct kvt_page_list *list,
                              const struct kvt_page_shape *shape, enum kvt_side side, int64_t t, int i, int steps) {
    const int64_t last = KVT_MIN(job->end_tile, list->end) - 1;
    const struct kvt_page *page = list->pages[t];
    for (i += steps; i >= job->n_heads && t < last && list->pages[t + 1]; i -= job->n_heads) page = list->pages[++t];
    return kvt_page_tile(page, shape, job->first_head + i % job->n_heads, side);
}

static void walk_tile(const struct run *run, const struct job *job, enum kvt_region region, int64_t tile,
                      const struct scratch *s) {
    int first, end;
    tile_ranges(run, job, region, tile, s, &first, &end);
    if (first >= end) return;
    const struct kvt_page_shape *shape = &run->layer->page[region];
    const struct kvt_page_list *list = &job->entry->seq->layers[run->layer_index].list[region];
    KVT_ASSERT(list->pages[tile] != NULL);
    for (int i = 0; i < job->n_heads; i++) {
        struct place at[KVT_SIDE_COUNT];
        for (int side = 0; side < KVT_SIDE_COUNT; side++)
            at[side] = (struct place){&shape->tile[side],
                                      kvt_page_tile(list->pages[tile], shape, job->first_head + i, (enum kvt_side)side),
                                      tile_ahead(job, list, shape, (enum kvt_side)side, tile, i, FETCH_TILES)};
        if (job->many && kvt_many_takes(at[KVT_SIDE_K].tile) && kvt_many_takes(at[KVT_SIDE_V].tile)) {
            attend_many(run, job, at, &s->head[i], s, first, end);
            continue;
        }
        score_tile(run, job, &at[KVT_SIDE_K], &s->head[i], s, first, end);
        soften_tile(run, job->n, &s->head[i], s);
        mix_tile(run, job, &at[KVT_SIDE_V], &s->head[i], s, first, end);
    }
}

/* ---- jobs -------------------------------------------------------------------------------------------------------------- */

/* Cuts a thread's scratch into its parts, all of whole vectors; returns its bytes. */
static size_t cut_scratch(const struct run *run, char *memory, struct scratch *s) {
    const int most = KVT_MAX(run->n_vectors, run->many_rows * run->group);
    const size_t n = (size_t)kvt_round_up(most, KVT_MANY_VECTORS), k = (size_t)run->ld_k, v = (size_t)run->ld_v;
    size_t at = 0;
    float **const floats[] = {&s->block,          &s->scores, &s->values, &s->queries, &s->rotated_queries,
                              &s->rotated_values, &s->max,    &s->sum,    &s->keep};
    const size_t counts[] = {KVT_MAX(k, KVT_TILE_ROWS) * KVT_LANES,
                             n * KVT_TILE_ROWS,
                             n * v,
                             n * k,
                             run->rotated_k ? n * k : 0,
                             run->rotated_v ? n * v : 0,
                             n,
                             n,
                             n};
    for (size_t i = 0; i < KVT_ARRAY_LEN(floats); i++) {
        if (memory) *floats[i] = (float *)(void *)(memory + at);
        at += counts[i] * sizeof(float);
    }
    char **const limbs[] = {&s->split, &s->rotated_split, &s->spread[KVT_SIDE_K], &s->spread[KVT_SIDE_V]};
    const size_t split = kvt_split_bytes((int)n, run->k_size), blocks = kvt_div_up(run->v_size, KVT_LANES);
    const size_t bytes[] = {split, run->rotated_k ? split : 0,
                            KVT_TILE_ROWS / KVT_LANES * kvt_spread_bytes(run->k_size),
                            blocks * kvt_spread_bytes(KVT_TILE_ROWS)};
    for (size_t i = 0; run->many_rows && i < KVT_ARRAY_LEN(limbs); i++) {
        if (memory) *limbs[i] = memory + at;
        at += bytes[i];
    }
    if (memory) {
        s->noise = (struct kvt_noise *)(void *)(memory + at);
        s->first = (int *)(s->noise + n);
        s->end = s->first + n;
        s->rounded = memory + at + n * (sizeof *s->noise + 2 * sizeof(int));
    }
    return at + n * (sizeof *s->noise + 2 * sizeof(int)) + run->rounded_bytes;
}

/* Gives each head of a job its part of the scratch, empty. */
static void cut_heads(const struct run *run, const struct job *job, struct scratch *s) {
    for (int i = 0; i < job->n_heads; i++) {
        const int v0 = i * job->n;
        struct head *h = &s->head[i];
        h->queries = s->queries + v0 * run->ld_k;
        h->rotated_queries = run->rotated_k ? s->rotated_queries + v0 * run->ld_k : NULL;
        h->values = s->values + v0 * run->ld_v;
        h->rotated_values = run->rotated_v ? s->rotated_values + v0 * run->ld_v : NULL;
        h->max = s->max + v0;
        h->sum = s->sum + v0;
        h->noise = s->noise + v0;
        h->split = s->split;
        h->rotated_split = s->rotated_split;
        for (int v = 0; v < job->n; v++) {
            h->max[v] = -INFINITY;
            h->sum[v] = 0;
            h->noise[v] = (struct kvt_noise){0, 0};
        }
    }
    const size_t bytes = (size_t)(kvt_round_up(job->n_heads * job->n, KVT_MANY_VECTORS) * run->ld_v) * sizeof(float);
    memset(s->values, 0, bytes);
    if (run->rotated_v) memset(s->rotated_values, 0, bytes);
}

static void load_queries(const struct run *run, const struct job *job, int head, const struct head *h) {
    for (int r = 0; r < job->n_rows; r++)
        for (int g = 0; g < run->group; g++) {
            float *q = h->queries + (r * run->group + g) * run->ld_k;
            kvt_rows_load(&run->attend->q, job->entry->first + job->first_row + r, head * run->group + g, run->k_size,
                          q);
            for (int c = 0; c < run->k_size; c++) q[c] *= run->attend->scale;
            for (int c = run->k_size; c < run->ld_k; c++) q[c] = 0;
            if (!run->rotated_k) continue;
            float *rotated = h->rotated_queries + (r * run->group + g) * run->ld_k;
            memcpy(rotated, q, (size_t)run->ld_k * sizeof *q);
            kvt_rotate(rotated, run->k_size);
        }
}

/* Makes the queries of a head what matrix units multiply. */
static void split_queries(const struct run *run, const struct job *job, const struct head *h) {
    if (!job->many) return;
    const kvt_split_fn split = run->step->pool->kernels.split;
    split(h->queries, run->ld_k, job->n, run->k_size, h->split);
    if (run->rotated_k) split(h->rotated_queries, run->ld_k, job->n, run->k_size, h->rotated_split);
}

/* Rounds the queries of a head for per-token keys. */
static void round_queries(const struct run *run, const struct job *job, int i, struct scratch *s) {
    const struct kvt_tile *keys = &run->layer->page[KVT_REGION_BODY].tile[KVT_SIDE_K];
    if (!job->fused || !kvt_fused_rounds(keys)) return;
    struct head *h = &s->head[i];
    struct kvt_rounded none;
    kvt_rounded_init(&h->rounded, keys, job->n, s->rounded + (size_t)i * kvt_rounded_init(&none, keys, job->n, NULL));
    run->step->pool->kernels.round(keys, keys->format.rotated ? h->rotated_queries : h->queries, run->ld_k,
                                   &h->rounded);
}

/* Writes the result of one vector: KV head i of the job, its vector v. */
static void finish(const struct run *run, const struct job *job, int i, int v, struct kvt_state state,
                   const float *values) {
    const struct kvt_attend *a = run->attend;
    const int r = v / run->group, q_head = (job->first_head + i) * run->group + v % run->group;
    const ptrdiff_t row = job->entry->first + job->first_row + r;
    const float sink = a->sinks ? a->sinks[q_head] : -INFINITY;
    float *out = a->out + row * a->out_row_stride + q_head * a->out_head_stride;
    const float lse = kvt_state_finish(state, values, sink, out, run->v_size);
    if (a->lse) a->lse[row * a->n_q_heads + q_head] = lse;
}

/* Ends a head's vectors: results, or parts of them where there are more spans. */
static void end_head(const struct run *run, const struct job *job, int i, const struct head *h) {
    for (int v = 0; v < job->n; v++) {
        float *values = h->values + v * run->ld_v;
        if (run->rotated_v) {
            float *rotated = h->rotated_values + v * run->ld_v;
            kvt_rotate(rotated, run->v_size);
            for (int c = 0; c < run->v_size; c++) values[c] += rotated[c];
        }
        if (job->n_spans == 1) {
            finish(run, job, i, v, (struct kvt_state){h->max[v], h->sum[v]}, values);
        } else {
            float *to = part(run, job->part + (size_t)(i * job->n + v));
            to[0] = h->max[v];
            to[1] = h->sum[v];
            memcpy(to + 2, values, (size_t)run->ld_v * sizeof *to);
        }
    }
}

static void attend_job(void *arg, int i, int thread) {
    const struct run *run = arg;
    const struct job job = find_job(run, i);
    struct scratch s;
    cut_scratch(run, run->scratch + (size_t)thread * run->scratch_bytes, &s);
    cut_heads(run, &job, &s);
    for (int h = 0; h < job.n_heads; h++) {
        load_queries(run, &job, job.first_head + h, &s.head[h]);
        round_queries(run, &job, h, &s);
        split_queries(run, &job, &s.head[h]);
    }
    for (int64_t t = job.first_tile; t < job.end_tile; t++) {
        if (t * KVT_TILE_ROWS < run->layer->plan.sink) {
            walk_tile(run, &job, KVT_REGION_SINK, t, &s);
        } else {
            walk_tile(run, &job, KVT_REGION_BODY, t, &s);
            walk_tile(run, &job, KVT_REGION_TAIL, t, &s);
        }
    }
    for (int h = 0; h < job.n_heads; h++) end_head(run, &job, h, &s.head[h]);
}

/* Merges the spans of a block of query rows, in the order of the context. `first` is the job of its first span. */
static void merge_spans(const struct run *run, int first) {
    const struct job job = find_job(run, first);
    for (int v = 0; v < job.n_heads * job.n; v++) {
        float *a = part(run, job.part + (size_t)v);
        struct kvt_state state = {a[0], a[1]};
        for (int span = 1; span < job.n_spans; span++) {
            const float *b = part(run, job.part + (size_t)(v + span * job_vectors(run, job.entry)));
            kvt_state_merge(&state, a + 2, (struct kvt_state){b[0], b[1]}, b + 2, run->ld_v);
        }
        finish(run, &job, v / job.n, v % job.n, state, a + 2);
    }
}

/* ---- the call ---------------------------------------------------------------------------------------------------------- */

enum kvt_status kvt_attention_check(const struct kvt_step *step, int layer, const struct kvt_attend *a,
                                    struct kvt_error *err) {
    if (!step->n_seqs) return kvt_fail(err, KVT_ERR_STATE, "no step is begun");
    if (layer < 0 || layer >= step->pool->plan->n_layers)
        return kvt_fail(err, KVT_ERR_ARG, "there is no layer %d in a cache of %d", layer, step->pool->plan->n_layers);
    if (!step->appended[layer])
        return kvt_fail(err, KVT_ERR_STATE, "layer %d has no rows of this step yet: append comes before attend", layer);
    const int n_heads = step->pool->plan->layers[layer].plan.shape.n_kv_heads;
    if (a->n_q_heads < n_heads || a->n_q_heads % n_heads != 0)
        return kvt_fail(err, KVT_ERR_ARG, "layer %d: %d query heads are not a multiple of %d KV heads", layer,
                        a->n_q_heads, n_heads);
    return KVT_OK;
}

/* Vectors whose states spans may have to keep, for the longest sequences that the step's may become. */
static size_t n_parts(const struct run *run) {
    size_t n = 0;
    for (int i = 0; i < run->step->n_seqs; i++) {
        const struct kvt_step_entry *entry = &run->step->entries[i];
        if (entry->n_rows > SPLIT_ROWS) continue;
        const int64_t spans = kvt_div_up(entry->seq->max_rows, (int64_t)SPAN_TILES * KVT_TILE_ROWS);
        const int heads = run->layer->plan.shape.n_kv_heads + MAX_HEADS - 1; /* in whole jobs */
        const int rows = run->block_rows >= SPLIT_ROWS ? SPLIT_ROWS : (int)kvt_round_up(SPLIT_ROWS, run->block_rows);
        n += (size_t)(heads * rows * run->group) * (size_t)spans;
    }
    return n;
}

static enum kvt_status take_scratch(struct run *run, struct kvt_error *err) {
    struct kvt_step *step = run->step;
    const size_t parts = n_parts(run) * (size_t)(run->ld_v + 2) * sizeof(float);
    struct scratch none;
    run->scratch_bytes = cut_scratch(run, NULL, &none);
    const size_t need = (size_t)step->pool->parallel.n_threads * run->scratch_bytes + parts;
    if (need > step->attention_bytes) {
        void *bytes = kvt_take(&step->pool->allocator, need, 1);
        if (!bytes) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for attention: %zu bytes", need);
        kvt_give(&step->pool->allocator, step->attention, step->attention_bytes, 1);
        step->attention = bytes;
        step->attention_bytes = need;
    }
    run->scratch = step->attention;
    run->parts = (float *)(void *)(run->scratch + (size_t)step->pool->parallel.n_threads * run->scratch_bytes);
    return KVT_OK;
}

enum kvt_status kvt_attention_run(struct kvt_step *step, int layer, const struct kvt_attend *attend,
                                  struct kvt_error *err) {
    KVT_TRY(kvt_attention_check(step, layer, attend, err));
    struct run run = {.step = step, .layer = &step->pool->plan->layers[layer], .layer_index = layer, .attend = attend};
    const struct kvt_layer_shape *shape = &run.layer->plan.shape;
    run.group = attend->n_q_heads / shape->n_kv_heads;
    run.block_rows = KVT_MAX(1, MAX_VECTORS / run.group);
    run.n_vectors = run.group * run.block_rows;
    run.k_size = shape->k_size;
    run.v_size = shape->v_size;
    run.ld_k = (int)kvt_round_up(shape->k_size, PAD);
    run.ld_v = (int)kvt_round_up(shape->v_size, KVT_LANES);
    run.rotated_k = run.layer->page[KVT_REGION_BODY].tile[KVT_SIDE_K].format.rotated;
    run.rotated_v = run.layer->page[KVT_REGION_BODY].tile[KVT_SIDE_V].format.rotated;
    run.fused = step->pool->kernels.fused != NULL;
    const int many = KVT_MIN(MANY_VECTORS, MANY_SIZE / KVT_MAX(run.ld_k, run.ld_v));
    if (step->pool->kernels.many) run.many_rows = KVT_MAX(run.block_rows, many / run.group);
    const struct kvt_tile *keys = &run.layer->page[KVT_REGION_BODY].tile[KVT_SIDE_K];
    struct kvt_rounded none;
    for (int heads = 1; run.fused && keys->kind == KVT_TILE_LANE && heads <= MAX_HEADS; heads *= 2) {
        const size_t bytes = kvt_rounded_init(&none, keys, KVT_MAX(1, run.n_vectors / heads), NULL);
        run.rounded_bytes = KVT_MAX(run.rounded_bytes, (size_t)heads * bytes);
    }
    KVT_TRY(take_scratch(&run, err));
    const int n = n_jobs(&run);
    kvt_parallel_run(&step->pool->parallel, n, attend_job, &run);
    for (int i = 0; i < n;) {
        const int spans = find_job(&run, i).n_spans;
        if (spans > 1) merge_spans(&run, i);
        i += spans;
    }
    return KVT_OK;
}
