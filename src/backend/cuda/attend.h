/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over tiles in device memory, for few query rows (decoding, verification). One launch walks body, sink and tail of all
 * sequences and heads of a layer. Plain C: what C code fills in and hands over.
 *
 * The work is a list of shares: a stretch of units of one sequence and KV head, for one thread block. A unit is what a warp takes at a
 * time: 64 rows of an encoded tile or 32 rows of a plain one (kvt_cuda_attend_cut). Units of a head are numbered body first, then sink, then tail.
 */
#ifndef BACKEND_CUDA_ATTEND_H
#define BACKEND_CUDA_ATTEND_H

#include <stddef.h>
#include <stdint.h>

#include "codec/codec.h"
#include "kvtile/cache.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KVT_CUDA_CODED_ROWS = 64, KVT_CUDA_PLAIN_ROWS = 32, KVT_CUDA_FEW_COLUMNS = 8, KVT_CUDA_COLUMNS = 16 };

/* What a query row sees of the three regions: rows [first, end). */
struct kvt_cuda_visible {
    int32_t first[KVT_REGION_COUNT], end[KVT_REGION_COUNT];
};

/* What decides it, of a layer: kvt_layer_body_end and kvt_layer_first_row. window 0: all rows. */
struct kvt_cuda_sight {
    int32_t sink, tail, granularity, start, window;
};
KVT_INLINE struct kvt_cuda_sight kvt_cuda_sight_of(const struct kvt_layer_plan *plan) {
    struct kvt_cuda_sight s = {plan->sink, plan->tail, plan->granularity, (int32_t)KVT_MIN(plan->start, INT32_MAX),
                               (int32_t)KVT_MIN(plan->window, INT32_MAX)};
    return s;
}
/* Of the newest of n_rows rows. Where rows are encoded at once there are no pages of the tail. */
KVT_INLINE struct kvt_cuda_visible kvt_cuda_see(const struct kvt_cuda_sight *s, int32_t n_rows) {
    const int32_t rows = n_rows < s->start ? 0 : KVT_MAX(n_rows - s->sink - s->tail, 0);
    const int32_t body_end = s->sink + rows / s->granularity * s->granularity,
                  oldest = s->window ? KVT_MAX(s->sink, n_rows - s->window) : s->sink;
    const bool direct = s->granularity == 1 && s->tail == 0 && s->start == 0;
    struct kvt_cuda_visible v;
    v.first[KVT_REGION_SINK] = 0;
    v.end[KVT_REGION_SINK] = KVT_MIN(s->sink, n_rows);
    v.first[KVT_REGION_BODY] = oldest;
    v.end[KVT_REGION_BODY] = body_end;
    v.first[KVT_REGION_TAIL] = direct ? 0 : KVT_MAX(body_end, oldest);
    v.end[KVT_REGION_TAIL] = direct ? 0 : n_rows;
    return v;
}

/* A sequence in a call. Pages are device pointers to their tiles, by tile of the context; those that units touch must be there. */
struct kvt_cuda_seq {
    const void *const *pages[KVT_REGION_COUNT];
    int32_t n_units[KVT_REGION_COUNT];
    int32_t first_unit[KVT_REGION_COUNT]; /* its number when units of the region are counted from position 0 */
    int32_t row, n_rows;                  /* its query rows in the call: their kvt_cuda_visible, q and out */
    struct kvt_cuda_visible all;          /* what every one of them sees */
};

struct kvt_cuda_share {
    int32_t seq, head;
    int32_t row, n_rows;         /* the sequence's, see kvt_cuda_seq */
    int32_t column;              /* the first of the query vectors (row * group + head in the group) that it computes */
    int32_t first, end;          /* units */
    int32_t next;                /* the block's next share, or -1 */
    int32_t slot;                /* of its part */
    int32_t first_slot, n_parts; /* of this head and these columns; n_parts 1: the share is all there is */
    int32_t counter;             /* which of `done` counts the parts */
};

struct kvt_cuda_page {
    struct kvt_tile tile[KVT_SIDE_COUNT];
    size_t head_bytes; /* from one KV head's K tile to the next one's; V follows K */
};

