/* SPDX-License-Identifier: Apache-2.0 */
#include "weight/blas.h"

#include "weight/weight.h"

#if defined(KVT_HAVE_OPENBLAS)
#include <cblas.h>

void kvt_blas_begin(void) { openblas_set_num_threads(1); }

void kvt_blas_product(float *dst, ptrdiff_t ld_dst, const float *panel, int n_rows, int64_t n_in, const float *x,
                      ptrdiff_t ld_x, int n) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n_rows, (blasint)n_in, 1, x, (blasint)ld_x, panel,
                (blasint)n_in, 0, dst, (blasint)ld_dst);
}

const char *kvt_weight_blas_name(void) { return openblas_get_config(); }

#else

void kvt_blas_begin(void) {}

void kvt_blas_product(float *dst, ptrdiff_t ld_dst, const float *panel, int n_rows, int64_t n_in, const float *x,
                      ptrdiff_t ld_x, int n) {
    for (int t = 0; t < n; t++)
        for (int r = 0; r < n_rows; r++) {
            const float *w = panel + r * n_in, *xt = x + t * ld_x;
            float lane[32] = {0};
            int64_t i = 0;
            for (; i + 32 <= n_in; i += 32)
                for (int j = 0; j < 32; j++) lane[j] += w[i + j] * xt[i + j];
            for (int j = 0; i < n_in; i++, j++) lane[j] += w[i] * xt[i];
            float sum = 0;
            for (int j = 0; j < 32; j++) sum += lane[j];
            dst[t * ld_dst + r] = sum;
        }
}

const char *kvt_weight_blas_name(void) { return "none"; }
#endif
