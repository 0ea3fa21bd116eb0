/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void kvt_buf_init(struct kvt_buf *buf, const struct kvt_allocator *allocator, size_t max) {
    *buf = (struct kvt_buf){.allocator = kvt_allocator_or_default(allocator), .max = max};
}

void kvt_buf_finish(struct kvt_buf *buf) {
    kvt_give(&buf->allocator, buf->data, buf->capacity, 1);
    buf->data = NULL;
    buf->len = buf->capacity = 0;
}

/* Room for len more bytes and the NUL. */
static enum kvt_status reserve(struct kvt_buf *buf, size_t len) {
    size_t need;
    if (!kvt_add_ok(buf->len, len, &need) || need > buf->max) return KVT_ERR_LIMIT;
    if (need < buf->capacity) return KVT_OK;
    const size_t capacity = KVT_MAX(need + 1, KVT_MIN(buf->max + 1, KVT_MAX((size_t)256, buf->capacity * 2)));
    char *data = kvt_take(&buf->allocator, capacity, 1);
    if (!data) return KVT_ERR_NOMEM;
    if (buf->data) memcpy(data, buf->data, buf->len);
    kvt_give(&buf->allocator, buf->data, buf->capacity, 1);
    buf->data = data;
    buf->capacity = capacity;
    return KVT_OK;
}

enum kvt_status kvt_buf_add(struct kvt_buf *buf, const void *data, size_t len) {
    const enum kvt_status status = reserve(buf, len);
    if (status != KVT_OK) return status;
    if (len) memcpy(buf->data + buf->len, data, len);
    buf->len += len;
    buf->data[buf->len] = 0;
    return KVT_OK;
}

enum kvt_status kvt_buf_addf(struct kvt_buf *buf, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    enum kvt_status status = len < 0 ? KVT_ERR_ARG : reserve(buf, (size_t)len);
    if (status == KVT_OK) {
        vsnprintf(buf->data + buf->len, (size_t)len + 1, format, again);
        buf->len += (size_t)len;
    }
    va_end(again);
    return status;
}

const char *kvt_buf_text(const struct kvt_buf *buf) { return buf->data ? buf->data : ""; }
