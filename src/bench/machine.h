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

/* Reads memory as fast as plain loads do, going round a block that it owns. */
struct kvt_reader {
    uint64_t *words;
    uint64_t n, at; /* bytes */
};
KVT_MUST_CHECK enum kvt_status kvt_reader_grow(struct kvt_reader *reader, uint64_t bytes, struct kvt_error *err);
/* The threads of `parallel` read n bytes (at most what it has) between them. */
void kvt_reader_read(struct kvt_reader *reader, const struct kvt_parallel *parallel, uint64_t n);
void kvt_reader_finish(struct kvt_reader *reader);

#endif
