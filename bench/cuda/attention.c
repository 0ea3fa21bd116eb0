/* SPDX-License-Identifier: Apache-2.0
 *
 * Decode attention over made caches on a device, for bench/cuda/attention.py, which times it beside others in one process: a shared library.
 *
 * A cache's pages are copies of a few that were encoded from normal rows, in shuffled places; several sets of them are taken in turn, so
 * that nothing stays in the device's cache between launches.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/attend.h"
#include "backend/cuda/cuda.h"
#include "base/attr.h"
#include "base/half.h"
#include "base/rng.h"
#include "cache/cache.h"
#include "kvtile/kvtile.h"

enum { N_MADE = 6, MAX_CASES = 256 };

/* What attention.py calls. A number for the case, or -1 with a sentence on stderr; queries are f16; n_blocks 0: as many as the backend
 * takes. */
KVT_API int bench_create(const char *kv, int d, int n_heads, int group, int n_queries, int n_seqs, const int *lengths,
                         int sink, int tail, int n_sets, int n_blocks);
KVT_API int bench_launch(int id, int set, void *stream); /* 0: launched */
KVT_API double bench_bytes(int id);                      /* of one launch's tiles */
/* Root mean squares over the first query head of the first sequence's first and the last one's last KV head: the kernel's error, the
 * codec's own, and the output's in double precision on the rows before encoding. */
KVT_API int bench_error(int id, double *kernel, double *codec, double *output);
KVT_API void bench_free(int id);

/* A region's pages as they were made: rows [page][side][head][row][d], and the tiles of them on the device. */
struct made {
    float *rows;
    char *tiles, *device;
    size_t bytes; /* of a page's tiles */
};

struct bench {
    int d, n_heads, group, n_queries, n_seqs, n_sets;
    int *lengths;
    struct kvt_plan *plan;
    const struct kvt_layer *layer;
    struct made body, plain;
    struct kvt_cuda_cut cut;
    float *q;                       /* [row][query head][d], as it is in f16 */
    struct kvt_cuda_attend *launch; /* by set */
    struct kvt_cuda_seq *seqs;
    struct kvt_cuda_visible *visible;
    void **taken; /* memory of the device */
    int n_taken;
    double bytes; /* of one launch's tiles */
};

static struct bench *cases[MAX_CASES];
static struct kvt_cuda cuda;
static struct kvt_error err;
static struct kvt_rng rng = {7};

static bool good(enum kvt_status status) {
    if (status != KVT_OK) fprintf(stderr, "%s\n", err.text);
    return status == KVT_OK;
}

static void *here(size_t n, size_t bytes) {
    void *p = calloc(n ? n : 1, bytes);
    if (!p) abort();
    return p;
}

static void *there(struct bench *b, size_t bytes) {
    void *p = NULL;
    if (!good(kvt_cuda_take(&cuda, &p, bytes, &err))) exit(1);
    b->taken = realloc(b->taken, (size_t)(b->n_taken + 1) * sizeof *b->taken);
    b->taken[b->n_taken++] = p;
    return p;
}

static void *sent(struct bench *b, const void *data, size_t bytes) {
    void *p = there(b, bytes);
    if (!good(kvt_cuda_copy(&cuda, p, data, bytes, &err))) exit(1);
    return p;
}

/* ---- pages ------------------------------------------------------------------------------------------------------------- */

static float *made_row(const struct bench *b, const struct made *m, int page, int side, int head, int row) {
    return m->rows +
           ((((size_t)page * 2 + (size_t)side) * (size_t)b->n_heads + (size_t)head) * KVT_TILE_ROWS + (size_t)row) *
               (size_t)b->d;
}

static void make_pages(struct bench *b, struct made *m, enum kvt_region region) {
    const struct kvt_page_shape *shape = &b->layer->page[region];
    m->bytes = shape->bytes - KVT_PAGE_HEADER;
    m->rows = here((size_t)N_MADE * 2 * (size_t)b->n_heads * KVT_TILE_ROWS * (size_t)b->d, sizeof(float));
    m->tiles = here(N_MADE, m->bytes);
    for (int page = 0; page < N_MADE; page++)
        for (int side = 0; side < KVT_SIDE_COUNT; side++)
            for (int head = 0; head < b->n_heads; head++) {
                float *rows = made_row(b, m, page, side, head, 0);
                for (int i = 0; i < KVT_TILE_ROWS * b->d; i++)
                    rows[i] = kvt_f32_from_f16(kvt_f16_from_f32(kvt_rng_normal(&rng)));
                const struct kvt_codec *codec =
                    region == KVT_REGION_BODY ? b->layer->plan.codec[side] : b->layer->plan.wide[side];
                if (!good(kvt_codec_encode(codec, (enum kvt_side)side, b->d,
                                           m->tiles + (size_t)page * m->bytes +
                                               kvt_page_offset(shape, head, (enum kvt_side)side),
                                           0, KVT_TILE_ROWS, rows, b->d, &err)))
                    exit(1);
            }
    m->device = sent(b, m->tiles, N_MADE * m->bytes);
}

