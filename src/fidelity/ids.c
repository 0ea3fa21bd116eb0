/* SPDX-License-Identifier: Apache-2.0
 * Token ids as a text file has them: whole numbers, one per line. */
#include <ctype.h>
#include <string.h>

#include "base/check.h"
#include "fidelity/fidelity.h"

/* One line without its end and comment. False where it holds something else than at most one number. */
static bool read_line(const char *line, size_t len, bool *out_empty, int64_t *out_id) {
    while (len > 0 && isspace((unsigned char)line[len - 1])) len--;
    while (len > 0 && isspace((unsigned char)*line)) line++, len--;
    *out_empty = len == 0;
    int64_t id = 0;
    for (size_t i = 0; i < len; i++) {
        if (!isdigit((unsigned char)line[i])) return false;
        if (id <= INT32_MAX) id = id * 10 + (line[i] - '0');
    }
    *out_id = id;
    return true;
}

enum kvt_status kvt_fidelity_read_ids(struct kvt_ids *out, const char *text, size_t len, const char *name, int n_vocab,
                                      struct kvt_error *err) {
    const size_t len_before = out->len;
    enum kvt_status status = KVT_OK;
    size_t number = 0;
    for (size_t at = 0; at < len && status == KVT_OK;) {
        const char *line = text + at;
        const char *end = memchr(line, '\n', len - at);
        const size_t whole = end ? (size_t)(end - line) : len - at;
        const char *comment = memchr(line, '#', whole);
        bool empty;
        int64_t id;
        at += whole + 1;
        number++;
        if (!read_line(line, comment ? (size_t)(comment - line) : whole, &empty, &id))
            status = kvt_fail(err, KVT_ERR_FORMAT, "%s, line %zu: not a token id; write whole numbers, one per line",
                              name, number);
        else if (!empty && id >= n_vocab)
            status = kvt_fail(err, KVT_ERR_RANGE, "%s, line %zu: this id is outside the model's vocabulary (0 to %d)",
                              name, number, n_vocab - 1);
        else if (!empty && kvt_ids_add(out, (int32_t)id) != KVT_OK)
            status = kvt_fail(err, KVT_ERR_NOMEM, "not enough memory for the ids of %s", name);
    }
    if (status != KVT_OK) out->len = len_before;
    return status;
}
