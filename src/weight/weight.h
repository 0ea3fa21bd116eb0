/* SPDX-License-Identifier: Apache-2.0
 *
 * Door of weight: GGUF block types as matrices, and the products with them.
 *
 * A weight is dequantized exactly as the type defines it (equal to the bit at every level to the scalar reference, which equals
 * the `gguf` Python package). Products with types of floats are sums of f32 products; those with types of blocks of integers round
 * activations to 16 bits, 32 together, and are exact in each block (weight/type.h). Both in a fixed order that depends on the
 * shapes alone: the same bits for any number of threads.
 */
#ifndef WEIGHT_WEIGHT_H
#define WEIGHT_WEIGHT_H

#include "base/arena.h"
#include "base/parallel.h"
#include "gguf/gguf.h"

/* One block type: the row of the list in list.h. */
struct kvt_weight_type;

/* NULL if the type cannot be computed with; kvt_weight_type_names() lists those that can ("F32, F16, ..."). */
const struct kvt_weight_type *kvt_weight_type_find(uint32_t gguf_type);
size_t kvt_weight_type_count(void);
const struct kvt_weight_type *kvt_weight_type_at(size_t i);
const char *kvt_weight_type_name(const struct kvt_weight_type *type);
const char *kvt_weight_type_names(void);

/* A matrix of n_out rows of n_in elements, in the mapped file. */
struct kvt_weight {
    const struct kvt_weight_type *type;
    const unsigned char *data;
    int64_t n_in, n_out;
    size_t row_bytes;
    const unsigned char *packed; /* NULL, or what kvt_weight_pack made */
};

/* A 1- or 2-dimensional tensor as a matrix (1: one row). UNSUPPORTED names the tensor, its type and the known types. */
KVT_MUST_CHECK enum kvt_status kvt_weight_bind(struct kvt_weight *out, const struct kvt_gguf_tensor *tensor,
                                               struct kvt_error *err);

/* Types of blocks are multiplied fast in another order of their bytes, of about the same size: the bytes of that, aligned to
 * KVT_ALIGN, or 0 where products read the matrix as it is. Without them products have the same bits. */
size_t kvt_weight_packed_bytes(const struct kvt_weight *w);
void kvt_weight_pack(unsigned char *dst, const struct kvt_weight *w, const struct kvt_parallel *parallel);

/* Row `row` as floats. */
void kvt_weight_row(const struct kvt_weight *w, int64_t row, float *dst, enum kvt_level level);

/* dst[t * ld_dst + o] = sum over i of x[t * ld_x + i] * w[o][i], for n >= 1 tokens, in a fixed order (weight/type.h): the same
 * bits at every level and for tokens one by one or together. At level ref many tokens may go through OpenBLAS, where the
 * bits may differ. `scratch` must have kvt_weight_scratch_bytes free; nothing else is allocated. dst and x do not overlap. */
void kvt_weight_product(float *dst, ptrdiff_t ld_dst, const struct kvt_weight *w, const float *x, ptrdiff_t ld_x, int n,
                        enum kvt_level level, const struct kvt_parallel *parallel, struct kvt_arena *scratch);

/* The same for up to KVT_WEIGHT_OUTPUTS matrices of one n_in and the same tokens, with the same bits: threads start once and
 * tokens are laid out once. */
enum { KVT_WEIGHT_OUTPUTS = 4 };
struct kvt_weight_output {
    float *dst;
    ptrdiff_t ld;
    const struct kvt_weight *w;
};
void kvt_weight_products(const struct kvt_weight_output *outputs, int n_outputs, const float *x, ptrdiff_t ld_x, int n,
                         enum kvt_level level, const struct kvt_parallel *parallel, struct kvt_arena *scratch);

/* What any product of up to n_max tokens and rows of up to n_in_max elements works in. */
size_t kvt_weight_scratch_bytes(int64_t n_in_max, int n_max, const struct kvt_parallel *parallel);

/* What level ref multiplies many tokens with: "OpenBLAS 0.3.21 ..." or "none". */
const char *kvt_weight_blas_name(void);

#endif
