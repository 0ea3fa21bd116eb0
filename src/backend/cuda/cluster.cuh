/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of threads that share a tile: a cluster, along y. They run at the same time, and write to each other's shared memory; what they
 * wrote is there for all after a wait of the cluster. On a processor tests/cuda/on_host.h has the same functions.
 */
#ifndef BACKEND_CUDA_CLUSTER_CUH
#define BACKEND_CUDA_CLUSTER_CUH

#include "backend/cuda/simt.cuh"

/* Blocks of a cluster, and what each has of a tile's 128 rows, or of a slice's 128 channels: those of the same number in order. */
enum { CLUSTER = 8, CLUSTER_SHARE = KVT_TILE_ROWS / CLUSTER };

KVT_DEVICE int block_in_cluster() { return (int)blockIdx.y % CLUSTER; }

#if defined(__CUDACC__)
/* A wait in two halves, for what can be done meanwhile. */
KVT_DEVICE void cluster_arrive() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
KVT_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
/* Where another block has what this one has at `own`. Before the first use all blocks have to run, and after the last none may end. */
template <class T> KVT_DEVICE T *in_block(T *own, int block) {
    T *its;
    asm("mapa.u64 %0, %1, %2;" : "=l"(its) : "l"(own), "r"(block));
    return its;
}
#endif

KVT_DEVICE void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}

/* x to a place of all blocks; by all threads of a warp, which have the same. */
template <class T> KVT_DEVICE void tell_all(T *place, T x) {
    if (thread_in_warp() < CLUSTER) *in_block(place, thread_in_warp()) = x;
}

#endif
