/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU: pages in the process's memory.
 */
#include "backend/row.h"

#include <string.h>

/* The header and the tiles are one block. */
static enum kvt_status take(struct kvt_pool *pool, size_t bytes, struct kvt_page **out, struct kvt_error *err) {
    struct kvt_page *page = kvt_take_zero(&pool->allocator, bytes, 1);
    if (!page)
        return kvt_fail(err, KVT_ERR_NOMEM, "no memory for a cache page of %zu bytes; the cache has %llu bytes", bytes,
                        (unsigned long long)(atomic_load(&pool->bytes) - bytes));
    page->tiles = (char *)page + KVT_PAGE_HEADER;
    *out = page;
    return KVT_OK;
}

static void give(struct kvt_pool *pool, struct kvt_page *page, size_t bytes) {
    kvt_give(&pool->allocator, page, bytes, 1);
}

static void copy(struct kvt_pool *pool, struct kvt_page *to, const struct kvt_page *from, size_t bytes) {
    (void)pool;
    memcpy(to->tiles, from->tiles, bytes - KVT_PAGE_HEADER);
}

static void read_tiles(struct kvt_pool *pool, void *tiles, const struct kvt_page *page, size_t bytes) {
    (void)pool;
    memcpy(tiles, page->tiles, bytes - KVT_PAGE_HEADER);
}

static void write_tiles(struct kvt_pool *pool, struct kvt_page *page, const void *tiles, size_t bytes) {
    (void)pool;
    memcpy(page->tiles, tiles, bytes - KVT_PAGE_HEADER);
}

static void encode(struct kvt_pool *pool, const struct kvt_encode_args *args) {
    kvt_encode_select(args->codec, pool->kernels.level)(args);
}

static void decode(struct kvt_pool *pool, const struct kvt_tile *tile, float *rows, ptrdiff_t stride, const void *bytes,
                   int first, int n) {
    pool->kernels.decode(tile, rows, stride, bytes, first, n);
}

extern const struct kvt_backend kvt_backend_cpu;
const struct kvt_backend kvt_backend_cpu = {
    .name = "cpu",
    .about = "the processor, pages in main memory",
    .pages = {.append = kvt_append_rows,
              .take = take,
              .give = give,
              .copy = copy,
              .read = read_tiles,
              .write = write_tiles,
              .encode = encode,
              .decode = decode},
    .attend = kvt_attention_run,
};
