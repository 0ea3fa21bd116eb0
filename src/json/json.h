/* SPDX-License-Identifier: Apache-2.0
 *
 * Door of json: what reports have in common that are written with jansson. jansson gives NULL when memory is out, and takes NULL (failing)
 * wherever a value is expected: so a tree needs no checks but of what is added to arrays and objects one by one.
 */
#ifndef JSON_JSON_H
#define JSON_JSON_H

#include <jansson.h>

#include "base/buf.h"

/* null for what JSON has no number for: NaN, infinities. */
json_t *kvt_json_number(double x);
/* Text that may not be UTF-8: then each byte past ASCII is '?'. null where text is NULL. */
json_t *kvt_json_text(const char *text);

/* Appends `root` and a line's end, numbers with so many digits, and gives root back. NOMEM also where root is NULL or not `whole`:
 * memory ran out before. */
KVT_MUST_CHECK enum kvt_status kvt_json_dump(struct kvt_buf *out, json_t *root, bool whole, int digits);

#endif
