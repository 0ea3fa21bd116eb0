/* SPDX-License-Identifier: Apache-2.0
 * Kept prefixes in files: MARK-HASH.kvt, a session each (kvt_session_save). */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/hash.h"
#include "kvtile/snapshot.h"
#include "serve/keeper.h"

#define ENDING ".kvt"

enum { FILES_MAX = 4096, HEAD_BYTES = 32, PATH_BYTES = 4096 };

/* A file's tokens, for the tree: the blob of its snapshot as model.h has it. What is ours in it is n_exact. */
static enum kvt_status read_ids(const char *path, struct kvt_ids *out, int *n_exact, struct kvt_error *err) {
    struct kvt_snapshot *snapshot = NULL;
    KVT_TRY(kvt_snapshot_open(&snapshot, path, NULL, err));
    const struct kvt_snapshot_info info = kvt_snapshot_info(snapshot);
    const size_t n = (size_t)info.n_rows;
    enum kvt_status status = KVT_OK;
    if (n == 0 || n > INT32_MAX || info.blob_bytes < HEAD_BYTES + n * sizeof(int32_t))
        status = kvt_fail(err, KVT_ERR_FORMAT, "%s holds no session", path);
    for (size_t i = 0; i < n && status == KVT_OK; i++) {
        int32_t id;
        memcpy(&id, (const char *)info.blob + HEAD_BYTES + i * sizeof id, sizeof id);
        status = kvt_ids_add(out, id);
    }
    const size_t extra = HEAD_BYTES + n * sizeof(int32_t);
    int32_t exact = 0;
    if (status == KVT_OK && info.blob_bytes == extra + sizeof exact)
        memcpy(&exact, (const char *)info.blob + extra, sizeof exact);
    *n_exact = exact >= 0 && (size_t)exact <= n ? exact : 0;
    kvt_snapshot_close(snapshot);
    return status;
}

struct found {
    char *path;
    int64_t written; /* seconds */
    uint64_t bytes;
};

/* The files of a folder that bear the mark, the oldest first; at most FILES_MAX. */
static int find_files(const struct kvt_keeper *k, struct found *out) {
    DIR *folder = opendir(k->options->kv_dir);
    int n = 0;
    for (const struct dirent *entry; folder && n < FILES_MAX && (entry = readdir(folder));) {
        const size_t len = strlen(entry->d_name);
        char path[PATH_BYTES];
        struct stat about;
        if (strncmp(entry->d_name, k->mark, strlen(k->mark)) != 0 || len < sizeof ENDING) continue;
        if (strcmp(entry->d_name + len - (sizeof ENDING - 1), ENDING) != 0) continue;
        const int n_path = snprintf(path, sizeof path, "%s/%s", k->options->kv_dir, entry->d_name);
        if (n_path < 0 || (size_t)n_path >= sizeof path || stat(path, &about) != 0) continue;
        char *copy = kvt_take_string(&kvt_allocator_libc, path, strlen(path));
        if (!copy) break;
        int at = n++;
        for (; at > 0 && out[at - 1].written > (int64_t)about.st_mtime; at--) out[at] = out[at - 1];
        out[at] = (struct found){copy, (int64_t)about.st_mtime, (uint64_t)about.st_size};
    }
    if (folder) closedir(folder);
    return n;
}

