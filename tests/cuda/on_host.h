/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for a GPU where there is none: kernels, compiled as C++, run block by block. A thread runs until it waits for its warp, a warp
 * until it waits for its block, a block until it waits for its cluster, from the first to the last or from the last to the first. What is
 * left out of a kernel, a wait or an initial value, shows as different results.
 */
#ifndef TESTS_CUDA_ON_HOST_H
#define TESTS_CUDA_ON_HOST_H

#include <math.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __device__

struct float4 {
    float x, y, z, w;
};

namespace on_host {

enum { MOST_CLUSTER = 8, MOST_THREADS = 1024, MOST_SHARED = 227 * 1024, STACK = 64 * 1024 };

struct index3 {
    unsigned x, y, z;
};

enum waits { RUNS, FOR_WARP, FOR_BLOCK, FOR_CLUSTER, ENDED };

struct thread {
    jmp_buf at;
    ucontext_t begin;
    bool begun;
    enum waits waits;
    unsigned mask;
    uint64_t given, got[32]; /* to its warp; from its warp */
};

struct block {
    thread threads[MOST_THREADS];
    index3 index;
    int n, now;
    unsigned char *stacks;
    alignas(64) unsigned char shared[MOST_SHARED];
};

inline block cluster[MOST_CLUSTER], *the_block = cluster; /* of several blocks that work together; the one that runs */
inline jmp_buf scheduler;
inline void (*run)(void *);
inline void *run_args;
inline index3 thread_index, block_index, block_size;
inline bool backwards;

inline void pause(waits what) {
    thread &t = the_block->threads[the_block->now];
    t.waits = what;
    if (!_setjmp(t.at)) _longjmp(scheduler, 1);
}

inline void enter() {
    run(run_args);
    the_block->threads[the_block->now].waits = ENDED;
    _longjmp(scheduler, 1);
}

inline void resume(int i) {
    thread &t = the_block->threads[i];
    the_block->now = i;
    thread_index = {(unsigned)i, 0, 0};
    if (_setjmp(scheduler)) return;
    if (t.begun) _longjmp(t.at, 1);
    t.begun = true;
    getcontext(&t.begin);
    t.begin.uc_stack.ss_sp = the_block->stacks + (size_t)i * STACK;
    t.begin.uc_stack.ss_size = STACK;
    t.begin.uc_link = nullptr;
    makecontext(&t.begin, enter, 0);
    setcontext(&t.begin);
}

/* Lets those of a warp go on whose whole mask waits. */
inline bool release_warp(int first) {
    thread *const warp = the_block->threads + first;
    bool any = false;
    for (int i = 0; i < 32; i++) {
        const unsigned mask = warp[i].mask;
        bool all = warp[i].waits == FOR_WARP;
        for (int j = 0; j < 32 && all; j++)
            if (mask >> j & 1) all = warp[j].waits == FOR_WARP && warp[j].mask == mask;
        if (!all) continue;
        uint64_t given[32];
        for (int j = 0; j < 32; j++) given[j] = warp[j].given;
        for (int j = 0; j < 32; j++)
            if (mask >> j & 1) {
                memcpy(warp[j].got, given, sizeof given);
                warp[j].waits = RUNS;
            }
        any = true;
    }
    return any;
}

/* A warp as far as it gets alone: what it should have waited for has then not happened. */
inline void run_warp(int first) {
    do
        for (int k = 0; k < 32; k++) {
            const int i = first + (backwards ? 31 - k : k);
            if (the_block->threads[i].waits == RUNS) resume(i);
        }
    while (release_warp(first));
}

inline void release(block &b) {
    for (int i = 0; i < b.n; i++) b.threads[i].waits = RUNS;
}

inline void stuck(const char *what, int waiting, int ended, int n) {
    fprintf(stderr, "on_host: %s wait for each other: of %d %d wait, %d ended\n", what, n, waiting, ended);
    abort();
}

/* A block as far as it gets alone: to its end, or to where it waits for its cluster. */
inline waits run_block(block &b) {
    the_block = &b;
    block_index = b.index;
    for (;;) {
        int n_in[ENDED + 1] = {0};
        for (int w = 0; w < b.n; w += 32) run_warp(backwards ? b.n - 32 - w : w);
        for (int i = 0; i < b.n; i++) n_in[b.threads[i].waits]++;
        if (n_in[ENDED] == b.n) return ENDED;
        if (n_in[FOR_CLUSTER] == b.n) return FOR_CLUSTER;
        if (n_in[FOR_BLOCK] < b.n) stuck("threads", n_in[FOR_BLOCK], n_in[ENDED], b.n);
        release(b);
    }
}

inline void run_cluster(int n) {
    for (;;) {
        int ended = 0;
        for (int i = 0; i < n; i++) ended += run_block(cluster[backwards ? n - 1 - i : i]) == ENDED;
        if (ended == n) return;
        if (ended) stuck("blocks", n - ended, ended, n);
        for (int i = 0; i < n; i++) release(cluster[i]);
    }
}

inline void set_up(block &b, unsigned x, unsigned y, int n) {
    b.index = {x, y, 0};
    b.n = n;
    memset(b.shared, 0xAA, sizeof b.shared);
    if (!b.stacks) b.stacks = static_cast<unsigned char *>(malloc((size_t)MOST_THREADS * STACK));
    for (int i = 0; i < n; i++) b.threads[i].begun = false, b.threads[i].waits = RUNS;
}

/* In clusters of so many blocks along y. */
template <class Kernel, class Args>
void run_grid(Kernel kernel, int blocks_x, int blocks_y, int n, const Args &args, int of_cluster = 1) {
    struct call {
        Kernel kernel;
        const Args *args;
    } c = {kernel, &args};
    block_size = {(unsigned)n, 1, 1};
    run = [](void *p) {
        call *it = static_cast<call *>(p);
        it->kernel(*it->args);
    };
    run_args = &c;
    for (int y = 0; y < blocks_y; y += of_cluster)
        for (int x = 0; x < blocks_x; x++) {
            for (int i = 0; i < of_cluster; i++) set_up(cluster[i], (unsigned)x, (unsigned)(y + i), n);
            run_cluster(of_cluster);
        }
    run_args = nullptr;
}

inline const uint64_t *with_warp(unsigned mask, uint64_t given) {
    thread &t = the_block->threads[the_block->now];
    t.mask = mask;
    t.given = given;
    pause(FOR_WARP);
    return the_block->threads[the_block->now].got;
}

template <class T> uint64_t to_bits(T x) {
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof x);
    return bits;
}
template <class T> T from_bits(uint64_t bits) {
    T x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

} /* namespace on_host */

