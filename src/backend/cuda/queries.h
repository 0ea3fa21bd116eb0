/* SPDX-License-Identifier: Apache-2.0
 *
 * Queries beside rows, on a device: what src/cache/queries.c keeps of them, bit for bit.
 */
#ifndef BACKEND_CUDA_QUERIES_H
#define BACKEND_CUDA_QUERIES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "codec/codec.h"

struct kvt_cuda_queries {
    const void *data; /* device: element c of row r of query head h at r * row_stride + h * head_stride + c */
    enum kvt_number number;
    ptrdiff_t row_stride, head_stride;
    const int64_t *positions; /* device: of the rows */
    int64_t from;             /* rows at positions before it keep nothing */
    int n_rows, n_heads;      /* KV heads */
    int group;                /* query heads of each */
    int d, parts;             /* channels; a row keeps d / parts of them */
    float *out;               /* device: [row][KV head][d / parts] */
    uint64_t
        *bad; /* device: the least of row << 32 | query head << 16 | channel whose number f16 has not, or UINT64_MAX */
};

enum kvt_status kvt_cuda_keep_queries(const struct kvt_cuda_queries *args, void *stream, struct kvt_error *err);

#ifdef __cplusplus
}
#endif
#endif