/* Puts a file into the tree; the path is the tree's then, or given. */
static void add_file(struct kvt_keeper *k, const struct found *file) {
    struct kvt_ids ids;
    struct kvt_error err = {0};
    int n_exact = 0;
    kvt_ids_init(&ids, NULL);
    struct kvt_kept_prefix *kept = kvt_take_zero(&kvt_allocator_libc, 1, sizeof *kept);
    enum kvt_status status = kept ? read_ids(file->path, &ids, &n_exact, &err) : KVT_ERR_NOMEM;
    if (status == KVT_OK) {
        *kept = (struct kvt_kept_prefix){.path = file->path, .file_bytes = file->bytes, .n_exact = n_exact};
        k->n_files++;
        k->file_bytes += file->bytes;
        status = kvt_prefix_put(&k->prefixes, ids.data, (int)ids.len, kept);
        if (status != KVT_OK) {
            k->n_files--;
            k->file_bytes -= file->bytes;
        }
    }
    if (status != KVT_OK) {
        kvt_keeper_log(k, "%s is passed over: %s", file->path, err.text[0] ? err.text : kvt_status_text(status));
        kvt_give(&kvt_allocator_libc, kept, 1, sizeof *kept);
        kvt_give(&kvt_allocator_libc, file->path, strlen(file->path) + 1, 1);
    }
    kvt_ids_finish(&ids);
}

void kvt_keeper_find_files(struct kvt_keeper *k) {
    struct found *files = kvt_take(&kvt_allocator_libc, FILES_MAX, sizeof *files);
    if (!files) return;
    const int n = find_files(k, files);
    for (int i = 0; i < n; i++) add_file(k, &files[i]);
    kvt_give(&kvt_allocator_libc, files, FILES_MAX, sizeof *files);
    if (n > 0) kvt_keeper_log(k, "%d kept prefixes found in %s", k->n_files, k->options->kv_dir);
}

void kvt_keeper_remove_file(struct kvt_keeper *k, struct kvt_kept_prefix *kept) {
    if (!kept->path) return;
    (void)remove(kept->path);
    k->n_files--;
    k->file_bytes -= kept->file_bytes;
    kvt_give(&kvt_allocator_libc, kept->path, strlen(kept->path) + 1, 1);
    kept->path = NULL;
}

/* Removes the files of the prefixes that were not used for longest, until `bytes` more fit. */
static void make_room(struct kvt_keeper *k, uint64_t bytes) {
    while (k->options->kv_dir_bytes && k->file_bytes + bytes > k->options->kv_dir_bytes && k->n_files > 0) {
        struct kvt_prefix_node *oldest = NULL;
        for (struct kvt_prefix_node *node = NULL; (node = kvt_prefix_next(&k->prefixes, node));)
            if (((struct kvt_kept_prefix *)node->item)->path && (!oldest || node->used < oldest->used)) oldest = node;
        if (!oldest) return;
        struct kvt_kept_prefix *kept = oldest->item;
        kvt_keeper_remove_file(k, kept);
        if (!kept->session) kvt_prefix_drop(&k->prefixes, oldest);
    }
}

void kvt_keeper_write(struct kvt_keeper *k, struct kvt_prefix_node *node) {
    struct kvt_kept_prefix *kept = node->item;
    struct kvt_error err = {0};
    struct stat about;
    char path[PATH_BYTES];
    const uint64_t hash = kvt_hash(kvt_session_ids(kept->session), (size_t)node->depth * sizeof(int32_t));
    snprintf(path, sizeof path, "%s/%s%016" PRIx64 ENDING, k->options->kv_dir, k->mark, hash);
    const int32_t n_exact = kept->n_exact;
    const uint64_t bytes = kvt_session_usage(kept->session).total_bytes;
    kept->worth = false;
    kept->n_hits = 0; /* where writing fails it is tried again when somebody comes back to it */
    if (k->options->kv_dir_bytes && bytes > k->options->kv_dir_bytes) return;
    make_room(k, bytes);
    if (kvt_session_save(kept->session, path, &n_exact, sizeof n_exact, &err) != KVT_OK || stat(path, &about) != 0) {
        kvt_keeper_log(k, "a prefix of %d tokens is not written: %s", node->depth, err.text);
        return;
    }
    kept->path = kvt_take_string(&kvt_allocator_libc, path, strlen(path));
    if (!kept->path) return;
    kept->file_bytes = (uint64_t)about.st_size;
    k->n_files++;
    k->file_bytes += kept->file_bytes;
}
