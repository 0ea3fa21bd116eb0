/* SPDX-License-Identifier: Apache-2.0
 * The reference on disk. A file is a head, the key's text, and records of equal size, one for each chunk: the hash of its ids, the
 * hash of its outputs, the outputs. It is written whole under another name and put in place at the end, so that a file that is there
 * is whole; its hashes are checked all the same. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "fidelity/inside.h"

enum { VERSION = 1, KEY_BYTES_MAX = 2048, PATH_BYTES_MAX = 4096 };

struct head {
    char magic[8];
    uint32_t version;
    uint32_t key_bytes;
    uint64_t hash; /* of what follows in the head, and of the key */
    uint64_t chunk_bytes;
    char program[32];
};

struct record {
    uint64_t ids, outputs;
};

struct kvt_store {
    struct kvt_allocator allocator;
    char path[PATH_BYTES_MAX];
    char key[KEY_BYTES_MAX];
    struct head head;
    struct kvt_map map; /* of the old file, if it is good */
    size_t first;       /* of its first record */
    int n_chunks;       /* in it */
    bool writing, failed;
    struct kvt_writer writer;
    struct kvt_error err;
};

static const char magic[8] = {'k', 'v', 't', 'r', 'e', 'f', '\r', '\n'};

static uint64_t head_hash(const struct head *head, const char *key) {
    const uint64_t both[] = {kvt_hash(&head->chunk_bytes, sizeof *head - offsetof(struct head, chunk_bytes)),
                             kvt_hash(key, head->key_bytes)};
    return kvt_hash(both, sizeof both);
}

static size_t record_bytes(const struct kvt_store *s) { return sizeof(struct record) + s->head.chunk_bytes; }

/* ---- reading ---------------------------------------------------------------------------------------------------------- */

/* Whether the map is a file of this key and program. Otherwise why not, empty where nothing is to be said. */
static bool is_good(const struct kvt_store *s, const char **why) {
    struct head head;
    *why = "is no reference of kvtile or is damaged";
    if (s->map.bytes < sizeof head) return false;
    memcpy(&head, s->map.data, sizeof head);
    if (memcmp(head.magic, magic, sizeof magic) != 0) return false;
    *why = "is of another version of kvtile";
    if (head.version != VERSION) return false;
    *why = "is damaged";
    if (head.key_bytes > s->map.bytes - sizeof head || head.program[sizeof head.program - 1] ||
        head.hash != head_hash(&head, (const char *)s->map.data + sizeof head))
        return false;
    *why = "was made by another build of kvtile";
    if (strcmp(head.program, s->head.program) != 0) return false;
    *why = "is of another model or text";
    if (head.key_bytes != s->head.key_bytes || head.chunk_bytes != s->head.chunk_bytes ||
        memcmp(s->map.data + sizeof head, s->key, head.key_bytes) != 0)
        return false;
    *why = "is damaged";
    return (s->map.bytes - sizeof head - head.key_bytes) % record_bytes(s) == 0;
}

static void open_old(struct kvt_store *s, char trouble[232]) {
    const char *why;
    struct kvt_error err;
    if (access(s->path, F_OK) != 0) return; /* the usual case, and no trouble */
    if (kvt_map_open(&s->map, s->path, &err) != KVT_OK) {
        snprintf(trouble, 232, "%.200s", err.text);
    } else if (!is_good(s, &why)) {
        snprintf(trouble, 232, "%.150s %s, and is made anew", s->path, why);
        kvt_map_close(&s->map);
        s->map = (struct kvt_map){.data = NULL};
    } else {
        s->first = sizeof s->head + s->head.key_bytes;
        s->n_chunks = (int)KVT_MIN((s->map.bytes - s->first) / record_bytes(s), (size_t)INT32_MAX);
    }
}

struct kvt_store *kvt_store_open(const struct kvt_store_key *key, char trouble[232],
                                 const struct kvt_allocator *allocator) {
    const struct kvt_allocator a = kvt_allocator_or_default(allocator);
    struct kvt_store *s = kvt_take_zero(&a, 1, sizeof *s);
    if (!s) return NULL;
    s->allocator = a;
    const int len = snprintf(s->key, sizeof s->key, "%s", key->text);
    KVT_ASSERT(len > 0 && len < KEY_BYTES_MAX);
    memcpy(s->head.magic, magic, sizeof magic);
    s->head.version = VERSION;
    s->head.key_bytes = (uint32_t)len;
    s->head.chunk_bytes = key->chunk_bytes;
    snprintf(s->head.program, sizeof s->head.program, "%s", key->program);
    s->head.hash = head_hash(&s->head, s->key);
    const int path = snprintf(s->path, sizeof s->path, "%s/%016llx.reference", key->folder,
                              (unsigned long long)kvt_hash(s->key, (size_t)len));
    if (path >= PATH_BYTES_MAX) {
        s->failed = true;
        snprintf(trouble, 232, "the folder's name is longer than %d bytes", PATH_BYTES_MAX);
    } else {
        open_old(s, trouble);
    }
    return s;
}

/* The record of a chunk in the old file, if it is what its hash says. */
static const unsigned char *find_record(const struct kvt_store *s, int chunk, uint64_t ids) {
    struct record record;
    if (chunk >= s->n_chunks) return NULL;
    const unsigned char *at = s->map.data + s->first + (size_t)chunk * record_bytes(s);
    memcpy(&record, at, sizeof record);
    const bool good = record.ids == ids && record.outputs == kvt_hash(at + sizeof record, s->head.chunk_bytes);
    return good ? at : NULL;
}

bool kvt_store_read(struct kvt_store *s, int chunk, uint64_t ids, float *outputs) {
    const unsigned char *at = find_record(s, chunk, ids);
    if (!at) return false;
    memcpy(outputs, at + sizeof(struct record), s->head.chunk_bytes);
    if (s->writing) kvt_writer_add(&s->writer, at, record_bytes(s));
    return true;
}

/* ---- writing ---------------------------------------------------------------------------------------------------------- */

/* A new file with the first n chunks of the old one. */
static void begin_writing(struct kvt_store *s, int n) {
    if (kvt_writer_open(&s->writer, s->path, &s->allocator, &s->err) != KVT_OK) {
        s->failed = true;
        return;
    }
    s->writing = true;
    kvt_writer_add(&s->writer, &s->head, sizeof s->head);
    kvt_writer_add(&s->writer, s->key, s->head.key_bytes);
    if (n > 0) kvt_writer_add(&s->writer, s->map.data + s->first, (size_t)n * record_bytes(s));
}

void kvt_store_add(struct kvt_store *s, int chunk, uint64_t ids, const float *outputs) {
    if (!s->writing && !s->failed) begin_writing(s, chunk);
    if (!s->writing) return;
    const struct record record = {ids, kvt_hash(outputs, s->head.chunk_bytes)};
    kvt_writer_add(&s->writer, &record, sizeof record);
    kvt_writer_add(&s->writer, outputs, s->head.chunk_bytes);
}

void kvt_store_close(struct kvt_store *s, char trouble[232]) {
    if (!s) return;
    if (s->writing && kvt_writer_commit(&s->writer, &s->err) != KVT_OK) s->failed = true;
    if (s->failed && !trouble[0]) snprintf(trouble, 232, "%.200s", s->err.text);
    kvt_map_close(&s->map);
    const struct kvt_allocator a = s->allocator;
    kvt_give(&a, s, 1, sizeof *s);
}
