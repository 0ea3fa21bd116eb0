/* SPDX-License-Identifier: Apache-2.0
 *
 * A model's weights in the memory of a device: matrices as f16, vectors as they are. Brought there once for each device and shared by all
 * runners on it; they stay as long as the model.
 */
#ifndef MODEL_PLACE_H
#define MODEL_PLACE_H

#include "backend/backend.h"
#include "model/loaded.h"

/* The weights on one device. Immutable once it is there. */
struct kvt_placed {
    const struct kvt_compute_ops *ops;
    struct kvt_compute *compute; /* that holds the memory */
    int device;
    char *memory;
    uint64_t bytes;
    struct kvt_placed_tensor *tensors; /* by host address */
    size_t n_tensors;
    struct kvt_placed *next;
};

/* A matrix (n_out > 0) or a vector of n_in floats; `host` is where it is in the process: kvt_weight.data, or the vector. */
struct kvt_placed_tensor {
    const void *host;
    const struct kvt_weight *weight; /* NULL: a vector */
    struct kvt_compute_matrix matrix;
    const float *vector;
    int64_t n;
    size_t at; /* bytes from the memory's beginning */
};

/* NULL in *out where the backend computes in the process: the weights are then packed. See kvt_model_place. */
KVT_MUST_CHECK enum kvt_status kvt_placed_find(const struct kvt_placed **out, const struct kvt_model *model,
                                               struct kvt_place place, const struct kvt_parallel *parallel,
                                               const struct kvt_progress *progress, struct kvt_error *err);

/* Of a weight or vector of the model. */
const struct kvt_compute_matrix *kvt_placed_matrix(const struct kvt_placed *placed, const struct kvt_weight *w);
const float *kvt_placed_vector(const struct kvt_placed *placed, const float *host); /* NULL for NULL */

/* With the model. */
void kvt_placed_destroy(const struct kvt_model *model);

#endif
