/* SPDX-License-Identifier: Apache-2.0
 *
 * Cutting attention into shares. All units lie in one list, sequence by sequence, head by head, columns by columns; block i takes an equal
 * share of what it costs to read them. Where blocks are a multiple of heads of equal length, each head has so many blocks to itself.
 */
#include "backend/cuda/attend.h"
#include "base/attr.h"

enum { FEWEST_UNITS = 4 }; /* of a block */

struct plan {
    struct kvt_cuda_share *shares;
    int max_shares, n_shares;
    int n_blocks, block, last; /* the block that is being filled, and its latest share or -1 */
    int64_t total, done, end;  /* cost: of all, so far, and where the block's share ends */
    int64_t begin;             /* what a share costs beside its units */
    int blocks_of_head;        /* that it has to itself; 0: blocks go on with the next head */
    int n_slots;
};

/* An equal share of what is left. */
static void begin_block(struct plan *plan) {
    plan->last = -1;
    plan->end = plan->done + kvt_div_up(plan->total - plan->done, plan->n_blocks - plan->block);
}

/* A share of the block that is being filled: its first is at the block's own number. -1 if there is no room. */
static int new_share(struct plan *plan) {
    int at = plan->block;
    if (plan->last >= 0) {
        if (plan->n_shares == plan->max_shares) return -1;
        at = plan->n_shares++;
        plan->shares[plan->last].next = at;
    }
    plan->done += plan->begin;
    return plan->last = at;
}

static int n_units(const struct kvt_cuda_seq *seq) {
    int n = 0;
    for (int region = 0; region < KVT_REGION_COUNT; region++) n += seq->n_units[region];
    return n;
}

static int unit_cost(const struct kvt_cuda_seq *seq, int unit, const int cost[KVT_REGION_COUNT]) {
    if (unit < seq->n_units[KVT_REGION_BODY]) return cost[KVT_REGION_BODY];
    unit -= seq->n_units[KVT_REGION_BODY];
    return cost[unit < seq->n_units[KVT_REGION_SINK] ? KVT_REGION_SINK : KVT_REGION_TAIL] * KVT_CUDA_TIMES_SLOWER;
}

static int64_t head_cost(const struct kvt_cuda_seq *seq, const int cost[KVT_REGION_COUNT]) {
    int64_t all = 0;
    for (int region = 0; region < KVT_REGION_COUNT; region++)
        all += (int64_t)seq->n_units[region] * cost[region] * (region == KVT_REGION_BODY ? 1 : KVT_CUDA_TIMES_SLOWER);
    return all;
}

/* Units from `at` on that go to this block; body units, all of one cost, at once. */
static int take_units(struct plan *plan, const struct kvt_cuda_seq *seq, int at, const int cost[KVT_REGION_COUNT]) {
    const int first = at, end = n_units(seq), body = seq->n_units[KVT_REGION_BODY], each = cost[KVT_REGION_BODY];
    if (at < body) {
        int n = (int)KVT_MIN(kvt_div_up(KVT_MAX(plan->end - plan->done, 1), each), body - at);
        if (2 * (int64_t)(body - at - n) * each < plan->begin) n = body - at; /* the rest is not worth a share */
        at += n;
        plan->done += (int64_t)n * each;
    }
    for (; at >= body && at < end && (at == first || plan->done < plan->end); at++)
        plan->done += unit_cost(seq, at, cost);
    return at - first;
}

/* Units from `at` on of a head go to a share, as the head's next part; returns where they end. */
static int put_part(struct plan *plan, int share, const struct kvt_cuda_share *what, int at, int n, int first_slot) {
    plan->shares[share] = *what;
    plan->shares[share].first = at;
    plan->shares[share].end = at + n;
    plan->shares[share].next = -1;
    plan->shares[share].slot = plan->n_slots++;
    plan->shares[share].first_slot = first_slot;
    return at + n;
}

/* All units of a head: parts of it go to this block and those after it. A part that is not the first begins its block, and so lies at the
 * block's number. */
