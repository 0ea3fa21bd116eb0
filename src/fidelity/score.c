/* SPDX-License-Identifier: Apache-2.0
 * The numbers: one position's score and what is said about many. */
#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/rng.h"
#include "fidelity/fidelity.h"

/* Index of the first of the largest logits. */
static int first_max(const float *logits, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* With a and b the logits less their maxima, A = sum exp a and B = sum exp b:
 *     KL = sum (exp a / A) ((a - log A) - (b - log B)) = (sum exp a (a - b)) / A - log A + log B.
 * A NaN among the logits makes both sums NaN or one of them, and so the KL. */
struct kvt_score kvt_score_position(const float *ref, const float *test, int n, int32_t next) {
    KVT_ASSERT(n > 0 && next >= 0 && next < n);
    const int top_ref = first_max(ref, n), top = first_max(test, n);
    const double max_ref = ref[top_ref], max_test = test[top];
    double sum_ref = 0, sum_test = 0, cross = 0;
    for (int i = 0; i < n; i++) {
        const double a = ref[i] - max_ref, b = test[i] - max_test;
        const double weight = exp(a);
        sum_ref += weight;
        sum_test += exp(b);
        if (weight > 0) cross += weight * (a - b);
    }
    const double log_ref = log(sum_ref), log_test = log(sum_test);
    return (struct kvt_score){
        .kl = cross / sum_ref - log_ref + log_test,
        .nll_ref = log_ref - (ref[next] - max_ref),
        .nll = log_test - (test[next] - max_test),
        .top_ref = top_ref,
        .top = top,
        .p_ref = (float)(1 / sum_ref),
        .p = (float)(exp(test[top_ref] - max_test) / sum_test),
    };
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value at rank q (n - 1) of sorted values. */
static double percentile(const double *sorted, size_t n, double q) {
    const double rank = q * (double)(n - 1);
    const size_t i = (size_t)rank;
    const double part = rank - (double)i;
    if (part == 0 || sorted[i] == sorted[i + 1]) return sorted[i]; /* infinities do not become NaN */
    return sorted[i] + part * (sorted[i + 1] - sorted[i]);
}

const double kvt_tail_ranks[KVT_TAIL_POINTS] = {0.5,   0.75,   0.9,   0.95,   0.975,  0.99,
                                                0.995, 0.9975, 0.999, 0.9995, 0.9999, 1};

struct kvt_distribution kvt_distribution_of(double *values, size_t n) {
    KVT_ASSERT(n > 0);
    qsort(values, n, sizeof *values, compare);
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += values[i];
    struct kvt_distribution d = {
        .mean = sum / (double)n,
        .median = percentile(values, n, 0.5),
        .p99 = percentile(values, n, 0.99),
        .p999 = percentile(values, n, 0.999),
        .max = values[n - 1],
    };
    for (int i = 0; i < KVT_TAIL_POINTS; i++) d.tail[i] = percentile(values, n, kvt_tail_ranks[i]);
    return d;
}

double kvt_standard_error(const double *means, size_t n) {
    if (n < 2) return 0;
    double mean = 0, squares = 0;
    for (size_t i = 0; i < n; i++) mean += means[i] / (double)n;
    for (size_t i = 0; i < n; i++) squares += (means[i] - mean) * (means[i] - mean);
    return sqrt(squares / (double)(n - 1) / (double)n);
}

struct kvt_interval kvt_bootstrap_mean(const double *means, size_t n) {
    enum { DRAWS = 2000 };
    double drawn[DRAWS];
    struct kvt_rng rng = {1};
    if (n < 2) return (struct kvt_interval){NAN, NAN};
    for (int i = 0; i < DRAWS; i++) {
        drawn[i] = 0;
        for (size_t j = 0; j < n; j++) drawn[i] += means[kvt_rng_below(&rng, n)] / (double)n;
    }
    qsort(drawn, DRAWS, sizeof *drawn, compare);
    return (struct kvt_interval){percentile(drawn, DRAWS, 0.025), percentile(drawn, DRAWS, 0.975)};
}
