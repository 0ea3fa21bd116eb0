/* SPDX-License-Identifier: Apache-2.0 */
#include "support/threads.h"

#include <stdlib.h>

enum { MOST = 8 };

static struct kvt_threads *pools[MOST + 1];

static void destroy_all(void) {
    for (int i = 0; i <= MOST; i++) kvt_threads_destroy(pools[i]);
}

struct kvt_parallel test_parallel(int n_threads) {
    if (n_threads < 2) return kvt_threads_parallel(NULL);
    if (n_threads > MOST) abort();
    if (!pools[n_threads]) {
        static int registered;
        if (!registered) registered = atexit(destroy_all) == 0;
        if (kvt_threads_create(&pools[n_threads], n_threads, NULL, NULL) != KVT_OK) abort();
    }
    return kvt_threads_parallel(pools[n_threads]);
}