static bool add_head(struct plan *plan, const struct kvt_cuda_seq *seq, const struct kvt_cuda_share *what,
                     const int cost[KVT_REGION_COUNT]) {
    const int end = n_units(seq), first_slot = plan->n_slots;
    int first_share = -1, first_block = 0;
    for (int at = 0; at < end;) {
        if (plan->last >= 0 && plan->done + plan->begin >= plan->end && plan->block + 1 < plan->n_blocks) {
            plan->block++;
            begin_block(plan);
        }
        const int i = new_share(plan), n = i < 0 ? 0 : take_units(plan, seq, at, cost);
        if (i < 0) return false;
        if (first_share < 0) first_share = i, first_block = plan->block;
        at = put_part(plan, i, what, at, n, first_slot);
    }
    const int n_parts = plan->n_slots - first_slot;
    plan->shares[first_share].n_parts = n_parts;
    for (int b = first_block + 1; b <= plan->block; b++) plan->shares[b].n_parts = n_parts;
    return true;
}

/* The same where the head has blocks to itself: each takes an equal share of what is left of it, and a unit at least. */
static void add_head_alone(struct plan *plan, const struct kvt_cuda_seq *seq, const struct kvt_cuda_share *what,
                           const int cost[KVT_REGION_COUNT]) {
    const int end = n_units(seq), n_parts = plan->blocks_of_head, first_slot = plan->n_slots;
    int64_t left = head_cost(seq, cost);
    for (int part = 0, at = 0; part < n_parts; part++) {
        if (plan->last >= 0) plan->block++, plan->last = -1;
        const int i = new_share(plan), others = n_parts - part - 1;
        const int64_t before = plan->done;
        plan->end = before + kvt_div_up(left, others + 1);
        const int taken = take_units(plan, seq, at, cost), n = others ? KVT_MIN(taken, end - others - at) : end - at;
        left -= plan->done - before;
        at = put_part(plan, i, what, at, n, first_slot);
        plan->shares[i].n_parts = n_parts;
    }
}

/* Whether blocks can take whole heads, or heads whole blocks. */
static bool is_even(const struct kvt_cuda_seq *seqs, int n_seqs, int n_counters, int n_blocks) {
    for (int s = 1; s < n_seqs; s++)
        if (n_units(&seqs[s]) != n_units(seqs)) return false;
    return n_counters % n_blocks == 0 || n_blocks % n_counters == 0;
}

int kvt_cuda_attend_plan(struct kvt_cuda_share *shares, int max_shares, int *n_slots, const struct kvt_cuda_seq *seqs,
                         int n_seqs, int n_heads, int group, int n_columns, const int cost[KVT_REGION_COUNT],
                         int *n_blocks) {
    struct plan plan = {.shares = shares, .max_shares = max_shares, .n_shares = *n_blocks, .n_blocks = *n_blocks};
    if (*n_blocks > max_shares) return -1;
    int n_counters = 0;
    for (int s = 0; s < n_seqs; s++) {
        const int n = n_heads * (int)kvt_div_up(seqs[s].n_rows * group, n_columns);
        n_counters += n;
        plan.total += head_cost(&seqs[s], cost) * n;
    }
    if (!is_even(seqs, n_seqs, n_counters, *n_blocks))
        plan.begin = (int64_t)KVT_CUDA_BEGIN_UNITS * cost[KVT_REGION_BODY];
    else if (*n_blocks >= n_counters && n_units(seqs) >= *n_blocks / n_counters)
        plan.blocks_of_head = *n_blocks / n_counters;
    plan.total += plan.begin * (n_counters + *n_blocks);
    begin_block(&plan);
    int counter = 0;
    for (int s = 0; s < n_seqs; s++)
        for (int head = 0; head < n_heads; head++)
            for (int column = 0; column < seqs[s].n_rows * group; column += n_columns) {
                const struct kvt_cuda_share what = {.seq = s,
                                                    .head = head,
                                                    .row = seqs[s].row,
                                                    .n_rows = seqs[s].n_rows,
                                                    .column = column,
                                                    .counter = counter++};
                if (plan.blocks_of_head)
                    add_head_alone(&plan, &seqs[s], &what, cost);
                else if (!add_head(&plan, &seqs[s], &what, cost))
                    return -1;
            }
    *n_slots = plan.n_slots;
    *n_blocks = plan.block + 1;
    return plan.n_shares;
}

int kvt_cuda_attend_blocks(const struct kvt_cuda_seq *seqs, int n_seqs, int n_heads, int n_counters,
                           int n_multiprocessors) {
    int64_t units = 0;
    for (int s = 0; s < n_seqs; s++) units += (int64_t)n_units(&seqs[s]) * n_heads;
    const int most = (int)KVT_MAX(1, KVT_MIN(n_multiprocessors, units / FEWEST_UNITS));
    for (int n = most; n >= most - most / 10; n--)
        if (n > 0 && is_even(seqs, n_seqs, n_counters, n)) return n;
    return most;
}
