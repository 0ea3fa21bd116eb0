/* SPDX-License-Identifier: Apache-2.0
 * The product of a dequantized panel with many tokens, through OpenBLAS or, where it is absent, a plain kernel. */
#ifndef WEIGHT_BLAS_H
#define WEIGHT_BLAS_H

#include <stddef.h>
#include <stdint.h>

/* Before a set of kvt_blas_product calls, which may then come from any threads: each runs on its caller's alone. */
void kvt_blas_begin(void);

/* dst[t * ld_dst + r] = row r of the panel (n_rows of n_in floats, dense) . x[t * ld_x ...] */
void kvt_blas_product(float *dst, ptrdiff_t ld_dst, const float *panel, int n_rows, int64_t n_in, const float *x,
                      ptrdiff_t ld_x, int n);

#endif
