/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools on a device against pools in the process's memory: the same rows, in batches and pieces, give the same bytes. Then forks, trims,
 * windows, abandoned steps, snapshots both ways, bad numbers, memory that runs out. Runs on a GPU; with KVT_HOST_DEVICE over a device made
 * of the process's memory, which can also be lost.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/pool.h"
#include "base/alloc.h"
#include "base/half.h"
#include "base/rng.h"
#include "kvtile/kvtile.h"
#if defined(KVT_HOST_DEVICE)
#include "cuda/host_device.h"
#endif

static int n_passed, n_failed;

static bool check(bool good, const char *what, int line) {
    if (good) {
        n_passed++;
    } else {
        n_failed++;
        printf("%s:%d: not so: %s\n", "test_pool.c", line, what);
    }
    return good;
}
#define CHECK(c) check((c), #c, __LINE__)

static struct kvt_error err; /* of the last call that failed */

static void must(enum kvt_status status, int line) {
    if (status == KVT_OK) return;
    printf("test_pool.c:%d: %s\n%d passed, %d failed\n", line, err.text, n_passed, n_failed + 1);
    exit(1);
}
#define MUST(call) must((call), __LINE__)

/* ---- two pools of one plan ---------------------------------------------------------------------------------------------- */

enum { CPU, GPU, LAYERS = 2, HEADS = 3, GROUP = 2, SEQS = 2, MAX_STEP = 700, MAX_SEQ = 3000 };
static const struct kvt_layer_shape layers[LAYERS] = {{HEADS, 64, 128, 0}, {HEADS, 128, 64, 0}};

struct pair {
    struct kvt_alloc_counter counter;
    struct kvt_allocator allocator;
    struct kvt_plan *plan;
    struct kvt_pool *pool[2];
    struct kvt_step *step[2];
    struct kvt_seq *seq[2][SEQS];
    struct kvt_cuda on; /* for rows that lie on the device */
};

static void open(struct pair *p, struct kvt_plan_options options, uint64_t byte_limit) {
    memset(p, 0, sizeof *p);
    p->allocator = kvt_allocator_counted(&p->counter);
    options.struct_size = sizeof options;
    MUST(kvt_plan_create(&p->plan, &(struct kvt_shape){LAYERS, layers}, &options, &p->allocator, &err));
    for (int i = 0; i < 2; i++) {
        const struct kvt_pool_options o = {.struct_size = sizeof o,
                                           .backend = i == GPU ? "cuda" : "cpu",
                                           .byte_limit = byte_limit,
                                           .allocator = &p->allocator};
        MUST(kvt_pool_create(&p->pool[i], p->plan, &o, &err));
        MUST(kvt_step_create(&p->step[i], p->pool[i], SEQS, MAX_STEP, &err));
        for (int s = 0; s < SEQS; s++) MUST(kvt_seq_create(&p->seq[i][s], p->pool[i], MAX_SEQ, &err));
    }
    MUST(kvt_cuda_open(&p->on, 0, NULL, &err));
}

static void close(struct pair *p) {
    kvt_cuda_close(&p->on);
    for (int i = 0; i < 2; i++) {
        for (int s = 0; s < SEQS; s++) kvt_seq_destroy(p->seq[i][s]);
        kvt_step_destroy(p->step[i]);
        CHECK(kvt_pool_bytes(p->pool[i]) == 0);
        kvt_pool_destroy(p->pool[i]);
    }
    kvt_plan_destroy(p->plan);
    CHECK(p->counter.live_bytes == 0);
}

/* ---- rows --------------------------------------------------------------------------------------------------------------- */

/* How rows come. */
struct way {
    enum kvt_type type;
    bool on_device, by_head; /* by_head: [head][row][channel], else [row][head][channel] with a gap between rows */
    bool queries;
};

static size_t size_of(enum kvt_type type) { return type == KVT_TYPE_F32 ? 4 : 2; }