#define threadIdx  on_host::thread_index
#define blockIdx   on_host::block_index
#define blockDim   on_host::block_size
#define kvt_shared on_host::the_block->shared

inline void __syncthreads() { on_host::pause(on_host::FOR_BLOCK); }
inline void __syncwarp(unsigned mask = ~0u) { on_host::with_warp(mask, 0); }
template <class T> T __shfl_xor_sync(unsigned mask, T x, int distance) {
    const unsigned from = on_host::thread_index.x % 32 ^ (unsigned)distance;
    return on_host::from_bits<T>(on_host::with_warp(mask, on_host::to_bits(x))[from]);
}
template <class T> T __shfl_sync(unsigned mask, T x, int from) {
    return on_host::from_bits<T>(on_host::with_warp(mask, on_host::to_bits(x))[from & 31]);
}
inline unsigned __ballot_sync(unsigned mask, bool yes) {
    const uint64_t *all = on_host::with_warp(mask, yes);
    unsigned bits = 0;
    for (unsigned i = 0; i < 32; i++) bits |= (mask >> i & 1) && all[i] ? 1u << i : 0;
    return bits;
}
#define KVT_REDUCE(name, T, fold)                                                                                      \
    inline T name(unsigned mask, T x) {                                                                                \
        const uint64_t *all = on_host::with_warp(mask, on_host::to_bits(x));                                           \
        T sum = x;                                                                                                     \
        bool first = true;                                                                                             \
        for (int i = 0; i < 32; i++)                                                                                   \
            if (mask >> i & 1) {                                                                                       \
                const T v = on_host::from_bits<T>(all[i]);                                                             \
                sum = first ? v : (fold);                                                                              \
                first = false;                                                                                         \
            }                                                                                                          \
        return sum;                                                                                                    \
    }
