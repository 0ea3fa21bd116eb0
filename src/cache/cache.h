/* SPDX-License-Identifier: Apache-2.0
 *
 * Door of cache: what plans, pools, sequences and steps are made of, for attention and backends.
 */
#ifndef CACHE_CACHE_H
#define CACHE_CACHE_H

#include "base/alloc.h"
#include "base/check.h"
#include "cache/policy.h"
#include "kernel/kernel.h"
#include "kvtile/cache.h"

/* A page: its tiles, and how many sequences share it. */
struct kvt_page {
    void *tiles; /* aligned to 64 */
    _Atomic int n_owners;
};
enum { KVT_PAGE_HEADER = 64, KVT_MAX_LAYERS = 4096 };
#define KVT_SEQ_MAX_ROWS (INT64_C(1) << 40)
_Static_assert(sizeof(struct kvt_page) <= KVT_PAGE_HEADER, "a page's header");

/* How one kind of page of a layer lies in memory: for each KV head its K tile, then its V tile. */
struct kvt_page_shape {
    struct kvt_tile tile[KVT_SIDE_COUNT];
    size_t head_bytes;
    size_t bytes; /* of the tiles of all heads and the header */
};

static inline size_t kvt_page_offset(const struct kvt_page_shape *page, int head, enum kvt_side side) {
    return (size_t)head * page->head_bytes + (side == KVT_SIDE_V ? page->tile[KVT_SIDE_K].bytes : 0);
}

/* Of the queries, where a page has them. */
static inline size_t kvt_queries_offset(const struct kvt_page_shape *page, int head) {
    return kvt_page_offset(page, head, KVT_SIDE_V) + page->tile[KVT_SIDE_V].bytes;
}

static inline void *kvt_page_tile(const struct kvt_page *page, const struct kvt_page_shape *shape, int head,
                                  enum kvt_side side) {
    return (char *)page->tiles + kvt_page_offset(shape, head, side);
}

/* One layer of a plan, with all that follows from it. */
struct kvt_layer {
    struct kvt_layer_plan plan; /* its reason is the text below */
    char reason[KVT_REASON_MAX];
    struct kvt_page_shape page[KVT_REGION_COUNT]; /* sink and tail are alike */
    float limit[KVT_SIDE_COUNT];                  /* the largest magnitude of a row's element */
    const struct kvt_codec *queries_codec; /* where the K codec uses queries: of those beside each head's tiles in */
    struct kvt_tile queries;               /* pages of the tail; else of 0 bytes */
    int queries_parts;                     /* row r has part r modulo this of the channels */
    /* Granularity 1, no tail, no start: a row is encoded before anyone reads it, and never kept in 16 bits. */
    bool direct;
};

struct kvt_plan {
    struct kvt_allocator allocator;
    int n_layers;
    int max_heads, max_row; /* KV heads and elements of a row, over all layers */
    size_t room;            /* floats of kvt_encode_args.room, likewise */
    char *kv;               /* its string */
    struct kvt_layer *layers;
};

/* Entries of a sequence's table for tiles of max_rows rows, and where the list of a layer's region begins there. */
size_t kvt_seq_table_len(const struct kvt_plan *plan, int64_t n_tiles);

int64_t kvt_layer_body_end(const struct kvt_layer *layer, int64_t n_rows);

/* Pages [first, end) of each region that n_rows rows need between steps. */
struct kvt_page_sets {
    int64_t first[KVT_REGION_COUNT], end[KVT_REGION_COUNT];
};
struct kvt_page_sets kvt_layer_pages(const struct kvt_layer *layer, int64_t n_rows);

/* The first row past the sink that the newest of n_rows rows sees, and so the first that is kept. */
int64_t kvt_layer_first_row(const struct kvt_layer *layer, int64_t n_rows);

/* Where encoding goes on in a sequence of n_rows rows: where it stopped, or at the first tile that is still there. */
int64_t kvt_layer_encode_from(const struct kvt_layer *layer, int64_t n_rows);

/* What kvt_step_append is given. */
struct kvt_append {
    const struct kvt_rows *rows[KVT_SIDE_COUNT], *queries; /* queries: or NULL */
    int n_q_heads;
};

/* What a backend does for a pool: memory of pages and rows in them. `bytes` of a page is its size, the header counted.
 * A backend whose operations can fail where none of ours can (a device that is lost) says so by kvt_pool_lose. */
