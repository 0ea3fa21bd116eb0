/* SPDX-License-Identifier: Apache-2.0
 * The machine that is measured on. */
#include "bench/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/file.h"
#include "base/parallel.h"

enum { CPUINFO_MAX = 1 << 20, CHUNK = 256 * 1024, STEP = 512 };

void kvt_machine_name(char *out, size_t size) {
    struct kvt_buf file;
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    int len = 0;
    const char *name = "unknown processor";
    kvt_buf_init(&file, NULL, CPUINFO_MAX);
    if (kvt_file_read(&file, "/proc/cpuinfo", NULL) == KVT_OK) {
        const char *line = strstr(kvt_buf_text(&file), "model name");
        const char *colon = line ? strchr(line, ':') : NULL;
        if (colon) {
            name = colon + 1 + strspn(colon + 1, " ");
            len = (int)strcspn(name, "\n");
        }
    }
    if (len == 0) len = (int)strlen(name);
    snprintf(out, size, "%.*s, %ld processors", len < 60 ? len : 60, name, n);
    kvt_buf_finish(&file);
}

/* What the kernel says of the cache that processor 0 shares with some others; the C library's figure is that of all such caches of a
 * socket on some processors. */
uint64_t kvt_machine_cache_bytes(void) {
    struct kvt_buf file;
    unsigned long long kib = 0;
    long bytes = 0;
    kvt_buf_init(&file, NULL, CPUINFO_MAX);
    if (kvt_file_read(&file, "/sys/devices/system/cpu/cpu0/cache/index3/size", NULL) == KVT_OK)
        kib = strtoull(kvt_buf_text(&file), NULL, 10);
    kvt_buf_finish(&file);
    if (kib > 0 && kib < UINT64_C(1) << 30) return kib << 10;
#if defined(_SC_LEVEL3_CACHE_SIZE)
    bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    return bytes > 0 ? (uint64_t)bytes : UINT64_C(32) << 20;
}

enum kvt_status kvt_reader_grow(struct kvt_reader *r, uint64_t bytes, struct kvt_error *err) {
    const uint64_t n = (bytes + CHUNK - 1) / CHUNK * CHUNK;
    if (n <= r->n) return KVT_OK;
    kvt_reader_finish(r);
    r->bytes = kvt_take(&kvt_allocator_libc, n, 1);
    if (!r->bytes) return kvt_fail(err, KVT_ERR_NOMEM, "no memory to read from: %llu bytes", (unsigned long long)n);
    memset(r->bytes, 1, n);
    r->n = n;
    return KVT_OK;
}

static uint64_t read_words(const unsigned char *p, size_t bytes) {
    uint64_t a[8] = {0};
    for (size_t at = 0; at < bytes; at += sizeof a) {
        uint64_t x[8];
        memcpy(x, p + at, sizeof x);
        for (int i = 0; i < 8; i++) a[i] ^= x[i];
    }
    for (int i = 1; i < 8; i++) a[0] ^= a[i];
    return a[0];
}

static kvt_read_fn read_fn(void) {
#if defined(__x86_64__)
    if (kvt_level_runs(KVT_LEVEL_AVX512)) return kvt_read_avx512;
    if (kvt_level_runs(KVT_LEVEL_AVX2)) return kvt_read_avx2;
#endif
    return read_words;
}

struct read_run {
    kvt_read_fn fn;
    const unsigned char *bytes;
    uint64_t n, first, count;
};

static void read_chunk(void *arg, int i, int thread) {
    const struct read_run *run = arg;
    const uint64_t start = (run->first + (uint64_t)i * CHUNK) % run->n;
    const uint64_t left = run->count - (uint64_t)i * CHUNK, n = left < CHUNK ? left : CHUNK;
    (void)thread;
    const uint64_t sum = run->fn(run->bytes + start, n / STEP * STEP);
    __asm__ volatile("" : : "r"(sum)); /* so that no load can be left out */
}

void kvt_reader_read(struct kvt_reader *r, const struct kvt_parallel *parallel, uint64_t n) {
    struct read_run run = {read_fn(), r->bytes, r->n, r->at, n < r->n ? n : r->n};
    kvt_parallel_run(parallel, (int)((run.count + CHUNK - 1) / CHUNK), read_chunk, &run);
    r->at = (r->at + (run.count + CHUNK - 1) / CHUNK * CHUNK) % r->n;
}

void kvt_reader_finish(struct kvt_reader *r) {
    kvt_give(&kvt_allocator_libc, r->bytes, r->n, 1);
    *r = (struct kvt_reader){0};
}
