/* SPDX-License-Identifier: Apache-2.0 */
#include "support/guard.h"

#include <sys/mman.h>
#include <unistd.h>

int guard_init(struct guard *g, size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (bytes + page - 1) / page * page;
    void *map = mmap(NULL, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return 0;
    *g = (struct guard){map, inner + 2 * page, inner};
    if (inner && mprotect(g->map + page, inner, PROT_READ | PROT_WRITE) != 0) {
        guard_finish(g);
        return 0;
    }
    return 1;
}

void guard_finish(struct guard *g) { munmap(g->map, g->map_bytes); }

unsigned char *guard_first(const struct guard *g) { return g->map + (g->map_bytes - g->bytes) / 2; }

unsigned char *guard_last(const struct guard *g, size_t bytes) { return guard_first(g) + g->bytes - bytes; }