/* The rows of a step, made from what they are alone: `salt` tells sequences of different tests apart. */
static void *make_rows(const struct way *way, int layer, int kind, int n_heads, int d, const int64_t *first,
                       const int *n_rows, int n_seqs, int salt, struct kvt_rows *out, size_t *bytes) {
    int total = 0;
    for (int s = 0; s < n_seqs; s++) total += n_rows[s];
    const ptrdiff_t gap = 8, row = way->by_head ? d : n_heads * d + gap, head = way->by_head ? (ptrdiff_t)total * d : d;
    *bytes = (size_t)total * (size_t)(n_heads * d + gap) * size_of(way->type);
    char *data = calloc(*bytes, 1);
    for (int s = 0, r = 0; s < n_seqs; s++)
        for (int i = 0; i < n_rows[s]; i++, r++)
            for (int h = 0; h < n_heads; h++) {
                struct kvt_rng rng = {(uint64_t)((((first[s] + i) * 4 + kind) * 64 + layer) * 64 + h) * 64 +
                                      (uint64_t)(salt + s)};
                for (int c = 0; c < d; c++) {
                    const float x = kvt_rng_normal(&rng) + (kind == KVT_SIDE_K && c == 5 ? 17 : 0);
                    const uint16_t half = way->type == KVT_TYPE_F16 ? kvt_f16_from_f32(x) : kvt_bf16_from_f32(x);
                    char *to = data + (r * row + h * head + c) * (ptrdiff_t)size_of(way->type);
                    memcpy(to, way->type == KVT_TYPE_F32 ? (const void *)&x : &half, size_of(way->type));
                }
            }
    *out = (struct kvt_rows){data, way->type, row, head};
    return data;
}

/* Appends one layer's rows on one backend. */
static enum kvt_status give(struct pair *p, int i, const struct way *way, int layer, struct kvt_rows rows[3],
                            const size_t bytes[3]) {
    struct kvt_rows there[3] = {rows[0], rows[1], rows[2]};
    void *memory[3] = {NULL, NULL, NULL};
    for (int k = 0; k < 3 && i == GPU && way->on_device; k++) {
        MUST(kvt_cuda_take(&p->on, &memory[k], bytes[k], &err));
        MUST(kvt_cuda_copy(&p->on, memory[k], rows[k].data, bytes[k], &err));
        MUST(kvt_cuda_wait(&p->on, &err));
        there[k].data = memory[k];
    }
    const enum kvt_status status =
        kvt_step_append(p->step[i], layer, &there[0], &there[1], way->queries ? &there[2] : NULL, HEADS * GROUP, &err);
    for (int k = 0; k < 3; k++) kvt_cuda_give(&p->on, memory[k]); /* which waits for the device */
    return status;
}

/* Appends n_rows[s] rows to each sequence of both pools. */
static void feed_seqs(struct pair *p, struct kvt_seq *const seqs[2][SEQS], const struct way *way, const int *n_rows,
                      int n_seqs, int salt, bool abandon) {
    int64_t first[SEQS];
    for (int s = 0; s < n_seqs; s++) first[s] = kvt_seq_n_rows(seqs[CPU][s]);
    for (int i = 0; i < 2; i++) MUST(kvt_step_begin(p->step[i], seqs[i], n_rows, n_seqs, &err));
    for (int l = 0; l < LAYERS; l++) {
        struct kvt_rows rows[3];
        size_t bytes[3];
        void *data[3];
        for (int k = 0; k < 3; k++)
            data[k] = make_rows(way, l, k, k == 2 ? HEADS * GROUP : HEADS, k == 1 ? layers[l].v_size : layers[l].k_size,
                                first, n_rows, n_seqs, salt, &rows[k], &bytes[k]);
        for (int i = 0; i < 2; i++) MUST(give(p, i, way, l, rows, bytes));
        for (int k = 0; k < 3; k++) free(data[k]);
    }
    for (int i = 0; i < 2; i++) {
        if (abandon)
            kvt_step_abandon(p->step[i]);
        else
            MUST(kvt_step_end(p->step[i], &err));
    }
}

