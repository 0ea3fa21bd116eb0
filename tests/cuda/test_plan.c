/* SPDX-License-Identifier: Apache-2.0
 *
 * How attention on a device is cut into shares: drawn sequences, heads and blocks. Needs no device.
 */
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/attend.h"
#include "base/attr.h"
#include "base/rng.h"

enum { CASES = 3000, MAX_SEQS = 6, MAX_SHARES = 4096 };

enum { BLOCKS, ORDER, PARTS, EQUAL, PROPERTIES };
static const char *const properties[] = {"blocks", "every unit once, in order", "parts of a list", "equal shares"};
static int n_failed[PROPERTIES];

static void check(bool good, int property, int i) {
    if (!good && n_failed[property]++ < 5) printf("case %d: %s\n", i, properties[property]);
}

struct work {
    struct kvt_cuda_seq seqs[MAX_SEQS];
    int n_seqs, n_heads, group, n_columns, n_blocks;
    int cost[KVT_REGION_COUNT];
    int64_t total;
    int n_lists; /* heads of sequences times their columns' shares: what parts belong to */
};

static int below(struct kvt_rng *rng, int n) { return (int)kvt_rng_below(rng, (uint64_t)n); }

static int n_units(const struct kvt_cuda_seq *seq) {
    return seq->n_units[KVT_REGION_SINK] + seq->n_units[KVT_REGION_BODY] + seq->n_units[KVT_REGION_TAIL];
}

static int64_t cost_of(const struct work *w, const struct kvt_cuda_seq *seq, int unit) {
    if (unit < seq->n_units[KVT_REGION_BODY]) return w->cost[KVT_REGION_BODY];
    unit -= seq->n_units[KVT_REGION_BODY];
    return (int64_t)w->cost[unit < seq->n_units[KVT_REGION_SINK] ? KVT_REGION_SINK : KVT_REGION_TAIL] *
           KVT_CUDA_TIMES_SLOWER;
}

/* What a share costs beside its units. */
static int64_t begin_of(const struct work *w) {
    bool equal = true;
    for (int s = 1; s < w->n_seqs; s++) equal &= n_units(&w->seqs[s]) == n_units(&w->seqs[0]);
    const bool even = equal && (w->n_lists % w->n_blocks == 0 || w->n_blocks % w->n_lists == 0);
    return even ? 0 : (int64_t)KVT_CUDA_BEGIN_UNITS * w->cost[KVT_REGION_BODY];
}

static void draw(struct kvt_rng *rng, struct work *w) {
    *w = (struct work){.n_seqs = 1 + below(rng, MAX_SEQS), .n_heads = 1 + below(rng, 8), .group = 1 + below(rng, 8)};
    w->n_columns = below(rng, 2) ? 8 : KVT_CUDA_COLUMNS;
    w->n_blocks = 1 + below(rng, 140);
    for (int region = 0; region < KVT_REGION_COUNT; region++) w->cost[region] = 1 + below(rng, 20000);
    for (int s = 0; s < w->n_seqs; s++) {
        struct kvt_cuda_seq *seq = &w->seqs[s];
        seq->n_rows = 1 + below(rng, 8);
        for (int region = 0; region < KVT_REGION_COUNT; region++)
            seq->n_units[region] = below(rng, 3) ? below(rng, region == KVT_REGION_BODY ? 700 : 12) : 0;
        if (!n_units(seq)) seq->n_units[KVT_REGION_TAIL] = 1;
        const int lists = w->n_heads * (int)kvt_div_up(seq->n_rows * w->group, w->n_columns);
        w->n_lists += lists;
        for (int u = 0; u < n_units(seq); u++) w->total += lists * cost_of(w, seq, u);
    }
}

/* Walks the blocks in their order: shares follow one another without gaps, list by list. */
static void try_case(const struct work *w, int i) {
    static struct kvt_cuda_share shares[MAX_SHARES];
    int n_slots = 0, n_blocks = w->n_blocks;
    const int n = kvt_cuda_attend_plan(shares, w->n_lists + w->n_blocks, &n_slots, w->seqs, w->n_seqs, w->n_heads,
                                       w->group, w->n_columns, w->cost, &n_blocks);
    check(n > 0 && n_blocks >= 1 && n_blocks <= w->n_blocks, BLOCKS, i);
    if (n <= 0) return;
    int slot = 0, list = 0, at = 0, parts = 0;
    bool in_order = true, counted = true;
    const int64_t begin = begin_of(w);
    int64_t most = 0, dearest = 1;
    for (int region = 0; region < KVT_REGION_COUNT; region++)
        dearest = KVT_MAX(dearest, (int64_t)w->cost[region] * (region == KVT_REGION_BODY ? 1 : KVT_CUDA_TIMES_SLOWER));
    for (int b = 0; b < n_blocks; b++) {
        int64_t cost = 0;
        for (int k = b; k >= 0; k = shares[k].next) {
            const struct kvt_cuda_share *s = &shares[k];
            const struct kvt_cuda_seq *seq = &w->seqs[s->seq];
            in_order &= s->counter == list && s->first == at && s->end > s->first && s->end <= n_units(seq) &&
                        s->slot == slot++ && s->first_slot == s->slot - parts && (k == b || k >= w->n_blocks);
            for (int u = s->first; u < s->end; u++) cost += cost_of(w, seq, u);
            cost += begin;
            at = s->end;
            parts++;
            if (at < n_units(seq)) continue;
            counted &= s->n_parts == parts;
            list++;
            at = parts = 0;
        }
        most = KVT_MAX(most, cost);
    }
    check(in_order && list == w->n_lists && at == 0 && slot == n_slots, ORDER, i);
    check(counted, PARTS, i);
    /* A share's beginning and a rest that is not worth one of its own may come on top. */
    const int64_t total = w->total + begin * (w->n_lists + w->n_blocks);
    check(most <= kvt_div_up(total, w->n_blocks) + dearest + begin + begin / 2, EQUAL, i);
}

int main(void) {
    struct kvt_rng rng = {3};
    for (int i = 0; i < CASES; i++) {
        struct work w;
        draw(&rng, &w);
        try_case(&w, i);
    }
    int failed = 0;
    for (int p = 0; p < PROPERTIES; p++) failed += n_failed[p] > 0;
    printf("%d passed, %d failed\n", PROPERTIES - failed, failed);
    return failed != 0;
}
