/* SPDX-License-Identifier: Apache-2.0
 *
 * test_compute without a GPU: the kernels run on the processor (on_host.h).
 */
#undef _FORTIFY_SOURCE /* it takes the change of a thread for a mistake */
#include "cuda/on_host.h"

#include "backend/cuda/compute.cu"
#include "cuda/test_compute.cu"
