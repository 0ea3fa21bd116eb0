/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"

static enum kvt_status io_error(struct kvt_error *err, const char *verb, const char *path) {
    const int code = errno;
    return kvt_fail(err, KVT_ERR_IO, "cannot %s '%s': %s", verb, path, strerror(code));
}

enum kvt_status kvt_map_open(struct kvt_map *out, const char *path, struct kvt_error *err) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return io_error(err, "open", path);
    struct stat st;
    enum kvt_status status = KVT_OK;
    struct kvt_map map = {NULL, 0};
    if (fstat(fd, &st) != 0) {
        status = io_error(err, "examine", path);
    } else if (!S_ISREG(st.st_mode)) {
        status = kvt_fail(err, KVT_ERR_FORMAT, "'%s' is not a regular file", path);
    } else if (st.st_size > 0) {
        map.bytes = (size_t)st.st_size;
        void *data = mmap(NULL, map.bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            status = io_error(err, "map", path);
        else
            map.data = data;
    }
    close(fd);
    if (status == KVT_OK) *out = map;
    return status;
}

void kvt_map_close(struct kvt_map *map) {
    if (map->data) munmap((void *)(uintptr_t)map->data, map->bytes);
    *map = (struct kvt_map){NULL, 0};
}

enum kvt_status kvt_file_read(struct kvt_buf *buf, const char *path, struct kvt_error *err) {
    const bool is_stdin = strcmp(path, "-") == 0;
    const int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return io_error(err, "open", path);
    enum kvt_status status = KVT_OK;
    char chunk[65536];
    for (;;) {
        const ssize_t n = read(fd, chunk, sizeof chunk);
        if (n == 0) break;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            status = io_error(err, "read", is_stdin ? "standard input" : path);
            break;
        }
        status = kvt_buf_add(buf, chunk, (size_t)n);
        if (status == KVT_ERR_LIMIT)
            kvt_fail(err, status, "'%s' is longer than the limit of %zu bytes", path, buf->max);
        if (status == KVT_ERR_NOMEM) kvt_fail(err, status, "no memory to read '%s'", path);
        if (status != KVT_OK) break;
    }
    if (!is_stdin) close(fd);
    return status;
}

enum kvt_status kvt_writer_open(struct kvt_writer *w, const char *path, const struct kvt_allocator *allocator,
                                struct kvt_error *err) {
    static const char suffix[] = ".XXXXXX";
    const size_t len = strlen(path);
    struct kvt_writer n = {.fd = -1, .allocator = kvt_allocator_or_default(allocator), .status = KVT_OK};
    n.path = kvt_take_string(&n.allocator, path, len);
    n.temporary = kvt_take(&n.allocator, len + sizeof suffix, 1);
    enum kvt_status status = KVT_OK;
    if (!n.path || !n.temporary) {
        status = kvt_fail(err, KVT_ERR_NOMEM, "no memory to write '%s'", path);
    } else {
        memcpy(n.temporary, path, len);
        memcpy(n.temporary + len, suffix, sizeof suffix);
        n.fd = mkstemp(n.temporary);
        if (n.fd < 0) status = io_error(err, "create", path);
    }
    if (status != KVT_OK) {
        kvt_give(&n.allocator, n.path, len + 1, 1);
        kvt_give(&n.allocator, n.temporary, len + sizeof suffix, 1);
        return status;
    }
    /* mkstemp makes private files: give the mode that open would have given. */
    const mode_t mask = umask(0);
    umask(mask);
    fchmod(n.fd, 0666 & ~mask);
    *w = n;
    return KVT_OK;
}

void kvt_writer_add(struct kvt_writer *w, const void *data, size_t bytes) {
    const char *p = data;
    while (bytes > 0 && w->status == KVT_OK) {
        const ssize_t n = write(w->fd, p, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            w->status = KVT_ERR_IO;
            w->error_number = errno;
            return;
        }
        p += n;
        bytes -= (size_t)n;
    }
}

static void writer_finish(struct kvt_writer *w) {
    const size_t len = strlen(w->path);
    kvt_give(&w->allocator, w->path, len + 1, 1);
    kvt_give(&w->allocator, w->temporary, len + sizeof ".XXXXXX", 1);
    *w = (struct kvt_writer){.fd = -1};
}

enum kvt_status kvt_writer_commit(struct kvt_writer *w, struct kvt_error *err) {
    if (w->status == KVT_OK && fsync(w->fd) != 0) {
        w->status = KVT_ERR_IO;
        w->error_number = errno;
    }
    if (w->status == KVT_OK && rename(w->temporary, w->path) != 0) {
        w->status = KVT_ERR_IO;
        w->error_number = errno;
    }
    const enum kvt_status status = w->status;
    if (status != KVT_OK) {
        kvt_fail(err, status, "cannot write '%s': %s; the old file, if any, is unchanged", w->path,
                 strerror(w->error_number));
        kvt_writer_abandon(w);
        return status;
    }
    close(w->fd);
    writer_finish(w);
    return KVT_OK;
}

void kvt_writer_abandon(struct kvt_writer *w) {
    if (!w->path) return;
    close(w->fd);
    unlink(w->temporary);
    writer_finish(w);
}

enum kvt_status kvt_file_write(const char *path, const void *data, size_t bytes, struct kvt_error *err) {
    struct kvt_writer w;
    KVT_TRY(kvt_writer_open(&w, path, NULL, err));
    kvt_writer_add(&w, data, bytes);
    return kvt_writer_commit(&w, err);
}
