/* SPDX-License-Identifier: Apache-2.0
 * Weights of the oracle: a tensor as rows of doubles. */
#ifndef SUPPORT_ORACLE_WEIGHT_H
#define SUPPORT_ORACLE_WEIGHT_H

#include "gguf/gguf.h"

/* Whether kvt_oracle_row knows the type. */
bool kvt_oracle_type_known(const struct kvt_gguf_type *type);

/* Row i of a tensor (of a vector: row 0), dims[0] doubles. */
void kvt_oracle_row(double *dst, const struct kvt_gguf_tensor *tensor, int64_t i);

#endif
