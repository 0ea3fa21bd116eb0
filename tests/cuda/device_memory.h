/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of a device for tests that also run without one: taken once, handed out in order, all given back together.
 */
#ifndef TESTS_CUDA_DEVICE_MEMORY_H
#define TESTS_CUDA_DEVICE_MEMORY_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#endif

struct device_memory {
    char *at;
    size_t bytes, used;
};

#if defined(__CUDACC__)
static inline void device_try(cudaError_t status, const char *what) {
    if (status == cudaSuccess) return;
    printf("%s: %s\n", what, cudaGetErrorString(status));
    exit(1);
}
/* False, with the reason, where there is no device. */
static inline bool device_open(struct device_memory *m, size_t bytes) {
    int n = 0;
    const cudaError_t status = cudaGetDeviceCount(&n);
    if (status != cudaSuccess || n == 0) {
        printf("skipped: no CUDA device (%s)\n", status == cudaSuccess ? "none" : cudaGetErrorString(status));
        return false;
    }
    void *at = nullptr;
    device_try(cudaMalloc(&at, bytes), "cudaMalloc");
    *m = {static_cast<char *>(at), bytes, 0};
    return true;
}
static inline void device_in(void *to, const void *from, size_t bytes) {
    device_try(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "a copy to the device");
}
static inline void device_out(void *to, const void *from, size_t bytes) {
    device_try(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "a copy from the device");
}
#else
static inline bool device_open(struct device_memory *m, size_t bytes) {
    *m = {static_cast<char *>(aligned_alloc(256, bytes)), bytes, 0};
    return true;
}
static inline void device_in(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
static inline void device_out(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
#endif

static inline void *device_take(struct device_memory *m, size_t bytes) {
    void *at = m->at + m->used;
    m->used += (bytes + 255) / 256 * 256;
    if (m->used > m->bytes) {
        printf("the test's memory of %zu bytes is too small\n", m->bytes);
        exit(1);
    }
    return at;
}
/* A copy of n things. */
template <class T> static inline T *device_copy(struct device_memory *m, const T *from, size_t n) {
    T *to = static_cast<T *>(device_take(m, n * sizeof(T)));
    device_in(to, from, n * sizeof(T));
    return to;
}

#endif
