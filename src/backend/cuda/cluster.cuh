/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of threads that share a tile: a cluster, along y. They run at the same time, and write to each other's shared memory: much at a time,
 * which is there for all after a wait of the cluster, or a few numbers by mail, which is there when the mailbox has all that it expects. A wait of
 * the cluster flushes what a block wrote to the device's memory too, and takes many times as long. On a processor tests/cuda/on_host.h
 * has the same functions.
 */
#ifndef BACKEND_CUDA_CLUSTER_CUH
#define BACKEND_CUDA_CLUSTER_CUH

#include "backend/cuda/simt.cuh"

/* Blocks of a cluster, and what each has of a tile's 128 rows, or of a slice's 128 channels: those of the same number in order. */
enum { CLUSTER = 8, CLUSTER_SHARE = KVT_TILE_ROWS / CLUSTER };

KVT_DEVICE int block_in_cluster() { return (int)blockIdx.y % CLUSTER; }

#if defined(__CUDACC__)
KVT_DEVICE uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* Where another block has what this one has at `own`. */
template <class T> KVT_DEVICE T *in_block(T *own, int block) {
    T *its;
    asm("mapa.u64 %0, %1, %2;" : "=l"(its) : "l"(own), "r"(block));
    return its;
}
KVT_DEVICE uint32_t address_in_block(const void *own, int block) {
    uint32_t its;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(its) : "r"(shared_address(own)), "r"(block));
    return its;
}

/* In shared memory. What is sent to it in one phase has to be waited for before anyone sends what belongs to the next. */
struct mailbox {
    uint64_t barrier;
};
/* By one thread, before cluster_begin. */
KVT_DEVICE void mailbox_open(struct mailbox *box) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(box)) : "memory");
}
/* By one thread, once a phase: what all blocks together send to this one in it. */
KVT_DEVICE void mailbox_expect(struct mailbox *box, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(box)), "r"(bytes)
                 : "memory");
}
/* By all threads of the block: until phase 0, 1, ... is complete. */
KVT_DEVICE void mailbox_wait(struct mailbox *box, int phase) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}\n" ::"r"(shared_address(box)),
                 "r"(phase & 1)
                 : "memory");
}
/* x, of 4, 8 or 16 bytes, to the same place of another block. */
template <class T> KVT_DEVICE void mail(struct mailbox *box, T *place, const T &x, int block) {
    const uint32_t to = address_in_block(place, block), its_box = address_in_block(box, block);
    uint32_t words[sizeof(T) / 4];
    memcpy(words, &x, sizeof x);
    if (sizeof(T) == 4)
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
                     "r"(words[0]), "r"(its_box)
                     : "memory");
    else
        for (int i = 0; i < (int)sizeof(T) / 4; i += 2)
            asm volatile(
                "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(to +
                                                                                                                4 * i),
                "r"(words[i]), "r"(words[i + 1]), "r"(its_box)
                : "memory");
}

/* A block tells that it runs, and that its mailboxes are open; then it waits until all have: before the first access to another's memory. */
KVT_DEVICE void cluster_begin() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
KVT_DEVICE void cluster_begun() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
/* All that was written is there for all. */
KVT_DEVICE void cluster_sync() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
#endif

/* x to a place of all blocks; by all threads of a warp, which have the same. */
template <class T> KVT_DEVICE void mail_all(struct mailbox *box, T *place, const T &x) {
    if (thread_in_warp() < CLUSTER) mail(box, place, x, thread_in_warp());
}

#endif