struct kvt_page_ops {
    /* What the backend keeps of its own with a pool, a sequence's table and a step: pool->device, seq->device, step->device.
     * NULL: nothing. */
    enum kvt_status (*open)(struct kvt_pool *pool, const struct kvt_pool_options *options, struct kvt_error *err);
    void (*close)(struct kvt_pool *pool);
    enum kvt_status (*seq_open)(struct kvt_seq *seq, struct kvt_error *err);
    void (*seq_close)(struct kvt_seq *seq);
    enum kvt_status (*step_open)(struct kvt_step *step, struct kvt_error *err);
    void (*step_close)(struct kvt_step *step);
    /* Once a step has all its pages / before its rows become part of their sequences. NULL: nothing to do. */
    enum kvt_status (*begin)(struct kvt_step *step, struct kvt_error *err);
    enum kvt_status (*end)(struct kvt_step *step, struct kvt_error *err);
    /* A layer's new rows; the arguments are checked, the numbers are not. */
    enum kvt_status (*append)(struct kvt_step *step, int layer, const struct kvt_append *given, struct kvt_error *err);
    /* Bytes that the backend holds for pages, also for those to come. NULL: those of the pages. */
    uint64_t (*reserved)(struct kvt_pool *pool);
    /* A page, its tiles cleared. NOMEM with a sentence. */
    enum kvt_status (*take)(struct kvt_pool *pool, size_t bytes, struct kvt_page **out, struct kvt_error *err);
    void (*give)(struct kvt_pool *pool, struct kvt_page *page, size_t bytes);
    void (*copy)(struct kvt_pool *pool, struct kvt_page *to, const struct kvt_page *from, size_t bytes);
    /* All tiles of a page to and from the process's memory, as they are. */
    void (*read)(struct kvt_pool *pool, void *tiles, const struct kvt_page *page, size_t bytes);
    void (*write)(struct kvt_pool *pool, struct kvt_page *page, const void *tiles, size_t bytes);
    /* Rows to and from a tile; see kvt_encoder and kvt_tile_decode. */
    void (*encode)(struct kvt_pool *pool, const struct kvt_encode_args *args);
    void (*decode)(struct kvt_pool *pool, const struct kvt_tile *tile, float *rows, ptrdiff_t stride, const void *bytes,
                   int first, int n);
};

struct kvt_pool {
    struct kvt_allocator allocator;
    struct kvt_parallel parallel;
    const struct kvt_page_ops *ops;
    const void *backend; /* the backend's row */
    struct kvt_kernels kernels;
    struct kvt_plan *plan; /* a copy */
    uint64_t byte_limit;
    _Atomic uint64_t bytes, peak_bytes;
    _Atomic int n_users; /* sequences and steps */
    void *device;        /* the backend's */
    _Atomic int lost;    /* 0: no. 1: being said. 2: why is in `why` */
    struct kvt_error why;
};

/* The backend has failed, and its pages' contents are gone or unknown: every later call that would need them gives this error.
 * What the process knows (lengths, tables) stays whole, and everything can be destroyed. */
void kvt_pool_lose(struct kvt_pool *pool, const struct kvt_error *why);
/* DEVICE with the sentence of that failure, if there was one. */
KVT_MUST_CHECK enum kvt_status kvt_pool_check(struct kvt_pool *pool, struct kvt_error *err);

/* What kvt_pool_create does once the backend is found. */
KVT_MUST_CHECK enum kvt_status kvt_pool_create_on(struct kvt_pool **out, const struct kvt_plan *plan,
                                                  const struct kvt_pool_options *options,
                                                  const struct kvt_page_ops *ops, const void *backend,
                                                  struct kvt_error *err);
/* A page with one owner. LIMIT or NOMEM, with a sentence. */
KVT_MUST_CHECK enum kvt_status kvt_page_take(struct kvt_pool *pool, size_t bytes, struct kvt_page **out,
                                             struct kvt_error *err);
/* One owner less; the last one gives it back. NULL is fine. */
void kvt_page_leave(struct kvt_pool *pool, struct kvt_page *page, size_t bytes);

/* The pages of one region of a sequence's layer, by tile; all that are there lie in [first, end). */
struct kvt_page_list {
    struct kvt_page **pages;
    int64_t first, end;
    int64_t changed_first, changed_end; /* entries that are other than when the backend last looked */
};

/* A shared page that a copy has replaced, until what the copy was made for is certain. */
struct kvt_kept_page {
    struct kvt_page *page; /* NULL: none */
    int64_t tile;
};

struct kvt_seq_layer {
    struct kvt_page_list list[KVT_REGION_COUNT];
    struct kvt_kept_page kept[KVT_REGION_COUNT];
    int64_t wide_from; /* rows [wide_from, n_rows) past the sink are in pages of the tail */
};

/* Whether rows come with their queries. */
enum kvt_queries { KVT_QUERIES_UNKNOWN, KVT_QUERIES_NONE, KVT_QUERIES_GIVEN };