static void feed(struct pair *p, const struct way *way, int n0, int n1, int salt) {
    const int n_rows[SEQS] = {n0, n1};
    struct kvt_seq *const seqs[2][SEQS] = {{p->seq[CPU][0], p->seq[CPU][1]}, {p->seq[GPU][0], p->seq[GPU][1]}};
    feed_seqs(p, seqs, way, n_rows, n1 ? 2 : 1, salt, false);
}

/* ---- comparing ---------------------------------------------------------------------------------------------------------- */

static char *save(const struct kvt_seq *seq, size_t *bytes) {
    *bytes = (size_t)kvt_seq_save_bytes(seq, 0);
    char *data = malloc(*bytes);
    MUST(kvt_seq_save_memory(seq, data, *bytes, NULL, 0, &err));
    return data;
}

/* Tables on the device name the pages that there are. */
static bool same_table(const struct pair *p, const struct kvt_seq *seq) {
    const size_t n = kvt_seq_table_len(seq->pool->plan, seq->n_tiles);
    void **table = malloc(n * sizeof *table);
    bool same = kvt_cuda_copy(&p->on, table, seq->device, n * sizeof *table, &err) == KVT_OK &&
                kvt_cuda_wait(&p->on, &err) == KVT_OK;
    for (int l = 0; l < LAYERS; l++)
        for (int region = 0; region < KVT_REGION_COUNT; region++) {
            const struct kvt_page_list *list = &seq->layers[l].list[region];
            for (int64_t t = list->first; t < list->end && same; t++)
                same = !list->pages[t] || table[list->pages + t - seq->table] == list->pages[t]->tiles;
        }
    free(table);
    return same;
}

static void check_same(struct pair *p, const char *name, const struct kvt_seq *a, const struct kvt_seq *b) {
    static float x[MAX_SEQ * 128], y[MAX_SEQ * 128];
    size_t n_a, n_b;
    char *file_a = save(a, &n_a), *file_b = save(b, &n_b);
    bool same = n_a == n_b && memcmp(file_a, file_b, n_a) == 0;
    for (int l = 0; l < LAYERS && same; l++)
        for (int side = 0; side < KVT_SIDE_COUNT; side++)
            for (int h = 0; h < HEADS; h++) {
                const int d = side ? layers[l].v_size : layers[l].k_size;
                const int64_t n = kvt_seq_n_rows(a), first = kvt_layer_first_row(&p->pool[CPU]->plan->layers[l], n);
                MUST(kvt_seq_read(a, l, (enum kvt_side)side, h, first, n - first, x, d, &err));
                MUST(kvt_seq_read(b, l, (enum kvt_side)side, h, first, n - first, y, d, &err));
                same &= memcmp(x, y, (size_t)(n - first) * (size_t)d * sizeof *x) == 0;
            }
    if (!CHECK(same)) {
        size_t at = 0;
        while (at < n_a && at < n_b && file_a[at] == file_b[at]) at++;
        printf("    %s: %zu and %zu bytes, the first that differ at %zu\n", name, n_a, n_b, at);
    }
    free(file_a);
    free(file_b);
}

/* ---- tests -------------------------------------------------------------------------------------------------------------- */

struct plan_case {
    const char *kv;
    int sink, tail;
    int64_t start, rolling;
    bool queries;
};

