/* SPDX-License-Identifier: Apache-2.0
 * The product of decoded rows with many tokens through OpenBLAS, in its own order of summation. */
#ifndef WEIGHT_BLAS_H
#define WEIGHT_BLAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False: the build has no OpenBLAS, and the other functions do nothing. */
bool kvt_blas_is_present(void);

/* Before a set of products, which may then come from any threads: each runs on its caller's alone. */
void kvt_blas_begin(void);

/* dst[t * ld_dst + r] = row r (of n_rows, dense) . x[t * ld_x ...], for n tokens. */
void kvt_blas_product(float *dst, ptrdiff_t ld_dst, const float *rows, int n_rows, int64_t n_in, const float *x,
                      ptrdiff_t ld_x, int n);

#endif
