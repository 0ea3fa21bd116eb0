/* SPDX-License-Identifier: Apache-2.0
 *
 * The cache: plans, pools of pages, sequences, and steps that append to them.
 *
 *   shape + "kivi4g32,affine4g64" --> plan --> pool --> sequences
 *   step: begin(sequences, rows each); for each layer: append K and V (and queries), attend; end
 *
 * Per layer a sequence is `sink | body | tail`: the first rows kept in 16 bits (whole tiles), the encoded rows, the newest
 * rows kept in 16 bits. With g the larger granularity of the layer's two codecs, after T rows the body ends at
 *     sink + g * floor(max(0, T - sink - tail) / g)      (0 encoded rows while T < start)
 * which depends on T alone, so the bytes never depend on how a prompt was cut. A query at position p sees the cache as it
 * is after p + 1 rows, also inside a prompt that arrives in one piece. A codec of granularity g therefore has between `tail`
 * and `tail + g - 1` rows in 16 bits; they are counted as such.
 *
 * "16 bits" is f16, rounded once when a row enters. On a side whose codec is f32 or bf16, sink and tail have that type too.
 *
 * Memory: pages are the unit. A page holds the tiles, K and V, all KV heads, of one layer for 128 positions. Pages are
 * taken when rows arrive and given back when rows leave; nothing else allocates after create.
 *
 * Threads: a plan is immutable. Different sequences of one pool may be used from different threads at once; one sequence
 * (and the step that holds it) belongs to one thread at a time: that is the caller's job, and asserted in dev builds.
 */
#ifndef KVTILE_CACHE_H
#define KVTILE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "kvtile/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- shape and plan --------------------------------------------------------------------------------------------------- */

/* One layer's rows. */
struct kvt_layer_shape {
    int n_kv_heads;
    int k_size; /* elements of a key row */
    int v_size; /* elements of a value row */
    int window; /* a query sees this many newest rows, its own included; 0: all */
};

struct kvt_shape {
    int n_layers;
    const struct kvt_layer_shape *layers; /* borrowed during the call that takes it */
};

struct kvt_plan_options {
    size_t struct_size; /* sizeof(struct kvt_plan_options) */
    /* "K" or "K,V": codec names; then, each after a colon, layers that differ: "kivi4g32:0-1=f16:7=kivi8g32,f16". "kvt4" is
     * "kq4,vu4". NULL: "f16". */
    const char *kv;
    int sink; /* rows, a multiple of 128 */
    int tail; /* rows */
    /* Nothing is encoded while a sequence has fewer rows; then all that is past the tail is. 0: from the first. */
    int64_t start;
    /* A query sees the sink and the newest rows, this many together; older ones are dropped by whole pages. At least sink + tail + 128;
     * 0: all rows. */
    int64_t rolling;
    bool hold_last; /* of more than two layers the last one keeps 16 bits */
    bool fallback;  /* a layer whose rows a codec cannot store keeps 16 bits, instead of failing the plan */
};

/* Why a layer keeps 16 bits that was asked to encode. */
enum kvt_kept {
    KVT_KEPT_NOT,
    KVT_KEPT_LAST,  /* hold_last */
    KVT_KEPT_SHAPE, /* fallback */
    KVT_KEPT_WINDOW /* its window lies within the rows that stay in 16 bits anyway */
};

/* The names that kvt_plan_options.kv may have alone, for lists: codecs that store both sides, then pairs ("kvt4" is
 * "kq4,vu4"). NULL from the last one on. */
KVT_API const char *kvt_kv_at(size_t i);

/* Which codec, sink and tail each layer has, resolved once. Owned by the caller; pools keep a copy of what they need. */
struct kvt_plan;

struct kvt_layer_plan {
    struct kvt_layer_shape shape;
    const struct kvt_codec *codec[KVT_SIDE_COUNT];
    const struct kvt_codec *wide[KVT_SIDE_COUNT]; /* the codec of sink and tail rows: f16, or the side's own if plain */
    int sink, tail;                               /* a layer with a window of its own has no sink: its first rows go */
    int64_t start;
    int64_t window; /* newest rows that a query sees beside the sink, its own included; 0: all */
    int granularity;
    enum kvt_kept kept;
    const char *reason; /* why this layer has what it has; lives as long as the plan */
};

/* Makes a plan. ARG for options that make no sense, UNSUPPORTED if a codec cannot store a layer's rows (the sentence names
 * layer, side and rule) and there is no fallback. allocator may be NULL. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_plan_create(struct kvt_plan **out, const struct kvt_shape *shape,
                                                       const struct kvt_plan_options *options,
                                                       const struct kvt_allocator *allocator, struct kvt_error *err);
KVT_API void kvt_plan_destroy(struct kvt_plan *plan); /* NULL is fine */

