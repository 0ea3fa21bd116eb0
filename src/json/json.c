/* SPDX-License-Identifier: Apache-2.0
 * Numbers, texts, and a tree into a buffer. */
#include "json/json.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"

json_t *kvt_json_number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

json_t *kvt_json_text(const char *text) {
    if (!text) return json_null();
    json_t *value = json_string(text);
    if (value) return value;
    const size_t size = strlen(text) + 1;
    char *ascii = kvt_take(&kvt_allocator_libc, size, 1);
    if (!ascii) return NULL;
    for (size_t i = 0; i < size; i++) ascii[i] = (unsigned char)text[i] > 126 ? '?' : text[i];
    value = json_string(ascii);
    kvt_give(&kvt_allocator_libc, ascii, size, 1);
    return value;
}

static int add_bytes(const char *data, size_t len, void *out) { return kvt_buf_add(out, data, len) == KVT_OK ? 0 : -1; }

enum kvt_status kvt_json_dump(struct kvt_buf *out, json_t *root, bool whole, int digits) {
    const size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION((size_t)digits);
    const bool failed = !root || !whole || json_dump_callback(root, add_bytes, out, flags) != 0;
    json_decref(root);
    return failed ? KVT_ERR_NOMEM : kvt_buf_add(out, "\n", 1);
}
