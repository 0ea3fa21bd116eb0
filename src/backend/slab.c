/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages out of slabs.
 */
#include "backend/slab.h"

#include "base/attr.h"
#include "base/check.h"

/* A page's header in the process's memory; its tiles are in the slab. */
struct slot {
    struct kvt_page page;
    struct kvt_slab *slab;
    struct slot *next; /* while it is free */
};
_Static_assert(sizeof(struct slot) <= KVT_PAGE_HEADER, "a page's header is counted as such");

struct kvt_slab {
    struct kvt_slab *before, *after;
    struct kvt_slab_size *size;
    void *memory;
    int n, n_free;
    struct slot *free;
    struct slot slots[];
};

static size_t head_bytes(int n) { return sizeof(struct kvt_slab) + (size_t)n * sizeof(struct slot); }

enum kvt_status kvt_slabs_init(struct kvt_slabs *slabs, const struct kvt_allocator *allocator,
                               const struct kvt_slab_source *source, int max_sizes, struct kvt_error *err) {
    struct kvt_slab_size *sizes = kvt_take_zero(allocator, (size_t)max_sizes, sizeof *sizes);
    if (!sizes) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for %d sizes of pages", max_sizes);
    *slabs = (struct kvt_slabs){.allocator = *allocator, .source = *source, .sizes = sizes, .max_sizes = max_sizes};
    return KVT_OK;
}

/* ---- lists of slabs ---------------------------------------------------------------------------------------------------- */

static void unlink_slab(struct kvt_slab *slab) {
    if (slab->before)
        slab->before->after = slab->after;
    else
        slab->size->slabs = slab->after;
    if (slab->after) slab->after->before = slab->before;
    slab->before = slab->after = NULL;
}

static void link_first(struct kvt_slab *slab) {
    slab->before = NULL;
    slab->after = slab->size->slabs;
    if (slab->after) slab->after->before = slab;
    slab->size->slabs = slab;
}

/* A full slab goes behind those with free pages: to the end, which is near where few are full and rare where many are. */
static void link_last(struct kvt_slab *slab) {
    struct kvt_slab *last = slab->size->slabs;
    if (!last) {
        link_first(slab);
        return;
    }
    while (last->after) last = last->after;
    last->after = slab;
    slab->before = last;
    slab->after = NULL;
}

static void give_slab(struct kvt_slabs *slabs, struct kvt_slab *slab) {
    unlink_slab(slab);
    slabs->reserved -= (uint64_t)slab->n * slab->size->step;
    slabs->source.give(slabs->source.arg, slab->memory);
    kvt_give(&slabs->allocator, slab, head_bytes(slab->n), 1);
}

void kvt_slabs_finish(struct kvt_slabs *slabs) {
    for (int i = 0; i < slabs->n_sizes; i++)
        while (slabs->sizes[i].slabs) {
            KVT_ASSERT(slabs->sizes[i].slabs->n_free == slabs->sizes[i].slabs->n);
            give_slab(slabs, slabs->sizes[i].slabs);
        }
    kvt_give(&slabs->allocator, slabs->sizes, (size_t)slabs->max_sizes, sizeof *slabs->sizes);
    slabs->sizes = NULL;
}

static struct kvt_slab_size *find_size(struct kvt_slabs *slabs, size_t bytes) {
    for (int i = 0; i < slabs->n_sizes; i++)
        if (slabs->sizes[i].bytes == bytes) return &slabs->sizes[i];
    KVT_ASSERT(slabs->n_sizes < slabs->max_sizes);
    struct kvt_slab_size *size = &slabs->sizes[slabs->n_sizes++];
    size->bytes = bytes;
    size->step = (size_t)kvt_round_up((int64_t)(bytes - KVT_PAGE_HEADER), KVT_SLAB_ALIGN);
    return size;
}

/* ---- pages ------------------------------------------------------------------------------------------------------------- */

static enum kvt_status add_slab(struct kvt_slabs *slabs, struct kvt_slab_size *size, uint64_t most,
                                struct kvt_error *err) {
    uint64_t room = most ? KVT_MIN(most, (uint64_t)KVT_SLAB_BYTES) : (uint64_t)KVT_SLAB_BYTES;
    int n = (int)KVT_MAX(room / size->step, 1);
    void *memory;
    enum kvt_status status = slabs->source.take(slabs->source.arg, &memory, (size_t)n * size->step, err);
    while (status == KVT_ERR_NOMEM && n > 1) {
        n /= 2;
        status = slabs->source.take(slabs->source.arg, &memory, (size_t)n * size->step, err);
    }
    if (status != KVT_OK) return status;
    struct kvt_slab *slab = kvt_take_zero(&slabs->allocator, head_bytes(n), 1);
    if (!slab) {
        slabs->source.give(slabs->source.arg, memory);
        return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the headers of %d cache pages", n);
    }
    slab->size = size;
    slab->memory = memory;
    slab->n = slab->n_free = n;
    for (int i = n - 1; i >= 0; i--) {
        slab->slots[i].slab = slab;
        slab->slots[i].page.tiles = (char *)memory + (size_t)i * size->step;
        slab->slots[i].next = slab->free;
        slab->free = &slab->slots[i];
    }
    slabs->reserved += (uint64_t)n * size->step;
    link_first(slab);
    return KVT_OK;
}

enum kvt_status kvt_slabs_take(struct kvt_slabs *slabs, size_t bytes, uint64_t most, struct kvt_page **out,
                               struct kvt_error *err) {
    struct kvt_slab_size *size = find_size(slabs, bytes);
    if (!size->slabs || !size->slabs->n_free) KVT_TRY(add_slab(slabs, size, most, err));
    struct kvt_slab *slab = size->slabs;
    struct slot *slot = slab->free;
    slab->free = slot->next;
    slab->n_free--;
    slabs->used += size->bytes - KVT_PAGE_HEADER;
    if (!slab->n_free && slab->after) {
        unlink_slab(slab);
        link_last(slab);
    }
    *out = &slot->page;
    return KVT_OK;
}

void kvt_slabs_give(struct kvt_slabs *slabs, struct kvt_page *page) {
    struct slot *slot = (struct slot *)page;
    struct kvt_slab *slab = slot->slab;
    const bool was_full = !slab->n_free;
    slot->next = slab->free;
    slab->free = slot;
    slab->n_free++;
    slabs->used -= slab->size->bytes - KVT_PAGE_HEADER;
    if (was_full) {
        unlink_slab(slab);
        link_first(slab);
    }
    if (slab->n_free < slab->n) return;
    /* Empty: it goes if another one can serve the next page. */
    unlink_slab(slab);
    const bool is_needed = !slab->size->slabs || !slab->size->slabs->n_free;
    link_first(slab);
    if (!is_needed) give_slab(slabs, slab);
}
