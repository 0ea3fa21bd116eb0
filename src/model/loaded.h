/* SPDX-License-Identifier: Apache-2.0
 * What a loaded model is inside this folder: a mapped file, its sizes, and where its tensors are. Immutable after load. */
#ifndef MODEL_LOADED_H
#define MODEL_LOADED_H

#include <pthread.h>

#include "model/arch.h"
#include "model/model.h"

struct kvt_placed;

/* What a model gains after it is loaded. */
struct kvt_places {
    pthread_mutex_t lock;
    struct kvt_placed *first;  /* devices that have the weights too (place.h) */
    struct kvt_weight *output; /* the model's, which gets a packed form like those of the layers (pack.h) */
    unsigned char *packed;     /* NULL: not yet, or none */
    size_t packed_bytes;
};

struct kvt_model {
    struct kvt_allocator allocator;
    struct kvt_gguf *gguf;
    struct kvt_text *text;
    const struct kvt_arch *arch;
    struct kvt_config config;
    struct kvt_rope rope;

    struct kvt_weight embedding; /* n_vocab rows of width */
    struct kvt_weight output;    /* the embedding again where the file has none of its own */
    const float *output_norm;
    const float *rope_factors;      /* NULL: none */
    struct kvt_layer *layers;       /* config.n_layers */
    struct kvt_layer_shape *shapes; /* of the cache */
    struct kvt_arena arena;         /* layers, shapes, vectors, frequencies, strings */

    struct kvt_places *places;

    struct kvt_model_info info;
    char types[160];
};

/* Elements of a vector, or of a matrix's side; l may be NULL where the dim is not a layer's. */
int64_t kvt_dim_size(const struct kvt_config *c, const struct kvt_layer_config *l, enum kvt_dim dim);

/* Finds every tensor of the architecture, checks its shape against config, and copies vectors into the arena as floats.
 * FORMAT names the tensor that is missing, of another shape, or not one of the architecture's. */
KVT_MUST_CHECK enum kvt_status kvt_model_bind(struct kvt_model *model, struct kvt_error *err);

#endif
