/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention by kernels that know what codes they read: for the usual heads, and few columns.
 */
#include "backend/cuda/attend_launch.cuh"

namespace kvt {

#define X(K, V) template cudaError_t launch_one<128, 1, K, V>(Args *, cudaStream_t);
KVT_CUDA_KNOWN(X)
#undef X

template bool knows_codes<1>(const Args &);
template bool knows_codes<2>(const Args &);

} // namespace kvt
