/* SPDX-License-Identifier: Apache-2.0
 * A tiny outside program, C17 and C++17, linked with an installed libkvtile. */
#include <stdio.h>
#include <string.h>

#include "kvtile/kvtile.h"

static void add_one(void *arg, int i, int thread) {
    (void)thread;
    ((int *)arg)[i] += 1;
}

int main(void) {
    if (strcmp(kvt_version(), KVT_VERSION_STRING) != 0) {
        fprintf(stderr, "header %s, library %s\n", KVT_VERSION_STRING, kvt_version());
        return 1;
    }
    enum kvt_level level;
    struct kvt_error err;
    if (kvt_level_parse(&level, "auto", &err) != KVT_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    /* Threads come from the library's own dependencies: a static link must have brought them. */
    int count[64] = {0};
    struct kvt_threads *threads;
    if (kvt_threads_create(&threads, 2, NULL, &err) != KVT_OK) return 1;
    const struct kvt_parallel two = kvt_threads_parallel(threads);
    two.run(two.ctx, 64, add_one, count);
    kvt_threads_destroy(threads);
    for (int i = 0; i < 64; i++)
        if (count[i] != 1) return 1;
    printf("kvtile %s, level %s, %d threads\n", kvt_version(), kvt_level_name(level), two.n_threads);
    return 0;
}
