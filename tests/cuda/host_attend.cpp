/* SPDX-License-Identifier: Apache-2.0
 *
 * test_attend without a GPU: attention over tiles of any kind runs on the processor (on_host.h), over the memory of host_device.c.
 */
#undef _FORTIFY_SOURCE /* it takes the change of a thread for a mistake */
#include "cuda/on_host.h"

#include "backend/cuda/attend_any.cu"

struct kvt_cuda_cut kvt_cuda_attend_cut(const struct kvt_cuda_page *body, const struct kvt_cuda_page *plain,
                                        int n_columns) {
    (void)plain;
    return {{KVT_CUDA_PLAIN_ROWS, KVT_CUDA_PLAIN_ROWS, KVT_CUDA_PLAIN_ROWS},
            kvt_cuda_attend_any_blocks(body, n_columns)};
}

enum kvt_status kvt_cuda_attend_launch(const struct kvt_cuda_attend *attend, void *stream, struct kvt_error *err) {
    return kvt_cuda_attend_any_launch(attend, stream, err);
}
