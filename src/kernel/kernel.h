/* SPDX-License-Identifier: Apache-2.0
 *
 * Door of kernel: the operations that are worth an instruction set, their contracts, and which function serves a level.
 *
 * Contracts
 *   exact  the bits of the reference, at every level
 *   near   judged against attention in double precision on the decoded tile (docs/numerics.md); the same bits for the same
 *          level, on any machine and for any number of threads
 */
#ifndef KERNEL_KERNEL_H
#define KERNEL_KERNEL_H

#include "codec/codec.h"

enum { KVT_LANES = KVT_BLOCK_LANES };

/* exact. Decodes block i of a tile to out[term][32 lanes], n_terms of the tile; lanes that are not stored become 0.
 * `bytes` is the tile, aligned to 64; out is aligned to 64. */
typedef void (*kvt_unpack_fn)(const struct kvt_tile *tile, const void *bytes, int i, float *out);

/* near. y[v][lane] += sum over terms of x[v][term] * block[term][lane] for n vectors, terms in ascending order.
 * x: vector v at x + v * ld_x. y: at y + v * ld_y, 32 floats. block as kvt_unpack_fn gives it. */
typedef void (*kvt_fold_fn)(float *y, ptrdiff_t ld_y, const float *x, ptrdiff_t ld_x, int n, const float *block,
                            int n_terms);

/* near. One step of online softmax for one vector: with m the larger of *max and the largest of n scores, scores become
 * exp(score - m), *sum becomes *sum * exp(*max - m) + their sum, *max becomes m. Returns exp(*max before - m), which
 * rescales what was mixed so far. Scores of -inf weigh 0; where all so far are -inf, *max stays -inf and all weights are 0. */
typedef float (*kvt_soften_fn)(float *scores, int n, float *max, float *sum);

/* exact. What kvt_encoder.encode does. */
typedef void (*kvt_encode_fn)(const struct kvt_encode_args *args);

/* exact. What kvt_tile_decode does. */
typedef void (*kvt_decode_fn)(const struct kvt_tile *tile, float *rows, ptrdiff_t stride, const void *bytes, int first,
                              int n);

struct kvt_kernels {
    enum kvt_level level;
    kvt_unpack_fn unpack;
    kvt_fold_fn fold;
    kvt_soften_fn soften;
    kvt_decode_fn decode;
};

/* The kernels of a level: of the best one that is not above it and has a kernel, operation by operation. */
struct kvt_kernels kvt_kernels_select(enum kvt_level level);

/* The encoder of a codec for a level: the best kernel that is not above it, else the codec's own. */
kvt_encode_fn kvt_encode_select(const struct kvt_codec *codec, enum kvt_level level);

/* The tables that selection and the kernel tests read: null where a level has no kernel of its own. */
extern const kvt_unpack_fn kvt_unpack_table[KVT_LEVEL_COUNT];
extern const kvt_fold_fn kvt_fold_table[KVT_LEVEL_COUNT];
extern const kvt_soften_fn kvt_soften_table[KVT_LEVEL_COUNT];
extern const kvt_decode_fn kvt_decode_table[KVT_LEVEL_COUNT];
/* The kernel of one level, or null. */
kvt_encode_fn kvt_encode_kernel(const struct kvt_codec *codec, enum kvt_level level);

#endif
