/* SPDX-License-Identifier: Apache-2.0
 * JSON into a buffer. */
#ifndef BENCH_DUMP_H
#define BENCH_DUMP_H

#include <jansson.h>

#include "base/buf.h"

/* Adds `root` and a line's end, and gives root back. NOMEM also where root is NULL or not `whole`: jansson ran out of memory before. */
KVT_MUST_CHECK enum kvt_status kvt_dump_json(struct kvt_buf *out, json_t *root, bool whole);

#endif
