/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots: a sequence in a file, and back.
 *
 *   kvt_seq_save(seq, "chat.kvt", ids, n * sizeof *ids, &err)
 *   kvt_snapshot_open("chat.kvt") --> look at its rows and blob --> kvt_seq_load into a pool of the same plan
 *
 * A file names its version, that of its tiles, the shape and the plan of each layer, the basis its rows are stored in, and its
 * length; the header, the caller's blob and each page have a checksum (XXH3). Pages are as they are in memory; rows that are
 * not part of the sequence are zero, so equal sequences give equal files. A sequence that was loaded goes on exactly as the
 * one that was saved. docs/formats.md has the format byte by byte.
 */
#ifndef KVTILE_SNAPSHOT_H
#define KVTILE_SNAPSHOT_H

#include "kvtile/cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes a sequence, with a blob of the caller's own: token ids, a model's hash; NULL and 0 for none. The file is written
 * under a new name and renamed: whatever happens, `path` is the old file or the whole new one. IO with the system's reason;
 * STATE in a step; NOMEM. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_seq_save(const struct kvt_seq *seq, const char *path, const void *blob,
                                                    size_t blob_bytes, struct kvt_error *err);

/* The same bytes into memory: how many, and all of them. ARG if `bytes` are too few. */
KVT_API uint64_t kvt_seq_save_bytes(const struct kvt_seq *seq, size_t blob_bytes);
KVT_API KVT_MUST_CHECK enum kvt_status kvt_seq_save_memory(const struct kvt_seq *seq, void *out, size_t bytes,
                                                           const void *blob, size_t blob_bytes, struct kvt_error *err);

/* An open snapshot: header and blob are checked, pages are not yet. Immutable: any thread. */
struct kvt_snapshot;

/* Maps a file. FORMAT if it is no snapshot, cut, padded or damaged, UNSUPPORTED if it has a version that this library cannot read;
 * IO. Whoever else has the file must not cut it while it is open: kvt_seq_save does not. allocator may be NULL. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_snapshot_open(struct kvt_snapshot **out, const char *path,
                                                         const struct kvt_allocator *allocator, struct kvt_error *err);
/* The same from bytes in memory, which must outlive it. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_snapshot_open_memory(struct kvt_snapshot **out, const void *data,
                                                                size_t bytes, const struct kvt_allocator *allocator,
                                                                struct kvt_error *err);
KVT_API void kvt_snapshot_close(struct kvt_snapshot *snapshot); /* NULL is fine */

/* Pointers are borrowed from the snapshot. */
struct kvt_snapshot_info {
    int64_t n_rows;
    int n_layers;
    const char *kv; /* kvt_plan_kv of its plan */
    const void *blob;
    size_t blob_bytes;
    uint64_t bytes; /* of the file */
};
KVT_API struct kvt_snapshot_info kvt_snapshot_info(const struct kvt_snapshot *snapshot);

/* A new sequence of a pool, which can hold max_rows rows, with the rows of a snapshot. ARG if the snapshot was made with another
 * plan: the sentence names the first thing that differs, in the file and in the pool. FORMAT if a page is damaged; LIMIT if max_rows
 * or the pool's limit is too small; NOMEM. Then there is no sequence, and the pool is as it was. */
KVT_API KVT_MUST_CHECK enum kvt_status kvt_seq_load(struct kvt_seq **out, struct kvt_pool *pool,
                                                    const struct kvt_snapshot *snapshot, int64_t max_rows,
                                                    struct kvt_error *err);

#ifdef __cplusplus
}
#endif
#endif
