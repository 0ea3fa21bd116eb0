/* SPDX-License-Identifier: Apache-2.0
 *
 * Queries beside rows that wait to be encoded, for key codecs that use them, as 8-bit floats. Of each row and KV head the roots of the mean
 * squares over the query heads that share it, of a quarter of the channels: of the first quarter in rows 0, 4, ..., of the second in rows 1,
 * 5, ... A mean over 32 rows tells which channels matter as well as one over 128. Or, where a codec wants to know which channels are used
 * together, the query itself of one of those heads, which take turns. Rows and not sums, so that what a tile's encoder gets
 * depends on its own rows alone, however they came and whatever was cut off in between.
 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "cache/cache.h"

static void *queries_tile(const struct kvt_page *page, const struct kvt_page_shape *shape, int head) {
    return (char *)page->tiles + kvt_queries_offset(shape, head);
}

enum kvt_status kvt_queries_check(struct kvt_step *step, int layer, const struct kvt_rows *q, int n_q_heads,
                                  struct kvt_error *err) {
    const struct kvt_layer *own = &step->pool->plan->layers[layer];
    if (!own->queries.bytes) return KVT_OK;
    const int n_heads = own->plan.shape.n_kv_heads;
    const enum kvt_queries now = q ? KVT_QUERIES_GIVEN : KVT_QUERIES_NONE;
    if (q && (n_q_heads < n_heads || n_q_heads % n_heads != 0))
        return kvt_fail(err, KVT_ERR_ARG, "layer %d: %d query heads are not a multiple of %d KV heads", layer,
                        n_q_heads, n_heads);
    if (step->queries != KVT_QUERIES_UNKNOWN && step->queries != now)
        return kvt_fail(err, KVT_ERR_ARG, "layer %d comes %s queries, the layers before it came %s: all or none", layer,
                        q ? "with" : "without", q ? "without" : "with");
    for (int i = 0; i < step->n_seqs; i++) {
        const struct kvt_step_entry *entry = &step->entries[i];
        if (entry->n_before > 0 && entry->seq->queries != now)
            return kvt_fail(
                err, KVT_ERR_ARG,
                "layer %d: rows from %lld on of sequence %d come %s queries, those before came %s: all or none", layer,
                (long long)entry->n_before, i, q ? "with" : "without", q ? "without" : "with");
    }
    step->queries = now;
    return KVT_OK;
}

/* Adds one head's squares. False where a number is none or too large for f16. */
static bool add_squares(float *sums, const float *x, int d, struct kvt_bad_number *bad) {
    const float most = 65504;
    bool good = true;
    for (int c = 0; c < d; c++) {
        good &= fabsf(x[c]) <= most;
        sums[c] += x[c] * x[c];
    }
    if (good) return true;
    bad->channel = 0;
    while (fabsf(x[bad->channel]) <= most) bad->channel++;
    bad->value = x[bad->channel];
    return false;
}

bool kvt_queries_write(const struct kvt_step *step, int layer, const struct kvt_step_entry *entry, int head,
                       const struct kvt_rows *q, int n_q_heads, struct kvt_bad_number *bad) {
    struct kvt_pool *pool = step->pool;
    const struct kvt_layer *own = &pool->plan->layers[layer];
    const struct kvt_page_shape *shape = &own->page[KVT_REGION_TAIL];
    const int d = own->plan.shape.k_size, group = n_q_heads / own->plan.shape.n_kv_heads, parts = own->queries_parts;
    if (!q || !own->queries.bytes) return true;
    for (int64_t i = KVT_MAX(own->plan.sink - entry->n_before, 0); i < entry->n_rows; i++) {
        const int64_t at = entry->n_before + i;
        const int n = d / parts, part = (int)(at % parts) * n;
        float sums[KVT_LATENT_MAX] = {0}, x[KVT_LATENT_MAX], one[KVT_LATENT_MAX];
        for (int g = 0; g < group; g++) {
            float *to = g == at % group ? one : x;
            kvt_rows_load(q, entry->first + i, head * group + g, d, to);
            if (add_squares(sums, to, d, bad)) continue;
            bad->found = bad->is_query = true;
            bad->head = head * group + g;
            bad->position = at;
            return false;
        }
        for (int c = part; c < part + n; c++) sums[c] = sqrtf(sums[c] / (float)group);
        const struct kvt_page *page = entry->seq->layers[layer].list[KVT_REGION_TAIL].pages[at / KVT_TILE_ROWS];
        pool->ops->encode(pool, &(struct kvt_encode_args){.codec = own->queries_codec,
                                                          .tile = &own->queries,
                                                          .bytes = queries_tile(page, shape, head),
                                                          .first = (int)(at % KVT_TILE_ROWS),
                                                          .n = 1,
                                                          .rows = parts == 1 ? one : sums + part,
                                                          .stride = n});
    }
    return true;
}

void kvt_queries_read(struct kvt_pool *pool, const struct kvt_layer *layer, const struct kvt_page *page, int head,
                      float *rows, float *sums) {
    const int d = layer->plan.shape.k_size, parts = layer->queries_parts, n = d / parts;
    pool->ops->decode(pool, &layer->queries, rows, n, queries_tile(page, &layer->page[KVT_REGION_TAIL], head), 0,
                      KVT_TILE_ROWS);
    memset(sums, 0, (size_t)d * sizeof *sums);
    for (int r = 0; r < KVT_TILE_ROWS; r++)
        for (int c = 0; c < n; c++) sums[r % parts * n + c] += rows[r * n + c] * rows[r * n + c];
}
