/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside weight: what a block type is, and the numeric contract of its kernels.
 *
 * Decode: the floats of the type's definition, each operation rounded as written there; every level gives the bits of the
 * scalar decode.
 *
 * Dot product of a row with a token: 32 running sums that start at 0, lane i takes elements i, i + 32, ..., one fused
 * multiply-add of the decoded weight and the activation each (a last group of fewer than 32 is filled up with zeros); then
 * a tree over halves of 16, 8, 4, 2 and 1 in which lane i takes lane i + half. Every level gives these bits, whatever the
 * number of rows and tokens in one call.
 */
#ifndef WEIGHT_TYPE_H
#define WEIGHT_TYPE_H

#include "weight/weight.h"

enum { KVT_WEIGHT_LANES = 32 };

/* n elements, a multiple of the type's block_len, from src at any alignment. */
typedef void kvt_weight_decode_fn(float *dst, const unsigned char *src, int64_t n);

/* dst[t * ld_dst + r] = row r (of n_rows, row_bytes apart) . token t (of n_tokens, ld_x floats apart). */
struct kvt_weight_rows {
    const unsigned char *data;
    size_t row_bytes;
    int64_t n_in;
    int n_rows, n_tokens;
    const float *x;
    ptrdiff_t ld_x;
    float *dst;
    ptrdiff_t ld_dst;
};
typedef void kvt_weight_rows_fn(const struct kvt_weight_rows *job);

/* A type at a level. NULL: this level has none, the next lower one is taken. */
struct kvt_weight_kernels {
    kvt_weight_decode_fn *decode;
    kvt_weight_rows_fn *rows;
};

struct kvt_weight_type {
    uint32_t gguf_type;
    int block_len;
    size_t block_bytes;
    kvt_weight_decode_fn *decode; /* scalar: the definition */
    struct kvt_weight_kernels at[KVT_LEVEL_COUNT];
};

/* The kernels of a type that run at a level; rows is NULL where only the reference is left. */
struct kvt_weight_kernels kvt_weight_kernels_select(const struct kvt_weight_type *type, enum kvt_level level);

/* The reference of the contract: any type, by its scalar decode. */
void kvt_weight_rows_ref(const struct kvt_weight_type *type, const struct kvt_weight_rows *job);

/* A cell of `at`: the function where the processor's family can run it. */
#if defined(__x86_64__)
#define KVT_X86(fn) fn
#define KVT_ARM(fn) NULL
#elif defined(__aarch64__)
#define KVT_X86(fn) NULL
#define KVT_ARM(fn) fn
#else
#define KVT_X86(fn) NULL
#define KVT_ARM(fn) NULL
#endif

#endif
