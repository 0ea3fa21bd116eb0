/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a snapshot: refused with a sentence, or loaded into a sequence that can do all that one can. Tried as they are, and
 * with their checksums made right, since a fuzzer cannot guess those.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "kvtile/kvtile.h"
#include "support/reseal.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

enum { MAX_ROWS = 600, MAX_ROW = 16 };

static const struct kvt_layer_shape layers[] = {{1, 8, 8, 0}, {1, 16, 8, 40}};
static const struct {
    int n_layers;
    struct kvt_plan_options options;
} plans[] = {
    {1, {.kv = "kivi4g32", .tail = 3}},
    {2, {.kv = "affine3g32"}},
    {1, {.kv = "f16", .sink = 128, .rolling = 256}},
    {2, {.kv = "kivi2g32,f32", .sink = 128, .tail = 40, .start = 200}},
};

static void expect(bool good) {
    if (!good) abort();
}

static void append(struct kvt_pool *pool, struct kvt_seq *seq, int n_layers, int n) {
    static const float x[MAX_ROW] = {1, -2, 3};
    const struct kvt_rows rows = {x, KVT_TYPE_F32, 0, 0};
    struct kvt_step *step;
    expect(kvt_step_create(&step, pool, 1, n, NULL) == KVT_OK);
    if (kvt_step_begin(step, &seq, &n, 1, NULL) == KVT_OK) {
        for (int l = 0; l < n_layers; l++) expect(kvt_step_append(step, l, &rows, &rows, NULL, 0, NULL) == KVT_OK);
        expect(kvt_step_end(step, NULL) == KVT_OK);
    }
    kvt_step_destroy(step);
}

/* Rows, growth, a cut, and a snapshot of its own. */
static void use(struct kvt_pool *pool, const struct kvt_plan *plan, struct kvt_seq *seq) {
    float row[MAX_ROW];
    const int n_layers = kvt_plan_n_layers(plan);
    expect(kvt_pool_bytes(pool) == kvt_plan_bytes(plan, kvt_seq_n_rows(seq)));
    for (int l = 0; l < n_layers; l++)
        for (int64_t r = 0; r < kvt_seq_n_rows(seq); r++)
            (void)!kvt_seq_read(seq, l, r % 2 ? KVT_SIDE_V : KVT_SIDE_K, 0, r, 1, row, MAX_ROW, NULL);
    append(pool, seq, n_layers, 37);
    (void)!kvt_seq_trim(seq, kvt_seq_n_rows(seq) * 2 / 3, NULL, NULL);
    append(pool, seq, n_layers, 70);
    expect(kvt_pool_bytes(pool) == kvt_plan_bytes(plan, kvt_seq_n_rows(seq)));
    const size_t bytes = (size_t)kvt_seq_save_bytes(seq, 3);
    void *again = malloc(bytes);
    struct kvt_snapshot *snapshot;
    struct kvt_seq *copy;
    expect(again && kvt_seq_save_memory(seq, again, bytes, "abc", 3, NULL) == KVT_OK);
    expect(kvt_snapshot_open_memory(&snapshot, again, bytes, NULL, NULL) == KVT_OK);
    expect(kvt_seq_load(&copy, pool, snapshot, MAX_ROWS, NULL) == KVT_OK);
    kvt_seq_destroy(copy);
    kvt_snapshot_close(snapshot);
    free(again);
}

static void load(const struct kvt_snapshot *snapshot, size_t i) {
    struct kvt_alloc_counter counter = {0};
    const struct kvt_allocator allocator = kvt_allocator_counted(&counter);
    struct kvt_plan_options options = plans[i].options;
    const struct kvt_pool_options po = {.struct_size = sizeof po, .allocator = &allocator};
    struct kvt_plan *plan;
    struct kvt_pool *pool;
    struct kvt_seq *seq = NULL;
    struct kvt_error err = {KVT_OK, ""};
    options.struct_size = sizeof options;
    expect(kvt_plan_create(&plan, &(struct kvt_shape){plans[i].n_layers, layers}, &options, &allocator, NULL) ==
           KVT_OK);
    expect(kvt_pool_create(&pool, plan, &po, NULL) == KVT_OK);
    const enum kvt_status status = kvt_seq_load(&seq, pool, snapshot, MAX_ROWS, &err);
    if (status == KVT_OK)
        use(pool, plan, seq);
    else
        expect(!seq && err.code == status && strlen(err.text) > 0 && kvt_pool_bytes(pool) == 0);
    kvt_seq_destroy(seq);
    kvt_pool_destroy(pool);
    kvt_plan_destroy(plan);
    expect(counter.live_blocks == 0);
}

static void try_bytes(const unsigned char *data, size_t size) {
    struct kvt_snapshot *snapshot = NULL;
    struct kvt_error err = {KVT_OK, ""};
    const enum kvt_status status = kvt_snapshot_open_memory(&snapshot, data, size, NULL, &err);
    if (status != KVT_OK) {
        expect(!snapshot && err.code == status && strlen(err.text) > 0);
        return;
    }
    const struct kvt_snapshot_info info = kvt_snapshot_info(snapshot);
    unsigned sum = (unsigned)strlen(info.kv);
    for (size_t k = 0; k < info.blob_bytes; k++) sum += ((const unsigned char *)info.blob)[k];
    expect(sum < 1u << 31);
    for (size_t i = 0; i < KVT_ARRAY_LEN(plans); i++) load(snapshot, i);
    kvt_snapshot_close(snapshot);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    try_bytes(data, size);
    unsigned char *sealed = malloc(size ? size : 1);
    expect(sealed != NULL);
    if (size) memcpy(sealed, data, size);
    kvt_reseal(sealed, size);
    try_bytes(sealed, size);
    free(sealed);
    return 0;
}