KVT_API int kvt_plan_n_layers(const struct kvt_plan *plan);
/* Layers that encode one side at least. */
KVT_API int kvt_plan_n_encoded(const struct kvt_plan *plan);
/* Borrowed from the plan; NULL if there is no such layer. */
KVT_API const struct kvt_layer_plan *kvt_plan_layer(const struct kvt_plan *plan, int layer);
/* The plan as a string that kvt_plan_options.kv takes ("kivi4g32,affine4g64"); lives as long as the plan. */
KVT_API const char *kvt_plan_kv(const struct kvt_plan *plan);

/* Where the body of a layer ends after n_rows rows; it begins at the sink's end, so this is the sink while nothing is encoded. 0 if
 * there is no such layer. */
KVT_API int64_t kvt_plan_body_end(const struct kvt_plan *plan, int layer, int64_t n_rows);

enum kvt_region { KVT_REGION_SINK, KVT_REGION_BODY, KVT_REGION_TAIL, KVT_REGION_COUNT };

/* Allocated bytes and rows. Bytes are those of whole pages: what is allocated, not what is filled. */
struct kvt_usage {
    uint64_t bytes[KVT_SIDE_COUNT][KVT_REGION_COUNT];
    uint64_t total_bytes;
    /* Rows that a query can see, of one layer: of layer 0 where the usage is of all layers. */
    int64_t rows[KVT_REGION_COUNT];
};

/* The usage of one sequence of n_rows rows between steps, exactly what a pool allocates for it if nothing is shared.
 * layer -1: all layers. All zero if there is no such layer. */
KVT_API struct kvt_usage kvt_plan_usage(const struct kvt_plan *plan, int layer, int64_t n_rows);
/* kvt_plan_usage(plan, -1, n_rows).total_bytes */
KVT_API uint64_t kvt_plan_bytes(const struct kvt_plan *plan, int64_t n_rows);

/* ---- pool and sequences ----------------------------------------------------------------------------------------------- */

/* Where pages can live, for lists: "cpu", "cuda", then NULL. All are named in every build; kvt_pool_create says why one is absent. */
KVT_API const char *kvt_backend_at(size_t i);
/* One line about a backend: what of it this build and this machine have, or why it cannot be used. Looks for devices. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_backend_about(const char *name, char *text, size_t bytes,
                                                         struct kvt_error *err);

struct kvt_pool_options {
    size_t struct_size;                    /* sizeof(struct kvt_pool_options) */
    const char *backend;                   /* NULL: "cpu"; see kvt_backend_at */
    const char *level;                     /* NULL: "auto" */
    uint64_t byte_limit;                   /* of all pages; 0: none */
    const struct kvt_allocator *allocator; /* NULL: the C library */
    const struct kvt_parallel *parallel;   /* NULL: the calling thread. Used by steps */
    int device;                            /* "cuda": which one, from 0 on. ARG names those that are there */
    /* "cuda": the cudaStream_t in whose order the pool works; NULL: one of its own. Rows that are given in the device's memory must be
     * ready in that order, or before the call. */
    void *stream;
};

/* Pages of one plan on one backend. Must outlive its sequences and steps. Where its device fails the pool is lost: that call and later
 * ones give DEVICE with the reason, lengths stay as they were, and what there is can be destroyed. */
struct kvt_pool;

/* A pool without pages. The plan is copied; options may be NULL, an allocator is copied, a parallel-for too, whose context must live as long.
 * UNSUPPORTED for a backend that this build lacks, or that cannot encode one of the plan's codecs (the sentence names layer and side);
 * DEVICE where there is no device. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_pool_create(struct kvt_pool **out, const struct kvt_plan *plan,
                                                       const struct kvt_pool_options *options, struct kvt_error *err);
KVT_API void kvt_pool_destroy(struct kvt_pool *pool); /* after its sequences and steps. NULL is fine */
/* Bytes of the pages that are allocated now, a page shared by several sequences counted once; and the most so far. */
KVT_API uint64_t kvt_pool_bytes(const struct kvt_pool *pool);
KVT_API uint64_t kvt_pool_peak_bytes(const struct kvt_pool *pool);
/* Bytes that the backend holds for the pool's pages. On "cpu" those of the pages; on "cuda" memory is taken in slabs of up to 32 MiB, cut
 * into pages of one size, so it is more: by less than one slab for each size of pages, as pages come, and by what is free in slabs. */
KVT_API uint64_t kvt_pool_reserved_bytes(struct kvt_pool *pool);

/* One timeline of rows. */
struct kvt_seq;

