/* SPDX-License-Identifier: Apache-2.0
 *
 * What a caller may bring along: memory, threads, an instruction-set level. Everything has a default; the library has no
 * globals, prints nothing and starts no thread but inside a `struct kvt_parallel` that its caller passed in.
 */
#ifndef KVTILE_RUNTIME_H
#define KVTILE_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>

#include "kvtile/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Memory. `take` returns `bytes` bytes aligned to `align` (a power of two) or NULL; `give` gets the size back.
 * Both may be called from any thread that uses an object made with this allocator. The struct is copied where it is passed. */
struct kvt_allocator {
    void *(*take)(void *ctx, size_t bytes, size_t align);
    void (*give)(void *ctx, void *ptr, size_t bytes);
    void *ctx;
};

/* Threads. `run` calls job(arg, i, thread) once for each i in [0, n_jobs), on at most n_threads threads, thread in
 * [0, n_threads), and returns when all are done. Jobs of one call are independent. Results never depend on n_threads.
 * NULL wherever one is expected means: the calling thread alone. */
struct kvt_parallel {
    int n_threads;
    void (*run)(void *ctx, int n_jobs, void (*job)(void *arg, int i, int thread), void *arg);
    void *ctx;
};

/* A pool of n_threads threads, the caller of a loop counted: n_threads - 1 are started. They sleep while there is nothing to do.
 * Must outlive whatever uses its parallel-for. Of two callers at once one gets the threads, the other works alone.
 * allocator may be NULL. */
struct kvt_threads;
KVT_API KVT_MUST_CHECK enum kvt_status kvt_threads_create(struct kvt_threads **out, int n_threads,
                                                          const struct kvt_allocator *allocator, struct kvt_error *err);
KVT_API void kvt_threads_destroy(struct kvt_threads *threads); /* NULL is fine */
/* The pool's parallel-for. NULL gives the calling thread alone. */
KVT_API struct kvt_parallel kvt_threads_parallel(struct kvt_threads *threads);

/* Instruction-set levels, worst to best: a level is a bundle of features that real processors ship together.
 * avx2: AVX2, FMA, F16C, BMI2. avx512: F, BW, DQ, VL, VBMI, VNNI. amx: avx512, AVX-512 BF16, AMX TILE, INT8, BF16. neon:
 * AArch64 Advanced SIMD. */
#define KVT_LEVEL_MAP(X)                                                                                               \
    X(REF, "ref")                                                                                                      \
    X(NEON, "neon")                                                                                                    \
    X(AVX2, "avx2")                                                                                                    \
    X(AVX512, "avx512")                                                                                                \
    X(AMX, "amx")

enum kvt_level {
#define X(id, name) KVT_LEVEL_##id,
    KVT_LEVEL_MAP(X)
#undef X
        KVT_LEVEL_COUNT
};

/* The best level that this processor and its operating system support. Thread-safe. */
KVT_API enum kvt_level kvt_level_best(void);
/* Whether a level can run here. KVT_LEVEL_REF always can. Where the processor has tiles, this asks Linux for the process' right to
 * them, once and for all: without it KVT_LEVEL_AMX does not run. (Threads with a signal stack then need one of 11 KB.) */
KVT_API bool kvt_level_runs(enum kvt_level level);
/* "ref", "neon", ... Static storage. */
KVT_API const char *kvt_level_name(enum kvt_level level);
/* Reads a level's name, or "auto" for the best. ARG for an unknown name, UNSUPPORTED for one that cannot run here. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_level_parse(enum kvt_level *out, const char *name, struct kvt_error *err);

#ifdef __cplusplus
}
#endif
#endif