/* Grows two sequences of different lengths by pieces of all sizes, in each way that rows can come. */
static void test_grow(const struct plan_case *c) {
    static const int pieces[][SEQS] = {{1, 0}, {5, 33}, {1, 1}, {1, 1}, {200, 90}, {1, 1}, {31, 0}, {400, 257}, {1, 1}};
    struct pair p;
    open(&p,
         (struct kvt_plan_options){
             .kv = c->kv, .sink = c->sink, .tail = c->tail, .start = c->start, .rolling = c->rolling},
         0);
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        const struct way way = {(enum kvt_type)(i % 3), i % 2 == 1, i % 4 >= 2, c->queries};
        feed(&p, &way, pieces[i][0], pieces[i][1], 0);
        CHECK(same_table(&p, p.seq[GPU][0]));
    }
    for (int s = 0; s < SEQS; s++) check_same(&p, c->kv, p.seq[CPU][s], p.seq[GPU][s]);
    CHECK(kvt_pool_bytes(p.pool[CPU]) == kvt_pool_bytes(p.pool[GPU]));
    CHECK(kvt_pool_reserved_bytes(p.pool[CPU]) == kvt_pool_bytes(p.pool[CPU]));
    CHECK(kvt_pool_reserved_bytes(p.pool[GPU]) > 0);
    close(&p);
}

/* Forks share pages until one writes; steps are abandoned; trims go back into the body; timelines are reordered. */
static void test_forks(const char *kv, int tail) {
    struct pair p;
    struct kvt_seq *seqs[2][SEQS];
    const struct way way = {KVT_TYPE_F16, true, false, false}, other = {KVT_TYPE_F32, false, true, false};
    const int few[SEQS] = {3, 70}, parents[SEQS] = {1, 0};
    open(&p, (struct kvt_plan_options){.kv = kv, .sink = 128, .tail = tail}, 0);
    feed(&p, &way, 333, 0, 0);
    for (int i = 0; i < 2; i++) {
        seqs[i][0] = p.seq[i][0];
        MUST(kvt_seq_fork(&seqs[i][1], p.seq[i][0], &err));
    }
    feed_seqs(&p, seqs, &other, few, 2, 7, true);
    check_same(&p, kv, seqs[CPU][1], seqs[GPU][1]);
    feed_seqs(&p, seqs, &other, few, 2, 9, false);
    for (int s = 0; s < SEQS; s++) {
        check_same(&p, kv, seqs[CPU][s], seqs[GPU][s]);
        CHECK(same_table(&p, seqs[GPU][s]));
    }
    for (int64_t to = 399; to > 100; to -= 101) {
        bool exact[2];
        for (int i = 0; i < 2; i++) MUST(kvt_seq_trim(seqs[i][1], to, &exact[i], &err));
        CHECK(exact[CPU] == exact[GPU]);
        check_same(&p, kv, seqs[CPU][1], seqs[GPU][1]);
    }
    for (int i = 0; i < 2; i++) MUST(kvt_seq_permute(seqs[i], parents, SEQS, &err));
    feed_seqs(&p, seqs, &way, few, 2, 11, false);
    for (int s = 0; s < SEQS; s++) {
        check_same(&p, kv, seqs[CPU][s], seqs[GPU][s]);
        CHECK(same_table(&p, seqs[GPU][s]));
    }
    CHECK(kvt_pool_bytes(p.pool[CPU]) == kvt_pool_bytes(p.pool[GPU]));
    for (int i = 0; i < 2; i++) kvt_seq_destroy(seqs[i][1]);
    close(&p);
}

/* What one saved the other loads, and both go on alike. */
static void test_snapshots(const char *kv) {
    struct pair p;
    const struct way way = {KVT_TYPE_BF16, true, false, false};
    const int n_rows[SEQS] = {150, 0};
    open(&p, (struct kvt_plan_options){.kv = kv, .sink = 128, .tail = 20}, 0);
    feed(&p, &way, 500, 0, 0);
    struct kvt_seq *loaded[2][SEQS] = {{NULL, NULL}, {NULL, NULL}};
    for (int i = 0; i < 2; i++) {
        size_t bytes;
        struct kvt_snapshot *snapshot;
        char *data = save(p.seq[i][0], &bytes);
        MUST(kvt_snapshot_open_memory(&snapshot, data, bytes, NULL, &err));
        MUST(kvt_seq_load(&loaded[!i][0], p.pool[!i], snapshot, MAX_SEQ, &err));
        kvt_snapshot_close(snapshot);
        free(data);
    }
    feed(&p, &way, 150, 0, 0);
    feed_seqs(&p, loaded, &way, n_rows, 1, 0, false);
    check_same(&p, kv, p.seq[CPU][0], loaded[GPU][0]);
    check_same(&p, kv, loaded[CPU][0], p.seq[GPU][0]);
    for (int i = 0; i < 2; i++) kvt_seq_destroy(loaded[i][0]);
    close(&p);
}

