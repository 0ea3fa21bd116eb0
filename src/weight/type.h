/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside weight: what a block type is, and the numeric contract of its kernels.
 *
 * Decode: the floats of the type's definition, each operation rounded as it is written there; every level gives the bits of
 * the scalar decode.
 *
 * Dot product of a row with a token, of types whose elements are floats: 32 running sums that start at 0; lane i takes elements
 * i, i + 32, ..., one fused multiply-add of the decoded weight and the activation each (a last group of fewer than 32 is filled
 * up with zeros); then a tree over halves of 16, 8, 4, 2 and 1 in which lane i takes lane i + half.
 *
 * Of types that are whole numbers times scales ("codes"): the token is rounded, 32 elements together (struct kvt_rounded). The sum
 * starts at 0 and takes the row's groups in their order, with s = (float)(sum of code * rounded element), an exact whole number:
 *     sum = fma(s, group's scale * token's scale, sum), and where the type has minima
 *     sum = fma(group's minimum, (float)(sum of rounded elements) * token's scale, sum).
 *
 * Every level gives these bits, for any number of rows and of tokens in one call: a prompt gives the bits of its tokens one by
 * one.
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

/* 32 elements of a token in 16 bits: with m the largest magnitude, an element x is the whole number nearest to x * (M / m), a tie
 * even, and the scale m / M. All are 0 where m is below 2^-100, and with a scale that is no number where one is not finite.
 * M is the most that two signed bytes can hold, of either sign, as 256 * upper + lower. */
struct kvt_rounded {
    union {
        int16_t q[32];
        int8_t bytes[2][32]; /* where a level multiplies bytes: upper, lower */
    };
    float scale, moment; /* moment: (float)(sum[0] + sum[1]) * scale */
    int32_t sum[2];      /* of elements 0-15 and 16-31 */
};
#define KVT_ROUNDED_MOST 32639.0f

enum { KVT_TOKEN_GROUP = 16 };

/* n elements, a multiple of 32, as blocks that are ld_dst apart. */
typedef void kvt_weight_round_fn(struct kvt_rounded *dst, ptrdiff_t ld_dst, const float *x, int64_t n);
kvt_weight_round_fn kvt_weight_round_ref;

/* dst[t * ld_dst + r] = row r . token t, for the n_rows rows of strips that follow each other (strip.h) and up to KVT_TOKEN_GROUP tokens
 * of n_in elements, whose blocks lie side by side: block b of token t is x[b * ld_x + t]. */
typedef void kvt_weight_strips_fn(float *dst, ptrdiff_t ld_dst, const unsigned char *strips, int64_t n_rows,
                                  const struct kvt_rounded *x, ptrdiff_t ld_x, int n_tokens, int64_t n_in);

/* A type at a level. */
struct kvt_weight_kernels {
    kvt_weight_decode_fn *decode;
    kvt_weight_pack_fn *pack; /* types of floats */
    kvt_weight_rows_fn *rows;
    kvt_weight_strips_fn *strips; /* types of codes */
};

/* What makes a type one of codes. */
struct kvt_weight_codes {
    int group; /* elements that share a scale */
    bool has_min;
    /* A block as block_len codes and a scale and minimum for each of its groups: an element is scale * code, or
     * scale * code + min. */
    void (*split)(int8_t *code, float *scale, float *min, const unsigned char *block);
    size_t unit_bytes; /* of a block of 16 rows in a strip */
    /* Block after block of n_rows rows, row_bytes apart, as a strip (strip.h). */
    void (*pack)(unsigned char *strip, const unsigned char *rows, size_t row_bytes, int n_rows, int64_t n_blocks);
};

struct kvt_weight_type {
    uint32_t gguf_type;
    int block_len;
    size_t block_bytes;
    kvt_weight_decode_fn *decode;                         /* of floats: the definition */
    const struct kvt_weight_codes *codes;                 /* NULL: floats */
    const struct kvt_weight_kernels *at[KVT_LEVEL_COUNT]; /* NULL: none at this level */
};

/* The definition, of any type. */
void kvt_weight_decode_ref(const struct kvt_weight_type *type, float *dst, const unsigned char *src, int64_t n);

/* The kernels of the best level up to `level` (of the same family of processors: others have no cells); NULL if none. */
const struct kvt_weight_kernels *kvt_weight_kernels_find(const struct kvt_weight_type *type, enum kvt_level level);

/* The f16 in two bytes at any alignment. */
static inline float kvt_f16_at(const unsigned char *p) { return kvt_f32_from_f16((uint16_t)(p[0] | p[1] << 8)); }

/* The reference of the contract, for types of floats and of codes. */
void kvt_weight_rows_ref(float *dst, const struct kvt_weight_type *type, const unsigned char *rows, size_t row_bytes,
                         int64_t n_rows, const float *x, int64_t n_in);
void kvt_weight_code_rows_ref(float *dst, const struct kvt_weight_type *type, const unsigned char *rows,
                              size_t row_bytes, int64_t n_rows, const struct kvt_rounded *x, ptrdiff_t ld_x,
                              int64_t n_in);

/* The cells of a type of floats and of a type of codes that have kernels at every level, after their declaration. */
#if defined(__x86_64__)
#define KVT_WEIGHT_KERNELS(type)                                                                                       \
    extern const struct kvt_weight_kernels kvt_weight_##type##_avx2, kvt_weight_##type##_avx512
#define KVT_WEIGHT_CELLS(type)                                                                                         \
    { [KVT_LEVEL_AVX2] = &kvt_weight_##type##_avx2, [KVT_LEVEL_AVX512] = &kvt_weight_##type##_avx512 }
#define KVT_WEIGHT_CODE_KERNELS(type)                                                                                  \
    KVT_WEIGHT_KERNELS(type);                                                                                          \
    extern const struct kvt_weight_kernels kvt_weight_##type##_amx
#define KVT_WEIGHT_CODE_CELLS(type)                                                                                    \
    {                                                                                                                  \
        [KVT_LEVEL_AVX2] = &kvt_weight_##type##_avx2, [KVT_LEVEL_AVX512] = &kvt_weight_##type##_avx512,                \
        [KVT_LEVEL_AMX] = &kvt_weight_##type##_amx                                                                     \
    }
#elif defined(__aarch64__)
#define KVT_WEIGHT_KERNELS(type) extern const struct kvt_weight_kernels kvt_weight_##type##_neon
#define KVT_WEIGHT_CELLS(type)                                                                                         \
    { [KVT_LEVEL_NEON] = &kvt_weight_##type##_neon }
#define KVT_WEIGHT_CODE_KERNELS KVT_WEIGHT_KERNELS
#define KVT_WEIGHT_CODE_CELLS   KVT_WEIGHT_CELLS
#else
#define KVT_WEIGHT_KERNELS(type) _Static_assert(1, "none")
#define KVT_WEIGHT_CELLS(type)                                                                                         \
    { NULL }
#define KVT_WEIGHT_CODE_KERNELS KVT_WEIGHT_KERNELS
#define KVT_WEIGHT_CODE_CELLS   KVT_WEIGHT_CELLS
#endif

#endif
