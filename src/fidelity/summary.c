/* SPDX-License-Identifier: Apache-2.0
 * What many scores come to. */
#include <math.h>

#include "base/check.h"
#include "fidelity/inside.h"

static void add_worst(struct kvt_fidelity_row *row, int chunk, int position, const struct kvt_score *score) {
    struct kvt_fidelity_position *worst = row->worst;
    if (row->n_worst == KVT_FIDELITY_WORST && score->kl <= worst[KVT_FIDELITY_WORST - 1].score.kl) return;
    if (row->n_worst < KVT_FIDELITY_WORST) row->n_worst++;
    int at = row->n_worst - 1;
    for (; at > 0 && worst[at - 1].score.kl < score->kl; at--) worst[at] = worst[at - 1];
    worst[at] = (struct kvt_fidelity_position){chunk, position, *score};
}

static void mean_by_depth(double *depth, const struct kvt_score *scores, int n_chunks, int n) {
    for (int k = 0; k < KVT_FIDELITY_DEPTHS; k++) {
        const int first = n * k / KVT_FIDELITY_DEPTHS, last = n * (k + 1) / KVT_FIDELITY_DEPTHS;
        double sum = 0;
        for (int c = 0; c < n_chunks; c++)
            for (int i = first; i < last; i++) sum += scores[(ptrdiff_t)c * n + i].kl;
        depth[k] = last > first ? sum / ((double)(last - first) * n_chunks) : NAN;
    }
}

/* What takes no memory; a chunk's mean goes to means. */
static void add_up(struct kvt_fidelity_row *row, double *means, const struct kvt_score *scores, int n_chunks, int n) {
    const double n_all = (double)n_chunks * n;
    double nll = 0, change = 0, squares = 0;
    int64_t flips = 0;
    row->n_worst = 0;
    for (int c = 0; c < n_chunks; c++) {
        means[c] = 0;
        for (int i = 0; i < n; i++) {
            const struct kvt_score *s = &scores[(ptrdiff_t)c * n + i];
            const double step = (double)s->p - s->p_ref;
            means[c] += s->kl / n;
            nll += s->nll;
            flips += kvt_score_flips(s);
            change += step;
            squares += step * step;
            add_worst(row, c, i, s);
        }
    }
    row->flips = (double)flips / n_all;
    row->ppl = exp(nll / n_all);
    row->top_change = change / n_all;
    row->top_rms = sqrt(squares / n_all);
}

enum kvt_status kvt_fidelity_summarise(struct kvt_fidelity_row *row, const struct kvt_score *scores, int n_chunks,
                                       int n, const struct kvt_allocator *allocator, struct kvt_error *err) {
    const struct kvt_allocator a = kvt_allocator_or_default(allocator);
    const size_t n_all = (size_t)n_chunks * (size_t)n, n_values = n_all + (size_t)n_chunks;
    double *values = kvt_take(&a, n_values, sizeof *values);
    if (!values) return kvt_fail(err, KVT_ERR_NOMEM, "not enough memory to sort %zu positions", n_all);
    double *means = values + n_all;
    for (size_t i = 0; i < n_all; i++) values[i] = scores[i].kl;
    mean_by_depth(row->kl_depth, scores, n_chunks, n);
    add_up(row, means, scores, n_chunks, n);
    row->kl = kvt_distribution_of(values, n_all);
    row->kl_stderr = kvt_standard_error(means, (size_t)n_chunks);
    row->kl_ci = kvt_bootstrap_mean(means, (size_t)n_chunks);
    kvt_give(&a, values, n_values, sizeof *values);
    return KVT_OK;
}

double kvt_fidelity_ppl_ref(const struct kvt_score *scores, size_t n) {
    double nll = 0;
    for (size_t i = 0; i < n; i++) nll += scores[i].nll_ref;
    return exp(nll / (double)n);
}