/* A number that no row may have: both say the same; the device at the end of the step where rows lie there. */
static void test_bad_numbers(void) {
    static const struct {
        int kind, row, head, channel;
        float x;
        bool on_device;
    } bad[] = {{KVT_SIDE_K, 3, 2, 11, NAN, false},     {KVT_SIDE_V, 40, 0, 0, INFINITY, true},
               {KVT_SIDE_K, 131, 1, 63, 70000, true},  {KVT_SIDE_V, 299, 2, 63, -70000, false},
               {KVT_SIDE_COUNT, 290, 4, 9, NAN, true}, {KVT_SIDE_COUNT, 149, 1, 2, 1e6f, false},
               {KVT_SIDE_V, 77, 1, 20, 9000, true},    {KVT_SIDE_COUNT, 5, 4, 9, NAN, true}};
    struct pair p;
    const int n_rows[SEQS] = {150, 200};
    open(&p, (struct kvt_plan_options){.kv = "kq4,vu4", .sink = 128, .tail = 30}, 0);
    const struct way good = {KVT_TYPE_F16, true, false, true};
    feed(&p, &good, 100, 20, 0);
    for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++) {
        const struct way way = {KVT_TYPE_F32, bad[b].on_device, false, true};
        const int64_t first[SEQS] = {100, 20};
        /* Queries of the sink are not kept, and so not looked at. */
        const bool ignored = bad[b].kind == KVT_SIDE_COUNT && first[0] + bad[b].row < 128;
        char says[2][500];
        for (int i = 0; i < 2; i++) {
            enum kvt_status status = KVT_OK;
            MUST(kvt_step_begin(p.step[i], p.seq[i], n_rows, SEQS, &err));
            for (int l = 0; l < LAYERS && status == KVT_OK; l++) {
                struct kvt_rows rows[3];
                size_t bytes[3];
                void *data[3];
                for (int k = 0; k < 3; k++) {
                    data[k] = make_rows(&way, l, k, k == 2 ? HEADS * GROUP : HEADS,
                                        k == 1 ? layers[l].v_size : layers[l].k_size, first, n_rows, SEQS, 0, &rows[k],
                                        &bytes[k]);
                    float *x = (float *)data[k] + bad[b].row * rows[k].row_stride + bad[b].head * rows[k].head_stride;
                    if (l == 1 && k == bad[b].kind) x[bad[b].channel] = bad[b].x;
                }
                status = give(&p, i, &way, l, rows, bytes);
                if (i == GPU && l == 1) CHECK((status == KVT_OK) == bad[b].on_device);
                for (int k = 0; k < 3; k++) free(data[k]);
            }
            if (i == GPU && status == KVT_OK) status = kvt_step_end(p.step[i], &err);
            if (i == CPU && ignored) MUST(kvt_step_end(p.step[i], &err));
            CHECK(status == (ignored ? KVT_OK : KVT_ERR_RANGE));
            snprintf(says[i], sizeof says[i], "%s", err.text);
            kvt_step_abandon(p.step[i]);
        }
        for (int i = 0; i < 2 && ignored; i++)
            for (int s = 0; s < SEQS; s++) MUST(kvt_seq_trim(p.seq[i][s], first[s], NULL, &err));
        if (ignored) continue;
        /* What lies on the device may be gone when it is told of: the place is the same, without the number. */
        const size_t len = bad[b].on_device ? (size_t)(strstr(says[CPU], " is ") - says[CPU]) : sizeof says[0];
        if (!CHECK(strncmp(says[CPU], says[GPU], len) == 0)) printf("    %s\n    %s\n", says[CPU], says[GPU]);
    }
    feed(&p, &good, 150, 200, 0);
    for (int s = 0; s < SEQS; s++) check_same(&p, "after bad numbers", p.seq[CPU][s], p.seq[GPU][s]);
    close(&p);
}

