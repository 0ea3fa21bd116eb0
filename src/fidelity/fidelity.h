/* SPDX-License-Identifier: Apache-2.0
 *
 * Door of fidelity: what a cache costs in quality, measured in pairs: the same model, the same tokens, a 16-bit cache and
 * the cache under test, teacher-forced.
 */
#ifndef FIDELITY_FIDELITY_H
#define FIDELITY_FIDELITY_H

#include "base/buf.h"
#include "model/model.h"

struct kvt_fidelity_options {
    const char *const *kv; /* schemes */
    int n_kv;
    int sink, tail;     /* of every scheme but the reference */
    const int32_t *ids; /* the text */
    size_t n_ids;
    int chunk;           /* tokens a chunk; a chunk scores chunk - 1 positions */
    int n_chunks;        /* at most; 0: all that fit */
    bool bos_each_chunk; /* replace each chunk's first id by BOS, as llama.cpp's perplexity tool does */
    const char *level;
    const struct kvt_parallel *parallel;
    const struct kvt_allocator *allocator;
    const struct kvt_progress *progress;
};

struct kvt_distribution {
    double mean, median, p99, max;
};

struct kvt_fidelity_row {
    const char *kv;             /* as the plan writes it */
    double bits_per_element;    /* allocated cache bytes of a whole chunk * 8 / elements stored */
    uint64_t cache_bytes;       /* allocated at the end of a chunk */
    struct kvt_distribution kl; /* KL(reference || test), nats, over positions */
    double kl_stderr;           /* standard error of the mean, by chunk; 0 for one chunk */
    double flips;               /* share of positions whose argmax differs */
    double ppl;                 /* exp of the mean negative log-likelihood */
    double seconds;             /* of the test's forward passes */
};

struct kvt_fidelity_result {
    int n_rows;
    struct kvt_fidelity_row *rows; /* in the order of options.kv; fewer if cancelled */
    int64_t n_positions;
    int n_chunks;
    double ppl_ref;
    struct kvt_allocator allocator;
    int n_rows_taken;
};

/* Runs the measurement. KL(P_ref || P_test) over the full vocabulary in double from float logits; definitions in
 * docs/fidelity.md. ARG if the text is shorter than a chunk or an id is outside the vocabulary. CANCELLED: *out has the
 * chunks done so far, if any (n_chunks 0: nothing). */
KVT_MUST_CHECK enum kvt_status kvt_fidelity_run(struct kvt_fidelity_result *out, const struct kvt_model *model,
                                                const struct kvt_fidelity_options *options, struct kvt_error *err);
void kvt_fidelity_finish(struct kvt_fidelity_result *result);

/* The mean, median, p99 (linear interpolation) and maximum of n values; sorts them in place. */
struct kvt_distribution kvt_distribution_of(double *values, size_t n);

/* KL(p || q) of two rows of logits, in nats; log-softmax in double. Also gives log p and log q of one id. */
double kvt_kl(const float *p_logits, const float *q_logits, int n, int id, double *log_p_id, double *log_q_id);

#endif
