/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside weight: what a block type is, and the numeric contract of its kernels.
 *
 * Decode: the floats of the type's definition, each operation rounded as it is written there; every level gives the bits of
 * the scalar decode.
 *
 * Dot product of a row with a token: 32 running sums that start at 0; lane i takes elements i, i + 32, ..., one fused
 * multiply-add of the decoded weight and the activation each (a last group of fewer than 32 is filled up with zeros); then
 * a tree over halves of 16, 8, 4, 2 and 1 in which lane i takes lane i + half. Every level gives these bits, for any number
 * of rows and of tokens in one call: a prompt gives the bits of its tokens one by one.
 */
#ifndef WEIGHT_TYPE_H
#define WEIGHT_TYPE_H

#include "base/half.h"
#include "weight/weight.h"

enum { KVT_WEIGHT_LANES = 32 };

/* n elements, a multiple of the type's block_len, from src at any alignment. */
typedef void kvt_weight_decode_fn(float *dst, const unsigned char *src, int64_t n);

/* The same for a tile (tile.h): lane i of every group of 32 goes to part i / width, parts being part_stride floats apart and
 * holding width floats a group; a last group is filled up with zeros. dst is aligned to KVT_ALIGN. */
typedef void kvt_weight_pack_fn(float *dst, ptrdiff_t part_stride, const unsigned char *src, int64_t n);

/* dst[r] = row r . x, for n_rows rows of n_in elements, row_bytes apart. */
typedef void kvt_weight_rows_fn(float *dst, const unsigned char *rows, size_t row_bytes, int64_t n_rows, const float *x,
                                int64_t n_in);

/* A type at a level. */
struct kvt_weight_kernels {
    kvt_weight_decode_fn *decode;
    kvt_weight_pack_fn *pack;
    kvt_weight_rows_fn *rows;
};

struct kvt_weight_type {
    uint32_t gguf_type;
    int block_len;
    size_t block_bytes;
    kvt_weight_decode_fn *decode;                         /* scalar: the definition */
    const struct kvt_weight_kernels *at[KVT_LEVEL_COUNT]; /* NULL: none at this level */
};

/* The kernels of the best level up to `level` (of the same family of processors: others have no cells); NULL if none. */
const struct kvt_weight_kernels *kvt_weight_kernels_find(const struct kvt_weight_type *type, enum kvt_level level);

/* The f16 in two bytes at any alignment. */
static inline float kvt_f16_at(const unsigned char *p) { return kvt_f32_from_f16((uint16_t)(p[0] | p[1] << 8)); }

/* The reference of the contract, for any type, by its scalar decode. */
void kvt_weight_rows_ref(float *dst, const struct kvt_weight_type *type, const unsigned char *rows, size_t row_bytes,
                         int64_t n_rows, const float *x, int64_t n_in);

/* The cells of a type that has kernels at every level, after their declaration. */
#if defined(__x86_64__)
#define KVT_WEIGHT_KERNELS(type)                                                                                       \
    extern const struct kvt_weight_kernels kvt_weight_##type##_avx2, kvt_weight_##type##_avx512
#define KVT_WEIGHT_CELLS(type)                                                                                         \
    { [KVT_LEVEL_AVX2] = &kvt_weight_##type##_avx2, [KVT_LEVEL_AVX512] = &kvt_weight_##type##_avx512 }
#elif defined(__aarch64__)
#define KVT_WEIGHT_KERNELS(type) extern const struct kvt_weight_kernels kvt_weight_##type##_neon
#define KVT_WEIGHT_CELLS(type)                                                                                         \
    { [KVT_LEVEL_NEON] = &kvt_weight_##type##_neon }
#else
#define KVT_WEIGHT_KERNELS(type) _Static_assert(1, "none")
#define KVT_WEIGHT_CELLS(type)                                                                                         \
    { NULL }
#endif

#endif
