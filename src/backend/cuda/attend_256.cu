/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over heads of 256.
 */
#include "backend/cuda/attend_launch.cuh"

KVT_CUDA_ATTEND_SIZE(256)
