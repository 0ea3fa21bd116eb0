/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over a cache: online softmax over the tiles of sink, body and tail (Milakov and Gimelshein 2018; tiles as in
 * FlashAttention, Dao et al. 2022). Scores are never materialised beyond a tile. All query heads of one KV head share each
 * tile's read. The context is cut at fixed positions, not by thread count: the same bits for any number of threads.
 */
#ifndef KVTILE_ATTENTION_H
#define KVTILE_ATTENTION_H

#include "kvtile/cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One layer's attention. All pointers are borrowed during the call. */
struct kvt_attend {
    size_t struct_size; /* sizeof(struct kvt_attend) */
    int n_q_heads; /* a multiple of the layer's KV heads; query head h reads KV head h / (n_q_heads / n_kv_heads) */
    float scale;   /* of the scores, usually 1 / sqrt(k_size) */
    float softcap; /* scores become softcap * tanh(score / softcap); 0: none */
    const float *sinks; /* per query head one logit that joins the softmax and has no value; NULL: none */
    struct kvt_rows q;  /* the step's query rows, sequences one after another, k_size elements a row */
    float *out;         /* row r, query head h at out + r * out_row_stride + h * out_head_stride; v_size elements */
    ptrdiff_t out_row_stride, out_head_stride;
    float *lse; /* NULL, or the natural log-sum-exp of the scores, row r, head h at lse[r * n_q_heads + h] */
};

/* Attends for all rows of a step, after kvt_step_append of that layer. Each query at position p sees rows [0, p], through
 * the layer's window, each row as it is stored after p + 1 rows. A query with no row to see cannot happen: it sees itself.
 *
 * STATE where no step is begun or the layer has no rows of it yet; ARG for a shape that does not fit the layer's; NOMEM for room that the
 * first calls of a step object take and it keeps. On "cuda" out and lse may lie in the device's memory, both or neither: there they are ready in
 * the order of the pool's stream, in the process's memory when the call returns. DEVICE where it fails. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_step_attend(struct kvt_step *step, int layer,
                                                       const struct kvt_attend *attend, struct kvt_error *err);

#ifdef __cplusplus
}
#endif
#endif
