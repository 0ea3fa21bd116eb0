/* SPDX-License-Identifier: Apache-2.0
 * Files: read-only maps, whole reads, and writes that replace a file at once or not at all. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "base/buf.h"

struct kvt_map {
    const unsigned char *data; /* NULL for an empty file */
    size_t bytes;
};

/* Maps a regular file read-only. IO (with the system's reason) or FORMAT (not a regular file). */
KVT_MUST_CHECK enum kvt_status kvt_map_open(struct kvt_map *out, const char *path, struct kvt_error *err);
void kvt_map_close(struct kvt_map *map); /* harmless on a zeroed map */
/* Lets the system have the memory of bytes at + 0 .. bytes - 1 of a map back: they are read again when somebody looks. */
void kvt_map_release(const struct kvt_map *map, size_t at, size_t bytes);

/* Reads a file, or standard input for "-", into buf, up to its maximum (LIMIT past it). */
KVT_MUST_CHECK enum kvt_status kvt_file_read(struct kvt_buf *buf, const char *path, struct kvt_error *err);

/* A file written under a temporary name beside `path`, synced and renamed by commit; abandon removes it. Where `path` is
 * something else than a file (a pipe, a terminal, a device) it is written to as it is. */
struct kvt_writer {
    int fd;
    char *path, *temporary; /* temporary is empty where path itself is written */
    struct kvt_allocator allocator;
    enum kvt_status status; /* of the first write that failed */
    int error_number;
};
KVT_MUST_CHECK enum kvt_status kvt_writer_open(struct kvt_writer *w, const char *path,
                                               const struct kvt_allocator *allocator, struct kvt_error *err);
void kvt_writer_add(struct kvt_writer *w, const void *data, size_t bytes); /* a failure is kept for commit */
KVT_MUST_CHECK enum kvt_status kvt_writer_commit(struct kvt_writer *w, struct kvt_error *err);
void kvt_writer_abandon(struct kvt_writer *w); /* harmless after commit and on a zeroed writer */

/* Whether a file could be written under that name, before the work whose result it is to hold; nothing stays. */
KVT_MUST_CHECK enum kvt_status kvt_file_probe(const char *path, struct kvt_error *err);

/* All in one. */
KVT_MUST_CHECK enum kvt_status kvt_file_write(const char *path, const void *data, size_t bytes, struct kvt_error *err);

#endif
