/* SPDX-License-Identifier: Apache-2.0
 *
 * What lies in a snapshot file, one after another, each at a multiple of 64 bytes (docs/formats.md):
 *
 *   kvt_snap_header, kvt_snap_layer for each layer, the blob and zeros, then for each page kvt_snap_page and its tiles
 *
 * The structs are the file's bytes: little-endian, without padding of the compiler's.
 */
#ifndef CACHE_SNAPSHOT_H
#define CACHE_SNAPSHOT_H

#include "base/file.h"
#include "cache/cache.h"
#include "kvtile/snapshot.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tiles and snapshots are little-endian");

enum { KVT_SNAP_VERSION = 1, KVT_SNAP_ALIGN = 64, KVT_SNAP_NAME = 40 };

/* Not text, so that a transfer that changes line ends shows (as in PNG). */
#define KVT_SNAP_MAGIC "\x89KVT\r\n\x1a\n"

struct kvt_snap_header {
    char magic[8];
    uint32_t version;
    uint32_t tile_version;
    uint64_t hash; /* of the bytes [24, header_bytes) */
    uint64_t header_bytes;
    uint64_t file_bytes;
    uint64_t blob_bytes, blob_hash;
    uint64_t n_pages;
    int64_t n_rows;
    uint32_t n_layers;
    uint32_t zero;
    char kv[80];
    char zeros[32];
};
_Static_assert(sizeof(struct kvt_snap_header) == 192 && offsetof(struct kvt_snap_header, header_bytes) == 24,
               "a snapshot's header");

enum { KVT_SNAP_HASHED = 24 };

/* What pages of the tail have beside the tiles: nothing, or tiles of queries, all zero where rows came without. */
enum kvt_snap_queries { KVT_SNAP_QUERIES_NO, KVT_SNAP_QUERIES_ZERO, KVT_SNAP_QUERIES };

/* Shape, plan and basis of a layer. Basis 0: rows as they were appended; 1: rotated (kvt_rotate). */
struct kvt_snap_layer {
    int32_t n_kv_heads, k_size, v_size;
    int32_t own_window;
    int32_t sink, tail;
    int64_t start;
    int64_t window;
    int32_t granularity;
    int32_t k_basis, v_basis;
    uint32_t k_tile, v_tile, wide_k_tile, wide_v_tile; /* bytes of a tile in the body, in sink and tail */
    int32_t queries;                                   /* enum kvt_snap_queries */
    int64_t wide_from;
    char codec[KVT_SIDE_COUNT][KVT_SNAP_NAME];
    char zeros[32];
};
_Static_assert(sizeof(struct kvt_snap_layer) == 192 && offsetof(struct kvt_snap_layer, wide_from) == 72,
               "a snapshot's layer");

struct kvt_snap_page {
    uint32_t layer, region;
    int64_t tile;
    uint64_t bytes; /* of the tiles */
    uint64_t hash;  /* of the tiles */
    char zeros[32];
};
/* So a page takes as many bytes in a file as in memory. */
_Static_assert(sizeof(struct kvt_snap_page) == KVT_PAGE_HEADER, "a snapshot's page");

struct kvt_snapshot {
    struct kvt_allocator allocator;
    struct kvt_map map; /* empty where the bytes are the caller's */
    const unsigned char *data;
    size_t bytes, blob_at, pages_at;
    struct kvt_snap_header header;
    char name[128]; /* for sentences */
};

/* The record of a layer of a plan; wide_from is 0, and queries are zero where there is room for them. */
struct kvt_snap_layer kvt_snap_describe(const struct kvt_layer *layer);
/* ARG with the first difference between layer l in the file and in this cache. */
KVT_MUST_CHECK enum kvt_status kvt_snap_compare(const struct kvt_snap_layer *file, const struct kvt_snap_layer *mine,
                                                int l, const char *name, struct kvt_error *err);
/* Whether a layer of n_rows rows can have rows in 16 bits from there on, all that it needs and no more than its pages hold. */
bool kvt_snap_wide_from_fits(const struct kvt_layer *layer, int64_t n_rows, int64_t wide_from);

/* Walks the pages of a sequence of n_rows rows in the order of the file: layers, regions, tiles. Begin with all zero. */
struct kvt_snap_walk {
    int layer, region;
    int64_t tile;
    bool begun;
};
bool kvt_snap_next(struct kvt_snap_walk *walk, const struct kvt_plan *plan, int64_t n_rows);

#endif