/* An empty sequence that can hold max_rows rows, at least 1. Its table (16 bytes a layer and 128 rows) is taken here; each page has a
 * header of 64 bytes, which is counted. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_seq_create(struct kvt_seq **out, struct kvt_pool *pool, int64_t max_rows,
                                                      struct kvt_error *err);
KVT_API void kvt_seq_destroy(struct kvt_seq *seq); /* not in a step. NULL is fine */
/* The rows that it has; a step's count from its end on. */
KVT_API int64_t kvt_seq_n_rows(const struct kvt_seq *seq);
/* What it takes now, a page that it shares counted whole; layer -1: all layers. All zero if there is no such layer. */
KVT_API struct kvt_usage kvt_seq_usage(const struct kvt_seq *seq, int layer);

/* Cuts the sequence to its first n_rows rows. Exact where the result's rows are all as they were when n_rows were first
 * reached; where rows of the body become tail again they are decoded back to 16 bits and *out_exact is false.
 * out_exact may be NULL. RANGE if n_rows is negative or more than there are, or if rows that it needs were dropped; STATE in a
 * step; NOMEM or LIMIT leave everything as it was. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_seq_trim(struct kvt_seq *seq, int64_t n_rows, bool *out_exact,
                                                    struct kvt_error *err);
/* Cuts the sequence to no rows and gives all its pages back. Not in a step. */
KVT_API void kvt_seq_clear(struct kvt_seq *seq);

/* A new sequence with the rows of another, empty if that is. The two share all pages; a page is copied when one of them writes to
 * it. STATE in a step. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_seq_fork(struct kvt_seq **out, const struct kvt_seq *seq,
                                                    struct kvt_error *err);
/* Reorders the timelines of n distinct sequences of one pool, as beam search does: afterwards seqs[i] has the rows that
 * seqs[parents[i]] had. A parent may be named often or never. All or nothing. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_seq_permute(struct kvt_seq *const *seqs, const int *parents, int n,
                                                       struct kvt_error *err);

/* Decodes rows [first, first + n) of one layer, side and KV head as they are stored now: row i at rows + i * stride. RANGE for
 * rows that are not there, or no longer. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_seq_read(const struct kvt_seq *seq, int layer, enum kvt_side side, int head,
                                                    int64_t first, int64_t n, float *rows, ptrdiff_t stride,
                                                    struct kvt_error *err);

/* ---- steps ------------------------------------------------------------------------------------------------------------ */

enum kvt_type { KVT_TYPE_F32, KVT_TYPE_F16, KVT_TYPE_BF16 };

/* A matrix of rows per head, in the caller's memory (on "cuda" the process's or the device's): element c of row r of head h is
 * data[r * row_stride + h * head_stride + c], strides in elements. */
struct kvt_rows {
    const void *data;
    enum kvt_type type;
    ptrdiff_t row_stride;
    ptrdiff_t head_stride;
};

/* Appends rows to a batch of sequences, layer by layer. Made once for at most max_seqs sequences and max_rows rows a step
 * (of all sequences together), reused for every step, so that a token's path allocates nothing but pages. */
struct kvt_step;

/* ARG for fewer rows than sequences; NOMEM. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_step_create(struct kvt_step **out, struct kvt_pool *pool, int max_seqs,
                                                       int max_rows, struct kvt_error *err);
KVT_API void kvt_step_destroy(struct kvt_step *step); /* abandons what is begun. NULL is fine */

/* Begins to append n_rows[i] >= 1 rows to seqs[i], distinct sequences of the step's pool. Takes all pages that the step
 * needs, copies of shared ones too: NOMEM or LIMIT leave everything as it was. LIMIT also if rows pass a sequence's max_rows. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_step_begin(struct kvt_step *step, struct kvt_seq *const *seqs,
                                                      const int *n_rows, int n_seqs, struct kvt_error *err);

/* Gives one layer its new rows: of all sequences, one after another. `q` are the query rows of the same positions, for
 * codecs that use them (kvt_codec_info.queries), or NULL; n_q_heads is their number of heads. Given or not, it must be the same for all
 * rows of a sequence and all layers with such codecs: ARG. RANGE names layer, side, head and position of a number
 * that is NaN, infinite or too large; the step can then only be abandoned. Each layer exactly once. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_step_append(struct kvt_step *step, int layer, const struct kvt_rows *k,
                                                       const struct kvt_rows *v, const struct kvt_rows *q,
                                                       int n_q_heads, struct kvt_error *err);

/* Ends the step: the rows are part of their sequences, 16-bit rows that no later query sees are given back. STATE if a
 * layer has no rows yet. On "cuda" it waits for the device, and is where RANGE comes of bad numbers in rows that lay there: like
 * after an append that failed, the step can then only be abandoned. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_step_end(struct kvt_step *step, struct kvt_error *err);

/* Forgets the step: its sequences are as they were before begin, but that pages which begin had to copy are no longer shared.
 * Harmless if no step is begun. */
KVT_API void kvt_step_abandon(struct kvt_step *step);

#ifdef __cplusplus
}
#endif
#endif
