/* SPDX-License-Identifier: Apache-2.0
 *
 * Prompts of a step on the device. The KV heads of all prompts lie in one list, which is worked off in passes: as many heads as have room
 * for their rows in f16 at once. In a pass thread blocks come head by head where their rows fill the device's cache, and otherwise the
 * longest first.
 */
#include "backend/cuda/prefill_step.h"

#include <string.h>

#include "backend/cuda/pool.h"
#include "base/attr.h"

/* A prompt has at least so many rows, and query vectors of a KV head: below, kernels for few rows are faster, most of all those that know
 * codes of 4 bits. They read the context once for 16 vectors, here it is brought to f16 first (measured at 8K and 32K rows). */
enum { ALIGN = 256, FEWEST_ROWS = 9, FEWEST_OF_FOUR_BITS = 384, FEWEST_OF_KNOWN = 192, FEWEST_OF_OTHERS = 48 };
#if !defined(KVT_CUDA_PASS_BYTES) /* a test has less */
#define KVT_CUDA_PASS_BYTES ((size_t)256 << 20)
#endif
static const size_t CACHED_BYTES = (size_t)24 << 20;

struct tables {
    struct kvt_cuda_prompt *prompts;
    struct kvt_cuda_prefill_head *heads;
    struct kvt_cuda_prefill_block *blocks;
};

/* How many of each there are at most, and where they lie in host and device memory. */
struct plan {
    struct kvt_step *step;
    const struct kvt_layer *layer;
    int group, n_kv_heads;
    int n_prompts, n_heads, n_blocks;
    size_t heads_at, blocks_at, bytes, unit_bytes;
    struct tables here;
};

bool kvt_cuda_is_prompt(const struct kvt_layer *layer, int n_rows, int group) {
    if (n_rows < FEWEST_ROWS) return false;
    const struct kvt_page_shape *body = &layer->page[KVT_REGION_BODY], *plain = &layer->page[KVT_REGION_TAIL];
    const struct kvt_cuda_page pages[] = {{{body->tile[0], body->tile[1]}, body->head_bytes},
                                          {{plain->tile[0], plain->tile[1]}, plain->head_bytes}};
    if (!kvt_cuda_prefill_reads(&pages[0], &pages[1])) return false;
    const struct kvt_tile *k = &body->tile[KVT_SIDE_K], *v = &body->tile[KVT_SIDE_V];
    const bool is_known =
        kvt_cuda_attend_cut(&pages[0], &pages[1], KVT_CUDA_COLUMNS).rows[KVT_REGION_BODY] == KVT_CUDA_CODED_ROWS;
    const bool is_plain = k->kind == KVT_TILE_PLAIN && v->kind == KVT_TILE_PLAIN;
    const int fewest = is_known && k->format.bits == 4 && v->format.bits == 4 ? FEWEST_OF_FOUR_BITS
                       : is_known || is_plain                                 ? FEWEST_OF_KNOWN
                                                                              : FEWEST_OF_OTHERS;
    return n_rows * group >= fewest;
}

void kvt_cuda_prompts_end(struct kvt_cuda_prompts *kept, const struct kvt_cuda *cuda,
                          const struct kvt_allocator *allocator) {
    kvt_give(allocator, kept->host, kept->host_bytes, 1);
    kvt_cuda_give(cuda, kept->device);
    kvt_cuda_give(cuda, kept->units);
    *kept = (struct kvt_cuda_prompts){0};
}

