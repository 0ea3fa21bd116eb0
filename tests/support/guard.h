/* SPDX-License-Identifier: Apache-2.0
 * Memory between two pages that cannot be touched: a read or write one byte outside it ends the test. */
#ifndef SUPPORT_GUARD_H
#define SUPPORT_GUARD_H

#include <stddef.h>

struct guard {
    unsigned char *map;
    size_t map_bytes, bytes;
};

/* False if memory is out. */
int guard_init(struct guard *g, size_t bytes);
void guard_finish(struct guard *g);

/* `bytes` bytes (at most those of init) that start at the lower guard page / end at the upper one. */
unsigned char *guard_first(const struct guard *g);
unsigned char *guard_last(const struct guard *g, size_t bytes);

#endif
