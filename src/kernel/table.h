/* SPDX-License-Identifier: Apache-2.0
 *
 * Every kernel, declared once for each level.
 */
#ifndef KERNEL_TABLE_H
#define KERNEL_TABLE_H

#include "kernel/kernel.h"

/* Encoders with kernels of their own, X(encoder, level); any other is its own kernel at every level. */
#define KVT_ENCODE_KERNELS(X, level)                                                                                   \
    X(f32, level)                                                                                                      \
    X(f16, level)                                                                                                      \
    X(bf16, level)                                                                                                     \
    X(affine, level)                                                                                                   \
    X(affine_metal, level)                                                                                             \
    X(kivi, level)                                                                                                     \
    X(kivi_parity, level)                                                                                              \
    X(kvarn, level)                                                                                                    \
    X(kvarn_parity, level)                                                                                             \
    X(q_0, level)                                                                                                      \
    X(q_1, level)                                                                                                      \
    X(iq4_nl, level)                                                                                                   \
    X(fp8, level)                                                                                                      \
    X(mxfp, level)                                                                                                     \
    X(turbo, level)                                                                                                    \
    X(kq, level)                                                                                                       \
    X(vu, level)

#define KVT_ENCODE_OF(encoder, level) void kvt_encode_##encoder##_##level(const struct kvt_encode_args *args);

#define KVT_KERNELS_OF(level)                                                                                          \
    void kvt_unpack_##level(const struct kvt_tile *tile, const void *bytes, int i, float *out);                        \
    void kvt_fold_##level(float *y, ptrdiff_t ld_y, const float *x, ptrdiff_t ld_x, int n, const float *block,         \
                          int n_terms);                                                                                \
    void kvt_soften_##level(float *scores, int n, float *max, float *sum, float *keep);                                \
    void kvt_decode_##level(const struct kvt_tile *tile, float *rows, ptrdiff_t stride, const void *bytes, int first,  \
                            int n);                                                                                    \
    void kvt_fused_##level(const struct kvt_fused *args);                                                              \
    void kvt_round_##level(const struct kvt_tile *tile, const float *x, ptrdiff_t ld, struct kvt_rounded *out);        \
    KVT_ENCODE_KERNELS(KVT_ENCODE_OF, level)

KVT_KERNELS_OF(ref)
KVT_KERNELS_OF(neon)
KVT_KERNELS_OF(avx2)
KVT_KERNELS_OF(avx512)

void kvt_split_amx(const float *x, ptrdiff_t ld, int n, int n_terms, void *out);
void kvt_spread_amx(const float *block, int n_terms, int first, int end, void *out);
void kvt_many_amx(const struct kvt_many *args);

/* A table's cell on the processors that have the level, null elsewhere. */
#if defined(__x86_64__)
#define KVT_X86(fn) fn
#define KVT_ARM(fn) 0
#elif defined(__aarch64__)
#define KVT_X86(fn) 0
#define KVT_ARM(fn) fn
#else
#define KVT_X86(fn) 0
#define KVT_ARM(fn) 0
#endif

#endif
