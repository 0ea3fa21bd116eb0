/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a prompt cache of mlx-lm: refused with a sentence, or loaded into a sequence of the plan that it asks for.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "kvtile/kvtile.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

enum { MAX_LAYERS = 8, MAX_ROWS = 600 };

static void expect(bool good) {
    if (!good) abort();
}

/* A plan with the shape and the codecs of a file; NULL if it is too large to be tried. */
static struct kvt_plan *plan_of(const struct kvt_mlx_cache *file, const struct kvt_allocator *a) {
    struct kvt_layer_shape layers[MAX_LAYERS];
    struct kvt_plan_options options = {.struct_size = sizeof options};
    struct kvt_plan *plan = NULL;
    struct kvt_buf kv;
    const int n = kvt_mlx_cache_n_layers(file);
    if (n > MAX_LAYERS) return NULL;
    kvt_buf_init(&kv, a, 1 << 12);
    for (int l = 0; l < n; l++) {
        const char *name = kvt_mlx_cache_layer(file, l, &layers[l]);
        expect(l == 0 ? kvt_buf_addf(&kv, "%s", name) == KVT_OK : kvt_buf_addf(&kv, ":%d=%s", l, name) == KVT_OK);
        expect(layers[l].n_kv_heads > 0 && layers[l].k_size > 0 && layers[l].v_size > 0);
    }
    options.kv = kvt_buf_text(&kv);
    expect(kvt_plan_create(&plan, &(struct kvt_shape){n, layers}, &options, a, NULL) == KVT_OK);
    kvt_buf_finish(&kv);
    return plan;
}

static void load(const struct kvt_mlx_cache *file) {
    struct kvt_alloc_counter counter = {0};
    const struct kvt_allocator a = kvt_allocator_counted(&counter);
    const struct kvt_pool_options options = {.struct_size = sizeof options, .allocator = &a, .byte_limit = 1 << 24};
    struct kvt_plan *plan = plan_of(file, &a);
    struct kvt_pool *pool;
    struct kvt_seq *seq = NULL;
    struct kvt_error err = {KVT_OK, ""};
    if (!plan) return;
    expect(kvt_pool_create(&pool, plan, &options, NULL) == KVT_OK);
    const enum kvt_status status = kvt_mlx_cache_load(&seq, pool, file, MAX_ROWS, 0, &err);
    if (status == KVT_OK) {
        float row[KVT_LATENT_MAX];
        for (int64_t r = 0; r < kvt_seq_n_rows(seq); r++)
            expect(kvt_seq_read(seq, 0, KVT_SIDE_V, 0, r, 1, row, KVT_LATENT_MAX, NULL) == KVT_OK);
        expect(kvt_pool_bytes(pool) == kvt_plan_bytes(plan, kvt_seq_n_rows(seq)));
    } else {
        expect(!seq && err.code == status && strlen(err.text) > 0 && kvt_pool_bytes(pool) == 0);
    }
    kvt_seq_destroy(seq);
    kvt_pool_destroy(pool);
    kvt_plan_destroy(plan);
    expect(counter.live_blocks == 0);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    struct kvt_mlx_cache *file = NULL;
    struct kvt_error err = {KVT_OK, ""};
    const enum kvt_status status = kvt_mlx_cache_open_memory(&file, data, size, NULL, &err);
    if (status != KVT_OK) {
        expect(!file && err.code == status && strlen(err.text) > 0);
        return 0;
    }
    (void)kvt_mlx_cache_entry(file, "model");
    load(file);
    kvt_mlx_cache_close(file);
    return 0;
}
