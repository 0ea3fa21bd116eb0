/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sequence of a cache must hold, kept as plain arrays: each row's value in 16 bits, and what the codec makes of it once it is
 * in the body. Knows nothing of pages but when they are dropped.
 */
#ifndef SUPPORT_CACHE_MODEL_H
#define SUPPORT_CACHE_MODEL_H

#include "kvtile/cache.h"

enum { MODEL_MAX_LAYERS = 4 };

/* One layer's row, K then V, of all heads: as it was in 16 bits, and as the body decodes. */
struct model_layer {
    float *wide, *body;
    bool *is_wide; /* the cache still has the row in 16 bits */
    bool *is_gone; /* it was dropped with its page */
};

struct model_seq {
    int64_t n_rows, max_rows;
    struct model_layer layers[MODEL_MAX_LAYERS];
};

/* False if memory is out. */
bool model_init(struct model_seq *m, const struct kvt_plan *plan, int64_t max_rows);
void model_finish(struct model_seq *m);
void model_copy(struct model_seq *to, const struct model_seq *from, const struct kvt_plan *plan);

/* Elements of one row in these arrays, and where a side and head begin in it. */
int model_row_size(const struct kvt_plan *plan, int layer);
int model_row_at(const struct kvt_plan *plan, int layer, enum kvt_side side, int head);

/* Appends n rows; rows[layer] is n times model_row_size of them. The sides must be kept in f16 while they are not encoded. */
void model_append(struct model_seq *m, const struct kvt_plan *plan, const float *const *rows, int n);
/* What kvt_seq_trim must answer and do. */
enum kvt_status model_trim(struct model_seq *m, const struct kvt_plan *plan, int64_t n_rows, bool *exact);
void model_clear(struct model_seq *m);

/* The first row past the sink that the newest query sees. */
int64_t model_first_row(const struct kvt_layer_plan *plan, int64_t n_rows);
/* The value of row r, as the cache must decode it now: model_row_size elements. */
const float *model_row(const struct model_seq *m, const struct kvt_plan *plan, int layer, int64_t r);

#endif