/* A limit of bytes: the step is refused, the cache is as it was. */
static void test_limit(void) {
    struct pair p;
    const struct way way = {KVT_TYPE_F16, true, false, false};
    const int many[SEQS] = {600, 0};
    open(&p, (struct kvt_plan_options){.kv = "kivi4g32,affine4g64", .tail = 16}, 3 << 19);
    feed(&p, &way, 300, 0, 0);
    const uint64_t bytes = kvt_pool_bytes(p.pool[GPU]);
    for (int i = 0; i < 2; i++) CHECK(kvt_step_begin(p.step[i], p.seq[i], many, 1, &err) == KVT_ERR_LIMIT);
    CHECK(kvt_pool_bytes(p.pool[GPU]) == bytes);
    CHECK(kvt_pool_reserved_bytes(p.pool[GPU]) < (4 << 20));
    feed(&p, &way, 20, 0, 0);
    check_same(&p, "after a limit", p.seq[CPU][0], p.seq[GPU][0]);
    close(&p);
}

/* What a pool on a device cannot have. */
static void test_refused(void) {
    struct kvt_plan *plan;
    struct kvt_pool *pool = NULL;
    MUST(kvt_plan_create(&plan, &(struct kvt_shape){LAYERS, layers}, NULL, NULL, &err));
    const struct kvt_pool_options o = {.struct_size = sizeof o, .backend = "cuda", .device = 99};
    CHECK(kvt_pool_create(&pool, plan, &o, &err) == KVT_ERR_ARG && strstr(err.text, "no CUDA device 99; found: 0 ("));
    kvt_plan_destroy(plan);
    CHECK(!pool);
}

#if defined(KVT_HOST_DEVICE)

/* A codec without an encoder there is named, with its layer and side. */
static void test_no_encoder(void) {
    struct kvt_plan *plan;
    struct kvt_pool *pool = NULL;
    const struct kvt_plan_options po = {.struct_size = sizeof po, .kv = "f16:1=f16,mxfp4"};
    MUST(kvt_plan_create(&plan, &(struct kvt_shape){LAYERS, layers}, &po, NULL, &err));
    const struct kvt_pool_options o = {.struct_size = sizeof o, .backend = "cuda"};
    CHECK(kvt_pool_create(&pool, plan, &o, &err) == KVT_ERR_UNSUPPORTED && strstr(err.text, "layer 1, V: mxfp4"));
    kvt_plan_destroy(plan);
}

/* The device has no memory left for another sequence's table: what there is stays. */
static void test_little_memory(void) {
    struct pair p;
    const struct way way = {KVT_TYPE_F32, false, false, false};
    struct kvt_seq *more = NULL;
    struct kvt_step *step = NULL;
    open(&p, (struct kvt_plan_options){.kv = "kivi4g32,affine4g64", .tail = 16}, 0);
    feed(&p, &way, 300, 0, 0);
    host_device.most = host_device.live;
    CHECK(kvt_seq_create(&more, p.pool[GPU], MAX_SEQ, &err) == KVT_ERR_NOMEM && !more);
    CHECK(kvt_seq_fork(&more, p.seq[GPU][0], &err) == KVT_ERR_NOMEM && !more);
    CHECK(kvt_step_create(&step, p.pool[GPU], 1, 5000, &err) == KVT_ERR_NOMEM && !step);
    host_device.most = 0;
    check_same(&p, "after too little memory", p.seq[CPU][0], p.seq[GPU][0]);
    close(&p);
}

