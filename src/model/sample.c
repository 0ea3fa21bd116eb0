/* SPDX-License-Identifier: Apache-2.0
 *
 * Sampling. All three cuts keep a prefix of the tokens in order of their logits, so only that prefix is ever sorted: a
 * histogram over the distance from the largest logit finds a bucket that surely holds the last token kept, and what lies
 * in it or nearer is gathered and sorted. Two or three simple passes over the vocabulary.
 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/half.h"
#include "base/rng.h"
#include "model/model.h"
#include "model/ops.h"

enum { DIGIT_BITS = 11, N_BUCKETS = 1 << DIGIT_BITS, BUCKETS_PER_NAT = 64 }; /* 32 nats; the rest in the last */

/* A token with its logit as an integer that is smaller for a larger logit: in ascending order the best come first. */
struct candidate {
    uint32_t rank;
    int32_t id;
};

struct kvt_sampler {
    struct kvt_sample_options options;
    struct kvt_allocator allocator;
    struct kvt_rng rng;
    int n_vocab;
    float *weight; /* n_vocab: exp(logit - max) of tokens, then of candidates */
    struct candidate *candidates, *sorted;
    double mass[N_BUCKETS]; /* of the tokens in a bucket */
    uint32_t count[N_BUCKETS];
};

static uint32_t rank_of(float logit) {
    if (isnan(logit)) return UINT32_MAX;
    const uint32_t bits = kvt_f32_bits(logit + 0.0f); /* -0 becomes 0 */
    return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}

static float logit_of(uint32_t rank) {
    if (rank == UINT32_MAX) return -INFINITY;
    return kvt_f32_from_bits(rank & 0x80000000u ? rank : ~rank & 0x7FFFFFFFu);
}

static int bucket_of(float logit, float max) {
    const float distance = (max - logit) * BUCKETS_PER_NAT;
    return distance < N_BUCKETS - 1 ? (int)distance : N_BUCKETS - 1; /* a NaN's too */
}

static enum kvt_status check_options(const struct kvt_sample_options *o, int n_vocab, struct kvt_error *err) {
    if (!(o->temp >= 0 && o->temp <= 1e6f))
        return kvt_fail(err, KVT_ERR_ARG, "temperature %g is not in 0 (greedy) to 1e6", (double)o->temp);
    if (o->top_k < 0) return kvt_fail(err, KVT_ERR_ARG, "top-k %d is negative; 0 turns it off", o->top_k);
    if (!(o->top_p > 0 && o->top_p <= 1))
        return kvt_fail(err, KVT_ERR_ARG, "top-p %g is not above 0 and at most 1, which turns it off",
                        (double)o->top_p);
    if (!(o->min_p >= 0 && o->min_p <= 1))
        return kvt_fail(err, KVT_ERR_ARG, "min-p %g is not in 0, which turns it off, to 1", (double)o->min_p);
    if (n_vocab < 1) return kvt_fail(err, KVT_ERR_ARG, "there is nothing to sample from a vocabulary of %d", n_vocab);
    return KVT_OK;
}

enum kvt_status kvt_sampler_create(struct kvt_sampler **out, const struct kvt_sample_options *options, int n_vocab,
                                   const struct kvt_allocator *allocator, struct kvt_error *err) {
    KVT_TRY(check_options(options, n_vocab, err));
    const struct kvt_allocator a = kvt_allocator_or_default(allocator);
    struct kvt_sampler *s = kvt_take_zero(&a, 1, sizeof *s);
    if (!s) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for a sampler");
    s->options = *options;
    s->allocator = a;
    s->rng.state = options->seed;
    s->n_vocab = n_vocab;
    s->weight = kvt_take(&a, (size_t)n_vocab, sizeof *s->weight);
    s->candidates = kvt_take(&a, (size_t)n_vocab, sizeof *s->candidates);
    s->sorted = kvt_take(&a, (size_t)n_vocab, sizeof *s->sorted);
    if (!s->weight || !s->candidates || !s->sorted) {
        kvt_sampler_destroy(s);
        return kvt_fail(err, KVT_ERR_NOMEM, "no memory to sample from %d tokens", n_vocab);
    }
    *out = s;
    return KVT_OK;
}

void kvt_sampler_destroy(struct kvt_sampler *s) {
    if (!s) return;
    kvt_give(&s->allocator, s->weight, (size_t)s->n_vocab, sizeof *s->weight);
    kvt_give(&s->allocator, s->candidates, (size_t)s->n_vocab, sizeof *s->candidates);
    kvt_give(&s->allocator, s->sorted, (size_t)s->n_vocab, sizeof *s->sorted);
    kvt_give(&s->allocator, s, 1, sizeof *s);
}

/* The first of the largest logits; 0 if all are NaN. Lanes, so that the long loop vectorises. */
static int argmax(const float *logits, int n) {
    enum { LANES = 16 };
    float lane[LANES], max = -INFINITY;
    int i = 0;
    for (int j = 0; j < LANES; j++) lane[j] = max;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] = logits[i + j] > lane[j] ? logits[i + j] : lane[j];
    for (; i < n; i++) lane[0] = logits[i] > lane[0] ? logits[i] : lane[0];
    for (int j = 0; j < LANES; j++) max = lane[j] > max ? lane[j] : max;
    for (i = 0; i < n; i++)
        if (logits[i] == max) return i;
    return 0;
}