/* Which made page is tile t of a sequence. */
static int which(int seq, int64_t t) { return (int)((uint64_t)(seq * 31 + t * 7) % N_MADE); }

/* n page pointers, to copies in shuffled places. */
static const void **place_pages(const struct made *m, int seq, int64_t first, int64_t end, char *slab, const int *order,
                                int *used) {
    const void **pages = here((size_t)(end - first), sizeof *pages);
    for (int64_t t = first; t < end; t++) {
        char *to = slab + (size_t)order[(*used)++] * m->bytes;
        if (!good(kvt_cuda_copy(&cuda, to, m->device + (size_t)which(seq, t) * m->bytes, m->bytes, &err))) exit(1);
        pages[t - first] = to;
    }
    return pages;
}

static int *shuffled(int n) {
    int *order = here((size_t)n, sizeof *order);
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        const int j = (int)kvt_rng_below(&rng, (uint64_t)i + 1), x = order[i];
        order[i] = order[j];
        order[j] = x;
    }
    return order;
}

/* ---- a case ------------------------------------------------------------------------------------------------------------ */

static void see(const struct bench *b, int64_t p, struct kvt_cuda_visible *v) {
    const int64_t body_end = kvt_layer_body_end(b->layer, p + 1), sink = b->layer->plan.sink;
    *v = (struct kvt_cuda_visible){{0, (int32_t)sink, (int32_t)body_end},
                                   {(int32_t)KVT_MIN(sink, p + 1), (int32_t)body_end, (int32_t)(p + 1)}};
}

static void describe(struct bench *b) {
    b->seqs = here((size_t)b->n_seqs, sizeof *b->seqs);
    b->visible = here((size_t)(b->n_seqs * b->n_queries), sizeof *b->visible);
    for (int s = 0; s < b->n_seqs; s++) {
        struct kvt_cuda_visible *v = &b->visible[s * b->n_queries], *last = v + b->n_queries - 1;
        for (int r = 0; r < b->n_queries; r++) see(b, b->lengths[s] - b->n_queries + r, &v[r]);
        b->seqs[s] = (struct kvt_cuda_seq){.row = s * b->n_queries, .n_rows = b->n_queries};
        for (int region = 0; region < KVT_REGION_COUNT; region++) {
            b->seqs[s].all.first[region] = last->first[region];
            b->seqs[s].all.end[region] = v->end[region];
            if (v->first[region] >= last->end[region]) continue;
            b->seqs[s].first_unit[region] = v->first[region] / b->cut.rows[region];
            b->seqs[s].n_units[region] =
                (int32_t)kvt_div_up(last->end[region], b->cut.rows[region]) - b->seqs[s].first_unit[region];
        }
    }
}

static int64_t tile_of(const struct bench *b, int region, int unit) {
    return (int64_t)unit * b->cut.rows[region] / KVT_TILE_ROWS;
}

static void make_set(struct bench *b, int set) {
    int n[KVT_REGION_COUNT] = {0};
    for (int s = 0; s < b->n_seqs; s++)
        for (int region = 0; region < KVT_REGION_COUNT; region++)
            if (b->seqs[s].n_units[region])
                n[region] += (int)(tile_of(b, region, b->seqs[s].first_unit[region] + b->seqs[s].n_units[region] - 1) +
                                   1 - tile_of(b, region, b->seqs[s].first_unit[region]));
    struct kvt_cuda_seq *seqs = here((size_t)b->n_seqs, sizeof *seqs);
    memcpy(seqs, b->seqs, (size_t)b->n_seqs * sizeof *seqs);
    for (int region = 0; region < KVT_REGION_COUNT; region++) {
        if (!n[region]) continue;
        const struct made *m = region == KVT_REGION_BODY ? &b->body : &b->plain;
        char *slab = there(b, (size_t)n[region] * m->bytes);
        int *order = shuffled(n[region]), used = 0;
        for (int s = 0; s < b->n_seqs; s++) {
            if (!seqs[s].n_units[region]) continue;
            const int64_t first = tile_of(b, region, seqs[s].first_unit[region]),
                          end = tile_of(b, region, seqs[s].first_unit[region] + seqs[s].n_units[region] - 1) + 1;
            const void **pages = place_pages(m, s, first, end, slab, order, &used);
            seqs[s].pages[region] =
                (const void *const *)((uintptr_t)sent(b, pages, (size_t)(end - first) * sizeof *pages) -
                                      (uintptr_t)first * sizeof *pages);
            free(pages);
        }
        free(order);
    }
    b->launch[set].seqs = sent(b, seqs, (size_t)b->n_seqs * sizeof *seqs);
    free(seqs);
}

