/* SPDX-License-Identifier: Apache-2.0
 *
 * The few calls of cuBLAS that are made, through the dynamic loader. Constants and prototypes as in NVIDIA's cublas_api.h and
 * library_types.h of CUDA 12 and 13.
 */
#include "backend/cuda/blas.h"

#include <dlfcn.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"

enum { TRANSPOSE = 1, AS_IS = 0, FLOATS = 0, HALVES = 2, SUMS_OF_FLOATS = 68, ANY_WAY = -1 };

struct kvt_cuda_blas {
    struct kvt_allocator allocator;
    void *handle;
    int (*destroy)(void *handle);
    int (*multiply)(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int a_type,
                    int lda, const void *b, int b_type, int ldb, const void *beta, void *c, int c_type, int ldc,
                    int compute, int algorithm);
};

static void *load(void) {
    static const char *const names[] = {"libcublas.so.13", "/usr/local/cuda/lib64/libcublas.so.13", "libcublas.so.12"};
    void *library = NULL;
    for (size_t i = 0; i < KVT_ARRAY_LEN(names) && !library; i++) library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

/* A function of the library: a pointer to one is not a pointer to an object in C, though POSIX has them alike. */
static bool find(void *library, const char *name, void *to) {
    void *symbol = dlsym(library, name);
    memcpy(to, &symbol, sizeof symbol);
    return symbol != NULL;
}

enum kvt_status kvt_cuda_blas_find(struct kvt_error *err) {
    if (load()) return KVT_OK;
    return kvt_fail(err, KVT_ERR_UNSUPPORTED,
                    "cuBLAS was not found (libcublas.so.13 or .12; LD_LIBRARY_PATH may name its folder)");
}

/* The library stays loaded: what it has started on its own cannot be taken back. */
static enum kvt_status open(struct kvt_cuda_blas *blas, void *stream, struct kvt_error *err) {
    int (*create)(void **handle), (*set_stream)(void *handle, void *stream);
    KVT_TRY(kvt_cuda_blas_find(err));
    void *library = load();
    if (!find(library, "cublasCreate_v2", &create) || !find(library, "cublasSetStream_v2", &set_stream) ||
        !find(library, "cublasDestroy_v2", &blas->destroy) || !find(library, "cublasGemmEx", &blas->multiply))
        return kvt_fail(err, KVT_ERR_UNSUPPORTED, "the cuBLAS that was found lacks a call that kvtile makes");
    int status = create(&blas->handle);
    if (status == 0) status = set_stream(blas->handle, stream);
    if (status == 0) return KVT_OK;
    return kvt_fail(err, KVT_ERR_UNSUPPORTED, "cuBLAS does not start here: its status is %d", status);
}

enum kvt_status kvt_cuda_blas_open(struct kvt_cuda_blas **out, void *stream, const struct kvt_allocator *allocator,
                                   struct kvt_error *err) {
    struct kvt_cuda_blas *blas = kvt_take_zero(allocator, 1, sizeof *blas);
    if (!blas) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for cuBLAS");
    blas->allocator = *allocator;
    const enum kvt_status status = open(blas, stream, err);
    if (status == KVT_OK)
        *out = blas;
    else
        kvt_cuda_blas_close(blas);
    return status;
}

void kvt_cuda_blas_close(struct kvt_cuda_blas *blas) {
    if (!blas) return;
    const struct kvt_allocator allocator = blas->allocator;
    if (blas->handle) (void)blas->destroy(blas->handle);
    kvt_give(&allocator, blas, 1, sizeof *blas);
}

/* cuBLAS has columns one after another: to it, w is n_in x n_out, x n_in x n and dst n_out x n. */
enum kvt_status kvt_cuda_blas_product(struct kvt_cuda_blas *blas, float *dst, const struct kvt_compute_matrix *w,
                                      const uint16_t *x, int n, struct kvt_error *err) {
    const float none = 0;
    const int status =
        blas->multiply(blas->handle, TRANSPOSE, AS_IS, (int)w->n_out, n, (int)w->n_in, &w->scale, w->halves, HALVES,
                       (int)w->ld, x, HALVES, (int)w->ld, &none, dst, FLOATS, (int)w->n_out, SUMS_OF_FLOATS, ANY_WAY);
    if (status == 0) return KVT_OK;
    return kvt_fail(err, KVT_ERR_DEVICE, "cuBLAS, multiplying %d rows by %lld x %lld: status %d", n, (long long)w->n_in,
                    (long long)w->n_out, status);
}
