/* SPDX-License-Identifier: Apache-2.0
 *
 * A device that is made of the process's memory (host_device.c): what is around the kernels of the backend cuda is tested with it
 * where there is no GPU, and fails when it is told to.
 */
#ifndef TESTS_CUDA_HOST_DEVICE_H
#define TESTS_CUDA_HOST_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "kvtile/status.h"

struct host_device {
    int fail_at;       /* the fail_at-th call from now on fails, and all that follow: a lost device. 0: none */
    int n_calls;       /* so far */
    size_t live, most; /* bytes of its memory that are taken; that it has: 0 is any number */
    int n_live;        /* blocks */
    bool no_blas;      /* lacks cuBLAS */
};
extern struct host_device host_device;

/* Every call that could fail passes here. */
KVT_MUST_CHECK enum kvt_status host_device_call(struct kvt_error *err);

#endif
