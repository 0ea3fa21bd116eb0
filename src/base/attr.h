/* SPDX-License-Identifier: Apache-2.0
 * Small helpers that everything may use. */
#ifndef BASE_ATTR_H
#define BASE_ATTR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

#define KVT_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define KVT_MIN(a, b)    ((a) < (b) ? (a) : (b))
#define KVT_MAX(a, b)    ((a) > (b) ? (a) : (b))

/* A header's function whose arithmetic must be the same wherever it runs: where CUDA compiles it, a GPU's too. */
#if defined(__CUDACC__)
#define KVT_INLINE static __host__ __device__ inline
#else
#define KVT_INLINE static inline
#endif

/* n rounded up to a multiple of `step` (step > 0, no overflow by contract). */
KVT_INLINE int64_t kvt_round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }
KVT_INLINE int64_t kvt_div_up(int64_t n, int64_t step) { return (n + step - 1) / step; }

/* Size arithmetic for numbers from outside: false on overflow, *out untouched. */
static inline bool kvt_mul_ok(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
static inline bool kvt_add_ok(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

#endif
