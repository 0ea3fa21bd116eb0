/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over tiles in device memory, for many query rows (prompts). Rows of a few sequences and heads at a time are brought to f16, in
 * the order in which tensor cores want them, and every block of query vectors walks them: a tile is decoded once for all of them. Plain C:
 * what C code fills in and hands over.
 *
 * A unit is what is multiplied at a time: rows of one region from a multiple of their number on. Units of a head are numbered body first,
 * then sink, then tail.
 */
#ifndef BACKEND_CUDA_PREFILL_H
#define BACKEND_CUDA_PREFILL_H

#include "backend/cuda/attend.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KVT_CUDA_PREFILL_COLUMNS = 128, KVT_CUDA_PREFILL_UNIT = 128 };

/* Rows of a unit. */
static inline int kvt_cuda_prefill_unit_rows(int head_size) {
    return head_size > 128 ? KVT_CUDA_PREFILL_UNIT / 2 : KVT_CUDA_PREFILL_UNIT;
}
/* Bytes of a unit, keys and values. Rows of keys are stored in whole 64 channels. */
static inline size_t kvt_cuda_prefill_unit_bytes(int head_size) {
    const int rows = kvt_cuda_prefill_unit_rows(head_size);
    return (size_t)rows * 2 * (size_t)((head_size + 63) / 64 * 64 + head_size);
}

/* A sequence with many query rows in a call. Pages as in kvt_cuda_seq. */
struct kvt_cuda_prompt {
    const void *const *pages[KVT_REGION_COUNT];
    int32_t n_units[KVT_REGION_COUNT];
    int32_t first_unit[KVT_REGION_COUNT]; /* its number when units of the region are counted from position 0 */
    int32_t n_before;                     /* rows before the first query's */
    int32_t row, n_rows;                  /* its query rows in the call */
};

/* A KV head of a prompt, and where its first unit is. */
struct kvt_cuda_prefill_head {
    int32_t prompt, head, first;
};

/* What a thread block computes: 128 query vectors (row * group + head in the group) of a head, from `column` on. */
struct kvt_cuda_prefill_block {
    int32_t prompt, head, first; /* as the head's */
    int32_t column;
};

struct kvt_cuda_prefill {
    struct kvt_cuda_attend call; /* tiles, q, out and what belongs to them: the rest is not looked at */
    size_t head_bytes
        [KVT_REGION_COUNT]; /* from one KV head's tiles to the next one's: pages of the tail may have more than the sink's */
    struct kvt_cuda_sight sight;
    const struct kvt_cuda_prompt *prompts;       /* device */
    const struct kvt_cuda_prefill_head *heads;   /* device */
    int n_heads, most_units;                     /* no head has more units */
    const struct kvt_cuda_prefill_block *blocks; /* device */
    int n_blocks;
    void *units; /* device: room for those of all heads; aligned to 1024 */
};

/* Whether prefill reads these tiles. */
int kvt_cuda_prefill_reads(const struct kvt_cuda_page *body, const struct kvt_cuda_page *plain);

/* Launches on a stream (a cudaStream_t): first the units are written, then attention reads them. */
KVT_MUST_CHECK enum kvt_status kvt_cuda_prefill_launch(const struct kvt_cuda_prefill *prefill, void *stream,
                                                       struct kvt_error *err);

#ifdef __cplusplus
}
#endif
#endif
