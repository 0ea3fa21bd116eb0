/* SPDX-License-Identifier: Apache-2.0
 * JSON into a buffer. */
#include "bench/dump.h"

static int add_bytes(const char *data, size_t len, void *out) { return kvt_buf_add(out, data, len) == KVT_OK ? 0 : -1; }

enum kvt_status kvt_dump_json(struct kvt_buf *out, json_t *root, bool whole) {
    const int failed = !root || json_dump_callback(root, add_bytes, out, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) != 0;
    json_decref(root);
    return whole && !failed ? kvt_buf_add(out, "\n", 1) : KVT_ERR_NOMEM;
}