struct kvt_cuda_attend {
    int group;                              /* query heads of a KV head */
    struct kvt_cuda_page body, plain;       /* of body pages, and of sink and tail */
    size_t sink_head_bytes;                 /* tail pages may have more of a head than its tiles */
    const struct kvt_cuda_seq *seqs;        /* device memory, as all that follows */
    const struct kvt_cuda_visible *visible; /* of each query row */
    const struct kvt_cuda_share *shares;    /* block i begins with share i */
    int n_blocks, n_columns;                /* n_columns: 8 or 16, of each share */
    const void *q;
    enum kvt_type q_type;
    ptrdiff_t q_row_stride, q_head_stride;
    float *out;
    ptrdiff_t out_row_stride, out_head_stride;
    float *lse; /* or NULL: [row][query head] */
    int n_q_heads;
    float scale, softcap;
    const float *sinks; /* or NULL: by query head */
    float *parts;       /* n_slots * kvt_cuda_part_floats() */
    int32_t *done;      /* n_columns for each counter; zero before the first call, left zero */
};

/* Of a part; v_size: of a row of values. */
#if defined(__CUDACC__)
__host__ __device__
#endif
    static inline size_t
    kvt_cuda_part_floats(int v_size, int n_columns) {
    return (size_t)n_columns * ((size_t)v_size + 2);
}

/* How work over these tiles is cut: rows of a unit of each region, and blocks of threads that a multiprocessor runs at once. */
struct kvt_cuda_cut {
    int rows[KVT_REGION_COUNT], blocks;
};
struct kvt_cuda_cut kvt_cuda_attend_cut(const struct kvt_cuda_page *body, const struct kvt_cuda_page *plain,
                                        int n_columns);

/* How many query vectors of a KV head a share computes, 8 or 16, where a sequence has at most `longest`: 8 also for more where the kernels for
 * 16 do not know the codes, since reading tiles twice by those that do is faster. */
int kvt_cuda_attend_columns(const struct kvt_cuda_page *body, const struct kvt_cuda_page *plain, int longest);

/* Launches on a stream (a cudaStream_t). */
KVT_MUST_CHECK enum kvt_status kvt_cuda_attend_launch(const struct kvt_cuda_attend *attend, void *stream,
                                                      struct kvt_error *err);

/* The kernel for tiles of any kind and rows of any size (attend_any.cu): units of 32 rows everywhere, as many blocks of a multiprocessor. */
int kvt_cuda_attend_any_blocks(const struct kvt_cuda_page *body, int n_columns);
KVT_MUST_CHECK enum kvt_status kvt_cuda_attend_any_launch(const struct kvt_cuda_attend *attend, void *stream,
                                                          struct kvt_error *err);

enum { KVT_CUDA_BEGIN_UNITS = 32, KVT_CUDA_TIMES_SLOWER = 2 };

/* Cuts work into shares for at most *n_blocks blocks, and says how many there are: a function of the units and that number alone. A unit costs
 * cost[region], a number of bytes, KVT_CUDA_TIMES_SLOWER times that in sink and tail; a share costs as much as KVT_CUDA_BEGIN_UNITS of the body
 * beside, for its queries and for handing in, unless heads and blocks go into each other. Returns how many shares there are (the first *n_blocks of them begin blocks), or -1 if max_shares are too few;
 * *n_slots is the number of parts. The plan of one step serves all layers of the same shape. */
int kvt_cuda_attend_plan(struct kvt_cuda_share *shares, int max_shares, int *n_slots, const struct kvt_cuda_seq *seqs,
                         int n_seqs, int n_heads, int group, int n_columns, const int cost[KVT_REGION_COUNT],
                         int *n_blocks);

/* How many blocks to cut work into: one for each multiprocessor, a few less where heads of equal length are cut evenly then, and no more
 * than there is work for. n_counters: heads of all sequences, times the columns' shares of each. */
int kvt_cuda_attend_blocks(const struct kvt_cuda_seq *seqs, int n_seqs, int n_heads, int n_counters,
                           int n_multiprocessors);

#ifdef __cplusplus
}
#endif
#endif