/* Memory runs out in the middle of taking a step's pages. */
static void test_no_page(void) {
    struct pair p;
    const int many[SEQS] = {700, 0};
    open(&p, (struct kvt_plan_options){.kv = "f16"}, 0);
    host_device.most = host_device.live + (200 << 10);
    CHECK(kvt_step_begin(p.step[GPU], &p.seq[GPU][0], many, 1, &err) == KVT_ERR_NOMEM);
    CHECK(strstr(err.text, "rows in one sequence of this plan") != NULL);
    CHECK(kvt_pool_bytes(p.pool[GPU]) == 0);
    host_device.most = 0;
    close(&p);
}

/* The device is lost at each call of a scenario in turn: an error status each time, lengths and tables stay, all is given back. */
static void test_lost(void) {
    int n_lost = 0;
    for (int at = 1;; at += 1 + at / 16) {
        struct pair p;
        const struct way way = {KVT_TYPE_F32, at % 2 == 0, false, false};
        const int n_rows[SEQS] = {90, 40};
        const int64_t first[SEQS] = {200, 150};
        open(&p, (struct kvt_plan_options){.kv = "kivi4g32,affine4g64", .tail = 16}, 0);
        feed(&p, &way, 200, 150, 0);
        struct kvt_rows rows[3];
        size_t bytes[3];
        void *data[3];
        const struct way host = {KVT_TYPE_F32, false, false, false};
        for (int k = 0; k < 3; k++)
            data[k] = make_rows(&host, 0, k, HEADS, 128, first, n_rows, SEQS, 0, &rows[k], &bytes[k]);
        host_device.fail_at = at;
        enum kvt_status status = kvt_step_begin(p.step[GPU], p.seq[GPU], n_rows, SEQS, &err);
        for (int l = 0; l < LAYERS && status == KVT_OK; l++)
            status = kvt_step_append(p.step[GPU], l, &rows[0], &rows[1], NULL, 0, &err);
        if (status == KVT_OK) status = kvt_step_end(p.step[GPU], &err);
        if (status == KVT_OK) status = kvt_seq_trim(p.seq[GPU][0], 100, NULL, &err);
        if (status == KVT_OK) status = kvt_seq_read(p.seq[GPU][0], 0, KVT_SIDE_K, 0, 0, 1, data[0], 64, &err);
        const bool lost = status != KVT_OK;
        if (lost) {
            n_lost++;
            CHECK(status == KVT_ERR_DEVICE && strstr(err.text, "pulled out") != NULL);
            kvt_step_abandon(p.step[GPU]);
            const int64_t n = kvt_seq_n_rows(p.seq[GPU][0]);
            CHECK(n == 200 || n == 290 || n == 100);
            CHECK(kvt_step_begin(p.step[GPU], p.seq[GPU], n_rows, SEQS, &err) == KVT_ERR_DEVICE);
            CHECK(strstr(err.text, "the cache is lost: ") == err.text);
            char file[8];
            CHECK(kvt_seq_read(p.seq[GPU][0], 0, KVT_SIDE_K, 0, 0, 1, data[0], 64, &err) == KVT_ERR_DEVICE);
            CHECK(kvt_seq_save_memory(p.seq[GPU][0], file, sizeof file, NULL, 0, &err) != KVT_OK);
            struct kvt_seq *fork = NULL;
            CHECK(kvt_seq_fork(&fork, p.seq[GPU][0], &err) == KVT_ERR_DEVICE && !fork);
            MUST(kvt_seq_trim(p.seq[CPU][0], 10, NULL, &err));
        }
        host_device.fail_at = 0;
        for (int k = 0; k < 3; k++) free(data[k]);
        close(&p);
        CHECK(host_device.live == 0 && host_device.n_live == 0);
        if (!lost) break;
    }
    CHECK(n_lost > 30);
}