KVT_REDUCE(__reduce_add_sync, int, (int)((unsigned)sum + (unsigned)v))
KVT_REDUCE(__reduce_add_sync, unsigned, sum + v)
KVT_REDUCE(__reduce_min_sync, int, v < sum ? v : sum)
KVT_REDUCE(__reduce_max_sync, int, v > sum ? v : sum)
#undef KVT_REDUCE
inline int __ffs(unsigned x) { return __builtin_ffs((int)x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
template <class T> T atomicAdd(T *to, T x) {
    const T before = *to;
    *to = before + x;
    return before;
}
inline unsigned long long atomicMin(unsigned long long *to, unsigned long long x) {
    const unsigned long long before = *to;
    *to = x < before ? x : before;
    return before;
}

inline float __ldcg(const float *from) { return *from; }
template <class T> T __ldg(const T *from) { return *from; }
inline void __threadfence() {}

/* cluster.cuh; a wait for mail is a wait of the cluster here, after which the mailbox must have what it expects. */
inline void cluster_begin() {}
inline void cluster_begun() { on_host::pause(on_host::FOR_CLUSTER); }
inline void cluster_sync() { on_host::pause(on_host::FOR_CLUSTER); }
template <class T> T *in_block(T *own, int block) {
    return (T *)(on_host::cluster[block].shared + ((uintptr_t)own - (uintptr_t)on_host::the_block->shared));
}
struct mailbox {
    uint32_t expected, received;
};
inline void mailbox_open(mailbox *box) { *box = {0, 0}; }
inline void mailbox_expect(mailbox *box, int bytes) { box->expected += (uint32_t)bytes; }
template <class T> void mail(mailbox *box, T *place, const T &x, int block) {
    *in_block(place, block) = x;
    in_block(box, block)->received += sizeof x;
}
inline void mailbox_wait(mailbox *box, int) {
    on_host::pause(on_host::FOR_CLUSTER);
    if (box->received == box->expected) return;
    fprintf(stderr, "on_host: %u bytes of mail where %u are expected\n", box->received, box->expected);
    abort();
}

/* tensor.cuh */
inline float tf32_of(float x) {
    const uint32_t bits = (uint32_t)on_host::to_bits(x) + 0x1000u;
    return on_host::from_bits<float>(bits & 0xFFFFE000u);
}
inline float exp2_near(float x) { return exp2f(x); }
inline void mma_tf32(float (&d)[4], const float (&a)[4], const float (&b)[2]) {
    struct operands {
        const float *a, *b;
    } own = {a, b}, all[32];
    const uint64_t *given = on_host::with_warp(~0u, (uint64_t)(uintptr_t)&own);
    for (int i = 0; i < 32; i++) all[i] = *reinterpret_cast<const operands *>((uintptr_t)given[i]);
    const auto cut = [](float x) {
        return (double)on_host::from_bits<float>((uint32_t)on_host::to_bits(x) & 0xFFFFE000u);
    };
    const int r = (int)on_host::thread_index.x % 32 / 4, c = (int)on_host::thread_index.x % 4;
    double sums[4];
    for (int e = 0; e < 4; e++) {
        sums[e] = d[e];
        for (int k = 0; k < 8; k++)
            sums[e] += cut(all[r * 4 + k % 4].a[e / 2 + k / 4 * 2]) * cut(all[(2 * c + e % 2) * 4 + k % 4].b[k / 4]);
    }
    on_host::with_warp(~0u, 0); /* all have read */
    for (int e = 0; e < 4; e++) d[e] = (float)sums[e];
}

template <class Args>
static inline const char *launch(void (*kernel)(Args), int blocks_x, int blocks_y, int threads, size_t shared_bytes,
                                 void *stream, const Args &args, bool beside = false, int cluster = 1) {
    (void)stream, (void)beside;
    if (shared_bytes > on_host::MOST_SHARED || threads > on_host::MOST_THREADS || threads % 32 != 0 ||
        blocks_y % cluster != 0)
        return "a launch that no GPU takes";
    on_host::run_grid(kernel, blocks_x, blocks_y, threads, args, cluster);
    return nullptr;
}

#endif
