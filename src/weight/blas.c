/* SPDX-License-Identifier: Apache-2.0 */
#include "weight/blas.h"

#include "weight/weight.h"

#if defined(KVT_HAVE_OPENBLAS)
#include <cblas.h>

bool kvt_blas_is_present(void) { return true; }

void kvt_blas_begin(void) { openblas_set_num_threads(1); }

void kvt_blas_product(float *dst, ptrdiff_t ld_dst, const float *rows, int n_rows, int64_t n_in, const float *x,
                      ptrdiff_t ld_x, int n) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n_rows, (blasint)n_in, 1, x, (blasint)ld_x, rows,
                (blasint)n_in, 0, dst, (blasint)ld_dst);
}

const char *kvt_weight_blas_name(void) { return openblas_get_config(); }

#else

bool kvt_blas_is_present(void) { return false; }

void kvt_blas_begin(void) {}

void kvt_blas_product(float *dst, ptrdiff_t ld_dst, const float *rows, int n_rows, int64_t n_in, const float *x,
                      ptrdiff_t ld_x, int n) {
    (void)dst, (void)ld_dst, (void)rows, (void)n_rows, (void)n_in, (void)x, (void)ld_x, (void)n;
}

const char *kvt_weight_blas_name(void) { return "none"; }

#endif