#else

/* The device's memory is full: the step that needs more is refused, and works once there is some. */
static void test_full_device(void) {
    enum { STEPS = 40, MAX_HOGS = 2000 };
    static void *hogs[MAX_HOGS];
    struct pair p;
    struct kvt_step *steps[STEPS];
    struct kvt_seq *seqs[STEPS];
    const int many = MAX_STEP;
    int n_hogs = 0, n = 0;
    open(&p, (struct kvt_plan_options){.kv = "f32"}, 0);
    for (int i = 0; i < STEPS; i++) {
        MUST(kvt_step_create(&steps[i], p.pool[GPU], 1, MAX_STEP, &err));
        MUST(kvt_seq_create(&seqs[i], p.pool[GPU], MAX_SEQ, &err));
    }
    for (size_t bytes = (size_t)4 << 30; bytes >= 1 << 20; bytes /= 2)
        while (n_hogs < MAX_HOGS && kvt_cuda_take(&p.on, &hogs[n_hogs], bytes, &err) == KVT_OK) n_hogs++;
    enum kvt_status status = KVT_OK;
    while (n < STEPS && (status = kvt_step_begin(steps[n], &seqs[n], &many, 1, &err)) == KVT_OK) n++;
    CHECK(status == KVT_ERR_NOMEM && strstr(err.text, "rows in one sequence of this plan") != NULL);
    puts(err.text);
    for (int i = 0; i < n_hogs; i++) kvt_cuda_give(&p.on, hogs[i]);
    if (n < STEPS) CHECK(kvt_step_begin(steps[n], &seqs[n], &many, 1, &err) == KVT_OK);
    for (int i = 0; i < STEPS; i++) {
        kvt_step_destroy(steps[i]);
        kvt_seq_destroy(seqs[i]);
    }
    close(&p);
}

#endif

int main(void) {
    int n = 0;
    if (kvt_cuda_n_devices(&n, &err) != KVT_OK) {
        printf("skipped: %s\n", err.text);
        return 77;
    }
    static const struct plan_case cases[] = {
        {"f16", 0, 0, 0, 0, false},
        {"f32", 128, 40, 0, 0, false},
        {"bf16", 0, 10, 0, 0, false},
        {"affine4g64", 0, 0, 0, 0, false},
        {"affine8g32,affine3g128", 128, 0, 0, 0, false},
        {"f16,affine4g64", 0, 0, 0, 0, false},
        {"kivi4g32,affine4g64", 128, 64, 0, 0, false},
        {"kivi2g64,f16", 0, 0, 0, 0, false},
        {"kivi4g32", 0, 0, 300, 0, false},
        {"kivi8g32", 128, 20, 0, 400, false},
        {"q8_0,q4_0", 0, 0, 0, 0, false},
        {"fp8e4m3", 0, 0, 0, 0, false},
        {"nvfp4", 0, 0, 0, 0, false},
        {"kvarn4", 128, 128, 0, 0, false},
        {"kq4,vu4", 128, 32, 0, 0, false},
        {"kq3,vu3", 0, 0, 0, 0, true},
        {"kq3-feedback,vu3", 128, 0, 0, 0, true},
        {"kivi4g32:1=f16,vu2", 128, 32, 0, 0, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) test_grow(&cases[i]);
    test_forks("kivi4g32,affine4g64", 16);
    test_forks("affine4g64", 0);
    test_forks("f16", 0);
    test_snapshots("kivi4g32,affine4g64");
    test_snapshots("kq4,vu4");
    test_bad_numbers();
    test_limit();
    test_refused();
#if defined(KVT_HOST_DEVICE)
    test_no_encoder();
    test_little_memory();
    test_no_page();
    test_lost();
#else
    test_full_device();
#endif
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed != 0;
}