static void plan_launch(struct bench *b, struct kvt_cuda_attend *l, int n_blocks) {
    int cost[KVT_REGION_COUNT], n_slots = 0, n_counters = 0;
    b->bytes = 0;
    for (int region = 0; region < KVT_REGION_COUNT; region++) {
        const struct kvt_page_shape *page = &b->layer->page[region];
        cost[region] = (int)((page->tile[0].bytes + page->tile[1].bytes) * (size_t)b->cut.rows[region] / KVT_TILE_ROWS);
        for (int s = 0; s < b->n_seqs; s++) b->bytes += (double)cost[region] * b->seqs[s].n_units[region] * b->n_heads;
    }
    const int columns = b->n_queries * b->group;
    n_counters = b->n_seqs * b->n_heads * (int)kvt_div_up(columns, l->n_columns);
    l->n_blocks = n_blocks ? n_blocks
                           : kvt_cuda_attend_blocks(b->seqs, b->n_seqs, b->n_heads, n_counters,
                                                    b->cut.blocks * cuda.n_multiprocessors);
    const int max = n_counters + 2 * l->n_blocks;
    struct kvt_cuda_share *shares = here((size_t)max, sizeof *shares);
    const int n = kvt_cuda_attend_plan(shares, max, &n_slots, b->seqs, b->n_seqs, b->n_heads, b->group, l->n_columns,
                                       cost, &l->n_blocks);
    if (n < 0) abort();
    l->shares = sent(b, shares, (size_t)n * sizeof *shares);
    free(shares);
    l->parts = there(b, (size_t)n_slots * kvt_cuda_part_floats(b->d, l->n_columns) * sizeof(float));
    const size_t n_done = (size_t)(n_counters * l->n_columns);
    int32_t *zeros = here(n_done, sizeof *zeros);
    l->done = sent(b, zeros, n_done * sizeof *zeros);
    free(zeros);
}

int bench_create(const char *kv, int d, int n_heads, int group, int n_queries, int n_seqs, const int *lengths, int sink,
                 int tail, int n_sets, int n_blocks) {
    int id = 0;
    while (id < MAX_CASES && cases[id]) id++;
    if (id == MAX_CASES || (!cuda.stream && !good(kvt_cuda_open(&cuda, 0, NULL, &err)))) return -1;
    struct bench *b = here(1, sizeof *b);
    *b = (struct bench){
        .d = d, .n_heads = n_heads, .group = group, .n_queries = n_queries, .n_seqs = n_seqs, .n_sets = n_sets};
    b->lengths = here((size_t)n_seqs, sizeof *b->lengths);
    memcpy(b->lengths, lengths, (size_t)n_seqs * sizeof *lengths);
    const struct kvt_layer_shape layer = {n_heads, d, d, 0};
    const struct kvt_plan_options options = {.struct_size = sizeof options, .kv = kv, .sink = sink, .tail = tail};
    if (!good(kvt_plan_create(&b->plan, &(struct kvt_shape){1, &layer}, &options, NULL, &err))) return -1;
    b->layer = &b->plan->layers[0];
    struct kvt_cuda_attend l = {.group = group,
                                .n_q_heads = n_heads * group,
                                .scale = 1 / sqrtf((float)d),
                                .q_type = KVT_TYPE_F16,
                                .q_head_stride = d,
                                .q_row_stride = (ptrdiff_t)d * n_heads * group,
                                .out_head_stride = d,
                                .out_row_stride = (ptrdiff_t)d * n_heads * group};
    for (int side = 0; side < KVT_SIDE_COUNT; side++) {
        l.body.tile[side] = b->layer->page[KVT_REGION_BODY].tile[side];
        l.plain.tile[side] = b->layer->page[KVT_REGION_TAIL].tile[side];
    }
    l.body.head_bytes = b->layer->page[KVT_REGION_BODY].head_bytes;
    l.plain.head_bytes = b->layer->page[KVT_REGION_TAIL].head_bytes;
    l.sink_head_bytes = l.plain.head_bytes; /* all of them are copies of the same */
    l.n_columns = kvt_cuda_attend_columns(&l.body, &l.plain, n_queries * group);
    b->cut = kvt_cuda_attend_cut(&l.body, &l.plain, l.n_columns);
    make_pages(b, &b->body, KVT_REGION_BODY);
    make_pages(b, &b->plain, KVT_REGION_TAIL);
    describe(b);
    const size_t n_q = (size_t)(n_seqs * n_queries * n_heads * group * d);
    uint16_t *q = here(n_q, sizeof *q);
    b->q = here(n_q, sizeof *b->q);
    for (size_t i = 0; i < n_q; i++) b->q[i] = kvt_f32_from_f16(q[i] = kvt_f16_from_f32(kvt_rng_normal(&rng)));
    l.q = sent(b, q, n_q * sizeof *q);
    free(q);
    l.out = there(b, n_q * sizeof(float));
    l.visible = sent(b, b->visible, (size_t)(n_seqs * n_queries) * sizeof *b->visible);
    plan_launch(b, &l, n_blocks);
    b->launch = here((size_t)n_sets, sizeof *b->launch);
    for (int set = 0; set < n_sets; set++) {
        b->launch[set] = l;
        make_set(b, set);
    }
    if (!good(kvt_cuda_wait(&cuda, &err))) return -1;
    cases[id] = b;
    return id;
}

