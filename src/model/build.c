/* SPDX-License-Identifier: Apache-2.0
 * What the engine was built with, for those who may not look below it. */
#include "model/model.h"
#include "weight/weight.h"

const char *kvt_model_blas_name(void) { return kvt_weight_blas_name(); }
