/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine that is measured on: its name, its caches, and how fast it reads.
 */
#ifndef BENCH_MACHINE_H
#define BENCH_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#include "kvtile/kvtile.h"

/* What /proc/cpuinfo calls the processor, and how many there are. */
void kvt_machine_name(char *out, size_t size);
/* Bytes of the last-level cache; 32 MiB where the system does not say. */
uint64_t kvt_machine_cache_bytes(void);

/* A way to read `bytes` bytes, a multiple of 512, aligned to 64; the result depends on all of them. */
typedef uint64_t (*kvt_read_fn)(const unsigned char *p, size_t bytes);
uint64_t kvt_read_avx2(const unsigned char *p, size_t bytes);
uint64_t kvt_read_avx512(const unsigned char *p, size_t bytes);

/* Reads memory with the widest loads that the processor has, going round a block that it owns. */
struct kvt_reader {
    unsigned char *bytes;
    uint64_t n, at;
};
KVT_MUST_CHECK enum kvt_status kvt_reader_grow(struct kvt_reader *reader, uint64_t bytes, struct kvt_error *err);
/* The threads of `parallel` read n bytes (at most what it has) between them. */
void kvt_reader_read(struct kvt_reader *reader, const struct kvt_parallel *parallel, uint64_t n);
void kvt_reader_finish(struct kvt_reader *reader);

#endif