int bench_launch(int id, int set, void *stream) {
    return !good(kvt_cuda_attend_launch(&cases[id]->launch[set % cases[id]->n_sets], stream, &err));
}
double bench_bytes(int id) { return cases[id]->bytes; }

/* ---- error ------------------------------------------------------------------------------------------------------------- */

static void attend(const struct bench *b, int seq, int head, int64_t p, const float *q, bool decoded, double *out) {
    const int d = b->d;
    double most = -1e300, sum = 0, *w = here((size_t)(p + 1), sizeof *w);
    float *row = here((size_t)d, sizeof *row);
    for (int pass = 0; pass < 2; pass++)
        for (int64_t r = 0; r <= p; r++) {
            const bool in_body = r >= b->layer->plan.sink && r < kvt_layer_body_end(b->layer, p + 1);
            const struct made *m = in_body ? &b->body : &b->plain;
            const int page = which(seq, r / KVT_TILE_ROWS), in = (int)(r % KVT_TILE_ROWS);
            const float *x = made_row(b, m, page, pass, head, in);
            if (in_body && decoded) {
                const struct kvt_page_shape *shape = &b->layer->page[KVT_REGION_BODY];
                kvt_tile_decode(&shape->tile[pass], row, d,
                                m->tiles + (size_t)page * m->bytes + kvt_page_offset(shape, head, (enum kvt_side)pass),
                                in, 1);
                x = row;
            }
            if (pass == 0) {
                for (int c = 0; c < d; c++) w[r] += (double)q[c] * x[c];
                w[r] /= sqrt(d);
                most = fmax(most, w[r]);
            } else {
                const double e = exp(w[r] - most);
                sum += e;
                for (int c = 0; c < d; c++) out[c] += e * x[c];
            }
        }
    for (int c = 0; c < d; c++) out[c] /= sum;
    free(w);
    free(row);
}

int bench_error(int id, double *kernel, double *codec, double *output) {
    struct bench *b = cases[id];
    const size_t n_q = (size_t)(b->n_seqs * b->n_queries * b->n_heads * b->group * b->d);
    float *out = here(n_q, sizeof *out);
    if (!good(kvt_cuda_fill(&cuda, b->launch[0].out, 0, n_q * sizeof *out, &err)) || bench_launch(id, 0, cuda.stream) ||
        !good(kvt_cuda_copy(&cuda, out, b->launch[0].out, n_q * sizeof *out, &err)) ||
        !good(kvt_cuda_wait(&cuda, &err)))
        return -1;
    *kernel = *codec = *output = 0;
    for (int i = 0; i < 2; i++) {
        const int seq = i ? b->n_seqs - 1 : 0, head = i ? b->n_heads - 1 : 0,
                  q_row = seq * b->n_queries + (i ? b->n_queries - 1 : 0);
        const int64_t p = b->lengths[seq] - b->n_queries + (i ? b->n_queries - 1 : 0);
        const size_t at = ((size_t)q_row * (size_t)(b->n_heads * b->group) + (size_t)(head * b->group)) * (size_t)b->d;
        double want[256] = {0}, exact[256] = {0};
        attend(b, seq, head, p, b->q + at, true, want);
        attend(b, seq, head, p, b->q + at, false, exact);
        for (int c = 0; c < b->d; c++) {
            *kernel += (out[at + (size_t)c] - want[c]) * (out[at + (size_t)c] - want[c]) / (2 * b->d);
            *codec += (want[c] - exact[c]) * (want[c] - exact[c]) / (2 * b->d);
            *output += exact[c] * exact[c] / (2 * b->d);
        }
    }
    *kernel = sqrt(*kernel);
    *codec = sqrt(*codec);
    *output = sqrt(*output);
    free(out);
    return 0;
}

void bench_free(int id) {
    struct bench *b = cases[id];
    for (int i = 0; i < b->n_taken; i++) kvt_cuda_give(&cuda, b->taken[i]);
    kvt_plan_destroy(b->plan);
    free(b->taken), free(b->body.rows), free(b->body.tiles), free(b->plain.rows), free(b->plain.tiles);
    free(b->q), free(b->launch), free(b->seqs), free(b->visible), free(b->lengths), free(b);
    cases[id] = NULL;
}
