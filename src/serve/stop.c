/* SPDX-License-Identifier: Apache-2.0
 * Stop strings. */
#include "serve/stop.h"

#include <string.h>

#include "base/check.h"

enum kvt_status kvt_stop_add(struct kvt_stop_set *set, const char *text, struct kvt_error *err) {
    const size_t len = strlen(text);
    if (set->n == KVT_STOPS_MAX) return kvt_fail(err, KVT_ERR_ARG, "'stop' has more than %d strings", KVT_STOPS_MAX);
    if (len == 0 || len > KVT_STOP_BYTES_MAX)
        return kvt_fail(err, KVT_ERR_ARG, "'stop' has a string of %zu bytes; 1 to %d are allowed", len,
                        KVT_STOP_BYTES_MAX);
    char *copy = kvt_take_string(&kvt_allocator_libc, text, len);
    if (!copy) return kvt_fail(err, KVT_ERR_NOMEM, "no memory for the stop strings");
    set->texts[set->n++] = copy;
    return KVT_OK;
}

void kvt_stop_finish(struct kvt_stop_set *set) {
    for (int i = 0; i < set->n; i++) kvt_give(&kvt_allocator_libc, set->texts[i], strlen(set->texts[i]) + 1, 1);
    set->n = 0;
}

/* Where `stop` begins in text, from `from` on; n if nowhere. */
static size_t find(const char *text, size_t n, size_t from, const char *stop) {
    const size_t len = strlen(stop);
    for (size_t at = from; at + len <= n; at++)
        if (memcmp(text + at, stop, len) == 0) return at;
    return n;
}

/* How many bytes at the end of a text are a beginning of `stop`, but not all of it. */
static size_t n_begun(const char *text, size_t n, const char *stop) {
    size_t len = KVT_MIN(strlen(stop) - 1, n);
    while (len > 0 && memcmp(text + n - len, stop, len) != 0) len--;
    return len;
}

bool kvt_stop_find(const struct kvt_stop_set *set, const char *text, size_t n, size_t n_old, size_t *out_len) {
    size_t first = n, held = 0;
    for (int i = 0; i < set->n; i++) {
        const size_t before = KVT_MIN(strlen(set->texts[i]) - 1, n_old);
        first = KVT_MIN(first, find(text, n, n_old - before, set->texts[i]));
        held = KVT_MAX(held, n_begun(text, n, set->texts[i]));
    }
    *out_len = first < n ? first : n - held;
    return first < n;
}
