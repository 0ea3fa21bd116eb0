/* SPDX-License-Identifier: Apache-2.0
 *
 * The same for 16 columns.
 */
#include "backend/cuda/attend_launch.cuh"

namespace kvt {

#define X(K, V) template cudaError_t launch_one<128, 2, K, V>(Args *, cudaStream_t);
KVT_CUDA_KNOWN_WIDE(X)
#undef X

} // namespace kvt
