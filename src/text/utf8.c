/* SPDX-License-Identifier: Apache-2.0 */
#include "text/utf8.h"

#include <string.h>

#include "text/text.h"

/* Bytes that a character with this first byte has, 0 if none begins so, and the range of its second byte. */
static int lead_len(unsigned char lead, unsigned char *low, unsigned char *high) {
    *low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    *high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    return lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
}

/* How many of the n bytes at p (n > 0) are the start of one character; *need is its full length. */
static int matched_len(const char *p, size_t n, int *need) {
    unsigned char low, high;
    *need = lead_len((unsigned char)p[0], &low, &high);
    if (*need == 0) return 0;
    int i = 1;
    for (; i < *need && (size_t)i < n; i++) {
        const unsigned char c = (unsigned char)p[i];
        if (i == 1 ? c < low || c > high : c < 0x80 || c > 0xBF) break;
    }
    return i;
}

int kvt_utf8_char_len(const char *p, size_t n) {
    int need;
    if (n == 0) return 0;
    return matched_len(p, n, &need) == need ? need : 0;
}

size_t kvt_utf8_valid_len(const char *p, size_t n) {
    size_t i = 0;
    while (i < n) {
        uint64_t eight;
        if (n - i >= sizeof eight) {
            memcpy(&eight, p + i, sizeof eight);
            if (!(eight & 0x8080808080808080u)) {
                i += sizeof eight;
                continue;
            }
        }
        const int len = kvt_utf8_char_len(p + i, n - i);
        if (len == 0) break;
        i += (size_t)len;
    }
    return i;
}

size_t kvt_utf8_unfinished_len(const char *p, size_t n) {
    for (size_t k = 1; k <= KVT_MIN(n, (size_t)3); k++) {
        int need;
        const int len = matched_len(p + n - k, k, &need);
        if (len == (int)k && need > len) return k;
    }
    return 0;
}

uint32_t kvt_utf8_code(const char *p, int len) {
    const unsigned char *u = (const unsigned char *)p;
    uint32_t code = len == 1 ? u[0] : u[0] & (0xFFu >> (len + 1));
    for (int i = 1; i < len; i++) code = code << 6 | (u[i] & 0x3Fu);
    return code;
}

int kvt_utf8_put(char *dst, uint32_t code) {
    if (code < 0x80) {
        dst[0] = (char)code;
        return 1;
    }
    dst[0] = (char)(0xC0 | code >> 6);
    dst[1] = (char)(0x80 | (code & 0x3F));
    return 2;
}

/* ---- streams ------------------------------------------------------------------------------------------------------------ */

enum kvt_status kvt_utf8_feed(struct kvt_utf8_stream *stream, const char *data, size_t len, struct kvt_buf *out) {
    /* What is held and the last three bytes of what comes: enough to tell what is unfinished. */
    char tail[6];
    size_t n_tail = (size_t)stream->n_held;
    memcpy(tail, stream->held, n_tail);
    const size_t n_new = KVT_MIN(len, (size_t)3);
    if (n_new) memcpy(tail + n_tail, data + len - n_new, n_new);
    n_tail += n_new;
    const size_t n_hold = kvt_utf8_unfinished_len(tail, n_tail);

    const size_t n_show = (size_t)stream->n_held + len - n_hold;
    const size_t n_old = KVT_MIN(n_show, (size_t)stream->n_held), before = out->len;
    enum kvt_status status = kvt_buf_add(out, stream->held, n_old);
    if (status == KVT_OK) status = kvt_buf_add(out, data, n_show - n_old);
    if (status != KVT_OK) {
        out->len = before;
        if (out->data) out->data[before] = 0;
        return status;
    }
    memcpy(stream->held, tail + n_tail - n_hold, n_hold);
    stream->n_held = (int)n_hold;
    return KVT_OK;
}

enum kvt_status kvt_utf8_flush(struct kvt_utf8_stream *stream, struct kvt_buf *out) {
    const enum kvt_status status = kvt_buf_add(out, stream->held, (size_t)stream->n_held);
    if (status == KVT_OK) stream->n_held = 0;
    return status;
}
