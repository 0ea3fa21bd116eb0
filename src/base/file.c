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
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer must not hang us */
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

void kvt_map_release(const struct kvt_map *map, size_t at, size_t bytes) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), data = (uintptr_t)map->data;
    const uintptr_t first = (data + at + page - 1) / page * page, end = (data + at + bytes) / page * page;
    if (map->data && first < end) (void)madvise((void *)first, end - first, MADV_DONTNEED);
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

/* Beside the file, so that rename stays within one file system: PATH.PID-N.new */
enum { SUFFIX_BYTES = 32, MAX_TRIES = 1000 };

/* Opens a file that did not exist; the mode is what the process's mask leaves of 0666. */
static int open_new(char *name, size_t path_len) {
    for (int i = 0; i < MAX_TRIES; i++) {
        snprintf(name + path_len, SUFFIX_BYTES, ".%ld-%d.new", (long)getpid(), i);
        const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

enum kvt_status kvt_writer_open(struct kvt_writer *w, const char *path, const struct kvt_allocator *allocator,
                                struct kvt_error *err) {
    const size_t len = strlen(path);
    struct kvt_writer n = {.fd = -1, .allocator = kvt_allocator_or_default(allocator), .status = KVT_OK};
    n.path = kvt_take_string(&n.allocator, path, len);
    n.temporary = kvt_take_zero(&n.allocator, len + SUFFIX_BYTES, 1);
    enum kvt_status status = KVT_OK;
    struct stat st;
    if (!n.path || !n.temporary) {
        status = kvt_fail(err, KVT_ERR_NOMEM, "no memory to write '%s'", path);
    } else if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        n.fd = open(path, O_WRONLY | O_CLOEXEC);
        if (n.fd < 0) status = io_error(err, "open", path);
    } else {
        memcpy(n.temporary, path, len);
        n.fd = open_new(n.temporary, len);
        if (n.fd < 0) status = io_error(err, "create", path);
    }
    if (status != KVT_OK) {
        kvt_give(&n.allocator, n.path, len + 1, 1);
        kvt_give(&n.allocator, n.temporary, len + SUFFIX_BYTES, 1);
        return status;
    }
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

static void keep_errno(struct kvt_writer *w) {
    w->status = KVT_ERR_IO;
    w->error_number = errno;
}

/* Closes and frees; a temporary file that is still there goes. */
static void writer_finish(struct kvt_writer *w) {
    const size_t len = strlen(w->path);
    if (w->fd >= 0) close(w->fd);
    if (w->temporary[0]) unlink(w->temporary);
    kvt_give(&w->allocator, w->path, len + 1, 1);
    kvt_give(&w->allocator, w->temporary, len + SUFFIX_BYTES, 1);
    *w = (struct kvt_writer){.fd = -1};
}

enum kvt_status kvt_writer_commit(struct kvt_writer *w, struct kvt_error *err) {
    const bool replaces = w->temporary[0];
    if (w->status == KVT_OK && replaces && fsync(w->fd) != 0) keep_errno(w);
    if (close(w->fd) != 0 && w->status == KVT_OK) keep_errno(w);
    w->fd = -1;
    if (w->status == KVT_OK && replaces) {
        if (rename(w->temporary, w->path) == 0)
            w->temporary[0] = 0;
        else
            keep_errno(w);
    }
    const enum kvt_status status = w->status;
    if (status != KVT_OK)
        kvt_fail(err, status, "cannot write '%s': %s%s", w->path, strerror(w->error_number),
                 replaces ? "; the old file, if any, is unchanged" : "");
    writer_finish(w);
    return status;
}

void kvt_writer_abandon(struct kvt_writer *w) {
    if (w->path) writer_finish(w);
}

enum kvt_status kvt_file_write(const char *path, const void *data, size_t bytes, struct kvt_error *err) {
    struct kvt_writer w;
    KVT_TRY(kvt_writer_open(&w, path, NULL, err));
    kvt_writer_add(&w, data, bytes);
    return kvt_writer_commit(&w, err);
}

enum kvt_status kvt_file_probe(const char *path, struct kvt_error *err) {
    struct kvt_writer w;
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) return KVT_OK; /* a pipe would wait */
    KVT_TRY(kvt_writer_open(&w, path, NULL, err));
    kvt_writer_abandon(&w);
    return KVT_OK;
}
