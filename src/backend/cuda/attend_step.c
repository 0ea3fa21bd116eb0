/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of a step on the device: what each query sees and the shares of each block are laid out here and go there in one copy;
 * then one launch. The sequences' pages are in tables there already.
 */
#include "backend/cuda/attend_step.h"

#include <string.h>

#include "backend/cuda/attend.h"
#include "backend/cuda/pool.h"
#include "base/attr.h"
#include "base/num.h"

enum { ALIGN = 256 };

/* Places in the buffers, which begin alike. */
struct layout {
    size_t seqs, visible, sinks, q, shares, copied; /* here and there; `copied`: their end */
    size_t done, parts, out, lse, end;              /* there alone; `out` and `lse` come back */
};

struct call {
    struct kvt_step *step;
    const struct kvt_layer *layer;
    int index;
    const struct kvt_attend *attend;
    bool q_here, out_here, sinks_here;
    struct kvt_cuda_attend launch;
    struct kvt_cuda_cut cut;
    int n_shares, n_slots;
    struct layout at;
};

/* ---- what is seen ------------------------------------------------------------------------------------------------------ */

/* Of an entry's query row. */
static struct kvt_cuda_visible see(const struct call *c, const struct kvt_step_entry *entry, int row) {
    const struct kvt_cuda_sight sight = kvt_cuda_sight_of(&c->layer->plan);
    return kvt_cuda_see(&sight, (int32_t)(entry->n_before + row + 1));
}

/* An entry's query rows, or 0 where they are a prompt, which has kernels of its own. */
static int few_rows(const struct call *c, const struct kvt_step_entry *entry) {
    return kvt_cuda_is_prompt(c->layer, entry->n_rows, c->launch.group) ? 0 : entry->n_rows;
}

/* A sequence: its units cover what any of its queries sees. */
static void describe_seq(const struct call *c, const struct kvt_step_entry *entry, struct kvt_cuda_seq *seq) {
    *seq = (struct kvt_cuda_seq){.row = entry->first, .n_rows = few_rows(c, entry)};
    if (!seq->n_rows) return;
    const struct kvt_cuda_visible first = see(c, entry, 0), last = see(c, entry, entry->n_rows - 1);
    for (int region = 0; region < KVT_REGION_COUNT; region++) {
        seq->all.first[region] = last.first[region];
        seq->all.end[region] = first.end[region];
        if (first.first[region] >= last.end[region]) continue;
        const int rows = c->cut.rows[region];
        seq->first_unit[region] = first.first[region] / rows;
        seq->n_units[region] = (int32_t)kvt_div_up(last.end[region], rows) - seq->first_unit[region];
    }
}

/* ---- layout ------------------------------------------------------------------------------------------------------------ */

