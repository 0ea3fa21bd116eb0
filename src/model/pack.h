/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights in the order in which the processor multiplies them fast (kvt_weight_pack). Made once for all runners of the process, when the
 * first of them wants it; it stays as long as the model. The file's bytes are then needed for rows alone, and their memory is given back.
 */
#ifndef MODEL_PACK_H
#define MODEL_PACK_H

#include "model/loaded.h"

/* Under the lock of m->places; nothing where it was done before. NOMEM, CANCELLED. */
KVT_MUST_CHECK enum kvt_status kvt_model_pack(const struct kvt_model *m, const struct kvt_parallel *parallel,
                                              const struct kvt_progress *progress, struct kvt_error *err);
/* With the model. */
void kvt_model_unpack(const struct kvt_model *m);

#endif
