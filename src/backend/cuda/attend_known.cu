/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention by kernels that know what codes they read: for the usual heads, and few columns.
 */
#include "backend/cuda/attend_launch.cuh"

namespace kvt {

#define X(keys, values) template cudaError_t launch_one<128, 1, keys, values>(Args *, cudaStream_t);
KVT_CUDA_KNOWN(X)
#undef X
#define X(keys, values) template cudaError_t launch_one<128, 2, keys, values>(Args *, cudaStream_t);
KVT_CUDA_KNOWN_WIDE(X)
#undef X

} // namespace kvt
