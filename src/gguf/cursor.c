/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading forward in a file that nobody vouches for.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "gguf/inside.h"

enum { NAME_LEN_MAX = 65535 }; /* the specification's limit for keys */

enum kvt_status kvt_gguf_refuse(const struct kvt_gguf_cursor *c, enum kvt_status code, const char *format, ...) {
    char what[360];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (c->number == 0) return kvt_fail(c->err, code, "%.120s: %s", c->file, what);
    return kvt_fail(c->err, code, "%.120s: %s %zu: %s", c->file, c->part, c->number, what);
}

enum kvt_status kvt_gguf_read_bytes(struct kvt_gguf_cursor *c, uint64_t n, const unsigned char **out) {
    if (n > kvt_gguf_left(c))
        return kvt_gguf_refuse(c, KVT_ERR_FORMAT,
                               "%" PRIu64
                               " bytes are needed at byte %zu, but the file ends at byte %zu (damaged or cut "
                               "short?)",
                               n, c->at, c->bytes);
    *out = c->data + c->at;
    c->at += (size_t)n;
    return KVT_OK;
}

enum kvt_status kvt_gguf_read_u32(struct kvt_gguf_cursor *c, uint32_t *out) {
    const unsigned char *p = NULL;
    KVT_TRY(kvt_gguf_read_bytes(c, 4, &p));
    *out = (uint32_t)kvt_gguf_le(p, 4);
    return KVT_OK;
}

enum kvt_status kvt_gguf_read_u64(struct kvt_gguf_cursor *c, uint64_t *out) {
    const unsigned char *p = NULL;
    KVT_TRY(kvt_gguf_read_bytes(c, 8, &p));
    *out = kvt_gguf_le(p, 8);
    return KVT_OK;
}

enum kvt_status kvt_gguf_read_slice(struct kvt_gguf_cursor *c, struct kvt_slice *out) {
    uint64_t len;
    const unsigned char *p = NULL;
    KVT_TRY(kvt_gguf_read_u64(c, &len));
    KVT_TRY(kvt_gguf_read_bytes(c, len, &p));
    *out = (struct kvt_slice){(const char *)p, (size_t)len};
    return KVT_OK;
}

enum kvt_status kvt_gguf_read_name(struct kvt_gguf_cursor *c, const struct kvt_allocator *allocator, char **out) {
    struct kvt_slice name;
    KVT_TRY(kvt_gguf_read_slice(c, &name));
    if (name.len == 0 || name.len > NAME_LEN_MAX)
        return kvt_gguf_refuse(c, KVT_ERR_FORMAT, "its name has %zu bytes; 1 to %d are allowed", name.len,
                               NAME_LEN_MAX);
    for (size_t i = 0; i < name.len; i++)
        if ((unsigned char)name.data[i] < 0x20 || name.data[i] == 0x7f)
            return kvt_gguf_refuse(c, KVT_ERR_FORMAT, "its name has a control character (0x%02x)",
                                   (unsigned)(unsigned char)name.data[i]);
    char *copy = kvt_take_string(allocator, name.data, name.len);
    if (!copy) return kvt_gguf_refuse(c, KVT_ERR_NOMEM, "no memory for its name");
    *out = copy;
    return KVT_OK;
}