struct kvt_seq {
    struct kvt_pool *pool;
    enum kvt_queries queries; /* of its rows, where there are any and a layer's codec uses them */
    int64_t n_rows, max_rows, n_tiles;
    struct kvt_seq_layer *layers;
    struct kvt_page **table;
    struct kvt_step *step; /* that holds it, or NULL */
    void *device;          /* the backend's */
    _Atomic bool busy;     /* a call is at work on it */
};

/* A sequence or step is in one call at a time: checked where our assertions are on. */
static inline void kvt_enter(_Atomic bool *busy) { KVT_ASSERT(!atomic_exchange(busy, true)); }
static inline void kvt_exit(_Atomic bool *busy) { atomic_store(busy, false); }
static inline _Atomic bool *kvt_seq_busy(const struct kvt_seq *seq) {
    return &((struct kvt_seq *)(uintptr_t)seq)->busy; /* also of one that is only looked at */
}

/* Makes the page under tile t of a region the sequence's own: a new one where there is none, a copy where it is shared with
 * more than n_friends others (who are known not to look at it until they have settled). The shared page is kept; one for each
 * layer and region. Then either kvt_seq_settle, or kvt_seq_undo, which leaves all pages as they were before. */
KVT_MUST_CHECK enum kvt_status kvt_seq_own_page(struct kvt_seq *seq, int layer, enum kvt_region region, int64_t t,
                                                int n_friends, struct kvt_error *err);
void kvt_seq_settle(struct kvt_seq *seq);
void kvt_seq_undo(struct kvt_seq *seq);
/* Leaves the pages that n_rows rows do not need between steps. */
void kvt_seq_fit(struct kvt_seq *seq, int64_t n_rows);

/* How many of the rows [first, first + n) are in one tile and one region. */
int kvt_seq_run(const struct kvt_seq *seq, int layer, int64_t first, int64_t n);
/* Decodes such a run of rows. */
void kvt_seq_read_run(const struct kvt_seq *seq, int layer, enum kvt_side side, int head, int64_t first, int n,
                      float *rows, ptrdiff_t stride);

/* One sequence in a step. */
struct kvt_step_entry {
    struct kvt_seq *seq;
    int64_t n_before; /* rows before the step */
    int n_rows;       /* rows of the step */
    int first;        /* their place in the step's batch */
};

struct kvt_bad_number {
    bool found, is_query;
    int head; /* is_query: the query head */
    enum kvt_side side;
    int64_t position;
    int channel;
    float value;
};

struct kvt_step {
    struct kvt_pool *pool;
    int max_seqs, max_rows, n_seqs, n_rows;
    struct kvt_step_entry *entries;
    bool *appended;             /* by layer */
    enum kvt_queries queries;   /* of its rows so far */
    struct kvt_bad_number *bad; /* by sequence and KV head: results of one append's jobs */
    float *rows;                /* per thread, 128 rows of the longest kind */
    void *attention;            /* scratch that attention keeps with a step, and its bytes */
    size_t attention_bytes;
    void *device; /* the backend's */
    _Atomic bool busy;
};

/* The append of backends whose pages are in the process's memory; the floats that each of its threads works in; and what
 * it says of a number that no tile takes. */
KVT_MUST_CHECK enum kvt_status kvt_append_rows(struct kvt_step *step, int layer, const struct kvt_append *given,
                                               struct kvt_error *err);
size_t kvt_append_floats(const struct kvt_pool *pool);
enum kvt_status kvt_bad_number_fail(const struct kvt_step *step, int layer, int head, const struct kvt_bad_number *bad,
                                    struct kvt_error *err);

/* Body rows of a layer after the step, and before it. */
static inline int64_t kvt_entry_body_end(const struct kvt_layer *layer, const struct kvt_step_entry *entry) {
    return kvt_layer_body_end(layer, entry->n_before + entry->n_rows);
}

/* Queries beside the rows of a layer (queries.c). Whether they come as they must: all or none, in whole groups. */
KVT_MUST_CHECK enum kvt_status kvt_queries_check(struct kvt_step *step, int layer, const struct kvt_rows *q,
                                                 int n_q_heads, struct kvt_error *err);
/* Keeps those of an entry's new rows and one KV head. False: *bad says of what number. */
bool kvt_queries_write(const struct kvt_step *step, int layer, const struct kvt_step_entry *entry, int head,
                       const struct kvt_rows *q, int n_q_heads, struct kvt_bad_number *bad);
/* What is kept of a whole tile: rows of k_size / queries_parts numbers, in rows; and by channel the sum of squares. */
void kvt_queries_read(struct kvt_pool *pool, const struct kvt_layer *layer, const struct kvt_page *page, int head,
                      float *rows, float *sums);

/* Element (row, head) of a caller's matrix as floats. */
void kvt_rows_load(const struct kvt_rows *rows, int64_t row, int head, int n, float *out);

#endif
