/* SPDX-License-Identifier: Apache-2.0
 * A growing byte buffer with a mandatory maximum. Always ends in a NUL that is not counted, so text can be printed. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include "base/alloc.h"
#include "base/attr.h"

struct kvt_buf {
    struct kvt_allocator allocator;
    char *data; /* NULL while empty and never grown */
    size_t len, capacity, max;
};

void kvt_buf_init(struct kvt_buf *buf, const struct kvt_allocator *allocator, size_t max);
void kvt_buf_finish(struct kvt_buf *buf);

/* NOMEM when memory is out, LIMIT past the maximum; the buffer keeps what it had. */
KVT_MUST_CHECK enum kvt_status kvt_buf_add(struct kvt_buf *buf, const void *data, size_t len);
KVT_MUST_CHECK enum kvt_status kvt_buf_addf(struct kvt_buf *buf, const char *format, ...) KVT_PRINTF(2, 3);

/* The text so far, never NULL. */
const char *kvt_buf_text(const struct kvt_buf *buf);

#endif