static size_t put(size_t *at, size_t bytes) {
    const size_t here = *at;
    *at = here + (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return here;
}

static size_t type_bytes(enum kvt_type type) { return type == KVT_TYPE_F32 ? 4 : 2; }

/* Each list of a head and its columns ends once, and each block begins once: so many shares at most. */
static void lay_out(struct call *c, int n_counters) {
    const struct kvt_layer_shape *shape = &c->layer->plan.shape;
    const size_t n_rows = (size_t)c->step->n_rows, heads = (size_t)c->attend->n_q_heads;
    size_t at = 0;
    struct layout *l = &c->at;
    l->seqs = put(&at, (size_t)c->step->n_seqs * sizeof(struct kvt_cuda_seq));
    l->visible = put(&at, n_counters ? n_rows * sizeof(struct kvt_cuda_visible) : 0);
    l->sinks = put(&at, c->sinks_here ? heads * sizeof(float) : 0);
    l->q = put(&at, c->q_here ? n_rows * heads * (size_t)shape->k_size * type_bytes(c->attend->q.type) : 0);
    const int max_shares = n_counters + 2 * c->launch.n_blocks;
    l->shares = put(&at, (size_t)max_shares * sizeof(struct kvt_cuda_share));
    l->copied = at;
    l->done = put(&at, (size_t)(n_counters * c->launch.n_columns) * sizeof(int32_t));
    l->parts = put(&at, (size_t)max_shares * kvt_cuda_part_floats(shape->v_size, c->launch.n_columns) * sizeof(float));
    l->out = put(&at, c->out_here ? n_rows * heads * (size_t)shape->v_size * sizeof(float) : 0);
    l->lse = put(&at, c->out_here && c->attend->lse ? n_rows * heads * sizeof(float) : 0);
    l->end = at;
    c->n_shares = max_shares;
}

void kvt_cuda_attention_end(struct kvt_cuda_attention *kept, const struct kvt_cuda *cuda,
                            const struct kvt_allocator *allocator) {
    kvt_give(allocator, kept->host, kept->host_bytes, 1);
    kvt_cuda_give(cuda, kept->device);
    kvt_cuda_prompts_end(&kept->prompts, cuda, allocator);
    *kept = (struct kvt_cuda_attention){0};
}

static enum kvt_status take_buffers(struct kvt_cuda_attention *kept, const struct kvt_cuda *cuda, const struct call *c,
                                    struct kvt_error *err) {
    const struct kvt_allocator *allocator = &c->step->pool->allocator;
    const size_t here = KVT_MAX(c->at.copied, c->at.end - c->at.out); /* what comes back passes through it too */
    if (here > kept->host_bytes) {
        char *host = kvt_take(allocator, here, 1);
        if (!host) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for attention: %zu bytes", here);
        kvt_give(allocator, kept->host, kept->host_bytes, 1);
        kept->host = host;
        kept->host_bytes = here;
    }
    if (c->at.end > kept->device_bytes) {
        void *device;
        KVT_TRY(kvt_cuda_take(cuda, &device, c->at.end, err));
        kvt_cuda_give(cuda, kept->device);
        kept->device = device;
        kept->device_bytes = c->at.end;
    }
    return KVT_OK;
}

/* ---- filling it -------------------------------------------------------------------------------------------------------- */

static void write_seqs(const struct call *c, const struct kvt_cuda_attention *kept) {
    struct kvt_cuda_seq *seqs = (struct kvt_cuda_seq *)(void *)(kept->host + c->at.seqs);
    struct kvt_cuda_visible *visible = (struct kvt_cuda_visible *)(void *)(kept->host + c->at.visible);
    for (int s = 0; s < c->step->n_seqs; s++) {
        const struct kvt_step_entry *entry = &c->step->entries[s];
        describe_seq(c, entry, &seqs[s]);
        for (int r = 0; r < seqs[s].n_rows; r++) visible[entry->first + r] = see(c, entry, r);
        for (int region = 0; region < KVT_REGION_COUNT; region++)
            seqs[s].pages[region] = (const void *const *)kvt_cuda_list(entry->seq, c->index, (enum kvt_region)region);
    }
}

static void write_queries(const struct call *c, const struct kvt_cuda_attention *kept) {
    const struct kvt_rows *q = &c->attend->q;
    const size_t bytes = type_bytes(q->type), row = (size_t)c->layer->plan.shape.k_size * bytes;
    char *to = kept->host + c->at.q;
    for (int r = 0; r < c->step->n_rows; r++)
        for (int h = 0; h < c->attend->n_q_heads; h++, to += row)
            memcpy(to, (const char *)q->data + (r * q->row_stride + h * q->head_stride) * (ptrdiff_t)bytes, row);
}

static size_t unit_bytes(const struct call *c, int region) {
    const struct kvt_page_shape *page = &c->layer->page[region];
    return (page->tile[KVT_SIDE_K].bytes + page->tile[KVT_SIDE_V].bytes) * (size_t)c->cut.rows[region] / KVT_TILE_ROWS;
}

static void describe_page(const struct kvt_page_shape *shape, struct kvt_cuda_page *page) {
    for (int side = 0; side < KVT_SIDE_COUNT; side++) page->tile[side] = shape->tile[side];
    page->head_bytes = shape->head_bytes;
}

/* Results that came back, to where the caller wants them. */
static void read_results(const struct call *c, const struct kvt_cuda_attention *kept) {
    const struct kvt_attend *a = c->attend;
    const size_t d = (size_t)c->layer->plan.shape.v_size;
    const float *out = (const float *)(const void *)kept->host;
    for (int r = 0; r < c->step->n_rows; r++)
        for (int h = 0; h < a->n_q_heads; h++, out += d)
            memcpy(a->out + r * a->out_row_stride + h * a->out_head_stride, out, d * sizeof *out);
    if (a->lse)
        memcpy(a->lse, kept->host + (c->at.lse - c->at.out),
               (size_t)c->step->n_rows * (size_t)a->n_q_heads * sizeof *out);
}

/* Where the kernel finds everything. */
static void point(struct call *c, const struct kvt_cuda_attention *kept) {
    const struct kvt_attend *a = c->attend;
    const struct kvt_layer_shape *shape = &c->layer->plan.shape;
    struct kvt_cuda_attend *l = &c->launch;
    char *there = kept->device;
    l->seqs = (const void *)(there + c->at.seqs);
    l->visible = (const void *)(there + c->at.visible);
    l->shares = (const void *)(there + c->at.shares);
    l->done = (void *)(there + c->at.done);
    l->parts = (void *)(there + c->at.parts);
    l->q_type = a->q.type;
    l->q = c->q_here ? there + c->at.q : a->q.data;
    l->q_head_stride = c->q_here ? shape->k_size : a->q.head_stride;
    l->q_row_stride = c->q_here ? (ptrdiff_t)shape->k_size * a->n_q_heads : a->q.row_stride;
    l->out = c->out_here ? (void *)(there + c->at.out) : a->out;
    l->out_head_stride = c->out_here ? shape->v_size : a->out_head_stride;
    l->out_row_stride = c->out_here ? (ptrdiff_t)shape->v_size * a->n_q_heads : a->out_row_stride;
    l->lse = !a->lse ? NULL : c->out_here ? (void *)(there + c->at.lse) : a->lse;
    l->sinks = !a->sinks ? NULL : c->sinks_here ? (const void *)(there + c->at.sinks) : a->sinks;
    l->n_q_heads = a->n_q_heads;
    l->scale = a->scale;
    l->softcap = a->softcap;
}

static enum kvt_status is_here(const struct kvt_cuda *cuda, const void *pointer, bool *here, struct kvt_error *err) {
    int there = 0;
    if (pointer) KVT_TRY(kvt_cuda_is_device(cuda, pointer, &there, err));
    *here = pointer && !there;
    return KVT_OK;
}

static void share_out(struct call *c, const struct kvt_cuda_attention *kept, int n_counters, int most_blocks) {
    const struct kvt_cuda_seq *seqs = (const void *)(kept->host + c->at.seqs);
    const int n_heads = c->layer->plan.shape.n_kv_heads;
    c->launch.n_blocks = kvt_cuda_attend_blocks(seqs, c->step->n_seqs, n_heads, n_counters, most_blocks);
    int cost[KVT_REGION_COUNT];
    for (int region = 0; region < KVT_REGION_COUNT; region++) cost[region] = (int)unit_bytes(c, region);
    c->n_shares = kvt_cuda_attend_plan((struct kvt_cuda_share *)(void *)(kept->host + c->at.shares), c->n_shares,
                                       &c->n_slots, seqs, c->step->n_seqs, n_heads, c->launch.group,
                                       c->launch.n_columns, cost, &c->launch.n_blocks);
    KVT_ASSERT(c->n_shares > 0);
}

static enum kvt_status launch(struct call *c, struct kvt_cuda_attention *kept, const struct kvt_cuda *cuda,
                              struct kvt_error *err) {
    const struct kvt_attend *a = c->attend;
    int n_counters = 0, longest = 0;
    for (int s = 0; s < c->step->n_seqs; s++)
        longest = KVT_MAX(longest, few_rows(c, &c->step->entries[s]) * c->launch.group);
    c->launch.n_columns = kvt_cuda_attend_columns(&c->launch.body, &c->launch.plain, longest);
    for (int s = 0; s < c->step->n_seqs; s++)
        n_counters += c->layer->plan.shape.n_kv_heads *
                      (int)kvt_div_up(few_rows(c, &c->step->entries[s]) * c->launch.group, c->launch.n_columns);
    c->cut = kvt_cuda_attend_cut(&c->launch.body, &c->launch.plain, c->launch.n_columns);
    const int most_blocks = n_counters ? c->cut.blocks * cuda->n_multiprocessors : 0;
    c->launch.n_blocks = most_blocks;
    lay_out(c, n_counters);
    KVT_TRY(take_buffers(kept, cuda, c, err));
    write_seqs(c, kept);
    if (c->q_here) write_queries(c, kept);
    if (c->sinks_here) memcpy(kept->host + c->at.sinks, a->sinks, (size_t)a->n_q_heads * sizeof *a->sinks);
    if (n_counters) share_out(c, kept, n_counters, most_blocks);
    point(c, kept);
    KVT_TRY(kvt_cuda_copy(cuda, kept->device, kept->host, c->at.copied, err));
    if (n_counters) {
        KVT_TRY(kvt_cuda_fill(cuda, kept->device + c->at.done, 0, c->at.parts - c->at.done, err));
        KVT_TRY(kvt_cuda_attend_launch(&c->launch, cuda->stream, err));
    }
    KVT_TRY(kvt_cuda_prompts_attend(&kept->prompts, c->step, c->index, &c->launch, cuda, err));
    if (!c->out_here) return KVT_OK;
    KVT_TRY(kvt_cuda_copy(cuda, kept->host, kept->device + c->at.out, c->at.end - c->at.out, err));
    KVT_TRY(kvt_cuda_wait(cuda, err));
    read_results(c, kept);
    return KVT_OK;
}

static enum kvt_status run(struct kvt_step *step, int layer, const struct kvt_attend *attend, struct kvt_error *err) {
    struct kvt_cuda_step *own = step->device;
    const struct kvt_cuda *on = &kvt_cuda_pool_of(step->pool)->on;
    struct call c = {.step = step, .layer = &step->pool->plan->layers[layer], .index = layer, .attend = attend};
    c.launch.group = attend->n_q_heads / c.layer->plan.shape.n_kv_heads;
    describe_page(&c.layer->page[KVT_REGION_BODY], &c.launch.body);
    describe_page(&c.layer->page[KVT_REGION_TAIL], &c.launch.plain);
    c.launch.sink_head_bytes = c.layer->page[KVT_REGION_SINK].head_bytes;
    bool lse_here;
    KVT_TRY(is_here(on, attend->q.data, &c.q_here, err));
    KVT_TRY(is_here(on, attend->out, &c.out_here, err));
    KVT_TRY(is_here(on, attend->sinks, &c.sinks_here, err));
    KVT_TRY(is_here(on, attend->lse, &lse_here, err));
    if (attend->lse && lse_here != c.out_here)
        return kvt_fail(err, KVT_ERR_ARG,
                        "out and lse are in different memories: both must be the device's, or neither");
    int before;
    KVT_TRY(kvt_cuda_enter(on, &before, err));
    const enum kvt_status status = launch(&c, &own->attention, on, err);
    kvt_cuda_leave(before);
    return status;
}

enum kvt_status kvt_cuda_attention_run(struct kvt_step *step, int layer, const struct kvt_attend *attend,
                                       struct kvt_error *err) {
    struct kvt_error why;
    KVT_TRY(kvt_attention_check(step, layer, attend, err));
    KVT_TRY(kvt_pool_check(step->pool, err));
    return kvt_cuda_done(step->pool, run(step, layer, attend, &why), &why, err);
}