static size_t aligned(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static int n_columns_blocks(const struct plan *plan, int n_rows) {
    return (int)kvt_div_up(n_rows * plan->group, KVT_CUDA_PREFILL_COLUMNS);
}

static void count(struct plan *plan) {
    for (int s = 0; s < plan->step->n_seqs; s++) {
        const int n_rows = plan->step->entries[s].n_rows;
        if (!kvt_cuda_is_prompt(plan->layer, n_rows, plan->group)) continue;
        plan->n_prompts++;
        plan->n_heads += plan->n_kv_heads;
        plan->n_blocks += plan->n_kv_heads * n_columns_blocks(plan, n_rows);
    }
    plan->heads_at = aligned((size_t)plan->n_prompts * sizeof *plan->here.prompts);
    plan->blocks_at = plan->heads_at + aligned((size_t)plan->n_heads * sizeof *plan->here.heads);
    plan->bytes = plan->blocks_at + (size_t)plan->n_blocks * sizeof *plan->here.blocks;
}

static enum kvt_status grow_device(const struct kvt_cuda *cuda, char **memory, size_t *have, size_t bytes,
                                   struct kvt_error *err) {
    if (bytes <= *have) return KVT_OK;
    void *device;
    KVT_TRY(kvt_cuda_take(cuda, &device, bytes, err));
    kvt_cuda_give(cuda, *memory);
    *memory = device;
    *have = bytes;
    return KVT_OK;
}

static enum kvt_status take_tables(struct kvt_cuda_prompts *kept, struct plan *plan, const struct kvt_cuda *cuda,
                                   struct kvt_error *err) {
    const struct kvt_allocator *allocator = &plan->step->pool->allocator;
    if (plan->bytes > kept->host_bytes) {
        char *host = kvt_take(allocator, plan->bytes, 1);
        if (!host) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for attention of prompts: %zu bytes", plan->bytes);
        kvt_give(allocator, kept->host, kept->host_bytes, 1);
        kept->host = host;
        kept->host_bytes = plan->bytes;
    }
    plan->here = (struct tables){(void *)kept->host, (void *)(kept->host + plan->heads_at),
                                 (void *)(kept->host + plan->blocks_at)};
    return grow_device(cuda, &kept->device, &kept->device_bytes, plan->bytes, err);
}

static void write_prompts(struct plan *plan, int layer, const struct kvt_cuda_sight *sight, int rows) {
    struct kvt_cuda_prompt *prompt = plan->here.prompts;
    for (int s = 0; s < plan->step->n_seqs; s++) {
        const struct kvt_step_entry *entry = &plan->step->entries[s];
        if (!kvt_cuda_is_prompt(plan->layer, entry->n_rows, plan->group)) continue;
        const struct kvt_cuda_visible first = kvt_cuda_see(sight, (int32_t)entry->n_before + 1),
                                      last = kvt_cuda_see(sight, (int32_t)entry->n_before + entry->n_rows);
        *prompt = (struct kvt_cuda_prompt){
            .n_before = (int32_t)entry->n_before, .row = entry->first, .n_rows = entry->n_rows};
        for (int region = 0; region < KVT_REGION_COUNT; region++) {
            prompt->pages[region] = (const void *const *)kvt_cuda_list(entry->seq, layer, (enum kvt_region)region);
            if (first.first[region] >= last.end[region]) continue;
            prompt->first_unit[region] = first.first[region] / rows;
            prompt->n_units[region] = (int32_t)kvt_div_up(last.end[region], rows) - prompt->first_unit[region];
        }
        prompt++;
    }
}

static int units_of(const struct kvt_cuda_prompt *prompt) {
    return prompt->n_units[0] + prompt->n_units[1] + prompt->n_units[2];
}

/* Heads of a pass, from `first` on: where their units go. Returns the head after them. */
static int place_heads(struct plan *plan, int first, int *n_units, int *most_units) {
    int h = first;
    *n_units = *most_units = 0;
    for (; h < plan->n_heads; h++) {
        const int prompt = h / plan->n_kv_heads, n = units_of(&plan->here.prompts[prompt]);
        if (h > first && (size_t)(*n_units + n) * plan->unit_bytes > KVT_CUDA_PASS_BYTES) break;
        plan->here.heads[h] = (struct kvt_cuda_prefill_head){prompt, h % plan->n_kv_heads, *n_units};
        *n_units += n;
        *most_units = KVT_MAX(*most_units, n);
    }
    return h;
}

/* Blocks of heads [first, end): those that share the device's cache take turns, their last columns, which see most, first. */
static int place_blocks(struct plan *plan, struct kvt_cuda_prefill_block *blocks, int first, int end) {
    int n = 0;
    for (int from = first, to; from < end; from = to) {
        size_t bytes = 0;
        int most = 0;
        for (to = from; to < end; to++) {
            const struct kvt_cuda_prompt *prompt = &plan->here.prompts[plan->here.heads[to].prompt];
            bytes += (size_t)units_of(prompt) * plan->unit_bytes;
            if (to > from && bytes > CACHED_BYTES) break;
            most = KVT_MAX(most, n_columns_blocks(plan, prompt->n_rows));
        }
        for (int turn = 0; turn < most; turn++)
            for (int h = from; h < to; h++) {
                const struct kvt_cuda_prefill_head *head = &plan->here.heads[h];
                const int own = n_columns_blocks(plan, plan->here.prompts[head->prompt].n_rows);
                if (turn < own)
                    blocks[n++] = (struct kvt_cuda_prefill_block){head->prompt, head->head, head->first,
                                                                  (own - 1 - turn) * KVT_CUDA_PREFILL_COLUMNS};
            }
    }
    return n;
}

enum kvt_status kvt_cuda_prompts_attend(struct kvt_cuda_prompts *kept, struct kvt_step *step, int layer,
                                        const struct kvt_cuda_attend *call, const struct kvt_cuda *cuda,
                                        struct kvt_error *err) {
    const int head_size = step->pool->plan->layers[layer].plan.shape.k_size;
    struct plan plan = {.step = step,
                        .layer = &step->pool->plan->layers[layer],
                        .group = call->group,
                        .unit_bytes = kvt_cuda_prefill_unit_bytes(head_size)};
    plan.n_kv_heads = plan.layer->plan.shape.n_kv_heads;
    count(&plan);
    if (!plan.n_prompts) return KVT_OK;
    KVT_TRY(take_tables(kept, &plan, cuda, err));
    struct kvt_cuda_prefill prefill = {.call = *call, .sight = kvt_cuda_sight_of(&plan.layer->plan)};
    for (int region = 0; region < KVT_REGION_COUNT; region++)
        prefill.head_bytes[region] = plan.layer->page[region].head_bytes;
    write_prompts(&plan, layer, &prefill.sight, kvt_cuda_prefill_unit_rows(head_size));
    for (int first = 0, end, n_units; first < plan.n_heads; first = end) {
        end = place_heads(&plan, first, &n_units, &prefill.most_units);
        KVT_TRY(grow_device(cuda, &kept->units, &kept->units_bytes, (size_t)n_units * plan.unit_bytes, err));
        prefill.n_heads = end - first;
        prefill.n_blocks = place_blocks(&plan, plan.here.blocks, first, end);
        /* each pass sends its own blocks, in the stream's order */
        KVT_TRY(kvt_cuda_copy(cuda, kept->device, kept->host,
                              plan.blocks_at + (size_t)prefill.n_blocks * sizeof *plan.here.blocks, err));
        prefill.prompts = (const void *)kept->device;
        prefill.heads = (const struct kvt_cuda_prefill_head *)(const void *)(kept->device + plan.heads_at) + first;
        prefill.blocks = (const void *)(kept->device + plan.blocks_at);
        prefill.units = kept->units;
        KVT_TRY(kvt_cuda_prefill_launch(&prefill, cuda->stream, err));
    }
    return KVT_OK;
}