/* Least-significant-digit radix sort by rank, which keeps the order of equal ranks: ids as they were gathered. */
static void sort(struct kvt_sampler *s, int n) {
    for (int shift = 0; shift < 32; shift += DIGIT_BITS) {
        uint32_t *start = s->count, sum = 0;
        memset(start, 0, sizeof s->count);
        for (int i = 0; i < n; i++) start[s->candidates[i].rank >> shift & (N_BUCKETS - 1)]++;
        for (int b = 0; b < N_BUCKETS; b++) {
            const uint32_t here = start[b];
            start[b] = sum;
            sum += here;
        }
        for (int i = 0; i < n; i++)
            s->sorted[start[s->candidates[i].rank >> shift & (N_BUCKETS - 1)]++] = s->candidates[i];
        struct candidate *const swap = s->candidates;
        s->candidates = s->sorted;
        s->sorted = swap;
    }
}

/* The bucket that holds the last token that top_k keeps. */
static int last_of_top_k(struct kvt_sampler *s, const float *logits, float max) {
    memset(s->count, 0, sizeof s->count);
    for (int i = 0; i < s->n_vocab; i++) s->count[bucket_of(logits[i], max)]++;
    int last = 0;
    for (uint32_t sum = s->count[0]; sum < (uint32_t)s->options.top_k && last < N_BUCKETS - 1;) sum += s->count[++last];
    return last;
}

/* The bucket that holds the last token that top_p keeps of all; *out_mass is the sum of all weights. */
static int last_of_top_p(struct kvt_sampler *s, const float *logits, float max, double *out_mass) {
    double mass = 0;
    for (int b = 0; b < N_BUCKETS; b++) s->mass[b] = 0;
    kvt_exp_below(s->weight, logits, s->n_vocab, max, 1);
    for (int i = 0; i < s->n_vocab; i++) s->mass[bucket_of(logits[i], max)] += (double)s->weight[i];
    for (int b = 0; b < N_BUCKETS; b++) mass += s->mass[b];
    int last = 0;
    for (double sum = s->mass[0]; sum < (double)s->options.top_p * mass && last < N_BUCKETS - 1;)
        sum += s->mass[++last];
    *out_mass = mass;
    return last;
}

/* Gathers the tokens of buckets up to last, in order of id; returns how many. */
static int gather(struct kvt_sampler *s, const float *logits, float max, int last) {
    int n = 0;
    for (int i = 0; i < s->n_vocab; i++)
        if (bucket_of(logits[i], max) <= last) s->candidates[n++] = (struct candidate){rank_of(logits[i]), i};
    return n;
}

/* Sorts out the candidates that top_k, top_p and min_p leave, best first; returns how many, at least 1. */
static int cut(struct kvt_sampler *s, const float *logits, float max) {
    const struct kvt_sample_options *o = &s->options;
    double mass = 0, sum = 0;
    int last = N_BUCKETS - 1;
    if (o->top_k > 0)
        last = last_of_top_k(s, logits, max);
    else if (o->top_p < 1)
        last = last_of_top_p(s, logits, max, &mass);
    if (o->top_k == 0 && o->min_p > 0) last = KVT_MIN(last, bucket_of(logf(o->min_p), 0) + 1);
    int n = gather(s, logits, max, last);
    sort(s, n);
    if (o->top_k > 0) n = KVT_MIN(n, o->top_k);
    for (int i = 0; i < n; i++) s->weight[i] = logit_of(s->candidates[i].rank);
    kvt_exp_below(s->weight, s->weight, n, max, 1);
    for (int i = 0; o->top_k > 0 && i < n; i++) mass += (double)s->weight[i];
    for (int i = 0; o->top_p < 1 && i < n; i++) {
        sum += (double)s->weight[i];
        if (sum >= (double)o->top_p * mass) n = i + 1;
    }
    while (n > 1 && s->weight[n - 1] < o->min_p) n--;
    return n;
}

/* An index below n with probability weight[i] / sum of weights. */
static int draw(struct kvt_rng *rng, const float *weight, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)weight[i];
    double left = kvt_rng_unit(rng) * sum;
    int last = 0;
    for (int i = 0; i < n; i++) {
        if (weight[i] <= 0) continue;
        last = i;
        left -= (double)weight[i];
        if (left < 0) break;
    }
    return last;
}

int kvt_sampler_pick(struct kvt_sampler *s, const float *logits) {
    const struct kvt_sample_options *o = &s->options;
    const int best = argmax(logits, s->n_vocab);
    const float max = logits[best];
    if (o->temp == 0 || !isfinite(max)) return best;
    const float scale = KVT_MIN(1 / o->temp, 1e30f);
    if (o->top_k == 0 && o->top_p >= 1 && o->min_p == 0) {
        kvt_exp_below(s->weight, logits, s->n_vocab, max, scale);
        return draw(&s->rng, s->weight, s->n_vocab);
    }
    const int n = cut(s, logits, max);
    for (int i = 0; i < n; i++) s->weight[i] = logit_of(s->candidates[i].rank);
    kvt_exp_below(s->weight, s->weight, n, max, scale);
    return s->candidates[draw(&s->rng, s->weight, n)].id;
}

uint64_t kvt_sampler_state(const struct kvt_sampler *s) { return s->rng.state; }
void kvt_sampler_set_state(struct kvt_sampler *s, uint64_t state) { s->rng.state = state; }
